"""tools/smollm2_check.py: what counts as equal to a greedy text. The comparison itself needs the model and transformers.

Needs PyTorch and transformers (run it with a Python that has them)."""

import importlib.util
import unittest

from logs import LogTestCase

HAS_TRANSFORMERS = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))


@unittest.skipUnless(HAS_TRANSFORMERS, "no PyTorch and transformers for this Python")
class GreedyTextTest(LogTestCase):
    def setUp(self):
        import smollm2_check
        import torch

        super().setUp()
        self.tool, self.torch = smollm2_check, torch
        self.exact = torch.zeros(1000)
        self.exact[:3] = torch.tensor([20.0, 19.9, 19.0])

    def problem(self, found, expected, error=0.0):
        """Of texts that differ after [7], where token 0 is fp32's choice."""
        def exact(made):
            self.assertEqual(made, [7])
            return self.exact
        return self.tool.text_problem(found, expected, exact, lambda made: exact(made) + error)

    def test_places(self):
        for found, expected, place in (([1, 2], [1, 2], None), ([1, 3], [1, 2], 1), ([1], [1, 2], 1), ([], [1], 0)):
            self.assertEqual(self.tool.first_difference(found, expected), place)

    def test_a_choice_within_rounding(self):
        self.assertEqual(self.problem([7, 0], [7, 0]), (True, "2 tokens"))
        # bf16's spacing at 20 is 0.125.
        self.assertEqual(self.problem([7, 1], [7, 0]), (True, "1 tokens (then logits 0.100 apart, allowed 0.125)"))
        self.assertFalse(self.problem([7, 2], [7, 0])[0])
        self.assertFalse(self.problem([7, 2], [7, 0], error=0.35)[0])
        self.assertTrue(self.problem([7, 2], [7, 0], error=0.36)[0])

    def test_an_end_too_early_or_too_late(self):
        for found, expected in (([7], [7, 0]), ([7, 0], [7])):
            good, says = self.problem(found, expected)
            self.assertFalse(good)
            self.assertIn("expected", says)

    def test_fp32_has_no_room(self):
        good, _ = self.tool.text_problem([7, 1], [7, 0], lambda made: self.exact, None)
        self.assertFalse(good)


if __name__ == "__main__":
    unittest.main()
