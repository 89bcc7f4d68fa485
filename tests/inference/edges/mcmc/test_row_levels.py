"""Log densities of rows with their factors summed out, against normal densities and against quadrature."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

import pyro_sparse as ps
from pyro_sparse.inference.edges.density.cells import Cells
from pyro_sparse.inference.edges.density.curves import Curve, Trunk
from pyro_sparse.inference.edges.density.decoder_program import DecoderState
from pyro_sparse.inference.edges.density.mixture import MixtureDensity
from pyro_sparse.inference.edges.mcmc.decoder import DecoderChains
from pyro_sparse.inference.edges.mcmc.kernels import CurvedRun
from pyro_sparse.inference.edges.mcmc.linear import LinearChains, LinearState
from pyro_sparse.inference.edges.mcmc.row_levels import cell_constants, line_levels, linear_levels
from pyro_sparse.inference.edges.moves.rotations import related_factors

N, G, K = 7, 4, 2
LAW = MixtureDensity(True, 1.0, 0.1)
COV = np.array([[1.0, 0.3], [0.3, 1.0]])
EVERY = np.ones((G, K), bool)


@pytest.mark.parametrize("missing", [False, True])
def test_under_normal_noise_they_are_those_of_a_normal_distribution(missing):
    rng = np.random.default_rng(0)
    weight, noise = rng.normal(size=(2, G, K)), rng.uniform(0.5, 2, (2, G))
    level, design = rng.normal(size=(2, G, 3)), rng.normal(size=(N, 2))
    x = rng.normal(size=(1, N, G))
    seen = rng.random((1, N, G)) < 0.7 if missing else None
    rates = (np.ones(K), np.ones(K))
    chains = LinearChains(
        x if seen is None else x * seen, seen, EVERY, ~EVERY, LAW.in_slabs(), 1.0, rates, False, (1.0, 1.0),
        1.0, np.ones((K, K), bool), True, design=design,
    )  # fmt: skip
    cov = np.tile(COV, (2, 1, 1))
    state = LinearState(weight, weight != 0, np.zeros((2, 1, K)), noise, level, cov)
    got = linear_levels(chains, state)
    for c, i in itertools.product(range(2), range(N)):
        at = np.ones(G, bool) if seen is None else seen[0, i]
        mean = level[c] @ np.r_[1.0, design[i]]
        whole = weight[c] @ COV @ weight[c].T + np.diag(noise[c])
        if at.any():
            want = stats.multivariate_normal(mean[at], whole[np.ix_(at, at)]).logpdf(x[0, i, at])
            assert got[c, i] == pytest.approx(want, abs=1e-9)


@pytest.mark.parametrize("kind", ["bernoulli", "poisson", "negative binomial"])
def test_under_others_they_are_those_of_quadrature(kind):
    rng = np.random.default_rng(1)
    weight, c = rng.normal(size=(G, K)), rng.normal(size=G)
    effects, design = rng.normal(size=(G, 1)), rng.normal(size=(1, N))
    x = rng.poisson(2, (G, N)).astype(float) if kind != "bernoulli" else (rng.random((G, N)) < 0.5) * 1.0
    seen = rng.random((G, N)) < 0.8
    likelihood = {
        "bernoulli": ps.likelihoods.Bernoulli(),
        "poisson": ps.likelihoods.Poisson(size_factors=False),
        "negative binomial": ps.likelihoods.NegativeBinomial(size_factors=False),
    }[kind]
    likelihood.calibrate(torch.as_tensor(x.T))
    likelihood.setup(G, 1)
    likelihood.double()
    empty = torch.zeros(1, 1, 1, dtype=torch.float64)

    def tensor(values):
        return torch.as_tensor(values, dtype=torch.float64)

    noise = likelihood.dispersion().detach() if likelihood.has_dispersion else torch.ones(1, G).double()
    program = DecoderChains(
        Cells(tensor(x[None] * seen), tensor(seen[None]), {}, likelihood), Curve(None, 1), LAW,
        torch.as_tensor(EVERY), torch.as_tensor(~EVERY), related_factors(COV),
        (np.ones(K), np.ones(K)), False, (1.0, 1.0), design=tensor(design),
    )  # fmt: skip
    state = DecoderState(
        torch.zeros(1, N, K).double(), tensor(weight[None]), torch.ones(1, G, K, dtype=torch.bool),
        torch.zeros(1, 1, K).double(), tensor(c[None, :, None]), noise, Trunk(empty, empty, empty),
        tensor(np.linalg.inv(COV)[None]), {},
        effects=tensor(effects[None]),
    )  # fmt: skip
    with torch.no_grad():
        constants = cell_constants(program, state)
        runs = [line_levels(program, state, constants, np.random.default_rng(s))[0] for s in range(20)]
    nodes, mass = np.polynomial.hermite_e.hermegauss(60)
    grid = np.array(list(itertools.product(nodes, nodes))) @ np.linalg.cholesky(COV).T
    weights = np.outer(mass, mass).ravel() / mass.sum() ** 2
    f = grid @ weight.T  # node, feature
    for i in range(N):
        whole = tensor(f + c + effects[:, 0] * design[0, i])[None]
        log_p = likelihood(whole).log_prob(tensor(x[:, i])).detach().numpy()[0]
        want = np.log((weights * np.exp((log_p * seen[:, i]).sum(1))).sum())
        values = np.array([run[i] for run in runs])
        assert values.std() < 0.12
        assert values.mean() == pytest.approx(want, abs=0.05)


def test_chains_in_other_axes_are_compared_with_factors_summed_out():
    """Next to collinear factors have a large prior density in every row, and predict what others do, too."""
    rng = np.random.default_rng(3)
    cov = np.array([[1.0, 0.97], [0.97, 1.0]])
    weight, n = rng.normal(size=(G, K)), 60
    root = np.linalg.cholesky(cov)
    z = rng.normal(size=(n, K))
    f = z @ (weight @ root).T
    x = torch.as_tensor((rng.random((n, G)) < 1 / (1 + np.exp(-f))).T[None] * 1.0)
    empty = torch.zeros(2, 1, 1, dtype=torch.float64)
    kernel = DecoderChains(
        Cells(x, None, {}, ps.likelihoods.Bernoulli()), Curve(None, 1), LAW,
        torch.as_tensor(EVERY), torch.as_tensor(~EVERY), related_factors(cov),
        (np.ones(K), np.ones(K)), False, (1.0, 1.0), learn_cov=True,
    )  # fmt: skip
    state = DecoderState(
        torch.as_tensor(np.stack([z @ root.T, z])), torch.as_tensor(np.stack([weight, weight @ root])),
        torch.ones(2, G, K, dtype=torch.bool), torch.zeros(2, 1, K).double(), torch.zeros(2, G, 1).double(),
        torch.ones(2, G), Trunk(empty, empty, empty),
        torch.as_tensor(np.stack([np.linalg.inv(cov), np.eye(K)])), {},
    )  # fmt: skip
    run = CurvedRun(kernel, state, np.zeros(2, bool))
    of_parameters = kernel.log_parameters(state, kernel.value(state)).numpy()
    rows = run.log_joint(np.random.default_rng(0)) - of_parameters
    assert rows[0] == pytest.approx(rows[1], abs=2.0)  # of 60 rows, each by 16 draws
    f = kernel.value(state)
    by_hand = stats.multivariate_normal(cov=cov).logpdf(state.z[0].numpy()).sum()
    by_hand -= stats.norm.logpdf(state.z[1].numpy()).sum()
    with_factors = kernel.log_joint(state, f).numpy() - of_parameters
    assert with_factors[0] - with_factors[1] == pytest.approx(by_hand, abs=1e-3) and by_hand > 50
    assert run.joint_every > 1 and not run.volume().any()


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:Estimated shape parameter of Pareto"
)  # of one row in 200, by the chains' noise
def test_arviz_prefers_the_factor_that_is_there():
    import arviz as az

    rng = np.random.default_rng(2)
    weight = np.kron(np.eye(2), np.ones((4, 1)))
    x = rng.normal(size=(200, 2)) @ weight.T + 0.7 * rng.normal(size=(200, 8))
    levels = {}
    for k in (1, 2):
        model = ps.models.SparseDecoder(n_factors=k, decoder="linear")
        fit = ps.fit(model, 3 * x, restarts=2, seed=0, progress=False)
        levels[k] = fit.edge_posterior(log_likelihood=True)
        group = levels[k].log_likelihood["x"]
        assert group.dims == ("chain", "draw", "sample") and group.shape[2] == 200
        mean = float(group.mean(("chain", "draw")).sum())
        assert mean == pytest.approx(fit.log_likelihood().sum(), abs=40)  # the fit's bound, in the same units
    first = az.compare(levels).index[0]
    assert int(first) == 2
    shapes = az.loo(levels[2], pointwise=True).pareto_k
    assert (shapes > 0.7).sum() <= 1  # leaving a row out is a small step from the draws


def test_where_they_are_not_known_they_are_refused():
    x = np.random.default_rng(0).normal(size=(40, 4))
    fit = ps.fit(ps.models.SparseDecoder(n_factors=1), x, restarts=1, steps=20, progress=False)
    with pytest.raises(ValueError, match="log_likelihood: of curved decoders"):
        fit.edge_posterior("mcmc", log_likelihood=True)
    likelihood = ps.likelihoods.Poisson(size_factors=True)
    model = ps.models.SparseDecoder(n_factors=1, decoder="linear", likelihood=likelihood)
    fit = ps.fit(model, np.random.default_rng(0).poisson(5, (40, 4)), restarts=1, steps=20, progress=False)
    with pytest.raises(ValueError, match="log_likelihood: of rows whose totals"):
        fit.edge_posterior("mcmc", log_likelihood=True)
