#!/usr/bin/env python3
"""A training step on the GPUs of one host, compared with each of them by itself and with PyTorch on the same GPUs.

    PYTHONPATH=src CODA_LIBRARY=LIB python3 tools/bench/ranks.py PROGRAM --config C --ranks 2 [--json FILE]

PROGRAM is coda_train, LIB its libcoda.so. One micro-batch per rank and step, unless --micro-batches says otherwise:
  alone      coda_train on every GPU at the same time, each by itself; the slowest counts
  together   the ranks of one run, by coda_torch; after `alone`, the slowest GPU has the first rank
  ddp, fsdp2 PyTorch under torch.compile: fp32 parameters, bf16 GEMMs, clipping, fused AdamW. DDP compiles the whole model
             under autocast; FSDP2 shards every block, keeps its weights until the backward pass, compiles every block and
             the head with its loss, and has bf16 parameters by its mixed precision
Times are medians over a run's steps after the first --warm-up. With --timing, `waiting` is what the first rank's stream
waits for others in a step, the times of FinishExchange: on the slowest GPU what exchanges cost, on another one also what
that GPU is ahead of the slowest.

--json FILE writes {header, records} for tools/bench/records.py (ranks).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import records

HERE = Path(__file__).resolve().parent


def run_flags(options, name, folder, ranks):
    """Of coda_train, with the same number of micro-batches per GPU for any number of ranks."""
    flags = ["--config", options.config, "--device", "cuda", "--training.steps", str(options.steps + options.warm_up),
             "--training.grad_accumulation_steps", str(ranks * options.micro_batches), "--validation.interval", "0",
             "--validation.batches", "1", "--checkpoint.interval", "0", "--checkpoint.at_end", "false",
             "--output.directory", str(Path(folder) / name), *options.flags]
    return flags + (["--timing", str(Path(folder) / f"{name}.json")] if options.timing else [])


def log_of(folder, name):
    lines = (Path(folder) / name / "log.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if "loss" in record]


def result_of(folder, name, options):
    steps = log_of(folder, name)[options.warm_up:]
    result = {"ms": statistics.median(step["ms"] for step in steps), "gib": steps[-1]["memory_gib"],
              "loss": steps[-1]["loss"]}
    if options.timing:
        timing = json.loads((Path(folder) / f"{name}.json").read_text())
        result["waiting_ms"] = sum(op["median_ms"] for op in timing["by_op"] if op["op"] == "FinishExchange")
    return result


def ended(processes):
    for process in processes:
        out, _ = process.communicate()
        if process.returncode != 0:
            sys.exit(f"ranks.py: {' '.join(map(str, process.args))} ended with {process.returncode}:\n{out[-2000:]}")
    return out


def start(command, **environment):
    return subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def alone(options, folder):
    ended([start([options.program, *run_flags(options, f"alone{gpu}", folder, 1)], CUDA_VISIBLE_DEVICES=str(gpu))
           for gpu in options.gpus])
    runs = {gpu: result_of(folder, f"alone{gpu}", options) for gpu in options.gpus}
    print("each GPU", "  ".join(f"{gpu}: {run['ms']:.5g} ms" for gpu, run in runs.items()), flush=True)
    options.gpus.sort(key=lambda gpu: -runs[gpu]["ms"])
    return runs[options.gpus[0]]


def together(options, folder):
    ended([start([sys.executable, "-m", "coda_torch", "--ranks", str(options.ranks),
                  *run_flags(options, "together", folder, options.ranks)],
                 CUDA_VISIBLE_DEVICES=",".join(map(str, options.gpus)))])
    return result_of(folder, "together", options)


def rival(options, kind):
    out = ended([start([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(options.ranks),
                        str(HERE / "torch_ranks.py"), kind, "--config", options.config, "--steps", str(options.steps),
                        "--warm-up", str(options.warm_up), "--batch", str(options.batch),
                        "--length", str(options.length)])])
    return json.loads([line for line in out.splitlines() if line.startswith("{")][-1])


def header_of(folder, part):
    """What records say of a run, from its log."""
    with open(Path(folder) / ("alone0" if part == "alone" else part) / "log.jsonl", encoding="utf-8") as file:
        log = json.loads(file.readline())
    return {"gpu": log["device"], "commit": re.search(r"\(([^,]*),", log["build"])[1], "date": log["started"]}


OURS = {"alone": alone, "together": together}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("--config", required=True, metavar="FILE")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=1, help="of a rank in a step")
    parser.add_argument("--batch", type=int, default=16, help="sequences of a micro-batch")
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--precision", choices=("bf16", "fp8"), default="bf16")
    parser.add_argument("--steps", type=int, default=20, help="timed")
    parser.add_argument("--warm-up", type=int, default=10, help="steps before them")
    parser.add_argument("--parts", default="alone,together", help="of alone, together, ddp, fsdp2")
    parser.add_argument("--timing", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    words = [*sys.argv[1:], "--"]
    own = words.index("--")  # then the flags of coda_train
    options = parser.parse_args(words[:own])
    if options.micro_batches != 1 and {"ddp", "fsdp2"} & set(options.parts.split(",")):
        parser.error("--micro-batches: PyTorch's step has one, so leave ddp and fsdp2 out of --parts")
    options.gpus = list(range(options.ranks))
    options.flags = ["--training.micro_batch_size", str(options.batch), "--training.seq_len", str(options.length),
                     "--precision", options.precision, *words[own + 1:-1]]
    record = {"config": Path(options.config).stem, "precision": options.precision, "B": options.batch,
              "T": options.length, "ranks": options.ranks, "micro_batches": options.micro_batches}
    header = {"command": " ".join(sys.argv)}
    with tempfile.TemporaryDirectory() as folder:
        for part in options.parts.split(","):
            measured = OURS[part](options, folder) if part in OURS else rival(options, part)
            print(f"{part:9s}", "  ".join(f"{key} {value:.5g}" for key, value in measured.items()), flush=True)
            prefix = "" if part == "together" else f"{part}_"
            record |= {prefix + key: value for key, value in measured.items() if key in ("ms", "gib", "waiting_ms")}
            if part in OURS:
                header |= header_of(folder, part)
    if "alone_ms" in record and "ms" in record:
        record["ratio_alone"] = record["ms"] / record["alone_ms"]
        print(f"tokens/s per GPU, of one GPU's: {1 / record['ratio_alone']:.4f}")
    rivals = [record[f"{part}_ms"] for part in ("ddp", "fsdp2") if f"{part}_ms" in record]
    if rivals and "ms" in record:
        record["torch_ms"] = min(rivals)
        record["ratio"] = record["ms"] / record["torch_ms"]
        print(f"of the better of PyTorch's: {record['ratio']:.4f}")
    if options.json:
        records.write(options.json, header, [record])


if __name__ == "__main__":
    main()
