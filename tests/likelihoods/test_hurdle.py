"""Counts with a hurdle: the battery, scipy, derivatives, draws, starts, exposures, a planted graph."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import pyro_sparse as ps
from pyro_sparse.inference.edges.density.likelihood_parameters import LikelihoodParameters
from pyro_sparse.likelihoods import Columns, HurdleNegativeBinomial, HurdlePoisson, get_likelihood
from pyro_sparse.testing.likelihood import LikelihoodTestCase

KINDS = [HurdlePoisson, HurdleNegativeBinomial]
both = pytest.mark.parametrize("kind", KINDS)


class TestHurdlePoisson(LikelihoodTestCase):
    bad_values = (-1.0, 2.5)

    def make(self):
        return HurdlePoisson()


class TestHurdlePoissonWithoutSizeFactors(TestHurdlePoisson):
    def make(self):
        return HurdlePoisson(size_factors=False)


class TestHurdleNegativeBinomial(TestHurdlePoisson):
    def make(self):
        return HurdleNegativeBinomial()


class TestHurdleNegativeBinomialWithoutSizeFactors(TestHurdlePoisson):
    def make(self):
        return HurdleNegativeBinomial(size_factors=False)


def _ready(kind, n_restarts=2):
    likelihood = kind(size_factors=False)
    likelihood.setup(3, n_restarts)
    with torch.no_grad():
        for p in likelihood.double().parameters():
            p.add_(0.7 * torch.randn(p.shape, generator=torch.Generator().manual_seed(3), dtype=p.dtype))
    return likelihood


def _f_and_x(n_restarts=2):
    generator = torch.Generator().manual_seed(1)
    f = torch.randn(n_restarts, 7, 3, generator=generator, dtype=torch.float64)
    return f, torch.randint(0, 4, (7, 3), generator=generator).double()


def _counts(likelihood, mu):
    """scipy's distribution of the counts before their zeros were taken."""
    if isinstance(likelihood, HurdlePoisson):
        return stats.poisson(mu)
    theta = 1 / likelihood.values()["extra_cv"].detach().numpy()[:, None] ** 2
    return stats.nbinom(theta, theta / (theta + mu))


@both
def test_density_mean_and_variance_are_those_of_scipy(kind):
    likelihood = _ready(kind)
    f, x = _f_and_x()
    exposure = torch.arange(1.0, 8.0, dtype=torch.float64).unsqueeze(-1)
    mu = exposure.numpy() * np.exp(f.numpy())
    counts, zero = _counts(likelihood, mu), likelihood.zero_prob().detach().numpy()
    positive = (1 - zero) * counts.pmf(x.numpy()) / counts.sf(0)
    cells = likelihood(f, {"exposure": exposure})
    want = np.log(np.where(x.numpy() == 0, zero, positive))
    np.testing.assert_allclose(cells.log_prob(x).detach(), want, rtol=1e-8)
    mean = (1 - zero) * counts.mean() / counts.sf(0)
    second = (1 - zero) * (counts.var() + counts.mean() ** 2) / counts.sf(0)
    np.testing.assert_allclose(likelihood.mean(f, {"exposure": exposure}).detach(), mean, rtol=1e-8)
    np.testing.assert_allclose(cells.variance.detach(), second - mean**2, rtol=1e-8)


@both
def test_terms_of_cells_are_those_of_autograd_and_zeros_have_none(kind):
    likelihood = _ready(kind)
    f, x = _f_and_x()
    per_row = {"exposure": torch.arange(1.0, 8.0, dtype=torch.float64).unsqueeze(-1)}
    across = {"exposure": per_row["exposure"].mT[None]}
    d = likelihood.dispersion() if likelihood.has_dispersion else torch.ones(2, 3, dtype=torch.float64)
    lines = f.mT.clone().requires_grad_()
    log_p, slope, curvature = likelihood.cell_terms(lines, x.mT[None], d, across, 2)
    wanted = likelihood(lines.mT, per_row).log_prob(x).mT
    (by_f,) = torch.autograd.grad(wanted.sum(), lines, create_graph=True)
    (by_f2,) = torch.autograd.grad(by_f.sum(), lines)
    torch.testing.assert_close(slope.detach(), by_f.detach())
    torch.testing.assert_close(curvature.detach(), -by_f2)
    is_zero = (x == 0).mT.expand_as(slope)
    assert is_zero.any() and not slope[is_zero].any() and not curvature[is_zero].any()
    left_out = (wanted - log_p - likelihood.log_base(x.mT[None], d)).detach()
    torch.testing.assert_close(left_out, -torch.lgamma(x.mT + 1).expand_as(left_out))


@both
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_far_predictors_keep_finite_terms_and_no_negative_curvature(kind, dtype):
    likelihood = _ready(kind, 1).to(dtype)
    f = torch.cat([torch.linspace(-35, 30, 66, dtype=dtype), torch.tensor([-1e3, 1e3], dtype=dtype)])
    f = f.expand(1, 3, -1)
    d = likelihood.dispersion() if likelihood.has_dispersion else torch.ones(1, 3, dtype=dtype)
    for count in (0.0, 1.0, 2.0, 50.0):
        log_p, slope, curvature = likelihood.cell_terms(f, torch.full_like(f, count), d, {}, 2)
        assert all(torch.isfinite(term).all() for term in (log_p, slope, curvature))
        assert (curvature >= 0).all()
        if count == 1:  # the rate may be as small as it likes: what is left is the probability of a count
            small = -torch.nn.functional.softplus(likelihood.logit_zero[0, 0])
            wanted = small if kind is HurdlePoisson else small + d[0].log()  # the rest is in `log_base`
            torch.testing.assert_close(log_p[0, :, 10], wanted.detach(), atol=2e-4, rtol=1e-4)


@both
def test_draws_have_the_density(kind):
    likelihood = _ready(kind, 1)
    f = torch.tensor([[[-3.0, 0.3, 1.5]]], dtype=torch.float64)
    torch.manual_seed(0)
    n = 40_000
    x = likelihood(f).sample((n,))[:, 0, 0]
    zero, counts = likelihood.zero_prob().detach().numpy()[0, 0], _counts(likelihood, np.exp(f.numpy()))
    for k in range(6):
        wanted = zero if k == 0 else (1 - zero) * (counts.pmf(k) / counts.sf(0))[0, 0]
        found = (x == k).double().mean(0).numpy()
        assert (abs(found - wanted) < 5 * np.sqrt(wanted * (1 - wanted) / n) + 1e-9).all()


@both
def test_start_is_at_the_shares_of_zeros_and_the_means_of_positive_counts(kind):
    rng = np.random.default_rng(0)
    mu = np.array([0.3, 2.0, 12.0])
    x = np.stack([rng.permutation(c[c > 0][:3000]) for c in rng.poisson(mu, (20_000, 3)).T], 1) * 1.0
    x[rng.random(x.shape) < [0.1, 0.5, 0.8]] = 0
    likelihood = kind(size_factors=False, **({} if kind is HurdlePoisson else {"init": 0.05}))
    likelihood.calibrate(x)
    likelihood.setup(3, 2)
    np.testing.assert_allclose(likelihood.zero_prob()[1, 0].detach(), [0.1, 0.5, 0.8], atol=0.03)
    np.testing.assert_allclose(likelihood.start(x), np.log(mu), atol=0.15)
    sums = (torch.as_tensor(x.sum(0)), torch.full((3,), 3000.0), torch.full((3,), 3000.0))
    np.testing.assert_allclose(likelihood.intercept(*sums), np.log(mu), atol=0.25)
    assert np.isfinite(likelihood.start(np.minimum(x, 1))).all()  # all positive counts are 1


def test_chains_draw_the_zeros_beside_the_dispersion():
    for kind in KINDS:
        likelihood = kind()
        likelihood.setup(3, 2)
        parameters = LikelihoodParameters(likelihood, likelihood.dispersion_parameters())
        assert (parameters.drawn, parameters.held) == ({"logit_zero": "zero_prob"}, [])
    likelihood = HurdlePoisson(zero_prior=(2.0, 6.0))
    likelihood.setup(3)
    share = likelihood.values()["zero_prob"].detach().numpy()[0]
    np.testing.assert_allclose(share, 0.25, rtol=1e-6)
    got = likelihood.priors()["zero_prob"].log_prob(torch.as_tensor(share)[None])
    np.testing.assert_allclose(got, stats.beta.logpdf(share, 2, 6).sum(), rtol=1e-5)


@both
def test_exposures_move_the_rate_alone_and_those_from_totals_are_taken_as_known(kind):
    x = np.random.default_rng(0).poisson(3.0 * np.array([[1.0], [2.0], [8.0], [4.0]]), (4, 5)).astype(float)
    likelihood = kind(size_factors=True)
    likelihood.setup(5)
    likelihood.calibrate(x)
    likelihood.note_per_row([])
    assert likelihood.separable and not likelihood.shares and likelihood.given_totals(["exposure"]) is None
    exposure, total = likelihood.default_per_row(x)["exposure"], x.sum(1, keepdims=True)
    np.testing.assert_allclose(exposure / exposure[0], total / total[0])
    f, large = torch.zeros(1, 2, 5), torch.tensor([[1.0], [50.0]])
    zeros = likelihood(f, {"exposure": large}).log_prob(torch.zeros(2, 5))
    torch.testing.assert_close(zeros[0, 0], zeros[0, 1])
    assert (likelihood.mean(f, {"exposure": large})[0, 1] > 10).all()


@both
def test_restricted_to_some_columns_it_says_the_same_of_them(kind):
    likelihood = _ready(kind)
    f, x = _f_and_x()
    d = likelihood.dispersion().detach() if likelihood.has_dispersion else torch.ones(2, 3)
    whole = likelihood.cell_terms(f.mT, x.mT[None], d, {}, 2)
    for some in (torch.tensor([2, 0]), slice(1, 3)):
        terms = likelihood.of_features(some).cell_terms(f.mT[:, some], x.mT[None][:, some], d[:, some], {}, 2)
        for value, expected in zip(terms, whole, strict=True):
            torch.testing.assert_close(value.detach(), expected[:, some].detach())


@both
def test_it_has_a_name_stands_beside_others_and_refuses_what_is_no_count(kind):
    name = kind.name
    assert type(get_likelihood(name)) is kind
    mixed = Columns({(0, 1): name, 2: "normal", 3: "probit"})
    mixed.setup(4)
    assert mixed.parts[0].size_factors is False
    parameters = LikelihoodParameters(mixed, mixed.dispersion_parameters())
    assert parameters.drawn["parts.0.logit_zero"] == f"{name}_zero_prob" and not parameters.held
    with pytest.raises(ValueError, match="size_factors=False"):
        Columns({0: kind(), 1: "normal"})
    with pytest.raises(ValueError, match="zero_prior: got \\(0, 9\\), wanted two positive numbers"):
        kind(zero_prior=(0, 9))
    with pytest.raises(ValueError, match=f"column 'b' holds -1 .row 0.; likelihood=\"{name}\" wants whole"):
        get_likelihood(name).check(np.array([[0.0, -1.0]]), ["a", "b"])


@pytest.mark.slow
@both
def test_a_planted_graph_is_found_and_zeros_that_other_things_move_are_no_edge(kind, tmp_path):
    rng = np.random.default_rng(1002)
    graph = np.zeros((10, 2), dtype=bool)
    graph[:5, 0] = graph[5:, 1] = True
    z = rng.normal(size=(300, 2))
    rate = np.exp(1.2 + 0.8 * z @ graph.T) * (1 if kind is HurdlePoisson else rng.gamma(5, 1 / 5, (300, 10)))
    x = np.maximum(rng.poisson(rate), 1.0)
    # zeros of each feature go with the factor that its counts do not go with
    x[rng.random(x.shape) < 1 / (1 + np.exp(1.0 - 1.5 * z @ ~graph.T))] = 0
    x[rng.random(x.shape) < 0.05] = np.nan
    likelihood = kind(size_factors=False)
    model = ps.models.SparseDecoder(10, 2, decoder="linear", likelihood=likelihood, anchors={0: 0, 5: 1})
    fit = ps.fit(model, x, restarts=1, steps=800, seed=0, progress=False)
    p = ps.edge_prob(fit.edge_posterior(sweeps=150, warm_up=50, num_draws=50)).to_numpy()
    assert (p[graph] > 0.9).all() and (p[~graph] < 0.5).all()
    zeros = fit.model.likelihood.zero_prob()[fit.best, 0].detach().numpy()
    np.testing.assert_allclose(zeros, np.nanmean(x == 0, 0), atol=0.06)
    fit.save(tmp_path / "fit.pt")
    again = ps.load(tmp_path / "fit.pt")
    np.testing.assert_allclose(again.predict(x[:20]), fit.predict(x[:20]), rtol=1e-5)
    assert np.isfinite(fit.score(x)) and (fit.impute(x) >= 0).all()


@pytest.mark.slow
def test_a_fit_with_columns_by_name_runs():
    rng = np.random.default_rng(0)
    z = rng.normal(size=60)
    visits = np.where(rng.random(60) < 0.4, 0, np.maximum(rng.poisson(np.exp(1 + z)), 1))
    table = pd.DataFrame({"visits": visits, "height": z + rng.normal(size=60), "stays": visits[::-1]})
    kinds = {"visits": "hurdle_poisson", "stays": "hurdle_negative_binomial", "*": "normal"}
    model = ps.models.SparseDecoder(3, 1, decoder="linear", likelihood=kinds)
    fit = ps.fit(model, table, restarts=1, steps=30, seed=0, progress=False)
    parts = {members[0]: type(part) for part, members in fit.model.likelihood.families()}
    assert parts[0] is HurdlePoisson and parts[2] is HurdleNegativeBinomial
    assert (fit.predict(table)[:, [0, 2]] > 0).all()
