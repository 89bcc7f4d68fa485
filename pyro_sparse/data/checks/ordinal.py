r"""How far a cut into a few levels changes the correlations of normal variables, beyond what loadings absorb.

An item x_i is a standard normal y_i cut at points t_ia, with steps s_ia from one level to the next. Where y_i
and y_j correlate :math:`\rho`, the items correlate

.. math:: r_{ij}(\rho) = \frac{1}{\sigma_i \sigma_j} \sum_{a, b} s_{ia} s_{jb}
          \int_0^{\rho} \phi_2(t_{ia}, t_{jb}; u)\, du,

with the density of two standard normal variables of correlation u (Plackett 1954). To first order that is
:math:`k_i k_j \rho`: each item's loadings are smaller by its k_i, and no factor comes of it. What is left,
:math:`E_{ij} = r_{ij} - k_i k_j \rho_{ij}`, is small where items are cut alike; where they are not, easy
items go with easy ones and hard with hard: the difficulty factors of the literature (Ferguson 1941). A factor
can come of it once its largest eigenvalue reaches :math:`\sqrt{p / n}`, the least that n rows of p features
tell from noise (Baik, Ben Arous and Péché 2005). Of nine tuning tables of one trait below that (likert of
`benchmarks/_faults_tables.py`, seeds 1010 to 1076) none was given a second factor.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import norm

__all__ = ["correlation_excess", "makes_a_factor"]

Array = NDArray[np.float64]

_STEPS = 50  # of the integral over the angle; 100 change no eigenvalue of bfi or of cut tables by .001
_MOST_COLUMNS = 100  # 5,000 pairs, which take a second


def makes_a_factor(values: Array) -> bool:
    """Whether the cut alone may make a factor under the normal likelihood.

    Parameters
    ----------
    values : ndarray (row, item)
        Levels of items, NaN where missing. Of more than 100 items 100 are taken, evenly.
    """
    n_items = values.shape[1]
    if n_items > _MOST_COLUMNS:
        values = values[:, np.linspace(0, n_items - 1, _MOST_COLUMNS).astype(int)]
    n = np.isfinite(values).sum(0).mean()
    excess = correlation_excess(values)
    return bool(np.linalg.eigvalsh(excess)[-1] >= np.sqrt(len(excess) / n))


def correlation_excess(values: Array) -> Array:
    """Correlations of items less what smaller loadings of normal variables would explain, (item, item).

    Parameters
    ----------
    values : ndarray (row, item)
        Levels of items, NaN where missing. Every item has at least two.
    """
    r = np.nan_to_num(pd.DataFrame(values).corr().to_numpy())
    cuts, steps = _cuts(values)
    first, second = np.tril_indices(len(r), -1)
    observed = r[first, second]
    a, b = cuts[first][:, :, None], np.sign(observed)[:, None, None] * cuts[second][:, None, :]
    weight = steps[first][:, :, None] * steps[second][:, None, :]
    angle = np.linspace(0, np.pi / 2, _STEPS + 1)  # u = sin(angle), whose derivative takes the density's pole
    at = np.zeros((len(observed), _STEPS + 1))  # |r| at each correlation before the cut
    for i, u in enumerate(np.sin((angle[1:] + angle[:-1]) / 2)):
        size = np.exp(-(a**2 - 2 * u * a * b + b**2) / (2 * (1 - u**2)))
        at[:, i + 1] = at[:, i] + (weight * size).sum((1, 2)) * angle[1] / (2 * np.pi)
    before = np.sin([np.interp(size, curve, angle) for size, curve in zip(np.abs(observed), at, strict=True)])
    kept = (steps * norm.pdf(cuts)).sum(1)
    excess = np.zeros_like(r)
    excess[first, second] = observed - kept[first] * kept[second] * np.sign(observed) * before
    return excess + excess.T


def _cuts(values: Array) -> tuple[Array, Array]:
    """Points at which each item's normal variable is cut, and steps over its standard deviation: (item, cut).

    Items with fewer levels than others have steps of 0 at the end.
    """
    columns = [column[np.isfinite(column)] for column in values.T]
    levels = [np.unique(column, return_counts=True) for column in columns]
    shape = (len(columns), max(len(level) for level, _ in levels) - 1)
    cuts, steps = np.zeros(shape), np.zeros(shape)
    for i, (column, (level, count)) in enumerate(zip(columns, levels, strict=True)):
        cuts[i, : len(level) - 1] = ndtri(np.cumsum(count)[:-1] / count.sum())
        steps[i, : len(level) - 1] = np.diff(level) / column.std()
    return cuts, steps
