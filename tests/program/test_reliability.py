"""One writer per run, data and disks that change under it, weights that are no numbers: nothing lost, nothing silent."""

import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import unittest

from program import ENDLESS, INTERRUPTED, NON_FINITE, ROOT, RUNTIME, TIMEOUT_S, USAGE, ProgramTestCase, kill

sys.path.insert(0, os.path.join(ROOT, "tools", "campaign"))
import victim  # noqa: E402

LONG = {**ENDLESS, "validation.interval": 0, "checkpoint.interval": 20, "checkpoint.keep": 1}


class RunningTestCase(ProgramTestCase):
    def start_run(self, *arguments, changes=None, **options):
        """A run that has made some checkpoints and continues."""
        process = self.start_into("", "--config", self.config({**LONG, **(changes or {})}), *arguments, **options)
        self.wait_until(lambda: self.saved_step() > 20, process, "second checkpoint")
        return process

    def start_into(self, name, *arguments, **options):
        """The running program, with its output in files of its own."""
        with open(self.path(f"output{name}.txt"), "wb") as output, open(self.path(f"errors{name}.txt"), "wb") as errors:
            return self.start(*arguments, stdout=output, stderr=errors, **options)

    def saved_step(self, run="run"):
        steps = [int(name[5:]) for name in self.checkpoints(run) if name.startswith("step_")]
        return max(steps, default=0)

    def said(self):
        return "".join(self.read(name).decode() for name in ("output.txt", "errors.txt")
                       if os.path.exists(self.path(name)))

    def assert_steps(self, run="run"):
        steps = [record["step"] for record in self.log(run).steps]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))


class OneWriterTest(RunningTestCase):
    def test_second_writer(self):
        process = self.start_run()
        for arguments in (["--resume"], []):
            result = self.run_program("--config", "config.json", *arguments, expect=RUNTIME)
            says = ["output.directory: run is in use by process", str(process.pid), os.uname().nodename] \
                if arguments else ["run/log.jsonl exists"]
            self.assert_message(result, says)
        self.assertIsNone(process.poll())
        kill(process)
        self.assert_steps()
        last = self.saved_step()
        result = self.run_program("--config", self.config({**LONG, "training.steps": last + 3}), "--resume",
                                  expect=None)
        self.assertEqual(result.code, 0, result)
        self.assertEqual(len(self.log().steps), last + 3)
        self.assertNotIn("run/lock", self.tree())

    def test_readers(self):
        process = self.start_run(changes={"model.intermediate_size": 4096, "checkpoint.interval": 3})
        for arguments in (["--eval"], ["--export", "out"]):
            result = self.run_program("--config", "config.json", "--resume", *arguments)
            self.assertNotIn("in use", result.err)
        self.assertIsNone(process.poll())

    def test_two_fresh_starts(self):
        config = self.config({"training.steps": 60})
        for attempt in range(5):
            shutil.rmtree(self.path("run"), ignore_errors=True)
            both = [self.start_into(i, "--config", config) for i in range(2)]
            codes = [process.wait() for process in both]
            self.assertEqual(sorted(codes), [0, RUNTIME], attempt)
            loser = self.read(f"errors{codes.index(RUNTIME)}.txt").decode()
            self.assertRegex(loser, "is in use by process|already holds a run")
            self.assertEqual(len(self.log().steps), 60)


class FiniteTest(ProgramTestCase):
    def test_last_update(self):
        self.train(changes={"training.steps": 1})
        before = self.segments()
        changes = {"training.steps": 2, "optimizer.learning_rate": 1e39}
        for at_end in (True, False):
            result = self.run_program("--config", self.config({**changes, "checkpoint.at_end": at_end,
                                                               "validation.batches": 1}), "--resume", expect=NON_FINITE)
            self.assertRegex(result.err, r"(a weight is not finite: \S+weight, row \d+, column \d+|"
                                         r"validation loss at step 2 is nan)")
            self.assertEqual(self.checkpoints(), ["step_00000001"])
            self.assertEqual(self.segments(), before)

    def test_last_validation(self):
        result = self.train(changes={"training.steps": 1, "optimizer.learning_rate": 1e30}, expect=NON_FINITE)
        self.assert_message(result, ["the validation loss at step 1 is nan", "The step is not saved"])
        self.assertIsNone(self.log().validations[0]["val_loss"])
        self.assertEqual(self.checkpoints(), [])


class ResumeTest(RunningTestCase):
    def test_damaged_line(self):
        self.train(changes={"training.steps": 8, "checkpoint.interval": 4})
        lines = self.read("run", "log.jsonl").splitlines(keepends=True)
        damaged = b"".join(lines[:3] + [b'{"step": 3, "lo\x00ss"\n'] + lines[3:])
        self.write("run/log.jsonl", damaged)
        result = self.run_program("--config", self.config({"training.steps": 10, "checkpoint.interval": 4}), "--resume")
        self.assertIn("log.jsonl: line 4 is not a record and was dropped; the file as it was is run/log.jsonl.damaged-1",
                      result.out)
        self.assertEqual(self.read("run", "log.jsonl.damaged-1"), damaged)
        self.assert_steps()
        self.assertEqual(len(self.log().steps), 10)

    def test_every_checkpoint_damaged(self):
        self.train(changes={"checkpoint.interval": 4})
        log = self.read("run", "log.jsonl")
        for name in self.checkpoints():
            os.truncate(self.path("run", "checkpoints", name, "m.bin"), 10)
        result = self.run_program("--config", "config.json", "--resume", expect=RUNTIME)
        self.assertIn("none of the 3 checkpoints in run/checkpoints can be read; nothing was changed", result.err)
        self.assertEqual(self.read("run", "log.jsonl"), log)

    def test_starts(self):
        self.train(changes={"training.steps": 4})
        self.run_program("--config", self.config({"training.steps": 6, "optimizer.learning_rate": 0.02}), "--resume")
        start, = self.log().starts
        self.assertEqual(start["step"], 4)
        self.assertEqual(start["start"]["config"]["optimizer"]["learning_rate"], 0.02)
        self.assertIn("--resume", start["start"]["command"])
        self.assertEqual(self.log().header["config"]["optimizer"]["learning_rate"], 0.01)

    def test_changed_data(self):
        self.train(changes={"training.steps": 4})
        original = self.read("text.txt")
        config = self.config({"training.steps": 6})
        self.write("text.txt", b"T" + original[1:])
        result = self.run_program("--config", config, "--resume", expect=USAGE)
        self.assert_message(result, ["data.train has changed since the checkpoint: text.txt had", "other contents",
                                     "--allow changed-data"])
        allowed = self.run_program("--config", config, "--resume", "--allow", "changed-data")
        self.assertIn("note: data.train has changed", allowed.out)
        self.write("more.txt", original)
        result = self.run_program("--config", self.config({"training.steps": 8, "data.train": ["text.txt", "more.txt"]}),
                                  "--resume")
        self.assertIn("note: data.train has new files: more.txt", result.out)
        for arguments, says in ((["--resume", "--allow", "data"], "expected other-device or changed-data"),
                                (["--allow", "changed-data"], "goes with --resume")):
            self.assert_message(self.run_program("--config", config, *arguments, expect=USAGE), [says])

    def test_another_device(self):
        self.train(changes={"training.steps": 4})
        self.as_if_saved_on("NVIDIA H200", "bf16")
        config = self.config({"training.steps": 6})
        result = self.run_program("--config", config, "--resume", expect=USAGE)
        self.assert_message(result, ["the checkpoint's device is NVIDIA H200, and this run's is CPU",
                                     "--allow other-device"])
        self.run_program("--config", config, "--resume", "--eval")  # weights are weights
        result = self.run_program("--config", config, "--resume", "--allow", "other-device")
        self.assertIn("note: the checkpoint's precision is bf16, and this run's is f32", result.out)

    def as_if_saved_on(self, device, precision):
        folder = self.path("run", "checkpoints", "step_00000004")
        with open(os.path.join(folder, "meta.json"), encoding="utf-8") as file:
            meta = json.load(file)
        self.assertEqual((meta["state"]["identity"]["device"], meta["state"]["identity"]["precision"]), ("CPU", "f32"))
        meta["state"]["identity"].update(device=device, precision=precision)
        contents = json.dumps(meta)
        with open(os.path.join(folder, "meta.json"), "w", encoding="utf-8") as file:
            file.write(contents)
        with open(os.path.join(folder, "complete"), "w", encoding="utf-8") as file:
            file.write("%016x\n" % victim.xxh64(contents.encode()))

    def test_another_sequence_length(self):
        self.train(changes={"data.shuffle": False, "training.steps": 5})  # 5 x 4 sequences of 8 tokens: 160
        result = self.run_program("--config", self.config({"data.shuffle": False, "training.steps": 6,
                                                           "training.seq_len": 24}),
                                  "--resume", "--dump-batches", "rest.npy")
        self.assertIn("note: training.seq_len was 8 and is now 24; the data continues after as many tokens", result.out)
        first = self.read("text.txt")[7 * 24:]  # 160 tokens are 6.7 sequences of 24
        self.assertTrue(self.read("rest.npy")[128:].startswith(struct.pack("<24i", *first[:24])))


class DataTest(RunningTestCase):
    def test_shrinks(self):
        contents = self.read("text.txt")
        self.write("data.txt", contents)
        process = self.start_run(changes={"data.train": "data.txt", "data.val": "text.txt"})
        os.truncate(self.path("data.txt"), 300)
        self.assertEqual(process.wait(), RUNTIME)
        errors = self.read("errors.txt").decode()
        self.assertRegex(errors, r"step \d+ cannot be read: read data.txt: it ends at byte \d+ .* Step (\d+) is "
                                 r"complete and saved")
        last = int(re.search(r"Step (\d+) is", errors)[1])
        self.assertEqual(self.saved_step(), last)
        self.assertEqual(len(self.log().steps), last)
        self.write("data.txt", contents)
        changes = {**LONG, "data.train": "data.txt", "data.val": "text.txt", "training.steps": last + 5}
        self.run_program("--config", self.config(changes), "--resume")
        self.train(changes={**changes, "output.directory": "whole"})
        self.assert_same_run("run", "whole")


class DiskTest(RunningTestCase):
    def assert_interrupted_run_is_whole(self, process):
        """It ends with a saved step, and continues as if nothing had happened."""
        process.terminate()
        self.assertEqual(process.wait(TIMEOUT_S), INTERRUPTED, self.said())
        steps = {"training.steps": self.saved_step() + 5}
        self.run_program("--config", self.config({**LONG, **steps}), "--resume")
        self.train(changes={**LONG, **steps, "output.directory": "whole"})
        self.assert_same_run("run", "whole")

    def test_full_for_a_while(self):
        with open(self.path("output.txt"), "wb") as output:  # by another process, which the limit below spares
            console = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=output)
        process = self.start("--config", self.config(LONG), stdout=console.stdin, stderr=subprocess.STDOUT,
                             restore_signals=False, preexec_fn=lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN))
        console.stdin.close()
        self.addCleanup(console.wait)
        self.wait_until(lambda: self.saved_step() > 20, process, "second checkpoint")
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1000, hard))  # no file may grow beyond 1000 bytes
        self.wait_until(lambda: "was not written" in self.said() and "held back" in self.said(), process, "full disk")
        saved = self.saved_step()
        self.assertGreater(saved, 0)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (soft, hard))
        self.wait_until(lambda: "every line is written again" in self.said(), process, "log that is whole again")
        self.assert_interrupted_run_is_whole(process)
        self.assertIn("earlier checkpoints are untouched", self.said())
        self.assertIn("the next one that is due is tried again", self.said())

    def test_deleted_folder(self):
        process = self.start_run()
        os.rename(self.path("run"), self.path("elsewhere"))
        self.wait_until(lambda: "run was deleted or moved" in self.said(), process, "notice")
        self.assert_interrupted_run_is_whole(process)

    def test_background_or_not(self):
        for background in (True, False):
            self.train(changes={"checkpoint.interval": 3, "checkpoint.background": background,
                                "output.directory": f"run{background}"})
        self.assertEqual(self.segments("runTrue"), self.segments("runFalse"))
        said = self.train("--dry-run", changes={"checkpoint.interval": 3}).out
        parameters = sum(map(len, self.segments("runTrue").values()))
        self.assertRegex(said, r"checkpoints +written while the run continues, from a copy of \S+ KiB in host memory; "
                               r"--checkpoint.background false needs none")
        self.assertAlmostEqual(float(re.search(r"a copy of (\S+) KiB", said)[1]), parameters / 1024, delta=1)


if __name__ == "__main__":
    unittest.main()
