"""The objective against Pyro's own estimator, a closed form, and itself on a partition."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import Trace_ELBO
from scipy.stats import multivariate_normal

from pyro_sparse.data.read import Batch
from pyro_sparse.inference.training.elbo import elbo_by_restart, rowwise_elbo
from pyro_sparse.models import SparseDecoder

R, N, G, K = 2, 12, 4, 2


def batch_of(n=N, g=G, seed=0, missing=True, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, g, generator=generator, dtype=dtype)
    mask = torch.rand(n, g, generator=generator) > 0.2 if missing else None
    x = x if mask is None else x * mask
    return Batch(x=x, inputs=x, mask=mask, total=n)


def model_of(missing=True, seed=0, **options):
    torch.manual_seed(seed)
    model = SparseDecoder(G, K, hidden=5, encoder_hidden=6, **options)
    model.setup(R, N, missing)
    model.double()
    with torch.no_grad():
        model.factor_cov[:, 0, 1] = model.factor_cov[:, 1, 0] = 0.4
        model.weights.normal_()
        model.encoder.skip.normal_(std=0.3)
    return model


class Linear:
    """A linear-Gaussian model whose evidence and exact posterior are known."""

    def __init__(self, x):
        self.x = x.double()
        generator = torch.Generator().manual_seed(4)
        self.w = torch.randn(R, G, K, generator=generator, dtype=torch.float64)
        self.sd = 0.7
        eye = torch.eye(K, dtype=torch.float64)
        self.covariance = torch.linalg.inv(eye + self.w.mT @ self.w / self.sd**2)
        self.location = self.x @ self.w @ self.covariance / self.sd**2  # (R, N, K)

    def model(self, batch):
        with (
            pyro.plate("run", R, dim=-2),
            pyro.plate("data", batch.total, subsample=torch.arange(len(batch))),
        ):
            eye = torch.eye(K, dtype=torch.float64)
            z = pyro.sample("z", dist.MultivariateNormal(torch.zeros(K, dtype=torch.float64), eye))
            pyro.sample("x", dist.Normal(z @ self.w.mT, self.sd).to_event(1), obs=batch.x)

    def guide(self, batch):
        location = batch.x @ self.w @ self.covariance / self.sd**2
        with (
            pyro.plate("run", R, dim=-2),
            pyro.plate("data", batch.total, subsample=torch.arange(len(batch))),
        ):
            pyro.sample("z", dist.MultivariateNormal(location, self.covariance.unsqueeze(1)))

    def log_evidence(self):
        covariance = self.w @ self.w.mT + self.sd**2 * torch.eye(G, dtype=torch.float64)
        return [multivariate_normal(np.zeros(G), c.numpy()).logpdf(self.x.numpy()) for c in covariance]


@pytest.mark.slow
def test_exact_posterior_gives_the_log_evidence():
    batch = batch_of(missing=False)
    problem = Linear(batch.x)
    torch.manual_seed(0)
    with torch.no_grad():
        draws = torch.stack([elbo_by_restart(problem.model, problem.guide, batch, R) for _ in range(1000)])
    expected = np.array(problem.log_evidence()).sum(1)
    error = draws.std(0) / math.sqrt(len(draws))
    assert ((draws.mean(0) - torch.as_tensor(expected)).abs() < 4 * error).all()
    assert (error < 0.2).all()


@pytest.mark.slow
def test_agrees_with_pyro_on_average():
    """The sum over restarts is Trace_ELBO's; here the divergence is exact, there it is sampled."""
    model, batch = model_of(likelihood="normal"), batch_of()
    with torch.no_grad():
        torch.manual_seed(0)
        ours = torch.stack([elbo_by_restart(model.model, model.guide, batch, R).sum() for _ in range(300)])
        estimator = Trace_ELBO(num_particles=1)
        theirs = []
        for _ in range(300):
            with pyro.poutine.block():
                theirs.append(-estimator.loss(model.model, model.guide, batch))
    theirs = torch.tensor(theirs, dtype=torch.float64)
    error = (ours.var() / 300 + theirs.var() / 300).sqrt()
    assert abs(ours.mean() - theirs.mean()) < 4 * error
    assert error < 0.02 * abs(ours.mean())
    assert ours.var() < theirs.var()


def test_restarts_do_not_mix():
    model, batch = model_of(missing=False), batch_of(missing=False)

    def value():
        torch.manual_seed(1)
        with torch.no_grad():
            return elbo_by_restart(model.model, model.guide, batch, R)

    before = value()
    with torch.no_grad():
        model.weights[1] += 1.0
    after = value()
    assert before[0] == after[0] and before[1] != after[1]


@pytest.mark.parametrize("missing", [False, True])
def test_minibatches_of_a_partition_average_to_the_whole(missing):
    model, batch = model_of(missing), batch_of(missing=missing)
    model.encoder.log_sd_range = (-40.0, -39.0)  # a guide without noise: no draw differs from another
    with torch.no_grad():
        full = elbo_by_restart(model.model, model.guide, batch, R)
        parts = [
            elbo_by_restart(model.model, model.guide, batch.rows(torch.tensor(rows)), R)
            for rows in np.random.default_rng(0).permutation(N).reshape(4, 3)
        ]
    torch.testing.assert_close(torch.stack(parts).mean(0), full, rtol=1e-6, atol=1e-6)


def test_global_terms_are_not_scaled_and_can_be_skipped():
    model, batch = model_of(missing=False), batch_of(missing=False)
    model.encoder.log_sd_range = (-40.0, -39.0)
    with torch.no_grad():
        full = elbo_by_restart(model.model, model.guide, batch, R)
        without = elbo_by_restart(model.model, model.guide, batch, R, skip=("W",))
    torch.testing.assert_close(full - without, model.prior.log_density(model.weights))
    doubled = replace(batch, total=2 * N)
    with torch.no_grad():
        twice = elbo_by_restart(model.model, model.guide, doubled, R)
        rows = rowwise_elbo(model, batch)
    torch.testing.assert_close(twice - full, rows.sum(-1), rtol=1e-6, atol=1e-6)
    expected = rows.sum(-1) + model.prior.log_density(model.weights)
    sigma2 = model.likelihood.priors()["sigma2"].log_prob(model.likelihood.values()["sigma2"])
    torch.testing.assert_close(full, expected + sigma2, rtol=1e-6, atol=1e-6)


def test_kl_weight_weighs_the_divergence_only():
    model, batch = model_of(missing=False), batch_of(missing=False)
    value = {}
    for weight in (0.2, 0.6, 1.0):
        model.kl_weight = weight
        torch.manual_seed(2)
        with torch.no_grad():
            value[weight] = elbo_by_restart(model.model, model.guide, batch, R)
    torch.testing.assert_close(value[0.6], (value[0.2] + value[1.0]) / 2)
    assert (value[0.2] > value[1.0]).all()


def test_rowwise_needs_no_training_weights_and_restores_them():
    model, batch = model_of(missing=False), batch_of(missing=False)
    model.encoder.log_sd_range = (-40.0, -39.0)
    expected = rowwise_elbo(model, batch)
    model.kl_weight, model.beta = 0.1, 3.0
    torch.testing.assert_close(
        rowwise_elbo(model, batch, num_draws=2, chunk=5), expected, rtol=1e-6, atol=1e-6
    )
    assert (model.kl_weight, model.beta) == (0.1, 3.0)
    assert expected.shape == (R, N)


def test_gradient_is_that_of_the_sum():
    model, batch = model_of(), batch_of()
    torch.manual_seed(0)
    elbo_by_restart(model.model, model.guide, batch, R).sum().backward()
    moved = [n for n, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0]
    assert set(moved) == {n for n, _ in model.named_parameters()}


def hyper_model(batch):
    with pyro.plate("restart", R, dim=-1):
        tau = pyro.sample("tau", dist.HalfCauchy(torch.ones(R)))
        pyro.sample("w", dist.Normal(torch.zeros(R, 3), tau.unsqueeze(-1)).to_event(1))


def hyper_guide(batch):
    with pyro.plate("restart", R, dim=-1):
        pyro.sample("tau", dist.LogNormal(torch.tensor([0.3, -0.5]), 0.4))
        pyro.sample("w", dist.Delta(torch.ones(R, 3)).to_event(1))


def skewed_guide(batch):
    """The same tau by a distribution that does not know its entropy."""
    with pyro.plate("restart", R, dim=-1):
        base = dist.Normal(torch.tensor([0.3, -0.5]), 0.4)
        pyro.sample(
            "tau", dist.TransformedDistribution(base, [torch.distributions.transforms.ExpTransform()])
        )
        pyro.sample("w", dist.Delta(torch.ones(R, 3)).to_event(1))


def drawn(guide):
    """Prior log-density at the guide's draw, and the guide's distribution and draw of tau."""
    torch.manual_seed(0)
    site = pyro.poutine.trace(guide).get_trace(None).nodes["tau"]
    tau = site["value"]
    weights = dist.Normal(0.0, tau).log_prob(torch.ones(())) * 3
    return dist.HalfCauchy(1.0).log_prob(tau) + weights, site["fn"], tau


def test_without_a_divergence_the_entropy_is_exact_and_the_rest_at_the_draw():
    expected, distribution, _ = drawn(hyper_guide)
    entropy = torch.tensor([0.3, -0.5]) + 0.5 * math.log(2 * math.pi * math.e * 0.4**2)
    torch.testing.assert_close(distribution.entropy(), entropy)
    torch.manual_seed(0)
    torch.testing.assert_close(elbo_by_restart(hyper_model, hyper_guide, None, R), expected + entropy)


def test_without_an_entropy_the_log_ratio_of_the_draw_is_used():
    expected, distribution, tau = drawn(skewed_guide)
    torch.manual_seed(0)
    found = elbo_by_restart(hyper_model, skewed_guide, None, R)
    torch.testing.assert_close(found, expected - distribution.log_prob(tau))


def test_a_bad_restart_is_named():
    model, batch = model_of(missing=False), batch_of(missing=False)
    with torch.no_grad():
        model.decoder.intercept[1] = torch.inf
    with pytest.raises(
        FloatingPointError, match=r"site 'x' has a non-finite log-density in restart\(s\) \[1\]"
    ):
        elbo_by_restart(model.model, model.guide, batch, R)


def test_empty_and_mismatched_programs_are_refused():
    with pytest.raises(ValueError, match="model: it has no sample site"):
        elbo_by_restart(lambda b: None, lambda b: None, None, R)

    def without_tau(batch):
        with pyro.plate("restart", R, dim=-1):
            pyro.sample("w", dist.Delta(torch.ones(R, 3)).to_event(1))

    with pytest.raises(ValueError, match="guide: it has no site 'tau', the model has"):
        elbo_by_restart(hyper_model, without_tau, None, R)

    def with_more(batch):
        hyper_guide(batch)
        pyro.sample("extra", dist.Normal(torch.zeros(R), 1.0).to_event(1))

    with pytest.raises(ValueError, match="guide: its site 'extra' is not an unobserved site of the model"):
        elbo_by_restart(hyper_model, with_more, None, R)
