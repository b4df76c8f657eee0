#!/usr/bin/env python3
"""Writes a run as one HTML file that needs no network: losses, throughput, memory, times, configuration, commands.

What it reads: RUN_DIR/log.jsonl; RUN_DIR/plan.json, the memory plan that coda_train puts there; the file of
`coda_train --timing`, by default RUN_DIR/timing.json where it exists; and the log of a reference run.

Exit status: 0 written, 2 wrong usage or a file that cannot be read or written.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys

import runlog
from report import page, timing


class PlanError(Exception):
    """plan.json is not a memory plan; the message names the file."""


def read_plan(path: str) -> dict | None:
    """None without such a file."""
    try:
        with open(path, encoding="utf-8") as file:
            plan = json.load(file)
        plan = {
            "parameters": int(plan["parameters"]),
            "arena_bytes": int(plan["arena_bytes"]),
            "segments": [{"name": str(s["name"]), "bytes": int(s["bytes"])} for s in plan["segments"]],
        }
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise PlanError(f"{path}: no memory plan of coda_train ({type(error).__name__}: {error})") from None
    total = sum(segment["bytes"] for segment in plan["segments"])
    if total != plan["arena_bytes"]:
        raise PlanError(f"{path}: the segments add up to {total} bytes, the arena has {plan['arena_bytes']}")
    return plan


def commands_of(log: runlog.RunLog, reference: runlog.RunLog | None, times: timing.Timing | None) -> list:
    commands = [("The run", log.header.get("command"))]
    if times:
        commands.append(("Its timing", times.header.get("command")))
    if reference:
        commands.append(("The reference", reference.header.get("command")))
    commands.append(("This report", ["tools/report.py", *sys.argv[1:]]))
    seen, kept = [], []
    for what, command in commands:
        if command and command not in seen:
            seen.append(command)
            kept.append((what, command))
    return kept


def parse_arguments() -> argparse.Namespace:
    def positive(text: str) -> float:
        value = float(text)
        if not (math.isfinite(value) and value > 0):
            raise ValueError
        return value

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN_DIR", help="the run's folder, or its log.jsonl")
    parser.add_argument("--reference", metavar="LOG", help="log of another run, or its folder, to lay the losses over")
    parser.add_argument(
        "--timing", metavar="FILE", help="what coda_train --timing wrote (default: RUN_DIR/timing.json)"
    )
    parser.add_argument("--out", metavar="FILE", help="default: RUN_DIR/report.html")
    parser.add_argument(
        "--peak-tflops", type=positive, help="of the device, for the roofline (H100 and H200 are known)"
    )
    parser.add_argument("--peak-gbs", type=positive, help="its memory bandwidth in GB/s")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    try:
        log = runlog.read(arguments.run)
        folder = os.path.dirname(os.path.abspath(log.path))
        reference = runlog.read(arguments.reference) if arguments.reference else None
        times = arguments.timing or os.path.join(folder, "timing.json")
        times = timing.read(times) if arguments.timing or os.path.exists(times) else None
        plan = read_plan(os.path.join(folder, "plan.json"))
        peaks = (
            arguments.peak_tflops * 1e12 if arguments.peak_tflops else None,
            arguments.peak_gbs * 1e9 if arguments.peak_gbs else None,
        )
        content = page.render(log, reference, times, plan, commands_of(log, reference, times), peaks)
    except (runlog.LogError, timing.TimingError, PlanError) as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 2
    out = arguments.out or os.path.join(folder, "report.html")
    try:
        with open(out, "w", encoding="utf-8") as file:
            file.write(content)
    except OSError as error:
        print(f"report.py: {out}: {error.strerror}", file=sys.stderr)
        return 2
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
