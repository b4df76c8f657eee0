"""Causal attention by PyTorch's cuDNN backend and by FlashAttention-3, with coda_bench in between, in one run.

    python3 tools/bench/torch_attention.py BENCH [--json FILE] [--flash3 FOLDER] [--accuracy [FILE]]
                                           [--shape B:T:H:Hkv:D ...] [--documents MEAN ...]

BENCH is the coda_bench program. FLOPs: forward 4 B H T^2 D / 2, backward 2.5 times that. Ratio: our time over cuDNN's,
so below 1 is faster. The two take turns: each round of a shape runs ours, then cuDNN's; times are medians over rounds,
the ratio is the median of the rounds' ratios. All are timed in blocks of at least 100 ms and 12 calls without pauses,
at the clocks that the power limit leaves.

Every shape is also measured with packed documents of random lengths (--documents MEAN ..., "none" for none), and
B2 T16384 D128 with a sliding window of 4096 keys where no --shape is given. cuDNN has neither in PyTorch; there the
rival is FlexAttention with the same first key of every query in its block mask, which is made once.

--flash3 also times FlashAttention-3, in the same rounds: its forward pass, and its backward pass in free and in fixed
order of sums. FOLDER has its build, made by the commands below. To build only what is timed here, first set
FLASH_ATTENTION_DISABLE_X to TRUE for X of FP16, FP8, SM80, HDIM96, HDIM192, HDIM256, HDIMDIFF64, HDIMDIFF192, SPLIT,
PAGEDKV, APPENDKV, SOFTCAP, LOCAL and PACKGQA:

    git clone --recurse-submodules https://github.com/Dao-AILab/flash-attention
    pip install --no-build-isolation --no-deps --target FOLDER flash-attention/hopper

--accuracy compares o, dq, dk and dv of both with PyTorch's fp32 attention of the same bf16 operands, one head at a
time, as relative RMS errors over whole tensors: exit 1 where ours is more than 1.5 times cuDNN's.

--json and --accuracy FILE write {header, records} for tools/bench/records.py (attention, attention_error).
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch._functorch.config
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import records
from torch_timing import timed

SHAPES = ["4:8192:32:8:64", "16:2048:32:8:64", "2:8192:32:8:128", "8:2048:32:8:128"]
DOCUMENTS = ["500", "2000"]
WINDOW_SHAPE, WINDOW = "2:16384:32:8:128", "4096"
ACCURACY_SHAPES = ["4:8192:32:8:64", "2:8192:32:8:128"]
ALLOWED = 1.5  # times cuDNN's error
BLOCK_MS, CALLS, BLOCKS, WARM_UP_BLOCKS = 100, 12, 5, 15  # a block has at least this many milliseconds and calls


def operands(b, t, h, hkv, d):
    """q, k, v (B, heads, T, D), which require gradients, and the gradient of the output."""
    def normal(heads):
        return torch.randn(b, heads, t, d, device="cuda", dtype=torch.bfloat16)

    return [normal(heads).requires_grad_() for heads in (h, hkv, hkv)], normal(h)


def milliseconds(call):
    timed(call, 3)
    count = max(CALLS, int(BLOCK_MS / timed(call, 2)) + 1)
    for _ in range(WARM_UP_BLOCKS):
        timed(call, count)
    return statistics.median(timed(call, count) for _ in range(BLOCKS))


def cudnn_times(sizes):
    """(forward, backward) in milliseconds, measured as coda_bench does: the median of blocks of calls."""
    (q, k, v), g = operands(*sizes)
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
        def forward():
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

        out = forward()
        return (milliseconds(forward),
                milliseconds(lambda: torch.autograd.grad(out, (q, k, v), g, retain_graph=True)))


def flex_times(sizes, starts):
    """The same of FlexAttention; starts (B, T): the first key that each token sees."""
    (q, k, v), g = operands(*sizes)

    def visible(b, _, query, key):
        return (key <= query) & (key >= starts[b, query])

    torch._functorch.config.donated_buffer = False  # the backward pass is timed again and again on the same buffers
    mask = create_block_mask(visible, B=sizes[0], H=None, Q_LEN=sizes[1], KV_LEN=sizes[1], device="cuda")
    attend = torch.compile(flex_attention)

    def forward():
        return attend(q, k, v, block_mask=mask, enable_gqa=True)

    out = forward()
    return (milliseconds(forward), milliseconds(lambda: torch.autograd.grad(out, (q, k, v), g, retain_graph=True)))


def flash3_times(sizes, starts):
    """The same of FlashAttention-3, and its backward pass with a fixed order of sums. With documents (starts, as above)
    each is a sequence of its own."""
    from flash_attn_interface import flash_attn_func, flash_attn_varlen_func  # of --flash3

    inputs, g = operands(*sizes)
    q, k, v, g = (x.detach().transpose(1, 2).contiguous() for x in (*inputs, g))  # (B, T, heads, D)
    attend, lengths = flash_attn_func, {}
    if starts is not None:
        b, t = starts.shape
        q, k, v, g = (x.flatten(0, 1) for x in (q, k, v, g))
        first = (starts == torch.arange(t, device="cuda")).flatten().nonzero().flatten()
        ends = torch.cat([first, first.new_tensor([b * t])]).int()
        longest = int(ends.diff().max())
        attend = flash_attn_varlen_func
        lengths = {"cu_seqlens_q": ends, "cu_seqlens_k": ends, "max_seqlen_q": longest, "max_seqlen_k": longest}
    for x in (q, k, v):
        x.requires_grad_()

    def forward(deterministic=False):
        return attend(q, k, v, causal=True, deterministic=deterministic, **lengths)

    def backward(deterministic):
        out = forward(deterministic)
        return milliseconds(lambda: torch.autograd.grad(out, (q, k, v), g, retain_graph=True))

    return milliseconds(forward), backward(False), backward(True)


def shape_flags(sizes):
    names = ("--batch", "--seq", "--heads", "--kv-heads", "--head-dim")
    return [word for name, size in zip(names, sizes) for word in (name, str(size))]


def our_results(bench, sizes, masked=()):
    """(the run, the first key that each token sees) of the shape, or of it with `masked`: a flag and its value."""
    with tempfile.TemporaryDirectory() as folder:
        path, starts = Path(folder) / "records.json", Path(folder) / "starts"
        more = [*masked, "--starts", str(starts)] if masked else []
        subprocess.run([bench, "attention", *shape_flags(sizes), "--json", str(path), *more], check=True,
                       stdout=subprocess.DEVNULL)
        run = json.loads(path.read_text())
        run["records"] = [record for record in run["records"] if ("visible" in record) == bool(masked)]
        if not masked:
            return run, None
        rows = torch.from_file(str(starts), size=sizes[0] * sizes[1], dtype=torch.int32)
        return run, rows.view(sizes[0], sizes[1]).to("cuda")


def measure_shape(options, sizes, masked=()):
    """(header, records) of one shape."""
    header, ours, theirs, flash3 = {}, {}, [], []
    for _ in range(options.rounds):
        torch.cuda.empty_cache()
        run, starts = our_results(options.bench, sizes, masked)
        header = header or run["header"]
        for record in run["records"]:
            ours.setdefault(record["pass"], []).append(record)
        theirs.append(flex_times(sizes, starts) if masked else cudnn_times(sizes))
        if options.flash3 and "--window" not in masked:
            flash3.append(flash3_times(sizes, starts))
    made = []
    for name, rounds in ours.items():
        backward = name != "forward"
        rival, ratio = ("flex", "ratio_flex") if masked else ("cudnn", "ratio")
        made.append(records.compared(rounds, rival, [times[backward] for times in theirs], ratio))
        if flash3:
            forward_ms, backward_ms, deterministic_ms = (statistics.median(times) for times in zip(*flash3))
            made[-1] |= {"flash3_ms": backward_ms, "flash3_deterministic_ms": deterministic_ms} if backward else {
                "flash3_ms": forward_ms}
    return header, made


def measure(options):
    """(header of the first shape, records)."""
    header, measured = {}, []
    means = [mean for mean in options.documents or DOCUMENTS if mean != "none"]
    rows = [(shape, masked) for shape in options.shape or SHAPES
            for masked in ((), *(("--documents", mean) for mean in means))]
    if not options.shape:
        rows += [(WINDOW_SHAPE, ()), (WINDOW_SHAPE, ("--window", WINDOW))]
    for shape, masked in rows:
        found, made = measure_shape(options, [int(size) for size in shape.split(":")], masked)
        header = header or found
        measured += made
        for record in made:
            rival = f"{' '.join(masked)}, FlexAttention {record['flex_ms']:8.4f} ms  ratio {record['ratio_flex']:.3f}" \
                    f", per product {record['per_product']:.3f}" if masked else \
                    f"cuDNN {record['cudnn_ms']:8.4f} ms  ratio {record['ratio']:.3f}"
            flash3 = f"  FlashAttention-3 {record['flash3_ms']:8.4f} ms" if "flash3_ms" in record else ""
            if "flash3_deterministic_ms" in record:
                flash3 += f", deterministic {record['flash3_deterministic_ms']:8.4f} ms"
            print(f"{shape:16s} {record['pass']:13s} {record['ms']:8.4f} ms {record['tflops']:6.1f} TFLOP/s"
                  f"  {rival}{flash3}", flush=True)
    return header, measured


def exact_results(q, k, v, g):
    """o, dq, dk, dv in fp32, one head at a time."""
    results = [torch.zeros(x.shape, device="cuda") for x in (q, q, k, v)]
    group = q.shape[1] // k.shape[1]
    with sdpa_kernel([SDPBackend.MATH]):
        for b in range(q.shape[0]):
            for h in range(q.shape[1]):
                heads = (h, h // group, h // group)
                inputs = [x[b, i][None, None].detach().float().requires_grad_() for x, i in zip((q, k, v), heads)]
                out = F.scaled_dot_product_attention(*inputs, is_causal=True)
                gradients = torch.autograd.grad(out, inputs, g[b, h][None, None].float())
                for result, i, part in zip(results, (h, *heads), (out.detach(), *gradients)):
                    result[b, i] += part[0, 0]
    return results


def cudnn_results(q, k, v, g):
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return out.detach(), *torch.autograd.grad(out, (q, k, v), g)


def our_tensors(bench, sizes, q, k, v, g):
    b, t, h, hkv, d = sizes

    def rows(x):  # (B, heads, T, D) to (B T, heads D)
        return x.detach().transpose(1, 2).reshape(b * t, -1)

    def heads(x):
        return x.view(b, t, -1, d).transpose(1, 2)

    with tempfile.TemporaryDirectory() as folder:
        inputs, outputs = str(Path(folder) / "inputs"), str(Path(folder) / "outputs")
        packed = torch.cat([torch.cat([rows(q), rows(k), rows(v)], dim=1).flatten(), rows(g).flatten()])
        torch.from_file(inputs, shared=True, size=packed.numel(), dtype=torch.bfloat16).copy_(packed)
        subprocess.run([bench, "attention", *shape_flags(sizes), "--inputs", inputs, "--outputs", outputs], check=True)
        written = torch.from_file(outputs, size=packed.numel(), dtype=torch.bfloat16).to("cuda")
    o, dqkv = written.split([b * t * h * d, b * t * (h + 2 * hkv) * d])
    dq, dk, dv = dqkv.view(b * t, -1).split([h * d, hkv * d, hkv * d], dim=1)
    return [heads(x.contiguous()) for x in (o, dq, dk, dv)]


def relative_rms(got, exact):
    return ((got.float() - exact).norm() / exact.norm()).item()


def compare(options):
    """Records of every tensor's error."""
    errors = []
    for shape in options.shape or ACCURACY_SHAPES:
        sizes = [int(size) for size in shape.split(":")]
        (q, k, v), g = operands(*sizes)
        exact, cudnn = exact_results(q, k, v, g), cudnn_results(q, k, v, g)
        ours = our_tensors(options.bench, sizes, q, k, v, g)
        for name, want, theirs, mine in zip(("o", "dq", "dk", "dv"), exact, cudnn, ours):
            record = dict(zip(("B", "T", "H", "Hkv", "D"), sizes), tensor=name, relative_rms=relative_rms(mine, want),
                          cudnn_relative_rms=relative_rms(theirs, want))
            record["error_ratio"] = record["relative_rms"] / record["cudnn_relative_rms"]
            errors.append(record)
            print(f"{shape:16s} {name:2s} relative RMS error {record['relative_rms']:.3e}"
                  f"  cuDNN {record['cudnn_relative_rms']:.3e}  ratio {record['error_ratio']:.3f}", flush=True)
    return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("--json")
    parser.add_argument("--flash3", metavar="FOLDER", help="time FlashAttention-3 of this folder too")
    parser.add_argument("--accuracy", metavar="FILE", nargs="?", const="", help="compare results with fp32's too")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shape", action="append", metavar="B:T:H:Hkv:D")
    parser.add_argument("--documents", action="append", metavar="MEAN", help='mean lengths, or "none"')
    options = parser.parse_args()
    if options.flash3:
        sys.path.insert(0, options.flash3)
    torch.set_float32_matmul_precision("highest")
    torch.manual_seed(1)
    print(f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name()}")
    header, measured = measure(options)
    header |= {"command": " ".join(sys.argv), "torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}
    if options.json:
        records.write(options.json, header, measured)
    if options.accuracy is None:
        return 0
    torch.cuda.empty_cache()
    errors = compare(options)
    if options.accuracy:
        records.write(options.accuracy, header, errors)
    return int(any(record["error_ratio"] > ALLOWED for record in errors))


if __name__ == "__main__":
    sys.exit(main())
