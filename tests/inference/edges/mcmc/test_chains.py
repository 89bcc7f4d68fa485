"""Kernels of the Markov chains: a state and data drawn from the prior stay distributed as the prior.

If (parameters, data) come from their joint density, parameters after any number of sweeps, given those data,
still come from the prior: a test of every conditional at once. No sign, factor or forgotten Jacobian
survives it.
"""

from __future__ import annotations

import itertools

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from scipy import stats
from scipy.special import expit

import pyro_sparse as ps
from pyro_sparse.inference.edges.density.cells import Cells
from pyro_sparse.inference.edges.density.curves import Curve, Trunk
from pyro_sparse.inference.edges.density.decoder_program import DecoderState
from pyro_sparse.inference.edges.density.mixture import MixtureDensity
from pyro_sparse.inference.edges.density.user_density import density_of
from pyro_sparse.inference.edges.density.weight import SpikeSlab
from pyro_sparse.inference.edges.mcmc.decoder import DecoderChains
from pyro_sparse.inference.edges.mcmc.linear import LinearChains, LinearState
from pyro_sparse.inference.edges.moves import sir_weights as _curve_weights
from pyro_sparse.inference.edges.moves.hmc import hmc
from pyro_sparse.inference.edges.moves.metric import Metric, information
from pyro_sparse.inference.edges.moves.permutation import anchors_of, exchanged, prior_of_places
from pyro_sparse.inference.edges.moves.rotations import Turns, related_factors
from pyro_sparse.priors import LKJ

G, K, H = 4, 2, 3
A, B = 2.0, 3.0
APART = 1.5
SLAB, SPIKE = 1.0, 0.1
NARROW = 0.03  # a spike under which angles move with loadings summed out, and not all axes at once
NOISE = (4.0, 1.0)
C = np.array([[1.0, 0.4], [0.4, 1.0]])
RATES = (np.full(K, A), np.full(K, B))
RELATED = ~np.eye(K, dtype=bool)
KNOWN = np.array([[0.0, 1.5], [2.0, 0.0], [2.5, 2.0], [1.5, -1.0]])  # log odds of single edges


def tensor(values):
    return torch.as_tensor(np.asarray(values), dtype=torch.float32)


class Joint:
    """Parameters and factors of many chains, drawn from the prior."""

    def __init__(
        self,
        chains,
        rows,
        density="laplace",
        missing=False,
        anchored=True,
        prior=None,
        known=False,
        alike=False,
        spike=SPIKE,
    ):
        rng = self.rng = np.random.default_rng(3)
        self.permitted = np.ones((G, K), dtype=bool)
        self.must = np.zeros((G, K), dtype=bool)
        if anchored:
            self.permitted[[0, 1], [1, 0]] = False
            self.must[[0, 1], [0, 1]] = True
        else:
            self.must[0] = True
        shape = (chains, G, K)
        self.eta = rng.beta(A, B, size=(chains, 1, K))
        self.known = KNOWN if known else None
        rate = expit(self.log_odds + KNOWN) if known else self.eta
        self.edge = (rng.random(shape) < rate) & self.permitted | self.must
        unit = rng.laplace(size=shape) if density == "laplace" else rng.standard_normal(shape)
        if density == "apart":
            unit = np.where(self.edge, rng.choice([-APART, APART], shape) + 0.3 * unit, unit)
        self.weight = unit * np.where(self.edge, SLAB, spike) * self.permitted
        self.cov = np.tile(C, (chains, 1, 1))
        if prior is not None:
            self.cov = prior.draw(chains, K, rng)
        root = np.linalg.cholesky(self.cov).swapaxes(1, 2)
        self.z = rng.standard_normal((chains, rows, K)) @ root
        self.noise = NOISE[1] / rng.gamma(NOISE[0], size=(chains, G))
        if alike:  # one variance for all features
            self.noise[:] = self.noise[:, :1]
        self.seen = rng.random((1, rows, G)) < 0.8 if missing else None
        self.precision = np.linalg.inv(self.cov)
        self.free = self.permitted & ~self.must

    @property
    def log_odds(self):
        return np.log(self.eta / (1 - self.eta))


def shared(metric):
    """The mean over chains, for every chain."""
    parts = (metric.blocks, metric.across, metric.common)
    return Metric(*(part.mean(0, keepdim=True).expand_as(part) for part in parts), metric.permitted)


def assert_same_law(**pairs):
    """Means of before and after agree within their errors; edges count as 0 and 1."""
    for name, (before, after) in pairs.items():
        x, y = (np.asarray(v, dtype=float).reshape(len(v), -1).mean(1) for v in (before, after))
        z = (x.mean() - y.mean()) / np.sqrt(x.var() / len(x) + y.var() / len(y))
        assert abs(z) < 4, f"{name}: mean {x.mean():.4f} before, {y.mean():.4f} after, z = {z:.1f}"


class Apart(ps.priors.SpikeSlabPrior):
    """An edge is never small."""

    def components(self):
        sides = dist.Normal(SLAB * torch.tensor([-APART, APART]), 0.3 * SLAB)
        return dist.MixtureSameFamily(dist.Categorical(torch.ones(2)), sides), dist.Normal(0.0, SPIKE)


def user_density(case):
    """Name of the family, and its density."""
    if "apart" in case:
        return "apart", density_of(Apart())
    name = "normal" if "normal" in case else "laplace"
    return name, MixtureDensity(name == "laplace", SLAB, NARROW if "narrow" in case else SPIKE)


@pytest.mark.parametrize(
    "case",
    [
        "laplace",
        "normal",
        "apart",
        "missing",
        "held at the truth",
        "turning",
        "turning normal",
        "turning apart",
        "turning flat",
        "turning mixture",
        "known",
        "turning known flat",
        "one noise",
        "covariates",
        "turning flat covariates missing",
        "flat",
    ],
)
@pytest.mark.slow
def test_linear_chains_leave_the_prior_alone(case):
    name, density = user_density(case)
    correlations = LKJ(1.0) if "flat" in case else LKJ((1.0, 50.0)) if "mixture" in case else None
    own = Joint(
        600,
        15,
        density=name,
        missing="missing" in case,
        anchored="turn" not in case,
        prior=correlations,
        known="known" in case,
        alike="one" in case,
    )
    design = own.rng.standard_normal((15, 2)) if "covariates" in case else np.zeros((15, 0))
    c = 0.7 * own.rng.standard_normal((600, G, 1 + design.shape[1]))
    known = np.concatenate([np.ones((15, 1)), design], 1)
    x = known @ c.swapaxes(1, 2) + own.z @ own.weight.swapaxes(1, 2)
    x = x + np.sqrt(own.noise)[:, None] * own.rng.standard_normal(x.shape)
    x = x if own.seen is None else x * own.seen
    chains = LinearChains(
        x,
        own.seen,
        own.permitted,
        own.must,
        density.in_slabs(),
        density.stand_in.slab,
        RATES,
        False,
        NOISE,
        0.7,
        RELATED,
        correlations is not None,
        own.known,
        "one" in case,
        correlations or LKJ(1.0),
        design,
    )
    state = LinearState(own.weight, own.edge, own.log_odds, own.noise, c, own.cov)
    held = np.ones(600, dtype=bool) if case.startswith("held") else None
    for _ in range(12):
        state, prob = chains.sweep(state, own.rng, held)
    f, before, after = own.free, own.z.swapaxes(1, 2) @ own.z, state.moments.whole
    assert_same_law(
        edge=(own.edge[:, f], state.edge[:, f]),
        likely=(own.edge[:, f & (KNOWN > 0)], state.edge[:, f & (KNOWN > 0)]),
        probability=(own.edge[:, f], prob[:, f]),
        weight=(np.abs(own.weight[:, f]), np.abs(state.weight[:, f])),
        anchors=(np.abs(own.weight[:, own.must]), np.abs(state.weight[:, own.must])),
        noise=(np.log(own.noise), np.log(state.noise)),
        eta=(own.eta, 1 / (1 + np.exp(-state.log_odds))),
        z=(np.diagonal(before, axis1=1, axis2=2), np.diagonal(after, axis1=1, axis2=2)),
        together=(before[:, 0, 1], after[:, 0, 1]),
        correlation=(own.cov[:, 0, 1] ** 2, state.cov[:, 0, 1] ** 2),
        intercept=(c[..., 0] ** 2, state.coefficients[..., 0] ** 2),
        mean=((known @ c.swapaxes(1, 2)) ** 2, (known @ state.coefficients.swapaxes(1, 2)) ** 2),
    )
    assert not state.weight[:, ~own.permitted].any() and state.edge[:, own.must].all()
    assert chains._turns.pairs.any() == ("turn" in case)
    assert (state.cov != own.cov).any() == (correlations is not None)


@pytest.mark.parametrize(
    "case",
    [
        "tanh",
        "tanh apart",
        "relu missing",
        "poisson",
        "poisson turning",
        "poisson apart",
        "negative binomial missing",
        "bernoulli",
        "multinomial",
        "multinomial turning",
        "tanh known",
        "poisson turning known",
        "tanh one noise",
        "tanh covariates",
        "bernoulli covariates missing",
        "negative binomial covariates",
        "multinomial covariates",
        "tanh flat",
        "poisson flat",
        "bernoulli turning flat",
        "poisson turning mixture known",
        "multinomial turning flat",
        "bernoulli turning flat narrow",
        "poisson turning flat narrow normal",
        "negative binomial missing turning flat narrow",
        "multinomial turning flat narrow",
        "bernoulli turning flat units",
        "bernoulli turning flat narrow units",
        "poisson units",
        "multinomial turning flat units",
    ],
)
@pytest.mark.slow
def test_decoder_chains_leave_the_prior_alone(case):
    """Exact for normal noise and for straight lines; curves under other likelihoods have Laplace's error."""
    n = 400
    name, density = user_density(case)
    missing, known, alike = ("missing" in case, "known" in case, "one" in case)
    correlations = LKJ(1.0) if "flat" in case else LKJ((1.0, 50.0)) if "mixture" in case else None
    own = Joint(
        n,
        12,
        density=name,
        missing=missing,
        anchored="turning" not in case,
        prior=correlations,
        known=known,
        alike=alike,
        spike=NARROW if "narrow" in case else SPIKE,
    )
    rng, activation = own.rng, case.split()[0] if case[:4] in ("tanh", "relu") else None
    curve = Curve(activation, H if activation else 1)
    sizes = [(K, H), (H, H), (1, H)] if activation else [(1, 1)] * 3
    trunk = Trunk(*(tensor(rng.standard_normal((n, *size)) * bool(activation)) for size in sizes))
    unit = rng.uniform(0.5, 2.0, (G, 1)) if "units" in case else np.ones((1, 1))
    own.weight = own.weight * unit
    sd = curve.head_precision(torch.zeros(1)).numpy() ** -0.5
    head = torch.as_tensor(sd * rng.standard_normal((n, G, len(sd))))
    f = curve.value(tensor(own.z), tensor(own.weight), trunk, head).numpy()
    design, effects = None, None
    if "covariates" in case:
        design, effects = rng.standard_normal((2, 12)), torch.as_tensor(0.4 * rng.standard_normal((n, G, 2)))
        f = f + (effects @ torch.as_tensor(design)).numpy()
    likelihood, totals = ps.likelihoods.Normal(), None
    if case.startswith("bernoulli"):
        likelihood, x = ps.likelihoods.Bernoulli(), rng.random(f.shape) < 1 / (1 + np.exp(-f))
    elif case.startswith("poisson"):
        likelihood, x = ps.likelihoods.Poisson(size_factors=False), rng.poisson(np.exp(f))
    elif case.startswith("negative"):
        likelihood = ps.likelihoods.NegativeBinomial(size_factors=False, prior_scale=0.7)
        own.noise = 0.49 * rng.standard_normal(own.noise.shape) ** 2 + 1.1e-3
        theta = 1 / own.noise[..., None]
        x = rng.poisson(np.exp(f) * rng.gamma(theta, 1 / theta, size=f.shape))
    elif case.startswith("multinomial"):
        likelihood = ps.likelihoods.Poisson(size_factors=False)
        share = np.exp(f.astype(float) - f.max(1, keepdims=True))
        x = rng.multinomial(20, (share / share.sum(1, keepdims=True)).swapaxes(1, 2)).swapaxes(1, 2)
        totals = tensor(x.sum(1))
    else:
        x = f + np.sqrt(own.noise)[..., None] * rng.standard_normal(f.shape)
    seen = None if own.seen is None else tensor(own.seen.swapaxes(1, 2))
    x = tensor(x) if seen is None else tensor(x) * seen
    chains = DecoderChains(
        Cells(x, seen, {}, likelihood), curve, density,
        torch.as_tensor(own.permitted), torch.as_tensor(own.must), RELATED, RATES, False, NOISE,
        totals=totals, edge_offset=None if own.known is None else tensor(own.known), shared_noise=alike,
        design=None if design is None else tensor(design), effect_sd=0.4,
        learn_cov=correlations is not None, correlation_prior=correlations or LKJ(1.0),
        weight_unit=tensor(unit),
    )  # fmt: skip
    noisy = likelihood.has_dispersion
    noise = tensor(own.noise) if noisy else torch.ones(n, G)
    state = DecoderState(
        tensor(own.z), tensor(own.weight), torch.as_tensor(own.edge), tensor(own.log_odds), head, noise,
        trunk, torch.as_tensor(np.linalg.inv(own.cov)), {}, effects=effects,
    )  # fmt: skip
    if totals is not None:
        state = chains.with_rows(state, chains.value(state), rng)
    tuning = chains.tuning(state)
    tuning.centre.fill_(0.5)  # of no chain in particular: proposals must not know where a chain stands
    tuning.metric = shared(information(chains, state, rng))
    for _ in range(6):
        state, prob = chains.sweep(state, tuning, rng, torch.zeros(n, dtype=torch.bool), False)
    assert bool(len(chains._centres)) == ("narrow" in case)
    free = own.free
    after = {name: getattr(state, name).double().numpy() for name in ("weight", "z", "noise", "head")}
    assert_same_law(
        edge=(own.edge[:, free], state.edge.numpy()[:, free]),
        likely=(own.edge[:, free & (KNOWN > 0)], state.edge.numpy()[:, free & (KNOWN > 0)]),
        probability=(own.edge[:, free], prob.numpy()[:, free]),
        weight=(np.abs(own.weight[:, free]), np.abs(after["weight"][:, free])),
        anchors=(np.abs(own.weight[:, own.must]), np.abs(after["weight"][:, own.must])),
        eta=(own.eta, torch.sigmoid(state.log_odds).numpy()),
        z=(own.z**2, after["z"] ** 2),
        together=(own.z.prod(-1), after["z"].prod(-1)),
        head=(head.numpy() ** 2, after["head"] ** 2),
    )
    now = chains.value(state)
    if effects is not None:
        assert_same_law(effects=(effects.numpy() ** 2, state.effects.numpy() ** 2))
        now = now + (state.effects @ torch.as_tensor(design)).to(now)
    assert_same_law(value=(np.sqrt(np.abs(f)), now.abs().sqrt().numpy()))
    cov = torch.linalg.inv(state.precision).numpy()
    assert_same_law(correlation=(own.cov[:, 0, 1] ** 2, cov[:, 0, 1] ** 2))
    assert (np.abs(cov - own.cov).max() > 1e-6) == (correlations is not None)
    if noisy:
        assert_same_law(noise=(np.log(own.noise), np.log(after["noise"])))
    else:
        assert (after["noise"] == 1).all()
    for before, now in zip(trunk, state.trunk, strict=True):
        if activation:
            assert_same_law(trunk=(before.numpy() ** 2, now.numpy() ** 2))


@pytest.mark.parametrize("correlation", [0.0, 0.5])
@pytest.mark.slow
def test_turns_keep_the_prior_where_other_factors_are_correlated_too(correlation):
    """With a third factor in the way half a turn is no whole orbit."""
    n, k = 3000, 4
    cov = np.full((k, k), correlation) + (1 - correlation) * np.eye(k)
    rng, eta = np.random.default_rng(0), 0.4
    edge = rng.random((n, G, k)) < eta
    weight = rng.laplace(size=edge.shape) * np.where(edge, SLAB, SPIKE)
    odds = np.full((n, 1, k), np.log(eta / (1 - eta)))
    every = np.ones((G, k), dtype=bool)
    turns = Turns(
        every, ~every, related_factors(cov[None]), MixtureDensity(True, SLAB, SPIKE).in_slabs(), SLAB
    )
    turned = weight.copy()
    for _ in range(10):
        turned, _ = turns.turned(turned, cov[None], odds, rng)
    level = [turns.density.log_prob(w / SLAB, odds).sum((1, 2)) for w in (weight, turned)]
    assert (np.abs(turned - weight) > 0.01).mean() > 0.5
    assert_same_law(size=(np.abs(weight), np.abs(turned)), level=tuple(level))


def test_evidence_of_little_noise_is_exact_in_single_precision():
    rng = np.random.default_rng(0)
    basis = rng.standard_normal((3, 1, 1, 10, 1500))
    basis[1:] = basis[:1] + 1e-3 * basis[1:]
    x = (rng.standard_normal((1, 1, 10)) @ basis[0, 0])[0] + 0.003 * rng.standard_normal((1, 1500))
    design = np.concatenate([basis, np.broadcast_to(x, (3, 1, 1, 1, 1500))], -2)
    found = []
    for kind in (torch.float32, torch.float64):
        cells = Cells(torch.as_tensor(x[None], dtype=kind), None, {}, ps.likelihoods.Normal())
        noise = torch.full((1, 1), 0.003**2, dtype=kind)
        own = torch.as_tensor(design, dtype=torch.float32).to(kind)
        found.append(cells.evidence(own, noise, torch.ones(10, dtype=torch.float64)).flatten())
    single, double = (level - level[0] for level in found)
    torch.testing.assert_close(single, double, rtol=1e-3, atol=0.3)


def test_evidence_that_is_carried_over_is_what_it_would_be_anew(monkeypatch):
    """Also of features that do not see the first factor."""
    own, real, seen = Joint(3, 9), _curve_weights._evidence, []
    curve, rng = Curve("tanh", H), own.rng
    trunk = Trunk(*(tensor(rng.standard_normal((3, *size))) for size in ((K, H), (H, H), (1, H))))
    chains = DecoderChains(
        Cells(tensor(rng.standard_normal((3, G, 9))), None, {}, ps.likelihoods.Normal()), curve,
        MixtureDensity(True, SLAB, SPIKE),
        torch.as_tensor(own.permitted), torch.as_tensor(own.must), RELATED, RATES, False, NOISE,
    )  # fmt: skip
    head = torch.zeros(3, G, H + 2, dtype=torch.float64)
    state = DecoderState(
        tensor(own.z), tensor(own.weight), torch.as_tensor(own.edge), tensor(own.log_odds), head,
        tensor(own.noise), trunk, torch.as_tensor(own.precision), None,
    )  # fmt: skip

    def checked(chains, state, cells, weight, tried, k, near, here):
        found = real(chains, state, cells, weight, tried, k, near, here)
        free = chains.permitted[:, k]
        seen.append(here is not None)
        anew = real(chains, state, cells, weight, tried, k, near, None)
        np.testing.assert_allclose(found[..., free], anew[..., free], rtol=1e-4, atol=1e-4)
        return found

    monkeypatch.setattr(_curve_weights, "_evidence", checked)
    monkeypatch.setattr(_curve_weights, "_FACTORS", K)  # of one there is nothing to carry over
    _curve_weights.curve_weights(chains, state, chains.cells, chains.tuning(state), rng)
    assert seen == [False, True]


@pytest.mark.parametrize("missing, prior", [(False, None), (True, None), (False, LKJ((1.0, 9.0)))])
def test_evidence_of_linear_chains_is_that_of_a_multivariate_normal(missing, prior):
    own = Joint(2, 5, missing=missing, prior=prior)
    x = own.rng.standard_normal((2, 5, G))
    x = x if own.seen is None else x * own.seen
    density = SpikeSlab(True, np.array(SPIKE / SLAB))
    chains = LinearChains(
        x, own.seen, own.permitted, own.must, density, SLAB, RATES, False, NOISE, 1.0, RELATED,
        prior is not None, correlation_prior=prior or LKJ(1.0),
    )  # fmt: skip
    state = LinearState(own.weight, own.edge, own.log_odds, own.noise, np.full((2, G, 1), 0.3), own.cov)
    want = []
    for s in range(2):
        w, v = own.weight[s], own.noise[s]
        total = 0.0
        for i in range(5):
            at = np.arange(G) if own.seen is None else np.flatnonzero(own.seen[0, i])
            cov = (w @ own.cov[s] @ w.T + np.diag(v))[np.ix_(at, at)]
            total += stats.multivariate_normal(np.full(len(at), 0.3), cov).logpdf(x[s, i, at])
        total += stats.invgamma(NOISE[0], scale=NOISE[1]).logpdf(v).sum()
        slab, spike = stats.laplace(scale=SLAB).pdf(w), stats.laplace(scale=SPIKE).pdf(w)
        mixed = np.log(own.eta[s] * slab + (1 - own.eta[s]) * spike)
        total += mixed[own.free].sum() + np.log(slab[own.must]).sum()
        total += stats.beta(A, B).logpdf(own.eta[s]).sum()
        if prior is not None:  # of two factors LKJ is a beta distribution
            r = own.cov[s, 0, 1]
            total += np.log(np.mean([stats.beta(c, c).pdf((r + 1) / 2) for c in prior.concentration]))
        want.append(total)
    assert np.diff(chains.log_evidence(state)) == pytest.approx(np.diff(want), rel=1e-9)


def test_hamiltonian_steps_keep_a_normal():
    rng = np.random.default_rng(0)
    sd = torch.tensor([1.0, 0.2])
    x = torch.as_tensor(rng.standard_normal((4000, 2)), dtype=torch.float32) * sd

    def energy(at):
        return 0.5 * ((at / sd) ** 2).sum(-1), at / sd**2

    for _ in range(5):
        moved = hmc(energy, x, torch.full((4000,), 0.25), 5, rng)
        x = moved.position
    assert 0.4 < moved.accept.mean() < 0.999
    np.testing.assert_allclose(x.std(0), sd, rtol=0.05)


def test_exchanges_visit_orders_as_often_as_their_evidence_says():
    rng = np.random.default_rng(0)
    k, n = 3, 20_000
    evidence, root = rng.standard_normal((k, k)), rng.standard_normal((k, 5))
    moment, precision = root @ root.T, np.linalg.inv(0.6 * np.eye(k) + 0.4 + np.diag([0, 0.3, 0.6]))
    orders = list(itertools.permutations(range(k)))
    level = np.array(
        [
            sum(evidence[i, o] for i, o in enumerate(order))
            - 0.5 * (moment[np.ix_(order, order)] * precision).sum()
            for order in orders
        ]
    )
    want = np.exp(level - level.max())
    pairs = np.array([(1, 0), (2, 0), (2, 1)])
    found = exchanged(*(np.tile(m, (n, 1, 1)) for m in (evidence, moment)), precision[None], pairs, rng)
    share = np.array([(found == order).all(1).mean() for order in orders])
    np.testing.assert_allclose(share, want / want.sum(), atol=0.015)


def test_factors_with_other_constraints_keep_their_places():
    permitted, must = np.ones((5, 3), dtype=bool), np.zeros((5, 3), dtype=bool)
    for k in range(3):
        permitted[k] = False
        permitted[k, k] = must[k, k] = True
    rates = (np.ones(3), np.ones(3))
    found = anchors_of(permitted, must, rates)
    assert found.rows.tolist() == [0, 1, 2] and found.factors.tolist() == [0, 1, 2]
    assert found.pairs.tolist() == [[1, 0], [2, 0], [2, 1]]
    permitted[4, 1] = False
    assert anchors_of(permitted, must, rates).pairs.tolist() == [[2, 0]]
    all_edges = np.ones((5, 3), dtype=bool)
    assert anchors_of(all_edges, ~all_edges, rates).pairs.size == 0
    other_rate = (np.array([1.0, 1.0, 2.0]), np.ones(3))
    assert anchors_of(all_edges, ~all_edges, other_rate).pairs.tolist() == [[2, 0], [2, 1]]
    offset = np.zeros((5, 3))
    offset[3, 1] = 0.5
    assert anchors_of(all_edges, ~all_edges, rates, offset).pairs.tolist() == [[1, 0], [2, 1]]


@pytest.mark.parametrize("shared", [False, True])
def test_exchanges_leave_the_prior_of_edges_and_rates_as_it_is(shared):
    """Rates from their Beta distributions, edges from rates and odds: after exchanges they still are."""
    rng = np.random.default_rng(0)
    n, g, k = 40_000, 4, 3
    a, b = (np.full(k, 2.0), np.full(k, 3.0)) if shared else (np.array([1.0, 2, 4]), np.array([3.0, 3, 1]))
    offset = rng.normal(size=(g, k))
    free = np.ones((g, k), dtype=bool)
    free[1] = False
    rate = np.tile(rng.beta(2.0, 3.0, (n, 1)), k) if shared else rng.beta(a, b, (n, k))
    log_odds = np.log(rate / (1 - rate))[:, None]
    edge = (rng.random((n, g, k)) < 1 / (1 + np.exp(-log_odds - offset))) & free
    level = prior_of_places(edge, log_odds, free, (a, b), shared, offset)
    pairs = np.array([(1, 0), (2, 0), (2, 1)])
    order = exchanged(level, np.zeros((n, k, k)), np.eye(k)[None], pairs, rng)
    assert 0.2 < (order != np.arange(k)).any(1).mean() < 0.95
    moved = [np.take_along_axis(array, order[:, None], -1) for array in (edge, log_odds)]
    for before, after in zip((edge, log_odds), moved, strict=True):
        np.testing.assert_allclose(after.mean(0), before.mean(0), atol=0.03)
        np.testing.assert_allclose(after.std(0), before.std(0), atol=0.03)
    together = [np.einsum("ngk,nhk->ghk", e, e) / n for e in (1.0 * edge, 1.0 * moved[0])]
    np.testing.assert_allclose(*together, atol=0.02)


def test_prior_of_places_is_that_of_binomial_edges_and_beta_rates():
    rng = np.random.default_rng(0)
    edge, offset = rng.random((1, 5, 2)) < 0.5, rng.normal(size=(5, 2))
    rate, (a, b) = np.array([0.3, 0.8]), (np.array([1.0, 4.0]), np.array([2.0, 1.0]))
    free = np.ones((5, 2), dtype=bool)
    free[4] = False
    log_odds = np.log(rate / (1 - rate))[None, None]
    found = prior_of_places(edge, log_odds, free, (a, b), False, offset)[0]
    wanted = np.zeros((2, 2))
    for place, factor in itertools.product(range(2), range(2)):
        p = 1 / (1 + np.exp(-log_odds[0, 0, factor] - offset[:4, place]))
        wanted[place, factor] = stats.bernoulli(p).logpmf(edge[0, :4, factor]).sum()
        wanted[place, factor] += (a[place] - 1) * np.log(rate[factor])
        wanted[place, factor] += (b[place] - 1) * np.log(1 - rate[factor])
    np.testing.assert_allclose(found, wanted, rtol=1e-10)
