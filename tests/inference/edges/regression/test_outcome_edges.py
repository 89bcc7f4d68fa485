"""Edges of outcomes that are not normal, against enumeration by importance sampling and normal rows."""

from __future__ import annotations

import warnings

import numpy as np
import pyro.distributions as dist
import pytest
from scipy import integrate
from scipy.special import expit, gammaln
from scipy.stats import norm
from torch import nn

from benchmarks import _glm_rows as gold
from pyro_sparse.inference.edges.regression.ep import ep_edges
from pyro_sparse.inference.edges.regression.outcome_edges import outcome_edges
from pyro_sparse.inference.edges.regression.outcome_parameters import Coordinates, located, node_rule
from pyro_sparse.inference.edges.regression.rows import RowPrior
from pyro_sparse.likelihoods import Likelihood, NegativeBinomial, Ordinal
from pyro_sparse.likelihoods.base import NOTHING

KNOWN = {"eta": gold.RATE, "intercept_sd": gold.INTERCEPT_SD}


def of_family(family):
    return Ordinal(levels=(0, gold.LEVELS - 1)) if family == "ordinal" else family


def compared(family, x, y, **prior):
    """What expectation propagation finds, and the exact probabilities and evidences."""
    found = outcome_edges(x, y, RowPrior(**KNOWN, **prior), likelihood=of_family(family))
    exact = [
        gold.exact(family, a, b, gold.RATE, gold.INTERCEPT_SD, points=2048) for a, b in zip(x, y, strict=True)
    ]
    assert min(e["effective"] for e in exact) > 100
    return found, np.array([e["edge_prob"] for e in exact]), np.array([e["log_evidence"] for e in exact])


@pytest.mark.parametrize("family", ["bernoulli", "poisson"])
@pytest.mark.parametrize("n", [15, 50])
def test_it_is_close_to_enumeration(family, n):
    x, y, _ = gold.rows(family, np.random.default_rng(n), 4, n, 3, 0.5)
    found, exact, evidence = compared(family, x, y)
    assert found.converged.all()
    assert np.abs(found.edge_prob - exact).mean() < 0.01
    assert np.abs(found.edge_prob - exact).max() < 0.04
    base = gammaln(y + 1).sum(1) if family == "poisson" else 0.0  # what predictors do not move is left out
    np.testing.assert_allclose(found.log_evidence, evidence + base, atol=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["ordinal", "negative_binomial"])
def test_what_is_not_known_of_parameters_is_averaged_over(family):
    x, y, _ = gold.rows(family, np.random.default_rng(4), 12, 25, 3, 0.5)
    found, exact, _ = compared(family, x, y)
    held = outcome_edges(x, y, RowPrior(**KNOWN), likelihood=of_family(family), average=False)
    error = np.abs(found.edge_prob - exact)
    assert error.mean() < 0.008 and error.max() < 0.08
    assert error.mean() < 0.7 * np.abs(held.edge_prob - exact).mean()


@pytest.mark.parametrize("family", ["ordinal", "negative_binomial"])
def test_draws_are_of_the_average(family):
    x, y, _ = gold.rows(family, np.random.default_rng(5), 3, 40, 3, 0.3)
    found = outcome_edges(x, y, RowPrior(**KNOWN), likelihood=of_family(family))
    draws = found.draws(2000, seed=0)
    assert draws.edge.shape == (2000, 3, 3)
    np.testing.assert_allclose(draws.edge.mean(0), found.edge_prob, atol=0.06)
    np.testing.assert_allclose(draws.weight.mean(0), found.weight_mean, atol=0.08)


@pytest.mark.slow
def test_a_rate_that_tasks_share_goes_with_an_average():
    """Many tasks that use a feature make a doubtful edge to it more likely, parameters known or not."""
    x, y, edge = gold.rows("negative_binomial", np.random.default_rng(6), 30, 40, 3, 0.0)
    settings = {"likelihood": "negative_binomial"}
    alone = outcome_edges(x, y, RowPrior(eta=0.5), **settings)
    shared = outcome_edges(x, y, RowPrior(eta_over="all"), **settings)
    assert shared.log_evidence is None
    assert abs(shared.eta.mean() - edge.mean()) < 0.15
    assert shared.edge_prob.mean() < alone.edge_prob.mean()  # the share is about .3
    assert ((shared.edge_prob >= 0) & (shared.edge_prob <= 1)).all()


@pytest.mark.parametrize("count", [1, 2, 4])
def test_nodes_are_of_standard_normals(count):
    nodes, log_weight = node_rule(count)
    weight = np.exp(log_weight)
    assert weight.sum() == pytest.approx(1)
    np.testing.assert_allclose(weight @ nodes, 0, atol=1e-9)
    np.testing.assert_allclose(weight @ nodes**2, 1, atol=1e-9)


def test_a_quadratic_is_located():
    centre, sd = np.array([[0.3, -0.4]]), np.array([[0.2, 0.9]])
    found = located(lambda shift: -0.5 * (((shift - centre) / sd) ** 2).sum(0), 1, 2)
    np.testing.assert_allclose(found, [centre, sd], atol=1e-9)


class Unit(Likelihood):
    """Normal noise of variance 1, as a likelihood of one's own with nothing in closed form."""

    name = "unit"
    separable = True

    def forward(self, f, per_row=NOTHING):
        return dist.Normal(f, 1.0)

    def mean(self, f, per_row=NOTHING):
        return f


def linear_rows(seed=0, t=5, n=20, d=4):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(t, n, d))
    w = rng.normal(size=(t, d)) * (rng.random((t, d)) < 0.4)
    return x, (x @ w[..., None])[..., 0] + rng.normal(size=(t, n))


@pytest.mark.parametrize("prior", [{"eta": 0.3}, {}, {"eta_over": "feature"}, {"slab": "laplace"}])
def test_of_normal_outcomes_it_is_the_closed_form(prior):
    """Sites of normal densities are exact, so the two programs are one."""
    x, y = linear_rows()
    settings = {"intercept": False, **prior}
    closed = ep_edges(x, y, RowPrior(noise_variance=1.0, **settings), tol=1e-6)
    found = outcome_edges(x, y, RowPrior(**settings), likelihood=Unit(), tol=1e-6)
    np.testing.assert_allclose(found.edge_prob, closed.edge_prob, atol=1e-4)
    np.testing.assert_allclose(found.weight_mean, closed.weight_mean, atol=1e-4)
    np.testing.assert_allclose(found.weight_sd, closed.weight_sd, atol=1e-4)


def test_a_flat_intercept_is_the_limit_of_a_wide_one():
    x, y = linear_rows(1)
    closed = ep_edges(x, y + 3, RowPrior(noise_variance=1.0, eta=0.3), tol=1e-6)
    found = outcome_edges(x, y + 3, RowPrior(eta=0.3, intercept_sd=300.0), likelihood=Unit(), tol=1e-6)
    np.testing.assert_allclose(found.edge_prob, closed.edge_prob, atol=1e-4)


def test_a_mask_gives_what_leaving_out_would():
    x, y, _ = gold.rows("poisson", np.random.default_rng(0), 3, 30, 3, 0.3)
    mask = np.ones(y.shape, bool)
    mask[:, 22:] = False
    hidden = np.where(mask, y, np.nan)
    found = outcome_edges(x, hidden, RowPrior(), mask, likelihood="poisson")
    short = outcome_edges(x[:, :22], y[:, :22], RowPrior(), likelihood="poisson")
    np.testing.assert_allclose(found.edge_prob, short.edge_prob, atol=1e-6)


def test_a_constant_feature_keeps_its_prior_and_one_answer_says_little():
    x, y, _ = gold.rows("bernoulli", np.random.default_rng(1), 3, 25, 3, 0.0)
    x[0, :, 1] = 7.0
    y[1] = 0.0
    found = outcome_edges(x, y, RowPrior(eta=0.2), likelihood="bernoulli")
    assert found.edge_prob[0, 1] == pytest.approx(0.2, abs=1e-3)
    assert (found.edge_prob[1] < 0.2).all()  # a weight would have made answers differ
    assert np.isnan(found.noise_variance).all()


def test_draws_are_of_the_posterior():
    x, y, _ = gold.rows("bernoulli", np.random.default_rng(2), 4, 60, 3, 0.5)
    found = outcome_edges(x, y, RowPrior(**KNOWN), likelihood="bernoulli")
    draws = found.draws(4000, seed=1)
    np.testing.assert_allclose(draws.edge.mean(0), found.edge_prob, atol=0.04)
    np.testing.assert_allclose(draws.weight.mean(0), found.weight_mean, atol=0.06)
    np.testing.assert_array_equal(draws.edge, found.draws(4000, seed=1).edge)


@pytest.mark.parametrize("off", ["probit", "heavy latents"])
def test_off_the_model_it_still_is_its_own_posterior(off):
    """Outcomes by a probit link, latents with heavy tails: the numbers are those of the logit model."""
    rng = np.random.default_rng(5)
    t, n, d = 5, 50, 3
    x = gold.correlated(rng, t, n, d, 0.3)
    if off == "heavy latents":
        x = rng.standard_t(2, size=(t, n, d))
        x -= x.mean(1, keepdims=True)
    w = 1.5 * (rng.random((t, d)) < 0.5) * rng.choice([-1, 1], (t, d))
    f = (x @ w[..., None])[..., 0]
    y = (rng.random(f.shape) < (norm.cdf(f) if off == "probit" else expit(f))).astype(float)
    found, exact, _ = compared("bernoulli", x, y)
    assert np.abs(found.edge_prob - exact).mean() < 0.01
    assert found.edge_prob[w != 0].min() > found.edge_prob[w == 0].max()


def test_overdispersion_is_not_taken_for_edges():
    """Counts of no latent that vary more than Poisson ones: the negative binomial is not misled by them."""
    rng = np.random.default_rng(3)
    x = gold.correlated(rng, 40, 40, 4, 0.0)
    y = rng.poisson(rng.gamma(0.5, 8, size=x.shape[:2])).astype(float)
    share = {
        family: outcome_edges(x, y, RowPrior(eta=0.3), likelihood=family).edge_prob.mean()
        for family in ("poisson", "negative_binomial")
    }
    assert share["poisson"] > 0.3 > 0.2 > share["negative_binomial"]


class Coupled(Unit):
    separable = False


class Loose(Unit):
    """A parameter for each task, and no word on how to restrict it."""

    def setup(self, n_features, n_restarts=1):
        import torch

        self.shift = nn.Parameter(torch.zeros(n_restarts, 1, n_features))


@pytest.mark.parametrize(
    ("likelihood", "options", "message"),
    [
        ("multinomial", {}, 'likelihood: "multinomial" is of rows of shares'),
        ("categorical", {}, 'a task of 0 and 1 for each answer, likelihood="bernoulli"'),
        ("bernoulli", {}, "y: task '0' holds"),
        ("nothing", {}, "likelihood='nothing' is not known"),
        (Coupled(), {}, "likelihood: Coupled does not say that an outcome goes by its own predictor alone"),
        (Loose(), {}, "likelihood: Loose has parameters and no of_features"),
        ("poisson", {"noise_variance": 1.0}, "prior: outcomes that are not normal have no noise"),
    ],
)
def test_what_cannot_be_had_is_refused(likelihood, options, message):
    x, y = linear_rows()
    counts = np.abs(np.round(y)) + 2
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        outcome_edges(x, counts, RowPrior(**options), likelihood=likelihood)


def test_the_density_of_parameters_is_that_of_what_the_prior_is_about():
    """A half normal of theta^(-1/2), seen as a density of log theta: it adds up to one."""
    grid = np.linspace(-5.5, 6.5, 1201)
    likelihood = NegativeBinomial(size_factors=False)
    likelihood.setup(1)
    likelihood.double()
    coordinates = Coordinates(likelihood, 1)
    assert coordinates.count == 1
    start = float(likelihood.log_theta.detach())
    density = []
    for value in grid:
        coordinates.at(np.array([[value - start]]))
        density.append(np.exp(coordinates.log_prior()[0]))
    assert integrate.trapezoid(density, grid) == pytest.approx(1, abs=0.06)  # theta is bent at both ends
    assert float(coordinates.at(np.array([[0.5]])).log_theta.detach()) == pytest.approx(start + 0.5)


def test_sweeps_that_do_not_suffice_are_said():
    x, y, _ = gold.rows("bernoulli", np.random.default_rng(0), 3, 30, 3, 0.5)
    with pytest.warns(RuntimeWarning, match="have not converged in 1 sweeps"):
        found = outcome_edges(x, y, RowPrior(**KNOWN), likelihood="bernoulli", max_sweeps=1, tol=1e-6)
    assert not found.converged.all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcome_edges(x, y, RowPrior(**KNOWN), likelihood="bernoulli")
