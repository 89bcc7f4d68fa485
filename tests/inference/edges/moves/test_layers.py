"""Moves of a decoder's layers: their information, coordinates, climbs, and scales that data do not see."""

from __future__ import annotations

from dataclasses import replace

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
from pyro_sparse.inference.edges.moves import layers as _layers
from pyro_sparse.inference.edges.moves import metric as _metric
from pyro_sparse.inference.edges.moves import rescaling
from pyro_sparse.inference.edges.moves import rows as _rows
from pyro_sparse.inference.edges.moves.layers import _Target, climbed, moved
from pyro_sparse.inference.edges.moves.metric import information
from pyro_sparse.inference.edges.moves.rescaling import stretched
from pyro_sparse.inference.edges.moves.rotations import related_factors
from pyro_sparse.inference.edges.moves.rows import curve_rows

N, G, K, H = 3, 5, 2, 3  # chains, features, factors, hidden units
COV = np.array([[1.0, 0.4], [0.4, 1.0]])
NORMAL = ps.likelihoods.Normal()


def tensor(values):
    return torch.as_tensor(np.asarray(values), dtype=torch.float32)


def drawn(activation="tanh", rows=40, likelihood=None, missing=False, chains=N, seed=0):
    """A kernel and a state from the prior."""
    rng = np.random.default_rng(seed)
    permitted = np.ones((G, K), dtype=bool)
    permitted[[0, 1], [1, 0]] = False
    must = np.zeros((G, K), dtype=bool)
    must[[0, 1], [0, 1]] = True
    edge = (rng.random((chains, G, K)) < 0.5) & permitted | must
    weight = rng.laplace(size=edge.shape) * np.where(edge, 1.0, 0.1) * permitted
    z = rng.standard_normal((chains, rows, K)) @ np.linalg.cholesky(COV).T
    curve = Curve(activation, H if activation else 1)
    sizes = [(K, H), (H, H), (1, H)] if activation else [(1, 1)] * 3
    trunk = Trunk(*(tensor(rng.standard_normal((chains, *size)) * bool(activation)) for size in sizes))
    sd = curve.head_precision(torch.zeros(1)).numpy() ** -0.5
    head = torch.as_tensor(sd * rng.standard_normal((chains, G, len(sd))))
    f = curve.value(tensor(z), tensor(weight), trunk, head).numpy()
    x = f + 0.3 * rng.standard_normal(f.shape) if likelihood is None else rng.poisson(np.exp(f))
    seen = tensor(rng.random(f.shape) < 0.7) if missing else None
    kernel = DecoderChains(
        Cells(tensor(x), seen, {}, likelihood or NORMAL), curve, MixtureDensity(True, 1.0, 0.1),
        torch.as_tensor(permitted), torch.as_tensor(must), related_factors(COV),
        (np.ones(K), np.ones(K)), False, (4.0, 1.0),
    )  # fmt: skip
    noise = torch.full((chains, G), 0.09 if likelihood is None else 1.0)
    odds = torch.zeros(chains, 1, K)
    return kernel, DecoderState(
        tensor(z),
        tensor(weight),
        torch.as_tensor(edge),
        odds,
        head,
        noise,
        trunk,
        torch.as_tensor(np.tile(np.linalg.inv(COV), (chains, 1, 1))),
        {},
    )


def by_definition(curve, z, weight, trunk, head):
    """f (feature, row) of one chain."""
    u = weight.unsqueeze(1) * z
    if curve.activation is None:
        return head + u.sum(-1)
    bend = torch.tanh if curve.activation == "tanh" else torch.relu
    a, b, bias = curve.scales
    above = bend(bend(u @ (a * trunk[0])) @ (b * trunk[1]) + bias * trunk[2])
    return head[:, :1] + head[:, 1:2] * u.sum(-1) + (above @ head[:, 2:].unsqueeze(-1)).squeeze(-1)


POISSON = ps.likelihoods.Poisson(size_factors=False)
CASES = {
    "tanh": {},
    "relu missing": {"activation": "relu", "missing": True},
    "poisson": {"likelihood": POISSON},
    "line": {"activation": None, "likelihood": POISSON},
}


@pytest.mark.parametrize("case", CASES)
def test_information_is_that_of_derivatives_by_autograd(case):
    kernel, state = drawn(**CASES[case])
    found = information(kernel, state, np.random.default_rng(0))
    width = found.common.shape[-1]
    sure = G * 40 / (G * 40 + width)
    bend = kernel.cells.expanded(kernel.value(state), state.noise)[2].double()
    for c in range(N):
        one = DecoderState(*(None if p is None else _at(p, c) for p in state))

        def f(weight, head, *trunk, one=one):
            return by_definition(
                kernel.curve, one.z[0].double(), weight[0], [part[0] for part in trunk], head[0]
            )

        parts = [one.weight, one.head, *one.trunk]
        jacobian = torch.autograd.functional.jacobian(f, tuple(part.double() for part in parts))
        weight, head, *trunk = (j.flatten(3) if j.ndim > 3 else j for j in jacobian)
        weight, head = weight.view(G, 40, G, K) * kernel.permitted, head.view(G, 40, G, -1)
        common = torch.cat([j.reshape(G, 40, -1) for j in trunk], -1)[..., :width]
        total = torch.zeros(width, width, dtype=torch.float64)
        for j in range(G):
            own = torch.cat([weight[j, :, j], head[j, :, j]], -1)
            h = bend[c, j, :, None]
            torch.testing.assert_close(found.blocks[c, j], own.T @ (h * own), rtol=1e-4, atol=1e-3)
            torch.testing.assert_close(
                found.across[c, j], sure * own.T @ (h * common[j]), rtol=1e-4, atol=1e-3
            )
            total += common[j].T @ (h * common[j])
        off = sure * total + (1 - sure) * total.diagonal().diag()
        torch.testing.assert_close(found.common[c], off, rtol=1e-4, atol=1e-3)


def _at(part, c):
    if isinstance(part, dict):
        return {name: values[c : c + 1] for name, values in part.items()}
    return Trunk(*(p[c : c + 1] for p in part)) if isinstance(part, Trunk) else part[c : c + 1]


def test_coordinates_make_the_information_round():
    kernel, state = drawn()
    found = information(kernel, state, np.random.default_rng(0))
    scale = torch.where(state.edge | kernel.must, 1.0, 0.1)
    precision = kernel.curve.head_precision(state.z)
    at = found.coordinates(scale, precision)
    own, width = found.blocks.shape[-1], found.common.shape[-1]
    rng = np.random.default_rng(1)
    y = tensor(rng.standard_normal((N, at.size)))
    features, common = at.step(y)
    slope = tensor(rng.standard_normal(features.shape)), tensor(rng.standard_normal(common.shape))
    by_step = (features * slope[0]).sum((1, 2)) + (common * slope[1]).sum(1)
    torch.testing.assert_close(by_step, (y * at.slope(*slope)).sum(1), rtol=1e-3, atol=1e-3)
    # y'y is what M makes of the step: blocks as they are, the corner by what the metric says is left of it
    prior = torch.cat([scale.double() ** -2 * kernel.permitted + ~kernel.permitted * 1.0,
                       precision.expand(N, G, -1)], -1)  # fmt: skip
    a = found.blocks + torch.diag_embed(prior)
    left = torch.linalg.inv(found.root)
    corner = left @ left.mT + (found.across.mT @ torch.linalg.inv(a) @ found.across).sum(1)
    features, common = features.double(), common.double()
    square = (features.unsqueeze(-2) @ a @ features.unsqueeze(-1)).sum((1, 2, 3))
    square += 2 * (features.unsqueeze(-2) @ found.across @ common[:, None, :, None]).sum((1, 2, 3))
    square += (common.unsqueeze(-2) @ corner @ common.unsqueeze(-1))[:, 0, 0]
    torch.testing.assert_close(square, y.double().square().sum(1), rtol=1e-2, atol=1e-2)
    assert features.shape == (N, G, own) and common.shape == (N, width)


@pytest.mark.parametrize("size", ["small", "wide", "large"])
def test_exchanged_factors_have_exchanged_information(size, monkeypatch):
    if size == "wide":
        monkeypatch.setattr(_metric, "_WIDEST", 5)
    if size == "large":
        monkeypatch.setattr(_metric, "_LARGEST", 5)
    kernel, state = drawn()
    kernel = replace(kernel, permitted=torch.ones(G, K, dtype=torch.bool))
    turn = torch.tensor([[[1, 0]], [[0, 1]], [[1, 0]]])
    rng = np.random.default_rng(0)
    turned = state._replace(
        z=state.z.gather(-1, turn.expand_as(state.z)),
        weight=state.weight.gather(-1, turn.expand_as(state.weight)),
        trunk=state.trunk._replace(first=state.trunk.first.gather(1, turn.mT.expand_as(state.trunk.first))),
    )
    torch.testing.assert_close(kernel.value(turned), kernel.value(state))
    want, found = information(kernel, turned, rng), information(kernel, state, rng).exchanged(turn)
    assert (want.across is None) == (size != "small") and want.common.ndim == (2 if size == "wide" else 3)
    for name in ("blocks", "across", "common") if size == "small" else ("blocks", "common"):
        torch.testing.assert_close(getattr(found, name), getattr(want, name), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("activation", [None, "tanh"])
def test_factors_go_to_the_places_that_odds_give_them(activation):
    """Nothing but odds of edges tells the two apart: exchanged with all that is theirs, f stays as it was."""
    kernel, state = drawn(activation)
    sees_all, sees_none = torch.ones(G, K, dtype=torch.bool), torch.zeros(G, K, dtype=torch.bool)
    kernel = replace(kernel, permitted=sees_all, must=sees_none, edge_offset=tensor([[3.0, -3.0]] * G))
    state = state._replace(edge=torch.tensor([False, True]).expand(N, G, K))
    tuning = kernel.tuning(state)
    tuning.exchanges = 1.0
    there = kernel._relabelled(state, tuning, np.random.default_rng(0), False)
    assert there.edge[..., 0].all() and not there.edge[..., 1].any()
    torch.testing.assert_close(kernel.value(there._replace(head=state.head)), kernel.value(state))
    back = kernel._relabelled(there, tuning, np.random.default_rng(1), False)
    torch.testing.assert_close(back.weight, there.weight)


def test_some_rows_stand_for_all(monkeypatch):
    kernel, state = drawn(rows=3000, chains=1)
    whole = information(kernel, state, np.random.default_rng(0))
    monkeypatch.setattr(_metric, "_WORK", 1000 * G * (K + H + 2 + 18) ** 2)
    some = information(kernel, state, np.random.default_rng(0))
    assert not torch.equal(some.common, whole.common)
    for name in ("blocks", "across", "common"):
        a, b = getattr(some, name), getattr(whole, name)
        assert (a - b).norm() < 0.2 * b.norm()


def density(kernel, state, c, weight, head, *trunk):
    """log p of cells, weights and layers of one chain, its edges held."""
    f = by_definition(kernel.curve, state.z[c].double(), weight, trunk, head)
    if kernel.cells.normal:
        cells = torch.distributions.Normal(f, 0.3)
    else:
        cells = torch.distributions.Poisson(f.exp())
    seen = 1.0 if kernel.cells.mask is None else kernel.cells.mask[c]
    total = (cells.log_prob(kernel.cells.x[c].double()) * seen).sum()
    scale = torch.where(state.edge[c] | kernel.must, 1.0, 0.1).double()
    total = total + (torch.distributions.Laplace(0, scale).log_prob(weight) * kernel.permitted).sum()
    sd = kernel.curve.head_precision(f) ** -0.5
    for part, spread in ((head, sd), *((part, 1.0) for part in trunk)):
        total = total + torch.distributions.Normal(0, spread).log_prob(part).sum()
    return total


@pytest.mark.parametrize("case", CASES)
def test_density_and_slopes_are_those_of_its_definition(case):
    kernel, state = drawn(**CASES[case])
    target = _Target(kernel, state)
    level, features, common = target.expanded(state)
    rng = np.random.default_rng(1)
    step = [0.1 * tensor(rng.standard_normal(part.shape)) for part in (features, common)]
    other = target.moved(tuple(step))
    gain = target.expanded(other)[0] - level
    for c in range(N):
        here, there = ([s.weight[c], s.head[c], *(part[c] for part in s.trunk)] for s in (state, other))
        here = [part.double().requires_grad_() for part in here]
        total = density(kernel, state, c, *here)
        total.backward()
        want = density(kernel, state, c, *(part.double() for part in there)) - total
        assert gain[c].item() == pytest.approx(want.item(), rel=1e-4, abs=1e-2)
        slopes = [part.grad for part in here]
        own = torch.cat([slopes[0] * kernel.permitted, slopes[1]], -1)
        torch.testing.assert_close(features[c], own.to(features), rtol=1e-3, atol=1e-2)
        if kernel.curve.activation is not None:
            of_trunk = torch.cat([part.flatten() for part in slopes[2:]])
            torch.testing.assert_close(common[c], of_trunk.to(common), rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("case", CASES)
def test_a_few_rows_at_a_time_are_all_rows(case, monkeypatch):
    kernel, state = drawn(**CASES[case])
    want = _Target(kernel, state).expanded(state)
    monkeypatch.setattr(_layers, "_AT_ONCE", 7 * N * G * kernel.curve.hidden)  # of 40: the last are fewer
    for found, whole in zip(_Target(kernel, state).expanded(state), want, strict=True):
        torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["tanh", "relu missing", "poisson"])
def test_factors_of_a_curve_leave_the_prior_alone_a_few_rows_at_a_time(case, monkeypatch):
    chains, rows = 4000, 10
    kernel, state = drawn(**CASES[case], rows=rows, chains=chains)
    monkeypatch.setattr(_rows, "_AT_ONCE", 3 * chains * G * H)
    rng, z, step = np.random.default_rng(1), state.z, torch.full((chains, rows), 0.12)
    for _ in range(4):
        new = curve_rows(kernel, state._replace(z=z), kernel.cells, step, rng)
        z = new.position
    assert 0.5 < new.accept.mean() < 0.999 and (z != state.z).float().mean() > 0.7
    f, g = (kernel.value(state, at).abs().sqrt().mean(-1) for at in (state.z, z))
    for before, after in ((state.z, z), (state.z**2, z**2), (state.z.prod(-1), z.prod(-1)), (f, g)):
        change = (after - before).double().flatten(1)
        score = change.mean(0) / change.std(0) * chains**0.5
        assert score.abs().max() < 4.5


@pytest.mark.parametrize("case", ["normal", "poisson", "wide", "large"])
def test_climbs_only_go_up_and_find_what_random_steps_do_not(case, monkeypatch):
    if case == "wide":
        monkeypatch.setattr(_metric, "_WIDEST", 5)
    if case == "large":
        monkeypatch.setattr(_metric, "_LARGEST", 5)
    likelihood = POISSON if case == "poisson" else None
    kernel, state = drawn(rows=400, likelihood=likelihood)
    far = state._replace(trunk=Trunk(*(part + 0.3 for part in state.trunk)))
    rng = np.random.default_rng(0)

    def level(s):
        return kernel.cells.log_prob(kernel.value(s), s.noise).double().sum((1, 2))

    uphill, tuning, before = far, kernel.tuning(far), None
    for _ in range(25):
        uphill = climbed(kernel, uphill, tuning, rng)
        joint = kernel.log_joint(uphill._replace(log_odds=torch.where(uphill.edge, 40.0, -40.0)),
                                 kernel.value(uphill))  # fmt: skip
        assert before is None or (joint > before - 1e-2).all()  # edges are held: so are their scales
        before = joint
    if case in ("wide", "large"):  # less is known of the way
        assert (level(uphill) > level(far) + 100).all()
        return
    random, plain = far, kernel.tuning(far)
    for _ in range(25):
        random = moved(kernel, random, plain, rng, warm=True)
    assert (level(uphill) > level(random)).all()
    assert (level(uphill) > level(state) - 10).all()  # where the cells were drawn
    assert (plain.whole != 0.1).any()


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_stretches_leave_the_curve_where_it_is(activation):
    kernel, state = drawn(activation)
    new = stretched(kernel, state, np.random.default_rng(0))
    torch.testing.assert_close(kernel.value(new), kernel.value(state), rtol=1e-3, atol=1e-3)
    assert (new.z != state.z).any((1, 2)).all() and (new.weight != state.weight).any((1, 2)).all()
    assert (new.trunk.first != state.trunk.first).any()
    assert (new.trunk.second != state.trunk.second).any() == (activation == "relu")
    assert not new.weight[:, ~kernel.permitted].any()


def test_expansions_leave_a_line_where_it_is():
    kernel, state = drawn(None, likelihood=POISSON)
    new, rng = state, np.random.default_rng(0)
    for _ in range(5):
        new = kernel._expanded(new, rng)
    torch.testing.assert_close(kernel.value(new), kernel.value(state), rtol=1e-3, atol=1e-3)
    assert (new.z != state.z).any((1, 2)).all() and (new.weight != state.weight).any((1, 2)).all()
    assert not new.weight[:, ~kernel.permitted].any()


def test_stretches_bring_factors_to_their_scale_at_once():
    kernel, state = drawn(rows=1000)
    wide = state._replace(z=1.3 * state.z, weight=state.weight / 1.3)
    new = wide
    rng = np.random.default_rng(1)
    for _ in range(12):
        new = stretched(kernel, new, rng)
    np.testing.assert_allclose(new.z.std(1), state.z.std(1), atol=0.12)


@pytest.mark.slow
def test_scale_of_a_factor_follows_its_density():
    """With two rows z'z / s^2 and six weights that are edges, against numerical integration."""
    kernel, state = drawn(rows=2, chains=1)
    kernel = replace(kernel, must=kernel.permitted)
    state = state._replace(precision=torch.eye(K, dtype=torch.float64)[None])
    n = 4000
    many = DecoderState(*(
        Trunk(*(q.expand(n, -1, -1) for q in p)) if isinstance(p, Trunk)
        else p.expand(n, *p.shape[1:]) if isinstance(p, torch.Tensor) else p for p in state
    ))  # fmt: skip
    rng = np.random.default_rng(0)
    for _ in range(60):
        many = rescaling._factors(kernel, many, rng)
    for k in range(K):
        ratio = (state.z[:, 0, k] / many.z[:, 0, k]).log().numpy()
        w, z = state.weight[0, :, k].abs().sum().item(), state.z[0, :, k].square().sum().item()
        grid = np.linspace(-4, 4, 4001)
        log_p = (
            (int(kernel.permitted[:, k].sum()) - 2) * grid - w * np.exp(grid) - 0.5 * z * np.exp(-2 * grid)
        )
        cdf = np.cumsum(np.exp(log_p - log_p.max()))
        assert stats.kstest(np.interp(ratio, grid, cdf / cdf[-1]), "uniform").pvalue > 1e-3


def test_wide_layers_are_taken_entry_by_entry(monkeypatch):
    kernel, state = drawn(missing=True)
    want = information(kernel, state, np.random.default_rng(0))
    monkeypatch.setattr(_metric, "_WIDEST", 5)
    found = information(kernel, state, np.random.default_rng(0))
    assert found.across is None
    torch.testing.assert_close(found.common, want.common.diagonal(dim1=-2, dim2=-1), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(found.blocks, want.blocks, rtol=1e-4, atol=1e-3)
