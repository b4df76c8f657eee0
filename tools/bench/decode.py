#!/usr/bin/env python3
"""Decoding by PyTorch compared with coda_bench decode, same shapes, random weights, in turns on one GPU.

    python3 tools/bench/decode.py BENCH [--models 1B,8B] [--batches 1,4,8] [--contexts 256,8192] [--json FILE]
    python3 tools/bench/decode.py BENCH --quick [--json FILE]         1B, batch 1 and 8, context 256: under 3 minutes

BENCH is the coda_bench program. The rival is the recipe that gpt-fast made known: a static cache of keys and values, one
graph of a step of static shapes by torch.compile with coordinate descent tuning, replayed as a CUDA graph, q, k, v in one
product, gate and up in one, the largest logit as the next token. Its attention is SDPA with a mask over the cache, by the
math backend, which the compiler fuses, or by the backend that PyTorch takes; of those in --attention the faster counts.

A time is of one step: wall time over the 127 tokens that follow the first one after `context` tokens of each sequence,
ours with the host's work between launches. Every round runs coda_bench decode, then the rival; ratio is ours over
PyTorch's, the median of the rounds' ratios, so smaller is better. A second record has the time of our op list, without
the fused kernel.

--json FILE writes {header, records} for tools/bench/records.py (decode), after every shape. --eager leaves torch.compile
out, to try the script with --models tiny; without CUDA everything of PyTorch runs on the CPU, for the same purpose.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch._dynamo.utils
import torch._inductor.config
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import records
from torch_step import Norm, rotate

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
TOKENS = 127  # that are timed
_LLAMA3 = {"vocab_size": 128256, "num_attention_heads": 32, "num_key_value_heads": 8, "norm": "rmsnorm",
           "rms_norm_eps": 1e-5, "rope_theta": 500000.0}
MODELS = {
    "1B": _LLAMA3 | {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "head_dim": 64},
    "8B": _LLAMA3 | {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "head_dim": 128},
    "tiny": _LLAMA3 | {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
                       "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8},
}
ATTENTION = {"math": [SDPBackend.MATH], "sdpa": [SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION,
                                                 SDPBackend.CUDNN_ATTENTION]}


class Layer(nn.Module):
    def __init__(self, model, batch, length):
        super().__init__()
        width, inner, self.head_dim = model["hidden_size"], model["intermediate_size"], model["head_dim"]
        kv_heads = model["num_key_value_heads"]
        self.heads = [model["num_attention_heads"], kv_heads, kv_heads]
        self.norm1, self.norm2 = (Norm(width, model) for _ in range(2))
        self.qkv = nn.Linear(width, sum(self.heads) * self.head_dim, bias=False)
        self.out = nn.Linear(self.heads[0] * self.head_dim, width, bias=False)
        self.gate_up, self.down = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(batch, kv_heads, length, self.head_dim), persistent=False)

    def forward(self, x, position, cos, sin, mask):
        batch = x.shape[0]
        q, k, v = self.qkv(self.norm1(x)).view(batch, 1, -1, self.head_dim).split(self.heads, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        self.keys[:, :, position] = k.transpose(1, 2)
        self.values[:, :, position] = v.transpose(1, 2)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), self.keys, self.values, attn_mask=mask, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, 1, -1))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    """A step of `batch` sequences, all at the same position, with a cache of `length` positions."""

    def __init__(self, model, batch, length):
        super().__init__()
        self.embedding = nn.Embedding(model["vocab_size"], model["hidden_size"])
        self.blocks = nn.ModuleList(Layer(model, batch, length) for _ in range(model["num_hidden_layers"]))
        self.norm = Norm(model["hidden_size"], model)
        self.head = nn.Linear(model["hidden_size"], model["vocab_size"], bias=False)
        pairs = torch.arange(0, model["head_dim"], 2, dtype=torch.float64) / model["head_dim"]
        angles = torch.outer(torch.arange(length, dtype=torch.float64), model["rope_theta"] ** -pairs)
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)
        self.register_buffer("positions", torch.arange(length), persistent=False)

    def logits(self, tokens, position):
        """(batch, 1) tokens at `position`, (1,): the logits of what follows."""
        x = self.embedding(tokens)
        mask = (self.positions <= position)[None, None, None]
        cos, sin = (table[position][:, None] for table in (self.cos, self.sin))
        for block in self.blocks:
            x = block(x, position, cos, sin, mask)
        return self.head(self.norm(x))

    def forward(self, tokens, position):
        return self.logits(tokens, position).argmax(-1)


def make_decoder(model, batch, length, dtype):
    torch.set_default_dtype(dtype)
    try:
        with torch.device(DEVICE):
            decoder = Decoder(model, batch, length).eval()
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.no_grad():
        for parameter in decoder.parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=0.02)
    return decoder


class Rival:
    """One way of attention, compiled; run() replays it."""

    def __init__(self, model, batch, context, attention, compiled):
        self.attention, self.context = attention, context
        length = -(-(context + TOKENS) // 8) * 8
        self.decoder = make_decoder(model, batch, length, torch.bfloat16)
        self.run = torch.compile(self.decoder, mode="reduce-overhead", fullgraph=True, dynamic=False) if compiled \
            else self.decoder
        self.tokens = torch.zeros(batch, 1, dtype=torch.long, device=DEVICE)

    @torch.no_grad()
    def tokens_ms(self, count=TOKENS):
        """Milliseconds per step of the `count` tokens after the context."""
        tokens = self.tokens
        position = torch.full((1,), self.context - 1, dtype=torch.long, device=DEVICE)
        with sdpa_kernel(ATTENTION[self.attention]):
            synchronize()
            start = time.perf_counter()
            for _ in range(count):
                tokens = self.run(tokens, position).clone()
                position = position + 1
            synchronize()
        return 1000 * (time.perf_counter() - start) / count

    def warm_up(self, seconds):
        """Compiles, records the graph, and then decodes for `seconds`. Returns the seconds of the first part."""
        start = time.perf_counter()
        self.tokens_ms(4)
        first = time.perf_counter() - start
        while time.perf_counter() - start - first < seconds:
            self.tokens_ms()
        return first


def synchronize():
    if CUDA:
        torch.cuda.synchronize()


def free_memory():
    torch._dynamo.reset()
    gc.collect()
    if CUDA:
        torch.cuda.empty_cache()


def made_rival(options, model, batch, context, attention):
    """Compiled again: the compiler takes no notice of the attention that its code was made for."""
    free_memory()
    rival = Rival(MODELS[model], batch, context, attention, not options.eager)
    first = rival.warm_up(options.warm_up)
    if CUDA and torch._dynamo.utils.counters["inductor"]["cudagraph_skips"] > 0:
        sys.exit("decode.py: PyTorch made no CUDA graph of its step, which its time must not suffer from; run with "
                 "TORCH_LOGS=perf_hints, which says why")
    ms = min(rival.tokens_ms() for _ in range(2))
    print(f"PyTorch {model} batch {batch} context {context} attention {attention}: {ms:.3f} ms "
          f"({first:.0f} s until its first tokens were done)", flush=True)
    return rival, ms


def fastest_rival(options, model, batch, context):
    """Of the ways of attention that are asked for."""
    times = {}
    for attention in options.attention:
        rival = None  # the one before is gone first
        rival, times[attention] = made_rival(options, model, batch, context, attention)
    fastest = min(times, key=times.get)
    if fastest == rival.attention:
        return rival
    rival = None
    return made_rival(options, model, batch, context, fastest)[0]


def coda_decode(options, model, batch, context, decoder="fused"):
    """(header, record) of one run of coda_bench decode."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "decode.json"
        command = [options.bench, "decode", "--models", model, "--batches", str(batch), "--contexts", str(context),
                   "--decoders", decoder, "--warm-up", str(options.warm_up), "--json", str(path)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        run = json.loads(path.read_text())
        return run["header"], run["records"][0]


def compare(options, model, batch, context):
    """(coda_bench's header, the records) of one shape."""
    rival = fastest_rival(options, model, batch, context)
    ours, theirs, header = [], [], None
    for number in range(options.rounds):
        header, record = coda_decode(options, model, batch, context)
        ours.append(record)
        rival.warm_up(options.warm_up)
        theirs.append(rival.tokens_ms())
        print(f"round {number + 1}  ours {record['ms']:.3f} ms  PyTorch {theirs[-1]:.3f} ms", flush=True)
    attention, rival = rival.attention, None
    free_memory()
    passes = coda_decode(options, model, batch, context, "passes")[1]
    print(f"our op list, without the fused kernel: {passes['ms']:.3f} ms", flush=True)
    return header, [records.compared(ours, "torch", theirs) | {"torch_attention": attention}, passes]


def line(record):
    return (f"{record['model']} batch {record['batch']} context {record['context']:5d}  {record['ms']:.3f} ms  "
            f"{record['steps_per_s']:.0f} steps/s  {100 * record['share_of_bandwidth']:.0f}% of "
            f"{record['stream_tb_s']:.2f} TB/s  PyTorch {1000 / record['torch_ms']:.0f} steps/s  ratio "
            f"{record['ratio']:.3f} ({record['spread'][0]:.3f} to {record['spread'][1]:.3f})")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words, numbers = (lambda text: text.split(",")), (lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("bench", metavar="BENCH")
    parser.add_argument("--models", type=words, default=["1B", "8B"], help="default: 1B,8B")
    parser.add_argument("--batches", type=numbers, default=[1, 4, 8], help="default: 1,4,8")
    parser.add_argument("--contexts", type=numbers, default=[96, 256, 8192], help="default: 96,256,8192")
    parser.add_argument("--attention", type=words, default=list(ATTENTION), help="default: math,sdpa")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=float, default=1.5, help="seconds, of each in a round (default: 1.5)")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    for flag, given, known in (("--models", options.models, MODELS), ("--attention", options.attention, ATTENTION)):
        if unknown := [name for name in given if name not in known]:
            parser.error(f"{flag}: there is no {unknown[0]}; there are {', '.join(known)}")
    if options.quick:
        options.models, options.batches, options.contexts, options.attention = ["1B"], [1, 8], [256], ["math"]
    torch.manual_seed(0)
    torch._inductor.config.coordinate_descent_tuning = True
    torch.set_float32_matmul_precision("high")
    measured = []
    for model in options.models:
        for context in options.contexts:
            for batch in options.batches:
                header, made = compare(options, model, batch, context)
                measured += made
                print(line(made[0]), flush=True)
                if options.json:  # after every shape, so that a run that is cut short loses no more than one
                    header |= {"torch": torch.__version__, "command": " ".join(sys.argv)}
                    records.write(options.json, header, measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
