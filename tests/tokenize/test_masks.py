"""Masks of conversations equal what the `tokenizers` package's offsets give, for made-up tokenizers of every family.

A token counts if one of its characters is the assistant's. CODA_MASK_CONVERSATIONS=10000 compares more than the 40 of each
family that are usual.
"""

import collections
import json
import os
import random
import unittest

from families import FAMILIES, HostileText, build
from tokenizing import TokenizeTestCase, shard_tokens

try:
    import tokenizers
except ImportError:
    tokenizers = None

CONVERSATIONS = int(os.environ.get("CODA_MASK_CONVERSATIONS", 40))
SEED = int(os.environ.get("CODA_MASK_SEED", 3))
ROW = 16384
TARGET, BEGIN = 1, 2
PLAIN = "{% for m in messages %}TAG{{ m.role }}\n{{ m.content }}TAG\n{% endfor %}"
BLOCKS = ("{% for m in messages %}TAG{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}TAG"
          "{% endgeneration %}{{ '\n' }}{% else %}{{ m.content }}TAG\n{% endif %}{% endfor %}")


def rendered(messages, tag, blocks):
    """The text, and the ranges of characters that count."""
    text, counted = "", []
    for message in messages:
        text += f"{tag}{message['role']}\n"
        begin = len(text)
        text += message["content"]
        end = len(text) + (len(tag) if blocks else 0)
        if message["role"] == "assistant" and begin < end:
            counted.append((begin, end))
        text += f"{tag}\n"
    return text, counted


def expected(encoding, tag, counted, blocks):
    """(ids, mask) of a conversation."""
    mask = [any(b < end and begin < e for b, e in counted) for begin, end in encoding.offsets]
    if not blocks:
        for b, e in counted:
            ends = [i for i, (begin, _) in enumerate(encoding.offsets) if begin >= e and encoding.ids[i] == tag]
            some = any(b < end and begin < e for begin, end in encoding.offsets)  # the tokens of all bytes may be missing
            for i in ends[:1] if some else ():
                mask[i] = True
    return tuple(encoding.ids), tuple((TARGET if each else 0) | (0 if i else BEGIN) for i, each in enumerate(mask))


@unittest.skipIf(tokenizers is None, "the Python package tokenizers is not installed (pip install tokenizers)")
class MasksTest(TokenizeTestCase):
    def conversations(self, made, text, dice):
        names = [token["content"] for token in made["added_tokens"] if token["special"]]
        while True:
            messages = []
            for turn in range(dice.randint(1, 6)):
                content = text.document()
                for name in names:
                    content = content.replace(name, "")
                # A normalized token may begin with a space, which must not be the message's.
                content = content.rstrip(" ▁")
                messages.append({"role": ("user", "assistant")[turn % 2], "content": content})
            # What a message spells is text here, and a special token there.
            if not any(name in rendered(messages, "\0", False)[0] for name in names):
                yield messages

    def packed(self):
        """(ids, mask) of every conversation of the shard."""
        tokens = shard_tokens(self.path("out.bin"))
        with open(self.path("out.mask"), "rb") as file:
            mask = file.read()[1024:]
        begins = [i for i, each in enumerate(mask) if each & BEGIN] + [len(mask)]
        pieces = [(tuple(tokens[b:e]), tuple(mask[b:e])) for b, e in zip(begins, begins[1:])]
        return collections.Counter(piece for piece in pieces if any(each & TARGET for each in piece[1]))

    def agree(self, name, blocks):
        made = json.loads(json.dumps(build(name)))
        if not any(token["special"] for token in made["added_tokens"]):
            next_id = 1 + max([*made["model"]["vocab"].values(), *(token["id"] for token in made["added_tokens"])])
            made["added_tokens"].append({**made["added_tokens"][0], "id": next_id, "content": "<|turn|>",
                                         "normalized": False, "special": True})
        flags = {token["content"]: token for token in made["added_tokens"] if token["special"]}
        tag = list(flags)[-1]
        package = tokenizers.Tokenizer.from_str(json.dumps(made))
        self.write("tokenizer.json", json.dumps(made))
        self.write("chat_template.jinja", (BLOCKS if blocks else PLAIN).replace("TAG", tag))
        source = self.conversations(made, HostileText(SEED, made), random.Random(SEED))
        wanted, lines = collections.Counter(), []
        for _ in range(CONVERSATIONS):
            messages = next(source)
            text, counted = rendered(messages, tag, blocks)
            each = expected(package.encode(text, add_special_tokens=False), package.token_to_id(tag), counted, blocks)
            if len(each[0]) <= ROW and any(flag & TARGET for flag in each[1]):
                wanted[each] += 1
                lines.append(json.dumps({"messages": messages}) + "\n")
        self.write("in.jsonl", "".join(lines))
        self.run_program("--tokenizer", "tokenizer.json", "--eos", tag, "--out", "out", "--overwrite", "--seq-len", ROW,
                         "in.jsonl")
        found = self.packed()
        missing, surplus = list(wanted - found), list(found - wanted)
        for ids, mask in missing[:1]:
            same = [m for i, m in surplus if i == ids]
            where = [i for i in range(len(ids)) if same and mask[i] != same[0][i]]
            near = [(package.id_to_token(ids[i]), mask[i], same[0][i]) for i in range(len(ids)) if where and -6 <= i - where[0] < 3]
            self.fail(f"{name}: {len(missing)} of {len(lines)} differ; ids equal: {bool(same)}; token, expected, found: {near}")
        self.assertEqual(surplus, [])


for family in FAMILIES:
    for kind in (False, True):
        setattr(MasksTest, f"test_{family}_{'blocks' if kind else 'messages'}",
                lambda self, name=family, blocks=kind: self.agree(name, blocks))


if __name__ == "__main__":
    unittest.main()
