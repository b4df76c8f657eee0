"""Spikes: the steps that lie far above the usual loss or gradient norm, and those whose update was dropped."""

from __future__ import annotations

import html

import runlog

from . import scale

WORST = 10  # rows of the table


def marked(log: runlog.RunLog, key: str) -> frozenset[int]:
    """Steps whose `key`, loss or grad_norm, is a spike, or whose update was dropped for one."""
    z = {"loss": "loss_z", "grad_norm": "norm_z"}[key]
    return frozenset(
        step
        for step, record in log.spikes().items()
        if runlog.is_spike(record, z) or (key == "grad_norm" and record.get("skipped"))
    )


def worst(records: dict[int, dict]) -> list[int]:
    """The steps of the largest z, in the order of the run."""

    def largest(step: int) -> float:
        return max(records[step].get(z) or 0.0 for z in runlog.SCORES)

    return sorted(sorted(records, key=lambda step: (-largest(step), step))[:WORST])


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def tile(log: runlog.RunLog) -> tuple[str, str, str] | None:
    """Of a log whose steps have scores."""
    if not log.scored():
        return None
    dropped = sum(1 for record in log.steps.values() if record.get("skipped"))
    return ("spikes", f"{len(log.spikes()):,}", counted(dropped, "update") + " dropped")


def table(log: runlog.RunLog) -> tuple[str, str] | None:
    """The worst spikes as a table, and its caption; None without one."""
    records = log.spikes()
    if not records:
        return None

    def cell(value: object, digits: int) -> str:
        return scale.number(float(value), digits) if isinstance(value, (int, float)) else "none"

    rows = "".join(
        f"<tr><td>{step:,}</td><td>{cell(r.get('loss'), 5)}</td><td>{cell(r.get('loss_z'), 3)}</td>"
        f"<td>{cell(r.get('grad_norm'), 4)}</td><td>{cell(r.get('norm_z'), 3)}</td>"
        f"<td>{html.escape('dropped' if r.get('skipped') else 'made')}</td></tr>"
        for step, r in ((step, records[step]) for step in worst(records))
    )
    head = "".join(f"<th>{name}</th>" for name in ("step", "loss", "z", "gradient norm", "z", "update"))
    caption = (
        f"{counted(len(records), 'step')} with a loss or gradient norm of z above {runlog.SPIKE:g}, or an update that "
        "was dropped for its norm: z counts spreads above the median of the steps before."
    )
    if len(records) > WORST:
        caption += f" The {WORST} of the largest z are shown."
    drawn = f'<table class="numbers"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    return drawn, caption
