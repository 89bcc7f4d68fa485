r"""Eigenvalues of which correlations say how many factors a linear decoder's table has?

Those of the cells, as the encoder sees them, and for yes/no answers and ordered levels less what their cuts
add. Tetrachoric and polychoric correlations find no more: of 100 tables of yes/no answers (2 to 6 factors of
3 to 6 indicators, 150 to 1,000 rows) both find 88 or 89 right, of levels 91 or 92, and where a fifth of the
answers is yes the cells' own find 79 and tetrachoric ones 75. They vary more, so that they need tables of
permuted columns for noise (beside normal noise 32 % have a factor too many), which the cells' own do not.

One thing the cells' own get wrong: rare answers go with rare ones and frequent with frequent, a factor of
difficulty that shows with many rows or strong factors. Of 100 tables of one factor with loadings of .8 and
base rates from .05 to .95 all have a second; of 1 to 3 factors with loadings of .5 to .85 10, of 3,000 rows
30 %. Less the excess over what smaller loadings explain (`data/checks/ordinal.py`) 100 and 99 are right, and
of the tables above 78 and more (seeds 1000 to 1099).

References
----------
Cho, Li and Bandalos (2009), Accuracy of the parallel analysis procedure with polychoric correlations,
Educational and Psychological Measurement 69(5)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..._utils.declared import keeps
from ...data.checks.ordinal import correlation_excess
from .parallel_analysis import Eigenvalues, beside_noise

if TYPE_CHECKING:
    from ...data.table import Table
    from ...models.base import FactorModel
    from .factor_likelihood import Moments
    from .result import Fit

__all__ = ["cell_correlation", "cell_eigenvalues"]

Array = NDArray[np.float64]
_RIDGE = 1e-9
# Standard errors up to which a correlation may be chance, for which no excess is subtracted: two rare answers
# that no row gives together have one of -.05, and responses of -1. Of the tables of .05 to .95 that makes a
# factor too many in 18 % where no correlation counts as chance, in 15 % at 1 and in 1 % at 2.
_CHANCE = 2.0
_MOST_ANSWERS = 300  # 45,000 pairs, which take a second or two


def cell_eigenvalues(fit: Fit, mean: Array, moments: Moments) -> Eigenvalues:
    """Of the correlations of a table's cells, beside those of noise.

    Parameters
    ----------
    fit : Fit
        With its rows.
    mean : ndarray (feature,)
    moments : Moments
        Both of all rows (`row_moments`).
    """
    table, rows = fit.table, np.arange(len(fit.table.x))
    covariance = table.freedom * moments.covariance
    x = np.asarray(table.inputs, dtype=float) - mean
    if table.mask is not None:
        x = _expected(x, np.asarray(table.mask), covariance)
    correlation = cell_correlation(fit.model, table, rows, moments)
    return beside_noise(x / np.sqrt(np.diag(covariance)), correlation, moments.n_rows)


def cell_correlation(model: FactorModel, table: Table, rows: NDArray[np.intp], moments: Moments) -> Array:
    """Correlations of a table's cells, those of answers and levels less what cuts add, (feature, feature).

    Parameters
    ----------
    model : FactorModel
        Set up.
    table : Table
    rows : ndarray of int
    moments : Moments
        Of these rows (`row_moments`).
    """
    sd = np.sqrt(np.diag(moments.covariance))
    correlation = cast(Array, moments.covariance / np.outer(sd, sd))
    return correlation - _excess_of_answers(model, table, rows)


def _excess_of_answers(model: FactorModel, table: Table, rows: NDArray[np.intp]) -> Array:
    """What cuts add to correlations of yes/no answers and ordered levels, (feature, feature); 0 of many."""
    n_features = table.x.shape[1]
    answers = np.zeros(n_features, dtype=bool)
    for likelihood, columns in model.likelihood.families():
        if keeps(likelihood, "logistic levels"):
            answers[slice(None) if columns is None else columns] = True
    cells = np.where(True if table.mask is None else table.mask[rows], table.x[rows], np.nan)
    answers &= np.nanmin(cells, 0) < np.nanmax(cells, 0)
    excess = np.zeros((n_features, n_features))
    if 1 < answers.sum() <= _MOST_ANSWERS:
        values = cells[:, answers].astype(float)
        chance = np.abs(pd.DataFrame(values).corr().to_numpy()) <= _CHANCE / np.sqrt(len(values))
        excess[np.ix_(answers, answers)] = np.where(chance, 0.0, correlation_excess(values))
    return excess


def _expected(x: Array, seen: NDArray[np.bool_], covariance: Array) -> Array:
    """Centred cells, and those that are missing as expected given the others of their row."""
    filled = np.where(seen, x, 0.0)
    patterns, which = np.unique(seen, axis=0, return_inverse=True)
    for p, here in enumerate(patterns):
        if not here.all() and here.any():
            rows = np.flatnonzero(which.reshape(-1) == p)
            known = covariance[np.ix_(here, here)] + _RIDGE * np.eye(int(here.sum()))
            gain = np.linalg.solve(known, covariance[np.ix_(here, ~here)])
            filled[np.ix_(rows, ~here)] = filled[np.ix_(rows, here)] @ gain
    return filled
