#!/usr/bin/env python3
"""Bare FP8 GEMMs of PyTorch (cuBLASLt) compared with its bf16 GEMMs, for every matrix product of a training step.

    python3 tools/bench/torch_fp8_gemm.py [BENCH --json FILE] [--config C] [--tokens N] [--only qkv,down_dgrad]

Shapes are those of the configuration (default: configs/llama1b_untied.json) with N tokens (32768): the four products of
a layer, their dgrads and wgrads, and the head's three. FP8 is e4m3 with one scale per tensor through
torch._scaled_mm, both operands K-major, with and without fast accumulation; bf16 has the layouts that a training step
has. Forward and dgrad write bf16, wgrad writes float32. Operands are normal random numbers.

After --warm-up seconds, bf16, fast and accurate take turns in blocks of --block seconds without pauses: the clock
follows the mean of some 100 ms, so each runs at the clock that its own power leaves. A time is the median of the
rounds, a ratio (FP8 over bf16, smaller is better) the median of the rounds' ratios. Power and clock are NVML's means
over the second half of each block. Before the clock runs, 256 rows are compared with float32 products of the same
rounded operands, as relative RMS error.

--json writes {header, records} for tools/bench/records.py (fp8_gemm); BENCH is the coda_bench program, which says
which GPU and sources they are of. Without CUDA everything runs on the CPU, to try the script.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import torch

import records
from torch_timing import timed

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from torch_reference import read_config  # noqa: E402

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
F8 = torch.float8_e4m3fn
ROWS = 256  # of a product that are compared
ACCUMULATIONS = ("fast", "accurate")


@dataclass(frozen=True)
class Product:
    """out (M, N) = a (M, K) b, summed over K."""

    name: str
    kind: str  # forward, dgrad, wgrad
    M: int
    N: int
    K: int

    @property
    def flops(self) -> float:
        return 2.0 * self.M * self.N * self.K

    @property
    def out_dtype(self) -> torch.dtype:
        return torch.float32 if self.kind == "wgrad" else torch.bfloat16


def products_of(model: dict, tokens: int) -> list[Product]:
    width, inner = model["hidden_size"], model["intermediate_size"]
    heads, kv = (model[key] * model["head_dim"] for key in ("num_attention_heads", "num_key_value_heads"))
    matrices = {"qkv": (heads + 2 * kv, width), "attn_out": (width, heads), "gate_up": (2 * inner, width),
                "down": (width, inner), "head": (-(-model["vocab_size"] // 64) * 64, width)}
    return [product for name, (out, into) in matrices.items() for product in (
        Product(name, "forward", tokens, out, into), Product(name + "_dgrad", "dgrad", tokens, into, out),
        Product(name + "_wgrad", "wgrad", out, into, tokens))]


class Monitor:
    """Power in W and SM clock in MHz of the current GPU, sampled by a thread; NaN where NVML is not there."""

    def __init__(self):
        self.nvml = self.handle = None
        if not CUDA:
            return
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
            handle = ctypes.c_void_p()
            uuid = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}".encode()
            if self.nvml.nvmlInit_v2() == 0 and self.nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(handle)) == 0:
                self.handle = handle
        except OSError:
            pass  # no driver library by this name: times without power

    def sample(self) -> tuple[float, float]:
        power, clock = ctypes.c_uint(), ctypes.c_uint()
        if self.handle is None or self.nvml.nvmlDeviceGetPowerUsage(self.handle, ctypes.byref(power)) != 0 or \
                self.nvml.nvmlDeviceGetClockInfo(self.handle, 1, ctypes.byref(clock)) != 0:
            return float("nan"), float("nan")
        return power.value / 1000, float(clock.value)

    def during(self, work):
        """(what `work` returns, mean power, mean clock) over the second half of its time."""
        samples, done = [], threading.Event()

        def watch():
            while not done.wait(0.02):
                samples.append(self.sample())

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            result = work()
        finally:
            done.set()
            thread.join()
        half = samples[len(samples) // 2:] or [self.sample()]
        return result, *(statistics.mean(values) for values in zip(*half))


class Operands:
    """Of one product in both precisions, and the calls to time."""

    def __init__(self, product: Product):
        self.product = product
        M, N, K = product.M, product.N, product.K
        # As a training step has them: W is (N, K) in forward and (K, N) in dgrad; wgrad's are both token-major.
        shape_a = (K, M) if product.kind == "wgrad" else (M, K)
        shape_b = (N, K) if product.kind == "forward" else (K, N)
        a, b = (torch.randn(shape, device=DEVICE, dtype=torch.bfloat16) for shape in (shape_a, shape_b))
        self.a = a.t() if product.kind == "wgrad" else a
        self.b = b.t() if product.kind == "forward" else b
        self.a8 = self.a.to(F8).contiguous()
        self.b8 = self.b.t().to(F8).contiguous().t()  # column-major: K-major as well
        self.one = torch.ones((), device=DEVICE)

    def bf16(self):
        if self.product.out_dtype is torch.float32 and CUDA:
            return torch.mm(self.a, self.b, out_dtype=torch.float32)
        return torch.mm(self.a, self.b)

    def fast(self):
        return self.f8(True)

    def accurate(self):
        return self.f8(False)

    def f8(self, fast: bool):
        return torch._scaled_mm(self.a8, self.b8, self.one, self.one, out_dtype=self.product.out_dtype,
                                use_fast_accum=fast)

    def error(self, call) -> float:
        """Relative RMS of some rows against float32 products of the same 8-bit operands."""
        rows = min(ROWS, self.product.M)
        want = self.a8[:rows].float() @ self.b8.float()
        return ((call()[:rows].float() - want).norm() / want.norm()).item()


def measure(product: Product, options, monitor: Monitor) -> list[dict]:
    """One record per accumulation."""
    operands = Operands(product)
    calls = {name: getattr(operands, name) for name in ("bf16", *ACCUMULATIONS)}
    errors = {name: operands.error(calls[name]) for name in ACCUMULATIONS}
    single = {name: min(timed(call, 2) for _ in range(2)) for name, call in calls.items()}
    timed(calls["bf16"], max(1, int(1000 * options.warm_up / single["bf16"])))
    rounds = {name: [] for name in calls}
    for _ in range(options.rounds):
        for name, call in calls.items():
            count = max(3, int(1000 * options.block / single[name]))
            rounds[name].append(monitor.during(lambda call=call, count=count: timed(call, count)))
    made = []
    for name in ACCUMULATIONS:
        ours = [{"ms": ms} for ms, _, _ in rounds[name]]
        record = records.compared(ours, "bf16", [ms for ms, _, _ in rounds["bf16"]])
        record |= {"product": product.name, "kind": product.kind, "M": product.M, "N": product.N, "K": product.K,
                   "accumulation": name, "tflops": product.flops / record["ms"] / 1e9,
                   "bf16_tflops": product.flops / record["bf16_ms"] / 1e9, "relative_error": errors[name]}
        for side, key in (("", name), ("bf16_", "bf16")):
            power, clock = (statistics.median(values) for values in list(zip(*rounds[key]))[1:])
            if power == power:
                record |= {side + "watts": power, side + "mhz": clock}
        made.append(record)
    return made


def line(made: list[dict]) -> str:
    first, power = made[0], ""
    if "watts" in first:
        power = "  " + "  ".join(f"{w:4.0f} W {m:4.0f} MHz" for w, m in [(first["bf16_watts"], first["bf16_mhz"]), *(
            (record["watts"], record["mhz"]) for record in made)])
    shape = f"{first['M']}x{first['N']}x{first['K']}"
    parts = "  ".join(f"{r['accumulation']} {r['ms']:7.3f} ms {r['tflops']:5.0f} ratio {r['ratio']:.3f} error "
                      f"{r['relative_error']:.1e}" for r in made)
    return f"{first['product']:15s} {shape:20s} bf16 {first['bf16_ms']:7.3f} ms {first['bf16_tflops']:4.0f}  {parts}{power}"


def totals(made: list[dict]) -> list[str]:
    """bf16's time over FP8's, weighted by time: of the layer's products and of the head's."""
    lines = []
    for name, chosen in (("layer", [r for r in made if not r["product"].startswith("head")]),
                         ("head", [r for r in made if r["product"].startswith("head")])):
        for what, accumulation in (("all fast", lambda kind: "fast"), ("all accurate", lambda kind: "accurate"),
                                   ("only forward fast", lambda kind: "fast" if kind == "forward" else "accurate")):
            picked = [r for r in chosen if r["accumulation"] == accumulation(r["kind"])]
            if picked:
                speed = sum(r["bf16_ms"] for r in picked) / sum(r["ms"] for r in picked)
                lines.append(f"{name}, {len(picked)} products, {what}: FP8 is {speed:.3f} times as fast")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", metavar="BENCH", nargs="?")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--config", default=str(ROOT / "configs" / "llama1b_untied.json"), metavar="FILE")
    parser.add_argument("--tokens", type=int, default=32768, metavar="N")
    parser.add_argument("--only", metavar="NAME,NAME", help="these products")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--block", type=float, default=0.5, help="seconds (default: 0.5)")
    parser.add_argument("--warm-up", type=float, default=1.5, help="seconds, of each product (default: 1.5)")
    options = parser.parse_args()
    if options.json and not options.bench:
        parser.error("--json: needs BENCH, which says which GPU and sources the records are of")
    model = read_config(options.config)["model"]
    products = products_of(model, options.tokens)
    if options.only:
        names = options.only.split(",")
        if unknown := set(names) - {product.name for product in products}:
            parser.error(f"--only: there is no product {', '.join(sorted(unknown))}")
        products = [product for product in products if product.name in names]
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(1)
    header = {}
    if options.json:
        done = subprocess.run([options.bench, "header"], check=True, capture_output=True, text=True)
        header = json.loads(done.stdout) | {"command": " ".join(sys.argv), "torch": torch.__version__}
    monitor, measured = Monitor(), []
    print(f"torch {torch.__version__}; TFLOP/s behind the times", flush=True)
    for product in products:
        made = measure(product, options, monitor)
        measured += made
        print(line(made), flush=True)
        if options.json:  # after every product, so that a run that is cut short loses no more than one
            records.write(options.json, header, measured)
        if CUDA:
            torch.cuda.empty_cache()
    print("\n".join(totals(measured)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
