"""What the runs of tools/campaign/fp8_loss say: differences of pairs of one seed, their mean and its standard error."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

BAR, BESIDE_TORCHAO = 0.005, 0.002  # nats of validation loss


def base_of(variant: str) -> str:
    return "torch_bf16" if variant.startswith("torch") else "bf16"


@dataclass(frozen=True)
class Paired:
    """Differences of `variant` from `base` by seed."""

    variant: str
    base: str
    differences: dict[int, float]

    @property
    def mean(self) -> float:
        return statistics.mean(self.differences.values())

    @property
    def standard_error(self) -> float:
        """Of the mean; infinite of one pair, which does not say how much pairs differ."""
        values = list(self.differences.values())
        return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def paired(results: dict[tuple[str, int], dict], key: str) -> list[Paired]:
    """Of every variant that has a seed in common with its base, in the order of the results."""
    found = []
    for variant in dict.fromkeys(name for name, _ in results):
        base = base_of(variant)
        seeds = [seed for name, seed in results if name == variant and (base, seed) in results]
        differences = {seed: results[variant, seed][key] - results[base, seed][key] for seed in seeds}
        if variant != base and differences:
            found.append(Paired(variant, base, differences))
    return found


def line(pair: Paired) -> str:
    each = ", ".join(f"seed {seed} {value:+.5f}" for seed, value in pair.differences.items())
    error = f", standard error {pair.standard_error:.5f}" if math.isfinite(pair.standard_error) else ""
    return f"{pair.variant} - {pair.base}: {each}; mean {pair.mean:+.5f}{error}"


def verdicts(pairs: list[Paired]) -> list[tuple[bool, str]]:
    """Whether each precision of coda_train keeps the bars, and how it reads. The reordered bf16 run is the noise, not a
    precision; two standard errors of at least two pairs are allowed on top of the bar."""
    rivals = [pair for pair in pairs if pair.variant.startswith("torchao")]
    said = []
    for pair in pairs:
        if pair.base != "bf16" or pair.variant == "bf16_reordered":
            continue
        room = 2 * pair.standard_error if math.isfinite(pair.standard_error) else 0.0
        said.append((pair.mean <= BAR + room, f"{pair.variant}: mean {pair.mean:+.5f}, allowed {BAR + room:.5f}"))
        for rival in rivals:
            limit = rival.mean + BESIDE_TORCHAO
            said.append((pair.mean <= limit, f"{pair.variant}: mean {pair.mean:+.5f}, compared with "
                                             f"{rival.variant} allowed {limit:.5f}"))
    return said


def report(results: dict[tuple[str, int], dict]) -> list[str]:
    lines = [f"{'variant':20s} {'seed':>6s} {'validation':>12s} {'last':>10s}  seconds"]
    for (variant, seed), result in results.items():
        lines.append(f"{variant:20s} {seed:6d} {result['val_loss']:12.6f} {result['mean_of_last']:10.5f}  "
                     f"{result['seconds']:.0f}")
    for key, what in (("val_loss", "validation loss"), ("mean_of_last", "mean of the last steps' losses")):
        pairs = paired(results, key)
        lines += [f"{what}:", *("  " + line(pair) for pair in pairs)] if pairs else []
    return lines
