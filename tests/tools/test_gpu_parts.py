"""The parts of tools/gpu_check: what they record follows the schema of the result files, and what is wrong fails."""

import json
import os
import sys
import tempfile
import types
import unittest
from unittest import mock

from logs import TOOLS, LogTestCase, steps

sys.path.insert(0, os.path.join(TOOLS, "bench"))
import records  # noqa: E402
from gpu_parts import PARTS, Failed, bits, curves, generation  # noqa: E402

HEADER = {"gpu": "NVIDIA H200", "commit": "b7126d3b0446", "date": "2026-11-22T06:32:25Z",
          "command": "tools/gpu_check"}


class LossRecordsTest(LogTestCase):
    def test_one_record_per_curve(self):
        training = {"steps": 3, "micro_batch_size": 4, "grad_accumulation_steps": 2, "seq_len": 16, "seed": 7}
        log = self.path("log.jsonl")
        with open(log, "w", encoding="utf-8") as file:
            for line in ({"config": {"training": training}}, *steps(3.0, 2.0, 1.0), {"step": 3, "val_loss": 1.5}):
                file.write(json.dumps(line) + "\n")
        check = types.SimpleNamespace(options=types.SimpleNamespace(config=None))
        ends = {"coda": 1.0, "torch_bf16": 1.1, "torch_autocast": 1.2, "torch_fp32": 1.3}
        worst = {name: 0.1 for name in ends if name != "coda"}
        made = curves.loss_records(check, log, ends, 2, worst, 3, ["torch_autocast"])
        for record in records.stamped(HEADER, made):
            self.assertEqual(records.problems("loss", record), [])
        self.assertEqual(made[0], {"config": "shakespeare_100m", "seed": 7, "trainer": "coda_train",
                                   "precision": "bf16", "steps": 3, "tokens": 384, "last": 2, "mean_of_last": 1.0,
                                   "val_loss": 1.5})
        self.assertEqual([record["precision"] for record in made[1:]], ["bf16_params", "bf16_autocast", "fp32"])
        self.assertEqual([record.get("limits_kept") for record in made], [None, False, True, None])


class RunsTest(LogTestCase):
    def test_runs(self):
        test, taken = self, []

        class Check:
            def path(self, name):
                return test.path(name)

            def config(self, name, base, changes):
                os.makedirs(self.path(name), exist_ok=True)
                lines = [line | {"ms": 10.0, "tokens_per_s": 1e5, "mfu": 0.5, "memory_gib": 3.0}
                         for line in steps(*(9 - i / 10 for i in range(30)))]
                test.write(os.path.join(name, "log.jsonl"), lines)
                return name

            def train(self, *arguments):
                pass

            def record(self, what, made):
                taken.append((what, made))

        said = PARTS["runs"](Check())
        self.assertIn("llama1b_T8192 8.80 -> 6.30, 100000 tokens/s", said)
        self.assertEqual(len({records.key_of(what, made[0]) for what, made in taken}), 4)
        for what, made in taken:
            self.assertEqual(records.problems(what, records.stamped(HEADER, made)[0]), [])


class RequireSameTest(LogTestCase):
    def run_folder(self, name, rows, weights):
        os.makedirs(self.path(os.path.join(name, "checkpoints", "step_00000002")))
        self.write(os.path.join(name, "log.jsonl"), rows)
        with open(self.path(os.path.join(name, "checkpoints", "step_00000002", "weights.bin")), "wb") as file:
            file.write(weights)
        return self.path(name)

    def test_what_differs_fails(self):
        rows = [row | {"f8": {"qkv.weight": [0, 0.25, 0.5]}, "ms": 1.0} for row in steps(3.0, 2.0)]
        first = self.run_folder("first", rows, b"weights")
        self.assertEqual(bits.require_same(first, self.run_folder("same", [row | {"ms": 2.0} for row in rows],
                                                                  b"weights")), 2)
        for name, changed, weights, said in (("loss", {"loss": 2.5}, b"weights", "step 1"),
                                             ("scale", {"f8": {"qkv.weight": [1, 0.25, 0.5]}}, b"weights", "step 1"),
                                             ("checkpoint", {}, b"weighty", "checkpoints")):
            other = self.run_folder(name, [rows[0] | changed, *rows[1:]], weights)
            with self.subTest(name), self.assertRaisesRegex(Failed, said):
                bits.require_same(first, other)


class GenerationTest(unittest.TestCase):
    """coda_generate stands for a function here: a token of sequence i at place n is 10 i + n."""

    def run_part(self, device="cuda", loss=0.0, wrong=lambda tokens, **call: tokens, only="run"):
        """only: the folder of what is wrong."""
        calls = []
        folders = {"": ("run", "exported"), "int4 ": ("int4", "int4")}

        def generate(check, folder, *arguments):
            options = dict(zip(arguments, arguments[1:]))
            if "--score" in arguments:
                return [{"loss": 2.0 + (loss if folder == only else 0.0), "tokens": 256}]
            call = {"batch": int(options["--batch"]), "count": int(options["--tokens"]),
                    "decoder": options["--decoder"]}
            calls.append(call)
            with open(options["--prompts"], encoding="utf-8") as file:
                prompts = [json.loads(line) for line in file]
            changed = wrong if folder == only else lambda tokens, **_: tokens
            return [{"id": row["id"], "tokens": changed([10 * row["id"] + n for n in range(call["count"])], **call)}
                    for row in reversed(prompts)]

        with tempfile.TemporaryDirectory() as folder:
            check = types.SimpleNamespace(options=types.SimpleNamespace(device=device),
                                          path=lambda name: os.path.join(folder, name))
            with mock.patch.multiple(generation, generate=generate, eval_loss=lambda *_: 2.0,
                                     byte_model=lambda *_: (folders, "evaluation", bytes(5000))):
                said = PARTS["generation"](check)
        return said, calls

    def test_good(self):
        said, calls = self.run_part()
        self.assertIn("fused loss +0.0e+00 from --eval's; passes loss", said)
        self.assertIn("int4 fused loss +0.0e+00 from --eval's; int4 passes loss", said)
        self.assertIn("; 200000 tokens", said)
        self.assertEqual({call["decoder"] for call in calls}, {"fused", "passes"})
        said, calls = self.run_part("cpu")
        self.assertEqual({call["decoder"] for call in calls}, {"passes"})

    def test_what_is_wrong_fails(self):
        def in_batches_of(size):
            return lambda tokens, batch, **_: tokens[:-1] + [0] if batch == size else tokens

        for name, arguments, said in (
                ("loss", {"loss": 2e-3}, "--eval's is 2.0"),
                ("batch 1", {"wrong": in_batches_of(1)}, "in batches of 1"),
                ("batch 3", {"wrong": in_batches_of(3)}, "in batches of 3"),
                ("too few", {"wrong": lambda tokens, count, **_: tokens[:count - (count == 12500)]}, "99992 tokens"),
                ("long", {"wrong": lambda tokens, count, **_: [7, *tokens[1:]] if count == 12500 else tokens},
                 "begins with other tokens")):
            for only, form in (("run", ""), ("int4", "int4 ")):
                with self.subTest(name, only=only), self.assertRaisesRegex(Failed, form + ".*" + said):
                    self.run_part(only=only, **arguments)


class SmolLm2Test(unittest.TestCase):
    def test_the_folder_is_made_where_it_is_not_there(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, made in ((folder, []), (os.path.join(folder, "new"), ["smollm2.py"])):
                options = types.SimpleNamespace(smollm2=name, bin="bin", device="cuda")
                check = types.SimpleNamespace(options=options, run=mock.Mock(), python=mock.Mock(return_value="a\nb\n"))
                self.assertEqual(PARTS["smollm2"](check), "a; b")
                self.assertEqual([os.path.basename(call.args[2]) for call in check.run.call_args_list], made)
                check.python.assert_called_once_with("smollm2_check.py", "--bin", "bin", "--model", name, "--device",
                                                     "cuda")


if __name__ == "__main__":
    unittest.main()
