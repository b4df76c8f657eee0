"""Token by token agreement with the `tokenizers` package, and the shards that other tools made of a real text."""

import json
import unittest

from tokenizing import REGEXES, SPECIAL, RandomText, TokenizeTestCase, shard_tokens, shared

try:
    import tokenizers
except ImportError:
    tokenizers = None

DOCUMENTS = 3000


def trained(family):
    """A tokenizer of `family` with a vocabulary learned from random text, as its JSON."""
    from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
    result = tokenizers.Tokenizer(models.BPE(ignore_merges=family == "llama3"))
    if family == "gpt2":
        result.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        result.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(REGEXES[family]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    if family == "qwen2":
        result.normalizer = normalizers.NFC()
    result.decoder = decoders.ByteLevel()
    text = RandomText(1, SPECIAL[family])
    corpus = [text.document() for _ in range(1000)]
    result.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=2000, special_tokens=SPECIAL[family], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    return result.to_str()


@unittest.skipIf(tokenizers is None, "the Python package tokenizers is not installed (pip install tokenizers)")
class AgreementTest(TokenizeTestCase):
    def agree(self, path, specials, seed):
        package = tokenizers.Tokenizer.from_file(path)
        text = RandomText(seed, specials)
        documents = [text.document() for _ in range(DOCUMENTS)]
        expected = [e.ids for e in package.encode_batch(documents, add_special_tokens=False)]
        lines = "".join(json.dumps({"text": d}, ensure_ascii=i % 2 == 0) + "\n" for i, d in enumerate(documents))
        self.write("in.jsonl", lines)
        self.run_program("--tokenizer", path, "--bos", "none", "--eos", specials[0], "--out", "out", "in.jsonl")
        eos = package.token_to_id(specials[0])
        actual = shard_tokens(self.path("out.bin"))
        at = 0
        for document, ids in zip(documents, expected):
            ids = ids + [eos]
            self.assertEqual(actual[at:at + len(ids)], ids, f"document {document!r}")
            at += len(ids)
        self.assertEqual(at, len(actual))

        # One long text, which is cut into many segments.
        whole = "".join(documents)
        self.write("in.txt", whole)
        self.run_program("--tokenizer", path, "--bos", "none", "--eos", "none", "--out", "whole", "in.txt")
        actual, ids = shard_tokens(self.path("whole.bin")), package.encode(whole, add_special_tokens=False).ids
        same = next((i for i, (a, b) in enumerate(zip(actual, ids)) if a != b), min(len(actual), len(ids)))
        self.assertEqual(actual[same:same + 8], ids[same:same + 8], f"from token {same} on")
        decoded = self.run_program("--tokenizer", path, "--decode", "whole.bin").stdout
        self.assertEqual(decoded.decode(), package.normalizer.normalize_str(whole) if package.normalizer else whole)

    def trained(self, family):
        self.agree(self.write("trained.json", trained(family)), SPECIAL[family], seed=2)

    def test_trained_gpt2(self):
        self.trained("gpt2")

    def test_trained_llama3(self):
        self.trained("llama3")

    def test_trained_qwen2(self):
        self.trained("qwen2")

    def test_gpt2(self):
        self.real("gpt2")

    def test_llama3(self):
        self.real("llama3")

    def real(self, family):
        path = shared(f"{family}_tokenizer.json")
        if path is None:
            self.skipTest("the real tokenizer is not here (CODA_SHARED_DATA)")
        self.agree(path, SPECIAL[family], seed=3)


class TinyShakespeareTest(TokenizeTestCase):
    """The shards compared with the text, bit by bit: training is the text to the last blank line before 90%."""

    def compare(self, family):
        if shared("tinyshakespeare.txt") is None:
            self.skipTest("tinyshakespeare is not here (CODA_SHARED_DATA)")
        self.run_program("--tokenizer", shared(f"{family}_tokenizer.json"), "--val-fraction", "0.1", "--split-at",
                         "blank-line", "--out", "shakespeare", shared("tinyshakespeare.txt"))
        for part in ("train", "val"):
            with open(self.path(f"shakespeare_{part}.bin"), "rb") as ours, \
                 open(shared(f"tinyshakespeare_{family}_{part}.bin"), "rb") as theirs:
                self.assertTrue(ours.read() == theirs.read(), f"{family} {part}")

    def test_gpt2(self):
        self.compare("gpt2")

    def test_llama3(self):
        self.compare("llama3")


if __name__ == "__main__":
    unittest.main()
