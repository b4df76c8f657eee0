"""--timing, --tensor-stats and --dump-batches replace nothing unasked; what is refused is refused before the run begins."""

import json
import os
import unittest

from program import ProgramTestCase

FLAGS = ("--timing", "--tensor-stats", "--dump-batches")
ANOTHER_TEXT = b"".join(b"line %d of another text\n" % n for n in range(50))


class RefusedOutputTest(ProgramTestCase):
    def contents(self):
        """Of every regular file of the folder, by name."""
        return {name: self.read(name) for name in self.tree()
                if os.path.isfile(self.path(name)) and not os.path.islink(self.path(name))}

    def refuse_output(self, flag, file, *arguments, says, overwrite=(False, True), changes=None):
        """Neither run nor dry run begins, and every file keeps its bytes."""
        self.config(changes)
        before = self.contents()
        for mode in ([], ["--dry-run"]):
            for allowed in overwrite:
                with self.subTest(flag=flag, file=file, mode=mode, overwrite=allowed):
                    self.refuse(flag, file, *arguments, *mode, *(["--overwrite"] if allowed else []),
                                changes=changes, says=[flag, *says])
                    self.assertEqual(self.contents(), before)

    def test_another_file(self):
        self.write("kept", b"kept")
        for flag in FLAGS:
            self.refuse_output(flag, "kept", says=["kept: exists", "--overwrite"], overwrite=[False])

    def test_the_trace_beside_the_times(self):
        self.write("t.trace.json", b"kept")
        self.refuse_output("--timing", "t.json", says=["t.trace.json: exists"], overwrite=[False])

    def test_the_names_of_files_that_are_being_written(self):
        for name in ("t.json.new", "t.trace.json.new"):
            self.write(name, b"kept")
            self.refuse_output("--timing", "t.json", says=[f"{name}, which: exists"], overwrite=[False])
            os.remove(self.path(name))
        self.write("b.npy.new", ANOTHER_TEXT)
        os.rename(self.path("b.npy.new"), self.path("data.txt"))
        os.link(self.path("data.txt"), self.path("b.npy.new"))
        self.refuse_output("--dump-batches", "b.npy", says=["b.npy.new, which: the run reads this file"],
                           changes={"data.train": "data.txt"})

    def test_what_is_no_file(self):
        os.mkfifo(self.path("pipe"))
        os.mkdir(self.path("folder"))
        os.symlink("nowhere", self.path("dangling"))
        for flag in FLAGS:
            self.refuse_output(flag, "/dev/null", says=["/dev/null: is a device"])
            self.refuse_output(flag, "pipe", says=["pipe: is a FIFO"])
            self.refuse_output(flag, "folder", says=["folder: is a folder"])
            self.refuse_output(flag, "dangling", says=["dangling: is a symbolic link"])

    def test_what_the_run_reads(self):
        os.mkdir(self.path("parts"))
        for name in ("parts/a.txt", "parts/b.txt", "val.txt"):
            self.write(name, ANOTHER_TEXT)
        os.symlink("parts/a.txt", self.path("soft"))
        os.link(self.path("parts/b.txt"), self.path("hard"))
        changes = {"data.train": ["parts/*.txt"], "data.val": "val.txt"}
        for flag in FLAGS:
            for file in ("parts/a.txt", "./parts/../parts/b.txt", "val.txt", self.path("val.txt"), "soft", "hard",
                         "config.json"):
                self.refuse_output(flag, file, says=[f"{file}: the run reads this file"], changes=changes)

    def test_evaluation_files_and_tokenizers(self):
        # Only by their names: whether they are good is not looked at before.
        for key, name in (("evaluation.files", "e.bin"), ("data.tokenizer", "t.json")):
            self.write(name, b"kept")
            self.config({key: name})
            self.refuse("--dump-batches", name, "--overwrite", says=[f"{name}: the run reads this file"],
                        changes={key: name})

    def test_weights_to_start_from(self):
        os.mkdir(self.path("hf"))
        self.train("--export", "hf/model", changes={"training.steps": 1})
        for file in ("hf/model/model.safetensors", "hf/model/config.json"):
            self.refuse_output("--timing", file, "--init-from", "hf/model", says=[f"{file}: the run reads this file"])

    def test_places_of_the_run_itself(self):
        self.train()
        self.write("run/timing.json", b"")
        changes = {"training.steps": 13}
        for file in ("run/log.jsonl", "run/plan.json", "run/checkpoints/step_00000012/meta.json"):
            self.refuse_output("--timing", file, "--resume", says=[file], changes=changes)
        for file, name in (("run/checkpoints/new", "checkpoints"), ("run/log.jsonl.new", "log.jsonl.new")):
            self.refuse_output("--timing", file, "--resume", says=[file, f"the run itself writes {name}"],
                               changes=changes)
        for file, run in (("fresh", "fresh"), ("fresh", "fresh/run"), ("./fresh", "fresh")):
            self.refuse_output("--dump-batches", file, says=[f"fresh: the run's output.directory {run} takes"],
                               changes={"output.directory": run})
        self.train("--resume", "--timing", "run/timing.json", "--overwrite", changes=changes)
        self.assertIn("steps", json.loads(self.read("run/timing.json")))

    def test_two_outputs_of_one_name(self):
        for other in ("t.json", "./t.json", "t.trace.json", "t.json.new"):
            self.refuse_output("--timing", "t.json", "--dump-batches", other, says=["--dump-batches", "different names"])

    def test_evaluation(self):
        self.train()
        self.write("kept", b"kept")
        self.refuse("--resume", "--eval", "--timing", "kept", says=["kept: exists"])
        self.refuse("--resume", "--eval", "--timing", "text.txt", "--overwrite", says=["text.txt: the run reads"])
        self.assertEqual(self.read("kept"), b"kept")


class ReplacedOutputTest(ProgramTestCase):
    def test_overwrite(self):
        for name in ("t.json", "t.trace.json", "t.json.new", "b.npy"):
            self.write(name, b"of an earlier run")
        self.train("--timing", "t.json", "--dump-batches", "b.npy", "--overwrite")
        self.assertIn("steps", json.loads(self.read("t.json")))
        self.assertIn("traceEvents", json.loads(self.read("t.trace.json")))
        self.assertEqual(self.read("b.npy")[:6], b"\x93NUMPY")
        for name in ("s", "s.new"):
            self.write(name, b"of an earlier run")
        self.train("--tensor-stats", "s", "--overwrite", changes={"output.directory": "other"})
        self.assertIn("header", json.loads(self.read("s").splitlines()[0]))
        self.assertNotIn("s.new", self.tree())
        self.assertNotIn("t.json.new", self.tree())

    def test_another_name_of_a_replaced_file_keeps_its_bytes(self):
        self.write("old", b"kept")
        os.link(self.path("old"), self.path("b.npy"))
        self.train("--dump-batches", "b.npy", "--overwrite")
        self.assertEqual(self.read("old"), b"kept")


if __name__ == "__main__":
    unittest.main()
