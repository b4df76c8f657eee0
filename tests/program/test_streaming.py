"""Weights are read, made and written in parts: outside its arena a run never holds a copy of the model.

The bound is on what the process may allocate (RLIMIT_DATA, in which the arena counts from its start), and on what it
has in memory at the most.
"""

import filecmp
import os
import re
import resource
import subprocess
import sys
import unittest

from program import DONE, PROGRAM, ROOT, ProgramTestCase

sys.path.insert(0, os.path.join(ROOT, "tests"))
from sanitizer import sanitized  # noqa: E402

MIB = 1 << 20
WEIGHTS = 20_000 * 1024 * 2 * 4  # bytes: 156 MiB, nearly all of the model
# Threads' stacks, libraries, two parts of the weights of 16 MiB each, buffers of files.
OVERHEAD = 96 * MIB

CHANGES = {"model.hidden_size": 1024, "model.intermediate_size": 8, "model.num_hidden_layers": 1,
           "model.num_attention_heads": 4, "model.num_key_value_heads": 1, "model.head_dim": 4,
           "model.vocab_size": 20_000, "training.seq_len": 4, "training.micro_batch_size": 1, "training.steps": 1,
           "validation.batches": 1, "checkpoint.keep": 1}


@unittest.skipIf(sanitized(PROGRAM), "shadow memory takes more than the limits of this test")
class StreamingTest(ProgramTestCase):
    def limited(self, *arguments, changes=None, allowed):
        """Runs under the limit; returns the most that it had in memory, in bytes."""
        def limit():
            resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
        command = [PROGRAM, "--config", self.config({**CHANGES, **(changes or {})}), *arguments]
        with open(self.path("said.txt"), "wb") as said:
            process = subprocess.Popen(command, cwd=self.folder, env=self.environment(2), stdin=subprocess.DEVNULL,
                                       stdout=said, stderr=said, preexec_fn=limit)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.code = process.returncode
        self.said = self.read("said.txt").decode()
        return usage.ru_maxrss * 1024

    def assert_same(self, one, other):
        # NOTE: not read as a whole: a process begins with its parent's most memory as its own.
        self.assertTrue(filecmp.cmp(one, other, shallow=False))

    def arena(self):
        plan = self.run_program("--config", self.config(CHANGES), "--dry-run").out
        return int(re.search(r"^  arena +([\d,]+) B", plan, re.M)[1].replace(",", ""))

    def export(self, *arguments, folder, changes=None):
        peak = self.limited(*arguments, "--export", folder, "--export-dtype", "float32", changes=changes,
                            allowed=OVERHEAD)
        self.assertEqual(self.code, DONE, self.said)
        self.assertLess(peak, OVERHEAD)
        return self.path(folder, "model.safetensors")

    def test_weights_are_never_held_as_a_whole(self):
        fresh = self.export(folder="fresh")
        self.assertGreater(os.path.getsize(fresh), WEIGHTS)
        self.assert_same(self.export("--init-from", "fresh", folder="again"), fresh)

        # A limit below the arena stops the run: it does limit.
        arena = self.arena()
        self.assertGreater(arena, 5 * WEIGHTS)
        training = ("--init-from", "fresh")
        self.limited(*training, allowed=arena - 16 * MIB)
        self.assertNotEqual(self.code, DONE, self.said)
        still = {"optimizer.learning_rate": 1e-30}
        self.limited(*training, changes=still, allowed=arena + OVERHEAD)
        self.assertEqual(self.code, DONE, self.said)

        # The step has changed nothing: its checkpoint is what was imported.
        self.assert_same(self.export("--resume", folder="trained", changes=still), fresh)


if __name__ == "__main__":
    unittest.main()
