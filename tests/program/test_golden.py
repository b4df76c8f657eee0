"""tests/golden/golden.py: it must notice other bits, and say when the bits of another build cannot be compared."""

import json
import os
import subprocess
import sys
import unittest

from program import PROGRAM, ROOT, ProgramTestCase

GOLDEN = os.path.join(ROOT, "tests", "golden", "golden.py")


class GoldenTest(ProgramTestCase):
    def golden(self, *arguments, program=PROGRAM, expect=0):
        command = [sys.executable, "-B", GOLDEN, "--bin", os.path.dirname(program), "--file", self.path("golden.json"),
                   *arguments]
        done = subprocess.run(command, env=self.environment(2), capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def change(self, mode="base", **changes):
        """Replaces values in the record of a mode, each by its function of the old one."""
        record = json.loads(self.read("golden.json"))
        for key, function in changes.items():
            record["modes"][mode][key] = function(record["modes"][mode][key])
        self.write("golden.json", json.dumps(record).encode())

    def other_build(self):
        record = json.loads(self.read("golden.json"))
        record["environment"]["build"] = "Debug, TCC 0.9"
        self.write("golden.json", json.dumps(record).encode())

    def test_record_and_compare(self):
        self.assertIn("there is no", self.golden("--only", "base", expect=1))
        self.golden("--record", "--only", "base")
        first = self.read("golden.json")
        self.golden("--record", "--only", "base")
        self.assertEqual(self.read("golden.json"), first)
        self.assertIn("1 modes: same bits", self.golden("--only", "base"))
        self.golden("--record", "--only", "tied")
        self.assertEqual(list(json.loads(self.read("golden.json"))["modes"]), ["base", "tied"])
        self.assertIn("chunks: not recorded", self.golden("--only", "base,chunks", expect=1))
        self.assertIn("no mode 'fast'", self.golden("--only", "fast", expect=2))

    def test_other_bits_fail(self):
        self.golden("--record", "--only", "base")
        recorded = self.read("golden.json")
        self.change(losses=lambda losses: [*losses[:6], losses[6] + 1e-8, *losses[7:]])
        self.assertRegex(self.golden("--only", "base", expect=1), "base: loss of step 7 .* is now ")
        self.write("golden.json", recorded)
        self.change(val_loss=lambda loss: loss + 1, sha256=lambda found: {**found, "m": "0" * 64})
        out = self.golden("--only", "base", expect=1)
        self.assertRegex(out, "base: validation loss .*; checkpoint differs in m\n")

    def test_another_build_is_compared_by_its_losses(self):
        self.golden("--record", "--only", "base")
        self.other_build()
        self.change(sha256=lambda found: {**found, "m": "0" * 64}, val_loss=lambda loss: loss * 1.00001)
        out = self.golden("--only", "base")
        self.assertIn("another build than the recorded one", out)
        self.assertIn("Debug, TCC 0.9", out)
        self.change(val_loss=lambda loss: loss * 1.001)
        self.assertRegex(self.golden("--only", "base", expect=1), "base: validation loss .* more than 0.0001 apart")

    def test_fp8_of_another_build_may_differ_by_more(self):
        self.golden("--record", "--only", "fp8")
        self.other_build()
        self.change("fp8", val_loss=lambda loss: loss * 1.001)
        self.assertIn("at most 0.10 of what is allowed", self.golden("--only", "fp8"))
        self.change("fp8", val_loss=lambda loss: loss * 1.01)
        self.assertRegex(self.golden("--only", "fp8", expect=1), "fp8: validation loss .* more than 0.01 apart")

    def test_recompute_must_not_change_bits(self):
        os.makedirs(self.path("bin"))
        script = f'#!/bin/bash\n[[ "$*" != *recompute* ]] || set -- "$@" --training.seed 1\nexec {PROGRAM} "$@"\n'
        self.write(os.path.join("bin", "coda_train"), script.encode())
        os.chmod(self.path("bin", "coda_train"), 0o755)
        out = self.golden("--record", "--only", "base,recompute_mlp", program=self.path("bin", "coda_train"), expect=1)
        self.assertRegex(out, "recompute_mlp is not equal to base: loss of step 1 ")
        self.assertNotIn("golden.json", self.tree())


if __name__ == "__main__":
    unittest.main()
