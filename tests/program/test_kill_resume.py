"""tools/campaign/kill_resume with the program itself, and with programs that break what it checks."""

import os
import re
import shutil
import subprocess
import sys
import unittest

from program import PROGRAM, ROOT, ProgramTestCase
from ranks import NEEDS_TORCH, end_those_in, find_python

sys.path.insert(0, os.path.join(ROOT, "tools", "campaign"))
import victim  # noqa: E402

TOOL = os.path.join(ROOT, "tools", "campaign", "kill_resume")
OLDER = 'set -- run/checkpoints/step_*; if [ $# -ge 2 ]; then '


class KillResumeTest(ProgramTestCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(end_those_in, os.path.realpath(self.folder))  # a broken program may still be at it

    def campaign(self, *arguments, kills=6, expect=0, python=sys.executable, **environment):
        command = [python, "-B", TOOL, "--bin", os.path.dirname(PROGRAM), "--kills", str(kills), "--work",
                   self.path("work"), "--results", self.path("results"), *arguments]
        done = subprocess.run(command, env={**self.environment(1), **environment}, capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout if expect != 2 else done.stderr

    def broken(self, before_resume, *arguments, says, kills=20):
        """A program that does something else before it resumes; the campaign must say so."""
        os.makedirs(self.path("bin"))
        with open(self.path("bin", "coda_train"), "w", encoding="utf-8") as file:
            file.write('#!/bin/bash\ngiven=("$@")\ncase "$*" in *--resume*)\n' + before_resume +
                       f';; esac\nexec {PROGRAM} "${{given[@]}}"\n')
        os.chmod(self.path("bin", "coda_train"), 0o755)
        out = self.campaign("--bin", self.path("bin"), *arguments, kills=kills, expect=1)
        self.assertRegex(out, r"(?m)^FAILED .*" + says)
        self.assertNotIn(" 0 failures", out)

    def test_held(self):
        out = self.campaign("--in-writing", "2", "--moments", "bf16", "--record", "--gpu", "NVIDIA H200")
        self.assertRegex(out, r"6 kills of 30 steps on cpu, [2-6] within a checkpoint's writing, 0 failures, ")
        self.assertRegex(self.read("results", "h200_reliability.json").decode(),
                         r'"campaign": "kill_resume bf16", "device": "cpu", "runs": 6, "failures": 0, "seconds": \d')

    def test_held_in_fp8(self):
        arguments = ("--in-writing", "1", "--precision", "fp8", "--record", "--gpu", "NVIDIA H200")
        self.assertIn("0 failures", self.campaign(*arguments, kills=3))
        self.assertIn(b'"campaign": "kill_resume fp8 fp32"', self.read("results", "h200_reliability.json"))
        self.assertIn(b'"f8"', self.read("work", "killed", "run", "log.jsonl"), "scales are a part of what resumes")

    def test_held_of_ranks(self):
        python = find_python() or self.skipTest(NEEDS_TORCH)
        arguments = ("--ranks", "2", "--in-writing", "1", "--record", "--gpu", "NVIDIA H200")
        out = self.campaign(*arguments, kills=4, python=python)
        self.assertRegex(out, "4 kills of 2 ranks of 30 steps on cpu, [1-4] within a checkpoint's writing, 0 failures")
        self.assertIn(b'"campaign": "kill_resume fp32 of 2 ranks"', self.read("results", "h200_reliability.json"))

    def test_ranks_whose_launcher_names_another_one(self):
        python = find_python() or self.skipTest(NEEDS_TORCH)
        shutil.copytree(os.path.join(ROOT, "src", "coda_torch"), self.path("coda_torch"))
        with open(self.path("coda_torch", "__main__.py"), "r+", encoding="utf-8") as file:
            source, count = re.subn(r"coda_torch: rank \{rank\}", "coda_torch: rank {7 - rank}", file.read())
            self.assertEqual(count, 1)
            file.seek(0)
            file.write(source)
        arguments = ("--ranks", "2", "--in-writing", "0")
        out = self.campaign(*arguments, kills=1, python=python, expect=1, PYTHONPATH=self.folder)
        self.assertRegex(out, "FAILED kill 1 .*the launcher did not say 'coda_torch: rank [01] ")

    def test_another_loss(self):
        self.broken("given+=(--optimizer.learning_rate 0.002)", says="log.jsonl has .* where the uninterrupted run has")

    def test_a_lost_line(self):
        self.broken("sed -i 3d run/log.jsonl", says=r"log.jsonl has .*3.* where the uninterrupted run has .*2.*")

    def test_a_torn_line(self):
        self.broken("(sleep 0.1; sed -i '3s/.*/torn/' run/log.jsonl) &", says="log.jsonl")

    def test_a_flipped_byte(self):
        self.broken(OLDER + "printf X | dd of=$1/m.bin bs=1 seek=1000 conv=notrunc; fi",
                    says="step_[0-9]+: differs from the uninterrupted run's in m")

    def test_a_lost_marker(self):
        self.broken(OLDER + "rm -f $1/complete; fi", says="step_[0-9]+: .*No such file.*complete")

    def test_a_changed_meta(self):
        self.broken(OLDER + "sed -i s/fp32/FP32/ $1/meta.json; fi",
                    says="step_[0-9]+: the marker does not fit meta.json")

    def test_a_foreign_checkpoint(self):
        self.broken(OLDER + "cp -r $1 run/checkpoints/step_00000001; fi", says="step_00000001: holds step")

    def test_a_run_that_fails(self):
        self.broken("echo out of luck >&2; exit 1", says="the run ended by itself with 1: out of luck")

    def test_no_write_to_kill(self):
        self.broken("true", "--checkpoint.interval", "1000", "--steps", "40", "--in-writing", "3", kills=3,
                    says="the run ended by itself with 0")

    def test_usage(self):
        for arguments, said in ((["--colour"], "unknown argument '--colour'"), (["--in-writing", "9"], "--in-writing"),
                                (["--colour", "red"], "a key is such as"), (["--record"], "has no GPU"),
                                (["--record", "--gpu", "TPU"], "'TPU' has no result files"),
                                (["--work", self.folder], "exists")):
            self.assertIn(said, self.campaign(*arguments, expect=2))


class ChecksumTest(unittest.TestCase):
    def test_xxh64(self):
        for data, value in ((b"", 0xEF46DB3751D8E999), (b"a", 0xD24EC4F1A98C6E5B), (b"abc", 0x44BC2CF5AD770999),
                            (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1)):
            self.assertEqual(victim.xxh64(data), value)


if __name__ == "__main__":
    unittest.main()
