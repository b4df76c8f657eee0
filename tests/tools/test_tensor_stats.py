"""tools/tensor_stats.py: extremes, where they were, and files that are something else."""

import json
import unittest

from logs import LogTestCase, run_tool


def record(step, layer, tensor, amax, rms, zeros=0.0, row_peak=2.0):
    return {"step": step, "layer": layer, "tensor": tensor, "amax": amax, "rms": rms, "zeros": zeros,
            "row_peak": row_peak}


RECORDS = [
    record(1, 0, "down.input", 2.0, 0.5), record(1, 1, "down.input", 6.0, 0.5, row_peak=9.0),
    record(1, -1, "lm_head.weight", 1.0, 1.0),
    record(2, 0, "down.input", 10.0, 0.25, zeros=0.125), record(2, 1, "down.input", 3.0, 1.0),
    record(2, -1, "lm_head.weight", 1.0, 1.0),
]


class TensorStatsToolTest(LogTestCase):
    def stats(self, name, records, header='{"header": {}}\n', end=""):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(header + "".join(json.dumps(entry) + "\n" for entry in records) + end)
        return self.path(name)

    def rows(self, *arguments):
        code, out, err = run_tool("tensor_stats.py", *arguments)
        self.assertEqual((code, err), (0, ""))
        first, head, *lines = out.splitlines()
        return first, head.split("  "), [line.split() for line in lines]

    def test_extremes(self):
        first, _, rows = self.rows(self.stats("s", RECORDS))
        self.assertEqual(first, "2 steps from 1 to 2")
        down, head = rows[0], rows[1]
        self.assertEqual(down, ["down.input", "10", "0@2", "2.50e-01..1.00e+00", "40.0", "0@2", "9.0", "1@1", "5.00",
                                "0@2", "2.00", "1@2", "12.50%", "0@2", "0"])
        self.assertEqual(head, ["lm_head.weight", "1", "head@1", "1.00e+00..1.00e+00", "1.0", "head@1", "2.0",
                                "head@1", "1.00", "head@2", "1.00", "head@2", "-", "0"])
        self.assertEqual(" ".join(rows[2]), "down.input: amax grew by 5.0 at 0@2: more than two bits of headroom")

    def test_layers_steps_and_parts_of_a_run(self):
        parts = self.stats("one", RECORDS[:3]), self.stats("two", RECORDS[3:])
        self.assertEqual(self.rows(*reversed(parts)), self.rows(self.stats("s", RECORDS)))
        _, _, rows = self.rows(*parts, "--by-layer", "--to", "1")
        self.assertEqual([row[:3] for row in rows],
                         [["0", "down.input", "2"], ["1", "down.input", "6"], ["lm_head.weight", "1", "head@1"]])

    def test_numbers_that_are_none_and_a_peak_beyond_one_scale(self):
        records = [record(1, 0, "qkv.input", 2000.0, 1.0), record(2, 0, "qkv.input", None, None),
                   record(3, 0, "qkv.input", 1.0, 1.0)]
        _, _, rows = self.rows(self.stats("s", records))
        self.assertEqual(rows[0][-1], "1")
        self.assertEqual(rows[0][8:12], ["-", "-", "-", "1"])  # no step has one before it
        self.assertIn("amax/rms 2000 at 0@1", " ".join(rows[1]))

    def test_what_is_no_such_file(self):
        for contents, says in (
            ({"records": RECORDS, "header": ""}, "s:1: not what"),
            ({"records": [{"step": 1}]}, "s:2: not what"),
            ({"records": [], "header": "{\n"}, "s:1: not JSON"),
            ({"records": []}, "s: holds no step"),
        ):
            code, out, err = run_tool("tensor_stats.py", self.stats("s", **contents))
            self.assertEqual((code, out), (1, ""))
            self.assertIn(says, err)
        code, _, err = run_tool("tensor_stats.py", self.path("none"))
        self.assertEqual((code, "No such file" in err), (1, True))
        code, _, err = run_tool("tensor_stats.py", self.stats("s", RECORDS), "--from", "9")
        self.assertEqual((code, "no step lies" in err), (1, True))

    def test_a_line_that_is_cut_off(self):
        code, out, err = run_tool("tensor_stats.py", self.stats("s", RECORDS[:3], end='{"step": 2'))
        self.assertEqual(code, 0)
        self.assertIn("1 steps from 1 to 1", out)
        self.assertIn("cut off", err)


if __name__ == "__main__":
    unittest.main()
