"""A disk that fills up: exit code 1, a message with the system's reason, and earlier work untouched."""

import os
import resource
import subprocess
import unittest

from program import RUNTIME, ProgramTestCase

CHANGES = {"checkpoint.interval": 4, "training.steps": 12, "output.directory": "disk/run"}


class SmallDiskTestCase(ProgramTestCase):
    """A folder "disk" on a file system of its own, where this process may mount one."""

    def mount(self, kibibytes):
        os.mkdir(self.path("disk"))
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kibibytes}k", "tmpfs", self.path("disk")],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            self.skipTest(f"no file system can be mounted here: {done.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", self.path("disk")], check=True)

    def remount(self, kibibytes):
        subprocess.run(["mount", "-o", f"remount,size={kibibytes}k", self.path("disk")], check=True)


class FullDiskTest(SmallDiskTestCase):
    def test_checkpoint(self):
        self.train(changes={**CHANGES, "output.directory": "whole"})
        size = sum(map(len, self.segments("whole").values())) // 1024
        self.mount(2 * size + 100)  # two checkpoints and a log; a third does not fit
        result = self.train(changes=CHANGES, expect=RUNTIME)
        self.assert_message(result, ["the checkpoint of step 12 was not written", "No space left on device",
                                     "earlier checkpoints are untouched"])
        self.assertEqual(self.checkpoints("disk/run"), ["step_00000004", "step_00000008"])
        self.remount(100 * size)
        self.run_program("--config", "config.json", "--resume")
        self.assertEqual(self.log("disk/run").repeatable(), self.log("whole").repeatable())
        self.assertEqual(self.segments("disk/run"), self.segments("whole"))

    def test_log(self):
        # Room for some lines of the log and nothing else.
        self.mount(40)
        result = self.train(changes={**CHANGES, "training.steps": 2000, "checkpoint.interval": 0}, expect=RUNTIME)
        self.assert_message(result, ["log.jsonl", "No space left on device"])
        steps = [record["step"] for record in self.log("disk/run").steps]  # every line is whole
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        self.assertGreater(len(steps), 10)

    def test_no_room_at_all(self):
        self.mount(4)
        self.write("disk/filler", bytes(4096))
        for arguments, says in (([], "disk"), (["--export", "disk/out"], "No space left on device")):
            result = self.train(*arguments, changes=CHANGES, expect=RUNTIME)
            self.assert_message(result, ["No space left on device", says])
            self.assertNotIn("disk/out", self.tree())
            self.assertNotIn("disk/run/log.jsonl", self.tree())

    def test_export_and_timing(self):
        self.mount(16)
        for arguments in (["--export", "disk/out"], ["--timing", "disk/timing.json"],
                          ["--dump-batches", "disk/batches.npy"]):
            with self.subTest(arguments):
                result = self.train(*arguments, changes={"output.directory": f"run{arguments[0]}",
                                                         "training.steps": 100}, expect=RUNTIME)
                self.assert_message(result, ["No space left on device", arguments[1]])
                self.assertEqual(os.listdir(self.path("disk")), [])


class FileSizeLimitTest(ProgramTestCase):
    """The same without a mount: a write fails in the middle of a file at the limit that `ulimit -f` sets,
    with a signal that would end the process."""

    def limited(self, *arguments, limit, changes):
        return self.train(*arguments, changes=changes, expect=RUNTIME,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))

    def test_checkpoint(self):
        self.train(changes={"output.directory": "whole"})
        limit = len(self.segments("whole")["master.bin"]) // 2
        result = self.limited(limit=limit, changes={})
        self.assert_message(result, ["the checkpoint of step 12 was not written", "File too large", "master.bin"])
        self.assertEqual(self.checkpoints(), [])
        self.run_program("--config", "config.json", "--resume")
        self.assert_same_run("run", "whole")

    def test_export(self):
        result = self.limited("--export", "out", limit=20000, changes={})
        self.assert_message(result, ["File too large", "out"])
        self.assertEqual(self.tree(), ["config.json", "text.txt"])


if __name__ == "__main__":
    unittest.main()
