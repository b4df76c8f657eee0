"""A campaign ends a program with all that it has started, also what it starts meanwhile."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import unittest

from logs import TOOLS

sys.path.insert(0, os.path.join(TOOLS, "campaign"))
import campaign  # noqa: E402


class EndTest(unittest.TestCase):
    def test_a_program_that_starts_others_all_the_time(self):
        dice = random.Random(1)
        for _ in range(30):
            process = subprocess.Popen(["bash", "-c", "for i in {1..300}; do sleep 600 & done; wait"],
                                       stdout=subprocess.PIPE, start_new_session=True)
            self.addCleanup(self.end_group, process.pid)
            time.sleep(0.002 + dice.random() * 0.05)
            campaign.end_with_children(process.pid)
            # Whatever is left has the pipe, so this would not end.
            process.communicate(timeout=10)

    @staticmethod
    def end_group(pid):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)

    def test_one_that_has_ended(self):
        process = subprocess.Popen(["true"])
        process.wait()
        campaign.end_with_children(process.pid)


if __name__ == "__main__":
    unittest.main()
