"""coda_tokenize as a user runs it: inputs of every kind, bad ones included, and its command line."""

import bz2
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import unittest

from tokenizing import BYTES, END, PROGRAM, ROOT, RUNTIME, SPECIAL, USAGE, IDS, ProgramTestCase, ids, small_tokenizer

sys.path.insert(0, os.path.join(ROOT, "tests"))
from sanitizer import sanitized  # noqa: E402

# Runs a program and prints its peak memory in KiB. A process's peak begins at the peak of the process that started it,
# so this has to be a small one.
PEAK_MEMORY = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stderr=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


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
        if not sanitized(PROGRAM):  # whose shadow memory is many times what a program uses
            self.assertLess(peak, 64 << 20)
        size = os.path.getsize(self.path("o.bin"))
        self.assertEqual(size, 1024 + 2 * (length + 1))
        write_line("a.jsonl", b'{"text": "', b'"}\n')
        self.tokenize("a.jsonl", "--overwrite")
        self.assertEqual(os.path.getsize(self.path("o.bin")), size)

    def test_text_that_cannot_be_cut(self):
        self.write("a.txt", b"x" * (65 << 20))
        self.refused("a.txt", says=["a.txt", "no place where the tokenizer surely keeps two characters apart"])

    def test_documents_are_marked_as_the_tokenizers_files_say(self):
        self.write("a.txt", "ab")
        level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
        tokenizer = small_tokenizer("llama3", added=["<s>"])
        token = {each["content"]: each["id"] for each in tokenizer["added_tokens"]}
        turn = token["<|eot_id|>"]
        template = {"type": "TemplateProcessing", "pair": [], "single": [
            {"SpecialToken": {"id": "<|eot_id|>", "type_id": 0}}, {"SpecialToken": {"id": "<s>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|eot_id|>", "type_id": 0}}],
            "special_tokens": {name: {"id": name, "ids": [token[name]], "tokens": [name]}
                               for name in ("<|eot_id|>", "<s>")}}
        both = {"type": "Sequence", "processors": [level, template]}
        llama = {"tokenizer_class": "LlamaTokenizerFast", "bos_token": "<|eot_id|>"}
        known = [token["<|begin_of_text|>"]], [token["<|end_of_text|>"]]
        for post, settings, (begin, end), says in (
                (None, None, known, "the tokenizer has this token"),
                (both, None, ([turn, token["<s>"]], [turn]), "tokenizer.json's template"),
                (None, llama, ([turn], known[1]), "default of LlamaTokenizerFast"),
                (both, {**llama, "add_bos_token": False}, ([], [turn]), "add_bos_token false")):
            with self.subTest(says):
                self.write("tokenizer.json", json.dumps({**tokenizer, "post_processor": post}).encode())
                if settings:
                    self.write("tokenizer_config.json", json.dumps(settings).encode())
                done = self.run_program("--tokenizer", "tokenizer.json", "--out", "o", "--overwrite", "a.txt")
                self.assertEqual(self.tokens(), [*begin, *ids("ab"), *end])
                self.assertIn(says, done.stderr)

    def test_special_tokens_in_text(self):
        text = "a<|endoftext|>b<|endoftext|<|endoftext|>"
        self.write("a.txt", text)
        self.tokenize("a.txt")
        self.assertEqual(self.tokens(), [END, *ids("a"), END, *ids("b<|endoftext|"), END])


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
        byte_level = BYTES["pre_tokenizer"]
        split = small_tokenizer("llama3")["pre_tokenizer"]["pretokenizers"][0]
        changes = [
            ("normalizer", {"type": "Lowercase"}, "the normalizer Lowercase"),
            ("normalizer", {"type": "Replace", "pattern": {"Regex": " +"}, "content": "_"}, "a Replace by a Regex"),
            ("pre_tokenizer", {"type": "Whitespace"}, "the pre-tokenizer Whitespace"),
            ("pre_tokenizer", {"type": "Metaspace", "replacement": "ab"}, "the replacement is one character"),
            ("pre_tokenizer", {**byte_level, "add_prefix_space": True}, "add_prefix_space"),
            ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [byte_level, {"type": "Digits"}]},
             "Digits after ByteLevel"),
            ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [
                {**split, "pattern": {"Regex": r"\h+"}}, {**byte_level, "use_regex": False}]}, '"\\h"'),
            ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [
                {**split, "behavior": "Kept"}, {**byte_level, "use_regex": False}]}, "there is no behavior Kept"),
            ("model", {**BYTES["model"], "type": "WordPiece"}, "the model WordPiece"),
            ("model", {**BYTES["model"], "dropout": 0.1}, "dropout"),
            ("model", {**BYTES["model"], "end_of_word_suffix": "</w>"}, "a marker of word pieces"),
            ("post_processor", {"type": "BertProcessing"}, "the post-processor BertProcessing"),
            ("decoder", {"type": "WordPiece"}, "the decoder WordPiece"),
            ("decoder", {"type": "Sequence", "decoders": [
                {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 0, "stop": 1}]}, "a Strip of the end"),
            ("added_tokens", [{**BYTES["added_tokens"][0], "id": 300}], "the library gives it the id 256"),
        ]
        for key, value, says in changes:
            with self.subTest(says):
                self.write("t.json", json.dumps({**BYTES, key: value}))
                self.refused("a.txt", says=["t.json: " + key, says])

    def test_a_decoder_is_needed_for_characters(self):
        self.write("a.txt", "a")
        self.write("t.json", json.dumps({**BYTES, "pre_tokenizer": None, "decoder": None}))
        self.refused("a.txt", says=["t.json: decoder", "no decoder"])

    def test_a_sentencepiece_model_is_refused_with_the_cure(self):
        self.write("a.txt", "a")
        self.write("tokenizer.model", b"\n\x0e\n\x05<unk>")
        done = self.run_program("--tokenizer", "tokenizer.model", "--out", "o", "a.txt", expect=RUNTIME)
        self.assertIn("save_pretrained", done.stderr)

    def test_tokens_of_tokenizer_config(self):
        """Its added_tokens_decoder adds what tokenizer.json lacks, and its flags win."""
        self.write("tokenizer.json", json.dumps(BYTES))
        self.write("tokenizer_config.json", json.dumps({"added_tokens_decoder": {
            "256": {"content": "<|endoftext|>", "special": True, "lstrip": True},
            "257": {"content": "<tool>", "special": False}}}))
        self.write("a.txt", "a  <|endoftext|><tool>")
        self.run_program("--tokenizer", "tokenizer.json", "--out", "o", "--bos", "none", "--eos", "none", "a.txt")
        self.assertEqual(self.tokens(), [*ids("a"), END, END + 1])
        self.write("tokenizer_config.json", json.dumps({"added_tokens_decoder": {"0300": {"content": "<tool>"}}}))
        done = self.run_program("--tokenizer", "tokenizer.json", "--out", "p", "a.txt", expect=RUNTIME)
        self.assertIn("tokenizer_config.json: added_tokens_decoder.0300: <tool> has id 300 here", done.stderr)

    def test_json_as_python_reads_it(self):
        self.write("a.jsonl", '{"n": NaN, "m": [1e999, -Infinity], "text": "a", "text": "b\\ud83d\\ude42"}\n'
                              '{"text": "c", "beside": "\\ud83d"}\n')
        self.tokenize("a.jsonl", "--bos", "none")
        self.assertEqual(self.tokens(), [*ids("b\U0001f642"), *ids("c")])
        self.write("b.jsonl", '{"text": "a\\ud83d\\u0041"}\n')
        self.refused("b.jsonl", "--overwrite", says=["b.jsonl: line 1", "half of a surrogate pair"])
        self.tokenize("b.jsonl", "--bos", "none", "--overwrite", "--invalid-utf8", "replace")
        self.assertEqual(self.tokens(), ids("a\ufffdA"))


if __name__ == "__main__":
    unittest.main()
