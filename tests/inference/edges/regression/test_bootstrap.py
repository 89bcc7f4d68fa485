"""The bootstrap against weighted least squares, scipy's minimiser, normal theory and a long Gibbs run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import expit
from scipy.stats import beta, ks_2samp

from pyro_sparse.inference.edges.regression import bootstrap as module
from pyro_sparse.inference.edges.regression.bootstrap import bootstrap_edges
from pyro_sparse.inference.edges.regression.gibbs import gibbs_edges
from pyro_sparse.inference.edges.regression.row_mode import first_mode, row_mode
from pyro_sparse.inference.edges.regression.rows import RowPrior
from pyro_sparse.inference.multitask.inner import moments
from tests.inference._rows import make_rows

LASSO = RowPrior("laplace", spike_scale=0.05, eta_over="feature", noise_prior=(3.0, 2.0))
ALL_IN = RowPrior(
    "laplace", slab_scale=1e4, spike_scale=0.05, eta=1 - 1e-13, noise_variance=0.7, intercept=True
)
"""Every weight in a slab that is flat."""
AXES = {"row": (-1,), "feature": (-2,), "all": (-2, -1)}


def replicates(x, y, prior, number=20, jitter=True, seed=0, mask=None):
    return module._replicates(x, y, prior, mask, number, jitter, seed)


def perturbations(shape, m, prior, number=20, jitter=True, seed=0, mask=None):
    """The weights and centres behind them: n times Dirichlet."""
    there = np.ones(shape, dtype=bool) if mask is None else mask
    drawn = [
        module._draw(np.random.default_rng(child), there, m, prior.spike_scale if jitter else 0.0)
        for child in np.random.SeedSequence(seed).spawn(number)
    ]
    omega, shift = (np.stack(part) for part in zip(*drawn, strict=True))
    return omega / omega.sum(-1, keepdims=True) * there.sum(-1)[..., None], shift


@pytest.mark.parametrize("jitter", [True, False])
def test_with_a_flat_slab_it_is_weighted_least_squares(jitter):
    x, y, _ = make_rows(0, tasks=3, n=15, m=3, rho=0.6)
    found = replicates(x, y, ALL_IN, jitter=jitter)
    omega, _ = perturbations(y.shape, 3, ALL_IN, jitter=jitter)
    for r in range(20):
        for t in range(3):
            root = np.sqrt(omega[r, t])[:, None]
            design = np.column_stack([np.ones(15), x[t]])
            want = np.linalg.lstsq(root * design, root[:, 0] * y[t], rcond=None)[0][1:]
            np.testing.assert_allclose(found.weight[r, t], want, atol=1e-4)
    assert (found.prob > 0.999).all()


def test_its_spread_is_that_of_the_normal_posterior():
    n = 400
    x, y, _ = make_rows(1, tasks=2, n=n, m=3, noise=0.7, rho=0.5)
    found = bootstrap_edges(x, y, ALL_IN, replicates=400)
    for t in range(2):
        centred = x[t] - x[t].mean(0)
        cov = 0.7 * np.linalg.inv(centred.T @ centred)
        sd = np.sqrt(np.diag(cov))
        want = np.linalg.solve(centred.T @ centred, centred.T @ y[t])
        np.testing.assert_allclose(found.weight_mean[t], want, atol=5 * sd.max() / np.sqrt(400))
        np.testing.assert_allclose(found.weight_sd[t], sd, rtol=0.2)
        drawn = found.draws(400).weight[:, t]
        assert np.corrcoef(drawn.T)[0, 1] == pytest.approx(cov[0, 1] / sd[0] / sd[1], abs=0.15)


def test_one_feature_is_scipy_s_minimum_and_p_is_of_the_weight():
    """Of the weighted penalised likelihood, the penalty's centre moved."""
    x, y, _ = make_rows(2, tasks=6, n=12, m=1, eta=0.6)
    prior = RowPrior("laplace", slab_scale=2.0, spike_scale=0.1, eta=0.3, noise_variance=1.3, intercept=False)
    found = replicates(x, y, prior, number=10)
    omega, shift = perturbations(y.shape, 1, prior, number=10)

    def log_prior(w):
        return np.logaddexp(np.log(0.3 / 4.0) - np.abs(w) / 2.0, np.log(0.7 / 0.2) - np.abs(w) / 0.1)

    grid = np.linspace(-6, 6, 4001)
    for r, t in np.ndindex(10, 6):

        def cost(w, r=r, t=t):
            left = y[t] - x[t, :, 0] * np.asarray(w)[..., None]
            fit = (omega[r, t] * left**2).sum(-1) / 2.6
            return fit - log_prior(w - shift[r, t, 0])

        around = grid[cost(grid).argmin()]
        best = minimize_scalar(cost, bounds=(around - 0.01, around + 0.01), method="bounded")
        at = min((cost(v), float(v)) for v in (best.x, shift[r, t, 0]))[1]
        assert found.weight[r, t, 0] == pytest.approx(at, abs=1e-4)
        w = found.weight[r, t, 0]
        slab, spike = 0.3 / 4.0 * np.exp(-abs(w) / 2.0), 0.7 / 0.2 * np.exp(-abs(w) / 0.1)
        assert found.prob[r, t, 0] == pytest.approx(slab / (slab + spike), abs=1e-9)
    assert (found.weight == shift).any() and (found.weight != shift).any()


@pytest.mark.parametrize("over", ["row", "feature", "all"])
def test_rates_and_noise_are_at_their_mode(over):
    x, y, _ = make_rows(3, tasks=8, n=60, m=4, eta=0.4, noise=0.5)
    x, y = x - x.mean(1, keepdims=True), y - y.mean(1, keepdims=True)
    prior = RowPrior("laplace", spike_scale=0.02, eta_over=over, eta_prior=(2.0, 3.0), noise_prior=(3.0, 2.0))
    data, samples = moments(torch.tensor(x), torch.tensor(y)[..., None]), torch.full((8,), 60.0).double()
    found = row_mode(data, samples, samples - 1, prior, first_mode(data, samples - 1, prior, None, None))
    weight, eta, noise, change = (part.numpy() for part in found)
    assert change.max() < 1e-4
    slab, spike = 0.5 * np.exp(-np.abs(weight)), 25 * np.exp(-50 * np.abs(weight))
    p = eta * slab / (eta * slab + (1 - eta) * spike)
    axis = AXES[over]
    want = (p.sum(axis, keepdims=True) + 1) / (np.prod([p.shape[i] for i in axis]) + 3)
    np.testing.assert_allclose(eta, np.broadcast_to(want, eta.shape), atol=1e-4)
    squares = ((y - (x @ weight[..., None])[..., 0]) ** 2).sum(-1)
    np.testing.assert_allclose(noise, (2 + squares / 2) / (3 + 59 / 2 + 1), rtol=1e-4)


@pytest.mark.parametrize("over", ["row", "feature", "all"])
def test_rates_are_drawn_given_the_weights(over):
    """Where edges are certain, from their beta distribution."""
    rng = np.random.default_rng(12)
    x, edge = rng.normal(size=(5, 40, 3)), np.array([[1, 0, 0]] * 4 + [[1, 1, 0]])
    y = (x @ (8.0 * edge)[..., None])[..., 0] + 0.1 * rng.normal(size=(5, 40))
    prior = RowPrior("laplace", spike_scale=1e-4, eta_over=over, eta_prior=(2.0, 3.0), noise_variance=0.05)
    found = replicates(x, y, prior, number=400, jitter=False)
    np.testing.assert_allclose(found.prob.mean(0), edge, atol=0.02)
    axis = AXES[over]
    count, size = edge.sum(axis, keepdims=True), np.prod([edge.shape[i] for i in axis])
    density = beta(2 + count, 3 + size - count)
    np.testing.assert_allclose(found.eta.mean(0), np.broadcast_to(density.mean(), edge.shape), atol=0.04)
    np.testing.assert_allclose(found.eta.std(0), np.broadcast_to(density.std(), edge.shape), rtol=0.2)
    own = {"row": (0, slice(None)), "feature": (slice(None), 0), "all": (slice(None), slice(None))}[over]
    assert np.ptp(found.eta[(slice(None), *own)].reshape(400, -1), axis=1).max() < 1e-12  # they share it


@pytest.mark.slow
def test_it_is_nearer_to_a_long_gibbs_run_than_the_mode_is():
    x, y, _ = make_rows(4, tasks=40, n=40, m=4, heavy=True, ratio=0.1)
    prior = RowPrior("laplace", spike_scale=0.1, eta=0.3, noise_variance=1.0)
    gold = gibbs_edges(x, y, prior, sweeps=300, burn_in=50)
    found = bootstrap_edges(x, y, prior)
    alone = replicates(x, y, prior, number=60)
    assert np.abs(found.edge_prob - gold.edge_prob).mean() < 0.08
    one = np.abs(alone.prob[0] - gold.edge_prob).mean()
    assert np.abs(found.edge_prob - gold.edge_prob).mean() < 0.7 * one
    assert np.abs(found.weight_mean - gold.weight_mean).mean() < 0.06


def test_a_mask_is_leaving_out():
    x, y, _ = make_rows(5, tasks=4, n=20, m=3)
    mask = np.ones(y.shape, dtype=bool)
    mask[:, [3, 8]] = False
    holes = np.where(mask, y, np.nan)
    found = bootstrap_edges(x, holes, LASSO, mask, replicates=10)
    short = bootstrap_edges(np.delete(x, [3, 8], 1), np.delete(y, [3, 8], 1), LASSO, replicates=10)
    np.testing.assert_allclose(found.edge_prob, short.edge_prob, atol=1e-9)
    np.testing.assert_allclose(found.weight_sd, short.weight_sd, atol=1e-9)


def test_an_intercept_is_centring_by_the_weights():
    x, y, _ = make_rows(6, tasks=3, n=25, m=3)
    found = replicates(x + 7, y - 40, LASSO, number=3, jitter=False)
    np.testing.assert_allclose(found.weight, replicates(x, y, LASSO, 3, False).weight, atol=1e-8)
    omega, _ = perturbations(y.shape, 3, LASSO, number=3, jitter=False)
    # One replicate with its weights' means taken off, as data without intercept: the same least squares.
    share = omega[1] / omega[1].sum(-1, keepdims=True)
    centred = x - (share[..., None] * x).sum(1, keepdims=True), y - (share * y).sum(1, keepdims=True)
    known = {"eta": 0.4, "noise_variance": 0.6}
    plain = RowPrior("laplace", spike_scale=0.05, intercept=False, **known)
    with_one = RowPrior("laplace", spike_scale=0.05, **known)
    np.testing.assert_allclose(
        replicates(x, y, with_one, 3).weight[1], replicates(*centred, plain, 3).weight[1], atol=1e-8
    )


def test_a_constant_feature_keeps_the_rate():
    x, y, _ = make_rows(7, tasks=5, n=20, m=3)
    x[2, :, 1] = 0.3
    found = bootstrap_edges(x, y, RowPrior("laplace", spike_scale=0.05, eta=0.37), replicates=8)
    assert found.edge_prob[2, 1] == pytest.approx(0.37, abs=1e-12)
    assert np.isfinite(found.weight_mean).all() and found.weight_sd[2, 1] < 0.2
    np.testing.assert_allclose(found.eta, 0.37)


def test_scales_may_differ_and_units_do_not_matter():
    x, y, _ = make_rows(8, tasks=4, n=30, m=3)
    unit = np.array([1.0, 20.0, 0.1])
    # What is an edge is a matter of the feature's unit, unless spike and slab are in it.
    one = [replicates(x[..., [j]], y, LASSO, 5) for j in range(3)]
    other = [
        replicates(
            x[..., [j]] * unit[j],
            y,
            RowPrior(
                "laplace",
                slab_scale=1 / unit[j],
                spike_scale=0.05 / unit[j],
                eta_over="feature",
                noise_prior=(3.0, 2.0),
            ),
            5,
        )
        for j in range(3)
    ]
    for a, b, u in zip(one, other, unit, strict=True):
        np.testing.assert_allclose(a.prob, b.prob, atol=1e-6)
        np.testing.assert_allclose(a.weight, b.weight * u, atol=1e-6)
    mixed = RowPrior("laplace", slab_scale=[1.0, 3.0, 0.5], spike_scale=0.05, eta=0.2)
    assert bootstrap_edges(x, y, mixed, replicates=4).edge_prob.shape == (4, 3)


@pytest.mark.slow
def test_same_seed_same_replicates_in_any_blocks(monkeypatch):
    x, y, _ = make_rows(9, tasks=3, n=20, m=3)
    x, y = np.stack([x, x[::-1]]), np.stack([y, y[::-1]])
    whole = bootstrap_edges(x, y, LASSO, replicates=6, seed=4)
    monkeypatch.setattr(module, "_BUDGET", 1)
    pieces = bootstrap_edges(x, y, LASSO, replicates=6, seed=4)
    np.testing.assert_allclose(pieces.edge_prob, whole.edge_prob, atol=1e-12)
    more = replicates(x, y, LASSO, number=9, seed=4)
    np.testing.assert_allclose(more.prob[:6].mean(0), whole.edge_prob, atol=1e-12)
    assert np.abs(bootstrap_edges(x, y, LASSO, replicates=6, seed=5).edge_prob - whole.edge_prob).max() > 1e-3
    one, two = (whole.draws(11, seed=3) for _ in range(2))
    np.testing.assert_array_equal(one.edge, two.edge)
    np.testing.assert_array_equal(one.weight, two.weight)


def test_draws_are_replicates():
    x, y, _ = make_rows(10, tasks=4, n=20, m=3, rho=0.8)
    found, parts = bootstrap_edges(x, y, LASSO, replicates=30), replicates(x, y, LASSO, number=30)
    drawn = found.draws(6000)
    assert drawn.edge.shape == (6000, 4, 3) and drawn.edge.dtype == np.int8
    np.testing.assert_allclose(drawn.edge.mean(0), found.edge_prob, atol=0.03)
    first = np.sort(found.draws(30, seed=2).weight[:, 0, 0])
    np.testing.assert_array_equal(first, np.sort(parts.weight[:, 0, 0]))  # each one once
    both = (parts.prob[..., 0] * parts.prob[..., 1]).mean(0)
    np.testing.assert_allclose((drawn.edge[..., 0] * drawn.edge[..., 1]).mean(0), both, atol=0.03)
    np.testing.assert_allclose(found.gap, parts.prob.std(0, ddof=1) / np.sqrt(30))
    np.testing.assert_allclose(found.weight_mean, parts.weight.mean(0))
    np.testing.assert_allclose(found.noise_variance, 1 / (1 / parts.noise).mean(0))
    assert found.log_evidence is None and found.converged.dtype == bool


def test_perturbations_follow_their_laws():
    omega, shift = perturbations((1, 5), 2, LASSO, number=2000)
    want = 5 * np.random.default_rng(1).dirichlet(np.ones(5), size=2000)[:, 0]
    assert ks_2samp(omega[:, 0, 0], want).pvalue > 0.01
    assert np.abs(shift).mean() == pytest.approx(0.05, rel=0.1)
    assert not perturbations((1, 5), 2, LASSO, jitter=False)[1].any()


def test_jitter_keeps_absent_weights_from_being_zero():
    x, y, _ = make_rows(11, tasks=4, n=30, m=3, eta=0.0)
    prior = RowPrior("laplace", spike_scale=0.05, eta=0.2, noise_variance=1.0)
    still = bootstrap_edges(x, y, prior, replicates=10, jitter=False)
    at_zero = expit(np.log(0.2 / 0.8) + np.log(0.05))
    assert (still.edge_prob.min() == pytest.approx(at_zero)) and not still.weight_mean.all()
    assert bootstrap_edges(x, y, prior, replicates=10).weight_sd.min() > 0.01


@pytest.mark.parametrize(
    ("prior", "option", "message"),
    [
        (RowPrior(), {}, "wants slab=\"laplace\" and spike_scale above 0, got slab='normal'.*Gibbs"),
        (RowPrior("laplace"), {}, "got slab='laplace' and spike_scale=0.0; use expectation propagation"),
        (
            RowPrior("laplace", spike_scale=0.1, slab_units="noise", noise_variance=1.0),
            {},
            'slab_units: the bootstrap wants "target", got "noise"; give scales in units of the target',
        ),
        (LASSO, {"replicates": 1}, "replicates: want a whole number of at least 2, got 1"),
        (LASSO, {"mask": np.zeros((2, 25), dtype=bool)}, r"mask: task \(0,\) has no samples"),
    ],
)
def test_what_it_cannot_do_is_refused(prior, option, message):
    x, y, _ = make_rows(0, tasks=2)
    with pytest.raises(ValueError, match=message):
        bootstrap_edges(x, y, prior, **option)
