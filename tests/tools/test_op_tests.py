"""cmake/OpTests.cmake: an op without a test does not configure."""

import os
import shutil
import subprocess
import unittest

from logs import TOOLS, LogTestCase

OP_TESTS = os.path.abspath(os.path.join(TOOLS, "..", "cmake", "OpTests.cmake"))


@unittest.skipUnless(shutil.which("cmake"), "no cmake here")
class OpTestsTest(LogTestCase):
    def configured(self, tests):
        """What CMake says of the ops /ops/zero and /ops/zeroes with these tests."""
        with open(self.path("script.cmake"), "w", encoding="utf-8") as file:
            file.write(f'include("{OP_TESTS}")\ncoda_require_op_tests("/ops/zero;/ops/zeroes" "{tests}")\n')
        done = subprocess.run(["cmake", "-P", self.path("script.cmake")], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode != 0, bool(done.stderr))
        return done.stderr

    def test_every_op_needs_one(self):
        self.assertEqual(self.configured("/ops/zero/test.cpp;/ops/zeroes/test_f8.cpp;/ops/zeroes/test.cpp"), "")
        self.assertIn("/ops/zero has no test", self.configured("/ops/zeroes/test.cpp"))
        self.assertIn("/ops/zeroes has no test", self.configured("/ops/zero/test.cpp"))


if __name__ == "__main__":
    unittest.main()
