"""A run that is too large for the machine is refused before anything is allocated, with settings that would fit."""

import math
import os
import re
import unittest

from program import DONE, ROOT, RUNTIME, ProgramTestCase, shard

# More than any machine of 2026 has: the logits of a micro-batch of 2^26 tokens by themselves take 8 TB.
CHANGES = {"training.seq_len": 1024, "training.micro_batch_size": 1 << 16, "model.vocab_size": 32000,
           "data.train": "tokens.bin", "data.val": "tokens.bin"}
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def in_bytes(text):
    number, unit = text.split()
    return float(number) * UNITS[unit]


class MemoryTest(ProgramTestCase):
    def setUp(self):
        super().setUp()
        count = 1 << 30
        self.write("tokens.bin", shard([1] * 3000, count=count))
        os.truncate(self.path("tokens.bin"), 1024 + 2 * count)  # sparse

    def suggestions(self, message):
        """[(flags, bytes)]"""
        return [(flags.split(), in_bytes(size))
                for flags, size in re.findall(r"^  (--\S.*\S)  \(([\d.]+ \w+)\)$", message, re.M)]

    def available(self, message):
        """What the machine had when the message was written: it changes while the test runs."""
        return in_bytes(re.search(r"this machine has ([\d.]+ \w+)", message)[1])

    def most_memory(self, *arguments, expect):
        """KiB that a run has held at the most."""
        process = self.start_quiet(*arguments)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, expect)
        return usage.ru_maxrss

    def test_refused_before_allocating(self):
        for arguments, least in (([], 2**42), (["--dry-run"], 2**42), (["--eval"], 2**36), (["--dry-run", "--eval"], 2**36)):
            with self.subTest(arguments):
                result = self.run_program("--config", self.config(CHANGES), *arguments, expect=RUNTIME)
                self.assert_message(result, ["the run needs ", "this machine has "])
                self.assertGreater(in_bytes(re.search(r"needs ([\d.]+ \w+)", result.err)[1]), least)
        self.assertEqual(self.tree(), ["config.json", "text.txt", "tokens.bin"])
        # An export runs nothing, so it needs no more than the weights.
        self.train("--export", "out", changes=CHANGES)
        # Beyond what a start takes: the plan, of which AddressSanitizer keeps what has been freed.
        start = self.most_memory("--version", expect=DONE)
        refusal = self.most_memory("--config", self.config(CHANGES), expect=RUNTIME)
        self.assertLess(refusal - start, 128 * 1024, "KiB")

    def test_suggested_settings_fit(self):
        available = self.available(self.refuse("--dry-run", changes=CHANGES).err)
        # Logits of 8 to 16 times the memory: chunks of the LM head make them fit, and so do smaller micro-batches.
        batch = 1 << int(math.log2(16 * available / (4 * 32000 * 1024)))
        for changes in ({}, {"optimizer.moments": "bf16"}, {"training.recompute": "swiglu"}, {"training.recompute": "mlp"}):
            with self.subTest(changes):
                config = self.config({**CHANGES, **changes, "training.micro_batch_size": batch})
                message = self.run_program("--config", config, "--dry-run", expect=RUNTIME).err
                available, suggested = self.available(message), self.suggestions(message)
                keys = {flag for flags, _ in suggested for flag in flags[::2]}
                self.assertLessEqual({"--training.lm_head_chunks", "--training.micro_batch_size"}, keys, message)
                for flags, size in suggested:
                    self.assertLessEqual(size, available)
                    # The plan is printed whether it fits or not.
                    result = self.run_program("--config", config, "--dry-run", *flags, expect=None)
                    arena = in_bytes(re.search(r"^  arena .* B +([\d.]+ \w+)$", result.out, re.M)[1])
                    self.assertAlmostEqual(arena, size, delta=0.01 * size)
                    if result.code != DONE:
                        self.assertGreater(size, self.available(result.err), result)

    def test_nothing_fits(self):
        self.refuse(changes={**CHANGES, "model.hidden_size": 1 << 17, "model.num_hidden_layers": 4,
                             "model.intermediate_size": 1 << 17}, says=["no setting makes this model fit", "model"])

    def test_more_bytes_than_can_be_counted(self):
        shape = {"training.seq_len": 1 << 20, "training.micro_batch_size": 511, "model.intermediate_size": 1 << 20}
        for layers in (1000, 12_000, 20_000):
            for arguments in ([], ["--dry-run"], ["--eval"]):
                with self.subTest((layers, arguments)):
                    self.refuse(*arguments, changes={**CHANGES, **shape, "model.num_hidden_layers": layers},
                                says=["takes more than 2^62 bytes", "training.micro_batch_size"])
        # Below that the columns of the plan stay apart.
        result = self.run_program("--config", self.config({**CHANGES, **shape, "model.num_hidden_layers": 200}),
                                  "--dry-run", "--device", "cuda", expect=None)
        self.assertRegex(result.out, r"(?m)^  arena +[\d,]{20,} B +[\d.]+ TiB$")

    def test_shipped_8b_config(self):
        result = self.run_program("--config", f"{ROOT}/configs/llama8b.json", "--data.train", "tokens.bin",
                                  "--data.val", "tokens.bin", "--dry-run", expect=None)
        self.assertIn("parameters          8,030,261,248 ", result.out)
        if result.code == RUNTIME:
            # By its memory or, where that suffices, by its time.
            self.assertRegex(result.err, r"the run needs [^\n]*GiB|--device cpu runs it there all the same")


if __name__ == "__main__":
    unittest.main()
