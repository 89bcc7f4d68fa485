"""Tables whose number of factors is known: blocks of indicators, and one with a factor that hardly shows.

`blocks`: 2 to 8 factors of 3 to 6 indicators each, every indicator of one factor with a loading of .5 to .85
and either sign, so that each column has variance 1; 150, 300, 600 or 1,000 rows; all factors correlated 0,
.25 or .5; K offered is 1.5 to 2 times as many. The seed draws all of it. `weak`: 2 to 4 such factors of four
indicators, and one more with two indicators of .4.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["FactorTable", "blocks", "weak"]

ROWS, CORRELATIONS = (150, 300, 600, 1000), (0.0, 0.25, 0.5)
STRONG, WEAK = (0.5, 0.85), 0.4
WEAK_INDICATORS, STRONG_INDICATORS = 2, 4


class FactorTable(NamedTuple):
    """A table, and how it came about.

    Attributes
    ----------
    x : ndarray (row, feature)
    loadings : ndarray (feature, factor)
    correlation : float
        Of any two factors.
    offered : int
        Number of factors that a fit is given.
    """

    x: NDArray[np.float64]
    loadings: NDArray[np.float64]
    correlation: float
    offered: int


def blocks(seed: int) -> FactorTable:
    """Blocks of indicators; see the head of this file."""
    rng = np.random.default_rng(seed)
    n_factors, n_indicators = int(rng.integers(2, 9)), int(rng.integers(3, 7))
    n_rows, correlation = int(rng.choice(ROWS)), float(rng.choice(CORRELATIONS))
    loadings = _simple(rng, n_factors, n_indicators)
    rng.random()  # keeps the draws of the first tables of this kind
    x = _rows(rng, loadings, correlation, n_rows)
    offered = min(int(np.ceil(n_factors * rng.uniform(1.5, 2))), x.shape[1] - 1)
    return FactorTable(x, loadings, correlation, offered)


def weak(seed: int, n_rows: int) -> FactorTable:
    """Strong factors, and a last one with two indicators of .4, which are the last two columns."""
    rng = np.random.default_rng([seed, 7])
    strong = _simple(rng, int(rng.integers(2, 5)), STRONG_INDICATORS)
    n_features, n_factors = strong.shape
    loadings = np.zeros((n_features + WEAK_INDICATORS, n_factors + 1))
    loadings[:n_features, :n_factors] = strong
    loadings[n_features:, n_factors] = WEAK
    correlation = CORRELATIONS[seed % len(CORRELATIONS)]
    x = _rows(rng, loadings, correlation, n_rows)
    return FactorTable(x, loadings, correlation, int(np.ceil(1.75 * (n_factors + 1))))


def _simple(rng: np.random.Generator, n_factors: int, n_indicators: int) -> NDArray[np.float64]:
    loadings = np.zeros((n_factors * n_indicators, n_factors))
    for k in range(n_factors):
        size = rng.uniform(*STRONG, n_indicators) * rng.choice([-1, 1], n_indicators)
        loadings[k * n_indicators : (k + 1) * n_indicators, k] = size
    return loadings


def _rows(
    rng: np.random.Generator, loadings: NDArray[np.float64], correlation: float, n_rows: int
) -> NDArray[np.float64]:
    n_features, n_factors = loadings.shape
    between = np.full((n_factors, n_factors), correlation) + (1 - correlation) * np.eye(n_factors)
    scores = rng.standard_normal((n_rows, n_factors)) @ np.linalg.cholesky(between).T
    noise = np.sqrt(1 - ((loadings @ between) * loadings).sum(1))
    return np.asarray(scores @ loadings.T + noise * rng.standard_normal((n_rows, n_features)))
