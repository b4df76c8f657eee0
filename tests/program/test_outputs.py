"""What a run writes or prints besides its log: batches, timing and trace, the schedule, the plan."""

import ast
import json
import re
import shutil
import struct
import unittest

from program import ProgramTestCase, shard


def read_npy(contents):
    """(shape, values) of a version 1.0 .npy file of little-endian int32 in C order."""
    assert contents[:8] == b"\x93NUMPY\x01\x00"
    length = struct.unpack("<H", contents[8:10])[0]
    assert (10 + length) % 64 == 0 and contents[9 + length:10 + length] == b"\n"
    header = ast.literal_eval(contents[10:10 + length].decode())
    assert header["descr"] == "<i4" and header["fortran_order"] is False and len(header) == 3
    return header["shape"], [value for value, in struct.iter_unpack("<i", contents[10 + length:])]


class DumpBatchesTest(ProgramTestCase):
    SEQ, MICRO, ACCUMULATION, STEPS = 8, 4, 2, 6

    def dumped(self, changes):
        """[(tokens, targets)] of every sequence, in the order in which the run read them."""
        self.train("--dump-batches", "batches.npy", "--overwrite", changes={
            "training.seq_len": self.SEQ, "training.micro_batch_size": self.MICRO, "training.steps": self.STEPS,
            "training.grad_accumulation_steps": self.ACCUMULATION, **changes})
        shape, values = read_npy(self.read("batches.npy"))
        self.assertEqual(shape, (self.STEPS * self.ACCUMULATION, 3, self.MICRO, self.SEQ))
        self.assertEqual(len(values), shape[0] * 3 * self.MICRO * self.SEQ)
        rows = [values[i:i + self.SEQ] for i in range(0, len(values), self.SEQ)]
        pairs = []
        for start in range(0, len(rows), 3 * self.MICRO):
            pairs += zip(rows[start:start + self.MICRO], rows[start + self.MICRO:start + 2 * self.MICRO])
        return pairs

    def windows(self, tokens):
        return [(tokens[i:i + self.SEQ], tokens[i + 1:i + 1 + self.SEQ])
                for i in range(0, len(tokens) - self.SEQ, self.SEQ)]

    def test_in_order(self):
        tokens = [(7 * i * i + i) % 300 for i in range(600)]
        for wide in (False, True):
            with self.subTest(wide=wide):
                self.write("tokens.bin", shard(tokens, wide))
                pairs = self.dumped({"model.vocab_size": 300, "data.train": "tokens.bin", "data.shuffle": False,
                                     "data.val": ["tokens.bin"], "output.directory": f"run{wide}"})
                self.assertEqual(pairs, self.windows(tokens)[:len(pairs)])

    def test_shuffled_over_files_and_epochs(self):
        # 16 + 11 windows: 48 sequences are an epoch and most of another.
        parts = {"part_0.bin": list(range(8 * 16 + 5)), "part_1.bin": list(range(200, 200 + 8 * 11 + 1))}
        for name, tokens in parts.items():
            self.write(name, shard(tokens))
        self.write("val.bin", shard(list(range(9))))
        pairs = self.dumped({"model.vocab_size": 300, "data.train": "part_*.bin", "data.val": "val.bin"})
        windows = self.windows(parts["part_0.bin"]) + self.windows(parts["part_1.bin"])
        epoch = len(windows)
        self.assertEqual(epoch, 27)
        self.assertEqual(sorted(pairs[:epoch]), sorted(windows))
        self.assertNotEqual(pairs[:epoch], windows)
        self.assertNotEqual(pairs[epoch:], pairs[:len(pairs) - epoch])
        self.assertEqual(len({tuple(tokens) for tokens, _ in pairs[epoch:]}), len(pairs) - epoch)

    def test_validation_part_is_never_trained_on(self):
        # Only the last tenth of the tokens are above 9.
        self.write("tokens.bin", shard([i % 10 for i in range(900)] + [10 + i % 50 for i in range(100)]))
        pairs = self.dumped({"data.train": "tokens.bin"})
        self.assertLess(max(max(tokens + targets) for tokens, targets in pairs), 10)

    def test_resumed_run_reads_on_where_it_stopped(self):
        self.dumped({"checkpoint.interval": 2, "checkpoint.keep": 9})
        for name in self.checkpoints()[1:]:
            shutil.rmtree(self.path("run", "checkpoints", name))
        self.run_program("--config", "config.json", "--resume", "--dump-batches", "rest.npy")
        shape, rest = read_npy(self.read("rest.npy"))
        self.assertEqual(shape[0], (self.STEPS - 2) * self.ACCUMULATION)
        self.assertEqual(rest, read_npy(self.read("batches.npy"))[1][-len(rest):])


class TimingTest(ProgramTestCase):
    STEPS, ACCUMULATION = 6, 3

    def setUp(self):
        super().setUp()
        self.result = self.train("--timing", "timing.json", changes={
            "training.steps": self.STEPS, "training.grad_accumulation_steps": self.ACCUMULATION,
            "validation.interval": 3})
        self.timing = json.loads(self.read("timing.json"))
        self.calls = {"first micro-batch": self.STEPS, "further micro-batch": self.STEPS * (self.ACCUMULATION - 1),
                      "update": self.STEPS, "evaluate": 2 * 2}

    def scheduled(self):
        """(pass, layer, name, op) of every step that --print-schedule prints of the passes that training runs."""
        steps, current = [], None
        for line in self.train("--print-schedule").out.splitlines():
            if match := re.match(r"# (.*): (\d+) steps$", line):
                current = match[1]
            elif line and not line.startswith("#"):
                _, layer, name, op = line.split()[:4]
                steps.append((current, -1 if layer == "-" else int(layer), name, op))
        return [step for step in steps if step[0] != "sample"]

    def test_every_step_of_the_schedule(self):
        listed = [(step["pass"], step["layer"], step["name"], step["op"]) for step in self.timing["steps"]]
        self.assertEqual(listed, self.scheduled())
        for step in self.timing["steps"]:
            self.assertEqual(step["calls"], self.calls[step["pass"]], step)
        self.assertEqual({entry["pass"]: entry["calls"] for entry in self.timing["passes"]}, self.calls)

    def test_sums(self):
        steps = self.timing["steps"]
        for entry in self.timing["passes"]:
            of_pass = [step for step in steps if step["pass"] == entry["pass"]]
            self.assertAlmostEqual(entry["total_ms"], sum(step["total_ms"] for step in of_pass), places=6)
            self.assertAlmostEqual(entry["sum_of_medians_ms"], sum(step["median_ms"] for step in of_pass), places=6)
        total = sum(step["total_ms"] for step in steps)
        for group in ("by_layer", "by_op"):
            for key in ("total_ms", "flops", "bytes", "calls"):
                self.assertAlmostEqual(sum(entry[key] for entry in self.timing[group]),
                                       sum(step[key] for step in steps), delta=1e-6 * total + 1e-6)
        # Operations are timed within the steps that the log times.
        training = sum(entry["total_ms"] for entry in self.timing["passes"] if entry["pass"] != "evaluate")
        self.assertLess(training, sum(record["ms"] for record in self.log().steps))

    def test_rates(self):
        for entry in self.timing["steps"] + self.timing["by_op"] + self.timing["by_layer"]:
            seconds = entry["median_ms"] / 1000
            self.assertGreater(seconds, 0)
            self.assertAlmostEqual(entry["gflops_per_s"], entry["flops"] / seconds / 1e9,
                                   delta=1e-9 * entry["flops"] / seconds / 1e9 + 1e-12)
            self.assertAlmostEqual(entry["gb_per_s"], entry["bytes"] / seconds / 1e9,
                                   delta=1e-9 * entry["bytes"] / seconds / 1e9)
        # 4 sequences of 8 tokens, a 16 x 16 matrix: 2 M N K.
        output = [step for step in self.timing["steps"] if step["name"] == "attn_out" and step["phase"] == "forward"]
        self.assertTrue(all(2 * 32 * 16 * 16 <= step["flops"] < 2.5 * 32 * 16 * 16 for step in output), output)

    def test_header(self):
        header = self.timing["header"]
        logged = {key: value for key, value in self.log().header.items() if key != "started"}
        self.assertEqual({key: header[key] for key in ("device", "build", "command", "config")}, logged)

    def test_trace(self):
        trace = json.loads(self.read("timing.trace.json"))
        events = trace["traceEvents"]
        scheduled = self.scheduled()
        count = {name: sum(step[0] == name for step in scheduled) for name in self.calls}
        # The last step, with the validation that follows it.
        self.assertEqual(len(events), count["first micro-batch"] + count["update"] + 2 * count["evaluate"] +
                         (self.ACCUMULATION - 1) * count["further micro-batch"])
        end = 0
        for event in events:
            self.assertEqual(event["ph"], "X")
            self.assertGreaterEqual(event["ts"], end - 0.01)  # one after the other; clocks print rounded microseconds
            end = event["ts"] + event["dur"]
        names = {name if layer < 0 else f"{name} {layer}" for _, layer, name, _ in scheduled}
        self.assertEqual({event["name"] for event in events}, names)

    def test_table_agrees_with_the_file(self):
        rows = re.findall(r"^(forward|backward|update) +(\w+) +(\d+) +([\d.]+) +([\d.]+)% +([\d.]+) +([\d.]+) +(?:-|[\d.]+%)$",
                          self.result.out, re.M)
        self.assertGreater(len(rows), 5)
        by_op = {(entry["phase"], entry["op"]): entry for entry in self.timing["by_op"]}
        for phase, op, calls, total, _, gflops, gbytes in rows:
            entry = by_op[phase, op]
            self.assertEqual(int(calls), entry["calls"])
            self.assertAlmostEqual(float(total), entry["total_ms"], delta=0.051)
            self.assertAlmostEqual(float(gflops), entry["gflops_per_s"], delta=0.051)
            self.assertAlmostEqual(float(gbytes), entry["gb_per_s"], delta=0.051)

    def test_table_without_accumulation(self):
        # A pass that never ran has no part in the rates.
        result = self.train("--timing", "short.json", changes={"output.directory": "short"})
        by_op = {(entry["phase"], entry["op"]): entry for entry in json.loads(self.read("short.json"))["by_op"]}
        rows = re.findall(r"^(forward|backward|update) +(\w+) +\d+ +[\d.]+ +[\d.]+% +([\d.]+) ", result.out, re.M)
        self.assertGreater(len(rows), 5)
        for phase, op, gflops in rows:
            self.assertAlmostEqual(float(gflops), by_op[phase, op]["gflops_per_s"], delta=0.051)

    def test_timing_changes_no_bit(self):
        self.train(changes={"training.steps": self.STEPS, "training.grad_accumulation_steps": self.ACCUMULATION,
                            "validation.interval": 3, "output.directory": "plain"})
        self.assert_same_run("run", "plain")


class PlanTest(ProgramTestCase):
    def plan(self, **changes):
        """(parameters, {memory segment: bytes}) of --dry-run."""
        out = self.train("--dry-run", changes=changes).out
        parameters = int(re.search(r"^parameters +([\d,]+) ", out, re.M)[1].replace(",", ""))
        lines = re.findall(r"^  ([a-z ]+?)  +([\d,]+) B ", out, re.M)
        return parameters, {name: int(value.replace(",", "")) for name, value in lines}, out

    def test_dry_run(self):
        parameters, segments, out = self.plan()
        d, f, layers, kv = 16, 48, 2, 8
        matrices = 2 * 256 * d + layers * (2 * d * d + 2 * kv * d + 3 * d * f)
        self.assertEqual(parameters, matrices + (2 * layers + 1) * d)
        arena = segments.pop("arena")
        self.assertEqual(sum(segments.values()), arena)
        # A tensor begins at a multiple of 64 elements; the matrices are such multiples, the 5 norm weights are not.
        self.assertEqual(segments["gradients"], 4 * (matrices + 5 * 64))
        self.assertEqual(segments["weights"], 2 * segments["gradients"])  # master and working copy
        self.assertEqual(segments["optimizer state"], 2 * segments["gradients"])
        sequences = re.search(r"(\d+) training and (\d+) validation sequences of 8", out)
        train_tokens = len(self.read("text.txt")) - len(self.read("text.txt")) // 10
        self.assertEqual(int(sequences[1]), (train_tokens - 1) // 8)
        self.assertEqual(int(sequences[2]), (len(self.read("text.txt")) // 10 - 1) // 8)
        self.assertEqual(self.tree(), ["config.json", "text.txt"])

        self.train()
        self.assertAlmostEqual(self.log().steps[0]["memory_gib"], arena / 2**30, delta=1e-9)

    def test_settings_that_save_memory(self):
        parameters, plain, _ = self.plan(**{"model.vocab_size": 300})
        tied, segments, _ = self.plan(**{"model.vocab_size": 300, "model.tie_word_embeddings": True})
        self.assertEqual(parameters - tied, 300 * 16)
        self.assertEqual(plain["gradients"] - segments["gradients"], 4 * 320 * 16)  # padded to a multiple of 64
        _, segments, _ = self.plan(**{"model.vocab_size": 300, "optimizer.moments": "bf16"})
        self.assertEqual(2 * segments["optimizer state"], plain["optimizer state"])
        for change in ({"training.lm_head_chunks": 4}, {"training.recompute": "swiglu"}, {"training.recompute": "mlp"}):
            with self.subTest(change=change):
                _, segments, _ = self.plan(**{"model.vocab_size": 300, **change})
                self.assertLess(segments["activations and work space"], plain["activations and work space"])

    def test_print_schedule(self):
        out = self.train("--print-schedule", changes={"training.recompute": "mlp", "training.lm_head_chunks": 2}).out
        for name, count, body in re.findall(r"^# ([a-z -]+): (\d+) steps\n(.*?)\n\n", out, re.M | re.S):
            lines = [line for line in body.splitlines() if not line.startswith("#")]
            self.assertEqual(len(lines), int(count), name)
            total = re.search(r"^# .*: ([\d.]+) GFLOP, ([\d.]+) MB$", body, re.M)
            for column, rounded in ((4, total[1]), (5, total[2])):
                self.assertAlmostEqual(sum(float(line.split()[column]) for line in lines), float(rounded),
                                       delta=0.0005 * (len(lines) + 1))
        self.assertEqual(len(re.findall(r"\bLinearSwiglu\b", out)), 2 * 2 * 2 + 2)  # twice in both training passes
        out = self.train("--print-schedule", "--eval").out
        self.assertEqual(re.findall(r"^# ([a-z -]+): \d+ steps$", out, re.M), ["evaluate"])
        self.assertEqual(self.tree(), ["config.json", "text.txt"])


if __name__ == "__main__":
    unittest.main()
