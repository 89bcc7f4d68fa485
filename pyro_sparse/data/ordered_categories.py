"""Ordered categories of pandas, such as never < sometimes < often, as the numbers of their levels.

Of new rows by the words of the table that was fitted, whatever their categories are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ..likelihoods.ordinal import level_numbers

__all__ = ["labels_of", "with_codes", "with_words", "words_of"]


def labels_of(model: object) -> Sequence[tuple[str, ...] | None]:
    """Words for the levels of each column of a model; empty where its likelihood has none, or it has none.

    Parameters
    ----------
    model : Module
    """
    labels: Sequence[tuple[str, ...] | None] = getattr(getattr(model, "likelihood", None), "labels", ())
    return labels


def words_of(kind: object) -> tuple[str, ...]:
    """Words of ordered categories, also of those that are numbers; empty of anything else.

    Parameters
    ----------
    kind : dtype
    """
    if not isinstance(kind, pd.CategoricalDtype) or not kind.ordered:
        return ()
    return tuple(_word(category) for category in kind.categories)


def with_codes(
    table: pd.DataFrame, names: Sequence[str], labels: Sequence[tuple[str, ...] | None]
) -> pd.DataFrame:
    """The table with numbers of levels (`level_numbers`) in the place of ordered categories.

    Parameters
    ----------
    table : DataFrame
    names : sequence of str
        Of the columns that `labels` are of.
    labels : sequence of (tuple of str or None)
        Words for the levels of each.

    Raises
    ------
    ValueError
        A cell holds none of the words.
    """
    of_name = {name: words for name, words in zip(names, labels, strict=True) if words}
    coded = {}
    for j, name in enumerate(map(str, table.columns)):
        words, cells = of_name.get(name), table.iloc[:, j].astype(object)
        if words is None:
            continue
        code = dict(zip(words, level_numbers(words), strict=True))
        levels = [np.nan if pd.isna(cell) else code.get(_word(cell)) for cell in cells]
        unknown = next((i for i, level in enumerate(levels) if level is None), None)
        if unknown is not None:
            raise ValueError(
                f"X: column {name!r} holds {cells.iloc[unknown]!r} (row {unknown}); its levels are "
                f"{', '.join(map(repr, words))}. Write one of these, or NaN."
            )
        coded[j] = np.array(levels, dtype=float)
    if not coded:
        return table
    table = table.copy(deep=False)
    for j, numbers in coded.items():
        table.isetitem(j, numbers)
    return table


def with_words(
    table: pd.DataFrame,
    like: pd.DataFrame,
    names: Sequence[str],
    labels: Sequence[tuple[str, ...] | None],
) -> pd.DataFrame:
    """The table with words in the place of numbers of levels, each the nearest, of the kind that `like` has.

    Parameters
    ----------
    table : DataFrame
        Of numbers.
    like : DataFrame
        The caller's, with the same columns: of ordered categories, of text or of numbers.
    names : sequence of str
    labels : sequence of (tuple of str or None)
        As for `with_codes`.
    """
    of_name = {name: words for name, words in zip(names, labels, strict=True) if words}
    table = table.copy(deep=False)
    for j, name in enumerate(map(str, table.columns)):
        words, given = of_name.get(name), like.iloc[:, j]
        if words is None:
            continue
        place = np.rint(table.iloc[:, j].to_numpy(dtype=float) - level_numbers(words)[0])
        codes = np.where(np.isnan(place), -1, place.clip(0, len(words) - 1)).astype(int)
        if pd.api.types.is_numeric_dtype(given.dtype):
            values = np.array([*map(_number, words), np.nan])[codes]
            table.isetitem(j, values)
            continue
        categories = list(words)
        if isinstance(given.dtype, pd.CategoricalDtype) and words_of(given.dtype) == words:
            categories = list(given.dtype.categories)
        table.isetitem(j, pd.Categorical.from_codes(codes, categories=categories, ordered=True))
    return table


def _word(value: object) -> str:
    """A level as text, the same for 1, 1.0, "1" and "1.0"."""
    number = _number(str(value))
    return str(int(number)) if number.is_integer() else str(value)


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return np.nan
