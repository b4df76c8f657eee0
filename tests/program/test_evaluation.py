"""Multiple-choice evaluation: during training, at its end, with --eval, and what a bad file says."""

import os
import struct
import sys
import unittest

from program import ROOT, RUNTIME, USAGE, ProgramTestCase

sys.path.insert(0, os.path.join(ROOT, "tools"))
import runlog  # noqa: E402: the path comes first

PHRASE = b"the quick brown fox jumps over the lazy dog. "
KEYS = ["step", "evaluation", "acc", "acc_norm", "examples"]


def evaluation_shard(examples, magic=20240522):
    """llm.c's format of (label, context, completions) examples of bytes."""
    words = []
    for index, (label, context, completions) in enumerate(examples):
        example = [65535, 0, index, label, len(completions), len(context), *context]
        for completion in completions:
            example += [len(completion), *completion]
        example[1] = 2 * len(example)
        words += example
    header = [magic, 1, len(examples), 0] + [0] * 252
    return struct.pack("<256i", *header) + struct.pack(f"<{len(words)}H", *words)


def choices(right):
    """Ten examples of which a model of PHRASE finds the first `right`; the others call another completion right."""
    examples = []
    for start in range(10):
        context, continuation = (PHRASE * 2)[start:start + 12], (PHRASE * 2)[start + 12:start + 18]
        label = start % 4
        completions = [b"zqxwvk"] * 4
        completions[label] = continuation
        examples.append((label if start < right else (label + 1) % 4, context, completions))
    return examples


class EvaluationTest(ProgramTestCase):
    def setUp(self):
        super().setUp()
        self.write("text.txt", PHRASE * 60)
        self.write("easy_val.bin", evaluation_shard(choices(10)))
        self.write("some_val.bin", evaluation_shard(choices(7)))

    def config(self, changes=None, name="config.json", base=None):
        defaults = {"model.hidden_size": 32, "training.seq_len": 16, "training.micro_batch_size": 6,
                    "training.steps": 60, "evaluation.files": ["easy_val.bin", "some_val.bin"]}
        return super().config({**defaults, **(changes or {})}, name, base)

    def evaluations(self, run="run"):
        return [record for record in self.log(run).records if "evaluation" in record]

    def test_known_answers(self):
        out = self.train().out
        self.assertEqual(self.evaluations(), [
            {"step": 60, "evaluation": "easy_val", "acc": 1, "acc_norm": 1, "examples": 10},
            {"step": 60, "evaluation": "some_val", "acc": 0.7, "acc_norm": 0.7, "examples": 10}])
        self.assertEqual([list(record) for record in self.evaluations()], [KEYS] * 2)
        self.assertIn("evaluation at step 60: some_val: acc 0.7, acc_norm 0.7 over 10 examples\n", out)
        self.assertIn("note: easy_val: 40 of 40 rows are longer than training.seq_len", out)

        log = runlog.read(self.path("run"))
        self.assertEqual(list(log.evaluations), ["easy_val", "some_val"])
        self.assertEqual(log.evaluations["some_val"][60]["acc"], 0.7)
        self.assertEqual(list(log.steps), list(range(1, 61)))

        with self.subTest("--eval"):
            before = self.read("run", "log.jsonl")
            out = self.train("--resume", "--eval").out
            self.assertRegex(out, r"(?m)^validation loss [\d.]+ over \d+ tokens$")
            self.assertIn("\neasy_val: acc 1, acc_norm 1 over 10 examples\n", out)
            self.assertIn("\nsome_val: acc 0.7, acc_norm 0.7 over 10 examples\n", out)
            self.assertEqual(self.read("run", "log.jsonl"), before)
        with self.subTest("limit"):
            out = self.train("--resume", "--eval", "--evaluation.limit", "8").out
            self.assertIn("some_val: acc 0.875, acc_norm 0.875 over 8 examples\n", out)
        with self.subTest("no micro-batch size, chunk or thread changes an answer"):
            out = self.train("--resume", "--eval", "--training.lm_head_chunks", "5", threads=3,
                             changes={"training.micro_batch_size": 1}).out
            self.assertIn("some_val: acc 0.7, acc_norm 0.7 over 10 examples\n", out)

    def test_interval_and_resume(self):
        changes = {"evaluation.interval": 4, "evaluation.files": "*_val.bin", "training.steps": 10}
        self.train(changes=changes)
        self.assertEqual([(record["step"], record["evaluation"]) for record in self.evaluations()],
                         [(step, name) for step in (4, 8, 10) for name in ("easy_val", "some_val")])
        split = {**changes, "output.directory": "split", "checkpoint.interval": 5, "lr_schedule.decay_steps": 10}
        whole = {**split, "output.directory": "whole"}
        self.train(changes=whole)
        # The checkpoint is of step 5: the log's records of steps 8 and later are removed and written again.
        self.train(changes={**split, "training.steps": 9, "checkpoint.at_end": False})
        self.assertEqual([record["step"] for record in self.evaluations("split")], [4, 4, 8, 8, 9, 9])
        self.train("--resume", changes=split)
        self.assertEqual(self.evaluations("split"), self.evaluations("whole"))
        self.assertEqual(self.log("split").losses(), self.log("whole").losses())

    def test_an_evaluation_changes_nothing_of_the_training(self):
        self.train(changes={"training.steps": 6, "evaluation.interval": 1})
        self.train(changes={"training.steps": 6, "evaluation.files": [], "output.directory": "without"})
        self.assertEqual(self.log("run").losses(), self.log("without").losses())
        self.assertEqual(self.segments("run"), self.segments("without"))
        self.assertEqual(self.evaluations("without"), [])

    def test_dry_run_says_the_examples(self):
        out = self.train("--dry-run").out
        self.assertRegex(out, r"(?m)^evaluation +easy_val: 10 examples$")

    def test_bad_files_are_refused_before_anything_is_written(self):
        good = evaluation_shard(choices(10))
        self.write("magic.bin", evaluation_shard(choices(10), magic=20240520))
        self.write("cut.bin", good[:-1])
        self.write("long.bin", evaluation_shard([(0, b"ab", [b"x" * 17, b"y"])]))
        self.write("ids.bin", evaluation_shard([(0, [97, 300], [b"x", b"y"])]))
        os.mkdir(self.path("sub"))
        self.write("sub/easy_val.bin", good)
        for files, says in (("magic.bin", ["magic.bin", "20240522"]), ("cut.bin", ["cut.bin", "example 9"]),
                            ("long.bin", ["long.bin", "17 tokens", "training.seq_len 16"]),
                            ("ids.bin", ["ids.bin", "300", "vocab_size is 256"]), ("absent.bin", ["absent.bin"]),
                            (["easy_val.bin", "sub/easy_val.bin"], ["the same name"])):
            for arguments in ([], ["--dry-run"]):
                with self.subTest(files, arguments=arguments):
                    self.refuse(*arguments, changes={"evaluation.files": files}, code=RUNTIME, says=says)
        self.refuse(changes={"evaluation.limit": -1}, code=USAGE, says="evaluation.limit")
        self.refuse(changes={"evaluation.file": "a.bin"}, code=USAGE, says=["evaluation.file", "evaluation.files"])


if __name__ == "__main__":
    unittest.main()
