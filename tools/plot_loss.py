#!/usr/bin/env python3
"""Draws the training and validation loss of one or more runs into a picture."""

from __future__ import annotations

import argparse
import math
import os
import sys

import plotting
import runlog


def labels(logs: list[runlog.RunLog]) -> list[str]:
    """The runs' names, or their paths where two share a name."""
    names = [log.name for log in logs]
    return names if len(set(names)) == len(names) else [log.path for log in logs]


def last_finite(series: dict[int, float | None]) -> tuple[int, float] | None:
    return next(((step, value) for step, value in reversed(series.items()) if value is not None), None)


def outcome(log: runlog.RunLog) -> str:
    """Where the run ended, for the line under the title."""
    ends = []
    for key, what in (("loss", "training"), ("val_loss", "validation")):
        if last := last_finite(log.series(key)):
            ends.append(f"{what} loss {last[1]:.4f} at step {last[0]}")
    return ", ".join(ends)


def draw(logs: list[runlog.RunLog], out: str, title: str | None = None) -> None:
    plt = plotting.pyplot()
    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    single = len(logs) == 1
    for number, (log, name) in enumerate(zip(logs, labels(logs))):
        colour = plotting.COLOURS[number % len(plotting.COLOURS)]
        if log.steps:
            plotting.draw_series(axes, log.series("loss"), colour, "training" if single else f"{name}: training")
        if log.validations:
            validation = log.series("val_loss")
            axes.plot(
                list(validation),
                [math.nan if value is None else value for value in validation.values()],
                color=plotting.COLOURS[1] if single else colour,
                linestyle="--", linewidth=1.4, marker="o", markersize=4.5, markerfacecolor="white",
                label="validation" if single else f"{name}: validation",
            )
    axes.set_xlabel("step")
    axes.set_ylabel("cross-entropy loss (nats per token)")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.margins(x=0.02)
    if single:
        axes.set_title(title or logs[0].name, pad=24)
        axes.text(0, 1.025, outcome(logs[0]), transform=axes.transAxes, color=plotting.GREY, fontsize=10)
    else:
        axes.set_title(title or "Loss")
    axes.legend(loc="upper right")
    plotting.save(figure, out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="+", metavar="LOG", help="log.jsonl of a run, or the run's folder")
    parser.add_argument("--out", help="the picture: .png, .svg or .pdf (default: loss.png next to the first log)")
    parser.add_argument("--title", help="default: the run's name")
    arguments = parser.parse_args()

    def picture() -> str:
        logs = [runlog.read(path) for path in arguments.logs]
        out = arguments.out or os.path.join(os.path.dirname(logs[0].path), "loss.png")
        draw(logs, out, arguments.title)
        return out

    return plotting.run("plot_loss.py", picture, runlog.LogError)


if __name__ == "__main__":
    sys.exit(main())
