"""The FP8 rivals: shapes and sums of torch_fp8_gemm.py, conversions, and records that follow the schema.

Needs PyTorch, and torchao for the conversions (run it with a Python that has them)."""

import importlib.util
import json
import os
import subprocess
import sys
import unittest

from logs import TOOLS, LogTestCase

sys.path.insert(0, os.path.join(TOOLS, "bench"))
import records

HAS_TORCH = importlib.util.find_spec("torch") is not None
HAS_TORCHAO = HAS_TORCH and importlib.util.find_spec("torchao") is not None
CONFIG = {"model": {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
                    "num_key_value_heads": 2, "vocab_size": 150},
          "data": {"train": "x"}, "training": {"seq_len": 32, "micro_batch_size": 2, "steps": 5}}
HEADER = {"gpu": "NVIDIA H200", "commit": "0" * 12, "date": "2026-11-22T00:00:00Z",
          "command": "coda_bench"}
# Stands in for coda_bench: `header`, and `step` with times that are no matter.
BENCH = """#!{python}
import json, sys
header = {header}
if sys.argv[1] == "header":
    print(json.dumps(header))
    sys.exit()
options = dict(zip(sys.argv, sys.argv[1:]))
common = dict(config="tiny", precision="bf16", B=int(options["--training.micro_batch_size"]), lm_head_chunks=1,
              T=int(options["--training.seq_len"]), recompute="none", tokens_per_s=1e4, mfu=0.5,
              peak_gib=1.0)
made = [dict(common, part=part, ms=ms) for part, ms in (("forward_backward", 10.0), ("step", 12.0))]
json.dump(dict(header=header, records=made), open(options["--json"], "w"))
"""


@unittest.skipUnless(HAS_TORCH, "no PyTorch for this Python")
class ScriptCase(LogTestCase):
    def setUp(self):
        super().setUp()
        with open(self.path("tiny.json"), "w", encoding="utf-8") as file:
            json.dump(CONFIG, file)
        with open(self.path("bench"), "w", encoding="utf-8") as file:
            file.write(BENCH.format(python=sys.executable, header=repr(HEADER)))
        os.chmod(self.path("bench"), 0o755)

    def script(self, name, *arguments, expect=0, **variables):
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", **variables}
        done = subprocess.run([sys.executable, "-B", os.path.join(TOOLS, "bench", name), *arguments], env=environment,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def merged(self, what):
        """The records of the script's run in a result file: they follow the schema."""
        header, made = records.read(self.path("run.json"))
        return records.read(records.merge(self.path("results"), what, header, made))[1]


class GemmTest(ScriptCase):
    def test_the_products_of_llama1b(self):
        import torch_fp8_gemm as script
        model = script.read_config(os.path.join(TOOLS, "..", "configs", "llama1b_untied.json"))["model"]
        found = {p.name: (p.kind, p.M, p.N, p.K) for p in script.products_of(model, 32768)}
        self.assertEqual(found, {
            "qkv": ("forward", 32768, 3072, 2048), "qkv_dgrad": ("dgrad", 32768, 2048, 3072),
            "qkv_wgrad": ("wgrad", 3072, 2048, 32768),
            "attn_out": ("forward", 32768, 2048, 2048), "attn_out_dgrad": ("dgrad", 32768, 2048, 2048),
            "attn_out_wgrad": ("wgrad", 2048, 2048, 32768),
            "gate_up": ("forward", 32768, 16384, 2048), "gate_up_dgrad": ("dgrad", 32768, 2048, 16384),
            "gate_up_wgrad": ("wgrad", 16384, 2048, 32768),
            "down": ("forward", 32768, 2048, 8192), "down_dgrad": ("dgrad", 32768, 8192, 2048),
            "down_wgrad": ("wgrad", 2048, 8192, 32768),
            "head": ("forward", 32768, 128256, 2048), "head_dgrad": ("dgrad", 32768, 2048, 128256),
            "head_wgrad": ("wgrad", 128256, 2048, 32768)})

    def test_sums_are_weighted_by_time(self):
        import torch_fp8_gemm as script
        made = [{"product": name, "kind": kind, "accumulation": accumulation, "bf16_ms": bf16, "ms": ms}
                for name, kind, bf16, fast, accurate in (("qkv", "forward", 1.0, 0.5, 0.8),
                                                         ("qkv_dgrad", "dgrad", 9.0, 4.5, 6.2))
                for accumulation, ms in (("fast", fast), ("accurate", accurate))]
        self.assertEqual(script.totals(made), [
            "layer, 2 products, all fast: FP8 is 2.000 times as fast",
            "layer, 2 products, all accurate: FP8 is 1.429 times as fast",
            "layer, 2 products, only forward fast: FP8 is 1.493 times as fast"])

    def test_records(self):
        done = self.script("torch_fp8_gemm.py", self.path("bench"), "--json", self.path("run.json"), "--config",
                           self.path("tiny.json"), "--tokens", "64", "--rounds", "2", "--block", "0.001", "--warm-up",
                           "0", "--only", "down,gate_up_dgrad,qkv_wgrad")
        self.assertIn("layer, 3 products, all fast", done.stdout)
        made = self.merged("fp8_gemm")
        self.assertEqual([(r["product"], r["accumulation"]) for r in made], [
            (name, accumulation) for name in ("qkv_wgrad", "gate_up_dgrad", "down")
            for accumulation in ("fast", "accurate")])
        for record in made:
            # bf16 results are off by 2^-9 at most, 2^-9 / sqrt(3) RMS; float32 ones by next to nothing.
            low, high = (0, 1e-5) if record["product"] == "qkv_wgrad" else (5e-4, 2.5e-3)
            self.assertTrue(low <= record["relative_error"] <= high, record)

    def test_wrong_usage(self):
        self.assertIn("needs BENCH", self.script("torch_fp8_gemm.py", "--json", "x", expect=2).stderr)
        done = self.script("torch_fp8_gemm.py", "--only", "qkv,up", expect=2)
        self.assertIn("there is no product up", done.stderr)


class StepTest(ScriptCase):
    ARGUMENTS = ("--eager", "--rounds", "2", "--steps", "2", "--warm-up", "0")

    def step(self, *arguments, **options):
        return self.script("torch_step.py", self.path("bench"), "--config", self.path("tiny.json"), *self.ARGUMENTS,
                           "--json", self.path("run.json"), *arguments, **options)

    @unittest.skipUnless(HAS_TORCHAO, "no torchao for this Python")
    def test_every_rival_has_records_of_its_own(self):
        self.step()
        self.merged("step")
        for arguments, layers in ((["tensorwise"], 8), (["rowwise"], 8), (["tensorwise", "--fp8-head"], 9)):
            done = self.step("--fp8", *arguments)
            self.assertIn(f"{arguments[0]}: {layers} FP8 layers of torchao", done.stdout)
            difference = float(done.stdout.split("difference ")[1].split()[0])
            self.assertTrue(0 < abs(difference) < 0.02, difference)
            made = self.merged("step")
        self.assertEqual([(r.get("torchao_recipe"), r.get("torchao_head"), r["part"], "ratio" in r) for r in made], [
            (recipe, head, part, recipe is None)
            for recipe, head in ((None, None), ("tensorwise", False), ("rowwise", False), ("tensorwise", True))
            for part in ("forward_backward", "step")])
        self.assertTrue(all(r["torchao_fullgraph"] for r in made[2:]))

    def test_without_the_package(self):
        os.mkdir(self.path("none"))
        with open(self.path("none/torchao.py"), "w", encoding="utf-8") as file:
            file.write("raise ImportError('not here')\n")
        done = self.step("--fp8", "rowwise", expect=1, PYTHONPATH=self.path("none"))
        self.assertIn("torch_step.py: --fp8 needs the torchao package", done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertIn("goes with --fp8", self.step("--fp8-head", expect=2).stderr)


@unittest.skipUnless(HAS_TORCHAO, "no torchao for this Python")
class ConvertTest(unittest.TestCase):
    def test_what_is_converted(self):
        import torch_fp8
        from torch import nn

        def model():
            return nn.ModuleDict({"a": nn.Linear(16, 16), "b": nn.Linear(16, 32), "head": nn.Linear(16, 16)})

        self.assertEqual(torch_fp8.convert(model(), "tensorwise", "head"), 2)
        self.assertEqual(torch_fp8.convert(model(), "rowwise", None), 3)
        with self.assertRaisesRegex(torch_fp8.F8Error, "no linear layer top, it has a, b, head"):
            torch_fp8.convert(model(), "rowwise", "top")


if __name__ == "__main__":
    unittest.main()
