"""How many factors count where a linear model does not explain its table, whatever the likelihood.

Likelihood makes a factor of every small departure, and real tables depart from any graph: of 25 personality
items as levels, with ten factors offered, eight factors were kept, two for each of two scales. So factors
beyond those of parallel analysis have to be those of a model that explains the table: correlations of its
columns are no further from the model's than those of tables simulated from it. `linear_maximum.py` asks the
same of normal noise, in closed form.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..._utils.torch_state import undisturbed
from ...data.table import Table
from ...models.base import FactorModel
from .linear_maximum import row_moments
from .parallel_analysis import parallel_analysis
from .predictive import drawn_rows

__all__ = ["supported_factors"]

Array = NDArray[np.float64]
# Tables simulated from the model; one that it explains is further away than all of them once in 21 times. Of
# bfi .22 against at most .14; of twelve clean tables of levels, yes/no answers and counts no count of factors
# was above that of parallel analysis, so that none was asked.
_TABLES = 20


def supported_factors(model: FactorModel, table: Table, n_factors: int, seed: int) -> int | None:
    """Factors that parallel analysis finds, where that bounds them; None where it does not.

    Nothing is bounded where tables like this one cannot be simulated: of survey weights, and of likelihoods
    that have no draws.

    Parameters
    ----------
    model : FactorModel
        Trained, of a single restart.
    table : Table
    n_factors : int
        That the restart has.
    seed : int
    """
    if table.weights is not None and table.weights.kind == "survey":  # weighted rows are none of the model's
        return None
    try:
        _, moments = row_moments(table, np.arange(len(table.x)))
    except np.linalg.LinAlgError:  # columns that determine one another
        return None
    sd = np.sqrt(np.diag(moments.covariance))
    supported = parallel_analysis(moments.covariance / np.outer(sd, sd), moments.n_rows)
    try:
        return supported if n_factors > supported and not _explains(model, table, seed) else None
    except NotImplementedError:  # a likelihood of the caller's, from which nothing can be drawn
        return None


def _explains(model: FactorModel, table: Table, seed: int) -> bool:
    """Whether correlations of the columns are no further from the model's than those of its own tables."""
    seen = np.ones(table.x.shape, bool) if table.mask is None else np.asarray(table.mask)
    with undisturbed(seed), torch.no_grad():
        tables = [
            _correlations(drawn_rows(model, len(table.x), table.per_row)[0], seen) for _ in range(2 * _TABLES)
        ]
    expected = np.mean(tables[_TABLES:], 0)
    distances = [np.nansum((one - expected) ** 2) for one in tables[:_TABLES]]
    observed = _correlations(np.asarray(table.x, dtype=float), seen)
    return bool(np.nansum((observed - expected) ** 2) <= max(distances))


def _correlations(x: Array, seen: NDArray[np.bool_]) -> Array:
    """Of each pair of columns over the rows that have both."""
    return np.asarray(pd.DataFrame(np.where(seen, x, np.nan)).corr().to_numpy())
