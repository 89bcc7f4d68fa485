"""Edges of a fit of tasks: the methods agree with the truth, with each other, and with the row functions."""

from __future__ import annotations

import numpy as np
import pytest

import pyro_sparse as ps
from pyro_sparse.inference.edges.regression.bootstrap import bootstrap_edges
from pyro_sparse.inference.edges.regression.enumerate import enumerate_edges
from pyro_sparse.inference.edges.regression.ep import ep_edges
from pyro_sparse.inference.edges.regression.rows import RowPrior
from pyro_sparse.inference.edges.regression.tasks import TASK_METHODS, row_prior, task_rows
from pyro_sparse.metrics import mcc
from tests._tasks import quick_fit, tasks_on_latents

X, Y, Z, W = tasks_on_latents()


@pytest.fixture(scope="module")
def fit():
    return quick_fit(X, Y)


@pytest.fixture(scope="module")
def order(fit):
    return mcc(Z.reshape(-1, 3), fit.transform().reshape(-1, 3)).permutation


def probabilities(fit, method, **options):
    return ps.edge_prob(fit.edge_posterior(method, num_draws=20, **options)).to_numpy()


@pytest.mark.parametrize("method", ["auto", pytest.param("enumerate", marks=pytest.mark.slow), "score"])
def test_the_supports_are_found(fit, order, method):
    assert ((probabilities(fit, method)[:, order] > 0.5) == (W != 0)).mean() > 0.98


def test_enumeration_and_expectation_propagation_agree_under_one_prior(fit):
    fit = fit.adapt(X[:20], Y[:20])
    same = {"slab": "normal", "slab_scale": 1.0, "spike_scale": 0.0, "eta_over": "row"}
    exact, found = probabilities(fit, "enumerate", **same), probabilities(fit, "ep", **same)
    np.testing.assert_allclose(found, exact, atol=0.03)
    z, y, mask = task_rows(fit, fit.best)
    direct = enumerate_edges(
        z, y, RowPrior(**same, noise_prior="learned", target_scale=fit.tasks.target_scale), mask
    )
    np.testing.assert_allclose(exact, direct.edge_prob, atol=1e-12)


@pytest.mark.slow
def test_gibbs_agrees_with_expectation_propagation():
    x, y, *_ = tasks_on_latents(seed=3, t=6, noise=0.8)
    few = quick_fit(x, y, restarts=1)
    many = {"chains": 20, "sweeps": 400, "burn_in": 100}  # side by side they cost little
    np.testing.assert_allclose(probabilities(few, "gibbs", **many), probabilities(few, "ep"), atol=0.06)


def test_the_bootstrap_has_the_program_s_own_spike(fit, order):
    found = fit.edge_posterior("bootstrap", num_draws=20, seed=3, replicates=8)
    p = ps.edge_prob(found).to_numpy()
    assert ((p[:, order] > 0.5) == (W != 0)).mean() > 0.98
    at_mode = {"noise_prior": (1.0, 0.02), "spike_scale": 1 / fit.model.prior.spike_rate}
    own = row_prior(fit, **at_mode)
    z, y, mask = task_rows(fit, fit.best)
    direct = bootstrap_edges(z, y, own, mask, replicates=8, seed=3)
    np.testing.assert_allclose(p, direct.edge_prob, atol=1e-12)
    assert "Bayesian bootstrap" in found.attrs["note"] and "too sure" in found.attrs["note"]
    wide = probabilities(fit, "bootstrap", replicates=8, spike_scale=0.1)
    assert np.abs(wide - p).max() > 0.01


def test_rows_are_those_of_the_fit(fit):
    for r in range(fit.n_restarts):
        z, y, mask = task_rows(fit, r)
        assert mask is None and np.array_equal(y, fit.tasks.y)
        if r == fit.best:
            np.testing.assert_allclose(z, fit.transform(), atol=1e-6)
        else:  # in the frame of the best
            both = np.corrcoef(z.reshape(-1, 3), fit.transform().reshape(-1, 3), rowvar=False)[:3, 3:]
            assert (np.diag(both) > 0.98).all()


def test_the_prior_is_the_program_s_with_a_point_mass(fit):
    prior = row_prior(fit)
    assert prior.slab == "laplace" and prior.slab_scale == 1.0 and prior.spike_scale == 0.0
    assert row_prior(fit, spike_scale=0.01).spike_scale == 0.01


def with_prior(**settings):
    """A rough fit of a few noisy tasks under a spike-and-slab lasso of these settings."""
    x, y, *_ = tasks_on_latents(t=12, n=12, g=4, k=2, noise=1.5)
    prior = ps.priors.SpikeSlabLasso(lambda0=100.0, **settings)
    model = ps.models.MultiTaskRegression(4, 2, prior=prior)
    return ps.fit(model, x, y, steps=20, sparse_steps=2, restarts=1, seed=1, progress=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "eta_prior", "eta_over"),
    [
        ({"a": 2.0, "b": 30.0}, (2.0, 30.0), "feature"),
        ({}, (1.0, 12.0), "feature"),  # b="auto": as many as there are tasks
        ({"eta": "global"}, (1.0, 24.0), "all"),
        ({"expected_size": 3}, (1.0, 3.0), "feature"),
        ({"column": "ibp", "alpha": 0.5}, (0.25, 1.0), "feature"),
    ],
)
def test_the_beta_prior_is_the_program_s(settings, eta_prior, eta_over):
    fit = with_prior(**settings)
    prior = row_prior(fit)
    assert prior.eta_prior == eta_prior and prior.eta_over == eta_over
    new = fit.adapt(fit.tasks.x[:5], fit.tasks.y[:5])
    assert row_prior(new).eta_prior == eta_prior  # what the fit used, not one for five tasks
    assert row_prior(fit, eta_prior=(5.0, 6.0), eta_over="row").eta_prior == (5.0, 6.0)


@pytest.mark.slow
def test_few_edges_are_found_where_few_are_expected():
    few, many = with_prior(a=1.0, b=200.0), with_prior(a=200.0, b=1.0)
    for method, options in {
        "ep": {},
        "enumerate": {},
        "gibbs": {"sweeps": 200, "burn_in": 50},
        "bootstrap": {"replicates": 8},
    }.items():
        low, high = (probabilities(fit, method, **options).mean() for fit in (few, many))
        assert low < 0.5 < 0.9 < high


@pytest.mark.slow
def test_a_missing_target_is_no_sample(fit):
    y = Y.copy()
    y[:, 20:] = np.nan
    cut = quick_fit(X, y, restarts=1)
    short = quick_fit(X[:, :20], Y[:, :20], restarts=1)
    np.testing.assert_allclose(cut.transform()[:, :20], short.transform(), atol=1e-3)
    z, target, mask = task_rows(cut, 0)
    assert mask is not None
    fewer = ep_edges(z[:, :20], target[:, :20], row_prior(cut)).edge_prob
    np.testing.assert_allclose(ep_edges(z, target, row_prior(cut), mask).edge_prob, fewer, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        (
            "best",
            {},
            r"method: want one of \['auto', 'ep', 'enumerate', 'gibbs', 'bootstrap', 'score'\], got 'best'",
        ),
        ("ep", {"num_draws": 0}, "num_draws: want a whole number of at least 1"),
    ],
)
def test_bad_arguments(fit, method, options, message):
    with pytest.raises(ValueError, match=message):
        fit.edge_posterior(method, **options)


def test_no_edges_without_axes_or_tasks(fit, tmp_path):
    with pytest.raises(ValueError, match="inner='ridge' has no axes"):
        quick_fit(X, Y, inner="ridge", restarts=1).edge_posterior()
    fit.save(tmp_path / "fit.pt")
    with pytest.raises(ValueError, match="loaded without its tasks"):
        ps.load(tmp_path / "fit.pt").edge_posterior()
    assert set(TASK_METHODS) == {"ep", "enumerate", "gibbs", "bootstrap", "score"}
