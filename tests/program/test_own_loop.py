"""Training loops in Python over a run of libcoda: the bits of coda_train, and optimizers of PyTorch."""

import hashlib
import json
import os
import subprocess
import unittest

from program import TIMEOUT_S
from ranks import RanksTestCase, held_port

CHECK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "own_loop_check.py")
SMALL = {"training.grad_accumulation_steps": 3, "training.steps": 6, "checkpoint.at_end": True}
GPT2 = {"model.mlp": "gelu_tanh", "model.norm": "layernorm", "model.position_embeddings": "learned",
        **{f"model.{bias}": True for bias in ("mlp_bias", "attention_bias", "attention_out_bias")}}
FP8 = {**SMALL, "model.hidden_size": 48, "model.intermediate_size": 80, "model.num_attention_heads": 6,
       "model.num_key_value_heads": 3, "training.micro_batch_size": 2, "precision": "fp8"}


class OwnLoopTest(RanksTestCase):
    def check(self, name, *arguments):
        return json.loads(self.run_python(CHECK, name, *arguments).out)

    def assert_replayed(self, changes):
        """The batches and learning rates of a run of coda_train, given to an own loop, make its bits."""
        self.train("--dump-batches", "batches.npy", changes=changes)
        made = self.check("replay", "config.json", "batches.npy", self.path("run", "log.jsonl"))
        self.assert_results(made, "run")
        for name in ("master", "m", "v"):
            self.assertEqual(made[name], self.sha256_of("run", f"{name}.bin"), name)

    def assert_results(self, made, run):
        rounded = [[float(f"{value:.9g}") for value in step] for step in made["results"]]  # as the log has them
        self.assertEqual(rounded, [[record["loss"], record["grad_norm"]] for record in self.log(run).steps])

    def sha256_of(self, run, segment):
        return hashlib.sha256(self.segments(run)[segment]).hexdigest()

    def test_bits(self):
        self.assert_replayed(SMALL)

    def test_bits_tied(self):
        self.assert_replayed({**SMALL, "model.tie_word_embeddings": True})

    def test_bits_fp8(self):
        self.assert_replayed(FP8)

    def test_two_ranks(self):
        self.train("--dump-batches", "batches.npy", changes={**SMALL, "training.grad_accumulation_steps": 4})
        self.ranks(2, {**SMALL, "training.grad_accumulation_steps": 4, "output.directory": "two"})
        port = self.enterContext(held_port())
        processes = [subprocess.Popen(
            [self.python, CHECK, "replay_as_rank", "config.json", "batches.npy", self.path("two", "log.jsonl")],
            cwd=self.folder, stdout=subprocess.PIPE, text=True, env={
                **self.environment(1), "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port)}) for rank in range(2)]
        made = [json.loads(process.communicate(timeout=TIMEOUT_S)[0]) for process in processes]
        self.assert_results(made[0], "two")
        self.assertEqual(made[0]["results"], made[1]["results"])
        self.assertEqual(made[0]["working"], made[1]["working"], "each has the weights of both")

    def test_published_weights(self):
        for changes in (SMALL, {**SMALL, "model.tie_word_embeddings": True}, {**FP8, "precision": "bf16"},
                        {**SMALL, **GPT2}):
            self.assertEqual(self.check("publish", self.config(changes), "7"),
                             {"gradients": True, "master": True, "loss": True, "moved": True})

    def test_optimizer_of_torch(self):
        self.train(changes={**SMALL, "model.attention_bias": True})
        self.run_program("--config", "config.json", "--resume", "--export", "exported", "--export-dtype", "float32")
        made = self.check("optimizer", "config.json", "exported")
        self.assertTrue(made["export"] and made["steps"], made)
        self.assertLess(made["losses"][-1], made["losses"][0])

    def test_refusals(self):
        said = self.check("refusals", self.config(SMALL))
        self.assertEqual(said[0], "--timing is for coda_train, and coda_open only opens a run")
        self.assertIn("training.seq_len", said[1])
        self.assertIn("coda_open opens a run", said[2])
        self.assertIn("must be (3, 1, 8), and one is (1, 8)", said[3])
        self.assertEqual(said[4], "token 0 is 1000, and the model has rows for ids from 0 to 255")
        self.assertEqual(said[5], "target 0 is 1000, and the model has rows for ids from 0 to 255")
        self.assertIn("there is no segment weights", said[6])
        self.assertIn("the weights are those of step 0", said[7])


if __name__ == "__main__":
    unittest.main()
