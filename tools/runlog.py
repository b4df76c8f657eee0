"""Reads log.jsonl, the log of a run: JSON Lines, a header, then one record per step, validation, evaluation and sample.

    {"config": {...}, "device": ..., "build": ..., "command": ..., "started": ...}
    {"step": 1, "loss": 5.54, "grad_norm": 2.1, "lr": 3e-4, "tokens": 4096, "ms": 120.5, ...}
    {"step": 57, ..., "loss_z": 1.2, "norm_z": 9.1, "skipped": "spike"}
    {"step": 10, "val_loss": 4.87}
    {"step": 10, "evaluation": "hellaswag_val", "acc": 0.25, "acc_norm": 0.26, "examples": 10042}
    {"step": 10, "sample": "text", "prompt": "text", "tokens": [17, 4]}      text and prompt null without a tokenizer
    {"step": 10, "start": {...}}                  the run continued from step 10, with what a header says

A number that is not finite stands there as null and is read as None. A step without a counted target has no loss: it is
left out of that series. The scores loss_z and norm_z are null before there is a verdict, and absent from logs of older
versions; "skipped" says why a step's update was dropped, and is absent where it was not. A last line that was cut off,
by a run that was killed or that is writing it now, is dropped.
"""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass, field

SCORES = ("loss_z", "norm_z")
SPIKE = 6.0  # a z beyond it is a spike: kSpike of src/train/spike_watch.h
MEASURED = re.compile(r"(.*_)?(ms|seconds)|tokens_per_s|mfu|memory_gib")  # keys that say how fast, not what
NO_TARGET = "no counted target"  # why an update was dropped, where not for a spike


class LogError(Exception):
    """The file is not a run log; the message names the file and, if there is one, the line."""


@dataclass
class RunLog:
    path: str
    header: dict = field(default_factory=dict)
    steps: dict[int, dict] = field(default_factory=dict)  # records of training steps by step, ascending
    validations: dict[int, dict] = field(default_factory=dict)  # records of validations by step, ascending
    evaluations: dict[str, dict[int, dict]] = field(default_factory=dict)  # by file name, then by step, ascending
    samples: dict[int, list[dict]] = field(default_factory=dict)  # records by step, ascending, in their order
    starts: list[dict] = field(default_factory=list)  # records of later starts, in their order
    torn: bool = False  # the last line was cut off

    @property
    def name(self) -> str:
        """The run's folder: runs/demo/log.jsonl is demo. A log of another file name goes by that."""
        folder, file = os.path.split(os.path.abspath(self.path))
        return os.path.basename(folder) if file == "log.jsonl" else os.path.splitext(file)[0]

    def series(self, key: str) -> dict[int, float | None]:
        """Value of `key` by step, of the validations for val_loss and of the training steps for any other key."""
        records = self.validations if key == "val_loss" else self.steps
        return {
            step: _number(self, step, record, key)
            for step, record in records.items()
            if key != "loss" or record.get("skipped") != NO_TARGET
        }

    def scored(self) -> bool:
        """Whether any step has a score."""
        return any(record.get(z) is not None for record in self.steps.values() for z in SCORES)

    def spikes(self) -> dict[int, dict]:
        """Records by step, ascending, of a loss or gradient norm far above the usual, or an update dropped for one."""
        return {
            step: record
            for step, record in self.steps.items()
            if any(is_spike(record, z) for z in SCORES) or record.get("skipped") not in (None, NO_TARGET)
        }


def is_spike(record: dict, score: str) -> bool:
    """Whether one of SCORES of a step's record says so."""
    z = record.get(score)
    return isinstance(z, (int, float)) and z > SPIKE


def repeatable(record: dict) -> dict:
    """The record without its measurements: what a run has again, to the bit."""
    return {key: value for key, value in record.items() if not MEASURED.fullmatch(key)}


def read(path: str) -> RunLog:
    """The log in the file `path`, or in log.jsonl of the folder `path`."""
    path = os.fspath(path)
    if os.path.isdir(path):
        path = os.path.join(path, "log.jsonl")
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")
    except OSError as error:
        raise LogError(f"{path}: {error.strerror}") from None

    log = RunLog(path)
    unterminated = len(lines) if lines[-1] else None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line.decode(), parse_constant=lambda _: None)
        except ValueError as error:
            if number == unterminated:
                log.torn = True
                continue
            raise LogError(f"{path}:{number}: not JSON ({error})") from None
        _add(log, number, record)
    if not log.steps and not log.validations:
        raise LogError(f"{path}: holds no record of a step")
    return log


def _add(log: RunLog, number: int, record: object) -> None:
    where = f"{log.path}:{number}"
    if not isinstance(record, dict):
        raise LogError(f"{where}: a record must be a JSON object, this is {json.dumps(record)[:40]}")
    if "step" not in record:
        if log.steps or log.validations or log.header:
            raise LogError(f'{where}: a record without "step" after the header')
        log.header = record
        return
    step = record["step"]
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise LogError(f'{where}: "step" must be a whole number, not {json.dumps(step)}')
    if "start" in record:
        log.starts.append(record)
        return
    if "sample" in record:
        _add_sample(log, where, record)
        return
    if "evaluation" in record:
        if not isinstance(record["evaluation"], str):
            raise LogError(f'{where}: "evaluation" must be a name, not {json.dumps(record["evaluation"])[:40]}')
        records = log.evaluations.setdefault(record["evaluation"], {})
    else:
        records = log.validations if "val_loss" in record else log.steps
    if records and step <= (last := next(reversed(records))):
        raise LogError(f"{where}: step {step} after step {last}; are these two runs in one file?")
    records[step] = record


def _add_sample(log: RunLog, where: str, record: dict) -> None:
    for key in ("sample", "prompt"):
        if not isinstance(record.get(key), (str, type(None))):
            raise LogError(f'{where}: "{key}" must be a text or null, not {json.dumps(record[key])[:40]}')
    tokens = record.get("tokens")
    if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
        raise LogError(f'{where}: "tokens" must be a list of whole numbers, not {json.dumps(tokens)[:40]}')
    step = record["step"]
    if log.samples and step < (last := next(reversed(log.samples))):
        raise LogError(f"{where}: a sample of step {step} after step {last}; are these two runs in one file?")
    log.samples.setdefault(step, []).append(record)


def _number(log: RunLog, step: int, record: dict, key: str) -> float | None:
    if key not in record:
        raise LogError(f'{log.path}: the record of step {step} has no "{key}"')
    value = record[key]
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise LogError(f'{log.path}: "{key}" of step {step} must be a number, not {json.dumps(value)}')
    return float(value) if math.isfinite(value) else None
