#!/usr/bin/env python3
"""Exports a run's log.jsonl to TensorBoard or Weights & Biases, through their own packages.

TensorBoard: an event file in --out, with every number of the log as a scalar and the configuration as text; show it
with `tensorboard --logdir DIR`. Weights & Biases: an offline run in --out, which `wandb sync` uploads; nothing is sent
from here.

Exit status: 0 written, 1 the package is missing or did not write, 2 wrong usage or an unreadable log.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys

import runlog

# Key of the log's records -> name in the other program. What is not here keeps its own, under train/.
NAMES = {"loss": "train/loss", "val_loss": "validation/loss", "lr": "train/learning_rate"}


class ExportError(Exception):
    """What could not be exported; the message says why and what helps."""


def scalars(log: runlog.RunLog) -> dict[int, dict[str, float]]:
    """Numbers by step, ascending, and by name; what was not finite is NaN, and a step has no score without a verdict."""
    found: dict[int, dict[str, float]] = {}

    def add(step: int, name: str, value: object) -> None:
        if value is None and name not in verdicts:
            value = math.nan
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found.setdefault(step, {})[name] = float(value)

    verdicts = {f"train/{key}" for key in runlog.SCORES}  # None is no verdict
    empty = {key for key in ("mfu",) if not any(record.get(key) is not None for record in log.steps.values())}
    for records in (log.steps, log.validations):
        for step, record in records.items():
            for key, value in record.items():
                if key != "step" and key not in empty:
                    add(step, NAMES.get(key, f"train/{key}"), value)
    for name, evaluated in log.evaluations.items():
        for step, record in evaluated.items():
            for key in ("acc", "acc_norm"):
                add(step, f"evaluation/{name}/{key}", record.get(key))
    return dict(sorted(found.items()))


def times(log: runlog.RunLog) -> dict[int, float]:
    """Seconds since 1970 of each step's end: the log has durations, its file the time of its last line."""
    ends, clock = {}, 0.0
    for step, record in log.steps.items():
        clock += (record.get("ms") or 0.0) / 1000
        ends[step] = clock
    return {step: os.path.getmtime(log.path) - clock + end for step, end in ends.items()}


def to_tensorboard(log: runlog.RunLog, out: str) -> str:
    try:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.plugins.text import metadata
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
        from tensorboard.util import tensor_util
    except ImportError as error:
        raise ExportError(f"no TensorBoard package here ({error}): pip install tensorboard") from None
    clock = times(log)
    now = min(clock.values(), default=os.path.getmtime(log.path))
    writer = EventFileWriter(out)
    header = {key: log.header[key] for key in ("command", "device", "build", "config") if key in log.header}
    for name, value in header.items():
        words = value if isinstance(value, str) else json.dumps(value, indent=4)
        block = "\n".join("    " + line for line in words.splitlines())  # Markdown's code block
        text = summary_pb2.Summary.Value(
            tag=name,
            metadata=metadata.create_summary_metadata(display_name=name, description=""),
            tensor=tensor_util.make_tensor_proto([block]),
        )
        writer.add_event(event_pb2.Event(wall_time=now, step=0, summary=summary_pb2.Summary(value=[text])))
    for step, values in scalars(log).items():
        now = clock.get(step, now)
        summary = [summary_pb2.Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        writer.add_event(event_pb2.Event(wall_time=now, step=step, summary=summary_pb2.Summary(value=summary)))
    writer.close()
    return f"{out}\ntensorboard --logdir {out}"


def to_wandb(log: runlog.RunLog, out: str) -> str:
    try:
        import wandb
    except ImportError as error:
        raise ExportError(f"no Weights & Biases package here ({error}): pip install wandb") from None
    os.makedirs(out, exist_ok=True)
    try:
        run = wandb.init(
            mode="offline",
            dir=out,
            project="coda_train",
            name=log.name,
            config=log.header.get("config") or {},
            notes=str(log.header.get("command", "")),
            settings=wandb.Settings(console="off", silent=True, x_disable_stats=True, disable_git=True),
        )
        for step, values in scalars(log).items():
            run.log(values, step=step)
        folder = os.path.dirname(run.dir)
        run.finish()
    except wandb.errors.Error as error:
        raise ExportError(f"wandb: {error}") from None
    return f"{folder}\nwandb sync {folder}"


EXPORTS = {"tensorboard": to_tensorboard, "wandb": to_wandb}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN_DIR", help="the run's folder, or its log.jsonl")
    parser.add_argument("--to", required=True, choices=EXPORTS)
    parser.add_argument("--out", metavar="DIR", help="default: RUN_DIR/tensorboard or RUN_DIR/wandb; must be empty")
    arguments = parser.parse_args()
    try:
        log = runlog.read(arguments.run)
    except runlog.LogError as error:
        print(f"export_run.py: {error}", file=sys.stderr)
        return 2
    out = arguments.out or os.path.join(os.path.dirname(os.path.abspath(log.path)), arguments.to)
    try:
        if os.path.exists(out) and os.listdir(out):
            raise ExportError(
                f"{out} is not empty: exporting again would show every step twice; remove it or use --out"
            )
        print(EXPORTS[arguments.to](log, out))
    except ExportError as error:
        print(f"export_run.py: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"export_run.py: {error.filename or out}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
