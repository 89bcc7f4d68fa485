"""Columns whose sign changes at a row are told, and none of rows that are ordinary, sorted or drift."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import pyro_sparse as ps
from pyro_sparse.data.checks.factors import doubted_by_columns
from pyro_sparse.data.checks.sign_changes import _correlations, _largest_sums
from pyro_sparse.findings.finding import Finding

# the search for clusters of rows is most of what a check of a table takes: a rough one will do
pytestmark = pytest.mark.usefixtures("hurried_module")

SEEDS = (1000, 1001)


def items(seed, n=400, p=12, k=3, rho=0.0):
    """Items of k factors, four each, loadings .7 to .9; rows correlated by rho with the row before."""
    rng = np.random.default_rng(seed)
    w = np.zeros((p, k))
    w[np.arange(p), np.arange(p) * k // p] = rng.uniform(0.7, 0.9, p) * rng.choice([-1, 1], p)
    z = rng.normal(size=(n, k))
    for i in range(1, n):
        z[i] = rho * z[i - 1] + np.sqrt(1 - rho**2) * z[i]
    return z @ w.T + np.sqrt(1 - (w**2).sum(1)) * rng.normal(size=(n, p))


def reversed_from(x, row, columns):
    x = x.copy()
    x[row:, columns] *= -1
    return x


def told(x, likelihood="normal", **options):
    frame = x if isinstance(x, pd.DataFrame) else pd.DataFrame(x).add_prefix("x")
    found = ps.check_table(frame, likelihood, **options)
    return [finding for finding in found if finding.kind == "signs"]


def row_of(finding):
    """The first row of the other sign, counted from 0."""
    return int(re.search(r"\((\d+) of \d+\)", finding.message)[1]) - 1


@pytest.mark.parametrize("likelihood", ["normal", "ordinal", "bernoulli"])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.75])
def test_a_column_whose_sign_changes_is_told_with_its_row(likelihood, share):
    for seed in SEEDS:
        x = reversed_from(items(seed, n=600), int(600 * share), [5])
        if likelihood == "ordinal":
            x = np.digitize(x, [-1.3, -0.5, 0.4, 1.2]) + 1.0
        if likelihood == "bernoulli":
            x = (x > 0).astype(float)
        (finding,) = told(x, likelihood)
        assert finding.columns == ("x5",)
        assert abs(row_of(finding) - 600 * share) < 40
        before, after = map(float, re.search(r"are (\S+) before it and (\S+) from", finding.message).groups())
        assert before * after < 0
        assert finding.size == pytest.approx(min(abs(before), abs(after)), abs=0.006)


def test_the_remedy_leaves_nothing_to_tell():
    for seed in SEEDS:
        x = reversed_from(items(seed), 150, [2])
        (finding,) = told(x)
        assert told(reversed_from(x, row_of(finding), [2])) == []


def test_correlations_are_those_with_the_factor_of_the_column():
    rng = np.random.default_rng(1000)
    z = rng.normal(size=(2000, 1))
    column = 0.6 * z[:, 0] + 0.8 * rng.normal(size=2000)
    column[700:] *= -1
    components = np.column_stack([rng.normal(size=2000), z, rng.normal(size=2000)])
    before, after = _correlations(column, np.ones(2000, bool), components, 700)
    by_numpy = [np.corrcoef(column[side], z[side, 0])[0, 1] for side in (slice(700), slice(700, None))]
    assert by_numpy[0] * by_numpy[1] < 0
    # the side of the combination is free
    assert np.array([before, after]) * np.sign(before * by_numpy[0]) == pytest.approx(by_numpy, abs=0.03)


def test_a_block_is_told_by_its_smaller_side():
    for seed in SEEDS:
        x = items(seed)
        (finding,) = told(reversed_from(x, 200, [0, 4, 8]))  # one of each factor
        assert finding.columns == ("x0", "x4", "x8")
        (finding,) = told(reversed_from(x, 200, [0, 1, 2]))  # three of the four of a factor
        assert finding.columns == ("x3",)


def test_two_rows_are_told_one_by_one():
    for seed in SEEDS:
        x = reversed_from(reversed_from(items(seed, n=600), 200, [1]), 400, [9])
        assert sorted(finding.columns for finding in told(x)) == [("x1",), ("x9",)]


@pytest.mark.usefixtures("patient")
def test_items_whose_scale_has_another_middle_are_told_beside_groups():
    for seed in SEEDS:
        answers = np.digitize(items(seed), [-2.0, -1.5, -0.8, 0.0]) + 1.0
        answers[250:, [0, 4, 8]] = 6 - answers[250:, [0, 4, 8]]
        findings = ps.check_table(pd.DataFrame(answers).add_prefix("x"), "ordinal")
        signs = [finding for finding in findings if finding.kind == "signs"]
        assert {"groups", "signs"} <= {finding.kind for finding in findings}
        assert [finding.columns for finding in signs] == [("x0", "x4", "x8")]


def test_missing_cells_and_covariates():
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        x = items(seed)
        c = rng.normal(size=len(x))
        effects = np.outer(c, rng.normal(size=12))
        changed = reversed_from(x, 150, [7])
        changed[rng.random(x.shape) < 0.1] = np.nan
        (finding,) = told(changed + effects, covariates=pd.DataFrame({"c": c}))
        assert finding.columns == ("x7",)
        assert told(x + effects, covariates=pd.DataFrame({"c": c})) == []


@pytest.mark.parametrize("role", ["groups", "covariates"])
def test_a_column_with_another_sign_in_a_group_is_told_with_the_group(role):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        x, site = items(seed), rng.choice(list("abc"), 400)
        given = {role: pd.DataFrame({"site": site})}
        moved = x + 0.5 * rng.normal(size=(3, 12))[np.searchsorted(list("abc"), site)]
        assert told(moved, **given) == []
        moved[site == "b", 6] *= -1
        (finding,) = told(moved, **given)
        assert finding.columns == ("x6",)
        assert "where 'site' is 'b'" in finding.message
        assert told(moved, **{role: pd.DataFrame({"site": rng.permutation(site)})}) == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda x, rng: x,
        lambda x, rng: x * np.exp(0.5 * rng.normal(size=(len(x), 1))),
        lambda x, rng: np.exp(x),
        lambda x, rng: x[np.argsort(x[:, 0])],
        lambda x, rng: x[np.argsort(x[:, :4].sum(1))],
        lambda x, rng: np.vstack([x[:200], 0.1 * x[200:]]),
        lambda x, rng: np.column_stack([np.where(np.arange(len(x)) < 200, x[:, 0], rng.normal(size=len(x))),
                                        x[:, 1:]]),
        lambda x, rng: x + np.repeat(rng.normal(size=(4, 12)), 100, 0),
    ],
    ids=["ordinary", "sizes", "skewed", "by a column", "by a factor", "units", "lost tie", "batches"],
)  # fmt: skip
def test_no_change_of_sign_is_seen_where_there_is_none(spoil):
    for seed in range(1000, 1004):
        assert told(spoil(items(seed), np.random.default_rng(seed))) == []


def test_rows_that_follow_one_another_are_no_change():
    assert [told(items(seed, rho=rho)) for seed in SEEDS for rho in (0.3, 0.9)] == [[]] * 4


def test_partial_sums_are_those_of_a_brownian_bridge():
    rng = np.random.default_rng(1000)
    n = 500
    heights = []
    for _ in range(400):
        z, scores = rng.normal(size=(n, 2)), rng.standard_t(5, size=(n, 1))
        height, row = _largest_sums(z, np.ones((n, 2), bool), scores, np.zeros((2, 1)))
        products = z[:, 1] * scores[:, 0]
        products -= products.mean()
        sums = np.abs(products.cumsum()[14 : n - 15]) / (products.std() * np.sqrt(n))  # of 15 rows or more
        assert height[1] == pytest.approx(sums.max())
        assert row[1] == 15 + sums.argmax()
        heights += height.tolist()
    # discrete sums are a little lower than the bridge
    share = np.mean(np.array(heights) > stats.kstwobign.isf(0.05))
    assert 0.02 < share < 0.06


def test_a_change_in_rows_at_random_and_few_rows_are_not_told():
    x = items(1000)
    at_random = x.copy()
    at_random[np.random.default_rng(0).random(len(x)) < 0.5, 0] *= -1
    assert told(at_random) == []  # as docs/limitations.md says
    assert told(reversed_from(x[:50], 25, [0])) == []


def test_all_edges_of_the_columns_are_doubted():
    note = Finding("signs", "column 'b' changes its sign", source="data", columns=("b",), size=0.5)
    (doubt,) = doubted_by_columns([note], [[0.5, 0.0], [0.0, 0.1], [0.0, 0.5]], list("abc"), ["f", "g"])
    assert doubt.is_doubt
    assert doubt.factors == ()
    assert set(doubt.edges) == {("b", "f"), ("b", "g")}
    assert "0.50" in doubt.message
