"""tools/campaign/fp8_cost with programs whose losses follow from the precision: what they are given, table, records."""

import json
import os
import sys
import unittest

from logs import TOOLS, LogTestCase, run_tool

sys.path.insert(0, os.path.join(TOOLS, "bench"))
import records  # noqa: E402
from token_shard import shard_bytes  # noqa: E402

FLAGS = """import json, os, sys
words = sys.argv[1:]
def flag(name, fallback=None):
    return words[words.index(name) + 1] if name in words else fallback
config = json.load(open(flag("--config")))
assert config["optimizer"]["weight_decay"] == 0 and 0 < config["optimizer"]["learning_rate"] < 1e-20
assert not config["data"]["shuffle"]
def write(path, losses):
    with open(path, "w") as log:
        for record in ({"config": config}, *({"step": n, "loss": loss} for n, loss in enumerate(losses, 1))):
            log.write(json.dumps(record) + "\\n")
"""
# The loss of step n is 2 + n and what the precision adds.
PROGRAM = "#!PYTHON\n" + FLAGS + """
assert os.path.isdir(flag("--init-from"))
precision = flag("--precision")
if precision.startswith("{"):
    assert json.loads(precision) == {"bf16_first_layers": 2, "bf16_last_layers": 2}
    precision = "ends"
if precision == "bf16":
    open(flag("--dump-batches"), "x").close()
else:
    assert "--dump-batches" not in words
folder = flag("--output.directory")
os.makedirs(folder)
write(os.path.join(folder, "log.jsonl"), [2 + n + {"bf16": 0.0002, "fp8": 0.03, "ends": 0.02}[precision] for n in (1, 2)])
"""
TORCH = "#!PYTHON\n" + FLAGS + """
assert words[1].endswith("torch_reference.py") and os.path.exists(flag("--batches")) and os.path.isdir(flag("--init"))
assert config["model"]["rope_theta"] == 100000.0
added = {"tensorwise": 0.019, "rowwise": 0.033}[flag("--fp8")] if "--fp8" in words else 0.001
write(flag("--out"), [2 + n + (0 if flag("--precision") == "fp32" else added) for n in range(1, STEPS + 1)])
"""


class CostTest(LogTestCase):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("model"))
        with open(self.path("model/config.json"), "w", encoding="utf-8") as file:
            json.dump({"hidden_size": 8, "rope_theta": 100000.0, "rope_scaling": None, "torch_dtype": "bfloat16"}, file)
        self.shard(17)

    def shard(self, tokens):
        with open(self.path("val.bin"), "wb") as file:
            file.write(shard_bytes([0] * tokens))

    def program(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text.replace("PYTHON", sys.executable))
        os.chmod(self.path(name), 0o755)

    def cost(self, *arguments, steps=2):
        self.program("coda_train", PROGRAM)
        self.program("torch", TORCH.replace("STEPS", str(steps)))
        return run_tool("campaign/fp8_cost", "--bin", self.folder, "--model", self.path("model"), "--tokens",
                        self.path("val.bin"), "--torch-python", self.path("torch"), "--seq-len", "4", "--batch", "2",
                        "--steps", "2", *arguments)

    def test_table_and_records(self):
        status, out, err = self.cost("--record", "--gpu", "NVIDIA H100", "--results", self.path("results"))
        self.assertEqual((status, err), (0, ""), out)
        self.assertIn("over 16 tokens, minus fp32's (3.5000):", out)
        for row in ("bf16 | +0.0002", "FP8 | +0.0300", "FP8, the first and the last two layers in bf16 | +0.0200",
                    "PyTorch, bf16 autocast | +0.0010", "torchao, tensorwise | +0.0190", "torchao, rowwise | +0.0330"):
            self.assertIn(f"| {row} |\n", out)
        _, made = records.read(self.path("results/h100_fp8_cost.json"))
        self.assertEqual({record["precision"]: round(record["minus_fp32"], 6) for record in made},
                         {"fp32": 0, "bf16": 0.0002, "fp8": 0.03, "fp8_bf16_ends": 0.02, "torch_bf16": 0.001,
                          "torchao_tensorwise": 0.019, "torchao_rowwise": 0.033})
        self.assertEqual({record["tokens"] for record in made}, {16})

    def test_what_is_wrong(self):
        status, _, err = self.cost(steps=1)
        self.assertEqual(status, 1)
        self.assertIn("fp32: 1 losses of 2 steps", err)
        self.shard(16)  # the last target is missing
        status, _, err = self.cost()
        self.assertEqual(status, 1)
        self.assertIn("at least 17 tokens", err)
        self.assertEqual(self.cost("--tokens", self.path("none"))[0], 2)


if __name__ == "__main__":
    unittest.main()
