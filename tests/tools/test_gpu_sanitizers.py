"""tools/campaign/gpu_sanitizers with a compute-sanitizer that says what the real one does."""

import json
import os
import signal
import subprocess
import sys
import time
import unittest

from logs import TOOLS, LogTestCase, run_tool

TRAIN = "#!/bin/bash\necho step 1\n"
SANITIZER = """#!/bin/bash
tool=$2
echo "$*" >> FOLDER/calls
echo "========= COMPUTE-SANITIZER"
MODE
case $tool in
    racecheck) echo "========= RACECHECK SUMMARY: ${count:-0} hazards displayed (${count:-0} errors, 0 warnings)";;
    *) echo "========= ERROR SUMMARY: ${count:-0} errors";;
esac
"""
INVALID = """if [[ $tool == memcheck && "$*" == *oracle* ]]; then
    count=COUNT
    echo "========= Invalid __global__ read of size 4 bytes"
    echo "=========     at coda::grad_norm(float*)+0x120"
    echo "=========     by thread (3,0,0) in block (1,0,0)"
    echo "========= "
fi"""
UNINITIALISED = """if [[ $tool == initcheck ]]; then
    report() {
        echo "========= Uninitialized __global__ memory read of size 2 bytes"
        echo "=========     at $1+0x1e"
        echo "=========     by thread ($2,0,0) in block (2,0,0)"
        echo "========= "
    }
    drop() { echo "========= Warning: Error buffer overflow has been detected. Some records have been dropped"; }
    SEQUENCE
    echo "========= 1008 errors were skipped (error buffer overflow)."
    count=COUNT
fi"""
HAZARD = """if [[ $tool == racecheck && "$*" == *documents* ]]; then
    count=1
    echo "========= Warning: Race reported between Write access at coda::attention()+0x80"
    echo "=========     and Read access at coda::attention()+0x90 [16 hazards]"
    echo "========= "
fi"""


DECODE = "coda::hopper::decode::"
# Accesses as racecheck names them: kind, function and source.
GIVE = ("Write", DECODE + "store_partials(const coda::hopper::decode::WarpContext &, int)", "gemm.cuh:75")
ADD = ("Read", DECODE + "GemmEpilogue::reduce_partials(coda::hopper::decode::GemmEpilogue::Task &, int, int) const",
       "gemm_epilogue.cuh:132")
UNIT = ("Write", DECODE + "AttentionWarp<(int)64, (bool)0>::write(float *) const", "attention.cuh:245")
JOIN = ("Read", DECODE + "AttentionEpilogue<(int)128>::join_warps(const coda::hopper::decode::AttentionTile &, int) const",
        "/a/attention_epilogue.cuh:63")
RELEASE = ("Write", "coda::hopper::ptx::store_shared_release(unsigned int, unsigned int)", "mbarrier_poll.cuh:35")
ACQUIRE = ("Read", "coda::hopper::ptx::load_shared_acquire(unsigned int)", "mbarrier_poll.cuh:30")
NO_SOURCE = ("Read", "void coda::hopper::decode::fused_decode<(int)64, (bool)1, (bool)0>(coda::hopper::decode::Arguments)", "")
CHOICE = ("Read", "[clone void coda::hopper::decode::fused_decode<(int)64, (bool)0, (bool)1>(coda::hopper::decode::Arguments)] "
          "coda::hopper::decode::run_choice(const coda::hopper::decode::fused_decode::Arguments &, char *)", "")
COPY = ("Write", "coda::hopper::ptx::bulk_stream(unsigned int, const void *, unsigned int)", "stream.cuh:19")
MULTIPLY = ("Read", "coda::hopper::decode::load_vector(const char *)", "multiply.cuh:22")
CHOOSE = ("Write", "void coda::hopper::choice::choose_warp<coda::hopper::decode::ConsumerBlock>(const T1 &, unsigned long)",
          "row_choice.cuh:197")
TOKEN = ("Read", "int coda::hopper::choice::token_of<__nv_bfloat16, coda::hopper::decode::ConsumerBlock>(const "
         "coda::hopper::choice::Row<T1> &, unsigned long)", "row_choice.cuh:235")


def races(*pairs):
    """Reports of racecheck in the mode samples_fused: of each pair the kind, function, and source of both accesses."""
    lines = [f'if [[ $tool == racecheck && "$*" == *fused* ]]; then count={len(pairs)}']
    for first, second in pairs:
        for text, (kind, function, source), end in (("Error: Race reported between", first, ""),
                                                    ("    and", second, " [64 hazards]")):
            place = f" in {source}" if source else ""
            lines.append(f'echo "========= {text} {kind} access at {function}+0x1e0{place}{end}"')
    return "\n".join([*lines, "fi"])


class GpuSanitizersTest(LogTestCase):
    def check(self, mode, *arguments, expect=0, train=TRAIN):
        os.makedirs(self.path("bin"), exist_ok=True)
        for name, text in (("bin/coda_train", train), ("bin/coda_generate", train),
                           ("sanitizer", SANITIZER.replace("MODE", mode).replace("FOLDER", self.folder))):
            with open(self.path(name), "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(self.path(name), 0o755)
        status, out, err = run_tool("campaign/gpu_sanitizers", "--bin", self.path("bin"), "--sanitizer",
                                    self.path("sanitizer"), "--log", self.path("logs"), "--results",
                                    self.path("results"), *arguments)
        self.assertEqual(status, expect, out + err)
        return out + err

    def rules(self, *rules):
        with open(self.path("allowed.json"), "w", encoding="utf-8") as file:
            json.dump(rules, file)
        return "--allowed", self.path("allowed.json")

    def test_every_tool_runs_every_mode(self):
        out = self.check("", "--record", "--gpu", "NVIDIA H200", "--tool-option",
                         "racecheck:--racecheck-memcpy-async=no")
        modes = run_tool("campaign/gpu_sanitizers", "--list")[1].splitlines()
        with open(self.path("calls"), encoding="utf-8") as file:
            calls = file.read().splitlines()
        self.assertEqual(len(calls), 4 * len(modes))
        for tool in ("memcheck", "racecheck", "initcheck", "synccheck"):
            self.assertRegex(out, rf"{tool} +{len(modes)} modes, 0 failures, 0 allowed")
            self.assertEqual(sum(f"--tool {tool} " in call for call in calls), len(modes))
        self.assertEqual(sum("--racecheck-memcpy-async=no" in call for call in calls), len(modes))
        with open(self.path("results/h200_reliability.json"), encoding="utf-8") as file:
            self.assertEqual([record["campaign"] for record in json.load(file)["records"]],
                             ["memcheck", "racecheck", "initcheck", "synccheck"])

    def test_a_campaign_that_is_stopped_leaves_nothing_running(self):
        """The sanitizer's program is in a session of its own, and it ignores SIGTERM."""
        started = self.path("started")
        program = f"setsid bash -c 'trap \"\" TERM; echo $$ >> {started}; sleep 300; :' & wait"
        sanitizer = SANITIZER.replace("MODE", program).replace("FOLDER", self.folder)
        os.makedirs(self.path("bin"))
        for name, text in (("bin/coda_train", TRAIN), ("bin/coda_generate", TRAIN), ("sanitizer", sanitizer)):
            with open(self.path(name), "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(self.path(name), 0o755)
        campaign = subprocess.Popen([sys.executable, "-B", os.path.join(TOOLS, "campaign", "gpu_sanitizers"), "--bin",
                                     self.path("bin"), "--sanitizer", self.path("sanitizer"), "--log",
                                     self.path("logs"), "--results", self.path("results"), "--jobs", "2", "--record",
                                     "--gpu", "NVIDIA H200"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                    text=True)
        self.addCleanup(campaign.kill)
        self.assertTrue(self.becomes_true(lambda: len(self.lines(started)) == 2), "two runs start")
        campaign.terminate()
        out, _ = campaign.communicate(timeout=20)
        self.assertEqual(campaign.returncode, 128 + signal.SIGTERM, out)
        self.assertEqual(len(self.lines(started)), 2, "no further run starts")
        for pid in self.lines(started):
            self.assertTrue(self.becomes_true(lambda pid=pid: self.has_ended(pid)), f"{pid} still runs")
        self.assertFalse(os.path.exists(self.path("results")), "nothing is recorded")

    @staticmethod
    def has_ended(pid):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                return file.read().rpartition(") ")[2].startswith("Z")  # nobody has asked for its status yet
        except FileNotFoundError:
            return True

    @staticmethod
    def lines(path):
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as file:
            return file.read().split()

    @staticmethod
    def becomes_true(condition):
        end = time.monotonic() + 20
        while not condition() and time.monotonic() < end:
            time.sleep(0.02)
        return condition()

    def test_an_error_and_a_hazard(self):
        out = self.check(INVALID.replace("COUNT", "1") + "\n" + HAZARD, expect=1)
        self.assertIn("FAILED memcheck oracle: Invalid __global__ read of size 4 bytes | at coda::grad_norm", out)
        self.assertRegex(out, r"memcheck +\d+ modes, 3 failures")  # of oracle, oracle_everything and fp8_oracle
        self.assertIn("FAILED racecheck documents: Warning: Race reported between Write access", out)
        with open(self.path("logs/racecheck_documents.log"), encoding="utf-8") as file:
            self.assertIn("[16 hazards]", file.read())

    def test_what_is_allowed_is_said(self):
        rule = {"tool": "racecheck", "pattern": r"attention\(\)\+0x80\n.*Read access",
                "reason": "a reason in a sentence"}
        out = self.check(HAZARD, *self.rules(rule), "--only", "racecheck")
        self.assertRegex(out, r"racecheck +\d+ modes, 0 failures, 1 allowed")
        self.assertIn("allowed 1: a reason in a sentence", out)
        out = self.check(HAZARD, *self.rules(rule | {"tool": "memcheck"}), "--only", "racecheck", expect=1)
        self.assertIn("FAILED racecheck documents", out)
        out = self.check(HAZARD, *self.rules(rule | {"reason": ""}), expect=1)
        self.assertIn("with a reason in a sentence", out)

    def uninitialised(self, sequence, count, *arguments, expect=0):
        rule = {"tool": "initcheck", "pattern": r"^Uninitialized __global__ memory read of size 2 bytes\nat (coda::)?known\(",
                "reason": "stored by TMA, which the tool does not see"}
        return self.check(UNINITIALISED.replace("SEQUENCE", sequence).replace("COUNT", str(count)), "--only",
                          "initcheck", *(arguments or ("--modes", "base", *self.rules(rule))), expect=expect)

    def test_records_that_a_launch_dropped(self):
        full = 'for i in {1..256}; do report "known(Arguments)" $i; done; drop; '
        self.assertRegex(self.uninitialised(full + full, 514), "1 modes, 0 failures, 515 allowed")
        out = self.uninitialised('for i in {1..255}; do report "known(Arguments)" $i; done; drop', 256, expect=1)
        self.assertRegex(out, "1 modes, 2 failures, 255 allowed")  # too few reports before it: it is of another launch
        mixed = 'report "coda::known(Arguments)" 1; for i in {2..256}; do report "known(Arguments)" $i; done; drop'
        self.assertRegex(self.uninitialised(mixed, 257, expect=1), "1 modes, 2 failures, 256 allowed")
        other = 'for i in {1..256}; do report "other(Arguments)" $i; done; drop'
        self.assertRegex(self.uninitialised(other, 257, expect=1), "1 modes, 258 failures, 0 allowed")

    def test_a_rule_for_some_modes(self):
        rule = {"tool": "initcheck", "pattern": "known", "reason": "the oracle reads everything", "modes": ["oracle"]}
        one = 'report "known(Arguments)" 1'
        self.assertRegex(self.uninitialised(one, 1, "--modes", "oracle", *self.rules(rule)), "0 failures, 2 allowed")
        self.assertRegex(self.uninitialised(one, 1, "--modes", "base", *self.rules(rule), expect=1), "2 failures")
        out = self.uninitialised(one, 1, *self.rules(rule | {"modes": ["orcale"]}), expect=1)
        self.assertIn('may have "modes"', out)

    def test_verbose_shows_every_different_failure(self):
        pairs = [(("Write", "coda::f()", f"a.cu:{line % 7}"), ("Read", "coda::f()", "b.cu:1")) for line in range(14)]
        arguments = ("--only", "racecheck", "--modes", "samples_fused")
        out = self.check(races(*pairs), *arguments, expect=1)
        self.assertEqual(out.count("Race reported"), 5)
        self.assertIn("and 9 more", out)
        out = self.check(races(*pairs), *arguments, "--verbose", expect=1)
        self.assertEqual(out.count("Race reported"), 7)
        self.assertIn("and 7 different ones in all", out)
        self.assertRegex(out, "racecheck +1 modes, 14 failures")

    def test_the_fused_kernels_hand_overs_and_no_others(self):
        arguments = ("--only", "racecheck", "--modes", "samples_fused")
        handed = [(GIVE, ADD), (ADD, GIVE), (JOIN, UNIT), (RELEASE, ACQUIRE), (RELEASE, NO_SOURCE), (RELEASE, CHOICE),
                  (COPY, MULTIPLY), (CHOOSE, TOKEN)]
        self.assertRegex(self.check(races(*handed), *arguments), "1 modes, 0 failures, 8 allowed")
        others = [(GIVE, GIVE), (GIVE, JOIN), (UNIT, ADD), (RELEASE, RELEASE), (GIVE, NO_SOURCE), (GIVE, CHOICE),
                  (COPY, NO_SOURCE), (GIVE, COPY), (COPY, ADD), (CHOOSE, CHOOSE), (CHOOSE, MULTIPLY), (UNIT, MULTIPLY),
                  (("Write", "coda::other(int)", "gemm.cuh:75"), ADD),
                  (GIVE, ("Read", ADD[1], "gemm.cuh:22"))]
        for other in others:
            self.assertIn("1 failures, 0 allowed", self.check(races(other), *arguments, expect=1))
        out = self.check(races(handed[0]).replace("*fused*", "*base*"), "--only", "racecheck", "--modes", "base",
                         expect=1)
        self.assertIn("1 failures, 0 allowed", out)

    def test_what_is_not_shown_counts(self):
        out = self.check(INVALID.replace("COUNT", "5"), "--only", "memcheck", "--modes", "oracle", expect=1)
        self.assertIn("FAILED memcheck oracle: the summary counts 5, and 1 were shown", out)

    def test_no_summary(self):
        out = self.check("exit 0", "--only", "initcheck", "--modes", "base", expect=1)
        self.assertIn("FAILED initcheck base: there is no summary", out)

    def test_a_run_that_fails(self):
        out = self.check("echo out of memory >&2; exit 1", "--only", "initcheck", "--modes", "base", expect=1)
        self.assertIn("FAILED initcheck base: ended with 1: out of memory", out)
        out = self.check("", train="#!/bin/bash\necho no GPU >&2\nexit 1\n", expect=1)
        self.assertIn("without a sanitizer coda_train ended with 1: no GPU", out)

    def test_usage(self):
        self.assertIn("there is no tool 'leaks'", self.check("", "--only", "leaks", expect=2))
        self.assertIn("there is no mode 'fp7'", self.check("", "--modes", "fp7", expect=2))
        self.assertIn("is not TOOL:OPTION", self.check("", "--tool-option", "x", expect=2))
        self.assertIn("there is no /nowhere", self.check("", "--sanitizer", "/nowhere", expect=1))


if __name__ == "__main__":
    unittest.main()
