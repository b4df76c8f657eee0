"""tools/campaign/tsan with programs that end as tests under ThreadSanitizer do."""

import os
import subprocess
import sys
import unittest

from logs import TOOLS, LogTestCase, run_tool

sys.path.insert(0, os.path.join(TOOLS, "campaign"))
import campaign  # noqa: E402

PASSED = 'echo "All tests passed (12 assertions in 3 test cases)"'
RACE = ('echo "WARNING: ThreadSanitizer: data race (pid=7)" >&2\n'
        'echo "SUMMARY: ThreadSanitizer: data race src/tokenize/ordered_workers.h:61 in take" >&2\n' + PASSED +
        "\nexit 66")


class TsanTest(LogTestCase):
    def tsan(self, lines, *arguments, expect=0, suite="test_io"):
        os.makedirs(self.path("bin"), exist_ok=True)
        path = self.path("bin/" + suite)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/bash\necho \"$OMP_NUM_THREADS $TSAN_OPTIONS $*\" > {self.folder}/called\n{lines}\n")
        os.chmod(path, 0o755)
        status, out, err = run_tool("campaign/tsan", "--bin", self.path("bin"), "--only", suite, "--log",
                                    self.path("logs"), "--results", self.path("results"), *arguments)
        self.assertEqual(status, expect, out + err)
        return out

    def test_passed(self):
        out = self.tsan(PASSED, "--record", "--gpu", "NVIDIA H200")
        self.assertIn("3 tests, 0 failures", out)
        with open(self.path("called"), encoding="utf-8") as file:
            self.assertRegex(file.read(), r"^1 .*exitcode=66.* \[threads\]$")
        with open(self.path("results/h200_reliability.json"), encoding="utf-8") as file:
            self.assertIn('"campaign": "tsan", "device": "cpu", "runs": 3, "failures": 0', file.read())

    def test_a_race(self):
        self.assertIn("FAILED test_io: data race src/tokenize/ordered_workers.h:61 in take; ", self.tsan(RACE, expect=1))

    def test_a_failed_test(self):
        out = self.tsan('echo "test cases: 3 | 2 passed | 1 failed"; exit 1', expect=1)
        self.assertIn("3 tests, 1 failures", out)
        self.assertIn("FAILED test_io ended with 1: test cases: 3", out)

    def test_no_test(self):
        out = self.tsan('echo "No test cases matched"', expect=1, suite="test_train")
        self.assertIn("FAILED test_train ran no test ([threads],[checkpoint_writer],*checkpoint_writer*)", out)

    def test_a_fatal_start(self):
        out = self.tsan('echo "FATAL: ThreadSanitizer: unexpected memory mapping" >&2; exit 66', expect=1)
        self.assertIn("FAILED test_io: unexpected memory mapping", out)

    def test_usage(self):
        status, _, err = run_tool("campaign/tsan", "--only", "test_cpu")
        self.assertEqual(status, 2)
        self.assertIn("there is no suite 'test_cpu'", err)


class StampTest(LogTestCase):
    def test_as_the_build_stamps_it(self):
        out = self.path("stamp.cpp")
        subprocess.run(["cmake", f"-DSOURCE={campaign.ROOT}", f"-DOUTPUT={out}", "-DVERSION=0", "-DDETAILS=cpu", "-P",
                        os.path.join(campaign.ROOT, "cmake", "BuildId.cmake")], check=True)
        with open(out, encoding="utf-8") as file:
            self.assertIn(f'std::string build_commit() {{ return "{campaign.commit()}"; }}', file.read())


if __name__ == "__main__":
    unittest.main()
