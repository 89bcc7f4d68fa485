"""Kernels of the Markov chains: a state and data drawn from the prior stay distributed as the prior.

If (parameters, data) come from the joint law, parameters after any number of sweeps given those data still
come from the prior: a test of every conditional at once that no sign, factor or forgotten Jacobian survives.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy import integrate, optimize, stats

import pyro_sparse as ps
from pyro_sparse.inference.edges import _curve_weights
from pyro_sparse.inference.edges._cells import Cells
from pyro_sparse.inference.edges._curves import Curve, Trunk
from pyro_sparse.inference.edges._decoder_chains import DecoderChains, DecoderState
from pyro_sparse.inference.edges._hmc import hmc
from pyro_sparse.inference.edges._linear_chains import LinearChains, LinearState
from pyro_sparse.inference.edges._mixture_law import MixtureLaw
from pyro_sparse.inference.edges._relabel import anchors_of, exchanged
from pyro_sparse.inference.edges._weight import SpikeSlab

G, K, H = 4, 2, 3
A, B = 2.0, 3.0
SLAB, SPIKE = 1.0, 0.1
NOISE = (4.0, 1.0)
C = np.array([[1.0, 0.4], [0.4, 1.0]])
RATES = (np.full(K, A), np.full(K, B))
RELATED = ~np.eye(K, dtype=bool)


def tensor(values):
    return torch.as_tensor(np.asarray(values), dtype=torch.float32)


class Joint:
    """Parameters and factors of many chains, drawn from the prior."""

    def __init__(self, chains, rows, laplace=True, missing=False, anchored=True, flat=False, seed=3):
        rng = self.rng = np.random.default_rng(seed)
        self.permitted = np.ones((G, K), dtype=bool)
        self.must = np.zeros((G, K), dtype=bool)
        if anchored:
            self.permitted[[0, 1], [1, 0]] = False
            self.must[[0, 1], [0, 1]] = True
        else:
            self.must[0] = True
        shape = (chains, G, K)
        self.eta = rng.beta(A, B, size=(chains, 1, K))
        self.edge = (rng.random(shape) < self.eta) & self.permitted | self.must
        unit = rng.laplace(size=shape) if laplace else rng.standard_normal(shape)
        self.weight = unit * np.where(self.edge, SLAB, SPIKE) * self.permitted
        self.cov = np.tile(C, (chains, 1, 1))
        if flat:  # any correlation is as likely
            self.cov[:, 0, 1] = self.cov[:, 1, 0] = rng.uniform(-1, 1, chains)
        root = np.linalg.cholesky(self.cov).swapaxes(1, 2)
        self.z = rng.standard_normal((chains, rows, K)) @ root
        self.noise = NOISE[1] / rng.gamma(NOISE[0], size=(chains, G))
        self.seen = rng.random((chains, rows, G)) < 0.8 if missing else None
        self.precision = np.linalg.inv(C)[None]
        self.free = self.permitted & ~self.must

    @property
    def log_odds(self):
        return np.log(self.eta / (1 - self.eta))


def assert_same_law(**pairs):
    """Means of before and after agree within their errors; edges count as 0 and 1."""
    for name, (before, after) in pairs.items():
        x, y = (np.asarray(v, dtype=float).reshape(len(v), -1).mean(1) for v in (before, after))
        z = (x.mean() - y.mean()) / np.sqrt(x.var() / len(x) + y.var() / len(y))
        assert abs(z) < 4, f"{name}: mean {x.mean():.4f} before, {y.mean():.4f} after, z = {z:.1f}"


@pytest.mark.parametrize(
    "case", ["laplace", "normal", "missing", "held at the truth", "turning", "turning normal", "turning flat"]
)
def test_linear_chains_leave_the_prior_alone(case):
    own = Joint(
        600,
        15,
        laplace="normal" not in case,
        missing=case == "missing",
        anchored="turn" not in case,
        flat="flat" in case,
    )
    c = 0.7 * own.rng.standard_normal((600, G))
    x = c[:, None] + own.z @ own.weight.swapaxes(1, 2)
    x = x + np.sqrt(own.noise)[:, None] * own.rng.standard_normal(x.shape)
    x = x if own.seen is None else x * own.seen
    law = SpikeSlab("normal" not in case, np.array(SPIKE / SLAB))
    chains = LinearChains(
        x, own.seen, own.permitted, own.must, law, SLAB, RATES, False, NOISE, 0.7, RELATED, "flat" in case
    )
    state = LinearState(own.z, own.weight, own.edge, own.log_odds, own.noise, c, own.cov)
    held = np.ones(600, dtype=bool) if case.startswith("held") else None
    for _ in range(12):
        state, prob = chains.sweep(state, own.rng, held)
    f = own.free
    assert_same_law(
        edge=(own.edge[:, f], state.edge[:, f]),
        probability=(own.edge[:, f], prob[:, f]),
        weight=(np.abs(own.weight[:, f]), np.abs(state.weight[:, f])),
        anchors=(np.abs(own.weight[:, own.must]), np.abs(state.weight[:, own.must])),
        noise=(np.log(own.noise), np.log(state.noise)),
        eta=(own.eta, 1 / (1 + np.exp(-state.log_odds))),
        z=(own.z**2, state.z**2),
        together=(own.z.prod(-1), state.z.prod(-1)),
        correlation=(own.cov[:, 0, 1] ** 2, state.cov[:, 0, 1] ** 2),
        intercept=(c**2, state.intercept**2),
    )
    assert not state.weight[:, ~own.permitted].any() and state.edge[:, own.must].all()
    assert chains._turns.pairs.any() == ("turn" in case)
    assert (state.cov != own.cov).any() == ("flat" in case)


@pytest.mark.parametrize(
    "case",
    [
        "tanh",
        "relu missing",
        "poisson",
        "poisson turning",
        "negative binomial missing",
        "bernoulli",
        "multinomial",
    ],
)
def test_decoder_chains_leave_the_prior_alone(case):
    """Exact for normal noise and for straight lines; curves under other likelihoods have Laplace's error."""
    n = 400
    own = Joint(n, 12, missing="missing" in case, anchored="turning" not in case)
    rng, activation = own.rng, case.split()[0] if case[:4] in ("tanh", "relu") else None
    curve = Curve(activation, H if activation else 1)
    sizes = [(K, H), (H, H), (1, H)] if activation else [(1, 1)] * 3
    trunk = Trunk(*(tensor(rng.standard_normal((n, *size)) * bool(activation)) for size in sizes))
    sd = curve.head_precision(torch.zeros(1)).numpy() ** -0.5
    head = torch.as_tensor(sd * rng.standard_normal((n, G, len(sd))))
    f = curve.value(tensor(own.z), tensor(own.weight), trunk, head).numpy()
    likelihood, totals = None, None
    if case == "bernoulli":
        likelihood, x = ps.models.likelihoods.Bernoulli(), rng.random(f.shape) < 1 / (1 + np.exp(-f))
    elif case.startswith("poisson"):
        likelihood, x = ps.models.likelihoods.Poisson(size_factors=False), rng.poisson(np.exp(f))
    elif case.startswith("negative"):
        likelihood = ps.models.likelihoods.NegativeBinomial(size_factors=False, prior_scale=0.7)
        own.noise = 0.49 * rng.standard_normal(own.noise.shape) ** 2 + 1.1e-3
        theta = 1 / own.noise[..., None]
        x = rng.poisson(np.exp(f) * rng.gamma(theta, 1 / theta, size=f.shape))
    elif case == "multinomial":
        likelihood = ps.models.likelihoods.Poisson(size_factors=False)
        share = np.exp(f.astype(float) - f.max(1, keepdims=True))
        x = rng.multinomial(20, (share / share.sum(1, keepdims=True)).swapaxes(1, 2)).swapaxes(1, 2)
        totals = tensor(x.sum(1))
    else:
        x = f + np.sqrt(own.noise)[..., None] * rng.standard_normal(f.shape)
    seen = None if own.seen is None else tensor(own.seen.swapaxes(1, 2))
    x = tensor(x) if seen is None else tensor(x) * seen
    chains = DecoderChains(
        Cells(x, seen, None, likelihood), curve, MixtureLaw(True, SLAB, SPIKE),
        torch.as_tensor(own.permitted), torch.as_tensor(own.must), tensor(own.precision), RATES, False, NOISE,
        totals=totals,
    )  # fmt: skip
    noisy = likelihood is None or chains.cells.overdispersed
    noise = tensor(own.noise) if noisy else torch.ones(n, G)
    state = DecoderState(
        tensor(own.z), tensor(own.weight), torch.as_tensor(own.edge), tensor(own.log_odds), head, noise,
        trunk, None,
    )  # fmt: skip
    if totals is not None:
        state = chains._exposures(state, tensor(f), rng)
    tuning = chains.tuning(state)
    tuning.centre.fill_(0.5)  # of no chain in particular: proposals must not know where a chain stands
    for _ in range(6):
        state, prob = chains.sweep(state, tuning, rng, torch.zeros(n, dtype=torch.bool), False)
    free = own.free
    after = {name: getattr(state, name).double().numpy() for name in ("weight", "z", "noise", "head")}
    assert_same_law(
        edge=(own.edge[:, free], state.edge.numpy()[:, free]),
        probability=(own.edge[:, free], prob.numpy()[:, free]),
        weight=(np.abs(own.weight[:, free]), np.abs(after["weight"][:, free])),
        anchors=(np.abs(own.weight[:, own.must]), np.abs(after["weight"][:, own.must])),
        eta=(own.eta, torch.sigmoid(state.log_odds).numpy()),
        z=(own.z**2, after["z"] ** 2),
        together=(own.z.prod(-1), after["z"].prod(-1)),
        head=(head.numpy() ** 2, after["head"] ** 2),
    )
    if noisy:
        assert_same_law(noise=(np.log(own.noise), np.log(after["noise"])))
    else:
        assert (after["noise"] == 1).all()
    for before, now in zip(trunk, state.trunk, strict=True):
        if activation:
            assert_same_law(trunk=(before.numpy() ** 2, now.numpy() ** 2))


def test_evidence_that_is_carried_over_is_what_it_would_be_anew(monkeypatch):
    """Also of features that do not see the first factor."""
    own, real, seen = Joint(3, 9), _curve_weights._evidence, []
    curve, rng = Curve("tanh", H), own.rng
    trunk = Trunk(*(tensor(rng.standard_normal((3, *size))) for size in ((K, H), (H, H), (1, H))))
    chains = DecoderChains(
        Cells(tensor(rng.standard_normal((3, G, 9))), None, None, None), curve, MixtureLaw(True, SLAB, SPIKE),
        torch.as_tensor(own.permitted), torch.as_tensor(own.must), tensor(own.precision), RATES, False, NOISE,
    )  # fmt: skip
    head = torch.zeros(3, G, H + 2, dtype=torch.float64)
    state = DecoderState(
        tensor(own.z), tensor(own.weight), torch.as_tensor(own.edge), tensor(own.log_odds), head,
        tensor(own.noise), trunk, None,
    )  # fmt: skip

    def checked(chains, state, cells, weight, tried, k, near, here):
        found = real(chains, state, cells, weight, tried, k, near, here)
        free = chains.permitted[:, k]
        seen.append(here is not None)
        anew = real(chains, state, cells, weight, tried, k, near, None)
        np.testing.assert_allclose(found[..., free], anew[..., free], rtol=1e-4, atol=1e-4)
        return found

    monkeypatch.setattr(_curve_weights, "_evidence", checked)
    _curve_weights.curve_weights(chains, state, chains.cells, chains.tuning(state), rng)
    assert seen == [False, True]


@pytest.mark.parametrize("missing", [False, True])
def test_evidence_of_linear_chains_is_that_of_a_multivariate_normal(missing):
    own = Joint(2, 5, missing=missing)
    own.seen = None if own.seen is None else own.seen[:1].repeat(2, axis=0)
    x = own.rng.standard_normal((2, 5, G))
    x = x if own.seen is None else x * own.seen
    law = SpikeSlab(True, np.array(SPIKE / SLAB))
    chains = LinearChains(
        x, own.seen, own.permitted, own.must, law, SLAB, RATES, False, NOISE, 1.0, RELATED, False
    )
    state = LinearState(own.z, own.weight, own.edge, own.log_odds, own.noise, np.full((2, G), 0.3), own.cov)
    want = []
    for s in range(2):
        w, v = own.weight[s], own.noise[s]
        total = 0.0
        for i in range(5):
            at = np.arange(G) if own.seen is None else np.flatnonzero(own.seen[s, i])
            cov = (w @ C @ w.T + np.diag(v))[np.ix_(at, at)]
            total += stats.multivariate_normal(np.full(len(at), 0.3), cov).logpdf(x[s, i, at])
        total += stats.invgamma(NOISE[0], scale=NOISE[1]).logpdf(v).sum()
        slab, spike = stats.laplace(scale=SLAB).pdf(w), stats.laplace(scale=SPIKE).pdf(w)
        mixed = np.log(own.eta[s] * slab + (1 - own.eta[s]) * spike)
        total += mixed[own.free].sum() + np.log(slab[own.must]).sum()
        want.append(total)
    assert np.diff(chains.log_evidence(state)) == pytest.approx(np.diff(want), rel=1e-9)


def test_a_last_layer_is_summed_out_exactly_under_normal_noise():
    rng = np.random.default_rng(0)
    phi, x = rng.standard_normal((1, 1, 3, 6)), rng.standard_normal((1, 1, 6))
    noise, precision = torch.full((1, 1), 0.7), np.array([1.0, 2.0, 4.0])
    cells = Cells(torch.as_tensor(x), None, None, None)
    found, other = (
        cells.sum_out(torch.as_tensor(p), 0.0, noise, torch.as_tensor(precision), torch.zeros(1, 1, 3))
        for p in (phi, 2 * phi)
    )

    def marginal(p):
        return stats.multivariate_normal(np.zeros(6), p.T @ np.diag(1 / precision) @ p + 0.7 * np.eye(6))

    want = marginal(phi[0, 0]).logpdf(x[0, 0]) - marginal(2 * phi[0, 0]).logpdf(x[0, 0])
    assert (found.log_evidence - other.log_evidence).item() == pytest.approx(want, rel=1e-6)
    inverse = np.linalg.inv(phi[0, 0] @ phi[0, 0].T / 0.7 + np.diag(precision))
    np.testing.assert_allclose(found.mean[0, 0], inverse @ phi[0, 0] @ x[0, 0] / 0.7, rtol=1e-6)


def test_bordered_evidence_is_that_of_the_layer_summed_out():
    """Two ways to one number; above, the second is held against a multivariate normal."""
    rng = np.random.default_rng(2)
    phi, x = (
        torch.as_tensor(rng.standard_normal((5, 2, 3, 4, 9))),
        torch.as_tensor(rng.standard_normal((2, 3, 9))),
    )
    noise, precision = torch.as_tensor(rng.random((2, 3)) + 0.2), torch.tensor([1.0, 2.0, 4.0, 0.5])
    seen = torch.as_tensor(rng.random(x.shape) < 0.8).double()
    for cells in (Cells(x, None, None, None), Cells(x * seen, seen, None, None)):
        design = torch.cat([phi, cells.x[None, :, :, None].expand(5, -1, -1, -1, -1)], -2)
        found = cells.evidence(design, noise, precision.double())
        want = [cells.sum_out(p, 0.0, noise, precision.double(), phi[0, ..., 0]).log_evidence for p in phi]
        np.testing.assert_allclose(found, torch.stack(want), rtol=1e-9, atol=1e-9)


def test_large_hidden_units_and_little_noise_are_no_end_of_the_chains():
    """Units that depend on one another, products of 1e7: in single precision their matrix is not definite."""
    rng = np.random.default_rng(0)
    a, b = 300 * rng.standard_normal((2, 100))
    phi = tensor(np.stack([np.ones(100), a, b, a + b, 0.3 * a - 0.7 * b]))[None, None]
    x, noise, precision = tensor(rng.standard_normal((1, 1, 100))), tensor([[1e-3]]), torch.ones(5).double()
    cells = Cells(x, None, None, None)
    gram = (phi @ phi.mT).double() / 1e-3 + precision.diag()
    assert torch.linalg.cholesky_ex(gram)[1].any()
    exact = phi[0, 0].double().numpy()
    cov = exact.T @ exact + 1e-3 * np.eye(100)
    y = x[0, 0].double().numpy()
    level = -0.5 * (y @ np.linalg.solve(cov, y) + np.linalg.slogdet(cov / 1e-3)[1] - y @ y / 1e-3)
    found = cells.sum_out(phi, 0.0, noise, precision, torch.zeros(1, 1, 5)).log_evidence
    assert found.item() == pytest.approx(level, rel=1e-4)
    bordered = cells.evidence(torch.cat([phi, x.unsqueeze(-2)], -2), noise, precision)
    assert bordered.item() == pytest.approx(found.item(), rel=1e-4)


@pytest.mark.parametrize(
    "kind", ["bernoulli", "poisson", "poisson, high rates", "negative binomial", "normal"]
)
def test_derivatives_of_cells_are_those_of_the_likelihood(kind):
    """By hand or not, with exposures and missing cells: against autograd through the likelihood itself."""
    rng = np.random.default_rng(3)
    f = torch.as_tensor(rng.standard_normal((2, 3, 8)) + 14 * ("high" in kind))
    x = torch.as_tensor(rng.integers(0, 2, size=(2, 3, 8)).astype(float))
    seen, exposure = torch.as_tensor(rng.random(x.shape) < 0.8).double(), torch.full((1, 1, 8), 1.7)
    noise = torch.as_tensor(rng.random((2, 3)) + 0.5)
    own = {"bernoulli": ps.models.likelihoods.Bernoulli(), "normal": None}
    likelihood = own.get(kind, ps.models.likelihoods.Poisson(size_factors=False))
    if kind == "negative binomial":
        likelihood = ps.models.likelihoods.NegativeBinomial(size_factors=False)
    counts = likelihood is not None and likelihood.uses_exposure
    cells = Cells(x * seen, seen, exposure if counts else None, likelihood)

    def log_prob(at):
        if kind == "negative binomial":
            odds = at + cells.exposure.log() + noise.log().unsqueeze(-1)
            return (
                torch.distributions.NegativeBinomial(1 / noise.unsqueeze(-1), logits=odds).log_prob(cells.x)
                * seen
            )
        if likelihood is None:
            return torch.distributions.Normal(at, noise.sqrt().unsqueeze(-1)).log_prob(cells.x) * seen
        exposures = None if cells.exposure is None else cells.exposure.mT
        return likelihood(at.mT, exposures).log_prob(cells.x.mT).mT * seen

    at = f.clone().requires_grad_(True)
    value = log_prob(at)
    (slope,) = torch.autograd.grad(value.sum(), at, create_graph=True)
    bend = -torch.autograd.grad(slope.sum(), at)[0] if slope.requires_grad else torch.zeros_like(f)
    found = cells.expanded(f, noise)
    for mine, want in zip(found[1:], (slope, bend), strict=True):
        np.testing.assert_allclose(mine, want.detach(), rtol=1e-5, atol=1e-6)
    gain = cells.log_prob(f + 0.3, noise) - found[0]  # up to a constant of each cell
    np.testing.assert_allclose(gain, (log_prob(f + 0.3) - log_prob(f)).detach(), rtol=1e-5, atol=1e-6)
    if kind in ("negative binomial", "normal"):  # and up to one of all cells, whatever the noise

        def level():
            return cells.log_prob(f, noise).sum(-1) + cells.log_base(noise), log_prob(f).sum(-1)

        (mine, want), noise = level(), 1.4 * noise
        mine, want = (now - before for now, before in zip(level(), (mine, want), strict=True))
        np.testing.assert_allclose(mine, want.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("activation", ["relu", "tanh", None])
def test_slopes_of_a_curve_are_those_of_autograd(activation):
    rng = np.random.default_rng(4)

    def normal(*shape):
        return torch.as_tensor(rng.standard_normal(shape)).requires_grad_(True)

    curve = Curve(activation, H if activation else 1)
    z, weight, trunk = (
        normal(2, 7, K),
        normal(2, G, K),
        Trunk(normal(2, K, H), normal(2, H, H), normal(2, 1, H)),
    )
    head = normal(2, G, H + 2 if activation else 1)
    bend = {"relu": torch.relu, "tanh": torch.tanh}.get(activation)
    u = weight.unsqueeze(-1) * z.mT.unsqueeze(1)  # chain, feature, factor, row
    if bend is None:
        f = head + u.sum(-2)
    else:
        a, b, c = curve.scales
        h = bend(a * trunk.first.mT.unsqueeze(1) @ u)
        h = bend(b * trunk.second.mT.unsqueeze(1) @ h + c * trunk.bias.mT.unsqueeze(1))
        phi = torch.cat([torch.ones_like(u[..., :1, :]), u.sum(-2, keepdim=True), h], -2)
        f = (head.unsqueeze(-2) @ phi).squeeze(-2)
        with torch.no_grad():
            np.testing.assert_allclose(curve.design(z, weight, trunk), phi, atol=1e-12)
            two = curve.design(z, torch.stack([weight, 2 * weight]), trunk, f)
            np.testing.assert_allclose(two[0, ..., :-1, :], phi, atol=1e-12)
            np.testing.assert_allclose(two[1, ..., -1, :], f, atol=1e-12)
    pull = torch.as_tensor(rng.standard_normal(f.shape))
    inputs = [z, weight, *(trunk if bend else ())]
    want = torch.autograd.grad(f, inputs, pull)
    with torch.no_grad():
        own = (z, weight, trunk, head)
        run = curve.forwards(*own)
        found = [curve.to_factors(run, pull, *own), *curve.to_layers(run, pull, *own)]
    np.testing.assert_allclose(run.f, f.detach(), atol=1e-12)
    for mine, right in zip(found, want, strict=True):
        np.testing.assert_allclose(mine, right, atol=1e-10)


@pytest.mark.parametrize("kind", ["poisson", "bernoulli"])
def test_laplace_is_close_to_the_integral(kind):
    rng = np.random.default_rng(1)
    offset = 0.5 * rng.standard_normal(60)
    x = rng.poisson(np.exp(offset + 0.4)) if kind == "poisson" else (rng.random(60) < 0.6).astype(float)
    likelihood = (
        ps.models.likelihoods.Poisson(size_factors=False)
        if kind == "poisson"
        else ps.models.likelihoods.Bernoulli()
    )
    cells = Cells(torch.as_tensor(x, dtype=torch.float64)[None, None], None, None, likelihood)

    def evidence(shift):
        return cells.sum_out(
            torch.ones(1, 1, 1, 60, dtype=torch.float64), torch.as_tensor(offset + shift)[None, None],
            torch.ones(1, 1), torch.ones(1, dtype=torch.float64), torch.zeros(1, 1, 60, dtype=torch.float64),
        ).log_evidence.item()  # fmt: skip

    def exact(shift):
        def joint(c):
            f = offset + shift + c
            each = x * f - np.exp(f) if kind == "poisson" else x * f - np.logaddexp(0, f)
            return np.exp(each.sum() - base) * stats.norm.pdf(c)

        return np.log(integrate.quad(joint, -6, 6, limit=300)[0]) + base

    base = (x * offset - (np.exp(offset) if kind == "poisson" else np.logaddexp(0, offset))).sum()
    assert evidence(0.8) - evidence(0.0) == pytest.approx(exact(0.8) - exact(0.0), abs=0.01)


@pytest.mark.parametrize("kind", ["poisson", "negative binomial", "bernoulli"])
def test_a_mode_is_found_from_any_f_near_by_whatever_the_basis(kind):
    """Against scipy's minimiser in double precision; the basis is not the one that the nearby f is of."""
    rng = np.random.default_rng(5)
    phi, precision = rng.standard_normal((4, 200)), np.array([1.0, 2.0, 3.0, 4.0])
    f = 0.7 * rng.standard_normal(4) @ phi
    theta, own = 3.0, ps.models.likelihoods
    likelihood, x = {
        "poisson": (own.Poisson(size_factors=False), rng.poisson(np.exp(f))),
        "negative binomial": (
            own.NegativeBinomial(False), rng.negative_binomial(theta, theta / (theta + np.exp(f)))
        ),
        "bernoulli": (own.Bernoulli(), rng.random(200) < 1 / (1 + np.exp(-f))),
    }[kind]  # fmt: skip

    def loss(beta):
        at = beta @ phi
        each = {
            "poisson": lambda: x * at - np.exp(at),
            "negative binomial": lambda: x * at - (x + theta) * np.logaddexp(np.log(theta), at),
            "bernoulli": lambda: x * at - np.logaddexp(0, at),
        }[kind]()
        return 0.5 * (precision * beta**2).sum() - each.sum()

    best = optimize.minimize(loss, np.zeros(4), tol=1e-12)
    cells = Cells(tensor(x)[None, None], None, None, likelihood)
    near = tensor(f + 0.2 * rng.standard_normal(200))[None, None]

    def found(newton):
        return cells.sum_out(
            tensor(phi)[None, None], 0.0, tensor([[1 / theta]]), torch.as_tensor(precision), near, newton
        )

    np.testing.assert_allclose(found(3).mean[0, 0], best.x, atol=1e-4)
    root = found(3).root[0, 0].numpy()
    shift = 200 * theta * np.log(theta) if kind == "negative binomial" else 0.0
    assert found(3).log_evidence.item() == pytest.approx(
        -best.fun + shift - np.linalg.slogdet(root)[1], abs=2e-3
    )
    assert found(2).log_evidence.item() == pytest.approx(found(3).log_evidence.item(), abs=0.05)


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
    assert anchors_of(permitted, must, (np.array([1.0, 1.0, 2.0]), np.ones(3))).pairs.size == 0
    nothing = np.ones((5, 3), dtype=bool)
    assert anchors_of(nothing, ~nothing, rates).pairs.size == 0
