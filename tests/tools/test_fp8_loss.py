"""tools/campaign/fp8_loss with a program whose losses follow from seed and precision, and the arithmetic of pairs."""

import json
import math
import os
import signal
import sys
import unittest

from logs import TOOLS, LogTestCase, run_tool

sys.path.insert(0, os.path.join(TOOLS, "campaign"))
import fp8_loss_verdict as verdict  # noqa: E402

# A run of 4 steps. With the file "slow" next to it, it stops at SIGINT after step 2 with a checkpoint, and continues.
PROGRAM = """#!PYTHON
import json, os, signal, sys, time
words = sys.argv[1:]
def flag(name, fallback=None):
    return words[words.index(name) + 1] if name in words else fallback
config = json.load(open(flag("--config")))
folder = flag("--output.directory", config["output"]["directory"])
with open(os.path.join(os.path.dirname(__file__), "calls"), "a") as calls:
    calls.write(" ".join([os.path.basename(folder), *words[2:]]) + "\\n")
if "--export" in words:
    os.makedirs(flag("--export"))
    open(os.path.join(flag("--export"), "model.safetensors"), "w").close()
    sys.exit()
stopped = []
signal.signal(signal.SIGINT, lambda *_: stopped.append(1))
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
os.makedirs(os.path.join(folder, "checkpoints"), exist_ok=True)
if "--dump-batches" in words:
    open(flag("--dump-batches"), "w").close()
    while not stopped:
        time.sleep(0.01)
    sys.exit(130)
training = config["training"]
if config.get("precision") == "bad":
    sys.exit("coda_train: precision: there is no bad")
loss = 3 + training["seed"] + {"fp8": 0.003, "far": 0.1}.get(config.get("precision"), 0.0)
loss += 0.001 * training["seed"] * (training["lm_head_chunks"] - 1)
slow = os.path.exists(os.path.join(os.path.dirname(__file__), "slow"))
with open(os.path.join(folder, "log.jsonl"), "a") as log:
    def write(record):
        log.write(json.dumps(record) + "\\n")
        log.flush()
    if "--resume" not in words:
        write({"config": config})
    for step in range(3 if "--resume" in words else 1, 5):
        write({"step": step, "loss": loss - 0.1 * step, "ms": 500.0})
        if slow and step == 2:
            while not stopped:
                time.sleep(0.01)
            open(os.path.join(folder, "checkpoints", "step_00000002"), "w").close()
            sys.exit(130)
    write({"step": 4, "val_loss": loss})
"""

# In place of a Python with PyTorch: writes the log that torch_reference.py would.
TORCH = """#!PYTHON
import json, os, sys
words = sys.argv[1:]
assert words[1].endswith("torch_reference.py") and "--compile" in words, words
flag = lambda name: words[words.index(name) + 1]
for name in ("--config", "--batches", "--validation"):
    assert os.path.exists(flag(name)), flag(name)
assert os.path.isdir(flag("--init"))
config = json.load(open(flag("--config")))
loss = 3.5 + ({"rowwise": 0.004, "tensorwise": 0.006}[flag("--fp8")] if "--fp8" in words else 0)
with open(flag("--out"), "w") as log:
    for record in ({"config": config}, *({"step": n, "loss": loss, "ms": 1000.0} for n in range(1, 5)),
                   {"step": 4, "val_loss": loss}):
        log.write(json.dumps(record) + "\\n")
"""

CONFIG = {"data": {}, "training": {"seq_len": 8, "micro_batch_size": 2, "steps": 4, "lm_head_chunks": 1}}


class CampaignTest(LogTestCase):
    def setUp(self):
        super().setUp()
        os.makedirs(self.path("bin"))
        for name, text in (("bin/coda_train", PROGRAM), ("torch", TORCH), ("tiny.json", json.dumps(CONFIG)),
                           ("train.bin", "train"), ("val.bin", "val")):
            with open(self.path(name), "w", encoding="utf-8") as file:
                file.write(text.replace("PYTHON", sys.executable))
            os.chmod(self.path(name), 0o755)

    def campaign(self, *arguments, expect=0):
        code, out, err = run_tool("campaign/fp8_loss", "--bin", self.path("bin"), "--config", self.path("tiny.json"),
                                  "--train", self.path("train.bin"), "--val", self.path("val.bin"), "--out",
                                  self.path("out"), "--torch-python", self.path("torch"), *arguments)
        self.assertEqual(code, expect, out + err)
        self.assertNotIn("Traceback", err)
        return out + err

    def calls(self):
        with open(self.path("bin/calls"), encoding="utf-8") as file:
            return file.read().splitlines()

    def test_pairs_of_bf16(self):
        out = self.campaign()
        self.assertIn("bf16_reordered - bf16: seed 1 +0.00100, seed 2 +0.00200, seed 3 +0.00300; mean +0.00200, standard "
                      f"error {0.001 / math.sqrt(3):.5f}", out)
        self.assertEqual([call.split()[0] for call in self.calls()], [
            f"{name}_{seed}" for seed in (1, 2, 3) for name in ("bf16", "bf16_reordered")])
        self.assertEqual(self.campaign("--judge").splitlines(), out.splitlines()[6:])
        self.campaign()
        self.assertEqual(len(self.calls()), 6)  # nothing is done twice

    def test_verdict_and_records(self):
        out = self.campaign("--variants", "bf16,fp8,torch_bf16,torchao_rowwise", "--seeds", "1,2", "--record", "--gpu",
                            "NVIDIA H200", "--results", self.path("results"))
        self.assertIn("ok  fp8: mean +0.00300, allowed 0.00500", out)
        self.assertIn("ok  fp8: mean +0.00300, compared with torchao_rowwise allowed 0.00600", out)
        with open(self.path("results/h200_fp8_loss.json"), encoding="utf-8") as file:
            records = {(r["precision"], r["seed"]): r for r in json.load(file)["records"]}
        self.assertEqual(len(records), 8)
        record = records["fp8", 2]
        self.assertEqual([record[name] for name in ("config", "steps", "tokens", "last")], ["tiny", 4, 64, 4])
        self.assertAlmostEqual(record["val_loss"], 5.003)
        self.assertAlmostEqual(record["mean_of_last"], 5.003 - 0.25)

    def test_a_bar_that_is_missed(self):
        out = self.campaign("--variants", "bf16,far", "--variant", 'far={"precision": "far"}', "--seeds", "1",
                            expect=1)
        self.assertIn("MISSED  far: mean +0.10000, allowed 0.00500", out)

    def test_the_time_is_up(self):
        with open(self.path("bin/slow"), "w", encoding="utf-8"):
            pass
        # However late the program comes to its handler, the signal waits for it.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            out = self.campaign("--seeds", "1", "--variants", "bf16", "--minutes", "0.01", expect=3)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self.assertIn("the same command continues", out)
        os.remove(self.path("bin/slow"))
        self.campaign("--seeds", "1", "--variants", "bf16")
        self.assertEqual([call.split()[1:] for call in self.calls()], [[], ["--resume"]])
        # A PyTorch run cannot continue, so it is not begun.
        out = self.campaign("--seeds", "1", "--variants", "bf16,torch_bf16", "--minutes", "1", expect=3)
        self.assertNotIn("torch_bf16", out)
        self.campaign("--seeds", "1", "--variants", "torch_bf16", "--minutes", "1", "--torch-minutes", "0.5")

    def test_another_configuration_is_not_mixed_in(self):
        self.campaign("--seeds", "1", "--variants", "bf16")
        for arguments in (["--training.steps", "5"], ["--optimizer.learning_rate", "1e-3"]):
            out = self.campaign("--seeds", "1", "--variants", "bf16", *arguments, expect=1)
            self.assertIn("bf16_1.json is of another configuration", out)
        with open(self.path("val.bin"), "a", encoding="utf-8") as file:
            file.write("more")
        self.assertIn("other data", self.campaign("--seeds", "1", "--variants", "bf16", expect=1))

    def test_failures(self):
        out = self.campaign("--seeds", "1", "--variants", "bad", "--variant", 'bad={"precision": "bad"}',
                            expect=1)
        self.assertIn("bad_1 ended with 1: coda_train: precision: there is no bad", out)
        for arguments, says in ((["--variants", "fp4"], "there is no fp4"), (["--seeds", "one"], "--seeds"),
                                (["--variant", "x=1"], "--variant x=1"), (["--record"], "--gpu")):
            self.assertIn(says, self.campaign(*arguments, expect=2))


class VerdictTest(unittest.TestCase):
    def results(self, **losses):
        return {(variant, seed): {"val_loss": loss, "mean_of_last": 0.0, "seconds": 1.0}
                for variant, values in losses.items() for seed, loss in enumerate(values, start=1)}

    def test_two_standard_errors_are_room(self):
        pairs = verdict.paired(self.results(bf16=[3, 3, 3], fp8=[3.004, 3.008, 3.012]), "val_loss")
        self.assertAlmostEqual(pairs[0].mean, 0.008)
        self.assertAlmostEqual(pairs[0].standard_error, 0.004 / math.sqrt(3))
        self.assertEqual([good for good, _ in verdict.verdicts(pairs)], [True])  # 0.008 <= 0.005 + 0.0046
        pairs = verdict.paired(self.results(bf16=[3, 3, 3], fp8=[3.010, 3.0101, 3.0099]), "val_loss")
        self.assertEqual([good for good, _ in verdict.verdicts(pairs)], [False])

    def test_a_rival_is_beside_its_own_bf16(self):
        results = self.results(bf16=[3.0], fp8=[3.004], torch_bf16=[3.5], torchao_rowwise=[3.501])
        pairs = verdict.paired(results, "val_loss")
        self.assertEqual([(pair.variant, pair.base) for pair in pairs], [("fp8", "bf16"),
                                                                        ("torchao_rowwise", "torch_bf16")])
        self.assertEqual([good for good, _ in verdict.verdicts(pairs)], [True, False])  # 0.004 > 0.001 + 0.002

    def test_seeds_without_a_partner_and_noise(self):
        pairs = verdict.paired(self.results(bf16=[3.0], bf16_reordered=[3.1, 3.2]), "val_loss")
        self.assertEqual(list(pairs[0].differences), [1])
        self.assertEqual(verdict.verdicts(pairs), [])


if __name__ == "__main__":
    unittest.main()
