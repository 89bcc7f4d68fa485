r"""How much each row counts: so many identical rows, or so many members of the population it is from.

*Frequency* weights :math:`w_i` are counts, and a table is read as if each of its rows stood there
:math:`w_i` times. Factors of identical rows differ, so that a power of a row's joint density would be another
model; rows that are repeated are the same one.

*Survey* weights are in proportion to how many members of a population a row speaks for. The likelihood is
that of the population's moments, counted as often as there are effective rows (Kish):

.. math:: \prod_i p(x_i \mid \theta)^{\tilde w_i}, \qquad \tilde w_i = w_i \frac{n_e}{\sum_i w_i}, \qquad
          n_e = \frac{(\sum_i w_i)^2}{\sum_i w_i^2}

Under a linear decoder and normal noise it knows the rows by their weighted mean and covariance only, so that
a table of :math:`n_e` rows with that mean and covariance has the same likelihood. Such a table is made here.

References
----------
Kish (1965), *Survey Sampling*, Wiley; Pfeffermann (1993), *The role of sampling weights when modeling
survey data*, International Statistical Review 61(2); Savitsky and Toth (2016), *Bayesian estimation under
informative sampling*, Electronic Journal of Statistics 10(1)
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from torch import Tensor

from ..findings.finding import Finding
from .columns import as_frame, check_order, row_names
from .design import ROLES, check_orders, named_columns, taken_out
from .read import read_table
from .stores import store_of
from .table import Table
from .views import as_one_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .._utils.types import TableLike, VectorLike
    from ..likelihoods import Likelihood

__all__ = [
    "ARGUMENTS",
    "KINDS",
    "Reader",
    "RowWeights",
    "counted",
    "counted_like",
    "read_weights",
    "weights_findings",
]

ARGUMENTS = ("sample_weight", "sample_weight_type")  # of `fit`
KINDS = ("frequency", "survey")
_MEANINGS = (
    "'frequency' (a row of weight 3 counts as three identical rows) or 'survey' (rows were sampled with "
    "unequal probabilities, and a weight is in proportion to how many members of the population the row "
    "speaks for)"
)
_MOST_CELLS = 250_000_000  # of repeated rows: 2 GB
_FEW = 0.5  # share of rows that are effective, below which weights cost more than half of the table
# Rows of measurements are not seen again and again. A bootstrap counts a row that it drew 1.6 times.
_OFTEN = 3.0  # the middle frequency
_DISTINCT = 0.9  # of the rows' numbers in a column, of measurements
_MEASURED = 0.5  # of the columns

Reader = Callable[[Any, Mapping[str, Any], "Table | None"], Table]  # rows, what goes with them, whose units


@dataclass(frozen=True, eq=False)
class RowWeights:
    """Weights of a table's rows.

    Attributes
    ----------
    kind : {"frequency", "survey", "equal"}
        "equal": all rows count as one, and nothing but the column is remembered.
    values : ndarray (row,)
        Positive, as they were given.
    column : str or None
        The table's column that they are.
    """

    kind: str
    values: NDArray[np.float64]
    column: str | None = None

    @property
    def effective(self) -> float:
        """Rows of equal weight that would say as much (Kish); of counts their sum."""
        if self.kind == "frequency":
            return float(self.values.sum())
        if self.kind == "equal":
            return float(len(self.values))
        relative = self.values / self.values.max()
        return float(relative.sum() ** 2 / (relative**2).sum())

    @property
    def counted(self) -> int:
        """Rows that the likelihood counts."""
        return math.floor(self.effective + 1e-9)

    def as_dict(self) -> dict[str, Any]:
        """What settings and files say of them, of what JSON knows."""
        return {
            "type": self.kind,
            "rows": len(self.values),
            "counted": self.counted,
            "column": self.column,
        }


class _Given(NamedTuple):
    """A table without the column that holds weights, and the weights as the caller has them."""

    data: Any
    values: Any
    column: str | None


# ---- what the caller gave ----------------------------------------------------------------------------------
def read_weights(
    data: TableLike, sample_weight: VectorLike | str | None, sample_weight_type: str | None
) -> tuple[TableLike, RowWeights | None]:
    """The table without the column that holds weights, and these; None where there are none to remember.

    Parameters
    ----------
    data : array_like (row, feature), DataFrame or AnnData
    sample_weight : array_like (row,), str or None
        Or the name of a column; of an AnnData one of `obs`.
    sample_weight_type : {"frequency", "survey"} or None
        May be left out where all weights are 1.

    Raises
    ------
    ValueError
        Not one positive number per row; counts that are not whole; no or another type; a column that is not
        there; more repeated rows than fit into memory; rows that are read from disk.
    TypeError
        No numbers; a name, and the table has none.
    """
    if sample_weight_type is not None and sample_weight_type not in KINDS:
        raise ValueError(f"sample_weight_type: got {sample_weight_type!r}, wanted {_MEANINGS}")
    if sample_weight is None:
        if sample_weight_type is not None:
            raise ValueError(
                f"sample_weight_type: got {sample_weight_type!r}, and no sample_weight; give the weights, or "
                "leave it out"
            )
        return data, None
    if store_of(data) is not None:
        raise ValueError(
            "sample_weight: X is read by rows, and weights want a table in memory; give fewer rows"
        )
    data, values, column = _given(as_frame(as_one_table(data)), sample_weight)
    n_rows = _n_rows(data)
    numbers = _numbers(values, n_rows)
    check_order("sample_weight", row_names(values), row_names(data))
    equal = None if column is None else RowWeights("equal", numbers, column)
    if (numbers == 1).all():
        return data, equal
    if sample_weight_type is None:
        raise ValueError(
            f"sample_weight: got weights, and not what they are; wanted sample_weight_type={_MEANINGS}"
        )
    weights = RowWeights(sample_weight_type, numbers, column)
    if sample_weight_type == "survey":
        return data, weights if np.ptp(numbers) > 0 else equal
    _check_counts(numbers, data)
    return data, weights


def _given(data: Any, values: Any) -> _Given:
    if not isinstance(values, str):
        return _Given(data, values, None)
    data, beside, _ = taken_out(data, {"sample_weight": values})
    return _Given(data, beside["sample_weight"].iloc[:, 0], values)


def _numbers(values: Any, n_rows: int) -> NDArray[np.float64]:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
    try:
        numbers = np.array(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"sample_weight: cannot be read as numbers ({error}), wanted one per row, or the name of a column"
        ) from error
    if numbers.size != n_rows or (numbers.ndim != 1 and max(numbers.shape, default=0) != n_rows):
        raise ValueError(
            f"sample_weight: has shape {np.shape(values)} for {n_rows} rows, wanted one number per row"
        )
    numbers = numbers.reshape(-1)
    bad = ~(np.isfinite(numbers) & (numbers > 0))
    if bad.any():
        i = int(bad.argmax())
        fix = "leave out rows of weight zero" if numbers[i] == 0 else "leave such rows out, or weigh them"
        raise ValueError(
            f"sample_weight: is {numbers[i]:g} in row {i}, wanted a finite number above 0; {fix}"
        )
    return numbers


def _check_counts(numbers: NDArray[np.float64], data: Any) -> None:
    """Complain of what is no count of rows."""
    broken = numbers != np.round(numbers)
    if broken.any():
        i = int(broken.argmax())
        raise ValueError(
            f"sample_weight: is {numbers[i]:g} in row {i}, and frequencies are whole numbers of rows; where "
            "weights say how many members of a population a row speaks for, give "
            "sample_weight_type='survey'"
        )
    n_columns = data.shape[1] if hasattr(data, "shape") else len(data[0])
    if numbers.sum() * n_columns > _MOST_CELLS:
        raise ValueError(
            f"sample_weight: counts {numbers.sum():,.0f} rows of {n_columns} columns, wanted at most "
            f"{_MOST_CELLS:,} cells; where weights say how many members of a population a row speaks for, "
            "give sample_weight_type='survey'"
        )


def weights_findings(weights: RowWeights | None, cells: NDArray[np.float64]) -> list[Finding]:
    """How many rows survey weights leave; frequencies of rows of which no two are alike.

    Parameters
    ----------
    weights : RowWeights or None
    cells : ndarray (row, feature)
        Of the caller's rows.
    """
    if weights is None:
        return []
    if weights.kind == "frequency":
        return _of_measurements(weights, cells)
    if weights.kind != "survey":
        return []
    n, left = len(weights.values), weights.effective
    message = (
        f"survey weights: {n:,} rows of unequal weights say as much as {weights.counted:,} of equal ones "
        "(Kish), and count as that many"
    )
    few = "weights cost more than half of the rows: trim the largest ones if the design allows it"
    return [Finding("weights", message, few if left < _FEW * n else "", source="data", size=left / n)]


def _of_measurements(weights: RowWeights, cells: NDArray[np.float64]) -> list[Finding]:
    """The doubt about frequencies of rows that nobody measures twice."""
    often = float(np.median(weights.values))
    distinct = np.array([len(np.unique(column)) for column in cells.T]) / max(len(cells), 1)
    if often < _OFTEN or (distinct >= _DISTINCT).mean() < _MEASURED:
        return []
    return [
        Finding(
            "weights",
            f"frequencies say that half of the rows were seen {often:g} times and more, to the last digit "
            f"of each measurement: {weights.counted:,} rows count where {len(cells):,} are different",
            "if weights say how many members of a population a row speaks for, give "
            "sample_weight_type='survey'",
            severity="doubt",
            source="data",
            size=often,
        )
    ]


def counted_like(
    data: TableLike,
    per_row: Mapping[str, Any],
    like: Table,
    likelihood: Likelihood,
    mask: TableLike | None = None,
) -> Table:
    """Rows for a fit whose posterior is asked for, counted as the fit counted its own.

    Parameters
    ----------
    data : array_like (row, feature), DataFrame or AnnData
    per_row : mapping of str to any
        What goes with rows; "sample_weight" among it, unless a column has the name of the fit's.
    like : Table
        Of the fit.
    likelihood : Likelihood
    mask : array_like of bool (row, feature), optional

    Raises
    ------
    ValueError, TypeError
        As `read_weights` and `read_table`; weights where the fit had none, or the other way round.
    """
    beside = {**per_row, "mask": mask}
    given, kind = beside.pop("sample_weight", None), None
    weighted = like.weights is not None and like.weights.kind != "equal"
    if not weighted and given is not None:
        raise ValueError("sample_weight: got some, and the fit was made without; leave them out")
    if like.weights is not None and weighted:
        kind, given = like.weights.kind, like.weights.column if given is None else given
        columns = data.columns if isinstance(data, pd.DataFrame) else getattr(data, "obs", ())
        if given is None or (isinstance(given, str) and given not in columns):
            raise ValueError(
                "sample_weight: got none, and the fit was given its rows'; give those of these rows, "
                "fit.with_data(X, sample_weight=...)"
            )

    def read(rows: Any, aside: Mapping[str, Any], of: Table | None) -> Table:
        others = {name: values for name, values in aside.items() if name != "mask"}
        return read_table(rows, others, likelihood=likelihood, mask=aside.get("mask"), like=of)

    if kind is None:
        return read(data, beside, like)
    data, weights = read_weights(data, given, kind)
    return read(data, beside, like) if weights is None else counted(data, weights, beside, read, like)


# ---- the table that is counted -----------------------------------------------------------------------------
def counted(
    data: TableLike, weights: RowWeights, beside: Mapping[str, Any], read: Reader, like: Table | None = None
) -> Table:
    """The table whose rows the likelihood counts one by one; the caller's own rows are its `caller_rows`.

    Parameters
    ----------
    data : array_like (row, feature), DataFrame or AnnData
        From `read_weights`.
    weights : RowWeights
    beside : mapping of str to any
        What goes with rows, by name: the mask, covariates, exposures.
    read : callable
        (data, beside, like) to the `Table`, in the units of `like` if that is not None.
    like : Table, optional
        Whose units to take: of new rows for a fit.

    Raises
    ------
    ValueError, TypeError
        As `read`; an argument with another number of rows; of survey weights missing cells, or less
        effective rows than a normal distribution of these columns wants.
    """
    made = {"frequency": _repeated_rows, "survey": _of_moments, "equal": _as_it_is}[weights.kind]
    return replace(made(data, weights, beside, read, like), weights=weights)


def _as_it_is(
    data: Any, weights: RowWeights, beside: Mapping[str, Any], read: Reader, like: Table | None
) -> Table:
    return read(data, beside, like)


def _repeated_rows(
    data: Any, weights: RowWeights, beside: Mapping[str, Any], read: Reader, like: Table | None
) -> Table:
    counts = weights.values.astype(int)
    index = np.repeat(np.arange(len(counts)), counts)
    named = {name for name, values in beside.items() if name in ROLES and named_columns(values, data)}
    for name, values in beside.items():
        if values is not None and name not in named and (n := _n_rows(values)) != len(counts):
            raise ValueError(f"{name}: has {n} rows, and X has {len(counts)}; give one value for each row")
        check_orders(name, values, row_names(data))
    rows = {name: v if name in named else _repeated(v, index) for name, v in beside.items()}
    table = read(_repeated(data, index), rows, like)
    first = np.cumsum(counts) - counts
    names = row_names(data) or [str(i) for i in range(len(counts))]
    table = replace(table, sample_names=[names[i] for i in index])
    return replace(table, caller_rows=table.rows(first))


def _n_rows(values: Any) -> int:
    if isinstance(values, Mapping):
        return _n_rows(next(iter(values.values()), ()))
    return int(values.shape[0]) if hasattr(values, "shape") else len(np.asarray(values))


def _repeated(values: Any, index: NDArray[np.int64]) -> Any:
    """Rows of any container, by position."""
    if values is None:
        return None
    if isinstance(values, Mapping):
        return {name: _repeated(column, index) for name, column in values.items()}
    values = as_frame(values)
    if isinstance(values, pd.DataFrame | pd.Series):
        return values.iloc[index]
    if hasattr(values, "obs_names"):  # AnnData
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Observation names are not unique", UserWarning)
            again = values[index].copy()
        again.obs_names = [str(i) for i in range(len(index))]
        return again
    if sp.issparse(values):
        return values.tocsr()[index]
    if isinstance(values, np.ndarray | Tensor | pd.Index | pd.Categorical):
        return values[index]
    return np.asarray(values)[index]


def _of_moments(
    data: Any, weights: RowWeights, beside: Mapping[str, Any], read: Reader, like: Table | None
) -> Table:
    table = read(data, beside, like)
    if table.mask is not None:
        i = int((~table.mask).any(1).argmax())
        raise ValueError(
            f"sample_weight: survey weights want rows without missing cells, and row {i} has one: with "
            "factors drawn for each row, a weight has no meaning in their density; leave such rows out, or "
            "keep each row with a probability of its weight over the largest one and fit these unweighted"
        )
    names = table.feature_names
    n, least = weights.counted, max(10, len(names) + 2)
    if n < least:
        raise ValueError(
            f"sample_weight: {len(table.x)} rows of these weights say as much as {n} of equal ones (Kish), "
            f"wanted at least {least} for {len(names)} features; trim the largest weights, or give fewer "
            "features"
        )
    cells = table.given_back(table.x)
    share = weights.values / weights.values.sum()
    mean = share @ cells
    made = _with_moments(cells - mean, share, n) + mean
    rows = read(pd.DataFrame(made, columns=names), {}, like)
    return replace(rows, caller_rows=read(data, beside, rows))


def _with_moments(centred: NDArray[np.float64], share: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """n rows with mean 0 and the covariance of rows with these shares, otherwise normal.

    Parameters
    ----------
    centred : ndarray (row, feature)
        Of weighted mean 0.
    share : ndarray (row,)
    n : int
        More than there are features.
    """
    scale = np.sqrt(share @ centred**2)
    scale = np.where(scale > 0, scale, 1.0)
    rows = np.sqrt(share)[:, None] * centred / scale
    # always the same rows of the same table, so that a fit that was saved has them again
    noise = np.random.default_rng(0).standard_normal((n, rows.shape[1]))
    basis = np.linalg.qr(noise - noise.mean(0))[0]
    root = np.linalg.qr(rows, mode="r")
    made: NDArray[np.float64] = np.sqrt(n) * basis[:, : len(root)] @ root * scale
    return made
