"""Columns of another table are named where it was joined, and what has few combinations by nature is not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.data.checks.factors import doubted_by_columns
from pyro_sparse.findings.finding import Finding

# the search for clusters of rows is most of what a check of a table takes: a rough one will do
pytestmark = pytest.mark.usefixtures("hurried_module")

V = [f"v{j}" for j in range(5)]


def visits(seed, n_persons=30, n_visits=10, digits=6):
    """Four independent columns of persons, age in years and sex, and five columns that differ by row."""
    rng = np.random.default_rng(seed)
    person = pd.DataFrame(rng.normal(size=(n_persons, 4)), columns=list("abcd")).round(digits)
    person["age"] = np.rint(45 + 12 * rng.normal(size=n_persons))
    person["sex"] = (np.arange(n_persons) % 2).astype(float)
    x = person.iloc[rng.permutation(np.repeat(np.arange(n_persons), n_visits))].reset_index(drop=True)
    by_row = rng.normal(size=(len(x), 1)) + 0.7 * rng.normal(size=(len(x), 5))
    return x.join(pd.DataFrame(by_row, columns=V)), len(person.drop_duplicates())


def joined(x, likelihood="normal", **options):
    return [finding for finding in ps.check_table(x, likelihood, **options) if finding.kind == "joined"]


@pytest.mark.parametrize("digits", [6, 1])
@pytest.mark.parametrize(("n_persons", "n_visits"), [(30, 10), (60, 5), (100, 3)])
def test_columns_of_persons_are_named_with_the_number_of_persons(n_persons, n_visits, digits):
    x, n_different = visits(1000, n_persons, n_visits, digits)
    (finding,) = joined(x)
    assert finding.columns == (*"abcd", "age", "sex") and finding.size == n_different
    assert f"{n_different} different combinations in {len(x)} rows" in finding.message
    rng = np.random.default_rng(0)
    assert joined(x.apply(rng.permutation)) == []  # the same values, not together


def test_two_columns_are_enough_and_one_is_not():
    x, _ = visits(1001)
    assert joined(x[["a", "b", *V]])[0].columns == ("a", "b")
    assert joined(x[["a", *V]]) == []


def test_columns_with_missing_cells_and_as_they_were_before_covariates_were_taken_out():
    x, _ = visits(1002)
    holes = x.mask(np.random.default_rng(0).random(x.shape) < 0.1)
    assert joined(holes)[0].columns == (*"abcd", "age", "sex")
    x["day"] = np.random.default_rng(0).normal(size=len(x))
    assert joined(x, covariates=["day"])[0].columns == (*"abcd", "age", "sex")


def test_tables_of_persons_and_of_their_regions_are_one_block_and_unrelated_tables_are_two():
    x, _ = visits(1003)
    rng = np.random.default_rng(0)
    region = pd.DataFrame(rng.normal(size=(20, 3)), columns=list("pqr"))
    other = region.iloc[rng.integers(20, size=len(x))].reset_index(drop=True)
    assert {finding.columns for finding in joined(x.join(other))} == {(*"abcd", "age", "sex"), tuple("pqr")}
    same = region.iloc[x["a"].rank(method="dense").astype(int) % 20].reset_index(drop=True)
    assert {finding.columns for finding in joined(x.join(same))} == {(*"abcd", "age", "sex", *"pqr")}


@pytest.mark.parametrize("of", ["age groups", "saw-teeth", "circle", "levels", "counts", "zeros together"])
def test_few_combinations_by_nature_are_no_other_table(of):
    for seed in range(1000, 1005):
        rng = np.random.default_rng(seed)
        n = 600
        y = rng.normal(size=(n, 2)) @ rng.normal(size=(2, 6)) + 0.3 * rng.normal(size=(n, 6))
        if of == "age groups":
            age = rng.integers(18, 90, n)
            y[:, :4] = np.column_stack([age, age**2, age // 5, age > 65])
        elif of == "saw-teeth":
            hour = rng.integers(0, 24, n)
            y[:, :3] = np.column_stack([hour, hour % 12, hour // 2])
        elif of == "circle":
            day = rng.integers(0, 200, n) * np.pi / 100
            y[:, :2] = np.column_stack([np.sin(day), np.cos(day)])
        elif of == "levels":
            y = np.digitize(y / y.std(0), np.linspace(-1.8, 1.8, 10)) + 0.0
        elif of == "counts":
            y = rng.poisson(np.exp(1 + y / y.std(0))) + 0.0
        else:
            y[rng.random(n) < 0.6] = 0.0
        x = pd.DataFrame(y).add_prefix("x")
        assert joined(x, "poisson" if of == "counts" else "normal") == []


def test_many_columns_are_one_block():
    rng = np.random.default_rng(0)
    person = rng.normal(size=(1000, 100))[rng.integers(1000, size=4000)]
    x = pd.DataFrame(np.column_stack([person, rng.normal(size=(4000, 100)).round(1)])).add_prefix("x")
    (finding,) = joined(x)
    assert len(finding.columns) == 100


def test_edges_of_joined_columns_are_in_doubt_and_others_only_on_their_factors():
    note = Finding("joined", "repeat", source="data", columns=("a", "b"), size=30.0)
    effects = np.array([[0.9, 0.1], [0.9, 0.0], [0.1, 0.4], [0.0, 0.4]])
    (doubt,) = doubted_by_columns([note], effects, list("abcd"), ["factor 1", "factor 2"])
    assert doubt.is_doubt and doubt.factors == ("factor 1",) and "30 different" in doubt.message
    assert doubt.touches("a", "factor 2") and doubt.touches("c", "factor 1")
    assert not doubt.touches("c", "factor 2")


def test_a_fit_doubts_every_edge_of_the_columns_of_persons():
    x = visits(1000)[0].drop(columns="sex")
    model = ps.models.SparseDecoder(n_factors=3, decoder="linear")
    with pytest.warns(RuntimeWarning, match="X: columns 'a', 'b', 'c', 'd' and 'age' repeat together"):
        fit = ps.fit(model, x, seed=0, restarts=1, steps=20, progress=False)
    doubts = [finding for finding in fit.findings if finding.kind == "joined" and finding.is_doubt]
    assert len(doubts) == 1
    assert all(doubts[0].touches("a", factor) for factor in fit.factor_names)
