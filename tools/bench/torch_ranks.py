#!/usr/bin/env python3
"""One rank of PyTorch's training step on several GPUs, for tools/bench/ranks.py.

    torchrun --nproc-per-node N tools/bench/torch_ranks.py ddp|fsdp2 --config C --batch B --length T --steps N
                                                           --warm-up N

The first rank prints {"ms": median of a step, "gib": its peak, "compile_s": until its first step was done}.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from torch_step import Rival, clip, read_config, times_of


class Head(nn.Module):
    """The last norm, the head and the loss, which FSDP2 takes as one unit."""

    def __init__(self, model):
        super().__init__()
        self.norm, self.head = model.norm, model.head

    def forward(self, x, targets):
        return F.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), targets.flatten())


class Sharded(nn.Module):
    def __init__(self, model):
        super().__init__()
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        if model.positions is not None:
            sys.exit("the rival of fsdp2 has no learned positions; take a configuration with RoPE, or ddp")
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        self.embedding, self.blocks, self.head = model.embedding, model.blocks, Head(model)
        self.cos, self.sin = model.cos, model.sin
        for block in self.blocks:
            block.compile(fullgraph=True, dynamic=False)
        self.head.compile(fullgraph=True, dynamic=False)
        for unit in (self.embedding, *self.blocks, self.head):
            fully_shard(unit, mp_policy=policy, reshard_after_forward=False)
        fully_shard(self, mp_policy=policy, reshard_after_forward=False)

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(x, targets)


def step_of(kind, config, batch, length, device):
    model = Rival(config["model"], length).to(device)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.02) if parameter.dim() == 2 else parameter.fill_(1)
    tokens, targets = torch.randint(0, config["model"]["vocab_size"], (2, batch, length), device=device)
    if kind == "ddp":
        ddp = nn.parallel.DistributedDataParallel(model, device_ids=[device.index], gradient_as_bucket_view=True,
                                                  bucket_cap_mb=100)
        loss, parameters = torch.compile(ddp, dynamic=False), list(model.parameters())
    else:
        loss = Sharded(model)
        parameters = list(loss.parameters())
    wanted = config["optimizer"]
    optimizer = torch.optim.AdamW(parameters, lr=0.0, betas=(wanted["beta1"], wanted["beta2"]), eps=wanted["eps"],
                                  weight_decay=wanted["weight_decay"], fused=True)

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=kind == "ddp"):
            value = loss(tokens, targets)
        value.backward()
        clip(parameters, config["training"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("ddp", "fsdp2"))
    parser.add_argument("--config", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--warm-up", type=int, required=True)
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    torch.manual_seed(0)
    for other in ("flash", "mem_efficient", "math"):
        getattr(torch.backends.cuda, f"enable_{other}_sdp")(False)
    began = time.perf_counter()
    step = step_of(options.kind, read_config(options.config), options.batch, options.length, device)
    step()
    torch.cuda.synchronize()
    compiling = time.perf_counter() - began
    torch.cuda.reset_peak_memory_stats()
    for _ in range(options.warm_up):
        step()
    ms = statistics.median(times_of(step, options.steps))
    if dist.get_rank() == 0:
        print(json.dumps({"ms": ms, "gib": torch.cuda.max_memory_allocated() / 2**30, "compile_s": compiling}),
              flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
