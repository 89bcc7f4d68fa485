"""Tables of a Gaussian copula: what a table's margins and correlations give by themselves.

A check that looks for more than normal factors make (clusters, rows of equal answers) compares a table with
such tables. Their cells are the table's own values, column by column, with ties, skew and floors as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ._cells import correlation, normal_scores

__all__ = ["column_scores", "copula_tables"]

Array = NDArray[np.float64]

_ROWS = 2000  # from which correlations of the copula are matched to the table's
_STEPS = 3
_MOST_CORRELATED = 0.99
_LEAST_EIGENVALUE = 0.02


def column_scores(values: Array, mask: NDArray[np.bool_]) -> Array:
    """Normal scores of each column's ranks, of variance 1; 0 where missing.

    Parameters
    ----------
    values : ndarray (row, feature)
    mask : ndarray of bool (row, feature)
        True where a cell was seen.
    """
    z = np.zeros(values.shape)
    for j, observed in enumerate(mask.T):
        score = normal_scores(values[observed, j])
        score -= score.mean()
        z[observed, j] = score / max(float(score.std()), 1e-9)
    return z


def copula_tables(values: Array, mask: NDArray[np.bool_], rng: np.random.Generator) -> Iterator[Array]:
    """Tables of a Gaussian copula with a table's margins and correlations, as many as are asked for.

    Parameters
    ----------
    values : ndarray (row, feature)
    mask : ndarray of bool (row, feature)
        True where a cell was seen; every column has seen cells.
    rng : Generator

    Yields
    ------
    ndarray (row, feature)
        With as many rows, and no cell missing.
    """
    margins = [np.sort(values[observed, j]) for j, observed in enumerate(mask.T)]

    def drawn(r: Array, n_rows: int) -> Array:
        normal = rng.normal(size=(n_rows, len(r))) @ np.linalg.cholesky(r).T
        chance = stats.norm.cdf(normal).T
        cells = [
            margin[np.minimum((u * len(margin)).astype(int), len(margin) - 1)]
            for u, margin in zip(chance, margins, strict=True)
        ]
        return np.stack(cells, 1)

    # ties lower correlations of scores: those of the normal variables are raised until the table's come out
    wanted, everywhere = correlation(column_scores(values, mask), mask), np.ones((_ROWS, len(margins)), bool)
    r = _positive(wanted)
    for _ in range(_STEPS):
        made = correlation(column_scores(drawn(r, _ROWS), everywhere), everywhere)
        r = _positive(np.clip(r + wanted - made, -_MOST_CORRELATED, _MOST_CORRELATED))
    while True:
        yield drawn(r, len(values))


def _positive(r: Array) -> Array:
    """The nearest correlations, or about, without small or negative eigenvalues."""
    eigenvalues, vectors = np.linalg.eigh((r + r.T) / 2)
    raised = (vectors * np.maximum(eigenvalues, _LEAST_EIGENVALUE)) @ vectors.T
    sd = np.sqrt(np.diag(raised))
    return raised / np.outer(sd, sd)
