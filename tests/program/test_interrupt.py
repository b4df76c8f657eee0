"""Ctrl-C and SIGTERM finish the step, write a checkpoint and exit 130."""

import signal
import unittest

from program import INTERRUPTED, TIMEOUT_S, ProgramTestCase

# The learning rate must not depend on the number of steps, which the test cannot know beforehand.
CHANGES = {"lr_schedule.type": "constant", "validation.interval": 50, "optimizer.learning_rate": 1e-3}


class InterruptTest(ProgramTestCase):
    def interrupt(self, number, after, *arguments):
        """Starts an endless run, sends the signal after that many more steps, and returns its last step."""
        before = self.logged_steps()
        process = self.start_quiet("--config", self.config({**CHANGES, "training.steps": 10_000_000}), *arguments)
        self.wait_until(lambda: self.logged_steps() >= before + after, process, f"{after} steps")
        process.send_signal(number)
        self.assertEqual(process.wait(TIMEOUT_S), INTERRUPTED)
        step = self.log().steps[-1]["step"]
        self.assertEqual(self.checkpoints()[-1], f"step_{step:08}")
        self.assertEqual(self.read("output.txt").decode().splitlines()[-1],
                         f"interrupted: step {step} is complete and saved; continue with --resume")
        return step

    def test_interrupt_and_resume(self):
        self.interrupt(signal.SIGINT, 3)
        step = self.interrupt(signal.SIGTERM, 20, "--resume")
        changes = {**CHANGES, "training.steps": step + 5}
        self.run_program("--config", self.config(changes), "--resume")
        self.train(changes={**changes, "output.directory": "whole"})
        self.assert_same_run("run", "whole")

    def test_interrupted_by_the_terminal(self):
        # Ctrl-C reaches the whole process group; a second one, before the step is done, ends the program at once.
        process = self.start_quiet("--config", self.config({**CHANGES, "training.steps": 10_000_000}))
        self.wait_until(lambda: self.logged_steps() >= 3, process, "3 steps")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        self.assertIn(process.wait(TIMEOUT_S), (INTERRUPTED, -signal.SIGINT))

    def test_timing_of_an_interrupted_run(self):
        self.interrupt(signal.SIGINT, 3, "--timing", "timing.json")
        self.assertIn("timing.json", self.tree())


if __name__ == "__main__":
    unittest.main()
