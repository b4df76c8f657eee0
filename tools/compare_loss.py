#!/usr/bin/env python3
"""Compares the losses of two runs step by step.

Run B is the reference: at each step |A - B| <= atol + rtol * |B| must hold. A step that only one of the runs has is a
difference, and so is a loss that is not finite, in either or in both. Validation losses are compared in the same way
where both runs have some. With --first, only the first N steps; with --last-mean, the mean of the last N steps as well,
under the same tolerance.

With --noise C, a run that differs from B only by rounding (another precision), |A - B| <= factor * |B - C| is allowed
as well, at every step and for the mean: A may be as far from B as rounding takes it.

Exit status: 0 the runs agree, 1 they differ (the first bad step is printed), 2 wrong usage, an unreadable file, or no
picture.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass

import plotting
import runlog


@dataclass
class Tolerance:
    atol: float
    rtol: float
    factor: float = 0.0  # of the noise

    def allowed(self, reference: float, noisy: float | None = None) -> float:
        """`noisy`: the value of the run that shows how much rounding matters."""
        noise = 0.0 if noisy is None else self.factor * abs(reference - noisy)
        return max(self.atol + self.rtol * abs(reference), noise)

    def complaint(self, a: float | None, b: float | None, noisy: float | None = None) -> str | None:
        """What is wrong with the pair, None if nothing is."""
        if a is None or b is None:
            return f"{shown(a)} and {shown(b)}"
        if abs(a - b) <= self.allowed(b, noisy):
            return None
        return f"{shown(a)} and {shown(b)} differ by {abs(a - b):.3g}, allowed are {self.allowed(b, noisy):.3g}"


Series = dict  # step -> loss, None where it is not finite


def shown(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.9g}"


def mean(values: list[float | None]) -> float | None:
    return None if None in values else math.fsum(values) / len(values)


def first_steps(a: Series, b: Series, count: int | None) -> tuple[Series, Series]:
    """Both series up to the step that is the count-th of the two together."""
    if count is None:
        return a, b
    chosen = set(sorted(a.keys() | b.keys())[:count])
    return {s: v for s, v in a.items() if s in chosen}, {s: v for s, v in b.items() if s in chosen}


def first_difference(a: Series, b: Series, tolerance: Tolerance, noise: Series | None = None) -> str | None:
    for step in sorted(a.keys() | b.keys()):
        if step not in a or step not in b:
            return f"step {step} is only in {'A' if step in a else 'B'}"
        if complaint := tolerance.complaint(a[step], b[step], (noise or {}).get(step)):
            return f"step {step}: {complaint}"
    return None


def summary(what: str, a: Series, b: Series) -> str:
    """Largest difference and the means over the steps that both have with a finite value."""
    common = [step for step in a if b.get(step) is not None and a[step] is not None]
    if not common:
        return f"{what}: no step in common"
    worst = max(common, key=lambda step: abs(a[step] - b[step]))
    return (
        f"{what}: {len(common)} steps in common, largest difference {abs(a[worst] - b[worst]):.3g} at step {worst}, "
        f"means {shown(mean([a[s] for s in common]))} and {shown(mean([b[s] for s in common]))}"
    )


def compare(a: runlog.RunLog, b: runlog.RunLog, tolerance: Tolerance, first=None, last_mean=None, key="loss",
            c: runlog.RunLog | None = None):
    """(report, differences): lines about both runs, and what makes them differ, first bad step first."""
    report, differences = [], []
    noise = c.series(key) if c else {}
    whole = a.series(key), b.series(key)
    compared = first_steps(*whole, first)
    report.append(summary(key, *compared))
    if not compared[0] and not compared[1]:
        differences.append("neither run has a training step")
    if found := first_difference(*compared, tolerance, noise):
        differences.append(found)

    if last_mean is not None:
        what = f"mean of the last {last_mean} steps"
        tails = [list(series.items())[-last_mean:] for series in whole]
        spans = [[step for step, _ in tail] for tail in tails]
        if spans[0] != spans[1] or len(spans[0]) < last_mean:
            differences.append(f"{what}: the runs do not end with the same {last_mean} steps")
        else:
            means = [mean([value for _, value in tail]) for tail in tails]
            what += f" ({spans[0][0]} to {spans[0][-1]})"
            report.append(f"{what}: {shown(means[0])} and {shown(means[1])}")
            noisy = mean([noise[step] for step in spans[0]]) if noise.keys() >= set(spans[0]) else None
            if complaint := tolerance.complaint(*means, noisy):
                differences.append(f"{what}: {complaint}")

    if key == "loss" and a.validations and b.validations:
        limit = max(compared[0] | compared[1], default=0) if first is not None else math.inf
        validation = [{s: v for s, v in log.series("val_loss").items() if s <= limit} for log in (a, b)]
        report.append(summary("val_loss", *validation))
        if found := first_difference(*validation, tolerance):
            differences.append(f"validation at {found}")
    elif key == "loss" and (a.validations or b.validations):
        report.append(f"val_loss: only in {'A' if a.validations else 'B'}, not compared")
    return report, differences


def draw(a: runlog.RunLog, b: runlog.RunLog, tolerance: Tolerance, first: int | None, key: str, out: str,
         c: runlog.RunLog | None = None) -> None:
    plt = plotting.pyplot()
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(9, 7), sharex=True, height_ratios=(2, 1), layout="constrained"
    )
    series = a.series(key), b.series(key)
    names = (a.name, b.name) if a.name != b.name else (a.path, b.path)
    for letter, name, values, colour in zip("AB", names, series, plotting.COLOURS):
        plotting.draw_series(top, values, colour, f"{letter}: {name}")
    top.set_title("Loss of two runs" if key == "loss" else f"{key} of two runs")
    top.set_ylabel("cross-entropy loss (nats per token)" if key == "loss" else key)
    top.legend(loc="upper right")

    common = [s for s in series[0] if series[0][s] is not None and series[1].get(s) is not None]
    differences = [abs(series[0][step] - series[1][step]) for step in common]
    bottom.plot(common, differences, color="#374151", linewidth=1.2, label="|A - B|")
    compared = first_steps(*series, first)[1]
    judged = [step for step in common if step in compared]
    noise = c.series(key) if c else {}
    allowed = [tolerance.allowed(compared[step], noise.get(step)) for step in judged]
    bottom.plot(judged, allowed, color=plotting.GREY, linestyle="--", linewidth=1.2, label="allowed")
    bottom.set_ylim(bottom=0)
    bottom.set_ylabel("difference")
    bottom.set_xlabel("step")
    bottom.margins(x=0.02)
    bottom.xaxis.get_major_locator().set_params(integer=True)
    bottom.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    plotting.save(figure, out)


def parse_arguments() -> argparse.Namespace:
    def tolerance(text: str) -> float:
        value = float(text)
        if not (math.isfinite(value) and value >= 0):
            raise ValueError
        return value

    def count(text: str) -> int:
        value = int(text)
        if value < 1:
            raise ValueError
        return value

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a", metavar="A.jsonl", help="log of the run to judge, or its folder")
    parser.add_argument("b", metavar="B.jsonl", help="log of the reference, or its folder")
    parser.add_argument("--atol", type=tolerance, default=0.0, help="absolute tolerance (default 0: the same numbers)")
    parser.add_argument("--rtol", type=tolerance, default=0.0, help="tolerance relative to B (default 0)")
    parser.add_argument("--first", type=count, metavar="N", help="compare only the first N steps one by one")
    parser.add_argument("--last-mean", type=count, metavar="N", help="compare the mean of the last N steps, too")
    parser.add_argument("--noise", metavar="C.jsonl", help="a run that differs from B only by rounding")
    parser.add_argument("--noise-factor", type=tolerance, default=1.5, help="of |B - C|, allowed (default 1.5)")
    parser.add_argument("--key", default="loss", help="another key of the step records, such as grad_norm")
    parser.add_argument("--plot", metavar="FILE", help="draw both curves and their difference (needs matplotlib)")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    if arguments.plot:
        plotting.use_python_with_matplotlib()
    tolerance = Tolerance(arguments.atol, arguments.rtol, arguments.noise_factor)
    try:
        a, b = runlog.read(arguments.a), runlog.read(arguments.b)
        c = runlog.read(arguments.noise) if arguments.noise else None
        report, differences = compare(a, b, tolerance, arguments.first, arguments.last_mean, arguments.key, c)
    except runlog.LogError as error:
        print(f"compare_loss.py: {error}", file=sys.stderr)
        return 2

    for letter, log in (("A", a), ("B", b)):
        torn = ", its last line cut off and left out" if log.torn else ""
        print(f"{letter}: {log.path} ({len(log.steps)} steps{torn})")
    for line in report:
        print(line)
    for difference in differences:
        print(f"DIFFERENT: {difference}")
    if not differences:
        noise = f", or {arguments.noise_factor:g} x |B - C|" if c else ""
        print(f"agree within atol {arguments.atol:g}, rtol {arguments.rtol:g}{noise}")

    if arguments.plot:
        try:
            draw(a, b, tolerance, arguments.first, arguments.key, arguments.plot, c)
            print(arguments.plot)
        except plotting.PlotError as error:
            print(f"compare_loss.py: {error}", file=sys.stderr)
            return 1 if differences else 2
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
