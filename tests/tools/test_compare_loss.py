"""tools/compare_loss.py as a user runs it: exit status and what it says."""

import os
import subprocess
import sys
import unittest

from logs import TOOLS, LogTestCase, run_tool, steps


class CompareTest(LogTestCase):
    def compare(self, a, b, *options):
        """Exit status and output for logs of the records a and b."""
        status, out, err = run_tool("compare_loss.py", self.write("a.jsonl", a), self.write("b.jsonl", b), *options)
        self.assertEqual(err, "")
        return status, out

    def assert_agree(self, a, b, *options):
        status, out = self.compare(a, b, *options)
        self.assertEqual(status, 0, out)
        self.assertNotIn("DIFFERENT", out)
        return out

    def assert_differ(self, expected, a, b, *options):
        status, out = self.compare(a, b, *options)
        self.assertEqual(status, 1, out)
        first = next(line for line in out.splitlines() if line.startswith("DIFFERENT"))
        self.assertEqual(first, "DIFFERENT: " + expected)
        return out

    def test_steps_without_a_counted_target(self):
        """Both runs lack the loss of such a step; in only one run it is a difference."""
        both = steps(3.0, None, 1.0)
        both[1]["skipped"] = "no counted target"
        self.assert_agree(both, both)
        self.assert_differ("step 2 is only in A", steps(3.0, 2.0, 1.0), both)

    def test_noise_widens_what_is_allowed(self):
        a, b, c = steps(3.0, 2.2, 1.0), steps(3.0, 2.0, 1.0), self.write("c.jsonl", steps(3.0, 1.8, 1.0))
        self.assert_differ("step 2: 2.2 and 2 differ by 0.2, allowed are 0.1", a, b, "--atol", "0.1")
        out = self.assert_agree(a, b, "--atol", "0.1", "--noise", c)
        self.assertIn("agree within atol 0.1, rtol 0, or 1.5 x |B - C|", out)
        less = ("--noise", c, "--noise-factor", "0.9")
        self.assert_differ("step 2: 2.2 and 2 differ by 0.2, allowed are 0.18", a, b, *less)

    def test_noise_of_the_mean(self):
        a, b, c = steps(3.0, 2.3, 1.1), steps(3.0, 2.0, 1.0), self.write("c.jsonl", steps(3.0, 2.2, 1.0))
        options = ("--first", "1", "--last-mean", "2", "--noise", c)
        self.assert_agree(a, b, *options, "--noise-factor", "2.1")
        expected = "mean of the last 2 steps (2 to 3): 1.7 and 1.5 differ by 0.2, allowed are 0.15"
        self.assert_differ(expected, a, b, *options)

    def test_a_step_without_noise_has_the_plain_tolerance(self):
        a, b, c = steps(3.0, 2.2), steps(3.0, 2.0), self.write("c.jsonl", steps(9.0))
        self.assert_differ("step 2: 2.2 and 2 differ by 0.2, allowed are 0", a, b, "--noise", c)

    def test_equal_runs(self):
        out = self.assert_agree(steps(3.0, 2.0, 1.0), steps(3.0, 2.0, 1.0))
        self.assertIn("loss: 3 steps in common, largest difference 0 at step 1, means 2 and 2", out)

    def test_default_is_exact(self):
        self.assert_differ(
            "step 2: 2.00000001 and 2 differ by 1e-08, allowed are 0", steps(3.0, 2.00000001), steps(3.0, 2.0)
        )

    def test_first_bad_step_and_not_the_worst(self):
        out = self.assert_differ(
            "step 2: 2.5 and 2 differ by 0.5, allowed are 0.25",
            steps(3.0, 2.5, 9.0), steps(3.0, 2.0, 1.0), "--atol", "0.25",
        )
        self.assertIn("largest difference 8 at step 3", out)

    def test_absolute_tolerance_is_inclusive(self):
        self.assert_agree(steps(2.25), steps(2.0), "--atol", "0.25")
        expected = "step 1: 2.25 and 2 differ by 0.25, allowed are 0.249"
        self.assert_differ(expected, steps(2.25), steps(2.0), "--atol", "0.249")

    def test_relative_tolerance_is_that_of_the_reference(self):
        self.assert_agree(steps(3.0), steps(4.0), "--rtol", "0.25")
        self.assert_differ("step 1: 4 and 3 differ by 1, allowed are 0.75", steps(4.0), steps(3.0), "--rtol", "0.25")

    def test_tolerances_add_up(self):
        self.assert_agree(steps(5.5), steps(4.0), "--rtol", "0.25", "--atol", "0.5")

    def test_steps_of_one_run_only(self):
        self.assert_differ("step 3 is only in A", steps(3.0, 2.0, 1.0), steps(3.0, 2.0))
        self.assert_differ("step 1 is only in B", steps(2.0, start=2), steps(3.0, 2.0))
        self.assert_differ("step 2 is only in A", steps(3.0, 2.0, 1.0), steps(3.0) + steps(1.0, start=3))

    def test_not_finite_never_agrees(self):
        self.assert_differ("step 2: not finite and 2", steps(3.0, None), steps(3.0, 2.0), "--atol", "9")
        self.assert_differ("step 2: not finite and not finite", steps(3.0, None), steps(3.0, None), "--atol", "9")

    def test_torn_last_line_is_said(self):
        a = self.write("a.jsonl", steps(3.0, 2.0), end='{"step": 3, "lo')
        status, out, _ = run_tool("compare_loss.py", a, self.write("b.jsonl", steps(3.0, 2.0)))
        self.assertEqual(status, 0)
        self.assertIn("cut off", out)

    def test_validation(self):
        a, b = steps(3.0, 2.0) + [{"step": 2, "val_loss": 2.5}], steps(3.0, 2.0) + [{"step": 2, "val_loss": 2.25}]
        self.assert_differ("validation at step 2: 2.5 and 2.25 differ by 0.25, allowed are 0.1", a, b, "--atol", "0.1")
        self.assert_agree(a, b, "--atol", "0.25")
        self.assert_agree(a, b, "--first", "1")
        self.assertIn("val_loss: only in A, not compared", self.assert_agree(a, steps(3.0, 2.0)))

    def test_first(self):
        a, b = steps(3.0, 2.0, 1.0), steps(3.0, 2.0, 7.0)
        self.assert_agree(a, b, "--first", "2")
        self.assert_differ("step 3: 1 and 7 differ by 6, allowed are 0", a, b, "--first", "3")
        self.assert_differ("step 2 is only in A", a, steps(3.0) + steps(1.0, start=3), "--first", "2")

    def test_mean_of_the_last_steps(self):
        a, b = steps(3.0, 2.0, 1.0), steps(3.0, 1.0, 2.0)
        self.assert_agree(a, b, "--first", "1", "--last-mean", "2")
        self.assert_differ(
            "mean of the last 2 steps (2 to 3): 1.5 and 2 differ by 0.5, allowed are 0.25",
            a, steps(3.0, 1.0, 3.0), "--first", "1", "--last-mean", "2", "--atol", "0.25",
        )
        self.assert_differ(
            "mean of the last 2 steps (2 to 3): not finite and 1.5",
            steps(3.0, None, 1.0), a, "--first", "1", "--last-mean", "2",
        )

    def test_mean_needs_the_same_steps(self):
        expected = "mean of the last 2 steps: the runs do not end with the same 2 steps"
        self.assert_differ(expected, steps(3.0, 2.0, 1.0), steps(3.0, 2.0), "--first", "1", "--last-mean", "2")
        self.assert_differ(expected, steps(3.0), steps(3.0), "--last-mean", "2")

    def test_another_key(self):
        a, b = steps(3.0), steps(2.0)
        self.assert_agree(a, b, "--key", "grad_norm")
        a[0]["grad_norm"] = 1.5
        self.assert_differ("step 1: 1.5 and 1 differ by 0.5, allowed are 0", a, b, "--key", "grad_norm")

    def test_nothing_to_compare_is_no_agreement(self):
        validation = [{"step": 1, "val_loss": 2.5}]
        self.assert_differ("neither run has a training step", validation, validation)

    def test_wrong_usage_and_bad_files(self):
        good = self.write("good.jsonl", steps(3.0))
        bad = self.write("bad.jsonl", [], end='{"step"\n')
        for arguments, word in (
            ((good,), "B.jsonl"),
            ((good, good, "--atol", "-1"), "--atol"),
            ((good, good, "--rtol", "nan"), "--rtol"),
            ((good, good, "--first", "0"), "--first"),
            ((good, self.path("none.jsonl")), "none.jsonl: No such file"),
            ((good, bad), "bad.jsonl:2"),
            ((good, good, "--key", "mfu"), 'has no "mfu"'),
        ):
            status, _, err = run_tool("compare_loss.py", *arguments)
            self.assertEqual(status, 2, err)
            self.assertIn(word, err)

    def test_comparison_imports_the_standard_library_only(self):
        log = self.write("a.jsonl", steps(3.0))
        # -S: no site-packages, so an import of anything but the standard library fails.
        command = [sys.executable, "-B", "-S", os.path.join(TOOLS, "compare_loss.py"), log, log]
        self.assertEqual(subprocess.run(command, capture_output=True, check=False).returncode, 0)


if __name__ == "__main__":
    unittest.main()
