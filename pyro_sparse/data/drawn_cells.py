"""Numbers for the missing cells of a caller's table, written as the table holds them: words, counts, True."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from .columns import as_frame, match_features
from .design import features_of
from .ordered_categories import with_words
from .read import give_back, read_like
from .views import as_one_table

if TYPE_CHECKING:
    from .._utils.types import TableLike

__all__ = ["with_cells"]


def with_cells(
    data: TableLike,
    cells: np.ndarray,
    seen: np.ndarray,
    names: list[str],
    labels: Sequence[tuple[str, ...] | None] = (),
    taken: tuple[str, ...] = (),
) -> np.ndarray | pd.DataFrame:
    """The caller's table with numbers in its missing cells; seen cells, and other columns, as they are.

    Parameters
    ----------
    data : array_like (row, feature), DataFrame, scipy.sparse matrix, AnnData, Tensor or mapping of views
        One that `as_table` has read for these features.
    cells : ndarray (row, feature)
        In the caller's units, in the order of `names`; what stands at seen cells is not read.
    seen : ndarray of bool (row, feature)
    names : list of str
        The fit's features.
    labels : sequence of (tuple of str or None)
        Words for the levels of each, as a likelihood has them.
    taken : tuple of str
        `Table.taken` of the fit: columns that are no features.

    Returns
    -------
    DataFrame or ndarray (row, feature)
        A DataFrame where the table is one, or views. Its columns keep their dtype where that can hold the
        numbers: True and False, whole numbers, words of levels; else they become floats.
    """
    whole = as_frame(as_one_table(data))
    features = features_of(whole, taken)
    filled = np.where(seen, read_like(features, names, labels), cells)
    if not isinstance(whole, pd.DataFrame) or not isinstance(features, pd.DataFrame):
        return give_back(filled, features, names)
    order = match_features(len(names), [str(name) for name in features.columns], names)
    places = [whole.columns.get_loc(features.columns[j]) for j in order]
    table = whole.copy()
    for j, place in enumerate(places):
        if not seen[:, j].all():
            words = labels[j] if labels else None
            table.isetitem(place, _filled(whole.iloc[:, place], filled[:, j], ~seen[:, j], words).array)
    return table


def _filled(
    given: pd.Series, numbers: np.ndarray, hole: np.ndarray, words: tuple[str, ...] | None
) -> pd.Series:
    """A column with these numbers where it has a hole."""
    of, kind = pd.api.types, given.dtype
    is_text = of.is_object_dtype(kind) or of.is_string_dtype(kind)
    if words is not None:
        in_words = _in_words(given, numbers, words)
        if not is_text or of.infer_dtype(given[~hole], skipna=True) != "string":
            return in_words
        return _set(given, hole, in_words[hole].astype(object).to_numpy())
    drawn = numbers[hole]
    if isinstance(kind, pd.SparseDtype):
        return pd.Series(numbers, given.index)
    if of.is_float_dtype(kind):
        return _set(given, hole, drawn.astype(getattr(kind, "numpy_dtype", kind)))
    of_seen = of.infer_dtype(given[~hole], skipna=True) if is_text else str(kind)
    if ("bool" in of_seen) and np.isin(drawn, (0.0, 1.0)).all():
        return _set(given, hole, drawn.astype(bool))
    if "int" in of_seen.lower() and (drawn == np.rint(drawn)).all():
        return _set(given, hole, drawn.astype(np.int64))
    return pd.Series(numbers, given.index)


def _in_words(given: pd.Series, numbers: np.ndarray, words: tuple[str, ...]) -> pd.Series:
    """Levels by their words, of the kind that the column has."""
    like = given.to_frame("levels")
    return with_words(pd.DataFrame({"levels": numbers}, given.index), like, ["levels"], [words])["levels"]


def _set(given: pd.Series, hole: np.ndarray, values: np.ndarray) -> pd.Series:
    column = given.copy()
    column.iloc[np.flatnonzero(hole)] = values
    return column
