"""What all three methods ask of their input, and what they say when they do not get it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyro_sparse.inference.edges.regression.enumerate import enumerate_edges
from pyro_sparse.inference.edges.regression.ep import ep_edges
from pyro_sparse.inference.edges.regression.gibbs import gibbs_edges
from pyro_sparse.inference.edges.regression.rows import RowPrior
from tests.inference._rows import make_rows


def quick_gibbs(*args, **options):
    return gibbs_edges(*args, **{"sweeps": 20, "burn_in": 5, "chains": 2, **options})


METHODS = [enumerate_edges, ep_edges, quick_gibbs]
X, Y, _ = make_rows(0, tasks=3, n=12, m=4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"slab": "cauchy"}, "slab: want one of"),
        ({"eta_over": "task"}, "eta_over: want one of"),
        ({"slab_units": "feature"}, "slab_units: want one of"),
        ({"slab_scale": 0.0}, "slab_scale: want numbers above 0 and finite"),
        ({"slab_scale": [1.0, np.nan]}, "slab_scale: want numbers above 0"),
        ({"noise_variance": -1.0}, "noise_variance: want numbers above 0 and finite"),
        ({"eta": 1.0}, "eta: want numbers above 0 and below 1, got 1.0"),
        ({"eta_prior": (1.0, 0.0)}, "eta_prior: want two positive numbers"),
        ({"noise_prior": (1.0,)}, "noise_prior: want two positive numbers"),
        (
            {"slab": "laplace", "spike_scale": 1.0},
            "spike_scale: want 0 or more and less than slab_scale, got 1.0",
        ),
        (
            {"spike_scale": 0.1},
            "spike_scale: with the normal slab absent weights are zero, got 0.1; set it to 0",
        ),
        ({"slab": "laplace", "slab_units": "noise"}, "slab_units: a Laplace slab in units of unknown noise"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        RowPrior(**settings)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"features": X[0]},
            r"features: want shape \(..., task, sample, feature\).*got \(12, 4\); one table",
        ),
        ({"features": X[:, :, :0]}, "features: want shape"),
        ({"targets": Y[:, :5]}, r"targets: want the tasks and samples of features, \(3, 12\), got \(3, 5\)"),
        ({"mask": np.ones((3, 11))}, r"mask: want booleans of shape \(..., task, sample\) \(3, 12\)"),
        ({"mask": np.full((3, 12), 0.5)}, "mask: want booleans"),
        ({"features": np.where(np.arange(4) == 1, np.nan, X)}, r"features: want finite.*\(0, 0\); set mask"),
        ({"targets": np.where(np.arange(12) == 7, np.inf, Y)}, r"targets: want finite.*\(0, 7\)"),
        (
            {"mask": np.arange(12) < np.array([[5], [0], [5]])},
            r"mask: task \(1,\) has no samples, want at least 1",
        ),
        (
            {"slab_scale": np.ones(3)},
            r"slab_scale: want a number or an array that fits .* \(3, 4\), got shape \(3,\)",
        ),
        ({"eta": np.full((2, 4), 0.5)}, r"eta: want a number or an array that fits"),
        (
            {"noise_variance": np.ones(4)},
            r"noise_variance: want a number .* \(..., task\) \(3,\), got shape \(4,\)",
        ),
    ],
)
def test_bad_input_is_named(method, change, message):
    settings = {k: change[k] for k in ("slab_scale", "eta", "noise_variance") if k in change}
    tables = {"features": X, "targets": Y, "mask": None} | {
        k: v for k, v in change.items() if k not in settings
    }
    with pytest.raises(ValueError, match=message):
        method(tables["features"], tables["targets"], RowPrior(**settings), tables["mask"])


@pytest.mark.parametrize("method", METHODS)
def test_what_does_not_exist_is_not_looked_at(method):
    mask = np.arange(12) < np.array([[12], [9], [7]])
    x, y = np.where(mask[..., None], X, np.nan), np.where(mask, Y, np.inf)
    padded = method(x, y, RowPrior(noise_variance=1.0), mask)
    alone = method(X[1:2, :9], Y[1:2, :9], RowPrior(noise_variance=1.0))
    assert padded.edge_prob.shape == (3, 4)
    tolerance = 0.5 if method is quick_gibbs else 1e-9  # another stream of random numbers
    np.testing.assert_allclose(padded.edge_prob[1], alone.edge_prob[0], atol=tolerance)


@pytest.mark.parametrize("method", METHODS)
def test_sets_of_tasks_tensors_and_draws(method):
    x, y = np.stack([X, X + 0.5]), np.stack([Y, Y - 0.7])
    prior = RowPrior(noise_variance=1.0)
    found = method(torch.tensor(x, requires_grad=True), torch.tensor(y), prior)
    assert found.edge_prob.shape == found.weight_sd.shape == found.eta.shape == found.gap.shape == (2, 3, 4)
    assert found.noise_variance.shape == found.converged.shape == (2, 3)
    if method is not quick_gibbs:  # intercepts, sets and constants have nothing to do with each other
        np.testing.assert_allclose(found.edge_prob[0], found.edge_prob[1], atol=1e-9)
        np.testing.assert_allclose(found.edge_prob[0], method(X, Y, prior).edge_prob, atol=1e-9)
    drawn = found.draws(7, seed=3)
    assert drawn.edge.shape == drawn.weight.shape == (7, 2, 3, 4)
    assert drawn.edge.dtype == np.int8
    np.testing.assert_array_equal(drawn.weight != 0, drawn.edge == 1)
    np.testing.assert_array_equal(found.draws(7, seed=3).weight, drawn.weight)
    assert (found.draws(7, seed=4).weight != drawn.weight).any()
    with pytest.raises(ValueError, match="num_draws: want a whole number of at least 1, got 0"):
        found.draws(0)


@pytest.mark.parametrize("method", METHODS)
def test_a_constant_feature_keeps_its_prior(method):
    x = X.copy()
    x[..., 2] = 1e6 / 3
    found = method(x, Y, RowPrior(eta=[0.3, 0.3, 0.2, 0.3], noise_variance=1.0, slab_scale=2.0))
    np.testing.assert_allclose(found.edge_prob[:, 2], 0.2, atol=1e-6)
    np.testing.assert_allclose(found.weight_mean[:, 2], 0, atol=1e-6)
    np.testing.assert_allclose(found.weight_sd[:, 2], np.sqrt(0.2) * 2, rtol=1e-4)
    without = method(x[..., [0, 1, 3]], Y, RowPrior(eta=0.3, noise_variance=1.0, slab_scale=2.0))
    if method is not quick_gibbs:
        np.testing.assert_allclose(found.edge_prob[:, [0, 1, 3]], without.edge_prob, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_units_may_be_changed_together(method):
    prior = RowPrior(slab_scale=1.5, noise_prior=(2.0, 1.0))
    changed = RowPrior(slab_scale=1.5e-9, noise_prior=(2.0, 1e-6))
    one, other = method(X, Y, prior), method(1e6 * X, 1e-3 * Y, changed)
    np.testing.assert_allclose(other.edge_prob, one.edge_prob, atol=1e-8)
    np.testing.assert_allclose(other.weight_sd, 1e-9 * one.weight_sd, rtol=1e-6)
    np.testing.assert_allclose(other.noise_variance, 1e-6 * one.noise_variance, rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_known_noise_may_be_the_unit_of_the_slab(method):
    one = method(X, Y, RowPrior(slab_scale=2.0, noise_variance=0.25))
    other = method(X, Y, RowPrior(slab_scale=4.0, noise_variance=0.25, slab_units="noise"))
    np.testing.assert_allclose(other.edge_prob, one.edge_prob, atol=1e-9)
    np.testing.assert_allclose(other.weight_mean, one.weight_mean, atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_one_sample_beside_an_intercept_leaves_the_prior_and_the_other_rows_alone(method):
    mask = np.arange(12) < np.array([[12], [1], [12]])
    prior = RowPrior(eta=0.3)
    rows = method(X, Y, prior, mask)
    np.testing.assert_allclose(rows.edge_prob[1], 0.3, atol=0.35 if method is quick_gibbs else 1e-6)
    others = method(X[[0, 2]], Y[[0, 2]], prior)
    tolerance = 0.5 if method is quick_gibbs else 1e-6
    np.testing.assert_allclose(rows.edge_prob[[0, 2]], others.edge_prob, atol=tolerance)
