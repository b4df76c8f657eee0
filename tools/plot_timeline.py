#!/usr/bin/env python3
"""Draws some steps of the loops of attention's kernels: what each consumer warpgroup does when.

    cmake --preset hopper -DCODA_STAMPS=ON && cmake --build --preset hopper --target coda_bench
    coda_bench attention --batch 2 --head-dim 128 --warm-up 0 --block 0.001 --blocks 1 > stamps.txt
    tools/plot_timeline.py stamps.txt --out timeline.png

After each launch, such a build prints the clocks at which each warpgroup of block 0 reached the marks of its loop
(kernels/hopper/sm90/stamps.cuh). A bar is the time up to a mark. Launches with the same marks are of the same kernel,
and the picture has steps of the first launch of each kernel.
"""

from __future__ import annotations

import argparse
import os
import sys

import plotting

BEGINS = "step"  # the mark at which a step begins
CLOCKS = 1 << 32  # a stamp is the low 32 bits of the SM's clock
KERNELS = {"turn": "Forward", "dQ passed": "Backward"}  # by a mark that only it has


class StampsError(Exception):
    """There are no stamps to draw; the message says why."""


def launches(path: str) -> list[dict[int, list[tuple[int, str]]]]:
    """For each launch of the file, (clock, mark) of each role. A launch prints its roles in ascending order."""
    found: list[dict[int, list[tuple[int, str]]]] = []
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                fields = line.rstrip("\n").split("\t")
                if len(fields) != 4 or fields[0] != "stamp":
                    continue
                role, clock, mark = int(fields[1]), int(fields[2]), fields[3]
                if not found or role < max(found[-1]):
                    found.append({})
                found[-1].setdefault(role, []).append((clock, mark))
    except OSError as error:
        raise StampsError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise StampsError(f"{path}: the role and the clock of a stamp must be whole numbers") from None
    return found


def since_first(launch: dict[int, list[tuple[int, str]]]) -> dict[int, list[tuple[int, str]]]:
    """The launch with clocks from its first stamp on. Between two stamps are less than 2^31 clocks, so it does not matter
    where the clock begins again at 0."""
    reference = next(iter(launch.values()))[0][0]

    def offset(clock: int) -> int:
        return (clock - reference + CLOCKS // 2) % CLOCKS - CLOCKS // 2

    zero = min(offset(stamps[0][0]) for stamps in launch.values())
    return {role: [(offset(clock) - zero, mark) for clock, mark in stamps] for role, stamps in launch.items()}


def kernels(path: str) -> list[dict[int, list[tuple[int, str]]]]:
    """The first launch of each kernel: of each set of marks."""
    first: dict[frozenset[str], dict[int, list[tuple[int, str]]]] = {}
    for launch in launches(path):
        first.setdefault(frozenset(mark for stamps in launch.values() for _, mark in stamps), launch)
    chosen = [since_first(launch) for marks, launch in first.items() if BEGINS in marks]
    if not chosen:
        raise StampsError(f"{path} has no stamps: it is the output of coda_bench attention, built with CODA_STAMPS")
    return chosen


def steps_of(stamps: list[tuple[int, str]], first: int, count: int, path: str) -> list[tuple[int, str]]:
    starts = [i for i, (_, mark) in enumerate(stamps) if mark == BEGINS]
    if first + count >= len(starts):
        raise StampsError(f"{path} has {max(len(starts) - 1, 0)} whole steps, not {first + count}")
    return stamps[starts[first] : starts[first + count] + 1]


def draw(path: str, first: int, count: int, out: str) -> None:
    found = kernels(path)
    plt = plotting.pyplot()
    figure, panels = plt.subplots(len(found), 1, figsize=(12, 2.9 * len(found)), layout="constrained", squeeze=False)
    for axes, launch in zip(panels[:, 0], found):
        chosen = {role: steps_of(stamps, first, count, path) for role, stamps in launch.items()}
        zero = min(stamps[0][0] for stamps in chosen.values())
        marks = list(dict.fromkeys(mark for stamps in chosen.values() for _, mark in stamps[1:]))
        colours = plt.get_cmap("tab20")
        for mark_index, mark in enumerate(marks):
            for row, stamps in enumerate(chosen.values()):
                bars = [(before - zero, clock - before)
                        for (before, _), (clock, name) in zip(stamps, stamps[1:]) if name == mark]
                axes.broken_barh(bars, (row - 0.4, 0.8), color=colours(mark_index), linewidth=0,
                                 label=f"to: {mark}" if row == 0 else None)
        for row, stamps in enumerate(chosen.values()):
            for clock, mark in stamps:
                if mark == BEGINS:
                    axes.vlines(clock - zero, row - 0.48, row + 0.48, color="black", linewidth=1.5)
        axes.set_yticks(range(len(chosen)), [f"warpgroup {role}" for role in chosen])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.margins(x=0.01)
        axes.set_xlabel("clocks")
        length = sum(stamps[-1][0] - stamps[0][0] for stamps in chosen.values()) / len(chosen) / count
        kernel = next((name for mark, name in KERNELS.items() if mark in marks), "A kernel")
        axes.set_title(f"{kernel}: {length:.0f} clocks a step")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)
    plotting.save(figure, out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stamps", metavar="FILE", help="the output of coda_bench attention")
    parser.add_argument("--first", type=int, default=40, metavar="N", help="first step, from 0 on (default: 40)")
    parser.add_argument("--steps", type=int, default=3, metavar="N", help="steps to draw (default: 3)")
    parser.add_argument("--out", help="the picture: .png, .svg or .pdf (default: the file's name with .png)")
    arguments = parser.parse_args()
    if arguments.first < 0 or arguments.steps < 1:
        parser.error("--first counts from 0, and there is at least one step")

    def picture() -> str:
        out = arguments.out or os.path.splitext(arguments.stamps)[0] + ".png"
        draw(arguments.stamps, arguments.first, arguments.steps, out)
        return out

    return plotting.run("plot_timeline.py", picture, StampsError)


if __name__ == "__main__":
    sys.exit(main())
