#!/usr/bin/env python3
"""Measures coda_tokenize against the `tokenizers` package on real text, turn by turn on the same cores.

    tools/bench/tokenize_speed.py --program build/cpu/bin/coda_tokenize --tokenizer tokenizer.json [--megabytes 100]
                                  [--repeats 3] [--text FILE_OR_FOLDER ...] [--json OUT]

The text comes from the files given (default: this Python's own library sources and /usr/share/doc), cut into documents
of about 4 kB at line ends, shuffled with a fixed seed and repeated up to the size. The package encodes the documents
from memory, 1000 at a time, with encode_batch and with encode_batch_fast; coda_tokenize is timed as a whole process: it
reads JSON lines and writes shards. The ids are compared. Prints medians, MB (10^6 bytes of UTF-8 text) per second.
"""

import argparse
import array
import gzip
import hashlib
import itertools
import json
import os
import pathlib
import platform
import random
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from replace_file import replace_file  # noqa: E402
from token_shard import shard_tokens  # noqa: E402

BATCH = 1000
DOCUMENT_BYTES = 4096


def texts_of(roots):
    """The valid UTF-8 texts below `roots`, each once, in a fixed order."""
    seen = set()
    for root in map(pathlib.Path, roots):
        files = sorted(p for p in root.rglob("*") if p.is_file()) if root.is_dir() else [root]
        for path in files:
            if root.is_dir() and not (path.suffix in {".py", ".txt", ".gz", ".md", ".rst", ".html", ""}):
                continue
            try:
                data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
                text = data.decode()
            except (OSError, EOFError, UnicodeDecodeError):
                continue
            digest = hashlib.sha256(data).digest()
            if text and "\0" not in text and digest not in seen:
                seen.add(digest)
                yield text


def documents_of(roots, size):
    """Documents of `size` bytes in all, and how many bytes of them are different text."""
    documents, lines, held = [], [], 0
    for text in texts_of(roots):
        for line in text.splitlines(keepends=True):
            lines.append(line)
            held += len(line)
            if held >= DOCUMENT_BYTES:
                documents.append("".join(lines))
                lines, held = [], 0
    random.Random(1).shuffle(documents)
    result, total = [], 0
    for document in itertools.cycle(documents):
        if total >= size:
            break
        result.append(document)
        total += len(document.encode())
    unique = sum(len(d.encode()) for d in documents[:len(result)])
    return result, total, unique


def time_package(method, documents):
    """Seconds, and a hash of all ids."""
    digest = hashlib.sha256()
    seconds = 0.0
    for first in range(0, len(documents), BATCH):
        batch = documents[first:first + BATCH]
        begin = time.perf_counter()
        encodings = method(batch, add_special_tokens=False)
        seconds += time.perf_counter() - begin
        for encoding in encodings:
            digest.update(b"".join(i.to_bytes(4, "little") for i in encoding.ids))
    return seconds, digest.hexdigest()


def time_program(program, tokenizer, folder, threads):
    begin = time.perf_counter()
    subprocess.run([program, "--tokenizer", tokenizer, "--bos", "none", "--eos", "none", "--threads", str(threads),
                    "--overwrite", "--out", f"{folder}/out", f"{folder}/in.jsonl"], check=True, stderr=subprocess.PIPE)
    seconds = time.perf_counter() - begin
    data = pathlib.Path(f"{folder}/out.bin").read_bytes()
    return seconds, hashlib.sha256(array.array("I", shard_tokens(data)).tobytes()).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/cpu/bin/coda_tokenize")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--text", nargs="+", default=[sysconfig.get_path("stdlib"), "/usr/share/doc"])
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", help="write the raw measurements here")
    arguments = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(arguments.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    try:
        import tokenizers
    except ImportError:
        sys.exit("tokenize_speed.py: the Python package tokenizers is not installed (pip install tokenizers)")

    documents, size, unique = documents_of(arguments.text, arguments.megabytes * 1e6)
    print(f"{len(documents)} documents, {size / 1e6:.1f} MB, {unique / 1e6:.1f} MB of it different text; "
          f"{arguments.threads} threads, {platform.processor() or platform.machine()}, tokenizers "
          f"{tokenizers.__version__}", flush=True)
    package = tokenizers.Tokenizer.from_file(arguments.tokenizer)
    package.encode_special_tokens = False
    seconds = {"coda_tokenize": [], "encode_batch": [], "encode_batch_fast": []}
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/in.jsonl", "w", encoding="utf-8") as file:
            for document in documents:
                file.write(json.dumps({"text": document}, ensure_ascii=False) + "\n")
        for _ in range(arguments.repeats):
            digests = set()
            for name, times in seconds.items():
                took, digest = (time_program(arguments.program, arguments.tokenizer, folder, arguments.threads)
                                if name == "coda_tokenize" else time_package(getattr(package, name), documents))
                times.append(took)
                digests.add(digest)
                print(f"{name:18} {took:7.2f} s  {size / took / 1e6:7.1f} MB/s", flush=True)
            if len(digests) != 1:
                sys.exit("tokenize_speed.py: the ids differ")
    rates = {name: size / statistics.median(times) / 1e6 for name, times in seconds.items()}
    for name, rate in rates.items():
        print(f"median {name:18} {rate:7.1f} MB/s  coda_tokenize is {rates['coda_tokenize'] / rate:.2f}x")
    if arguments.json:
        replace_file(arguments.json, json.dumps(
            {"bytes": size, "threads": arguments.threads, "tokenizers": tokenizers.__version__, "text": arguments.text,
             "seconds": seconds, "mb_per_s": rates}, indent=1) + "\n")


if __name__ == "__main__":
    main()
