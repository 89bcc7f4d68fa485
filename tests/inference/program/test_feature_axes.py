"""Candidates for axes of three factors: their density, and what choosing among them leaves invariant."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy.spatial.transform import Rotation

from pyro_sparse.inference.program.axes import AxisSampler
from pyro_sparse.inference.program.feature_axes import frames_of, log_density, proposed
from pyro_sparse.inference.program.recorded import RecordedDensity
from pyro_sparse.inference.program.sweeps import ProgramChains
from pyro_sparse.programs import Data, Program, correlation, edges, factors
from tests.inference.program._long_runs import check


def loadings(seed=0, chains=3, features=12):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(chains, features, 3)))


def uniform(n, seed=0):
    return torch.from_numpy(Rotation.random(n, random_state=seed).as_matrix())


def test_the_density_of_candidates_is_one_relative_to_uniform_rotations():
    frames, log_prob = frames_of(loadings())
    anywhere = uniform(8_000).expand(3, -1, -1, -1)
    mass = log_density(anywhere, frames, log_prob).exp().mean(1)
    torch.testing.assert_close(mass, torch.ones_like(mass), atol=0.2, rtol=0)


def test_candidates_are_drawn_from_their_density():
    """Means under it are those of uniform rotations, each weighed by one over it."""
    torch.manual_seed(0)
    frames, log_prob = frames_of(loadings())
    rotations = proposed(frames, log_prob, 8_000)
    weight = (-log_density(rotations, frames, log_prob)).exp()
    torch.testing.assert_close(weight.mean(1), torch.ones_like(weight[:, 0]), atol=0.1, rtol=0)
    squares = (weight[..., None, None] * rotations**2).mean(1)  # of uniform rotations a third each
    torch.testing.assert_close(squares, torch.full_like(squares, 1 / 3), atol=0.1, rtol=0)
    torch.testing.assert_close(torch.linalg.det(rotations), torch.ones_like(weight))


def test_frames_follow_the_loadings():
    """So that the density is the same wherever on its orbit a chain is."""
    at = loadings()
    [turn] = uniform(1, seed=4)
    torch.manual_seed(1)
    frames, log_prob = frames_of(at)
    torch.manual_seed(1)
    turned, log_prob_there = frames_of(at @ turn)
    torch.testing.assert_close(log_prob_there, log_prob)
    torch.testing.assert_close(turned, turn.mT @ frames)
    rotations = uniform(50, seed=5).expand(3, -1, -1, -1)
    there = log_density(turn.mT @ rotations, turned, log_prob_there)
    torch.testing.assert_close(there, log_density(rotations, frames, log_prob))


@pytest.mark.parametrize("n_features", [2, 5])
def test_loadings_without_two_directions_have_frames_all_the_same(n_features):
    frames, log_prob = frames_of(torch.zeros(2, n_features, 3, dtype=torch.float64))
    candidates = proposed(frames, log_prob, 20)
    assert torch.isfinite(log_density(candidates, frames, log_prob)).all()
    unit = torch.eye(3, dtype=torch.float64).expand_as(candidates)
    torch.testing.assert_close(candidates @ candidates.mT, unit)


# ---- as a move of chains ----------------------------------------------------------------------------------
ODDS, SLAB, SPIKE, ROWS, FEATURES = -0.5, 1.0, 0.1, 4, 5


def program_of(alike=True, correlated=False):
    """Factors that cells know nothing of; the first may have an edge to every feature."""

    def program(d):
        required = torch.arange(d.n_factors) == (-1 if alike else 0)
        with d.features:
            W = edges(
                "W", log_odds=ODDS, slab=dist.Normal(0.0, SLAB), spike=dist.Normal(0.0, SPIKE),
                to=d.factors, required=required,
            )  # fmt: skip
        root = correlation("root", d.factors, 2.0) if correlated else torch.eye(d.n_factors)
        with d.rows:
            z = factors("z", dist.MultivariateNormal(torch.zeros(d.n_factors), scale_tril=root.to(d.x.dtype)))
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(0 * (z @ W.mT), 1.0), obs=d.x)

    return program


def sampler_of(program, n_factors=3, chains=3, n_features=FEATURES):
    data = Data(np.random.default_rng(0).normal(size=(ROWS, n_features)))
    density = RecordedDensity(Program(program, n_factors), data, chains)
    return AxisSampler(density, density.start), density


def predictor(u):
    return u["z"].squeeze(2) @ u["W"].mT


@pytest.mark.parametrize("correlated", [False, True])
def test_it_leaves_the_linear_predictor_alone(correlated):
    sampler, density = sampler_of(program_of(correlated=correlated), n_factors=4)
    u = density.start
    torch.manual_seed(0)
    for _ in range(20):
        moved, (of_scores, of_loadings) = sampler.reorient(u)
        torch.testing.assert_close(predictor(moved), predictor(u))
        torch.testing.assert_close(of_scores @ of_loadings.mT, torch.eye(4).to(of_scores).expand(3, -1, -1))
        before, after = (density.some(("z",), at) for at in (u, moved))
        torch.testing.assert_close(before, after)
        u = moved
    assert not torch.allclose(u["W"], density.start["W"])


@pytest.mark.slow
@pytest.mark.parametrize("by_program", [False, True])
def test_draws_from_the_prior_stay_such(by_program):
    """Of a program whose first factor has all edges, by weights alone or asking the program."""
    sampler, density = sampler_of(program_of(alike=False), chains=400)
    sampler.asks_weights_alone = not by_program
    u = density.start

    def looked_at(u):
        w = u["W"].abs()
        seen = [w[..., 0].mean(1), w[..., 1:].mean((1, 2)), (w[..., 1:] < 0.2).double().mean((1, 2))]
        return torch.stack([*seen, (w**2).mean((1, 2)), (w**4).mean((1, 2))], 1).numpy()

    rng = np.random.default_rng(1)
    rate = 1 / (1 + np.exp(-ODDS))
    scale = np.where(rng.random((200_000, FEATURES, 3)) < rate, SLAB, SPIKE)
    scale[..., 0] = SLAB
    drawn = {"W": torch.from_numpy(scale * rng.normal(size=scale.shape))}
    torch.manual_seed(2)
    for _ in range(15):
        u, _ = sampler.reorient(u)
    assert (u["W"] - density.start["W"]).abs().mean() > 0.1
    check(looked_at(u), looked_at(drawn).mean(0), most=0.5)


def general_and_two_groups():
    """A general factor and two group factors, and other axes in which as few loadings differ from zero."""
    truth = np.zeros((10, 3))
    truth[:, 0], truth[:4, 1], truth[5:9, 2] = 0.7, 0.6, 0.6
    first = np.array([0.7, 0.6, 0.0]) / np.hypot(0.7, 0.6)  # the general axis: where the first group is
    second = np.array([0.7, 0.0, 0.6]) - first * (first @ [0.7, 0.0, 0.6])
    second /= np.linalg.norm(second)
    return truth, truth @ np.stack([first, second, np.cross(first, second)], 1)


@pytest.mark.parametrize("moves", ["rotate", "reorient"])
def test_it_crosses_to_axes_that_rotations_of_two_factors_do_not_reach(moves):
    def program(d):
        general = torch.arange(d.n_factors) == 0
        slab, spike = dist.Normal(0.0, 0.8), dist.Normal(0.0, 0.05)
        with d.features:
            W = edges("W", log_odds=-1.0, slab=slab, spike=spike, to=d.factors, required=general)
        with d.rows:
            z = factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(z @ W.mT, 0.5), obs=d.x)

    density = RecordedDensity(Program(program, 3), Data(np.random.default_rng(0).normal(size=(4, 10))), 8)
    truth, rival = (torch.from_numpy(w) for w in general_and_two_groups())
    u = {**density.start, "W": truth.expand(8, -1, -1).clone()}
    sampler = AxisSampler(density, u)
    torch.manual_seed(3)
    was_rival = torch.zeros(8, dtype=torch.bool)
    for _ in range(60):
        u, _ = getattr(sampler, moves)(u)
        was_rival |= u["W"][:, :4, 1:].abs().amax((1, 2)) < 0.2  # the first group on the general axis alone
    assert rival[:4, 1:].abs().max() < 1e-8  # which is such a place, with as many edges
    assert (rival[:, 1:].abs() > 1e-8).sum() == (truth[:, 1:] != 0).sum()
    assert was_rival.all() if moves == "reorient" else was_rival.sum() <= 2


def test_where_it_is_no_use():
    assert sampler_of(program_of())[0].reorients
    assert not sampler_of(program_of(), n_features=1)[0].reorients  # one direction makes no axes
    assert not sampler_of(program_of(), n_factors=2)[0].reorients  # rotations of two reach all there are

    def bent(d):
        with d.features:
            W = edges(
                "W", log_odds=0.0, slab=dist.Normal(0.0, 1.0), spike=dist.Normal(0.0, 0.1), to=d.factors
            )
        with d.rows:
            z = factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(torch.relu(z) @ W.mT, 1.0), obs=d.x)

    assert not sampler_of(bent)[0].reorients  # each candidate would be a look at all cells


@pytest.mark.parametrize("reorients", [True, False])
def test_chains_reorient_after_the_climb_and_fits_never_do(reorients, monkeypatch):
    """Sweeps of a fit are averaged, and a jump to other axes would blur them."""
    _, density = sampler_of(program_of())
    chains, moved = ProgramChains(density, density.start, 12, climbing=6, reorients=reorients), []
    reorient = chains.axes.reorient
    monkeypatch.setattr(chains.axes, "reorient", lambda u: moved.append(chains.done) or reorient(u))
    for _ in range(20):
        chains.sweep()
    assert moved == ([10, 15] if reorients else [])
