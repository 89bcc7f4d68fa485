"""What chains say of edges that are not permitted: against integrals, and to a user with a wrong anchor."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

import pyro_sparse as ps
from pyro_sparse.inference.edges.density import decoder_program as _decoder_program
from pyro_sparse.inference.edges.density.cells import Cells
from pyro_sparse.inference.edges.density.curves import Curve, Trunk
from pyro_sparse.inference.edges.density.decoder_program import DecoderState
from pyro_sparse.inference.edges.density.mixture import MixtureDensity
from pyro_sparse.inference.edges.density.weight import SpikeSlab
from pyro_sparse.inference.edges.mcmc.decoder import DecoderChains
from pyro_sparse.inference.edges.mcmc.linear import LinearChains, LinearState
from pyro_sparse.inference.edges.mcmc.row_moments import Moments
from pyro_sparse.inference.edges.moves.rotations import related_factors

ROWS, SLAB, SPIKE, NOISE = 12, 1.0, 0.1, 0.8
LAW = MixtureDensity(True, SLAB, SPIKE)
PERMITTED = np.array([[True, False], [False, True], [True, True]])
MUST = np.array([[True, False], [False, True], [False, False]])
RATES = (np.full(2, 2.0), np.full(2, 3.0))
ETA = np.array([0.3, 0.6])
NORMAL = ps.likelihoods.Normal()


@pytest.fixture
def world():
    """Factors, weights and cells of three features; the first depends on a factor that it must not see."""
    rng = np.random.default_rng(5)
    z = rng.standard_normal((ROWS, 2))
    weight = np.array([[1.0, 0.0], [0.0, -0.8], [0.5, 0.4]])
    f = z @ weight.T
    f[:, 0] += 0.5 * z[:, 1]
    return z, weight, f + np.sqrt(NOISE) * rng.standard_normal(f.shape), rng


def tensor(values):
    return torch.as_tensor(np.asarray(values), dtype=torch.float32)


def odds_of(log_evidence, eta, nodes=4001):
    """P(slab) of a weight by the trapezoid rule over fine grids, of the log evidence of a grid of them."""

    def average(scale):
        w = scale * np.linspace(-12, 12, nodes)
        level = log_evidence(w) + stats.laplace(scale=scale).logpdf(w)
        top = level.max()
        return top + np.log(integrate.trapezoid(np.exp(level - top), w))

    return special.expit(np.log(eta / (1 - eta)) + average(SLAB) - average(SPIKE))


def moments_of(x, z):
    gram = (z.T @ z)[None]
    total = z.sum(0)[None, None]
    return Moments(gram[:, None], (x.T @ z)[None], total[:, None], gram, total)


def decoder_chains(world, likelihood, x, curve, trunk, head):
    z, weight, _, _ = world
    chains = DecoderChains(
        Cells(tensor(x.T[None]), None, {}, likelihood or NORMAL), curve, LAW, torch.as_tensor(PERMITTED),
        torch.as_tensor(MUST), related_factors(np.eye(2)), RATES, False, (1.0, 1.0),
    )  # fmt: skip
    noise = torch.full((1, 3), NOISE if likelihood is None else 1.0)
    odds = tensor(special.logit(ETA))[None, None]
    edge = torch.as_tensor(weight != 0)[None]
    precision = torch.eye(2, dtype=torch.float64)[None]
    return chains, DecoderState(
        tensor(z[None]), tensor(weight[None]), edge, odds, head, noise, trunk, precision, {}
    )


def test_linear_chains_have_the_odds_of_the_integral(world):
    z, weight, x, _ = world
    c = np.array([[0.2, -0.1, 0.0]])
    chains = LinearChains(
        x[None], None, PERMITTED, MUST, SpikeSlab(True, np.array(SPIKE / SLAB)), SLAB, RATES, False,
        (1.0, 1.0), 1.0, np.zeros((2, 2), dtype=bool), False,
    )  # fmt: skip
    state = LinearState(
        weight[None], (weight != 0)[None], special.logit(ETA)[None, None], np.full((1, 3), NOISE),
        c[..., None], np.eye(2)[None], moments_of(x, z),
    )  # fmt: skip
    found = chains.if_permitted(state)[0]
    for j, k in ((0, 1), (1, 0)):

        def log_evidence(w, j=j, k=k):
            mean = c[0, j] + z @ weight[j] + w[:, None] * z[:, k]
            return stats.norm(mean, np.sqrt(NOISE)).logpdf(x[:, j]).sum(-1)

        assert found[j, k] == pytest.approx(odds_of(log_evidence, ETA[k]), abs=1e-5)
    assert not found[PERMITTED].any()


def test_lines_under_poisson_have_the_odds_of_the_integral(world):
    """The intercept is summed out by Laplace's method, the weight over quantiles."""
    z, weight, f, rng = world
    x = rng.poisson(np.exp(0.5 * f)).astype(float)
    empty = Trunk(*[torch.zeros(1, 1, 1)] * 3)
    head = torch.zeros(1, 3, 1, dtype=torch.float64)
    likelihood = ps.likelihoods.Poisson(size_factors=False)
    chains, state = decoder_chains(world, likelihood, x, Curve(None, 1), empty, head)
    found = chains.if_permitted(state)[0].numpy()
    heights = np.linspace(-6, 6, 801)
    for j, k in ((0, 1), (1, 0)):

        def log_evidence(w, j=j, k=k):
            log_rate = z @ weight[j] + w[:, None, None] * z[:, k] + heights[:, None]
            level = stats.poisson(np.exp(log_rate)).logpmf(x[:, j]).sum(-1) + stats.norm().logpdf(heights)
            return special.logsumexp(level, axis=-1)

        assert found[j, k] == pytest.approx(odds_of(log_evidence, ETA[k], nodes=401), abs=0.02)
    assert not found[PERMITTED].any()


def test_curves_have_the_odds_of_the_integral_whatever_the_pieces(world, monkeypatch):
    """Evidence of a curve is that of a normal of low rank; in one piece or feature by feature."""
    z, weight, x, rng = world
    curve, h = Curve("tanh", 4), 4
    first, second, bias = (rng.standard_normal((1, *size)) for size in ((2, h), (h, h), (1, h)))
    trunk = Trunk(tensor(first), tensor(second), tensor(bias))
    head = torch.zeros(1, 3, h + 2, dtype=torch.float64)
    chains, state = decoder_chains(world, None, x, curve, trunk, head)
    found = chains.if_permitted(state)[0].numpy()
    sd = np.array([1.0, 0.7, *[1 / np.sqrt(h)] * h])

    def of_one(w, j, k):
        u = z * (weight[j] + w * np.eye(2)[k])
        above = np.tanh(np.tanh(u @ first[0]) @ (1.4 / np.sqrt(h) * second[0]) + 0.5 * bias[0])
        phi = np.column_stack([np.ones(ROWS), u.sum(1), above]) * sd
        cov = phi @ phi.T + NOISE * np.eye(ROWS)
        return stats.multivariate_normal(np.zeros(ROWS), cov).logpdf(x[:, j])

    for j, k in ((0, 1), (1, 0)):

        def log_evidence(w, j=j, k=k):
            return np.array([of_one(v, j, k) for v in w])

        assert found[j, k] == pytest.approx(odds_of(log_evidence, ETA[k], nodes=401), abs=0.02)
    monkeypatch.setattr(_decoder_program, "_CACHE", 1)
    np.testing.assert_allclose(chains.if_permitted(state)[0].numpy(), found, rtol=1e-5)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("decoder", ["linear", pytest.param("mlp", marks=pytest.mark.slow)])
def test_a_wrong_anchor_is_named_and_right_ones_are_not(decoder):
    rng = np.random.default_rng(0)
    edges = np.array([[1, 0], [0, 1], [1, 0], [1, 1], [0, 1], [0, 0], [1, 0], [0, 1]])
    x = rng.standard_normal((200, 2)) @ edges.T + 0.5 * rng.standard_normal((200, 8))

    def asked(anchors, sweeps=150):
        prior = ps.priors.SpikeSlabLasso(lambda0=20.0, b=2.0)
        model = ps.models.SparseDecoder(8, 2, prior=prior, decoder=decoder, hidden=6, anchors=anchors)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            fit = ps.fit(model, x, restarts=1, steps=150, seed=0, progress=False)
            idata = fit.edge_posterior("mcmc", sweeps=sweeps, num_draws=20)
        against = [w for w in said if str(w.message).startswith("edge_posterior: Anchors")]
        assert all(w.filename == __file__ for w in against)  # where the caller stands
        return idata, [str(w.message) for w in against]

    idata, against = asked({0: 0, 1: 1})
    p = idata["edge_posterior"]["if_permitted"].to_numpy()
    assert against == [] and "contradict" not in idata.attrs["verdict"]
    assert (np.isnan(p) == (np.arange(8) > 1)[:, None] | np.eye(8, 2, dtype=bool)).all()
    assert p[0, 1] < 0.5 and p[1, 0] < 0.5
    idata, against = asked({0: 0, 1: 1, 3: 0})
    assert len(against) == 1 and "factor 2 would have edges to x1 (p" in against[0]  # or from x4
    assert against[0].removeprefix("edge_posterior: ") in idata.attrs["verdict"]
    free = asked(None, sweeps=20)[0]["edge_posterior"]
    assert "if_permitted" not in free
