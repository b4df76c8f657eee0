#!/usr/bin/env python3
"""Runs coda_generate --bench and writes its figures as records.

    python3 tools/bench/generate.py BENCH GENERATE --model DIR --json FILE [flags of coda_generate ...]

BENCH is coda_bench, which says which GPU and sources the records are of; GENERATE is coda_generate of the same build. A
record's model is DIR's name, or --name. FILE is {header, records} for tools/bench/records.py (generate).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

import records


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", metavar="BENCH")
    parser.add_argument("generate", metavar="GENERATE")
    parser.add_argument("--model", required=True, metavar="DIR")
    parser.add_argument("--name", metavar="NAME", help="default: DIR's")
    parser.add_argument("--json", required=True, metavar="FILE")
    options, flags = parser.parse_known_args()
    header = json.loads(subprocess.run([options.bench, "header"], check=True, capture_output=True, text=True).stdout)
    command = [options.generate, "--model", options.model, "--bench", "--json", *flags]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return done.returncode
    name = options.name or os.path.basename(os.path.abspath(options.model))
    made = [{"model": name} | json.loads(line) for line in done.stdout.splitlines()]
    for record in made:
        share = record.get("share_of_bandwidth")
        print(f"{name} batch {record['batch']} context {record['context']:6d}  first token "
              f"{record['first_token_ms']:8.2f} ms  step {record['ms']:7.3f} ms  {record['tokens_per_s']:8.1f} tokens/s" +
              (f"  {100 * share:.0f}% of {record['peak_tb_s']:.2f} TB/s" if share else ""))
    records.write(options.json, header | {"command": " ".join(sys.argv)}, made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
