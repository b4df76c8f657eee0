"""Whether runs drift: what tools/campaign/drift_measure.py saw, and what may change over a run."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

MOST_POINTS = 600  # of a slope: it takes the median over all pairs


def slope(points: list[tuple[float, float]]) -> float:
    """The median of the slopes of all pairs of points (Theil and Sen), which single outliers do not move; 0 for fewer
    than two different abscissas."""
    stride = max(1, math.ceil(len(points) / MOST_POINTS))
    points = points[::stride]
    slopes = [(y2 - y1) / (x2 - x1) for i, (x1, y1) in enumerate(points) for x2, y2 in points[i + 1:] if x2 != x1]
    return statistics.median(slopes) if slopes else 0.0


@dataclass(frozen=True)
class Limits:
    skip: int = 10  # steps at the beginning that do not count: buffers are touched for the first time
    # Part of a run whose times do not count. A GPU at its power limit slows down while it warms up: two H200 by 0.5% in
    # the first four minutes, and by 0.1% or less, up or down, in the next four.
    warm_up: float = 0.5
    trend: float = 0.0025  # of ms per step over the rest of a run, relative
    rss_mib: float = 2.0  # growth of anonymous resident memory over a run
    least_samples: int = 10


def counted_samples(run: dict, limits: Limits) -> list[dict]:
    return [sample for sample in run["samples"] if sample["steps"] > limits.skip]


def bins(run: dict, limits: Limits) -> list[dict]:
    """Per pair of successive samples with new steps between them, after the warm-up: the mid time, the median ms of
    those steps, and the SM clock where it is known."""
    begin = limits.warm_up * run["samples"][-1]["s"] if run["samples"] else 0
    found, samples = [], [sample for sample in counted_samples(run, limits) if sample["s"] >= begin]
    for before, after in zip(samples, samples[1:]):
        ms = [ms for _, _, ms in run["steps"][before["steps"]:after["steps"]]]
        if ms:
            clock = [sample["sm_mhz"] for sample in (before, after) if sample.get("sm_mhz")]
            found.append({"s": (before["s"] + after["s"]) / 2, "ms": statistics.median(ms),
                          "mhz": statistics.mean(clock) if clock else None})
    return found


def time_trend(run: dict, limits: Limits) -> tuple[float, float, float]:
    """Relative change of ms per step after the warm-up: measured, and corrected for the SM clock; and the exponent of
    the clock in ms ~ clock^exponent, which is fitted with the trend, between -1 (all arithmetic) and 0 (all memory)."""
    found = bins(run, limits)
    if len(found) < 2:
        return 0.0, 0.0, 0.0
    length = found[-1]["s"] - found[0]["s"]
    time = [(point["s"], math.log(point["ms"])) for point in found]
    raw = slope(time)
    exponent, corrected = 0.0, raw
    if all(point["mhz"] for point in found):
        clock = [math.log(point["mhz"]) for point in found]
        for _ in range(10):  # each given the other
            exponent = slope(sorted((c, y - corrected * s) for c, (s, y) in zip(clock, time)))
            exponent = min(0.0, max(-1.0, exponent))
            corrected = slope([(s, y - exponent * c) for c, (s, y) in zip(clock, time)])
    return raw * length, corrected * length, exponent


def rss_growth_mib(run: dict, limits: Limits) -> float:
    samples = [sample for sample in counted_samples(run, limits) if sample["rss_kib"] is not None]
    if len(samples) < 2:
        return 0.0
    return slope([(sample["s"], sample["rss_kib"]) for sample in samples]) * (samples[-1]["s"] - samples[0]["s"]) / 1024


def run_problems(run: dict, limits: Limits) -> list[str]:
    samples = counted_samples(run, limits)
    if len(samples) < limits.least_samples or any(sample["rss_kib"] is None for sample in samples):
        return [f"only {len(samples)} samples after step {limits.skip}, {limits.least_samples} are needed, each with "
                "the resident memory"]
    found = []
    device = [sample["device_mib"] for sample in samples if "device_mib" in sample]
    if device and min(device) != max(device):
        found.append(f"device memory after step {limits.skip} is from {min(device):.0f} to {max(device):.0f} MiB")
    growth = rss_growth_mib(run, limits)
    if growth > limits.rss_mib:
        found.append(f"resident memory grows by {growth:.2f} MiB over the run, at most {limits.rss_mib} is allowed")
    raw, corrected, exponent = time_trend(run, limits)
    if abs(corrected) > limits.trend:
        found.append(f"ms per step change by {100 * corrected:+.3f}% after the warm-up, corrected for the clock "
                     f"({100 * raw:+.3f}% as measured, clock^{exponent:.2f}); at most "
                     f"{100 * limits.trend:g}% is allowed")
    numbers = [step for step, _, _ in run["steps"]]
    if numbers != list(range(1, len(numbers) + 1)):
        found.append("the log lacks steps")
    if not all(loss.replace(".", "").replace("e", "").replace("-", "").isdigit() for _, loss, _ in run["steps"]):
        found.append("a loss is not finite")
    return found


def loss_problems(runs: list[dict]) -> list[str]:
    """Losses of the steps that all runs have must be equal in every digit, and there must be many."""
    common = min(len(run["steps"]) for run in runs)
    longest = max(len(run["steps"]) for run in runs)
    if common < longest / 2:
        return [f"one run made {common} steps, another {longest}"]
    for number, run in enumerate(runs[1:], start=2):
        for (step, loss, _), (_, other, _) in zip(runs[0]["steps"][:common], run["steps"]):
            if loss != other:
                return [f"loss of step {step}: {loss} in run 1, {other} in run {number}"]
    return []


def problems(runs: list[dict], limits: Limits) -> list[str]:
    return [f"run {number}: {problem}" for number, run in enumerate(runs, start=1)
            for problem in run_problems(run, limits)] + loss_problems(runs)


def describe(run: dict, limits: Limits) -> str:
    """A run in one line."""
    raw, corrected, exponent = time_trend(run, limits)
    samples = counted_samples(run, limits)
    ms = [ms for _, _, ms in run["steps"][limits.skip:]] or [0.0]
    parts = [f"{len(run['steps'])} steps, median {statistics.median(ms):.3f} ms, trend after the warm-up {100 * raw:+.3f}%, "
             f"with the clock taken out {100 * corrected:+.3f}% (clock^{exponent:.2f})",
             f"resident {rss_growth_mib(run, limits):+.3f} MiB"]
    for name, unit in (("device_mib", "MiB of the device"), ("sm_mhz", "MHz"), ("watts", "W"), ("celsius", "C")):
        values = [sample[name] for sample in samples if name in sample]
        if values:
            parts.append(f"{min(values):g} to {max(values):g} {unit}")
    return ", ".join(parts)
