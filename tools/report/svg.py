"""Inline SVG as text. Colours are classes or CSS variables of report.css, so a figure follows the page's scheme."""

from __future__ import annotations

import html

from .scale import Scale

CHARACTER = 6.6  # pixels of an average character at the figures' 12 pixel type


def element(tag: str, content: str = "", **attributes: object) -> str:
    """class_ is the attribute class, and other underscores are hyphens. `content` must be escaped already."""
    parts = [tag]
    for key, value in attributes.items():
        if value is not None:
            parts.append(f'{key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"')
    return f"<{' '.join(parts)}>{content}</{tag}>"


def text(x: float, y: float, content: str, class_: str = "tick", anchor: str = "start", **attributes: object) -> str:
    return element("text", html.escape(content), x=x, y=y, class_=class_, text_anchor=anchor, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def path(points: list[tuple[float, float] | None], class_: str) -> str:
    """A line through the points; None leaves a gap, and a single point between gaps becomes a dot."""
    parts, dots = [], []
    run: list[tuple[float, float]] = []
    for point in [*points, None]:
        if point is not None:
            run.append(point)
            continue
        if len(run) == 1:
            dots.append(element("circle", cx=run[0][0], cy=run[0][1], r=1.6, class_=f"dot {class_}"))
        elif run:
            parts.append("M" + "L".join(f"{x:g},{y:g}" for x, y in run))
        run = []
    return (element("path", d="".join(parts), class_=class_) if parts else "") + "".join(dots)


def svg(width: float, height: float, content: str, label: str, class_: str = "", **attributes: object) -> str:
    return element(
        "svg",
        content,
        viewBox=f"0 0 {width:g} {height:g}",
        width=f"{width:g}",
        height=f"{height:g}",
        role="img",
        aria_label=label,
        class_=class_ or None,
        **attributes,
    )


def axes(x: Scale, y: Scale, x_label: str, y_label: str, x_text, y_text, x_count: int = 6, y_count: int = 5) -> str:
    """Grid, ticks and labels. x runs left to right, y from the bottom (y.start) to the top (y.end)."""
    parts = []
    for tick in y.ticks(y_count):
        parts.append(line(x.start, y(tick), x.end, y(tick), "grid"))
        parts.append(text(x.start - 7, y(tick) + 4, y_text(tick), anchor="end"))
    for tick in x.ticks(x_count):
        parts.append(line(x(tick), y.start, x(tick), y.start + 4, "axis"))
        parts.append(text(x(tick), y.start + 17, x_text(tick), anchor="middle"))
    parts.append(line(x.start, y.start, x.end, y.start, "axis"))
    parts.append(text(2, y.end - 10, y_label, "label"))
    parts.append(text((x.start + x.end) / 2, y.start + 34, x_label, "label", "middle"))
    return "".join(parts)
