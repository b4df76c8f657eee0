"""--tensor-stats: the size of the numbers that the GEMMs of training multiply, and nothing else of a run changes."""

import json
import math
import os
import resource
import signal
import unittest

from program import ENDLESS, INTERRUPTED, NON_FINITE, RUNTIME, USAGE, ProgramTestCase

LAYERS = 2
MATRICES = ("qkv", "attn_out", "gate_up", "down")
ROLES = ("input", "weight", "output_gradient")
TENSORS = {(layer, f"{matrix}.{role}") for layer in range(LAYERS) for matrix in MATRICES for role in ROLES} | {
    (-1, f"lm_head.{role}") for role in ROLES}


class TensorStatsTest(ProgramTestCase):
    def stats(self, name="stats.jsonl"):
        """(header, {step: {(layer, tensor): record}})."""
        lines = [json.loads(line) for line in self.read(name).decode().splitlines()]
        steps = {}
        for record in lines[1:]:
            self.assertEqual(list(record), ["step", "layer", "tensor", "amax", "rms", "zeros", "row_peak"])
            of_step = steps.setdefault(record["step"], {})
            self.assertNotIn((record["layer"], record["tensor"]), of_step)
            of_step[record["layer"], record["tensor"]] = record
        return lines[0]["header"], steps

    def test_every_tensor_of_the_chosen_steps(self):
        changes = {"training.grad_accumulation_steps": 2, "training.lm_head_chunks": 3}
        result = self.train("--tensor-stats", "stats.jsonl", "--tensor-stats-every", "5", changes=changes)
        self.assertIn("statistics of the tensors in stats.jsonl", result.out)
        header, steps = self.stats()
        self.assertEqual(header["config"], self.log().header["config"])
        self.assertIn("--tensor-stats stats.jsonl", header["command"])
        self.assertEqual(list(steps), [1, 6, 11])
        for records in steps.values():
            self.assertEqual(set(records), TENSORS)
            for record in records.values():
                self.assertGreater(record["amax"], record["rms"])
                self.assertGreater(record["row_peak"], 1)
                self.assertTrue(0 <= record["zeros"] < 1)
        # The norm makes rows of root mean square 1, but for eps; the root of 16 bounds a row's largest element.
        for layer in range(LAYERS):
            self.assertTrue(0.9 < steps[11][layer, "gate_up.input"]["rms"] <= 1)
            self.assertLessEqual(steps[11][layer, "gate_up.input"]["row_peak"], 4)
        self.assertNotEqual(steps[1][0, "down.weight"], {**steps[6][0, "down.weight"], "step": 1})

        self.train(changes={**changes, "output.directory": "plain"})
        self.assert_same_run("run", "plain")

    def test_weights_are_those_of_the_step(self):
        """Compared with the exported weights, to the last digit; those after a norm have its weight, 1 at first."""
        self.train("--export", "hf", "--export-dtype", "float32")
        self.train("--tensor-stats", "stats.jsonl", changes={"training.steps": 1, "lr_schedule.warmup_steps": 0})
        records = self.stats()[1][1]
        data = self.read("hf", "model.safetensors")
        length = int.from_bytes(data[:8], "little")
        entries = json.loads(data[8:8 + length])
        def values(name):
            begin, end = entries[name]["data_offsets"]
            return memoryview(data[8 + length + begin:8 + length + end]).cast("f")
        for layer in range(LAYERS):
            prefix = f"model.layers.{layer}."
            for matrix, names in (("down", ["mlp.down_proj"]), ("attn_out", ["self_attn.o_proj"]),
                                  ("gate_up", ["mlp.gate_proj", "mlp.up_proj"]),
                                  ("qkv", ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"])):
                elements = [value for name in names for value in values(f"{prefix}{name}.weight")]
                record = records[layer, f"{matrix}.weight"]
                self.assertEqual(record["amax"], float(f"{max(map(abs, elements)):.9g}"))
                rms = math.sqrt(math.fsum(value * value for value in elements) / len(elements))
                self.assertAlmostEqual(record["rms"], rms, delta=1e-8 * rms)
                self.assertEqual(record["zeros"], 0)

    def test_a_resumed_run_watches_the_same_steps(self):
        self.train("--tensor-stats", "whole.jsonl", "--tensor-stats-every", "3")
        self.train(changes={"output.directory": "parts", "checkpoint.interval": 6})
        os.rename(self.path("parts", "checkpoints", "step_00000012"), self.path("gone"))
        self.train("--resume", "--tensor-stats", "rest.jsonl", "--tensor-stats-every", "3",
                   changes={"output.directory": "parts"})
        rest = self.stats("rest.jsonl")[1]
        whole = self.stats("whole.jsonl")[1]
        self.assertEqual(list(whole), [1, 4, 7, 10])
        self.assertEqual(rest, {step: whole[step] for step in (7, 10)})

    def test_a_run_that_fails_leaves_what_was_seen(self):
        self.train("--tensor-stats", "stats.jsonl", changes={"optimizer.learning_rate": 1e30}, expect=NON_FINITE)
        steps = self.stats()[1]
        self.assertEqual(list(steps), [1, 2])
        self.assertEqual(set(steps[1]), TENSORS)
        self.assertIsNone(steps[2][-1, "lm_head.output_gradient"]["amax"])
        self.assertNotIn("stats.jsonl.new", self.tree())

    def test_an_interrupted_run(self):
        process = self.start_quiet("--config", self.config(ENDLESS), "--tensor-stats", "stats.jsonl")
        self.wait_until(lambda: self.logged_steps() >= 3, process, "three steps")
        self.assertNotIn("stats.jsonl", self.tree())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(), INTERRUPTED)
        steps = self.stats()[1]
        self.assertEqual(list(steps), [record["step"] for record in self.log().steps])

    def test_a_file_that_cannot_grow(self):
        """The run continues to its end and is as it would have been; then it says what is lacking."""
        changes = {"checkpoint.at_end": False}
        self.train(changes={**changes, "output.directory": "plain"})
        result = self.train("--tensor-stats", "stats.jsonl", changes=changes, expect=RUNTIME,
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)))
        self.assertEqual(result.out.count("statistics are held back"), 1)
        self.assert_message(result, ["File too large", "stats.jsonl.new"])
        self.assertEqual(self.log().repeatable(), self.log("plain").repeatable())
        lines = self.read("stats.jsonl.new").decode().splitlines()
        self.assertEqual({json.loads(line).get("step") for line in lines[1:]}, set(range(1, max(
            json.loads(lines[-1])["step"], 1) + 1)))

    def test_refused(self):
        for arguments, says in (
            (["--tensor-stats-every", "2"], ["--tensor-stats-every: goes with --tensor-stats FILE"]),
            (["--tensor-stats", "s", "--tensor-stats-every", "0"], ["--tensor-stats-every", "0"]),
            (["--tensor-stats", "s", "--timing", "t.json"], ["--timing and --tensor-stats"]),
            (["--tensor-stats", "s", "--export", "out"], ["--tensor-stats watches a training run"]),
            (["--tensor-stats", "s", "--resume", "--eval"], ["--tensor-stats watches a training run"]),
        ):
            with self.subTest(arguments):
                self.refuse(*arguments, code=USAGE, says=says)


if __name__ == "__main__":
    unittest.main()
