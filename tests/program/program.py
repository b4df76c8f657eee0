"""coda_train as a user starts it: small configurations, token files, and what a run leaves behind.

The environment variable CODA_TRAIN is the program's path (default: build/cpu/bin/coda_train).
"""

import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import runlog  # noqa: E402
from changed_config import changed  # noqa: E402

PROGRAM = os.path.abspath(os.environ.get("CODA_TRAIN", os.path.join(ROOT, "build/cpu/bin/coda_train")))
TIMEOUT_S = 120  # of one run; all of them take well below a second on an idle machine

DONE, RUNTIME, USAGE, NON_FINITE, INTERRUPTED = 0, 1, 2, 3, 130

STEP_KEYS = ["step", "loss", "grad_norm", "lr", "tokens", "ms", "tokens_per_s", "mfu", "memory_gib", "loss_z", "norm_z"]

CONFIG = {
    "model": {
        "hidden_size": 16,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 256,
    },
    "data": {"train": "text.txt"},
    "training": {"seq_len": 8, "micro_batch_size": 4, "steps": 12},
    "optimizer": {"learning_rate": 0.01},
    "validation": {"interval": 5, "batches": 2},
}

# Changes for a run that the test ends, at a step that it does not know: nothing may depend on the number of steps.
ENDLESS = {"training.steps": 10_000_000, "lr_schedule.type": "constant", "optimizer.learning_rate": 1e-3,
           "validation.interval": 50}

TEXT = b"".join(b"%d green bottles hanging on the wall, and %d more in the crate. " % (n, n * n) for n in range(40))


def shard(tokens, wide=False, magic=None, version=None, count=None):
    """The bytes of an llm.c token shard; magic, version and count may be wrong on purpose."""
    header = [0] * 256
    header[0] = magic if magic is not None else 20240801 if wide else 20240520
    header[1] = version if version is not None else 7 if wide else 1
    header[2] = count if count is not None else len(tokens)
    return struct.pack("<256i", *header) + struct.pack(f"<{len(tokens)}{'I' if wide else 'H'}", *tokens)


class Result:
    """What a finished run returned and said."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __str__(self):
        return f"exit code {self.code}\n--- end of stdout\n{self.out[-2000:]}\n--- stderr\n{self.err}"


class Log:
    """log.jsonl, read strictly: every line a JSON object, the header first."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.lines = file.read().splitlines()
        records = [json.loads(line) for line in self.lines]
        self.header = records[0]
        self.starts = [record for record in records[1:] if "start" in record]
        self.records = [record for record in records[1:] if "start" not in record]
        self.steps = [record for record in self.records if "loss" in record]
        self.validations = [record for record in self.records if "val_loss" in record]

    def repeatable(self):
        """Every record without the measurements of time, in order."""
        return [runlog.repeatable(record) for record in self.records]

    def losses(self):
        return [record["loss"] for record in self.steps]


class ProgramTestCase(unittest.TestCase):
    """A temporary folder with text.txt, in which the program runs."""

    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="coda_program_")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.write("text.txt", TEXT)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, contents):
        with open(self.path(name), "wb") as file:
            file.write(contents)
        return name

    def read(self, *names):
        with open(self.path(*names), "rb") as file:
            return file.read()

    def config(self, changes=None, name="config.json", base=None):
        """Writes a config file; `changes` are by dotted key. Its runs go to the folder "run" by default."""
        config = changed(base or CONFIG, {"output.directory": "run", **(changes or {})})
        self.write(name, json.dumps(config, indent=1).encode())
        return name

    def environment(self, threads):
        return {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}

    def start(self, *arguments, threads=1, **options):
        """The running program; killed at the end of the test if it still is."""
        process = subprocess.Popen([PROGRAM, *arguments], cwd=self.folder, env=self.environment(threads),
                                   stdin=subprocess.DEVNULL, **options)
        self.addCleanup(process.wait)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def start_quiet(self, *arguments, **options):
        """As start(), with its output in the file "output.txt"."""
        with open(self.path("output.txt"), "ab") as output:
            return self.start(*arguments, stdout=output, stderr=subprocess.STDOUT, **options)

    def run_program(self, *arguments, expect=DONE, threads=1, **options):
        """Runs the program to its end and checks its exit code; None accepts any."""
        done = subprocess.run([PROGRAM, *arguments], cwd=self.folder, env=self.environment(threads),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S,
                              check=False, **options)
        result = Result(done.returncode, done.stdout, done.stderr)
        if expect is not None:
            self.assertEqual(result.code, expect, result)
        if expect == DONE:
            self.assertEqual(result.err, "", "a run without a fault writes nothing to stderr")
        return result

    def train(self, *arguments, changes=None, expect=DONE, **options):
        """Runs the program with a config of these changes."""
        return self.run_program("--config", self.config(changes), *arguments, expect=expect, **options)

    def refuse(self, *arguments, changes=None, code=RUNTIME, says=(), creates=(), **options):
        """A run that must fail with `code` and one message holding all of `says`, and leave no other new file than
        `creates` in the folder."""
        config = self.config(changes)
        before = self.tree()
        result = self.run_program("--config", config, *arguments, expect=code, **options)
        self.assert_message(result, says)
        self.assertEqual(self.tree(), sorted({*before, *creates}), "a refused run changed the folder")
        return result

    def assert_message(self, result, says):
        """stderr is one message of this program, with all of `says` in it, without a library's words or control
        characters."""
        self.assertRegex(result.err, r"\Acoda_train: \S", result)
        self.assertNotRegex(result.err, r"json\.exception|terminate called|std::|basic_string|filesystem error", result)
        self.assertNotRegex(result.err, r"[\x00-\x09\x0b-\x1f\x7f]", result)
        for words in [says] if isinstance(says, str) else says:
            self.assertIn(words, result.err)

    def log(self, run="run"):
        return Log(self.path(run, "log.jsonl"))

    def tree(self, *names):
        """Relative paths of everything under a folder, sorted."""
        top = self.path(*names)
        found = []
        for folder, folders, files in os.walk(top):
            found += [os.path.relpath(os.path.join(folder, name), top) for name in folders + files]
        return sorted(found)

    def checkpoints(self, run="run"):
        """Names of the checkpoint folders, oldest first; temporary ones begin with a dot."""
        folder = self.path(run, "checkpoints")
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []

    def segments(self, run="run", checkpoint=-1):
        """Contents of the .bin files of a checkpoint, by name."""
        folder = os.path.join(run, "checkpoints", self.checkpoints(run)[checkpoint])
        return {name: self.read(folder, name) for name in self.tree(folder) if name.endswith(".bin")}

    def assert_same_run(self, run, other):
        """Same log but for measurements of time, and same last weights and moments, bit by bit."""
        self.assertEqual(self.log(run).repeatable(), self.log(other).repeatable())
        self.assertEqual(self.checkpoints(run)[-1], self.checkpoints(other)[-1])
        self.assertEqual(self.segments(run), self.segments(other))

    def wait_until(self, condition, process, what):
        """Polls until condition() holds; the process must live that long."""
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            self.assertIsNone(process.poll(), f"the program ended before {what}")
            self.assertLess(time.monotonic(), deadline, f"no {what}")
            time.sleep(0.001)

    def logged_steps(self, run="run"):
        """The steps of a log that is being written."""
        try:
            return self.read(run, "log.jsonl").count(b'"loss"')
        except FileNotFoundError:
            return 0


def significant_digits(number):
    """The significant digits of a number as written in JSON."""
    return len(re.sub(r"[eE].*", "", number).replace("-", "").replace(".", "").lstrip("0"))


def handles(pid, number):
    """Whether the process has a handler of the signal."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        caught = next(line.split()[1] for line in file if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (number - 1) & 1)


def kill(process):
    """Sends SIGKILL, as kill -9 does; True if it was still running."""
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL
