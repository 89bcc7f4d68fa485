"""Counts that vary more than a Poisson or multinomial likelihood with factors can explain."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...findings.finding import Finding
from ._cells import MOST_COLUMNS, Cells, listed

__all__ = ["overdispersed_counts", "underdispersed_counts"]

_LEAST_Z = 4.0  # standard errors of a column's extra variance
_MOST_RATIO = 0.75  # of variance to mean, in columns that vary less than counts
_LEAST_EXTRA = 0.05  # squared coefficient of variation beyond counting
_SHARED = (
    0.75  # correlation of log rates with some other column, below which the extra variance is a column's own
)
_SHARE = 0.5  # of the overdispersed columns
# Share that other kinds of column explain, below which it is a column's own. Of Poisson counts in tables of
# four kinds (seeds 1000 to 1039) it was .49 to 1.08 (middle 90 %), of negative binomial ones .18 to .62.
_EXPLAINED = 0.45
_RIDGE = 0.05  # added to the variance, 1, of each of them: few rows and many columns explain by chance


def underdispersed_counts(cells: Cells) -> list[Finding]:
    """Columns that vary less than counts of any rates do: answers or levels, taken for counts.

    Whatever the rates of Poisson counts are, factors or none, their variance is the mean or more.

    Parameters
    ----------
    cells : Cells
    """
    if cells.likelihood not in ("poisson", "negative_binomial"):
        return []
    x, observed = np.where(cells.mask, cells.values, 0.0), cells.mask.astype(float)
    size = np.ones((len(x), 1)) if cells.amount is None else cells.amount
    count = np.maximum(observed.sum(0), 1.0)
    mean = x.sum(0) / np.maximum((size * observed).sum(0), 1e-300)
    expected = size * mean * observed
    ratio = ((x - expected) ** 2 * observed).sum(0) / np.maximum(expected.sum(0), 1e-300)
    error = np.sqrt((2 + count / np.maximum(expected.sum(0), 1e-300)) / count)
    at = np.flatnonzero((ratio < 1 - _LEAST_Z * error) & (ratio < _MOST_RATIO))
    if len(at) < _SHARE * len(mean):
        return []
    names = [cells.features[j] for j in at]
    is_binary = bool((x[:, at] <= 1).all())
    return [
        Finding(
            "counts",
            f"{len(names)} of {len(mean)} columns ({listed(names)}) vary less than counts do: their variance "
            f"is {float(np.median(ratio[at])):.2g} times their mean, and that of counts is the mean or more",
            'take likelihood="bernoulli", which is made for yes or no'
            if is_binary
            else 'take likelihood="ordinal" if they are levels of a scale, "normal" if they are measurements',
            severity="doubt",
            source="data",
            columns=tuple(names),
            size=float(np.median(ratio[at])),
        )
    ]


def overdispersed_counts(cells: Cells, beside: NDArray[np.float64] | None = None) -> list[Finding]:
    r"""Columns of counts whose extra variance no other column shares.

    .. math:: v_j = \frac{\sum_i (x_{ij} - s_i \mu_j)^2 - s_i \mu_j}{\sum_i (s_i \mu_j)^2}, \qquad
              c_{jk} = \frac{\sum_i (x_{ij} - s_i \mu_j)(x_{ik} - s_i \mu_k)}{\sum_i s_i^2 \mu_j \mu_k}

    Of Poisson counts with log-normal rates log(1 + v) is a column's variance and log(1 + c) its covariance
    with another (Aitchison and Ho 1989). Factors explain a column's variance only as far as other columns
    share it: where the largest correlation is low, the variance is the column's own.

    Parameters
    ----------
    cells : Cells
    beside : ndarray (row, column), optional
        Columns of other kinds in the table, as an encoder reads them. Where there are any, a variance is a
        column's own if all others together explain less than .45 of it.
    """
    least = 3 if beside is None else 1  # with others to compare with one column will do
    if cells.likelihood not in ("poisson", "multinomial") or not least <= len(cells.features) <= MOST_COLUMNS:
        return []
    x, observed = np.where(cells.mask, cells.values, 0.0), cells.mask.astype(float)
    size = np.ones((len(x), 1)) if cells.amount is None else cells.amount
    if cells.likelihood == "multinomial":
        total = x.sum(1, keepdims=True)
        size = total / max(float(np.median(total)), 1e-300)
    mean = x.sum(0) / np.maximum((size * observed).sum(0), 1e-300)
    expected = size * mean * observed
    off = (x - expected) * observed
    extra = (off**2 - expected).sum(0) / np.maximum((expected**2).sum(0), 1e-300)
    # the square of what a Poisson count is off has the variance 2 mean^2 + mean
    error = np.sqrt((2 * expected**2 + expected).sum(0)) / np.maximum((expected**2).sum(0), 1e-300)
    dispersed = np.flatnonzero((extra > _LEAST_Z * error) & (extra > _LEAST_EXTRA))
    if len(dispersed) < max(2 if beside is None else 1, 0.3 * len(mean)):
        return []
    squares = (size * observed).T @ (size * observed) * np.outer(mean, mean)
    shared = off.T @ off / np.maximum(squares, 1e-300)
    covariance = np.log1p(np.clip(shared, -0.95, None))
    variance = np.log1p(np.maximum(extra, 1e-12))
    r = covariance / np.sqrt(np.outer(variance, variance))
    np.fill_diagonal(r, 0.0)
    if beside is None:
        alone = dispersed[np.abs(r[np.ix_(dispersed, dispersed)]).max(1) < _SHARED]
    else:
        alone = dispersed[
            _explained(off / np.maximum(mean, 1e-300), variance, beside)[dispersed] < _EXPLAINED
        ]
    if len(alone) < _SHARE * len(dispersed):
        return []
    names = [cells.features[j] for j in alone]
    factor = float(np.median(1 + extra[alone] * mean[alone]))
    of = "multinomial" if cells.likelihood == "multinomial" else "Poisson"
    return [
        Finding(
            "counts",
            f"counts of {len(names)} of {len(mean)} columns ({listed(names)}) are overdispersed: their "
            f"variance is about {factor:.2g} times that of {of} counts, and no other column shares it, so "
            "that factors would be found in noise",
            'take likelihood="negative_binomial"',
            severity="doubt",
            source="data",
            columns=tuple(names),
            size=factor,
        )
    ]


def _explained(
    relative: NDArray[np.float64], variance: NDArray[np.float64], beside: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Share of each column's variance of log rates that all others explain, in a linear regression.

    The covariance of a log-normal rate's logarithm with a normal variable is that of the count over its mean.
    """
    shares = np.zeros(len(variance))
    for j in range(len(variance)):
        others = np.column_stack([beside, np.delete(np.log1p(np.clip(relative, -0.9, None)), j, 1)])
        others = (others - others.mean(0)) / np.maximum(others.std(0), 1e-300)
        covariance = others.T @ relative[:, j] / len(relative)
        spread = others.T @ others / len(others) + _RIDGE * np.eye(others.shape[1])
        shares[j] = covariance @ np.linalg.solve(spread, covariance) / variance[j]
    return shares
