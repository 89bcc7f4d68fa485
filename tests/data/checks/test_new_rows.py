"""New rows in other units are told, rows of the same table and unusual ones are not."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.data.checks.new_rows import warn_of_other_units
from pyro_sparse.data.read import read_table
from pyro_sparse.likelihoods import Bernoulli, Normal, Poisson, StudentT

NAMES = list("abcdef")


def table(n=200, seed=0):
    rng = np.random.default_rng(seed)
    mixed = rng.standard_normal((n, 2)) @ rng.normal(size=(2, 6)) + 0.5 * rng.standard_normal((n, 6))
    return pd.DataFrame(7 + 3 * mixed, columns=NAMES)


def said_of(new, likelihood, of, **reading):
    fitted = read_table(of, {}, likelihood=likelihood, **reading)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_other_units(read_table(new, {}, likelihood=likelihood, like=fitted), likelihood)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("reading", [{}, {"standardise": False}])
def test_other_units_are_told_by_column(reading):
    x = table()
    for new in (x * 100, x + 200, x.mask(x > 8) * 100):
        (said,) = said_of(new, Normal(6), x, **reading)
        assert said.startswith("X: columns 'a', 'b', 'c', 'd', 'e' and 'f': new rows lie up to ")
    (said,) = said_of(x.assign(b=100 * x["b"])[:1], Normal(6), x, **reading)
    assert said.startswith("X: column 'b': new rows lie up to ") and "give them in those of the fit" in said
    far = np.abs((x * 100 - x.mean()) / x.std(ddof=0)).median().max()
    (said,) = said_of(x * 100, Normal(6), x, **reading)
    assert f"up to {far:.3g} standard deviations" in said
    (said,) = said_of((x - x.mean()) / 1000 + x.mean(), Normal(6), x, **reading)
    assert said.startswith("X: new rows differ by 0.001 of the standard deviations of the fit's")


def test_rows_of_the_same_kind_are_not_told():
    x = table()
    gone = x[:30].astype(float).mask(np.eye(30, 6) == 1)
    outlying = x.copy()
    outlying.iloc[::3] *= 50  # a third of the rows
    other = [table(20, seed) for seed in range(1, 30)]
    for new in (x, x[:1], gone, outlying, x[:19] * 0 + x.mean(), *other):
        assert not said_of(new, Normal(6), x)
    heavy = pd.DataFrame(np.random.default_rng(1).standard_t(2, (200, 6)), columns=NAMES)
    assert not said_of(heavy, StudentT(6), x[:0].reindex(range(200)).fillna(heavy))


@pytest.mark.parametrize("likelihood", [Poisson(), Bernoulli()])
def test_counts_and_answers_have_no_units(likelihood):
    rng = np.random.default_rng(0)
    rare = pd.DataFrame((rng.random((300, 6)) < 0.02).astype(float), columns=NAMES)
    rare.iloc[0] = 1.0
    assert not said_of(pd.DataFrame(np.ones((30, 6)), columns=NAMES), likelihood, rare)


def test_methods_that_take_new_rows_say_so():
    x = table()
    fit = ps.fit(ps.models.SparseDecoder(6, 2, decoder="linear"), x, restarts=1, steps=5, progress=False)
    for method in (fit.transform, fit.predict, fit.score, fit.impute):
        with pytest.warns(RuntimeWarning, match="X: columns 'a', .* as if they were in other units"):
            method(x * 100)
        method(x[:5])
