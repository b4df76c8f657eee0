"""coda_tokenize as a user runs it: inputs of every kind, bad ones included, and what is left behind."""

import bz2
import gzip
import json
import os
import pty
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
import unittest

from tokenizing import (DONE, INTERRUPTED, PROGRAM, RUNTIME, SPECIAL, USAGE, TokenizeTestCase, byte_alphabet,
                        shard_tokens, small_tokenizer)

TOKENIZER = small_tokenizer("gpt2", merges=())
IDS = {byte: i for i, byte in enumerate(byte_alphabet())}  # without merges every byte is a token
END = len(IDS)  # <|endoftext|>


def ids(text):
    return [IDS[byte] for byte in (text.encode() if isinstance(text, str) else text)]

# Runs a program and prints its peak memory in KiB. A process's peak begins as that of the one which started it, so this
# has to be a small one.
PEAK_MEMORY = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stderr=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def sanitized():
    with open(PROGRAM, "rb") as file:
        program = file.read()
    return b"__asan_init" in program or b"__tsan_init" in program


class ProgramTestCase(TokenizeTestCase):
    def setUp(self):
        super().setUp()
        self.write("t.json", json.dumps(TOKENIZER))

    def tokenize(self, *arguments, expect=DONE, **options):
        out = [] if "--out" in arguments else ["--out", "o"]
        return self.run_program("--tokenizer", "t.json", *out, *arguments, expect=expect, **options)

    def refused(self, *arguments, says, expect=RUNTIME, **options):
        """An error with its message, and no file that was not there."""
        before = self.files()
        done = self.tokenize(*arguments, expect=expect, **options)
        for part in says:
            self.assertIn(part, done.stderr)
        self.assertEqual(self.files(), before)
        return done

    def tokens(self, name="o.bin"):
        return shard_tokens(self.path(name))


class InputTest(ProgramTestCase):
    def test_compressed_and_plain_give_the_same(self):
        text = "".join(f"{i} bottles\n" for i in range(100000))
        self.write("a.txt", text)
        self.tokenize("a.txt")
        expected = self.tokens()
        self.assertEqual(expected, [END] + ids(text))
        half = len(text) // 2
        self.write("b.txt.gz", gzip.compress(text[:half].encode()) + gzip.compress(text[half:].encode()))
        self.tokenize("b.txt.gz", "--overwrite")
        self.assertEqual(self.tokens(), expected)
        self.tokenize("-", "--overwrite", stdin=gzip.compress(text.encode()))
        self.assertEqual(self.tokens(), expected)
        if shutil.which("zstd") is None:
            self.skipTest("there is no zstd program to make a .zst with")
        subprocess.run(["zstd", "-q", self.path("a.txt")], check=True)
        self.tokenize("a.txt.zst", "--overwrite")
        self.assertEqual(self.tokens(), expected)
        with open(self.path("a.txt.zst"), "rb") as file:
            self.write("cut.txt.zst", file.read()[:-100])
        self.refused("cut.txt.zst", "--overwrite", says=["cut.txt.zst", "ends in the middle"])

    def test_damaged_compression(self):
        whole = gzip.compress(random.Random(1).randbytes(50000).hex().encode())
        self.write("cut.txt.gz", whole[:-20])
        self.refused("cut.txt.gz", says=["cut.txt.gz", "ends in the middle"])
        self.write("bad.txt.gz", whole[:200] + bytes(100) + whole[300:])
        self.refused("bad.txt.gz", says=["bad.txt.gz", "damaged compressed data"])
        self.write("other.txt.bz2", bz2.compress(b"text"))
        self.refused("other.txt.bz2", says=["other.txt.bz2", "--format"], expect=USAGE)

    def test_documents_of_json_lines(self):
        lines = ['{"text": "one", "body": "1"}', "", '{"body": "2", "text": "two\\n"}', '{"text": "", "body": "3"}', " \r",
                 '{"text": "\\u0000\\ud83d\\ude00", "body": "4"}\r']
        self.write("a.jsonl", "\n".join(lines))
        done = self.tokenize("a.jsonl")
        self.assertEqual(self.tokens(), [END, *ids("one"), END, *ids("two\n"), END, *ids("\0\U0001f600")])
        self.assertIn("1 documents have no text", done.stderr)
        self.tokenize("a.jsonl", "--overwrite", "--field", "body", "--bos", "none", "--eos", "<|endoftext|>")
        self.assertEqual(self.tokens(), [*ids("1"), END, *ids("2"), END, *ids("3"), END, *ids("4"), END])

    def test_bad_json_lines(self):
        for line, says in (("{", "line 3"), ("[1]", "a JSON object"), ('{"body": "x"}', 'no field "text"'),
                           ('{"text": 7}', "is not a string"), ('{"text": "\\ud800"}', "line 3"),
                           ('{"text": "a"} {"text": "b"}', "line 3"), ("[" * 100000, "line 3")):
            self.write("a.jsonl", '{"text": "good"}\n\n' + line + "\n" + '{"text": "good"}\n')
            self.refused("a.jsonl", says=["a.jsonl: line 3", says])

    def test_globs_standard_input_and_order(self):
        for name in ("b", "a", "c"):
            self.write(f"{name}.txt", name)
        self.tokenize("?.txt", "-", "a.txt", stdin=b"in")
        self.assertEqual(self.tokens(), [END, *ids("a"), END, *ids("b"), END, *ids("c"), END, *ids("in"), END, *ids("a")])
        self.refused("*.none", "--overwrite", says=["no file matches '*.none'"])
        self.refused("-", "-", "--overwrite", says=["only once"], expect=USAGE)
        os.mkdir(self.path("folder"))
        self.refused("folder", "--format", "txt", "--overwrite", says=["folder", "is a folder"])
        self.tokenize("-", "--format", "jsonl", "--overwrite", stdin=b'{"text": "x"}')
        self.assertEqual(self.tokens(), [END, *ids("x")])

    def test_same_shards_for_any_number_of_threads(self):
        chance = random.Random(5)
        self.write("a.jsonl", "".join(json.dumps({"text": chance.randbytes(chance.randrange(3000)).hex()}) + "\n"
                                      for _ in range(2000)))
        for threads in (1, 2, 7):
            self.tokenize("a.jsonl", "--threads", threads, "--overwrite", "--val-fraction", 0.25)
            with open(self.path("o_train.bin"), "rb") as train, open(self.path("o_val.bin"), "rb") as val:
                contents = train.read(), val.read()
            self.assertEqual(contents, getattr(self, "first", contents))
            self.first = contents


class StrangeTextTest(ProgramTestCase):
    def test_damaged_utf8(self):
        self.write("a.txt", b"good\n" * 100000 + b"bad \xe2\x82 text")
        self.refused("a.txt", says=["a.txt: byte 500004: invalid UTF-8", "--invalid-utf8 replace"])
        done = self.tokenize("a.txt", "--invalid-utf8", "replace")
        self.assertEqual(self.tokens()[-10:], ids("bad \ufffd text")[-10:])
        self.assertIn("invalid UTF-8 was replaced in 1 places", done.stderr)
        self.write("a.jsonl", b'{"text": "x"}\n{"text": "\xff"}\n')
        self.refused("a.jsonl", "--overwrite", says=["a.jsonl: line 2: byte 10 of the line: invalid UTF-8"])
        self.tokenize("a.jsonl", "--overwrite", "--invalid-utf8", "replace")
        self.assertEqual(self.tokens(), [END, *ids("x"), END, *ids("\ufffd")])

    def test_nul_carriage_return_and_mark_are_characters(self):
        text = "\ufeffa\0b\r\nc\0"
        self.write("a.txt", text)
        self.tokenize("a.txt")
        self.assertEqual(self.tokens(), [END, *ids(text)])

    def test_empty_inputs(self):
        self.write("empty.txt", "")
        self.write("empty.jsonl", "")
        self.write("empty.txt.gz", gzip.compress(b""))
        self.write("a.txt", "a")
        for name in ("empty.txt", "empty.jsonl", "empty.txt.gz"):
            self.refused(name, says=["no text", "no shard is written"])
        self.tokenize("empty.txt", "a.txt", "empty.jsonl", "empty.txt.gz")
        self.assertEqual(self.tokens(), [END, *ids("a")])

    def test_long_line_in_little_memory(self):
        # 100 MB in one line: words, then a stretch without any space. Written in blocks, to keep this process small.
        def write_line(name, head=b"", tail=b""):
            with open(self.path(name), "wb") as file:
                blocks = [b"some words and 123 numbers " * 40000] * 100 + [b"abc123" * 100000]
                return sum(map(file.write, [head, *blocks, tail]))

        length = write_line("a.txt")
        done = subprocess.run([sys.executable, "-c", PEAK_MEMORY, PROGRAM, "--tokenizer", "t.json", "--out", "o",
                               "--threads", "2", "a.txt"], cwd=self.folder, capture_output=True, check=True)
        peak = int(done.stdout) * 1024
        if not sanitized():  # whose shadow memory is many times what a program uses
            self.assertLess(peak, 64 << 20)
        size = os.path.getsize(self.path("o.bin"))
        self.assertEqual(size, 1024 + 2 * (length + 1))
        write_line("a.jsonl", b'{"text": "', b'"}\n')
        self.tokenize("a.jsonl", "--overwrite")
        self.assertEqual(os.path.getsize(self.path("o.bin")), size)

    def test_text_that_cannot_be_cut(self):
        self.write("a.txt", b"x" * (65 << 20))
        self.refused("a.txt", says=["a.txt", "no line end, space or digit"])

    def test_special_tokens_in_text(self):
        text = "a<|endoftext|>b<|endoftext|<|endoftext|>"
        self.write("a.txt", text)
        self.tokenize("a.txt")
        self.assertEqual(self.tokens(), [END, *ids("a"), END, *ids("b<|endoftext|"), END])


class OutputTest(ProgramTestCase):
    def test_shards(self):
        self.write("a.txt", "0123456789")
        self.tokenize("a.txt", "--shard-tokens", 4)
        self.assertEqual([self.tokens(f"o_{i:06}.bin") for i in range(3)],
                         [[END, *ids("012")], ids("3456"), ids("789")])
        self.refused("a.txt", says=["o_000000.bin", "exists", "--overwrite"])
        self.tokenize("a.txt", "--shard-tokens", 8, "--overwrite")  # one shard fewer than before
        self.assertEqual([n for n in self.files() if n.endswith(".bin")], ["o_000000.bin", "o_000001.bin"])
        self.tokenize("a.txt", "--overwrite")
        self.assertEqual([n for n in self.files() if n.endswith(".bin")], ["o.bin"])

    def test_stems_that_begin_alike_do_not_meet(self):
        self.write("a.txt", "a")
        self.write("o_other.bin", "")
        self.write("o_12.bin", "")
        self.tokenize("a.txt")
        self.assertEqual([n for n in self.files() if n.endswith(".bin")], ["o.bin", "o_12.bin", "o_other.bin"])

    def test_wide_tokens(self):
        tokenizer = json.loads(json.dumps(TOKENIZER))
        for last, wide in ((65535, False), (65536, True)):
            tokenizer["added_tokens"][0]["id"] = last
            self.write("wide.json", json.dumps(tokenizer))
            self.write("a.txt", "a")
            self.run_program("--tokenizer", "wide.json", "--out", "o", "--overwrite", "a.txt")
            self.assertEqual(self.tokens(), [last, *ids("a")])
            self.assertEqual(os.path.getsize(self.path("o.bin")), 1024 + 2 * (4 if wide else 2))

    def test_validation_documents(self):
        self.write("a.jsonl", "".join(json.dumps({"text": chr(48 + i)}) + "\n" for i in range(10)))
        self.tokenize("a.jsonl", "--val-fraction", 0.2, "--bos", "none")
        self.assertEqual(self.tokens("o_train.bin"), ids("01235678"))
        self.assertEqual(self.tokens("o_val.bin"), ids("49"))

    def test_validation_at_a_blank_line(self):
        text = "aé\n\nbb\n\ncccc\n\ndd"
        self.write("a.txt", text)
        for fraction, end in ((0.1, "cccc\n\n"), (0.5, "bb\n\n"), (0.8, "aé\n")):
            self.tokenize("a.txt", "--val-fraction", fraction, "--split-at", "blank-line", "--overwrite")
            at = text.index(end) + len(end)
            self.assertEqual(self.tokens("o_train.bin"), [END, *ids(text[:at])], fraction)
            self.assertEqual(self.tokens("o_val.bin"), [END, *ids(text[at:])], fraction)
        self.refused("a.txt", "--val-fraction", 0.2, "--overwrite", says=["no document is left for validation"])
        self.refused("-", "--val-fraction", 0.2, "--split-at", "blank-line", "--overwrite", says=["standard input"])

    def test_decode(self):
        text = "Grüße <|endoftext|>\0\n"
        self.write("a.txt", text)
        self.tokenize("a.txt", "--shard-tokens", 7)
        shards = [name for name in self.files() if name.endswith(".bin")]
        decode = ["--tokenizer", "t.json", "--decode", *shards]
        self.assertEqual(self.run_program(*decode).stdout.decode(), "<|endoftext|>" + text)
        self.assertEqual(self.run_program(*decode, "--skip-special").stdout.decode(), "Grüße \0\n")
        self.run_program(*decode, "--out", "back.txt")
        with open(self.path("back.txt"), encoding="utf-8", newline="") as file:
            self.assertEqual(file.read(), "<|endoftext|>" + text)
        self.run_program(*decode, "--out", "back.txt", expect=RUNTIME)
        self.write("bad.bin", b"x" * 2000)
        self.assertIn("bad.bin", self.run_program("--tokenizer", "t.json", "--decode", "bad.bin",
                                                  expect=RUNTIME).stderr)

    def test_full_disk(self):
        self.write("a.txt", "word " * 400000)

        def limit():  # and its signal, which would end the process
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

        self.tokenize("a.txt", "--shard-tokens", 1000)
        with open(self.path("o_000000.bin"), "rb") as file:
            before = file.read()
        self.refused("a.txt", "--overwrite", says=["File too large", "o_0.bin.new"], preexec_fn=limit)
        with open(self.path("o_000000.bin"), "rb") as file:
            self.assertEqual(file.read(), before)
        os.mkdir(self.path("disk"))
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", self.path("disk")],
                                 capture_output=True, check=False)
        if mounted.returncode != 0:
            self.skipTest("no file system can be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", self.path("disk")], check=True)
        self.refused("a.txt", "--out", "disk/o", says=["No space left on device"])
        self.assertEqual(os.listdir(self.path("disk")), [])

    def test_inputs_are_not_replaced(self):
        self.write("o.bin", "text in a file of this name")
        self.refused("o.bin", "--format", "txt", "--overwrite", says=["o.bin: the run reads this file"])
        self.write("a.txt", "text")
        self.tokenize("a.txt", "--out", "s")
        with open(self.path("s.bin"), "rb") as file:
            shard = file.read()
        decode = ["--tokenizer", "t.json", "--decode", "s.bin", "--overwrite", "--out"]
        for out, says in (("s.bin", "the run reads this file"), ("t.json", "the run reads this file"),
                          ("/dev/null", "is a device")):
            self.assertIn(says, self.run_program(*decode, out, expect=RUNTIME).stderr)
        with open(self.path("s.bin"), "rb") as file:
            self.assertEqual(file.read(), shard)
        self.run_program(*decode[:-2])  # the tokenizer is whole too

    def test_lost_output(self):
        self.write("a.txt", "text")
        self.tokenize("a.txt")
        for arguments in (["--help"], ["--version"], ["--tokenizer", "t.json", "--decode", "o.bin"]):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([PROGRAM, *arguments], cwd=self.folder, stdout=full, stderr=subprocess.PIPE,
                                      stdin=subprocess.DEVNULL, check=False)
            self.assertEqual(done.returncode, RUNTIME, arguments)
            self.assertRegex(done.stderr, rb"\Acoda_tokenize: [^\n]*standard output: No space left on device\n\Z")

    def test_names_are_escaped(self):
        self.write("\x1b[31m.txt", "text")
        done = self.tokenize("\x1b[31m.txt", "--out", "\x1b[32m")
        self.assertIn("\\x1b[32m.bin: 5 tokens", done.stderr)
        self.assertNotIn("\x1b", done.stderr)
        self.assertNotIn("\x1b", self.refused("\x1b[33m.txt", says=["\\x1b[33m.txt"]).stderr)

    def test_a_pipe_is_not_read_twice(self):
        os.mkfifo(self.path("pipe"))
        self.refused("pipe", "--format", "txt", "--val-fraction", 0.2, "--split-at", "blank-line",
                     says=["pipe: is a FIFO, which cannot be read twice"])

    def test_interrupt(self):
        for number in (signal.SIGINT, signal.SIGHUP):
            with self.subTest(number):
                self.interrupt(number)

    def interrupt(self, number):
        before = self.files()
        process = subprocess.Popen([PROGRAM, "--tokenizer", "t.json", "--out", "o", "-"], cwd=self.folder,
                                   stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        with process.stdin as pipe:
            for _ in range(40):
                pipe.write(b"words and words\n" * 65536)
            deadline = time.monotonic() + 60
            while "o_0.bin.new" not in self.files() and time.monotonic() < deadline:
                pipe.write(b"words and words\n" * 65536)
            process.send_signal(number)
        with process.stderr as pipe:
            error = pipe.read()
        self.assertEqual(process.wait(60), INTERRUPTED, error)
        self.assertIn(b"nothing was written", error)
        self.assertEqual(self.files(), before)

    def test_progress_only_on_a_terminal(self):
        self.write("a.txt", "word " * 8000000)
        self.assertNotIn("\r", self.tokenize("a.txt").stderr)
        leader, follower = pty.openpty()
        process = subprocess.Popen([PROGRAM, "--tokenizer", "t.json", "--out", "p", "a.txt", "--threads", "1"],
                                   cwd=self.folder, stderr=follower)
        os.close(follower)
        seen = b""
        while select.select([leader], [], [], 60)[0]:
            try:
                block = os.read(leader, 4096)
            except OSError:
                break
            if not block:
                break
            seen += block
        os.close(leader)
        self.assertEqual(process.wait(60), DONE)
        self.assertIn(b"% of 38.15 MiB | eta ", seen)


class CommandLineTest(ProgramTestCase):
    def test_usage(self):
        self.write("a.txt", "a")
        for arguments, says in ((["--bos", "<s>", "a.txt"], "no such token"), (["a.txt", "--format", "xml"], "--format"),
                                (["a.txt", "--val-fraction", "1"], "below 1"), (["a.bin"], "no file matches"),
                                (["a.txt", "--split-at", "blank-line"], "--val-fraction"),
                                (["a.txt", "--shard-tokens", "0"], "--shard-tokens"),
                                (["a.txt", "--threads", "0"], "--threads"), ([], "inputs"),
                                (["a.txt", "--skip-special"], "--decode"), (["a.txt", "--unknown"], "--unknown"),
                                (["a.txt", "--decode", "--vocab", "9"], "--vocab")):
            self.refused(*arguments, says=[says], expect=RUNTIME if arguments == ["a.bin"] else USAGE)
        self.assertIn(b"--val-fraction", self.run_program("--help").stdout)
        self.assertIn(b"coda_train", self.run_program("--version").stdout)

    def test_vocabulary(self):
        self.write("a.txt", "a")
        self.refused("a.txt", "--vocab", END, says=["t.json", "vocab_size of at least 257"])
        self.tokenize("a.txt", "--vocab", END + 1)

    def test_marks_of_the_families(self):
        self.write("a.txt", "a")
        for family, first, last in (("gpt2", 0, None), ("llama3", 0, 1), ("qwen2", 0, None)):
            tokenizer = small_tokenizer(family)
            self.write("t.json", json.dumps(tokenizer))
            self.tokenize("a.txt", "--overwrite")
            id_of = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
            marks = [id_of[SPECIAL[family][i]] if i is not None else None for i in (first, last)]
            self.assertEqual(self.tokens(), [i for i in (marks[0], IDS[ord("a")], marks[1]) if i is not None])

    def test_unknown_kinds_are_named(self):
        self.write("a.txt", "a")
        byte_level = TOKENIZER["pre_tokenizer"]
        split = small_tokenizer("llama3")["pre_tokenizer"]["pretokenizers"][0]
        changes = [
            ("normalizer", {"type": "Lowercase"}, "the normalizer Lowercase"),
            ("pre_tokenizer", None, "no pre-tokenizer"), ("pre_tokenizer", {"type": "Metaspace"}, "Metaspace"),
            ("pre_tokenizer", {**byte_level, "add_prefix_space": True}, "add_prefix_space"),
            ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [{"type": "Digits"}, byte_level]},
             "[Digits, ByteLevel]"),
            ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [
                {**split, "pattern": {"Regex": r"\h+"}}, {**byte_level, "use_regex": False}]}, '"\\h"'),
            ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [
                {**split, "behavior": "Removed"}, {**byte_level, "use_regex": False}]}, "Removed"),
            ("model", {**TOKENIZER["model"], "type": "WordPiece"}, "the model WordPiece"),
            ("model", {**TOKENIZER["model"], "dropout": 0.1}, "dropout"),
            ("model", {**TOKENIZER["model"], "byte_fallback": True}, "byte_fallback"),
            ("model", {**TOKENIZER["model"], "end_of_word_suffix": "</w>"}, "end_of_word_suffix"),
            ("post_processor", {"type": "BertProcessing"}, "the post-processor BertProcessing"),
            ("decoder", {"type": "WordPiece"}, "the decoder WordPiece"), ("truncation", {}, "truncation"),
            ("added_tokens", [{**TOKENIZER["added_tokens"][0], "lstrip": True}], "with lstrip"),
        ]
        for key, value, says in changes:
            with self.subTest(says):
                self.write("t.json", json.dumps({**TOKENIZER, key: value}))
                self.refused("a.txt", says=["t.json: " + key, says])


if __name__ == "__main__":
    unittest.main()
