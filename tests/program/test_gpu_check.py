"""tools/gpu_check as a user starts it: its command line, and the parts that the CPU can do, with the program itself."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import unittest

from program import PROGRAM, ROOT, TEXT, ProgramTestCase

TOOL = os.path.join(ROOT, "tools", "gpu_check")
HAS_TORCH = importlib.util.find_spec("torch") is not None


class GpuCheckTest(ProgramTestCase):
    def check(self, *arguments, expect=0):
        """Standard output."""
        command = [sys.executable, "-B", TOOL, "--bin", os.path.dirname(PROGRAM), "--results", self.path("results"),
                   "--log", self.path("check.log"), *arguments]
        environment = {**self.environment(1), "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout if expect != 2 else done.stderr

    def on_cpu(self, parts, *arguments, **options):
        self.write("long.txt", TEXT * 8)
        return self.check("--device", "cpu", "--tokens", "long.txt", "--only", parts, *arguments, **options)

    def wrapper(self, lines):
        """A folder with a coda_train that runs the program after or before other shell commands."""
        os.makedirs(self.path("bin"))
        with open(self.path("bin", "coda_train"), "w", encoding="utf-8") as file:
            file.write("#!/bin/bash\n" + lines.replace("PROGRAM", PROGRAM) + "\n")
        os.chmod(self.path("bin", "coda_train"), 0o755)
        return self.path("bin")

    def test_usage(self):
        listed = self.check("--list")
        for name in ("tests", "oracle", "losses", "repeat", "golden", "resume", "export", "gemm", "attention", "step"):
            self.assertRegex(listed, rf"(?m)^{name} +\S")
        self.assertIn("no part 'speed'", self.check("--only", "speed", expect=2))
        self.assertIn("--tokens", self.check("--only", "repeat", expect=2))
        self.assertRegex(self.check("--only", "smollm2", "--smollm2", self.folder, expect=1), "smollm2 +FAILED ")
        self.assertIn("no file no_such.bin", self.check("--tokens", "no_such.bin", expect=2))

    def test_a_missing_program_fails_its_part(self):
        out = self.on_cpu("gemm", "--bin", self.path("nowhere"), expect=1)
        self.assertRegex(out, r"gemm +FAILED .*nowhere/coda_bench is not there")

    def test_a_part_that_fails_midway_keeps_what_it_measured(self):
        os.makedirs(self.path("bin"))
        run = {"header": {"gpu": "NVIDIA H200", "commit": "b7126d3b0446",
                          "date": "2026-11-22T06:32:25Z", "command": "coda_bench gemm"},
               "records": [{"program": "Linear", "layout": "TN", "M": 8, "N": 8, "K": 8, "precision": "bf16", "ms": 1,
                            "cublas_ms": 2, "ratio": 0.5, "tflops": 1, "gbps": 1}]}
        with open(self.path("bin", "coda_bench"), "w", encoding="utf-8") as file:
            file.write('#!/bin/bash\n[[ "$*" == *llama8b* ]] && { echo "no memory" >&2; exit 1; }\n'
                       f"echo '{json.dumps(run)}' > \"${{@: -1}}\"\n")
        os.chmod(self.path("bin", "coda_bench"), 0o755)
        out = self.on_cpu("gemm", "--bin", self.path("bin"), expect=1)
        self.assertRegex(out, r"gemm +FAILED .*no memory")
        self.assertEqual(json.loads(self.read("results", "h200_gemm.json")),
                         {"header": {"gpu": "h200", "what": "gemm"}, "records": [run["records"][0] | run["header"]]})

    def test_repeat_and_resume(self):
        out = self.on_cpu("repeat,resume")
        self.assertRegex(out, r"repeat +ok .*small: 12 steps and checkpoint equal; small_fp8: 12 steps")
        self.assertRegex(out, r"resume +ok .*bf16 killed after step \d+ of 120: log and checkpoint equal.*fp8 killed")

    def test_generation(self):
        out = self.on_cpu("generation")
        self.assertRegex(out, r"generation +ok .*passes loss \S+ from --eval's; int4 passes loss \S+ from --eval's; "
                              r"8 sequences equal .*; 960 tokens")

    def test_runs_of_different_bits_fail(self):
        bin_folder = self.wrapper('exec PROGRAM "$@" --training.seed $$')
        self.assertRegex(self.on_cpu("repeat", "--bin", bin_folder, expect=1), r"repeat +FAILED .*step 1: ")

    def test_resuming_elsewhere_fails(self):
        bin_folder = self.wrapper('case "$*" in *--resume*) exec PROGRAM "$@" --optimizer.learning_rate 0.002;; esac\n'
                                  'exec PROGRAM "$@"')
        self.assertRegex(self.on_cpu("resume", "--bin", bin_folder, expect=1), r"resume +FAILED .*step \d+: ")

    def loss_config(self):
        return self.config({"model.hidden_size": 32, "training.seq_len": 16})

    @unittest.skipUnless(HAS_TORCH, "no PyTorch for this Python")
    def test_losses(self):
        out = self.on_cpu("losses", "--config", self.loss_config(), "--steps", "8")
        self.assertRegex(out, r"losses +ok .*mean of the last 8 steps: coda \d")
        for name in ("coda", "torch_bf16", "torch_autocast", "torch_fp32"):
            self.assertEqual(self.read(f"loss_{name}.jsonl").count(b'"loss"'), 8)
        difference = re.search(r"largest difference in the first 8 from .*torch_fp32 (\d\.\d+)", out)
        self.assertLess(float(difference[1]), 1e-4)
        self.assertEqual(os.listdir(self.path("results")), [])  # a try on the CPU is no result

    @unittest.skipUnless(HAS_TORCH, "no PyTorch for this Python")
    def test_another_loss_fails(self):
        bin_folder = self.wrapper('case "$*" in *--dump-batches*) exec PROGRAM "$@" --optimizer.learning_rate 0.1;;\n'
                                  'esac\nexec PROGRAM "$@"')
        out = self.on_cpu("losses", "--bin", bin_folder, "--config", self.loss_config(), "--steps", "8", expect=1)
        self.assertRegex(out, r"losses +FAILED .*compare_loss.py ended with 1: .* differ by ")

    @unittest.skipUnless(HAS_TORCH and importlib.util.find_spec("transformers"), "no transformers for this Python")
    def test_export(self):
        self.assertRegex(self.on_cpu("export"), r"export +ok .*relative difference")


if __name__ == "__main__":
    unittest.main()
