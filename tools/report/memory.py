"""The memory plan of a run, plan.json, as one stacked bar and a table."""

from __future__ import annotations

import html

from . import scale, svg

# What stays from step to step in tints of one colour, what a step reuses in the other.
CLASSES = {"weights": "m1", "gradients": "m2", "optimizer state": "m3", "inputs and tables": "m4", "alignment": "m5"}
TRANSIENT = "mt"


def class_of(name: str, position: int) -> str:
    if "activations" in name:
        return TRANSIENT
    return CLASSES.get(name, f"m{min(position + 1, 5)}")


def bar(plan: dict, width: int, label: str, class_: str = "") -> str:
    """Segments to scale; the name and size over each that is wide enough for them."""
    arena, left, right, top, height = plan["arena_bytes"], 2, width - 2, 40, 44
    x = scale.Scale(0, max(1, arena), left, right)
    parts, begin, free = [], 0, left
    for position, segment in enumerate(plan["segments"]):
        end = begin + segment["bytes"]
        size = scale.in_bytes(segment["bytes"])
        share = f"{100 * segment['bytes'] / max(1, arena):.1f}% of the arena"
        if segment["bytes"] > 0:
            parts.append(
                svg.element(
                    "rect",
                    x=x(begin),
                    y=top,
                    width=max(0.5, round(x(end) - x(begin) - 1, 2)),
                    height=height,
                    class_=f"segment {class_of(segment['name'], position)}",
                    data_tip=f"{segment['name']}\n{size}\n{share}",
                )
            )
            needed = max(len(segment["name"]), len(size)) * svg.CHARACTER
            # From the segment's start, or to its end where it is wide and the segments before it leave the room.
            places = [(max(x(begin), free), "start")] + ([(x(end), "end")] if x(end) - x(begin) >= 40 else [])
            for at, anchor in places:
                first, last = (at, at + needed) if anchor == "start" else (at - needed, at)
                if first >= free and last <= x(end):
                    parts.append(svg.text(at, 16, segment["name"], "strong", anchor))
                    parts.append(svg.text(at, 32, size, "tick", anchor))
                    free = last + 8
                    break
        begin = end
    for percent in (0, 25, 50, 75, 100):
        at = x(arena * percent / 100)
        anchor = {0: "start", 100: "end"}.get(percent, "middle")
        parts.append(svg.line(at, top + height, at, top + height + 4, "axis"))
        parts.append(svg.text(at, top + height + 18, f"{percent}%", anchor=anchor))
    return svg.svg(width, top + height + 24, "".join(parts), label, class_)


def table(plan: dict) -> str:
    rows = []
    for position, segment in enumerate(plan["segments"]):
        swatch = f'<span class="swatch {class_of(segment["name"], position)}"></span>'
        share = 100 * segment["bytes"] / max(1, plan["arena_bytes"])
        rows.append(
            f"<tr><td>{swatch}{html.escape(segment['name'])}</td><td>{segment['bytes']:,}</td>"
            f"<td>{scale.in_bytes(segment['bytes'])}</td><td>{share:.1f}%</td></tr>"
        )
    total = plan["arena_bytes"]
    rows.append(f'<tr class="total"><td>arena</td><td>{total:,}</td><td>{scale.in_bytes(total)}</td><td>100%</td></tr>')
    return (
        '<table class="numbers"><thead><tr><th>segment</th><th>bytes</th><th>size</th><th>share</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )
