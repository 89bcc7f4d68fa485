"""From a caller's data (array, DataFrame, scipy.sparse, AnnData) to what the loop reads: `Table`, `Batch`.

Every complaint about input data that does not depend on the likelihood is made here, those about columns and
their names in `data/columns.py`, those about rows' other inputs in `data/per_row.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from torch import Tensor

from .._utils.declared import keeps
from .._utils.sources import check_dense, check_sparse
from .columns import (
    Data,
    as_frame,
    as_numbers,
    check_columns,
    check_extremes,
    check_magnitude,
    check_order,
    check_scales,
    check_usable,
    is_numbered,
    match_features,
    name_features,
    read_names,
    under_names,
    without_na,
)
from .design import ROLES, Design, design_of, features_of, least_squares, rows_of, taken_out
from .large_table import as_large_table
from .ordered_categories import with_codes
from .per_row import check_names, default_per_row, read_per_row, tensors_of
from .stores import RowStore, store_of
from .table import MOST_JUDGED, Batch, Table
from .views import as_one_table

if TYPE_CHECKING:
    from .._utils.types import TableLike, VectorLike
    from ..likelihoods import Likelihood

__all__ = [
    "MOST_JUDGED",
    "Batch",
    "Table",
    "as_table",
    "give_back",
    "read_array",
    "read_like",
    "read_table",
    "unmasked",
]


_EXPLAINED = 1e-6  # of a column's standard deviation, what covariates leave of one that follows from them


def unmasked(data: Data) -> Data | np.ndarray:
    """A masked array with NaN in place of what is masked; anything else as it is.

    Parameters
    ----------
    data : any
    """
    return np.ma.filled(data.astype(float), np.nan) if isinstance(data, np.ma.MaskedArray) else data


def read_array(data: TableLike, name: str = "X") -> tuple[np.ndarray, list[str] | None, list[str] | None]:
    """Any supported container as a float64 array, with its feature names and its row names.

    Parameters
    ----------
    data : array_like (row, feature), DataFrame, Arrow or polars table, scipy.sparse matrix, AnnData or Tensor
        NaN marks a missing cell, and so does the mask of a masked array.
    name : str
        What messages call it.

    Returns
    -------
    array : ndarray (row, feature)
    features, samples : list of str or None
        None where the container has no names.

    Raises
    ------
    TypeError
        Text, dates, complex numbers or ragged rows.
    ValueError
        Not two-dimensional.
    """
    features: list[str] | None = None
    samples: list[str] | None = None
    data = as_frame(data)
    if hasattr(data, "var_names") and hasattr(data, "obs_names") and hasattr(data, "X"):  # AnnData
        features, samples, data = [str(v) for v in data.var_names], [str(v) for v in data.obs_names], data.X
    elif isinstance(data, pd.DataFrame):
        features, samples = [str(c) for c in data.columns], [str(i) for i in data.index]
        data = as_numbers(data, name).to_numpy(dtype=float, na_value=np.nan)
    data = unmasked(data)
    if hasattr(data, "to_memory"):  # the sparse matrix of an AnnData on disk
        data = data.to_memory()
    if sp.issparse(data):
        matrix: Any = data
        check_sparse(matrix, name)
        check_dense(matrix.shape, name)
        data = matrix.toarray()
    if isinstance(data, Tensor):
        if data.layout is not torch.strided:
            raise TypeError(
                f"{name}: got a tensor of layout {data.layout}, wanted a dense one; give {name}.to_dense(), "
                "or the matrix as scipy.sparse"
            )
        data = data.detach().cpu()
        data = (data if data.is_complex() else data.double()).numpy()  # NumPy has no bfloat16
    try:
        array = without_na(np.asarray(data))
        words = array.dtype.kind == "O" and any(isinstance(cell, str | bytes) for cell in array.flat)
        if words or array.dtype.kind not in "biufO":
            raise TypeError(f"it holds {'text' if words or array.dtype.kind in 'SU' else array.dtype}")
        array = np.asarray(array, dtype=float)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name}: cannot be read as numbers ({error}); wanted a numeric table of rows and features"
        ) from error
    if array.ndim != 2:
        raise ValueError(f"{name}: has {array.ndim} dimension(s), shape {array.shape}; wanted (row, feature)")
    return array, features, samples


def read_like(data: TableLike, names: list[str], labels: Sequence[tuple[str, ...] | None] = ()) -> np.ndarray:
    """Values of a table in memory, the columns in the order of a fit's features: (row, feature).

    Parameters
    ----------
    data : array_like (row, feature), DataFrame, scipy.sparse matrix, AnnData or Tensor
        As in `read_array`.
    names : list of str
        The fit's features.
    labels : sequence of (tuple of str or None)
        Words for the levels of each, as a likelihood has them.

    Raises
    ------
    TypeError, ValueError
        As `read_array`; other features than the fit's, or a table that is read by rows.
    """
    if store_of(data) is not None:
        raise ValueError(
            "X: is read by rows, and this wants a table in memory; give some rows of it, X[:1000], or none"
        )
    data = as_frame(as_one_table(data))
    if isinstance(data, pd.DataFrame):  # a column that the fit does not know may hold anything
        match_features(data.shape[1], [str(name) for name in data.columns], names)
        data = with_codes(data, names, labels) if labels else data
    x, columns, _ = read_array(data)
    return x[:, match_features(x.shape[1], columns, names)]


def give_back(values: np.ndarray, data: TableLike, names: list[str]) -> np.ndarray | pd.DataFrame:
    """Values of a fit's features as the caller has his table: his columns, and a DataFrame where he gave one.

    Parameters
    ----------
    values : ndarray (row, feature)
        In the order of `names`.
    data : array_like (row, feature), DataFrame, scipy.sparse matrix, AnnData or Tensor
        The caller's table, one that `as_table` has read for these features.
    names : list of str
        The fit's features.

    Returns
    -------
    DataFrame or ndarray (row, feature)
    """
    data = as_frame(data)
    columns = data.columns if isinstance(data, pd.DataFrame) else getattr(data, "var_names", None)
    order = match_features(len(names), None if columns is None else [str(name) for name in columns], names)
    values = values[:, np.argsort(order)]
    return under_names(data, values)


def as_table(
    data: TableLike | RowStore,
    *,
    likelihood: Likelihood,
    standardise: bool = True,
    mask: TableLike | None = None,
    feature_names: list[str] | None = None,
    like: Table | None = None,
    **per_row: VectorLike | None,
) -> Table:
    """Check a caller's data and bring it to model units; a `LargeTable` where it is read by rows.

    Parameters
    ----------
    data : array_like (row, feature), DataFrame, scipy.sparse matrix, AnnData or RowStore
        NaN marks a missing cell. What `stores.store_of` would rather not have in memory is read by rows.
    likelihood : Likelihood
        Its `check` has the last word on values; its `standardise` says whether columns are z-scored.
    standardise : bool
        False leaves columns as they are, whatever the likelihood.
    mask : array_like of bool (row, feature), optional
        True where a cell was seen (in addition to NaN). Columns of a DataFrame are found by name.
    feature_names : list of str, optional
        Names for an array without any.
    like : Table, optional
        Use this table's centre, scale and features (new rows for a fitted model).
    **per_row : array_like (row,), optional
        What rows have beside their cells, by the names of `likelihood.per_row_inputs`; `covariates` and
        `groups`.

    Raises
    ------
    ValueError, TypeError
        Names the argument, what was seen, what is wanted and the fix.
    """
    return read_table(
        data, per_row, likelihood=likelihood, standardise=standardise, mask=mask,
        feature_names=feature_names, like=like,
    )  # fmt: skip


def read_table(
    data: TableLike | RowStore,
    per_row: Mapping[str, VectorLike | None],
    *,
    likelihood: Likelihood,
    standardise: bool = True,
    mask: TableLike | None = None,
    feature_names: list[str] | None = None,
    like: Table | None = None,
) -> Table:
    """`as_table`, with `per_row` as a mapping; its other arguments are those of that.

    Parameters
    ----------
    per_row : mapping of str to array_like (row,) or None
    """
    data, feature_names = unmasked(as_one_table(data)), read_names(feature_names)
    beside = {name: values for name, values in per_row.items() if values is not None}
    covariates = {role: beside.pop(role) for role in ROLES if role in beside}
    check_names(beside, likelihood)
    store = store_of(data)
    if store is not None:
        if covariates or (like is not None and like.design is not None):
            raise ValueError(
                "covariates, groups: X is read by rows, and effects of covariates want a table in memory; "
                "give fewer rows"
            )
        return as_large_table(
            store, likelihood=likelihood, standardise=standardise, mask=mask, per_row=beside,
            feature_names=feature_names, like=like,
        )  # fmt: skip
    known = None if like is None else like.design
    if like is not None and like.weights is not None and like.weights.column is not None:
        data = features_of(data, (like.weights.column,))
    data, covariates, taken = taken_out(data, covariates, () if known is None else known.taken)
    if isinstance(data, pd.DataFrame):
        if likelihood.labels:
            names = [str(name) for name in data.columns] if like is None else like.feature_names
            data = with_codes(data, names, likelihood.labels)
        if like is None:
            check_usable(data)
        else:  # before the cells are read: a column that the fit does not know may hold anything
            match_features(data.shape[1], [str(name) for name in data.columns], like.feature_names)
    x, columns, samples = read_array(data)
    n_rows, n_features = x.shape
    order = list(range(n_features))
    if like is not None:
        order = match_features(n_features, columns, like.feature_names)
        x, names = x[:, order], like.feature_names
    else:
        names = name_features(feature_names, columns, n_features)
    if n_rows == 0:
        raise ValueError(f"X: has no rows, shape {x.shape}; wanted at least {1 if like is not None else 10}")
    infinite = np.isinf(x)
    if infinite.any():
        i, j = np.argwhere(infinite)[0]
        raise ValueError(
            f"X: column {names[j]!r} has {x[i, j]} in row {i}; "
            "wanted finite numbers (use NaN for a missing cell)"
        )
    observed = ~np.isnan(x)
    if mask is not None:
        observed &= read_mask(mask, x.shape, feature_names if is_numbered(columns) else columns, samples)[
            :, order
        ]
    if like is None:
        check_columns(x, observed, names, n_rows)
    cells = np.where(observed, x, np.nan)
    likelihood.check(cells, names)
    cells = likelihood.as_recorded(cells)
    x = np.where(observed, cells, x)
    if like is None:
        if likelihood.standardise:
            check_extremes(cells, names, samples, standardise)
        likelihood.calibrate(torch.as_tensor(cells))
        likelihood.note_per_row(beside)
    given, row_units = read_per_row(beside, n_rows, samples, likelihood, like)
    rows = {**given, **default_per_row(cells, likelihood, given)}
    raw = likelihood.encoder_view(torch.as_tensor(cells), tensors_of(rows, torch.float64)).numpy()
    design, matrix = _design(covariates, n_rows, samples, like, taken)
    slopes, input_slopes = _slopes(cells, raw, matrix, likelihood, like, names)
    if matrix is not None:
        rows["design"] = matrix
        x, cells, raw = (x - matrix @ slopes, cells - matrix @ slopes, raw - matrix @ input_slopes)
    if like is None:
        units = _units(cells, raw, likelihood, standardise, names, 1.0 if design is None else design.freedom)
    else:
        units = _Units(like.centre, like.scale, like.input_centre, like.input_scale)
    if matrix is not None and like is None:
        scaled = torch.as_tensor((cells - units.centre) / units.scale)
        likelihood.calibrate_effects(scaled, tensors_of(rows, torch.float64))
    with np.errstate(over="ignore", invalid="ignore"):  # of a masked cell, or complained of at once
        values = np.where(observed, (x - units.centre) / units.scale, likelihood.filler)
    check_magnitude(names, values)
    return Table(
        x=values,
        inputs=np.where(observed, (raw - units.input_centre) / units.input_scale, 0.0),
        mask=None if observed.all() else observed,
        **units._asdict(),
        feature_names=names,
        sample_names=samples or [str(i) for i in range(n_rows)],
        per_row=rows,
        row_units=row_units,
        design=design,
        slopes=slopes,
        input_slopes=input_slopes,
    )


def _design(
    covariates: Mapping[str, Any],
    n_rows: int,
    samples: list[str] | None,
    like: Table | None,
    taken: tuple[str, ...],
) -> tuple[Design | None, np.ndarray | None]:
    """How covariates are coded, and the design matrix (row, effect)."""
    if like is None:
        return design_of(covariates, n_rows, samples, taken) if covariates else (None, None)
    if like.design is not None:
        return like.design, rows_of(like.design, covariates, n_rows, samples)
    for role in covariates:
        raise ValueError(f"{role}: got some, and the fit was made without; leave them out")
    return None, None


def _slopes(
    cells: np.ndarray,
    raw: np.ndarray,
    matrix: np.ndarray | None,
    likelihood: Likelihood,
    like: Table | None,
    names: list[str],
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """What is taken from cells and from what the encoder reads of them, as in `Table`."""
    if matrix is None:
        return None, None
    if like is not None:
        return like.slopes, like.input_slopes
    normal = np.zeros(cells.shape[1], dtype=bool)
    for part, columns in likelihood.families():
        normal[slice(None) if columns is None else columns] = keeps(part, "normal noise")
    slopes = np.zeros((matrix.shape[1], cells.shape[1]))
    slopes[:, normal] = least_squares(cells[:, normal], matrix)
    before, after = (np.nanstd(part[:, normal], 0) for part in (cells, cells - matrix @ slopes))
    if (whole := after <= _EXPLAINED * before).any():
        name = names[np.flatnonzero(normal)[int(whole.argmax())]]
        raise ValueError(
            f"X: column {name!r} follows from covariates and groups, so that nothing is left for factors; "
            "leave it out, or the covariate that it says again"
        )
    return slopes, least_squares(raw, matrix)


class _Units(NamedTuple):
    """Of a table, as in `Table`."""

    centre: np.ndarray
    scale: np.ndarray
    input_centre: np.ndarray
    input_scale: np.ndarray


def _units(
    cells: np.ndarray,
    raw: np.ndarray,
    likelihood: Likelihood,
    standardise: bool,
    names: list[str],
    freedom: float,
) -> _Units:
    """Of the cells (row, feature), and of what the encoder reads of them, both with NaN where missing."""
    with np.errstate(over="ignore"):
        centre, scale = likelihood.units(cells, standardise)
        if standardise:  # standard deviations within groups are of as many rows as their means leave
            scale = np.where(likelihood.is_standardised(len(scale)), scale / np.sqrt(freedom), scale)
        input_centre, input_scale = np.nanmean(raw, 0), np.nanstd(raw, 0) / np.sqrt(freedom)
    input_scale = np.where(input_scale > 0, input_scale, 1.0)  # a constant share of every row's total
    check_scales(names, (centre, input_centre), (scale, input_scale))
    return _Units(centre, scale, input_centre, input_scale)


def read_mask(
    mask: TableLike, shape: tuple[int, ...], names: list[str] | None, samples: list[str] | None
) -> np.ndarray:
    """Which cells a mask says were seen, in the order of X's columns.

    Parameters
    ----------
    mask : array_like of bool (row, feature)
    shape : tuple of int
        Of X.
    names, samples : list of str or None
        Of X's columns and rows.

    Raises
    ------
    ValueError
        Another shape, other names, or what is neither true nor false.
    """
    cells, columns, rows = read_array(mask, "mask")
    if cells.shape != shape:
        raise ValueError(
            f"mask: has shape {cells.shape}, X has {shape}; give one entry per cell, True where seen"
        )
    strange = cells[~np.isin(cells, (0, 1))]
    if len(strange):
        raise ValueError(f"mask: holds {strange[0]:g}; wanted True where a cell was seen, and else False")
    check_order("mask", rows, samples)
    if names is None:
        return cells > 0
    return cells[:, match_features(shape[1], columns, names, "mask", "X")] > 0
