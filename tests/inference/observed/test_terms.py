"""The posterior of terms beside enumeration by an independent computation, and what terms can see."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pyro_sparse.inference.observed.posterior import Candidates, Settled, term_posterior
from pyro_sparse.inference.observed.sampler import Prior, Regression, sample_terms
from pyro_sparse.inference.observed.terms import CURVES, LINE, PRODUCT, terms_of, winsorised


def evidence(x, y, slab):
    """log p(y | columns x) by the covariance of y: multivariate t, up to a constant."""
    n = len(y)
    covariance = np.eye(n) + slab * x @ x.T
    return -0.5 * np.linalg.slogdet(covariance)[1] - (n - 1) / 2 * np.log(y @ np.linalg.solve(covariance, y))


def enumerated(x, y, rate, slab):
    """Probability of each line, of all subsets."""
    p = x.shape[1]
    sets = list(itertools.product((0, 1), repeat=p))
    log = np.array([
        evidence(x[:, np.flatnonzero(s)], y, slab) + sum(s) * np.log(rate) + (p - sum(s)) * np.log1p(-rate)
        for s in sets
    ])  # fmt: skip
    weight = np.exp(log - log.max())
    return weight @ np.array(sets) / weight.sum()


def correlated(seed=0, n=60, p=6):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p))
    x[:, 1] = x[:, 0] + 0.4 * rng.normal(size=n)  # two that can stand in for each other
    y = 0.4 * x[:, 0] + 0.25 * x[:, 3] + rng.normal(size=n)
    return x, y


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_lines_have_the_probabilities_of_all_subsets_enumerated(seed):
    x, y = correlated(seed)
    terms, target = terms_of(x, curves=False, products=False), winsorised(y[:, None])[:, 0]
    exact = enumerated(terms.columns, target, rate=0.2, slab=0.3)
    prior = Prior(np.full(6, np.log(0.25)), np.full(6, 0.3), 1.0)
    chain = sample_terms(Regression(terms, target), prior, 6, 4000, np.random.default_rng(0))
    np.testing.assert_allclose(chain.term, exact, atol=0.03)
    np.testing.assert_allclose(chain.edge, exact, atol=0.03)
    if seed == 1:
        assert exact.max() > 0.5  # or the test shows nothing


def test_neighbours_have_the_evidence_of_their_own_sets():
    x, y = correlated(p=5)
    terms, target = terms_of(x, curves=False, products=False), winsorised(y[:, None])[:, 0]
    prior = Prior(np.zeros(5), np.full(5, 0.3), 1.0)
    odds, _ = Regression(terms, target).neighbours([0, 3], prior)
    for i in range(5):
        rest = [k for k in (0, 3) if k != i]
        f = terms.columns
        expected = evidence(f[:, [*rest, i]], target, 0.3) - evidence(f[:, rest], target, 0.3)
        assert odds[i] == pytest.approx(expected, abs=1e-8)


def test_terms_are_lines_curves_and_products_in_one_unit():
    rng = np.random.default_rng(0)
    inputs = np.column_stack([rng.standard_cauchy((200, 2)), rng.integers(0, 2, 200)])
    terms = terms_of(inputs)
    assert np.bincount(terms.kind).tolist() == [3, 8, 3]  # of two levels a curve is a line
    np.testing.assert_allclose(terms.columns.mean(0), 0, atol=1e-9)
    np.testing.assert_allclose((terms.columns**2).mean(0), 1)
    line = terms.columns[:, [0]]
    bent = terms.columns[:, (terms.kind == CURVES) & (terms.parents[:, 0] == 0)]
    np.testing.assert_allclose((line * bent).mean(0), 0, atol=1e-9)
    assert terms.parents[terms.kind == PRODUCT].tolist() == [[0, 1], [0, 2], [1, 2]]
    assert (terms.parents[terms.kind == LINE][:, 0] == [0, 1, 2]).all()


@pytest.mark.parametrize(
    ("shape", "parents"),
    [
        (lambda u: u[:, 0] * u[:, 1], [0, 1]),
        (lambda u: np.sin(3 * u[:, 2]), [2]),
        (lambda u: (u[:, 0] ** 2 > 1) * 1.5, [0]),
        (lambda u: 0.8 * np.abs(u[:, 1]), [1]),
    ],
)
def test_effects_without_a_slope_are_found(shape, parents):
    rng = np.random.default_rng(1)
    u = rng.normal(size=(400, 5))
    y = shape(u) + 0.5 * rng.normal(size=400)
    p = term_posterior(u, y[:, None], Candidates(5, 1, 0)).probability[0]
    assert sorted(np.flatnonzero(p > 0.9)) == parents
    lines = term_posterior(u, y[:, None], Candidates(5, 1, 0), curves=False, products=False).probability[0]
    assert (lines[parents] < 0.9).any()


def test_cells_that_were_not_seen_are_no_evidence():
    x, y = correlated()
    settled = Settled(np.full(6, 0.2), np.full(6, 0.3))
    options = {"curves": False, "products": False, "rounds": 0, "settled": settled, "steps": 3000}
    half = np.where(np.arange(60) < 30, y, np.nan)
    left = term_posterior(x, np.stack([half, y], 1), Candidates(6, 1, 0), **options)
    alone = term_posterior(x[:30], y[:30, None], Candidates(6, 1, 0), **options)
    np.testing.assert_allclose(left.probability[0], alone.probability[0], atol=0.03)
    assert np.isnan(left.residual[30:, 0]).all() and not np.isnan(left.residual[:, 1]).any()


def test_forbidden_candidates_have_no_term():
    x, y = correlated()
    forbidden = np.zeros((1, 6), bool)
    forbidden[0, 0] = True
    p = term_posterior(x, y[:, None], Candidates(6, 1, 0), forbidden=forbidden)
    assert p.probability[0, 0] == 0 and not p.draws[..., 0].any()


def test_rates_are_learned_from_all_targets():
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(150, 10)), rng.normal(size=(150, 10))
    nothing = term_posterior(x, noise, Candidates(10, 1, 0)).probability
    assert nothing.mean() < 0.08 and nothing.max() < 0.9


def test_draws_agree_with_probabilities():
    x, y = correlated()
    posterior = term_posterior(x, y[:, None], Candidates(6, 1, 0), num_draws=4000, steps=3000)
    np.testing.assert_allclose(posterior.draws.mean((0, 1)), posterior.probability, atol=0.06)
