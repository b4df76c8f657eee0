"""The parts of tools/gpu_check, each a function that takes the Check and returns what its line says.

A part of several runs records each as soon as it is done: if it is stopped, it loses only the run it was in.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import time

import runlog

PARTS = {}  # name -> (function, what it does)
# Of a step's record: which are not measurements.
REPEATABLE = ("loss", "grad_norm", "lr", "tokens", "loss_z", "norm_z", "skipped")

# Small, and with everything that an op list can have.
SMALL = {
    "model": {"hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 2, "head_dim": 64, "tie_word_embeddings": True},
    "training": {"seq_len": 192, "micro_batch_size": 3, "grad_accumulation_steps": 2, "steps": 12,
                 "lm_head_chunks": 3, "recompute": "mlp"},
    "data": {"document_mask": True},
    "optimizer": {"moments": "bf16", "learning_rate": 1e-3},
}
# The same for a try on the CPU, which takes any shape.
SMALLER = {"model.hidden_size": 32, "model.intermediate_size": 56, "model.head_dim": 8, "training.seq_len": 24}

# The head in one piece, for speed: its chunks only save memory.
WHOLE_HEAD = {"training.lm_head_chunks": 1}
# In two chunks at B4 T8192, to stay below 64 GiB: in one piece the step takes 66.6.
HALVED_HEAD = {"training.lm_head_chunks": 2}


class Failed(Exception):
    """A part did not pass; the message says why."""


def part(function):
    """Registers a part of the check: takes the Check, returns what its line says, raises Failed."""
    PARTS[function.__name__] = function
    return function


def losses_of(folder):
    return runlog.read(folder).series("loss")


def require_falling(losses, what):
    values = list(losses.values())
    count = max(1, min(5, len(values) // 3))
    first, last = statistics.mean(values[:count]), statistics.mean(values[-count:])
    if not last < first:
        raise Failed(f"{what}: the loss does not fall ({first:.3f} at first, {last:.3f} at last)")
    return first, last


@part
def tests(check):
    """the tests tagged [gpu]"""
    done = []
    for name in sorted(os.listdir(check.options.bin)):
        program = os.path.join(check.options.bin, name)
        if not name.startswith("test_") or not os.access(program, os.X_OK):
            continue
        listed = subprocess.run([program, "--list-tests", "[gpu]"], capture_output=True, text=True, check=False).stdout
        count = re.search(r"([1-9]\d*) matching test case", listed)
        if not count:
            continue
        out = check.run(program, "[gpu]")
        if "skipped" in out.lower():
            raise Failed(f"{name} skipped tests: there is no Hopper GPU")
        done.append(f"{name} {count[1]}")
    if not done:
        raise Failed(f"no test_* program with [gpu] tests in {check.options.bin}")
    return ", ".join(done) + " test cases"


@part
def oracle(check):
    """every op of a step beside an independent path"""
    said = []
    for name, base in (("oracle_small", SMALL), ("oracle_100m", "shakespeare_100m")):
        config = check.config(name, base, {"training.steps": 2})
        lines = [line for line in check.train("--config", config, "--oracle", "2").splitlines() if line.strip()]
        said.append(f"{name}: {lines[-1].strip() if lines else 'no output'}")
    return "; ".join(said)


def loss_records(check, log, ends, tail, worst, early, kept):
    """One record per curve; `log` is that of coda_train, which names the configuration in full."""
    run = runlog.read(log)
    training = run.header["config"]["training"]
    tokens = (training["steps"] * training["micro_batch_size"] * training["grad_accumulation_steps"] *
              training["seq_len"])
    config = os.path.basename(check.options.config or "shakespeare_100m").removesuffix(".json")
    precisions = {"coda": "bf16", "torch_bf16": "bf16_params", "torch_autocast": "bf16_autocast", "torch_fp32": "fp32"}
    records = []
    for name, end in ends.items():
        record = {"config": config, "seed": training["seed"],
                  "trainer": "coda_train" if name == "coda" else "torch", "precision": precisions[name],
                  "steps": training["steps"], "tokens": tokens, "last": tail, "mean_of_last": end}
        if name == "coda" and run.validations:
            record["val_loss"] = list(run.series("val_loss").values())[-1]
        if name in worst:
            record |= {"first": early, "worst_of_first": worst[name]}
        if name in ("torch_bf16", "torch_autocast"):
            record["limits_kept"] = name in kept
        records.append(record)
    return records


@part
def losses(check):
    """the loss curve beside PyTorch's, same weights and batches"""
    steps = check.options.steps
    base = check.options.config or "shakespeare_100m"
    if check.options.config:
        with open(check.options.config, encoding="utf-8") as file:
            base = json.load(file)
    config = check.config("losses", base, {"training.steps": steps})
    check.train("--config", config, "--export", check.path("init"))
    check.train("--config", config, "--dump-batches", check.path("batches.npy"))
    logs = {"coda": os.path.join(check.path("losses"), "log.jsonl")}
    for name, precision in (("torch_bf16", "bf16-params"), ("torch_autocast", "bf16-autocast"), ("torch_fp32", "fp32")):
        logs[name] = check.path(name + ".jsonl")
        check.python("torch_reference.py", "--config", config, "--init", check.path("init"), "--batches",
                     check.path("batches.npy"), "--precision", precision, "--out", logs[name])
    for name, log in logs.items():
        shutil.copy(log, check.kept(f"loss_{name}.jsonl"))
    curves = {name: losses_of(log) for name, log in logs.items()}
    tail = min(50, steps)
    ends = {name: statistics.mean(list(curve.values())[-tail:]) for name, curve in curves.items()}
    early = list(curves["coda"])[: min(100, steps)]
    worst = {name: max(abs(curves["coda"][s] - curves[name][s]) for s in early) for name in curves if name != "coda"}
    # Parameters and residual stream in bf16 with fp32 master weights are what the trainer stores too; autocast keeps
    # the residual stream in fp32. PyTorch's own two bf16 runs do not keep the limits to each other (docs/ATTEMPTS.md),
    # so ours must keep them to one of the two, and end no further from fp32 than 1.5 times the farther one.
    verdicts = {}
    for name in ("torch_bf16", "torch_autocast"):
        try:
            check.python("compare_loss.py", logs["coda"], logs[name], "--noise", logs["torch_fp32"], "--atol", "0.01",
                         "--first", str(len(early)), "--last-mean", str(tail))
            verdicts[name] = None
        except Failed as failure:
            if "ended with 1:" not in str(failure):  # 1: the curves differ; anything else is no verdict
                raise
            verdicts[name] = str(failure)
    kept = [name for name, failure in verdicts.items() if failure is None]
    check.record("loss", loss_records(check, logs["coda"], ends, tail, worst, len(early), kept))
    if not kept:
        raise Failed("; ".join(f"beside {name}: {failure}" for name, failure in verdicts.items()))
    distance = {name: abs(end - ends["torch_fp32"]) for name, end in ends.items()}
    allowed = max(0.01, 1.5 * max(distance[name] for name in verdicts))
    if distance["coda"] > allowed:
        raise Failed(f"mean of the last {tail} steps: {distance['coda']:.4f} from torch_fp32, allowed are "
                     f"{allowed:.4f}")
    means = ", ".join(f"{name} {value:.4f}" for name, value in ends.items())
    differences = ", ".join(f"{name} {value:.4f}" for name, value in worst.items())
    return (f"mean of the last {tail} steps: {means}; largest difference in the first {len(early)} from {differences}; "
            f"limits kept beside {' and '.join(kept)}")


def digests(folder):
    """SHA-256 of every file of the newest checkpoint of a run that holds numbers."""
    checkpoints = os.path.join(folder, "checkpoints")
    newest = os.path.join(checkpoints, sorted(name for name in os.listdir(checkpoints) if name[0] != ".")[-1])
    found = {}
    for name in sorted(os.listdir(newest)):
        if name.endswith(".bin"):
            with open(os.path.join(newest, name), "rb") as file:
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def require_same(one, other):
    a, b = (runlog.read(folder).steps for folder in (one, other))
    for step in sorted(a.keys() | b.keys()):
        values = [{key: steps.get(step, {}).get(key) for key in REPEATABLE} for steps in (a, b)]
        if values[0] != values[1]:
            raise Failed(f"step {step}: {values[0]} and {values[1]}")
    if digests(one) != digests(other):
        raise Failed("the checkpoints differ")
    return len(a)


@part
def repeat(check):
    """two runs give the same bits"""
    said = []
    cases = [("small", SMALL, SMALLER)]
    if check.options.device == "cuda":
        cases = [("small", SMALL, {}), ("100m", "shakespeare_100m", {"training.steps": 20})]
    for name, base, changes in cases:
        folders = []
        for number in "12":
            run = f"repeat_{name}_{number}"
            check.train("--config", check.config(run, base, {**changes, "checkpoint.at_end": True}))
            folders.append(check.path(run))
        said.append(f"{name}: {require_same(*folders)} steps and checkpoint equal")
    return "; ".join(said)


@part
def golden(check):
    """every mode has the recorded bits"""
    script = os.path.join("..", "tests", "golden", "golden.py")
    return check.python(script, "--bin", check.options.bin, "--device", check.options.device).strip().splitlines()[-1]


@part
def resume(check):
    """killed and resumed, the same bits as in one go"""
    scale = 25 if check.options.device == "cuda" else 10  # so that there is time to kill it
    # So low a threshold drops some updates wherever the gradient norm does not only fall.
    keep = {"checkpoint.at_end": True, "checkpoint.interval": 4 * scale, "training.steps": 12 * scale,
            "training.skip_spikes": 0.1}
    if check.options.device == "cpu":
        keep |= SMALLER
    check.train("--config", check.config("whole", SMALL, keep))
    config = check.config("killed", SMALL, keep)
    log = os.path.join(check.path("killed"), "log.jsonl")
    process = subprocess.Popen([check.program("coda_train"), "--config", config], stdout=check.log, stderr=check.log)
    try:
        while process.poll() is None:
            if os.path.exists(log) and open(log, encoding="utf-8").read().count('"loss"') >= 6 * scale:
                break
            time.sleep(0.002)
        else:
            raise Failed("the run to kill ended by itself")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    killed = max(losses_of(check.path("killed")))
    check.train("--config", config, "--resume")
    count = require_same(check.path("whole"), check.path("killed"))
    dropped = [step for step, record in runlog.read(check.path("killed")).steps.items() if record.get("skipped")]
    return f"killed after step {killed} of {count}: log and checkpoint equal, {len(dropped)} updates dropped"


@part
def export(check):
    """transformers' loss and logits of imported, exported and decoded weights"""
    out = check.python("transformers_check.py", "--program", check.program("coda_train"), "--generate",
                       check.program("coda_generate"), "--device", check.options.device)
    return "; ".join(out.strip().splitlines()[-2:])


@part
def runs(check):
    """llama1b and llama1b_untied train on real tokens"""
    said = []
    for name in ("llama1b", "llama1b_untied"):
        for batch, length in ((4, 8192), (16, 2048)):
            run = f"{name}_T{length}"
            changes = {"training.seq_len": length, "training.micro_batch_size": batch, "training.steps": 30,
                       "training.grad_accumulation_steps": 1, "lr_schedule.warmup_steps": 5}
            check.train("--config", check.config(run, name, changes))
            first, last = require_falling(losses_of(check.path(run)), run)
            log = list(runlog.read(check.path(run)).steps.values())[5:]
            keys = ("ms", "tokens_per_s", "mfu", "memory_gib")
            middle = {key: statistics.median(record[key] for record in log) for key in keys}
            check.record("runs", [{"config": name, "precision": "bf16", "B": batch, "T": length, "steps": 30,
                                   "first_loss": first, "last_loss": last, **middle}])
            said.append(f"{run} {first:.2f} -> {last:.2f}, {middle['tokens_per_s']:.0f} tokens/s")
    return "; ".join(said)


@part
def gemm(check):
    """coda_bench gemm, every preset"""
    ratios = []
    for preset in ("llama1b", "llama8b", "square"):
        ratios += [record["ratio"] for record in check.bench("gemm", "--preset", preset)]
    return f"{len(ratios)} shapes, median ratio to cuBLAS {statistics.median(ratios):.3f}"


@part
def attention(check):
    """torch_attention.py: ours beside cuDNN's, times and errors"""
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
    return ", ".join(f"{r['pass']} T{r['T']} D{r['D']} {r['ratio']:.2f}" for r in made)


@part
def pointwise(check):
    """coda_bench pointwise"""
    return f"{len(check.bench('pointwise'))} lines"


@part
def step(check):
    """torch_step.py: llama1b_untied beside torch.compile"""
    path, said = check.path("result.json"), []
    for shape, head in (("4:8192", HALVED_HEAD), ("16:2048", WHOLE_HEAD)):
        config = check.config("llama1b_untied", "llama1b_untied", head)
        check.python(os.path.join("bench", "torch_step.py"), check.program("coda_bench"), "--config", config, "--shape",
                     shape, "--free-order", "--rounds", str(check.options.rounds), "--json", path)
        made = check.record_run("step", path)
        said += [f"T{r['T']} {r['part']} {r['ratio']:.3f}" for r in made if r["deterministic"]]
    return ", ".join(said)


@part
def decode(check):
    """decode.py: llama1b and llama8b shapes beside torch.compile with CUDA graphs"""
    path = check.path("decode.json")
    check.python(os.path.join("bench", "decode.py"), check.program("coda_bench"), "--json", path)
    return ", ".join(f"{r['model']} batch {r['batch']} context {r['context']} {r['steps_per_s']:.0f} steps/s "
                     f"{r['ratio']:.3f}" for r in check.record_run("decode", path))


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
