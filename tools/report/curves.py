"""Curves over the steps of a run, with what the page's script needs to show the values under the pointer."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import plotting

from . import scale, svg

BUCKETS = 1200  # a curve of more steps is drawn as mean, least and greatest of this many groups of neighbours
WIDE, NARROW = 920, 400
LEGEND_CHARACTER = 7.2  # pixels of an average bold character

Series = dict  # step -> value, None where it is not finite


@dataclass
class Curve:
    name: str
    series: Series
    role: str  # training, validation, reference or plain: its colour
    noisy: bool = False  # drawn faint with a smoothed line over it
    marks: bool = False  # every value has a mark
    dashed: bool = False
    spikes: frozenset = frozenset()  # steps whose value has a mark of its own


@dataclass
class Look:
    y_label: str
    zero: bool = False  # the axis begins at 0, or has 0 in it
    log: bool = False
    level: tuple[float, str] | None = None  # a horizontal line and what it says
    y_text: object = None  # a tick's text


@dataclass
class Buckets:
    steps: list[float]
    means: list[float]  # NaN where no value is finite
    low: list[float]
    high: list[float]
    lost: list[float]  # steps without a finite value


def buckets_of(series: Series) -> Buckets:
    items = list(series.items())
    size = max(1, -(-len(items) // BUCKETS))
    result = Buckets([], [], [], [], [step for step, value in items if value is None])
    for i in range(0, len(items), size):
        group = items[i : i + size]
        values = [value for _, value in group if value is not None]
        result.steps.append(group[len(group) // 2][0])
        result.means.append(math.fsum(values) / len(values) if values else math.nan)
        result.low.append(min(values, default=math.nan))
        result.high.append(max(values, default=math.nan))
    return result


def finite(curves: list[Curve]) -> list[float]:
    return [value for curve in curves for value in curve.series.values() if value is not None]


def wants_log(series: Series) -> bool:
    """Whether the largest value would squeeze the usual ones into the bottom of a linear axis."""
    values = sorted(value for value in series.values() if value is not None)
    return bool(values) and values[0] > 0 and values[-1] > 15 * values[len(values) // 2]


def y_scale(curves: list[Curve], look: Look, start: float, end: float) -> scale.Scale:
    values = finite(curves) + ([look.level[0]] if look.level and not look.log else [])
    low, high = min(values, default=0.0), max(values, default=1.0)
    if look.log:
        return scale.Scale(low / 1.15, high * 1.15, start, end, log=True)
    padded = scale.padded(min(low, 0.0) if look.zero else low, max(high, 0.0) if look.zero else high)
    return scale.Scale(0.0 if look.zero and low >= 0 else padded[0], padded[1], start, end)


def points(steps: list[float], values: list[float], x: scale.Scale, y: scale.Scale):
    return [None if math.isnan(value) else (x(step), y(value)) for step, value in zip(steps, values)]


def draw_curve(curve: Curve, x: scale.Scale, y: scale.Scale) -> str:
    found = buckets_of(curve.series)
    drawn, values, css = [], found.means, f"curve {curve.role}{' dashed' if curve.dashed else ''}"
    half_width = len(values) // 80 if curve.noisy else 0
    if half_width >= 1:
        if len(curve.series) > len(values):  # the band from the least to the greatest value of each group
            for first in (i for i, low in enumerate(found.low) if not math.isnan(low)):
                drawn.append(
                    svg.line(
                        x(found.steps[first]),
                        y(found.low[first]),
                        x(found.steps[first]),
                        y(found.high[first]),
                        f"curve faint {curve.role}",
                    )
                )
        elif not curve.dashed:
            drawn.append(svg.path(points(found.steps, values, x, y), f"curve faint {curve.role}"))
        values = plotting.smoothed(values, half_width)
    drawn.append(svg.path(points(found.steps, values, x, y), css))
    if curve.marks:
        for point in points(found.steps, values, x, y):
            if point:
                drawn.append(svg.element("circle", cx=point[0], cy=point[1], r=3.2, class_=f"mark {curve.role}"))
    for step in sorted(curve.spikes & curve.series.keys())[:BUCKETS]:
        if (value := curve.series[step]) is not None:
            drawn.append(svg.element("circle", cx=x(step), cy=y(value), r=4, class_="spike"))
    for step in found.lost[:BUCKETS]:
        at, bottom = x(step), y.start - 6
        cross = f"M{at - 4},{bottom - 4}l8,8m0,-8l-8,8"
        drawn.append(svg.element("path", d=cross, class_=f"curve lost {curve.role}"))
    return "".join(drawn)


def end_labels(curves: list[Curve], x: scale.Scale, y: scale.Scale) -> str:
    """Names at the curves' ends, moved apart where they would meet."""
    labels = []
    for curve in curves:
        found = buckets_of(curve.series)
        values = plotting.smoothed(found.means, len(found.means) // 80) if curve.noisy else found.means
        last = next((v for v in reversed(values) if not math.isnan(v)), None)
        if last is not None:
            labels.append([y(last) + 4, curve])
    labels.sort(key=lambda label: label[0])
    for above, below in zip(labels, labels[1:]):
        below[0] = max(below[0], above[0] + 15)
    if labels and (excess := labels[-1][0] - y.start) > 0:  # pushed below the axis: up again, from the last
        labels[-1][0] -= excess
        for below, above in zip(reversed(labels), reversed(labels[:-1])):
            above[0] = min(above[0], below[0] - 15)
    return "".join(svg.text(x.end + 8, at, curve.name, f"name {curve.role}") for at, curve in labels)


def legend_rows(curves: list[Curve], width: float) -> list[list[Curve]]:
    """The curves in lines of the legend, each as full as fits."""
    rows: list[list[Curve]] = [[]]
    used = 0.0
    for curve in curves:
        needed = len(curve.name) * LEGEND_CHARACTER + 44
        if rows[-1] and used + needed > width:
            rows.append([])
            used = 0.0
        rows[-1].append(curve)
        used += needed
    return rows


def legend(rows: list[list[Curve]]) -> str:
    """Names with a stroke of their colour before them, above the figure."""
    parts = []
    for row, curves in enumerate(rows):
        left, y = 2.0, 12 + 18 * row
        for curve in curves:
            dashed = " dashed" if curve.dashed else ""
            parts.append(svg.line(left, y - 4, left + 18, y - 4, f"curve {curve.role}{dashed}"))
            parts.append(svg.text(left + 24, y, curve.name, f"name {curve.role}"))
            left += len(curve.name) * LEGEND_CHARACTER + 44
    return "".join(parts)


def draw(curves: list[Curve], look: Look, width: int, height: int, label: str, class_: str = "") -> str:
    curves = [curve for curve in curves if curve.series]
    ends = width >= WIDE and len(curves) > 1
    rows = legend_rows(curves, width) if len(curves) > 1 and not ends else []
    longest = max((len(curve.name) for curve in curves), default=0)
    left, right = 58, width - (longest * LEGEND_CHARACTER + 16 if ends else 12)
    top, bottom = 30 + 18 * len(rows) + (4 if rows else 0), height - 42
    steps = [step for curve in curves for step in curve.series]
    low, high = min(steps, default=0), max(steps, default=1)
    x = scale.Scale(*((low, high) if high > low else scale.padded(low, high)), left, right)
    y = y_scale(curves, look, bottom, top)
    x_ticks = max(3, width // 110)
    parts = [svg.axes(x, y, "step", look.y_label, scale.si, look.y_text or tick_text(y), x_ticks, max(3, height // 55))]
    if look.level and y.low <= look.level[0] <= y.high:
        at = y(look.level[0])
        parts.append(svg.line(left, at, right, at, "level"))
        if look.level[1]:
            parts.append(svg.text(right, at - 5, look.level[1], "tick", "end"))
    order = sorted(curves, key=lambda curve: curve.role == "validation")  # marks above lines
    parts.extend(draw_curve(curve, x, y) for curve in order)
    if ends:
        parts.append(end_labels(curves, x, y))
    elif rows:
        parts.append(legend(rows))
    hover = {
        "x": [x.low, x.high, x.start, x.end],
        "y": [y.low, y.high, y.start, y.end, int(y.log)],
        "curves": [hover_of(curve) for curve in curves],
    }
    return svg.svg(width, height, "".join(parts), label, class_, data_hover=json.dumps(hover, separators=(",", ":")))


def hover_of(curve: Curve) -> dict:
    found = buckets_of(curve.series)
    grouped = len(curve.series) > len(found.steps)
    values = [None if math.isnan(value) else float(f"{value:.6g}") for value in found.means]
    return {
        "name": curve.name + (" (mean)" if grouped else ""),
        "role": curve.role,
        "steps": found.steps,
        "values": values,
    }


def tick_text(y: scale.Scale):
    largest = max(abs(y.low), abs(y.high))
    if largest >= 1000:
        return scale.si
    return lambda value: scale.number(value, 4)
