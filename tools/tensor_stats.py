#!/usr/bin/env python3
"""What coda_train --tensor-stats wrote, as a table: one row per tensor, over all layers and steps.

    tools/tensor_stats.py stats.jsonl [MORE.jsonl ...] [--by-layer] [--from STEP] [--to STEP]

Several files are the parts of one run (it was resumed). The columns:

    amax          the largest magnitude
    rms           the smallest and the largest root mean square of a step
    amax/rms      the largest of a step: what one scale per tensor has to span
    row amax/rms  the largest of a row, as one scale per row has it
    up, down      the largest rise and fall of amax from one watched step to the next, as factors: what a scale that was
                  chosen a step before has to leave room for
    zeros         the largest share of elements that are zero
    bad           steps in which the tensor was not finite

Each of the largest is followed by where it was: LAYER@STEP, head@STEP outside the layers. Exit status: 0 done, 1 a file
is not what --tensor-stats writes, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass, field

FIELDS = ("step", "layer", "tensor", "amax", "rms", "zeros", "row_peak")
PER_TENSOR, UP = 1e3, 4.0  # beyond these, one scale per tensor, or one of the step before with two bits of room, fails


class StatsError(Exception):
    """The file is not what --tensor-stats writes; the message names file and line."""


@dataclass
class Extreme:
    """The largest value so far and where it was."""

    value: float = 0.0
    where: str = "-"

    def see(self, value: float, where: str) -> None:
        if value > self.value:
            self.value, self.where = value, where


@dataclass
class Summary:
    amax: Extreme = field(default_factory=Extreme)
    peak: Extreme = field(default_factory=Extreme)
    row_peak: Extreme = field(default_factory=Extreme)
    up: Extreme = field(default_factory=Extreme)
    down: Extreme = field(default_factory=Extreme)
    zeros: Extreme = field(default_factory=Extreme)
    rms: list[float] = field(default_factory=list)
    bad: int = 0

    def see(self, record: dict, before: dict | None) -> None:
        where = f"{'head' if record['layer'] < 0 else record['layer']}@{record['step']}"
        self.zeros.see(record["zeros"], where)
        if record["amax"] is None or record["rms"] is None:
            self.bad += 1
            return
        self.rms.append(record["rms"])
        self.amax.see(record["amax"], where)
        self.row_peak.see(record["row_peak"], where)
        if record["rms"] > 0:
            self.peak.see(record["amax"] / record["rms"], where)
        if before and before["amax"] and record["amax"]:
            self.up.see(record["amax"] / before["amax"], where)
            self.down.see(before["amax"] / record["amax"], where)


def read(path: str) -> list[dict]:
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise StatsError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if lines.pop():  # of a run that was killed, or writes it now
        print(f"{path}: the last line is cut off and is left out", file=sys.stderr)
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise StatsError(f"{path}:{number}: not JSON ({error})") from None
        if not isinstance(record, dict) or ("header" not in record if number == 1 else not all(
                name in record for name in FIELDS)):
            raise StatsError(f"{path}:{number}: not what coda_train --tensor-stats writes")
        records += [record] if number > 1 else []
    if not records:
        raise StatsError(f"{path}: holds no step")
    return records


def summarise(records: list[dict], by_layer: bool) -> dict[str, Summary]:
    """By the tensor's name, or by that and the layer, in the order of the file."""
    summaries, latest = {}, {}
    for record in records:
        place = record["layer"], record["tensor"]
        name = record["tensor"]
        if by_layer and record["layer"] >= 0:
            name = f"{record['layer']} {name}"
        summaries.setdefault(name, Summary()).see(record, latest.get(place))
        latest[place] = record
    return summaries


def table(summaries: dict[str, Summary]) -> str:
    def cell(extreme, form):
        return f"{extreme.value:{form}} {extreme.where}" if extreme.where != "-" else "-"

    rows = [("tensor", "amax", "rms", "amax/rms", "row amax/rms", "up", "down", "zeros", "bad")]
    for name, one in summaries.items():
        rms = f"{min(one.rms):.2e}..{max(one.rms):.2e}" if one.rms else "-"
        rows.append((name, cell(one.amax, ".3g"), rms, cell(one.peak, ".1f"), cell(one.row_peak, ".1f"),
                     cell(one.up, ".2f"), cell(one.down, ".2f"), cell(one.zeros, ".2%"), str(one.bad)))
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(word.ljust(width) for word, width in zip(row, widths)).rstrip() for row in rows)


def verdicts(summaries: dict[str, Summary]) -> list[str]:
    said = []
    for name, one in summaries.items():
        if one.peak.value > PER_TENSOR:
            said.append(f"{name}: amax/rms {one.peak.value:.0f} at {one.peak.where}: more than one 8-bit scale spans")
        if one.up.value > UP:
            said.append(f"{name}: amax grew by {one.up.value:.1f} at {one.up.where}: more than two bits of headroom")
    return said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--by-layer", action="store_true", help="one row per layer and tensor")
    parser.add_argument("--from", type=int, dest="first", metavar="STEP", help="leave earlier steps out")
    parser.add_argument("--to", type=int, dest="last", metavar="STEP", help="leave later steps out")
    options = parser.parse_args()
    try:
        records = [record for path in options.files for record in read(path)]
    except StatsError as error:
        print(f"{os.path.basename(sys.argv[0])}: {error}", file=sys.stderr)
        return 1
    records = [record for record in records if (options.first is None or record["step"] >= options.first) and
               (options.last is None or record["step"] <= options.last)]
    records.sort(key=lambda record: record["step"])  # stable: the order within a step stays
    if not records:
        print(f"{os.path.basename(sys.argv[0])}: no step lies from --from to --to", file=sys.stderr)
        return 1
    steps = sorted({record["step"] for record in records})
    summaries = summarise(records, options.by_layer)
    print(f"{len(steps)} steps from {steps[0]} to {steps[-1]}\n{table(summaries)}")
    for line in verdicts(summaries):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
