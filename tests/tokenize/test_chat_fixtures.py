"""chat_fixtures.json is what jinja2 makes of its templates, and templates that are put together at random are rendered
as jinja2 renders them, by test_tokenize."""

import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import chat_fixtures  # noqa: E402

try:
    import jinja2  # noqa: F401
    HAS_JINJA = True
except ImportError:
    HAS_JINJA = False


class Writer:
    """Templates at random. Those that only one of both refuses are not made: no integers beyond 64 bits, no printing
    of generators."""

    def __init__(self, seed):
        self.dice = random.Random(seed)

    def one(self, *choices):
        choice = self.dice.choice(choices)
        return choice() if callable(choice) else choice

    def text(self, depth):
        if depth <= 0:
            return self.one("'a'", "'b c'", "m.content", "m.role", "messages[0].content", "''", "'\\n x '", "eos_token", "t")
        inner = lambda: self.text(depth - 1)  # noqa: E731
        return self.one(
            inner, lambda: f"{inner()} ~ {self.any(depth - 1)}", lambda: f"({inner()} + {inner()})",
            lambda: f"({inner()})|trim", lambda: f"({inner()})|{self.one('upper', 'lower', 'title', 'capitalize')}",
            lambda: f"({inner()})[{self.index()}:{self.index()}]", lambda: f"({inner()}).strip()",
            lambda: f"({inner()}).split({self.one('', chr(39) + 'a' + chr(39))})|join({inner()})",
            lambda: f"({inner()})|replace({inner()}, {inner()})", lambda: f"({inner()} if {self.truth(depth - 1)} else {inner()})",
            lambda: f"({self.items(depth - 1)})|join('-')", lambda: f"({self.items(depth - 1)})|tojson",
            lambda: f"({self.any(depth - 1)})|string", lambda: f"({inner()}).rsplit(' ', {self.index() or 0})[0]")

    def index(self):
        return self.one("", "0", "1", "-1", "3", "-2", "100")

    def number(self, depth):
        if depth <= 0:
            return self.one("0", "1", "2", "-3", "1.5", "n", "true")
        inner = lambda: self.number(depth - 1)  # noqa: E731
        return self.one(inner, lambda: f"({inner()} {self.one('+', '-', '*', '//', '%', '/')} {inner()})",
                        lambda: f"({self.text(depth - 1)})|length", lambda: f"({self.items(depth - 1)})|count",
                        lambda: f"({self.text(depth - 1)})|int")

    def truth(self, depth):
        a, b = (lambda: self.any(depth - 1)), (lambda: self.number(depth - 1))
        return self.one("loop.first", "true", lambda: f"{a()} == {a()}", lambda: f"({b()} < {b()})",
                        lambda: f"{self.text(depth - 1)} in {self.text(depth - 1)}",
                        lambda: f"not ({a()})", lambda: f"({a()}) is {self.one('string', 'number', 'defined', 'none', 'sequence')}",
                        lambda: f"({a()} and {a()})", lambda: f"{a()} in {self.items(depth - 1)}")

    def items(self, depth):
        if depth <= 0:
            return self.one("[]", "[1, 'b']", "('x', none)", "messages", "[m.role]")
        return self.one(lambda: f"[{self.any(depth - 1)}, {self.any(depth - 1)}]", lambda: f"({self.items(depth - 1)})[{self.index()}:]",
                        lambda: f"({self.text(depth - 1)})|list", lambda: f"({self.items(depth - 1)})|reverse|list",
                        "messages|map(attribute='role')|list", "messages|selectattr('role', 'equalto', 'user')|list",
                        lambda: f"({self.text(depth - 1)}).split()")

    def any(self, depth):
        if depth <= 0:
            return self.one("none", "missing", "1", "'a'", "m", "false", "[]", "{'k': 1}")
        return self.dice.choice([self.text, self.number, self.items, self.truth])(depth)

    def body(self, depth):
        return "".join(self.statement(depth) for _ in range(self.dice.randint(1, 3)))

    def tag(self, text):
        return "{%" + self.one("", "", "-", "+") + f" {text} " + self.one("", "", "-") + "%}"

    def statement(self, depth):
        space = self.one("", " ", "\n", "  \n  ", "x")
        if depth <= 0 or self.dice.random() < 0.4:
            return space + self.one("{{ ", "{{- ") + self.any(3) + self.one(" }}", " -}}") + self.one("", "\n", " y ")
        body = lambda: self.body(depth - 1)  # noqa: E731
        return space + self.one(
            lambda: self.tag(f"if {self.truth(2)}") + body() + self.tag("else") + body() + self.tag("endif"),
            lambda: self.tag(f"for m in {self.one('messages', 'messages[1:]', 'messages if m.role != ' + chr(39) + 'user' + chr(39))}")
            + body() + self.tag("endfor"),
            lambda: self.tag(f"set t = {self.text(2)}") + body(), lambda: self.tag(f"set n = {self.number(2)}") + body(),
            lambda: self.tag("set t") + body() + self.tag("endset"), lambda: "{#" + self.one("", "-") + " c " + self.one("", "-") + "#}",
            lambda: self.tag("macro f(m)") + body() + self.tag("endmacro") + "{{ f(messages[-1]) }}",
            lambda: self.tag("generation") + body() + self.tag("endgeneration"))

    def template(self):
        return "{% set t = 'T' %}{% set n = 2 %}{% for m in messages %}" + self.body(2) + "{% endfor %}" + self.one("", "\n", "\n\n")


class ChatFixturesTest(unittest.TestCase):
    @unittest.skipUnless(HAS_JINJA, "no package jinja2")
    def test_the_file_is_what_jinja_renders(self):
        with open(chat_fixtures.FILE, encoding="utf-8") as file:
            self.assertEqual(json.load(file), chat_fixtures.fixtures(chat_fixtures.TEMPLATES))

    @unittest.skipUnless(HAS_JINJA and "CODA_TEST_TOKENIZE" in os.environ, "no package jinja2, or no test_tokenize")
    def test_templates_at_random(self):
        seed = int(os.environ.get("CODA_SEED", "1"))
        count = int(os.environ.get("CODA_TEMPLATES", "300"))
        made = {f"seed {seed + i}": Writer(seed + i).template() for i in range(count)}
        with tempfile.TemporaryDirectory() as folder:
            name = os.path.join(folder, "fixtures.json")
            with open(name, "w", encoding="utf-8") as file:
                json.dump(chat_fixtures.fixtures(made), file)
            done = subprocess.run([os.environ["CODA_TEST_TOKENIZE"], "conversations are rendered as jinja2*"],
                                  env={**os.environ, "CODA_CHAT_FIXTURES": name}, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout[:4000])


if __name__ == "__main__":
    unittest.main()
