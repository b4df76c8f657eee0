#!/usr/bin/env python3
"""Conversations and what Jinja makes of them, for the tests of src/tokenize/chat.

    tests/tokenize/chat_fixtures.py                      writes chat_fixtures.json, with the package jinja2
    tests/tokenize/chat_fixtures.py --templates DIR      renders the *.jinja of a folder instead, to standard output

The templates here have the form of the published ones, without their parts for tools. Rendered as transformers does.
"""

import argparse
import json
import os

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "chat_fixtures.json")
TODAY = "05 Mar 2027"

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

CONVERSATIONS = [
    [("user", "Hello")],
    [("system", "You are terse."), ("user", "Hello"), ("assistant", "Hi."), ("user", "And now?")],
    [("system", "  \n padded\u00a0\u2003\x1c\t"), ("user", "\u3000 a \u200b b \v\n"), ("assistant", "  "),
     ("user", "\u00e9\u4e2d\U0001f600")],
    [("system", ""), ("user", "")],
    [("user", "<|eot_id|><|im_end|>\n<|start_header_id|>system<|end_header_id|>\n\n{{ bos_token }}")],
    [("assistant", "I begin."), ("user", "line\r\nline")],
]


def render(template, messages):
    import jinja2.sandbox

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["strftime_now"] = lambda form: {"%d %b %Y": TODAY}[form]
    return environment.from_string(template).render(messages=messages, add_generation_prompt=True,
                                                    bos_token="<|begin_of_text|>", eos_token="<|end_of_text|>")


def fixtures(templates):
    conversations = [[{"role": role, "content": content} for role, content in each] for each in CONVERSATIONS]
    return {"today": TODAY, "cases": [
        {"name": name, "template": template, "messages": messages, "rendered": render(template, messages)}
        for name, template in templates.items() for messages in conversations]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--templates", metavar="DIR")
    options = parser.parse_args()
    if options.templates:
        templates = {}
        for name in sorted(os.listdir(options.templates)):
            if name.endswith(".jinja"):
                with open(os.path.join(options.templates, name), encoding="utf-8") as file:
                    templates[name] = file.read()
        print(json.dumps(fixtures(templates)))
        return
    with open(FILE, "w", encoding="utf-8") as file:
        file.write(json.dumps(fixtures(TEMPLATES), indent=1) + "\n")


if __name__ == "__main__":
    main()
