"""Containers that tables come in: arrays, lists, masked arrays, scipy.sparse, Arrow, polars, tensors.

And what is no table at all. Each maker takes Hypothesis' `draw` and cells, and returns the data, the cells as
they can be had from it (a container of whole numbers has no fractions), and why nobody could, if that is so.
"""

from __future__ import annotations

import datetime
import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch

from ._cases import require_hypothesis

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["CONTAINERS"]

_LARGEST_WHOLE = 2.0**53  # whole numbers beyond it are not exact in double precision

Made = tuple[Any, "np.ndarray | None", str]


def _array(dtype: npt.DTypeLike) -> Callable[..., Made]:
    def make(draw: Callable[..., Any], cells: np.ndarray) -> Made:
        with np.errstate(all="ignore"):
            whole = np.issubdtype(np.dtype(dtype), np.integer) or dtype is bool
            data = (np.nan_to_num(cells, posinf=0, neginf=0) if whole else cells).astype(dtype)
            return data, data.astype(float), ""

    return make


def _view(draw: Callable[..., Any], cells: np.ndarray) -> Made:
    kind = draw(
        require_hypothesis().sampled_from(["fortran", "strided", "reversed", "read only", "big endian"])
    )
    if kind == "fortran":
        return np.asfortranarray(cells), cells, ""
    if kind == "strided":
        return np.repeat(np.repeat(cells, 2, 0), 2, 1)[::2, ::2], cells, ""
    if kind == "reversed":
        return np.ascontiguousarray(cells[::-1, ::-1])[::-1, ::-1], cells, ""
    if kind == "big endian":
        return cells.astype(">f8"), cells, ""
    data = cells.copy()
    data.flags.writeable = False
    return data, cells, ""


def _objects(draw: Callable[..., Any], cells: np.ndarray) -> Made:
    data = cells.astype(object)
    data[np.isnan(cells)] = draw(require_hypothesis().sampled_from([None, np.nan, pd.NA, pd.NaT]))
    return data, cells, ""


def _lists(draw: Callable[..., Any], cells: np.ndarray) -> Made:
    kind = draw(require_hypothesis().sampled_from(["list", "tuple", "list of arrays", "with None"]))
    if kind == "list of arrays":
        return list(cells), cells, ""
    rows = cells.tolist()
    if kind == "with None":
        rows = [[None if cell != cell else cell for cell in row] for row in rows]
    return (tuple(map(tuple, rows)) if kind == "tuple" else rows), cells, ""


def _masked(draw: Callable[..., Any], cells: np.ndarray) -> Made:
    hidden = np.isnan(cells) | (
        np.random.default_rng(draw(require_hypothesis().integers(0, 9))).random(cells.shape) < 0.1
    )
    filler = draw(require_hypothesis().sampled_from([0.0, -999.0, np.inf]))
    return np.ma.MaskedArray(np.where(hidden, filler, cells), hidden), np.where(hidden, np.nan, cells), ""


def _scipy(draw: Callable[..., Any], cells: np.ndarray) -> Made:
    st = require_hypothesis()
    form = draw(st.sampled_from(["csr", "csc", "coo", "bsr", "lil", "dok", "dia"]))
    kind = draw(st.sampled_from([sp.coo_matrix, sp.coo_array]))
    dense = cells
    if draw(st.booleans()):  # some zeros, or nothing is sparse
        dense = np.where(np.arange(cells.size).reshape(cells.shape) % 3 > 0, cells, 0.0)
    if form == "coo" and dense.size and draw(st.booleans()):  # entries given twice are summed
        i, j = np.nonzero(dense)
        half = dense[i, j] / 2
        data = kind((np.r_[half, half], (np.r_[i, i], np.r_[j, j])), shape=dense.shape)
        return data, data.toarray(), ""
    return kind(dense).asformat(form), dense, ""


def _tensor(draw: Callable[..., Any], cells: np.ndarray) -> Made:
    kind = draw(
        require_hypothesis().sampled_from(["float32", "float64", "bfloat16", "float16", "grad", "int64"])
    )
    if kind == "grad":
        return torch.tensor(cells, requires_grad=True), cells, ""
    whole = np.clip(np.nan_to_num(cells), -_LARGEST_WHOLE, _LARGEST_WHOLE)
    data = torch.tensor(whole if kind == "int64" else cells).to(getattr(torch, kind))
    return data, data.double().numpy(), ""


def _arrow(draw: Callable[..., Any], cells: np.ndarray) -> Made:
    frame = pd.DataFrame(cells, columns=[f"c{j}" for j in range(cells.shape[1])])
    if importlib.util.find_spec("pyarrow") is None or not cells.size:
        return frame, cells, ""
    import pyarrow as pa

    return pa.Table.from_pandas(frame), cells, ""


def _polars(draw: Callable[..., Any], cells: np.ndarray) -> Made:
    if importlib.util.find_spec("polars") is None or not cells.size:
        return _arrow(draw, cells)
    import polars as pl

    return pl.DataFrame({f"c{j}": cells[:, j] for j in range(cells.shape[1])}), cells, ""


_WRONG: dict[str, tuple[str, Callable[[np.ndarray], Any]]] = {
    "one row as a vector": ("one dimension", lambda cells: cells[0] if len(cells) else cells.ravel()),
    "three dimensions": ("three dimensions", lambda cells: cells[None]),
    "a number": ("no dimension", lambda cells: np.array(3.0)),
    "None": ("nothing", lambda cells: None),
    "a path": ("text", lambda cells: "table.csv"),
    "empty": ("nothing in it", lambda cells: []),
    "rows of nothing": ("nothing in it", lambda cells: [[] for _ in cells]),
    "a dict": ("a dict", lambda cells: {f"c{j}": cells[:, j].tolist() for j in range(cells.shape[1])}),
    "ragged": ("rows of different lengths", lambda cells: [*cells.tolist(), [0.0]]),
    "text": ("text", lambda cells: np.full((12, 3), "a")),
    "numbers as text": ("text", lambda cells: np.full((12, 3), "1.5")),
    "bytes": ("bytes", lambda cells: np.full((12, 3), b"1")),
    "complex": ("complex numbers", lambda cells: cells * 1j),
    "dates": ("dates", lambda cells: np.full((12, 3), np.datetime64("2020-01-01"))),
    "a structured array": (
        "records", lambda cells: np.zeros(12, dtype=[("a", float), ("b", float)])
    ),
    "a Series": ("one dimension", lambda cells: pd.Series(np.arange(12.0))),
    "a generator": ("no table", lambda cells: (row for row in cells)),
    "a set": ("no table", lambda cells: {1.0, 2.0}),
    "objects": ("no numbers", lambda cells: np.full((12, 3), object())),
    "dates in lists": ("dates", lambda cells: [[datetime.date(2020, 1, 1)] * 3] * 12),
    "a sparse tensor": ("a sparse tensor", lambda cells: torch.ones(12, 3).to_sparse()),
    "a complex tensor": ("complex numbers", lambda cells: torch.ones(12, 3, dtype=torch.complex64)),
}  # fmt: skip


def _wrong(draw: Callable[..., Any], cells: np.ndarray) -> Made:
    why, make = _WRONG[draw(require_hypothesis().sampled_from(list(_WRONG)))]
    return make(cells), None, why


CONTAINERS: dict[str, Callable[..., Made]] = {
    "float64 array": _array(float),
    "float32 array": _array(np.float32),
    "float16 array": _array(np.float16),
    "int64 array": _array(np.int64),
    "uint8 array": _array(np.uint8),
    "bool array": _array(bool),
    "longdouble array": _array(np.longdouble),
    "a view": _view,
    "array of objects": _objects,
    "nested lists": _lists,
    "masked array": _masked,
    "scipy sparse": _scipy,
    "tensor": _tensor,
    "Arrow table": _arrow,
    "polars table": _polars,
    "no table": _wrong,
}
