"""tools/torch_reference.py compared with the program: the same losses and norms from the same weights and batches.

Both compute in fp32 on the CPU, with sums in different orders. Measured: losses differ by up to 2e-7 relative after 20
steps, norms by 2e-6; allowed are 1e-5 and 1e-4. Needs PyTorch (run it with a Python that has it)."""

import importlib.util
import json
import os
import subprocess
import sys
import unittest

from program import ROOT, ProgramTestCase, changed, shard

TOOL = os.path.join(ROOT, "tools", "torch_reference.py")
HAS_TORCH = importlib.util.find_spec("torch") is not None
HAS_TORCHAO = HAS_TORCH and importlib.util.find_spec("torchao") is not None

SCALING = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 16}
CHANGES = {"model.rope_theta": 100.0, "model.rope_scaling": SCALING, "model.initializer_range": 0.2,
           "training.seq_len": 24, "training.steps": 20, "training.grad_accumulation_steps": 3,
           "lr_schedule.warmup_steps": 4, "checkpoint.at_end": False}


@unittest.skipUnless(HAS_TORCH, "no PyTorch for this Python")
class ReferenceTest(ProgramTestCase):
    def prepare(self, **changes):
        """Trains, with its batches dumped and its initial weights exported; the name of the config file."""
        config = self.config({**CHANGES, **changes})
        self.run_program("--config", config, "--export", "init", "--export-dtype", "float32")
        self.run_program("--config", config, "--dump-batches", "batches.npy")
        return config

    def reference(self, config, *arguments, expect=0, **variables):
        command = [sys.executable, "-B", TOOL, "--config", config, "--init", "init", "--batches", "batches.npy",
                   "--out", "reference.jsonl", *arguments]
        environment = {**self.environment(1), "CUDA_VISIBLE_DEVICES": "", **variables}
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def records(self, path):
        with open(self.path(*path), encoding="utf-8") as file:
            return [record for record in map(json.loads, file) if "loss" in record]

    def differences(self, *arguments, **changes):
        """Largest relative differences of loss and norm between the program's log and the reference's."""
        self.reference(self.prepare(**changes), *arguments)
        ours, theirs = self.records(["run", "log.jsonl"]), self.records(["reference.jsonl"])
        self.assertEqual([(r["step"], r["tokens"]) for r in ours], [(r["step"], r["tokens"]) for r in theirs])
        for mine, other in zip(ours, theirs):
            self.assertAlmostEqual(mine["lr"], other["lr"], delta=1e-8 * other["lr"] + 1e-12)
        return [max(abs(a[key] - b[key]) / b[key] for a, b in zip(ours, theirs)) for key in ("loss", "grad_norm")]

    def assert_agrees(self, **changes):
        loss, norm = self.differences("--precision", "fp32", **changes)
        self.assertLess(loss, 1e-5)
        self.assertLess(norm, 1e-4)

    def test_untied(self):
        self.assert_agrees()

    def test_tied_without_kv_groups(self):
        self.assert_agrees(**{"model.tie_word_embeddings": True, "model.num_key_value_heads": 4,
                              "training.grad_accumulation_steps": 1, "model.rope_scaling": None})

    def test_documents(self):
        self.assert_agrees(**{"model.bos_token_id": ord(" "), "data.document_mask": True})

    def test_norms_of_q_and_k(self):
        self.assert_agrees(**{"model.qk_norm": True})

    def test_window(self):
        self.assert_agrees(**{"model.sliding_window": 5})
        self.setUp()
        self.assert_agrees(**{"model.sliding_window": 7, "model.bos_token_id": ord(" "), "data.document_mask": True})

    def test_schedules_without_clip(self):
        for kind in ("linear", "constant", "wsd"):
            with self.subTest(kind):
                self.setUp()
                self.assert_agrees(**{"lr_schedule.type": kind, "training.max_grad_norm": 0.0,
                                      "optimizer.learning_rate": 0.003})

    def test_bf16_is_close_and_differs(self):
        for precision in ("bf16-autocast", "bf16-params"):
            with self.subTest(precision):
                self.setUp()
                loss, _ = self.differences("--precision", precision)
                self.assertLess(loss, 0.02)
                self.assertGreater(loss, 1e-5)

    def test_validation(self):
        """On the sequences of the program's, the last micro-batch cut short, or as many as the configuration asks for."""
        words = [word % 251 for word in range(0, 24 * 9 * 7, 7)]
        self.write("val.bin", shard(words))
        for batches in (2, 20):
            with self.subTest(batches=batches):
                self.setUp()
                self.write("val.bin", shard(words))
                changes = {"data.val": "val.bin", "validation.batches": batches, "training.steps": 3}
                self.differences("--precision", "fp32", "--validation", "val.bin", **changes)
                ours = self.log().validations[-1]
                with open(self.path("reference.jsonl"), encoding="utf-8") as file:
                    theirs = json.loads(file.read().splitlines()[-1])
                self.assertEqual(list(theirs), ["step", "val_loss"])
                self.assertEqual(theirs["step"], ours["step"])
                self.assertAlmostEqual(theirs["val_loss"], ours["val_loss"], delta=1e-5 * ours["val_loss"])

    @unittest.skipUnless(HAS_TORCHAO, "no torchao for this Python")
    def test_fp8_is_close_and_differs(self):
        config = self.prepare()
        curves = []
        for arguments in ([], ["--fp8", "tensorwise"], ["--fp8", "rowwise"],
                          ["--fp8", "tensorwise", "--fp8-head"]):
            done = self.reference(config, "--precision", "bf16-params", *arguments)
            # 7 matrices in each of 2 layers, and the head.
            count = 14 + ("--fp8-head" in arguments)
            self.assertEqual(f"{count} linear layers are FP8" in done.stdout, bool(arguments))
            curves.append([record["loss"] for record in self.records(["reference.jsonl"])])
        for number, curve in enumerate(curves[1:], start=1):
            worst = max(abs(a - b) / b for a, b in zip(curve, curves[0]))
            self.assertLess(worst, 0.05)
            self.assertGreater(worst, 1e-4)
            self.assertNotIn(curve, curves[:number])

    def test_fp8_without_the_package(self):
        os.mkdir(self.path("none"))
        self.write("none/torchao.py", b"raise ImportError('not here')\n")
        config = self.prepare(**{"training.steps": 1})
        done = self.reference(config, "--fp8", "rowwise", expect=1, PYTHONPATH=self.path("none"))
        for words in ("--fp8 needs the torchao package", "pip install --no-deps torchao=="):
            self.assertIn(words, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        for arguments in (["--fp8-head"], ["--fp8", "rowwise", "--precision", "fp32"]):
            self.assertIn("goes with", self.reference(config, *arguments, expect=2).stderr)

    def test_defaults_are_the_programs(self):
        config = self.config({"lr_schedule": ..., "optimizer": ..., "training.grad_accumulation_steps": ...})
        resolved = json.loads(self.run_program("--config", config, "--print-config").out)
        self.write("resolved.json", json.dumps(resolved).encode())
        code = ("import json, sys, torch_reference as t; full, short = map(t.read_config, sys.argv[1:]);"
                "used = [{s: {k: c[s][k] for k in t.DEFAULTS[s]} for s in t.DEFAULTS} for c in (full, short)];"
                "print(json.dumps(used))")
        done = subprocess.run([sys.executable, "-B", "-c", code, "resolved.json", config], cwd=self.folder, check=True,
                              env={**os.environ, "PYTHONPATH": os.path.dirname(TOOL)}, capture_output=True, text=True)
        full, short = json.loads(done.stdout)
        self.assertEqual(full, short)

    def test_bad_input(self):
        config = self.prepare(**{"training.steps": 1})
        self.assertIn("no_such", self.reference(config, "--init", "no_such", expect=1).stderr)
        self.assertIn("text.txt: not what", self.reference(config, "--batches", "text.txt", expect=1).stderr)
        self.write("other.json", json.dumps(changed(json.loads(self.read(config)), {"model.hidden_size": 32})).encode())
        self.assertIn("size mismatch", self.reference("other.json", expect=1).stderr)
        self.assertIn("text.txt: not a token", self.reference(config, "--validation", "text.txt", expect=1).stderr)
        self.write("broken.json", b"{")
        self.assertIn("broken.json", self.reference("broken.json", expect=1).stderr)


@unittest.skipUnless(HAS_TORCH, "no PyTorch for this Python")
class RivalTest(unittest.TestCase):
    """The model that tools/bench/torch_step.py times computes what the reference does, gradients included."""

    def test_same_loss_and_gradients(self):
        import torch
        sys.path[:0] = [os.path.dirname(TOOL), os.path.join(os.path.dirname(TOOL), "bench")]
        import torch_reference
        import torch_step

        model = {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
                 "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 50, "rms_norm_eps": 1e-5, "rope_theta": 100.0,
                 "rope_scaling": SCALING, "tie_word_embeddings": False, "bos_token_id": None}
        torch.manual_seed(1)
        reference = torch_reference.Llama({"model": model, "data": {"document_mask": False}})
        rival = torch_step.Rival(model, 24)
        pairs = list(zip(("embedding", "norm", "head"),
                         (reference.model.embed_tokens, reference.model.norm, reference.lm_head)))
        halves = torch.arange(8).view(2, 4).t().flatten()  # rotate-half rows of a head in the order of adjacent pairs

        def adjacent(weight):
            return weight.view(-1, 8, weight.shape[-1])[:, halves].reshape(weight.shape)

        with torch.no_grad():
            for name, module in pairs:
                getattr(rival, name).weight.copy_(module.weight)
            for block, layer in zip(rival.blocks, reference.model.layers):
                attention, mlp = layer.self_attn, layer.mlp
                block.qkv.weight.copy_(torch.cat((adjacent(attention.q_proj.weight), adjacent(attention.k_proj.weight),
                                                  attention.v_proj.weight)))
                block.out.weight.copy_(attention.o_proj.weight)
                block.gate_up.weight.copy_(torch.cat((mlp.gate_proj.weight, mlp.up_proj.weight)))
                block.down.weight.copy_(mlp.down_proj.weight)
        tokens, targets = torch.randint(0, 50, (2, 3, 24))
        expected = reference(tokens, targets, torch.zeros_like(tokens)) / targets.numel()
        found = rival(tokens, targets)
        self.assertAlmostEqual(found.item(), expected.item(), delta=1e-5)
        expected.backward()
        found.backward()
        for name, module in pairs:
            torch.testing.assert_close(getattr(rival, name).weight.grad, module.weight.grad, rtol=1e-4, atol=1e-6)


if __name__ == "__main__":
    unittest.main()
