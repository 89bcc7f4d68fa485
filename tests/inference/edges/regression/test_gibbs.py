"""The Gibbs sampler against enumeration, fine grids and sums over all graphs."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_sparse.inference.edges.regression.enumerate import enumerate_edges
from pyro_sparse.inference.edges.regression.gibbs import UNRESOLVED, gibbs_edges
from pyro_sparse.inference.edges.regression.rows import RowPrior
from tests.inference._rows import exact_shared, laplace_pair, make_rows


@pytest.mark.parametrize(
    "settings",
    [
        {"noise_variance": 1.0, "eta": 0.3},
        {"slab_units": "noise", "eta_prior": (1.0, 2.0)},
        {"noise_prior": (3.0, 2.0), "slab_scale": 1.5},
    ],
)
def test_it_agrees_with_enumeration(settings):
    x, y, _ = make_rows(1, tasks=16, n=15, m=3, rho=0.5)
    prior = RowPrior(**settings)
    exact, found = enumerate_edges(x, y, prior), gibbs_edges(x, y, prior, sweeps=1200, burn_in=100)
    np.testing.assert_allclose(found.edge_prob, exact.edge_prob, atol=0.04)
    assert np.abs(found.edge_prob - exact.edge_prob).mean() < 0.008
    np.testing.assert_allclose(found.weight_mean, exact.weight_mean, atol=0.05)
    np.testing.assert_allclose(found.weight_sd, exact.weight_sd, atol=0.05)
    np.testing.assert_allclose(found.eta, exact.eta, atol=0.03)
    np.testing.assert_allclose(found.noise_variance, exact.noise_variance, rtol=0.06)
    assert found.converged.all() and found.log_evidence is None


@pytest.mark.slow
@pytest.mark.parametrize("spike", [0.0, 0.1])
@pytest.mark.parametrize("m", [1, 2])
def test_laplace_densities_are_integrated(spike, m):
    x, y, _ = make_rows(2, tasks=3, n=8, m=m, rho=0.8, heavy=True, ratio=0.1)
    prior = RowPrior(slab="laplace", spike_scale=spike, eta=0.4, noise_variance=1.0)
    found = gibbs_edges(x, y, prior, sweeps=1200, burn_in=50)
    for t in range(3):
        p, mean = laplace_pair(x[t], y[t], 1.0, 0.4, 1.0, spike)
        np.testing.assert_allclose(found.edge_prob[t], p, atol=0.02)
        np.testing.assert_allclose(found.weight_mean[t], mean, atol=0.04)


@pytest.mark.parametrize("over", ["feature", "all"])
def test_a_shared_rate_couples_the_tasks(over):
    x, y, _ = make_rows(3, tasks=3, n=9, m=2)
    want = exact_shared(x, y, 1.0, (0.3, 0.3), over)
    prior = RowPrior(eta_prior=(0.3, 0.3), eta_over=over, noise_variance=1.0)
    found = gibbs_edges(x, y, prior, sweeps=2500, burn_in=100)
    np.testing.assert_allclose(found.edge_prob, want, atol=0.025)
    alone = enumerate_edges(x, y, RowPrior(eta_prior=(0.3, 0.3), noise_variance=1.0))
    assert np.abs(alone.edge_prob - want).max() > 0.06


def test_draws_are_states_of_the_chains():
    x, y, _ = make_rows(4, tasks=2, n=15, m=3, heavy=True, ratio=0.1)
    prior = RowPrior(slab="laplace", spike_scale=0.1)
    found = gibbs_edges(x, y, prior, sweeps=400, burn_in=50)
    drawn = found.draws(2000)
    np.testing.assert_allclose(drawn.edge.mean(0), found.edge_prob, atol=0.08)
    np.testing.assert_allclose(drawn.weight.mean(0), found.weight_mean, atol=0.12)
    assert (drawn.weight != 0).all()  # the spike is a density
    assert len(found.draws(5000).edge) == 5000


def test_chains_that_disagree_are_told():
    x, y, _ = make_rows(5, tasks=2, n=60, m=2, eta=0.999)
    x[0, :, 1] = x[0, :, 0] + 1e-4 * x[0, :, 1]  # one or the other, and no way between
    prior = RowPrior(noise_variance=0.01, eta=0.01, slab_scale=3.0)
    found = gibbs_edges(x, 50 * y, prior, sweeps=30, burn_in=5)
    assert found.gap[0].max() > UNRESOLVED
    np.testing.assert_array_equal(found.converged, (found.gap <= UNRESOLVED).all(-1))
    assert not found.converged[0]


def test_same_seed_same_answer():
    x, y, _ = make_rows(6, tasks=2)
    one, again, other = (
        gibbs_edges(x, y, RowPrior(), sweeps=20, burn_in=5, seed=s).edge_prob for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"sweeps": 0}, "sweeps: want a whole number of at least 1, got 0"),
        ({"burn_in": -1}, "burn_in: want a whole number of at least 0, got -1"),
        ({"chains": 1}, "chains: want a whole number of at least 2, got 1"),
    ],
)
def test_bad_options_are_named(option, message):
    x, y, _ = make_rows(0, tasks=2)
    with pytest.raises(ValueError, match=message):
        gibbs_edges(x, y, RowPrior(), **option)
