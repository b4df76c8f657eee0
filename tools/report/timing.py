"""The times that coda_train --timing wrote, arranged for the figures."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

FIRST, FURTHER, UPDATE = "first micro-batch", "further micro-batch", "update"


class TimingError(Exception):
    """The file is not a timing of a run; the message names the file and what is missing."""


@dataclass
class Item:
    """Steps of one name in one phase, over the layers. Times, FLOPs and bytes are of one optimizer step."""

    phase: str
    name: str
    op: str
    ms: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0

    @property
    def intensity(self) -> float:
        return self.flops / self.bytes

    @property
    def flops_per_s(self) -> float:
        return self.flops / self.ms * 1e3

    @property
    def bytes_per_s(self) -> float:
        return self.bytes / self.ms * 1e3


@dataclass
class HeatMap:
    """Median milliseconds of the steps of a layer, rows in the order of the schedule."""

    layers: int
    rows: dict[str, list[float | None]] = field(default_factory=dict)
    ops: dict[str, str] = field(default_factory=dict)  # of each row

    @property
    def largest(self) -> float:
        return max((ms for row in self.rows.values() for ms in row if ms is not None), default=0.0)


@dataclass
class Timing:
    path: str
    header: dict
    steps: list[dict]

    def calls(self) -> int:
        return max((step["calls"] for step in self.steps if step["pass"] == self.main_pass()), default=0)

    def main_pass(self) -> str:
        """The pass that the heat maps show: the first micro-batch of training, or what there is (--eval)."""
        names = [step["pass"] for step in self.steps]
        return FIRST if FIRST in names else names[0]

    def accumulation(self) -> int:
        config = self.header.get("config") or {}
        return int(config.get("training", {}).get("grad_accumulation_steps", 1))

    def heat_map(self, phase: str) -> HeatMap:
        chosen = [s for s in self.steps if s["pass"] == self.main_pass() and s["phase"] == phase and s["layer"] >= 0]
        result = HeatMap(1 + max((step["layer"] for step in chosen), default=-1))
        for step in chosen:
            row = result.rows.setdefault(step["name"], [None] * result.layers)
            row[step["layer"]] = (row[step["layer"]] or 0.0) + step["median_ms"]
            result.ops[step["name"]] = step["op"]
        return result

    def items(self) -> list[Item]:
        """All steps of an optimizer step by phase and name, longest first; of an evaluation where nothing trained."""
        passes = {FIRST: 1, FURTHER: self.accumulation() - 1, UPDATE: 1}
        if self.main_pass() != FIRST:
            passes = {self.main_pass(): 1}
        found: dict[tuple[str, str], Item] = {}
        for step in self.steps:
            times = passes.get(step["pass"], 0)
            item = found.setdefault((step["phase"], step["name"]), Item(step["phase"], step["name"], step["op"]))
            item.ms += times * step["median_ms"]
            item.flops += times * step["flops"]
            item.bytes += times * step["bytes"]
        return sorted((item for item in found.values() if item.ms > 0), key=lambda item: -item.ms)


KEYS = {
    "pass": str,
    "phase": str,
    "layer": int,
    "name": str,
    "op": str,
    "calls": int,
    "median_ms": (int, float),
    "flops": (int, float),
    "bytes": (int, float),
}


def read(path: str) -> Timing:
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except OSError as error:
        raise TimingError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise TimingError(f"{path}: not JSON ({error})") from None
    steps = content.get("steps") if isinstance(content, dict) else None
    if not isinstance(steps, list) or not steps:
        raise TimingError(f'{path}: has no "steps"; it must be the file of coda_train --timing, not its trace')
    for number, step in enumerate(steps):
        for key, kind in KEYS.items():
            if not isinstance(step, dict) or not isinstance(step.get(key), kind):
                raise TimingError(f'{path}: steps[{number}] has no "{key}", or one of another type')
    header = content.get("header")
    return Timing(path, header if isinstance(header, dict) else {}, steps)
