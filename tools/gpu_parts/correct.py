"""Each operation and each weight is what something else says: tests, oracle, transformers."""

import os
import re
import subprocess
import sys

from .registry import FP8, SMALL, Failed, part

# The width of SmolLM2-135M, with enough tokens for its GEMMs to take tiles of 192 columns.
WIDTH_576 = {"model.hidden_size": 576, "model.num_attention_heads": 9, "model.num_key_value_heads": 3,
             "training.seq_len": 2048, "training.micro_batch_size": 8, "training.recompute": "none"}


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
    """every op of a step compared with an independent path"""
    said = []
    for name, base, changes in (("oracle_small", SMALL, {}), ("oracle_small_fp8", SMALL, FP8),
                                ("oracle_576", SMALL, WIDTH_576), ("oracle_576_fp8", SMALL, WIDTH_576 | FP8),
                                ("oracle_100m", "shakespeare_100m", {})):
        config = check.config(name, base, {"training.steps": 2, **changes})
        lines = [line for line in check.train("--config", config, "--oracle", "2").splitlines() if line.strip()]
        said.append(f"{name}: {lines[-1].strip() if lines else 'no output'}")
    return "; ".join(said)


@part
def export(check):
    """transformers' loss and logits of imported, exported and decoded weights"""
    said = []
    for decoder in ("fused", "passes") if check.options.device == "cuda" else ("passes",):
        out = check.python("transformers_check.py", "--program", check.program("coda_train"), "--generate",
                           check.program("coda_generate"), "--device", check.options.device, "--decoder", decoder)
        decoded, trained = out.strip().splitlines()[-2:]
        said.append(f"{decoder}: {decoded}")
    return "; ".join([trained, *said])


@part
def smollm2(check):
    """SmolLM2-135M-Instruct: transformers' loss, logits and greedy texts; needs no --tokens"""
    folder = check.options.smollm2
    if not os.path.isdir(folder):
        check.run(sys.executable, "-B", os.path.join(os.path.dirname(__file__), "..", "..", "data", "smollm2.py"),
                  "--folder", folder)
    out = check.python("smollm2_check.py", "--bin", check.options.bin, "--model", folder, "--device",
                       check.options.device)
    return "; ".join(out.strip().splitlines())
