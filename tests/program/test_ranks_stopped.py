"""Ranks that are interrupted, killed or fail: all of them end, the message names the rank, and the run continues."""

import os
import random
import resource
import signal
import time
import unittest

from program import DONE, ENDLESS, INTERRUPTED, NON_FINITE, RUNTIME, TIMEOUT_S
from ranks import RanksTestCase, pids_of, read_proc

KILLED = 128 + signal.SIGKILL
STOP_S = 40  # ranks that are asked to stop have ended long before, and after 60 the launcher kills them
LAST_LINE = "interrupted: step {} is complete and saved; continue with --resume"


class SignalTest(RanksTestCase):
    def saved(self):
        """The steps of complete checkpoints."""
        return [int(name.removeprefix("step_")) for name in self.checkpoints() if name.startswith("step_")]

    def interrupt(self, number, target, *flags):
        """Starts 2 ranks, sends the signal after some steps to the launcher or to a rank, and returns the last step."""
        before = self.logged_steps()
        process = self.start_ranks(2, ENDLESS, *flags)
        self.wait_until(lambda: self.logged_steps() >= before + 3, process, "3 steps")
        os.kill(process.pid if target == "launcher" else pids_of(process)[target], number)
        self.assertEqual(process.wait(TIMEOUT_S), INTERRUPTED, self.errors())
        step = self.log().steps[-1]["step"]
        self.assertEqual(self.saved()[-1], step)
        lines = self.read("output.txt").decode().splitlines()
        self.assertEqual([line for line in lines if line.startswith("interrupted")], [LAST_LINE.format(step)])
        self.assertEqual(self.errors(), "")
        return step

    def test_interrupt_and_resume(self):
        self.interrupt(signal.SIGTERM, "launcher")
        self.interrupt(signal.SIGINT, "launcher", "--resume")
        self.interrupt(signal.SIGTERM, 1, "--resume")
        step = self.interrupt(signal.SIGINT, 0, "--resume")
        changes = {**ENDLESS, "training.steps": step + 3}
        self.ranks(2, changes, "--resume")
        self.ranks(2, {**changes, "output.directory": "whole"})
        self.assert_same_run("run", "whole")

    def test_a_launcher_that_is_killed(self):
        process = self.start_ranks(2, ENDLESS)
        self.wait_until(lambda: self.logged_steps() >= 3, process, "3 steps")
        pids = pids_of(process)
        process.kill()
        deadline = time.monotonic() + STOP_S
        while any(read_proc(pid, "cmdline") for pid in pids.values()):
            self.assertLess(time.monotonic(), deadline, "ranks have outlived their launcher")
            time.sleep(0.01)
        step = self.log().steps[-1]["step"]
        self.assertEqual(self.saved(), [step])
        self.assertEqual(self.read("output.txt").decode().splitlines()[-1], LAST_LINE.format(step))
        self.assertEqual(self.errors(), "")

    def test_a_request_to_save_before_the_first_step(self):
        # It may come while the ranks still load torch. Without a handler it would end them.
        process = self.start_ranks(2, {**ENDLESS, "training.steps": 3})
        self.wait_until(lambda: len(pids_of(process)) == 2, process, "2 ranks")
        for pid in pids_of(process).values():  # the launcher itself ignores it before it has started both
            os.kill(pid, signal.SIGUSR1)
        self.assertEqual(process.wait(TIMEOUT_S), DONE, self.errors())
        self.assertEqual(self.errors(), "")

    def test_save_and_go_on(self):
        process = self.start_ranks(2, {**ENDLESS, "checkpoint.keep": 100})
        self.wait_until(lambda: self.logged_steps() >= 3, process, "3 steps")
        os.kill(pids_of(process)[1], signal.SIGUSR1)
        self.wait_until(self.saved, process, "a checkpoint")
        before = self.logged_steps()
        self.wait_until(lambda: self.logged_steps() >= before + 10, process, "10 steps more")
        self.assertEqual(len(self.saved()), 1, "a signal is one checkpoint")
        process.send_signal(signal.SIGUSR1)  # reaches the ranks within one step, or within two
        self.wait_until(lambda: len(self.saved()) >= 2, process, "another checkpoint")
        process.send_signal(signal.SIGHUP)
        self.assertEqual(process.wait(TIMEOUT_S), INTERRUPTED, self.errors())
        self.assertEqual(self.errors(), "")
        said = [int(line.split()[-1]) for line in self.read("output.txt").decode().splitlines()
                if line.startswith("SIGUSR1: saving step ")]
        # The step after the one that SIGUSR1 asks for may be asked for too, and be the one at which SIGHUP ends the run.
        saved = self.saved()
        self.assertEqual(said, saved if said[-1] == saved[-1] else saved[:-1])


class KillTest(RanksTestCase):
    def killed(self, process, rank):
        """Kills the rank of 2; the launcher and the other rank must say so."""
        pid = pids_of(process)[rank]
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(process.wait(STOP_S), KILLED, self.errors())
        self.assertIn(f"coda_torch: rank {rank} (pid {pid}) was ended by SIGKILL; the others are asked to stop\n",
                      self.errors())

    def test_killed_and_resumed(self):
        chance = random.Random(1)
        changes = {**ENDLESS, "checkpoint.interval": 2}
        for rank in (0, 1, 0):
            before = self.logged_steps()
            process = self.start_ranks(2, changes, "--resume")
            self.wait_until(lambda before=before: self.logged_steps() >= before + 3, process, "3 steps")
            time.sleep(chance.uniform(0, 0.03))
            self.killed(process, rank)
            name = "coda_train" if rank == 1 else "coda_train, rank 1"
            self.assertRegex(self.errors(), rf"(?m)^{name}: .*rank {rank} does not answer \(")
            self.assertNotIn("cannot be read", self.errors())
        changes["training.steps"] = self.logged_steps() + 3
        self.ranks(2, changes, "--resume")
        self.ranks(2, {**changes, "output.directory": "whole"})
        self.assert_same_run("run", "whole")

    def test_killed_before_the_ranks_have_met(self):
        process = self.start_ranks(2, ENDLESS)
        self.wait_until(lambda: len(pids_of(process)) == 2, process, "2 ranks")
        self.killed(process, 1)
        self.assertNotIn("run", self.tree())

    def test_a_rank_that_does_not_stop(self):
        code = "import sys, coda_torch.__main__ as launcher; launcher.GRACE_S = 0.5; sys.exit(launcher.main())"
        process = self.start_launcher("-c", code, "--ranks", "2", "--config", self.config(ENDLESS))
        self.wait_until(lambda: self.logged_steps() >= 3, process, "3 steps")
        pids = pids_of(process)
        os.kill(pids[1], signal.SIGSTOP)
        self.killed(process, 0)
        self.assertEqual(read_proc(pids[1], "cmdline"), "", "the rank that was stopped still exists")


class FailureTest(RanksTestCase):
    def test_data_that_one_rank_cannot_read(self):
        self.config({**ENDLESS, "output.directory": self.path("run")})
        folders = self.separate_folders()

        def cut_short(processes):
            self.wait_until(lambda: self.logged_steps() >= 20, processes[0], "20 steps")
            os.truncate(self.path("1", "text.txt"), 1000)

        results = self.each_rank(([], []), folders, while_running=cut_short)
        step = self.log().steps[-1]["step"]
        self.assertEqual(self.checkpoints(), [f"step_{step:08}"])
        self.assert_told_once(results, RUNTIME, [
            f"coda_train: step {step + 1} cannot be read: rank 1: read text.txt: it ends at byte ",
            f"Step {step} is complete and saved"])

    def test_a_result_that_is_not_finite(self):
        result = self.ranks(2, {"optimizer.learning_rate": 1e30, "checkpoint.interval": 1}, expect=NON_FINITE)
        said = [line for line in result.err.splitlines() if line.startswith("coda_train")]
        self.assertEqual(len(said), 1, result)
        self.assertRegex(said[0], r"^coda_train: step 2: loss nan, .* not finite: rank [01]: LinearRope 'qkv' of lay")
        self.assertEqual(self.checkpoints(), ["step_00000001"])

    def test_a_full_disk_of_one_rank(self):
        # A write fails in the middle of a file, at the limit that `ulimit -f` sets.
        self.train(changes={"output.directory": "one"})
        limit = len(self.segments("one")["master.bin"]) // 2
        self.config({"checkpoint.interval": 4})
        results = self.each_rank(([], []), preexec=(
            None, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))))
        self.assertEqual([result.code for result in results], [RUNTIME, RUNTIME], results[0])
        said = ("the checkpoint of step {} was not written: rank 1: write to run/checkpoints/.tmp-step_{:08}/"
                "master.bin: File too large; earlier checkpoints are untouched")
        self.assertEqual(results[0].err, f"coda_train: {said.format(12, 12)}\n")
        self.assertIn(said.format(8, 8) + "; the next one that is due is tried again\n", results[0].out)
        self.assertEqual(results[1].out + results[1].err, "")
        self.assertEqual(self.checkpoints(), [])
        self.assertEqual(len(self.log().steps), 12, "the run continues")

    def test_the_first_rank_fails_alone_at_the_end(self):
        os.mkdir(self.path("times"))
        self.config(ENDLESS)
        flags = ["--timing", "times/timing.json"]

        def remove(processes):
            self.wait_until(lambda: self.logged_steps() >= 1, processes[0], "a step")
            os.rmdir(self.path("times"))
            processes[0].send_signal(signal.SIGTERM)

        results = self.each_rank((flags, flags), while_running=remove)
        self.assertEqual([result.code for result in results], [RUNTIME, RUNTIME], results[1])
        self.assertEqual(results[0].err, "coda_train: create times/timing.json.new: No such file or directory\n")
        self.assertNotIn("Traceback", results[1].err)


if __name__ == "__main__":
    unittest.main()
