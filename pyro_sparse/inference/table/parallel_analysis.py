"""How many factors have eigenvalues above those of noise: Horn's parallel analysis, and how sure that is.

It presupposes no model, and minor factors that no theory names stay below it: of 200 to 1,000 answers to 25
personality items it finds five or six, where every criterion of likelihood makes eight to ten.

Eigenvalues of a table differ from those of the population that its rows come from. By how much, halves of the
rows show, whatever the distribution of the cells: drawn without replacement, they differ from all rows as
these do from the population.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

__all__ = ["Eigenvalues", "beside_noise", "number_probabilities", "parallel_analysis"]

Array = NDArray[np.float64]
_TABLES = 20  # of noise, over which eigenvalues are averaged
_HALVES = 100  # of the rows, that show how much eigenvalues vary
_LEAST_SD = 1e-12  # of an eigenvalue, to divide by


class Eigenvalues(NamedTuple):
    """Of correlations, the largest first.

    Attributes
    ----------
    value : ndarray (feature,)
    noise : ndarray (feature,)
        Their mean in tables of noise of as many rows.
    sd : ndarray (feature,)
        By how much they differ from those of the population.
    """

    value: Array
    noise: Array
    sd: Array

    @property
    def above(self) -> Array:
        """Probability that each is above noise, but for chance in the rows, (feature,)."""
        above: Array = ndtr((self.value - self.noise) / np.maximum(self.sd, _LEAST_SD))
        return above


def parallel_analysis(correlation: Array, n_rows: float) -> int:
    """Eigenvalues of a correlation matrix before the first that is not above its mean under noise.

    Parameters
    ----------
    correlation : ndarray (feature, feature)
    n_rows : float

    Returns
    -------
    int
        At least 1. Tables of noise are always the same: equal input gives equal output.

    References
    ----------
    Horn (1965), A rationale and test for the number of factors in factor analysis, Psychometrika 30(2)

    Examples
    --------
    >>> blocks = np.kron(np.eye(3), np.full((4, 4), 0.5)) + 0.5 * np.eye(12)
    >>> parallel_analysis(blocks, 300)
    3
    """
    below = np.linalg.eigvalsh(correlation)[::-1] <= _of_noise(n_rows, len(correlation))
    return max(1, int(below.argmax()) if below.any() else len(correlation))


def beside_noise(x: Array, correlation: Array, n_rows: float) -> Eigenvalues:
    """Eigenvalues of correlations, those of noise, and how far those of the population may be from them.

    Parameters
    ----------
    x : ndarray (row, feature)
        Standardised; missing cells filled with what is expected of them.
    correlation : ndarray (feature, feature)
    n_rows : float
        That the correlations count for.
    """
    value = cast(Array, np.linalg.eigvalsh(correlation))[::-1]
    rng, half = np.random.default_rng(0), max(len(x) // 2, 1)
    of_missing = correlation - x.T @ x / len(x)  # variance that expected cells do not have
    of_halves = []
    for _ in range(_HALVES):
        rows = x[rng.permutation(len(x))[:half]]
        rows = rows - rows.mean(0)
        covariance = rows.T @ rows / half + of_missing
        sd = np.sqrt(np.maximum(np.diag(covariance), _LEAST_SD))
        of_halves.append(np.linalg.eigvalsh(covariance / np.outer(sd, sd))[::-1])
    spread = np.std(np.array(of_halves, dtype=np.float64), 0) * np.sqrt(len(x) / n_rows)
    return Eigenvalues(value, _of_noise(n_rows, len(value)), spread)


def number_probabilities(above: Array, most: int) -> Array:
    r"""Probabilities of 1, ..., `most` factors by parallel analysis, but for chance in the rows.

    At least k factors are there with probability
    :math:`\min_{2 \le l \le k} P(\lambda_l \text{ above noise})`.

    Parameters
    ----------
    above : ndarray (feature,)
        Of each eigenvalue (`Eigenvalues.above`).
    most : int
        More do not count.

    Examples
    --------
    >>> number_probabilities(np.array([1.0, 1.0, 0.9, 0.1]), 4)
    array([0. , 0.1, 0.8, 0.1])
    """
    at_least = np.minimum.accumulate(np.concatenate([[1.0], above[1:most], [0.0]]))
    return at_least[:-1] - at_least[1:]


def _of_noise(n_rows: float, n_features: int) -> Array:
    """Mean eigenvalues of correlations in tables of noise, the largest first; always the same."""
    rng, size = np.random.default_rng(0), (max(int(n_rows), 2), n_features)
    noise = [np.linalg.eigvalsh(np.corrcoef(rng.standard_normal(size).T)) for _ in range(_TABLES)]
    mean: Array = np.mean(noise, 0)[::-1]
    return mean
