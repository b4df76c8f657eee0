"""AutoTokenizer of transformers makes of an export what coda_generate does, and the reader of llama.cpp's converter finds
the same tokens; each skipped where its package is missing."""

import json
import os
import subprocess
import unittest

from program import DONE, TIMEOUT_S, ProgramTestCase
from test_folders import BEGIN, CONFIG, GENERATE, TEMPLATE, TURN, changed, shard, small_tokenizer
import families  # of tests/tokenize, whose path test_folders has added

try:
    from transformers import AutoTokenizer
except ImportError:
    AutoTokenizer = None
try:
    from gguf import SpecialVocab
except ImportError:
    SpecialVocab = None

FAST = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
LLAMA = {**FAST, "tokenizer_class": "LlamaTokenizerFast"}
QWEN, LLAMA3, GPT2 = (small_tokenizer(name) for name in ("qwen2", "llama3", "gpt2"))
SEQUENCE = {"type": "Sequence", "processors": [QWEN["pre_tokenizer"]["pretokenizers"][1], TEMPLATE]}
LEVEL = QWEN["pre_tokenizer"]["pretokenizers"][1]
CUT = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
PAD = {"strategy": {"Fixed": 12}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
       "pad_token": "!"}
CHARACTERS, METASPACE = families.build("1_llama2"), families.build("3_mistral")
MODEL_VOCAB = 1200
DIGITS = families.build("6_smollm")
SPM_BEGIN = next(token["id"] for token in CHARACTERS["added_tokens"] if token["content"] == "<s>")
SPM = {"tokenizer_class": "LlamaTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
NEOX = {"tokenizer_class": "GPTNeoXTokenizerFast", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
TEXTS = ["hello world", "  two  spaces\n\nand 123 digits", "a<|endoftext|>b", "Zürich 東京 🙂", "\t\r\n"]

# Name: tokenizer.json, the files next to it, what begins a text. The model has a bos and two end tokens.
KINDS = {
    "nothing next to it": (QWEN, {}, [BEGIN]),
    "a byte-level post-processor": ({**QWEN, "post_processor": LEVEL}, {}, [BEGIN]),
    "a template": ({**QWEN, "post_processor": TEMPLATE}, {}, [BEGIN]),
    "a template within a Sequence": ({**QWEN, "post_processor": SEQUENCE}, {}, [BEGIN]),
    "truncation and padding": ({**QWEN, "truncation": CUT, "padding": PAD}, {}, [BEGIN]),
    "a fast class without a template": (QWEN, {"tokenizer_config": FAST}, []),
    "a fast class with a template": ({**QWEN, "post_processor": TEMPLATE},
                                     {"tokenizer_config": {**FAST, "add_bos_token": False}}, [BEGIN]),
    "a GPT-2 class": (GPT2, {"tokenizer_config": {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|endoftext|>",
                                                  "eos_token": "<|endoftext|>", "add_bos_token": False}}, []),
    "a Qwen class": (QWEN, {"tokenizer_config": {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>",
                                                 "bos_token": None, "pad_token": "<|endoftext|>"}}, []),
    "a chat template": (QWEN, {"tokenizer_config": {**FAST, "chat_template": "{{ messages[0].content }}"}}, []),
    "a Llama 3 tokenizer": (LLAMA3, {}, [BEGIN]),
    "a map of special tokens": ({**QWEN, "post_processor": TEMPLATE},
                                {"tokenizer_config": FAST, "special_tokens_map": {"eos_token": "<|im_end|>"}}, [BEGIN]),
    "a GPT-2 class with Digits": (DIGITS, {"tokenizer_config": {"tokenizer_class": "GPT2Tokenizer",
                                                                "eos_token": "<|im_end|>"}}, []),
    "a class of transformers 5": (QWEN, {"tokenizer_config": {**FAST, "tokenizer_class": "TokenizersBackend"}}, []),
    "neither class nor tokens": (QWEN, {"tokenizer_config": {"model_max_length": 100}}, [BEGIN]),
    "no class": (QWEN, {"tokenizer_config": {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}}, []),
    "a NeoX class with a template": ({**QWEN, "post_processor": TEMPLATE}, {"tokenizer_config": NEOX}, []),
    "a NeoX class that adds": (QWEN, {"tokenizer_config": {**NEOX, "add_bos_token": True}}, [BEGIN]),
    "a Llama class, characters": (CHARACTERS, {"tokenizer_config": {**SPM, "add_eos_token": True}}, [SPM_BEGIN]),
    "a Llama class, Metaspace": (METASPACE, {"tokenizer_config": {**SPM, "legacy": True}}, [SPM_BEGIN]),
    "a Llama class, byte-level": (QWEN, {"tokenizer_config": {**LLAMA, "add_bos_token": True}}, [BEGIN]),
}


class ExportedTokenizersTest(ProgramTestCase):
    def setUp(self):
        super().setUp()
        self.write("tokens.bin", shard([1, 2, 3] * 100))

    def config(self, changes=None, name="config.json", base=None):
        base = changed(CONFIG, {"model.vocab_size": MODEL_VOCAB, "data.train": "tokens.bin", "model.bos_token_id": BEGIN,
                                "model.eos_token_id": [TURN, TURN - 1], "model.initializer_range": 0.5,
                                "model.max_position_embeddings": 512})
        return super().config(changes, name, base)

    def losses(self, folder, requests):
        done = subprocess.run([GENERATE, "--model", folder, "--device", "cpu", "--score", "--prompts", "-"],
                              cwd=self.folder, input="".join(json.dumps(line) + "\n" for line in requests),
                              capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, DONE, done.stderr)
        return [json.loads(line)["loss"] for line in done.stdout.splitlines()]

    def export(self, tokenizer, beside, out):
        given = f"given_{out}"
        os.mkdir(self.path(given))
        for stem, document in {"tokenizer": tokenizer, **beside}.items():
            self.write(f"{given}/{stem}.json", json.dumps(document).encode())
        changes = {"data.tokenizer": f"{given}/tokenizer.json"}
        ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
        if "<s>" in ids:
            changes |= {"model.bos_token_id": ids["<s>"], "model.eos_token_id": ids["</s>"]}
        self.train("--export", out, changes=changes)

    @unittest.skipIf(SpecialVocab is None, "needs gguf: pip install gguf")
    def test_llama_cpp(self):
        for index, (name, (tokenizer, beside, start)) in enumerate(KINDS.items()):
            with self.subTest(name):
                out = f"out{index}"
                self.export(tokenizer, beside, out)
                found = SpecialVocab(self.path(out), n_vocab=MODEL_VOCAB)
                settings = json.loads(self.read(out, "tokenizer_config.json"))
                ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
                self.assertEqual(found.special_token_ids["eos"], ids[settings["eos_token"]])
                if start:
                    self.assertEqual(found.special_token_ids["bos"], start[0])
                self.assertEqual(found.add_special_token.get("bos", False), bool(start))

    @unittest.skipIf(AutoTokenizer is None, "needs transformers: pip install transformers")
    def test_ids(self):
        for index, (name, (tokenizer, beside, start)) in enumerate(KINDS.items()):
            with self.subTest(name):
                out = f"out{index}"
                self.export(tokenizer, beside, out)
                loaded = AutoTokenizer.from_pretrained(self.path(out))
                ids = [loaded(text)["input_ids"] for text in TEXTS]
                for each in ids:
                    self.assertEqual(each[:len(start)], start)
                    self.assertLess(max(each), MODEL_VOCAB)
                self.assertEqual(self.losses(out, [{"prompt": text} for text in TEXTS]),
                                 self.losses(out, [{"tokens": each} for each in ids]))
                settings = json.loads(self.read(out, "tokenizer_config.json"))
                self.assertEqual(loaded.eos_token, settings["eos_token"])
                self.assertEqual(loaded.convert_tokens_to_ids(settings["eos_token"]), loaded.eos_token_id)
                if "chat_template" in settings:
                    self.assertEqual(self.read(out, "chat_template.jinja").decode(), settings["chat_template"])
                if not beside:
                    self.assertEqual(json.loads(self.read(out, "generation_config.json"))["eos_token_id"],
                                     [TURN, TURN - 1])
                    self.assertEqual(loaded.eos_token_id, TURN)


if __name__ == "__main__":
    unittest.main()
