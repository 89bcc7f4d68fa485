"""Slips of a table that pass every check: each is said, and ordinary tables have none of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn import datasets as known

import pyro_sparse as ps
from pyro_sparse.data.checks._cells import cells_of
from pyro_sparse.data.checks.kinds import entry_mistakes, missing_codes
from pyro_sparse.data.checks.rows import outlying_cells
from pyro_sparse.data.read import as_table
from pyro_sparse.likelihoods import Normal, get_likelihood

N = 200


def notes(x, **options):
    likelihood = Normal()
    cells = cells_of(as_table(x, likelihood=likelihood, **options), likelihood)
    return [str(finding) for finding in [*entry_mistakes(cells), *missing_codes(cells)]]


def normal(seed=0, n=N):
    return pd.DataFrame(np.random.default_rng(seed).normal(50, 10, size=(n, 4)), columns=list("abcd"))


def with_code(code, cells=8):
    table = normal()
    table.loc[table.index[:cells], "b"] = code
    return table


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ((normal() > 50).astype(int), 'every column is 0 or 1: likelihood="bernoulli" is made for that'),
        (normal().assign(id=range(N)), "column 'id' numbers the rows: drop it"),
        (normal().assign(id=np.cumsum(np.arange(N) % 3 + 1)[::-1]), "column 'id' numbers the rows: drop it"),
        (normal().assign(id=range(N), no=range(5, N + 5)), "'id' numbers the rows (2 such columns): drop it"),
        (normal().assign(id=np.random.default_rng(0).permutation(N)), "'id' has each number once, as names"),
        (with_code(-999), "'b' is -999 in 8 cells, far from all others: if that stands for missing, X.repl"),
        (with_code(-99), "column 'b' is -99 in 8 cells"),
        (with_code(9999), "column 'b' is 9999 in 8 cells"),
        (normal() * 10 + 1e15, "columns 'a', 'b', 'c' and 'd' are so far from 0 that few digits are left"),
        (pd.DataFrame(np.random.default_rng(0).poisson(3, (N, 5))), "all cells are whole numbers from 0"),
        (pd.DataFrame(np.random.default_rng(0).negative_binomial(1, 0.05, (50, 5))), "all cells are whole"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("standardise", [True, False])
def test_each_slip_is_said(table, said, standardise):
    (found,) = notes(table, standardise=standardise)
    assert said in found


def test_missing_cells_are_none_of_it():
    table = with_code(-999)
    mask = pd.DataFrame(table != -999)
    assert notes(table, mask=mask) == notes(table.where(mask)) == []
    (found,) = notes(normal().assign(id=np.where(np.arange(N) == 7, np.nan, np.arange(N))))
    assert "numbers the rows" in found


@pytest.mark.parametrize("name", ["breast_cancer", "iris", "wine", "diabetes", "digits", "linnerud"])
def test_ordinary_tables_have_none(name):
    x = getattr(known, f"load_{name}")(as_frame=True).data
    assert notes(x.loc[:, x.nunique() > 1]) == []


def test_simulated_tables_have_none():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        assert notes(ps.datasets.sim1(300, seed=seed).x) == []
        assert notes(ps.datasets.anchored60(n=300, seed=seed).x) == []
        assert notes(normal(seed)) == []
        assert notes(rng.lognormal(0, 3, size=(300, 5))) == []
        assert notes(rng.standard_t(2, size=(300, 5))) == []
        assert notes(rng.integers(1, 7, size=(300, 5))) == notes(rng.integers(0, 5, size=(300, 5))) == []
        assert notes(np.column_stack([rng.normal(size=100), rng.normal(size=100) > 1.5])) == []
        ranks = np.stack([rng.permutation(100) for _ in range(4)], 1)
        assert notes(ranks) == []
        ages = rng.integers(0, 100, size=(500, 3))
        assert notes(np.column_stack([ages, rng.normal(size=500)])) == []


def test_other_likelihoods_say_themselves_what_they_want():
    counts = np.random.default_rng(0).poisson(3, (N, 5))
    likelihood = get_likelihood("poisson")
    assert entry_mistakes(cells_of(as_table(counts, likelihood=likelihood), likelihood)) == []


@pytest.mark.parametrize("value", [5e5, -1e7])
def test_a_cell_that_makes_its_column_is_named(value):
    likelihood = Normal()
    (found,), where = outlying_cells(
        cells_of(as_table(with_code(value, 1), likelihood=likelihood), likelihood)
    )
    assert f"column 'b' has a cell far from all others ({value:.6g}; row '0')" in str(found)
    assert found.columns == ("b",) and found.size > 0.99
    assert np.argwhere(where).tolist() == [[0, 1]]


def test_a_small_unit_makes_no_column_one_of_yes_and_no():
    assert notes(normal() * 1e-12) == notes(normal() * 1e12) == []


def test_fit_warns_before_it_begins_and_writes_it_down():
    model = ps.models.SparseDecoder(5, 2, hidden=4, encoder_hidden=4)
    with pytest.warns(RuntimeWarning, match="X: column 'id' numbers the rows: drop it") as seen:
        fit = ps.fit(model, normal().assign(id=range(N)), restarts=1, steps=5, progress=False)
    assert "column 'id' numbers the rows: drop it" in fit.warnings
    assert seen[0].filename == __file__
