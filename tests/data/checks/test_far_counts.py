"""Rows of counts that were multiplied, or measured by another instrument, are named; others are not."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.data.checks._cells import cells_of
from pyro_sparse.data.checks.far_counts import _rows_apart, far_count_rows
from pyro_sparse.data.read import read_table
from pyro_sparse.likelihoods import get_likelihood

N, P = 300, 12
FAR = [10, 20, 30, 40, 50, 60]


def counts(seed, likelihood="poisson", of=lambda z: z):
    rng = np.random.default_rng(seed)
    w = np.zeros((P, 3))
    w[np.arange(P), np.arange(P) % 3] = rng.uniform(0.7, 1.2, P) * rng.choice([-1, 1], P)
    extra = rng.gamma(2.0, 0.5, (N, P)) if likelihood == "negative_binomial" else 1.0
    return rng.poisson(np.exp(1.8 + 0.6 * of(rng.normal(size=(N, 3))) @ w.T) * extra).astype(float)


def told(x, likelihood="poisson"):
    density = get_likelihood(likelihood)
    return far_count_rows(cells_of(read_table(x, {}, likelihood=density), density))


@pytest.mark.parametrize("times", ["one number", "one a column"])
@pytest.mark.parametrize("seed", range(1000, 1004))
def test_rows_on_another_scale_are_named(times, seed):
    x = counts(seed)
    assert told(x)[0] == []
    scale = 12.0 if times == "one number" else np.exp(np.resize([1.8, -1.8], P))
    x[FAR] = np.rint(x[FAR] * scale)
    (finding,), rows = told(x)
    assert set(rows) <= set(FAR) and len(rows) >= 4
    assert finding.kind == "rows" and "correct or drop" in finding.remedy


def test_multiplied_rows_are_told_by_all_checks_and_make_no_batch():
    x = counts(1000)
    x[FAR] *= 15
    findings = ps.check_table(pd.DataFrame(x), "poisson")
    (finding,) = [f for f in findings if f.kind == "rows"]
    assert finding.is_doubt and set(re.findall(r"'(\d+)'", finding.message)) == {str(i) for i in FAR}
    assert not [f for f in findings if f.kind == "groups"]


@pytest.mark.parametrize("likelihood", ["poisson", "negative_binomial"])
def test_ordinary_and_skewed_rows_are_no_other_instrument(likelihood):
    """Of forty tables one at most is told of."""
    shapes = [lambda z: z, lambda z: np.exp(0.7 * z) / 1.1]
    n_told = sum(
        bool(told(counts(seed, likelihood, of), likelihood)[0]) for seed in range(1000, 1020) for of in shapes
    )
    assert n_told <= 1


def test_rows_whose_exposures_or_batches_are_known_are_not_named():
    x, exposure, batch = counts(1000), np.ones(N), np.zeros(N)
    x[FAR], exposure[FAR], batch[FAR] = x[FAR] * 15, 15.0, 1.0
    assert any(finding.kind == "rows" for finding in ps.check_table(x, "poisson"))
    for known in ({"exposure": exposure}, {"groups": batch}):
        assert not any(finding.kind == "rows" for finding in ps.check_table(x, "poisson", **known))


def test_rows_apart_are_those_with_one_shift():
    rng = np.random.default_rng(1000)
    white = rng.normal(size=(N, P))
    start = (white**2).sum(1)
    assert len(_rows_apart(white, start)[0]) == 0
    white[FAR] += 3.0 * rng.choice([-1, 1], P)
    far, apart = _rows_apart(white, (white**2).sum(1))
    # the estimated direction is not quite theirs
    assert far.tolist() == FAR and 0.7 < apart / (3.0 * np.sqrt(P)) < 1.1
