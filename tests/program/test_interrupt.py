"""Ctrl-C, SIGTERM and SIGHUP finish the step, write a checkpoint and exit 130; SIGUSR1 saves and continues."""

import os
import signal
import unittest

from program import ENDLESS, INTERRUPTED, TIMEOUT_S, ProgramTestCase, handles


class InterruptTest(ProgramTestCase):
    def interrupt(self, number, after, *arguments):
        """Starts an endless run, sends the signal after that many more steps, and returns its last step."""
        before = self.logged_steps()
        process = self.start_quiet("--config", self.config(ENDLESS), *arguments)
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
        changes = {**ENDLESS, "training.steps": step + 5}
        self.run_program("--config", self.config(changes), "--resume")
        self.train(changes={**changes, "output.directory": "whole"})
        self.assert_same_run("run", "whole")

    def test_interrupted_by_the_terminal(self):
        # Ctrl-C reaches the whole process group; a second one, before the step is done, ends the program at once.
        process = self.start_quiet("--config", self.config(ENDLESS))
        self.wait_until(lambda: self.logged_steps() >= 3, process, "3 steps")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        self.assertIn(process.wait(TIMEOUT_S), (INTERRUPTED, -signal.SIGINT))

    def test_hang_up_and_resume(self):
        step = self.interrupt(signal.SIGHUP, 3)
        changes = {**ENDLESS, "training.steps": step + 5}
        self.run_program("--config", self.config(changes), "--resume")
        self.train(changes={**changes, "output.directory": "whole"})
        self.assert_same_run("run", "whole")

    def test_hang_up_of_a_terminal(self):
        # A terminal that closes takes the output with it, and sends more than one SIGHUP: the kernel's, the shell's.
        main, terminal = os.openpty()
        process = self.start("--config", self.config(ENDLESS), stdout=terminal, stderr=terminal)
        os.close(terminal)
        self.wait_until(lambda: self.logged_steps() >= 3, process, "3 steps")
        os.close(main)
        for _ in range(3):
            process.send_signal(signal.SIGHUP)
        self.assertEqual(process.wait(TIMEOUT_S), INTERRUPTED)
        self.assertEqual(self.checkpoints()[-1], f"step_{self.log().steps[-1]['step']:08}")

    def test_a_hang_up_that_is_ignored(self):
        process = self.start_quiet("--config", self.config(ENDLESS),
                                   preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.wait_until(lambda: self.logged_steps() >= 3, process, "3 steps")
        process.send_signal(signal.SIGHUP)
        before = self.logged_steps()
        self.wait_until(lambda: self.logged_steps() >= before + 20, process, "20 steps more")

    def saved(self):
        """Names of the checkpoints that are complete."""
        return [name for name in self.checkpoints() if name.startswith("step_")]

    def test_save_and_go_on(self):
        process = self.start_quiet("--config", self.config({**ENDLESS, "checkpoint.keep": 1000}))
        self.wait_until(lambda: self.logged_steps() >= 3, process, "3 steps")
        for count in (1, 2):
            process.send_signal(signal.SIGUSR1)
            self.wait_until(lambda: len(self.saved()) >= count, process, f"{count} checkpoints")
            before = self.logged_steps()
            self.wait_until(lambda: self.logged_steps() >= before + 10, process, "10 steps more")
            self.assertEqual(len(self.saved()), count, "a signal is one checkpoint")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(TIMEOUT_S), INTERRUPTED)
        steps = [int(name.removeprefix("step_")) for name in self.saved()]
        self.assertEqual(len(steps), 3)
        self.assertEqual([int(line.split()[-1]) for line in self.read("output.txt").decode().splitlines()
                          if line.startswith("SIGUSR1: saving step ")], steps[:2])
        # The checkpoint that was asked for is like any other: a run continues from it bit by bit.
        whole = [record for record in self.log().repeatable() if "loss" in record]
        for name in self.checkpoints()[1:]:
            os.rename(self.path("run", "checkpoints", name), self.path(name))
        self.run_program("--config", self.config({**ENDLESS, "training.steps": steps[0] + 5}), "--resume")
        resumed = [record for record in self.log().repeatable() if "loss" in record]
        self.assertEqual(resumed, whole[:steps[0] + 5])

    def test_a_request_to_save_before_the_first_step(self):
        # It may come while the model is still made. Without a handler it would end the program.
        process = self.start_quiet("--config", self.config({**ENDLESS, "model.vocab_size": 200_000}))
        self.wait_until(lambda: handles(process.pid, signal.SIGUSR1), process, "handler")
        self.assertEqual(self.logged_steps(), 0)
        process.send_signal(signal.SIGUSR1)
        self.wait_until(self.saved, process, "a checkpoint")
        self.assertEqual(self.saved(), ["step_00000001"])

    def test_timing_of_an_interrupted_run(self):
        self.interrupt(signal.SIGINT, 3, "--timing", "timing.json")
        self.assertIn("timing.json", self.tree())


if __name__ == "__main__":
    unittest.main()
