"""Accuracy on minimal pairs, with its interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

NORMAL_95 = 1.959963984540054  # standard deviations around the mean that hold 95 % of a normal distribution


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """How many pairs of a group are right.

    A tie, two scores that are equal, counts half: a model that cannot tell the sentences apart, for example because
    both are the same tokens, then has the accuracy of chance, whichever sentence comes first. It is also what is
    expected of Zorro's own scorer, which decides a tie at random.
    """

    pairs: int
    right: int
    ties: int

    @classmethod
    def of(cls, good: np.ndarray, bad: np.ndarray) -> "Accuracy":
        """good, bad: [pairs] scores of the sentences."""
        return cls(pairs=len(good), right=int((good > bad).sum()), ties=int((good == bad).sum()))

    @property
    def percent(self) -> float:
        return 100 * (self.right + self.ties / 2) / self.pairs

    def interval(self) -> tuple[float, float]:
        """Return the ends of the 95 % interval of the percentage (Wilson 1927).

        It says what other pairs of the same kind might give with this model, not what another seed might.
        """
        n, z, share = self.pairs, NORMAL_95, self.percent / 100
        middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
        return max(100 * (middle - half), 0.0), min(100 * (middle + half), 100.0)

    def fields(self) -> dict[str, Any]:
        """Return all figures by name."""
        low, high = self.interval()
        counts = {"pairs": self.pairs, "right": self.right, "ties": self.ties}
        return {**counts, "accuracy": self.percent, "low": low, "high": high}


def by_name(names: Sequence[str], good: np.ndarray, bad: np.ndarray) -> dict[str, Accuracy]:
    """Return the accuracy of the pairs of each name, in the order of the names; those without a name are left out."""
    labels = np.array(names)
    return {name: Accuracy.of(good[labels == name], bad[labels == name]) for name in sorted(set(names) - {""})}
