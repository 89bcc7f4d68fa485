"""Columns of a table: what they are called and hold, which are a fit's features, what is wrong with them.

Names are text, one for each column. New data are matched to a fit by name where both have names, else by
position. What is given beside a table, one entry per row, goes by position; its rows are looked at here too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

import numpy as np
import pandas as pd

from .._utils.types import TableLike, VectorLike

__all__ = [
    "as_frame",
    "as_numbers",
    "check_columns",
    "check_magnitude",
    "check_number",
    "check_extremes",
    "check_order",
    "check_rows",
    "check_scales",
    "check_usable",
    "in_numbers",
    "in_order",
    "is_numbered",
    "match_features",
    "name_features",
    "read_names",
    "row_names",
    "sort_out",
    "strangers",
    "text_columns",
    "under_names",
    "without_na",
]

Data = TypeVar("Data")
# What to do with a column of a table in memory, by the sort of what it holds (`strangers`).
_FIXES = {
    "kind": "encode it as numbers, or drop it",
    "nominal": "make one column of 0 and 1 of two answers, and 0 and 1 for each of more "
    "(pandas.get_dummies), or drop it",
    "ordinal": 'give the column likelihood="ordinal", or take the numbers of its categories (.cat.codes, '
    "with NaN for -1) if they are about evenly spaced, or drop it",
    "levels": "take these (.astype(float)), or drop it",
    "mixed": "write 1 and 0 for True and False, or drop it",
    "quoted": "convert it (pandas.to_numeric), or drop it",
    "comma": "write them with a point for decimals and no comma, as 1234.5, or drop it",
    "limits": "write the limit itself and say so (pyro_sparse.likelihoods.CensoredNormal), or set such cells "
    "to NaN, or drop it",
    "marked": "write the numbers alone, or drop it",
    "text": "make one column of 0 and 1 of two answers, and 0 and 1 for each of more "
    "(pandas.get_dummies), or drop it",
    "cells": "set such cells to NaN, or drop it",
}
_LARGEST = 1e18  # in model units: its square still is a number in single precision, which ends at 3.4e38
_SHOWN = 60  # characters of a cell in a message
# A currency, digits in groups of three, a share: "$1,234.50", "12 %".
_MARKED = r"[+-]?[$€£¥]?\s*\d{1,3}(?:[,.' \u00a0\u202f]?\d{3})*(?:[.,]\d+)?\s*[%‰$€£¥]?"
# Kinds of cells as pandas.api.types.infer_dtype calls them.
_NO_TEXT = {"bytes", "complex", "date", "datetime", "interval", "period", "time", "timedelta"}
_NUMBERS = {"boolean", "decimal", "empty", "floating", "integer", "mixed-integer-float"}


def as_frame(data: Data) -> Data | pd.DataFrame:
    """A table of another library with names of columns (Arrow, polars) as a DataFrame; all else as it is.

    Parameters
    ----------
    data : any

    Raises
    ------
    TypeError
        It has names and cannot be made a DataFrame: its columns would be taken by position.
    """
    if isinstance(data, pd.DataFrame):
        return data
    if hasattr(data, "to_pandas") and hasattr(data, "columns"):
        return data.to_pandas()
    if hasattr(data, "__dataframe__"):  # pandas' own reader of that protocol makes missing booleans False
        raise TypeError(
            f"X: got a {type(data).__name__} with names of columns and no to_pandas(); "
            "give it as a pandas.DataFrame, so that its columns are found by name"
        )
    return data


def under_names(data: TableLike, cells: np.ndarray) -> np.ndarray | pd.DataFrame:
    """A table's cells as numbers, under the names of its rows and columns where it has any."""
    data = as_frame(data)
    return pd.DataFrame(cells, data.index, data.columns) if isinstance(data, pd.DataFrame) else cells


def sort_out(table: pd.DataFrame) -> tuple[pd.DataFrame, list[tuple[str, object]]]:
    """The table with what are numbers as such, and the name and kind of each column that does not hold any.

    Parameters
    ----------
    table : DataFrame
        A column of objects is one of numbers if all that is in it is: True is 1, False 0, an empty cell NaN.
        Complex numbers are none.
    """
    if (table.dtypes == "object").any():
        table = table.infer_objects()
        for j in np.flatnonzero(table.dtypes == "object"):
            cells = table.iloc[:, j]
            if pd.api.types.infer_dtype(cells, skipna=True) in _NUMBERS:
                table.isetitem(j, cells.where(cells.notna(), np.nan).astype(float))
    kinds = zip(table.columns, table.dtypes, strict=True)
    return table, [(str(name), kind) for name, kind in kinds if not _is_number(kind)]


def strangers(column: pd.Series) -> tuple[str, str]:
    """What a column holds that is no number, in words, and of which sort that is, for who knows a fix.

    Parameters
    ----------
    column : Series
        One that `sort_out` finds fault with.

    Returns
    -------
    holds : str
    sort : {"kind", "nominal", "ordinal", "levels", "mixed", "quoted", "comma", "limits", "marked", "text",
        "cells"}
        Dates and the like; categories, those in an order, those that are numbers; True or False among
        numbers; numbers as text; these with a comma; some below or above a limit; those with other signs;
        text throughout; text in some cells.
    """
    of = pd.api.types
    if isinstance(column.dtype, pd.CategoricalDtype):
        levels = column.dtype.categories
        shown = ", ".join(map(repr, levels[:3].tolist())) + (", …" if len(levels) > 3 else "")
        sort = "levels" if _is_number(levels.dtype) else "ordinal" if column.dtype.ordered else "nominal"
        return f"{'ordered ' * bool(column.dtype.ordered)}categories ({shown})", sort
    if not of.is_object_dtype(column.dtype) and not of.is_string_dtype(column.dtype):
        return str(column.dtype), "kind"
    if (kind := of.infer_dtype(column, skipna=True)) in _NO_TEXT:
        return f"{kind} values", "kind"
    present = column.notna().to_numpy()
    cells = column[present].astype(str).str.strip()
    yes_no = cells.str.lower().isin(["true", "false"])
    bad = pd.to_numeric(cells, errors="coerce").isna() & ~yes_no
    values = [_shortened(repr(value)) for value in cells[bad].unique()[:3]]
    if not bad.any():
        return ("True or False among numbers", "mixed") if yes_no.any() else ("numbers as text", "quoted")
    if cells[bad].str.fullmatch(r"[+-]?\d*,\d+([eE][+-]?\d+)?").all():
        return f"numbers with a comma ({', '.join(values)})", "comma"
    if cells[bad].str.fullmatch(rf"[<>≤≥]=?\s*{_MARKED}").all():
        return f"numbers beyond a limit ({', '.join(values)})", "limits"
    if cells[bad].str.fullmatch(_MARKED).all():
        return f"numbers with other signs ({', '.join(values)})", "marked"
    if bad.all():
        return f"text ({', '.join(values)})", "text"
    row = int(np.flatnonzero(present)[bad.to_numpy().argmax()])
    many = f"text in {int(bad.sum())} of {len(column)} cells"
    return f"{many} ({', '.join(values)}; the first in row {row}, counted from 0)", "cells"


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def as_numbers(table: pd.DataFrame, name: str = "X", fix: str | None = None) -> pd.DataFrame:
    """`sort_out` of a table in memory that is to hold numbers only.

    Parameters
    ----------
    table : DataFrame
    name : str
        What messages call it.
    fix : str, optional
        What to do with a column that holds something else; default by what that is.

    Raises
    ------
    TypeError
        Naming the first such column and what it holds.
    """
    numbers, text = sort_out(table)
    if text:
        at = next(j for j, column in enumerate(table.columns) if str(column) == text[0][0])
        holds, sort = strangers(table.iloc[:, at])
        raise TypeError(
            f"{name}: column {text[0][0]!r} holds {holds}, wanted numbers ({len(text)} such column(s)); "
            f"{fix or _FIXES[sort]}"
        )
    return numbers


def without_na(cells: np.ndarray) -> np.ndarray:
    """An array of objects with NaN for what pandas takes for missing (None, NA, NaT); any other as it is."""
    return np.where(pd.isna(cells), np.nan, cells) if cells.dtype == object else cells


def in_numbers(data: TableLike) -> TableLike:
    """A table before scikit-learn's checks, which name no column and take no NA in an array of objects."""
    data = as_frame(data)
    if isinstance(data, pd.DataFrame):
        return as_numbers(data)
    return without_na(data) if isinstance(data, np.ndarray) else data


def _is_number(kind: object) -> bool:
    of = pd.api.types
    return (of.is_numeric_dtype(kind) or of.is_bool_dtype(kind)) and not of.is_complex_dtype(kind)


def text_columns(table: pd.DataFrame) -> pd.DataFrame:
    """A table with its columns called by text.

    Parameters
    ----------
    table : DataFrame

    Raises
    ------
    ValueError
        Two columns have one name.
    """
    names = [str(name) for name in table.columns]
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise ValueError(f"X: column {repeated[0]!r} occurs {names.count(repeated[0])} times; rename it")
    return table.set_axis(names, axis=1)


def read_names(names: Iterable[object] | None, argument: str = "feature_names") -> list[str] | None:
    """Names that a caller gave, as text; None where there are none.

    Parameters
    ----------
    names : iterable of labels, or None
    argument : str
        What messages call it.

    Raises
    ------
    TypeError
        One text, or what holds no names at all.
    """
    if names is None:
        return None
    if isinstance(names, str | bytes) or not np.iterable(names):
        raise TypeError(f"{argument}: got {names!r}, wanted a list of names, one for each column")
    return [str(name) for name in names]


def name_features(given_names: list[str] | None, table_names: list[str] | None, n_features: int) -> list[str]:
    """Names of a table's columns: those given, or its own, or numbers; one for each, and no other has it."""
    names = (
        list(given_names)
        if given_names is not None
        else table_names or [f"x{j + 1}" for j in range(n_features)]
    )
    if len(names) != n_features:
        raise ValueError(
            f"feature_names: has {len(names)} names, X has {n_features} columns; give one per column"
        )
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise ValueError(
            f"feature_names: {repeated[0]!r} occurs {names.count(repeated[0])} times; "
            "rename columns to be unique"
        )
    moved = [
        new
        for new, old in zip(names, table_names or names, strict=True)
        if new != old and new in (table_names or ())
    ]
    if moved:
        raise ValueError(
            f"feature_names: {moved[0]!r} is given to another column of X than the one called so; they go by "
            "position, so leave them out where X has names"
        )
    return names


def match_features(
    n_features: int, names: list[str] | None, wanted: list[str], argument: str = "X", of: str = "the fit"
) -> list[int]:
    """Column of new data for each of the fit's features: by name if both have names, else by position."""
    repeated = sorted(name for name, count in Counter(names or []).items() if count > 1)
    if repeated:
        raise ValueError(
            f"{argument}: column {repeated[0]!r} occurs {(names or []).count(repeated[0])} times, and which "
            f"of them is that of {of} cannot be known; leave the others out"
        )
    common = set(names or []) & set(wanted)
    missing = [f for f in wanted if f not in common]
    if missing and (common or not (is_numbered(names) or is_numbered(wanted))):
        raise ValueError(
            f"{argument}: column {missing[0]!r} is absent ({len(missing)} in all); give the columns of {of} "
            "under the same names, or an array with all in the same order"
        )
    extra = [name for name in names or [] if name not in common]
    if extra and not missing:
        raise ValueError(
            f"{argument}: has {len(extra)} column(s) that {of} does not know, {extra[:8]}; leave them out "
            "(X[fit.feature_names])"
        )
    if n_features != len(wanted):
        raise ValueError(
            f"X: has {n_features} feature(s), the model was fitted to {len(wanted)} "
            f"({wanted[0]!r} … {wanted[-1]!r}); give the same columns"
        )
    if not (names and common):
        return list(range(n_features))
    place = {name: j for j, name in enumerate(names)}
    return [place[f] for f in wanted]


def is_numbered(names: list[str] | None) -> bool:
    """Whether a table has no names: none, or the numbers that are given in their place."""
    count = range(len(names or []))
    return names is None or names in ([f"x{j + 1}" for j in count], [str(j) for j in count])


def in_order(labels: VectorLike | pd.Categorical | pd.Index) -> tuple[np.ndarray, pd.Index]:
    """Number of each label among the different ones, -1 where it is missing; and those, sorted.

    Categories are sorted in their own order, text by the numbers within it ("site 2" before "site 10"), and
    what does not compare by type and then as text.

    Parameters
    ----------
    labels : Series, Categorical, Index or array_like
    """
    is_pandas = isinstance(labels, pd.Series | pd.Categorical | pd.Index)
    codes, distinct = pd.factorize(labels if is_pandas else pd.Series(np.asarray(labels).ravel()))
    levels = pd.Index(distinct)
    try:
        if not isinstance(levels, pd.CategoricalIndex) and any(isinstance(label, str) for label in levels):
            raise TypeError
        rank = np.asarray(levels.argsort())
    except TypeError:
        keys = [(type(label).__name__, _natural(str(label))) for label in levels]
        rank = np.asarray(sorted(range(len(keys)), key=keys.__getitem__), dtype=int)
    return np.append(np.argsort(rank), -1)[codes], levels[rank]


def _natural(text: str) -> tuple[list[float | str], str]:
    """What text is sorted by: what it holds between numbers and, as numbers, these."""
    return [float(p) if j % 2 else p for j, p in enumerate(re.split(r"(\d+(?:\.\d+)?)", text))], text


def row_names(data: object) -> list[str] | None:
    """Labels of the rows of a Series, a DataFrame or an AnnData as text; None of anything else."""
    labels = data.index if isinstance(data, pd.Series | pd.DataFrame) else getattr(data, "obs_names", None)
    return None if labels is None else [str(label) for label in labels]


def check_order(name: str, rows: list[str] | None, wanted: list[str] | None, of: str = "X") -> None:
    """Complain of an argument that has the rows of X in another order, or some others: rows go by position.

    Parameters
    ----------
    name : str
        What messages call it.
    rows, wanted : list of str or None
        Names of its rows and of X's. Where most are other ones than X's, or either are numbered from 0, names
        say nothing of which row is which.
    of : str
        What messages call X.

    Raises
    ------
    ValueError
        The same names in another order, or as many of which most are the same.
    """
    if not rows or not wanted or rows == wanted or len(rows) != len(wanted):
        return
    if sorted(rows) == sorted(wanted):
        raise ValueError(f"{name}: has the rows of {of} in another order; give {name}.loc[{of}.index]")
    numbered = list(map(str, range(len(rows))))
    known = set(wanted)
    others = [row for row in rows if row not in known]
    if numbered not in (rows, wanted) and len(others) < len(rows) / 2:  # each has lost rows by itself
        some = ", ".join(map(repr, others[:3])) + (", …" if len(others) > 3 else "")
        raise ValueError(
            f"{name}: {len(others)} of its {len(rows)} rows are not in {of} ({some}), and others are; give "
            f"those of {of} ({name}.loc[{of}.index]), or {name}.to_numpy() to go by position all the same"
        )


def check_scales(
    names: list[str],
    centres: tuple[np.ndarray, ...],
    scales: tuple[np.ndarray, ...],
    prefix: str = "X: column",
) -> None:
    """Complain of columns so large or so small that their mean or standard deviation cannot be computed."""
    sound = np.isfinite(centres).all(0) & np.isfinite(scales).all(0) & np.greater(scales, 0).all(0)
    if not sound.all():
        raise ValueError(
            f"{prefix} {names[int(sound.argmin())]!r} has values so large or so small that their standard "
            f"deviation cannot be computed ({int((~sound).sum())} such column(s)); give it in other units"
        )


def check_magnitude(names: list[str], x: np.ndarray, prefix: str = "X: column") -> None:
    """Complain of cells (..., column) in model units that are too large to compute with.

    Parameters
    ----------
    names : list of str
    x : ndarray (..., column)
    prefix : str
        How the message begins.
    """
    largest = np.abs(x).reshape(-1, len(names)).max(0, initial=0.0)
    if (largest > _LARGEST).any():
        j = int(largest.argmax())
        raise ValueError(
            f"{prefix} {names[j]!r} holds numbers up to {largest[j]:.3g}, and what is not standardised may "
            f"be {_LARGEST:g} at most; give it in other units"
        )


_ONE_ROW = 0.99  # of the variance of most columns: correlations are then one, and no start is found
_LARGEST_SD = 1e7  # of a column as it is: squares of its cells stay finite in single precision


def check_extremes(x: np.ndarray, names: list[str], rows: list[str] | None, standardise: bool) -> None:
    """Complain of a row that makes the variance of most columns, or of a column too large to leave as it is.

    Parameters
    ----------
    x : ndarray (row, feature)
        Measurements; NaN where missing.
    names : list of str
    rows : list of str or None
    standardise : bool
        Whether columns are z-scored.

    Raises
    ------
    ValueError
        Naming the row or the column.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        off = x - np.nanmedian(x, 0)
        off /= np.maximum(np.nanmax(np.abs(off), 0), np.finfo(float).tiny)
        squares = off**2
        share = np.nanmax(squares, 0) / np.nansum(squares, 0)
        sd = np.nanstd(x, 0)
    made = share >= _ONE_ROW
    at = np.where(np.isnan(squares), -1.0, squares).argmax(0)
    if made.sum() >= max(2, 0.5 * len(names)):
        row = np.bincount(at[made]).argmax()
        count = int((made & (at == row)).sum())
        if count >= max(2, 0.5 * len(names)):
            j = int((made & (at == row)).argmax())
            label = repr(rows[row]) if rows else str(row)
            raise ValueError(
                f"X: row {label} makes over {_ONE_ROW:.0%} of the variance of {count} of {len(names)} "
                f"columns (column {names[j]!r} has {x[row, j]:g} there); correct it, or drop the row"
            )
    if not standardise and sd.max() > _LARGEST_SD:
        j = int(sd.argmax())
        raise ValueError(
            f"X: column {names[j]!r} has a standard deviation of {sd[j]:.3g} and standardise=False, wanted "
            f"at most {_LARGEST_SD:g}; standardise, or give it in other units"
        )


def check_columns(x: np.ndarray, mask: np.ndarray, names: list[str], n_rows: int) -> None:
    """Complain of too few columns or rows, and of columns that say nothing of any factor."""
    if x.shape[1] < 2:
        raise ValueError(
            f"X: has {x.shape[1]} column(s); wanted at least 2 features to find a factor they share"
        )
    check_number(n_rows)
    useless = _useless(x, mask, names)
    if len(useless) > 1:
        raise ValueError(_all_in_one(useless))
    for name, why in useless.items():
        fix = "it says nothing of the factors, drop it" if "constant" in why else "drop it"
        raise ValueError(f"X: column {name!r} {why}; {fix}")
    check_rows(mask)


def check_usable(table: pd.DataFrame) -> None:
    """Complain at once of all columns that no fit can use, where there are several and one is no number.

    Parameters
    ----------
    table : DataFrame

    Raises
    ------
    TypeError
        Naming each and what is wrong with it.
    """
    numbers, text = sort_out(table)
    names = [str(column) for column in table.columns]
    if not text or len(set(names)) < len(names):
        return  # `check_columns` sees the rest, and which cells are masked
    strange, wrong = {name for name, _ in text}, {}
    fixes: dict[str, None] = {}  # in order
    for j, name in enumerate(names):
        if name in strange:
            holds, sort = strangers(table.iloc[:, j])
            wrong[name] = f"holds {holds}"
            fixes[_FIXES[sort].removesuffix(", or drop it")] = None
        else:
            x = numbers.iloc[:, [j]].to_numpy(dtype=float, na_value=np.nan)
            wrong |= _useless(x, ~np.isnan(x), [name])
    if len(wrong) > 1:
        raise TypeError(f"{_all_in_one(wrong)}, or what holds no numbers: {'; '.join(fixes)}")


def _useless(x: np.ndarray, mask: np.ndarray, names: list[str]) -> dict[str, str]:
    """What is wrong with the columns that have no observed value, or one only."""
    faults = {}
    least = np.where(mask, x, np.inf).min(0, initial=np.inf)
    most = np.where(mask, x, -np.inf).max(0, initial=-np.inf)
    for j in np.flatnonzero(least >= most):
        faults[names[j]] = "has no observed value" if least[j] > most[j] else f"is constant at {most[j]:g}"
    return faults


def _all_in_one(wrong: dict[str, str]) -> str:
    shown = "; ".join(f"{name!r} {why}" for name, why in list(wrong.items())[:12])
    more = f"; and {len(wrong) - 12} more" if len(wrong) > 12 else ""
    return f"X: {len(wrong)} columns cannot be used: {shown}{more}; drop them: {list(wrong)}"


def check_number(n_rows: int) -> None:
    """Complain of too few rows to learn from."""
    if n_rows < 10:
        raise ValueError(f"X: has {n_rows} row(s), wanted at least 10 to learn from")


def check_rows(mask: np.ndarray) -> None:
    """Complain of rows without an observed cell."""
    hollow = ~mask.any(1)
    if hollow.any():
        raise ValueError(
            f"X: row {int(hollow.argmax())} has no observed value ({int(hollow.sum())} such row(s)); drop it"
        )
