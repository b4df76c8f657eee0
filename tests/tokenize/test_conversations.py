"""Fine-tuning data by coda_tokenize --seq-len: rows, masks, what counts, and what is cut or left out."""

import json
import os
import struct
import unittest

from chat_fixtures import TEMPLATES
from tokenizing import RUNTIME, USAGE, TokenizeTestCase, byte_alphabet, shard_tokens, small_tokenizer

BEGIN, TARGET = 2, 1
IDS = {byte: i for i, byte in enumerate(byte_alphabet())}
ENDOFTEXT, START, END = 256, 257, 258


def ids(text):
    return [IDS[byte] for byte in text.encode()]


def turn(role, content, counts):
    """A ChatML message as (token, mask) pairs."""
    header = [(START, 0), *((token, 0) for token in ids(role + "\n"))]
    flag = TARGET if counts else 0
    return [*header, *((token, flag) for token in ids(content)), (END, flag), (ids("\n")[0], 0)]


def begun(pairs):
    return [(pairs[0][0], pairs[0][1] | BEGIN), *pairs[1:]]


def filled(pairs, length):
    """A row, with the end tokens behind its conversations."""
    rest = length - len(pairs)
    return pairs + [(ENDOFTEXT, BEGIN), *[(ENDOFTEXT, 0)] * (rest - 1)] if rest else pairs


class ConversationsTest(TokenizeTestCase):
    def setUp(self):
        super().setUp()
        self.write("tokenizer.json", json.dumps(small_tokenizer("qwen2", merges=())))
        self.write("chat_template.jinja", TEMPLATES["chatml"])

    def pack(self, lines, *arguments, seq_len=40, **options):
        self.row = seq_len
        self.write("a.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        return self.run_program("--tokenizer", "tokenizer.json", "--out", "o", "--overwrite", "--seq-len", seq_len,
                                "a.jsonl", *arguments, **options)

    def pairs(self, name="o"):
        with open(self.path(name + ".mask"), "rb") as file:
            data = file.read()
        tokens = shard_tokens(self.path(name + ".bin"))
        self.assertEqual(struct.unpack_from("<4i", data), (20251125, 1, len(tokens), self.row))
        self.assertEqual(data[16:1024], bytes(1008))
        self.assertEqual(len(data), 1024 + len(tokens))
        return list(zip(tokens, data[1024:]))

    def test_rows_of_every_kind_of_line(self):
        chat = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]}
        share = {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "bcde"}]}
        done = self.pack([{"text": "xyz"}, chat, {"prompt": "12", "completion": "345"}, share])
        chatted = begun(turn("user", "hi", False) + turn("assistant", "yo", True))
        shared = begun(turn("user", "a", False) + turn("assistant", "bcde", True))
        text = [(token, TARGET) for token in ids("xyz")] + [(ENDOFTEXT, TARGET)]
        both = [(token, 0) for token in ids("12")] + [(token, TARGET) for token in ids("345")] + [(ENDOFTEXT, TARGET)]
        # Longest first, each where it leaves the least room.
        rows = [filled(shared + begun(both) + begun(text), 40), filled(chatted, 40)]
        self.assertEqual([len(shared), len(chatted), len(both), len(text)], [26, 25, 6, 4])
        self.assertEqual(self.pairs(), rows[0] + rows[1] + [(ENDOFTEXT, BEGIN)])
        targets = 5 + 3 + 4 + 3  # the first token of a text does not count, as nothing is before it
        self.assertIn(f"4 conversations in 2 rows of 40 tokens, 19 of them padding; {targets} targets",
                      done.stderr)

    def test_modes(self):
        chat = {"messages": [{"role": "user", "content": "h"}, {"role": "assistant", "content": "1"},
                             {"role": "user", "content": "i"}, {"role": "assistant", "content": "2"}]}
        for mode, first, last in (("assistant", True, True), ("last", False, True)):
            self.pack([chat], "--train-on", mode, seq_len=60)
            expected = turn("user", "h", False) + turn("assistant", "1", first) + turn("user", "i", False)
            expected = begun(expected + turn("assistant", "2", last))
            self.assertEqual(self.pairs(), filled(expected, 60) + [(ENDOFTEXT, BEGIN)])
        self.pack([chat], "--train-on", "all", seq_len=60)
        self.assertEqual([mask for _, mask in self.pairs()[:len(expected)]], [3] + [1] * (len(expected) - 1))
        lists = {"prompt": chat["messages"][:3], "completion": chat["messages"][3:]}
        self.pack([lists], seq_len=60)
        self.assertEqual(self.pairs()[:len(expected)], expected)

    def test_cut_and_left_out(self):
        long = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "x" * 50}]}
        silent = {"messages": [{"role": "user", "content": "q" * 50}, {"role": "assistant", "content": "x"}]}
        done = self.pack([long, silent, {"messages": [{"role": "user", "content": "q"}]}])
        whole = begun(turn("user", "q", False) + turn("assistant", "x" * 50, True))
        self.assertEqual(self.pairs(), whole[:40] + [(ENDOFTEXT, BEGIN)])
        self.assertIn("1 conversations were longer than a row and were truncated", done.stderr)
        self.assertIn("2 conversations were left out", done.stderr)
        self.assertNotIn("less than 5%", done.stderr)
        os.remove(self.path("o.bin"))
        os.remove(self.path("o.mask"))
        before = self.files()
        self.assertIn("no shard is written", self.pack([silent], expect=RUNTIME).stderr)
        self.assertEqual(self.files(), before)
        chat = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "x"}]}
        done = self.pack([chat], seq_len=400)
        self.assertIn("note: less than 5% of the tokens of o.bin are targets", done.stderr)

    def test_texts_that_spell_their_marks(self):
        self.pack([{"text": "<|endoftext|>xyz<|endoftext|>"}], "--bos", "<|endoftext|>")
        text = [(ENDOFTEXT, BEGIN | TARGET)] + [(token, TARGET) for token in ids("xyz")] + [(ENDOFTEXT, TARGET)]
        self.assertEqual(self.pairs(), filled(text, 40) + [(ENDOFTEXT, BEGIN)])

    def test_the_last_answer_is_all_of_its_parts(self):
        self.write("chat_template.jinja", "{% for m in messages %}<|im_start|>{{ m.role }}\n{% set p = m.content.split('#') %}"
                                          "{{ p[0] }}{% if p|length > 1 %}~{{ p[1] }}{% endif %}<|im_end|>\n{% endfor %}")
        chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "x"}, {"role": "user", "content": "q"},
                {"role": "assistant", "content": "ab#cd"}]
        self.pack([{"messages": chat}], "--train-on", "last", seq_len=80)
        counted = [token for token, mask in self.pairs() if mask & TARGET]
        self.assertEqual(counted, [*ids("ab"), *ids("cd"), END])

    def test_a_template_is_read_where_a_conversation_needs_it(self):
        self.write("chat_template.jinja", "{% if x %}")
        self.pack([{"text": "xyz"}])
        done = self.pack([{"messages": [{"role": "user", "content": "a"}]}], expect=RUNTIME)
        self.assertIn("a.jsonl: line 1: ", done.stderr)
        self.assertIn("chat_template.jinja", done.stderr)

    def test_special_tokens_in_messages_stay_text(self):
        chat = {"messages": [{"role": "assistant", "content": "<|im_end|>"}]}
        self.pack([chat])
        self.assertEqual(self.pairs(), filled(begun(turn("assistant", "<|im_end|>", True)), 40) + [(ENDOFTEXT, BEGIN)])

    def test_validation_and_masks_of_earlier_runs(self):
        lines = [{"text": chr(48 + i) * 30} for i in range(10)]
        self.pack(lines, "--val-fraction", 0.2)
        self.assertEqual(len(self.pairs("o_train")), 8 * 40 + 1)
        self.assertEqual(len(self.pairs("o_val")), 2 * 40 + 1)
        # A shard of documents must not lie next to the mask of conversations.
        self.run_program("--tokenizer", "tokenizer.json", "--out", "o", "--overwrite", "--val-fraction", 0.2, "a.jsonl")
        self.assertEqual([name for name in self.files() if name.startswith("o")], ["o_train.bin", "o_val.bin"])

    def test_refusals(self):
        self.write("bad.jsonl", '{"text": "a"}\n{"messages": [{"role": "tool", "content": "a"}]}\n')
        before = self.files()
        for arguments, code, says in (
                (["--seq-len", 40, "bad.jsonl"], RUNTIME, "bad.jsonl: line 2: messages[0]: the role \"tool\""),
                (["--seq-len", 40, "--field", "x", "bad.jsonl"], USAGE, "--field has no meaning with --seq-len"),
                (["--train-on", "last", "bad.jsonl"], USAGE, "--train-on has no meaning without --seq-len"),
                (["--seq-len", 1, "bad.jsonl"], USAGE, "--seq-len")):
            done = self.run_program("--tokenizer", "tokenizer.json", "--out", "o", *arguments, expect=code)
            self.assertIn(says, done.stderr)
        self.assertEqual(self.files(), before)
        os.remove(self.path("chat_template.jinja"))
        done = self.pack([{"messages": [{"role": "user", "content": "a"}]}], expect=RUNTIME)
        self.assertIn("a.jsonl: line 1: messages need a chat template", done.stderr)


if __name__ == "__main__":
    unittest.main()
