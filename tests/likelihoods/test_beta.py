"""Shares: the battery, the density and its derivatives against scipy and autograd, zeros and ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from scipy.special import expit, logit

import pyro_sparse as ps
from pyro_sparse.inference.edges.density.likelihood_parameters import LikelihoodParameters
from pyro_sparse.likelihoods import Beta, Columns, get_likelihood
from pyro_sparse.testing.likelihood import LikelihoodTestCase


class TestBeta(LikelihoodTestCase):
    bad_values = (0.0, 1.0, -1.0, 37.0, 1e-9)

    def make(self):
        return Beta()


def _ready(n_restarts=2):
    likelihood = Beta(init=8.0)
    likelihood.setup(3, n_restarts)
    with torch.no_grad():
        for p in likelihood.double().parameters():
            p.add_(0.7 * torch.randn(p.shape, generator=torch.Generator().manual_seed(3), dtype=p.dtype))
    return likelihood


def _f_and_x(n_restarts=2):
    generator = torch.Generator().manual_seed(1)
    f = torch.randn(n_restarts, 7, 3, generator=generator, dtype=torch.float64)
    return f, torch.rand(7, 3, generator=generator, dtype=torch.float64)


def test_density_is_scipys_with_the_stated_variance():
    likelihood = _ready()
    f, x = _f_and_x()
    mean, phi = expit(f.numpy()), likelihood.precision().detach().numpy()
    want = stats.beta.logpdf(x.numpy(), mean * phi, (1 - mean) * phi)
    np.testing.assert_allclose(likelihood(f).log_prob(x).detach(), want, atol=1e-3)  # ends of f bend by 1e-5
    np.testing.assert_allclose(likelihood(f).variance.detach(), mean * (1 - mean) / (1 + phi), rtol=1e-3)
    np.testing.assert_allclose(likelihood.mean(f), mean, rtol=1e-3)


def test_terms_of_cells_are_those_of_autograd():
    likelihood = _ready()
    f, x = _f_and_x()
    lines, d = (3 * f.mT).clone().requires_grad_(), likelihood.dispersion()
    log_p, slope, _ = likelihood.cell_terms(lines, x.mT[None], d, {}, 2)
    wanted = likelihood(lines.mT).log_prob(x).mT
    (by_f,) = torch.autograd.grad(wanted.sum(), lines)
    torch.testing.assert_close(slope.detach(), by_f)
    left_out = wanted - log_p - likelihood.log_base(x.mT[None], d)
    torch.testing.assert_close(left_out, -(x * (1 - x)).log().mT.expand_as(left_out))


def test_information_is_the_variance_of_the_slope():
    likelihood = _ready(1)
    f = torch.tensor([[[-1.0], [0.3], [1.5]]], dtype=torch.float64)
    d = likelihood.dispersion().detach()
    for j in range(3):

        def moment(x, power, j=j):
            cells = torch.full_like(f, x)
            log_p, slope, _ = likelihood.cell_terms(f, cells, d, {}, 2)
            log_density = log_p + likelihood.log_base(cells, d)
            return float(log_density[0, j, 0].exp() / (x * (1 - x)) * slope[0, j, 0] ** power)

        found = likelihood.cell_terms(f, torch.full_like(f, 0.5), d, {}, 2)[2][0, j, 0]
        wanted = integrate.quad(moment, 1e-6, 1 - 1e-6, (2,), limit=200)[0]
        np.testing.assert_allclose(found, wanted, rtol=1e-3)


def test_prior_of_the_precision_is_log_normal_for_the_fit_and_for_chains():
    likelihood = Beta(prior_median=50.0, prior_sd=0.8)
    likelihood.setup(3)
    phi = likelihood.values()["precision"].detach().numpy()[0]
    got = likelihood.priors()["precision"].log_prob(torch.as_tensor(phi)[None])
    np.testing.assert_allclose(got, stats.lognorm.logpdf(phi, 0.8, scale=50.0).sum(), rtol=1e-5)
    d = torch.tensor([0.001, 0.05, 2.0], dtype=torch.float64)
    root = d.numpy() ** 0.5  # whose logarithm is normal around minus half of log 50
    want = stats.lognorm.logpdf(root, 0.4, scale=50.0**-0.5)
    difference = likelihood.log_dispersion_prior(d).numpy() - want
    np.testing.assert_allclose(difference, difference[0])
    assert torch.isinf(likelihood.log_dispersion_prior(torch.tensor([1e-9])))


def test_shares_near_the_ends_have_finite_slopes_in_single_precision():
    likelihood = Beta()
    likelihood.setup(2)
    x = torch.tensor([[1e-6, 1 - 1e-6], [1e-5, 0.5]])
    f = torch.tensor([[[-40.0, 40.0], [30.0, -9.0]]])
    terms = likelihood.cell_terms(f.mT, x.mT[None], likelihood.dispersion(), {}, 2)
    assert all(term.isfinite().all() and term.dtype == torch.float32 for term in terms)
    assert (terms[2] >= 0).all()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        draws = likelihood(f).sample((500,))
    assert (draws > 0).all() and (draws < 1).all()
    likelihood.check(draws[:, 0, 0].double().numpy())


def test_start_and_view_are_logits():
    x = np.array([[0.2, 0.5], [0.4, np.nan], [0.6, 0.7]])
    np.testing.assert_allclose(Beta().start(np.repeat(x, 100, 0)), logit([0.4, 0.6]), atol=0.02)
    np.testing.assert_allclose(Beta().encoder_view(torch.as_tensor(x)), logit(x))


def test_precisions_start_at_those_of_columns_without_factors():
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.beta(20, 20, 4000), rng.beta(30, 170, 4000), rng.beta(1, 1, 4000)])
    x[:500, 0] = np.nan
    likelihood = Beta(init=7.0)
    likelihood.calibrate(x)
    likelihood.setup(3, 2)
    np.testing.assert_allclose(likelihood.precision().detach(), 7.0, rtol=0.01)
    likelihood.start_noise(torch.ones(2, 1, 3), torch.tensor([[[False, True, True]]]).expand(2, 1, 3))
    np.testing.assert_allclose(likelihood.precision().detach()[1, 0], [7, 200, 1.2], rtol=0.1)
    likelihood.start_noise(torch.zeros(2, 1, 3))
    np.testing.assert_allclose(likelihood.precision().detach()[0, 0], [40, 200, 1.2], rtol=0.1)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (-1.0, r"holds -1 \(row 2\); want shares between 0 and 1.*by 100"),
        (37.0, r"holds 37 \(row 2\); want shares between 0 and 1.*by 100"),
        (0.0, r"holds 0 \(row 2\); want shares strictly between.*\(x \* \(n - 1\) \+ 0.5\) / n.*bernoulli"),
        (1.0, r"holds 1 \(row 2\); want shares strictly between.*inwards"),
        (1e-8, r"holds 1e-08 \(row 2\); want shares at least 1e-06 from 0 and 1.*inwards"),
    ],
)
def test_cells_that_are_no_shares_are_refused(value, words):
    x = np.full((4, 3), 0.4)
    x[2, 1], x[0, 0] = value, np.nan
    with pytest.raises(ValueError, match=f"column 'b' {words}"):
        Beta().check(x, ["a", "b", "c"])


@pytest.mark.parametrize(("options", "words"), [({"init": 0.0}, "< init <"), ({"prior_sd": 0}, "prior_sd")])
def test_numbers_that_are_none_are_refused(options, words):
    with pytest.raises(ValueError, match=f"Beta: .*{words}"):
        Beta(**options)


def test_it_has_a_name_and_stands_beside_others():
    likelihood = get_likelihood("beta")
    assert type(likelihood) is Beta and not likelihood.standardise
    mixed = Columns({(0, 3): "beta", 1: "normal", 2: "poisson"})
    mixed.setup(4)
    parameters = LikelihoodParameters(mixed, mixed.dispersion_parameters())
    assert set(mixed.dispersion_parameters()) == {"parts.0.log_phi", "parts.1.log_sigma"}
    assert not parameters.drawn and not parameters.held
    mixed.check(np.array([[0.2, 7.0, 3.0, np.nan]]))
    with pytest.raises(ValueError, match="column 'd' holds 0 .*strictly"):
        mixed.check(np.array([[0.2, 7.0, 3.0, 0.0]]), list("abcd"))


@pytest.mark.slow
def test_a_planted_graph_is_found_among_shares(tmp_path):
    rng = np.random.default_rng(1001)
    graph = np.zeros((10, 2), dtype=bool)
    graph[:5, 0] = graph[5:, 1] = True
    mean = expit(-0.5 + 0.8 * rng.normal(size=(250, 2)) @ graph.T)
    x = rng.beta(12 * mean, 12 * (1 - mean)).clip(1e-5, 1 - 1e-5)
    x[rng.random(x.shape) < 0.05] = np.nan
    model = ps.models.SparseDecoder(10, 2, decoder="linear", likelihood="beta")
    fit = ps.fit(model, x, restarts=2, steps=800, seed=0, progress=False)
    p = ps.edge_prob(fit.edge_posterior(sweeps=150, warm_up=50, num_draws=50)).to_numpy()
    graph = graph if p[:5, 0].sum() > p[:5, 1].sum() else graph[:, ::-1]
    assert (p[graph] > 0.9).all() and (p[~graph] < 0.5).all()
    fit.save(tmp_path / "fit.pt")
    again = ps.load(tmp_path / "fit.pt")
    np.testing.assert_allclose(again.predict(x[:20]), fit.predict(x[:20]), rtol=1e-5)
    whole = fit.impute(x)
    assert np.isfinite(fit.score(x)) and (whole > 0).all() and (whole < 1).all()
