#!/usr/bin/env python3
"""FineWeb-Edu, the sample of 10 billion tokens: web pages chosen for their educational value, 14 files of 2 GB.

The files are Parquet; reading them needs pyarrow (pip install pyarrow). A file needs 6 GB of disk and gives about 0.7
billion tokens. Of the pages --val-fraction are for validation.
"""

import argparse
import os
import sys
from collections.abc import Iterator

import fetch
import prepare

BASE = "https://huggingface.co/datasets/HuggingFaceFW/fineweb-edu/resolve/main/sample/10BT/"
FILES = 14


def pages(path: str) -> Iterator[str]:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=1024, columns=["text"]):
            yield from (text for text in batch.column(0).to_pylist() if text)


def number_of_files(text: str) -> int:
    if not 1 <= (value := int(text)) <= FILES:
        raise argparse.ArgumentTypeError(f"{value} is not from 1 to {FILES}")
    return value


def main() -> None:
    parser = prepare.parser_of("fineweb_edu", __doc__, "gpt2")
    parser.add_argument(
        "--files", type=number_of_files, default=1, metavar="N", help=f"the first N of {FILES} (default: 1)"
    )
    parser.add_argument("--shard-tokens", type=int, default=100_000_000, metavar="N", help="default: 100000000")
    parser.add_argument("--val-fraction", type=prepare.fraction, default=0.005, metavar="F", help="default: 0.005")
    given = parser.parse_args()
    try:
        import pyarrow.parquet  # noqa: F401 - before 2 GB are downloaded for nothing
    except ImportError as error:
        raise fetch.Problem(f"the data set's Parquet files cannot be read ({error}): pip install pyarrow") from None
    program = prepare.find_program(given.program)
    tokenizer = prepare.tokenizer_file(given.tokenizer, given.folder)
    inputs = []
    for number in range(given.files):
        name = f"{number:03d}_00000.parquet"
        table = fetch.fetch(fetch.Source(BASE + name, name), given.folder)
        lines = os.path.join(given.folder, f"{number:03d}.jsonl.gz")
        inputs.append(prepare.derived(lines, [table], lambda: prepare.write_jsonl(pages(table), lines)))
    stem = os.path.join(given.folder, "fineweb_edu")
    shards = prepare.tokenize(
        program,
        tokenizer,
        inputs,
        stem,
        "--shard-tokens",
        str(given.shard_tokens),
        "--val-fraction",
        str(given.val_fraction),
    )
    train, val = (
        prepare.pattern_of([path for path in shards if os.path.basename(path).startswith(f"fineweb_edu_{part}")])
        for part in ("train", "val")
    )
    prepare.print_config(prepare.model_keys(tokenizer), train, val, tokenizer)


if __name__ == "__main__":
    sys.exit(prepare.run(main))
