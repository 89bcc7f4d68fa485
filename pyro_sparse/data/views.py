"""Several tables over overlapping rows (views, assays, modalities) as one; columns say where they are from.

A row that a view has not seen is a row of missing cells there. Everything else (a likelihood for the columns
of each view, patterns of what is missing, covariates) is what any table has.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import scipy.sparse as sp

from .columns import as_frame
from .spelling import plain

if TYPE_CHECKING:
    from .._utils.types import TableLike

__all__ = ["SEPARATOR", "as_one_table", "join_views", "obs_of", "views_of"]

SEPARATOR = ":"  # between the name of a view and that of a feature
_OBS = "obs"  # of `DataFrame.attrs`


class _Obs:
    """Columns beside the features, which pandas hands on by reference: it copies and compares attributes."""

    def __init__(self, frame: pd.DataFrame):
        self.frame = frame

    def __deepcopy__(self, memo: object) -> _Obs:
        return self


def join_views(views: Mapping[str, TableLike]) -> pd.DataFrame:
    """One table of several, over all rows that any of them has.

    Parameters
    ----------
    views : mapping of str to array_like (row, feature), DataFrame or AnnData; or a MuData
        By name. Rows are matched by their names; tables without names have the same rows in the same order.

    Returns
    -------
    DataFrame (row, feature)
        Columns are called "view:feature"; cells of rows that a view does not have are missing. Give columns
        of a view their likelihood by ``{"view:*": "poisson"}``.

    Raises
    ------
    TypeError, ValueError
        No views, or something that is no table, or has no columns; names that are no text, or hold ":"; a row
        that is there twice; tables without names of rows beside others with them, or of other lengths.

    Examples
    --------
    >>> import pandas as pd
    >>> rna = pd.DataFrame({"g1": [1, 2], "g2": [3, 4]}, index=["a", "b"])
    >>> protein = pd.DataFrame({"p1": [5.0, 6.0]}, index=["b", "c"])
    >>> join_views({"rna": rna, "protein": protein})
       rna:g1  rna:g2  protein:p1
    a     1.0     3.0         NaN
    b     2.0     4.0         5.0
    c     NaN     NaN         6.0
    """
    tables: Mapping[str, Any] = getattr(views, "mod", views)
    if not isinstance(tables, Mapping) or not tables:
        raise TypeError(
            f"X: got {type(views).__name__}, wanted a mapping of names to tables, one for each view"
        )
    frames = {name: _frame(name, table) for name, table in tables.items()}
    named = {name: not _is_numbered(frame) for name, frame in frames.items()}
    if not any(named.values()):
        lengths = {name: len(frame) for name, frame in frames.items()}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{n} ({name})" for name, n in lengths.items())
            raise ValueError(
                f"X: views have {counts} rows, and no names by which they could be matched; give DataFrames "
                "whose index says which row is which"
            )
    elif not all(named.values()):
        without = next(name for name, has in named.items() if not has)
        raise ValueError(
            f"X: view {without!r} has no names of rows, and others have; give all of them an index that says "
            "which row is which"
        )
    for name, frame in frames.items():
        if frame.index.has_duplicates:
            again = frame.index[frame.index.duplicated()][0]
            raise ValueError(f"X: view {name!r} has the row {again!r} twice; give each row once")
    for (name, frame), (other, beside) in combinations(frames.items(), 2):
        _check_spelling(name, frame.index, other, beside.index)
    return pd.concat(list(frames.values()), axis=1, join="outer", sort=False)


def _check_spelling(name: str, rows: pd.Index, other: str, others: pd.Index) -> None:
    """Complain of rows that two views would share but for spaces, case or zeros before a number."""
    alone, beside = rows.difference(others, sort=False), others.difference(rows, sort=False)
    spelt = [{plain(row): row for row in unmatched} for unmatched in (alone, beside)]
    if any(len(names) < len(unmatched) for names, unmatched in zip(spelt, (alone, beside), strict=True)):
        return  # spelling tells rows of one view apart
    same = [row for row in spelt[0] if row in spelt[1]]
    if same:
        raise ValueError(
            f"X: {len(same)} rows of views {name!r} and {other!r} have names that are the same but for "
            f"spaces, case or zeros, such as {spelt[0][same[0]]!r} and {spelt[1][same[0]]!r}, and would "
            "not be matched; spell them alike, or, if they are different rows, give them other names"
        )


def as_one_table(data: TableLike) -> TableLike:
    """Views joined, with `obs` of a MuData beside them (`obs_of`); anything else as it is.

    Parameters
    ----------
    data : any
    """
    is_mudata = hasattr(data, "mod") and hasattr(data, "obs_names")
    is_mapping = isinstance(data, Mapping) and not hasattr(data, "shape")  # as some sparse matrices are
    if is_mudata or is_mapping:
        joined = join_views(cast("Mapping[str, TableLike]", data))
        if isinstance(obs := getattr(data, "obs", None), pd.DataFrame):
            joined.attrs[_OBS] = _Obs(obs)
        return joined
    return data


def obs_of(data: object) -> pd.DataFrame | None:
    """What stands beside the features of an AnnData, or of a MuData's joined views; None of anything else.

    Parameters
    ----------
    data : any
        After `as_one_table`. Rows of the answer are those of the MuData, in its order.
    """
    if isinstance(data, pd.DataFrame):
        beside = data.attrs.get(_OBS)
        return beside.frame if isinstance(beside, _Obs) else None
    obs = getattr(data, "obs", None)
    return obs if isinstance(obs, pd.DataFrame) else None


def views_of(feature_names: list[str]) -> dict[str, list[int]]:
    """Features of each view, by what stands before the first ":" of their names; "all" if some have none.

    Parameters
    ----------
    feature_names : list of str
    """
    views: dict[str, list[int]] = {}
    for j, name in enumerate(feature_names):
        view, separator, _ = name.partition(SEPARATOR)
        if not separator:
            return {"all": list(range(len(feature_names)))}
        views.setdefault(view, []).append(j)
    return views


def _frame(name: object, table: Any) -> pd.DataFrame:
    """A view with the names that its columns will have."""
    if not isinstance(name, str) or not name or SEPARATOR in name:
        raise ValueError(
            f"X: a view is called {name!r}, wanted a name without {SEPARATOR!r}, which stands between view "
            "and feature"
        )
    table = as_frame(table)
    if hasattr(table, "var_names") and hasattr(table, "to_df"):  # AnnData
        table = table.to_df()
    elif not isinstance(table, pd.DataFrame):
        cells = table.toarray() if sp.issparse(table) else np.asarray(table)
        if cells.ndim != 2:
            raise ValueError(f"X: view {name!r} has shape {cells.shape}, wanted a table (row, feature)")
        table = pd.DataFrame(cells, columns=[f"x{j + 1}" for j in range(cells.shape[1])])
    if not table.shape[1]:
        raise ValueError(f"X: view {name!r} has no columns; leave it out")
    table = table.copy(deep=False)
    table.columns = [f"{name}{SEPARATOR}{feature}" for feature in table.columns]
    return table


def _is_numbered(frame: pd.DataFrame) -> bool:
    """Whether rows have no names: an index that only counts."""
    return isinstance(frame.index, pd.RangeIndex) or bool(
        pd.api.types.is_integer_dtype(frame.index.dtype)
        and np.array_equal(frame.index, np.arange(len(frame)))
    )
