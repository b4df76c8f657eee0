"""What the parts of tools/gpu_check record of GPU runs follows the schema of the result files."""

import json
import os
import sys
import types
import unittest

from logs import TOOLS, LogTestCase, steps

sys.path.insert(0, os.path.join(TOOLS, "bench"))
import gpu_parts  # noqa: E402
import records  # noqa: E402

HEADER = {"gpu": "NVIDIA H200", "commit": "b7126d3b0446", "source_hash": "0" * 64, "date": "2026-11-22T06:32:25Z",
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
        made = gpu_parts.loss_records(check, log, ends, 2, worst, 3, ["torch_autocast"])
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

        said = gpu_parts.runs(Check())
        self.assertIn("llama1b_T8192 8.80 -> 6.30, 100000 tokens/s", said)
        self.assertEqual(len({records.key_of(what, made[0]) for what, made in taken}), 4)
        for what, made in taken:
            self.assertEqual(records.problems(what, records.stamped(HEADER, made)[0]), [])


if __name__ == "__main__":
    unittest.main()
