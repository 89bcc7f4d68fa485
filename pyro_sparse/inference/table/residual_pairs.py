r"""Pairs of features that correlate beyond what their factors explain: twin questions, common wording.

The likelihood of N(mean, Σ) with a residual covariance :math:`\psi_{jk}` added has, at none of it, the score
:math:`n G_{jk}` with :math:`G = P (S - \Sigma) P`, :math:`P = \Sigma^{-1}`, and the information
:math:`n (P_{jj} P_{kk} + P_{jk}^2)`. Their quotients are the modification index, :math:`\chi^2_1` where the
model holds, and the covariance to expect,

.. math:: m_{jk} = \frac{n G_{jk}^2}{P_{jj} P_{kk} + P_{jk}^2}, \qquad
          \hat\psi_{jk} = \frac{G_{jk}}{P_{jj} P_{kk} + P_{jk}^2}.

What the model's other parameters would take up of it is left out, so that both err to the small side.

References
----------
Sörbom (1989), Model modification, Psychometrika 54(3)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pandas as pd
import torch
from scipy.stats import chi2

from ...data.large_table import LargeTable
from ...findings.finding import Finding
from .unexplained import rows_covariance

if TYPE_CHECKING:
    from .result import Fit

__all__ = ["applies", "residual_correlations", "residual_pair_findings", "residual_pairs"]

MOST_FEATURES = 2000  # of a dense covariance
_FALSE_ALARM = 0.01  # of a table without pairs, over all of its pairs (Bonferroni)
_LEAST = 0.15  # residual correlation; smaller ones stand in every questionnaire and make no factor of two
_NAMED = 4  # pairs in a message
_FEW = "they may share words, or a method, and not a trait; fit.residual_pairs() lists them"
# Of more pairs than features.
_MANY = (
    "so many are no pairs of one wording: factors are missing, relations are curves, or steps were too few"
)


def residual_correlations(
    covariance: np.ndarray, implied: np.ndarray, noise_sd: np.ndarray, n_rows: np.ndarray | float
) -> tuple[np.ndarray, np.ndarray]:
    """Correlation of residuals to expect of each pair of features, and its modification index.

    Parameters
    ----------
    covariance, implied : ndarray (feature, feature)
        Of the rows, and under the model.
    noise_sd : ndarray (feature,)
        Of the model's residuals.
    n_rows : ndarray (feature, feature) or float
        That saw both.

    Returns
    -------
    correlation, index : ndarray (feature, feature)
        Zeros on the diagonal.
    """
    precision = np.linalg.inv(implied)
    score = precision @ (covariance - implied) @ precision
    diagonal = np.diag(precision)
    information = np.outer(diagonal, diagonal) + precision**2
    index = n_rows * score**2 / information
    # One step of Newton's, which may leave the range where next to nothing is left unexplained.
    correlation = np.clip(score / information / np.outer(noise_sd, noise_sd), -1.0, 1.0)
    np.fill_diagonal(index, 0.0)
    np.fill_diagonal(correlation, 0.0)
    return correlation, index


def residual_pairs(fit: Fit) -> pd.DataFrame:
    """All pairs of features, largest modification index first: see `Fit.residual_pairs`.

    Parameters
    ----------
    fit : Fit
    """
    if not applies(fit):
        raise ValueError(
            "residual_pairs: wants a fit under the normal likelihood of a table in memory, of 2 to "
            f"{MOST_FEATURES:,} features"
        )
    table = fit.table
    mean, implied = fit.implied_moments()
    noise = cast(torch.Tensor, fit.model.likelihood.noise_sd())[fit.best, 0]
    noise_sd = noise.detach().cpu().double().numpy()
    covariance, n_rows = rows_covariance(table.x, table.mask, mean, implied)
    covariance, n_rows = covariance / table.freedom, n_rows * table.freedom
    correlation, index = residual_correlations(covariance, implied, noise_sd, n_rows)
    second, first = np.tril_indices(len(index), -1)
    names = np.asarray(fit.feature_names, dtype=object)
    pairs = pd.DataFrame(
        {
            "feature": names[first],
            "other": names[second],
            "residual_correlation": correlation[first, second],
            "modification_index": index[first, second],
        }
    )
    return pairs.sort_values("modification_index", ascending=False, kind="stable", ignore_index=True)


def applies(fit: Fit) -> bool:
    """Whether there is a table, and a residual variance, to ask.

    Parameters
    ----------
    fit : Fit
    """
    if isinstance(fit.table, LargeTable) or not len(fit.table.x):
        return False
    return fit.model.likelihood.noise_sd() is not None and 2 <= fit.model.n_features <= MOST_FEATURES


def residual_pair_findings(fit: Fit) -> list[Finding]:
    """What to say of pairs that correlate beyond their factors, if there are any.

    Parameters
    ----------
    fit : Fit
    """
    if not applies(fit):
        return []
    pairs = residual_pairs(fit)
    limit = chi2.isf(_FALSE_ALARM / len(pairs), 1)
    large = pairs[(pairs.modification_index >= limit) & (pairs.residual_correlation.abs() >= _LEAST)]
    if large.empty:
        return []
    named = [
        f"{row.feature} and {row.other} ({row.residual_correlation:.2f})"
        for row in large.head(_NAMED).itertuples()
    ]
    more = f" and {len(large) - _NAMED} more pairs" if len(large) > _NAMED else ""
    return [
        Finding(
            "pairs",
            f"{', '.join(named)}{more} correlate beyond their factors",
            _MANY if len(large) > fit.model.n_features else _FEW,
            columns=tuple(dict.fromkeys([*large.feature.head(_NAMED), *large.other.head(_NAMED)])),
            size=float(large.residual_correlation.abs().max()),
        )
    ]
