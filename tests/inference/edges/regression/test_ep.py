"""Expectation propagation against enumeration, grids, long Gibbs runs, and where it is exact."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from pyro_sparse.inference.edges.regression.enumerate import enumerate_edges
from pyro_sparse.inference.edges.regression.ep import ep_edges
from pyro_sparse.inference.edges.regression.gibbs import gibbs_edges
from pyro_sparse.inference.edges.regression.rows import RowPrior
from tests.inference._rows import exact_shared, laplace_pair, make_rows


@pytest.mark.parametrize(("laplace", "spike"), [(False, 0.0), (True, 0.0), (True, 0.1)])
def test_one_feature_is_exact(laplace, spike):
    x, y, _ = make_rows(1, tasks=5, n=10, m=1, heavy=laplace)
    prior = RowPrior("laplace" if laplace else "normal", spike_scale=spike, eta=0.35, noise_variance=1.2)
    found = ep_edges(x, y, prior, tol=1e-6)
    if laplace:
        want = [laplace_pair(a, b, 1.2, 0.35, 1.0, spike, size=8001) for a, b in zip(x, y, strict=True)]
        p, mean = (np.stack(v) for v in zip(*want, strict=True))
        np.testing.assert_allclose(found.edge_prob, p, atol=1e-4)
        np.testing.assert_allclose(found.weight_mean, mean, atol=1e-4)
    else:
        exact = enumerate_edges(x, y, prior)
        np.testing.assert_allclose(found.edge_prob, exact.edge_prob, atol=1e-8)
        np.testing.assert_allclose(found.weight_sd, exact.weight_sd, atol=1e-8)
        np.testing.assert_allclose(found.log_evidence, exact.log_evidence, atol=1e-8)
    assert found.converged.all()


def test_orthogonal_features_are_exact():
    rng = np.random.default_rng(2)
    q = np.linalg.qr(np.column_stack([np.ones(30), rng.normal(size=(30, 6))]))[0][:, 1:]
    x = np.broadcast_to(4 * q, (8, 30, 6))
    y = x @ np.array([1.0, 0.6, 0.3, 0, 0, 0]) + rng.normal(size=(8, 30))
    known = RowPrior(eta=0.2, noise_variance=1.0)
    found, exact = ep_edges(x, y, known, tol=1e-8), enumerate_edges(x, y, known)
    np.testing.assert_allclose(found.edge_prob, exact.edge_prob, atol=1e-7)
    np.testing.assert_allclose(found.log_evidence, exact.log_evidence, atol=1e-7)
    learned = RowPrior(eta_prior=(1.0, 2.0), noise_variance=1.0)  # five levels of the rate are enough
    found, exact = ep_edges(x, y, learned), enumerate_edges(x, y, learned)
    np.testing.assert_allclose(found.edge_prob, exact.edge_prob, atol=0.01)
    np.testing.assert_allclose(found.eta, exact.eta, atol=0.01)
    np.testing.assert_allclose(found.log_evidence, exact.log_evidence, atol=0.02)


@pytest.mark.parametrize("rho", [0.0, 0.9])
@pytest.mark.parametrize(
    "settings",
    [
        {"eta": 0.3, "noise_variance": 1.0},
        {"eta_prior": (1.0, 2.0), "noise_prior": (3.0, 2.0)},
        {"eta_prior": (1.0, 2.0), "slab_units": "noise"},
    ],
)
def test_it_is_close_to_enumeration(rho, settings):
    x, y, _ = make_rows(3, tasks=60, n=30, m=6, rho=rho)
    prior = RowPrior(**settings)
    exact, found = enumerate_edges(x, y, prior), ep_edges(x, y, prior)
    error = np.abs(found.edge_prob - exact.edge_prob)
    assert error.mean() < 0.02
    plain = np.abs(ep_edges(x, y, prior, correct=False).edge_prob - exact.edge_prob)
    assert error.mean() < 0.85 * plain.mean()
    assert np.abs(found.weight_mean - exact.weight_mean).mean() < 0.02
    assert np.abs(found.weight_sd - exact.weight_sd).mean() < 0.03
    assert np.abs(found.eta - exact.eta).mean() < 0.02
    np.testing.assert_allclose(found.noise_variance, exact.noise_variance, rtol=0.1)
    assert np.abs(found.log_evidence - exact.log_evidence).mean() < 0.15


@pytest.mark.parametrize("spike", [0.0, 0.1])
def test_it_is_close_to_a_long_gibbs_run(spike):
    x, y, _ = make_rows(4, tasks=25, n=25, m=4, rho=0.7, heavy=True, ratio=spike)
    prior = RowPrior("laplace", spike_scale=spike, eta_prior=(1.0, 2.0))
    found, gold = ep_edges(x, y, prior), gibbs_edges(x, y, prior, sweeps=300, burn_in=50)
    assert np.abs(found.edge_prob - gold.edge_prob).mean() < 0.02
    assert np.abs(found.weight_mean - gold.weight_mean).mean() < 0.02
    assert np.abs(found.weight_sd - gold.weight_sd).mean() < 0.02


@pytest.mark.parametrize("over", ["feature", "all"])
def test_a_shared_rate_of_orthogonal_features_is_exact(over):
    rng = np.random.default_rng(10)
    q = np.linalg.qr(np.column_stack([np.ones(12), rng.normal(size=(12, 2))]))[0][:, 1:]
    x = np.broadcast_to(3 * q, (4, 12, 2))
    y = x @ np.array([0.8, 0.3]) + rng.normal(size=(4, 12))
    found = ep_edges(x, y, RowPrior(eta_prior=(0.5, 1.0), eta_over=over, noise_variance=1.0), tol=1e-6)
    want = exact_shared(x, y, 1.0, (0.5, 1.0), over)
    np.testing.assert_allclose(found.edge_prob, want, atol=2e-4)
    assert np.ptp(want) > 0.2


@pytest.mark.parametrize("over", ["feature", "all"])
def test_a_shared_rate_couples_the_tasks(over):
    x, y, _ = make_rows(5, tasks=6, n=12, m=2)
    want = exact_shared(x, y, 1.0, (1.0, 1.0), over)
    prior = RowPrior(eta_over=over, noise_variance=1.0)
    found = ep_edges(x, y, prior)
    assert np.abs(found.edge_prob - want).mean() < 0.03
    assert found.log_evidence is None
    counted = found.edge_prob.sum(0) if over == "feature" else found.edge_prob.sum()
    size = 6 if over == "feature" else 12
    np.testing.assert_allclose(found.eta, np.broadcast_to((1 + counted) / (2 + size), (6, 2)))
    sets = ep_edges(np.stack([x, x[::-1]]), np.stack([y, y[::-1]]), prior)
    np.testing.assert_allclose(sets.edge_prob[0], found.edge_prob, atol=2e-3)
    np.testing.assert_allclose(sets.edge_prob[1], found.edge_prob[::-1], atol=2e-3)


@pytest.mark.parametrize("slab", ["normal", "laplace"])
def test_more_features_than_samples_and_copied_columns(slab):
    x, y, _ = make_rows(6, tasks=6, n=18, m=24, eta=0.08, noise=0.1)
    x[..., 7] = x[..., 0]
    prior = RowPrior(slab, eta_prior=(1.0, 5.0), noise_variance=0.1)
    found = ep_edges(x, y, prior)
    assert ((found.edge_prob >= 0) & (found.edge_prob <= 1)).all() and (found.weight_sd >= 0).all()
    # Exactly a copy: the two share what there is.
    np.testing.assert_allclose(found.edge_prob[:, 7], found.edge_prob[:, 0], atol=1e-4)
    if slab == "laplace":
        return
    gold = gibbs_edges(x, y, prior, sweeps=300, burn_in=100)
    assert np.abs(found.edge_prob - gold.edge_prob).mean() < 0.02


@pytest.mark.parametrize(
    ("laplace", "spike", "over"),
    [
        (False, 0.0, "row"),
        (False, 0.0, "feature"),
        pytest.param(True, 0.1, "row", marks=pytest.mark.slow),
    ],
)
def test_draws_follow_the_posterior(laplace, spike, over):
    x, y, _ = make_rows(7, tasks=10, n=25, m=4, rho=0.8, heavy=laplace)
    prior = RowPrior("laplace" if laplace else "normal", spike_scale=spike, noise_variance=1.0, eta_over=over)
    found = ep_edges(x, y, prior)
    drawn = found.draws(2000)
    assert np.abs(drawn.edge.mean(0) - found.edge_prob).mean() < 0.02
    assert np.abs(drawn.weight.mean(0) - found.weight_mean).mean() < 0.03
    assert np.abs(drawn.weight.std(0) - found.weight_sd).mean() < 0.03
    gold = gibbs_edges(x, y, prior, sweeps=500, burn_in=100).draws(2000)
    for one, other in ((0, 1), (2, 3)):  # neighbours stand in for each other: draws must say so
        got, want = (np.mean(d.edge[..., one] * d.edge[..., other], axis=0) for d in (drawn, gold))
        assert np.abs(got - want).mean() < 0.03


def test_what_has_not_converged_is_told():
    x, y, _ = make_rows(8, tasks=5, n=30, m=6, rho=0.9)
    with pytest.warns(
        RuntimeWarning, match=r"[1-5] of 5 tasks have not converged in 2 sweeps.*raise max_sweeps"
    ):
        found = ep_edges(x, y, RowPrior(), max_sweeps=2)
    assert not found.converged.all() and found.gap.max() > 1e-3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ep_edges(x, y, RowPrior()).converged.all()


def test_neighbours_do_not_matter():
    x, y, _ = make_rows(9, tasks=6, n=25, m=5, rho=0.8)
    whole = ep_edges(x, y, RowPrior())
    alone = ep_edges(x[2:3], y[2:3], RowPrior())
    np.testing.assert_allclose(alone.edge_prob[0], whole.edge_prob[2], atol=1e-9)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"max_sweeps": 0}, "max_sweeps: want a whole number of at least 1, got 0"),
        ({"damping": 0.0}, "damping: want a number above 0 and at most 1, got 0.0"),
        ({"tol": 1.0}, "tol: want a number between 0 and 1, got 1.0"),
    ],
)
def test_bad_options_are_named(option, message):
    x, y, _ = make_rows(0, tasks=2)
    with pytest.raises(ValueError, match=message):
        ep_edges(x, y, RowPrior(), **option)
