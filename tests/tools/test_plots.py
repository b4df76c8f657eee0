"""The pictures of plot_loss.py, compare_loss.py --plot, plot_decode.py and plot_timeline.py, and the smoothing of noisy
curves."""

import json
import math
import os
import struct
import subprocess
import sys
import unittest

from logs import LogTestCase, run_tool, steps

import plot_timeline
import plotting


def some_python_has_matplotlib():
    for interpreter in (sys.executable, *plotting.INTERPRETERS):
        command = [interpreter, "-c", "import matplotlib"]
        if os.path.exists(interpreter) and subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return True
    return False


class SmoothingTest(unittest.TestCase):
    def test_mean_of_neighbours(self):
        self.assertEqual(plotting.smoothed([0.0, 3.0, 0.0, 3.0, 0.0], 1), [0.0, 1.0, 2.0, 1.0, 1.5])

    def test_a_straight_line_keeps_its_start(self):
        self.assertEqual(plotting.smoothed([8.0, 6.0, 4.0, 2.0, 0.0, -2.0], 2)[:4], [8.0, 6.0, 4.0, 2.0])

    def test_gaps_stay_and_spread_nothing(self):
        values = plotting.smoothed([2.0, math.nan, 4.0, 6.0], 1)
        self.assertTrue(math.isnan(values[1]))
        self.assertEqual([values[0], values[2], values[3]], [2.0, 5.0, 5.0])


@unittest.skipUnless(some_python_has_matplotlib(), "no Python here has matplotlib (apt-get install python3-matplotlib)")
class PictureTest(LogTestCase):
    def assert_picture(self, path):
        with open(path, "rb") as file:
            head = file.read(24)
        self.assertEqual(head[:8], b"\x89PNG\r\n\x1a\n")
        width, height = struct.unpack(">II", head[16:24])
        self.assertGreater(width, 1000)
        self.assertGreater(height, 500)

    def plot(self, *arguments):
        status, out, err = run_tool("plot_loss.py", *arguments)
        self.assertEqual(status, 0, err)
        return out.strip()

    def test_default_is_beside_the_log(self):
        log = self.write("log.jsonl", [*steps(3.0, None, 1.0), {"step": 3, "val_loss": 1.5}], end='{"step"')
        self.assertEqual(self.plot(log), self.path("loss.png"))
        self.assert_picture(self.path("loss.png"))

    def test_several_runs_of_any_length(self):
        noisy = steps(*(3.0 + math.sin(i) for i in range(300)))
        validations = [{"step": 0, "val_loss": None}, {"step": 9, "val_loss": 2.0}]
        runs = {"a": noisy, "b": steps(2.0), "c": steps(None, None), "d": validations}
        logs = [self.write(f"{name}.jsonl", records) for name, records in runs.items()]
        self.plot(*logs, "--out", self.path("all.png"), "--title", "Four runs")
        self.assert_picture(self.path("all.png"))

    def test_picture_of_a_comparison(self):
        a, b = self.write("a.jsonl", steps(3.0, 2.0, None)), self.write("b.jsonl", steps(3.0, 1.0, 1.0, 0.5))
        status, out, err = run_tool("compare_loss.py", a, b, "--plot", self.path("both.png"))
        self.assertEqual((status, err), (1, ""))
        self.assertIn("DIFFERENT: step 2", out)
        self.assert_picture(self.path("both.png"))

    def trace(self, kinds=("qkv", "attention", "attn_out", "gate_up", "down", "qkv", "attention", "attn_out", "gate_up",
                           "down", "head")):
        """Two SMs with a consumer and an epilogue warp each, as coda_bench decode --trace writes them."""
        events = [{"ph": "M", "name": "thread_name", "pid": sm, "tid": warp, "args": {"name": name}}
                  for sm in (0, 1) for warp, name in ((0, "consumer 0"), (8, "epilogue 0"))]
        for stage, kind in enumerate(kinds):
            for sm in (0, 1):
                for warp in (0, 8):
                    at = {"ph": "X", "cat": kind, "pid": sm, "tid": warp, "args": {"op": stage}}
                    events += [at | {"name": "wait", "ts": 10.0 * stage, "dur": 4.0 + sm},
                               at | {"name": kind, "ts": 10.0 * stage + 4 + sm, "dur": 3.0}]
        return self.file(f"{len(kinds)}.trace.json", {"traceEvents": events})

    def file(self, name, value):
        with open(self.path(name), "w", encoding="utf-8") as file:
            json.dump(value, file)
        return self.path(name)

    def test_picture_of_a_decode_layer(self):
        status, out, err = run_tool("plot_decode.py", self.trace(), "--layer", "1", "--out", self.path("layer.png"))
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(out.strip(), self.path("layer.png"))
        self.assert_picture(self.path("layer.png"))

    def test_trace_of_something_else(self):
        for arguments, message in (((self.trace(), "--layer", "2"), "has no layer 2: they are 0 to 1"),
                                   ((self.trace(("qkv", "head")),), "are not qkv, attention"),
                                   ((self.file("x.json", {"events": []}),), "is not a trace of coda_bench decode"),
                                   ((self.path("none.json"),), "none.json: No such file")):
            status, _, err = run_tool("plot_decode.py", *arguments)
            self.assertEqual(status, 2)
            self.assertIn(message, err)
            self.assertNotIn("Traceback", err)

    def stamps(self, name, steps_of_launch):
        """Launches of two warpgroups, as coda_bench attention prints them, whose clocks pass 2^32."""
        lines = ["forward B2 T8192 H32/8 D128 | 1.0 ms"]
        for launch, count in enumerate(steps_of_launch):
            marks = ("step", "turn", "S done") if launch == 0 else ("step", "dQ passed", "S done")
            for role in (1, 2):
                clocks = (2**32 - 500 + 300 * role + 100 * i for i in range(3 * count))
                lines += [f"stamp\t{role}\t{clock % 2**32}\t{marks[i % 3]}" for i, clock in enumerate(clocks)]
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        return self.path(name)

    def test_clocks_that_begin_again(self):
        launch = plot_timeline.launches(self.stamps("stamps.txt", (1,)))[0]
        self.assertEqual(plot_timeline.since_first(launch),
                         {1: [(0, "step"), (100, "turn"), (200, "S done")],
                          2: [(300, "step"), (400, "turn"), (500, "S done")]})
        later = {2: launch[2], 1: launch[1]}  # the first role's clock has begun again, the other's has not
        self.assertEqual(plot_timeline.since_first(later)[1][0], (0, "step"))

    def test_picture_of_attention_s_loops(self):
        status, out, err = run_tool("plot_timeline.py", self.stamps("stamps.txt", (5, 5)), "--first", "1")
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(out.strip(), self.path("stamps.png"))
        self.assert_picture(self.path("stamps.png"))

    def test_stamps_of_something_else(self):
        for arguments, message in (((self.stamps("short.txt", (4,)), "--first", "1"), "has 3 whole steps, not 4"),
                                   ((self.stamps("none.txt", ()),), "has no stamps: it is the output of"),
                                   ((self.path("absent.txt"),), "absent.txt: No such file")):
            status, _, err = run_tool("plot_timeline.py", *arguments)
            self.assertEqual(status, 2)
            self.assertIn(message, err)
            self.assertNotIn("Traceback", err)

    def test_picture_that_cannot_be_written(self):
        log = self.write("a.jsonl", steps(3.0))
        for out in (self.path("none/loss.png"), self.path("loss.docx")):
            for command in (("plot_loss.py", log, "--out", out), ("compare_loss.py", log, log, "--plot", out)):
                status, _, err = run_tool(*command)
                self.assertEqual(status, 2)
                self.assertIn(out, err)
                self.assertNotIn("Traceback", err)

    def test_bad_log(self):
        status, _, err = run_tool("plot_loss.py", self.path("none.jsonl"))
        self.assertEqual(status, 2)
        self.assertIn("none.jsonl: No such file", err)


if __name__ == "__main__":
    unittest.main()
