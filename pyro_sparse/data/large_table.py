"""A table read by rows (`stores.py`) as `fit` sees it: a `LargeTable`, and its minibatches, `LargeBatch`.

What `data.as_table` learns from the whole table at once is gathered here in one pass over pieces: checks,
sums, means, variances. (Counts need a second one, for their logarithm is of counts over the row's total,
whose median is known at the end of the first.) A minibatch is dense, and nothing else ever is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from .._utils.declared import Declared, overridden
from ..likelihoods import Likelihood
from ..likelihoods.row_depth import MOST_ROWS
from .columns import check_scales, match_features, name_features
from .per_row import of_rows, read_per_row, tensors_of
from .stores import RowStore
from .table import MOST_JUDGED, Batch, Table

if TYPE_CHECKING:
    from .._utils.types import TableLike, VectorLike

__all__ = ["LargeBatch", "LargeTable", "as_large_table"]

JUDGED_CELLS = 2_000_000  # of the held-out rows, and of rows that are looked at together
SEARCH_CELLS = 20_000_000  # of rows that deletions and directions are judged by, but 500 rows at least
FEWEST_JUDGED = 100  # rows at least, also where they have more cells than that (from 20,000 features on)
_START = Declared("start", rests_on=frozenset({"start"}))  # the sums of columns say where to begin
_VIEW = Declared("view", rests_on=frozenset({"encoder_view"}))  # the encoder reads the cells as they are


@dataclass(frozen=True)
class LargeBatch(Batch):
    """Rows of a `LargeTable`, read when they are asked for; `x` and `inputs` are empty, (0, feature).

    Attributes
    ----------
    table : LargeTable
    index : ndarray of int
        Which of its rows, in an order in which the first ones are a random sample.
    """

    table: LargeTable
    index: np.ndarray

    def __len__(self) -> int:
        return len(self.index)

    def rows(self, index: Tensor) -> Batch:
        x, inputs, mask, per_row = self.table.cells(self.index[index.cpu().numpy()], self.x.dtype)
        device = self.x.device
        return Batch(
            x=x.to(device),
            inputs=inputs.to(device),
            mask=None if mask is None else mask.to(device),
            total=self.total,
            per_row={name: values.to(device) for name, values in per_row.items()},
        )

    def whole(self) -> Batch:
        return replace(self, total=len(self))

    def shuffled(self) -> Tensor:
        seed = int(torch.randint(2**62, ()))
        return torch.as_tensor(self.table.x.shuffled(self.index, seed))


@dataclass(frozen=True)
class LargeTable(Table):
    """A `Table` whose `x` is a `RowStore` and whose `inputs` are computed for the rows asked for.

    Attributes
    ----------
    likelihood : Likelihood
        Calibrated: gives inputs of rows and what the encoder reads.
    columns : ndarray of int or None
        Where the features of the fit stand in the store; None: in order.
    has_missing : bool
    sums : tuple of ndarray (feature,)
        Of each column the sum, the number of cells seen and the sum of their rows' `Likelihood.amount`; of
        the raw cells. Empty for new rows.
    """

    x: Any
    likelihood: Likelihood = cast(Likelihood, None)  # always given
    columns: np.ndarray | None = None
    has_missing: bool = False
    sums: tuple[np.ndarray, ...] = field(default=(), repr=False)

    @property
    def missing(self) -> bool:
        return self.has_missing

    @property
    def most_judged(self) -> int:
        """Rows worth two million cells, 100 to 2,000: enough to tell restarts apart."""
        return self.rows_together(FEWEST_JUDGED, MOST_JUDGED)

    def rows_together(self, least: int, most: int, cells: int = JUDGED_CELLS) -> int:
        """How many rows have so many cells, within bounds."""
        return int(np.clip(cells // len(self.feature_names), least, most))

    def content(self) -> tuple[np.ndarray | None, ...]:
        per_row = (self.per_row[name] for name in sorted(self.per_row))
        return (*self.sums, *per_row, self.centre, self.scale)

    def rows(self, index: np.ndarray) -> Table:
        x, inputs, mask, per_row = self.cells(index, torch.float64)
        return Table(
            x=x.numpy(),
            inputs=inputs.numpy(),
            mask=None if mask is None else mask.numpy(),
            centre=self.centre,
            scale=self.scale,
            input_centre=self.input_centre,
            input_scale=self.input_scale,
            feature_names=self.feature_names,
            sample_names=[self.sample_names[i] for i in index],
            per_row={name: values.numpy() for name, values in per_row.items()},
            row_units=self.row_units,
        )

    def part(self, index: np.ndarray, device: str | torch.device, dtype: torch.dtype) -> Batch:
        nothing = torch.empty(0, len(self.feature_names), dtype=dtype, device=device)
        mixed = np.asarray(index)[self.x.shuffled(np.asarray(index), 0)]
        return LargeBatch(nothing, nothing, None, len(mixed), self, mixed)

    def batch(self, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32) -> Batch:
        return self.part(np.arange(len(self.x)), device, dtype)

    def intercept(self, likelihood: Likelihood, kept: np.ndarray) -> np.ndarray | Tensor:
        if not overridden(likelihood, Likelihood, _START):
            total, count, amounts = (torch.as_tensor(sums) for sums in self.sums)
            if likelihood.standardise:  # sums of what `x` holds
                total = (total - count * torch.as_tensor(self.centre)) / torch.as_tensor(self.scale)
            return likelihood.intercept(total, count, amounts).numpy()
        some = kept[self.x.shuffled(kept, 0)][: self.most_judged]  # the caller's own likelihood
        return self.rows(some).intercept(likelihood, np.arange(len(some)))

    def split(self, n_rows: int) -> Iterator[Table]:
        """The table in pieces of so many rows, in order."""
        for start in range(0, len(self.x), n_rows):
            yield self.rows(np.arange(start, min(start + n_rows, len(self.x))))

    def cells(
        self, index: np.ndarray, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor, Tensor | None, dict[str, Tensor]]:
        """Values, inputs, mask and `per_row` of these rows, in model units; missing cells as in `Batch`."""
        precision = torch.float64 if self.likelihood.standardise else dtype  # measurements may be far from 0
        raw = torch.from_numpy(self.x.rows(index, np.float64 if precision == torch.float64 else np.float32))
        if self.columns is not None:
            raw = raw[:, self.columns]
        per_row = tensors_of(of_rows(self.per_row, index), precision)
        x, inputs = raw, self.likelihood.encoder_view(raw, per_row)
        inputs = inputs - torch.as_tensor(self.input_centre, dtype=precision)
        inputs /= torch.as_tensor(self.input_scale, dtype=precision)
        if self.likelihood.standardise:
            x = (x - torch.as_tensor(self.centre, dtype=precision)) / torch.as_tensor(
                self.scale, dtype=precision
            )
        observed = None
        if self.has_missing:
            observed = ~torch.isnan(raw)
            x = torch.where(observed, x, torch.full_like(x, self.likelihood.filler))
            inputs = torch.where(observed, inputs, torch.zeros_like(inputs))
        return (
            x.to(dtype),
            inputs.to(dtype),
            observed,
            {name: values.to(dtype) for name, values in per_row.items()},
        )


def as_large_table(
    store: RowStore,
    *,
    likelihood: Likelihood,
    standardise: bool = True,
    mask: TableLike | None = None,
    per_row: Mapping[str, VectorLike] | None = None,
    feature_names: list[str] | None = None,
    like: Table | None = None,
) -> LargeTable:
    """`as_table` for a table that is read by rows: same arguments, same complaints.

    Parameters
    ----------
    store : RowStore
    likelihood, standardise
        As in `as_table`.
    mask : None
        Refused: missing cells are NaN in the store.
    per_row, feature_names, like
        As in `as_table`.

    Raises
    ------
    ValueError, TypeError
        Names the argument, what was seen, what is wanted and the fix.
    """
    n_rows, n_features = store.shape
    if mask is not None:
        raise ValueError(
            f"mask: was given for a table of {n_rows} x {n_features} that is read by rows, wanted none; "
            "write NaN into its missing cells (not into a sparse one, whose empty cells are zeros)"
        )
    columns = None
    if like is None:
        names = name_features(feature_names, store.feature_names, n_features)
    else:
        order = match_features(n_features, store.feature_names, like.feature_names)
        names = like.feature_names
        columns = None if order == list(range(n_features)) else np.array(order)
    if len(store) < (10 if like is None else 1):
        raise ValueError(f"X: has {n_rows} row(s), wanted at least {10 if like is None else 1}")
    if n_features < 2:
        raise ValueError(
            f"X: has {n_features} column(s); wanted at least 2 features to find a factor they share"
        )
    own_names = names if columns is None else [names[j] for j in np.argsort(columns)]
    sums = _Sums(n_features)
    for start, piece in store.pieces():
        _check_piece(piece, start, likelihood, own_names)
        sums.add(piece)
    if like is None:
        _check_columns(sums, own_names, store)
    if sums.hollow is not None:
        raise ValueError(f"X: row {sums.hollow} has no observed value; drop it")
    missing = bool((sums.count < n_rows).any())
    given, row_units = read_per_row(per_row or {}, n_rows, store.sample_names, likelihood, like)
    rows = {**given, **_default_per_row(store, likelihood, given, sums, missing, calibrate=like is None)}
    table = LargeTable(
        x=store,
        inputs=np.empty((0, n_features)),
        mask=None,
        centre=np.zeros(n_features),
        scale=np.ones(n_features),
        input_centre=np.zeros(n_features),
        input_scale=np.ones(n_features),
        feature_names=names,
        sample_names=store.sample_names or [str(i) for i in range(n_rows)],
        per_row=rows,
        row_units=row_units,
        likelihood=copy.deepcopy(likelihood),
        columns=columns,
        has_missing=missing,
    )
    if like is not None:
        return replace(
            table, centre=like.centre, scale=like.scale,
            input_centre=like.input_centre, input_scale=like.input_scale,
        )  # fmt: skip
    amounts = _amounts(store, likelihood.amount(tensors_of(rows, torch.float64)), sums.count, missing)
    centre, scale = sums.mean, np.sqrt(sums.squares / sums.count)
    inputs = (centre, scale)
    if _reads_otherwise(likelihood):
        inputs = _view_moments(table)
    check_scales(names, (centre, inputs[0]), (scale, np.where(inputs[1] > 0, inputs[1], 1.0)))
    if not (standardise and likelihood.standardise):
        centre, scale = np.zeros(n_features), np.ones(n_features)
    return replace(
        table,
        centre=centre,
        scale=scale,
        input_centre=inputs[0],
        input_scale=np.where(inputs[1] > 0, inputs[1], 1.0),
        sums=(sums.mean * sums.count, sums.count, amounts),
    )


class _Sums:
    """Running count, mean and sum of squared deviations of each column (Chan, Golub & LeVeque 1983)."""

    def __init__(self, n_features: int):
        self.count, self.mean, self.squares = np.zeros((3, n_features))
        self.least, self.most = np.full(n_features, np.inf), np.full(n_features, -np.inf)
        self.totals: list[np.ndarray] = []  # of rows
        self.hollow: int | None = None
        self.n_rows = 0

    def add(self, piece: np.ndarray | sp.csr_matrix) -> None:
        """Take the next rows in."""
        n_features = len(self.mean)
        if sp.issparse(piece):
            stored = cast("sp.csr_matrix", piece)
            values, column = stored.data.astype(float), stored.indices
            count = np.full(n_features, float(piece.shape[0]))
            total = np.bincount(column, values, n_features)
            squares = np.bincount(column, values**2, n_features) - total**2 / count
            least, most = (end(axis=0).toarray()[0] for end in (stored.min, stored.max))  # zeros included
            rows = np.asarray(stored.sum(1)).reshape(-1)
        else:
            values = np.asarray(piece, dtype=float)
            observed = ~np.isnan(values)
            if self.hollow is None and not observed.any(1).all():
                self.hollow = self.n_rows + int((~observed.any(1)).argmax())
            count = observed.sum(0).astype(float)
            filled = np.where(observed, values, 0.0)
            total, rows = filled.sum(0), filled.sum(1)
            squares = (np.where(observed, values - total / np.maximum(count, 1), 0.0) ** 2).sum(0)
            least = np.where(observed, values, np.inf).min(0)
            most = np.where(observed, values, -np.inf).max(0)
        joint_count = np.maximum(self.count + count, 1)
        step = np.where(count > 0, total / np.maximum(count, 1) - self.mean, 0.0)
        self.squares += np.maximum(squares, 0.0) + step**2 * self.count * count / joint_count
        self.mean += step * count / joint_count
        self.count += count
        self.least, self.most = np.minimum(self.least, least), np.maximum(self.most, most)
        self.totals.append(rows)
        self.n_rows += len(rows)


def _check_piece(
    piece: np.ndarray | sp.csr_matrix, start: int, likelihood: Likelihood, names: list[str]
) -> None:
    """Complain of cells: infinite, NaN in a sparse table, or not for this likelihood."""
    sparse, stored = sp.issparse(piece), cast("sp.csr_matrix", piece)
    values = stored.data if sparse else piece
    bad = ~np.isfinite(values) if sparse else np.isinf(values)
    if bad.any():
        at = np.argwhere(bad)[0]
        i = int(np.searchsorted(stored.indptr, at[0], side="right")) - 1 if sparse else int(at[0])
        j = int(stored.indices[at[0]]) if sparse else int(at[1])
        fix = (
            "wanted finite numbers, for a sparse table has no missing cells (its empty cells are zeros); "
            "if cells are missing, write them as NaN into a dense array on disk (.npy, Zarr)"
            if sparse
            else "wanted finite numbers (use NaN for a missing cell)"
        )
        raise ValueError(f"X: column {names[j]!r} has {values[tuple(at)]} in row {start + i}; {fix}")
    try:
        if not sparse:
            likelihood.check(piece, names)
            return
        likelihood.check(np.zeros((1, 1)), ["(empty cells)"])
        if len(values):
            likelihood.check(values.reshape(-1, 1), ["(stored cells)"])
    except ValueError as error:
        if sparse:  # once more, a few rows at a time, for the name of the column
            step = max(1, JUDGED_CELLS // piece.shape[1])
            for first in range(0, piece.shape[0], step):
                _check_piece(stored[first : first + step].toarray(), start + first, likelihood, names)
        raise ValueError(f"{error} Rows are counted from row {start}.") from error


def _check_columns(sums: _Sums, names: list[str], store: RowStore) -> None:
    empty = sums.count == 0
    if empty.any():
        raise ValueError(f"X: column {names[int(empty.argmax())]!r} has no observed value; drop it")
    constant = sums.most == sums.least
    if constant.any():
        j = int(constant.argmax())
        fix = "X = X[:, X.getnnz(0) > 0] keeps columns with a cell that is not 0" if store.sparse else ""
        raise ValueError(
            f"X: column {names[j]!r} is constant at {sums.most[j]:g} ({int(constant.sum())} such "
            f"column(s)); it says nothing of the factors, drop it{'; ' * bool(fix)}{fix}"
        )


class _WithTotals(Protocol):
    """A likelihood that asks for totals of rows."""

    def totals(self, x: Tensor, mask: Tensor | None = None) -> Tensor: ...


def _default_per_row(
    store: RowStore,
    likelihood: Likelihood,
    given: Mapping[str, np.ndarray],
    sums: _Sums,
    missing: bool,
    calibrate: bool,
) -> dict[str, np.ndarray]:
    """What the cells say of inputs that were not given; calibrates the likelihood on the way, if asked."""

    def by_piece(of: Callable[[Tensor], Tensor]) -> Tensor:
        """Of all rows; where it asks for totals, a row without missing cells may be given by its own."""
        if not missing and hasattr(likelihood, "totals"):
            return of(torch.as_tensor(np.concatenate(sums.totals)).unsqueeze(1))
        whole = (p.toarray() if sp.issparse(p) else p for _, p in store.pieces())
        return torch.cat([of(torch.as_tensor(np.asarray(piece, dtype=float))) for piece in whole])

    def some(columns: Tensor) -> Tensor:
        chosen, wanted = [], np.arange(0, len(store), -(-len(store) // MOST_ROWS))
        if store.starts is None:  # any row is at hand, and no pass over all is wanted
            step = min(FEWEST_JUDGED, max(1, JUDGED_CELLS // store.shape[1]))
            blocks = (store.rows(wanted[i : i + step], np.float64) for i in range(0, len(wanted), step))
            return torch.as_tensor(np.concatenate([block[:, columns.numpy()] for block in blocks]))
        for start, piece in store.pieces():
            here = wanted[(wanted >= start) & (wanted < start + piece.shape[0])] - start
            block = piece[here][:, columns.numpy()]
            chosen.append(block.toarray() if sp.issparse(block) else np.asarray(block))
        return torch.as_tensor(np.concatenate(chosen).astype(float))

    if calibrate:
        likelihood.calibrate_by(
            torch.as_tensor(sums.mean), lambda: by_piece(cast(_WithTotals, likelihood).totals), some
        )
        likelihood.note_per_row(given)
    if not set(likelihood.per_row_inputs) - set(given):
        return {}
    names = likelihood.default_per_row(torch.ones(1, len(sums.mean), dtype=torch.float64))

    def values_of(name: str) -> Callable[[Tensor], Tensor]:
        return lambda piece: likelihood.default_per_row(piece)[name]

    return {name: by_piece(values_of(name)).numpy() for name in names if name not in given}


def _amounts(store: RowStore, amount: Tensor | None, count: np.ndarray, missing: bool) -> np.ndarray:
    """Sum over each column's seen cells of how much their rows are."""
    if amount is None:
        return count
    size = amount.numpy()
    if not missing:
        return np.full(len(count), size.sum())
    total = np.zeros(len(count))
    for start, piece in store.pieces():
        total += (~np.isnan(piece) * size[start : start + len(piece)]).sum(0)
    return total


def _reads_otherwise(likelihood: Likelihood) -> bool:
    """Whether the encoder reads something else than the cells."""
    return bool(overridden(likelihood, Likelihood, _VIEW))


def _view_moments(table: LargeTable) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of what the encoder reads, of every feature; sums in double precision."""
    n_features = len(table.feature_names)
    count, mean, squares = torch.zeros(3, n_features, dtype=torch.float64)
    step = table.rows_together(1, len(table.x))
    for start in range(0, len(table.x), step):
        index = np.arange(start, min(start + step, len(table.x)))
        _, view, observed, _ = table.cells(index, torch.float32)
        piece_count = torch.full_like(count, len(view)) if observed is None else observed.sum(0).double()
        centre = view.sum(0, dtype=torch.float64) / piece_count.clamp_min(1)
        spread = view.sub(centre.float()).square_()
        spread = (spread if observed is None else spread * observed).sum(0, dtype=torch.float64)
        joint_count = (count + piece_count).clamp_min(1)
        shift = torch.where(piece_count > 0, centre - mean, 0.0)
        squares += spread + shift**2 * count * piece_count / joint_count
        mean += shift * piece_count / joint_count
        count += piece_count
    return mean.numpy(), (squares / count.clamp_min(1)).sqrt().numpy()
