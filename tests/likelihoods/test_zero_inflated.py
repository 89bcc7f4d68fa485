"""Counts with extra zeros: the battery, the mixture by hand, its derivatives, exposures, priors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import pyro_sparse as ps
from pyro_sparse.inference.edges.density.likelihood_parameters import LikelihoodParameters
from pyro_sparse.likelihoods import CensoredNormal, Columns, ZeroInflatedNegativeBinomial, get_likelihood
from pyro_sparse.testing.likelihood import LikelihoodTestCase


class TestZeroInflatedNegativeBinomial(LikelihoodTestCase):
    bad_values = (-1.0, 2.5)

    def make(self):
        return ZeroInflatedNegativeBinomial()


class TestZeroInflatedWithoutSizeFactors(TestZeroInflatedNegativeBinomial):
    def make(self):
        return ZeroInflatedNegativeBinomial(size_factors=False)


def _ready(n_restarts=2):
    likelihood = ZeroInflatedNegativeBinomial(size_factors=False)
    likelihood.setup(3, n_restarts)
    with torch.no_grad():
        for p in likelihood.double().parameters():
            p.add_(0.7 * torch.randn(p.shape, generator=torch.Generator().manual_seed(3), dtype=p.dtype))
    return likelihood


def _f_and_x(n_restarts=2):
    generator = torch.Generator().manual_seed(1)
    f = torch.randn(n_restarts, 7, 3, generator=generator, dtype=torch.float64)
    return f, torch.randint(0, 4, (7, 3), generator=generator).double()


def test_density_is_the_mixture_by_hand():
    likelihood = _ready()
    f, x = _f_and_x()
    exposure = torch.arange(1.0, 8.0, dtype=torch.float64).unsqueeze(-1)
    mu = exposure.numpy() * np.exp(f.numpy())
    theta = 1 / likelihood.values()["extra_cv"].detach().numpy()[:, None] ** 2
    extra = likelihood.zero_prob().detach().numpy()
    of_counts = stats.nbinom.pmf(x.numpy(), theta, theta / (theta + mu))
    want = np.log(extra * (x.numpy() == 0) + (1 - extra) * of_counts)
    per_row = {"exposure": exposure}
    np.testing.assert_allclose(likelihood(f, per_row).log_prob(x).detach(), want, rtol=1e-8)
    np.testing.assert_allclose(likelihood.mean(f, per_row).detach(), (1 - extra) * mu, rtol=1e-8)


def test_terms_of_cells_are_those_of_autograd_and_curve_at_least_as_much():
    likelihood = _ready()
    f, x = _f_and_x()
    per_row = {"exposure": torch.arange(1.0, 8.0, dtype=torch.float64).unsqueeze(-1)}
    across = {"exposure": per_row["exposure"].mT[None]}
    lines, d = f.mT.clone().requires_grad_(), likelihood.dispersion()
    log_p, slope, bend = likelihood.cell_terms(lines, x.mT[None], d, across, 2)
    wanted = likelihood(lines.mT, per_row).log_prob(x).mT
    (by_f,) = torch.autograd.grad(wanted.sum(), lines, create_graph=True)
    (by_f2,) = torch.autograd.grad(by_f.sum(), lines)
    torch.testing.assert_close(slope.detach(), by_f.detach())
    is_zero = (x == 0).mT.expand_as(bend)
    torch.testing.assert_close(bend[~is_zero].detach(), -by_f2[~is_zero])
    assert (bend >= 0).all() and (bend[is_zero] >= -by_f2[is_zero] - 1e-12).all()
    left_out = (wanted - log_p - likelihood.log_base(x.mT[None], d)).detach()
    torch.testing.assert_close(left_out, -torch.lgamma(x.mT + 1).expand_as(left_out))


def test_priors_are_those_that_are_stated():
    likelihood = ZeroInflatedNegativeBinomial(zero_prior=(2.0, 6.0))
    likelihood.setup(3)
    extra = likelihood.values()["zero_prob"].detach().numpy()[0]
    np.testing.assert_allclose(extra, 0.25, rtol=1e-6)
    got = likelihood.priors()["zero_prob"].log_prob(torch.as_tensor(extra)[None])
    np.testing.assert_allclose(got, stats.beta.logpdf(extra, 2, 6).sum(), rtol=1e-5)


def test_chains_draw_the_zeros_beside_the_dispersion():
    likelihood = ZeroInflatedNegativeBinomial()
    likelihood.setup(3, 2)
    parameters = LikelihoodParameters(likelihood, likelihood.dispersion_parameters())
    assert (parameters.drawn, parameters.held) == ({"logit_zero": "zero_prob"}, [])


def test_exposures_from_totals_are_taken_as_known():
    x = np.random.default_rng(0).poisson(3.0 * np.array([[1.0], [2.0], [8.0], [4.0]]), (4, 5)).astype(float)
    likelihood = ZeroInflatedNegativeBinomial(size_factors=True)
    likelihood.setup(5)
    likelihood.calibrate(x)
    likelihood.note_per_row([])
    assert likelihood.separable and not likelihood.shares and likelihood.given_totals(["exposure"]) is None
    exposure, total = likelihood.default_per_row(x)["exposure"], x.sum(1, keepdims=True)
    np.testing.assert_allclose(exposure / exposure[0], total / total[0])


def test_restricted_to_some_columns_it_says_the_same_of_them():
    likelihood = _ready()
    f, x = _f_and_x()
    d = likelihood.dispersion().detach()
    whole = likelihood.cell_terms(f.mT, x.mT[None], d, {}, 2)
    for some in (torch.tensor([2, 0]), slice(1, 3)):
        terms = likelihood.of_features(some).cell_terms(f.mT[:, some], x.mT[None][:, some], d[:, some], {}, 2)
        for value, expected in zip(terms, whole, strict=True):
            torch.testing.assert_close(value.detach(), expected[:, some].detach())


def test_bad_cells_and_numbers_are_refused():
    with pytest.raises(ValueError, match="zero_prior: got \\(0, 9\\), wanted two positive numbers"):
        ZeroInflatedNegativeBinomial(zero_prior=(0, 9))
    name = "zero_inflated_negative_binomial"
    with pytest.raises(ValueError, match=f"column 'b' holds -1 .row 0.; likelihood=\"{name}\" wants whole"):
        get_likelihood(name).check(np.array([[0.0, -1.0]]), ["a", "b"])


def test_it_has_a_name_and_stands_beside_others():
    name = "zero_inflated_negative_binomial"
    assert type(get_likelihood(name)) is ZeroInflatedNegativeBinomial
    mixed = Columns({(0, 1): name, 2: "normal", 3: "negative_binomial"})
    mixed.setup(4)
    assert mixed.parts[0].size_factors is False
    parameters = LikelihoodParameters(mixed, mixed.dispersion_parameters())
    assert parameters.drawn == {"parts.0.logit_zero": f"{name}_zero_prob"} and not parameters.held
    with pytest.raises(ValueError, match="size_factors=False"):
        Columns({0: ZeroInflatedNegativeBinomial(), 1: "normal"})


@pytest.mark.slow
def test_a_planted_graph_is_found_among_zeros(tmp_path):
    rng = np.random.default_rng(1002)
    graph = np.zeros((10, 2), dtype=bool)
    graph[:5, 0] = graph[5:, 1] = True
    rate = np.exp(1.2 + 0.9 * rng.normal(size=(250, 2)) @ graph.T)
    x = rng.poisson(rate * rng.gamma(4, 1 / 4, rate.shape)).astype(float)
    x[rng.random(x.shape) < 0.25] = 0
    x[rng.random(x.shape) < 0.05] = np.nan
    likelihood = ZeroInflatedNegativeBinomial(size_factors=False)
    model = ps.models.SparseDecoder(10, 2, decoder="linear", likelihood=likelihood)
    fit = ps.fit(model, x, restarts=2, steps=800, seed=0, progress=False)
    p = ps.edge_prob(fit.edge_posterior(sweeps=150, warm_up=50, num_draws=50)).to_numpy()
    graph = graph if p[:5, 0].sum() > p[:5, 1].sum() else graph[:, ::-1]
    assert (p[graph] > 0.9).all() and (p[~graph] < 0.5).all()
    extra = fit.model.likelihood.zero_prob()[fit.best].mean().item()
    assert 0.1 < extra < 0.3
    fit.save(tmp_path / "fit.pt")
    again = ps.load(tmp_path / "fit.pt")
    np.testing.assert_allclose(again.predict(x[:20]), fit.predict(x[:20]), rtol=1e-5)
    assert np.isfinite(fit.score(x)) and (fit.impute(x) >= 0).all()


@pytest.mark.slow
def test_a_table_of_many_kinds_has_one_graph(tmp_path):
    rng = np.random.default_rng(1004)
    n, graph = 200, np.zeros((10, 2), dtype=bool)
    graph[::2, 0] = graph[1::2, 1] = True
    f = rng.normal(size=(n, 2)) @ graph.T
    noisy, share = f + 0.5 * rng.normal(size=f.shape), 12 / (1 + np.exp(-f))
    extra = rng.random((n, 2)) < 0.2
    columns = {
        "t": 10 + 3 * (f[:, :2] + 0.4 * rng.standard_t(3, (n, 2))),
        "b": rng.beta(share, 12 - share)[:, 2:4].clip(1e-4, 1 - 1e-4),
        "c": np.maximum(50 + 10 * noisy[:, 4:6], 48.0),
        "z": np.where(extra, 0.0, rng.poisson(np.exp(1 + f[:, 6:8]))),
        "n": noisy[:, 8:],
    }
    table = pd.DataFrame({f"{name}{j}": x[:, j] for name, x in columns.items() for j in range(2)})
    table = table.mask(rng.random(table.shape) < 0.03)
    kinds = {
        "t*": "student_t",
        "b*": "beta",
        "c*": CensoredNormal(left=48.0),
        "z*": "zero_inflated_negative_binomial",
        "n*": "normal",
    }
    model = ps.models.SparseDecoder(10, 2, decoder="linear", likelihood=kinds)
    fit = ps.fit(model, table, restarts=2, steps=600, seed=0, progress=False)
    p = ps.edge_prob(fit.edge_posterior(sweeps=120, warm_up=40, num_draws=40)).to_numpy()
    graph = graph if p[::2, 0].sum() > p[::2, 1].sum() else graph[:, ::-1]
    assert (p[graph] > 0.9).all() and (p[~graph] < 0.5).all()
    fit.save(tmp_path / "fit.pt")
    again = ps.load(tmp_path / "fit.pt")
    np.testing.assert_allclose(again.predict(table), fit.predict(table), rtol=1e-4)
    whole = fit.impute(table)
    assert not whole.isna().any(axis=None)
    assert whole["c0"].min() > 47.9 and whole[["b0", "b1"]].max(axis=None) < 1
