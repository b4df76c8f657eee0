"""Run logs for the tests of the tools, and the tools as a user starts them."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")
sys.path.insert(0, TOOLS)
sys.dont_write_bytecode = True

HEADER = {"config": {"training": {"steps": 3}}, "device": "cpu", "build": "0.1.0", "command": "coda_train --config c"}


def steps(*losses, start=1):
    return [{"step": start + i, "loss": loss, "grad_norm": 1.0, "lr": 3e-4} for i, loss in enumerate(losses)]


def run_tool(name, *arguments):
    """(exit status, standard output, standard error) of tools/NAME."""
    command = [sys.executable, "-B", os.path.join(TOOLS, name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    return done.returncode, done.stdout, done.stderr


class LogTestCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, records, end=""):
        """A log of HEADER and the records; `end` is put after the last line unchanged."""
        with open(self.path(name), "w", encoding="utf-8") as file:
            for record in [HEADER, *records]:
                file.write(json.dumps(record) + "\n")
            file.write(end)
        return self.path(name)
