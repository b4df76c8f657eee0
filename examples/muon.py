#!/usr/bin/env python3
"""Trains with torch.optim.Muon on coda_train's gradients, on one GPU or a CPU.

    examples/muon.py SHARD.bin --config configs/llama1b_untied.json --training.steps 1000

Muon updates the matrices of the layers, and AdamW the embedding, head and norms. Batches are random windows of one
shard. The weights are saved in muon.pt. It needs PyTorch 2.9 and the package coda_torch: pip install '.[torch]' in the
repository.
"""

import json
import math
import sys
import time

import torch
from coda_torch.run import Run

MUON, ADAMW = 0.02, 3e-4  # learning rates
SAVED = "muon.pt"


def tokens_of(shard):
    """The ids of a shard: a header of 256 int32, whose second says how wide ids are."""
    version = torch.from_file(shard, size=256, dtype=torch.int32)[1].item()
    dtype, size = (torch.int16, 2) if version == 1 else (torch.int32, 4)
    with open(shard, "rb") as file:
        count = (file.seek(0, 2) - 1024) // size
    ids = torch.from_file(shard, size=1024 // size + count, dtype=dtype)[1024 // size:]
    return ids.int() & 0xFFFF if version == 1 else ids  # PyTorch's 16 bits have a sign


def batch(tokens, shape):
    """Windows of seq_len tokens, and the tokens that follow each of theirs."""
    length = shape[-1]
    first = torch.randint(len(tokens) - length, (math.prod(shape[:-1]),))
    windows = torch.stack([tokens[at:at + length + 1] for at in first])
    return windows[:, :-1].reshape(shape), windows[:, 1:].reshape(shape)


def optimizers_of(run):
    parameters = run.parameters()
    is_hidden = {name: value.dim() == 2 and ".layers." in name for name, value in parameters.items()}
    return [torch.optim.Muon([value for name, value in parameters.items() if is_hidden[name]], lr=MUON,
                             momentum=0.95, weight_decay=0.0),
            torch.optim.AdamW([value for name, value in parameters.items() if not is_hidden[name]], lr=ADAMW,
                              betas=(0.9, 0.95), weight_decay=0.0, foreach=False)]


def scale_of(step, steps):
    """Of the learning rates: a short warm-up, then a line to 0."""
    return min(1.0, step / 20, 1.2 * (1 - step / (steps + 1)))


def main():
    shard, *flags = sys.argv[1:]
    steps = int(flags[flags.index("--training.steps") + 1])
    tokens = tokens_of(shard)
    run = Run("--data.train", shard, *flags)
    optimizers = optimizers_of(run)
    torch.manual_seed(0)
    for step in range(1, steps + 1):
        began = time.perf_counter()
        run.gradients(*batch(tokens, run.step_shape))
        for optimizer, rate in zip(optimizers, (MUON, ADAMW)):
            for group in optimizer.param_groups:
                group["lr"] = rate * scale_of(step, steps)
            optimizer.step()
        run.publish()
        loss, norm = run.result()
        print(json.dumps({"step": step, "loss": loss, "grad_norm": norm,
                          "ms": round(1000 * (time.perf_counter() - began), 1)}), flush=True)
    torch.save(run.state_dict(), SAVED)


if __name__ == "__main__":
    if not hasattr(torch.optim, "Muon"):
        sys.exit(f"examples/muon.py: torch.optim.Muon comes with PyTorch 2.9, and this is {torch.__version__}")
    main()
