"""Tables of a copula have the margins and the correlations of the table they stand beside."""

from __future__ import annotations

import numpy as np
from scipy import stats

from pyro_sparse.data.checks._cells import correlation
from pyro_sparse.data.checks.copula import column_scores, copula_tables


def likert(seed, n=2000, p=16):
    rng = np.random.default_rng(seed)
    w = np.zeros((p, 2))
    w[np.arange(p), np.arange(p) % 2] = rng.uniform(0.7, 1.2, p) * rng.choice([-1, 1], p)
    y = rng.normal(size=(n, 2)) @ w.T
    return np.digitize((y + 0.7 * rng.normal(size=y.shape)) / y.std(0), [-1.2, -0.4, 0.4, 1.2]) + 1.0


def test_tables_of_the_copula_have_margins_and_correlations():
    values = likert(1000)
    mask = np.random.default_rng(0).random(values.shape) < 0.9
    table = next(copula_tables(values, mask, np.random.default_rng(0)))
    for j, seen in enumerate(mask.T):
        level, share = np.unique(values[seen, j], return_counts=True)
        drawn, of_drawn = np.unique(table[:, j], return_counts=True)
        assert np.array_equal(level, drawn)
        assert np.abs(share / seen.sum() - of_drawn / len(table)).max() < 0.05
    z, of_table = column_scores(values, mask), column_scores(table, mask)
    assert ((of_table == 0) == ~mask).mean() > 0.99
    # correlations of 1,800 rows have standard errors of .024, and two tables' differences of .033
    assert np.abs(correlation(of_table, mask) - correlation(z, mask)).max() < 0.15


def test_normal_scores_are_those_of_the_ranks_and_0_where_missing():
    values = np.random.default_rng(0).exponential(size=(200, 2))
    mask = np.ones((200, 2), bool)
    mask[:50, 1] = False
    z = column_scores(values, mask)
    expected = stats.norm.ppf(values[:, 0].argsort().argsort() / 201 + 1 / 201)
    assert np.allclose(z[:, 0], expected / expected.std())
    assert (z[:50, 1] == 0).all() and abs(z[50:, 1].mean()) < 1e-12 and abs(z[50:, 1].std() - 1) < 1e-12
