"""Noise that is integrated, its prior learned from all tasks: beside brute force, and one another."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln, logsumexp

from pyro_sparse.data.tasks import relative_spread
from pyro_sparse.inference.edges.regression.enumerate import enumerate_edges
from pyro_sparse.inference.edges.regression.ep import ep_edges
from pyro_sparse.inference.edges.regression.gibbs import gibbs_edges
from pyro_sparse.inference.edges.regression.rows import RowPrior
from pyro_sparse.models._task_noise import LEVEL, SHAPE

LEARNED = {"noise_prior": "learned", "eta": 0.4}


def rows(seed, tasks=12, n=5, m=3, noise=0.5):
    """Targets of unit variance, and what they were divided by."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(tasks, n, m))
    edge = rng.random((tasks, m)) < 0.4
    y = (x * (edge * rng.laplace(size=edge.shape))[:, None]).sum(-1) + noise * rng.normal(size=(tasks, n))
    scale = y.std(1)
    return x, (y - y.mean(1, keepdims=True)) / scale[:, None], scale, edge


def brute(x, y, scale, eta=0.4):
    """P(edge) of one feature a task, the noise and its prior's parameters summed out on a plain grid."""
    log_v = np.linspace(np.log(1e-5), np.log(300.0), 700)
    v = np.exp(log_v)
    log_like = np.empty((2, len(y), len(v)))
    for t, (f, target) in enumerate(zip(x[..., 0], y, strict=True)):
        n = len(target)
        basis = np.linalg.svd(np.eye(n) - 1 / n)[0][:, : n - 1]  # without the mean, the intercept being flat
        f, target = basis.T @ f, basis.T @ target
        for k in range(2):
            cov = v[:, None, None] * np.eye(n - 1) + k * np.outer(f, f)
            squares = target @ np.linalg.solve(cov, target[:, None])[..., 0].T
            log_like[k, t] = -0.5 * (squares + np.linalg.slogdet(cov)[1] + (n - 1) * np.log(2 * np.pi))
    log_like += np.log([1 - eta, eta])[:, None, None]
    log_a, log_s, share = np.meshgrid(
        np.linspace(-3.5, 5, 35), np.linspace(-8, 5, 53), np.linspace(0, 1, 5), indexing="ij"
    )
    prior = stats.norm(*SHAPE).logpdf(log_a) + stats.norm(*LEVEL).logpdf(log_s)
    spread = relative_spread(scale)
    by_edge = np.empty((2, len(y), *prior.shape))
    for at, a in enumerate(np.exp(log_a[:, 0, 0])):
        for t in range(len(y)):
            b = a * np.exp(log_s[at] - share[at] * spread[t])[..., None]
            density = a * np.log(b) - gammaln(a) - a * log_v - b / v  # inverse gamma, by log v
            by_edge[:, t, at] = logsumexp(log_like[:, t, None, None] + density, axis=-1)
    task = logsumexp(by_edge, axis=0)
    joint = prior + task.sum(0)
    return np.array(
        [np.exp(logsumexp(joint - task[t] + by_edge[1, t]) - logsumexp(joint)) for t in range(len(y))]
    )


def test_enumeration_is_brute_force():
    x, y, scale, _ = rows(1000, tasks=3, n=4, m=1, noise=0.6)
    prior = RowPrior(**LEARNED, target_scale=scale)
    np.testing.assert_allclose(enumerate_edges(x, y, prior).edge_prob[:, 0], brute(x, y, scale), atol=0.01)


@pytest.mark.parametrize("n", [1, 4, 7])
def test_expectation_propagation_is_near_enumeration(n):
    x, y, scale, _ = rows(1001, tasks=20, n=max(n, 4))
    mask = np.ones(y.shape, dtype=bool)
    mask[:4, n:] = False  # some tasks of n rows among others
    prior = RowPrior(**LEARNED, target_scale=scale)
    exact, found = (f(x, y, prior, mask) for f in (enumerate_edges, ep_edges))
    error = np.abs(exact.edge_prob - found.edge_prob)
    assert error.mean() < 0.01 and error.max() < 0.08
    np.testing.assert_allclose(found.log_evidence, exact.log_evidence, atol=0.3)
    drawn = found.draws(4000, seed=0).edge.mean(0)
    np.testing.assert_allclose(drawn, found.edge_prob, atol=0.1)
    if n == 1:
        np.testing.assert_allclose(found.edge_prob[:4], 0.4, atol=1e-6)  # one row says nothing


@pytest.mark.slow
def test_gibbs_draws_what_is_learned():
    x, y, scale, _ = rows(1002, tasks=16, n=6)
    prior = RowPrior(**LEARNED, target_scale=scale)
    exact = enumerate_edges(x, y, prior).edge_prob
    found = gibbs_edges(x, y, prior, sweeps=400, burn_in=100, chains=8).edge_prob
    np.testing.assert_allclose(found, exact, atol=0.04)


@pytest.mark.slow
def test_a_shared_rate_has_the_noise_integrated_too():
    x, y, scale, _ = rows(1003, tasks=16, n=7)
    prior = RowPrior("laplace", noise_prior="learned", target_scale=scale, eta_over="feature")
    found = ep_edges(x, y, prior)
    long = gibbs_edges(x, y, prior, sweeps=600, burn_in=200, chains=8)
    assert np.abs(found.edge_prob - long.edge_prob).mean() < 0.05


@pytest.mark.slow
def test_few_rows_are_no_longer_sure():
    false, old, claimed = [], [], []
    for seed in range(1000, 1004):
        x, y, scale, edge = rows(seed, tasks=40, n=6, noise=1.0)
        known = {"slab": "laplace", "eta_over": "feature"}
        before = ep_edges(x, y, RowPrior(**known, noise_prior=(1.0, 0.02))).edge_prob
        p = ep_edges(x, y, RowPrior(**known, noise_prior="learned", target_scale=scale)).edge_prob
        old.append(1 - edge[before > 0.9])
        false.append(1 - edge[p > 0.9])
        claimed.append(1 - p[p > 0.9])
    false, old, claimed = (np.concatenate(v) for v in (false, old, claimed))
    assert old.mean() > 0.25  # what the test is about
    assert false.mean() < claimed.mean() + 0.1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"noise_prior": "flat"}, "noise_prior: want two positive numbers, or 'learned'"),
        ({"noise_prior": "learned", "slab_units": "noise"}, "slab_units: .* whose prior is learned"),
        ({"target_scale": [1.0, -1.0]}, "target_scale: want numbers above 0"),
    ],
)
def test_settings_that_do_not_go_together(settings, words):
    with pytest.raises(ValueError, match=words):
        RowPrior(**settings)
