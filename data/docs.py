#!/usr/bin/env python3
"""Documents of your own, for configs/docs_100m.json: JSON Lines, each line an object with a document's text in "text".

Downloads no documents. Files may be plain, .gz or .zst; whole documents, evenly spread, are for validation. One pass of
docs_100m takes 25.6 million training tokens, about 78 MB of technical text.
"""

import os
import sys

import fetch
import prepare

VALIDATION = 0.0075  # of 25.8 million tokens, it leaves docs_100m one pass of 780 steps


def sources(given: list[str] | None, folder: str) -> list[str]:
    files = given or [os.path.join(folder, "docs.jsonl.zst")]
    for path in files:
        if not os.path.isfile(path):
            raise fetch.Problem(
                f"{path}: there is no such file. This script downloads no documents: put yours there, one "
                '{"text": "..."} per line, or name them with --source FILE'
            )
    return files


def main() -> None:
    parser = prepare.parser_of("docs", __doc__, "gpt2")
    parser.add_argument(
        "--source", action="append", metavar="FILE", help="may be repeated (default: docs.jsonl.zst in the folder)"
    )
    parser.add_argument(
        "--val-fraction", type=prepare.fraction, default=VALIDATION, metavar="F", help=f"default: {VALIDATION}"
    )
    given = parser.parse_args()
    program = prepare.find_program(given.program)
    files = sources(given.source, given.folder)
    tokenizer = prepare.tokenizer_file(given.tokenizer, given.folder)
    os.makedirs(given.folder, exist_ok=True)
    stem = os.path.join(given.folder, "docs")
    shards = prepare.tokenize(program, tokenizer, files, stem, "--val-fraction", str(given.val_fraction))
    train, val = (next(path for path in shards if path.endswith(f"_{part}.bin")) for part in ("train", "val"))
    prepare.print_config(prepare.model_keys(tokenizer), train, val, tokenizer)


if __name__ == "__main__":
    sys.exit(prepare.run(main))
