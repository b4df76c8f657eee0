"""What the tests of coda_tokenize share: the program, a folder of a test's own, shards, tokenizers, random text.

The environment variable CODA_TOKENIZE is the program's path (default: build/cpu/bin/coda_tokenize).
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PROGRAM = os.path.abspath(os.environ.get("CODA_TOKENIZE", os.path.join(ROOT, "build/cpu/bin/coda_tokenize")))
sys.path.append(os.path.join(ROOT, "tools"))
import token_shard  # noqa: E402

SHARED = os.environ.get("CODA_SHARED_DATA", os.path.join(ROOT, "..", "shared", "data"))

DONE, RUNTIME, USAGE, INTERRUPTED = 0, 1, 2, 130

REGEXES = {
    "gpt2": None,  # ByteLevel's own
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
              r"|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
             r"|\s+(?!\S)|\s+",
}
SPECIAL = {"gpt2": ["<|endoftext|>"],
           "llama3": ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|reserved_special_token_0|>"],
           "qwen2": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]}


def shared(name):
    """The path of a file of real data, None where it is not."""
    path = os.path.join(SHARED, name)
    return path if os.path.exists(path) else None


def byte_alphabet():
    """The character of every byte in a byte-level vocabulary."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{byte: chr(byte) for byte in printable}, **{byte: chr(256 + i) for i, byte in enumerate(others)}}


def small_tokenizer(family, merges=("h e", "l l", "he ll", "hell o", "Ġ w", "o r"), added=()):
    """A tokenizer.json of `family` with few merges, as the value of its JSON."""
    tokens = [*byte_alphabet().values(), *(merge.replace(" ", "") for merge in merges)]
    vocab = {token: i for i, token in enumerate(tokens)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    names = [*SPECIAL[family], *added]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": family == "gpt2"}
    split = {"type": "Split", "pattern": {"Regex": REGEXES[family]}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": len(vocab) + i, "content": name, **flags} for i, name in enumerate(names)],
        "normalizer": {"type": "NFC"} if family == "qwen2" else None,
        "pre_tokenizer": byte_level if family == "gpt2" else {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "ignore_merges": family == "llama3", "vocab": vocab, "merges": list(merges)},
    }


def shard_tokens(path):
    """The tokens of a shard, its header checked."""
    with open(path, "rb") as file:
        data = file.read()
    assert not any(data[12:token_shard.HEADER_BYTES]), path
    return list(token_shard.shard_tokens(data))


class RandomText:
    """Seeded documents of everything that pre-tokenizers treat apart."""

    SPACES = [" ", " ", " ", "  ", "    ", "\t", "\n", "\n\n", "\r\n", "\r", "\u00a0", "\u2003", "\u3000", "\x0b", "\x0c",
              "\x85", "\u2028", "\u200b", "\u180e", "\ufeff", "\x1c", "\x00"]
    WORDS = ["hello", "world", "Straße", "naïve", "e\u0301te\u0301", "été", "Ελλάς", "Привет", "мир", "שלום", "مرحبا",
             "नमस्ते", "สวัสดี", "한국어", "\u1112\u1161\u11ab", "日本語", "中文字符", "ﬁne", "İstanbul", "ſ", "K", "Å", "Å"]
    OTHER = ["'s", "'S", "'ſ", "'t", "'re", "'RE", "'Ve", "'ll", "'LL", "'d", "'m", "’s", "'", "''", "!", "?!", "...",
             "—", "“", "”", "$", "€", "+=", "->", "{", "}", "();", "//", "#", "\\n", "😀", "👩‍👩‍👧", "🇩🇪", "\u0301", "\u20dd",
             "½", "²", "٣", "৪", "Ⅷ", "0", "12", "345", "6789", "1234567", "3.14", "1e-9", "_", "__init__", "\U0001d49c"]
    CODE = ["def f(x):\n    return x ** 2\n", "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\n", "SELECT * FROM t;\r\n",
            "<div class=\"a\">\n  </div>\n", "    \n\n        if x:\n", "import os, sys\n\n\n"]

    def __init__(self, seed, specials):
        self.random = random.Random(seed)
        self.specials = specials

    def special(self):
        token = self.random.choice(self.specials)
        cut = self.random.randrange(1, len(token))
        return self.random.choice([token, token, token[:cut], token[cut:], token[:cut] + " " + token[cut:],
                                   token.upper(), "<" + token, token[:-1] + token])

    def character(self):
        while True:
            code = self.random.choice([self.random.randrange(0x80), self.random.randrange(0x800),
                                       self.random.randrange(0x3000), self.random.randrange(0x10000)])
            if not 0xD800 <= code < 0xE000:
                return chr(code)

    def piece(self):
        kind = self.random.randrange(12)
        if kind < 4:
            return self.random.choice(self.SPACES) * self.random.choice([1, 1, 1, 2, 3])
        if kind < 7:
            return self.random.choice(self.WORDS)
        if kind < 9:
            return self.random.choice(self.OTHER)
        if kind == 9:
            return self.random.choice(self.CODE)
        if kind == 10:
            return self.special()
        return self.character() * self.random.choice([1, 1, 2, 70])

    def document(self):
        return "".join(self.piece() for _ in range(self.random.choice([1, 2, 3, 10, 40, 200])))


class TokenizeTestCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="coda-tokenize-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
        return self.path(name)

    def files(self):
        return sorted(os.listdir(self.folder))

    def run_program(self, *arguments, expect=DONE, stdin=b"", **options):
        """Runs in the test's folder; the result's stderr is text, its stdout bytes."""
        done = subprocess.run([PROGRAM, *map(str, arguments)], cwd=self.folder, input=stdin, capture_output=True,
                              timeout=300, check=False, **options)
        done.stderr = done.stderr.decode()
        self.assertEqual(done.returncode, expect, f"{arguments}: {done.stderr}")
        return done


BYTES = small_tokenizer("gpt2", merges=())  # without merges every byte is a token
IDS = {byte: i for i, byte in enumerate(byte_alphabet())}
END = len(IDS)  # <|endoftext|>


def ids(text):
    return [IDS[byte] for byte in (text.encode() if isinstance(text, str) else text)]


class ProgramTestCase(TokenizeTestCase):
    """With a tokenizer of single bytes as t.json."""

    def setUp(self):
        super().setUp()
        self.write("t.json", json.dumps(BYTES))

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
