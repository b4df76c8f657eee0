"""Benchmarks, most of them in turns with a rival."""

import os
import statistics

from .registry import HALVED_HEAD, WHOLE_HEAD, Failed, part


@part
def gemm(check):
    """coda_bench gemm, every preset"""
    ratios = []
    for preset in ("llama1b", "llama8b", "square"):
        ratios += [record["ratio"] for record in check.bench("gemm", "--preset", preset)]
    return f"{len(ratios)} shapes, median ratio to cuBLAS {statistics.median(ratios):.3f}"


@part
def fp8_gemm(check):
    """coda_bench fp8: FP8 programs of llama1b's layers compared with cuBLASLt's and with our bf16"""
    made = check.bench("fp8", what="gemm")
    return f"{len(made)} shapes, median ratio to cuBLASLt {statistics.median(r['ratio'] for r in made):.3f}"


@part
def attention(check):
    """torch_attention.py: ours compared with cuDNN's, times and errors"""
    times, errors = check.path("attention.json"), check.path("attention_error.json")
    failure = None
    try:
        check.python(os.path.join("bench", "torch_attention.py"), check.program("coda_bench"), "--accuracy", errors,
                     "--json", times)
    except Failed as found:  # of errors that are too large, what was measured is recorded
        failure = found
    made = check.record_run("attention", times) if os.path.exists(times) else []
    if os.path.exists(errors):
        check.record_run("attention_error", errors)
    if failure:
        raise failure
    return ", ".join(f"{r['pass']} T{r['T']} D{r['D']} {r['ratio']:.2f}" for r in made if "ratio" in r)


@part
def pointwise(check):
    """coda_bench pointwise"""
    return f"{len(check.bench('pointwise'))} lines"


@part
def step(check):
    """torch_step.py: llama1b_untied compared with torch.compile"""
    path, said = check.path("result.json"), []
    for shape, head in (("4:8192", HALVED_HEAD), ("16:2048", WHOLE_HEAD)):
        config = check.config("llama1b_untied", "llama1b_untied", head)
        check.python(os.path.join("bench", "torch_step.py"), check.program("coda_bench"), "--config", config, "--shape",
                     shape, "--rounds", str(check.options.rounds), "--json", path)
        made = check.record_run("step", path)
        said += [f"T{r['T']} {r['part']} {r['ratio']:.3f}" for r in made]
    return ", ".join(said)


def fp8_shapes(check):
    """(configuration, batch, length) of llama1b_untied with FP8 operands."""
    for batch, length, head in ((4, 8192, HALVED_HEAD), (16, 2048, WHOLE_HEAD)):
        config = check.config(f"llama1b_fp8_{length}", "llama1b_untied", {"precision": "fp8", **head})
        yield config, batch, length


@part
def fp8_step(check):
    """coda_bench step --precision fp8: llama1b_untied and llama8b compared with our own bf16"""
    shapes, said = list(fp8_shapes(check)), []
    large = {"precision": "fp8", "training.recompute": "swiglu"}
    for config, batch, length in [*shapes, (check.config("llama8b_fp8", "llama8b", large), 1, 8192)]:
        made = check.bench("step", "--config", config, "--training.micro_batch_size", str(batch), "--training.seq_len",
                           str(length), "--no-floor")
        said += [f"{r['config']} T{r['T']} {r['part']} {r['ratio_bf16']:.3f}" for r in made if "ratio_bf16" in r]
    return ", ".join(said)


@part
def fp8_torchao(check):
    """torch_step.py --fp8 tensorwise: llama1b_untied in FP8 compared with torchao's"""
    path, said = check.path("result.json"), []
    for config, batch, length in fp8_shapes(check):
        check.python(os.path.join("bench", "torch_step.py"), check.program("coda_bench"), "--config", config, "--shape",
                     f"{batch}:{length}", "--fp8", "tensorwise", "--rounds", str(check.options.rounds), "--json",
                     path)
        said += [f"T{r['T']} {r['part']} {r['ratio_torchao']:.3f}" for r in check.record_run("step", path)]
    return ", ".join(said)


@part
def decode(check):
    """decode.py: llama1b and llama8b shapes compared with torch.compile with CUDA graphs"""
    path = check.path("decode.json")
    check.python(os.path.join("bench", "decode.py"), check.program("coda_bench"), "--json", path)
    return ", ".join(f"{r['model']} batch {r['batch']} context {r['context']} {r['decoder']} {r['steps_per_s']:.0f} "
                     "steps/s" + (f" {r['ratio']:.3f}" if "ratio" in r else "")
                     for r in check.record_run("decode", path))


@part
def scaling(check):
    """coda_bench step from T 1024 to 32768, and llama8b"""
    shapes = [("llama1b_untied", 32768 // length, length) for length in (1024, 2048, 4096, 8192, 16384, 32768)]
    said = []
    for name, batch, length in [*shapes, ("llama8b", 1, 8192)]:
        config = check.config(name, name, WHOLE_HEAD if name == "llama1b_untied" else {})
        made = check.bench("step", "--config", config, "--training.micro_batch_size", str(batch), "--training.seq_len",
                           str(length), "--steps", "10", "--warm-up", "1.5", "--no-floor", what="scaling")
        said += [f"{r['config']} T{r['T']} {r['tokens_per_s']:.0f} tokens/s" for r in made if r["part"] == "step"]
    return ", ".join(said)
