"""tools/compare_step with programs that take a given time."""

import os
import unittest

from logs import LogTestCase, run_tool

PROGRAM = """#!/bin/bash
echo "$(basename "$0")" "$@" >> FOLDER/calls
[[ "$1 $2 $3 $4 $5 $6 $7" == "step --config c.json --steps 20 --no-floor --json" ]] || { echo wrong >&2; exit 1; }
count=$(grep -c "^$(basename "$0") " FOLDER/calls)
times=(TIMES)
ms=${times[$(((count - 1) % ${#times[@]}))]}
echo '{"header": {}, "records": [{"part": "forward_backward", "ms": 1}, {"part": "step", "ms": '$ms'}]}' > "$8"
"""


class CompareStepTest(LogTestCase):
    def program(self, name, *times, text=PROGRAM):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text.replace("FOLDER", self.folder).replace("TIMES", " ".join(map(str, times))))
        os.chmod(self.path(name), 0o755)
        return self.path(name)

    def compare(self, old, new, *arguments):
        if os.path.exists(self.path("calls")):
            os.remove(self.path("calls"))
        return run_tool("compare_step", old, new, "--config", "c.json", *arguments)

    def calls(self):
        with open(self.path("calls"), encoding="utf-8") as file:
            return file.read().splitlines()

    def test_the_same_time(self):
        old = self.program("old", 100)
        for ms in (99.8, 100, 100.2):
            status, out, err = self.compare(old, self.program("new", ms))
            self.assertEqual((status, err), (0, ""), out)
            self.assertIn("the same time", out)
        self.assertEqual(out.count("pair "), 8)
        self.assertIn("pair 1  old   100.000 ms  new   100.200 ms  ratio 1.0020", out)

    def test_slower_and_faster(self):
        old = self.program("old", 100)
        for ms in (99.6, 100.4):
            status, out, _ = self.compare(old, self.program("new", ms))
            self.assertEqual(status, 1)
            self.assertRegex(out, rf"median ratio {ms / 100:.4f}, .*: NOT the same")

    def test_the_median_of_pairs_counts(self):
        old, new = self.program("old", 100, 200, 400), self.program("new", 100.1, 200.2, 500)
        status, out, _ = self.compare(old, new, "--pairs", "3")
        self.assertEqual(status, 0, out)
        self.assertIn("median ratio 1.0010, from 1.0010 to 1.2500", out)

    def test_who_begins_takes_turns(self):
        self.compare(self.program("old", 1), self.program("new", 1), "--pairs", "3", "--training.seq_len", "2048")
        self.assertEqual([line.split()[0] for line in self.calls()], ["old", "new", "new", "old", "old", "new"])
        self.assertTrue(all(line.endswith("--training.seq_len 2048") for line in self.calls()))

    def test_a_folder_of_programs(self):
        os.makedirs(self.path("bin"))
        self.program("bin/coda_bench", 100)
        self.assertEqual(self.compare(self.path("bin"), self.path("bin"), "--pairs", "1")[0], 0)

    def test_what_cannot_be_measured(self):
        good = self.program("good", 100)
        for other, said in (
            (self.path("nowhere"), "nowhere is not a program"),
            (self.program("fails", text="#!/bin/bash\necho no memory >&2\nexit 3\n"), "ended with 3: no memory"),
            (self.program("silent", text="#!/bin/bash\n"), "silent wrote no time of a step"),
        ):
            status, _, err = self.compare(good, other)
            self.assertEqual(status, 2)
            self.assertIn(said, err)
        self.assertEqual(self.compare(good, good, "--pairs", "0")[0], 2)
        self.assertEqual(run_tool("compare_step", good, good)[0], 2)


if __name__ == "__main__":
    unittest.main()
