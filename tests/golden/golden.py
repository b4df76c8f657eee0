#!/usr/bin/env python3
"""Golden digests: small runs of every mode must give the bits that are recorded next to this file.

    tests/golden/golden.py --bin build/cpu/bin                            compare with tests/golden/cpu.json
    tests/golden/golden.py --bin build/hopper/bin --device cuda           compare with tests/golden/gpu.json
    tests/golden/golden.py --bin build/cpu/bin --record [--only MODE]     after a change of bits on purpose

Each mode trains for 20 steps on generated tokens. Its record holds the losses and gradient norms as logged (9 digits),
the validation loss, and the SHA-256 of each tensor file of the last checkpoint (master weights and both moments).
Modes that differ only in `recompute` must have equal bits too.

Bits follow from the compiler, its options (the build type) and the C library's log, cos and pow; on the GPU, where
initial weights come from the host, from these and from the GPU. The record names them. Where they differ from the
record's, the program says so and compares the losses within a tolerance instead. The record does not know the
version of nvcc, on which the GPU's bits depend as well.

Exit status: 0 all modes are as recorded, 1 one is not, 2 wrong usage.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "..", "tools"))
from replace_file import replace_file  # noqa: E402
from token_shard import shard_bytes  # noqa: E402

FILES = {"cpu": "cpu.json", "cuda": "gpu.json"}
STEPS = 20
# Relative; for another build, whose rounding differs. An operand of FP8 that is rounded the other way differs by up to
# 1/8, so there losses are nearly 1e-3 apart after 17 steps.
LOSS_TOLERANCE = {"cpu": 1e-4, "fp8": 1e-2, "cuda": 1e-2}
TOKENS = 50000  # of a shard; the last tenth is validation
TIMEOUT_S = 600  # of one mode

# Widths are multiples of 8, as the Hopper kernels need, but not of a tile.
BASE = {
    "model": {"hidden_size": 136, "intermediate_size": 344, "num_hidden_layers": 2, "num_attention_heads": 2,
              "head_dim": 64, "vocab_size": 320, "rope_theta": 10000.0, "bos_token_id": 0},
    "training": {"seq_len": 96, "micro_batch_size": 3, "steps": STEPS},
    "optimizer": {"learning_rate": 0.003},
    "lr_schedule": {"type": "cosine", "warmup_steps": 4},
    "validation": {"batches": 2},
    "checkpoint": {"keep": 1},
}
TIED = {"model.tie_word_embeddings": True}
CHUNKS = {"training.lm_head_chunks": 3}
ACCUMULATION = {"training.grad_accumulation_steps": 2}
DOCUMENTS = {"data.document_mask": True}
BF16_MOMENTS = {"optimizer.moments": "bf16"}
SWIGLU, MLP = {"training.recompute": "swiglu"}, {"training.recompute": "mlp"}
GQA = {"model.num_attention_heads": 8, "model.num_key_value_heads": 2}
ODD_LENGTH = {"training.seq_len": 77}
ODD_VOCABULARY = {"model.vocab_size": 331}
ROPE_SCALING = {"model.rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                       "high_freq_factor": 4.0, "original_max_position_embeddings": 32}}
ALL = {**TIED, **CHUNKS, **ACCUMULATION, **DOCUMENTS, **BF16_MOMENTS, **GQA, **ODD_LENGTH, **ODD_VOCABULARY,
       **ROPE_SCALING}
# Several tiles in every direction, and weight gradients whose sum over tokens is split.
WIDE = {"model.hidden_size": 1024, "model.intermediate_size": 2816, "model.num_attention_heads": 16,
        "model.num_key_value_heads": 4, "model.num_hidden_layers": 1, "model.vocab_size": 4096,
        "training.seq_len": 1024, "training.micro_batch_size": 2}

# name -> what differs from BASE, by dotted key
MODES = {
    "base": {},
    "recompute_swiglu": SWIGLU,
    "recompute_mlp": MLP,
    "tied": TIED,
    "chunks": CHUNKS,
    "tied_chunks": TIED | CHUNKS,
    "accumulation": ACCUMULATION,
    "documents": DOCUMENTS,
    "bf16_moments": BF16_MOMENTS,
    "head_dim_128": {"model.head_dim": 128},
    "rope_scaling": ROPE_SCALING,
    "odd_vocabulary": ODD_VOCABULARY,
    "odd_length": ODD_LENGTH,
    "gqa": GQA,
    "qk_norm": {"model.qk_norm": True, "model.num_attention_heads": 4, "model.num_key_value_heads": 2},
    "gpt2": {"model.norm": "layernorm", "model.mlp": "gelu_tanh", "model.mlp_bias": True, "model.attention_bias": True,
             "model.attention_out_bias": True, "model.position_embeddings": "learned",
             "model.tie_word_embeddings": True} | CHUNKS,
    "linear_decay": {"lr_schedule.type": "linear", "lr_schedule.decay_steps": 10},
    "wsd": {"lr_schedule.type": "wsd", "lr_schedule.min_lr_ratio": 0.0},
    "constant_unclipped": {"lr_schedule.type": "constant", "training.max_grad_norm": 0},
    "all": ALL,
    "all_recompute_swiglu": ALL | SWIGLU,
    "all_recompute_mlp": ALL | MLP,
}
GPU_MODES = {
    "wide_64": WIDE,
    "wide_128": WIDE | TIED | CHUNKS | BF16_MOMENTS | {
        "model.num_attention_heads": 8, "model.num_key_value_heads": 2, "model.head_dim": 128},
}
# FP8 of the CPU twin: sizes are multiples of 16. tests/hopper/f8_training_test.cpp holds the GPU's FP8 steps to it.
FP8 = {"precision.bf16_first_layers": 0, "model.hidden_size": 144, "model.intermediate_size": 352}
CPU_MODES = {
    "window": {"model.sliding_window": 31},
    "window_documents": {"model.sliding_window": 31} | DOCUMENTS | GQA | ODD_LENGTH,
    "fp8": FP8,
    "fp8_recompute_swiglu": FP8 | SWIGLU,
    "fp8_first_bf16": FP8 | TIED | CHUNKS | ACCUMULATION | DOCUMENTS | BF16_MOMENTS | GQA | ODD_VOCABULARY | {
        "precision.bf16_first_layers": 1},
}
# The first mode of each has the bits that the others must have.
SAME_BITS = [("base", "recompute_swiglu", "recompute_mlp"), ("all", "all_recompute_swiglu", "all_recompute_mlp"),
             ("fp8", "fp8_recompute_swiglu")]


class Failed(Exception):
    """No verdict on the bits: the program or the record is missing or broken."""


def modes_of(device):
    return MODES | (GPU_MODES if device == "cuda" else CPU_MODES)


def config_of(changes):
    """BASE with the values of dotted keys replaced."""
    config = json.loads(json.dumps(BASE))
    for path, value in changes.items():
        section, key = path.split(".")
        config.setdefault(section, {})[key] = value
    return config


def write_shard(path, vocab):
    """Documents that begin with token 0, each token mostly a function of the last."""
    state, token, tokens = 1, 0, []
    for _ in range(TOKENS):
        state = (state * 1103515245 + 12345) % 2**31
        chance = state >> 16
        token = 0 if chance % 29 == 0 else 1 + (token * 5 + chance % 3) % (vocab - 1)
        tokens.append(token)
    with open(path, "wb") as file:
        file.write(shard_bytes(tokens))


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def run(program, *arguments):
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
                              stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from None
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise Failed(f"{' '.join([program, *arguments])} ended with {done.returncode}: {last}")
    return done.stdout.strip()


class Runs:
    """Runs of one program on one device, in a folder of their own."""

    def __init__(self, program, device, folder):
        self.program, self.device, self.folder = program, device, folder
        self.gpu = None

    def train(self, mode, changes):
        """What a record holds of a mode."""
        config = config_of(changes)
        folder = os.path.join(self.folder, mode)
        vocab = config["model"]["vocab_size"]
        shard = os.path.join(self.folder, f"tokens_{vocab}.bin")
        if not os.path.exists(shard):
            write_shard(shard, vocab)
        config.setdefault("data", {})["train"] = shard
        config |= {"device": self.device, "output": {"directory": folder}}
        path = os.path.join(self.folder, mode + ".json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        run(self.program, "--config", path)

        with open(os.path.join(folder, "log.jsonl"), encoding="utf-8") as file:
            header, *records = [json.loads(line) for line in file]
        self.gpu = header["device"] if self.device == "cuda" else None
        steps = [record for record in records if "loss" in record]
        if len(steps) != STEPS:
            raise Failed(f"{mode}: the log holds {len(steps)} steps of {STEPS}")
        (newest,) = os.listdir(os.path.join(folder, "checkpoints"))
        checkpoint = os.path.join(folder, "checkpoints", newest)
        return {
            "changes": changes,
            "losses": [step["loss"] for step in steps],
            "grad_norms": [step["grad_norm"] for step in steps],
            "val_loss": records[-1]["val_loss"],
            "sha256": {name[:-4]: sha256(os.path.join(checkpoint, name)) for name in sorted(os.listdir(checkpoint))
                       if name.endswith(".bin")},
        }

    def environment(self):
        """What bits depend on besides the sources; complete after the first run."""
        version = run(self.program, "--version")
        details = re.fullmatch(r"coda_train .*\(.*?, \w+, (.*)\)", version)  # commit, kind, build type, compiler
        if not details:
            raise Failed(f"{self.program} --version says '{version}', which names no build type and compiler")
        found = {"build": details[1], "libc": os.confstr("CS_GNU_LIBC_VERSION")}
        return found | ({"gpu": self.gpu} if self.gpu else {})


def differences(recorded, now):
    """The first difference of each kind between two records of a mode, in words."""
    found = []
    for key, what in (("losses", "loss"), ("grad_norms", "gradient norm")):
        for step, (a, b) in enumerate(zip(recorded[key], now[key]), start=1):
            if a != b:
                found.append(f"{what} of step {step} {a} is now {b}")
                break
    if recorded["val_loss"] != now["val_loss"]:
        found.append(f"validation loss {recorded['val_loss']} is now {now['val_loss']}")
    files = [name for name in sorted(recorded["sha256"].keys() | now["sha256"].keys())
             if recorded["sha256"].get(name) != now["sha256"].get(name)]
    return found + ([f"checkpoint differs in {', '.join(files)}"] if files else [])


def loss_tolerance(device, changes):
    fp8 = any(key.startswith("precision.") for key in changes)
    return LOSS_TOLERANCE["fp8" if fp8 else device]


def largest_difference(recorded, now):
    """Of the losses, relative, and in words where it is."""
    pairs = [(f"loss of step {i}", a, b) for i, (a, b) in enumerate(zip(recorded["losses"], now["losses"]), start=1)]
    pairs.append(("validation loss", recorded["val_loss"], now["val_loss"]))
    return max((abs(a - b) / abs(a), f"{what} {a} is now {b}") for what, a, b in pairs)


def compare(record, now, environment, device):
    """Prints what differs from the record; returns the lines of failures and the summary."""
    failures, worst = [], 0.0
    same_build = record["environment"] == environment
    for mode, result in now.items():
        recorded = record["modes"].get(mode)
        if recorded is None or record["base"] != BASE or recorded["changes"] != result["changes"]:
            failures.append(f"{mode}: not recorded with this configuration; use --record")
        elif same_build:
            found = differences(recorded, result)
            failures += [f"{mode}: {'; '.join(found)}"] if found else []
        else:
            difference, where = largest_difference(recorded, result)
            allowed = loss_tolerance(device, result["changes"])
            worst = max(worst, difference / allowed)
            if not difference <= allowed:
                failures.append(f"{mode}: {where}, more than {allowed:g} apart")
    if same_build:
        return failures, "same bits as recorded"
    print(f"another build than the recorded one, so losses are compared instead of bits:\n"
          f"  recorded: {record['environment']}\n  now:      {environment}")
    return failures, f"losses near another build's (at most {worst:.2f} of what is allowed)"


def unequal_recompute(now):
    failures = []
    for first, *others in SAME_BITS:
        for other in others:
            if first in now and other in now and (found := differences(now[first], now[other])):
                failures.append(f"{other} is not equal to {first}: {'; '.join(found)}")
    return failures


def read_record(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        raise Failed(f"there is no {path}; --record makes one") from None


def write_record(path, record):
    """JSON with one line per list, so that a diff names what changed."""
    def one_line(found):
        return "[" + " ".join(found[1].split()) + "]"

    text = re.sub(r"\[([^\[\]{}]*)\]", one_line, json.dumps(record, indent=1))
    replace_file(path, text + "\n")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, metavar="DIR", help="folder of the programs")
    parser.add_argument("--device", choices=tuple(FILES), default="cpu")
    parser.add_argument("--record", action="store_true", help="write the record instead of comparing with it")
    parser.add_argument("--only", metavar="MODE,MODE", help="these modes; with --record the others stay as recorded")
    parser.add_argument("--file", help="the record (default: cpu.json or gpu.json next to this program)")
    options = parser.parse_args()
    known = modes_of(options.device)
    options.modes = options.only.split(",") if options.only else list(known)
    for mode in options.modes:
        if mode not in known:
            parser.error(f"--only: there is no mode '{mode}'; modes are {', '.join(known)}")
    options.file = options.file or os.path.join(HERE, FILES[options.device])
    return options


def check(options):
    """Failures, and a line on what was found."""
    program = os.path.abspath(os.path.join(options.bin, "coda_train"))
    partial = options.record and options.only and os.path.exists(options.file)
    record = read_record(options.file) if partial or not options.record else None
    with tempfile.TemporaryDirectory(prefix="coda_golden_") as folder:
        runs = Runs(program, options.device, folder)
        now = {mode: runs.train(mode, modes_of(options.device)[mode]) for mode in options.modes}
        environment = runs.environment()
    failures = unequal_recompute(now)
    if not options.record:
        more, summary = compare(record, now, environment, options.device)
        return failures + more, summary
    if failures:
        return failures, "nothing was recorded"
    if record and record["environment"] != environment:
        raise Failed(f"{options.file} is of another build, {record['environment']}; record every mode")
    if record and record["base"] != BASE:
        raise Failed(f"{options.file} is of another BASE; record every mode")
    write_record(options.file, {"device": options.device, "command": "coda_train --config MODE.json", "base": BASE,
                                "environment": environment, "modes": (record["modes"] if record else {}) | now})
    return [], f"recorded in {options.file}"


def main():
    options = parse_arguments()
    try:
        failures, summary = check(options)
    except Failed as error:
        print(f"golden.py: {error}", file=sys.stderr)
        return 1
    if failures:
        print("\n".join(failures))
        print(f"golden.py: {len(failures)} failures in {len(options.modes)} modes; first: {failures[0]}",
              file=sys.stderr)
        return 1
    print(f"{len(options.modes)} modes: {summary}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
