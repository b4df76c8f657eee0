#!/usr/bin/env python3
"""The whole training step of llm.c's GPT-2 124M compared with coda_bench step's, in turns on one GPU.

    git clone https://github.com/karpathy/llm.c && make -C llm.c train_gpt2cu USE_CUDNN=1
    python3 tools/bench/llmc_step.py BENCH llm.c/train_gpt2cu [--config configs/gpt2_124m.json] [--rounds N]

BENCH is the coda_bench program. Both train the shape of GPT-2 124M in bf16 with fp32 master weights, B32 T1024, without
recomputation. First llm.c runs once with each value of -ge (GELU within cuBLASLt's epilogues: none, forward, both), and
the fastest value counts. A round runs coda_bench step, then llm.c; a time is the median over the rounds of each round's median, ratio is
ours over llm.c's, the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from coda_step import coda_step

sys.path.append(str(Path(__file__).resolve().parent.parent))
from token_shard import shard_bytes  # noqa: E402

VOCAB, SKIPPED = 50257, 10  # tokens; llm.c's first steps, in which it chooses algorithms


def write_shard(path, tokens):
    """GPT-2 tokens drawn from a seed."""
    source = random.Random(1)
    path.write_bytes(shard_bytes(source.randrange(VOCAB) for _ in range(tokens)))


def llmc_ms(options, shard, fusion):
    """The median of a run's steps."""
    command = [options.llmc, "-i", shard, "-j", shard, "-e", "d12", "-b", options.batch, "-t", options.length, "-d",
               options.batch * options.length, "-x", options.steps + SKIPPED, "-v", 1000000, "-m", 1, "-s", 0, "-h", 0,
               "-r", 0, "-l", 0.0006, "-c", 0.1, "-ge", fusion]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    times = [float(ms) for ms in re.findall(r"^step .*\| ([0-9.]+) ms \|", done.stdout, re.M)]
    if done.returncode != 0 or len(times) <= SKIPPED:
        sys.exit(f"llmc_step.py: {options.llmc} ended with {done.returncode}, after {len(times)} steps:\n"
                 f"{(done.stdout + done.stderr)[-2000:]}")
    return statistics.median(times[SKIPPED:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("llmc", help="llm.c's train_gpt2cu")
    parser.add_argument("--config", default=str(Path(__file__).resolve().parents[2] / "configs" / "gpt2_124m.json"))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warm-up", type=float, default=2, help="seconds, of coda_bench")
    parser.add_argument("--verbose", action="store_true", help="print what coda_bench prints")
    options = parser.parse_args()
    shape = ["--training.micro_batch_size", str(options.batch), "--training.seq_len", str(options.length), "--no-floor"]
    with tempfile.TemporaryDirectory() as folder:
        shard = Path(folder) / "tokens.bin"
        write_shard(shard, 20 * options.batch * options.length + 1)
        by_fusion = {fusion: llmc_ms(options, shard, fusion) for fusion in (0, 1, 2)}
        fusion = min(by_fusion, key=by_fusion.get)
        print("llm.c, -ge 0, 1, 2:", ", ".join(f"{ms:.2f} ms" for ms in by_fusion.values()), flush=True)
        ours, theirs = [], []
        for _ in range(options.rounds):
            records = coda_step(options, shape)["records"]
            ours += [record["ms"] for record in records if record["part"] == "step"]
            theirs.append(llmc_ms(options, shard, fusion))
            print(f"coda_train {ours[-1]:.2f} ms, llm.c {theirs[-1]:.2f} ms, ratio {ours[-1] / theirs[-1]:.3f}",
                  flush=True)
    ratio = statistics.median(a / b for a, b in zip(ours, theirs))
    print(f"whole step: coda_train {statistics.median(ours):.2f} ms, llm.c {statistics.median(theirs):.2f} ms with -ge "
          f"{fusion}, ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
