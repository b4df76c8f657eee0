"""tools/logit_distance.py: distances of logits whose probabilities are known, and what may count as bf16's.

Needs PyTorch (run it with a Python that has it)."""

import importlib.util
import math
import unittest

from logs import LogTestCase


@unittest.skipUnless(importlib.util.find_spec("torch"), "no PyTorch for this Python")
class LogitDistanceTest(LogTestCase):
    def setUp(self):
        import logit_distance
        import torch

        super().setUp()
        self.tool, self.torch = logit_distance, torch

    def logits(self, *rows):
        """Of these probabilities, shifted: a constant changes no probability."""
        return self.torch.tensor([[math.log(p) + 3 for p in row] for row in rows])

    def test_kl_is_of_the_exact_ones_first(self):
        exact, found = self.logits((0.5, 0.25, 0.25), (0.8, 0.1, 0.1)), self.logits((0.25, 0.5, 0.25), (0.8, 0.1, 0.1))
        expected = 0.5 * math.log(2) + 0.25 * math.log(0.5)  # of the first position; the second has 0
        self.assertAlmostEqual(self.tool.kl(found, exact), expected / 2, delta=1e-7)  # logits in fp32
        self.assertAlmostEqual(self.tool.kl(exact - 5, exact), 0, delta=1e-12)
        one_way = self.logits((0.9, 0.05, 0.05)), self.logits((0.4, 0.3, 0.3))
        self.assertNotAlmostEqual(self.tool.kl(*one_way), self.tool.kl(*reversed(one_way)), delta=0.01)

    def test_no_further_by_either_measure(self):
        exact = self.torch.tensor([[4.0, 0.0, -4.0]])
        near, far = exact + self.torch.tensor([[0.0, 0.01, 0.0]]), exact + self.torch.tensor([[0.0, 0.02, 0.0]])
        # Of all logits by as much: far by relative RMS, and nothing by KL.
        shifted = exact + 1
        for found, rounded, holds in ((near, far, True), (near, near, True), (far, near, False), (shifted, near, False),
                                      (near, shifted, False)):
            self.assertEqual(self.tool.Distances(found, rounded, exact).hold(None), holds)
        self.assertTrue(self.tool.Distances(near, near, exact).hold(0.002))
        self.assertFalse(self.tool.Distances(far, far, exact).hold(0.002))


if __name__ == "__main__":
    unittest.main()
