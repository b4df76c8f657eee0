"""A loss that is no number ends the run with exit code 3 and leaves the last good checkpoint as it was."""

import math
import unittest

from checkpoint_folder import HF_CONFIG, random_tensors, write_folder
from program import CONFIG, NON_FINITE, ProgramTestCase


class NonFiniteTest(ProgramTestCase):
    def test_absurd_learning_rate(self):
        # Finite in step 1, so the checkpoint of step 1 is good by the program's own measure; step 2 meets its weights.
        result = self.train(changes={"optimizer.learning_rate": 1e30, "checkpoint.interval": 1}, expect=NON_FINITE)
        self.assert_message(result, ["step 2: loss nan, gradient norm ", "LinearRope 'qkv' of layer 0",
                                     "operand out is not finite at row 0",
                                     "The weights were not updated", "optimizer.learning_rate"])
        self.assertEqual(self.checkpoints(), ["step_00000001"])
        first, second = self.log().steps
        self.assertTrue(math.isfinite(first["loss"]) and math.isfinite(first["grad_norm"]))
        self.assertIsNone(second["loss"])
        self.assertIsNone(second["grad_norm"])
        self.assertEqual(second["step"], 2)

        before = self.segments()
        again = self.run_program("--config", "config.json", "--resume", expect=NON_FINITE)
        self.assertEqual(again.err, result.err)
        self.assertEqual(self.segments(), before)
        self.assertEqual([record["step"] for record in self.log().steps], [1, 2])

    def test_poisoned_weights(self):
        for name, index, says in (
                ("model.embed_tokens.weight", 5, "Embed 'embed'"),
                ("model.layers.0.self_attn.v_proj.weight", 5, "LinearRope 'qkv' of layer 0"),
                ("model.layers.1.mlp.down_proj.weight", 5, "LinearResidualRms 'down' of layer 1"),
                ("lm_head.weight", 5, "TargetLogit 'target_logit'"),  # of row 0, the one target
                ("lm_head.weight", -1, "LinearCrossEntropy 'logits'")):
            for value in (math.inf, -math.inf, math.nan):
                with self.subTest(name, index=index, value=value):
                    folder = f"hf_{name}_{index}_{value}"
                    tensors = random_tensors(HF_CONFIG)
                    tensors[name][2][index] = value
                    write_folder(self.path(folder), HF_CONFIG, tensors)
                    self.write("zeros.txt", bytes(200))  # only token 0: the embedding's row 0 is used
                    result = self.run_program(
                        "--config", self.config({"model": {}, "data.train": "zeros.txt", "output.directory": "run_" +
                                                 folder}, base={**CONFIG, "model": {}}),
                        "--init-from", folder, expect=NON_FINITE)
                    self.assert_message(result, ["step 1: ", f"the first result that is not finite: {says}: operand "])
                    self.assertEqual(self.checkpoints("run_" + folder), [])
                    self.assertNotRegex(result.out + result.err, "-nan")

    def test_evaluation(self):
        self.write("zeros.txt", bytes(200))
        config = self.config({"data.train": "zeros.txt"}, base={**CONFIG, "model": {}})
        # The head's last row is of no target's.
        for name, index, value in (("model.norm.weight", 0, math.nan), ("lm_head.weight", -1, math.inf),
                                   ("lm_head.weight", -1, -math.inf)):
            with self.subTest(name, value=value):
                tensors = random_tensors(HF_CONFIG)
                tensors[name][2][index] = value
                folder = f"hf_{name}_{value}"
                write_folder(self.path(folder), HF_CONFIG, tensors)
                result = self.run_program("--config", config, "--init-from", folder, "--eval", expect=NON_FINITE)
                self.assert_message(result, ["the validation loss is nan"])

    def test_export(self):
        tensors = random_tensors(HF_CONFIG)
        tensors["model.layers.1.mlp.up_proj.weight"][2][7] = math.nan
        write_folder(self.path("hf"), HF_CONFIG, tensors)
        config = self.config(base={**CONFIG, "model": {}})
        result = self.run_program("--config", config, "--init-from", "hf", "--export", "out", expect=NON_FINITE)
        self.assert_message(result, ["--export: a weight is not finite: model.layers.1.mlp.up_proj.weight, row 0, "
                                     "column 7; nothing was written"])
        self.assertNotIn("out", self.tree())


if __name__ == "__main__":
    unittest.main()
