"""Each kind of table that misleads is told with the names of its columns or rows; its clean twin is not."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.mixture import GaussianMixture

import pyro_sparse as ps
from pyro_sparse.data.checks import groups
from pyro_sparse.data.checks._cells import cells_of
from pyro_sparse.data.checks.factors import doubted_by_columns
from pyro_sparse.data.checks.rows import outlying_cells
from pyro_sparse.data.read import read_table
from pyro_sparse.findings.finding import Finding
from pyro_sparse.likelihoods import Normal

pytestmark = pytest.mark.usefixtures("hurried_module")

MOST_CLUSTERS = groups._MOST_CLUSTERS


@pytest.fixture(autouse=True)
def all_clusters(monkeypatch):
    """The check itself is not hurried here."""
    monkeypatch.setattr(groups, "_MOST_CLUSTERS", MOST_CLUSTERS)


N = 300


def clean(seed=1000, n=N, noise=0.7):
    """Nine items of three factors."""
    rng = np.random.default_rng(seed)
    w = np.zeros((9, 3))
    w[np.arange(9), np.arange(9) % 3] = rng.uniform(0.7, 1.2, 9) * rng.choice([-1, 1], 9)
    x = rng.normal(size=(n, 3)) @ w.T + noise * rng.normal(size=(n, 9))
    return pd.DataFrame(x, columns=[f"x{j}" for j in range(9)])


def only(x, likelihood="normal", **options):
    (finding,) = ps.check_table(x, likelihood, **options)
    assert finding.source == "data"
    return finding


@pytest.mark.parametrize("seed", range(1000, 1004))
def test_ordinary_tables_are_told_nothing(seed):
    x = clean(seed)
    assert ps.check_table(x * 1e-12) == ps.check_table(1e6 * x + 1e7) == []
    holes = x.mask(np.random.default_rng(seed).random(x.shape) < 0.1)
    assert ps.check_table(holes) == []
    assert ps.check_table((x > 0).astype(float), "bernoulli") == []
    assert (
        ps.check_table(clean(seed, noise=0.15)) == []
    )  # items of one factor correlate by .98 and are no copies


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("r", [0.985, 0.999])
def test_nearly_equal_columns_are_named(r, sign):
    x = clean()
    noise = x.x0.std() * np.sqrt(1 / r**2 - 1) * np.random.default_rng(0).normal(size=N)
    found = only(x.assign(again=sign * (x.x0 + noise)))
    assert found.columns == ("x0", "again") and "'again' is nearly a copy of 'x0'" in found.message
    assert found.size == pytest.approx(r, abs=0.005)


def test_a_copy_in_other_units_repeats():
    x = clean()
    assert "'again' repeats 'x0' but for units" in only(x.assign(again=32 - 1.8 * x.x0)).message


@pytest.mark.parametrize("holes", [0.0, 0.05])
@pytest.mark.parametrize("members", [("x0", "x1"), ("x0", "x4", "x5"), ("x1", "x2", "x3", "x7")])
def test_a_total_and_its_items_are_named_with_the_rank(members, holes):
    x = clean()
    x["total"] = x[list(members)].sum(axis=1)
    x = x.mask(np.random.default_rng(0).random(x.shape) < holes)
    found = only(x)
    assert found.columns == (*members, "total") and "10 columns have rank 9" in found.message
    complete = x.dropna()
    assert np.linalg.matrix_rank(complete - complete.mean()) == 9


def test_two_sets_are_told_apart():
    x = clean()
    x = x.assign(d=x.x0 - x.x1, total=x.x2 + x.x3 + x.x4)
    findings = ps.check_table(x)
    assert {found.columns for found in findings} == {("x0", "x1", "d"), ("x2", "x3", "x4", "total")}
    assert any("11 columns have rank 9" in found.message for found in findings)


@pytest.mark.parametrize("likelihood", ["normal", "bernoulli"])
def test_a_one_hot_set_is_named(likelihood):
    x = clean()
    x = x if likelihood == "normal" else (x > 0).astype(float)
    dummies = pd.get_dummies(pd.Series(np.random.default_rng(0).choice(list("abcd"), N))).astype(float)
    findings = [found for found in ps.check_table(x.join(dummies), likelihood) if found.kind == "columns"]
    assert len(findings) == 1 and findings[0].columns == tuple("abcd")
    assert "exactly one of columns 'a', 'b', 'c' and 'd' is 1 in every row" in findings[0].message
    left = [found for found in ps.check_table(x.join(dummies.drop(columns="a")), likelihood)]
    assert not [found for found in left if found.kind == "columns"]


@pytest.mark.parametrize("digits", [1, 6])
def test_shares_are_named(digits):
    x = np.exp(0.5 * clean().to_numpy())
    shares = pd.DataFrame(100 * x / x.sum(1, keepdims=True)).add_prefix("p").round(digits)
    found = [one for one in ps.check_table(shares) if one.kind == "columns"]
    assert len(found) == 1 and "add to 100 in every row" in found[0].message
    assert found[0].columns == tuple(shares.columns)


def test_counts_of_one_total_are_no_fault_under_a_multinomial():
    rng = np.random.default_rng(0)
    shares = np.exp(0.5 * clean())
    x = np.stack([rng.multinomial(200, row / row.sum()) for row in shares.to_numpy()])
    assert ps.check_table(x, "multinomial") == []


def test_rows_that_repeat_are_counted():
    x = clean()
    found = only(pd.concat([x, x.iloc[[3, 5, 8]]], ignore_index=True))
    assert found.message.startswith("3 of 303 rows repeat another one") and "'300' = '3'" in found.message
    assert "300 of 600 rows" in only(pd.concat([x, x], ignore_index=True)).message
    yes = (clean(n=500).iloc[:, :3] > 0).astype(float)  # eight patterns repeat by necessity
    assert ps.check_table(yes, "bernoulli") == []


def test_rows_entered_twice_are_named_with_cells_changed_or_with_noise():
    x, rng = clean(), np.random.default_rng(0)
    changed = x.iloc[[4, 9]].copy()
    changed.iloc[0, [1, 3]] = 0.123, 0.456
    changed.iloc[1, 5] = np.nan
    found = only(pd.concat([x, changed], ignore_index=True))
    assert "2 pairs of rows have the same number in most cells" in found.message
    assert "'301' and '9'" in found.message and "'300' and '4'" in found.message
    noisy = x.iloc[[4, 9]] + 0.05 * rng.normal(size=(2, 9))
    found = only(pd.concat([x, noisy], ignore_index=True))
    assert "2 pairs of rows have nearly the same numbers" in found.message
    assert "'300' and '4'" in found.message and "'301' and '9'" in found.message
    assert ps.check_table(pd.concat([x, x.iloc[[4]] + rng.normal(size=(1, 9))], ignore_index=True)) == []


def test_rounded_rows_and_doubled_rows_are_no_near_repeats():
    x = clean(n=600)
    assert ps.check_table(x.round(1)) == [] == ps.check_table(x.round(2))
    (found,) = ps.check_table(pd.concat([x, x], ignore_index=True))
    assert "repeat another one in every cell" in found.message
    alike = pd.DataFrame({f"y{j}": (x.x0 > 0.3 * j - 1).astype(float) for j in range(4)})
    mixed = pd.concat([x.iloc[:, 3:], alike], axis=1)
    twice = pd.concat([mixed, mixed.iloc[[7]].assign(y0=1 - mixed.y0[7])], ignore_index=True)
    found = [f for f in ps.check_table(twice, {"y*": "bernoulli", "*": "normal"}) if f.kind == "rows"]
    assert len(found) == 1 and "'600' and '7'" in found[0].message


@pytest.mark.parametrize("times", [6, 12])
def test_rows_on_another_scale_are_named(times):
    x = clean()
    x.iloc[[10, 20, 30, 40]] *= times
    found = only(x)
    assert found.is_doubt and set(re.findall(r"'(\d+)'", found.message)) <= {"10", "20", "30", "40"}
    assert times == 6 or "4 of 300 rows" in found.message  # a small row times six is like others


@pytest.mark.parametrize("n", [60, 180])
def test_exponential_tails_have_no_far_cell(n):
    """Of 20 tables of 60 columns one at most has a gap that wide anywhere."""
    told = 0
    for seed in range(1000, 1020):
        x = np.random.default_rng(seed).laplace(size=(n, 60))
        told += bool(outlying_cells(cells_of(read_table(x, {}, likelihood=Normal()), Normal()))[0])
    assert told <= 1


def test_a_row_at_the_end_of_curves_is_on_no_other_scale():
    """It is far out in the columns that bend upwards and in no others; multiplied, it is so in all."""
    rng = np.random.default_rng(1000)
    z = rng.normal(size=(N, 1))
    z[7] = 4.5
    curves = np.concatenate([np.exp(z), np.exp(1.1 * z), np.exp(0.9 * z), np.tanh(z), np.sin(z)], 1)
    x = pd.DataFrame(curves / curves.std(0) + 0.1 * rng.normal(size=curves.shape))
    assert not [
        found
        for found in ps.check_table(x)
        if "on another scale" in found.message or "as far from the middle" in found.message
    ]
    ordinary = clean()
    ordinary.iloc[7] *= 15
    assert "as far from the middle" in only(ordinary).message


def test_two_indicators_with_little_noise_are_no_copies():
    """They correlate by .97; other columns have their factors, too, with more noise."""
    rng = np.random.default_rng(1000)
    x, z = clean(), rng.normal(size=(N, 2))
    for name, noise in (("p", 0.2), ("q", 0.2)):
        x[name] = z @ [1.1, 0.5] + noise * rng.normal(size=N)
    for name, loading in (("r", [1, 0]), ("s", [0, 1])):
        x[name] = z @ loading + 0.5 * rng.normal(size=N)
    assert x.p.corr(x.q) > 0.97 and ps.check_table(x) == []
    assert only(x.assign(q=x.p + 0.15 * rng.normal(size=N))).columns == ("p", "q")


def test_two_ends_of_a_curve_are_no_batches():
    """Where a sigmoid is flat rows lie close together; between the ends the other components vary more."""
    rng = np.random.default_rng(1000)
    end = np.repeat([-1.0, 1.0], 200)
    apart = np.stack([3 * end + rng.normal(size=400), rng.normal(size=400), rng.normal(size=400)], 1)
    mixture = GaussianMixture(2, covariance_type="tied", random_state=0).fit(apart)
    assert groups._chance_of_batches(apart, mixture) > 0.05
    bent = apart.copy()
    bent[:, 1] /= 0.2 + (apart[:, 0] / 3) ** 2
    assert groups._chance_of_batches(bent, mixture) < groups._CHANCE
    curved = apart + np.stack([0 * end, 0.3 * (apart[:, 0] ** 2 - 10), 0 * end], 1)
    assert groups._chance_of_batches(curved, mixture) < groups._CHANCE
    tailed = apart.copy()
    tailed[:, 2] = rng.standard_t(3, size=400)
    assert groups._chance_of_batches(tailed, mixture) < groups._CHANCE


@pytest.mark.parametrize("size", [2, 3, 5])
def test_with_groups_a_far_cell_names_its_own_row_and_no_neighbour(size):
    """What a mean of the group leaves of the others in it is far out, too."""
    x, group = clean(), np.random.default_rng(size).permutation(N) % (N // size)
    x.loc[7, "x3"] = 90.0
    found = only(x, groups=group.astype(str))
    assert "has a cell far from all others (90; row '7')" in found.message and found.columns == ("x3",)
    apart = clean() + 40.0 * (group == 3)[:, None]  # a group of its own level is what groups= is for
    assert ps.check_table(apart, groups=group.astype(str)) == []


def test_a_cell_that_makes_its_column_is_named():
    x = clean()
    x.loc[7, "x3"] = 90.0
    found = only(x)
    assert found.columns == ("x3",) and "row '7'" in found.message and "(90;" in found.message
    assert found.size == pytest.approx(90**2 / ((x.x3 - x.x3.median()) ** 2).sum(), rel=0.05)


@pytest.mark.parametrize("n_groups", [2, 4])
def test_groups_of_columns_never_seen_together_are_named(n_groups):
    x = clean()
    block = np.arange(N) % n_groups
    x = x.mask(block[:, None] != np.arange(9) % n_groups)
    found = only(x)
    assert found.kind == "missing" and "never seen in the same row" in found.message
    together = x.notna().astype(int)
    assert found.size == (np.triu(together.T @ together == 0, 1)).sum()


@pytest.mark.parametrize("n_levels", [5, 7])
def test_skewed_levels_are_ordinal(n_levels):
    rng = np.random.default_rng(0)
    y = 0.75 * rng.normal(size=(N, 1)) + 0.66 * rng.normal(size=(N, 8))
    cuts = np.linspace(-1.2, 1.2, n_levels - 1)
    skewed = np.stack([np.digitize(y[:, j], cuts + (1.4 if j % 2 else -1.4)) for j in range(8)], 1)
    found = only(skewed)
    assert found.is_doubt and "ordinal" in found.message and f"{n_levels} levels" in found.message
    assert not ps.check_table(np.digitize(y, cuts))


def test_columns_of_several_kinds_are_named():
    rng = np.random.default_rng(0)
    x = clean()
    x = x.assign(yes=(x.x0 > 0).astype(float), count=rng.poisson(np.exp(1 + 0.4 * x.x1)).astype(float))
    (found,) = [one for one in ps.check_table(x) if one.kind == "kinds"]
    assert found.columns == ("yes", "count") and "yes or no in 'yes'; counts in 'count'" in found.message


@pytest.mark.parametrize("order", ["in turn", "one after the other", "by name", "mixed"])
def test_batches_are_seen(order):
    x, batch = clean(n=450), np.arange(450) % 3
    if order == "one after the other":
        batch = np.sort(batch)
    elif order != "in turn":
        batch = np.random.default_rng(3).permutation(batch)
    if order == "by name":
        x.index = pd.Index([f"{'abc'[b]}_{i}" for i, b in enumerate(batch)])
    assert ps.check_table(x) == []
    shifted = x + np.random.default_rng(4).normal(size=(3, 9))[batch]
    found = only(shifted)
    assert found.is_doubt and found.kind == "groups" and "groups=" in found.remedy
    assert ps.check_table(shifted, groups=batch) == []


@pytest.mark.parametrize("kind", ["numbers", "answers"])
def test_batches_of_one_view_are_seen_where_rows_miss_others(kind):
    """A third of the rows each view has not seen; beside it numbers, or yes/no answers."""
    rng, batch = np.random.default_rng(5), np.random.default_rng(6).integers(3, size=360)
    other = clean(n=360).set_axis([f"y{j}" for j in range(9)], axis=1).sample(frac=1, random_state=0)
    other.index = range(360)
    other = (other > other.median()).astype(float) if kind == "answers" else other
    shifted = clean(n=360) + rng.normal(size=(3, 9))[batch]
    likelihood = {"one:*": "normal", "other:*": "bernoulli" if kind == "answers" else "normal"}
    apart = {"one": slice(0, 240), "other": slice(120, 360)}
    for view, wanted in ((shifted, True), (clean(n=360), False)):
        views = {"one": view.iloc[apart["one"]], "other": other.iloc[apart["other"]]}
        messages = [f.message for f in ps.check_table(ps.join_views(views), likelihood)]
        assert any("fall into 3 clusters" in message for message in messages) is wanted


@pytest.mark.parametrize("likelihood", ["poisson", "multinomial"])
def test_overdispersed_counts_are_told_of_the_negative_binomial(likelihood):
    rng = np.random.default_rng(0)
    mean = rng.gamma(0.7, 8 / 0.7, size=(N, 9)) * rng.lognormal(0, 0.4, size=(N, 1))
    found = only(rng.poisson(mean).astype(float), likelihood)
    assert found.is_doubt and 'likelihood="negative_binomial"' in found.remedy
    assert found.size == pytest.approx(1 + 8 / 0.7, rel=0.4)  # variance over mean of the gamma-Poisson
    rate = np.exp(1.5 + 0.5 * clean(noise=0.0).to_numpy())  # as much variance, and shared
    assert ps.check_table(rng.poisson(rate).astype(float), likelihood) == []
    assert ps.check_table(rng.poisson(mean).astype(float), "negative_binomial") == []


def test_heavy_tails_are_said():
    x, rng = clean(noise=0.0), np.random.default_rng(0)
    findings = ps.check_table(x + 0.7 * rng.standard_t(2.5, size=x.shape))
    assert "heavier tails than normal noise" in str([one for one in findings if one.kind == "tails"][0])


def test_tables_read_by_rows_are_looked_at_by_some_rows():
    x = clean()
    x["total"] = x.x0 + x.x1
    assert only(ps.open_rows(x.to_numpy())).columns == ("x1", "x2", "x10")


def test_checks_leave_random_numbers_and_the_table_alone():
    x = clean()
    before, state = x.copy(), np.random.get_state()[1].copy()  # noqa: NPY002
    ps.check_table(x)
    pd.testing.assert_frame_equal(x, before)
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002


def test_a_factor_of_copies_is_in_doubt_and_one_with_other_items_is_not():
    note = Finding("columns", "copies", source="data", columns=("a", "b"))
    effects = np.array([[0.9, 0.5], [0.9, 0.0], [0.0, 0.4], [0.1, 0.4]])
    (doubt,) = doubted_by_columns([note], effects, list("abcd"), ["factor 1", "factor 2"])
    assert doubt.is_doubt and doubt.factors == ("factor 1",) and doubt.size == pytest.approx(1.8 / 1.9)
    assert doubted_by_columns([], effects, list("abcd"), ["factor 1", "factor 2"]) == []


def test_a_row_that_makes_all_columns_is_refused_by_name():
    x = clean()
    x.index = pd.Index([f"r{i}" for i in range(N)])
    x.iloc[5] = 1e6
    with pytest.raises(ValueError, match="X: row 'r5' makes over 99% of the variance of 9 of 9 columns"):
        ps.check_table(x)


def test_a_column_too_large_to_leave_as_it_is_is_refused_by_name():
    x = clean()
    x["x4"] *= 1e18
    model = ps.models.SparseDecoder(9, 2, decoder="linear")
    with pytest.raises(ValueError, match="X: column 'x4' has a standard deviation of .*e[+]18"):
        ps.fit(model, x, standardise=False, restarts=1, steps=5, progress=False)


def test_fit_warns_before_it_begins_and_writes_it_down():
    x = clean()
    model = ps.models.SparseDecoder(10, 2, decoder="linear")
    with pytest.warns(RuntimeWarning, match="X: columns 'x0', 'x1' and 'd' are linearly dependent"):
        fit = ps.fit(model, x.assign(d=x.x0 - x.x1), restarts=1, steps=5, progress=False)
    assert any("'x0', 'x1' and 'd' are linearly dependent" in text for text in fit.warnings)


@pytest.mark.parametrize("likelihood", ["normal", "ordinal", {"*": "ordinal", "e": "normal"}])
@pytest.mark.parametrize(
    ("code", "named"), [(9, True), (-1, True), (8, True), (5, False), (0, False), (6, False)]
)
def test_a_code_beside_four_levels_is_named(likelihood, code, named):
    """1 to 4, and 9 for no answer: ordinal levels took it for a ninth level."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(150, 1)) + rng.normal(size=(150, 5))
    table = pd.DataFrame(np.digitize(z, [-1, 0, 1]) + 1.0, columns=list("abcde"))
    table["e"] = z[:, 4]
    if likelihood == "ordinal":
        table = table.drop(columns="e")
    table.loc[rng.choice(150, 9, replace=False), "b"] = code
    found = [finding for finding in ps.check_table(table, likelihood) if "replace" in finding.remedy]
    assert bool(found) == named
    if named:
        assert found[0].columns == ("b",) and f"X.replace({code}, float('nan'))" in found[0].remedy
        assert found[0].message.endswith(f"'b' is {code} in 9 cells, far from all others")


@pytest.mark.parametrize("far", [1e12, 1e18])
def test_a_cell_that_leaves_others_no_digits_is_named_and_its_column_is_no_count(far):
    x = clean()
    x.loc[0, "x3"] = far
    finding = only(x)
    assert finding.kind == "cells" and finding.columns == ("x3",)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_measurements_far_from_zero_are_no_levels(dtype):
    assert ps.check_table((clean() + 1e5).astype(dtype)) == []


@pytest.mark.parametrize(
    ("of", "number"),
    [
        (lambda x: 25 * (x - 1), False),
        (lambda x: x / 5, True),
        (lambda x: (x - x.mean()) / x.std(), True),
        (lambda x: x.astype("Int64"), False),
    ],
)
def test_levels_are_levels_however_they_are_coded(of, number):
    rng = np.random.default_rng(3)
    y = 0.75 * rng.normal(size=(N, 1)) + 0.66 * rng.normal(size=(N, 8))
    shift = np.where(np.arange(8) % 2, 1.4, -1.4)
    x = np.stack([np.digitize(y[:, j], np.linspace(-1.2, 1.2, 4) + shift[j]) + 1 for j in range(8)], 1)
    finding = only(of(pd.DataFrame(x).add_prefix("q")))
    assert finding.kind == "levels" and finding.is_doubt and len(finding.columns) == 8
    assert ("number the levels" in finding.remedy) == number


def test_answers_in_another_code_beside_measurements_are_a_kind_of_their_own():
    x = clean()
    x["sex"] = np.where(np.random.default_rng(0).random(N) < 0.5, 1.3, -0.8)
    finding = only(x)
    assert finding.kind == "kinds" and finding.columns == ("sex",)


@pytest.mark.parametrize("likelihood", ["normal", "ordinal"])
@pytest.mark.parametrize("code", [9, -1])
def test_a_code_beside_levels_is_named(likelihood, code):
    rng = np.random.default_rng(4)
    x = pd.DataFrame(np.digitize(clean(), [-1, -0.3, 0.3, 1]) + 1.0).add_prefix("q")
    assert not any(finding.kind == "kinds" for finding in ps.check_table(x, likelihood))
    x = x.mask(rng.random(x.shape) < 0.04, float(code))
    (finding,) = ps.check_table(x, likelihood)
    assert finding.kind == "kinds" and f"is {code} in" in finding.message and len(finding.columns) == 9
    assert f"X.replace({code}," in finding.remedy


@pytest.mark.parametrize("likelihood", ["poisson", "negative_binomial"])
def test_a_code_among_counts_is_no_overdispersion(likelihood):
    rng = np.random.default_rng(5)
    x = pd.DataFrame(rng.poisson(np.exp(1 + 0.3 * clean()))).mask(rng.random((N, 9)) < 0.03, 999)
    finding = only(x, likelihood)
    assert finding.kind == "kinds" and "999" in finding.message


@pytest.mark.parametrize(("value", "is_limit"), [("mean", False), (0.0, True)])
def test_cells_that_were_filled_in_are_seen(value, is_limit):
    x = clean() + 10
    x = x.mask(np.random.default_rng(6).random(x.shape) < 0.1)
    finding = only(x.fillna(x.mean() if value == "mean" else value))
    assert finding.kind == "cells" and len(finding.columns) == 9 and "NaN" in finding.remedy
    assert ("CensoredNormal" in finding.remedy) == is_limit


def test_a_ceiling_is_seen():
    finding = only(clean().clip(upper=0.7))
    assert finding.kind == "cells" and "a limit" in finding.message and "CensoredNormal" in finding.remedy
    assert ps.check_table(clean().round(1)) == []


@pytest.mark.parametrize("likelihood", ["poisson", "negative_binomial"])
def test_what_varies_less_than_counts_is_none(likelihood):
    yes = only((clean() > 0).astype(float), likelihood)
    assert yes.kind == "counts" and yes.is_doubt and "bernoulli" in yes.remedy
    levels = only(pd.DataFrame(np.digitize(clean(), [-1, 0, 1]) + 1.0), likelihood)
    assert levels.is_doubt and "ordinal" in levels.remedy


@pytest.mark.parametrize("n_common", [1, 3, 8])
def test_groups_of_columns_that_a_few_rows_link_are_named(n_common):
    x = clean()
    hidden = (np.arange(N) % 2)[:, None] == (np.arange(9) >= 5)[None]
    hidden[:n_common] = False
    finding = only(x.mask(hidden))
    assert finding.kind == "missing" and f"in {n_common} row(s) at most" in finding.message


@pytest.mark.parametrize("of", [lambda x: np.exp(1.2 * x), lambda x: -np.exp(-1.2 * x)])
def test_a_curve_of_a_column_is_named_with_it(of):
    x = clean()
    finding = only(x.assign(curve=of(x.x4)))
    assert finding.columns == ("x4", "curve") and "one order" in finding.message
    assert "mean" not in finding.remedy


def test_a_column_that_was_partly_copied_is_named():
    x = clean()
    part = x.x4.where(np.random.default_rng(0).random(N) < 0.5, clean(7).x0)
    finding = only(x.assign(part=part))
    assert finding.columns == ("x4", "part") and "the same number as 'x4' in" in finding.message


def test_the_mean_of_a_column_and_its_opposite_is_no_advice():
    x = clean()
    assert "mean" in only(x.assign(copy=x.x4 * 2)).remedy
    assert "mean" not in only(x.assign(copy=-x.x4)).remedy


def test_few_rows_show_what_is_exact():
    x = clean(n=14)
    assert only(x.assign(copy=x.x4)).columns == ("x4", "copy")
    assert only(x.assign(total=x.x4 + x.x5)).columns == ("x4", "x5", "total")
    yes = (x > 0).astype(float)
    assert ps.check_table(yes.assign(same=yes.x4), "bernoulli") == []  # of 14 answers that may be chance
    assert ps.check_table(x) == []


@pytest.mark.parametrize("digits", [1, 2])
def test_a_rounded_total_follows_from_its_items(digits):
    x = clean()
    assert only(x.assign(score=x.mean(axis=1).round(digits + 1))).columns == (*x.columns, "score")
    assert ps.check_table(x.round(digits)) == []


@pytest.mark.parametrize("likelihood", ["normal", "poisson"])
def test_shares_in_whole_per_cent_are_named(likelihood):
    x = np.exp(clean())
    finding = only((100 * x.div(x.sum(axis=1), axis=0)).round(), likelihood)
    assert "add to 100 in every row" in finding.message and len(finding.columns) == 9


def test_differences_from_row_means_and_one_hot_sets_in_other_codes_are_named_as_such():
    x = clean()
    centred = only(x.sub(x.mean(axis=1), axis=0))
    assert "add to 0 in every row" in centred.message and "mean of each row" in centred.remedy
    category = pd.get_dummies(np.random.default_rng(0).choice(list("abc"), N)).astype(float)
    found = [f for f in ps.check_table(x.join(category + 1)) if f.kind == "columns"]
    assert "one-hot set" in found[0].message


@pytest.mark.parametrize(
    ("named", "where"),
    [
        (lambda g, i: f"{'ABC'[g % 3]}{i:03d}", "begin"),
        (lambda g, i: f"TCGA-{g}-{i}", "are in part"),
        (lambda g, i: f"{i}_{g}", "are in part"),
        (lambda g, i: f"p{g}", "are in part"),
    ],
)
@pytest.mark.parametrize("n_groups", [3, 60])
def test_rows_that_are_alike_where_a_part_of_their_names_is(named, where, n_groups):
    rng = np.random.default_rng(8)
    group = rng.permutation(np.arange(N) % n_groups)
    effects = rng.normal(size=(n_groups, 9))
    x = clean()
    x.index = [named(g, i) for i, g in enumerate(group)]
    assert not [finding for finding in ps.check_table(x) if finding.kind == "groups"]
    if where == "begin":
        group = group % 3
    (finding,) = [f for f in ps.check_table(x + 0.8 * effects[group]) if f.kind == "groups"]
    assert f"names {where} alike" in finding.message and "groups=" in finding.remedy
