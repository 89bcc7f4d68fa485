"""The closed forms against numerical optimisers that know nothing of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import optimize
from sklearn.isotonic import isotonic_regression

from pyro_sparse.priors import em

EPS = em.ETA_MARGIN


def probabilities(seed, shape=(2, 9, 4)):
    return torch.as_tensor(np.random.default_rng(seed).beta(0.4, 0.6, shape))


def mask(seed, shape=(9, 4)):
    allowed = np.random.default_rng(seed).random(shape) < 0.6
    allowed[0] = True
    return torch.as_tensor(allowed)


def test_e_step_is_bayes():
    w = np.array([0.0, -1e-3, 0.05, 0.3, 5.0])
    for eta, low, high in ((0.5, 1.0, 100.0), (1e-4, 0.3, 1e4), (0.9, 2.0, 2.0)):
        slab, spike = np.log(low / 2) - low * np.abs(w), np.log(high / 2) - high * np.abs(w)
        log_odds = np.log(eta) - np.log1p(-eta) + slab - spike
        args = torch.as_tensor(w), torch.tensor(eta, dtype=torch.float64), low, high
        np.testing.assert_allclose(em.edge_log_odds(*args), log_odds, rtol=1e-10)
        with np.errstate(over="ignore"):
            p = 1 / (1 + np.exp(-log_odds))
        np.testing.assert_allclose(em.edge_probability(*args), p, rtol=1e-10)
        np.testing.assert_allclose(em.penalty_rate(*args), low * p + high * (1 - p), rtol=1e-8)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("a, b", [(1.0, 1.0), (1.0, 9.0), (2.5, 0.7), (0.2, 0.2)])
def test_eta_step_is_the_arg_max(a, b, shared, masked):
    prob = probabilities(0)
    allowed = mask(1) if masked else torch.ones(9, 4, dtype=torch.bool)
    eta = em.eta_step(prob, a, b, allowed if masked else None, shared)
    assert eta.shape == (2, 1, 1 if shared else 4)
    keep = allowed.numpy().astype(float)
    for r in range(2):
        for k in range(eta.shape[-1]):
            columns = slice(None) if shared else slice(k, k + 1)
            p, m = prob[r, :, columns].numpy(), keep[:, columns]
            found, absent = (p * m).sum() + a - 1, ((1 - p) * m).sum() + b - 1

            def loss(x, found=found, absent=absent):
                return -(found * np.log(x) + absent * np.log1p(-x))

            best = optimize.minimize_scalar(
                loss, bounds=(EPS, 1 - EPS), method="bounded", options={"xatol": 1e-10}
            )
            assert eta[r, 0, k].item() == pytest.approx(best.x, abs=2e-6)


def test_eta_step_ends_of_the_interval():
    prob = torch.zeros(5, 3)
    prob[:, 1] = 1.0
    eta = em.eta_step(prob, 1.0, 1.0)
    np.testing.assert_allclose(eta, [[EPS, 1 - EPS, EPS]], rtol=1e-6)
    # A column with no free feature keeps the prior's say alone, and NaN is never hidden.
    allowed = torch.ones(5, 3, dtype=torch.bool)
    allowed[:, 2] = False
    assert em.eta_step(prob, 3.0, 2.0, allowed)[0, 2].item() == pytest.approx(2 / 3)
    assert em.eta_step(prob, 1.0, 1.0, allowed)[0, 2].item() == 0.5
    assert torch.isnan(em.eta_step(prob * torch.nan, 1.0, 1.0)).all()


@pytest.mark.parametrize("alpha", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("seed", range(5))
def test_ordered_eta_step_is_the_arg_max(alpha, seed):
    """Against isotonic regression, which solves the binomial problem, and a general-purpose optimiser."""
    prob = probabilities(seed)
    allowed = mask(seed + 10) if seed % 2 else torch.ones(9, 4, dtype=torch.bool)
    eta = em.ordered_eta_step(prob, alpha, allowed).numpy()
    for r in range(2):
        found, count = (prob[r] * allowed).sum(0).numpy(), allowed.sum(0).double().numpy()
        order = np.argsort(-found / count)
        last = np.zeros(4)
        last[-1] = alpha - 1
        share, weight = (found[order] + last) / (count[order] + last), count[order] + last
        wanted = isotonic_regression(share, sample_weight=weight, increasing=False)
        np.testing.assert_allclose(eta[r, 0, order], wanted.clip(EPS, 1 - EPS), rtol=1e-9)

        def value(theta, found=found, count=count, order=order):
            present, absent = found[order] * np.log(theta), (count - found)[order] * np.log1p(-theta)
            return -(present + absent).sum() - (alpha - 1) * np.log(theta[-1])

        sticks = optimize.minimize(
            lambda nu: value(np.cumprod(nu)),
            np.full(4, 0.8),
            bounds=[(1e-3, 1 - 1e-9)] * 4,
            method="L-BFGS-B",
        )
        assert value(eta[r, 0, order]) <= sticks.fun + 1e-6


def grid_minimum(v, t, eta, low, high):
    ratio = np.concatenate([np.linspace(0, 1, 4001), np.geomspace(1e-9, 1, 1001)])
    return objective(ratio[:, None] * v, v, t, eta, low, high).min(0)


def objective(w, v, t, eta, low, high):
    slab, spike = np.log(eta * low) - low * np.abs(w), np.log((1 - eta) * high) - high * np.abs(w)
    return 0.5 * (w - v) ** 2 - t * np.logaddexp(slab, spike)


@pytest.mark.parametrize("dtype, slack", [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_prox_is_the_global_minimum(dtype, slack):
    """Over many rates, steps and eta, convex and not: never above the best point of a fine grid."""
    rng = np.random.default_rng(0)
    kept = 0
    for _ in range(60):
        v = rng.normal(size=80) * 3
        t, low = 10 ** rng.uniform(-4, 1), 10 ** rng.uniform(-1, 1)
        high, eta = low * 10 ** rng.uniform(0, 4), 1 / (1 + np.exp(4 * rng.normal()))
        w = em.ssl_prox(torch.as_tensor(v, dtype=dtype), t, eta, low, high)
        assert w.dtype == dtype
        w = w.numpy().astype(float)
        best = grid_minimum(v, t, eta, low, high)
        assert (objective(w, v, t, eta, low, high) <= best + slack * (1 + np.abs(best))).all()
        assert (np.sign(w) * np.sign(v) >= 0).all() and (np.abs(w) <= np.abs(v)).all()
        kept += (w != 0).mean() / 60
    assert 0.1 < kept < 0.9  # both outcomes were tested


def test_prox_beats_the_stationary_point_at_zero():
    """Zero and a large weight are both local minima: the better is taken, not the nearer."""
    t, eta, low, high = 1.0, 0.5, 0.1, 20.0
    slope_at_zero = em.penalty_rate(torch.tensor(0.0), torch.tensor(eta), low, high).item()
    v = torch.linspace(0, slope_at_zero * 0.999, 2001, dtype=torch.float64)
    w = em.ssl_prox(v, t, eta, low, high)
    cut = v[(w != 0).nonzero()[0]].item()
    # Zero is a local minimum for every one of these v, yet beyond the threshold it is not the best one.
    p0 = eta * low / (eta * low + (1 - eta) * high)
    upper = np.sqrt(2 * t * np.log(1 / p0)) + t * low
    lower = np.sqrt(max(2 * t * np.log(1 / p0) - 1, 0)) + t * low
    assert lower < cut <= upper * 1.001 < slope_at_zero
    assert (w[v < cut] == 0).all() and (w[v >= cut] > 0.9 * (v[v >= cut] - t * low)).all()


def test_prox_limits():
    v = torch.tensor([-2.0, -0.1, 0.0, 0.3, 5.0], dtype=torch.float64)
    torch.testing.assert_close(em.ssl_prox(v, 0.0, 0.5, 1.0, 50.0), v)
    torch.testing.assert_close(em.ssl_prox(v, 0.5, 0.3, 2.0, 2.0), em.soft_threshold(v, 1.0))
    torch.testing.assert_close(
        em.ssl_prox(v, 0.2, 1 - 1e-12, 1.0, 1.0001), em.soft_threshold(v, 0.2), atol=1e-6, rtol=0
    )
    assert not torch.signbit(em.ssl_prox(v, 10.0, 0.5, 1.0, 50.0)[1])  # no minus zero
    per_weight = em.ssl_prox(v[:, None], torch.tensor([0.1, 0.2]), torch.tensor([0.1, 0.9]), 1.0, 50.0)
    torch.testing.assert_close(per_weight[:, 1], em.ssl_prox(v, 0.2, 0.9, 1.0, 50.0), atol=1e-6, rtol=1e-6)


def test_soft_threshold():
    v = torch.tensor([-3.0, -0.5, 0.0, 0.5, 3.0])
    torch.testing.assert_close(em.soft_threshold(v, 1.0), torch.nn.functional.softshrink(v, 1.0))


def test_prox_one_by_one_is_that_of_arrays():
    """Single-precision weights of a model, one after the other where numba is, against double precision."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        v, t = rng.normal(size=(2, 6, 3)), 10 ** rng.uniform(-5, -1, size=(2, 6, 3))
        low, high = 10 ** rng.uniform(-1, 1), 10 ** rng.uniform(1, 3)
        eta = rng.uniform(0.01, 0.99, size=(2, 1, 3))
        found, wanted = (
            em.ssl_prox(*(torch.as_tensor(part, dtype=dtype) for part in (v, t, eta, low, high)))
            for dtype in (torch.float32, torch.float64)
        )
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), atol=1e-5)
        assert ((found == 0) == (wanted == 0)).all() and (found == 0).any()
