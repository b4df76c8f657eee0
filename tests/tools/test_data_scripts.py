"""The scripts of data/: downloads that break off, checksums, tokenizing again or not, and the lines for the config."""

import gzip
import importlib.util
import json
import os
import subprocess
import sys
import unittest
from unittest import mock

from data_server import DATA, TOKENIZER, DataCase, Server, sha256
from logs import LogTestCase

import docs
import fetch
import prepare
import tinystories


class FetchTest(DataCase):
    WHOLE = os.urandom(5000)

    def setUp(self):
        super().setUp()
        Server.files = {"a.txt": self.WHOLE}

    def test_once(self):
        for sha in (sha256(self.WHOLE), None):
            self.assertEqual(self.fetch("a.txt", sha), self.path("a.txt"))
            self.assertEqual(self.content("a.txt"), self.WHOLE)
        self.assertEqual(Server.asked, [("a.txt", None)])
        self.assertEqual(self.content("SHA256SUMS").decode(), f"{sha256(self.WHOLE)}  a.txt\n")
        self.assertFalse(os.path.exists(self.path("a.txt.part")))

    def test_goes_on_where_it_stopped(self):
        with open(self.path("a.txt.part"), "wb") as file:
            file.write(self.WHOLE[:1234])
        self.fetch("a.txt", sha256(self.WHOLE))
        self.assertEqual(Server.asked, [("a.txt", "bytes=1234-")])
        self.assertEqual(self.content("a.txt"), self.WHOLE)

    def test_connection_that_breaks_again_and_again(self):
        Server.cut = 900
        self.fetch("a.txt", sha256(self.WHOLE))
        self.assertEqual(
            [wanted for _, wanted in Server.asked], [None, *(f"bytes={n}-" for n in range(900, 5000, 900))]
        )
        self.assertEqual(self.content("a.txt"), self.WHOLE)

    def test_connection_that_gives_nothing_more(self):
        with open(self.path("a.txt.part"), "wb") as file:
            file.write(self.WHOLE[:1234])
        Server.cut = 0
        self.assertIn("1,234 bytes are kept", self.problem("a.txt"))
        self.assertEqual(len(Server.asked), fetch.ATTEMPTS)
        self.assertEqual(self.content("a.txt.part"), self.WHOLE[:1234])

    def test_host_without_ranges_or_length(self):
        with open(self.path("a.txt.part"), "wb") as file:
            file.write(b"x" * 1234)
        Server.ranges, Server.chunked = False, True
        self.fetch("a.txt", sha256(self.WHOLE))
        self.assertEqual(self.content("a.txt"), self.WHOLE)

    def test_part_that_is_whole_or_too_long(self):
        for part in (self.WHOLE, self.WHOLE + b"more"):
            with open(self.path("a.txt.part"), "wb") as file:
                file.write(part)
            self.fetch("a.txt", sha256(self.WHOLE))
            self.assertEqual(self.content("a.txt"), self.WHOLE)
            os.remove(self.path("a.txt"))

    def test_wrong_checksum(self):
        message = self.problem("a.txt", sha256(b"other"))
        self.assertIn(sha256(b"other"), message)
        self.assertIn(sha256(self.WHOLE), message)
        self.assertEqual(os.listdir(self.folder), [])

    def test_checksum_that_the_host_states(self):
        Server.stated = {"a.txt": sha256(self.WHOLE)}
        self.fetch("a.txt", moved=True)
        os.remove(self.path("a.txt"))
        Server.stated = {"a.txt": sha256(b"other")}
        self.assertIn("removed", self.problem("a.txt", moved=True))

    def test_file_that_changed_on_the_disk(self):
        self.fetch("a.txt")
        with open(self.path("a.txt"), "ab") as file:
            file.write(b"!")
        self.assertIn("damaged or another file", self.problem("a.txt"))
        self.assertTrue(os.path.exists(self.path("a.txt")))  # it may be the user's own

    def test_no_such_file(self):
        self.assertIn("404", self.problem("b.txt"))
        self.assertEqual(len(Server.asked), 1)

    def test_mirror(self):
        with open(self.path("m.txt"), "wb") as file:
            file.write(self.WHOLE)
        os.mkdir(self.path("in"))
        with mock.patch.dict(os.environ, {"CODA_DATA_MIRROR": "file://" + self.folder}), mock.patch.object(
            sys, "stderr"
        ):
            fetch.fetch(fetch.Source("https://example.invalid/x", "m.txt", sha256(self.WHOLE)), self.path("in"))
        self.assertEqual(self.content("in/m.txt"), self.WHOLE)


class ScriptTest(DataCase):
    def setUp(self):
        super().setUp()
        Server.files = {
            "gpt2_tokenizer.json": json.dumps(TOKENIZER).encode(),
            "TinyStoriesV2-GPT4-train.txt": b"One.\n\nTwo.\n<|endoftext|>\nThree.\n<|endoftext|>\n",
            "TinyStoriesV2-GPT4-valid.txt": "Für dich.<|endoftext|> Last".encode(),
        }

    def config(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads("{" + done.stdout + "}")

    def test_help(self):
        for script in ("tinyshakespeare.py", "tinystories.py", "fineweb_edu.py", "docs.py"):
            done = subprocess.run([os.path.join(DATA, script), "--help"], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("--tokenizer FILE", done.stdout)

    def test_offline(self):
        for script in ("tinyshakespeare.py", "tinystories.py"):
            done = self.script(
                script, "--folder", self.path("x"), "--program", self.stand_in(), mirror="http://127.0.0.1:1"
            )
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("127.0.0.1:1 cannot be reached", done.stderr)
            self.assertIn("Is this machine online?", done.stderr)
        self.assertEqual(self.calls(), 0)

    def test_another_tinyshakespeare(self):
        Server.files["tinyshakespeare.txt"] = b"To be, or not to be"
        done = self.script("tinyshakespeare.py", "--folder", self.path("ts"))
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed", done.stderr)

    def test_tinystories(self):
        arguments = ("--folder", self.path("data/ts"), "--program", self.stand_in())
        config = self.config(self.script("tinystories.py", *arguments))
        self.assertEqual(config["model"], {"vocab_size": 8, "bos_token_id": 7})
        files = {part: self.path(f"data/ts/{part}_000000.bin") for part in ("train", "val")}
        self.assertEqual(config["data"], {**files, "tokenizer": self.path("data/tokenizers/gpt2_tokenizer.json")})
        with gzip.open(self.path("data/ts/train.jsonl.gz"), "rt", encoding="utf-8") as file:
            self.assertEqual([json.loads(line)["text"] for line in file], ["One.\n\nTwo.", "Three."])
        with gzip.open(self.path("data/ts/val.jsonl.gz"), "rt", encoding="utf-8") as file:
            self.assertEqual([json.loads(line)["text"] for line in file], ["Für dich.", "Last"])
        self.assertIn("--shard-tokens 100000000", self.content("data/ts/train_000000.bin").decode())

        asked = len(Server.asked)
        self.config(self.script("tinystories.py", *arguments))
        self.assertEqual((len(Server.asked), self.calls()), (asked, 2))  # nothing is done twice
        self.config(self.script("tinystories.py", *arguments, "--shard-tokens", "5"))
        self.assertEqual((len(Server.asked), self.calls()), (asked, 4))  # other shards, the same downloads

    def test_documents_of_ones_own(self):
        folder, program = self.path("data/docs"), self.stand_in()
        asked = len(Server.asked)
        done = self.script("docs.py", "--folder", folder, "--program", program)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        for words in (os.path.join(folder, "docs.jsonl.zst"), "no such file", "--source FILE"):
            self.assertIn(words, done.stderr)
        self.assertEqual((len(Server.asked), self.calls()), (asked, 0))  # said before anything is fetched

        os.makedirs(folder)
        others = [f"data/docs/docs{rest}.bin" for rest in ("", "_llama3_train", "_llama3_val", "_train_000000")]
        for name in ("data/docs/docs.jsonl.zst", "a.jsonl", "b.jsonl", *others):
            with open(self.path(name), "wb") as file:
                file.write(b'{"text": "One."}\n')
        config = self.config(self.script("docs.py", "--folder", folder, "--program", program))
        self.assertEqual(config["model"], {"vocab_size": 8, "bos_token_id": 7})
        files = {part: os.path.join(folder, f"docs_{part}.bin") for part in ("train", "val")}
        self.assertEqual(config["data"], {**files, "tokenizer": self.path("data/tokenizers/gpt2_tokenizer.json")})
        self.assertIn(f"--val-fraction {docs.VALIDATION} ", self.content("data/docs/docs_val.bin").decode())
        named = [word for name in ("a.jsonl", "b.jsonl") for word in ("--source", self.path(name))]
        self.config(self.script("docs.py", "--folder", folder, "--program", program, *named))
        self.assertRegex(self.content("data/docs/docs_train.bin").decode(), r"--overwrite \S+/a\.jsonl \S+/b\.jsonl$")
        for wrong in ("0", "1", "nan", "some"):
            done = self.script("docs.py", "--folder", folder, "--program", program, "--val-fraction", wrong)
            self.assertEqual(done.returncode, 2)
            self.assertIn(wrong, done.stderr)

    def test_interrupted_conversion(self):
        """What is left of one is not taken for the whole."""
        os.makedirs(self.path("ts"))
        with open(self.path("ts/train.jsonl.gz.new"), "wb") as file:
            file.write(b"torn")
        self.config(self.script("tinystories.py", "--folder", self.path("ts"), "--program", self.stand_in()))
        with gzip.open(self.path("ts/train.jsonl.gz"), "rt") as file:
            self.assertEqual(len(file.readlines()), 2)

    def test_program_that_fails(self):
        failing = self.stand_in()
        with open(failing, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho out of tokens >&2\nexit 1\n")
        done = self.script("tinystories.py", "--folder", self.path("ts"), "--program", failing)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("out of tokens", done.stderr)
        self.assertIn("exit status 1", done.stderr)

    def test_wrong_arguments(self):
        program = self.stand_in()
        for arguments, words in (
            (("--tokenizer", self.path("none.json")), "none.json"),
            (("--program", "/none"), "/none"),
        ):
            done = self.script("tinystories.py", "--folder", self.path("ts"), "--program", program, *arguments)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(words, done.stderr)

    def test_llama3_is_put_in_place_by_hand(self):
        path = self.path("data/tokenizers/llama3_tokenizer.json")
        with self.assertRaises(fetch.Problem) as caught:
            prepare.tokenizer_file("llama3", self.path("data/ts"))
        for words in ("licence", "meta-llama", path, "--tokenizer FILE"):
            self.assertIn(words, str(caught.exception))
        os.makedirs(os.path.dirname(path))
        with open(path, "w", encoding="utf-8") as file:
            json.dump(TOKENIZER, file)
        with mock.patch.object(sys, "stderr"):
            self.assertEqual(prepare.tokenizer_file("llama3", self.path("data/ts")), path)
        Server.files["llama3_tokenizer.json"] = b"from the mirror"
        with mock.patch.dict(os.environ, {"CODA_DATA_MIRROR": self.base}), mock.patch.object(sys, "stderr"):
            mirrored = prepare.tokenizer_file("llama3", self.path("other/ts"))
        self.assertEqual(self.content(mirrored), b"from the mirror")

    def test_the_program_built_or_installed(self):
        def program(name):
            os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
            with open(self.path(name), "w", encoding="utf-8"):
                os.chmod(self.path(name), 0o755)
            return self.path(name)

        with mock.patch.object(prepare, "ROOT", self.path("p/share/coda_train")), mock.patch.dict(
            os.environ, {"PATH": self.path("path")}
        ):
            with self.assertRaises(fetch.Problem) as caught:
                prepare.find_program(None)
            self.assertIn(self.path("p/bin/coda_tokenize"), str(caught.exception))
            for name in ("path/coda_tokenize", "p/bin/coda_tokenize", "p/share/coda_train/build/x/bin/coda_tokenize",
                         "p/share/coda_train/build/cpu/bin/coda_tokenize"):
                path = program(name)
                self.assertEqual(prepare.find_program(None), path)
            os.utime(path, (0, 0))
            self.assertEqual(prepare.find_program(None), path, "x, which may have a sanitizer, is only newer")

    def test_fineweb_needs_a_reader_first(self):
        if importlib.util.find_spec("pyarrow"):
            self.skipTest("pyarrow is here")
        done = self.script("fineweb_edu.py", "--folder", self.path("fw"), "--program", self.stand_in())
        self.assertEqual(done.returncode, 1)
        self.assertIn("pip install pyarrow", done.stderr)
        self.assertEqual(Server.asked, [])

    @unittest.skipUnless(importlib.util.find_spec("pyarrow"), "no pyarrow here (pip install pyarrow)")
    def test_fineweb(self):
        import pyarrow
        import pyarrow.parquet

        for number in range(2):
            table = pyarrow.table({"id": [1, 2], "text": [f"page {number}", "zwölf\n"]})
            pyarrow.parquet.write_table(table, self.path("t.parquet"))
            Server.files[f"{number:03d}_00000.parquet"] = self.content("t.parquet")
        done = self.script("fineweb_edu.py", "--folder", self.path("fw"), "--program", self.stand_in(), "--files", "2")
        config = self.config(done)
        files = {part: self.path(f"fw/fineweb_edu_{part}_000000.bin") for part in ("train", "val")}
        self.assertEqual(config["data"], {**files, "tokenizer": self.path("tokenizers/gpt2_tokenizer.json")})
        with gzip.open(self.path("fw/001.jsonl.gz"), "rt", encoding="utf-8") as file:
            self.assertEqual([json.loads(line)["text"] for line in file], ["page 1", "zwölf\n"])
        self.assertRegex(
            self.content("fw/fineweb_edu_val_000000.bin").decode(), r"--overwrite \S+000\.jsonl\.gz \S+001\.jsonl\.gz"
        )


class StoriesTest(LogTestCase):
    def test_any_places_of_the_mark(self):
        for text, expected in (
            ("", []),
            ("<|endoftext|>", []),
            ("a<|endoftext|>b<|endoftext|>\nc", ["a", "b", "c"]),
            ("a\r\nb\n<|endoftext|>\n \n<|endoftext|>", ["a\r\nb"]),
        ):
            with open(self.path("s.txt"), "w", encoding="utf-8", newline="") as file:
                file.write(text)
            self.assertEqual(list(tinystories.stories(self.path("s.txt"))), expected)

    def test_patterns(self):
        self.assertEqual(prepare.pattern_of(["d/train_000000.bin"]), "d/train_000000.bin")
        self.assertEqual(prepare.pattern_of([f"d/train_{n:06d}.bin" for n in (0, 1, 10)]), "d/train_*.bin")


if __name__ == "__main__":
    unittest.main()
