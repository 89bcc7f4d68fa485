"""`Data`: a table with what is known of its rows and columns, and what a program sees of it (`DataView`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyro
import torch
from torch import Tensor

from ..data.columns import as_frame, in_order, name_features, read_names
from ..data.read import read_array

if TYPE_CHECKING:
    from .._utils.types import TableLike

__all__ = ["Data", "DataView", "FactorAxis"]

_LEAST_ROWS = 3
_TAKEN = frozenset(
    {"x", "seen", "rows", "features", "factors", "n_factors", "levels", "n_rows", "n_features", "names_read"}
)


class FactorAxis(NamedTuple):
    """The axis of the factors: what edges lead to.

    Attributes
    ----------
    name : str
    size : int
    """

    name: str
    size: int


@dataclass(frozen=True, init=False)
class Data:
    """A table and, by name, what is known of its rows and of its features.

    Parameters
    ----------
    X : array_like (row, feature), DataFrame, …, or ndarray (row, ..., feature)
        NaN marks a missing cell.
    rows, features : mapping of str to array_like or DataFrame, optional
        By the name under which the program reads it, `d.name`: numbers (row,) or (row, column), or labels
        (row,), which become their numbers from 0 (`d.levels(name)` says how many there are). A Series or a
        DataFrame with an index is matched to the rows, or features, by its labels where X has such.
    feature_names : sequence of str, optional
        Names for an array.

    Attributes
    ----------
    x : ndarray (row, ..., feature)
        Missing cells hold the median of their column.
    seen : ndarray of bool
    feature_names, sample_names : list of str
    rows, features : dict of str to ndarray
    labels : dict of str to list
        What stands behind the numbers of labels.

    Raises
    ------
    ValueError, TypeError
        The table cannot be read; of something else there are not as many as rows, or features; or values are
        missing.

    Examples
    --------
    >>> import numpy as np
    >>> data = Data(np.zeros((4, 2)), rows={"site": ["a", "b", "a", "b"], "dose": [0.0, 1.0, 2.0, 3.0]})
    >>> data.rows["site"].tolist(), data.labels["site"]
    ([0, 1, 0, 1], ['a', 'b'])
    """

    x: np.ndarray
    seen: np.ndarray
    feature_names: list[str]
    sample_names: list[str]
    rows: dict[str, np.ndarray] = field(default_factory=dict)
    features: dict[str, np.ndarray] = field(default_factory=dict)
    labels: dict[str, list[Any]] = field(default_factory=dict)

    def __init__(
        self,
        X: TableLike,
        rows: Mapping[str, Any] | None = None,
        features: Mapping[str, Any] | None = None,
        feature_names: Sequence[str] | None = None,
    ):
        x, names, samples = _read(X)
        if len(x) < _LEAST_ROWS:
            raise ValueError(f"X: has {len(x)} row(s), wanted at least {_LEAST_ROWS}")
        if np.isinf(x).any():
            where = np.argwhere(np.isinf(x))[0]
            raise ValueError(f"X: row {where[0]}, feature {where[-1]} is infinite; wanted a number, or NaN")
        seen = ~np.isnan(x)
        axes = tuple(range(x.ndim - 1))
        if not seen.any(axes).all():
            empty = int(np.flatnonzero(~seen.any(axes))[0])
            raise ValueError(f"X: column {empty} has no value; leave it out")
        filler = np.nanmedian(np.where(seen, x, np.nan).reshape(-1, x.shape[-1]), axis=0)
        set_field = object.__setattr__
        set_field(self, "x", np.where(seen, x, filler))
        set_field(self, "seen", seen)
        set_field(self, "feature_names", name_features(read_names(feature_names), names, x.shape[-1]))
        set_field(self, "sample_names", samples or [str(i) for i in range(len(x))])
        labels: dict[str, list[Any]] = {}
        for plate, columns, index, labelled in (
            ("rows", rows, self.sample_names, samples),
            ("features", features, self.feature_names, names if feature_names is None else feature_names),
        ):
            values = {
                name: _values(f"{plate}[{name!r}]", name, value, index, labelled is not None, labels)
                for name, value in (columns or {}).items()
            }
            set_field(self, plate, values)
        if twice := sorted(set(self.rows) & set(self.features)):
            raise ValueError(
                f"features: {twice[0]!r} is a name of rows, too; the program reads both as d.{twice[0]}"
            )
        set_field(self, "labels", labels)

    def __len__(self) -> int:
        return len(self.x)

    def tensors(
        self, device: str | torch.device = "cpu", dtype: torch.dtype | None = None
    ) -> dict[str, Tensor]:
        """What a program reads, as tensors; real numbers in the default precision unless another is named."""
        real = torch.get_default_dtype() if dtype is None else dtype
        arrays = {"x": self.x, "seen": self.seen, **self.rows, **self.features}
        return {
            name: torch.as_tensor(a, device=device, dtype=real if a.dtype.kind == "f" else None)
            for name, a in arrays.items()
        }

    def view(self, n_factors: int, tensors: Mapping[str, Tensor] | None = None) -> DataView:
        """What a program with so many factors sees.

        Parameters
        ----------
        n_factors : int
        tensors : mapping, optional
            In place of `tensors()`.
        """
        levels = {name: len(labels) for name, labels in self.labels.items()}
        sizes = (len(self.x), self.x.shape[-1])
        return DataView(self.tensors() if tensors is None else tensors, n_factors, sizes, levels)

    def at(self, index: np.ndarray) -> Data:
        """Some of the rows, with the same features and the same labels.

        Parameters
        ----------
        index : ndarray of int
            Numbers of rows.
        """
        chosen = object.__new__(Data)
        changed = {
            "x": self.x[index],
            "seen": self.seen[index],
            "sample_names": [self.sample_names[i] for i in index],
            "rows": {name: value[index] for name, value in self.rows.items()},
        }
        for name, value in {**vars(self), **changed}.items():
            object.__setattr__(chosen, name, value)
        return chosen

    def with_table(self, x: np.ndarray) -> Data:
        """The same rows and features with other cells, those that were not seen left out.

        Parameters
        ----------
        x : ndarray (row, ..., feature)
        """
        changed = object.__new__(Data)
        for name, value in vars(self).items():
            object.__setattr__(changed, name, value)
        object.__setattr__(changed, "x", np.where(self.seen, x, self.x))
        return changed


class DataView:
    """What a program sees of its data: `d.x`, `d.seen`, plates, the axis of the factors, and all by name.

    Parameters
    ----------
    tensors : mapping of str to Tensor
    n_factors : int
    sizes : (int, int)
        Rows and features.
    levels : mapping of str to int
        Of labels, how many there are.

    Attributes
    ----------
    rows, features : plate
        At dimensions -2 and -1.
    factors : FactorAxis
    n_factors, n_rows, n_features : int
    names_read : set of str
        What has been read by name so far.
    """

    def __init__(
        self, tensors: Mapping[str, Tensor], n_factors: int, sizes: tuple[int, int], levels: Mapping[str, int]
    ):
        self._tensors, self._levels = dict(tensors), dict(levels)
        self.names_read: set[str] = set()
        self.n_factors, (self.n_rows, self.n_features) = n_factors, sizes
        self.factors = FactorAxis("factor", n_factors)
        self.rows = pyro.plate("rows", self.n_rows, dim=-2)  # made once: a program enters it again and again
        self.features = pyro.plate("features", self.n_features, dim=-1)

    def levels(self, name: str) -> int:
        """How many labels there are under a name."""
        if name not in self._levels:
            numbers = f"; d.{name} has numbers: give labels as text, values.astype(str)"
            raise ValueError(
                f"{name}: no labels of that name; there are {sorted(self._levels) or 'none'}"
                + (numbers if name in self._tensors and name not in ("x", "seen") else "")
            )
        self.names_read.add(name)
        return self._levels[name]

    def __getattr__(self, name: str) -> Tensor:
        tensors = self.__dict__.get("_tensors", {})
        if name not in tensors:
            raise AttributeError(f"data: holds no {name!r}; the program can read {sorted(tensors)}")
        self.names_read.add(name)
        return tensors[name]


def _read(X: TableLike) -> tuple[np.ndarray, list[str] | None, list[str] | None]:
    if isinstance(X, np.ndarray | Tensor) and X.ndim > 2:
        array = np.asarray(X.detach().cpu() if isinstance(X, Tensor) else X)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"X: holds {array.dtype}, wanted numbers")
        return array.astype(float), None, None
    return read_array(X)


def _values(
    where: str, name: str, value: Any, index: list[str], is_named: bool, labels: dict[str, list[Any]]
) -> np.ndarray:
    """Numbers, or the numbers of labels, in the order of `index`."""
    if not name.isidentifier() or name.startswith("_") or name in _TAKEN:
        raise ValueError(
            f"{where}: the program would read it as d.{name}, which is no free name; choose another"
        )
    value = as_frame(value)
    if isinstance(value, pd.Series | pd.DataFrame):
        value = _matched(where, value, index, is_named)
    if isinstance(value, pd.DataFrame):
        array, _, _ = read_array(value, where)
    else:
        array = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
    if array.ndim == 0 or len(array) != len(index):
        raise ValueError(f"{where}: has {len(array) if array.ndim else 1} entries, wanted {len(index)}")
    if array.dtype.kind not in "biuf":
        if array.ndim > 1:
            raise ValueError(
                f"{where}: has labels of shape {array.shape}, wanted ({len(index)},); give each column a name"
            )
        codes, levels = in_order(value)
        if (codes < 0).any():
            raise ValueError(f"{where}: entry {int(np.flatnonzero(codes < 0)[0])} is missing; wanted a label")
        labels[name] = levels.tolist()
        return codes.astype(np.int64)
    array = array.astype(float)
    if not np.isfinite(array).all():
        raise ValueError(
            f"{where}: entry {int(np.argwhere(~np.isfinite(array))[0][0])} is missing or infinite; "
            "wanted a number"
        )
    return array


def _matched(
    where: str, value: pd.Series | pd.DataFrame, index: list[str], is_named: bool
) -> pd.Series | pd.DataFrame:
    """In the order of the table's own labels, where both have such."""
    labels = [str(label) for label in value.index]
    if not is_named or labels == index or isinstance(value.index, pd.RangeIndex):
        return value
    if len(set(labels)) != len(labels) or set(index) - set(labels):
        missing = next((i for i in index if i not in set(labels)), None)
        why = f"has no entry for {missing!r}" if missing is not None else "has a label twice"
        raise ValueError(f"{where}: {why}; wanted the labels of X, or an array in their order")
    return value.set_axis(labels).loc[index]
