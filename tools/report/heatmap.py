"""Median times as a heat map, layers across, the steps of a layer down; and the steps as bars."""

from __future__ import annotations

import math

from . import scale, svg
from .timing import HeatMap, Item

ROW, LEFT, SUM = 24, 138, 74
CELL = 62


def strength(ms: float, largest: float) -> float:
    """Opacity of a cell: linear in the time, the least still seen."""
    return round(0.04 + 0.96 * ms / largest, 3) if largest > 0 else 0.04


def milliseconds(ms: float) -> str:
    return scale.number(ms, 3)


def cell_text(ms: float, largest: float) -> str:
    """As many decimals for all cells as give the largest three digits."""
    decimals = max(0, 2 - math.floor(math.log10(largest))) if largest > 0 else 0
    least = 10.0**-decimals
    return f"{ms:.{decimals}f}" if ms >= least / 2 else f"<{least:g}"


def draw(heat: HeatMap, largest: float, width: int, label: str, class_: str = "") -> str:
    """`largest` is the time of the strongest colour, the same for all maps of a page."""
    cell = min(CELL, (width - LEFT - SUM) / heat.layers)
    end, top = LEFT + cell * heat.layers, 36
    every = max(1, -(-26 // max(1, int(cell))))
    parts = [svg.text(LEFT, 12, "layer", "label"), svg.text(end + SUM - 4, 12, "all layers, ms", "label", "end")]
    for layer in range(0, heat.layers, every):
        parts.append(svg.text(round(LEFT + (layer + 0.5) * cell, 2), top - 8, str(layer), anchor="middle"))
    for row, (name, times) in enumerate(heat.rows.items()):
        y = top + row * ROW
        parts.append(svg.text(LEFT - 8, y + 16, name, "row", "end"))
        for layer, ms in enumerate(times):
            if ms is None:
                continue
            x, alpha = round(LEFT + layer * cell, 2), strength(ms, largest)
            parts.append(
                svg.element(
                    "rect",
                    x=x,
                    y=y,
                    width=round(max(0.8, cell - 1), 2),
                    height=ROW - 1,
                    class_="cell",
                    fill_opacity=alpha,
                    data_tip=f"{name} ({heat.ops[name]})\nlayer {layer}\n{milliseconds(ms)} ms",
                )
            )
            if cell >= 40:
                class_of = "in-cell strong-cell" if alpha > 0.55 else "in-cell"
                parts.append(svg.text(round(x + cell / 2 - 0.5, 2), y + 16, cell_text(ms, largest), class_of, "middle"))
        total = sum(ms for ms in times if ms is not None)
        parts.append(svg.text(end + SUM - 4, y + 16, cell_text(total, largest), "tick", "end"))
    return svg.svg(round(end + SUM, 2), top + len(heat.rows) * ROW + 4, "".join(parts), label, class_)


def key(largest: float) -> str:
    """The colours' meaning."""
    width, text = 160, f"{milliseconds(largest)} ms"
    stops = "".join(
        svg.element("stop", class_="stop", offset=part, stop_opacity=strength(part, 1.0)) for part in (0, 1)
    )
    gradient = svg.element("linearGradient", stops, id="heat-scale")
    bar = svg.element("rect", x=0, y=0, width=width, height=12, fill="url(#heat-scale)")
    ends = svg.text(0, 27, "0") + svg.text(width, 27, text, anchor="end")
    return svg.svg(width, 32, gradient + bar + ends, f"Colour scale from 0 to {text}", "key")


def bars(items: list[Item], width: int, label: str, class_: str = "", rows: int = 14) -> str:
    """The steps that take most of an optimizer step; what is left in the last bar."""
    total = sum(item.ms for item in items)
    shown = [(item.name, item.phase, item.op, item.ms) for item in items[:rows]]
    if rest := items[rows:]:
        shown.append((f"{len(rest)} others", "rest", "all other steps", sum(item.ms for item in rest)))
    left, right, top = 146, width - 118, 6
    x = scale.Scale(0, max(ms for *_, ms in shown), left, right)
    parts = []
    for row, (name, phase, op, ms) in enumerate(shown):
        y, share = top + row * 22, f"{100 * ms / total:.1f}%"
        parts.append(svg.text(left - 8, y + 14, name, "row", "end"))
        parts.append(
            svg.element(
                "rect",
                x=left,
                y=y,
                width=max(1, round(x(ms) - left, 2)),
                height=18,
                class_=f"bar {phase}",
                data_tip=f"{name} ({op})\n{phase}\n{milliseconds(ms)} ms, {share}",
            )
        )
        parts.append(svg.text(x(ms) + 6, y + 14, f"{milliseconds(ms)} ms, {share}"))
    return svg.svg(width, top + len(shown) * 22 + 2, "".join(parts), label, class_)
