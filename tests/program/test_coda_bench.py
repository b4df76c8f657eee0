"""coda_bench's command line, where the build has it; its measurements need a GPU."""

import os
import re
import subprocess
import unittest

from program import PROGRAM, ROOT, ProgramTestCase

BENCH = os.path.join(os.path.dirname(PROGRAM), "coda_bench")
CONFIG = os.path.join(ROOT, "configs", "llama1b.json")


@unittest.skipUnless(os.access(BENCH, os.X_OK), "this build has no coda_bench")
class BenchTest(ProgramTestCase):
    def bench(self, *arguments, expect, says):
        environment = {**self.environment(1), "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run([BENCH, *arguments], cwd=self.folder, env=environment, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, check=False)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        self.assertIn(says, done.stdout + done.stderr)
        return done

    def test_help_names_the_subcommands(self):
        shown = self.bench("--help", expect=0, says="Subcommands").stdout
        for name in ("gemm", "attention", "pointwise", "step", "header"):
            self.assertRegex(shown, rf"(?m)^  {name} +\S")

    def test_wrong_usage(self):
        self.bench(expect=2, says="subcommand is required")
        self.bench("speed", expect=2, says="subcommand")
        self.bench("step", expect=2, says="--config is required")
        self.bench("step", "--config", CONFIG, "--steps", "0", expect=2, says="--steps")
        self.bench("step", "--config", CONFIG, "--trainings.seq_len", "8", expect=2, says="--training.seq_len")
        self.bench("step", "--config", CONFIG, "--resume", expect=2, says="none of coda_train's other flags")
        self.bench("step", "--config", "no_such.json", expect=2, says="no_such.json")

    def test_help_lists_an_op_once(self):
        shown = self.bench("pointwise", "--help", expect=0, says="--op").stdout
        listed = re.search(r"\{([\w,\s]+)\}", shown)[1]
        names = re.findall(r"\w+", listed)
        self.assertGreater(len(names), 5)
        self.assertEqual(len(names), len(set(names)), names)

    def test_outputs_replace_nothing(self):
        self.write("kept.json", b"kept")
        os.symlink("kept.json", self.path("link"))
        qkv = ["--inputs", "text.txt", "--outputs"]
        for arguments, says in ((["pointwise", "--json", "kept.json"], "--json kept.json: exists"),
                                (["gemm", "--json", "kept.json"], "--json kept.json: exists"),
                                (["attention", "--json", "kept.json"], "--json kept.json: exists"),
                                (["attention", *qkv, "kept.json"], "--outputs kept.json: exists"),
                                (["attention", *qkv, "text.txt", "--overwrite"], "--outputs text.txt: the run reads"),
                                (["attention", *qkv, "a", "--json", "a"], "give different names"),
                                (["pointwise", "--json", "/dev/null", "--overwrite"], "/dev/null: is a device"),
                                (["pointwise", "--json", "link", "--overwrite"], "link: is a symbolic link"),
                                (["step", "--config", CONFIG, "--json", CONFIG, "--overwrite"], "the run reads"),
                                (["step", "--config", CONFIG, "--json", "kept.json"], "--json kept.json: exists")):
            with self.subTest(arguments):
                self.bench(*arguments, expect=1, says=says)
        self.assertEqual(self.read("kept.json"), b"kept")

    def test_lost_output(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([BENCH, "--help"], cwd=self.folder, stdout=full, stderr=subprocess.PIPE,
                                  stdin=subprocess.DEVNULL, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "coda_bench: standard output: No space left on device\n")

    def test_without_a_gpu(self):
        found = self.bench("step", "--config", CONFIG, "--training.seq_len", "2048", expect=1, says="--device cuda")
        self.assertRegex(found.stderr, r"\Acoda_bench: [^\n]+\n\Z")
        self.assertEqual(found.stdout, "")


if __name__ == "__main__":
    unittest.main()
