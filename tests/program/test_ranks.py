"""Several ranks of coda_train, as processes that torch.distributed connects: their bits, and what they refuse."""

import ctypes
import os
import re
import shutil
import signal
import socket
import struct
import sys
import unittest

from program import DONE, RUNTIME, TIMEOUT_S, USAGE, shard
from ranks import CHANGES, LIBRARY, RanksTestCase, held_port, pids_of

# GEMMs of FP8 operands take multiples of 16.
FP8_SIZES = {"model.hidden_size": 48, "model.intermediate_size": 80, "model.num_attention_heads": 6,
             "model.num_key_value_heads": 3, "training.micro_batch_size": 2}


class BitsTest(RanksTestCase):
    def test_one_rank(self):
        # Every file of the checkpoint, and the configuration in it: so all runs have the same name.
        self.train(changes={"checkpoint.interval": 5})
        self.keep("program")
        flags = ("--config", "config.json")
        for name, python, command in (("library", sys.executable, ("coda_torch.train",)),  # needs no torch
                                      ("launcher", self.python, ("coda_torch", "--ranks", "1"))):
            with self.subTest(name):
                self.run_python("-m", *command, *flags, python=python)
                self.assertEqual(self.log().repeatable(), self.log("program").repeatable())
                self.assertEqual(self.checkpoints(), ["step_00000005", "step_00000010", "step_00000012"])
                self.assertEqual(self.tree("run"), self.tree("program"))
                for file in self.tree("run", "checkpoints"):
                    if os.path.isfile(self.path("run", "checkpoints", file)):
                        self.assertEqual(self.read("run", "checkpoints", file),
                                         self.read("program", "checkpoints", file), file)
                self.keep(name)

    def assert_bits(self, counts, changes=None, tolerance=1e-6):
        """Runs of these numbers of ranks: close to one rank's, and each repeated to the bit."""
        changes = {"training.steps": 8, **(changes or {})}
        self.train(changes={**changes, "output.directory": "one"})
        for count in counts:
            with self.subTest(count):
                run, again = f"ranks{count}", f"again{count}"
                result = self.ranks(count, {**changes, "output.directory": run})
                steps = [line for line in result.out.splitlines() if line.startswith("step ")]
                self.assertEqual(len(steps), 8, "each step is said once\n" + result.out)
                self.ranks(count, {**changes, "output.directory": again})
                self.assert_same_run(run, again)
                self.assert_close(run, "one", tolerance)
                self.assertNotEqual(self.state(run), self.state("one"), "sums have another order")

    def test_two_and_four(self):
        self.assert_bits((2, 4))

    def assert_same_first_step(self, count, changes):
        """One rank adds a micro-batch's gradients to the sum of those before, and so do ranks of one micro-batch each,
        in their order. Only the embedding's rows are added one token at a time; the norm's sum has another order."""
        changes = {**changes, "training.grad_accumulation_steps": count, "training.steps": 1,
                   "training.max_grad_norm": 0}
        self.train(changes={**changes, "output.directory": "one"})
        self.ranks(count, {**changes, "output.directory": "ranks"})
        embedding = 256 * {**CHANGES, **changes}["model.hidden_size"] * 4  # bytes; it comes first
        one, ranks = self.segments("one"), self.segments("ranks")
        self.assertEqual(sorted(ranks), ["m.bin", "master.bin", "v.bin"])
        for name, contents in ranks.items():
            self.assertEqual(len(contents), len(one[name]), name)
            self.assertTrue(contents[embedding:] == one[name][embedding:], name)
        self.assertEqual(self.log("ranks").losses(), self.log("one").losses())

    def test_ranks_of_one_micro_batch_each(self):
        self.assert_same_first_step(3, {})

    def test_matrices_with_gaps_between_them(self):
        # Matrices begin at multiples of 64 weights. The matrices of this layer have 800, 400, 1920 and 960 weights.
        self.assert_same_first_step(2, {"model.hidden_size": 20, "model.intermediate_size": 48,
                                        "model.num_attention_heads": 2, "model.num_key_value_heads": 1})

    def test_tied_weights_and_bf16_moments(self):
        self.assert_bits((2,), {"model.tie_word_embeddings": True, "optimizer.moments": "bf16"})

    def test_fp8(self):
        # Where a sum's last bit decides, a code of FP8 differs, by a sixteenth of its value.
        self.assert_bits((2,), {"precision": "fp8", **FP8_SIZES}, tolerance=1e-5)


class ResumeTest(RanksTestCase):
    # No token of step 5 is a target, so the step has no gradient: what it saves is what it has loaded.
    EMPTY = 5
    CHANGES = {"data.train": "tokens.bin", "data.shuffle": False, "lr_schedule.type": "constant",
               "checkpoint.interval": 1, "checkpoint.keep": 20, "validation.interval": 1, "training.steps": 8}

    def setUp(self):
        super().setUp()
        tokens = [(n * n * 7 + n // 3) % 250 for n in range(2000)]
        step = 8 * 12  # sequence, micro-batches
        targets = range((self.EMPTY - 1) * step + 1, self.EMPTY * step + 1)
        self.write("tokens.bin", shard(tokens))
        self.write("tokens.mask", struct.pack("<256i", 20251125, 1, len(tokens), *[0] * 253) +
                   bytes(n not in targets for n in range(len(tokens))))

    def test_another_number_of_ranks(self):
        self.ranks(2, {**self.CHANGES, "output.directory": "whole"})
        self.assertIsNone(self.log("whole").losses()[self.EMPTY - 1])
        self.assertEqual(self.state("whole", 5), self.state("whole", 4))
        self.assertNotEqual(self.state("whole", 6), self.state("whole", 5))

        self.ranks(2, {**self.CHANGES, "training.steps": 4})
        self.assertEqual(self.state(), self.state("whole", 4))
        shutil.copytree(self.path("run"), self.path("four"))

        # 2, 1 for the step that changes nothing, 2: the bits of 2 all along.
        self.train("--resume", changes={**self.CHANGES, "training.steps": 5})
        self.assertEqual(self.state(), self.state("whole", 5))
        self.ranks(2, self.CHANGES, "--resume")
        self.assert_same_run("run", "whole")

        # 2, then 4: the same files again, and another order of sums from there on.
        self.ranks(4, {**self.CHANGES, "output.directory": "four"}, "--resume")
        self.assertEqual(self.state("four", 5), self.state("whole", 5))
        self.assertNotEqual(self.state("four", 6), self.state("whole", 6))
        for loss, expected in zip(self.log("four").losses()[5:], self.log("whole").losses()[5:], strict=True):
            self.assertAlmostEqual(loss, expected, delta=1e-6 * expected)


class DifferentRanksTest(RanksTestCase):
    def refuse_each(self, code, says, flags=([], []), **options):
        """2 ranks that differ, and must say so alike."""
        before = self.tree()
        results = self.each_rank(flags, **options)
        self.assert_told_once(results, code, says)
        self.assertEqual(results[0].out, "")
        self.assertEqual(self.tree(), before)

    def test_configurations_and_flags(self):
        self.config()
        for flags, says in (
                ((["--training.seed", "1"], ["--training.seed", "2"]),
                 "coda_train: training.seed is 1 for rank 0 and 2 for rank 1: all ranks need the same"),
                (([], ["--resume"]), "coda_train: rank 0 was started as coda_train --config config.json and rank 1 as "
                                     "coda_train --config config.json --resume: all ranks need the same"),
                (([], ["--colour"]), "coda_train: rank 1: unknown flag --colour")):
            with self.subTest(flags):
                self.refuse_each(USAGE, says, flags)

    def test_builds(self):
        library = ctypes.CDLL(LIBRARY)
        library.coda_build.restype = ctypes.c_char_p
        build = library.coda_build()
        # The text may lie in several pieces. The first one has the version.
        piece = re.match(rb"coda_train \d", build)[0]
        with open(LIBRARY, "rb") as file:
            contents = file.read()
        place = contents.index(build[:len(piece) + 8]) + len(piece) - 1
        self.write("other.so", contents[:place] + b"9" + contents[place + 1:])
        other = (build[:len(piece) - 1] + b"9" + build[len(piece):]).decode()
        self.config()
        self.refuse_each(USAGE, f"coda_train: rank 0 runs {build.decode()} and rank 1 runs {other}: all ranks need the",
                         environments=({}, {"CODA_LIBRARY": self.path("other.so")}))

    def test_data(self):
        self.config()
        folders = self.separate_folders()
        self.write(os.path.join("1", "text.txt"), self.read("text.txt").swapcase())
        self.refuse_each(RUNTIME, "coda_train: rank 1 reads other data than rank 0: data.train and data.val must be the "
                         "same files for all ranks", folders=folders)

    def test_folders(self):
        # output.directory is relative, so each rank has its own. A run finds that out when it saves.
        self.config({"training.steps": 1})
        folders = self.separate_folders()
        results = self.each_rank(([], []), folders)
        self.assert_told_once(results, RUNTIME, "coda_train: the checkpoint of step 1 was not written: rank 1: open "
                              "run/checkpoints/.tmp-step_00000001/master.bin: No such file or directory")
        shutil.rmtree(self.path("0", "run"))
        self.train(changes={"training.steps": 1})
        os.rename(self.path("run"), self.path("0", "run"))
        self.refuse_each(RUNTIME, "coda_train: the newest checkpoint in run is of step 1 for rank 0 and of step 0 for "
                         "rank 1 (0: there is none): all ranks need the same output.directory",
                         (["--resume"], ["--resume"]), folders=folders)


class RefusedTest(RanksTestCase):
    def test_micro_batches_that_cannot_be_shared(self):
        self.refuse_ranks({"training.grad_accumulation_steps": 3}, code=USAGE, says=(
            "training.grad_accumulation_steps is 3, and 2 ranks share", "it must be a multiple of 2, such as 4"))

    def test_evaluation(self):
        self.refuse_ranks({}, "--eval", code=USAGE,
                          says="--eval and --export use one GPU: start coda_train, or one rank")

    def test_usage_of_the_launcher(self):
        for flags in ((), ("--ranks",), ("--ranks", "0"), ("--ranks", "-1"), ("--ranks", "two"), ("--ranks", "\u00b2"),
                      ("--config", "config.json"), ("--config", "config.json", "--ranks", "2"), ("--help",)):
            with self.subTest(flags):
                result = self.run_python("-m", "coda_torch", *flags, python=sys.executable, expect=USAGE)
                self.assertIn("python3 -m coda_torch --ranks 2 --config", result.err)
                self.assertNotIn("Traceback", result.err)
                self.assertEqual(result.out, "")


class DryRunTest(RanksTestCase):
    def arena(self, out):
        return int(re.search(r"(?m)^  arena +([\d,]+) B ", out)[1].replace(",", ""))

    def test_memory(self):
        config = self.config()
        plans = {count: self.run_program("--config", config, "--dry-run", "--ranks", str(count)).out
                 for count in (1, 2, 4)}
        self.assertEqual(self.arena(plans[1]), self.arena(self.run_program("--config", config, "--dry-run").out))
        self.assertLess(self.arena(plans[2]), self.arena(plans[1]))
        self.assertLess(self.arena(plans[4]), self.arena(plans[2]))

        def planned(out):
            return [line for line in out.splitlines() if not line.startswith(("fits ", "time on the CPU"))]

        self.assertEqual(planned(self.ranks(2, None, "--dry-run").out), planned(plans[2]))
        said = re.search(r"arena ([\d.]+ \w+),", self.ranks(2, {"training.steps": 1}).out)[1]
        self.assertRegex(plans[2], rf"(?m)^  arena .* {re.escape(said)}$")


class TorchrunTest(RanksTestCase):
    def test_bits_after_a_restart(self):
        # So many that they do not end before the kill.
        changes = {"training.steps": 200, "checkpoint.interval": 25}
        self.ranks(2, {**changes, "output.directory": "launcher"})
        # With Python 3.11 and later torch 1.13 fails over the default of --redirects and --tee. A rank that does not
        # exist gives them another value.
        process = self.start_launcher(
            "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "--monitor_interval", "0.1",
            "--redirects", "9:1", "--tee", "9:1", "--max_restarts", "1", "-m", "coda_torch.train", "--config",
            self.config(changes), "--resume")
        self.wait_until(lambda: self.logged_steps() >= 30, process, "30 steps")
        os.kill(pids_of(process)[0], signal.SIGKILL)
        self.assertEqual(process.wait(TIMEOUT_S), DONE, self.errors())
        self.assertEqual(len(self.log().starts), 1, "the ranks were started again")
        self.assert_same_run("run", "launcher")


class HeldPortTest(unittest.TestCase):
    def test_only_the_store_gets_it(self):
        with held_port() as port, socket.socket() as other, socket.socket() as store:
            with self.assertRaises(OSError):
                other.bind(("127.0.0.1", port))
            store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as torch.distributed does
            store.bind(("", port))
            store.listen()


if __name__ == "__main__":
    unittest.main()
