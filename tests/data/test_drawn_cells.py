"""Numbers for missing cells: in the place, the words and the dtype of the column, and nothing else moves."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pyro_sparse.data.drawn_cells import with_cells

CELLS = np.array([[2.0], [1.0], [0.0]])
SEEN = np.array([[True], [False], [False]])


def one(column, cells=CELLS, labels=()):
    table = pd.DataFrame({"a": column}, index=["x", "y", "x"])  # names of rows may repeat
    return with_cells(table, cells, SEEN, ["a"], labels)["a"]


@pytest.mark.parametrize(
    ("column", "cells", "want"),
    [
        (np.array([2.0, np.nan, np.nan]), CELLS, [2.0, 1.0, 0.0]),
        (np.array([2.0, np.nan, np.nan], dtype="float32"), CELLS, [2.0, 1.0, 0.0]),
        (pd.array([2, None, None], dtype="Int64"), CELLS, [2, 1, 0]),
        (pd.array([1.5, None, None], dtype="Float64"), CELLS / 4, [1.5, 0.25, 0.0]),
        (pd.array([True, None, None], dtype="boolean"), CELLS, [True, True, False]),
        (np.array([True, None, None], dtype=object), CELLS, [True, True, False]),
        (np.array([2, None, None], dtype=object), CELLS, [2, 1, 0]),
    ],
)
def test_a_column_keeps_its_dtype(column, cells, want):
    filled = one(column, cells)
    assert filled.dtype == pd.Series(column).dtype and filled.tolist() == want
    assert [type(value) for value in filled] == [type(value) for value in pd.Series(want, dtype=filled.dtype)]
    assert filled.index.tolist() == ["x", "y", "x"]


@pytest.mark.parametrize("kind", ["Int64", "boolean", object])
def test_where_it_cannot_hold_the_numbers_it_becomes_floats(kind):
    filled = one(pd.array([1, None, None], dtype=kind), CELLS / 4)
    assert filled.dtype == float and filled.tolist() == [1.0, 0.25, 0.0]


def test_levels_are_words_of_the_kind_that_the_column_has():
    words = ("low", "middle", "high")
    kind = pd.CategoricalDtype(words, ordered=True)
    given = ["high", None, None]
    for column in (pd.Categorical(given, dtype=kind), np.array(given, dtype=object)):
        filled = one(column, labels=(words,))
        assert filled.tolist() == ["high", "middle", "low"] and filled.dtype == pd.Series(column).dtype
    other = one(pd.Categorical(given), labels=(words,))  # of other categories: the fit's
    assert other.dtype == kind and other.tolist() == ["high", "middle", "low"]
    numbers = one(np.array([3.0, np.nan, np.nan]), CELLS + 1, labels=(("1", "2", "3"),))
    assert numbers.dtype == float and numbers.tolist() == [3.0, 2.0, 1.0]


def test_columns_are_found_by_name_and_others_left_alone():
    names = ["a", "b"]
    table = pd.DataFrame({"b": [1, 2, 3], "a": [np.nan, 5.0, np.nan]})
    seen = np.array([[False, True], [True, True], [False, True]])
    filled = with_cells(table, np.arange(6.0).reshape(3, 2), seen, names)
    pd.testing.assert_frame_equal(filled, pd.DataFrame({"b": [1, 2, 3], "a": [0.0, 5.0, 4.0]}))
    assert table["a"].isna().sum() == 2  # the caller's own is not written to
    array = with_cells(table[names].to_numpy(), np.arange(6.0).reshape(3, 2), seen, names)
    np.testing.assert_array_equal(array, [[0, 1], [5, 2], [4, 3]])
    views = with_cells({"u": table}, np.arange(6.0).reshape(3, 2), seen, ["u:a", "u:b"])
    assert list(views.columns) == ["u:b", "u:a"] and views["u:a"].tolist() == [0.0, 5.0, 4.0]
