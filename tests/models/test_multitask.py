"""The program of many regressions: its sites and density by hand, its scale, its units, what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyro
import pytest
import torch
from pyro import poutine
from scipy import optimize, stats
from torch import nn

from pyro_sparse.data.tasks import as_tasks
from pyro_sparse.inference.training.elbo import elbo_by_restart
from pyro_sparse.likelihoods import Normal
from pyro_sparse.models import MultiTaskRegression
from pyro_sparse.priors import RegularisedHorseshoe, SpikeSlabLasso

T, N, G, K = 5, 7, 4, 3


def batch_of(missing=False, seed=0):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(T, N, G)), rng.normal(size=(T, N))
    if missing:
        y[1, 4:] = y[3, 0] = np.nan
    return as_tasks(x, y).batch(dtype=torch.float64)


def model_of(seed=0, **options):
    torch.manual_seed(seed)
    model = MultiTaskRegression(G, K, **options)
    model.setup(T)
    model.double()
    generator = torch.Generator().manual_seed(seed)
    model.weights.copy_(torch.randn(1, T, K, generator=generator, dtype=torch.float64))
    model.weights[0, 0, 1] = 0
    model.variance.copy_(torch.rand(T, generator=generator, dtype=torch.float64) + 0.1)
    model.prior.eta.copy_(torch.tensor([[[0.2, 0.5, 0.7]]], dtype=torch.float64))
    return model


@pytest.mark.parametrize("missing", [False, True])
def test_model_and_guide_have_the_same_sites(missing):
    batch, model = batch_of(missing), model_of()
    with pyro.validation_enabled(True):
        elbo = elbo_by_restart(model.model, model.guide, batch, 1)
    assert elbo.shape == (1,)
    guide = poutine.trace(model.guide).get_trace(batch)
    sites = {n for n, s in guide.nodes.items() if s["type"] == "sample"} - {"restart", "task"}
    assert sites == {"W", "variance", "noise_shape", "noise_level", "noise_share"}
    assert len(pyro.get_param_store()) == 0


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("normalise", ["task", "global"])
def test_the_density_by_hand(missing, normalise):
    """Sample by sample, with scipy; encoder, centring, scaling, masks."""
    batch, model = batch_of(missing), model_of(normalise=normalise)
    linear = model.encoder[1]
    weight, bias = linear.weight.detach().numpy(), linear.bias.detach().numpy()
    raw = batch.inputs.numpy() @ weight.T + bias
    seen = np.ones((T, N), bool) if batch.mask is None else batch.mask.numpy()
    centred = np.stack([raw[t] - raw[t][seen[t]].mean(0) for t in range(T)])
    own = np.stack([centred[t][seen[t]].var(0) for t in range(T)])
    if normalise == "global":
        own = np.broadcast_to(own.mean(0), own.shape)
    w, v, total = model.weights[0].numpy(), model.variance.numpy(), 0.0
    # What training begins at, under the priors of shape and level; that of the share is uniform.
    total += stats.lognorm.logpdf(1.0, 1.0, scale=2.0) + stats.lognorm.logpdf(0.02, 1.5, scale=0.2)
    for t in range(T):
        for i in range(N):
            if seen[t, i]:
                mean = (centred[t, i] / np.sqrt(own[t] + 1e-5)) @ w[t]
                total += stats.norm.logpdf(float(batch.y[t, i]), mean, np.sqrt(v[t]))
        total += stats.invgamma.logpdf(v[t], 1.0, scale=0.02)
        for k, eta in enumerate([0.2, 0.5, 0.7]):
            slab, spike = (stats.laplace.pdf(w[t, k], scale=1 / rate) for rate in (1.0, 100.0))
            total += np.log(eta * slab + (1 - eta) * spike)
    got = elbo_by_restart(model.model, model.guide, batch, 1)
    assert got.item() == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("likelihood", ["normal", "bernoulli"])
@pytest.mark.parametrize("missing", [False, True])
def test_weights_of_tasks_scale_the_density_of_targets_alone(missing, likelihood):
    batch, model = batch_of(missing), model_of(likelihood=likelihood)
    if likelihood == "bernoulli":
        batch = replace(batch, y=(batch.y > 0).to(batch.y))
    weight = torch.tensor([0.2, 2.0, 0.8, 1.0, 1.0], dtype=torch.float64)

    def densities(batch):
        guide = poutine.trace(model.guide).get_trace(batch)
        trace = poutine.trace(poutine.replay(model.model, trace=guide)).get_trace(batch)
        trace.compute_log_prob()
        return {n: s["log_prob"] for n, s in trace.nodes.items() if s["type"] == "sample" and "log_prob" in s}

    plain, weighted = densities(batch), densities(replace(batch, weight=weight))
    torch.testing.assert_close(weighted["y"].sum(), (weight * plain["y"].sum(1)).sum(), rtol=1e-12, atol=0)
    for name in set(plain) - {"y"}:
        assert torch.equal(weighted[name], plain[name])
    some = torch.tensor([1, 3])  # a minibatch has the weights of its tasks, and is scaled to all
    part = densities(replace(batch, weight=weight).rows(some))["y"]
    torch.testing.assert_close(part.sum(1), T / 2 * weight[some] * plain["y"].sum(1)[some])


def test_masked_is_left_out():
    """A masked sample changes nothing, whatever its inputs and target."""
    batch, model = batch_of(missing=True), model_of()
    before = elbo_by_restart(model.model, model.guide, batch, 1)
    batch.x[~batch.mask] = 17.0
    batch.y[~batch.mask] = -5.0
    torch.testing.assert_close(elbo_by_restart(model.model, model.guide, batch, 1), before)
    assert (model.latents(batch)[~batch.mask] == 0).all()


def test_a_minibatch_is_scaled_to_all_tasks():
    batch, model = batch_of(), model_of()
    parts = [batch.rows(torch.tensor([t])) for t in range(T)]
    whole = elbo_by_restart(model.model, model.guide, batch, 1)
    several = [elbo_by_restart(model.model, model.guide, part, 1) for part in parts]
    torch.testing.assert_close(sum(several) / T, whole)
    weights = elbo_by_restart(model.model, model.guide, batch, 1, skip=("variance", "y"))
    one = elbo_by_restart(model.model, model.guide, parts[2], 1, skip=("variance", "y"))
    torch.testing.assert_close(one, weights)  # there is one prior of the weights


@pytest.mark.parametrize("n", [3, 40])
@pytest.mark.parametrize("square", [1e-6, 0.5, 30.0])
def test_the_noise_is_at_its_mode(n, square):
    model = model_of()
    prior = model.noise_prior()

    def minus(log_v):
        v = np.exp(log_v)
        density = float(prior.log_prob(torch.tensor(v, dtype=torch.float64)))
        return 0.5 * n * np.log(v) + 0.5 * square / v - density

    best = optimize.minimize_scalar(minus, bounds=(-12, 5), method="bounded", options={"xatol": 1e-10})
    got = model.noise_mode(torch.tensor([square], dtype=torch.float64), torch.tensor([float(n)]))
    assert float(got) == pytest.approx(max(np.exp(best.x), 1e-4), rel=1e-5)


def test_a_fitted_model_speaks_in_the_units_of_its_weights():
    batch, model = batch_of(missing=True), model_of()
    model.centre.copy_(torch.tensor([1.0, 2.0, 3.0]))
    model.spread.copy_(torch.tensor([0.5, 2.0, 4.0]))
    model.eval()
    z = model.standardised(batch.inputs)
    torch.testing.assert_close(z, (model.encode(batch.inputs) - model.centre) / model.spread)
    f = model.latents(batch)
    for t in range(T):
        seen = batch.mask[t]
        torch.testing.assert_close(f[t][seen], z[t][seen] - z[t][seen].mean(0))


def test_the_turn_is_behind_the_encoder():
    batch, model = batch_of(), model_of()
    raw = model.encode(batch.inputs)
    turn = torch.randn(K, K, dtype=torch.float64)
    with torch.no_grad():
        model.turn.copy_(turn)
    torch.testing.assert_close(model.encode(batch.inputs), raw @ turn.mT)


def test_a_copy_for_other_tasks_shares_nothing():
    """Also not the prior a caller made, which the constructor's arguments hold on to."""
    model = model_of(prior=SpikeSlabLasso(lambda0=20.0, a=1.0, b=1.0))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    new = model.for_tasks(2)
    assert new.weights.shape == (1, 2, K)
    assert new.prior.allowed.shape == (2, K)
    assert (new.weights == 0).all()
    assert new.weights.dtype == torch.float64
    torch.testing.assert_close(new.prior.eta, model.prior.eta)
    for own, copied in zip(model.encoder.parameters(), new.encoder.parameters(), strict=True):
        torch.testing.assert_close(own, copied)
    with torch.no_grad():
        for tensor in [*new.parameters(), new.prior.eta]:
            tensor.zero_()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name])


def test_the_program_takes_any_prior():
    batch = batch_of()
    torch.manual_seed(0)
    model = MultiTaskRegression(G, K, prior=RegularisedHorseshoe())
    model.setup(T)
    model.double()
    with pyro.validation_enabled(True):
        assert torch.isfinite(elbo_by_restart(model.model, model.guide, batch, 1)).all()


def test_making_a_model_draws_nothing():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    MultiTaskRegression((3, 16, 16), 2, encoder="conv")
    assert (torch.get_rng_state() == before).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_features": 0}, "n_features: got 0, n_latents 3, hidden 128; want whole numbers, all >= 1"),
        ({"n_features": ()}, r"n_features: got \(\)"),
        ({"n_features": (3, 0, 4)}, r"n_features: got \(3, 0, 4\)"),
        ({"n_features": 4.5}, "n_features: got 4.5"),
        ({"n_latents": 0}, "n_latents 0"),
        ({"n_latents": 2.5}, "n_latents 2.5"),
        ({"hidden": 0}, "hidden 0"),
        ({"n_latents": 5}, "n_latents: got 5, and a linear encoder of 4 inputs has no more; lower it"),
        ({"normalise": "batch"}, "normalise: want 'task' or 'global', got 'batch'"),
        ({"encoder": "forest"}, "encoder: want linear, mlp, conv or a Module, got 'forest'"),
        ({"encoder": nn.Linear(4, 2)}, r"want \(2, 3\), one number per latent"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ValueError, match=message):
        MultiTaskRegression(**{"n_features": G, "n_latents": K, **options})


def test_sizes_of_numpy_are_sizes():
    model = MultiTaskRegression(np.int64(4), np.int32(2))
    assert (model.n_features, model.n_latents, model.shape) == (4, 2, (4,))
    assert MultiTaskRegression([3, 16, 16], 2, encoder="conv").n_features == (3, 16, 16)


@pytest.mark.parametrize("prior", ["spike_slab_lasso", "nonsense", 3, SpikeSlabLasso])
def test_a_prior_is_an_instance_with_its_rates(prior):
    with pytest.raises(TypeError, match=r"prior: got .*; want a prior itself: SpikeSlabLasso\(lambda0=100"):
        MultiTaskRegression(G, K, prior=prior)


def outcome_model(family, outcomes, names=None, seed=0):
    """A model that knows these outcomes (task, sample), its weights and levels drawn; the tasks."""
    x = np.random.default_rng(0).normal(size=(T, N, G))
    torch.manual_seed(seed)
    model = MultiTaskRegression(G, K, likelihood=family)
    tasks = as_tasks(x, outcomes, units=model.take_outcomes)
    model.setup(T)
    model.double()
    model.weights.copy_(torch.randn(1, T, K, dtype=torch.float64))
    model.level.copy_(torch.randn(T, dtype=torch.float64))
    return model, tasks.batch(dtype=torch.float64)


def predictors(model, batch):
    return ((model.latents(batch) @ model.weights[0].unsqueeze(-1))[..., 0] + model.level[:, None]).detach()


def test_the_density_of_counts_by_hand():
    """Negative binomial by scipy, some outcomes missing, and the priors of level and overdispersion."""
    y = np.random.default_rng(1).poisson(3.0, size=(T, N)).astype(float)
    y[2, 4:] = np.nan
    model, batch = outcome_model("negative_binomial", y)
    f, cv = predictors(model, batch).numpy(), model.likelihood.values()["extra_cv"][0].detach().numpy()
    total = float(model.prior.log_density(model.weights)) + stats.norm.logpdf(model.level, scale=5).sum()
    total += stats.halfnorm.logpdf(cv).sum()
    for t in range(T):
        seen, size = ~np.isnan(y[t]), cv[t] ** -2
        p = size / (size + np.exp(f[t][seen]))
        total += stats.nbinom.logpmf(y[t][seen], size, p).sum()
    got = elbo_by_restart(model.model, model.guide, batch, 1)
    assert got.item() == pytest.approx(total, rel=1e-6)


def test_sites_of_outcomes_and_a_minibatch():
    y = np.random.default_rng(1).integers(0, 2, size=(T, N)).astype(float)
    model, batch = outcome_model("bernoulli", y)
    with pyro.validation_enabled(True):
        whole = elbo_by_restart(model.model, model.guide, batch, 1)
    guide = poutine.trace(model.guide).get_trace(batch)
    sites = {n for n, s in guide.nodes.items() if s["type"] == "sample"} - {"restart", "task"}
    assert sites == {"W", "intercept"}
    parts = [batch.rows(torch.tensor([t])) for t in range(T)]
    several = [elbo_by_restart(model.model, model.guide, part, 1) for part in parts]
    torch.testing.assert_close(sum(several) / T, whole)


def test_tasks_of_several_kinds_have_their_own_densities():
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, size=(T, N)).astype(float)
    y[3:] = rng.normal(170, 10, size=(2, N))
    kinds = {("task 4", "task 5"): "normal", "*": "bernoulli"}
    model, batch = outcome_model(kinds, y)
    f = predictors(model, batch)
    values = model.likelihood.mean(f.mT[None])[0].mT
    torch.testing.assert_close(values[:3], torch.sigmoid(f[:3]))
    torch.testing.assert_close(values[3:], f[3:])
    assert (batch.y[3:].mean(1).abs() < 1e-9).all()  # these are z-scored


def test_outcomes_are_drawn_from_their_density():
    y = np.random.default_rng(1).integers(0, 4, size=(T, N)).astype(float)
    y[:, :4] = np.arange(4)
    model, batch = outcome_model("ordinal", y)
    outcome = model.outcome(predictors(model, batch), batch)
    drawn = outcome.sample((4000,))
    assert drawn.shape == (4000, T, N)
    torch.testing.assert_close(drawn.mean(0), outcome.mean.detach(), atol=0.1, rtol=0)
    levels = torch.stack([outcome.log_prob(torch.full((T, N), float(v))).exp() for v in range(4)])
    torch.testing.assert_close(levels.sum(0).detach(), torch.ones(T, N, dtype=torch.float64))
    assert outcome.expand((2, T, N)).log_prob(batch.y).shape == (2, T, N)


def test_normal_outcomes_need_no_likelihood_and_its_noise_has_one_prior():
    assert MultiTaskRegression(G, K).likelihood is None
    assert MultiTaskRegression(G, K, likelihood=Normal()).likelihood is None
    with pytest.raises(ValueError, match="likelihood: the noise of tasks has a prior of its own"):
        MultiTaskRegression(G, K, likelihood=Normal(floor=0.05))
    with pytest.raises(ValueError, match='"categorical" is of rows of shares'):
        MultiTaskRegression(G, K, likelihood="categorical")
