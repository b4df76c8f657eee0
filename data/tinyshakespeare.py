#!/usr/bin/env python3
"""Tiny Shakespeare: 1.1 MB of plays. For a first run, and for comparisons.

Without --tokenizer the text itself is the data, its bytes the tokens. With one, the training shard is the text up to
the last blank line before 90% of its characters, the validation shard the rest.
"""

import os
import sys

import fetch
import prepare

TEXT = fetch.Source(
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    "tinyshakespeare.txt",
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
)


def main() -> None:
    given = prepare.parser_of("tinyshakespeare", __doc__, None).parse_args()
    if given.tokenizer is None:
        prepare.print_config({"vocab_size": 256}, fetch.fetch(TEXT, given.folder))
        return
    program = prepare.find_program(given.program)
    text = fetch.fetch(TEXT, given.folder)
    tokenizer = prepare.tokenizer_file(given.tokenizer, given.folder)
    stem = os.path.join(given.folder, "tinyshakespeare")
    val, train = sorted(
        prepare.tokenize(program, tokenizer, [text], stem, "--val-fraction", "0.1", "--split-at", "blank-line"),
        key=lambda path: path.endswith("_train.bin"),
    )
    prepare.print_config(prepare.model_keys(tokenizer), train, val, tokenizer)


if __name__ == "__main__":
    sys.exit(prepare.run(main))
