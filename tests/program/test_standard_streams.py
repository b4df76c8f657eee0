"""Standard output that is closed, full or gone: training continues and says so, all else fails and says so."""

import fcntl
import json
import os
import subprocess
import unittest

from program import DONE, PROGRAM, RUNTIME, TIMEOUT_S, ProgramTestCase

REASONS = {"full": "No space left on device", "closed": "Bad file descriptor", "unread": "Broken pipe"}


class StandardStreamsTestCase(ProgramTestCase):
    def run_into(self, output, *arguments, expect):
        """Runs the program with a standard output that takes nothing; returns its stderr."""
        closing = {"preexec_fn": lambda: os.close(1)} if output == "closed" else {}
        if output == "unread":
            reading, stdout = os.pipe()
            os.close(reading)
        else:
            stdout = os.open("/dev/full", os.O_WRONLY)
        try:
            done = subprocess.run([PROGRAM, *arguments], cwd=self.folder, env=self.environment(1), stdout=stdout,
                                  stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, timeout=TIMEOUT_S,
                                  check=False, **closing)
        finally:
            os.close(stdout)
        self.assertEqual(done.returncode, expect, done.stderr)
        return done.stderr

    def run_unread_after(self, count, *arguments, expect):
        """Reads that many bytes of its standard output and no more; returns its stderr."""
        reading, writing = os.pipe()
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)  # less than the output, so that the program waits for its reader
        process = self.start(*arguments, stdout=writing, stderr=subprocess.PIPE, text=True)
        os.close(writing)
        self.assertNotEqual(os.read(reading, count), b"")
        os.close(reading)
        err = process.communicate(timeout=TIMEOUT_S)[1]
        self.assertEqual(process.returncode, expect, err)
        return err


class TrainingTest(StandardStreamsTestCase):
    def test_the_run_goes_on_with_its_log(self):
        lines = len(self.train(changes={"output.directory": "whole"}).out.splitlines())
        self.assertEqual(lines, 1 + 12 + 3)  # what is trained, the steps, and validations at steps 5, 10 and 12
        for output, reason in REASONS.items():
            with self.subTest(output):
                err = self.run_into(output, "--config", self.config({"output.directory": output}), expect=DONE)
                self.assertEqual(err.splitlines(), [
                    f"coda_train: standard output: {reason}; the run continues, with its log",
                    f"coda_train: note: lines that did not reach standard output: {lines}; log.jsonl has every step"])
                self.assert_same_run(output, "whole")

    def test_times_are_written(self):
        self.run_into("full", "--config", self.config(), "--timing", "t.json", expect=DONE)
        self.assertIn("steps", json.loads(self.read("t.json")))

    def test_a_reader_that_leaves_during_the_run(self):
        err = self.run_unread_after(20, "--config", self.config({"training.steps": 300}), expect=DONE)
        self.assertRegex(err, r"\Acoda_train: standard output: Broken pipe; [^\n]+\ncoda_train: note: [^\n]+\n\Z")
        self.assertEqual(len(self.log().steps), 300)
        self.assertEqual(self.checkpoints(), ["step_00000300"])


class AnswerTest(StandardStreamsTestCase):
    def test_answers_that_nobody_gets(self):
        self.train()
        config = ["--config", "config.json"]
        for arguments in (["--help"], ["--version"], [*config, "--print-config"], [*config, "--print-schedule"],
                          [*config, "--dry-run"], [*config, "--eval"], [*config, "--resume", "--eval"],
                          [*config, "--resume", "--export", "out"]):
            for output, reason in REASONS.items():
                with self.subTest(arguments, output=output):
                    err = self.run_into(output, *arguments, expect=RUNTIME)
                    self.assertEqual(err, f"coda_train: standard output: {reason}\n")
        self.assertNotIn("out", self.tree())

    def test_an_export_that_nobody_is_told_of(self):
        # Without --resume its one line is the last that it does.
        for output, reason in REASONS.items():
            err = self.run_into(output, "--config", self.config(), "--export", f"out_{output}", expect=RUNTIME)
            self.assertEqual(err, f"coda_train: standard output: {reason}\n")
            self.assertEqual(self.tree(f"out_{output}"), ["config.json", "model.safetensors"])


class ClosedDescriptorsTest(StandardStreamsTestCase):
    def run_closed(self, closed, *arguments, expect):
        """Runs the program with these standard streams closed; returns its stderr."""
        done = subprocess.run([PROGRAM, *arguments], cwd=self.folder, env=self.environment(1),
                              capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
                              preexec_fn=lambda: [os.close(number) for number in closed])
        self.assertEqual(done.returncode, expect, done.stderr)
        return done.stderr

    def test_no_file_takes_the_place_of_a_closed_stream(self):
        self.train(changes={"output.directory": "whole"})
        for closed in ([0], [1], [2], [0, 1], [1, 2], [0, 2], [0, 1, 2]):
            with self.subTest(closed=closed):
                run = "run_" + "".join(map(str, closed))
                self.run_closed(closed, "--config", self.config({"output.directory": run}), expect=DONE)
                self.assert_same_run(run, "whole")  # every line of the log is JSON

    def test_errors_with_closed_streams(self):
        for closed in ([1], [2], [1, 2], [0, 1, 2]):
            with self.subTest(closed=closed):
                said = self.run_closed(closed, "--config", self.config({"data.train": "no.txt"}), expect=RUNTIME)
                self.assertEqual("no.txt" in said, 2 not in closed)
                self.assertEqual(self.tree(), ["config.json", "text.txt"])


if __name__ == "__main__":
    unittest.main()
