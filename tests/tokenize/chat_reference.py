"""What jinja2 makes of chat templates, with the environment of transformers (utils/chat_template_utils.py), and the
conversations that the tests render."""

import json
import time

DATE = "05 Mar 2027"
TOKENS = {"bos_token": "<|bos|>", "eos_token": "<|eos|>", "pad_token": "<|pad|>"}

CONVERSATIONS = [
    [{"role": role, "content": content} for role, content in each]
    for each in (
        [("user", "Hello")],
        [("system", "You are terse."), ("user", "Hello"), ("assistant", "Hi."), ("user", "And now?")],
        [("system", "  \n padded\u00a0\u2003\x1c\t"), ("user", "\u3000 a \u200b b \v\n"), ("assistant", "  x y\n"),
         ("user", "\u00e9\u4e2d\U0001f600 \u0130stra\u00dfe '\"\\")],
        [("system", ""), ("user", "")],
        [("user", "<|eos|><|im_end|>\n{{ bos_token }}"), ("assistant", "<think>\nhm\n</think>\n\nYes & no")],
        [("user", "line\r\nline"), ("assistant", "one, two"), ("user", "b"), ("assistant", "c d"), ("user", "e")],
        [("assistant", "I begin."), ("user", "12"), ("user", "again")],
    )
]


def environment():
    import jinja2
    import jinja2.ext
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

        def _same(self, caller):
            return caller()

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    result = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    result.filters["tojson"] = tojson
    result.globals["raise_exception"] = raise_exception
    day = time.strptime(DATE + " 12", "%d %b %Y %H")
    result.globals["strftime_now"] = lambda form: time.strftime(form, day)
    return result


def render(template, messages, add_generation_prompt=True):
    """{"text": ...}, or {"error": ...} where jinja2 raises."""
    try:
        text = environment().from_string(template).render(
            messages=messages, add_generation_prompt=add_generation_prompt, tools=None, documents=None, **TOKENS)
    except Exception as error:  # whatever Python raises within a template
        return {"error": f"{type(error).__name__}: {error}"[:200]}
    return {"text": text}
