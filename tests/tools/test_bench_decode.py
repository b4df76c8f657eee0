"""tools/bench/decode.py: its decoder is the model of torch_step.py, token by token, and its records follow the schema.
tools/bench/generate.py: the same of its records.

The former needs PyTorch (run it with a Python that has it)."""

import importlib.util
import os
import subprocess
import sys
import unittest

from logs import TOOLS, LogTestCase

sys.path.insert(0, os.path.join(TOOLS, "bench"))
import records

HAS_TORCH = importlib.util.find_spec("torch") is not None
HEADER = {"gpu": "NVIDIA H200", "commit": "0" * 12, "date": "2026-11-22T00:00:00Z",
          "command": "coda_bench"}
# Stands in for coda_bench: `header`, and `decode` and `step` with a time for each call, longer every time.
BENCH = """#!{python}
import json, os, sys
header = {header}
if sys.argv[1] == "header":
    print(json.dumps(header))
    sys.exit()
options = dict(zip(sys.argv, sys.argv[1:]))
calls = os.path.join(os.path.dirname(sys.argv[0]), "calls")
with open(calls, "a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
ms = float(len(open(calls).readlines()))
if sys.argv[1] == "step":
    record = dict(part="forward_backward", forward_ms=ms)
    json.dump(dict(header=header, records=[record]), open(options["--json"], "w"))
    sys.exit()
record = dict(model="llama1b", dtype="bf16", head="bf16", decoder=options["--decoders"],
              batch=int(options["--batches"]), context=int(options["--contexts"]), ms=ms, steps_per_s=1000 / ms,
              bytes=2.5e9, stream_tb_s=4.7, share_of_bandwidth=2.5e9 / ms / 4.7e9)
json.dump(dict(header=header, records=[record]), open(options["--json"], "w"))
"""
GENERATE = """#!{python}
import json, sys
assert sys.argv[1:] == ["--model", "models/small", "--bench", "--json", "--batch", "2"], sys.argv
for batch, more in ((1, dict(peak_tb_s=4.8, share_of_bandwidth=0.5)), (2, dict())):
    for context in (16, 1024, 4096):
        print(json.dumps(dict(batch=batch, context=context, steps_per_launch=32, prefill_ms=1.5, first_token_ms=2.5,
                              ms=0.5, steps_per_s=2000.0, tokens_per_s=2000.0 * batch, bytes=1.2e9, **more)))
"""


class ScriptCase(LogTestCase):
    def setUp(self):
        super().setUp()
        for name, text in (("bench", BENCH), ("generate", GENERATE)):
            with open(self.path(name), "w", encoding="utf-8") as file:
                file.write(text.format(python=sys.executable, header=repr(HEADER)))
            os.chmod(self.path(name), 0o755)

    def script(self, name, *arguments, expect=0):
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, "-B", os.path.join(TOOLS, "bench", name), *arguments], env=environment,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def merged(self, what):
        """The records of the script's run in a result file: they follow the schema."""
        header, made = records.read(self.path("run.json"))
        return records.read(records.merge(self.path("results"), what, header, made))[1]


class GenerateTest(ScriptCase):
    def test_records(self):
        done = self.script("generate.py", self.path("bench"), self.path("generate"), "--model", "models/small",
                           "--json", self.path("run.json"), "--batch", "2")
        self.assertIn("small batch 1 context     16  first token     2.50 ms  step   0.500 ms    2000.0 tokens/s  "
                      "50% of 4.80 TB/s\n", done.stdout)
        made = self.merged("generate")
        self.assertEqual([(r["model"], r["batch"], r["context"], r["steps_per_launch"]) for r in made],
                         [("small", batch, context, 32) for batch in (1, 2) for context in (16, 1024, 4096)])
        self.assertFalse(any("prefill_ratio" in r or "forward_ms" in r for r in made))

    def test_prefill_beside_a_training_forward(self):
        done = self.script("generate.py", self.path("bench"), self.path("generate"), "--model", "models/small",
                           "--json", self.path("run.json"), "--config", "small.json", "--batch", "2")
        made = self.merged("generate")
        # In each of three rounds 1024 tokens first, then 4096, only at batch 1; 1.5 ms over 1, 3, 5 and 2, 4, 6 ms.
        self.assertEqual({(r["batch"], r["context"]): (r["forward_ms"], r["prefill_ratio"])
                          for r in made if "prefill_ratio" in r}, {(1, 1024): (3.0, 0.5), (1, 4096): (4.0, 0.375)})
        self.assertIn("prefill 1.50 ms, 0.375 of a training forward", done.stdout)
        with open(self.path("calls"), encoding="utf-8") as file:
            for call, length in zip(file, (1024, 4096) * 3, strict=True):
                self.assertIn(f"--config small.json --training.micro_batch_size 1 --training.seq_len {length} ", call)


@unittest.skipUnless(HAS_TORCH, "no PyTorch for this Python")
class DecodeTest(ScriptCase):
    def run_script(self, *arguments, expect=0):
        return self.script("decode.py", self.path("bench"), "--eager", "--models", "tiny", "--warm-up", "0", *arguments,
                           expect=expect)

    def test_records(self):
        done = self.run_script("--batches", "1,2", "--contexts", "8", "--json", self.path("run.json"))
        self.assertIn("llama1b batch 2 context     8", done.stdout)
        made = self.merged("decode")
        self.assertEqual([(r["batch"], r["context"], r["decoder"]) for r in made],
                         [(batch, 8, decoder) for batch in (1, 2) for decoder in ("fused", "passes")])
        for first, record in zip((1, 5), made[::2]):  # each shape: three rounds, then our passes
            self.assertEqual(record["rounds_ms"], [first, first + 1, first + 2])  # in turns, three rounds
            self.assertEqual(record["ms"], first + 1)
            self.assertIn(record["torch_attention"], ("math", "sdpa"))
            ratios = [a / b for a, b in zip(record["rounds_ms"], record["torch_rounds_ms"])]
            self.assertAlmostEqual(record["ratio"], sorted(ratios)[1])
            self.assertEqual(record["spread"], [min(ratios), max(ratios)])
        with open(self.path("calls"), encoding="utf-8") as file:
            self.assertIn("decode --models tiny --batches 1 --contexts 8", file.read())

    def test_wrong_usage(self):
        self.assertIn("there is no 3B", self.run_script("--models", "3B", expect=2).stderr)
        self.assertIn("--attention: there is no flash", self.run_script("--attention", "flash", expect=2).stderr)

    def test_a_step_is_the_whole_model(self):
        """Token by token the loss agrees with torch_step.py's model, which sees all tokens at once."""
        import decode
        import torch
        from torch_step import Rival
        torch.manual_seed(3)
        model = decode.MODELS["tiny"] | {"tie_word_embeddings": False, "rope_scaling": None}
        batch, length = 3, 21
        whole = Rival(model, length).double()
        decoder = decode.make_decoder(model, batch, length + 3, torch.float32).double()
        with torch.no_grad():
            for name, parameter in whole.named_parameters():
                parameter.normal_(std=0.3) if parameter.dim() == 2 else parameter.normal_(1, 0.2)
                decoder.get_parameter(name).copy_(parameter)
            self.assertEqual(len(list(whole.parameters())), len(list(decoder.parameters())))
            tokens = torch.randint(0, model["vocab_size"], (batch, length + 1))
            logits = [decoder.logits(tokens[:, i:i + 1], torch.tensor([i])) for i in range(length)]
            found = torch.nn.functional.cross_entropy(torch.cat(logits, 1).flatten(0, 1), tokens[:, 1:].flatten())
            expected = whole(tokens[:, :-1], tokens[:, 1:])
        # The rival's logits are float32 in the loss, and angles are of float32: a wrong position costs 1e-2.
        self.assertAlmostEqual(found.item(), expected.item(), delta=1e-5)


if __name__ == "__main__":
    unittest.main()
