"""--eval and --export: each reads, plans and allocates what it needs and no more."""

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

    def config(self, changes=None, name="config.json", base=None):
        return super().config(changes, name, base or changed(CONFIG, SHAPE))

    def dry_run(self, *arguments, **options):
        """({memory segment: bytes}, output)"""
        out = self.train("--dry-run", *arguments, **options).out
        lines = re.findall(r"^  ([a-z ]+?)  +([\d,]+) B ", out, re.M)
        return {name: int(value.replace(",", "")) for name, value in lines}, out

    def test_data_that_a_mode_does_not_read_may_be_missing(self):
        self.train()
        out = self.train("--resume", "--eval").out
        self.train("--resume", "--export", "whole")

        os.remove(self.path("train.txt"))
        self.assertEqual(self.train("--resume", "--eval").out, out)
        os.remove(self.path("val.txt"))
        self.train("--resume", "--export", "again")
        for name in self.tree("whole"):
            self.assertEqual(self.read("again", name), self.read("whole", name))
        for mode in (["--resume", "--eval"], ["--resume", "--dry-run", "--eval"], ["--resume", "--export", "c", "--eval"]):
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
        plan, out = self.dry_run("--eval")
        self.assertNotIn("gradients", plan)
        self.assertNotIn("optimizer state", plan)
        self.assertEqual(2 * plan["weights"], training["weights"])
        self.assertEqual(sum(plan.values()), 2 * plan["arena"])
        self.assertRegex(out, r"(?m)^schedule +\d+ ops of the pass evaluate; ")
        self.assertIn("validation sequences", out)
        plan, out = self.dry_run("--export", "out")
        self.assertEqual(plan, {})
        self.assertRegex(out, r"(?m)^weights in fp32     [\d,]+ B, of which the host holds no more than 64 MiB at a time$")

    def test_both_at_once(self):
        self.train()
        out = self.train("--resume", "--eval", "--export", "out").out
        self.assertRegex(out, r"\Aresumed from [^\n]*\nvalidation loss [^\n]*\nweights of step 4 in out\n\Z")

    def test_an_export_needs_no_device(self):
        self.train("--export", "out", "--device", "cuda")
        self.assertIn("config.json", self.tree("out"))


if __name__ == "__main__":
    unittest.main()
