"""What kernels of decoders are made of: cells, curves and their derivatives, a last layer summed out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import integrate, optimize, special, stats

import pyro_sparse as ps
from pyro_sparse.inference.edges.density.cells import Cells
from pyro_sparse.inference.edges.density.curves import Curve, Trunk

G, K, H = 4, 2, 3


NORMAL = ps.likelihoods.Normal()


def tensor(values):
    return torch.as_tensor(np.asarray(values), dtype=torch.float32)


def test_a_last_layer_is_summed_out_exactly_under_normal_noise():
    rng = np.random.default_rng(0)
    phi, x = rng.standard_normal((1, 1, 3, 6)), rng.standard_normal((1, 1, 6))
    noise, precision = torch.full((1, 1), 0.7), np.array([1.0, 2.0, 4.0])
    cells = Cells(torch.as_tensor(x), None, {}, NORMAL)
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
    for cells in (Cells(x, None, {}, NORMAL), Cells(x * seen, seen, {}, NORMAL)):
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
    cells = Cells(x, None, {}, NORMAL)
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
    own = {"bernoulli": ps.likelihoods.Bernoulli(), "normal": NORMAL}
    likelihood = own.get(kind, ps.likelihoods.Poisson(size_factors=False))
    if kind == "negative binomial":
        likelihood = ps.likelihoods.NegativeBinomial(size_factors=False)
    per_row = {"exposure": exposure} if likelihood.per_row_inputs else {}
    cells = Cells(x * seen, seen, per_row, likelihood)

    def log_prob(at):
        if kind == "negative binomial":
            odds = at + exposure.log() + noise.log().unsqueeze(-1)
            return (
                torch.distributions.NegativeBinomial(1 / noise.unsqueeze(-1), logits=odds).log_prob(cells.x)
                * seen
            )
        if likelihood is NORMAL:
            return torch.distributions.Normal(at, noise.sqrt().unsqueeze(-1)).log_prob(cells.x) * seen
        return likelihood(at.mT, {name: e.mT for name, e in per_row.items()}).log_prob(cells.x.mT).mT * seen

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


@pytest.mark.parametrize("masked", [False, True])
def test_what_counts_leave_out_is_asked_of_each_value_once(masked):
    rng = np.random.default_rng(3)
    x = torch.as_tensor(rng.poisson(2.0, (1, G, 60)).astype(float))
    x[0, 0] = 3.0  # a feature of one value
    seen = torch.as_tensor(rng.random(x.shape) < 0.7).double() if masked else None
    likelihood = ps.likelihoods.NegativeBinomial(size_factors=False)
    noise = torch.as_tensor(rng.uniform(0.2, 2.0, (3, G)))
    cells = Cells(x, seen, {}, likelihood)
    assert cells.distinct is not None and cells.distinct[0].shape[-1] < 20
    assert cells.features(slice(0, 2)).distinct[0].shape[:2] == (1, 2)  # a cache of its own
    size = 1 / noise.unsqueeze(-1)
    each = torch.as_tensor(special.gammaln((x + size).numpy()) - special.gammaln(size.numpy()))
    want = (each if seen is None else each * seen).sum(-1)
    np.testing.assert_allclose(cells.log_base(noise), want, rtol=1e-10)
    apart = Cells(torch.arange(60.0).expand(1, G, 60), None, {}, likelihood)
    assert apart.distinct is None
    want = likelihood.log_base(apart.x, noise).sum(-1)
    np.testing.assert_allclose(apart.log_base(noise), want)


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
        ps.likelihoods.Poisson(size_factors=False) if kind == "poisson" else ps.likelihoods.Bernoulli()
    )
    cells = Cells(torch.as_tensor(x, dtype=torch.float64)[None, None], None, {}, likelihood)

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
    theta, own = 3.0, ps.likelihoods
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
    cells = Cells(tensor(x)[None, None], None, {}, likelihood)
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


@pytest.mark.parametrize("size", [8.0, 25.0, 1e4])
def test_a_last_layer_is_found_from_where_every_cell_is_certain_and_wrong(size):
    """Newton's whole first step from there ended far out, and chains of yes/no tables ran away to NaN."""
    rng = np.random.default_rng(4)
    phi = tensor(np.concatenate([np.ones((1, 2, 1, 60)), rng.standard_normal((1, 2, 3, 60))], 2))
    x = tensor(rng.random((1, 2, 60)) < 0.5)
    cells = Cells(x, None, {}, ps.likelihoods.Bernoulli())
    near_zero, far = (
        cells.sum_out(phi, 0.0, torch.ones(1, 2), torch.tensor([1.0, 2.0, 4.0, 4.0]).double(), near)
        for near in (torch.zeros(1, 2, 60), size * (1 - 2 * x))
    )
    np.testing.assert_allclose(far.mean, near_zero.mean, atol=0.02)
    np.testing.assert_allclose(far.log_evidence, near_zero.log_evidence, atol=0.05)
