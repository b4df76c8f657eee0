#!/usr/bin/env python3
"""The result files in tools/bench/results: their schema, and the only code that reads, merges and writes them.

    tools/bench/records.py WHAT RUN.json... [--results DIR]

merges what one run measured into DIR/GPU_WHAT.json. WHAT is gemm, attention, ... (SCHEMAS below); RUN.json is what
`coda_bench`, torch_attention.py and torch_step.py write with --json: {"header", "records"}, where the header says what
was measured when and on which GPU. tools/gpu_check calls merge() itself.

A result file is {"header": {"gpu", "what"}, "records": [...]}. Every record names its GPU, commit, date and
command. A new record replaces the one with the same key; the others stay. Times are in milliseconds and are medians
over rounds; ratio is our time over the rival's of the same run, the median of the rounds' ratios, so smaller is better.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import sys
from dataclasses import dataclass, field

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(ROOT, "tools"))
from replace_file import replace_file  # noqa: E402

RESULTS = os.path.join(ROOT, "tools", "bench", "results")
GPUS = ("h100", "h200")

# What every record says about its run. `clocks` are MHz under load; the versions are a rival's.
STAMP = ("gpu", "commit", "date", "command")
# Only older records have source_hash, the SHA-256 of kernels/ and src/.
STAMP_OPTIONAL = ("source_hash", "driver", "clocks", "torch", "cudnn", "torchao")

# Records without a spread are older than the spread. Their ratio of medians differs from the median of ratios by as
# much as the rounds vary.
UNKNOWN_SPREAD = 0.05


class RecordError(Exception):
    """A record or a file that does not follow the schema; the message says which and why."""


@dataclass(frozen=True)
class Schema:
    key: tuple[str, ...]  # fields that identify a record; a run replaces the record with the same values
    required: tuple[str, ...]
    key_optional: tuple[str, ...] = ()  # fields that identify a record too, where it has them
    optional: tuple[str, ...] = ()
    rivals: dict[str, str] = field(default_factory=dict)  # of each ratio, the field with the rival's time

    def allowed(self) -> tuple[str, ...]:
        rounds = ("spread", "rounds_ms", *(_rounds(rival) for rival in self.rivals.values())) if self.rivals else ()
        return (*self.key, *self.key_optional, *self.required, *self.optional, *rounds, *STAMP, *STAMP_OPTIONAL)


_SHAPE = ("B", "T", "D", "H", "Hkv")
_STEP = Schema(
    key=("config", "precision", "part", "B", "T", "lm_head_chunks", "recompute"),
    required=("ms", "tokens_per_s", "mfu"),
    # The rival of a record is PyTorch in bf16 or, with these, torchao's recipe; torchao_head: in the head's products
    # too. Of FP8 without them it is our own step in bf16, of the same process: in_turns says whether the two took
    # turns, or memory held one of them and bf16 ran first.
    key_optional=("torchao_recipe", "torchao_head", "deterministic"),
    optional=("torch_ms", "ratio", "torchao_ms", "ratio_torchao", "bf16_ms", "ratio_bf16", "in_turns",
              "torchao_peak_gib", "torchao_fullgraph", "floor_ms", "floor_ratio", "floor_products_ms", "peak_gib",
              "torch_peak_gib", "forward_ms", "backward_ms", "update_ms", "products_ms", "attention_forward_ms",
              "attention_backward_ms", "other_ms", "other_share", "grad_norm_ms", "adamw_ms", "fp8_update_ms",
              "arena_gib", "bf16_peak_gib", "bf16_arena_gib"),
    rivals={"ratio": "torch_ms", "ratio_torchao": "torchao_ms", "ratio_bf16": "bf16_ms"},
)

SCHEMAS = {
    # `program` is an op, followed by words for its form ("LinearRope rstd"). FP8 ran in turns of its own with the
    # bf16 program that training has in its place (coda_bench fp8): ratio_bf16. dx_f8: it stores FP8 copies of dx too.
    "gemm": Schema(
        key=("program", "layout", "M", "N", "K", "precision"),
        key_optional=("promotion", "dx_f8"),
        required=("ms", "cublas_ms", "ratio", "tflops", "gbps"),
        optional=("bf16_ms", "ratio_bf16"),
        rivals={"ratio": "cublas_ms"},
    ),
    "attention": Schema(
        key=("pass", *_SHAPE),
        # documents: the mean of their random lengths; window: keys that a query sees. Such a record has the share of
        # the causal mask's products that is visible, the time per such product over that of the shape without, and
        # FlexAttention as its rival.
        key_optional=("deterministic", "documents", "window"),
        required=("ms", "tflops", "gbps", "bytes"),
        optional=("cudnn_ms", "ratio", "flash3_ms", "flash3_deterministic_ms", "visible", "per_product", "flex_ms",
                  "ratio_flex"),
        rivals={"ratio": "cudnn_ms", "ratio_flex": "flex_ms"},
    ),
    # Relative RMS errors against fp32 attention of the same operands.
    "attention_error": Schema(
        key=("tensor", *_SHAPE), required=("relative_rms", "cudnn_relative_rms", "error_ratio")
    ),
    "pointwise": Schema(
        key=("op", "shape"), required=("ms", "copy_ms", "ratio", "bytes", "gbps"), rivals={"ratio": "copy_ms"}
    ),
    # PyTorch's FP8 GEMM (torch_fp8_gemm.py) and its bf16 one, cuBLASLt both: what FP8 kernels are measured by.
    # relative_error is the RMS against float32 products of the same 8-bit operands.
    "fp8_gemm": Schema(
        key=("product", "kind", "M", "N", "K", "accumulation"),
        required=("ms", "bf16_ms", "ratio", "tflops", "bf16_tflops", "relative_error"),
        optional=("watts", "mhz", "bf16_watts", "bf16_mhz"),
        rivals={"ratio": "bf16_ms"},
    ),
    # A step of coda_bench decode and PyTorch's (decode.py), greedy: wall time over the 127 tokens that follow the first
    # one after `context` tokens of each sequence. `decoder` is fused or passes; kernel_ms is the time of the fused
    # kernel's launches only. stream_tb_s is the speed of reads when nothing else runs; the share is a share of it.
    "decode": Schema(
        key=("model", "dtype", "head", "decoder", "batch", "context"),
        required=("ms", "steps_per_s", "bytes", "stream_tb_s", "share_of_bandwidth"),
        optional=("kernel_ms", "torch_ms", "ratio", "torch_attention"),
        rivals={"ratio": "torch_ms"},
    ),
    # coda_generate --bench (generate.py). The share is a share of peak_tb_s, which follows from the memory's clock and
    # width. forward_ms is a training forward pass of as many tokens, prefill_ratio prefill_ms over it, the median of
    # the rounds' ratios.
    "generate": Schema(
        key=("model", "batch", "context", "steps_per_launch"),
        required=("ms", "steps_per_s", "tokens_per_s", "prefill_ms", "first_token_ms", "bytes"),
        optional=("peak_tb_s", "share_of_bandwidth", "forward_ms", "prefill_ratio"),
    ),
    "step": _STEP,
    "scaling": _STEP,  # without a rival
    # A step of several GPUs of one host (ranks.py), a micro-batch of B sequences on each, or micro_batches of them.
    # alone_ms: the slowest of the same GPUs, each running by itself at the same time. torch_ms: the better of DDP and
    # FSDP2. gib: what a rank's process has on its GPU. waiting_ms: what the first rank's stream waits for others.
    "ranks": Schema(
        key=("config", "precision", "B", "T", "ranks", "micro_batches"),
        required=("ms", "gib", "alone_ms", "ratio_alone"),
        optional=("alone_gib", "waiting_ms", "torch_ms", "ratio", "ddp_ms", "fsdp2_ms", "ddp_gib", "fsdp2_gib"),
        rivals={"ratio_alone": "alone_ms", "ratio": "torch_ms"},
    ),
    # Medians over the steps of a training run on real tokens.
    "runs": Schema(
        key=("config", "precision", "B", "T", "steps"),
        required=("first_loss", "last_loss", "ms", "tokens_per_s", "mfu", "memory_gib"),
    ),
    # One curve each. `worst_of_first` is the largest distance of coda_train's curve from this one in the first
    # `first` steps; `limits_kept` says whether coda_train's keeps gpu_check's limits to this one.
    "loss": Schema(
        key=("config", "seed", "trainer", "precision", "steps"),
        required=("tokens", "last", "mean_of_last"),
        optional=("val_loss", "first", "worst_of_first", "limits_kept"),
    ),
    # One run of tools/campaign/fp8_loss each: runs of one seed differ only in the precision. `last` steps make
    # mean_of_last.
    "fp8_loss": Schema(
        key=("config", "seed", "precision", "steps"),
        required=("tokens", "val_loss", "last", "mean_of_last"),
    ),
    # tools/campaign/fp8_cost: the mean loss over `tokens` at fixed weights, and its distance from fp32's.
    "fp8_cost": Schema(
        key=("model", "precision", "tokens", "seq_len"),
        required=("loss", "minus_fp32"),
    ),
    # One campaign of tools/campaign each. `device` is what it ran on, cpu or cuda; `gpu` says whose results these are.
    # `runs` are kills, executions, test cases or runs of the program; `failures` is 0 where everything held.
    "reliability": Schema(
        key=("campaign", "device"),
        required=("runs", "failures", "seconds"),
        optional=("kills_in_writing", "allowed", "trend_percent", "rss_growth_mib"),
    ),
}

_STRINGS = {"program", "layout", "precision", "pass", "tensor", "op", "shape", "config", "part", "recompute",
            "trainer", "product", "kind", "accumulation", "campaign", "device", "model", "dtype", "head", "decoder",
            "torch_attention", *STAMP, "source_hash", "driver", "torch", "torchao", "torchao_recipe"}
_INTEGERS = {"M", "N", "K", *_SHAPE, "batch", "context", "steps_per_launch", "lm_head_chunks", "steps", "seed",
             "tokens", "last", "first", "cudnn", "promotion", "runs", "failures", "kills_in_writing", "allowed",
             "ranks", "micro_batches", "documents", "window"}
# What a record without the field says: its sums have the one order that there is, as in records with True.
_WITHOUT = {"deterministic": True}
_BOOLEANS = {"deterministic", "limits_kept", "torchao_head", "torchao_fullgraph", "in_turns", "dx_f8"}
_FORMS = {
    "commit": (re.compile(r"[0-9a-f]{12}(-dirty)?|no git"), "12 hexadecimal digits, or with -dirty"),
    "source_hash": (re.compile(r"[0-9a-f]{64}"), "64 hexadecimal digits"),
    "date": (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "a date such as 2026-11-22T06:32:25Z"),
}


def _rounds(rival: str) -> str:
    """torch_ms: torch_rounds_ms."""
    return rival.removesuffix("ms") + "rounds_ms"


def gpu_prefix(gpu: str) -> str:
    """h200 for "NVIDIA H200", h100 for "NVIDIA H100 80GB HBM3": how the names of its result files begin."""
    found = re.search(r"\bH[12]00\b", gpu)
    if not found or found[0].lower() not in GPUS:
        raise RecordError(f"the GPU '{gpu}' has no result files; only {' and '.join(GPUS)} have some")
    return found[0].lower()


def key_of(what: str, record: dict) -> tuple:
    return tuple(record.get(name, _WITHOUT.get(name)) for name in (*SCHEMAS[what].key, *SCHEMAS[what].key_optional))


def describe(what: str, record: dict) -> str:
    """The key of a record, for messages."""
    schema = SCHEMAS[what]
    named = [(name, record.get(name)) for name in schema.key]
    named += [(name, record[name]) for name in schema.key_optional if name in record]
    return " ".join(str(value) if isinstance(value, str) else f"{name}={value}" for name, value in named)


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _type_problem(name: str, value) -> str | None:
    if name in _STRINGS:
        if not isinstance(value, str) or not value:
            return f"{name} must be a string, this is {json.dumps(value)}"
        form = _FORMS.get(name)
        return f"{name} must be {form[1]}, this is '{value}'" if form and not form[0].fullmatch(value) else None
    if name in _BOOLEANS:
        return None if isinstance(value, bool) else f"{name} must be true or false, this is {json.dumps(value)}"
    if name == "clocks":
        return None if isinstance(value, dict) else f"clocks must be an object, this is {json.dumps(value)}"
    if name == "spread" or name.endswith("rounds_ms"):
        good = isinstance(value, list) and value and all(map(_is_number, value))
        return None if good else f"{name} must be a list of numbers, this is {json.dumps(value)}"
    if name in _INTEGERS and _is_number(value) and value == int(value) and value >= 0:
        return None
    if name not in _INTEGERS and _is_number(value) and (value > 0 or not name.endswith("ms")):
        return None
    return f"{name} must be a {'whole ' if name in _INTEGERS else ''}number, this is {json.dumps(value)}"


def _ratio_problems(record: dict, ratio: str, rival: str):
    if (ratio in record) != (rival in record):
        yield f"{ratio} and {rival} belong together"
    if ratio == "ratio_bf16" and (ratio in record) != ("in_turns" in record):
        yield f"{ratio} and in_turns belong together"
    if ratio not in record or rival not in record:
        return
    of_medians = record["ms"] / record[rival]
    rounds = record.get("rounds_ms"), record.get(_rounds(rival))
    if all(rounds):
        if len(rounds[0]) != len(rounds[1]):
            yield f"rounds_ms has {len(rounds[0])} rounds, {_rounds(rival)} {len(rounds[1])}"
            return
        ratios = [ours / theirs for ours, theirs in zip(*rounds)]
        if not math.isclose(record[ratio], statistics.median(ratios), rel_tol=1e-6):
            yield f"{ratio} is {record[ratio]}, the median of its rounds is {statistics.median(ratios):.6f}"
    if "spread" in record:
        # The ratio of two medians lies within the ratios of the rounds, as their median does.
        low, high = record["spread"][0] * (1 - 1e-6), record["spread"][-1] * (1 + 1e-6)
        if len(record["spread"]) != 2 or not low <= high:
            yield f"spread must be [lowest, highest], this is {record['spread']}"
        elif not (low <= record[ratio] <= high and low <= of_medians <= high):
            yield f"{ratio} is {record[ratio]} and ms / {rival} {of_medians:.6f}, not both within {record['spread']}"
    elif not math.isclose(record[ratio], of_medians, rel_tol=UNKNOWN_SPREAD):
        yield f"{ratio} is {record[ratio]}, but ms / {rival} is {of_medians:.6f}"


def problems(what: str, record: dict) -> list[str]:
    """Everything in which a record does not follow the schema; empty for a good one."""
    schema = SCHEMAS[what]
    found = [f"{name} is missing" for name in (*schema.key, *schema.required, *STAMP) if name not in record]
    found += [f"{name} is not a field of {what} records" for name in record if name not in schema.allowed()]
    found += [problem for name, value in record.items()
              if name in schema.allowed() and (problem := _type_problem(name, value))]
    if not found:  # the types are good
        for ratio, rival in schema.rivals.items():
            found += _ratio_problems(record, ratio, rival)
        if what == "attention":
            rival = "flex_ms" if "documents" in record or "window" in record else "cudnn_ms"
            found += [] if rival in record else [f"{rival} is missing"]
        if what == "gemm":
            found += [f"{name} belongs to fp8 records, and to each" for name in ("bf16_ms", "ratio_bf16")
                      if (name in record) != (record["precision"] == "fp8")]
    return found


def compared(rounds: list[dict], rival: str, rival_ms: list[float], ratio: str = "ratio") -> dict:
    """Our records of several rounds and the rival's times in the same rounds as one record: medians of every measured
    number, the ratio (of that name) as the median of the rounds' ratios, their spread and the rounds themselves."""
    ms = [record["ms"] for record in rounds]
    ratios = [ours / theirs for ours, theirs in zip(ms, rival_ms, strict=True)]
    medians = {name: statistics.median(record[name] for record in rounds) if isinstance(value, float) else value
               for name, value in rounds[0].items()}
    return {**medians, rival + "_ms": statistics.median(rival_ms), ratio: statistics.median(ratios),
            "spread": [min(ratios), max(ratios)], "rounds_ms": ms, rival + "_rounds_ms": list(rival_ms)}


def _tidy(command: str) -> str:
    """The command without the folders of its machine and without the option that names the run's own file."""
    words = re.sub(r" --json \S+", "", command).split(" ")
    inside = ROOT + os.sep
    return " ".join(word.removeprefix(inside) if word.startswith(inside) else
                    os.path.basename(word) if word.startswith(os.sep) else word for word in words)


def stamped(header: dict, records: list[dict]) -> list[dict]:
    """The records, each with what the header of their run says about all of them."""
    stamp = {name: header[name] for name in (*STAMP, *STAMP_OPTIONAL) if header.get(name) is not None}
    if "command" in stamp:
        stamp["command"] = _tidy(stamp["command"])
    return [record | stamp for record in records]


def read(path: str) -> tuple[dict, list[dict]]:
    """(header, records) of a result file or of a run's file."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise RecordError(f"{path}: not JSON ({error})") from None
    if not isinstance(content, dict) or set(content) != {"header", "records"} or \
            not isinstance(content["header"], dict) or not isinstance(content["records"], list):
        raise RecordError(f'{path}: must be {{"header": {{...}}, "records": [...]}}')
    for number, record in enumerate(content["records"]):
        if not isinstance(record, dict):
            raise RecordError(f"{path}: records[{number}] must be an object, this is {json.dumps(record)[:40]}")
    return content["header"], content["records"]


def write(path: str, header: dict, records: list[dict]) -> None:
    """Writes the file as a whole or not at all, one line per record, so that a diff shows which have changed."""
    lines = ",\n".join("  " + json.dumps(record) for record in records)
    text = f'{{\n "header": {json.dumps(header)},\n "records": [\n{lines}\n ]\n}}\n'
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    replace_file(path, text)


def merge(folder: str, what: str, header: dict, records: list[dict]) -> str:
    """Puts what one run measured into folder/GPU_WHAT.json, in place of older records with the same keys; returns the
    file's path. Raises RecordError, and writes nothing, where a record does not follow the schema."""
    if not header.get("gpu"):
        raise RecordError(f"{what}: the run's header does not name the GPU")
    prefix, schema, new = gpu_prefix(header["gpu"]), SCHEMAS[what], {}
    order = {name: place for place, name in enumerate(schema.allowed())}
    for record in stamped(header, records):
        if found := problems(what, record):
            raise RecordError(f"{what} {describe(what, record)}: {'; '.join(found)}")
        if key_of(what, record) in new:
            raise RecordError(f"{what} {describe(what, record)}: measured twice in one run")
        new[key_of(what, record)] = dict(sorted(record.items(), key=lambda item: order[item[0]]))
    path = os.path.join(folder, f"{prefix}_{what}.json")
    old = read(path)[1] if os.path.exists(path) else []
    kept = [new.pop(key_of(what, record), record) for record in old]
    write(path, {"gpu": prefix, "what": what}, [*kept, *new.values()])
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", metavar="WHAT", choices=SCHEMAS, help=", ".join(SCHEMAS))
    parser.add_argument("runs", metavar="RUN.json", nargs="+")
    parser.add_argument("--results", default=RESULTS, metavar="DIR", help="default: tools/bench/results")
    options = parser.parse_args()
    try:
        for run in options.runs:
            header, records = read(run)
            print(f"{len(records)} records into {merge(options.results, options.what, header, records)}")
    except (RecordError, OSError) as error:
        print(f"records.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
