"""FP8 training as a user meets it: scales that begin, continue and are refused, and numbers that FP8 would hide."""

import json
import math
import os
import shutil
import struct
import subprocess
import sys
import unittest

from checkpoint_folder import HF_CONFIG, random_tensors, write_folder
from program import CONFIG, NON_FINITE, PROGRAM, ROOT, RUNTIME, USAGE, ProgramTestCase

sys.path.insert(0, os.path.join(ROOT, "tools", "campaign"))
import victim  # noqa: E402

GENERATE = os.path.join(os.path.dirname(PROGRAM), "coda_generate")
FP8 = {"precision": "fp8", "device": "cpu"}
TENSORS = ["qkv.weight", "qkv.output_gradient", "attn_out.input", "attn_out.weight", "attn_out.output_gradient",
           "gate_up.weight", "gate_up.output_gradient", "gate_up.output", "down.input", "down.weight",
           "down.output_gradient"]


class Fp8TestCase(ProgramTestCase):
    def train(self, *arguments, changes=None, **options):
        return super().train(*arguments, changes={**FP8, **(changes or {})}, **options)

    def resume(self, *arguments, changes=None, **options):
        return self.run_program("--config", self.config({**FP8, **(changes or {})}), "--resume", *arguments, **options)


class HiddenNumbersTest(Fp8TestCase):
    def test_infinite_weights(self):
        # e4m3 has no infinity: the weight's copy is finite, and so are loss and gradient.
        hf = {**HF_CONFIG, "intermediate_size": 32}
        for tensor, says in (("mlp.down_proj", "down.weight"), ("self_attn.v_proj", "qkv.weight"),
                             ("mlp.up_proj", "gate_up.weight"), ("self_attn.o_proj", "attn_out.weight")):
            for value in (math.inf, -math.inf):
                with self.subTest(tensor, value=value):
                    tensors = random_tensors(hf)
                    tensors[f"model.layers.1.{tensor}.weight"][2][5] = value
                    folder = f"{tensor}_{value}"
                    write_folder(self.path(folder), hf, tensors)
                    self.write("zeros.txt", bytes(400))
                    result = self.run_program(
                        "--config", self.config({**FP8, "model": {}, "data.train": "zeros.txt", "training.steps": 9,
                                                 "validation.interval": 0, "output.directory": "run_" + folder},
                                                base={**CONFIG, "model": {}}),
                        "--init-from", folder, expect=NON_FINITE)
                    self.assert_message(result, [f"step 1: an element of {says} of layer 1 is infinite", "FP8 clips it"])
                    self.assertEqual(self.checkpoints("run_" + folder), [])
                    self.assertIsNone(self.log("run_" + folder).steps[0]["f8"][says][1])


class CalibrationTest(Fp8TestCase):
    def test_micro_batches_that_differ(self):
        # The first micro-batch of 32 tokens is all beginnings of documents: it has no gradient, and larger activations.
        self.write("train.txt", b" " * 40 + self.read("text.txt"))
        self.train(changes={"data.train": "train.txt", "data.val": "text.txt", "data.shuffle": False,
                            "data.document_mask": True, "model.bos_token_id": 32, "training.steps": 1,
                            "training.grad_accumulation_steps": 2})
        first, = self.log().steps
        self.assertEqual(list(first["f8"]), TENSORS)
        for tensor, (_, _, at) in first["f8"].items():
            at *= 57344 / 448 if tensor == "qkv.output_gradient" else 1  # e5m2, scaled as e4m3 would be
            self.assertTrue(0.49 < at <= 1, f"{tensor}: {at} of the range; a power of two leaves 1/2 to 1")


class ResumedScalesTest(Fp8TestCase):
    STEPS = 6

    def setUp(self):
        super().setUp()
        self.train(changes={"training.steps": self.STEPS})
        self.more = {"training.steps": self.STEPS + 2}

    def forge(self, history=None, identity=None, **config):
        """Writes the checkpoint again with other bytes in `history`, or other parts of its identity or configuration,
        checksums right."""
        folder = self.path("run", "checkpoints", f"step_{self.STEPS:08}")
        with open(os.path.join(folder, "meta.json"), encoding="utf-8") as file:
            meta = json.load(file)
        if history is not None:
            self.write(os.path.join(folder, "f8_history.bin"), history)
            segment, = (each for each in meta["segments"] if each["name"] == "f8_history")
            segment.update(bytes=len(history), xxh64="%016x" % victim.xxh64(history))
        meta["state"]["identity"].update(identity or {})
        meta["state"]["config"].update(config)
        contents = json.dumps(meta)
        self.write(os.path.join(folder, "meta.json"), contents.encode())
        self.write(os.path.join(folder, "complete"), b"%016x\n" % victim.xxh64(contents.encode()))

    def test_history_of_no_magnitudes(self):
        right = self.segments()["f8_history.bin"]
        for value in (math.nan, math.inf, -1.0):
            with self.subTest(value=value):
                self.forge(right[:20] + struct.pack("<f", value) + right[24:])
                result = self.resume(changes=self.more, expect=RUNTIME)
                self.assert_message(result, ["element 5 of segment 'f8_history' is ", "finite and not negative"])
        for wrong in (right[:len(right) // 2], right + right):
            self.forge(wrong)
            result = self.resume(changes=self.more, expect=RUNTIME)
            self.assert_message(result, [f"'f8_history' has {len(wrong)} bytes where {len(right)} are wanted"])
        self.forge(right)
        self.resume(changes=self.more)

    def test_another_precision_is_refused_with_the_flag_that_keeps_it(self):
        for here, says in (("bf16", "the checkpoint's precision is fp8, and this run's is f32"),
                           ({"bf16_last_layers": 1}, """this run's is fp8 {"bf16_last_layers":1}""")):
            result = self.resume(changes={**self.more, "precision": here}, expect=USAGE)
            self.assert_message(result, [says, "take the same with --precision fp8"])
        for number, (precision, flag) in enumerate((("bf16", "bf16"),
                                                    ({"bf16_last_layers": 1}, """'{"bf16_last_layers":1}'"""))):
            directory = {"output.directory": f"other{number}"}
            self.train(changes={**directory, "precision": precision, "training.steps": 2})
            result = self.resume(changes={**directory, "training.steps": 3}, expect=USAGE)
            self.assert_message(result, [f"take the same with --precision {flag}"])

    def test_a_retired_precision_is_not_asked_for(self):
        """A checkpoint of an earlier version, whose precision no flag gives: it is continued all the same."""
        self.forge(identity={"precision": """fp8 {"margin":2}"""}, precision={"margin": 2, "window": 16})
        result = self.resume(changes=self.more, expect=USAGE)
        self.assert_message(result, ["""the checkpoint's precision is fp8 {"margin":2}, and this run's is fp8""",
                                     "--allow other-device; precision.margin is gone: it is 0 in every run"])
        self.assertNotIn("take the same", result.err)
        self.resume("--allow", "other-device", changes=self.more)

    def test_text_from_a_run_with_retired_keys(self):
        """Such a run could recompute the MLP while only attention was in FP8."""
        arguments = [GENERATE, "--model", "run", "--prompt", "the ", "--tokens", "5", "--device", "cpu"]
        before = subprocess.run(arguments, cwd=self.folder, capture_output=True, check=True).stdout
        with open(self.path("run", "checkpoints", f"step_{self.STEPS:08}", "meta.json"), encoding="utf-8") as file:
            training = json.load(file)["state"]["config"]["training"]
        self.forge(precision={"gate_up": "bf16", "down": "bf16", "margin": 2}, deterministic=False,
                   training=training | {"recompute": "mlp"})
        self.assertEqual(subprocess.run(arguments, cwd=self.folder, capture_output=True, check=True).stdout, before)

    def test_scales_go_on_or_begin_anew(self):
        """A history outlives another margin of an earlier version; it ends with the window, and with the choice of
        layers and GEMMs."""
        before = self.segments()["f8_history.bin"]
        row = len(before) // 16
        today = {"qkv": "fp8", "head_forward": "bf16", "margin": 0, "window": 16}
        for recorded, precision, goes_on in ((today, "fp8", True), (today | {"margin": 3}, "fp8", True),
                                             (today | {"qkv_gradient": "e4m3"}, "fp8", True),
                                             (today | {"window": 8}, "fp8", False),
                                             (today | {"attn_out": "bf16"}, "fp8", False),
                                             (today | {"head_forward": "fp8"}, "fp8", False),
                                             (today, {"bf16_last_layers": 1}, False)):
            with self.subTest(recorded=recorded, precision=precision):
                self.forge(precision=recorded)
                shutil.rmtree(self.path("copy"), ignore_errors=True)
                shutil.copytree(self.path("run"), self.path("copy"))
                self.resume("--allow", "other-device",
                            changes={**self.more, "precision": precision, "output.directory": "copy"})
                after = self.segments("copy")["f8_history.bin"]  # steps 7 and 8 are rows 7 and 8
                self.assertEqual(after[:7 * row] == before[:7 * row], goes_on)

    def test_history_without_the_output_of_gate_up(self):
        """Of a version that kept it in bf16: the run finds new scales."""
        before = self.segments()["f8_history.bin"]
        values, number = struct.unpack(f"<{len(before) // 4}f", before), len(TENSORS)
        kept = [value for i, value in enumerate(values) if i % number != TENSORS.index("gate_up.output")]
        self.forge(struct.pack(f"<{len(kept)}f", *kept))
        self.resume(changes=self.more)
        after, steps = self.segments()["f8_history.bin"], 7 * len(before) // 16
        self.assertEqual(len(after), len(before))
        self.assertNotEqual(after[:steps], before[:steps])


if __name__ == "__main__":
    unittest.main()
