r"""Edges named at a nominal false-discovery rate: how many are false, and how many true ones are found?

.. math::

    \text{realised} = \frac1D \sum_d \frac{\#\{\text{named, not there}\}}{\max(1, \#\text{named})}, \qquad
    \text{claimed} = \frac1D \sum_d \operatorname{mean}_{\text{named}} (1 - p)

in D data sets. If the probabilities are right, the two agree, whatever the nominal rate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..graphs.selection import bayesian_fdr, expected_fdr
from ._check import groups, pair

__all__ = ["RealisedFDR", "realised_fdr"]


class RealisedFDR(NamedTuple):
    """False discoveries and power of edges named at a nominal rate.

    Attributes
    ----------
    fdr : float
        Mean over data sets of the share of false edges among those named (0 where none is).
    fdr_se : float
        Its standard error over data sets; NaN for one data set.
    claimed : float
        Mean over data sets of the share that the probabilities themselves expect, `expected_fdr`.
    power : float
        Mean share of the true edges that are named, over data sets with at least one; NaN if none has.
    power_se : float
        Its standard error.
    """

    fdr: float
    fdr_se: float
    claimed: float
    power: float
    power_se: float


def realised_fdr(
    probability: ArrayLike, truth: ArrayLike, group: ArrayLike, *, fdr: float = 0.1
) -> RealisedFDR:
    """Name edges in each data set at a nominal rate; how many are false, and how many true ones are named?

    Parameters
    ----------
    probability, truth
        As in `ece`.
    group : array_like
        Data set of each edge: labels of the same shape, or of the leading axes of it.
    fdr : float
        Nominal rate in [0, 1]; edges are named by `pyro_sparse.graphs.bayesian_fdr`.

    Returns
    -------
    RealisedFDR
        A low rate alone is no calibration: naming few edges has it too. Compare `fdr` with `claimed`.

    Raises
    ------
    ValueError
        As in `ece`, or if the labels do not fit or `fdr` is out of range.
    """
    p, gamma = pair(probability, truth)
    home = groups(group, np.shape(probability))
    order = np.argsort(home, kind="stable")
    starts = np.flatnonzero(np.diff(home[order])) + 1
    false, claimed, recalled = [], [], []
    for some in np.split(order, starts):
        named, there = bayesian_fdr(p[some], fdr), gamma[some] == 1
        false.append((named & ~there).sum() / max(named.sum(), 1))
        claimed.append(expected_fdr(p[some], named))
        if there.any():
            recalled.append((named & there).sum() / there.sum())
    return RealisedFDR(*_mean_se(false), float(np.mean(claimed)), *_mean_se(recalled))


def _mean_se(values: list[float]) -> tuple[float, float]:
    if not values:
        return np.nan, np.nan
    n = len(values)
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(n)) if n > 1 else np.nan
