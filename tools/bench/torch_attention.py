"""Causal attention of PyTorch's cuDNN and FlashAttention backends, with coda_bench_attention in between, in one run.

    python3 tools/bench/torch_attention.py BENCH [--json FILE] [--flash] [--shape B:T:H:Hkv:D ...]

BENCH is the coda_bench_attention program. FLOPs: forward 4 B H T^2 D / 2, backward 2.5 times that. Ratio: our time over
cuDNN's, so below 1 is faster. Each shape's passes run cuDNN, ours, cuDNN; cuDNN's time is the mean of its two medians.
"""
import argparse
import datetime
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from triton.testing import do_bench

SHAPES = ["4:8192:32:8:64", "16:2048:32:8:64", "2:8192:32:8:128", "8:2048:32:8:128"]


def milliseconds(call):
    return do_bench(call, warmup=100, rep=300, return_mode="median")


def backend_times(backend, b, t, h, hkv, d):
    """(forward, backward) in milliseconds."""
    def tensor(heads, grad=True):
        return torch.randn(b, heads, t, d, device="cuda", dtype=torch.bfloat16, requires_grad=grad)

    q, k, v, g = tensor(h), tensor(hkv), tensor(hkv), tensor(h, False)
    with sdpa_kernel([backend]):
        def forward():
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

        out = forward()
        return milliseconds(forward), milliseconds(lambda: torch.autograd.grad(out, (q, k, v), g, retain_graph=True))


def our_records(bench, shape):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.json"
        subprocess.run([bench, "--shape", shape, "--json", str(path)], check=True, stdout=subprocess.DEVNULL)
        return json.loads(path.read_text())


def header():
    driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,power.limit", "--format=csv,noheader"],
                            capture_output=True, text=True, check=True).stdout.splitlines()[0]
    return {"gpu": torch.cuda.get_device_name(), "driver, clock, power limit": driver, "torch": torch.__version__,
            "cudnn": torch.backends.cudnn.version(), "command": " ".join(sys.argv),
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("--json")
    parser.add_argument("--flash", action="store_true", help="time PyTorch's FlashAttention backend too")
    parser.add_argument("--shape", action="append", metavar="B:T:H:Hkv:D")
    options = parser.parse_args()
    print(f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name()}")
    records = []
    for shape in options.shape or SHAPES:
        sizes = [int(size) for size in shape.split(":")]
        before = backend_times(SDPBackend.CUDNN_ATTENTION, *sizes)
        torch.cuda.empty_cache()
        ours = our_records(options.bench, shape)
        after = backend_times(SDPBackend.CUDNN_ATTENTION, *sizes)
        cudnn = [(x + y) / 2 for x, y in zip(before, after)]
        flash = backend_times(SDPBackend.FLASH_ATTENTION, *sizes) if options.flash else None
        for record in ours:
            backward = record["pass"] != "forward"
            record["cudnn_ms"] = cudnn[backward]
            record["ratio"] = record["ms"] / cudnn[backward]
            if flash:
                record["flash_ms"] = flash[backward]
            records.append(record)
            print(f"{shape:18s} {record['pass']:14s} {record['ms']:8.4f} ms {record['tflops']:6.1f} TFLOP/s"
                  f"  cuDNN {record['cudnn_ms']:8.4f} ms  ratio {record['ratio']:.3f}", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps({"header": header(), "records": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
