"""Samples during training: log, console, the same as of coda_generate, and nothing of the training changed."""

import json
import os
import subprocess
import unittest

from program import DONE, NON_FINITE, PROGRAM, TIMEOUT_S, USAGE, ProgramTestCase, shard

GENERATE = os.path.join(os.path.dirname(PROGRAM), "coda_generate")
PHRASE = b"the quick brown fox jumps over the lazy dog. "


class RunSamplesTest(ProgramTestCase):
    def setUp(self):
        super().setUp()
        self.write("text.txt", PHRASE * 60)

    def config(self, changes=None, name="config.json", base=None):
        defaults = {"model.hidden_size": 32, "training.seq_len": 32, "training.micro_batch_size": 6,
                    "training.steps": 10, "samples.interval": 4, "samples.tokens": 20,
                    "samples.prompts": ["the ", "fox\n"]}
        return super().config({**defaults, **(changes or {})}, name, base)

    def train(self, *arguments, **options):
        return super().train(*arguments, errors="surrogateescape", **options)  # a sample may be any bytes

    def samples(self, run="run"):
        return [record for record in self.log(run).records if "sample" in record]

    def test_log_and_console(self):
        out = self.train().out
        found = self.samples()
        self.assertEqual([(record["step"], record["prompt"]) for record in found],
                         [(step, prompt) for step in (4, 8, 10) for prompt in ("the ", "fox\n")])
        self.assertEqual(set(map(tuple, found)), {("step", "sample", "prompt", "tokens")})
        for record in found:
            self.assertEqual(bytes(record["tokens"]).decode(errors="replace"), record["sample"])
            self.assertEqual(len(record["tokens"]), 20)
        self.assertIn('sample at step 4: "the ', out)
        self.assertIn('sample at step 10: "fox\\x0a', out)

    def test_the_tokens_that_coda_generate_makes(self):
        options = {"temperature": 0.8, "top_k": 30, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.2}
        flags = [word for name, value in options.items() for word in ("--" + name.replace("_", "-"), str(value))]
        changes = {f"samples.{name}": value for name, value in options.items()}
        self.train(changes={**changes, "samples.seed": 7})
        last = [record for record in self.samples() if record["step"] == 10]
        for index, record in enumerate(last):
            done = subprocess.run([GENERATE, "--model", "run", "--prompt", record["prompt"], "--tokens", "20", "--seed",
                                   str(7 + index), *flags, "--json"], cwd=self.folder, env=self.environment(1),
                                  capture_output=True, timeout=TIMEOUT_S, check=False)
            self.assertEqual(done.returncode, DONE, done.stderr)
            self.assertEqual(json.loads(done.stdout)["tokens"], record["tokens"])
        self.assertNotEqual(last[0]["tokens"], last[1]["tokens"])

    def test_a_sample_ends_where_the_sequence_does(self):
        self.train(changes={"samples.tokens": 300, "samples.prompts": ["the ", "the quick brown fox jumps over "]})
        self.assertEqual([len(record["tokens"]) for record in self.samples()[:2]], [28, 1])
        self.refuse(changes={"samples.prompts": ["the ", "the quick brown fox jumps over t"], "output.directory": "no"},
                    code=USAGE, says=["samples.prompts", "32 tokens", "training.seq_len 32", "up to 31"])

    def test_a_prompt_begins_at_its_last_document(self):
        """The model would see nothing before it."""
        changes = {"data.document_mask": True, "model.bos_token_id": ord("t"), "samples.temperature": 0}
        prompts = ["he quick brown fox jumps over the ", "he "]
        self.train(changes={**changes, "samples.prompts": prompts})
        for long, short in zip(self.samples()[::2], self.samples()[1::2]):
            self.assertEqual((long["prompt"], short["prompt"]), tuple(prompts))
            self.assertEqual(long["tokens"], short["tokens"])

    def test_interval_and_resume(self):
        split = {"output.directory": "split", "checkpoint.interval": 5, "lr_schedule.decay_steps": 10}
        whole = {**split, "output.directory": "whole"}
        self.train(changes=whole)
        # The checkpoint is of step 5: the log's records of steps 8 and later are removed and written again.
        self.train(changes={**split, "training.steps": 9, "checkpoint.at_end": False})
        self.assertEqual([record["step"] for record in self.samples("split")], [4, 4, 8, 8, 9, 9])
        self.train("--resume", changes=split)
        self.assertEqual(self.samples("split"), self.samples("whole"))
        self.assertEqual(self.log("split").losses(), self.log("whole").losses())
        # Samples may begin, change and end with a resume.
        more = {"training.steps": 12, "samples.interval": 1, "samples.prompts": [], "samples.tokens": 3}
        self.train("--resume", changes={**split, **more})
        self.assertEqual([(record["step"], record["prompt"], len(record["tokens"])) for record in self.samples("split")][6:],
                         [(11, "", 3), (12, "", 3)])

    def test_samples_change_nothing_of_the_training(self):
        for mask in (False, True):
            changes = {"training.steps": 6, "data.document_mask": mask, "model.bos_token_id": 116 if mask else None,
                       "training.grad_accumulation_steps": 2}
            run, without = f"run{mask}", f"without{mask}"
            self.train(changes={**changes, "samples.interval": 1, "output.directory": run})
            self.train(changes={**changes, "samples.interval": 0, "output.directory": without})
            self.assertEqual(self.log(run).losses(), self.log(without).losses())
            self.assertEqual(self.segments(run), self.segments(without))
            self.assertEqual(self.samples(without), [])
            self.assertEqual(len(self.samples(run)), 12)

    def test_ends(self):
        """At the end token, and where documents are kept apart at the beginning of the next one; either is the last."""
        wide = {"samples.tokens": 120, "samples.temperature": 5, "training.seq_len": 128, "training.micro_batch_size": 2}
        self.train(changes=wide)
        tokens = self.samples()[0]["tokens"]
        end = tokens[40]
        first = tokens[:tokens.index(end) + 1]
        self.assertEqual(len(tokens), 120)
        self.train(changes={**wide, "model.eos_token_id": end, "output.directory": "ends"})
        self.assertEqual(self.samples("ends")[0]["tokens"], first)
        # bos begins the prompt too, so other tokens follow.
        masked = {**wide, "model.bos_token_id": 116, "data.document_mask": True, "samples.temperature": 1}
        self.train(changes={**masked, "output.directory": "masked"})
        for record in self.samples("masked"):
            self.assertNotIn(116, record["tokens"][:-1])
        self.assertTrue(any(record["tokens"][-1] == 116 for record in self.samples("masked")))

    def test_a_vocabulary_of_no_bytes_gives_token_ids(self):
        self.write("tokens.bin", shard([i % 7 for i in range(600)]))
        changes = {"data.train": "tokens.bin", "model.vocab_size": 300, "model.bos_token_id": 2,
                   "data.document_mask": False, "samples.prompts": []}
        out = self.train(changes=changes).out
        for record in self.samples():
            self.assertEqual((record["sample"], record["prompt"], len(record["tokens"])), (None, None, 20))
        ids = " ".join(map(str, self.samples()[-1]["tokens"]))
        self.assertIn(f"sample at step 10: {ids}\n", out)
        for arguments, says in ((["--samples.prompts", "a"], ["samples.prompts", "300", "data.tokenizer"]),
                                (["--model.bos_token_id", "null"], ["samples.interval", "bos_token_id"])):
            self.refuse(*arguments, changes=changes, code=USAGE, says=says)

    def test_refused(self):
        for changes, says in (({"samples.top_p": 1.5}, ["samples.top_p", "[0, 1]"]),
                              ({"samples.temperature": -1}, ["samples.temperature"]),
                              ({"samples.repetition_penalty": 0}, ["samples.repetition_penalty"]),
                              ({"samples.tokens": 0}, ["samples.tokens"]),
                              ({"samples.prompts": [""]}, ["samples.prompts", "empty"])):
            with self.subTest(changes):
                self.refuse(changes=changes, code=USAGE, says=says)

    def test_a_logit_that_is_not_finite(self):
        changes = {"samples.interval": 1, "optimizer.learning_rate": 1e38, "validation.interval": 0}
        self.assert_message(self.train(changes=changes, expect=NON_FINITE),
                            ["sample 1 at step 1", "the logits of token 1 of the sample are not finite"])
        self.assertEqual(self.samples(), [])

    def test_dry_run(self):
        out = self.train("--dry-run").out
        self.assertIn("samples             every 4 steps, 2 of up to 20 tokens\n", out)
        self.assertNotIn("samples  ", self.train("--dry-run", changes={"samples.interval": 0}).out)
        self.assertIn("# decode: ", self.train("--print-schedule").out)


if __name__ == "__main__":
    unittest.main()
