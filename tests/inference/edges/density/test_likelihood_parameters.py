"""Parameters of a likelihood of one's own are drawn by the chains from the right density."""

from __future__ import annotations

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from scipy import stats
from scipy.special import expit

import pyro_sparse as ps
from pyro_sparse.inference.edges.density.cells import Cells
from pyro_sparse.inference.edges.density.likelihood_parameters import LikelihoodParameters
from pyro_sparse.likelihoods import Columns, Likelihood, Ordinal
from pyro_sparse.likelihoods.base import NOTHING
from pyro_sparse.models import SparseDecoder

pytestmark = pytest.mark.usefixtures("hurried_module")

A, B = 3.0, 0.4


class Noisy(Likelihood):
    """Normal cells whose log standard deviation is a parameter; its variance is inverse gamma."""

    separable = True

    def __init__(self, shared=False, spoken=True):
        super().__init__()
        self.shared, self.spoken = shared, spoken

    def setup(self, n_features, n_restarts=1):
        self.log_sd = torch.nn.Parameter(torch.zeros(n_restarts, 1, 1 if self.shared else n_features))

    def priors(self):
        one = torch.full_like(self.log_sd[:, 0], A)
        return {"variance": dist.InverseGamma(one, 0 * one + B).to_event(1)} if self.spoken else {}

    def values(self):
        return {"variance": (2 * self.log_sd[:, 0]).exp()} if self.spoken else {}

    def forward(self, f, per_row=NOTHING):
        return dist.Normal(f, self.log_sd.exp())

    def mean(self, f, per_row=NOTHING):
        return f


def parameters(chains, features, **how):
    likelihood = Noisy(**how)
    likelihood.setup(features, chains)
    return LikelihoodParameters(likelihood)


@pytest.mark.parametrize("shared", [False, True])
def test_draws_follow_the_conditional(shared):
    chains, features, rows = 400, 3, 12
    own = parameters(chains, features, shared=shared)
    assert own.drawn == {"log_sd": "variance"} and own.held == []
    rng = np.random.default_rng(0)
    left = torch.as_tensor(rng.normal(size=(rows, features)) * [0.3, 1.0, 4.0], dtype=torch.float32)

    cells = Cells(left.mT[None], None, {}, own.likelihood)
    f, noise = torch.zeros(chains, features, rows), torch.ones(chains, features)
    now = own.start()
    for _ in range(40):
        now = own.moved(now, cells, f, noise, rng)
    found = (2 * now[0][:, 0]).exp().numpy()
    square = left.double().square().sum(0).numpy()
    for j in range(found.shape[1]):
        n, s = (rows * features, square.sum()) if shared else (rows, square[j])
        density = stats.invgamma(A + n / 2, scale=B + s / 2)
        assert stats.kstest(found[:, j], density.cdf).pvalue > 1e-3
    # the density itself, up to a constant, against scipy's: that of the logarithm of the standard deviation
    sd = now[0][:, 0].exp().double().numpy()
    wanted = stats.invgamma(A, scale=B).logpdf(sd**2) + np.log(2 * sd**2)
    np.testing.assert_allclose(own.log_prior(now)[0].numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_parameters_of_some_columns_follow_their_conditional_given_those_columns():
    """Gaps between cuts of a column of three levels, beside columns of other kinds, against quadrature."""
    chains, rows = 400, 40
    likelihood = Columns({(0, 2): Noisy(), 1: Ordinal(levels=(0, 2))})
    likelihood.setup(3, chains)
    own = LikelihoodParameters(likelihood)
    assert own.drawn == {"parts.0.log_sd": "Noisy_variance", "parts.1.log_gap_1": "ordinal_gap_1"}
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, rows))
    x[1] = (rng.logistic(size=rows)[None] > np.array([[0.0], [1.2]])).sum(0)
    cells = Cells(torch.as_tensor(x, dtype=torch.float32)[None], None, {}, likelihood)
    f, noise = torch.zeros(chains, 3, rows), torch.ones(chains, 3)
    now = own.start()
    for _ in range(30):
        now = own.moved(now, cells, f, noise, rng)
    variance = (2 * now[0][:, 0]).exp().numpy()
    for at, j in enumerate((0, 2)):
        density = stats.invgamma(A + rows / 2, scale=B + (x[j] ** 2).sum() / 2)
        assert stats.kstest(variance[:, at], density.cdf).pvalue > 1e-3
    grid = np.linspace(-4, 3, 4001)  # log gap; the middle of two cuts is the lower one, at 0
    upper = expit(np.exp(grid))
    count = [(x[1] == level).sum() for level in range(3)]
    log_p = count[1] * np.log(upper - 0.5) + count[2] * np.log1p(-upper) - 0.5 * (grid - np.log(2.0)) ** 2
    cdf = np.cumsum(np.exp(log_p - log_p.max()))
    drawn = now[1][:, 0, 0].numpy()
    assert stats.kstest(drawn, lambda value: np.interp(value, grid, cdf / cdf[-1])).pvalue > 1e-3


def test_draws_from_the_prior():
    own = parameters(2000, 2)
    torch.manual_seed(0)
    found = (2 * own.from_prior()[0][:, 0]).exp().numpy().ravel()
    assert stats.kstest(found, stats.invgamma(A, scale=B).cdf).pvalue > 1e-3


def test_simulated_tables_have_the_noise_of_the_prior():
    model = SparseDecoder(
        30, 1, decoder="linear", likelihood=Noisy(), forbidden=[(j, 0) for j in range(1, 30)]
    )
    trial = ps.calibrate.experiment(model, n_rows=4000, steps=5)
    _, x = trial.simulate(np.random.default_rng(0))
    density = stats.invgamma(A, scale=B)
    assert stats.kstest(x[:, 1:].var(0), density.cdf).pvalue > 1e-3


def test_a_value_out_of_reach_is_told():
    class Capped(Noisy):
        def values(self):
            return {"variance": 0.01 * torch.sigmoid(self.log_sd[:, 0])}

    likelihood = Capped()
    likelihood.setup(2, 1)
    with pytest.raises(ValueError, match=r"no log_sd in .* gives variance the value that its prior drew"):
        LikelihoodParameters(likelihood).from_prior()


def test_a_parameter_nobody_speaks_of_is_held_and_told():
    own = parameters(2, 3, spoken=False)
    assert own.drawn == {} and own.held == ["log_sd"]
    data = ps.datasets.sim1(n=60, seed=1)
    likelihood = Noisy(spoken=False)
    model = SparseDecoder(7, 2, decoder="linear", likelihood=likelihood, encoder_hidden=4)
    fit = ps.fit(model, data.x, restarts=1, n_factors_init=[2], steps=30, progress=False)
    with pytest.warns(RuntimeWarning, match="The likelihood's log_sd stays where the fit left it"):
        fit.edge_posterior("mcmc", sweeps=20, warm_up=10, num_draws=10, progress=False)


def test_a_quantity_of_two_parameters_is_no_prior_of_either():
    class Split(Noisy):
        def setup(self, n_features, n_restarts=1):
            super().setup(n_features, n_restarts)
            self.more = torch.nn.Parameter(torch.zeros_like(self.log_sd))

        def values(self):
            return {"variance": (2 * (self.log_sd + self.more)[:, 0]).exp()}

    likelihood = Split()
    likelihood.setup(3, 2)
    own = LikelihoodParameters(likelihood)
    assert own.drawn == {} and own.held == ["log_sd", "more"]


@pytest.mark.slow
def test_edges_are_those_of_the_likelihood_they_stand_for():
    """Two rows of chains over the same program: normal noise by its own kernel, and as a user writes it.

    Of 16 rows a chain that begins with all edges may stay a thousand sweeps in a worse mode. Its own kernel
    has short ones, and so more of them.
    """
    data = ps.datasets.sim1(n=16, seed=3)
    x = (data.x - data.x.mean(0)) / data.x.std(0)
    found = []
    normal = ps.likelihoods.Normal(prior_shape=A, prior_scale=B)
    for likelihood, sweeps in ((normal, 12_000), (Noisy(), 1500)):
        model = SparseDecoder(
            7, 2, decoder="linear", likelihood=likelihood, encoder_hidden=8, anchors={0: 0, 6: 1}
        )
        fit = ps.fit(model, x, restarts=1, n_factors_init=[2], steps=200, holdout=0, progress=False, seed=0)
        idata = fit.edge_posterior("mcmc", sweeps=sweeps, warm_up=300, chains=4, seed=0, progress=False)
        found.append(ps.edge_prob(idata).to_numpy())
    np.testing.assert_allclose(found[0], found[1], atol=0.05)  # .09 if it were held
