"""Relaxed edges against integrals, a change of variables by finite differences, and enumeration."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import TraceMeanField_ELBO
from scipy import integrate, special, stats
from torch.distributions import kl_divergence

from pyro_sparse.distributions import RelaxedEdges
from pyro_sparse.distributions.relaxed_edges import bernoulli_kl

TAUS = [0.1, 0.5, 1.0, 3.0]
ALPHAS = [-4.0, 0.3, 6.0]


def double(values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("tau", TAUS)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_density_integrates_to_its_mass(alpha, tau):
    """In s = logit(g), so that mass close to 0 and 1 is seen: p(g) dg = p(g) g (1 - g) ds."""
    d = RelaxedEdges(double(alpha), tau)

    def density(s):
        g = special.expit(s)
        return np.exp(d.log_prob(double(g)).item()) * g * special.expit(-s)

    # Further out a double cannot tell g from 1 well; the mass inside is known, P(|s| < 16).
    peak, span = alpha / tau, 16.0
    inside = stats.logistic.cdf(tau * span - alpha) - stats.logistic.cdf(-tau * span - alpha)
    points = sorted({0.0, float(np.clip(peak, -span, span))})
    found = integrate.quad(density, -span, span, points=points, limit=400)[0]
    assert found == pytest.approx(inside, rel=1e-6)


@pytest.mark.parametrize("tau", TAUS)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_density_is_the_change_of_variables(alpha, tau):
    """Density of the logistic noise over the slope of the map, taken by central differences."""
    noise = np.array([-3.0, -0.4, 0.0, 1.7])
    noise = np.clip(noise, -alpha - 14 * tau, -alpha + 14 * tau)  # where g is told from 0 and 1

    def gate(x):
        return special.expit((alpha + x) / tau)

    step = 1e-5 * tau
    slope = (gate(noise + step) - gate(noise - step)) / (2 * step)
    found = RelaxedEdges(double(alpha), tau).log_prob(torch.as_tensor(gate(noise))).numpy()
    np.testing.assert_allclose(found, stats.logistic.logpdf(noise) - np.log(slope), atol=2e-4)


def test_draws_follow_the_law():
    """Kolmogorov-Smirnov against the logistic distribution of the noise, and the share above one half."""
    torch.manual_seed(0)
    alpha, tau = 0.8, 0.6
    g = RelaxedEdges(double(alpha), tau).rsample((20000,)).numpy()
    assert ((g > 0) & (g < 1)).all()
    assert stats.kstest(tau * special.logit(g) - alpha, "logistic").pvalue > 0.01
    assert (g > 0.5).mean() == pytest.approx(special.expit(alpha), abs=0.015)


@pytest.mark.parametrize("tau", TAUS)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_relaxed_mean_is_the_integral(alpha, tau):
    def mean(u):
        return special.expit((alpha + special.logit(u)) / tau)

    middle = special.expit(-alpha)
    wanted = integrate.quad(mean, 0, middle, limit=500)[0] + integrate.quad(mean, middle, 1, limit=500)[0]
    assert RelaxedEdges(double(alpha), tau).relaxed_mean.item() == pytest.approx(wanted, abs=1e-7)


def test_relaxed_mean_at_temperature_one_in_closed_form():
    a = np.array([-3.0, -0.5, 2.0])
    wanted = np.exp(a) * (np.exp(a) - 1 - a) / np.expm1(a) ** 2
    np.testing.assert_allclose(RelaxedEdges(torch.as_tensor(a), 1.0).relaxed_mean.numpy(), wanted, atol=1e-8)


def test_mean_is_that_of_what_is_drawn():
    torch.manual_seed(0)
    for hard in (False, True):
        d = RelaxedEdges(torch.tensor([1.5, -1.0]), 2.0, hard=hard)
        np.testing.assert_allclose(d.rsample((20000,)).mean(0).numpy(), d.mean.numpy(), atol=0.015)
    assert (RelaxedEdges(torch.tensor(1.5), 2.0).mean - torch.tensor(1.5).sigmoid()).abs() > 0.05


def test_hard_gates_are_zero_or_one_with_the_slope_of_the_soft_ones():
    logits = torch.linspace(-3, 3, 50, dtype=torch.float64, requires_grad=True)
    grads, values = [], []
    for hard in (True, False):
        torch.manual_seed(1)
        g = RelaxedEdges(logits, 0.7, hard=hard).rsample()
        grads.append(torch.autograd.grad(g.sum(), logits)[0])
        values.append(g.detach())
    assert set(values[0].tolist()) == {0.0, 1.0}
    assert torch.equal(values[0], (values[1] > 0.5).double())
    soft = values[1]
    np.testing.assert_allclose(grads[0], (soft * (1 - soft) / 0.7).numpy(), rtol=1e-10)
    torch.testing.assert_close(grads[0], grads[1], rtol=0, atol=0)


def test_hard_log_prob_is_the_mass():
    logits = double([-2.0, 0.0, 40.0])
    d = RelaxedEdges(logits, 0.5, hard=True)
    for value in (0.0, 1.0):
        wanted = stats.bernoulli.logpmf(int(value), special.expit(logits.numpy()))
        wanted[2] = 0.0 if value else -40.0  # there scipy's 1 - p is zero
        np.testing.assert_allclose(d.log_prob(torch.full((3,), value).double()).numpy(), wanted, atol=1e-12)


def test_soft_gradient_is_that_of_the_mean():
    """Reparameterised: the gradient of the average draw is the slope of the expectation."""
    torch.manual_seed(0)
    logits = torch.full((200_000,), 0.7, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(RelaxedEdges(logits, 0.8).rsample().sum(), logits)
    low, high = (RelaxedEdges(double(0.7 + s), 0.8).relaxed_mean.item() for s in (-1e-4, 1e-4))
    assert found.mean().item() == pytest.approx((high - low) / 2e-4, rel=0.01)


@pytest.mark.parametrize("hard", [False, True])
def test_forced_edges_are_constants(hard):
    logits = torch.tensor([[0.3, torch.inf], [-torch.inf, -1.0]], requires_grad=True)
    tau = torch.tensor(0.5, requires_grad=True)
    required = torch.tensor([[False, True], [False, False]])
    forbidden = torch.tensor([[False, False], [True, False]])
    d = RelaxedEdges(logits, tau, hard=hard, required=required, forbidden=forbidden)
    g = d.rsample((100,))
    assert (g[:, 0, 1] == 1).all() and (g[:, 1, 0] == 0).all()
    assert d.edge_probability[0, 1] == d.mean[0, 1] == 1 and d.edge_probability[1, 0] == d.mean[1, 0] == 0
    log_prob = d.log_prob(g)
    assert (log_prob[:, 0, 1] == 0).all() and (log_prob[:, 1, 0] == 0).all()
    total = (g**2).sum() + log_prob.sum() + d.edge_probability.sum() + d.relaxed_mean.sum()
    by_logits, by_tau = torch.autograd.grad(total, [logits, tau])
    assert by_logits[0, 1] == 0 and by_logits[1, 0] == 0
    assert torch.isfinite(by_logits).all() and torch.isfinite(by_tau)
    assert by_logits[0, 0] != 0 and by_logits[1, 1] != 0


def test_extreme_logits_and_temperatures_stay_finite():
    logits = torch.tensor([-1e4, -30.0, 0.0, 30.0, 1e4], requires_grad=True)
    for tau in (0.01, 1.0, 100.0):
        d = RelaxedEdges(logits, tau)
        g = d.rsample((50,))
        assert ((g > 0) & (g < 1)).all()
        value = d.log_prob(g)
        (slope,) = torch.autograd.grad(value.sum() + g.sum(), logits)
        assert torch.isfinite(value).all() and torch.isfinite(slope).all()


def test_shapes_and_gates_per_sample():
    torch.manual_seed(0)
    d = RelaxedEdges(torch.zeros(2, 1, 3, 3), 1.0, required=torch.eye(3, dtype=torch.bool))
    wide = d.expand((2, 5, 3, 3))
    g = wide.rsample((7,))
    assert g.shape == (7, 2, 5, 3, 3) and wide.log_prob(g).shape == g.shape
    assert (g.diagonal(dim1=-2, dim2=-1) == 1).all()
    assert len(g[..., 0, 1].unique()) == 70  # a draw for every sample
    assert wide.to_event(2).log_prob(g).shape == (7, 2, 5)
    assert wide.edge_probability.shape == wide.relaxed_mean.shape == (2, 5, 3, 3)


@pytest.mark.parametrize("eta", [1e-9, 0.2, 0.5, 1 - 1e-9])
@pytest.mark.parametrize("alpha", [-25.0, -1.0, 0.0, 0.7, 25.0])
def test_kl_is_the_sum_over_both_values(alpha, eta):
    q = np.array([special.expit(-alpha), special.expit(alpha)])
    p = np.array([1 - eta, eta])
    wanted = special.rel_entr(q, p).sum()
    assert bernoulli_kl(double(alpha), double(eta)).item() == pytest.approx(wanted, rel=1e-9, abs=1e-15)


def test_kl_at_the_ends():
    ends = torch.tensor([-torch.inf, torch.inf, -1e30, 1e30], requires_grad=True)
    kl = bernoulli_kl(ends, 0.25)
    np.testing.assert_allclose(kl.detach().numpy(), -np.log([0.75, 0.25, 0.75, 0.25]), rtol=1e-6)
    assert torch.isfinite(torch.autograd.grad(kl.sum(), ends)[0]).all()
    assert bernoulli_kl(torch.tensor(-torch.inf), 0.0) == 0 == bernoulli_kl(torch.tensor(torch.inf), 1.0)
    assert bernoulli_kl(torch.tensor(0.0), 0.0) == torch.inf
    same = torch.linspace(-12, 12, 101)
    assert (bernoulli_kl(same, same.sigmoid()) >= 0).all()


def test_kl_gradient_by_finite_differences():
    alpha = double([-3.0, 0.1, 4.0]).requires_grad_()
    assert torch.autograd.gradcheck(lambda a: bernoulli_kl(a, 0.3), alpha)


def test_registered_divergence_leaves_forced_edges_out():
    required = torch.tensor([True, False, False])
    d = RelaxedEdges(torch.tensor([2.0, -1.0, 0.5]), 0.3, required=required)
    found = kl_divergence(d, dist.Bernoulli(torch.tensor(0.2)).expand((3,)))
    q = special.expit([-1.0, 0.5])
    wanted = special.rel_entr(q, 0.2) + special.rel_entr(1 - q, 0.8)
    np.testing.assert_allclose(found.numpy(), [0.0, *wanted], rtol=1e-5)
    whole = kl_divergence(d.to_event(1), dist.Bernoulli(torch.full((3,), 0.2)).to_event(1))
    assert whole.item() == pytest.approx(wanted.sum(), rel=1e-5)


@pytest.mark.slow
def test_a_pyro_program_with_edge_sites_finds_the_posterior():
    """y = 3 g x + noise: the guide's edge probability goes to where the evidence says, two edges of four."""
    pyro.set_rng_seed(0)
    x = torch.randn(40, 4)
    y = x @ torch.tensor([3.0, 0.0, -3.0, 0.0]) + torch.randn(40)
    weights = torch.tensor([3.0, 3.0, -3.0, -3.0])
    logits = torch.zeros(4, requires_grad=True)

    def model():
        g = pyro.sample("edges", dist.Bernoulli(0.5 * torch.ones(4)).to_event(1))
        pyro.sample("y", dist.Normal(x @ (g * weights), 1.0).to_event(1), obs=y)

    def guide():
        pyro.sample("edges", RelaxedEdges(logits, 0.5, hard=True).to_event(1))

    optimiser = torch.optim.Adam([logits], lr=0.1)
    with pyro.validation_enabled(True):
        for _ in range(150):
            optimiser.zero_grad()
            TraceMeanField_ELBO(num_particles=4, vectorize_particles=False).differentiable_loss(
                model, guide
            ).backward()
            optimiser.step()
    np.testing.assert_array_equal((logits > 0).numpy(), [True, False, True, False])
    assert logits.abs().min() > 2


def test_refused_arguments():
    logits = torch.zeros(3, 2)
    yes = torch.ones(2, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"edge \(0, 0\) is in both; take it out of one"):
        RelaxedEdges(logits, 1.0, required=yes, forbidden=yes)
    with pytest.raises(ValueError, match=r"required: got shape \(3,\), wanted one that .*\(3, 2\)"):
        RelaxedEdges(logits, 1.0, required=torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"forbidden: got dtype torch.float32, wanted torch.bool; compare"):
        RelaxedEdges(logits, 1.0, forbidden=torch.ones(3, 2))
    for temperature in (0.0, -1.0):
        with pytest.raises(ValueError, match="temperature"):
            RelaxedEdges(logits, temperature, validate_args=True)
    with pytest.raises(ValueError, match="logits"):
        RelaxedEdges(torch.tensor([torch.nan]), 1.0, validate_args=True)
    with pytest.raises(ValueError, match="value: 3 forced edges have another value; required edges must"):
        RelaxedEdges(logits, 1.0, required=yes[:1], forbidden=None, validate_args=True).log_prob(
            torch.tensor([[0.5, 1.0], [0.5, 1.0], [0.5, 1.0]])
        )
    with pytest.raises(ValueError, match="support"):
        RelaxedEdges(logits, 1.0, hard=True, validate_args=True).log_prob(torch.full((3, 2), 0.5))
    with pytest.raises(ValueError, match=r"eta: got values from -0.1 to 2, wanted them in \[0, 1\]; apply"):
        bernoulli_kl(torch.zeros(2), torch.tensor([-0.1, 2.0]))
