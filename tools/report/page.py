"""The page: sections of figures, the configuration and the commands."""

from __future__ import annotations

import html
import math
import os
import shlex
from dataclasses import replace

import runlog

from . import curves, heatmap, memory, roofline, samples, scale, spikes
from .curves import NARROW, WIDE, Curve, Look
from .timing import Timing

HALF = 452
FOLDER = os.path.dirname(os.path.abspath(__file__))
# The page loads nothing from anywhere, and the browser is told to refuse it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def figure(name: str, title: str, content: str, caption: str = "", class_: str = "") -> str:
    note = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    css = f' class="{class_}"' if class_ else ""
    return f'<figure id="{name}"{css}><h3>{html.escape(title)}</h3>{content}{note}</figure>'


def section(name: str, title: str, content: str) -> str:
    return f'<section id="{name}"><h2>{html.escape(title)}</h2>{content}</section>' if content else ""


def note(text: str) -> str:
    return f'<p class="note">{html.escape(text)}</p>'


def both(draw) -> str:
    """draw(width, class) for a laptop and for a narrow window; the style sheet shows one of them."""
    return draw(WIDE, "wide") + draw(NARROW, "narrow")


def last(series: dict) -> tuple[int, float] | None:
    return next(((step, value) for step, value in reversed(series.items()) if value is not None), None)


def series_of(log: runlog.RunLog, key: str) -> dict:
    """Like log.series(), empty where the log has no such key: a reference need not have them all."""
    records = log.validations if key == "val_loss" else log.steps
    return log.series(key) if records and all(key in record for record in records.values()) else {}


def median(series: dict) -> float | None:
    values = sorted(value for value in series.values() if value is not None)
    return values[len(values) // 2] if values else None


def tiles(log: runlog.RunLog, plan: dict | None) -> str:
    """The run in numbers, above everything."""
    shown = []
    if end := last(series_of(log, "loss")):
        shown.append(("training loss", f"{end[1]:.4f}", f"nats per token, step {end[0]:,}"))
    if validation := {s: v for s, v in series_of(log, "val_loss").items() if v is not None}:
        _, value = last(validation)
        best = min(validation, key=validation.get)
        shown.append(("validation loss", f"{value:.4f}", f"best {validation[best]:.4f} at step {best:,}"))
    if tokens := last(series_of(log, "tokens")):
        shown.append(("tokens", scale.si(tokens[1]), f"in {len(log.steps):,} steps"))
    if (speed := median(series_of(log, "tokens_per_s"))) is not None:
        shown.append(("tokens per second", scale.si(speed), "median over the steps"))
    if (mfu := median(series_of(log, "mfu"))) is not None:
        shown.append(("MFU", f"{100 * mfu:.1f}%", "median over the steps"))
    if found := spikes.tile(log):
        shown.append(found)
    if plan:
        shown.append(("memory", scale.in_bytes(plan["arena_bytes"]), f"{scale.si(plan['parameters'])} parameters"))
    return (
        '<dl class="tiles">'
        + "".join(
            f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>"
            f"<dd class='sub'>{html.escape(sub)}</dd></div>"
            for name, value, sub in shown
        )
        + "</dl>"
    )


def loss_section(log: runlog.RunLog, reference: runlog.RunLog | None) -> str:
    high = spikes.marked(log, "loss")
    shown = [Curve("training", series_of(log, "loss"), "training", noisy=True, spikes=high)]
    if reference:
        shown.append(Curve("reference, training", series_of(reference, "loss"), "reference", noisy=True, dashed=True))
    shown.append(Curve("validation", series_of(log, "val_loss"), "validation", marks=True))
    if reference:
        validation = series_of(reference, "val_loss")
        shown.append(Curve("reference, validation", validation, "reference", marks=True, dashed=True))
    look = Look("cross-entropy loss, nats per token")
    caption = "Cross-entropy, mean over the tokens of a step."
    if len(log.steps) >= 80:
        faint = "each step" if len(log.steps) <= curves.BUCKETS else "the least and the greatest of neighbouring steps"
        caption += f" The strong training curve is a running mean over a fortieth of the run, the faint one {faint}."
    if high:
        caption += f" A circle marks a spike ({len(high)})."
    if lost := [s for s, v in series_of(log, "loss").items() if v is None]:
        caption += f" A cross marks a loss that is not finite ({len(lost)}, the first at step {lost[0]})."

    def drawn(height: int, label: str, chosen: list[Curve]) -> str:
        return both(lambda width, css: curves.draw(chosen, look, width, height if width == WIDE else 300, label, css))

    content = figure(
        "loss", "Training and validation", drawn(380, "Training and validation loss by step", shown), caption
    )
    if (begin := late(log)) is not None:
        rest = [replace(curve, series={s: v for s, v in curve.series.items() if s >= begin}) for curve in shown]
        content += figure("loss-late", f"From step {begin:,} on", drawn(320, f"Loss from step {begin} on", rest))
    return section("losses", "Loss", content + (difference(log, reference) if reference else ""))


def late(log: runlog.RunLog) -> int | None:
    """The step from which a long run is drawn once more, without the steep fall that takes most of the axis."""
    steps = list(log.steps)
    return steps[len(steps) // 10] if len(steps) >= 100 else None


def difference(log: runlog.RunLog, reference: runlog.RunLog) -> str:
    """Run minus reference at the steps that both have."""
    shown, caption = [], []
    for key, name, role in (("loss", "training", "training"), ("val_loss", "validation", "validation")):
        a, b = series_of(log, key), series_of(reference, key)
        series = {s: a[s] - b[s] for s in a if a[s] is not None and b.get(s) is not None}
        if not series:
            continue
        worst = max(series, key=lambda step: abs(series[step]))
        mean = math.fsum(series.values()) / len(series)
        count = f"{len(series):,} steps" if len(series) > 1 else "one step"
        caption.append(
            f"{name.capitalize()}: {count} in common, mean difference {scale.number(mean, 3)}, "
            f"largest {scale.number(series[worst], 3)} at step {worst:,}."
        )
        shown.append(Curve(name, series, role, noisy=key == "loss", marks=key != "loss"))
    if not shown:
        return note(f"The reference {reference.path} has no step in common with this run.")
    look = Look("run minus reference, nats per token", zero=True, level=(0.0, ""))
    return figure(
        "difference",
        "Difference from the reference",
        both(
            lambda width, css: curves.draw(
                shown, look, width, 230, "Loss of the run minus loss of the reference by step", css
            )
        ),
        " ".join(caption),
    )


def training_section(log: runlog.RunLog) -> str:
    config = log.header.get("config") or {}
    clip = (config.get("training") or {}).get("max_grad_norm")
    level = (float(clip), f"clipped above {clip:g}") if isinstance(clip, (int, float)) and clip > 0 else None
    norm = series_of(log, "grad_norm")
    percent = lambda value: f"{100 * value:.3g}%"
    parts = []
    high = spikes.marked(log, "grad_norm")
    for key, title, look, noisy in (
        ("lr", "Learning rate", Look("learning rate", zero=True), False),
        (
            "grad_norm",
            "Gradient norm",
            Look("global norm before clipping", zero=True, log=curves.wants_log(norm), level=level),
            True,
        ),
        ("tokens_per_s", "Throughput", Look("tokens per second", zero=True, y_text=scale.si), True),
        ("mfu", "MFU", Look("model FLOPs utilisation", zero=True, y_text=percent), True),
    ):
        series = series_of(log, key)
        if any(value is not None for value in series.values()):
            name = title.lower() if key != "mfu" else "MFU"
            marks = high if key == "grad_norm" else frozenset()
            drawn = curves.draw(
                [Curve(name, series, "training", noisy=noisy, spikes=marks)], look, HALF, 230, f"{title} by step"
            )
            parts.append(figure(key, title, drawn, f"A circle marks a spike ({len(marks)})." if marks else ""))
    for name, records in log.evaluations.items():
        shown = [
            Curve(label, {s: r.get(key) for s, r in records.items()}, role, marks=True)
            for key, label, role in (("acc_norm", "normalised by length", "training"), ("acc", "plain", "validation"))
        ]
        drawn = curves.draw(shown, Look("accuracy", y_text=percent), HALF, 230, f"Accuracy on {name} by step")
        parts.append(figure(f"evaluation-{len(parts)}", f"Accuracy on {name}", drawn))
    content = f'<div class="pair">{"".join(parts)}</div>' if parts else ""
    if worst := spikes.table(log):
        content += figure("spikes", "Spikes", *worst)
    return section("training", "Training", content)


def memory_section(plan: dict | None) -> str:
    if plan is None:
        return section(
            "memory-plan",
            "Memory",
            note("The run's folder has no plan.json, so the memory plan is not shown; coda_train --dry-run prints it."),
        )
    bar = both(lambda width, css: memory.bar(plan, width, "The arena by segment", css))
    caption = "One arena holds everything; blue stays from step to step, orange is shared by the steps of a schedule."
    return section("memory-plan", "Memory", figure("memory", "Memory plan", bar + memory.table(plan), caption))


def timing_section(timing: Timing | None, device: str, peaks: tuple[float | None, float | None]) -> str:
    if timing is None:
        return section(
            "timing",
            "Time",
            note(
                "No timing of single operations: coda_train --timing FILE records it, and --timing FILE shows it here."
            ),
        )
    maps = {phase: timing.heat_map(phase) for phase in ("forward", "backward")}
    largest = max(heat.largest for heat in maps.values())
    parts = []
    for phase, heat in maps.items():
        if heat.rows:
            drawn = both(
                lambda width, css: heatmap.draw(
                    heat,
                    largest,
                    HALF if width == WIDE and heat.layers <= 6 else width,
                    f"Median milliseconds of each {phase} step of each layer",
                    css,
                )
            )
            parts.append(figure(f"heat-{phase}", f"{phase.capitalize()}, layer by layer", drawn))
    content = (
        f'<div class="maps">{"".join(parts)}</div><div class="scale">{heatmap.key(largest)}'
        + note(f"Median of {timing.calls():,} calls in the {timing.main_pass()} pass. One scale for both maps.")
        + "</div>"
    )
    items = timing.items()
    if not items:
        return section("timing", "Time", content)
    whole = sum(item.ms for item in items)
    key = "".join(
        f'<span class="swatch {phase}"></span>{phase} '
        for phase in ("forward", "backward", "update")
        if any(item.phase == phase for item in items)
    )
    content += figure(
        "operations",
        "Where an optimizer step goes",
        f'<p class="key-row">{key}</p>'
        + both(lambda width, css: heatmap.bars(items, width, "Milliseconds of an optimizer step by operation", css)),
        f"Sum of medians over layers and micro-batches: {heatmap.milliseconds(whole)} ms.",
    )
    roof = roofline.roof_of(device, items, *peaks)
    limits = (
        "The lines are the best that any operation of this run reached, not the device's limits."
        if roof.measured
        else f"The lines are the limits of {device}."
    )
    if any(item.flops > 0 and item.bytes > 0 for item in items):
        content += figure(
            "roofline",
            "Roofline",
            f'<p class="key-row">{key}</p>'
            + both(
                lambda width, css: roofline.draw(
                    items, roof, width, 440 if width == WIDE else 380, "Achieved FLOP/s against FLOP per byte", css
                )
            ),
            f"Area: share of the step. FLOPs and bytes as kernels/cost.h counts them. {limits}",
        )
    content += f"<details><summary>The numbers</summary>{numbers(items)}</details>"
    return section("timing", "Time", content)


def numbers(items: list) -> str:
    total = sum(item.ms for item in items)
    rows = "".join(
        f"<tr><td>{html.escape(item.name)}</td><td>{item.phase}</td><td>{html.escape(item.op)}</td>"
        f"<td>{heatmap.milliseconds(item.ms)}</td><td>{100 * item.ms / total:.1f}%</td>"
        f"<td>{item.flops_per_s / 1e9:,.1f}</td><td>{item.bytes_per_s / 1e9:,.1f}</td></tr>"
        for item in items
    )
    head = "".join(f"<th>{name}</th>" for name in ("step", "phase", "op", "ms", "share", "GFLOP/s", "GB/s"))
    return f'<table class="numbers wide-table"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'


def value_text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(value_text(entry) for entry in value) or "none"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 10000 else str(value)


def config_section(config: dict) -> str:
    groups = {name: keys for name, keys in config.items() if isinstance(keys, dict)}
    rest = {name: value for name, value in config.items() if not isinstance(value, dict)}
    if rest:
        groups["run"] = rest
    parts = []
    for name, keys in groups.items():
        rows = "".join(
            f"<tr><td>{html.escape(key)}</td><td>{html.escape(value_text(value))}</td></tr>"
            for key, value in keys.items()
        )
        parts.append(
            f"<table><thead><tr><th colspan='2'>{html.escape(name)}</th></tr></thead><tbody>{rows}</tbody></table>"
        )
    return section("config", "Configuration", f'<div class="columns">{"".join(parts)}</div>' if parts else "")


def commands_section(commands: list[tuple[str, object]]) -> str:
    parts = []
    for what, command in commands:
        text = shlex.join(map(str, command)) if isinstance(command, list) else str(command)
        parts.append(f"<h3>{html.escape(what)}</h3><pre>{html.escape(text)}</pre>")
    return section("commands", "Commands", "".join(parts))


def render(
    log: runlog.RunLog,
    reference: runlog.RunLog | None,
    timing: Timing | None,
    plan: dict | None,
    commands: list[tuple[str, object]],
    peaks: tuple[float | None, float | None] = (None, None),
) -> str:
    header = log.header
    device = str(header.get("device", "unknown device"))
    timed_on = str(timing.header.get("device", device)) if timing else device
    lines = [device, str(header.get("build", ""))]
    if reference:
        lines.append(f"reference: {reference.path}")
    if log.torn:
        lines.append("the log's last line is cut off and left out")
    with open(os.path.join(FOLDER, "report.css"), encoding="utf-8") as file:
        style = file.read()
    with open(os.path.join(FOLDER, "report.js"), encoding="utf-8") as file:
        script = file.read()
    about = "<br>".join(html.escape(text) for text in lines if text)
    body = "".join(
        (
            f"<header><h1>{html.escape(log.name)}</h1><p>{about}</p></header>",
            tiles(log, plan),
            loss_section(log, reference),
            training_section(log),
            section("samples", "Samples", samples.blocks(log)),
            memory_section(plan),
            timing_section(timing, timed_on, peaks),
            config_section(header.get("config") or {}),
            commands_section(commands),
        )
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<link rel="icon" href="data:,"><title>{html.escape(log.name)}</title><style>{style}</style></head>'
        f'<body><main>{body}</main><div id="tip" role="status" hidden></div><script>{script}</script></body></html>\n'
    )
