"""Moves of straight lines under any likelihood: their target stays, and normal noise makes them exact.

If parameters and data come from their joint density, parameters after a move, given those data, still come
from the prior. Each move is tried alone, with missing cells, forbidden edges and required ones.
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
from pyro_sparse.inference.edges.density.decoder_program import DecoderProgram, DecoderState
from pyro_sparse.inference.edges.density.mixture import MixtureDensity
from pyro_sparse.inference.edges.density.user_density import density_of
from pyro_sparse.inference.edges.density.weight import SpikeSlab
from pyro_sparse.inference.edges.moves.line_angles import LineAngles, line_angles
from pyro_sparse.inference.edges.moves.marginal_angles import MarginalAngles
from pyro_sparse.inference.edges.moves.mh_weights import line_weights
from pyro_sparse.inference.edges.moves.rotations import related_factors
from pyro_sparse.inference.edges.moves.rows import line_rows
from pyro_sparse.priors import LKJ

G, K, ROWS, CHAINS, MOVES = 4, 2, 12, 4000, 5
SLAB, SPIKE, APART = 0.8, 0.1, 1.2
RATE = np.array([0.3, 0.6])
NOISE = 0.3
C = np.array([[1.0, 0.4], [0.4, 1.0]])
PERMITTED = np.array([[True, False], [True, True], [True, True], [True, True]])
MUST = np.array([[True, False], [False, False], [False, False], [False, True]])
FREE = PERMITTED & ~MUST


class Apart(ps.priors.SpikeSlabPrior):
    """An edge is never small."""

    def components(self):
        sides = dist.Normal(SLAB * torch.tensor([-APART, APART]), 0.3 * SLAB)
        return dist.MixtureSameFamily(dist.Categorical(torch.ones(2)), sides), dist.Normal(0.0, SPIKE)


def tensor(values, dtype=torch.float32):
    return torch.as_tensor(np.asarray(values), dtype=dtype)


def bernoulli(f, rng):
    return ps.likelihoods.Bernoulli(), rng.random(f.shape) < expit(f), 1.0


def poisson(f, rng):
    return ps.likelihoods.Poisson(size_factors=False), rng.poisson(np.exp(f)), 1.0


def negative_binomial(f, rng):
    x = rng.poisson(np.exp(f) * rng.gamma(1 / NOISE, NOISE, f.shape))
    return ps.likelihoods.NegativeBinomial(size_factors=False), x, NOISE


class Answers(ps.likelihoods.Likelihood):
    """Ordered answers of four levels: nothing of it in closed form."""

    def forward(self, f, row=None):
        return dist.OrderedLogistic(f, torch.tensor([-1.0, 0.0, 1.5]))


def ordinal(f, rng):
    levels = expit(np.array([-1.0, 0.0, 1.5]).reshape(-1, 1, 1, 1) - f)
    return Answers(), (rng.random(f.shape) > levels).sum(0), 1.0


def normal(f, rng):
    return ps.likelihoods.Normal(), f + np.sqrt(NOISE) * rng.standard_normal(f.shape), NOISE


FAMILIES = {
    "bernoulli": bernoulli,
    "poisson": poisson,
    "negative binomial": negative_binomial,
    "ordinal": ordinal,
    "normal": normal,
}
NOT_NORMAL = [name for name in FAMILIES if name != "normal"]


def drawn(family, density="laplace", missing=True, chains=CHAINS, seed=0, correlated=False):
    """The program, and a state with its data from their joint density, one for each chain.

    `correlated`: the correlation of a chain's factors is drawn from its prior, too, a uniform density.
    """
    rng = np.random.default_rng(seed)
    cov = np.tile(C, (chains, 1, 1))
    if correlated:
        cov[:, 0, 1] = cov[:, 1, 0] = rng.uniform(-1, 1, chains)
    edge = (rng.random((chains, G, K)) < RATE) & PERMITTED | MUST
    unit = rng.laplace(size=edge.shape) if density == "laplace" else rng.standard_normal(edge.shape)
    if density == "apart":
        unit = np.where(edge, rng.choice([-APART, APART], edge.shape) + 0.3 * unit, unit)
    weight = unit * np.where(edge, SLAB, SPIKE) * PERMITTED
    z = rng.standard_normal((chains, ROWS, K)) @ np.linalg.cholesky(cov).swapaxes(1, 2)
    curve = Curve(None, 1)
    head = curve.intercept_sd * rng.standard_normal((chains, G, 1))
    f = head + weight @ z.swapaxes(1, 2)
    likelihood, x, noise = FAMILIES[family](f, rng)
    seen = tensor(rng.random((1, G, ROWS)) < 0.75) if missing else None
    x = tensor(x) if seen is None else tensor(x) * seen
    prior = density_of(Apart()) if density == "apart" else MixtureDensity(density == "laplace", SLAB, SPIKE)
    program = DecoderProgram(
        Cells(x, seen, {}, likelihood), curve, prior, torch.as_tensor(PERMITTED), torch.as_tensor(MUST),
        related_factors(C), (np.ones(K), np.ones(K)), False, (4.0, 1.0), learn_cov=correlated,
    )  # fmt: skip
    log_odds = np.tile(np.log(RATE / (1 - RATE)), (chains, 1, 1))
    state = DecoderState(
        tensor(z), tensor(weight), torch.as_tensor(edge), tensor(log_odds), torch.as_tensor(head),
        torch.full((chains, G), noise), Trunk(*(torch.zeros(chains, 1, 1) for _ in range(3))),
        torch.as_tensor(np.linalg.inv(cov)), {},
    )  # fmt: skip
    return program, state


def assert_same(**pairs):
    """Means over chains agree within 4 standard errors of the difference, chain by chain."""
    for name, (before, after) in pairs.items():
        change = (after.double() - before.double()).flatten(1).numpy()
        score = change.mean(0) / np.maximum(change.std(0), 1e-12) * np.sqrt(len(change))
        assert np.abs(score).max() < 4.5, f"{name}: mean change {change.mean(0)}, z = {score.round(1)}"


@pytest.mark.slow
@pytest.mark.parametrize("density", ["laplace", "normal", "apart"])
@pytest.mark.parametrize("family", NOT_NORMAL)
def test_weights_with_intercepts_leave_the_prior_alone(family, density):
    program, before = drawn(family, density)
    rng, state, moved = np.random.default_rng(1), before, []
    log_odds, must = program.edge_log_odds(before), program.must
    for _ in range(MOVES):
        f = program.value(state)
        terms = program.cells.expanded(f, state.noise)
        new = line_weights(program, state, f, terms, program.cells, rng)
        moved.append(new.intercept != state.head[..., 0])
        state = state._replace(weight=new.weight, head=new.intercept.unsqueeze(-1))
        torch.testing.assert_close(new.f, program.value(state), rtol=1e-4, atol=1e-4)
        for found, want in zip(new.terms, program.cells.expanded(new.f, state.noise), strict=True):
            torch.testing.assert_close(found, want)
    share = torch.stack(moved).float().mean()
    assert 0.3 < share < 0.995  # neither exact, so that acceptance is asked for something, nor stuck
    free = torch.as_tensor(FREE)
    edge = program.density.edge(before.weight, log_odds, must)
    assert_same(
        edge=(edge[:, free], program.density.edge(state.weight, log_odds, must)[:, free]),
        probability=(edge[:, free], new.prob[:, free]),
        drawn=(before.edge[:, free], new.prob[:, free]),
        weight=(before.weight[:, free], state.weight[:, free]),
        size=(before.weight[:, free].abs(), state.weight[:, free].abs()),
        required=(before.weight[:, MUST].abs(), state.weight[:, MUST].abs()),
        intercept=(before.head, state.head),
        intercept_size=(before.head.abs(), state.head.abs()),
        value=(program.value(before).abs().sqrt(), program.value(state).abs().sqrt()),
        together=(before.weight * before.head, state.weight * state.head),
    )
    assert not state.weight[:, ~PERMITTED].any() and not new.prob[:, ~PERMITTED].any()
    torch.testing.assert_close(new.prob[:, MUST], torch.ones_like(new.prob[:, MUST]))


@pytest.mark.slow
@pytest.mark.parametrize("density", ["laplace", "normal"])
@pytest.mark.parametrize("family", FAMILIES)
def test_angles_with_loadings_leave_the_prior_alone(family, density):
    program, before = drawn(family, density, correlated=True)
    spike = SpikeSlab(density == "laplace", np.array(SPIKE / SLAB))
    angles = MarginalAngles(PERMITTED, MUST, spike, SLAB, LKJ(1.0))
    f = program.value(before)
    at = LineAngles(before, f, program.cells.expanded(f, before.noise))
    rng, moved = np.random.default_rng(1), []
    for _ in range(MOVES):
        new = line_angles(program, angles, 0, at, program.cells, rng)
        moved.append((new.state.weight != at.state.weight).any(-1).any(-1))
        at = new
        torch.testing.assert_close(at.f, program.value(at.state), rtol=1e-3, atol=1e-3)
        for got, want in zip(at.terms, program.cells.expanded(at.f, before.noise), strict=True):
            torch.testing.assert_close(got, want)
    assert 0.15 < torch.stack(moved).float().mean() < 0.95  # so many chains have two angles to choose from
    state, free = at.state, torch.as_tensor(FREE)
    cov, cov_then = (torch.linalg.inv(each.precision)[:, 0, 1:] for each in (before, state))
    assert np.corrcoef(cov[:, 0], cov_then[:, 0])[0, 1] < 0.97
    torch.testing.assert_close(state.z[..., 0], before.z[..., 0])
    assert_same(
        edge=(before.edge[:, free], state.edge[:, free]),
        weight=(before.weight[:, free], state.weight[:, free]),
        size=(before.weight[:, free].abs(), state.weight[:, free].abs()),
        required=(before.weight[:, MUST].abs(), state.weight[:, MUST].abs()),
        correlation=(cov, cov_then),
        correlation_size=(cov.abs(), cov_then.abs()),
        square=(before.z**2, state.z**2),
        together=(before.z.prod(-1), state.z.prod(-1)),
        with_correlation=(before.z.prod(-1) * cov, state.z.prod(-1) * cov_then),
        value=(f.abs().sqrt(), at.f.abs().sqrt()),
    )
    assert not state.weight[:, ~PERMITTED].any()


@pytest.mark.parametrize("family", NOT_NORMAL)
def test_rows_leave_the_prior_alone(family):
    program, before = drawn(family)
    rng, state, accepted = np.random.default_rng(1), before, []
    for _ in range(MOVES):
        f = program.value(state)
        terms = program.cells.expanded(f, state.noise)
        new = line_rows(program, state, f, terms, program.cells, rng)
        accepted.append(new.accept)
        state = state._replace(z=new.z)
        torch.testing.assert_close(new.f, program.value(state), rtol=1e-4, atol=1e-4)
    assert 0.5 < torch.stack(accepted).mean() < 0.999
    assert_same(
        z=(before.z, state.z),
        square=(before.z**2, state.z**2),
        together=(before.z.prod(-1), state.z.prod(-1)),
        value=(program.value(before).abs().sqrt(), program.value(state).abs().sqrt()),
        with_weight=(before.z.mean(1) * before.weight.sum(1), state.z.mean(1) * state.weight.sum(1)),
    )


def test_weights_under_normal_noise_are_those_of_enumerated_edges():
    """One table in all chains: P(edge) after some scans against every graph's closed-form evidence."""
    chains, table = 2000, 3
    program, one = drawn("normal", "normal", chains=table + 1)
    z, x = one.z[table].double().numpy(), program.cells.x[table].double().numpy()
    seen = program.cells.mask[0].numpy() > 0
    want = np.zeros((G, K))
    for j in range(G):
        total = 0.0
        for graph in itertools.product(*([0, 1] if FREE[j, k] else [int(MUST[j, k])] for k in range(K))):
            scale = np.where(graph, SLAB, SPIKE) * PERMITTED[j]
            rows = z[seen[j]]
            cov = rows * scale**2 @ rows.T + program.curve.intercept_sd**2 + NOISE * np.eye(len(rows))
            prior = np.prod([RATE[k] if graph[k] else 1 - RATE[k] for k in range(K) if FREE[j, k]])
            p = prior * stats.multivariate_normal(np.zeros(len(rows)), cov).pdf(x[j, seen[j]])
            total += p
            want[j] += p * (np.array(graph) * PERMITTED[j])
        want[j] /= total

    def every(t):
        return t[table : table + 1].expand(chains, *t.shape[1:])

    trunk = Trunk(*(every(t) for t in one.trunk))
    state = DecoderState(*(every(t) for t in one[:6]), trunk, every(one.precision), {})
    cells = Cells(program.cells.x[table : table + 1], program.cells.mask, {}, program.cells.likelihood)
    program = DecoderProgram(**{**program.__dict__, "cells": cells})
    rng, prob = np.random.default_rng(0), []
    for scan in range(16):
        f = program.value(state)
        new = line_weights(program, state, f, cells.expanded(f, state.noise), cells, rng)
        assert (new.intercept != state.head[..., 0]).float().mean() > 0.9999  # all of them accepted
        state = state._replace(weight=new.weight, head=new.intercept.unsqueeze(-1))
        if scan >= 8:
            prob.append(new.prob.double().mean(0).numpy())
    np.testing.assert_allclose(np.mean(prob, 0), want, atol=0.015)


def test_rows_under_normal_noise_are_drawn_from_their_conditional():
    copies = 20_000
    program, one = drawn("normal", chains=1)
    every = [t.expand(copies, *t.shape[1:]) for t in (*one[:6], one.precision)]
    state = DecoderState(*every[:6], Trunk(*one.trunk), every[6], {})
    f = program.value(one)
    terms = tuple(t.expand(copies, -1, -1) for t in program.cells.expanded(f, one.noise))
    new = line_rows(program, state, f.expand(copies, -1, -1), terms, program.cells, np.random.default_rng(0))
    assert new.accept.min() > 0.999
    w, c = one.weight[0].double().numpy(), one.head[0, :, 0].numpy()
    for i in range(ROWS):
        seen = program.cells.mask[0, :, i].numpy() > 0
        cov = np.linalg.inv(np.linalg.inv(C) + w[seen].T @ w[seen] / NOISE)
        mean = cov @ w[seen].T @ (program.cells.x[0, :, i].double().numpy() - c)[seen] / NOISE
        draws = new.z[:, i].double().numpy()
        np.testing.assert_allclose(draws.mean(0), mean, atol=0.03)
        np.testing.assert_allclose(np.cov(draws.T), cov, atol=0.03)
