"""Data frames as people have them: names of every sort, columns that hold numbers or do not."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from ._cases import require_hypothesis

__all__ = ["REPEATED_NAMES", "draw_frame"]

REPEATED_NAMES = "names of columns are repeated"  # why a frame is refused, unless names are given beside it
_USUAL = 7  # times as likely as each other kind: accepted input is to be tried, too
_LARGEST_WHOLE = 2.0**53  # whole numbers beyond it are not exact in double precision


def _labels(*labels: object) -> Callable[[int], list[object]]:
    return lambda n: [*labels, *(f"more {j}" for j in range(n))][:n]


_NAMES: dict[str, Callable[[int], Any]] = {
    "letters": lambda n: [chr(97 + j) for j in range(n)],
    "counted": lambda n: list(range(n)),
    "counted from 1": lambda n: list(range(1, n + 1)),
    "x1, x2": lambda n: [f"x{j + 1}" for j in range(n)],
    "x2, x1": lambda n: [f"x{n - j}" for j in range(n)],
    "numbers in another order": lambda n: list(range(n))[::-1],
    "unicode": _labels("größe", "年齢", "Ω²", "e\u0301", "\u00e9"),
    "control characters": _labels("a\nb", "=1+1", "\x1b[31m", "tab\t", "b\\"),
    "an empty one": _labels("", " ", "x"),
    "one missing": _labels(np.nan, "b", None),
    "repeated": _labels("a", "a", "b"),
    "alike as text": _labels(1, "1", 2),
    "floats": _labels(0.5, 1.0, float("inf")),
    "tuples": lambda n: pd.MultiIndex.from_arrays([["u"] * n, list(range(n))]),
    "dates": lambda n: pd.date_range("2020", periods=n),
    "categories": lambda n: pd.CategoricalIndex([f"level {j}" for j in range(n)]),
    "long": lambda n: [f"{'a' * 3000}{j}" for j in range(n)],
    "names of arguments": _labels("id", "time", "y", "task", "intercept"),
}  # fmt: skip
_ROWS: dict[str, Callable[[int], Any]] = {
    "as they come": lambda n: None,
    "text": lambda n: [f"r{i}" for i in range(n)],
    "repeated": lambda n: ["r"] * n,
    "dates": lambda n: pd.date_range("2020", periods=n),
    "levels": lambda n: pd.MultiIndex.from_arrays(
        [[i // 3 for i in range(n)], list(range(n))], names=["id", "time"]
    ),
    "missing": lambda n: [np.nan] * n,
    "reversed": lambda n: list(range(n))[::-1],
}
# What a column may hold: whether it is to be read as numbers, and how it is made of some.
_TEXT_WITH_HOLES = ["a", "b", None]


def _nullable(column: pd.Series, dtype: str) -> pd.Series:
    whole = np.rint(column.where(np.isfinite(column) & (column.abs() < _LARGEST_WHOLE), np.nan))
    return whole.astype("Float64").astype(dtype)


def _yes_no(column: pd.Series) -> pd.Series:
    return pd.Series(np.where(column.isna(), None, column > 0), dtype="boolean")


def _decimals(column: pd.Series) -> pd.Series:
    return pd.Series([None if v != v else decimal.Decimal(repr(float(v))) for v in column], dtype=object)


_COLUMNS: dict[str, tuple[bool, Callable[[pd.Series], Any]]] = {
    "float32": (True, lambda c: c.astype(np.float32)),
    "Float64": (True, lambda c: c.astype("Float64")),
    "Int64": (True, lambda c: _nullable(c, "Int64")),
    "boolean": (True, _yes_no),
    "bool": (True, lambda c: c > 0),
    "objects": (True, lambda c: c.astype(object).where(c.notna(), None)),
    "Decimal": (True, _decimals),
    "sparse": (True, lambda c: c.astype(pd.SparseDtype(float, 0.0))),
    "one True": (True, lambda c: pd.Series([True, *c.iloc[1:]], dtype=object)),
    "nothing but None": (True, lambda c: pd.Series([None] * len(c), dtype=object)),
    "categories of numbers": (False, lambda c: c.astype("category")),
    "categories": (False, lambda c: pd.Series(pd.Categorical([f"l{i % 3}" for i in range(len(c))]))),
    "text": (False, lambda c: pd.Series([_TEXT_WITH_HOLES[i % 3] for i in range(len(c))], dtype=object)),
    "a word among numbers": (False, lambda c: pd.Series(["n/a", *c.iloc[1:]], dtype=object)),
    "numbers as text": (False, lambda c: c.astype(str)),
    "numbers with a comma": (False, lambda c: pd.Series([f"{i},5" for i in range(len(c))])),
    "string": (False, lambda c: pd.Series(["a", *["1"] * (len(c) - 1)], dtype="string")),
    "dates": (False, lambda c: pd.Series(pd.date_range("2020", periods=len(c)))),
    "zoned dates": (False, lambda c: pd.Series(pd.date_range("2020", periods=len(c), tz="Asia/Tokyo"))),
    "durations": (False, lambda c: pd.Series(pd.timedelta_range(0, periods=len(c), freq="D"))),
    "periods": (False, lambda c: pd.Series(pd.period_range("2020", periods=len(c), freq="M"))),
    "intervals": (False, lambda c: pd.Series(pd.interval_range(0, periods=len(c)))),
    "complex": (False, lambda c: c.fillna(0).astype(complex)),
    "lists": (False, lambda c: pd.Series([[1.0, 2.0]] * len(c), dtype=object)),
    "bytes": (False, lambda c: pd.Series([b"1"] * len(c), dtype=object)),
}  # fmt: skip


def _plain(column: pd.Series) -> np.ndarray:
    """Cells of a column of numbers, read one by one."""
    return np.array([np.nan if pd.isna(cell) else float(cell) for cell in column])


def draw_frame(
    draw: Callable[..., Any], cells: np.ndarray
) -> tuple[pd.DataFrame, np.ndarray, str, list[str]]:
    """A data frame, its cells as they should be read, why it has to be refused, and how it was made.

    Parameters
    ----------
    draw : callable
        Hypothesis' own.
    cells : ndarray (row, feature)
    """
    st = require_hypothesis()
    n, d = cells.shape
    columns = [pd.Series(cells[:, j]) for j in range(d)]
    done: dict[int, str] = {}
    with np.errstate(all="ignore"):
        for name in draw(st.lists(st.sampled_from(list(_COLUMNS)), max_size=2)) if n and d else []:
            j = draw(st.integers(0, d - 1))
            columns[j], done[j] = _COLUMNS[name][1](pd.Series(cells[:, j])), name
    words = [f"column {j}: {name}" for j, name in done.items()]
    no_number = [name for name in done.values() if not _COLUMNS[name][0]]
    refuse = f"a column of {no_number[0]}" if no_number else ""
    read = cells if refuse else np.stack([_plain(column) for column in columns], 1) if d else cells
    frame = pd.concat(columns, axis=1) if d else pd.DataFrame(index=range(n))
    kind = draw(st.sampled_from([*["letters"] * _USUAL, *_NAMES]))
    frame.columns = _NAMES[kind](d)
    rows = draw(st.sampled_from([*["as they come"] * _USUAL, *_ROWS]))
    if (index := _ROWS[rows](n)) is not None:
        frame.index = index
    if len({str(name) for name in frame.columns}) < d:
        refuse = refuse or REPEATED_NAMES
    return frame, read, refuse, [*words, f"columns called {kind}", f"rows called {rows}"]
