"""How far logits are from exact ones, of the same positions: (..., vocabulary) each."""

from __future__ import annotations

import torch


def relative_rms(found, exact) -> float:
    return ((found - exact).norm() / exact.norm()).item()


def kl(found, exact) -> float:
    """KL(exact || found) in nats, the mean over positions. In double, since positive and negative terms cancel."""
    found, exact = (logits.double().log_softmax(-1) for logits in (found, exact))
    return (exact.exp() * (exact - found)).sum(-1).mean().item()


class Distances:
    """Of a program's logits and of transformers' in bf16, from transformers' in fp32."""

    def __init__(self, found, rounded, exact):
        self.ours, self.theirs = relative_rms(found, exact), relative_rms(rounded, exact)
        self.our_kl, self.their_kl = kl(found, exact), kl(rounded, exact)

    def hold(self, exact_tolerance: float | None) -> bool:
        """exact_tolerance: the relative RMS that is allowed to a program that computes in fp32; None: it computes in
        bf16, and may be no further than transformers."""
        if exact_tolerance is not None:
            return self.ours <= exact_tolerance
        return self.ours <= self.theirs and self.our_kl <= self.their_kl

    def __str__(self):
        return (f"{self.ours:.2e} from transformers' in fp32, KL {self.our_kl:.2e}; transformers in bf16 "
                f"{self.theirs:.2e}, KL {self.their_kl:.2e}")
