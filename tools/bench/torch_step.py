#!/usr/bin/env python3
"""The training step of PyTorch compared with coda_bench step, same model, same shapes, in turns on one GPU.

    python3 tools/bench/torch_step.py BENCH --config C [--shape B:T ...] [--rounds N] [--json FILE]

BENCH is the coda_bench program. The rival is the same model written for torch.compile (q, k, v in one GEMM, gate and up
in one), the whole model compiled as one graph of static shapes, attention by cuDNN:
  forward_backward   bf16 parameters, loss and all gradients
  step               fp32 parameters under bf16 autocast, backward, gradient clipping, fused AdamW
Each round runs coda_bench step, then the rival's two parts; the rival's memory is freed while coda_bench runs. A time
is the median over rounds of each round's median; ratio is ours over PyTorch's, the median of the rounds' ratios. The
learning rate is 0 in both, so that all steps see a new model's numbers; tokens are random.

--json FILE writes {header, records} for tools/bench/records.py (step), after every round.

--fp8 RECIPE makes the rival's linear layers FP8 through the torchao package (tools/torch_fp8.py), all but the
head's, that one too with --fp8-head. Its records have torchao_recipe and ratio_torchao in place of PyTorch's bf16
time; how far the loss on equal weights is from bf16's is printed first.

--eager leaves torch.compile out, to try the script;
without CUDA everything of PyTorch runs on the CPU, for the same purpose.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import records
from coda_step import coda_step

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import torch_fp8  # noqa: E402
from torch_reference import read_config, rope_frequencies  # noqa: E402

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


def rotate(x, cos, sin):
    """Adjacent pairs; cos and sin are (positions, 1, pairs)."""
    first, second = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((first * cos - second * sin, first * sin + second * cos), -1).flatten(-2).to(x.dtype)


class Norm(nn.Module):
    def __init__(self, width, model):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), model["rms_norm_eps"]
        self.bias = nn.Parameter(torch.zeros(width)) if model["norm"] == "layernorm" else None

    def forward(self, x):
        shape = (x.shape[-1],)
        if self.bias is not None:
            return F.layer_norm(x, shape, self.weight, self.bias, self.eps)
        return F.rms_norm(x, shape, self.weight, self.eps)


class Block(nn.Module):
    def __init__(self, model):
        super().__init__()
        width, inner = model["hidden_size"], model["intermediate_size"]
        self.head_dim = model["head_dim"]
        self.heads = [model["num_attention_heads"], model["num_key_value_heads"], model["num_key_value_heads"]]
        self.norm1, self.norm2 = (Norm(width, model) for _ in range(2))
        self.qkv = nn.Linear(width, sum(self.heads) * self.head_dim, bias=model["attention_bias"])
        self.qk_norm = model["qk_norm"]
        if self.qk_norm:
            self.q_norm, self.k_norm = (Norm(self.head_dim, model) for _ in range(2))
        self.rope = model["position_embeddings"] == "rope"
        self.out = nn.Linear(self.heads[0] * self.head_dim, width, bias=model["attention_out_bias"])
        self.mlp, bias = model["mlp"], model["mlp_bias"]
        self.up = nn.Linear(width, 2 * inner if self.mlp == "swiglu" else inner, bias=bias)  # with gate, if it has one
        self.down = nn.Linear(inner, width, bias=bias)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, -1, self.head_dim).split(self.heads, 2)
        if self.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.rope:
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True,
                                           enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, -1))
        up = self.up(self.norm2(x))
        if self.mlp == "swiglu":
            gate, up = up.chunk(2, -1)
            return x + self.down(F.silu(gate) * up)
        return x + self.down(F.gelu(up, approximate="tanh" if self.mlp == "gelu_tanh" else "none"))


class Rival(nn.Module):
    """Mean loss of a batch."""

    def __init__(self, model, length):
        super().__init__()
        if model["sliding_window"]:
            sys.exit("the rival has no sliding windows; take a configuration without model.sliding_window")
        self.embedding = nn.Embedding(model["vocab_size"], model["hidden_size"])
        self.blocks = nn.ModuleList(Block(model) for _ in range(model["num_hidden_layers"]))
        learned = model["position_embeddings"] == "learned"
        self.positions = nn.Embedding(model["max_position_embeddings"], model["hidden_size"]) if learned else None
        self.norm = Norm(model["hidden_size"], model)
        self.head = nn.Linear(model["hidden_size"], model["vocab_size"], bias=False)
        if model["tie_word_embeddings"]:
            self.head.weight = self.embedding.weight
        angles = torch.outer(torch.arange(length, dtype=torch.float64), rope_frequencies(model))
        self.register_buffer("cos", angles.cos().float()[:, None], persistent=False)
        self.register_buffer("sin", angles.sin().float()[:, None], persistent=False)

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = self.head(self.norm(x)).float()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def clip(parameters, training):
    if training["max_grad_norm"] > 0:
        nn.utils.clip_grad_norm_(parameters, training["max_grad_norm"])


class Bench:
    """The rival at one shape; between measurements it holds no memory worth naming."""

    def __init__(self, config, batch, length, compiled, fp8=None, fp8_head=False):
        self.config, self.fullgraph = config, True
        model = config["model"]
        with torch.device(DEVICE):
            self.model = Rival(model, length)
            self.tokens, self.targets = torch.randint(0, model["vocab_size"], (2, batch, length))
        self.parameters = list(self.model.parameters())
        self.shapes = [p.shape for p in self.parameters]
        self.biases = [name.endswith("bias") for name, _ in self.model.named_parameters()]
        self.fp8 = fp8
        if fp8:
            before = self.eager_loss()
            converted = torch_fp8.convert(self.model, fp8, None if fp8_head else "head", emulate=not CUDA)
            loss = self.eager_loss()
            print(f"{fp8}: {converted} FP8 layers of torchao {torch_fp8.version()}; loss on equal weights "
                  f"{loss:.5f}, in bf16 {before:.5f}, difference {loss - before:+.5f}", flush=True)
        optimizer = config["optimizer"]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=0.0, betas=(optimizer["beta1"], optimizer["beta2"]),
                                           eps=optimizer["eps"], weight_decay=optimizer["weight_decay"], fused=True)
        self.loss = torch.compile(self.model, fullgraph=True, dynamic=False) if compiled else self.model
        self.release()

    def eager_loss(self):
        """On weights of a seed, so the same before and after a conversion."""
        torch.manual_seed(1)
        self.load(torch.bfloat16)
        with torch.no_grad():
            loss = self.model(self.tokens, self.targets).item()
        self.clear_parameters()
        return loss

    def clear_parameters(self):
        for parameter in self.parameters:
            parameter.data = torch.empty(0, dtype=parameter.dtype, device=DEVICE)
            parameter.grad = None

    def load(self, dtype):
        for parameter, shape, bias in zip(self.parameters, self.shapes, self.biases):
            data = torch.empty(shape, dtype=dtype, device=DEVICE)
            parameter.data = data.normal_(std=0.02) if len(shape) == 2 else data.fill_(0 if bias else 1)

    def release(self):
        self.clear_parameters()
        self.optimizer.state.clear()
        gc.collect()
        if CUDA:
            torch.cuda.empty_cache()

    def forward_backward(self):
        torch.autograd.grad(self.loss(self.tokens, self.targets), self.parameters)

    def step(self):
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = self.loss(self.tokens, self.targets)
        loss.backward()
        clip(self.parameters, self.config["training"])
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def first_run(self, run):
        """Compiles. Where Dynamo does not take the FP8 model as one graph, it gets it in parts."""
        try:
            run()
        except torch._dynamo.exc.TorchDynamoException as error:
            if not (self.fp8 and self.fullgraph):
                raise
            print(f"not one graph: {str(error).splitlines()[0]}", flush=True)
            self.fullgraph = False
            torch._dynamo.reset()
            self.loss = torch.compile(self.model, dynamic=False)
            run()

    def measure(self, part, steps, warm_up):
        """(median milliseconds, peak GiB, seconds until the first run was done: the first time, of compiling)."""
        run = getattr(self, part)
        self.load(torch.bfloat16 if part == "forward_backward" else torch.float32)
        start = time.perf_counter()
        self.first_run(run)
        synchronize()
        first = time.perf_counter() - start
        if CUDA:
            torch.cuda.reset_peak_memory_stats()
        while time.perf_counter() - start - first < warm_up:
            run()
            synchronize()
        ms = statistics.median(times_of(run, steps))
        peak = torch.cuda.max_memory_allocated() / 2**30 if CUDA else 0.0
        self.release()
        return ms, peak, first


def synchronize():
    if CUDA:
        torch.cuda.synchronize()


def times_of(run, steps):
    """Milliseconds of each of `steps` runs, one right after the other, so that the host stays ahead of the GPU."""
    if not CUDA:
        marks = [time.perf_counter()]
        for _ in range(steps):
            run()
            marks.append(time.perf_counter())
        return [1000 * (b - a) for a, b in zip(marks, marks[1:])]
    events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    synchronize()
    return [a.elapsed_time(b) for a, b in zip(events, events[1:])]


def cudnn_flags(model, batch, length):
    """cuDNN's times of one layer's attention, as coda_bench step takes them for its floor."""
    if not CUDA:
        return []
    from torch_attention import cudnn_times
    heads = [model[key] for key in ("num_attention_heads", "num_key_value_heads", "head_dim")]
    forward, backward = cudnn_times([batch, length, *heads])
    torch.cuda.empty_cache()
    print(f"cuDNN attention of a layer: forward {forward:.3f} ms, backward {backward:.3f} ms", flush=True)
    return ["--cudnn-forward-ms", str(forward), "--cudnn-backward-ms", str(backward)]


def compare(options, config, batch, length):
    """Yields (coda_bench's header, records) of one shape after every round."""
    shape = ["--training.micro_batch_size", str(batch), "--training.seq_len", str(length)]
    floor = ["--no-floor"] if options.fp8 else cudnn_flags(config["model"], batch, length)
    torch._dynamo.reset()
    bench = Bench(config, batch, length, not options.eager, options.fp8, options.fp8_head)
    ours, theirs, header = {}, {}, None  # by part: one entry per round
    for round_number in range(options.rounds):
        result = coda_step(options, [*shape, *floor])
        header = header or result["header"]
        for record in result["records"]:
            ours.setdefault(record["part"], []).append(record)
        for part in ("forward_backward", "step"):
            ms, peak, first = bench.measure(part, options.steps, options.warm_up)
            theirs.setdefault(part, []).append((ms, peak))
            compiling = f"  ({first:.0f} s until its first run was done)" if round_number == 0 else ""
            print(f"round {round_number + 1}  {part:16s} ours {ours[part][-1]['ms']:8.2f} ms  "
                  f"PyTorch {ms:8.2f} ms{compiling}", flush=True)
        yield header, [summary(rounds, theirs[part], bench, options) for part, rounds in ours.items()]


def summary(rounds, rival, bench, options):
    """The rounds of one part as one record."""
    times, peak = [ms for ms, _ in rival], max(peak for _, peak in rival)
    if not options.fp8:
        return records.compared(rounds, "torch", times) | {"torch_peak_gib": peak}
    return records.compared(rounds, "torchao", times, "ratio_torchao") | {
        "torchao_recipe": options.fp8, "torchao_head": options.fp8_head, "torchao_fullgraph": bench.fullgraph,
        "torchao_peak_gib": peak}


def line(record):
    rival, name, ratio = ("torchao", f"torchao {record['torchao_recipe']}", "ratio_torchao") \
        if "torchao_recipe" in record else ("torch", "PyTorch", "ratio")
    floor = f"  floor {record['floor_ms']:8.2f} ({record['floor_ratio']:.3f})" if "floor_ms" in record else ""
    return (f"{record['config']} B{record['B']} T{record['T']} {record['part']:16s} {record['ms']:8.2f} ms  {name} "
            f"{record[rival + '_ms']:8.2f} ms  ratio {record[ratio]:.3f}{floor}  MFU {100 * record['mfu']:.1f}%  "
            f"{record['tokens_per_s']:.0f} tokens/s  {record['peak_gib']:.1f} / {record[rival + '_peak_gib']:.1f} GiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", metavar="BENCH")
    parser.add_argument("--config", required=True, metavar="FILE")
    parser.add_argument("--shape", action="append", metavar="B:T", help="default: the configuration's own")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20, help="timed in a round, of each")
    parser.add_argument("--warm-up", type=float, default=2.0, help="seconds, of each in a round")
    parser.add_argument("--fp8", choices=torch_fp8.RECIPES, help="through torchao")
    parser.add_argument("--fp8-head", action="store_true", help="with --fp8: the head's products too")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="print coda_bench's own tables")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if options.fp8_head and not options.fp8:
        parser.error("--fp8-head: goes with --fp8, which is not given")
    if options.fp8:
        try:
            torch_fp8.torchao()  # before minutes of measuring
        except torch_fp8.F8Error as error:
            sys.exit(f"torch_step.py: {error}")
    if CUDA:
        torch.backends.cuda.enable_cudnn_sdp(True)
        for other in ("flash", "mem_efficient", "math"):
            getattr(torch.backends.cuda, f"enable_{other}_sdp")(False)
    torch.manual_seed(0)
    config = read_config(options.config)
    training = config["training"]
    shapes = options.shape or [f"{training['micro_batch_size']}:{training['seq_len']}"]
    measured, made = [], []
    for batch, length in (map(int, shape.split(":")) for shape in shapes):
        for header, made in compare(options, config, batch, length):
            if options.json:  # after every round, so that a run that is cut short loses no more than one
                header |= {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(),
                           "command": " ".join(sys.argv)}
                if options.fp8:
                    header["torchao"] = torch_fp8.version()
                records.write(options.json, header, measured + made)
        measured += made
        print("\n".join(map(line, made)), flush=True)


if __name__ == "__main__":
    main()
