"""Killed at any moment and resumed, a run continues as if it had never stopped."""

import json
import os
import random
import struct
import shutil
import time
import unittest

from program import ENDLESS, RUNTIME, USAGE, ProgramTestCase, kill

# Few sequences, so that a run of this length crosses several epochs.
STEPS = 16
CHANGES = {"training.steps": STEPS, "checkpoint.interval": 1, "checkpoint.keep": 2, "validation.interval": 4,
           "data.train": "short.txt"}
# Of a run that is killed: it has not ended before the kill.
OPEN = {key: ENDLESS[key] for key in ("training.steps", "lr_schedule.type")}
VARIANTS = {
    "shuffled": {},
    "bf16 moments": {"optimizer.moments": "bf16"},
    "accumulation": {"training.grad_accumulation_steps": 3, "training.micro_batch_size": 2, "data.shuffle": False},
    "seldom": {"checkpoint.interval": 5, "model.tie_word_embeddings": True},
    "fp8": {"precision": "fp8", "training.recompute": "swiglu"},
    "fp8 but for a layer": {"precision": {"bf16_last_layers": 1}, "model.tie_word_embeddings": True,
                            "training.lm_head_chunks": 2},
}


class ResumeTestCase(ProgramTestCase):
    def setUp(self):
        super().setUp()
        self.write("short.txt", self.read("text.txt")[:400])

    def train(self, *arguments, changes=None, **options):
        return super().train(*arguments, changes={**CHANGES, **(changes or {})}, **options)

    def resume(self, *arguments, changes=None, skips=0):
        """Resumes to the end and checks how many skipped folders it speaks of."""
        result = self.run_program("--config", self.config({**CHANGES, **(changes or {})}), "--resume", *arguments,
                                  expect=None)
        self.assertEqual(result.code, 0, result)
        skipped = [line for line in result.err.splitlines() if line.startswith("skipped ")]
        self.assertEqual(len(skipped), len(result.err.splitlines()), result)
        self.assertEqual(len(skipped), skips, result)
        return result


class KillTest(ResumeTestCase):
    def finish(self, config):
        """Resumes to the end; the rest of an interrupted write is spoken of and nothing else is."""
        result = self.run_program("--config", config, "--resume", expect=None)
        self.assertEqual(result.code, 0, result)
        self.assertRegex(result.err, r"\A(skipped \S+/\.tmp-\S+: the rest of an interrupted write; .*\n)*\Z")

    def test_killed_at_random_moments(self):
        for seed, (name, changes) in enumerate(VARIANTS.items()):
            with self.subTest(name, seed=seed):
                whole, run = f"whole{seed}", f"run{seed}"
                changes = {**CHANGES, **OPEN, **changes}
                config = self.config({**changes, "output.directory": run})
                chance = random.Random(seed)
                for _ in range(10):
                    more = chance.choice([None, 0, 1, 2])  # None: while it starts
                    steps = 0 if more is None else self.logged_steps(run) + more
                    process = self.start_quiet("--config", config, "--resume")
                    self.wait_until(lambda steps=steps, run=run: self.logged_steps(run) >= steps, process, "the kill")
                    time.sleep(chance.uniform(0, 0.03 if more is None else 0.002))
                    self.assertTrue(kill(process))
                changes["training.steps"] = max(24, self.logged_steps(run) + 3)
                self.finish(self.config({**changes, "output.directory": run}))
                self.train(changes={**changes, "output.directory": whole})
                self.assert_same_run(run, whole)

    def test_killed_within_checkpoint_writes(self):
        changes = {**CHANGES, **OPEN, "model.intermediate_size": 8192}  # a checkpoint takes some time
        config = self.config(changes)
        chance = random.Random(5)
        left_over = 0
        for _ in range(10):
            process = self.start_quiet("--config", config, "--resume")
            after = len(self.checkpoints()) and chance.randrange(3)  # writes that are let pass first
            seen = None
            while process.poll() is None:
                temporary = next((name for name in self.checkpoints() if name.startswith(".tmp-step")), None)
                if temporary and temporary != seen:
                    seen = temporary
                    after -= 1
                    if after < 0:
                        time.sleep(chance.uniform(0, 0.003))
                        kill(process)
            left_over += any(name.startswith(".tmp-") for name in self.checkpoints())
        self.assertGreater(left_over, 0, "no kill fell into a write")
        changes["training.steps"] = self.logged_steps() + 3
        self.finish(self.config(changes))
        self.train(changes={**changes, "output.directory": "whole"})
        self.assert_same_run("run", "whole")
        self.assertFalse([name for name in self.checkpoints() if name.startswith(".")])

    def test_killed_before_the_first_checkpoint(self):
        changes = {**ENDLESS, "checkpoint.interval": 0, "validation.interval": 0}
        process = self.start_quiet("--config", self.config({**CHANGES, **changes}))
        self.wait_until(lambda: self.logged_steps() > 3, process, "third step")
        kill(process)
        changes["training.steps"] = 5
        result = self.resume(changes=changes)
        self.assertIn("no complete checkpoint in run: starting from the beginning", result.out)
        self.train(changes={**changes, "output.directory": "whole"})
        self.assert_same_run("run", "whole")


class TornCheckpointTest(ResumeTestCase):
    """A damaged checkpoint is said to be one and the one before it is used."""

    def setUp(self):
        super().setUp()
        self.changes = {"training.steps": 6, "validation.interval": 2, "checkpoint.keep": 3}
        self.train(changes={**self.changes, "output.directory": "whole"})
        self.train(changes=self.changes)
        self.newest = self.path("run", "checkpoints", "step_00000006")

    def check(self, *names, says, step=5):
        """The newest checkpoints are damaged; the resumed run begins at `step` and ends as the whole run did."""
        result = self.resume(changes=self.changes, skips=len(names))
        for name in names:
            self.assertIn(name, result.err)
        self.assertIn(says, result.err)
        self.assertIn(f"at step {step}\n", result.out)
        self.assert_same_run("run", "whole")

    def test_truncated_segment(self):
        os.truncate(os.path.join(self.newest, "v.bin"), 1000)
        self.check("step_00000006", says="v.bin has 1000 bytes where ")

    def test_flipped_bit(self):
        with open(os.path.join(self.newest, "master.bin"), "r+b") as file:
            file.seek(5000)
            byte = file.read(1)[0]
            file.seek(5000)
            file.write(bytes([byte ^ 4]))
        self.check("step_00000006", says="master.bin is damaged: its checksum is ")

    def test_missing_parts(self):
        os.remove(os.path.join(self.newest, "complete"))
        os.remove(os.path.join(os.path.dirname(self.newest), "step_00000005", "m.bin"))
        self.check("step_00000006", "step_00000005", says="complete: No such file", step=4)

    def test_changed_meta(self):
        path = os.path.join(self.newest, "meta.json")
        with open(path, encoding="utf-8") as file:
            meta = json.load(file)
        meta["step"] = 60
        with open(path, "w", encoding="utf-8") as file:
            json.dump(meta, file)
        self.check("step_00000006", says="is not the one that the checkpoint was completed with")

    def test_foreign_entries(self):
        folder = os.path.dirname(self.newest)
        os.mkdir(os.path.join(folder, "step_00000099"))
        os.mkdir(os.path.join(folder, "backup"))
        self.write("run/checkpoints/step_00000098", b"a file")
        shutil.rmtree(self.newest)
        result = self.resume(changes=self.changes, skips=3)
        for name in ("step_00000099", "step_00000098", "backup"):
            self.assertIn(name, result.err)
        self.assert_same_losses()
        self.assertEqual(self.read("run/checkpoints/step_00000098"), b"a file")

    def test_none_left(self):
        shutil.rmtree(os.path.dirname(self.newest))
        result = self.resume(changes=self.changes)
        self.assertIn("starting from the beginning", result.out)
        self.assert_same_run("run", "whole")

    def test_torn_log(self):
        log = self.read("run", "log.jsonl").splitlines(keepends=True)
        shutil.rmtree(self.newest)
        self.write("run/log.jsonl", b"".join(log[:-2]) + log[-2][:20])
        self.resume(changes=self.changes)
        self.assert_same_run("run", "whole")

    def test_lost_log(self):
        shutil.rmtree(self.newest)
        os.remove(self.path("run", "log.jsonl"))
        self.resume(changes=self.changes)
        self.assertEqual(self.log().repeatable(), self.log("whole").repeatable()[-2:])

    def assert_same_losses(self):
        self.assertEqual(self.log("run").repeatable(), self.log("whole").repeatable())


class ResumeRulesTest(ResumeTestCase):
    def test_keeps_the_newest(self):
        self.train(changes={"checkpoint.keep": 4})
        self.assertEqual(self.checkpoints(), [f"step_{step:08}" for step in range(STEPS - 3, STEPS + 1)])
        self.train(changes={"checkpoint.at_end": False, "checkpoint.interval": 0, "output.directory": "none"})
        self.assertEqual(self.checkpoints("none"), [])
        self.train(changes={"checkpoint.interval": 0, "output.directory": "end"})
        self.assertEqual(self.checkpoints("end"), [f"step_{STEPS:08}"])

    def test_resume_with_nothing_to_do(self):
        self.train()
        before = self.read("run", "log.jsonl")
        result = self.resume()
        self.assertIn(f"already at step {STEPS} of {STEPS}", result.out)
        self.assertEqual(self.read("run", "log.jsonl"), before)

    def test_resume_to_more_steps(self):
        constant = {"lr_schedule.type": "constant", "validation.interval": 7}
        self.train(changes={**constant, "output.directory": "whole"})
        self.train(changes={**constant, "training.steps": 7})
        self.resume(changes=constant)
        self.assert_same_run("run", "whole")

    def test_existing_run(self):
        self.train()
        before = {name: self.read(name) for name in self.tree() if os.path.isfile(self.path(name))}
        result = self.refuse(changes={**CHANGES, "training.seed": 5}, code=RUNTIME,
                             says=["run/log.jsonl", "--resume", "--output.directory"])
        self.assertEqual(result.out, "")
        for name, contents in before.items():
            if name != "config.json":
                self.assertEqual(self.read(name), contents, name)

    def test_another_model(self):
        self.train()
        for key, value in (("model.hidden_size", 32), ("model.num_hidden_layers", 3), ("model.rope_theta", 10000),
                           ("model.tie_word_embeddings", True), ("optimizer.moments", "bf16")):
            with self.subTest(key):
                self.refuse("--resume", changes={**CHANGES, "model.head_dim": 4, key: value}, code=USAGE, says=key)

    def test_another_recipe_is_allowed_and_noted(self):
        self.train(changes={"training.steps": 10, "checkpoint.interval": 0})
        changes = {"training.steps": 14, "checkpoint.interval": 0, "output.directory": "copy"}
        for key, value in (("training.micro_batch_size", 2), ("training.seq_len", 16), ("training.seed", 3),
                           ("optimizer.learning_rate", 0.5), ("data.train", ["text.txt"]),
                           ("lr_schedule.type", "linear")):
            with self.subTest(key):
                shutil.copytree(self.path("run"), self.path("copy"))
                result = self.resume(changes={**changes, key: value})
                self.assertIn(f"note: {key} was ", result.out)
                self.assertIn("note: training.steps was 10 and is now 14\n", result.out)
                self.assertEqual(len(self.log("copy").steps), 14)
                shutil.rmtree(self.path("copy"))
        shutil.copytree(self.path("run"), self.path("copy"))
        result = self.resume(changes={**changes, "checkpoint.keep": 7})
        self.assertEqual(result.out.count("note: "), 1, result)

    def test_another_batch_size_reads_on_in_the_data(self):
        changes = {"data.shuffle": False, "training.steps": 6}
        self.train(changes=changes)
        changes.update({"training.steps": 9, "training.micro_batch_size": 3})
        self.resume("--dump-batches", "rest.npy", changes=changes)
        text, epoch = self.read("short.txt"), (400 - 40 - 1) // 8  # windows of 8 tokens in what is not validation
        first = 6 * 4 % epoch * 8
        self.assertTrue(self.read("rest.npy")[128:].startswith(struct.pack("<8i", *text[first:first + 8])))
        self.assertEqual([record["tokens"] for record in self.log().steps],
                         [32 * step for step in range(1, 7)] + [192 + 24 * step for step in range(1, 4)])

    def test_nothing_to_export_or_evaluate(self):
        for mode in (["--eval"], ["--export", "out"]):
            self.refuse("--resume", *mode, changes=CHANGES, code=RUNTIME, says=["run", "no complete checkpoint"])


if __name__ == "__main__":
    unittest.main()
