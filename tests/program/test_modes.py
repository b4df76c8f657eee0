"""--eval, --sample and --export: each reads, plans and allocates what it needs and no more."""

import os
import re
import unittest

from program import CONFIG, RUNTIME, ProgramTestCase, changed

SHAPE = {"training.steps": 4, "data.train": "train.txt", "data.val": "val.txt", "model.tie_word_embeddings": True}


class ModesTest(ProgramTestCase):
    def setUp(self):
        super().setUp()
        os.rename(self.path("text.txt"), self.path("train.txt"))
        self.write("val.txt", self.read("train.txt")[:400])

    def train(self, *arguments, **options):
        return super().train(*arguments, errors="surrogateescape", **options)  # a sample may be any bytes

    def config(self, changes=None, name="config.json", base=None):
        return super().config(changes, name, base or changed(CONFIG, SHAPE))

    def dry_run(self, *arguments, **options):
        """({memory segment: bytes}, output)"""
        out = self.train("--dry-run", *arguments, **options).out
        lines = re.findall(r"^  ([a-z ]+?)  +([\d,]+) B ", out, re.M)
        return {name: int(value.replace(",", "")) for name, value in lines}, out

    def test_data_that_a_mode_does_not_read_may_be_missing(self):
        self.train()
        arguments = {"eval": ["--resume", "--eval"], "sample": ["--resume", "--sample", "5", "--prompt", "gre"],
                     "export": ["--resume", "--export"]}
        out = {mode: self.train(*arguments[mode]).out for mode in ("eval", "sample")}
        self.train(*arguments["export"], "whole")

        os.remove(self.path("train.txt"))
        self.assertEqual(self.train(*arguments["eval"]).out, out["eval"])
        os.remove(self.path("val.txt"))
        self.assertEqual(self.train(*arguments["sample"]).out, out["sample"])
        self.train(*arguments["export"], "again")
        for name in self.tree("whole"):
            self.assertEqual(self.read("again", name), self.read("whole", name))
        self.train("--init-from", "whole", "--sample", "5")
        for mode in (["--resume", "--eval"], ["--resume", "--dry-run", "--eval"], ["--resume", "--sample", "2", "--eval"]):
            self.refuse(*mode, says="val.txt", code=RUNTIME)
        self.refuse("--resume", says="train.txt", code=RUNTIME)

    def test_without_data_val_the_end_of_data_train_is_validation(self):
        changes = {"data.val": []}
        self.train(changes=changes)
        self.assertRegex(self.train("--resume", "--eval", changes=changes).out, r"(?m)^validation loss [\d.]+ over")
        os.remove(self.path("train.txt"))
        self.refuse("--resume", "--eval", changes=changes, says="train.txt", code=RUNTIME)

    def test_evaluation_loss_is_that_of_the_training_run(self):
        for tied in (False, True):
            with self.subTest(tied=tied):
                changes = {"model.tie_word_embeddings": tied, "output.directory": f"run{tied}"}
                logged = self.train(changes=changes).out
                loss = re.search(r"validation at step 4: (loss \S+ over \d+ tokens)", logged)[1]
                self.assertIn(f"validation {loss}\n", self.train("--resume", "--eval", changes=changes).out)

    def test_plans(self):
        self.train()
        training, _ = self.dry_run()
        self.assertLess({"weights", "gradients", "optimizer state"}, set(training))
        for arguments, name in ((["--eval"], "evaluate"), (["--resume", "--sample", "3"], "sample")):
            with self.subTest(name):
                plan, out = self.dry_run(*arguments)
                self.assertNotIn("gradients", plan)
                self.assertNotIn("optimizer state", plan)
                # Without master weights a sample has the embedding apart, in which it looks its tokens up.
                table = 256 * 16 * 4 if name == "sample" else 0
                self.assertEqual(2 * (plan["weights"] - table), training["weights"])
                self.assertEqual(sum(plan.values()), 2 * plan["arena"])
                self.assertRegex(out, rf"(?m)^schedule +\d+ ops of the pass {name}; ")
                self.assertEqual("validation sequences" in out, name == "evaluate")
        plan, out = self.dry_run("--export", "out")
        self.assertEqual(plan, {})
        self.assertRegex(out, r"(?m)^weights in fp32     [\d,]+ B, of which the host holds no more than 64 MiB at a time$")
        both, _ = self.dry_run("--resume", "--eval", "--sample", "3")
        self.assertGreaterEqual(both["arena"], max(self.dry_run("--eval")[0]["arena"],
                                                   self.dry_run("--resume", "--sample", "3")[0]["arena"]))

    def test_all_three_at_once(self):
        self.train()
        out = self.train("--resume", "--eval", "--sample", "5", "--prompt", "gre", "--export", "out").out
        self.assertRegex(out, r"(?s)\Aresumed from [^\n]*\nvalidation loss [^\n]*\ngre.*\nweights of step 4 in out\n\Z")

    def test_an_export_needs_no_device(self):
        self.train("--export", "out", "--device", "cuda")
        self.assertIn("config.json", self.tree("out"))


if __name__ == "__main__":
    unittest.main()
