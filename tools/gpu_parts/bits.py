"""The same seed, configuration and data give the same bits: twice, as recorded, and after a kill."""

import hashlib
import os
import signal
import subprocess
import time

import runlog

from .registry import FP8, SMALL, SMALLER, SMALLER_FP8, Failed, losses_of, part


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
        values = [runlog.repeatable(steps.get(step, {})) for steps in (a, b)]
        if values[0] != values[1]:
            raise Failed(f"step {step}: {values[0]} and {values[1]}")
    if digests(one) != digests(other):
        raise Failed("the checkpoints differ")
    return len(a)


@part
def repeat(check):
    """two runs give the same bits"""
    said = []
    if check.options.device == "cuda":
        cases = [("small", SMALL, {}), ("small_fp8", SMALL, FP8), ("100m", "shakespeare_100m", {"training.steps": 20})]
    else:
        cases = [("small", SMALL, SMALLER), ("small_fp8", SMALL, SMALLER_FP8 | FP8)]
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


def killed_and_resumed(check, name, changes):
    """What a line says of one run in one go and another that is killed half-way and resumed."""
    scale = 25 if check.options.device == "cuda" else 10  # so that there is time to kill it
    # So low a threshold drops some updates wherever the gradient norm does not only fall.
    keep = {"checkpoint.at_end": True, "checkpoint.interval": 4 * scale, "training.steps": 12 * scale,
            "training.skip_spikes": 0.1, **changes}
    whole, killed = f"whole_{name}", f"killed_{name}"
    check.train("--config", check.config(whole, SMALL, keep))
    config = check.config(killed, SMALL, keep)
    log = os.path.join(check.path(killed), "log.jsonl")
    process = subprocess.Popen([check.program("coda_train"), "--config", config], stdout=check.log, stderr=check.log)
    try:
        while process.poll() is None:
            if os.path.exists(log) and open(log, encoding="utf-8").read().count('"loss"') >= 6 * scale:
                break
            time.sleep(0.002)
        else:
            raise Failed(f"{name}: the run to kill ended by itself")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    step = max(losses_of(check.path(killed)))
    check.train("--config", config, "--resume")
    count = require_same(check.path(whole), check.path(killed))
    dropped = [step for step, record in runlog.read(check.path(killed)).steps.items() if record.get("skipped")]
    return f"{name} killed after step {step} of {count}: log and checkpoint equal, {len(dropped)} updates dropped"


@part
def resume(check):
    """killed and resumed, the same bits as in one go"""
    cpu = check.options.device == "cpu"
    cases = {"bf16": SMALLER if cpu else {}, "fp8": (SMALLER_FP8 if cpu else {}) | FP8}
    return "; ".join(killed_and_resumed(check, name, changes) for name, changes in cases.items())
