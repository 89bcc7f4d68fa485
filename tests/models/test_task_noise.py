"""The learned prior of the noise of tasks: beside numerical integration, and as a model declares it."""

from __future__ import annotations

import numpy as np
import pyro
import pytest
import torch
from scipy import integrate, stats

import pyro_sparse as ps
from pyro_sparse.data.tasks import as_tasks, relative_spread
from pyro_sparse.models._task_noise import LEVEL, SHAPE, log_inverse_gamma, typical_noise
from tests._tasks import quick_fit, tasks_on_latents

# rough axes and posteriors of rows: none of these tests is about how good they are
pytestmark = pytest.mark.usefixtures("hurried_module")


def squares_of(rng, shape, level, share, scale, dof):
    variance = stats.invgamma(shape, scale=shape * level).rvs(len(dof), random_state=rng)
    return variance * np.exp(-share * relative_spread(scale)) * rng.chisquare(dof)


def test_the_density_is_that_of_the_logarithm():
    v = np.array([0.01, 0.3, 4.0])
    expected = stats.invgamma(2.5, scale=0.7).logpdf(v) + np.log(v)
    np.testing.assert_allclose(log_inverse_gamma(np.log(v), 2.5, 0.7), expected, rtol=1e-12)


def test_the_grid_has_the_means_of_numerical_integration():
    dof, square = np.array([3, 5, 9, 2]), np.array([0.4, 2.0, 5.0, 0.1])
    log_a, log_s = np.linspace(-4, 6, 301)[:, None], np.linspace(-9, 5, 401)
    a, b = np.exp(log_a)[..., None], np.exp(log_a + log_s)[..., None]
    joint = stats.norm(*SHAPE).logpdf(log_a) + stats.norm(*LEVEL).logpdf(log_s)
    # square / (b / a) over dof is F distributed with (dof, 2 a)
    joint = joint + (stats.f(dof, 2 * a).logpdf(square * a / (b * dof)) + np.log(a / (b * dof))).sum(-1)
    mass = np.exp(joint - joint.max())

    def mean(values):
        total, of_values = (
            integrate.simpson(integrate.simpson(f, x=log_s), x=log_a[:, 0]) for f in (mass, mass * values)
        )
        return of_values / total

    shape, level, share = typical_noise(square, dof, np.zeros(4))
    assert np.log(shape) == pytest.approx(mean(log_a), abs=0.03)
    assert np.log(level) == pytest.approx(mean(log_s), abs=0.03)
    assert share == pytest.approx(0.5)  # nothing speaks for one or another


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_whether_noise_goes_with_the_targets_is_learned(share):
    rng = np.random.default_rng(1001)
    scale, dof = np.exp(rng.normal(size=200)), rng.integers(2, 9, 200)
    known = typical_noise(squares_of(rng, 8.0, 0.1, share, scale, dof), dof, relative_spread(scale))
    assert known[1] == pytest.approx(0.1, rel=0.25) and known[0] > 3
    assert known[2] == pytest.approx(share, abs=0.15)


def test_without_a_row_to_spare_the_prior_remains():
    shape, level, share = typical_noise(np.zeros(3), np.array([0, -1, -4]), np.zeros(3))
    assert (np.log(shape), np.log(level)) == pytest.approx((SHAPE[0], LEVEL[0]), abs=1e-3)
    assert share == pytest.approx(0.5)


def test_the_program_declares_what_is_learned():
    x, y, *_ = tasks_on_latents(t=30, n=12)
    fit = quick_fit(x, y, restarts=1)
    model, batch = fit.model, fit.tasks.batch(dtype=torch.float32)
    trace = pyro.poutine.trace(pyro.poutine.condition(model.model, data=values_of(model))).get_trace(batch)
    sites = {"noise_shape", "noise_level", "noise_share"}
    assert sites <= {*trace.stochastic_nodes, *trace.observation_nodes}
    prior = trace.nodes["variance"]["fn"]
    scale = np.exp(-float(model.noise_share) * relative_spread(fit.tasks.target_scale))
    expected = float(model.noise_shape * model.noise_level) * scale
    np.testing.assert_allclose(prior.rate[:, 0].numpy(), expected, rtol=1e-5)
    assert float(model.noise_level) < 0.2  # of these tasks, .04 over 1 and more

    fixed = ps.models.MultiTaskRegression(5, 3, noise_prior=(3.0, 1.0))
    fit = ps.fit(fixed, x, y, steps=20, sparse_steps=5, restarts=1, seed=1, progress=False)
    assert "noise_shape" not in pyro.poutine.trace(fit.model.model).get_trace(batch).nodes
    prior = fit.model.noise_prior()
    assert (float(prior.concentration), float(prior.rate)) == (3.0, 1.0)


def test_weights_of_a_fit_are_those_of_little_noise_and_noise_that_of_the_learned_prior():
    """So is what trains the latents: the mode under a learned prior has next to no weights at few rows."""
    x, y, *_ = tasks_on_latents(t=40, n=6, noise=1.0)
    kinds = {}
    for prior in ("learned", (1.0, 0.02)):
        model = ps.models.MultiTaskRegression(5, 3, noise_prior=prior)
        kinds[prior] = ps.fit(model, x, y, steps=40, sparse_steps=10, restarts=1, seed=1, progress=False)
    learned, fixed = kinds.values()
    np.testing.assert_array_equal(learned.transform(), fixed.transform())
    np.testing.assert_array_equal(learned.weights, fixed.weights)
    model, data = learned.model, learned.tasks.batch(dtype=torch.float64)
    f = model.standardised(data.inputs.to(model.turn)).detach().double()
    f = f - f.mean(1, keepdim=True)
    square = ((data.y - (f @ model.weights[0].double().unsqueeze(-1))[..., 0]) ** 2).sum(1)
    prior = model.noise_prior(data.spread)
    mode = (prior.rate + square / 2) / (prior.concentration + 1 + 6 / 2)
    np.testing.assert_allclose(model.variance.numpy(), mode.numpy(), rtol=1e-4)
    assert learned.noise.mean() > 1.2 * fixed.noise.mean()


def values_of(model):
    return {name: getattr(model, name) for name in ("noise_shape", "noise_level", "noise_share")}


@pytest.mark.parametrize("prior", ["flat", (1.0,), (1.0, -1.0), (np.nan, 1.0)])
def test_other_priors_are_refused(prior):
    with pytest.raises(ValueError, match="noise_prior: got .*want 'learned', or two positive numbers"):
        ps.models.MultiTaskRegression(5, 3, noise_prior=prior)


def test_units_of_all_outcomes_do_not_matter():
    x, y, *_ = tasks_on_latents(t=20, n=6, noise=0.5)
    small, large = (as_tasks(x, y * unit).batch(dtype=torch.float64).spread for unit in (1e-3, 1e4))
    torch.testing.assert_close(small, large, rtol=1e-9, atol=1e-9)
