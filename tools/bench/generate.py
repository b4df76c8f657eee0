#!/usr/bin/env python3
"""Runs coda_generate --bench and writes its figures as records.

    python3 tools/bench/generate.py BENCH GENERATE --model DIR --json FILE [flags of coda_generate ...]

BENCH is coda_bench, which says which GPU and sources the records are of; GENERATE is coda_generate of the same build. A
record's model is DIR's name, or --name. FILE is {header, records} for tools/bench/records.py (generate).

With --config C, the configuration of the same model, a prefill of 1024 tokens or more at batch 1 is compared with a
training forward pass of as many (coda_bench step, one sequence), in turns, --rounds times. The pass has the head and
the loss of all tokens, a prefill the head of the last one. Figures are medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import records

SHORTEST = 1024  # tokens of a prefill that is compared


def bench(options, flags):
    """The records of one run of coda_generate --bench."""
    command = [options.generate, "--model", options.model, "--bench", "--json", *flags]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    return [json.loads(line) for line in done.stdout.splitlines()]


def forward_ms(options, tokens):
    """Milliseconds of the forward pass of a training step of one sequence."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "step.json")
        subprocess.run([options.bench, "step", "--config", options.config, "--training.micro_batch_size", "1",
                        "--training.seq_len", str(tokens), "--training.lm_head_chunks", "1", "--no-floor", "--json",
                        path], check=True, stdout=subprocess.DEVNULL)
        made = records.read(path)[1]
    return next(record["forward_ms"] for record in made if record["part"] == "forward_backward")


def compared(options, flags):
    """The records of all rounds as one each, with the forward pass where it is compared."""
    rounds, forwards = [], []
    for _ in range(options.rounds):
        rounds.append(bench(options, flags))
        lengths = [r["context"] for r in rounds[-1] if r["batch"] == 1 and r["context"] >= SHORTEST]
        forwards.append({tokens: forward_ms(options, tokens) for tokens in lengths})
    made = []
    for same in zip(*rounds, strict=True):
        record = {name: statistics.median(r[name] for r in same) if isinstance(value, float) else value
                  for name, value in same[0].items()}
        if record["batch"] == 1 and record["context"] in forwards[0]:
            beside = [forward[record["context"]] for forward in forwards]
            record["forward_ms"] = statistics.median(beside)
            record["prefill_ratio"] = statistics.median(r["prefill_ms"] / ms for r, ms in zip(same, beside))
        made.append(record)
    return made


def line(record):
    share, ratio = record.get("share_of_bandwidth"), record.get("prefill_ratio")
    return (f"{record['model']} batch {record['batch']} context {record['context']:6d}  first token "
            f"{record['first_token_ms']:8.2f} ms  step {record['ms']:7.3f} ms  {record['tokens_per_s']:8.1f} tokens/s" +
            (f"  {100 * share:.0f}% of {record['peak_tb_s']:.2f} TB/s" if share else "") +
            (f"  prefill {record['prefill_ms']:.2f} ms, {ratio:.3f} of a training forward" if ratio else ""))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", metavar="BENCH")
    parser.add_argument("generate", metavar="GENERATE")
    parser.add_argument("--model", required=True, metavar="DIR")
    parser.add_argument("--name", metavar="NAME", help="default: DIR's")
    parser.add_argument("--config", metavar="FILE", help="compare the prefill with this configuration's forward pass")
    parser.add_argument("--rounds", type=int, default=3, help="with --config (default: 3)")
    parser.add_argument("--json", required=True, metavar="FILE")
    options, flags = parser.parse_known_args()
    header = json.loads(subprocess.run([options.bench, "header"], check=True, capture_output=True, text=True).stdout)
    name = options.name or os.path.basename(os.path.abspath(options.model))
    made = [{"model": name} | record
            for record in (compared(options, flags) if options.config else bench(options, flags))]
    for record in made:
        print(line(record))
    records.write(options.json, header | {"command": " ".join(sys.argv)}, made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
