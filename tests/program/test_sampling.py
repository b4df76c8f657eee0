"""Sampling: --sample with --resume and --init-from."""

import unittest

from program import CONFIG, NON_FINITE, RUNTIME, USAGE, ProgramTestCase, changed, shard

PHRASE = "the quick brown fox jumps over the lazy dog. "
# Sixteen characters tell where in the phrase a window stands, so a model that has learned it is certain of the next one.
OVERFIT = changed(CONFIG, {"model.hidden_size": 32, "training.seq_len": 16, "training.micro_batch_size": 8,
                           "training.steps": 150, "data.document_mask": False, "validation": {"interval": 0, "batches": 1}})


class SamplingTest(ProgramTestCase):
    def sample(self, *arguments, **options):
        """What --sample prints after the line that says where the weights are from."""
        result = self.train(*arguments, errors="surrogateescape", **options)
        if options.get("expect"):
            return result
        first, _, rest = result.out.partition("\n")
        self.assertRegex(first, "^(resumed from|weights from) ")
        self.assertTrue(rest.endswith("\n"))
        return rest[:-1]

    def config(self, changes=None, name="config.json", base=None):
        return super().config(changes, name, base or OVERFIT)

    def overfit(self):
        self.write("text.txt", PHRASE.encode() * 60)
        self.train()
        self.assertLess(self.log().losses()[-1], 0.2)  # the first token of a window does not tell the second

    def test_an_overfitted_model_goes_on_with_its_text(self):
        self.overfit()
        whole = PHRASE * 4
        for prompt, tokens in (("the quick brown ", 60), ("ver the lazy", 30), (PHRASE, 50)):
            start = whole.index(prompt)
            with self.subTest(prompt):
                text = self.sample("--resume", "--sample", str(tokens), "--prompt", prompt, "--temperature", "0")
                self.assertEqual(text, whole[start:start + len(prompt) + tokens])
        # Without a prompt an unseen newline begins the text; the prompt alone is printed before the sample.
        self.assertEqual(len(self.sample("--resume", "--sample", "5")), 5)

        with self.subTest("the same weights as a Hugging Face folder"):
            self.train("--resume", "--export", "exported")
            arguments = ["--sample", "40", "--prompt", "jumps over ", "--temperature", "0.9", "--seed", "3"]
            self.assertEqual(self.sample("--init-from", "exported", *arguments), self.sample("--resume", *arguments))
        with self.subTest("sampling leaves the run as it was"):
            before = self.tree()
            log = self.read("run", "log.jsonl")
            self.sample("--resume", "--sample", "3")
            self.assertEqual((self.tree(), self.read("run", "log.jsonl")), (before, log))

    def test_a_sample_depends_on_its_seed_alone(self):
        changes = {"training.steps": 2}  # nearly uniform, so that two seeds agree on no 30 bytes
        self.train(changes=changes)

        def sample(*arguments, **options):
            config = self.config({**changes, **options.pop("changes", {})})
            done = self.run_program("--config", config, "--resume", "--sample", "30", "--prompt-tokens", "65,66",
                                    *arguments, errors="surrogateescape", **options)
            return done.out[done.out.rindex("AB"):]

        first = sample("--seed", "1")
        self.assertEqual(first, sample("--seed", "1", threads=3))
        self.assertEqual(first, sample("--seed", "1", changes={"training.lm_head_chunks": 3}))
        self.assertNotEqual(first, sample("--seed", "2"))
        self.assertEqual(sample(), sample("--seed", "1337"), "the default is training.seed")
        self.assertNotEqual(sample("--top-k", "2"), sample())
        greedy = sample("--temperature", "0")
        self.assertEqual(greedy, sample("--temperature", "0", "--seed", "9"))
        for narrowest in (("--top-k", "1"), ("--top-p", "0"), ("--min-p", "1")):
            self.assertEqual(greedy, sample(*narrowest))
        self.assertNotEqual(sample("--repetition-penalty", "5"), sample())

    def test_a_vocabulary_of_no_bytes_gives_token_ids(self):
        self.write("tokens.bin", shard([i % 7 for i in range(600)]))
        changes = {"data.train": "tokens.bin", "model.vocab_size": 300, "training.steps": 100}
        self.train(changes=changes)
        text = self.sample("--resume", "--sample", "9", "--prompt-tokens", "2,3,4,5,6,0", "--temperature", "0",
                           changes=changes)
        self.assertEqual(text, "2 3 4 5 6 0 1 2 3 4 5 6 0 1 2")
        for arguments, says in ((["--prompt", "abc"], ["--prompt", "300", "--tokenizer"]),
                                (["--prompt-tokens", "1,300"], ["300", "model.vocab_size"]), ([], ["bos_token_id"])):
            self.refuse("--resume", "--sample", "9", *arguments, changes=changes, code=USAGE, says=says)
        text = self.sample("--resume", "--sample", "2", changes={**changes, "model.bos_token_id": 299}, expect=USAGE)
        self.assertIn("model.bos_token_id", text.err)  # the checkpoint's model has none

    def test_bad_flags(self):
        for arguments, says in (
                (["--sample", "5"], ["--sample", "--resume", "--init-from"]),
                (["--resume", "--sample", "0"], ["--sample", "[1, 2147483647]", "found 0"]),
                (["--resume", "--sample", "five"], ["--sample", "an integer", "five"]),
                (["--resume", "--sample", "5", "--temperature", "-1"], ["--temperature", ">= 0"]),
                (["--resume", "--sample", "5", "--top-k", "0.5"], ["--top-k", "an integer"]),
                (["--resume", "--sample", "5", "--seed", "-1"], ["--seed", ">= 0"]),
                (["--resume", "--sample", "5", "--top-p", "1.5"], ["--top-p", "[0, 1]"]),
                (["--resume", "--sample", "5", "--min-p", "-0.1"], ["--min-p", "[0, 1]"]),
                (["--resume", "--sample", "5", "--repetition-penalty", "0"], ["--repetition-penalty", "> 0"]),
                (["--resume", "--sample", "5", "--repetition-penalty", "1e-60"], ["--repetition-penalty", "above 0"]),
                (["--resume", "--min-p", "0.5"], ["--min-p", "--sample N"]),
                (["--resume", "--sample", "5", "--prompt-tokens", "1,x"], ["--prompt-tokens", "1,x"]),
                (["--resume", "--sample", "5", "--prompt-tokens", "1,-2"], ["--prompt-tokens", "-2"]),
                (["--resume", "--sample", "5", "--prompt", "a", "--prompt-tokens", "1"], ["give one of them"]),
                (["--resume", "--top-k", "5"], ["--top-k", "--sample N"]),
                (["--prompt", "a"], ["--prompt", "--sample N"]),
                (["--resume", "--sample", "5", "--dump-batches", "b.npy"], ["--dump-batches", "--sample"])):
            with self.subTest(arguments):
                self.refuse(*arguments, code=USAGE, says=says)
        self.refuse("--resume", "--sample", "5", code=RUNTIME, says=["no complete checkpoint", "run"])

    def test_timing_of_a_sample(self):
        self.train(changes={"training.steps": 2})
        out = self.train("--resume", "--sample", "4", "--timing", "t.json", changes={"training.steps": 2},
                         errors="surrogateescape").out
        self.assertIn("Linear ", out)
        self.assertIn(b'"pass": "decode"', self.read("t.json"))
        self.assertNotIn(b'"pass": "evaluate"', self.read("t.json"))


if __name__ == "__main__":
    unittest.main()
