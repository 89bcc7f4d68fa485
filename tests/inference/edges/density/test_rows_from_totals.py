"""Depth that only totals speak of: its density given all else, and what holding it would cost."""

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import logsumexp

import pyro_sparse as ps
from pyro_sparse.inference.edges.density.cells import Cells
from pyro_sparse.inference.edges.density.curves import Curve, Trunk
from pyro_sparse.inference.edges.density.decoder_program import DecoderState
from pyro_sparse.inference.edges.density.mixture import MixtureDensity
from pyro_sparse.inference.edges.density.rows_from_totals import drawn_from_totals
from pyro_sparse.inference.edges.mcmc.decoder import DecoderChains
from pyro_sparse.inference.edges.moves import shifts as _shifts
from pyro_sparse.inference.edges.moves.rotations import related_factors
from pyro_sparse.inference.edges.moves.shifts import levelled, shifted
from pyro_sparse.likelihoods import NegativeBinomial, Poisson

N_CHAINS, F = 4000, np.array([[0.4, -1.0], [2.0, 0.3], [-0.5, 1.1], [0.0, 0.0]])
COUNTS, EXTRA = np.array([[3, 0], [19, 2], [0, 1], [40, 0]]), np.array([0.5, 0.05, 1.5, 0.3])


def drawn(likelihood, seen=None, keep=slice(None), times=12, of=1):
    rng = np.random.default_rng(0)
    x, f, noise = of * COUNTS[keep], F[keep], EXTRA[keep]
    cells = Cells(
        torch.as_tensor(x, dtype=torch.float)[None] * (1 if seen is None else seen), seen, {}, likelihood
    )
    f = torch.as_tensor(f, dtype=torch.float).expand(N_CHAINS, -1, -1)
    noise = torch.as_tensor(noise, dtype=torch.float).expand(N_CHAINS, -1)
    now = {"exposure": torch.ones(N_CHAINS, 1, 2)}
    for _ in range(times):
        now = drawn_from_totals(cells, f, noise, cells.x.sum(1), now, rng)
    return now["exposure"][:, 0].double().numpy()


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


def test_exposures_of_large_counts_move_freely():
    """Of millions of counts float32 keeps no digit to spare; proposals at the mode are still accepted."""
    rng = np.random.default_rng(0)
    f = torch.as_tensor(rng.normal(14, 1, (1, 50, 2)), dtype=torch.float)
    x = f.exp() * torch.as_tensor(rng.gamma(20, 1 / 20, f.shape), dtype=torch.float)
    cells = Cells(x.round(), None, {}, NegativeBinomial(size_factors=False))
    f, noise = f.expand(500, -1, -1), torch.full((500, 50), 0.05)
    first = drawn_from_totals(cells, f, noise, x.sum(1), {}, rng)
    second = drawn_from_totals(cells, f, noise, x.sum(1), first, rng)
    assert (first["exposure"] != second["exposure"]).float().mean() > 0.85


@pytest.mark.parametrize("likelihood", [Poisson(size_factors=False), NegativeBinomial(size_factors=False)])
def test_missing_cells_say_nothing_of_exposures(likelihood):
    seen = torch.ones(1, 4, 2)
    seen[:, 1] = 0
    few = drawn(likelihood, keep=[0, 2, 3], times=2)
    assert drawn(likelihood, seen, times=2) == pytest.approx(few, rel=1e-4)


@pytest.mark.parametrize("likelihood", [Poisson(size_factors=False), NegativeBinomial(size_factors=False)])
def test_rows_without_a_count_have_hardly_any_exposure(likelihood):
    for seen in (None, torch.zeros(1, 4, 2)):
        assert (drawn(likelihood, seen, times=2, of=0) < 2e-3).all()


@pytest.mark.slow(hurried=True)
@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("likelihood", ["poisson", "negative_binomial"])
def test_totals_are_no_depth_where_factors_move_them(likelihood):
    """Held as if they were known, they give factors edges to features that these do not move."""
    rng = np.random.default_rng(3)
    edge = np.repeat(np.eye(2, dtype=bool), 12, axis=0)
    weight = edge * rng.choice([-1, 1], (24, 1)) * rng.uniform(0.5, 1.0, (24, 1))
    z, depth = rng.standard_normal((150, 2)), rng.standard_normal((150, 1))
    extra = 1.0 if likelihood == "poisson" else rng.gamma(5, 1 / 5, (150, 24))
    x = rng.poisson(extra * np.exp(depth + 1 + z @ weight.T)).astype(float)

    def false_edges(**given):
        model = ps.models.SparseDecoder(24, 2, likelihood=likelihood, decoder="linear")
        fit = ps.fit(model, x, restarts=1, steps=200, seed=0, progress=False, **given)
        p = fit.edge_posterior(sweeps=60, seed=0)["edge_posterior"]["probability"].values
        right = max((edge, edge[:, ::-1]), key=lambda e: (p * e).sum())
        assert (p[right] > 0.5).all()
        return p[~right].mean()

    held = false_edges(exposure=x.sum(1).clip(min=0.5))
    assert false_edges() < 0.6 * held


def chains_of(permitted, counts, n, likelihood="poisson", must=False, missing=False):
    """Chains of a line with two factors, the second of which sees all, at one state."""
    g, rows = counts.shape
    kind = Poisson if likelihood == "poisson" else NegativeBinomial
    x = torch.as_tensor(counts, dtype=torch.float)[None]
    seen = torch.ones_like(x)
    seen[:, -1, 0] = 0.0
    sees = torch.as_tensor(np.column_stack([permitted, np.ones(g, dtype=bool)]))
    anchors = torch.zeros(g, 2, dtype=torch.bool)
    anchors[0, 0] = must
    kernel = DecoderChains(
        Cells(x, seen if missing else None, {}, kind(size_factors=False)), Curve(None, 1, intercept_sd=0.8),
        MixtureDensity(True, 0.7, 0.05), sees, anchors, related_factors(np.eye(2)),
        (np.ones(2), np.ones(2)), False, (1.0, 1.0), totals=x.sum(1),
    )  # fmt: skip
    rng = np.random.default_rng(4)
    empty = torch.zeros(n, 1, 1)

    def same(*shape):
        return torch.as_tensor(rng.standard_normal(shape), dtype=torch.float).expand(n, *shape).clone()

    weight = same(g, 2) * sees
    state = DecoderState(
        z=same(rows, 2), weight=weight, edge=weight != 0, log_odds=torch.full((n, 1, 2), -0.5),
        head=same(g, 1).double(), noise=torch.full((n, g), 0.4), trunk=Trunk(empty, empty, empty),
        precision=torch.eye(2, dtype=torch.float64).expand(n, 2, 2),
        per_row={"exposure": same(1, rows).exp()},
    )  # fmt: skip
    return kernel, state


def rates(kernel, state):
    return (state.per_row["exposure"] * kernel.value(state).exp()).numpy()


@pytest.mark.parametrize(
    "case", ["all", "others", "others missing", "others anchor", "others negative_binomial"]
)
@pytest.mark.slow
def test_loadings_that_move_alike_go_where_prior_and_other_features_ask(case, monkeypatch):
    """The stationary density of what was added to the first factor's, by integration over a grid."""
    permitted = np.array([True, True, True, case == "all"])
    likelihood = "negative_binomial" if "negative" in case else "poisson"
    counts, must = np.array([[3, 1], [0, 2], [1, 1], [6, 9]]), "anchor" in case
    kernel, first = chains_of(permitted, counts, 3000, likelihood, must, "missing" in case)
    kernel.permitted[:, 1] = False  # so that the second factor's loadings, which the others have too, stay
    state, rng = first, np.random.default_rng(0)
    monkeypatch.setattr(_shifts, "_CELLS", 1e9)
    for _ in range(60):
        state = shifted(kernel, state, rng)
    moved = (state.weight - first.weight)[..., 0].numpy()
    assert (moved[:, ~permitted] == 0).all() and np.ptp(moved[:, permitted], axis=1).max() < 1e-5
    np.testing.assert_allclose(
        rates(kernel, state)[:, permitted], rates(kernel, first)[:, permitted], rtol=1e-3
    )

    h, eta = np.linspace(-6, 6, 6001), 1 / (1 + np.exp(0.5))
    w = first.weight[0, permitted, 0].numpy() + h[:, None]
    slab = stats.laplace.pdf(w, scale=0.7)
    density = eta * slab + (1 - eta) * stats.laplace.pdf(w, scale=0.05)
    density[:, 0] = slab[:, 0] if must else density[:, 0]
    level = np.log(density).sum(1)
    z, others = first.z[0, :, 0].numpy(), rates(kernel, first)[0][~permitted]
    rate, own = others * np.exp(-h[:, None, None] * z), counts[~permitted]
    each = stats.poisson.logpmf(own, rate)
    if likelihood == "negative_binomial":
        each = stats.nbinom.logpmf(own, 2.5, 2.5 / (2.5 + rate))
    level += each[..., 1 if "missing" in case else 0 :].sum((1, 2))
    p = np.exp(level - level.max())
    p /= p.sum()
    assert stats.ks_1samp(moved[:, 0], lambda at: np.interp(at, h, p.cumsum())).pvalue > 1e-3


def test_intercepts_move_alike_to_where_their_prior_wants_them():
    kernel, first = chains_of([True] * 4, np.ones((4, 2), dtype=int), 3000)
    state = levelled(kernel, first, np.random.default_rng(0))
    moved = (state.head - first.head)[..., 0].numpy()
    assert np.ptp(moved, axis=1).max() < 1e-9
    level = state.head[..., 0].mean(1).numpy()
    assert stats.kstest(level, stats.norm(0, 0.8 / 2).cdf).pvalue > 1e-3
    np.testing.assert_allclose(rates(kernel, state), rates(kernel, first), rtol=1e-4)


def test_log_joint_compares_dispersions_as_exposures_summed_out_do():
    """Where rows have room for their exposures, which a large dispersion gives them."""
    rng = np.random.default_rng(3)
    counts = rng.poisson(8.0 * rng.gamma(3, 1 / 3, (12, 40)))
    levels, sums = [], []
    for noise in (0.05, 0.6):
        kernel, state = chains_of([True] * 12, counts, 300, "negative_binomial")
        state = state._replace(noise=torch.full_like(state.noise, noise), weight=0 * state.weight, per_row={})
        f = kernel.value(state)
        state = kernel.with_rows(state, f, rng)
        for _ in range(6):
            state = kernel.with_rows(state, f, rng)
        prior = kernel.log_noise_prior(state.noise).sum(-1)
        levels.append(float((kernel.log_joint(state, f) - prior).mean()))
        log_s = np.linspace(-3, 8, 2001)[:, None, None]
        rate, theta = np.exp(log_s + f[0].numpy()), 1 / noise
        each = stats.nbinom.logpmf(counts, theta, theta / (theta + rate)).sum(1)
        sums.append(logsumexp(each, axis=0).sum())
    assert levels[1] - levels[0] == pytest.approx(sums[1] - sums[0], abs=1.5)
