"""The scripts of data/ compared with the shipped configurations and the programs: what they write is what is read."""

import glob
import json
import os
import subprocess
import sys
import unittest
from unittest import mock

from data_server import TOKENIZER, DataCase, Server, sha256
from logs import TOOLS

import docs
import fetch
import fineweb_edu
import prepare
import tinyshakespeare

BUILT = [os.path.join(TOOLS, "..", "build", preset, "bin") for preset in ("cpu", "sanitize", "hopper")]
REAL = next((f"{folder}/coda_tokenize" for folder in BUILT if os.access(f"{folder}/coda_tokenize", os.X_OK)), None)
TRAIN = next((f"{folder}/coda_train" for folder in BUILT if os.access(f"{folder}/coda_train", os.X_OK)), None)


class ShippedConfigurationTest(DataCase):
    """The names in configs/ are those that the scripts write, each in its folder below the current one."""

    def setUp(self):
        super().setUp()
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        text = b"To be, or not to be"
        Server.files = {
            "tinyshakespeare.txt": text,
            "gpt2_tokenizer.json": json.dumps(TOKENIZER).encode(),
            "llama3_tokenizer.json": json.dumps(TOKENIZER).encode(),
            **{f"{number:03d}_00000.parquet": b"a table" for number in range(2)},
        }
        here = fetch.Source(f"{self.base}/tinyshakespeare.txt", "tinyshakespeare.txt", sha256(text))
        reader = mock.Mock()
        for patch in (
            mock.patch.dict(os.environ, {"CODA_DATA_MIRROR": self.base}),
            mock.patch.object(tinyshakespeare, "TEXT", here),
            mock.patch.object(fineweb_edu, "pages", lambda path: ["a page"]),
            mock.patch.dict(sys.modules, {"pyarrow": reader, "pyarrow.parquet": reader.parquet}),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def run_script(self, module, *arguments):
        command = [module.__name__, "--program", self.stand_in(), *arguments]
        with mock.patch.object(sys, "argv", command), mock.patch.object(sys, "stderr"), mock.patch.object(
            sys, "stdout"
        ), mock.patch.object(prepare.subprocess, "run", self.quiet(subprocess.run)):
            module.main()

    def quiet(self, run):
        return lambda command, **options: run(command, **{**options, "stdout": subprocess.DEVNULL})

    def test_every_file_is_written(self):
        self.run_script(tinyshakespeare)
        self.run_script(tinyshakespeare, "--tokenizer", "llama3")
        self.run_script(fineweb_edu, "--tokenizer", "llama3", "--files", "2")
        with open("own.jsonl", "wb") as file:
            file.write(b'{"text": "a page"}\n')
        self.run_script(docs, "--tokenizer", "gpt2", "--source", "own.jsonl")
        names = sorted(glob.glob(os.path.join(TOOLS, "..", "configs", "*.json")))
        self.assertGreater(len(names), 7)
        for name in names:
            if os.path.basename(name) in ("finetune.json", "mistral_7b.json"):
                continue  # its data is the user's
            with open(name, encoding="utf-8") as file:
                data = json.load(file)["data"]
            for key in {"train", "val"} & set(data):
                with self.subTest(config=os.path.basename(name), key=key):
                    self.assertTrue(glob.glob(data[key]), data[key])


@unittest.skipUnless(REAL and TRAIN, "no coda_tokenize and coda_train in build/*/bin here")
class RealProgramTest(DataCase):
    def test_stories_to_a_run(self):
        """The printed lines, pasted, are a configuration that the trainer accepts, and the tokens are the documents."""
        alphabet = [*map(chr, range(33, 127)), *map(chr, range(161, 173)), *map(chr, range(174, 256))]
        alphabet += [chr(256 + n) for n in range(256 - len(alphabet))]
        splitter = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        tokenizer = {
            "version": "1.0",
            "added_tokens": [
                {
                    "id": 256,
                    "content": "<|endoftext|>",
                    "special": True,
                    "single_word": False,
                    "lstrip": False,
                    "rstrip": False,
                    "normalized": False,
                }
            ],
            "normalizer": None,
            "pre_tokenizer": splitter,
            "post_processor": splitter,
            "decoder": splitter,
            "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(alphabet)}, "merges": []},
        }
        Server.files = {
            "gpt2_tokenizer.json": json.dumps(tokenizer).encode(),
            "TinyStoriesV2-GPT4-train.txt": b"abc\n<|endoftext|>\n" * 40,
            "TinyStoriesV2-GPT4-valid.txt": b"abc\n<|endoftext|>\n" * 20,
        }
        done = self.script("tinystories.py", "--folder", self.path("ts"), "--program", REAL)
        self.assertEqual(done.returncode, 0, done.stderr)
        config = json.loads("{" + done.stdout + "}")
        self.assertEqual(config["model"], {"vocab_size": 257, "bos_token_id": 256})
        shard = self.content("ts/train_000000.bin")
        tokens = [int.from_bytes(shard[i : i + 2], "little") for i in range(1024, len(shard), 2)]
        self.assertEqual(tokens, [256, *(alphabet.index(c) for c in "abc")] * 40)

        config["model"].update(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
        config["training"] = {"seq_len": 8, "micro_batch_size": 2, "steps": 1}
        with open(self.path("c.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        done = subprocess.run(
            [os.path.abspath(TRAIN), "--config", "c.json", "--dry-run"],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("257 tokens, SHA-256 " + sha256(Server.files["gpt2_tokenizer.json"]), done.stdout)
        self.assertIn("19 training and 9 validation sequences of 8", done.stdout)


if __name__ == "__main__":
    unittest.main()
