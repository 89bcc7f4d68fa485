"""What the checks of a table look at: its cells in the caller's units, of a large one those of some rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from ..large_table import LargeTable
from ..per_row import tensors_of
from ..table import Table

if TYPE_CHECKING:
    from ...likelihoods import Likelihood

__all__ = [
    "MOST_COLUMNS",
    "NORMAL_MAD",
    "Cells",
    "cells_of",
    "components_of",
    "correlation",
    "listed",
    "naming",
    "normal_scores",
]

MOST_ROWS = 2000  # of a table read by rows: its checks take no longer than those of a table in memory
MOST_COMPONENTS = 10
MOST_COLUMNS = 1000  # that are compared with one another: the square of it is in memory, the cube is computed
NORMAL_MAD = 1.4826  # standard deviations of a normal distribution in a median absolute deviation
_SHOWN = 6  # names in a sentence


@dataclass(frozen=True)
class Cells:
    """Cells of a table as its caller gave them, and its names.

    Parameters
    ----------
    values : ndarray (row, feature)
        In the caller's units; NaN where missing.
    view : ndarray (row, feature)
        What an encoder reads: z-scored, counts as their logarithm; 0 where missing.
    features, rows : list of str
    likelihood : str
    amount : ndarray (row, 1) or None
        How much of a typical row each one is; None where all are alike.
    is_whole : bool
        Whether these are all rows of the table, in its order.
    given : ndarray (row, feature), optional
        The cells before effects of covariates were taken from `values`.
    amount_is_given : bool
        Whether the caller said how much of a typical row each one is (exposures).
    """

    values: NDArray[np.float64]
    view: NDArray[np.float64]
    features: list[str]
    rows: list[str]
    likelihood: str
    amount: NDArray[np.float64] | None
    is_whole: bool
    given: NDArray[np.float64] | None = None
    amount_is_given: bool = False

    @property
    def is_normal(self) -> bool:
        """Whether the likelihood is the normal one, for measurements on a continuous scale."""
        return self.likelihood == "normal"

    def of(self, columns: list[int], likelihood: str) -> Cells:
        """The cells of some columns.

        Parameters
        ----------
        columns : list of int
        likelihood : str
            Theirs.
        """
        return replace(
            self,
            values=self.values[:, columns],
            view=self.view[:, columns],
            features=[self.features[j] for j in columns],
            likelihood=likelihood,
            given=None if self.given is None else self.given[:, columns],
        )

    def without(self, rows: NDArray[np.int_]) -> Cells:
        """These cells but for some rows.

        Parameters
        ----------
        rows : ndarray of int
        """
        if not len(rows):
            return self
        kept = np.delete(np.arange(len(self.values)), rows)
        return replace(
            self,
            values=self.values[kept],
            view=self.view[kept],
            rows=[self.rows[i] for i in kept],
            amount=None if self.amount is None else self.amount[kept],
            given=None if self.given is None else self.given[kept],
        )

    def hidden(self, where: NDArray[np.bool_]) -> Cells:
        """These cells with some of them missing.

        Parameters
        ----------
        where : ndarray of bool (row, feature)
        """
        if not where.any():
            return self
        return replace(self, values=np.where(where, np.nan, self.values))

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        """True where a cell was seen, (row, feature)."""
        return ~np.isnan(self.values)

    @cached_property
    def columns(self) -> list[NDArray[np.float64]]:
        """The seen cells of each column, rounded to a millionth of their spread, for conversion errs."""
        cells = self.values if self.given is None else self.given
        return [_rounded(column[observed]) for column, observed in zip(cells.T, self.mask.T, strict=True)]

    @cached_property
    def is_integer(self) -> NDArray[np.bool_]:
        """Whether all cells of a column are whole numbers; not where a far cell hides others' digits."""
        whole = np.array([bool((column == np.rint(column)).all()) for column in self.columns])
        return whole & ~self.is_coarse

    @cached_property
    def is_coarse(self) -> NDArray[np.bool_]:
        """Whether a column's largest cell leaves no digits for differences between the others."""
        cells = self.values if self.given is None else self.given
        seen = [column[observed] for column, observed in zip(cells.T, self.mask.T, strict=True)]
        return np.array([np.abs(column).max(initial=0.0) > 1e12 * _spread(column) > 0 for column in seen])

    @cached_property
    def n_levels(self) -> NDArray[np.int_]:
        """Different values in each column."""
        return np.array([len(np.unique(column)) for column in self.columns])

    @cached_property
    def robust(self) -> NDArray[np.float64]:
        """Cells less their column's median, in robust standard deviations; 0 where missing."""
        z = self.values - np.nanmedian(self.values, 0)
        scale = NORMAL_MAD * np.nanmedian(np.abs(z), 0)
        scale = np.where(scale > 0, scale, np.nanstd(self.values, 0))
        return np.where(self.mask, z / scale, 0.0)


def cells_of(table: Table, likelihood: Likelihood) -> Cells:
    """Cells of a table, or of some thousand rows, evenly spread, of one that is read by rows.

    Parameters
    ----------
    table : Table
    likelihood : Likelihood
    """
    is_whole = not isinstance(table, LargeTable)
    if isinstance(table, LargeTable):
        n_rows = table.rows_together(100, MOST_ROWS)
        table = table.rows(np.unique(np.linspace(0, len(table.x) - 1, n_rows).astype(int)))
    values = table.x * table.scale + table.centre
    if table.mask is not None:
        values = np.where(table.mask, values, np.nan)
    amount = likelihood.amount(tensors_of(table.per_row, torch.float64))
    return Cells(
        values,
        table.inputs,
        table.feature_names,
        table.sample_names,
        likelihood.name,
        None if amount is None else amount.numpy(),
        is_whole,
        None if table.design is None else table.given_back(table.x, table.per_row),
        amount is not None and bool(table.row_units.keys() - {"design"}),
    )


def _rounded(column: NDArray[np.float64]) -> NDArray[np.float64]:
    largest, spread = np.abs(column).max(initial=0.0), _spread(column)
    if spread == 0 or not np.isfinite(largest):
        return column
    # to a millionth of the spread, but no finer than double precision has of the largest
    digits = min(6 - np.ceil(np.log10(spread)), 14 - np.ceil(np.log10(largest)))
    return np.round(column, int(np.clip(digits, -300, 300)))


def _spread(column: NDArray[np.float64]) -> float:
    """Width of the middle nine tenths, which a far cell does not move; where that is 0, of all."""
    if not len(column):
        return 0.0
    low, high = np.quantile(column, [0.05, 0.95])
    return float(high - low) or float(np.ptp(column))


def correlation(z: NDArray[np.float64], mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Correlations of columns by the rows in which both are seen.

    Parameters
    ----------
    z : ndarray (row, feature)
        Any units; where a cell is missing, anything finite.
    mask : ndarray of bool (row, feature)
    """
    weights = mask.astype(float)
    count = np.maximum(weights.sum(0), 1.0)
    # means are those of each column, not of the rows that a pair has in common
    centred = (z - (z * weights).sum(0) / count) * weights
    sd = np.sqrt((centred**2).sum(0) / count)
    centred /= np.where(sd > 0, sd, 1.0)
    if mask.all():
        return centred.T @ centred / len(z)
    squares = centred**2
    left = squares.T @ weights
    return centred.T @ centred / np.sqrt(np.maximum(left * left.T, 1e-300))


def components_of(cells: Cells) -> NDArray[np.float64]:
    """Normal scores of the ranks of the leading principal components, (row, component).

    Parameters
    ----------
    cells : Cells
    """
    z = np.clip(np.where(cells.mask, cells.view, 0.0), -5, 5)
    u, s, _ = np.linalg.svd(z - z.mean(0), full_matrices=False)
    # above the largest eigenvalue that noise has (Marchenko and Pastur)
    n_signal = int((s**2 / len(z) > (1 + np.sqrt(z.shape[1] / len(z))) ** 2).sum())
    return np.apply_along_axis(normal_scores, 0, u[:, : int(np.clip(n_signal + 1, 2, MOST_COMPONENTS))])


def normal_scores(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Normal quantiles of the ranks of numbers.

    Parameters
    ----------
    x : ndarray (row,)
    """
    scores: NDArray[np.float64] = stats.norm.ppf(stats.rankdata(x) / (len(x) + 1))
    return scores


def naming(names: list[str], noun: str) -> str:
    """Names in a sentence: "column 'a'", "columns 'a', 'b' and 3 more".

    Parameters
    ----------
    names : list of str
    noun : str
        For one of them, such as "column".
    """
    return f"{noun}{'s' if len(names) > 1 else ''} {listed(names)}"


def listed(names: list[str], most: int = _SHOWN) -> str:
    """Names, the first of them if there are many.

    Parameters
    ----------
    names : list of str
    most : int
    """
    quoted = [repr(name) for name in names]
    if len(quoted) > most:
        return f"{', '.join(quoted[:most])} and {len(quoted) - most} more"
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]]) if len(quoted) > 1 else quoted[0]
