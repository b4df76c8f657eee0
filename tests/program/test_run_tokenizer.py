"""data.tokenizer: in the log, the checkpoints and the run's folder, and what samples and coda_generate make of it."""

import hashlib
import json
import os
import subprocess
import sys
import unittest

from program import CONFIG, DONE, PROGRAM, ROOT, RUNTIME, TIMEOUT_S, USAGE, ProgramTestCase, changed, shard

sys.path.insert(0, os.path.join(ROOT, "tests", "tokenize"))
from tokenizing import small_tokenizer

GENERATE = os.path.join(os.path.dirname(PROGRAM), "coda_generate")
TOKENIZER = small_tokenizer("gpt2")  # 256 bytes, 6 merges, <|endoftext|>
VOCAB = 263
KEPT = "run/tokenizer/tokenizer.json"


class RunTokenizerTest(ProgramTestCase):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("hf"))
        self.write("hf/tokenizer.json", json.dumps(TOKENIZER).encode())
        self.write("hf/tokenizer_config.json", b'{"model_max_length": 8}')
        self.write("tokens.bin", shard([TOKENIZER["model"]["vocab"][c] for c in "abc" * 200]))
        self.sum = hashlib.sha256(self.read("hf/tokenizer.json")).hexdigest()
        self.has_tokenizers = os.path.exists(os.path.join(os.path.dirname(os.environ.get("CODA_TRAIN", "")) or
                                                          f"{ROOT}/build/cpu/bin", "coda_tokenize"))

    def config(self, changes=None, name="config.json", base=None):
        base = changed(CONFIG, {"model.vocab_size": VOCAB, "data.train": "tokens.bin", "training.steps": 4,
                                "data.tokenizer": "hf/tokenizer.json"})
        return super().config(changes, name, base)

    def test_a_run_keeps_its_tokenizer(self):
        self.train()
        record = {"file": "hf/tokenizer.json", "sha256": self.sum}
        self.assertEqual(self.log().header["tokenizer"], record)
        meta = json.loads(self.read("run/checkpoints/step_00000004/meta.json"))
        self.assertEqual(meta["state"]["tokenizer"], record)
        self.assertEqual(self.tree("run", "tokenizer"), ["tokenizer.json", "tokenizer_config.json"])
        self.assertEqual(self.read(KEPT), self.read("hf/tokenizer.json"))

    def test_a_run_without_one(self):
        self.train(changes={"data.tokenizer": None})
        self.assertNotIn("tokenizer", self.log().header)
        self.assertNotIn("tokenizer", self.tree("run"))
        # A checkpoint without one takes any.
        self.assertIn("note: data.tokenizer was null and is now", self.train("--resume", "--training.steps", "6").out)
        self.assertEqual(self.read(KEPT), self.read("hf/tokenizer.json"))

    def test_resume(self):
        self.train()
        os.rename(self.path("hf"), self.path("gone"))
        self.train("--resume", "--training.steps", "5")
        meta = json.loads(self.read("run/checkpoints/step_00000005/meta.json"))
        self.assertEqual(meta["state"]["tokenizer"], {"file": KEPT, "sha256": self.sum})
        moved = self.train("--resume", "--training.steps", "6", "--data.tokenizer", "gone/tokenizer.json")
        self.assertIn("note: data.tokenizer", moved.out)

        other = self.write("other.json", json.dumps(small_tokenizer("gpt2", merges=("a b",))).encode())
        self.refuse("--resume", "--data.tokenizer", other, code=USAGE,
                    says=["data.tokenizer other.json", self.sum, hashlib.sha256(self.read(other)).hexdigest()])
        self.assertEqual(hashlib.sha256(self.read(KEPT)).hexdigest(), self.sum)
        os.remove(self.path(KEPT))
        self.refuse("--resume", says=["data.tokenizer", "hf/tokenizer.json", KEPT])

    def test_an_export_takes_it_along(self):
        self.train()
        weights = {"config.json", "model.safetensors"}
        self.train("--resume", "--export", "whole")
        self.assertEqual(set(self.tree("whole")), weights | {"tokenizer.json", "tokenizer_config.json"})
        self.assertEqual(self.read("whole", "tokenizer.json"), self.read("hf", "tokenizer.json"))
        settings = json.loads(self.read("hf", "tokenizer_config.json"))
        exported = json.loads(self.read("whole", "tokenizer_config.json"))
        self.assertEqual(exported, {**settings, "tokenizer_class": "PreTrainedTokenizerFast"})
        # From the run's own copy, and without any.
        os.rename(self.path("hf"), self.path("gone"))
        self.train("--resume", "--export", "copied")
        self.assertEqual(self.read("copied", "tokenizer.json"), self.read("gone", "tokenizer.json"))
        os.remove(self.path(KEPT))
        done = self.train("--resume", "--export", "bare")
        self.assertIn("note: the export is without a tokenizer: data.tokenizer: there is no file hf/tokenizer.json",
                      done.out)
        self.assertEqual(set(self.tree("bare")), weights)

    def test_what_is_refused(self):
        self.refuse("--dry-run", changes={"model.vocab_size": 261}, code=USAGE,
                    says=["data.tokenizer", "hf/tokenizer.json", "reach to 261", "model.vocab_size is 261"])
        self.train("--dry-run", changes={"model.vocab_size": 262})  # an added token may lie beyond
        for mode in ([], ["--dry-run"]):
            self.refuse(*mode, changes={"data.tokenizer": "no.json"}, code=RUNTIME, says=["data.tokenizer", "no.json"])
            self.refuse(*mode, changes={"data.tokenizer": "tokens.bin"}, says=["data.tokenizer", "tokens.bin"])
        self.assertIn(f"263 tokens, SHA-256 {self.sum}", self.train("--dry-run").out)

    def generated(self, *arguments, prompt="abcab"):
        """What coda_generate makes of the run."""
        done = subprocess.run([GENERATE, "--model", "run", "--prompt", prompt, "--tokens", "6", "--temperature", "0",
                               *arguments], cwd=self.folder, env=self.environment(1), capture_output=True, text=True,
                              timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, DONE, done.stderr)
        return done.stdout

    def test_text(self):
        if not self.has_tokenizers:
            self.skipTest("a build without tokenizers")
        changes = {"training.seq_len": 16, "training.steps": 60, "samples.interval": 60, "samples.prompts": ["abcab"],
                   "samples.tokens": 6, "samples.temperature": 0}
        self.train(changes=changes)
        self.assertEqual(self.generated(), "cabcab\n")
        os.remove(self.path("hf/tokenizer.json"))
        self.assertEqual(self.generated(), "cabcab\n")
        self.train("--resume", "--training.steps", "61", changes=changes)
        samples = [(record["step"], record["sample"]) for record in self.log().records if "sample" in record]
        self.assertEqual(samples, [(60, "cabcab"), (61, "cabcab")])
        self.refuse("--resume", "--training.steps", "62", "--data.tokenizer", "null", changes=changes, code=USAGE,
                    says=["samples.prompts", "data.tokenizer"])
        swapped = json.loads(json.dumps(TOKENIZER))  # the flag wins over the run's own
        vocab = swapped["model"]["vocab"]
        vocab["c"], vocab["d"] = vocab["d"], vocab["c"]
        self.write("swapped.json", json.dumps(swapped).encode())
        self.assertEqual(self.generated("--tokenizer", "swapped.json", prompt="abdab"), "dabdab\n")


if __name__ == "__main__":
    unittest.main()
