"""New rows in other units than the fit's: what a fit is asked about them would be of rows that nobody has."""

from __future__ import annotations

import warnings

import numpy as np

from ...likelihoods.base import Likelihood
from ..table import Table
from ._cells import naming

__all__ = ["warn_of_other_units"]

# Standard deviations of the fit's rows: half of the cells of a column lie as far out (of a normal variable
# none does, of one with three degrees of freedom one in 2,000), or columns spread by so little of one.
_FAR, _NARROW, _LEAST_ROWS = 10.0, 0.02, 20


def warn_of_other_units(table: Table, likelihood: Likelihood) -> None:
    """Warn of new rows whose columns lie far from those of the fit, or hardly differ beside them.

    Of columns that are z-scored; shares, levels, answers and counts have no units.

    Parameters
    ----------
    table : Table
        New rows, in the fit's units.
    likelihood : Likelihood

    Warns
    -----
    RuntimeWarning
        Half of a column's cells are more than 10 standard deviations of the fit's rows from their mean; or,
        of 20 rows and more, half of the columns have a standard deviation below .02 of these.
    """
    columns = np.flatnonzero(likelihood.is_standardised(table.inputs.shape[1]))
    cells = table.inputs[:, columns].astype(float)  # standardised even where x is not
    if table.mask is not None:
        cells = np.where(table.mask[:, columns], cells, np.nan)
    seen = np.isfinite(cells).any(0)
    cells, columns = cells[:, seen], columns[seen]
    if not cells.size:
        return
    away = np.nanmedian(np.abs(cells), 0)
    message = ""
    if (away > _FAR).any():
        far = columns[away > _FAR]
        names = naming([table.feature_names[j] for j in far], "column")
        message = f"{names}: new rows lie up to {away.max():.3g} standard deviations from the fit's"
    elif len(cells) >= _LEAST_ROWS and np.median(spread := np.nanstd(cells, 0)) < _NARROW:
        message = f"new rows differ by {np.median(spread):.2g} of the standard deviations of the fit's"
    if message:
        warnings.warn(
            f"X: {message}, as if they were in other units; give them in those of the fit",
            RuntimeWarning,
            stacklevel=5,
        )
