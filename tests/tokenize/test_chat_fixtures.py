"""chat_fixtures.json, which the C++ tests compare with, is what Jinja makes of its templates."""

import json
import sys
import unittest

sys.dont_write_bytecode = True
import chat_fixtures  # noqa: E402

try:
    import jinja2  # noqa: F401
    HAS_JINJA = True
except ImportError:
    HAS_JINJA = False


class ChatFixturesTest(unittest.TestCase):
    @unittest.skipUnless(HAS_JINJA, "no package jinja2")
    def test_the_file_is_what_jinja_renders(self):
        with open(chat_fixtures.FILE, encoding="utf-8") as file:
            self.assertEqual(json.load(file), chat_fixtures.fixtures(chat_fixtures.TEMPLATES))


if __name__ == "__main__":
    unittest.main()
