#!/usr/bin/env python3
"""TinyStories (version 2, by GPT-4): 2.2 GB of short stories, with a validation set of its own.

A story is a document; the files part them by <|endoftext|>. Needs 6 GB of disk.
"""

import os
import sys
from collections.abc import Iterator

import fetch
import prepare

BASE = "https://huggingface.co/datasets/roneneldan/TinyStories/resolve/main/"
NAMES = {"train": "TinyStoriesV2-GPT4-train.txt", "val": "TinyStoriesV2-GPT4-valid.txt"}
END = "<|endoftext|>"


def stories(path: str) -> Iterator[str]:
    lines: list[str] = []
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            *ends, rest = line.split(END)
            for end in ends:
                if story := "".join([*lines, end]).strip():
                    yield story
                lines = []
            lines.append(rest)
    if story := "".join(lines).strip():
        yield story


def main() -> None:
    parser = prepare.parser_of("tinystories", __doc__, "gpt2")
    parser.add_argument("--shard-tokens", type=int, default=100_000_000, metavar="N", help="default: 100000000")
    given = parser.parse_args()
    program = prepare.find_program(given.program)
    tokenizer = prepare.tokenizer_file(given.tokenizer, given.folder)
    shards = {}
    for part, name in NAMES.items():
        text = fetch.fetch(fetch.Source(BASE + name, name), given.folder)
        lines = os.path.join(given.folder, f"{part}.jsonl.gz")
        prepare.derived(lines, [text], lambda: prepare.write_jsonl(stories(text), lines))
        shards[part] = prepare.tokenize(
            program, tokenizer, [lines], os.path.join(given.folder, part), "--shard-tokens", str(given.shard_tokens)
        )
    train, val = (prepare.pattern_of(shards[part]) for part in ("train", "val"))
    prepare.print_config(prepare.model_keys(tokenizer), train, val, tokenizer)


if __name__ == "__main__":
    sys.exit(prepare.run(main))
