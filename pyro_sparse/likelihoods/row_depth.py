r"""Do rows of counts differ in depth? The table's own answer, before any fit.

Depth moves all features of a row alike, a factor those that it has edges to. Of counts with rates
:math:`s_i e^{f_{ij}}`, depths :math:`\log s_i \sim N(0, \tau^2)` and factors through loadings w,

.. math:: \operatorname{cov}(x_j, x_k) / (E x_j\, E x_k) = e^{\tau^2 + \sum_m w_{jm} w_{km}} - 1, \; j \ne k

(Aitchison and Ho 1989, Biometrika 76(4), section 2), whatever a feature's own overdispersion is. In most
pairs of a sparse graph the sum is zero, or it is of either sign: the median over pairs tells :math:`\tau^2`.
What is left of the variance of log totals is the factors' doing. A factor that moves most features alike
cannot be told apart from depth.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["MOST_COLUMNS", "MOST_ROWS", "common_variance", "depth_share"]

_BEYOND = 2.0  # standard errors by which totals have to vary beyond the noise of counting
MOST_ROWS, MOST_COLUMNS = 2000, 300  # that are looked at: evenly spread, and those with the most counts


def common_variance(counts: Tensor) -> float:
    r""":math:`\tau^2`, the weighted median over pairs of features; at least 0.

    Pairs weigh inversely to the standard error of their covariance.

    Parameters
    ----------
    counts : Tensor (row, feature)
        NaN where missing. Features without a count are left out.
    """
    observed = ~counts.isnan()
    cells = counts.nan_to_num(0.0).double()
    some = cells.sum(0) > 0
    cells, observed = cells[:, some], observed[:, some].double()
    if cells.shape[1] < 2:
        return 0.0
    mean = cells.sum(0) / observed.sum(0)
    off = (cells / mean - 1) * observed
    together = (observed.mT @ observed).clamp(min=1)
    covariance = off.mT @ off / together
    n = len(covariance)
    row, column = torch.triu_indices(n, n, offset=1)
    value, order = covariance[row, column].sort()
    variance = covariance.diagonal()
    weight = (together[row, column] / (variance[row] * variance[column]).clamp(min=1e-30)).sqrt()[order]
    running = weight.cumsum(0)
    middle = value[int(torch.searchsorted(running, running[-1] / 2))]
    return math.log1p(max(float(middle), 0.0))


def depth_share(counts: Tensor, totals: Tensor) -> float:
    r"""Share of the variance of log totals, but for the noise of counting, that is depth: from 0 to 1.

    Parameters
    ----------
    counts : Tensor (some rows, some features)
        NaN where missing.
    totals : Tensor (row, 1)
        Of the whole rows; those without a count are left out.
    """
    total = totals.double().flatten()
    total = total[total > 0]
    if len(total) < 2:
        return 0.0
    variance = float(total.log().var())
    spread = variance - float((1 / total).mean())
    noise = variance * math.sqrt(2 / (len(total) - 1))  # standard error of a variance
    if spread <= max(_BEYOND * noise, 1e-12):
        return 0.0
    return min(common_variance(counts) / spread, 1.0)
