"""How well expected counts tell counts of the same rows that were not given.

Methods differ in what they expect (a rate, a share, a mean of logarithms), so all are scored by the shares of
the features of a row, on the total of what is to be told: nobody has to tell the total.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from benchmarks._peers import cpu
from benchmarks._real_tables import MethodFit

Array = NDArray[Any]

AVERAGE = 0.01  # weight of the average profile in every prediction, so that none is certain of a zero


def thinned(counts: Array, rng: np.random.Generator) -> Array:
    """Each molecule is given with probability 1/2: the rest is independent of it if counts are Poisson."""
    given: Array = rng.binomial(counts.astype(np.int64), 0.5).astype(float)
    return given


def average_profile(counts: Array) -> MethodFit:
    """No factors: the same shares for every row."""
    start = cpu()
    average = counts.sum(0) / counts.sum()
    return MethodFit(
        lambda rows: np.zeros((len(rows), 1)),
        lambda rows: np.tile(average, (len(rows), 1)),
        np.zeros((counts.shape[1], 1)),
        cpu() - start,
    )


class Profiles:
    """Shares of the features from expected counts, each feature on its level in the rows that were seen.

    The expectation of a logarithm, turned back, is below the expectation; one factor for each feature makes
    the seen rows' expected counts add up to what they counted, for every method alike.

    Parameters
    ----------
    seen, expected : ndarray (row, feature)
        The rows that a method saw, and what it expects of them.
    """

    def __init__(self, seen: Array, expected: Array):
        self.average = seen.sum(0) / seen.sum()
        told = (_shares(expected, self.average) * seen.sum(1, keepdims=True)).sum(0)
        self.level = np.where(told > 0, seen.sum(0) / np.where(told > 0, told, 1.0), 1.0)

    def shares(self, expected: Array) -> Array:
        """Rows that add up to 1, all above 0."""
        shares = _shares(_shares(expected, self.average) * self.level, self.average)
        mixed: Array = (1 - AVERAGE) * shares + AVERAGE * self.average
        return mixed


def _shares(expected: Array, average: Array) -> Array:
    expected = np.maximum(expected, 0.0)
    total = expected.sum(1, keepdims=True)
    return np.where(total > 0, expected / np.where(total > 0, total, 1.0), average)


def deviance(counts: Array, shares: Array) -> float:
    """Poisson deviance of a cell of the table, its row's total given: mean over cells."""
    expected = shares * counts.sum(1, keepdims=True)
    return float(2 * (xlogy(counts, counts) - xlogy(counts, np.where(counts > 0, expected, 1.0))).mean())


def correlation(counts: Array, shares: Array) -> float:
    """Of a feature's expected and seen counts, both log(1 + x) at equal depth: mean over features."""
    total = counts.sum(1, keepdims=True)
    depth = np.median(total)
    seen = np.log1p(counts * (depth / np.maximum(total, 1)))
    expected = np.log1p(shares * depth)
    seen, expected = seen - seen.mean(0), expected - expected.mean(0)
    sizes = np.sqrt((seen**2).sum(0) * (expected**2).sum(0))
    varies = seen.any(0)
    each = (seen * expected).sum(0) / np.where(sizes > 1e-12, sizes, 1.0)
    return float(np.where(sizes > 1e-12, each, 0.0)[varies].mean())
