"""From numbers to positions on paper: linear and logarithmic scales, their ticks, and numbers as text."""

from __future__ import annotations

import math
from dataclasses import dataclass

PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
BINARY_PREFIXES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


@dataclass(frozen=True)
class Scale:
    """Maps [low, high] to [start, end] of pixels. A logarithmic one needs low > 0."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        if self.log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return round(self.start + part * (self.end - self.start), 2)

    def ticks(self, count: int) -> list[float]:
        return log_ticks(self.low, self.high, count) if self.log else linear_ticks(self.low, self.high, count)


def linear_ticks(low: float, high: float, count: int) -> list[float]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten within [low, high], about `count` of them."""
    rough = (high - low) / max(1, count)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [0.0 if i == 0 else float(f"{i * step:.12g}") for i in range(first, last + 1)]


def log_ticks(low: float, high: float, count: int) -> list[float]:
    """Powers of ten within [low, high], not more than `count`; with fewer than three of them 2 and 5 times as well."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    powers = [10.0**e for e in exponents if low <= 10.0**e <= high]
    if len(powers) < 3:
        return [f * 10.0**e for e in exponents for f in (1, 2, 5) if low <= f * 10.0**e <= high]
    return powers[:: -(-len(powers) // count)]


def padded(low: float, high: float, part: float = 0.04) -> tuple[float, float]:
    """The interval with some room around it; one around a single value where low == high."""
    room = (high - low) * part if high > low else abs(high) * 0.1 or 1.0
    return low - room, high + room


def number(value: float | None, digits: int = 5) -> str:
    """`digits` significant digits: 1.8853, 0.0003, 3e-05, 12,345."""
    if value is None or math.isnan(value):
        return "not finite"
    if value != 0 and abs(value) < 1e-3:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        if "." in mantissa:
            mantissa = mantissa.rstrip("0").rstrip(".")
        return f"{mantissa}e{int(exponent)}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def si(value: float, digits: int = 3) -> str:
    """1.23k, 45.6M, 7G; as number() below a thousand."""
    for size, prefix in PREFIXES:
        if abs(value) >= size * (1 - 1e-9):
            return number(value / size, digits) + prefix
    return number(value, digits)


def with_unit(value: float, unit: str) -> str:
    """197 GFLOP/s."""
    text = si(value)
    return f"{text[:-1]} {text[-1]}{unit}" if text[-1].isalpha() else f"{text} {unit}"


def in_bytes(value: float) -> str:
    """1.5 GiB, with four significant digits."""
    for size, unit in BINARY_PREFIXES:
        if value >= size:
            return f"{number(value / size, 4)} {unit}"
    return f"{value:.0f} B"
