"""tools/runlog.py: what counts as a run log and what is refused."""

import os
import unittest

from logs import HEADER, LogTestCase, steps

import runlog


class ReadTest(LogTestCase):
    def refused(self, path, *words):
        with self.assertRaises(runlog.LogError) as caught:
            runlog.read(path)
        for word in (path, *words):
            self.assertIn(word, str(caught.exception))

    def test_header_steps_and_validations(self):
        records = [*steps(5.5, 5.25), {"step": 2, "val_loss": 5.125}, *steps(5.0, start=3)]
        log = runlog.read(self.write("log.jsonl", records))
        self.assertEqual(log.header, HEADER)
        self.assertEqual(log.series("loss"), {1: 5.5, 2: 5.25, 3: 5.0})
        self.assertEqual(log.series("val_loss"), {2: 5.125})
        self.assertFalse(log.torn)

    def test_later_starts_are_no_steps(self):
        start = {"step": 2, "start": HEADER}
        log = runlog.read(self.write("log.jsonl", [*steps(5.5, 5.25), start, *steps(5.0, start=3)]))
        self.assertEqual(log.series("loss"), {1: 5.5, 2: 5.25, 3: 5.0})
        self.assertEqual(log.starts, [start])

    def test_samples_are_no_steps(self):
        first = {"step": 1, "sample": "a", "prompt": "b", "tokens": [1, 2]}
        more = [{"step": 2, "sample": None, "prompt": None, "tokens": [number]} for number in range(2)]
        log = runlog.read(self.write("log.jsonl", [*steps(5.5), first, *steps(5.25, start=2), *more]))
        self.assertEqual(log.series("loss"), {1: 5.5, 2: 5.25})
        self.assertEqual(log.samples, {1: [first], 2: more})
        for wrong, word in (({"sample": 1}, "sample"), ({"prompt": []}, "prompt"), ({"tokens": ["1"]}, "tokens"),
                            ({"tokens": None}, "tokens"), ({"tokens": [True]}, "tokens")):
            self.refused(self.write("a.jsonl", [*steps(5.5), first | wrong]), ":3:", word)
        self.refused(self.write("a.jsonl", [*steps(5.5), *more, first]), ":5:", "step 1 after step 2")

    def test_folder_stands_for_its_log_and_names_the_run(self):
        os.mkdir(self.path("demo"))
        self.write(os.path.join("demo", "log.jsonl"), steps(1.0))
        self.assertEqual(runlog.read(self.path("demo")).name, "demo")
        self.assertEqual(runlog.read(self.write("ref.jsonl", steps(1.0))).name, "ref")

    def test_log_without_header(self):
        with open(self.path("a.jsonl"), "w", encoding="utf-8") as file:
            file.write('{"step": 1, "loss": 2}\n')
        self.assertEqual(runlog.read(self.path("a.jsonl")).series("loss"), {1: 2.0})

    def test_spikes(self):
        """Of a log whose first steps have no scores, or none at all: an older version wrote them."""
        old, first, high, heavy, dropped, none = steps(5.0, 4.9, 9.0, 4.8, 4.7, None)
        high |= {"loss_z": 6.5, "norm_z": 1.0}
        heavy |= {"loss_z": 0.1, "norm_z": 7.0}
        dropped |= {"loss_z": 0.1, "norm_z": 4.0, "skipped": "spike"}
        none |= {"loss_z": None, "norm_z": None, "skipped": "no counted target"}
        first |= {"loss_z": None, "norm_z": 6.0}
        log = runlog.read(self.write("a.jsonl", [old, first, high, heavy, dropped, none]))
        self.assertEqual(list(log.spikes()), [3, 4, 5])
        self.assertTrue(log.scored())
        self.assertEqual(list(log.series("loss")), [1, 2, 3, 4, 5])  # step 6 has no target, so no loss
        self.assertEqual(list(log.series("grad_norm")), [1, 2, 3, 4, 5, 6])
        older = runlog.read(self.write("b.jsonl", steps(5.0, None)))
        self.assertEqual((older.spikes(), older.scored()), ({}, False))
        self.assertEqual(older.series("loss"), {1: 5.0, 2: None})

    def test_whatever_is_cut_off_the_last_line_is_dropped(self):
        line = '{"step": 3, "loss": 5.125}'
        for length in range(1, len(line)):
            log = runlog.read(self.write("a.jsonl", steps(5.5, 5.25), end=line[:length]))
            self.assertTrue(log.torn)
            self.assertEqual(list(log.steps), [1, 2])

    def test_complete_last_line_without_newline_counts(self):
        log = runlog.read(self.write("a.jsonl", steps(5.5), end='{"step": 2, "loss": 5.125}'))
        self.assertEqual(log.series("loss"), {1: 5.5, 2: 5.125})
        self.assertFalse(log.torn)

    def test_not_finite_is_none(self):
        others = '{"step": 3, "loss": NaN}\n{"step": 4, "loss": 1e999}\n'
        log = runlog.read(self.write("a.jsonl", steps(5.5, None), end=others))
        self.assertEqual(log.series("loss"), {1: 5.5, 2: None, 3: None, 4: None})

    def test_broken_line_that_is_not_the_last(self):
        self.refused(self.write("a.jsonl", steps(5.5), end='{"step": 2, "lo\n{"step": 3, "loss": 5}\n'), ":3:", "JSON")

    def test_broken_last_line_that_was_finished(self):
        self.refused(self.write("a.jsonl", steps(5.5), end='{"step": 2, "lo\n'), ":3:", "JSON")

    def test_bytes_that_are_no_text(self):
        with open(self.path("a.bin"), "wb") as file:
            file.write(b"\xff\xfe\x00\n" * 3)
        self.refused(self.path("a.bin"), ":1:")

    def test_missing_file_and_no_step(self):
        self.refused(self.path("none.jsonl"), "No such file")
        self.refused(self.write("a.jsonl", []), "no record of a step")

    def test_steps_must_rise(self):
        self.refused(self.write("a.jsonl", steps(5.5, 5.25) + steps(5.25, start=2)), ":4:", "step 2 after step 2")

    def test_second_header(self):
        self.refused(self.write("a.jsonl", [*steps(5.5), HEADER]), ":3:", "header")

    def test_records_of_the_wrong_kind(self):
        self.refused(self.write("a.jsonl", [[1, 2]]), ":2:", "object")
        for step in ("1", 1.5, True, -1, None):
            self.refused(self.write("a.jsonl", [{"step": step, "loss": 1.0}]), ":2:", "whole number")

    def test_missing_key_and_text_for_a_number(self):
        log = runlog.read(self.write("a.jsonl", steps("5.5")))
        for key, word in (("loss", "must be a number"), ("mfu", 'no "mfu"')):
            with self.assertRaisesRegex(runlog.LogError, word):
                log.series(key)


if __name__ == "__main__":
    unittest.main()
