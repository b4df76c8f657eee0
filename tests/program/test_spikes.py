"""The watch over a run: spikes are scored and said, and training.skip_spikes drops their updates, across kills too.

The environment variable CODA_DEVICE is the device (default: cpu); the model is one that the GPU takes, too.
"""

import array
import json
import os
import random
import time
import unittest

from program import ENDLESS, ProgramTestCase, kill

STEPS, SPIKES = 80, (60, 61, 75)  # those steps read random bytes
TOKENS = 32  # of a step
CHANGES = {
    "data.train": "train.txt", "data.val": "text.txt", "data.shuffle": False, "training.steps": STEPS,
    "device": os.environ.get("CODA_DEVICE", "cpu"), "model.head_dim": 64, "optimizer.learning_rate": 0.003,
    "lr_schedule.type": "constant", "validation.interval": 40,
}
SKIP = {"training.skip_spikes": 5}
EVERY_STEP = {"checkpoint.interval": 1, "checkpoint.keep": STEPS}


def data():
    """Text that is easy to learn, with noise at SPIKES."""
    chance = random.Random(3)
    text = bytearray(b"abcdefgh" * (STEPS * TOKENS // 8 + 8))
    for step in SPIKES:
        first = (step - 1) * TOKENS
        text[first:first + TOKENS] = bytes(chance.randrange(256) for _ in range(TOKENS))
    return bytes(text)


class SpikeTest(ProgramTestCase):
    def setUp(self):
        super().setUp()
        self.write("train.txt", data())

    def train(self, *arguments, changes=None, **options):
        return super().train(*arguments, changes={**CHANGES, **(changes or {})}, **options)

    def state(self, step, run="run"):
        return self.segments(run, checkpoint=self.checkpoints(run).index(f"step_{step:08}"))

    def test_marks(self):
        result = self.train()
        steps = self.log().steps
        for record in steps:
            self.assertNotIn("skipped", record)
            self.assertEqual(record["loss_z"] is None, record["step"] < 34, record)
            self.assertEqual(record["norm_z"] is None, record["step"] < 34, record)
        for step in SPIKES:
            record = steps[step - 1]
            self.assertGreater(record["norm_z"], 6, record)
            self.assertRegex(result.out, rf"\nspike at step {step}: gradient norm [^\n]*, z [^\n]*; loss [^\n]*, z ")
        said = [int(line.split()[3].rstrip(":")) for line in result.out.splitlines() if line.startswith("spike ")]
        self.assertEqual(said, [r["step"] for r in steps if max(r["loss_z"] or 0, r["norm_z"] or 0) > 6])
        self.assertNotIn("dropped", result.out)

    def test_a_threshold_above_every_spike_changes_nothing(self):
        self.train(changes={"output.directory": "off"})
        self.train(changes={"training.skip_spikes": 1e6})
        self.assert_same_run("run", "off")

    def test_drops(self):
        result = self.train(changes={**SKIP, **EVERY_STEP})
        steps = self.log().steps
        dropped = [record["step"] for record in steps if "skipped" in record]
        self.assertLessEqual(set(SPIKES), set(dropped))
        self.assertEqual(dropped, [record["step"] for record in steps if (record["norm_z"] or 0) > 5])
        for record in steps:
            step = record["step"]
            if step > 1:
                self.assertEqual(self.state(step) == self.state(step - 1), step in dropped, record)
        for step in dropped:
            self.assertEqual(steps[step - 1]["skipped"], "spike")
            self.assertRegex(result.out, rf"\nspike at step {step}: [^\n]*; the update was dropped\n")
        self.assertEqual([record["tokens"] for record in steps], [TOKENS * step for step in range(1, STEPS + 1)])

    def test_the_step_number_goes_on(self):
        """Behind a dropped update the next one has the bias corrections of its own number. Its gradient follows from
        the first moments before and after it."""
        self.train(changes={**SKIP, **EVERY_STEP, "optimizer.weight_decay": 0.0})
        self.assertTrue(self.state(59) == self.state(61))
        made = next(record["step"] for record in self.log().steps[61:] if "skipped" not in record)
        before, after = (
            {name: array.array("f", self.state(step)[f"{name}.bin"]) for name in ("master", "m", "v")}
            for step in (made - 1, made)
        )

        def worst(number):
            """Of the whole update by the formula at step `number`, relative to the largest change of a weight."""
            error = largest = 0.0
            for w, m, v, new in zip(before["master"], after["m"], after["v"], after["master"]):
                expected = 0.003 * (m / (1 - 0.9**number)) / ((v / (1 - 0.95**number)) ** 0.5 + 1e-8)
                error = max(error, abs(w - expected - new))
                largest = max(largest, abs(w - new))
            return error / largest

        # A weight of 1 is stored to 6e-8, and the largest change is about the learning rate.
        self.assertLess(worst(made), 2e-4)
        self.assertGreater(worst(made - 2), 1e-3)

    def test_killed_and_resumed(self):
        changes = {**CHANGES, **SKIP, "checkpoint.interval": 2}
        config = self.config({**changes, "training.steps": ENDLESS["training.steps"]})
        chance = random.Random(1)
        for target in (40, 58, 60, 61, 63, 74, 76):
            process = self.start_quiet("--config", config, "--resume")
            self.wait_until(lambda target=target: self.logged_steps() >= target, process, f"step {target}")
            time.sleep(chance.uniform(0, 0.002))
            self.assertTrue(kill(process))
        changes["training.steps"] = max(STEPS, self.logged_steps() + 3)
        result = self.run_program("--config", self.config(changes), "--resume", expect=None)
        self.assertEqual(result.code, 0, result)
        self.train(changes={**changes, "output.directory": "whole"})
        self.assert_same_run("run", "whole")
        self.assertEqual(self.meta("run")["state"]["spike_watch"], self.meta("whole")["state"]["spike_watch"])
        dropped = [record["step"] for record in self.log().steps if "skipped" in record]
        self.assertLessEqual(set(SPIKES), set(dropped))

    def meta(self, run):
        return json.loads(self.read(run, "checkpoints", self.checkpoints(run)[-1], "meta.json"))

    def test_turned_on_at_a_resume(self):
        """The window of the steps before is there, whatever the threshold was."""
        self.train(changes={"training.steps": 59})
        result = self.run_program("--config", self.config({**CHANGES, **SKIP}), "--resume")
        self.assertIn("note: training.skip_spikes was 0.0 and is now 5.0\n", result.out)
        self.assertEqual(self.log().steps[59]["skipped"], "spike")


if __name__ == "__main__":
    unittest.main()
