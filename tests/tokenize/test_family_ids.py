"""Ids and decoded text of every family's made-up tokenizer (families.py) equal family_ids.json.

`python3 -B test_family_ids.py --write` makes that file with the `tokenizers` package (0.23.3).
"""

import json
import os
import sys
import unittest

sys.dont_write_bytecode = True

from families import FAMILIES, HostileText, build  # noqa: E402
from tokenizing import TokenizeTestCase, shard_tokens  # noqa: E402

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "family_ids.json")
FIXED = ["Hello world, it is 2024!", " a  b\n c", "a▁b <s> c</s>", "東京 ½ \U0001f642 é", "ab<|user|>  x <|end|> \n y"]


def texts(name):
    hostile = HostileText(5, build(name))
    return [*FIXED, *(hostile.document()[:60] for _ in range(15))]


def expected(name):
    import tokenizers
    package = tokenizers.Tokenizer.from_str(json.dumps(build(name)))
    rows = []
    for text in texts(name):
        ids = package.encode(text, add_special_tokens=False).ids
        rows.append({"text": text, "ids": ids, "decoded": package.decode(ids, skip_special_tokens=False)})
    return rows


class FamilyIdsTest(TokenizeTestCase):
    def test_ids(self):
        with open(FILE, encoding="utf-8") as file:
            families = json.load(file)
        self.assertEqual(list(families), list(FAMILIES))
        for name, rows in families.items():
            self.write("made.json", json.dumps(build(name)))
            for row in rows:
                if not row["ids"]:
                    continue
                with self.subTest(family=name, text=row["text"]):
                    self.write("in.txt", row["text"])
                    self.run_program("--tokenizer", "made.json", "--bos", "none", "--eos", "none", "--out", "out",
                                     "--overwrite", "in.txt")
                    self.assertEqual(shard_tokens(self.path("out.bin")), row["ids"])
                    if any(not c["content"].isascii() for c in build(name)["added_tokens"]):
                        continue  # the package decodes these through the byte alphabet
                    decoded = self.run_program("--tokenizer", "made.json", "--decode", "out.bin").stdout
                    self.assertEqual(decoded.decode("utf-8", "replace"), row["decoded"])


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        with open(FILE, "w", encoding="utf-8") as file:
            rows = {name: expected(name) for name in FAMILIES}
            file.write("{\n" + ",\n".join(f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(row) for row in made) + "\n]"
                                         for name, made in rows.items()) + "\n}\n")
    else:
        unittest.main()
