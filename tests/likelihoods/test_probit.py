"""The probit link of answers and levels: the battery, scipy, closed forms, names, units, a planted graph."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm

import pyro_sparse as ps
from pyro_sparse.likelihoods import Bernoulli, Columns, Likelihood, Ordinal, get_likelihood
from pyro_sparse.likelihoods._links import LINKS
from pyro_sparse.likelihoods.outcomes import outcome_likelihood
from pyro_sparse.testing.likelihood import LikelihoodTestCase

MIXED = [(1, 5), (0, 1), (2, 4), (-1, 5)]  # levels of four columns


class TestBernoulliProbit(LikelihoodTestCase):
    bad_values = (2.0, -1.0, 0.5)

    def make(self):
        return Bernoulli(link="probit")


class TestOrdinalProbit(LikelihoodTestCase):
    bad_values = (0.5, 40.0)

    def make(self):
        return Ordinal(link="probit")


class TestOrdinalProbitOfFiveLevels(LikelihoodTestCase):
    bad_values = (0.5, 6.0, 0.0)

    def make(self):
        return Ordinal(levels=(1, 5), link="probit")


def _ready(n_restarts=1):
    """Columns of 5, 2, 3 and 7 levels with gaps of their own."""
    likelihood = Ordinal(levels=MIXED, link="probit")
    likelihood.setup(4, n_restarts)
    with torch.no_grad():
        for p in likelihood.double().parameters():
            p.add_(0.5 * torch.randn(p.shape, generator=torch.Generator().manual_seed(3), dtype=p.dtype))
    return likelihood


def _cells(likelihood, n_restarts=1, n_rows=9, size=1.0):
    generator = torch.Generator().manual_seed(1)
    f = size * torch.randn(n_restarts, n_rows, 4, generator=generator, dtype=torch.float64)
    x = [torch.randint(0, int(n), (n_rows,), generator=generator) for n in likelihood.n_levels]
    return f, torch.stack(x, -1).double()


def test_density_is_a_difference_of_normal_distribution_functions():
    likelihood = _ready()
    f, x = _cells(likelihood)
    cuts = likelihood.cuts()[0, 0].detach().numpy()
    edges = np.concatenate([np.full((4, 1), -np.inf), cuts, np.full((4, 1), np.inf)], -1)
    level, columns = x.long().numpy(), np.arange(4)
    low, high = edges[columns, level] - f.numpy(), edges[columns, level + 1] - f.numpy()
    np.testing.assert_allclose(
        likelihood(f).log_prob(x).detach(), np.log(norm.cdf(high) - norm.cdf(low)), rtol=1e-9, atol=1e-9
    )
    below = norm.cdf(edges[None, None, :, 1:-1] - f.numpy()[..., None])
    np.testing.assert_allclose(likelihood.mean(f).detach(), (1 - below).sum(-1), atol=1e-12)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_answers_are_scipys_in_far_tails(dtype, tolerance):
    likelihood = Bernoulli(link="probit")
    f = torch.linspace(-30, 30, 61, dtype=dtype).expand(1, 2, -1)
    x = torch.tensor([[[0.0], [1.0]]], dtype=dtype).expand_as(f)
    exact = f.double().numpy() * np.array([[-1.0], [1.0]])
    log_p, slope, curvature = likelihood.cell_terms(f, x, torch.ones(1, 2), {}, 2)
    want, mills = norm.logcdf(exact), np.exp(norm.logpdf(exact) - norm.logcdf(exact))
    np.testing.assert_allclose(log_p, want, rtol=10 * tolerance, atol=1e-37)
    np.testing.assert_allclose(likelihood(f).log_prob(x), want, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(slope * (2 * x - 1), mills, rtol=10 * tolerance, atol=1e-37)
    np.testing.assert_allclose(curvature, mills * (mills + exact), atol=1e-4)
    score = likelihood.scorer()(f[0], x[0], 0, torch.arange(2)) * (2 * x[0] - 1)
    np.testing.assert_allclose(score, mills[0], rtol=10 * tolerance, atol=1e-37)
    np.testing.assert_allclose(likelihood.mean(f), norm.cdf(f.double()), rtol=1e-5, atol=1e-37)


def test_terms_of_cells_are_those_of_autograd():
    likelihood = _ready(2)
    f, x = _cells(likelihood, 2, size=2.0)
    answers = (x > 0).double()
    for kind, cells in ((likelihood, x), (Bernoulli(link="probit"), answers)):
        lines = f.mT.clone().requires_grad_()
        log_p, slope, curvature = kind.cell_terms(lines, cells.mT[None], torch.ones(2, 4), {}, 2)
        wanted = kind(lines.mT).log_prob(cells).mT
        (by_f,) = torch.autograd.grad(wanted.sum(), lines, create_graph=True)
        (by_f2,) = torch.autograd.grad(by_f.sum(), lines)
        torch.testing.assert_close(log_p.detach(), wanted.detach())
        torch.testing.assert_close(slope.detach(), by_f.detach())
        torch.testing.assert_close(curvature.detach(), -by_f2, atol=1e-8, rtol=1e-6)


def test_gradients_in_closed_form_are_those_of_autograd_with_columns_of_many_kinds():
    likelihood = _ready(3)
    f, x = _cells(likelihood, 3)
    mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(5)) < 0.7
    slopes = likelihood.slopes(f, x, mask, of_cells=2.0, of_priors=0.7)
    wanted = Likelihood.slopes(likelihood, f, x, mask, of_cells=2.0, of_priors=0.7)
    torch.testing.assert_close(slopes.by_f, wanted.by_f)
    for value, expected in zip(slopes.by_parameters, wanted.by_parameters, strict=True):
        torch.testing.assert_close(value, expected)


def test_two_levels_are_yes_or_no():
    f, x = torch.randn(2, 7, 3), torch.randint(0, 2, (7, 3)).float()
    ordinal, yes_no = get_likelihood("probit"), Bernoulli(link="probit")
    ordinal.calibrate(torch.tensor([[0.0, 0, 0], [1, 1, 1]]))
    ordinal.setup(3, 2)
    torch.testing.assert_close(ordinal.log_prob(f, x), yes_no.log_prob(f, x))


def test_prior_of_gaps_is_that_of_logits_in_standard_deviations_of_the_response():
    typical = {}
    for link, of_link in LINKS.items():
        likelihood = Ordinal(levels=(1, 5), link=link)
        likelihood.setup(3)
        prior = likelihood.priors()["gap_2"].base_dist.base_dist
        typical[link] = prior.loc.exp().mean().item() / math.sqrt(of_link.latent_variance)
        assert torch.equal(prior.scale, torch.ones(1, 3))
    assert typical["probit"] == pytest.approx(typical["logit"])


@pytest.mark.parametrize("likelihood", [Bernoulli(link="probit"), Ordinal(link="probit")])
def test_the_response_has_normal_noise_of_variance_one(likelihood):
    rng, weight = np.random.default_rng(0), 0.8
    z = rng.standard_normal(200_000)
    response = weight * z + rng.standard_normal(z.size)
    beside = float(likelihood.variance_beside())
    assert weight / np.sqrt(weight**2 + beside) == pytest.approx(np.corrcoef(response, z)[0, 1], abs=0.005)


def test_start_is_at_the_shares_of_the_table():
    y = np.random.default_rng(0).normal(size=(20_000, 1)) + 0.5
    x = (y > [-1.0, 0.0, 0.8]).sum(1, keepdims=True).astype(float)
    likelihood = Ordinal(link="probit")
    likelihood.calibrate(x)
    likelihood.setup(1)
    cuts, start = likelihood.cuts()[0, 0, 0].detach().numpy(), likelihood.start(x)
    np.testing.assert_allclose(cuts - start, [-1.5, -0.5, 0.3], atol=0.05)
    np.testing.assert_allclose(Bernoulli(link="probit").start((y > 0) * 1.0), [0.5], atol=0.05)


def test_names_and_what_is_printed():
    assert isinstance(get_likelihood("probit"), Ordinal) and get_likelihood("probit").link == "probit"
    assert repr(get_likelihood("probit")) == "Ordinal(ordinal, probit)"
    assert repr(Bernoulli(link="probit")) == "Bernoulli(bernoulli, probit)"
    assert repr(Bernoulli()) == "Bernoulli(bernoulli)" and repr(Ordinal()) == "Ordinal(ordinal)"
    assert repr(Columns({"q*": "probit", "*": "normal"})) == "Columns('q*': ordinal, probit, '*': normal)"
    assert "likelihood='ordinal, probit'" in repr(ps.models.SparseDecoder(4, 2, likelihood="probit"))
    outcome = outcome_likelihood("probit")  # of tasks
    assert isinstance(outcome, Ordinal) and outcome.link == "probit"
    for kind in (Bernoulli, Ordinal):
        with pytest.raises(ValueError, match='link: got \'cloglog\', wanted "logit" or "probit"'):
            kind(link="cloglog")


@pytest.mark.slow
def test_in_columns_words_keep_the_link_and_parts_theirs():
    rng = np.random.default_rng(0)
    words = pd.Categorical.from_codes(rng.integers(0, 3, 40), ["never", "often", "always"], ordered=True)
    table = pd.DataFrame({"q": words, "yes": rng.integers(0, 2, 40), "l": rng.integers(1, 4, 40)})
    kinds = {"q": "probit", "yes": Bernoulli(link="probit"), "l": "ordinal"}
    model = ps.models.SparseDecoder(3, 1, decoder="linear", likelihood=kinds)
    fit = ps.fit(model, table, restarts=1, steps=20, seed=0, progress=False)
    parts = {members[0]: part for part, members in fit.model.likelihood.families()}
    assert [parts[j].link for j in range(3)] == ["probit", "probit", "logit"]
    assert parts[0].labels == (("never", "often", "always"),)
    np.testing.assert_allclose(
        fit.model.likelihood.variance_beside().numpy(), [[1.0, 1.0, math.pi**2 / 3]], rtol=1e-6
    )


@pytest.mark.slow
def test_a_planted_graph_is_found_and_saved_with_the_link(tmp_path):
    rng = np.random.default_rng(1002)
    graph = np.zeros((10, 2), dtype=bool)
    graph[:5, 0] = graph[5:, 1] = True
    y = 1.2 * rng.normal(size=(300, 2)) @ graph.T + rng.normal(size=(300, 10))
    x = 1.0 + (y[..., None] > [-1.0, 0.0, 1.2]).sum(-1)
    x[:, ::5] = y[:, ::5] > 0  # columns of answers
    x[rng.random(x.shape) < 0.05] = np.nan
    model = ps.models.SparseDecoder(10, 2, decoder="linear", likelihood="probit", anchors={1: 0, 6: 1})
    fit = ps.fit(model, x, restarts=1, steps=800, seed=0, progress=False)
    assert fit.settings["likelihood"] == "ordinal, probit"
    p = ps.edge_prob(fit.edge_posterior(sweeps=150, warm_up=50, num_draws=50)).to_numpy()
    assert (p[graph] > 0.9).all() and (p[~graph] < 0.5).all()
    fit.save(tmp_path / "fit.pt")
    again = ps.load(tmp_path / "fit.pt")
    assert again.model.likelihood.link == "probit"
    np.testing.assert_allclose(again.predict(x[:20]), fit.predict(x[:20]), rtol=1e-5)
    whole = fit.impute(x)
    assert np.isfinite(fit.score(x)) and whole[:, 1].min() >= 1 and whole[:, 0].max() <= 1
