#!/usr/bin/env python3
"""Writes chat_fixtures.json, with the package jinja2: templates for the tests of src/tokenize/chat, and what jinja2
makes of them. Those of whole models have the form of the published ones, without their parts for tools."""

import json
import os
import sys

sys.dont_write_bytecode = True
import chat_reference  # noqa: E402

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "chat_fixtures.json")

DATED = """{{- bos_token }}
{%- if not date_string is defined %}
    DATE
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{#- The system message comes first, wherever it is from. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Some words about tools\\n" }}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {{- message.tool_calls | tojson }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

CHATML = ("{% for message in messages %}SYSTEM{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
          "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")

TEMPLATES = {
    "llama3": "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
              "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + "
              "'<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
              "{{ content }}{% endfor %}{% if add_generation_prompt %}"
              "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    "llama3.1": DATED.replace("DATE", '{%- set date_string = "26 Jul 2024" %}'),
    "llama3.2": DATED.replace("DATE", '{%- if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}'
                                      '{%- else %}{%- set date_string = "26 Jul 2024" %}{%- endif %}'),
    "chatml": CHATML.replace("SYSTEM", ""),
    "qwen2": CHATML.replace("SYSTEM", "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\n"
                                      "You are a helpful assistant.<|im_end|>\\n' }}{% endif %}"),
}

LOOP = "{% for message in messages %}BODY{% endfor %}"


def each(body, before="", after=""):
    return before + LOOP.replace("BODY", body) + after


# One or a few constructs each, in the forms that published templates have them.
TEMPLATES |= {
    "zephyr": each("\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n"
                   "{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n"
                   "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n' + message['content'] + eos_token }}\n"
                   "{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n"),
    "llama2": "{%- set ns = namespace(system='') -%}{%- if messages[0].role == 'system' -%}"
              "{%- set ns.system = '<<SYS>>\\n' ~ messages[0].content ~ '\\n<</SYS>>\\n\\n' -%}"
              "{%- set turns = messages[1:] -%}{%- else -%}{%- set turns = messages -%}{%- endif -%}"
              "{%- for turn in turns -%}{%- if (turn.role == 'user') != (loop.index0 % 2 == 0) -%}"
              "{{- raise_exception('user and assistant take turns') -}}{%- endif -%}"
              "{%- if turn.role == 'user' -%}"
              "{{- bos_token + '[INST] ' + (ns.system if loop.first else '') + turn.content.strip() + ' [/INST]' -}}"
              "{%- else -%}{{- ' ' + turn.content | trim + ' ' + eos_token -}}{%- endif -%}{%- endfor -%}",
    "phi3": each("{{'<|' + message['role'] + '|>' + '\\n' + message['content'] + '<|end|>\\n' }}",
                 after="{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}"),
    "gemma": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
             "{% endif %}" + each("{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}"
                                  "{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + "
                                  "message['content'] | trim + '<end_of_turn>\n' }}"),
    "generation": each("\n    {{- '<|im_start|>' + message.role + '\\n' }}\n    {%- if message.role == 'assistant' %}\n"
                       "        {%- generation %}\n            {{- message.content + '<|im_end|>' }}\n"
                       "        {%- endgeneration %}\n    {%- else %}\n        {{- message.content }}\n    {%- endif %}\n"),
    "think": each("{%- set content = message.content %}{%- if message.role == 'assistant' and '</think>' in content %}"
                  "{%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}"
                  "{%- set content = content.split('</think>')[-1].lstrip('\\n') %}[{{ reasoning }}]{%- endif %}"
                  "{{- '<' ~ message.role ~ '>' ~ content }}\n"),
    "backwards": "{%- set ns = namespace(last=messages|length - 1, found=false) %}{%- for message in messages[::-1] %}"
                 "{%- set index = (messages|length - 1) - loop.index0 %}{%- if message.role == 'user' and not ns.found %}"
                 "{%- set ns.found = true %}{%- set ns.last = index %}{%- endif %}{%- endfor %}{{ ns.last }} {{ ns.found }}",
    "macro": "{%- macro turn(role, content='none', end=eos_token) -%}<{{ role|upper }}>{{ content | trim }}{{ end }}"
             "{%- endmacro -%}" + each("{{ turn(message.role, message.content) }}|{{ turn('x') }}|"
                                       "{{ turn(content=message['content'], role='y', end='.') }}"),
    "macro_recursive": "{% macro count(n) %}{{ n }}{% if n > 0 %} {{ count(n - 1) }}{% endif %}{% endmacro %}"
                       "{{ count(5) }}{% macro outer() %}{{ later }}{% endmacro %}{% set later = 1 %}{{ outer() }}",
    "loop": each("{{ loop.index }}/{{ loop.length }}:{{ loop.revindex }},{{ loop.revindex0 }} {{ loop.first }}"
                 "{{ loop.last }} {{ loop.cycle('a', 'b') }} {{ loop.previtem.role if not loop.first }} "
                 "{{ loop.nextitem.role if loop.nextitem is defined else 'end' }} {{ loop.changed(message.role) }}\n"),
    "loop_else": "{% for m in messages if m.role == 'tool' %}x{% else %}none{% endfor %}"
                 "{% for m in messages if m.role != 'system' %}{{ loop.index0 }}{{ m.role }}{% else %}none{% endfor %}",
    "break": "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 4 %}{% break %}{% endif %}"
             "{{ i }},{% endfor %}{% for m in messages %}{% for c in m.content %}{% if loop.index > 3 %}{% break %}"
             "{% endif %}{{ c }}{% endfor %};{% endfor %}",
    "scope": "{% set x = 1 %}{% for m in messages %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}{{ y }}{% if true %}"
             "{% set y = 2 %}{% endif %}{{ y }}{% for m in messages %}{{ m.role }}{% endfor %}{{ m is defined }}",
    "unpack": "{% for a, b in [(1, 2), [3, 4]] %}{{ a + b }} {% endfor %}{% set c, d = 5, 6 %}{{ c * d }}"
              "{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}"
              "{% for k, v in {'b': 1, 'a': 2}|dictsort %}{{ k }}{{ v }}{% endfor %}",
    "set_block": "{% set body %}\n  {{ messages[0].content }}\n  end\n{% endset %}[{{ body }}]{{ body|length }}"
                 "{% set t | trim | upper %}  {{ messages[-1].content }} {% endset %}[{{ t }}]",
    "blanks": "a  {%- if true -%}  b  {%- endif %}  \n  c\n    {% if true %}\n  d\n    {% endif %}\n  {# e #}\nf {#- g -#} h\n"
              "{%+ if true %} i {% endif +%}\nj{{- ' k ' -}}  l\n\n",
    "raw": "{% raw %}{{ a }}{% b %}{# c #}{% endraw %}|{%- raw -%}  x {{  {%- endraw -%}  y\n",
    "slices": each("{{ message.content[1:] }}|{{ message.content[:3] }}|{{ message.content[-2:] }}|{{ message.content[::-1] }}"
                   "|{{ message.content[1:9:2] }}|{{ message.content[0] }}|{{ message.content[-1] }}\n")
              + "{{ messages[1:]|length }}{{ messages[:-1]|length }}{{ [1, 2, 3, 4][::2] }}{{ (1, 2, 3)[5:0:-1] }}",
    "strings": each("{{ message.content.split() }}{{ message.content.split(' ', 1) }}{{ message.content.replace('a', 'bb') }}"
                    "{{ message.content.startswith('H') }}{{ message.content.endswith(('.', 'o')) }}"
                    "{{ message.content.upper() }}{{ message.content.lower() }}{{ message.content.title() }}"
                    "{{ message.content.capitalize() }}{{ message.content.strip('He.') }}{{ message.content.rstrip() }}|\n"),
    "case": each("{{ message.content|upper }}{{ message.content|lower }}{{ message.content|title }}{{ message.role|title }}"
                 "{{ message.content|capitalize }}{{ 'stra\u00dfe \u01c6 \u039f\u0394\u039f\u03a3 \ufb01'|upper }}"
                 "{{ '\u039f\u0394\u039f\u03a3 \u0130'|lower }}{{ '\u01c6 \ufb01 o\\'neil'|title }}"),
    "tojson": "{{ messages | tojson }}\n{{ messages[0] | tojson(indent=2) }}\n"
              "{{ {'b': [1, 2.5, 1e20], 'a': none, 't': true, '\u00e9': ()} | tojson(sort_keys=true) }}"
              "{{ [messages[-1].content, {}] | tojson(ensure_ascii=true, separators=(',', ':')) }}{{ 'a\\x7f\\x1f/<' | tojson }}",
    "repr": "{{ messages }}{{ messages[0] }}{{ ['it\\'s', '\"', '\\n\\\\'] }}{{ (1,) }}{{ (1, 'a') }}{{ none }}{{ true }}"
            "{{ 1.0 }}{{ 1e16 }}{{ 0.0001 }}{{ 1.5e-7 }}{{ [none, false, 2] }}{{ {'a': {1: 2}} }}{{ [] }}{{ () }}{{ {} }}",
    "numbers": "{{ -7 % 3 }} {{ 7 / 2 }} {{ -7 // 2 }} {{ 7 // 2.0 }} {{ -7.5 % 2 }} {{ 1 == 1.0 }} {{ 1 == true }} {{ 2 * 3 + 4 }}"
               " {{ 2 + 3 * 4 }} {{ (2 + 3) * 4 }} {{ 6 / 3 }} {{ 1_000 }} {{ -3|string }} {{ true + 1 }} {{ 'ab' * 2 }} {{ [0] * 3 }}"
               " {{ 5 - 2 - 1 }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 3 >= 3.0 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ +4 }}",
    "logic": "{{ 0 or 'a' }} {{ '' and 1 }} {{ none or false }} {{ not 1 }} {{ not none and 2 }} {{ 1 in [1, 2] }} {{ 3 not in (1, 2) }}"
             " {{ 'el' in 'Hello' }} {{ 'role' in messages[0] }} {{ 'x' in messages[0] }} {{ 'a' if false }} {{ 'b' if 0 else 'c' if [] else 'd' }}",
    "undefined": "{{ missing }}{{ missing is defined }}{{ messages[0].missing is defined }}{{ messages[0]['x'] is undefined }}"
                 "{{ missing|default('d') }}{{ ''|default('e', true) }}{{ none|default('f') }}{{ messages[9] is defined }}"
                 "{{ missing|length }}{{ missing ~ 'a' }}{{ missing|trim }}{% for x in missing %}x{% endfor %}{{ missing == other }}"
                 "{{ tools is defined }}{{ tools is none }}{{ 'a' in missing }}{{ none.x is defined }}",
    "undefined_member": "{{ messages[0].x.y }}",
    "undefined_sum": "{{ missing + 'a' }}",
    "undefined_call": "{{ missing() }}",
    "none_loop": "{% for x in none %}x{% endfor %}",
    "text_and_number": "{{ 'a' + 1 }}",
    "tests": "{% for v in [1, 1.5, true, false, none, 'a', [], (), {}, missing, range(2)] %}{{ v is number }}{{ v is string }}"
             "{{ v is mapping }}{{ v is iterable }}{{ v is sequence }}{{ v is boolean }}{{ v is true }}{{ v is false }}"
             "{{ v is none }}{{ v is defined }}{{ v is not undefined }}{{ v is integer }}{{ v is float }}\n{% endfor %}"
             "{{ 3 is odd }}{{ 4 is even }}{{ 9 is divisibleby 3 }}{{ 1 is eq 1 }}{{ 1 is in [1] }}{{ 'a' is string and 1 }}",
    "lists": "{{ messages | map(attribute='role') | join(', ') }}|{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
             "|{{ messages | rejectattr('role', 'in', ['system', 'user']) | map(attribute='content') | list }}"
             "|{{ (messages | first).role }}{{ (messages | last).role }}|{{ ['b', 'A'] | map('upper') | list }}|{{ [1, 2, 3] | reverse | list }}"
             "|{{ 'abc' | reverse }}|{{ [0, 1, ''] | select | list }}|{{ [1, 2, 3] | select('odd') | list }}{{ [1, 2] | reject('eq', 1) | list }}"
             "|{{ messages | selectattr('content') | list | count }}{{ [] | first is defined }}{{ messages | map(attribute='x', default='-') | join }}",
    "dicts": "{% set d = {'b': 2, 'A': 1, 'c': 3} %}{{ d.get('b') }}{{ d.get('x') }}{{ d.get('x', 9) }}{{ d['A'] }}{{ d.c }}{{ d | length }}"
             "{{ d | items | list }}{{ d.keys() | list }}{{ d.values() | list }}{{ d | dictsort }}{{ d | dictsort(true) }}"
             "{{ d | dictsort(by='value', reverse=true) }}{% for k in d %}{{ k }}{% endfor %}{{ {1: 'a', true: 'b', 1.0: 'c'} }}{{ d == {'A': 1, 'c': 3, 'b': 2} }}",
    "int": "{{ '12' | int }} {{ ' 3 ' | int }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ 3.9 | int }} {{ '4.5' | int }} {{ none | int }} {{ true | int }}",
    "filters": each("{{ message.content | trim | replace('e', 'E') | safe }}{{ message.content | string | length }}{{ message.content | trim('.') }}"
                    "{{ message.content | list | length }}{{ [1, none, 'a'] | join('-') }}{{ 'aaa' | replace('a', 'b', 2) }}{{ -1 | string }}"),
    "date": "{{ strftime_now('%d %b %Y') }}{{ strftime_now('%Y-%m-%d') }}{% if strftime_now is defined %}{{ strftime_now(\"%A, %B %d\") }}{% endif %}",
    "escapes": "{{ 'a\\tb\\x41\\u00e9\\U0001F600\\'\\\"\\\\\\q\\101' }}{{ 'a' 'b' \"c\" }}{{ 'two\nlines' }}{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a': {'b': {}}} }}",
    "namespaces": "{% set ns = namespace(a=1, b=[]) %}{% set ns.c = 3 %}{% for m in messages %}{% set ns.a = ns.a + 1 %}{% set ns.b = ns.b + [m.role] %}"
                  "{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c }}{{ ns.d is defined }}{% set n2 = namespace({'x': 5}) %}{{ n2.x }}",
    "concat": each("{{ loop.index ~ '. ' ~ none ~ true ~ 1.5 ~ message.content ~ [1] }}{{ 1 ~ 2 + 3 ~ 4 if false else '' }}{{ 'a' ~ 'b' | upper }}"),
    "precedence": "{{ 'a' + 'b' | upper }}{{ -1 | string + 'x' }}{{ not 1 == 2 }}{{ 1 + 2 ~ 'x' if false else 'y' }}{{ 2 is number and 'x' is string }}"
                  "{{ not missing is defined }}{{ missing is not defined or 1 }}{{ (1, 2) | length }}{{ [1, 2, 3][1] + 1 }}{{ 1 if messages | length > 1 else 2 }}",
    "tool_calls": each("{%- if message.tool_calls is defined and message.tool_calls is not none %}{{ message.tool_calls | tojson }}"
                       "{%- elif message.content is string %}{{ message.content }}{%- elif message.content is iterable %}"
                       "{% for part in message.content %}{{ part.text }}{% endfor %}{%- endif %}",
                       "{%- if tools %}{% for tool in tools %}{{ tool.function.name }}{% endfor %}{% endif %}"),
    "not_reached": "{% if tools %}{% include 'a' %}{% call f() %}x{% endcall %}{{ 2 ** 3 }}{{ 'a'.zfill(3) }}{{ 1 | abs }}{% endif %}done",
    "alternate": "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
                 "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{{ m.content }}{% endfor %}",
}


def fixtures(templates):
    """What the C++ test reads. Every second conversation has add_generation_prompt."""
    return {"date": chat_reference.DATE, "tokens": chat_reference.TOKENS, "messages": chat_reference.CONVERSATIONS,
            "cases": [{"name": name, "template": template,
                       "rendered": [chat_reference.render(template, messages, index % 2 == 0)
                                    for index, messages in enumerate(chat_reference.CONVERSATIONS)]}
                      for name, template in templates.items()]}


def main():
    with open(FILE, "w", encoding="utf-8") as file:
        file.write(json.dumps(fixtures(TEMPLATES), indent=1) + "\n")


if __name__ == "__main__":
    main()
