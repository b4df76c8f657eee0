"""FP8 training as a user meets it: scales that begin, go on and are refused, and numbers that FP8 would hide."""

import json
import math
import os
import shutil
import struct
import sys
import unittest

from checkpoint_folder import HF_CONFIG, random_tensors, write_folder
from program import CONFIG, NON_FINITE, ROOT, RUNTIME, USAGE, ProgramTestCase

sys.path.insert(0, os.path.join(ROOT, "tools", "campaign"))
import victim  # noqa: E402

FP8 = {"precision": "fp8", "device": "cpu"}
HEAD = {"head_forward": "fp8"}
HEAD_ALONE = HEAD | {gemm: "bf16" for gemm in ("qkv", "attn_out", "gate_up", "down")}
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


class HeadTest(Fp8TestCase):
    def train_all(self):
        for name, precision in (("plain", "fp8"), ("head", HEAD), ("again", HEAD), ("alone", HEAD_ALONE)):
            self.train(changes={"output.directory": name, "precision": precision, "training.steps": 6,
                                "training.lm_head_chunks": 3})

    def test_losses_differ_from_those_of_bf16_logits_by_their_rounding(self):
        self.train_all()
        self.assert_same_run("head", "again")
        plain, head = self.log("plain").losses(), self.log("head").losses()
        self.assertNotEqual(head, plain)
        for one, other in zip(plain, head, strict=True):
            self.assertLess(abs(one - other), 0.01)

    def test_log_and_configuration_name_the_head(self):
        self.train_all()
        for step in self.log("head").steps:
            self.assertEqual(list(step["f8"]), [*TENSORS, "head.weight"])
            layer, amax, at = step["f8"]["head.weight"]
            self.assertIsNone(layer)
            self.assertGreater(amax, 0)
            self.assertTrue(0.49 < at <= 1.01, at)
        self.assertEqual(list(self.log("alone").steps[0]["f8"]), ["head.weight"])
        self.assertEqual(self.log("head").header["config"]["precision"]["head_forward"], "fp8")
        self.assertEqual(self.log("plain").header["config"]["precision"]["head_forward"], "bf16")

    def test_validation_is_of_bf16_logits(self):
        """Of the same weights, before the first step: no update has been made."""
        losses = []
        for name, precision in (("plain", "fp8"), ("head", HEAD)):
            self.train(changes={"output.directory": name, "precision": precision, "training.steps": 0})
            losses.append(self.log(name).validations)
        self.assertEqual(losses[0], losses[1])

    def test_infinite_weight(self):
        hf = {**HF_CONFIG, "intermediate_size": 32}
        tensors = random_tensors(hf)
        tensors["lm_head.weight"][2][5] = math.inf
        write_folder(self.path("folder"), hf, tensors)
        self.write("zeros.txt", bytes(400))
        result = self.run_program(
            "--config", self.config({"device": "cpu", "precision": HEAD, "model": {}, "data.train": "zeros.txt",
                                     "training.steps": 9, "validation.interval": 0}, base={**CONFIG, "model": {}}),
            "--init-from", "folder", expect=NON_FINITE)
        self.assert_message(result, ["step 1: "])
        self.assertNotIn("layer -1", result.err)
        self.assertEqual(self.checkpoints("run"), [])


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

    def forge(self, history=None, **state):
        """Writes the checkpoint again with other bytes in `history` or other parts of its state, checksums right."""
        folder = self.path("run", "checkpoints", f"step_{self.STEPS:08}")
        with open(os.path.join(folder, "meta.json"), encoding="utf-8") as file:
            meta = json.load(file)
        if history is not None:
            self.write(os.path.join(folder, "f8_history.bin"), history)
            segment, = (each for each in meta["segments"] if each["name"] == "f8_history")
            segment.update(bytes=len(history), xxh64="%016x" % victim.xxh64(history))
        meta["state"]["config"].update(state)
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
                           ({"margin": 3}, """this run's is fp8 {"margin":3}"""),
                           ({"window": 8}, """this run's is fp8 {"window":8}""")):
            result = self.resume(changes={**self.more, "precision": here}, expect=USAGE)
            self.assert_message(result, [says, "take the same with --precision fp8"])
        for number, (precision, flag) in enumerate((("bf16", "bf16"), ({"margin": 3}, """'{"margin":3}'"""),
                                                    (HEAD, """'{"head_forward":"fp8"}'"""))):
            directory = {"output.directory": f"other{number}"}
            self.train(changes={**directory, "precision": precision, "training.steps": 2})
            result = self.resume(changes={**directory, "training.steps": 3}, expect=USAGE)
            self.assert_message(result, [f"take the same with --precision {flag}"])

    def test_scales_go_on_or_begin_anew(self):
        """A history outlives another margin; it ends with the window, and with the choice of GEMMs."""
        before = self.segments()["f8_history.bin"]
        row = len(before) // 16
        for number, (precision, goes_on) in enumerate((({"margin": 3}, True), ({"window": 17}, False),
                                                       ({"attn_out": "bf16"}, False), (HEAD, False))):
            with self.subTest(precision):
                run = f"copy{number}"
                shutil.copytree(self.path("run"), self.path(run))
                self.resume("--allow", "other-device",
                            changes={**self.more, "precision": precision, "output.directory": run})
                after = self.segments(run)["f8_history.bin"]  # steps 7 and 8 are rows 7 and 8
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
