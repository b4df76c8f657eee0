"""tools/campaign/drift with a program that leaks, slows down or forgets when told to, and its arithmetic."""

import gzip
import json
import math
import os
import random
import re
import sys
import unittest

from logs import TOOLS, LogTestCase, run_tool

sys.path.insert(0, os.path.join(TOOLS, "campaign"))
import drift_verdict  # noqa: E402
from drift_verdict import Limits  # noqa: E402

# Writes a step per 2 ms; the time in the log is what it is told, not what it takes.
PROGRAM = """#!PYTHON
import json, os, sys, time
directory = sys.argv[sys.argv.index("--output.directory") + 1]
run = int(directory[-1])
config = json.load(open(sys.argv[sys.argv.index("--config") + 1]))
os.makedirs(directory)
kept, loss, ms = [], 5.5, 2.0
with open(os.path.join(directory, "log.jsonl"), "w") as log:
    log.write(json.dumps({"config": config}) + "\\n")
    for step in range(1, 100000):
        loss = 0.999 * loss if loss else 5.0
        BEHAVE
        log.write(json.dumps({"step": step, "loss": loss, "ms": ms}) + "\\n")
        log.flush()
        time.sleep(0.002)
"""


class DriftTest(LogTestCase):
    def drift(self, behave, *arguments, expect=0):
        os.makedirs(self.path("bin"), exist_ok=True)
        with open(self.path("bin/coda_train"), "w", encoding="utf-8") as file:
            file.write(PROGRAM.replace("PYTHON", sys.executable).replace("BEHAVE", behave))
        os.chmod(self.path("bin/coda_train"), 0o755)
        status, out, err = run_tool("campaign/drift", "--device", "cpu", "--bin", self.path("bin"), "--minutes",
                                    "0.012", "--out", self.path("out"), "--runs", "2", *arguments)
        self.assertEqual(status, expect, out + err)
        return out + err

    def test_no_drift(self):
        out = self.drift("pass", "--record", "--gpu", "NVIDIA H200", "--results", self.path("results"))
        self.assertIn("2 runs: no drift", out)
        with open(self.path("results/h200_reliability.json"), encoding="utf-8") as file:
            record, = json.load(file)["records"]
        self.assertEqual((record["campaign"], record["runs"], record["failures"]), ("drift tiny", 2, 0))
        again = run_tool("campaign/drift", "--judge", self.path("out/measured.json"))
        self.assertEqual(again[0], 0, again)
        self.assertIn("no drift", again[1])

    def test_a_leak(self):
        self.assertRegex(self.drift("kept.append(os.urandom(65536))", expect=1),
                         r"FAILED run 1: resident memory grows by \d+\.\d+ MiB over the run, at most 2.0")

    def test_slower_and_slower(self):
        out = self.drift("ms = 2.0 * (1 + 0.0001 * step)", expect=1)
        self.assertRegex(out, r"FAILED run 1: ms per step change by \+\d\.\d+% after the warm-up")
        self.assertEqual(run_tool("campaign/drift", "--judge", self.path("out/measured.json"))[0], 1)
        self.assertEqual(run_tool("campaign/drift", "--judge", self.path("out/measured.json"), "--trend", "50")[0], 0)

    def test_another_loss(self):
        self.assertRegex(self.drift("loss -= 1e-9 * (run == 2 and step == 40)", expect=1),
                         r"FAILED loss of step 40: \S+ in run 1, \S+ in run 2")

    def test_runs_that_were_measured_apart(self):
        self.drift("pass", "--runs", "1")
        with open(self.path("out/measured.json"), encoding="utf-8") as file:
            first = json.load(file)
        first["config"]["data"]["train"] = "/elsewhere/tokens.bin"
        for name, change in (("same", {}), ("longer", {"seq_len": 64})):
            first["config"]["training"].update(change)
            with open(self.path(name), "w", encoding="utf-8") as file:
                json.dump(first, file)
        with open(self.path("same"), "rb") as file, gzip.open(self.path("same.gz"), "wb") as packed:
            packed.write(file.read())
        status, out, _ = run_tool("campaign/drift", "--judge", self.path("same.gz"), self.path("out/measured.json"))
        self.assertEqual(status, 0)
        self.assertIn("2 runs: no drift", out)
        status, _, err = run_tool("campaign/drift", "--judge", self.path("same"), self.path("longer"))
        self.assertEqual(status, 1)
        self.assertIn(f"longer: its configuration differs from {self.path('same')}'s", err)
        self.drift("loss -= 1e-9 * (step == 40)", "--runs", "1")
        status, out, _ = run_tool("campaign/drift", "--judge", self.path("same"), self.path("out/measured.json"))
        self.assertEqual(status, 1)
        self.assertRegex(out, r"FAILED loss of step 40: \S+ in run 1, \S+ in run 2")

    def test_a_run_that_fails(self):
        out = self.drift("step < 30 or sys.exit('no memory')", expect=1)
        self.assertIn("run1 ended with 1: no memory", out)

    def test_a_lost_step(self):
        self.assertIn("FAILED run 1: the log lacks steps", self.drift("\n        if step == 33: continue", expect=1))

    def test_a_loss_that_is_not_finite(self):
        self.assertIn("FAILED run 1: a loss is not finite",
                      self.drift("loss = None if step == 20 else 5.0", expect=1))

    def test_usage(self):
        for arguments, said in ((["--minutes", "0"], "--minutes"), (["--data", "/nowhere"], "no file /nowhere"),
                                (["--colour", "red"], "unknown argument '--colour'")):
            status, _, err = run_tool("campaign/drift", *arguments)
            self.assertEqual(status, 2)
            self.assertIn(said, err)
        status, _, err = run_tool("campaign/drift", "--judge", self.path("nothing.json"))
        self.assertEqual(status, 1)
        self.assertIn("no measurement", err)


def gpu_run(seconds=480, drift=0.0, exponent=-0.7, device=lambda s: 68000.0, rss=lambda s: 900000):
    """A run of 0.42 s per step on a GPU whose clock falls as it warms up; ms follow the clock, and drift."""
    chance = random.Random(3)
    steps, samples, now = [], [], 0.0
    for s in range(seconds):
        mhz = 1875 - 60 * (1 - math.exp(-s / 300)) + chance.choice([-15, 0, 15])
        while now < s:
            ms = 420 * (mhz / 1875) ** exponent * (1 + drift * s / seconds) * (1 + chance.gauss(0, 0.0005))
            steps.append((len(steps) + 1, str(10 / (len(steps) + 1)), ms))
            now += ms / 1000
        samples.append({"s": float(s), "steps": len(steps), "rss_kib": rss(s), "sm_mhz": mhz, "device_mib": device(s)})
    return {"steps": steps, "samples": samples}


class VerdictTest(unittest.TestCase):
    def problems(self, **changes):
        return drift_verdict.problems([gpu_run(**changes)], Limits())

    def test_a_clock_that_falls_is_no_drift(self):
        run = gpu_run()
        raw, corrected, exponent = drift_verdict.time_trend(run, Limits())
        self.assertGreater(raw, 0.005)
        self.assertLess(abs(corrected), 0.0015)
        self.assertLess(abs(exponent + 0.7), 0.2)
        self.assertEqual(drift_verdict.problems([run, run], Limits()), [])

    def test_drift_beside_the_clock(self):
        for drift in (0.012, -0.012):
            found, = self.problems(drift=drift)
            change = float(re.search(r"change by ([-+]\d\.\d+)%", found)[1])
            self.assertLess(abs(change - 100 * drift / 2), 0.2)  # half of the run counts

    def test_the_warm_up_does_not_count(self):
        run = gpu_run()
        for number, (step, loss, ms) in enumerate(run["steps"]):
            run["steps"][number] = (step, loss, ms * (0.98 if number < len(run["steps"]) * 0.4 else 1))
        self.assertEqual(drift_verdict.problems([run], Limits()), [])
        self.assertIn("after the warm-up", drift_verdict.problems([run], Limits(warm_up=0.1))[0])

    def test_device_memory(self):
        found, = self.problems(device=lambda s: 68000.0 + 2 * (s > 300))
        self.assertIn("device memory after step 10 is from 68000 to 68002 MiB", found)
        self.assertEqual(self.problems(device=lambda s: 68000.0 if s > 4 else 60000.0), [])

    def test_resident_memory(self):
        found, = self.problems(rss=lambda s: 900000 + 5 * s)
        self.assertIn("resident memory grows by 2.3", found)
        self.assertEqual(self.problems(rss=lambda s: 900000 + 4 * s + 10000 * (s == 100)), [])

    def test_too_little_was_seen(self):
        self.assertIn("only 3 samples after step 10", self.problems(seconds=8)[0])

    def test_runs_of_different_length(self):
        short = gpu_run(seconds=200)
        self.assertEqual(drift_verdict.loss_problems([gpu_run(seconds=300), short]), [])
        self.assertIn("one run made", drift_verdict.loss_problems([gpu_run(), short])[0])

    def test_slope(self):
        self.assertEqual(drift_verdict.slope([(0, 1), (1, 3), (2, 500), (3, 7), (4, 9)]), 2)
        self.assertEqual(drift_verdict.slope([(1, 1), (1, 2)]), 0)
        self.assertAlmostEqual(drift_verdict.slope([(x, 0.5 * x) for x in range(5000)]), 0.5)


if __name__ == "__main__":
    unittest.main()
