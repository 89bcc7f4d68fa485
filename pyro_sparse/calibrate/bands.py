r"""How far the distribution function of N uniform numbers strays from the diagonal: an exact band.

.. math:: P\bigl(l_i \le N \hat F(z_i) \le u_i \text{ for all } i\bigr) \ge \text{prob}, \qquad
          l_i, u_i = \text{quantiles } \tfrac{\gamma}{2}, 1 - \tfrac{\gamma}{2} \text{ of } B(N, z_i)

with the largest :math:`\gamma` that keeps the promise for all points at once. Uniform counts are a Poisson
process given its total, so the probability is a chain of convolutions, each cut to its interval.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom, poisson

from .._utils.checks import check_whole
from ._check import Array

__all__ = ["ecdf_band"]

Counts = NDArray[np.int64]


def ecdf_band(n: int, points: ArrayLike, prob: float = 0.95) -> tuple[Array, Array]:
    """Between which the empirical distribution function of uniform numbers stays at all points at once.

    Parameters
    ----------
    n : int
        How many numbers, independent and uniform on [0, 1]; or ranks uniform on 0 … L, divided by L + 1, if
        the points are multiples of 1 / (L + 1) and the function counts what is strictly below.
    points : array_like of shape (point,)
        Where the function is looked at, rising, strictly between 0 and 1.
    prob : float
        In (0, 1). Counts are steps, so the band holds with this probability or a little more.

    Returns
    -------
    (low, high) : ndarrays of shape (point,)
        In units of the function, both ends inside.

    Raises
    ------
    ValueError
        If `n` is no positive whole number, or points or `prob` are out of range.

    References
    ----------
    Säilynoja, Bürkner and Vehtari (2022), Graphical test for discrete uniformity and its applications in
    goodness-of-fit evaluation and multiple sample comparison, Statistics and Computing 32:32, section 3.
    """
    check_whole(1, n=n)
    z = np.asarray(points, dtype=float)
    if z.ndim != 1 or z.size == 0 or not ((z > 0) & (z < 1)).all() or not (np.diff(z) > 0).all():
        raise ValueError(
            f"points: want rising numbers strictly between 0 and 1, shape (point,), got shape {z.shape}"
        )
    if not 0 < prob < 1:
        raise ValueError(f"prob: want a probability strictly between 0 and 1, got {prob!r}; 95 % is 0.95")
    low, high = _counts(int(n), tuple(z.tolist()), float(prob))
    return low / n, high / n


@lru_cache(maxsize=32)
def _counts(n: int, points: tuple[float, ...], prob: float) -> tuple[Counts, Counts]:
    z = np.array(points)
    # The union bound is safe; medians alone hold next to nothing.
    sure, unsure = np.log((1 - prob) / len(z)), 0.0
    for _ in range(25):  # halvings of some ten nats: the level is right to six digits
        middle = (sure + unsure) / 2
        sure, unsure = (
            (middle, unsure) if _inside(n, z, *_pointwise(n, z, middle)) >= prob else (sure, middle)
        )
    return _pointwise(n, z, sure)


def _pointwise(n: int, z: Array, log_level: float) -> tuple[Counts, Counts]:
    tail = np.exp(log_level) / 2
    return binom.ppf(tail, n, z).astype(np.int64), binom.isf(tail, n, z).astype(np.int64)


def _inside(n: int, z: Array, low: Counts, high: Counts) -> float:
    """P(low <= counts below z <= high everywhere)."""
    weight, start = np.ones(1), 0
    for step, first, last in zip(np.diff(z, prepend=0.0), low, high, strict=True):
        jump = poisson.pmf(np.arange(last - start + 1), n * step)
        reached = np.convolve(weight, jump)[first - start : last - start + 1]
        weight, start = reached, int(first)
    remaining = n - np.arange(low[-1], high[-1] + 1)
    return float(weight @ poisson.pmf(remaining, n * (1 - z[-1])) / poisson.pmf(n, n))
