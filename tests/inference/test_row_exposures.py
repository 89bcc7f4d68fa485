"""Depth that only totals speak of: its law given all else, and what holding it would cost."""

import numpy as np
import pytest
import torch
from scipy import stats

import pyro_sparse as ps
from pyro_sparse.inference.edges._cells import Cells
from pyro_sparse.inference.edges._curves import Curve, Trunk
from pyro_sparse.inference.edges._decoder_chains import DecoderChains, DecoderState
from pyro_sparse.inference.edges._mixture_law import MixtureLaw
from pyro_sparse.inference.edges._row_exposures import drawn_exposures
from pyro_sparse.inference.edges._shifts import levelled, shifted
from pyro_sparse.models.likelihoods import NegativeBinomial, Poisson

N_CHAINS, F = 4000, np.array([[0.4, -1.0], [2.0, 0.3], [-0.5, 1.1], [0.0, 0.0]])
COUNTS, EXTRA = np.array([[3, 0], [19, 2], [0, 1], [40, 0]]), np.array([0.5, 0.05, 1.5, 0.3])


def drawn(likelihood, seen=None, keep=slice(None), times=12, of=1):
    rng = np.random.default_rng(0)
    x, f, noise = of * COUNTS[keep], F[keep], EXTRA[keep]
    cells = Cells(
        torch.as_tensor(x, dtype=torch.float)[None] * (1 if seen is None else seen), seen, None, likelihood
    )
    f = torch.as_tensor(f, dtype=torch.float).expand(N_CHAINS, -1, -1)
    noise = torch.as_tensor(noise, dtype=torch.float).expand(N_CHAINS, -1)
    now = torch.ones(N_CHAINS, 1, 2)
    for _ in range(times):
        now = drawn_exposures(cells, f, noise, cells.x.sum(1), now, rng)
    return now[:, 0].double().numpy()


@pytest.mark.parametrize("likelihood", [Poisson(size_factors=False), NegativeBinomial(size_factors=False)])
def test_exposures_follow_their_law(likelihood):
    log_s = np.linspace(-8, 8, 4001)
    rate = np.exp(log_s)[:, None, None] * np.exp(F)
    if isinstance(likelihood, NegativeBinomial):
        theta = 1 / EXTRA[:, None]
        level = stats.nbinom.logpmf(COUNTS, theta, theta / (theta + rate)).sum(1)
    else:
        level = stats.poisson.logpmf(COUNTS, rate).sum(1)
    p = np.exp(level - level.max(0))
    p /= p.sum(0)
    mean = log_s @ p
    sd = np.sqrt(log_s**2 @ p - mean**2)
    found = np.log(drawn(likelihood))
    assert found.mean(0) == pytest.approx(mean, abs=4 * sd.max() / np.sqrt(N_CHAINS))
    assert found.std(0) == pytest.approx(sd, rel=0.05)


@pytest.mark.parametrize("likelihood", [Poisson(size_factors=False), NegativeBinomial(size_factors=False)])
def test_missing_cells_say_nothing_of_exposures(likelihood):
    seen = torch.ones(1, 4, 2)
    seen[:, 1] = 0
    few = drawn(likelihood, keep=[0, 2, 3], times=2)
    assert drawn(likelihood, seen, times=2) == pytest.approx(few, rel=1e-4)


@pytest.mark.parametrize("likelihood", [Poisson(size_factors=False), NegativeBinomial(size_factors=False)])
def test_rows_without_a_count_have_hardly_any_exposure(likelihood):
    for seen in (None, torch.zeros(1, 4, 2)):
        assert (drawn(likelihood, seen, times=2, of=0) < 1e-10).all()


@pytest.mark.parametrize("likelihood", ["poisson", "negative_binomial"])
def test_totals_are_no_depth_where_factors_move_them(likelihood):
    """Held as if they were known, they give factors edges to features that these do not move."""
    rng = np.random.default_rng(3)
    edge = np.repeat(np.eye(2, dtype=bool), 12, axis=0)
    weight = edge * rng.choice([-1, 1], (24, 1)) * rng.uniform(0.5, 1.0, (24, 1))
    z, depth = rng.standard_normal((250, 2)), rng.standard_normal((250, 1))
    extra = 1.0 if likelihood == "poisson" else rng.gamma(5, 1 / 5, (250, 24))
    x = rng.poisson(extra * np.exp(depth + 1 + z @ weight.T)).astype(float)

    def false_edges(**given):
        model = ps.models.SparseDecoder(24, 2, likelihood=likelihood, decoder="linear")
        fit = ps.fit(model, x, restarts=1, steps=200, seed=0, progress=False, **given)
        posterior = fit.edge_posterior(sweeps=120, seed=0, progress=False)
        p = posterior["edge_posterior"]["probability"].values
        right = max((edge, edge[:, ::-1]), key=lambda e: (p * e).sum())
        assert (p[right] > 0.5).all()
        return int((p[~right] > 0.5).sum())

    assert false_edges() <= 1
    if likelihood == "poisson":  # else overdispersion hides it
        assert false_edges(exposure=x.sum(1).clip(min=0.5)) >= 6


def chains_of(permitted, counts, n):
    """Chains of a line with one factor, all at one state."""
    g, rows = counts.shape
    likelihood = Poisson(size_factors=False)
    x = torch.as_tensor(counts, dtype=torch.float)[None]
    kernel = DecoderChains(
        Cells(x, None, None, likelihood), Curve(None, 1, intercept_sd=0.8), MixtureLaw(True, 0.7, 0.05),
        torch.as_tensor(permitted)[:, None], torch.zeros(g, 1, dtype=torch.bool), torch.eye(1)[None],
        (np.ones(1), np.ones(1)), False, (1.0, 1.0), totals=x.sum(1),
    )  # fmt: skip
    rng = np.random.default_rng(4)
    empty = torch.zeros(n, 1, 1)

    def same(*shape):
        return torch.as_tensor(rng.standard_normal(shape), dtype=torch.float).expand(n, *shape).clone()

    weight = same(g, 1) * kernel.permitted
    state = DecoderState(
        z=same(rows, 1), weight=weight, edge=weight != 0, log_odds=torch.full((n, 1, 1), -0.5),
        head=same(g, 1).double(), noise=torch.ones(n, g), trunk=Trunk(empty, empty, empty),
        exposure=same(1, rows).exp(),
    )  # fmt: skip
    return kernel, state


def rates(kernel, state):
    return (state.exposure * kernel.value(state).exp()).numpy()


@pytest.mark.parametrize("permitted", [[True] * 4, [True, True, True, False]])
def test_loadings_that_move_alike_go_where_prior_and_other_features_ask(permitted):
    """The stationary law of what was added, by integration over a grid."""
    permitted = np.array(permitted)
    kernel, first = chains_of(permitted, np.array([[3, 1], [0, 2], [1, 1], [2, 4]]), 3000)
    state, rng = first, np.random.default_rng(0)
    for _ in range(60):
        state = shifted(kernel, state, rng)
    moved = (state.weight - first.weight)[..., 0].numpy()
    assert (moved[:, ~permitted] == 0).all() and np.ptp(moved[:, permitted], axis=1).max() < 1e-5
    np.testing.assert_allclose(
        rates(kernel, state)[:, permitted], rates(kernel, first)[:, permitted], rtol=1e-3
    )

    h, eta = np.linspace(-6, 6, 6001), 1 / (1 + np.exp(0.5))
    w = first.weight[0, permitted, 0].numpy() + h[:, None]
    density = eta * stats.laplace.pdf(w, scale=0.7) + (1 - eta) * stats.laplace.pdf(w, scale=0.05)
    level = np.log(density).sum(1)
    z, others = first.z[0, :, 0].numpy(), rates(kernel, first)[0][~permitted]
    own = kernel.cells.x[0].numpy()[~permitted]
    level += stats.poisson.logpmf(own, others * np.exp(-h[:, None, None] * z)).sum((1, 2))
    p = np.exp(level - level.max())
    p /= p.sum()
    found = moved[:, 0]
    assert stats.ks_1samp(found, lambda at: np.interp(at, h, p.cumsum())).pvalue > 1e-3


def test_intercepts_move_alike_to_where_their_prior_wants_them():
    kernel, first = chains_of([True] * 4, np.ones((4, 2), dtype=int), 3000)
    state = levelled(kernel, first, np.random.default_rng(0))
    moved = (state.head - first.head)[..., 0].numpy()
    assert np.ptp(moved, axis=1).max() < 1e-9
    level = state.head[..., 0].mean(1).numpy()
    assert stats.kstest(level, stats.norm(0, 0.8 / 2).cdf).pvalue > 1e-3
    np.testing.assert_allclose(rates(kernel, state), rates(kernel, first), rtol=1e-4)
