"""What is wrong with a caller's tasks is said by name, with what was seen, what is wanted and the fix."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pyro_sparse.data.tasks import as_tasks

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(3, 4, 2)), RNG.normal(size=(3, 4))
ROWS, TARGETS, LABELS = X.reshape(-1, 2), Y.ravel(), np.repeat(["a", "b", "c"], 4)
TABLE = pd.DataFrame(ROWS, columns=["u", "v"]).assign(y=TARGETS, site=LABELS)
INPUTS = TABLE[["u", "v"]]


def changed(array, place, value):
    new = np.array(array, dtype=object if isinstance(value, str) or value is None else float)
    new[place] = value
    return new


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (([], []), ValueError, "X: got no task, want at least one"),
        ((X, Y[:2]), ValueError, r"X: got \(3, 4, 2\) with y \(2, 4\) and no task"),
        (
            (ROWS, TARGETS),
            ValueError,
            r"X: got \(12, 2\) with y \(12,\) and no task; .* or one row per sample",
        ),
        ((ROWS, TARGETS, LABELS[:5]), ValueError, r"task: got 5 labels for X \(12, 2\) and y \(12,\)"),
        ((ROWS, TARGETS[:5], LABELS), ValueError, r"task: got 12 labels for X \(12, 2\) and y \(5,\)"),
        ((ROWS[:, 0], TARGETS, LABELS), ValueError, r"task: got 12 labels for X \(12,\)"),
        ((ROWS, TARGETS, changed(LABELS, 3, None)), ValueError, "task: row 3 has no task; drop it"),
        (
            (ROWS, TARGETS, np.array([1, "1"] * (len(ROWS) // 2), dtype=object)),
            ValueError,
            "task: 1 and '1' read alike; give all labels one type",
        ),
        ((ROWS, TARGETS, [*LABELS[:5], np.nan, *LABELS[6:]]), ValueError, "task: row 5 has no task; drop it"),
        (
            (changed(X, (1, 0, 1), np.nan), Y),
            ValueError,
            "X: 'task 2' has NaN or infinite inputs in 'x2'; impute",
        ),
        ((changed(X, (2, 1, 0), np.inf), Y), ValueError, "X: 'task 3' has NaN or infinite inputs in 'x1'"),
        ((changed(X, (0, 0, 0), "red"), Y), TypeError, r"X: want numbers \(.*red"),
        ((X, changed(Y, (0, 0), "red")), TypeError, r"y: want numbers \(.*red"),
        ((X, changed(Y, (1, 2), np.inf)), ValueError, "y: task 2 has an infinite target; drop it"),
        (
            (X, changed(Y, (..., slice(1, 4)), np.nan)),
            ValueError,
            "y: every task has 1 target, and one has no standard deviation .* want at least 2 in some tasks",
        ),
        ((X, changed(Y, 1, np.nan)), ValueError, "y: 'task 2' has no target, want at least 1; drop"),
        ((list(X), [Y[0], Y[1, :0], Y[2]]), ValueError, r"y: task 2 has targets of shape \(0,\) for 4 rows"),
        (([X[0], X[1, :0], X[2]], [Y[0], Y[1, :0], Y[2]]), ValueError, "y: 'task 2' has no target"),
        ((X, changed(Y, 0, 0.1)), ValueError, "y: 'task 1' has a constant target, which says nothing; drop"),
        ((X, changed(Y, slice(0, 2), 3.0)), ValueError, r"y: 'task 1' \(and 1 more\) has a constant target"),
        (
            (changed(X, (..., 1), 2.5), Y),
            ValueError,
            r"X: feature 'x2' is constant; drop it, or ps.fit\(..., standardise=False\)",
        ),
        ((np.full((2, 4, 3, 5, 5), 7, np.uint8), Y[:2]), ValueError, "X: all inputs are constant"),
        ((list(X), list(Y[:2])), ValueError, "y: got 2 tasks, X is a list of 3 tasks; give one array"),
        ((list(X), None), ValueError, "y: got NoneType, X is a list of 3 tasks"),
        (
            ([X[0], X[1, :, :1]], list(Y[:2])),
            ValueError,
            r"X: task 2 has inputs of shape \(1,\), the first task",
        ),
        (
            (ROWS.tolist(), TARGETS.tolist()),
            ValueError,
            r"X: task 1 has shape \(2,\), want \(sample, ...\); if X",
        ),
        (([[[1, 2], [3]], X[0]], list(Y[:2])), TypeError, r"X\[0\]: want numbers"),
        ((X, "y"), TypeError, "y: 'y' would name a column, and X is not a DataFrame"),
        ((ROWS, TARGETS, "site"), TypeError, "task: 'site' would name a column, and X is not a DataFrame"),
        ((TABLE, "y"), ValueError, "task: a DataFrame has one row per sample; give the column"),
        ((INPUTS, np.zeros((3, 2))), ValueError, "y: got 3 rows, X has"),
        (
            (INPUTS, pd.DataFrame(np.zeros((len(TABLE), 2)), TABLE.index[::-1])),
            ValueError,
            "y: has the rows of X in",
        ),
        (
            (INPUTS, pd.DataFrame(np.zeros((len(TABLE), 2)), columns=["a", "a"])),
            ValueError,
            "y: column 'a' occurs 2",
        ),
        ((TABLE, "z", "site"), ValueError, r"y: X has no column 'z'; it has \['u', 'v', 'y', 'site'\]"),
        ((TABLE, "y", "place"), ValueError, "task: X has no column 'place'"),
        (
            (TABLE, TABLE["y"][::-1], "site"),
            ValueError,
            r"y: has the rows of X in another order; give y.loc\[X.index\]",
        ),
        ((TABLE, "y", TABLE["site"][::-1]), ValueError, "task: has the rows of X in another order; give"),
        (
            ([TABLE[["u", "v"]]], [TABLE["y"][::-1]]),
            ValueError,
            r"y\[0\]: has the rows of X\[0\] in another order; give y\[0\].loc\[X\[0\].index\]",
        ),
        ((TABLE, TARGETS, LABELS), TypeError, "X: column 'site' holds text .*, wanted numbers"),
        ((TABLE[["u", "y", "y", "site"]], "y", "site"), ValueError, "X: column 'y' occurs 2 times; rename"),
        ((TABLE[["u", "u", "y", "site"]], "y", "site"), ValueError, "X: column 'u' occurs 2 times; rename"),
        (([TABLE[["u", "u"]]], [TARGETS]), ValueError, "X: column 'u' occurs 2 times; rename"),
        ((TABLE, 7, "site"), ValueError, r"y: X has no column 7; it has \['u', 'v', 'y', 'site'\]"),
        ((TABLE.assign(y="n"), "y", "site"), TypeError, "y: column 'y' holds text .*, wanted numbers"),
        ((TABLE.assign(u=np.nan), "y", "site"), ValueError, "X: 'a' has NaN or infinite inputs in 'u'"),
    ],
)
def test_bad_tasks(arguments, kind, message):
    with pytest.raises(kind, match=message):
        as_tasks(*arguments)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((X[..., :1], Y), ValueError, r"X: one sample has shape \(1,\), those of the fit \(2,\)"),
        ((TABLE.drop(columns="u"), "y", "site"), ValueError, "X: it has no column 'u'; want the columns"),
        (([], []), ValueError, "X: got no task, want at least one"),
    ],
)
def test_new_tasks_that_do_not_suit_a_fit(arguments, kind, message):
    with pytest.raises(kind, match=message):
        as_tasks(*arguments, like=as_tasks(TABLE, "y", "site"))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (ROWS[:, :1], r"X: got \(12, 1\), want one row per sample and inputs of shape \(2,\)"),
        (ROWS[0], r"X: got \(2,\), want one row"),
        (X, r"X: got \(3, 4, 2\), want one row"),
        (changed(ROWS, (1, 1), np.nan), "X has NaN or infinite inputs in 'v'"),
        (TABLE[["u"]], "X: it has no column 'v'"),
    ],
)
def test_new_rows_that_do_not_suit_a_fit(x, message):
    with pytest.raises(ValueError, match=message):
        as_tasks(TABLE, "y", "site").inputs(x)


@pytest.mark.parametrize("factor", [1e200, 1e-200])
def test_targets_whose_spread_cannot_be_computed_are_not_called_missing_or_constant(factor):
    rng = np.random.default_rng(1000)
    x, y = rng.normal(size=(2, 8, 2)), rng.normal(size=(2, 8))
    y[1] *= factor
    with pytest.raises(ValueError, match=r"y: 'task 2' has targets so large or so small .* other units"):
        as_tasks(x, y)


@pytest.mark.parametrize("factor", [1e200, 1e-200])
def test_inputs_whose_spread_cannot_be_computed_are_named(factor):
    rng = np.random.default_rng(1000)
    x, y = rng.normal(size=(2, 8, 2)), rng.normal(size=(2, 8))
    x[..., 1] *= factor
    with pytest.raises(ValueError, match=r"X: feature 'x2' has inputs so large or so small .* other units"):
        as_tasks(x, y)


def test_tasks_without_a_feature_and_inputs_too_large_for_single_precision():
    rng = np.random.default_rng(1000)
    x, y = rng.normal(size=(2, 8, 2)), rng.normal(size=(2, 8))
    with pytest.raises(ValueError, match=r"X: one sample has shape \(0,\), no inputs"):
        as_tasks(x[..., :0], y)
    with pytest.raises(ValueError, match=r"X: feature 'x1' holds numbers up to .*e\+20, and what is not"):
        as_tasks(x * [1e20, 1], y, standardise=False)
    assert as_tasks(x * [1e20, 1], y).scale[0] > 1e19


DATES = pd.date_range("2020", periods=8)


@pytest.mark.parametrize(
    "y",
    [DATES, DATES.to_numpy(), pd.Series(DATES), list("12345678"), pd.Series(list("12345678")), [b"1"] * 8],
)
def test_dates_and_text_are_no_targets(y):
    x = np.random.default_rng(1000).normal(size=(8, 2))
    with pytest.raises(TypeError, match="^y: .*(text|datetime64|bytes)"):
        as_tasks(x, y, task=["a", "b"] * 4)


@pytest.mark.parametrize("by_name", [True, False])
def test_ordered_categories_are_no_targets_and_the_complaint_says_what_are(by_name):
    """It said likelihood="ordinal", which did not help."""
    y = pd.Categorical(["lo", "hi", "mid", None] * 2, ["lo", "mid", "hi", "never"], ordered=True)
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(8, 2)), columns=list("ab"))
    said = r"^y: holds ordered categories \('lo', 'mid', 'hi', …\), .* give .cat.codes with NaN for -1, and"
    with pytest.raises(TypeError, match=said):
        as_tasks(*((table.assign(y=y), "y") if by_name else (table, pd.Series(y))), task=["a", "b"] * 4)
