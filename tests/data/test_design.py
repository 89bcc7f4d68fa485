"""Covariates and groups as a design matrix: orthogonal, centred, and back to what was given."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pyro_sparse.data.columns import check_order
from pyro_sparse.data.design import Design, design_of, least_squares, names_of, rows_of, taken_out

N = 60
RNG = np.random.default_rng(0)
AGE, SITE = RNG.normal(50, 10, N), RNG.choice(list("abc"), N)
GIVEN = {"covariates": pd.DataFrame({"age": AGE}), "groups": pd.Series(SITE, name="site")}


def test_columns_are_orthogonal_centred_and_of_mean_square_one():
    design, d = design_of(GIVEN, N, None)
    assert d.shape == (N, 3) and design.n_effects == 3 and design.freedom == pytest.approx(1 - 3 / N)
    np.testing.assert_allclose(d.T @ d / N, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(d.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(rows_of(design, GIVEN, N, None), d)


def test_contrasts_are_a_regression_on_what_was_given():
    """Least squares by numpy on plain columns, with the categories' weighted mean at zero."""
    design, d = design_of(GIVEN, N, None)
    y = np.random.default_rng(1).normal(size=(N, 2)) + AGE[:, None] * [0.1, -0.2]
    names, rows = design.contrasts()
    assert names == ["age", "site = a", "site = b", "site = c"]
    ours = rows @ least_squares(y, d)
    dummies = pd.get_dummies(SITE).to_numpy(float)
    plain = np.linalg.lstsq(np.column_stack([AGE, dummies]), y, rcond=None)[0]
    levels = plain[1:] - dummies.mean(0) @ plain[1:]
    np.testing.assert_allclose(ours, np.vstack([plain[:1], levels]), rtol=1e-9)


def test_least_squares_leave_missing_cells_out():
    _, d = design_of(GIVEN, N, None)
    y = np.random.default_rng(2).normal(size=(N, 3))
    y[:10, 1] = np.nan
    whole = np.column_stack([np.ones(N), d])
    want = [np.linalg.lstsq(whole[~np.isnan(c)], c[~np.isnan(c)], rcond=None)[0][1:] for c in y.T]
    np.testing.assert_allclose(least_squares(y, d), np.transpose(want))


def test_units_of_a_covariate_do_not_matter():
    _, one = design_of({"covariates": AGE}, N, None)
    _, other = design_of({"covariates": 1e9 * AGE - 3}, N, None)
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_numbers_of_groups_are_categories_and_levels_keep_their_order():
    design, _ = design_of({"groups": np.repeat([10, 9, 2], 20)}, N, None)
    assert design.terms[0].levels == ("10", "2", "9") and design.terms[0].name == "group"
    size = pd.Categorical(np.repeat(["low", "high"], 30), ["low", "mid", "high"], ordered=True)
    design, _ = design_of({"covariates": {"size": size}}, N, None)
    assert design.terms[0].levels == ("low", "high")
    float_labels = rows_of(
        design_of({"groups": np.repeat([1, 2], 30)}, N, None)[0], {"groups": [1.0]}, 1, None
    )
    assert float_labels.shape == (1, 1)


def test_a_missing_value_of_new_rows_is_the_average():
    design, _ = design_of(GIVEN, N, None)
    new = rows_of(design, {"covariates": {"age": [np.nan]}, "groups": {"site": [None]}}, 1, None)
    np.testing.assert_array_equal(new, np.zeros((1, 3)))


def test_a_file_gives_it_back():
    design, d = design_of(GIVEN, N, None, taken=("site",))
    again = Design.of_dict(design.as_dict(), design.centre, design.basis)
    np.testing.assert_array_equal(rows_of(again, GIVEN, N, None), d)
    assert again.taken == ("site",) and again.freedom == design.freedom


def test_columns_of_the_table_are_taken_out_of_it():
    table = pd.DataFrame({"x": AGE, "age": AGE, "site": SITE})
    left, given, taken = taken_out(table, {"covariates": "age", "groups": ["site"]})
    assert list(left.columns) == ["x"] and taken == ("age", "site")
    assert list(given["groups"].columns) == ["site"]
    left, given, _ = taken_out(table, {}, taken)  # of new rows nothing is said
    assert list(left.columns) == ["x"] and set(given) == {"age", "site"}
    assert names_of("age") == ["age"] and names_of(SITE.tolist()) is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"groups": ["a"] * N}, r"groups: 'group' is 'a' in every row; leave it out"),
        ({"covariates": np.ones(N)}, r"covariates: 'covariate' is 1 in every row"),
        ({"covariates": np.column_stack([AGE, 2 * AGE + 1])}, r"'covariate 2' follows from 'covariate 1'"),
        ({"covariates": {"site": SITE}, "groups": {"again": SITE}}, r"'again' follows from 'site'"),
        ({"covariates": [np.nan, *AGE[1:]]}, r"'covariate' is missing in row 0; .* leave such rows out"),
        ({"covariates": [np.inf, *AGE[1:]]}, r"'covariate' is inf in row 0, wanted finite numbers"),
        ({"groups": ["z", *SITE[1:]]}, r"one row with the level 'z', row 0; .* join it with another level"),
        ({"groups": SITE[1:]}, r"groups: has 59 rows, and X has 60"),
        (
            {"groups": np.arange(N) // 2 % 26, "covariates": RNG.normal(size=(N, 30))},
            r"55 effects for 60 rows",
        ),
        ({"covariates": {"age": AGE}, "groups": {"age": SITE}}, r"'age' is there twice"),
        ({"covariates": np.zeros((N, 2, 2))}, r"shape \(60, 2, 2\), wanted one value for each row"),
        ({"covariates": pd.DataFrame(index=range(N))}, r"covariates: has no columns"),
    ],
)
def test_what_is_no_covariate_is_refused(given, says):
    with pytest.raises(ValueError, match=says):
        design_of(given, N, None)


def test_dates_are_refused():
    with pytest.raises(TypeError, match="datetime64.* wanted numbers or categories"):
        design_of({"covariates": {"day": pd.date_range("2020", periods=N)}}, N, None)


def test_rows_in_another_order_are_refused():
    series, samples = GIVEN["groups"], [str(i) for i in range(N)]
    with pytest.raises(ValueError, match=r"groups: has the rows of X in another order; give groups.loc"):
        design_of({"groups": series[::-1]}, N, samples)
    with pytest.raises(ValueError, match=r"groups\['site'\]: has the rows of X in another order"):
        design_of({"groups": {"site": series[::-1]}}, N, samples)  # a column of a mapping has its rows' names
    design, _ = design_of({"groups": {"site": series}}, N, samples)
    with pytest.raises(ValueError, match=r"groups\['site'\]: has the rows of X in another order"):
        rows_of(design, {"groups": {"site": series[::-1]}}, N, samples)


@pytest.mark.parametrize(
    ("rows", "wanted", "others"),
    [
        ("abcdef", "abcdeg", "1 of its 6 rows are not in X .'f'.,"),
        ("abcdef", "adefgh", "2 of its 6 rows are not in X .'b', 'c'.,"),  # each has lost rows by itself
        (range(1, 9), range(2, 10), "1 of its 8 rows are not in X .'1'.,"),
        ([0, *range(5, 13)], [*range(4, 13)], "1 of its 9 rows"),
        ([1, 2, 3, 4, *range(9, 22)], range(5, 22), "4 of its 17 rows are not in X .'1', '2', '3', ….,"),
        (pd.date_range("2020", periods=9), pd.date_range("2020-01-02", periods=9), "1 of its 9 rows"),
        ("abcdef", "uvwxyz", ""),  # other names: nothing is known of the order
        ("abcdef", "abcuvw", ""),
        (range(6), [0, 2, 3, 4, 5, 6], ""),  # numbered anew
        ([0, 2, 3, 4, 5, 6], range(6), ""),
        ("abcdef", "abcde", ""),  # which another message is about
        ("aabbcc", "aabbcc", ""),
    ],
)
def test_rows_of_which_some_are_others_are_refused(rows, wanted, others):
    """By name most rows are the same, so that by position they would not be."""
    rows, wanted = ([str(label) for label in labels] for labels in (rows, wanted))
    if not others:
        check_order("groups", rows, wanted)
        return
    with pytest.raises(ValueError, match=f"^groups: {others}.*and others are; give those of X .groups.loc"):
        check_order("groups", rows, wanted)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"covariates": {"age": [1.0]}}, ValueError, r"groups: 'site' is not there, and the fit was given"),
        (
            {**GIVEN, "groups": {"batch": SITE}},
            ValueError,
            r"'batch' is none of the fit's; it has 'age', 'site'",
        ),
        ({**GIVEN, "groups": ["d"] * N}, ValueError, r"'site' is 'd' in row 0, a level that"),
        (
            {"covariates": {"age": [1.0]}, "groups": {"site": ["d"]}},
            ValueError,
            r"'d' in row 0, a level that",
        ),
        ({"covariates": {"age": ["old"]}, "groups": {"site": ["a"]}}, TypeError, r"'age' was numbers"),
    ],
)
def test_new_rows_that_do_not_fit_are_refused(given, error, says):
    design, _ = design_of(GIVEN, N, None)
    n = len(next(iter(next(iter(given.values())).values()))) if isinstance(given["covariates"], dict) else N
    with pytest.raises(error, match=says):
        rows_of(design, given, n, None)


def test_names_that_no_column_has_are_refused():
    with pytest.raises(ValueError, match=r"groups: X has no column 'batch'; it has x"):
        taken_out(pd.DataFrame({"x": AGE}), {"groups": "batch"})
    with pytest.raises(TypeError, match=r"groups: got the name 'batch', and X has no names of columns"):
        taken_out(np.zeros((3, 2)), {"groups": "batch"})
    with pytest.raises(ValueError, match=r"columns of views are called by both names: 'rna:batch', or give"):
        taken_out({"rna": pd.DataFrame({"x": AGE, "batch": 1})}, {"groups": "batch"})


SCALES = {
    "next to constant": (1e12 + np.arange(20.0), "differs by 19 between rows, of numbers up to 1e\\+12"),
    "huge": (np.arange(20.0) * 1e200, "beyond what can be squared; give it in other units"),
    "tiny": (np.arange(20.0) * 1e-200, "beyond what can be squared; give it in other units"),
}


@pytest.mark.parametrize(("values", "says"), SCALES.values(), ids=SCALES)
def test_numbers_of_extreme_scale_are_refused_in_true_words(values, says):
    with pytest.raises(ValueError, match=f"covariates: 'd' .*{says}"):
        design_of({"covariates": {"d": values}}, 20, None)


def test_few_of_many_covariates_are_named():
    values = np.random.default_rng(0).normal(size=(40, 12))
    values[:, 11] = values[:, 0]
    with pytest.raises(ValueError, match="'covariate 12' follows from .*'covariate 6' and 5 more"):
        design_of({"covariates": values}, 40, None)
