"""Measurements with limits: the battery, the density against scipy, limits in the model's units, moments."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from scipy import integrate, stats

import pyro_sparse as ps
from pyro_sparse.data.read import as_table
from pyro_sparse.inference.edges.density.likelihood_parameters import LikelihoodParameters
from pyro_sparse.likelihoods import CensoredNormal, Column, Columns, Normal, get_likelihood
from pyro_sparse.testing.likelihood import LikelihoodTestCase

# rough axes and posteriors of rows: none of these tests is about how good they are
pytestmark = pytest.mark.usefixtures("hurried_module")


class TestCensoredNormalWithoutLimits(LikelihoodTestCase):
    def make(self):
        return CensoredNormal()


class TestCensoredNormal(LikelihoodTestCase):
    def make(self):
        return CensoredNormal(left=-0.7, right=1.2)

    def test_density_sums_to_one(self):
        """Probabilities of the limits, and the integral of the density between them."""
        likelihood, f = self.ready(3), self.predictor(1, 1, 3)
        for j in range(3):

            def density(x, j=j):
                return likelihood(f).log_prob(torch.full((1, 3), float(x)))[0, 0, j].exp().item()

            centre = min(max(float(f[0, 0, j]), -0.69), 1.19)
            between = sum(
                integrate.quad(density, a, b, limit=200)[0]
                for a, b in ((-0.7 + 1e-4, centre), (centre, 1.2 - 1e-4))
            )
            np.testing.assert_allclose(density(-0.7) + density(1.2) + between, 1.0, atol=1e-3)


def _ready(n_restarts=2, left=(-0.5, None, -1.0), right=(None, 0.5, 1.0)):
    likelihood = CensoredNormal(left, right)
    likelihood.setup(3, n_restarts)
    with torch.no_grad():
        for p in likelihood.double().parameters():
            p.add_(1 + 0.5 * torch.randn(p.shape, generator=torch.Generator().manual_seed(3), dtype=p.dtype))
    return likelihood


def _f_and_x(likelihood, n_restarts=2, n_rows=9):
    f = torch.randn(n_restarts, n_rows, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(2)
        return f, likelihood(f).sample()[0]


def test_density_is_scipys_with_a_limit_for_each_column():
    likelihood = _ready()
    f, x = _f_and_x(likelihood)
    x[0] = torch.tensor([-3.0, 0.7, 1.5])  # beyond limits
    g, cells, sd = f.numpy(), x.numpy(), likelihood.scale().detach().numpy()
    low, high = np.array([-0.5, -np.inf, -1.0]), np.array([np.inf, 0.5, 1.0])
    want = np.where(
        cells <= low,
        stats.norm.logcdf(low, g, sd),
        np.where(cells >= high, stats.norm.logsf(high, g, sd), stats.norm.logpdf(cells, g, sd)),
    )
    np.testing.assert_allclose(likelihood(f).log_prob(x).detach(), want, rtol=1e-9)
    assert (cells <= low).any() and (cells >= high).any()


def test_terms_of_cells_are_those_of_autograd():
    likelihood = _ready()
    f, x = _f_and_x(likelihood)
    lines, d = f.mT.clone().requires_grad_(), likelihood.dispersion()
    log_p, slope, bend = likelihood.cell_terms(lines, x.mT[None], d, {}, 2)
    wanted = likelihood(lines.mT).log_prob(x).mT
    (by_f,) = torch.autograd.grad(wanted.sum(), lines, create_graph=True)
    (by_f2,) = torch.autograd.grad(by_f.sum(), lines)
    torch.testing.assert_close(slope.detach(), by_f.detach())
    torch.testing.assert_close(bend.detach(), -by_f2)
    left_out = (wanted - log_p).detach()  # moved by nothing, the dispersion included
    assert set(left_out.flatten().numpy().round(9)) == {0.0, round(-0.5 * np.log(2 * np.pi), 9)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cells_far_beyond_a_limit_keep_their_digits(dtype):
    likelihood = CensoredNormal(left=0.0)
    likelihood.setup(1)
    d = torch.ones(1, 1, dtype=dtype)
    f = torch.tensor([[[-40.0, -1.0, 10.0, 19.0, 21.0, 300.0, 3000.0]]], dtype=dtype)
    log_p, slope, bend = likelihood.cell_terms(f, torch.zeros_like(f), d, {}, 2)
    t = -f[0, 0].double().numpy()
    np.testing.assert_allclose(log_p[0, 0], stats.norm.logcdf(t), rtol=1e-5, atol=1e-30)
    mills = np.exp(stats.norm.logpdf(t) - stats.norm.logcdf(t))
    np.testing.assert_allclose(slope[0, 0], -mills, rtol=1e-4, atol=1e-30)
    assert ((bend >= 0) & (bend <= 1)).all()
    np.testing.assert_allclose(bend[0, 0, 2:], 1 - 1 / t[2:] ** 2 + 6 / t[2:] ** 4, atol=2e-3)


def test_moments_are_those_of_quadrature():
    likelihood = _ready(1)
    f = torch.tensor([[[-1.0, 0.4, 0.1], [3.0, -2.0, -1.4]]], dtype=torch.float64)
    cells, sd = likelihood(f), likelihood.scale().detach().numpy()[0, 0]
    low, high = np.array([-0.5, -np.inf, -1.0]), np.array([np.inf, 0.5, 1.0])
    for i, j in np.ndindex(2, 3):
        y = stats.norm(f[0, i, j].item(), sd[j])
        a, b = (y.ppf(q) for q in (1e-12, 1 - 1e-12))
        points = [point for point in (low[j], high[j]) if a < point < b]
        first, second = (
            integrate.quad(lambda v: np.clip(v, low[j], high[j]) ** p * y.pdf(v), a, b, points=points)[0]  # noqa: B023
            for p in (1, 2)
        )
        np.testing.assert_allclose(cells.mean[0, i, j].detach(), first, rtol=1e-6)
        np.testing.assert_allclose(cells.variance[0, i, j].detach(), second - first**2, rtol=1e-4, atol=1e-9)
    assert cells.expand((4, 2, 3)).sample((5,)).shape == (5, 4, 2, 3)


def test_without_limits_it_is_normal():
    likelihood, normal = CensoredNormal(), Normal()
    f, x = torch.randn(2, 5, 3), torch.randn(5, 3)
    for each in (likelihood, normal):
        each.setup(3, 2)
    torch.testing.assert_close(likelihood.log_prob(f, x), normal.log_prob(f, x))
    torch.testing.assert_close(likelihood.mean(f), f)


def test_limits_follow_the_units_of_the_table():
    rng = np.random.default_rng(0)
    x = np.maximum(rng.normal(50, 10, (60, 3)), [45.0, 40.0, -np.inf])
    x[rng.random(x.shape) < 0.1] = np.nan
    likelihood = CensoredNormal(left=[45.0, 40.0, None])
    table = as_table(x, likelihood=likelihood)
    np.testing.assert_allclose(table.centre, np.nanmean(x, 0))
    np.testing.assert_allclose(table.scale, np.nanstd(x, 0))
    np.testing.assert_allclose(table.unit(likelihood), 1.0)
    want = (np.array([45.0, 40.0, -np.inf]) - table.centre) / table.scale
    np.testing.assert_allclose(likelihood.lower, want, rtol=1e-6)
    likelihood.setup(3)  # as a fit does: the limits stay
    batch = table.batch()
    at_limit = (
        likelihood(torch.zeros(1, *batch.x.shape)).log_prob(batch.x)
        == likelihood(torch.zeros(1, *batch.x.shape)).log_prob(torch.full_like(batch.x, -9.0))
    )[0]
    seen = ~np.isnan(x)
    np.testing.assert_array_equal(
        at_limit.numpy()[:, :2][seen[:, :2]], (x == [45.0, 40.0, -1])[:, :2][seen[:, :2]]
    )
    new = as_table(x[:20] - 3, likelihood=likelihood, like=table)  # readings beyond a limit
    np.testing.assert_allclose(new.x[:, 0].min(), likelihood.lower[0], rtol=1e-6)  # count as at it
    assert torch.isinf(likelihood.upper).all()


def test_units_of_the_caller_are_kept_where_asked():
    x = np.maximum(np.random.default_rng(0).normal(5, 2, (40, 3)), 4.0)
    likelihood = CensoredNormal(left=4.0)
    table = as_table(x, likelihood=likelihood, standardise=False)
    assert likelihood.lower.tolist() == [4.0] * 3
    np.testing.assert_allclose(table.unit(likelihood), x.std(0))


def test_covariates_leave_the_scale_that_the_limits_are_in():
    rng = np.random.default_rng(0)
    group = rng.integers(0, 5, 60).astype(str)
    x = np.maximum(rng.normal(5, 2, (60, 3)), 4.0)
    likelihood = CensoredNormal(left=4.0)
    table = as_table(x, likelihood=likelihood, groups=group)
    np.testing.assert_allclose(likelihood.lower, (4.0 - table.centre) / table.scale, rtol=1e-6)


def test_restricted_to_some_columns_it_says_the_same_of_them():
    likelihood = _ready()
    f, x = _f_and_x(likelihood)
    d = likelihood.dispersion().detach()
    whole = likelihood.cell_terms(f.mT, x.mT[None], d, {}, 2)
    for some in (torch.tensor([2, 0]), slice(1, 3)):
        terms = likelihood.of_features(some).cell_terms(f.mT[:, some], x.mT[None][:, some], d[:, some], {}, 2)
        for value, expected in zip(terms, whole, strict=True):
            torch.testing.assert_close(value.detach(), expected[:, some].detach())


def test_a_state_has_the_limits():
    likelihood = _ready(1)
    likelihood.units(np.array([[1.0, 0.2, 0.3], [4.0, 0.4, 0]]), True)
    twin = CensoredNormal((-0.5, None, -1.0), (None, 0.5, 1.0))
    twin.setup(3)
    twin.double().load_state_dict(likelihood.state_dict())
    torch.testing.assert_close(twin.lower, likelihood.lower)
    assert not twin.is_standardised(3).any()


@pytest.mark.parametrize(
    ("left", "right", "error", "words"),
    [
        ("low", None, TypeError, "left: got 'low', wanted a number, or one for each column"),
        (None, [1.0, "x"], TypeError, "right: got .* wanted a number"),
        (float("nan"), None, TypeError, "left: got nan"),
        (2.0, 1.0, ValueError, "got 2.0 and 1.0, wanted each left limit below the right"),
        ([0.0, 3.0], [1.0, 2.0], ValueError, "each left limit below"),
        ([0.0, 3.0], [1.0, 2.0, 3.0], ValueError, "limits of 2 and of 3 columns"),
    ],
)
def test_limits_that_are_none_are_refused(left, right, error, words):
    with pytest.raises(error, match=words):
        CensoredNormal(left, right)


def _columns(*values):
    return [Column(name, float, np.asarray(v)) for name, v in zip("abc", values, strict=False)]


def test_tables_that_do_not_suit_the_limits_are_refused():
    with pytest.raises(ValueError, match="left: there are 2 limits, and X has 3 such columns"):
        CensoredNormal(left=[0.0, 1.0]).check(np.ones((2, 3)))
    columns = _columns([0.5, 1.0, np.nan], [0.1, 0.2, 0.3])
    with pytest.raises(
        ValueError, match=r"column 'b' has no cell between its limits \(0.4, inf\).*bernoulli"
    ):
        CensoredNormal(left=0.4).for_columns(columns)
    with pytest.raises(ValueError, match='"censored_normal" has no limits.*CensoredNormal\\(left=0.5\\)'):
        get_likelihood("censored_normal").for_columns(columns)
    with pytest.raises(ValueError, match="read by rows"):
        CensoredNormal(left=0.4).calibrate_by(torch.ones(3), lambda: torch.ones(2, 1), lambda some: some)
    assert CensoredNormal(left=[0.4, None]).for_columns(columns).left.tolist() == [0.4, -np.inf]


def test_it_stands_beside_others_with_limits_in_the_order_of_its_key():
    limited = CensoredNormal(left=[0.0, 1.0])
    bound = Columns({("c", "a"): limited, "b": "normal"}).for_columns(
        _columns([1.0, 2.0], [3.0, 4.0], [0.0, 5.0])
    )
    bound.units(np.array([[1.0, 3.0, 0.0], [2.0, 4.0, 5.0]]), False)
    part, members = next((part, members) for part, members in bound.families() if part.name == limited.name)
    assert members == [2, 0] and part.lower.tolist() == [0.0, 1.0]
    bound.setup(3)
    parameters = LikelihoodParameters(bound, bound.dispersion_parameters())
    assert not parameters.drawn and not parameters.held


@pytest.mark.slow
def test_a_planted_graph_is_found_where_half_of_the_cells_are_censored(tmp_path):
    rng = np.random.default_rng(1003)
    graph = np.zeros((10, 2), dtype=bool)
    graph[:5, 0] = graph[5:, 1] = True
    x = 30 + 6 * (rng.normal(size=(250, 2)) @ graph.T + 0.6 * rng.normal(size=(250, 10)))
    x = np.maximum(x, 30.0)
    x[rng.random(x.shape) < 0.05] = np.nan
    model = ps.models.SparseDecoder(10, 2, decoder="linear", likelihood=CensoredNormal(left=30.0))
    fit = ps.fit(model, x, restarts=2, steps=800, seed=0, progress=False)
    p = ps.edge_prob(fit.edge_posterior(sweeps=150, warm_up=50, num_draws=50)).to_numpy()
    graph = graph if p[:5, 0].sum() > p[:5, 1].sum() else graph[:, ::-1]
    assert (p[graph] > 0.9).all() and (p[~graph] < 0.5).all()
    fit.save(tmp_path / "fit.pt")
    again = ps.load(tmp_path / "fit.pt")
    np.testing.assert_allclose(again.predict(x[:20]), fit.predict(x[:20]), rtol=1e-5)
    assert np.isfinite(fit.score(x)) and (fit.impute(x) >= 30 - 1e-3).all()
    assert (again.model.likelihood.lower < 0.1).all()


def _beyond(limit=-0.5):
    """A table of which many cells are at a limit, and the same with them written far beyond it."""
    rng = np.random.default_rng(5)
    at = (rng.normal(size=(80, 1)) + 0.6 * rng.normal(size=(80, 4))).clip(min=limit)
    return at, np.where(at == limit, -9.0, at)


@pytest.mark.parametrize(
    "kind",
    ["some", *(pytest.param(name, marks=pytest.mark.slow(hurried=True)) for name in ("all", "covariates"))],
)
def test_how_far_beyond_a_limit_a_cell_is_written_changes_nothing(kind):
    at, beyond = _beyond()
    likelihood = CensoredNormal(left=-0.5)
    if kind == "some":
        likelihood, beyond[:, 2:] = {(0, 1): likelihood, (2, 3): "normal"}, at[:, 2:]
    beside = {"covariates": np.arange(80.0) % 7} if kind == "covariates" else {}
    model = ps.models.SparseDecoder(n_factors=1, decoder="linear", likelihood=likelihood)
    options = {"restarts": 1, "steps": 15, "seed": 0, "progress": False}
    with warnings.catch_warnings():  # other columns repeat a number where not all have limits
        warnings.simplefilter("ignore", RuntimeWarning)
        fit, far = (ps.fit(model, x, **options, **beside) for x in (at, beyond))
    np.testing.assert_array_equal(fit.weights, far.weights)
    np.testing.assert_array_equal(fit.transform(at, **beside), fit.transform(beyond, **beside))
    assert fit.score(at, **beside) == fit.score(beyond, **beside)
    np.testing.assert_array_equal(far.impute(beyond, **beside), beyond)  # cells stay as the caller wrote them


@pytest.mark.slow
def test_targets_of_tasks_beyond_a_limit_are_at_it():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(6, 20, 2))
    y = (x[..., 0] + 0.3 * rng.normal(size=(6, 20))).clip(min=-0.5)
    model = ps.models.MultiTaskRegression(n_latents=2, likelihood=CensoredNormal(left=-0.5))
    options = {"restarts": 1, "steps": 20, "seed": 0, "progress": False}
    fit, far = (ps.fit(model, x, targets, **options) for targets in (y, np.where(y == -0.5, -9.0, y)))
    np.testing.assert_allclose(fit.weights, far.weights, rtol=1e-5)
    np.testing.assert_allclose(fit.predict(), far.predict(), rtol=1e-5)
