"""Student's t: the battery, the density and its derivatives, units that outliers do not set, the prior."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import pyro_sparse as ps
from pyro_sparse.inference.edges.density.likelihood_parameters import LikelihoodParameters
from pyro_sparse.likelihoods import Columns, Normal, StudentT, get_likelihood
from pyro_sparse.testing.likelihood import LikelihoodTestCase


class TestStudentT(LikelihoodTestCase):
    def make(self):
        return StudentT()


class TestStudentTOfLearnedTails(LikelihoodTestCase):
    def make(self):
        return StudentT(df="learn")


def _ready(n_restarts=2, **options):
    likelihood = StudentT(**options)
    likelihood.setup(3, n_restarts)
    with torch.no_grad():
        for p in likelihood.double().parameters():
            p.add_(0.5 * torch.randn(p.shape, generator=torch.Generator().manual_seed(3), dtype=p.dtype))
    return likelihood


def _f_and_x(n_restarts=2):
    generator = torch.Generator().manual_seed(1)
    f = torch.randn(n_restarts, 7, 3, generator=generator, dtype=torch.float64)
    return f, 3 * torch.randn(7, 3, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("df", [1.5, 4, "learn"])
def test_density_is_scipys(df):
    likelihood = _ready(df=df)
    f, x = _f_and_x()
    nu = likelihood.degrees_of_freedom()
    nu = nu.detach().numpy() if isinstance(nu, torch.Tensor) else nu
    want = stats.t.logpdf(x.numpy(), nu, f.numpy(), likelihood.scale().detach().numpy()).sum(-1)
    np.testing.assert_allclose(likelihood.log_prob(f, x).detach(), want, rtol=1e-9)


@pytest.mark.parametrize("df", [4, "learn"])
def test_terms_of_cells_are_those_of_autograd(df):
    likelihood = _ready(df=df)
    f, x = _f_and_x()
    lines = f.mT.clone().requires_grad_()
    log_p, slope, _ = likelihood.cell_terms(lines, x.mT[None], likelihood.dispersion(), {}, 2)
    wanted = likelihood(lines.mT).log_prob(x).mT
    (by_f,) = torch.autograd.grad(wanted.sum(), lines)
    torch.testing.assert_close(slope.detach(), by_f)
    constant = (log_p - wanted).detach()
    torch.testing.assert_close(constant, constant.mean((1, 2), keepdim=True).expand_as(constant))
    if df == "learn":  # what the degrees of freedom move is in the terms
        torch.testing.assert_close(constant[0], constant[1])


def test_what_stands_for_the_curvature_is_information_on_average():
    likelihood = StudentT(df=3)
    likelihood.setup(1)
    sd = likelihood.scale().item()
    x = torch.as_tensor(stats.t.ppf((np.arange(20_000) + 0.5) / 20_000, 3, scale=sd)).reshape(1, 1, -1)
    _, slope, weight = likelihood.cell_terms(torch.zeros_like(x), x, likelihood.dispersion().double(), {}, 2)
    np.testing.assert_allclose(weight.mean().item(), 4 / 6 / sd**2, rtol=1e-3)
    np.testing.assert_allclose(slope.square().mean().item(), 4 / 6 / sd**2, rtol=1e-3)
    assert (weight > 0).all()


def test_outliers_pull_less_and_less():
    likelihood = StudentT()
    likelihood.setup(1)
    f, x = torch.zeros(1, 1, 4), torch.tensor([[[0.1, 0.5, 5.0, 500.0]]])
    _, slope, weight = likelihood.cell_terms(f, x, likelihood.dispersion(), {}, 2)
    assert (slope[0, 0, 2:].diff() < 0).all() and slope[0, 0, -1] < 0.011
    assert (weight.diff() < 0).all()


@pytest.mark.parametrize("df", [4, "learn"])
def test_restricted_to_some_columns_it_says_the_same_of_them(df):
    likelihood = _ready(df=df)
    f, x = _f_and_x()
    d = likelihood.dispersion().detach()
    whole = likelihood.cell_terms(f.mT, x.mT[None], d, {}, 2)
    for some in (torch.tensor([2, 0]), slice(1, 3)):
        terms = likelihood.of_features(some).cell_terms(f.mT[:, some], x.mT[None][:, some], d[:, some], {}, 2)
        for value, expected in zip(terms, whole, strict=True):
            torch.testing.assert_close(value.detach(), expected[:, some].detach())


@pytest.mark.parametrize(("df", "factor"), [(4.0, 2.0), (1.5, 5.0)])
def test_variance_is_that_of_the_noise(df, factor):
    likelihood = StudentT(df=df)
    likelihood.setup(3, 2)
    variance = likelihood.scale()[:, 0] ** 2
    torch.testing.assert_close(likelihood.variance_beside(), factor * variance)
    torch.testing.assert_close(likelihood.variance_beside(torch.ones(2, 3)), torch.full((2, 3), factor))


def test_priors_are_those_of_their_sources():
    likelihood = _ready(df="learn", n_restarts=1)
    df, sigma2 = (likelihood.values()[name].detach().numpy()[0] for name in ("df", "sigma2"))
    priors = likelihood.priors()
    got = priors["df"].log_prob(torch.as_tensor(df)[None])
    np.testing.assert_allclose(got, stats.gamma.logpdf(df, 2, scale=10).sum(), rtol=1e-5)
    got = priors["sigma2"].log_prob(torch.as_tensor(sigma2)[None])
    np.testing.assert_allclose(got, stats.invgamma.logpdf(sigma2, 1.5, scale=0.015).sum(), rtol=1e-5)
    # of sigma, for chains: the same but for a constant and the change of variable
    d = torch.tensor([0.01, 0.5, 2.0], dtype=torch.float64)
    want = stats.invgamma.logpdf(d.numpy(), 1.5, scale=0.015) + 0.5 * np.log(d.numpy())
    difference = likelihood.log_dispersion_prior(d).numpy() - want
    np.testing.assert_allclose(difference, difference[0])


def test_chains_draw_the_degrees_of_freedom_and_the_scales_by_themselves():
    likelihood = StudentT(df="learn")
    likelihood.setup(3, 2)
    parameters = LikelihoodParameters(likelihood, likelihood.dispersion_parameters())
    assert (parameters.drawn, parameters.held) == ({"log_df": "df"}, [])


def test_start_is_that_of_normal_noise():
    likelihood, normal = StudentT(), Normal()
    for each in (likelihood, normal):
        each.setup(3, 2)
        each.start_noise(torch.tensor([[[0.05, 0.5, 0.9]], [[0.9, 0.15, 0.3]]]))
    torch.testing.assert_close(likelihood.scale(), normal.noise_sd())
    np.testing.assert_allclose(StudentT().start(np.array([[1.0], [2.0], [900.0], [np.nan]])), [2.0])


def test_outliers_do_not_set_the_unit():
    x = np.random.default_rng(0).normal(3.0, 2.0, (400, 2))
    plain = StudentT().units(x, True)
    np.testing.assert_allclose(plain, Normal().units(x, True), rtol=1e-2)
    x[0, 0], x[1, 1] = 1e6, np.nan
    likelihood = StudentT()
    likelihood.calibrate(torch.as_tensor(x))
    centre, scale = likelihood.units(x, True)
    np.testing.assert_allclose((centre, scale), plain, rtol=0.05)
    view = likelihood.encoder_view(torch.as_tensor(x)).numpy()
    np.testing.assert_allclose((np.nanmean(view, 0), np.nanstd(view, 0)), (centre, scale), rtol=1e-5)
    assert np.isnan(view[1, 1]) and view[0, 0] < 20
    np.testing.assert_allclose(likelihood.units(x, False), [[0, 0], [1, 1]])


def test_columns_of_few_levels_or_unseen_have_units():
    x = np.column_stack([np.repeat([0.0, 1.0], [32, 8]), np.full(40, np.nan), np.arange(40.0)])
    likelihood = StudentT()
    likelihood.calibrate(torch.as_tensor(x))
    np.testing.assert_allclose(likelihood.units(x[:, [0, 2]], True)[0], [0.2, 19.5])
    view = likelihood.encoder_view(torch.as_tensor(x))
    np.testing.assert_array_equal(view.numpy(), x)


@pytest.mark.parametrize("df", [1, 0.5, -3, "auto", True, None, float("nan"), float("inf")])
def test_degrees_of_freedom_that_are_none_are_refused(df):
    with pytest.raises(ValueError, match='df: got .*wanted a number above 1, such as 4, or "learn"'):
        StudentT(df=df)


@pytest.mark.parametrize(
    ("options", "words"), [({"init": 0.01}, "floor < init"), ({"prior_shape": 0}, "prior_shape")]
)
def test_scales_that_are_none_are_refused(options, words):
    with pytest.raises(ValueError, match=f"StudentT: .*{words}"):
        StudentT(**options)


def test_it_has_a_name_and_stands_beside_others():
    likelihood = get_likelihood("student_t")
    assert type(likelihood) is StudentT and likelihood.standardise
    mixed = Columns({(0, 1): "student_t", 2: "bernoulli", 3: StudentT(df="learn")})
    mixed.setup(4)
    assert set(mixed.dispersion_parameters()) == {"parts.0.log_sigma", "parts.2.log_sigma"}
    parameters = LikelihoodParameters(mixed, mixed.dispersion_parameters())
    assert parameters.drawn == {"parts.2.log_df": "student_t2_df"}


@pytest.mark.slow
def test_a_planted_graph_is_found_in_spite_of_outliers(tmp_path):
    rng = np.random.default_rng(1000)
    graph = np.zeros((10, 2), dtype=bool)
    graph[:5, 0] = graph[5:, 1] = True
    z = rng.normal(size=(250, 2))
    x = 20 + 4 * (z @ graph.T + 0.5 * rng.standard_t(2.5, (250, 10)))
    x[rng.random(x.shape) < 0.01] += 200
    x[rng.random(x.shape) < 0.05] = np.nan
    model = ps.models.SparseDecoder(10, 2, decoder="linear", likelihood="student_t")
    fit = ps.fit(model, x, restarts=2, steps=800, seed=0, progress=False)
    p = ps.edge_prob(fit.edge_posterior(sweeps=150, warm_up=50, num_draws=50)).to_numpy()
    graph = graph if p[:5, 0].sum() > p[:5, 1].sum() else graph[:, ::-1]
    assert (p[graph] > 0.9).all() and (p[~graph] < 0.5).all()
    fit.save(tmp_path / "fit.pt")
    again = ps.load(tmp_path / "fit.pt")
    np.testing.assert_allclose(again.predict(x[:20]), fit.predict(x[:20]), rtol=1e-5)
    assert np.isfinite(fit.score(x)) and not np.isnan(fit.impute(x)).any()
