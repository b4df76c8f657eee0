"""What the scripts of this folder share: the command line, running coda_tokenize, and the config lines they print."""

from __future__ import annotations

import argparse
import glob
import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable

import fetch

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # of the repository, or share/coda_train
GPT2 = fetch.Source("https://huggingface.co/openai-community/gpt2/resolve/main/tokenizer.json", "gpt2_tokenizer.json")
LLAMA3 = fetch.Source(
    "https://huggingface.co/meta-llama/Llama-3.2-1B/resolve/main/tokenizer.json", "llama3_tokenizer.json"
)
DONE = "tokenized.json"


def parser_of(name: str, description: str, tokenizer: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = "the bytes are the tokens" if tokenizer is None else tokenizer
    parser.add_argument(
        "--tokenizer",
        metavar="FILE",
        default=tokenizer,
        help="a Hugging Face tokenizer.json, or gpt2, which is downloaded, or llama3, which you put in place once "
        f"(default: {default})",
    )
    parser.add_argument("--folder", default=os.path.join("data", name), help=f"default: data/{name} in this folder")
    parser.add_argument("--program", metavar="FILE", help="coda_tokenize (default: the one built or installed)")
    return parser


def fraction(text: str) -> float:
    if not 0 < (value := float(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def find_program(given: str | None) -> str:
    if given:
        if not os.access(given, os.X_OK):
            raise fetch.Problem(f"--program {given}: is not a program")
        return os.path.abspath(given)
    for presets in (("hopper", "cpu"), ("*",)):  # a program with a sanitizer is slow
        paths = (os.path.join(ROOT, "build", preset, "bin", "coda_tokenize") for preset in presets)
        if built := [found for path in paths for found in glob.glob(path)]:
            return max(built, key=os.path.getmtime)
    installed = os.path.normpath(os.path.join(ROOT, "..", "..", "bin", "coda_tokenize"))
    if os.access(installed, os.X_OK):
        return installed
    if on_path := shutil.which("coda_tokenize"):
        return on_path
    raise fetch.Problem(
        f"there is no coda_tokenize in {ROOT}/build/*/bin, at {installed} or on PATH: build it with "
        "cmake --preset cpu && cmake --build --preset cpu, or give --program FILE"
    )


def tokenizer_file(given: str, folder: str) -> str:
    tokenizers = os.path.join(os.path.dirname(os.path.abspath(folder)), "tokenizers")
    if given == "gpt2":
        return fetch.fetch(GPT2, tokenizers)
    if given == "llama3":
        path = os.path.join(tokenizers, LLAMA3.name)
        if not os.path.isfile(path) and not os.environ.get("CODA_DATA_MIRROR"):
            raise fetch.Problem(
                "--tokenizer llama3: Llama 3's tokenizer needs its licence accepted, which only you can do. Log in at\n"
                f"  {LLAMA3.url}\nand put the file here as\n  {path}\nor give one that you have: --tokenizer FILE"
            )
        return fetch.fetch(LLAMA3, tokenizers)
    if not os.path.isfile(given):
        raise fetch.Problem(f"--tokenizer {given}: there is no such file")
    return given


def model_keys(tokenizer: str) -> dict[str, int]:
    """vocab_size and the ids of the tokens that coda_tokenize puts around documents, as config.json has them."""
    try:
        with open(tokenizer, encoding="utf-8") as file:
            content = json.load(file)
        added = {entry["content"]: entry["id"] for entry in content.get("added_tokens", [])}
        ids = {**content["model"]["vocab"], **added}
    except (ValueError, KeyError, TypeError) as error:
        raise fetch.Problem(f"{tokenizer}: not a tokenizer.json ({type(error).__name__}: {error})") from None
    keys = {"vocab_size": 1 + max(ids.values())}
    for key, names in (
        ("bos_token_id", ("<|begin_of_text|>", "<|endoftext|>")),
        ("eos_token_id", ("<|end_of_text|>",)),
    ):
        if name := next((name for name in names if name in ids), None):
            keys[key] = ids[name]
    return keys


def write_jsonl(documents: Iterable[str], path: str) -> None:
    """One {"text": ...} per line, compressed; written as a whole or not at all."""
    count = 0
    with gzip.open(path + ".new", "wt", compresslevel=1, encoding="utf-8", newline="\n") as file:
        for document in documents:
            file.write(json.dumps({"text": document}, ensure_ascii=False) + "\n")
            count += 1
    os.replace(path + ".new", path)
    print(f"{os.path.basename(path)}: {count:,} documents", file=sys.stderr)


def derived(path: str, sources: list[str], make: Callable[[], None]) -> str:
    """`path`, recomputed if it is older than one of its sources."""
    newest = max(os.path.getmtime(source) for source in sources)
    if not os.path.exists(path) or os.path.getmtime(path) < newest:
        make()
    return path


def shards_of(stem: str, options: tuple[str, ...]) -> list[str]:
    """What coda_tokenize with these options has written: the folder may hold other shards whose names begin so too."""
    folder, name = os.path.split(stem)
    part = "_(train|val)" if "--val-fraction" in options else ""
    number = r"_\d{6,}" if "--shard-tokens" in options else ""
    form = re.compile(re.escape(name) + part + number + r"\.bin")
    return sorted(os.path.join(folder, file) for file in os.listdir(folder or ".") if form.fullmatch(file))


def tokenize(program: str, tokenizer: str, inputs: list[str], stem: str, *options: str) -> list[str]:
    """The shards of `inputs`. Shards that came from the same inputs, tokenizer and options are reused."""
    folder, name = os.path.split(stem)
    stamps = [[os.path.abspath(path), os.path.getsize(path), os.path.getmtime(path)] for path in [tokenizer, *inputs]]
    wanted = {"files": stamps, "options": list(options)}
    record = os.path.join(folder, DONE)
    try:
        with open(record, encoding="utf-8") as file:
            done = json.load(file)
    except (FileNotFoundError, ValueError):
        done = {}
    before = done.get(name, {})
    if before.get("made_of") == wanted and all(os.path.exists(path) for path in before["shards"]):
        print(f"{stem}: tokenized already", file=sys.stderr)
        return before["shards"]
    command = [program, "--tokenizer", tokenizer, "--out", stem, *options, "--overwrite", *inputs]
    print("+ " + shlex.join(command), file=sys.stderr)
    status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode
    if status != 0:
        raise fetch.Problem(f"coda_tokenize ended with exit status {status}; its message is above")
    shards = shards_of(stem, options)
    done[name] = {"made_of": wanted, "shards": shards}
    with open(record + ".new", "w", encoding="utf-8") as file:
        json.dump(done, file, indent=1)
    os.replace(record + ".new", record)
    return shards


def pattern_of(shards: list[str]) -> str:
    """A glob for numbered shards, the name of a single one."""
    return shards[0] if len(shards) == 1 else os.path.commonprefix(shards).rstrip("0123456789") + "*.bin"


def print_config(model: dict[str, int], train: str, val: str | None = None, tokenizer: str | None = None) -> None:
    """The lines to paste into a config; paths relative to the current folder where they are below it."""

    def shown(path: str) -> str:
        relative = os.path.relpath(path)
        return os.path.abspath(path) if relative.startswith("..") else relative

    files = {"train": train, "val": val, "tokenizer": tokenizer}
    data = {key: shown(path) for key, path in files.items() if path}
    lines = json.dumps({"model": model, "data": data}, indent=4).splitlines()[1:-1]
    print("the lines for the config, next to the model's other keys:", file=sys.stderr)
    print("\n".join(lines))


def run(main: Callable[[], None]) -> int:
    """The script's exit status: 0 done, 1 a problem, 130 interrupted."""
    try:
        main()
        return 0
    except fetch.Problem as problem:
        print(f"{os.path.basename(sys.argv[0])}: {problem}", file=sys.stderr)
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"{os.path.basename(sys.argv[0])}: {where}{error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\n{os.path.basename(sys.argv[0])}: interrupted; the same command continues from here", file=sys.stderr)
        return 130
