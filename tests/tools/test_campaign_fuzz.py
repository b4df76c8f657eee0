"""tools/campaign/fuzz with programs that behave as libFuzzer's do, and the committed corpus."""

import os
import signal
import subprocess
import sys
import tarfile
import time
import unittest

from logs import TOOLS, LogTestCase, run_tool

sys.path.insert(0, os.path.join(TOOLS, "..", "tests", "fuzz"))
import corpus_archive  # noqa: E402
import make_corpus  # noqa: E402

# Finds one input per seed, and merges by keeping each one.
PROGRAM = """#!/bin/bash
for word in "$@"; do
    case "$word" in
        -runs=*) runs=${word#-runs=};; -seed=*) seed=${word#-seed=};; -merge=1) merge=yes;; -*) ;;
        *) folders+=("$word");;
    esac
done
echo "$(basename "$0") $*" >> FOLDER/calls
if [[ -n "$merge" ]]; then
    for folder in "${folders[@]:1}"; do cp "$folder"/* "${folders[0]}"; done
    exit 0
fi
head -c $((100 * seed)) /dev/zero > "${folders[0]}/input_$seed"
BEHAVE
echo "stat::number_of_executed_units: $((runs LESS))" >&2
"""
CRASH = """if [[ $seed == 2 ]]; then
    echo "  what():  a tensor is listed twice" >&2
    echo "Test unit written to FOLDER/crash-abc" >&2
    echo "SUMMARY: libFuzzer: deadly signal" >&2
    exit 77
fi"""


class FuzzTest(LogTestCase):
    def programs(self, *targets, behave="", less=""):
        os.makedirs(self.path("bin"), exist_ok=True)
        corpus_archive.write(self.path("corpus.tar.xz"), {f"{target}/valid_seed": b"seed" for target in targets})
        for target in targets:
            path = self.path(f"bin/fuzz_{target}")
            with open(path, "w", encoding="utf-8") as file:
                file.write(PROGRAM.replace("BEHAVE", behave).replace("LESS", less).replace("FOLDER", self.folder))
            os.chmod(path, 0o755)

    def fuzz(self, *arguments, expect=0):
        status, out, err = run_tool("campaign/fuzz", "--bin", self.path("bin"), "--corpus", self.path("corpus.tar.xz"),
                                    "--work", self.path("work"), "--results", self.path("results"), *arguments)
        self.assertEqual(status, expect, out + err)
        return out if expect != 2 else err

    def corpus(self):
        return sorted(corpus_archive.read(self.path("corpus.tar.xz")))

    def calls(self):
        with open(self.path("calls"), encoding="utf-8") as file:
            return file.read().splitlines()

    def test_executions_are_divided_and_recorded(self):
        self.programs("shard", "config")
        out = self.fuzz("--only", "shard,config", "--binary-runs", "600000", "--text-runs", "1000", "--jobs", "2",
                        "--record", "--gpu", "NVIDIA H200")
        self.assertRegex(out, r"shard +600000 executions, 0 failures")
        self.assertRegex(out, r"config +1000 executions, 0 failures")
        self.assertEqual(sorted(word for call in self.calls() for word in call.split()
                                if word.startswith(("-runs", "-seed"))),
                         ["-runs=1000", "-runs=100000", "-runs=250000", "-runs=250000", "-seed=1", "-seed=1", "-seed=2",
                          "-seed=3"])
        with open(self.path("results/h200_reliability.json"), encoding="utf-8") as file:
            text = file.read()
        self.assertRegex(text, r'"campaign": "fuzz shard", "device": "cpu", "runs": 600000, "failures": 0, ')

    def test_a_campaign_that_is_stopped(self):
        self.programs("shard", behave="sleep 600")
        process = subprocess.Popen([sys.executable, "-B", os.path.join(TOOLS, "campaign", "fuzz"), "--bin",
                                    self.path("bin"), "--corpus", self.path("corpus.tar.xz"), "--work",
                                    self.path("work"), "--only", "shard", "--jobs", "1"], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
        self.addCleanup(process.kill)
        while not os.path.exists(self.path("work/shard/corpus/input_1")):
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        process.terminate()
        said = process.communicate(timeout=120)[0]
        self.assertEqual((process.returncode, said), (128 + signal.SIGTERM, b""))
        self.assertEqual(len(self.calls()), 1, "pieces that waited have begun")

    def test_a_crash(self):
        self.programs("shard", behave=CRASH)
        out = self.fuzz("--only", "shard", "--binary-runs", "500000", "--jobs", "1", expect=1)
        self.assertRegex(out, r"shard +250000 executions, 1 failures")
        self.assertRegex(out, r"FAILED shard: libFuzzer: deadly signal \(a tensor is listed twice\); input \S+crash-abc")

    def test_a_program_that_says_nothing(self):
        self.programs("shard", behave="exit 0")
        self.assertIn("FAILED shard: no output; ended with 0", self.fuzz("--only", "shard", expect=1))

    def test_too_few_executions(self):
        self.programs("config", less="- 1")
        self.assertIn("FAILED config: 999 executions of 1000",
                      self.fuzz("--only", "config", "--text-runs", "1000", expect=1))

    def test_minimise(self):
        self.programs("config", "shard")
        seeds = ["config/valid_seed", "shard/valid_seed"]
        arguments = ("--only", "config", "--text-runs", "750000", "--minimise")
        self.assertIn("3 of 3 inputs, 600 bytes", self.fuzz(*arguments))
        self.assertEqual(self.corpus(), [*(f"config/found/input_{i}" for i in (1, 2, 3)), *seeds])
        self.assertIn("2 of 3 inputs, 300 bytes", self.fuzz(*arguments, "--budget", "599"))
        self.assertEqual(self.corpus(), [*(f"config/found/input_{i}" for i in (1, 2)), *seeds])
        self.assertIn("FAILED the corpora are too large",
                      self.fuzz(*arguments, "--seed", "6000", "--budget", "2000000", expect=1))

    def test_usage(self):
        self.assertIn("there is no target 'shards'", self.fuzz("--only", "shards", expect=2))
        self.assertIn("fuzz_shard is not there", run_tool("campaign/fuzz", "--bin", self.folder, "--only", "shard",
                                                          "--work", self.path("work"))[2])
        listed = run_tool("campaign/fuzz", "--list")[1].splitlines()
        self.assertEqual({line.split()[0] for line in listed},
                         {name.split("/")[0] for name in corpus_archive.read(corpus_archive.ARCHIVE)})


class CorpusTest(LogTestCase):
    def setUp(self):
        super().setUp()
        self.files = corpus_archive.read(corpus_archive.ARCHIVE)

    def test_small(self):
        self.assertGreater(len(self.files), 50)
        self.assertLessEqual(sum(map(len, self.files.values())), 1 << 20)

    def test_seeds(self):
        self.assertEqual({name: data for name, data in self.files.items() if "/found/" not in name},
                         make_corpus.seeds())

    def test_reproducible(self):
        corpus_archive.write_folder(self.path("folder"), self.files)
        packed = []
        for files in (self.files, corpus_archive.read_folder(self.path("folder"))):
            corpus_archive.write(self.path("again.tar.xz"), files)
            with open(self.path("again.tar.xz"), "rb") as file:
                packed.append(file.read())
        self.assertEqual(packed[0], packed[1])
        with tarfile.open(corpus_archive.ARCHIVE) as tar:
            members = tar.getmembers()
        self.assertEqual([member.name for member in members], sorted(self.files))
        self.assertEqual({(member.mtime, member.uid, member.gid, member.uname, member.gname, member.mode)
                          for member in members}, {(0, 0, 0, "", "", 0o644)})


if __name__ == "__main__":
    unittest.main()
