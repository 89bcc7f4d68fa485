"""Inclusion rates given edges: against the density on a grid, and a Beta density where nothing is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from pyro_sparse.inference.edges.density.rates import drawn_log_odds, solved_log_odds

A, B = np.array([1.0, 0.5]), np.array([6.0, 2.0])
KNOWN = np.random.default_rng(1).normal(size=(8, 2)) * 2


def edges():
    edge = np.random.default_rng(0).random((1, 8, 2)) < 0.4
    free = np.ones((8, 2), dtype=bool)
    free[0, 1] = False
    return edge, free


def drawn(known, shared, n, chains=50, first=10):
    """n draws of chains side by side, without the first of each, (draw, factor)."""
    rng, (edge, free), now = np.random.default_rng(2), edges(), np.zeros((chains, 1, 2))
    edge, found = np.repeat(edge, chains, 0), []
    for _ in range(first + n // chains):
        now = drawn_log_odds(edge, free, (A, B), shared, known, now, rng)
        found.append(now[:, 0])
    return np.concatenate(found[first:])


@pytest.mark.parametrize("shared", [False, True])
def test_known_odds_move_the_rate_as_the_density_says(shared):
    found, (edge, free) = drawn(KNOWN, shared, 3000), edges()
    odds = np.linspace(-15, 10, 5001)[:, None, None]
    for k in range(1 if shared else 2):
        own = slice(None) if shared else slice(k, k + 1)
        level = ((edge[0] & free)[:, own] * odds).sum((1, 2))
        level -= (np.logaddexp(0, odds + KNOWN[:, own]) * free[:, own]).sum((1, 2))
        level += A[k] * odds[:, 0, 0] - (A[k] + B[k]) * np.logaddexp(0, odds[:, 0, 0])
        mass = np.exp(level - level.max())
        mass /= mass.sum()
        mean = (mass * odds[:, 0, 0]).sum()
        sd = np.sqrt((mass * (odds[:, 0, 0] - mean) ** 2).sum())
        assert abs(found[:, k].mean() - mean) < 0.1 * sd
        assert found[:, k].std() == pytest.approx(sd, rel=0.1)
    if shared:
        assert (found[:, 0] == found[:, 1]).all()


def test_without_knowledge_it_is_a_beta_distribution():
    found, (edge, free) = expit(drawn(None, False, 2000)), edges()
    n, size = (edge[0] & free).sum(0), free.sum(0)
    for k in range(2):
        assert stats.kstest(found[:, k], stats.beta(A[k] + n[k], B[k] + size[k] - n[k]).cdf).pvalue > 1e-3
    nothing = drawn(np.zeros((8, 2)), False, 2000)
    assert nothing.mean() == pytest.approx(drawn(None, False, 2000).mean(), abs=0.1)


def test_the_expected_number_of_edges_is_what_is_wanted():
    _, free = edges()
    wanted = np.array([[2.0, 5.0]])
    odds = solved_log_odds(wanted, KNOWN, free, 2.0)
    found = (expit(odds + KNOWN) * free).sum(0) + 2 * expit(odds[0])
    np.testing.assert_allclose(found, wanted[0], rtol=1e-8)
