"""What --device auto says: of a GPU that it does not take, and of a CPU that would take days. Without a GPU it is silent."""

import os
import re
import unittest

from program import DONE, RUNTIME, ProgramTestCase

HAS_GPU = any(re.fullmatch(r"nvidia\d+", name) for name in os.listdir("/dev"))
REFUSED = "coda_train: --device auto: no GPU can do this, because "
MEDIUM = {"model.hidden_size": 256, "model.intermediate_size": 512}  # some 100 MFLOP a step
NOTE = "note: on the CPU, because "


class DeviceChoiceTest(ProgramTestCase):
    @unittest.skipIf(HAS_GPU, "this machine has an NVIDIA GPU")
    def test_nothing_is_said_where_there_is_no_gpu(self):
        for arguments in ([], ["--dry-run"], ["--eval"]):
            with self.subTest(arguments):
                resume = ["--resume"] if arguments and arguments != ["--dry-run"] else []
                result = self.run_program("--config", self.config({"training.steps": 2}), *resume, *arguments)
                self.assertNotIn("on the CPU, because", result.out + result.err)

    @unittest.skipUnless(HAS_GPU, "this machine has no NVIDIA GPU")
    def test_a_model_that_is_not_for_the_gpu_is_noted(self):
        for arguments in ([], ["--dry-run"], ["--eval"]):
            with self.subTest(arguments):
                resume = ["--resume"] if arguments and arguments != ["--dry-run"] else []
                result = self.run_program("--config", self.config({"training.steps": 2}), *resume, *arguments)
                self.assertEqual(result.out.count(NOTE), 1, result)

    def test_days_on_the_cpu_are_refused_unless_asked_for(self):
        days = {**MEDIUM, "training.steps": 2 * 10**9}
        before = self.tree()
        for arguments in ([], ["--dry-run"]):
            with self.subTest(arguments):
                result = self.run_program("--config", self.config(days), *arguments, expect=RUNTIME)
                self.assertRegex(result.err, rf"\A{REFUSED}[^\n]+, and on the CPU 2000000000 steps take at least "
                                             r"\d+d\d\dh on 1 thread, at 100 GFLOP/s each; "
                                             r"--device cpu runs it there all the same\n\Z")
        result = self.run_program("--config", self.config(days), "--dry-run", "--device", "cpu")
        self.assertRegex(result.out, r"(?m)^time on the CPU     2000000000 steps take at least \d+d\d\dh on 1 thread")
        self.assertEqual(self.tree(), sorted({*before, "config.json"}))

    def test_only_the_steps_that_are_left_count(self):
        days = {**MEDIUM, "training.steps": 2 * 10**9}
        self.train(changes={**MEDIUM, "training.steps": 2})
        self.run_program("--config", self.config(days), "--resume", expect=RUNTIME)
        self.run_program("--config", self.config(days), "--resume", "--dry-run")
        self.run_program("--config", self.config({**MEDIUM, "training.steps": 3}), "--resume", expect=DONE)

    def test_what_transformers_will_refuse_is_noted_and_no_error(self):
        odd = {"model.hidden_size": 18, "model.head_dim": 4, "training.steps": 2}
        note = ("note: model.hidden_size 18 is not a multiple of model.num_attention_heads 4, as transformers wants it: "
                "it does not load an export of this model\n")
        for arguments in (["--dry-run"], [], ["--resume", "--export", "out"], ["--dry-run", "--export", "out2"]):
            with self.subTest(arguments):
                result = self.run_program("--config", self.config(odd), *arguments)
                self.assertEqual(result.out.count(note), 1, result)
        self.assertNotIn("transformers", self.run_program("--config", self.config(), "--dry-run").out)


if __name__ == "__main__":
    unittest.main()
