"""Achieved FLOP/s of every step over its FLOPs per byte, under the limits of the device."""

from __future__ import annotations

import math
from dataclasses import dataclass

from . import scale, svg
from .timing import Item

# Dense bf16 FLOP/s and bytes/s of the vendor's data sheets, by what the device's name contains; first match.
DEVICES = (
    ("H200", 989e12, 4.8e12),
    ("H100 PCIe", 756e12, 2.0e12),
    ("H100 NVL", 835e12, 3.9e12),
    ("H100", 989e12, 3.35e12),
)


@dataclass
class Roof:
    flops_per_s: float
    bytes_per_s: float
    measured: bool  # the best that a step of this run has reached, not the device's limit

    @property
    def ridge(self) -> float:
        return self.flops_per_s / self.bytes_per_s


def roof_of(device: str, items: list[Item], peak_flops: float | None = None, peak_bytes: float | None = None) -> Roof:
    for name, flops, bandwidth in DEVICES:
        if name.lower() in device.lower():
            return Roof(peak_flops or flops, peak_bytes or bandwidth, False)
    best = Roof(max(item.flops_per_s for item in items), max(item.bytes_per_s for item in items), True)
    return Roof(peak_flops or best.flops_per_s, peak_bytes or best.bytes_per_s, not (peak_flops and peak_bytes))


class Labels:
    """Places names near points, each where it meets no other name and no point, or nowhere. A name that does not fit
    next to its point goes further off, and needs a line between the two."""

    BESIDE = ((1, 0, "start"), (-1, 0, "end"), (0, -1, "middle"), (0, 1, "middle"))
    FURTHER = tuple(
        (
            math.cos(angle * math.pi / 8),
            math.sin(angle * math.pi / 8),
            "start" if math.cos(angle * math.pi / 8) > 0 else "end",
        )
        for angle in (1, -1, 7, -7, 2, -2, 6, -6, 3, -3, 5, -5)
    )

    def __init__(self, points: list[tuple[float, float, float]], area: tuple[float, float, float, float]) -> None:
        self.taken = [(x - r, y - r, x + r, y + r) for x, y, r in points]
        self.area = area

    def box(self, x: float, y: float, name: str, anchor: str) -> tuple[float, float, float, float]:
        """The box of a name on the baseline y."""
        width = len(name) * svg.CHARACTER + 2
        begin = x - {"start": 0, "middle": width / 2, "end": width}[anchor]
        return begin, y - 10, begin + width, y + 3

    def fits(self, box: tuple[float, float, float, float]) -> bool:
        left, top, right, bottom = self.area
        if box[0] < left or box[1] < top or box[2] > right or box[3] > bottom:
            return False
        return not any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in self.taken)

    def place(self, x: float, y: float, r: float, name: str) -> tuple[float, float, str, bool] | None:
        """(x, y, anchor) of the text, and whether it needs a line."""
        for reach, ways in ((r + 5, self.BESIDE), *((r + d, self.FURTHER) for d in (18, 34, 52, 72))):
            for dx, dy, anchor in ways:
                at = round(x + dx * reach, 1), round(
                    y + dy * reach + (8 if (dx, dy) == (0, 1) else 4 if dy == 0 else 0), 1
                )
                box = self.box(*at, name, anchor)
                if self.fits(box):
                    self.taken.append(box)
                    return *at, anchor, ways is self.FURTHER
        return None


def mark(item: Item, x: float, y: float, r: float, share: float) -> str:
    tip = (
        f"{item.name} ({item.op})\n{item.phase}, {100 * share:.1f}% of the step\n"
        f"{scale.with_unit(item.flops_per_s, 'FLOP/s')}, {scale.with_unit(item.bytes_per_s, 'B/s')}\n"
        f"{scale.number(item.intensity, 3)} FLOP/byte"
    )
    if item.phase == "update":
        return svg.element("rect", x=x - r, y=y - r, width=2 * r, height=2 * r, class_="spot update", data_tip=tip)
    return svg.element("circle", cx=x, cy=y, r=r, class_=f"spot {item.phase}", data_tip=tip)


def draw(items: list[Item], roof: Roof, width: int, height: int, label: str, class_: str = "") -> str:
    """Steps without FLOPs or bytes are left out."""
    shown = [item for item in items if item.flops > 0 and item.bytes > 0]
    total = sum(item.ms for item in items)
    left, right, top, bottom = 58, width - 14, 34, height - 44
    intensities = [item.intensity for item in shown] + [roof.ridge]
    speeds = [item.flops_per_s for item in shown] + [roof.flops_per_s]
    x = scale.Scale(min(intensities) / 1.6, max(intensities) * 2.5, left, right, log=True)
    y = scale.Scale(min(speeds) / 1.6, max(speeds) * 6, bottom, top, log=True)
    parts = [svg.axes(x, y, "FLOP per byte of memory traffic", "achieved FLOP/s", scale.si, scale.si, width // 90, 6)]
    spots = [
        (item, x(item.intensity), y(item.flops_per_s), round(2.5 + 12 * math.sqrt(item.ms / total), 2))
        for item in shown
    ]
    labels = Labels([spot[1:] for spot in spots], (left, top - 12, right, bottom))

    # The slope enters the frame at its left edge or, where that is below the frame, at its bottom.
    enters = max(x.low, y.low / roof.bytes_per_s)
    begin, ridge = (x(enters), y(enters * roof.bytes_per_s)), (x(roof.ridge), y(roof.flops_per_s))
    parts.append(svg.path([begin, ridge, (right, ridge[1])], "roof measured" if roof.measured else "roof"))
    what = "best measured" if roof.measured else "peak"
    middle = ((begin[0] + ridge[0]) / 2, (begin[1] + ridge[1]) / 2)
    # Both left of the roof, where no point can be, if there is room.
    for tx, ty, words in (
        (ridge[0], ridge[1] - 8, f"{what} {scale.with_unit(roof.flops_per_s, 'FLOP/s')}"),
        (middle[0] - 12, middle[1] - 2, f"{what} {scale.with_unit(roof.bytes_per_s, 'B/s')}"),
    ):
        anchor = "end"
        if tx - len(words) * svg.CHARACTER < left:
            tx, ty, anchor = tx + 24, ty + 20, "start"
        labels.taken.append(labels.box(tx, ty, words, anchor))
        parts.append(svg.text(round(tx, 1), round(ty, 1), words, "tick", anchor))
    labels.taken.append((ridge[0], ridge[1] - 1, right, ridge[1] + 1))

    names = []
    for item, cx, cy, r in spots:  # the longest first, so that small ones lie on top
        parts.append(mark(item, cx, cy, r, item.ms / total))
    for item, cx, cy, r in spots[: 8 if width < 600 else 14]:
        if place := labels.place(cx, cy, r, item.name):
            tx, ty, anchor, far = place
            if far:
                names.append(svg.line(cx, cy, tx + (-2 if anchor == "start" else 2), ty - 4, "leader"))
            names.append(svg.text(tx, ty, item.name, "row halo", anchor))
    return svg.svg(width, height, "".join(parts + names), label, class_)
