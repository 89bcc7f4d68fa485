"""From a caller's data (array, DataFrame, scipy.sparse, AnnData) to what the loop reads: `Table`, `Batch`.

A `Table` knows its names, which cells are missing, and how it was standardised, and can undo it.
Every complaint about input data that does not depend on the likelihood is made here, those about columns and
their names in `_columns.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from torch import Tensor

from ._columns import (
    as_frame,
    as_numbers,
    check_columns,
    check_order,
    check_scales,
    is_numbered,
    match_features,
    name_features,
    row_names,
    without_na,
)
from .stores import store_of

__all__ = ["MOST_JUDGED", "Batch", "Table", "as_table", "give_back", "read_array", "read_like", "unmasked"]

_MOST_EXPOSED = 1e30  # times a typical row, and as many times less: beyond it single precision has no number
MOST_JUDGED = 2000  # rows kept aside: enough to tell restarts apart


@dataclass(frozen=True)
class Batch:
    """Rows of a table on the device.

    Attributes
    ----------
    x : Tensor (row, feature)
        Values; missing cells hold the likelihood's `filler`.
    inputs : Tensor (row, feature)
        What the encoder reads: `x`, or for counts their standardised logarithm; missing cells 0.
    mask : Tensor (row, feature) of bool, or None
        True where the cell was seen; None when all were.
    exposure : Tensor (row, 1) or None
        Size factor or total count of each row.
    total : int
        Number of rows in the full data: the plate scales the minibatch by ``total / len(x)``.
    """

    x: Tensor
    inputs: Tensor
    mask: Tensor | None
    exposure: Tensor | None
    total: int

    def __len__(self) -> int:
        return self.x.shape[0]

    def rows(self, index: Tensor) -> Batch:
        """The minibatch with these rows, still scaled to `total`."""
        mask, exposure = (None if p is None else p.index_select(0, index) for p in (self.mask, self.exposure))
        x = self.x.index_select(0, index)
        inputs = x if self.inputs is self.x else self.inputs.index_select(0, index)
        return Batch(x, inputs, mask, exposure, self.total)

    def whole(self) -> Batch:
        """The same rows seen as a data set of their own (no scaling up)."""
        return replace(self, total=len(self))

    def mean(self, own: Tensor) -> Tensor:
        """The minibatch's mean, from that of these rows: the same, unless other processes have more of it."""
        return own

    def shuffled(self) -> Tensor:
        """Order of the rows in an epoch, from torch's random stream."""
        return torch.randperm(self.total)


@dataclass(frozen=True)
class Table:
    """A numeric table in model units, with the way back to the caller's units.

    Attributes
    ----------
    x : ndarray (row, feature)
        Values; missing cells hold the likelihood's `filler`.
    inputs : ndarray (row, feature)
        What the encoder reads of them (z-scored, for counts their logarithm); missing cells 0.
    mask : ndarray of bool (row, feature) or None
    exposure : ndarray (row, 1) or None
        In units of `exposure_unit`.
    centre, scale : ndarray (feature,)
        ``x = (original - centre) / scale``.
    input_centre, input_scale : ndarray (feature,)
        The same for `inputs`.
    feature_names, sample_names : list of str
    exposure_unit : float, optional
        The typical one of the caller's exposures; None where he gave none.
    """

    x: np.ndarray
    inputs: np.ndarray
    mask: np.ndarray | None
    exposure: np.ndarray | None
    centre: np.ndarray
    scale: np.ndarray
    input_centre: np.ndarray
    input_scale: np.ndarray
    feature_names: list[str]
    sample_names: list[str]
    exposure_unit: float | None = None

    def batch(self, device: Any = "cpu", dtype: torch.dtype = torch.float32) -> Batch:
        """All rows as tensors; `inputs` is `x` itself where they hold the same numbers."""
        x, same = torch.as_tensor(self.x, dtype=dtype, device=device), np.array_equal(self.inputs, self.x)
        return Batch(
            x=x,
            inputs=x if same else torch.as_tensor(self.inputs, dtype=dtype, device=device),
            mask=None if self.mask is None else torch.as_tensor(self.mask, device=device),
            exposure=None
            if self.exposure is None
            else torch.as_tensor(self.exposure, dtype=dtype, device=device),
            total=len(self.x),
        )

    def unit(self, likelihood: Any) -> np.ndarray:
        """Standard deviation of each feature in model units, (feature,); 1 under likelihoods of other scales.

        Parameters
        ----------
        likelihood : Likelihood
            One that can be standardised (`standardise`) has the features' own scale.
        """
        return self.input_scale / self.scale if likelihood.standardise else np.ones(len(self.scale))

    @property
    def missing(self) -> bool:
        """Whether any cell is."""
        return self.mask is not None

    @property
    def most_judged(self) -> int:
        """How many rows may be kept aside: they are looked at again and again while a fit is trained."""
        return MOST_JUDGED

    def content(self) -> tuple[np.ndarray | None, ...]:
        """Arrays that tell this table from another."""
        return self.x, self.mask, self.exposure

    def part(self, index: np.ndarray, device: Any, dtype: torch.dtype) -> Batch:
        """These rows as what minibatches are taken from."""
        return self.rows(index).batch(device, dtype)

    def intercept(self, likelihood: Any, kept: np.ndarray) -> Any:
        """The likelihood's start (feature,), from these rows."""
        observed = self.x[kept] if self.mask is None else np.where(self.mask[kept], self.x[kept], np.nan)
        return likelihood.start(torch.as_tensor(observed))

    def rows(self, index: np.ndarray) -> Table:
        """The table with these rows only."""
        return replace(
            self,
            x=self.x[index],
            inputs=self.inputs[index],
            mask=None if self.mask is None else self.mask[index],
            exposure=None if self.exposure is None else self.exposure[index],
            sample_names=[self.sample_names[i] for i in index],
        )


def unmasked(data: Any) -> Any:
    """A masked array with NaN in place of what is masked; anything else as it is.

    Parameters
    ----------
    data : any
    """
    return np.ma.filled(data.astype(float), np.nan) if isinstance(data, np.ma.MaskedArray) else data


def read_array(data: Any, name: str = "X") -> tuple[np.ndarray, list[str] | None, list[str] | None]:
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
        data = matrix.toarray()
    if isinstance(data, Tensor):
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


def read_like(data: Any, names: list[str]) -> np.ndarray:
    """Values of a table in memory, the columns in the order of a fit's features: (row, feature).

    Parameters
    ----------
    data : array_like (row, feature), DataFrame, scipy.sparse matrix, AnnData or Tensor
        As in `read_array`.
    names : list of str
        The fit's features.

    Raises
    ------
    TypeError, ValueError
        As `read_array`; other features than the fit's, or a table that is read by rows.
    """
    if store_of(data) is not None:
        raise ValueError(
            "X: is read by rows, and this wants a table in memory; give some rows of it, X[:1000], or none"
        )
    x, own, _ = read_array(data)
    return x[:, match_features(x.shape[1], own, names)]


def give_back(values: np.ndarray, data: Any, names: list[str]) -> Any:
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
    framed = isinstance(data, pd.DataFrame)
    own = data.columns if framed else getattr(data, "var_names", None)
    order = match_features(len(names), None if own is None else [str(name) for name in own], names)
    values = values[:, np.argsort(order)]
    return pd.DataFrame(values, data.index, data.columns) if framed else values


def as_table(
    data: Any,
    *,
    likelihood: Any,
    standardise: bool = True,
    mask: Any = None,
    exposure: Any = None,
    feature_names: list[str] | None = None,
    like: Table | None = None,
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
    exposure : array_like (row,), optional
        Size factors of counts.
    feature_names : list of str, optional
        Names for an array without any.
    like : Table, optional
        Use this table's centre, scale and features (new rows for a fitted model).

    Raises
    ------
    ValueError, TypeError
        Names the argument, what was seen, what is wanted and the mend.
    """
    data = unmasked(data)
    if exposure is not None and not likelihood.uses_exposure:
        raise ValueError(
            f"exposure: got some, and {type(likelihood).__name__} has no use for them; leave them out, or "
            "take a likelihood of counts"
        )
    store = store_of(data)
    if store is not None:
        from .large_table import as_large_table

        return as_large_table(
            store, likelihood=likelihood, standardise=standardise, mask=mask, exposure=exposure,
            feature_names=feature_names, like=like,
        )  # fmt: skip
    x, own, samples = read_array(data)
    n_rows, n_features = x.shape
    order = list(range(n_features))
    if like is not None:
        order = match_features(n_features, own, like.feature_names)
        x, names = x[:, order], like.feature_names
    else:
        names = name_features(feature_names, own, n_features)
    if n_rows == 0:
        raise ValueError(f"X: has no rows, shape {x.shape}; wanted at least {1 if like is not None else 10}")
    infinite = np.isinf(x)
    if infinite.any():
        i, j = np.argwhere(infinite)[0]
        raise ValueError(
            f"X: column {names[j]!r} has {x[i, j]} in row {i}; "
            "wanted finite numbers (use NaN for a missing cell)"
        )
    seen = ~np.isnan(x)
    if mask is not None:
        seen &= _read_mask(mask, x.shape, feature_names if is_numbered(own) else own, samples)[:, order]
    if like is None:
        check_columns(x, seen, names, n_rows)
    likelihood.check(np.where(seen, x, np.nan), names)
    observed = np.where(seen, x, np.nan)
    if like is None:
        likelihood.calibrate(torch.as_tensor(observed))
        likelihood.note_exposures(exposure is not None)
    size, unit = given_exposure(exposure, n_rows, samples, likelihood, like)
    if size is None and likelihood.uses_exposure:
        found = likelihood.default_exposure(torch.as_tensor(observed))
        size = None if found is None else found.numpy()
    raw = likelihood.encoder_view(
        torch.as_tensor(observed), None if size is None else torch.as_tensor(size)
    ).numpy()
    if like is not None:
        centre, scale, input_centre, input_scale = (
            like.centre,
            like.scale,
            like.input_centre,
            like.input_scale,
        )
    else:
        centre, scale = np.zeros(n_features), np.ones(n_features)
        with np.errstate(over="ignore"):
            if standardise and likelihood.standardise:
                centre, scale = np.nanmean(observed, 0), np.nanstd(observed, 0)
            input_centre, input_scale = np.nanmean(raw, 0), np.nanstd(raw, 0)
        input_scale = np.where(input_scale > 0, input_scale, 1.0)  # a constant share of every row's total
        check_scales(names, (centre, input_centre), (scale, input_scale))
    return Table(
        x=np.where(seen, (x - centre) / scale, likelihood.filler),
        inputs=np.where(seen, (raw - input_centre) / input_scale, 0.0),
        mask=None if seen.all() else seen,
        exposure=size,
        centre=centre,
        scale=scale,
        input_centre=input_centre,
        input_scale=input_scale,
        feature_names=names,
        sample_names=samples or [str(i) for i in range(n_rows)],
        exposure_unit=unit,
    )


def given_exposure(
    given: Any, n_rows: int, samples: list[str] | None, likelihood: Any, like: Table | None
) -> tuple[np.ndarray | None, float | None]:
    """A caller's exposures (row, 1) in units of the training table's typical one, and that; None without any.

    Parameters
    ----------
    given : array_like (row,), or None
    n_rows : int
    samples : list of str or None
        Names of the table's rows, where it has any.
    likelihood : Likelihood
    like : Table, optional
        Of the fit that these rows are for.

    Raises
    ------
    ValueError
        They are no positive numbers, one per row; or have the names of the rows in another order; or the fit
        was given some and these rows are not, or the other way round.
    TypeError
        They are the name of a column, or no numbers.
    """
    if given is None:
        if like is not None and like.exposure_unit is not None:
            raise ValueError("exposure: got none, and the fit was given its rows'; give those of these rows")
        return None, None
    if like is not None and like.exposure_unit is None:
        raise ValueError("exposure: got some, and the fit was made without; leave them out")
    if isinstance(given, str):
        raise TypeError(
            f"exposure: got the name {given!r}, wanted one positive number per row; give the column itself, "
            f"such as adata.obs[{given!r}]"
        )
    try:
        size = np.array(given, dtype=float).reshape(-1, 1)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"exposure: cannot be read as numbers ({error}), wanted one positive per row"
        ) from error
    bad = ~(np.isfinite(size) & (size > 0))
    if len(size) != n_rows or bad.any():
        what = f"has shape {np.shape(given)} for {n_rows} rows"
        if len(size) == n_rows:
            what = f"is {size[bad][0]:g} in row {bad.argmax()}"
        raise ValueError(f"exposure: {what}, wanted one positive number per row")
    check_order("exposure", row_names(given), samples)
    unit = float(likelihood.typical_exposure(size)) if like is None else like.exposure_unit
    size = size / unit
    far = ~((size > 1 / _MOST_EXPOSED) & (size < _MOST_EXPOSED))
    if far.any():
        raise ValueError(
            f"exposure: is {size[far][0] * unit:g} in row {far.argmax()}, and {unit:g} in a typical one; "
            f"wanted numbers less than a factor of {_MOST_EXPOSED:g} apart from that"
        )
    return size, unit


def _read_mask(
    mask: Any, shape: tuple[int, ...], names: list[str] | None, samples: list[str] | None
) -> np.ndarray:
    """Which cells a mask says were seen, in the order of X's columns."""
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
