"""A training run: the log, the console, determinism, and the configuration that goes in and out."""

import json
import math
import os
import re
import subprocess
import unittest

from program import DONE, STEP_KEYS, TIMEOUT_S, ProgramTestCase, significant_digits


def expected_lr(kind, step, steps, peak, warmup, floor):
    """The schedules as the literature has them; wsd decays linearly over the last fifth of the steps."""
    if step <= warmup:
        return peak * step / warmup
    if kind == "constant":
        return peak
    start = steps - steps // 5 if kind == "wsd" else warmup
    progress = max(0, step - start) / (steps - start)
    if kind == "cosine":
        return peak * (floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2)
    return peak * (1 - (1 - floor) * progress)


class LogTest(ProgramTestCase):
    def test_records(self):
        result = self.train(changes={"training.grad_accumulation_steps": 3})
        log = self.log()
        self.assertEqual(sorted(log.header), ["build", "command", "config", "device", "started"])
        self.assertEqual(log.header["config"]["training"]["grad_accumulation_steps"], 3)
        self.assertEqual(log.header["config"]["optimizer"]["beta2"], 0.95)
        self.assertTrue(log.header["command"].endswith("--config config.json"))
        self.assertIn("CPU", log.header["device"])
        self.assertEqual(self.run_program("--version").out.strip(), log.header["build"])

        self.assertEqual([record["step"] for record in log.steps], list(range(1, 13)))
        for record in log.steps:
            self.assertEqual(list(record), STEP_KEYS)
            self.assertEqual(record["tokens"], record["step"] * 3 * 4 * 8)
            self.assertGreater(record["grad_norm"], 0)
            self.assertAlmostEqual(record["tokens_per_s"] * record["ms"] / 1000, 96, delta=1e-5)
            self.assertIsNone(record["mfu"])
            self.assertGreater(record["memory_gib"], 0)
        # On the way, and after the last step.
        self.assertEqual([record["step"] for record in log.validations], [5, 10, 12])
        # A fresh model is uniform over the vocabulary to within its small initial logits.
        self.assertAlmostEqual(log.steps[0]["loss"], math.log(256), delta=0.05)
        for record in log.steps:
            self.assertRegex(result.out, rf"step +{record['step']}/12 \| loss {record['loss']:.4f} ")

    def test_nine_significant_digits(self):
        self.train()
        numbers = re.findall(r'"(?:loss|grad_norm|lr|val_loss)": ([^,}]+)', "\n".join(self.log().lines[1:]))
        digits = [significant_digits(number) for number in numbers]
        self.assertLessEqual(max(digits), 9)
        self.assertGreater(digits.count(9), len(digits) // 2)

    def test_learning_rates(self):
        for kind in ("cosine", "linear", "constant", "wsd"):
            self.train(changes={"lr_schedule": {"type": kind, "warmup_steps": 3, "min_lr_ratio": 0.2},
                                "training.steps": 20, "output.directory": kind})
            for record in self.log(kind).steps:
                expected = expected_lr(kind, record["step"], 20, 0.01, 3, 0.2)
                self.assertAlmostEqual(record["lr"], expected, delta=1e-8 * expected)

    def test_loss_falls(self):
        # Each byte of an alphabet in order determines the next: nothing is left to guess but a sequence's first byte.
        self.write("text.txt", b"abcdefghijklmnop" * 200)
        self.train(changes={"training.steps": 120, "training.micro_batch_size": 8})
        self.assertLess(self.log().steps[-1]["loss"], 0.1)
        self.assertLess(self.log().validations[-1]["val_loss"], 0.1)

    def test_no_steps(self):
        self.train(changes={"training.steps": 0})
        self.assertEqual(self.log().records, [])
        self.assertEqual(self.checkpoints(), [])

    def test_weight_decay_and_clipping_take_part(self):
        runs = {"plain": {}, "decay": {"optimizer.weight_decay": 0.0}, "clip": {"training.max_grad_norm": 1e-3},
                "eps": {"optimizer.eps": 1e-3}, "unclipped": {"training.max_grad_norm": 0}}
        for run, changes in runs.items():
            self.train(changes={**changes, "output.directory": run})
        losses = {run: tuple(self.log(run).losses()) for run in runs}
        self.assertEqual(len(set(losses.values())), len(runs), losses)
        # The logged norm is that before clipping.
        self.assertEqual(len({self.log(run).steps[0]["grad_norm"] for run in runs}), 1)

    def test_accumulation_equals_one_batch(self):
        self.train(changes={"output.directory": "one"})
        self.train(changes={"output.directory": "four", "training.micro_batch_size": 1,
                            "training.grad_accumulation_steps": 4})
        for one, four in zip(self.log("one").steps, self.log("four").steps):
            # fp32 sums in another order, fed through a dozen optimizer steps.
            self.assertAlmostEqual(one["loss"], four["loss"], delta=1e-4)
        self.assertEqual(len(self.log("four").steps), 12)


class DeterminismTest(ProgramTestCase):
    def test_threads_and_seeds(self):
        changes = {"training.steps": 8, "checkpoint.interval": 4}
        self.train(changes={**changes, "output.directory": "one"}, threads=1)
        self.train(changes={**changes, "output.directory": "two"}, threads=2)
        self.train(changes={**changes, "output.directory": "again"}, threads=1)
        self.assert_same_run("one", "two")
        self.assert_same_run("one", "again")
        self.train(changes={**changes, "output.directory": "seed", "training.seed": 1338})
        self.assertNotEqual(self.log("seed").losses()[0], self.log("one").losses()[0])

    def test_stochastic_rounding_is_seeded(self):
        changes = {"optimizer.moments": "bf16"}
        self.train(changes={**changes, "output.directory": "one"}, threads=1)
        self.train(changes={**changes, "output.directory": "two"}, threads=2)
        self.assert_same_run("one", "two")
        self.train(changes={"output.directory": "fp32"})
        self.assertNotEqual(self.log("fp32").losses()[-1], self.log("one").losses()[-1])
        one, fp32 = self.segments("one"), self.segments("fp32")
        self.assertEqual(2 * len(one["m.bin"]), len(fp32["m.bin"]))

    def test_recompute_and_validation_change_no_bit(self):
        self.train(changes={"output.directory": "plain"})
        for recompute in ("swiglu", "mlp"):
            self.train(changes={"output.directory": recompute, "training.recompute": recompute})
            self.assertEqual(self.segments("plain"), self.segments(recompute))
        self.train(changes={"output.directory": "often", "validation.interval": 1})
        self.assertEqual(self.segments("plain"), self.segments("often"))
        self.assertEqual(self.log("plain").losses(), self.log("often").losses())

    def test_counting_codes_changes_no_bit(self):
        for interval in (0, 4):
            self.train(changes={"output.directory": str(interval), "precision": {"count_interval": interval}})
        logs = [[{key: value for key, value in record.items() if key != "f8"} for record in self.log(run).repeatable()]
                for run in "04"]
        self.assertEqual(*logs)
        self.assertEqual(self.segments("0"), self.segments("4"))
        for plain, counted in zip(self.log("0").steps, self.log("4").steps, strict=True):
            self.assertEqual(len(plain["f8"]), 11)
            for tensor, values in plain["f8"].items():
                self.assertEqual(counted["f8"][tensor][:3], values)
                self.assertEqual(len(counted["f8"][tensor]), 5 if counted["step"] % 4 == 0 else 3)
        # A scale puts the largest element into the last binade, where few others are rounded to the end of the range.
        for tensor, (_, _, _, saturated, zeros) in self.log("4").steps[-1]["f8"].items():
            self.assertTrue(0 <= saturated < 0.01 and 0 <= zeros < 1, tensor)
        self.assertGreater(self.log("4").steps[-1]["f8"]["qkv.output_gradient"][4], 0.01)  # of q and k, which are small


class ConfigurationTest(ProgramTestCase):
    def test_print_config_can_be_fed_back(self):
        changes = {"model.rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
                                          "high_freq_factor": 4, "original_max_position_embeddings": 4},
                   "training.steps": 3}
        printed = self.train("--print-config", "--training.seed", "7", changes=changes).out
        self.assertEqual(self.tree(), ["config.json", "text.txt"])
        self.assertEqual(json.loads(printed)["training"]["seed"], 7)
        self.write("printed.json", printed.encode())
        self.assertEqual(self.run_program("--config", "printed.json", "--print-config").out, printed)
        self.train("--training.seed", "7", "--output.directory", "one", changes=changes)
        self.run_program("--config", "printed.json", "--output.directory", "two")
        self.assert_same_run("one", "two")

    def test_flags_win_and_runs_are_named_by_their_config(self):
        self.config({"output.directory": ...}, name="tiny.json")
        self.run_program("--config", "tiny.json", "--training.steps", "2", "--device", "cpu")
        self.assertEqual(len(self.log("runs/tiny").steps), 2)

    def test_help_names_every_key(self):
        printed = json.loads(self.train("--print-config").out)
        text = self.run_program("--help").out
        for section, keys in printed.items():
            for key in keys if isinstance(keys, dict) else [None]:
                self.assertIn(f"--{section}.{key} " if key else f"--{section} ", text)


class ConsoleTest(ProgramTestCase):
    def test_piped_output_has_no_control_characters(self):
        self.assertNotRegex(self.train().out, r"[\x00-\x09\x0b-\x1f]")

    def test_terminal_has_a_progress_bar(self):
        terminal, inside = os.openpty()
        process = self.start("--config", self.config(), stdout=inside, stderr=subprocess.PIPE)
        os.close(inside)
        shown = b""
        while True:
            try:
                part = os.read(terminal, 4096)
            except OSError:  # Linux: the last writer has closed its end
                break
            if not part:
                break
            shown += part
        os.close(terminal)
        self.assertEqual(process.wait(TIMEOUT_S), DONE, process.stderr.read())
        process.stderr.close()
        self.assertRegex(shown, rb"\[=+ *\] +50% eta ")
        # Whatever is drawn is erased again: the last line of the run is text.
        self.assertRegex(shown.split(b"\r\x1b[K")[-1], rb"\Avalidation at step 12: loss ")


if __name__ == "__main__":
    unittest.main()
