#!/usr/bin/env python3
"""Trains the same model on the same batches from the same weights in PyTorch, and writes the same log.

    coda_train --config C --export INIT --export-dtype float32   the initial weights
    coda_train --config C --dump-batches B.npy               a run, and the batches that it reads
    tools/torch_reference.py --config C --init INIT --batches B.npy --out ref.jsonl
    tools/compare_loss.py runs/C/log.jsonl ref.jsonl --atol 0.01

A plain LLaMA in PyTorch's own operations (separate projections, rotate-half RoPE, RMSNorm, SwiGLU, SDPA) and
torch.optim.AdamW, decay only on matrices. The loss is the mean over the valid targets of the whole step, over all its
micro-batches. C is a configuration as coda_train reads or prints it; give its --print-config where flags change it.

Precision:  fp32            everything, TF32 off
            bf16-autocast   fp32 parameters, GEMMs and attention in bf16
            bf16-params     bf16 parameters and residual stream, fp32 master weights and gradient sums

--fp8 RECIPE makes the linear layers FP8 through the torchao package (tools/torch_fp8.py), all but the head's,
that one too with --fp8-head. --compile runs the model through torch.compile: other bits, and faster.

--validation SHARD evaluates at the end, on the sequences that coda_train's validation of that file takes, in its order,
and writes its record.

Runs on CUDA where it is, else on the CPU. Exit status: 0 done, 1 bad input, 2 wrong usage, 3 a loss that is not finite.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time

sys.dont_write_bytecode = True
try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:
    sys.exit("torch_reference.py: needs PyTorch: pip install torch")

import torch_fp8
from torch_inputs import InputError, read_batches, read_validation, read_weights

PRECISIONS = ("bf16-autocast", "bf16-params", "fp32")
IGNORED = -100  # cross_entropy's value for a target that does not count

# What coda_train takes for keys that a configuration leaves out; None: another key decides, or off.
DEFAULTS = {
    "model": {"num_key_value_heads": None, "head_dim": None, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
              "rope_scaling": None, "tie_word_embeddings": False, "attention_bias": False, "qk_norm": False,
              "sliding_window": 0, "norm": "rmsnorm", "mlp": "swiglu", "mlp_bias": False, "attention_out_bias": False,
              "position_embeddings": "rope", "bos_token_id": None},
    "data": {"document_mask": False},
    "training": {"grad_accumulation_steps": 1, "max_grad_norm": 1.0},
    "validation": {"batches": 20},
    "optimizer": {"learning_rate": 3e-4, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1},
    "lr_schedule": {"type": "cosine", "warmup_steps": 0, "min_lr_ratio": 0.1, "decay_steps": None},
}


def read_config(path: str) -> dict:
    try:
        with open(path, encoding="utf-8") as file:
            given = json.load(file)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}") from None
    config = {section: {**DEFAULTS.get(section, {}), **given.get(section, {})} for section in {*DEFAULTS, *given}
              if isinstance(given.get(section, {}), dict)}
    model = config["model"]
    try:
        model["num_key_value_heads"] = model["num_key_value_heads"] or model["num_attention_heads"]
        model["head_dim"] = model["head_dim"] or model["hidden_size"] // model["num_attention_heads"]
        for section, key in (("model", "intermediate_size"), ("model", "num_hidden_layers"), ("model", "vocab_size"),
                             ("training", "steps")):
            config[section][key]
    except KeyError as error:
        raise InputError(f"{path}: no key {error.args[0]}") from None
    return config


def learning_rate(config: dict, step: int) -> float:
    """The learning rate of step `step`, from 1, as src/train/learning_rate.h defines it."""
    peak, schedule, steps = config["optimizer"]["learning_rate"], config["lr_schedule"], config["training"]["steps"]
    kind, floor, warmup = schedule["type"], schedule["min_lr_ratio"], schedule["warmup_steps"]
    if step <= warmup:
        return peak * step / warmup
    decay = schedule["decay_steps"]
    if decay is None:
        decay = max(1, steps // 5 if kind == "wsd" else steps - warmup)
    start = max(warmup, steps - decay) if kind == "wsd" else warmup
    progress = min(1.0, max(0.0, (step - start) / max(1, decay)))
    if kind == "constant":
        return peak
    if kind == "cosine":
        return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress)))
    return peak * (1 - (1 - floor) * progress)


def rope_frequencies(model: dict) -> torch.Tensor:
    """Angle per position of each pair, (head_dim / 2) float64, after LLaMA 3.1's rescaling of long wavelengths."""
    frequency = model["rope_theta"] ** (-torch.arange(0, model["head_dim"], 2, dtype=torch.float64) / model["head_dim"])
    scaling = model["rope_scaling"]
    if scaling is None:
        return frequency
    original, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    share = ((original * frequency / (2 * math.pi) - low) / (high - low)).clamp(0, 1)  # 1: frequency unchanged
    return share * frequency + (1 - share) * frequency / factor


def rotate_half(x):
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


class Norm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, model):
        super().__init__()
        width, self.head_dim = model["hidden_size"], model["head_dim"]
        self.groups = model["num_attention_heads"] // model["num_key_value_heads"]
        out, kv = model["num_attention_heads"] * self.head_dim, model["num_key_value_heads"] * self.head_dim
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, rows, bias=model["attention_bias"])
                                                 for rows in (out, kv, kv))
        self.o_proj = nn.Linear(out, width, bias=False)
        self.qk_norm = model["qk_norm"]
        if self.qk_norm:
            self.q_norm, self.k_norm = (Norm(self.head_dim, model["rms_norm_eps"]) for _ in range(2))

    def forward(self, x, cos, sin, mask):
        batch, length, _ = x.shape
        q, k, v = (p(x).view(batch, length, -1, self.head_dim).transpose(1, 2)
                   for p in (self.q_proj, self.k_proj, self.v_proj))
        if self.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = ((y * cos + rotate_half(y) * sin).to(y.dtype) for y in (q, k))
        k, v = (y.repeat_interleave(self.groups, 1) for y in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    def __init__(self, model):
        super().__init__()
        width, inner = model["hidden_size"], model["intermediate_size"]
        self.gate_proj, self.up_proj = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.self_attn, self.mlp = Attention(model), Mlp(model)
        self.input_layernorm = Norm(model["hidden_size"], model["rms_norm_eps"])
        self.post_attention_layernorm = Norm(model["hidden_size"], model["rms_norm_eps"])

    def forward(self, x, cos, sin, mask):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.embed_tokens = nn.Embedding(model["vocab_size"], model["hidden_size"])
        self.layers = nn.ModuleList(Layer(model) for _ in range(model["num_hidden_layers"]))
        self.norm = Norm(model["hidden_size"], model["rms_norm_eps"])


class Llama(nn.Module):
    """Its parameters have Hugging Face's names."""

    def __init__(self, config):
        super().__init__()
        model = config["model"]
        self.document_mask, self.window = config["data"]["document_mask"], model["sliding_window"]
        self.model = Body(model)
        self.lm_head = nn.Linear(model["hidden_size"], model["vocab_size"], bias=False)
        if model["tie_word_embeddings"]:
            self.lm_head.weight = self.model.embed_tokens.weight
        self.register_buffer("frequencies", rope_frequencies(model), persistent=False)

    def positions(self, begins):
        """Of every token in its document, (batch, length), and the mask of what attention may see, None for causal."""
        batch, length = begins.shape
        index = torch.arange(length, device=begins.device).expand(batch, length)
        if not self.document_mask and not 0 < self.window < length:
            return index, None
        start = torch.where(begins > 0, index, 0).cummax(1).values if self.document_mask else torch.zeros_like(index)
        first = torch.maximum(start, index - self.window + 1) if self.window else start
        causal = index[:, None, :] <= index[:, :, None]
        return index - start, (causal & (index[:, None, :] >= first[:, :, None]))[:, None]

    def forward(self, tokens, targets, begins):
        """The sum of the losses of the valid targets, float32. begins: not 0 where a document begins."""
        positions, mask = self.positions(begins)
        x = self.model.embed_tokens(tokens)
        angles = (positions[:, None, :, None] * self.frequencies).repeat(1, 1, 1, 2)
        cos, sin = angles.cos().float(), angles.sin().float()
        for layer in self.model.layers:
            x = layer(x, cos, sin, mask)
        logits = self.lm_head(self.model.norm(x)).float()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum")


def load_weights(model: Llama, folder: str) -> None:
    tensors = read_weights(folder)
    if model.lm_head.weight is model.model.embed_tokens.weight:
        tensors.setdefault("lm_head.weight", tensors.get("model.embed_tokens.weight"))
    try:
        model.load_state_dict(tensors)
    except (RuntimeError, AttributeError) as error:
        raise InputError(f"{folder}: {error}") from None


class Trainer:
    """AdamW over fp32 master weights; the model computes with them, or with a bf16 copy of the matrices."""

    def __init__(self, config, model, precision, device, compiled=False):
        self.config, self.device = config, device
        self.loss = torch.compile(model, dynamic=False) if compiled else model
        self.autocast = precision == "bf16-autocast"
        self.model = model
        self.parameters = list(self.model.parameters())
        self.master = self.parameters
        if precision == "bf16-params":
            self.master = [nn.Parameter(p.detach().clone()) for p in self.parameters]
            for parameter in self.parameters:
                parameter.data = parameter.data.bfloat16()
        optimizer = config["optimizer"]
        groups = [{"params": [p for p in self.master if p.ndim == 2], "weight_decay": optimizer["weight_decay"]},
                  {"params": [p for p in self.master if p.ndim == 1], "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, betas=(optimizer["beta1"], optimizer["beta2"]), eps=optimizer["eps"])

    def step(self, number: int, micro_batches: torch.Tensor) -> tuple[float, float, float]:
        """(loss, gradient norm before clipping, learning rate)."""
        tokens, targets, begins = (part.to(self.device) for part in micro_batches.unbind(1))
        valid = max(1, int((targets >= 0).sum()))
        targets = targets.masked_fill(targets < 0, IGNORED)
        loss = 0.0
        for micro_tokens, micro_targets, micro_begins in zip(tokens, targets, begins):
            with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.autocast):
                part = self.loss(micro_tokens, micro_targets, micro_begins) / valid
            part.backward()
            loss += part.item()
            self.collect()
        gradients = [p.grad for p in self.master]
        norm = torch.stack([g.double().square().sum() for g in gradients]).sum().sqrt().item()
        most = self.config["training"]["max_grad_norm"]
        if most > 0 and norm > most:
            torch._foreach_mul_(gradients, most / norm)
        lr = learning_rate(self.config, number)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.master is not self.parameters:
            torch._foreach_copy_([p.data for p in self.parameters], [p.data for p in self.master])
        return loss, norm, lr

    def validate(self, micro_batches: list[torch.Tensor]) -> float:
        """The mean loss per target; the last micro-batch may be smaller."""
        total, count = 0.0, 0
        for tokens, targets, begins in (part.to(self.device) for part in micro_batches):
            with torch.no_grad(), torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.autocast):
                total += self.model(tokens, targets, begins).item()
            count += targets.numel()
        return total / count

    def collect(self) -> None:
        """Adds the gradients of bf16 parameters to the master weights' in fp32."""
        if self.master is self.parameters:
            return
        for master, parameter in zip(self.master, self.parameters):
            wide = parameter.grad.float()
            master.grad = wide if master.grad is None else master.grad + wide
            parameter.grad = None


def number(value: float):
    return float(f"{value:.9g}") if math.isfinite(value) else None


def train(arguments) -> int:
    config = read_config(arguments.config)
    for key in ("norm", "mlp", "mlp_bias", "attention_out_bias", "position_embeddings"):
        if config["model"][key] != DEFAULTS["model"][key]:
            raise InputError(f"{arguments.config}: model.{key} is {json.dumps(config['model'][key])}, and this script's "
                             f"model has {json.dumps(DEFAULTS['model'][key])}")
    batches = read_batches(arguments.batches)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    with torch.device(device):
        model = Llama(config)
    load_weights(model, arguments.init)
    build = f"PyTorch {torch.__version__}, {arguments.precision}"
    if arguments.fp8:
        head = None if arguments.fp8_head else "lm_head"
        converted = torch_fp8.convert(model, arguments.fp8, head, emulate=device == "cpu")
        build += f", torchao {torch_fp8.version()} {arguments.fp8}, {converted} layers"
        print(f"{converted} linear layers are FP8, {arguments.fp8}", flush=True)
    validation = read_validation(arguments.validation, config) if arguments.validation else None
    trainer = Trainer(config, model, arguments.precision, device, arguments.compile)
    accumulation = config["training"]["grad_accumulation_steps"]
    steps = min(len(batches) // accumulation, arguments.steps or config["training"]["steps"])
    tokens_per_step = accumulation * batches[0, 0].numel()
    name = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    with open(arguments.out, "w", encoding="utf-8") as out:
        header = {"config": config, "device": name, "build": build,
                  "command": " ".join(sys.argv)}
        out.write(json.dumps(header) + "\n")
        for step in range(1, steps + 1):
            start = time.perf_counter()
            loss, norm, lr = trainer.step(step, batches[(step - 1) * accumulation : step * accumulation])
            ms = (time.perf_counter() - start) * 1000
            gib = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else math.nan
            record = {"loss": loss, "grad_norm": norm, "lr": lr, "tokens": step * tokens_per_step, "ms": ms,
                      "tokens_per_s": tokens_per_step / ms * 1000, "mfu": math.nan, "memory_gib": gib}
            out.write(json.dumps({"step": step, **{key: number(value) for key, value in record.items()}}) + "\n")
            if step % arguments.print_every == 0 or step in (1, steps):
                print(f"step {step}/{steps}  loss {loss:.5f}  norm {norm:.4f}  {ms:.0f} ms", flush=True)
            if not (math.isfinite(loss) and math.isfinite(norm)):
                print(f"torch_reference.py: step {step}: loss {loss}, gradient norm {norm}", file=sys.stderr)
                return 3
        if validation:
            loss = trainer.validate(validation)
            out.write(json.dumps({"step": steps, "val_loss": number(loss)}) + "\n")
            print(f"validation at step {steps}: loss {loss:.6f}", flush=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, metavar="FILE")
    parser.add_argument("--init", required=True, metavar="DIR", help="Hugging Face folder of the initial weights")
    parser.add_argument("--batches", required=True, metavar="FILE", help="what coda_train --dump-batches wrote")
    parser.add_argument("--out", required=True, metavar="FILE", help="the log to write")
    parser.add_argument("--precision", choices=PRECISIONS, default="bf16-autocast")
    parser.add_argument("--fp8", choices=torch_fp8.RECIPES, help="through torchao; not with --precision fp32")
    parser.add_argument("--fp8-head", action="store_true", help="with --fp8: the head's products too")
    parser.add_argument("--compile", action="store_true", help="through torch.compile")
    parser.add_argument("--validation", metavar="SHARD", help="validation data, evaluated at the end")
    parser.add_argument("--steps", type=int, metavar="N", help="stop after N; the learning rate stays the whole run's")
    parser.add_argument("--print-every", type=int, default=10, metavar="N")
    arguments = parser.parse_args()
    if arguments.fp8_head and not arguments.fp8:
        parser.error("--fp8-head: goes with --fp8, which is not given")
    if arguments.fp8 and arguments.precision == "fp32":
        parser.error("--fp8: goes with bf16-autocast and bf16-params, not with fp32")
    try:
        return train(arguments)
    except (InputError, torch_fp8.F8Error, OSError) as error:
        print(f"torch_reference.py: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
