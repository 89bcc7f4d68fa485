"""Axes of a fitted transition: moments of its Jacobians, the search, the numbers that constraints give."""

from __future__ import annotations

from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.data.sequences import as_sequences
from pyro_sparse.datasets import transition_data
from pyro_sparse.inference.transition.transition_axes import (
    _clearer,
    _moments,
    _seats,
    _time_axes,
    _whitenings,
    dense_moments,
    find_axes,
)
from pyro_sparse.inference.transition.transition_run import TransitionRun
from tests.inference._transitions import model_of


@pytest.fixture(scope="module")
def data():
    return transition_data("ActionTimeDiag", n=200, d_z=3, d_x=6, T=4, seed=1000)


def jacobian_model(jacobian, n_actions, lags):
    """What the search reads of a model whose transition has a given constant Jacobian."""
    d = jacobian.shape[0]
    model = ps.models.LatentTransition(d + 1, d, n_actions=n_actions, lags=lags, hidden=4, units=4)
    torch.manual_seed(0)
    model.setup(1)
    with torch.no_grad():
        model.transition.line.weight.copy_(torch.as_tensor(jacobian).mT.unsqueeze(0))
        model.transition.outer.weight.zero_()
    return model.double()


def test_moments_are_those_of_the_network_in_whitened_latents(data):
    """One restart, against Jacobians by differences and loops over frames."""
    x, _, a = data.part("train")
    batch = as_sequences(x[:30], actions=a[:30]).batch(dtype=torch.float64)
    torch.manual_seed(0)
    model = model_of(x, n_actions=3)
    model.setup(1, 30)
    model.double()
    moments = dense_moments(model, batch)[0]
    z = model.posterior(batch).loc[0].detach()
    past = z[:, :-1].reshape(-1, 3)
    inputs = torch.cat([past, batch.actions[:, 1:].reshape(-1, 3)], -1)
    values, vectors = np.linalg.eigh(np.cov(past.numpy().T))
    root = vectors @ np.diag(values**0.5) @ vectors.T
    inverse = np.linalg.inv(root)
    time, action = np.zeros((9, 9)), np.zeros((3, 3, 3))
    for row in inputs:
        jacobian = np.zeros((3, 6))
        for j in range(6):
            step = torch.zeros(6, dtype=torch.float64)
            step[j] = 1e-5
            up, down = (model.transition((row + s * step).view(1, 1, 6)).detach().view(3) for s in (1, -1))
            jacobian[:, j] = ((up - down) / 2e-5).numpy()
        vec = (inverse @ jacobian[:, :3] @ root).reshape(-1)
        time += np.outer(vec, vec) / len(inputs)
        own = inverse @ jacobian[:, 3:]
        for j in range(3):
            action[j] += np.outer(own[:, j], own[:, j]) / len(inputs)
    np.testing.assert_allclose(moments.time, time, rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(moments.actions, action, rtol=1e-4, atol=1e-8)


def test_new_latents_have_unit_variance_and_their_own_strengths(data):
    x, _, a = data.part("train")
    batch = as_sequences(x, actions=a).batch()
    torch.manual_seed(0)
    model = model_of(x, n_actions=3)
    model.setup(1, 200)
    TransitionRun(model, batch, None, ps.inference.TransitionSchedule(steps=30, evaluate_every=30)).finish()
    found = find_axes(model, batch, n_starts=8, steps=40)[0]
    past = model.posterior(batch).loc[0, :, :-1].detach().double().numpy().reshape(-1, 3)
    assert (past @ found.map.T).std(0) == pytest.approx(np.ones(3), rel=1e-3)
    assert found.strength.shape == found.graph.shape == (3, 6)
    assert (found.strength[:, :3] > 0).all()


def test_latents_that_no_action_drives_are_left_alone():
    """Two of three directions are driven; the third gets no edge and the others their axes."""
    rng = np.random.default_rng(0)
    model = jacobian_model(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), 2, 0)
    batch = as_sequences(rng.normal(size=(200, 1, 4)), actions=rng.normal(size=(200, 1, 2)), lag=0)
    found = find_axes(model, batch.batch(dtype=torch.float64), n_starts=8, steps=60)[0]
    assert found.graph.sum(1).tolist() == [1, 1, 0]
    assert sorted(found.graph[:2].argmax(1)) == [0, 1]
    assert np.linalg.matrix_rank(found.map) == 3


@pytest.mark.parametrize("lags", [0, 1])
def test_moments_are_of_seen_frames(data, lags):
    """With nothing seen of the last frame they are those of sequences that end before it."""
    x, _, a = data.part("train")
    x = x.copy()
    x[:, -1], x[0, 0, 0] = np.nan, np.nan
    torch.manual_seed(0)
    model = model_of(x, n_actions=3, lags=lags)
    model.setup(1, 200, missing=True)
    both = [
        dense_moments(model, as_sequences(x[:, :n], actions=a[:, :n], standardise=False, lag=lags).batch())[0]
        for n in (4, 3)
    ]
    for one, other in zip(*both, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-8)


def test_a_transition_without_edges_is_a_guess_and_no_crash():
    rng = np.random.default_rng(0)
    model = jacobian_model(1e-3 * rng.normal(size=(3, 3)), 0, 1)
    batch = as_sequences(rng.normal(size=(100, 2, 4))).batch(dtype=torch.float64)
    found = find_axes(model, batch, n_starts=8, steps=60)[0]
    assert found.gap == 0.0
    assert found.graph.shape == (3, 3)


@pytest.mark.parametrize("seed", range(5))
def test_latents_take_the_numbers_that_constraints_give_them(seed):
    """Against all orders of five latents."""
    rng = np.random.default_rng(seed)
    strength = np.where(rng.random((5, 5)) < 0.5, rng.random((5, 5)), 0.0)
    required, forbidden = [(0, 1), (1, 2), (3, 4)], [(1, 0), (4, 0), (2, 3)]
    model = ps.models.LatentTransition(
        6, 5, required_time=required, forbidden_time=forbidden, hidden=4, units=4
    )

    def suits(order):
        share = strength[np.ix_(order, order)] ** 2
        return sum(share[e] for e in required) - sum(share[e] for e in forbidden)

    best = max(suits(list(order)) for order in permutations(range(5)))
    assert suits(_seats(model, strength)) >= 0.9 * best
    free = ps.models.LatentTransition(6, 5, self_loops="required", hidden=4, units=4)
    assert _seats(free, strength).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("seed", range(3))
def test_latents_that_drive_each_other_are_found_by_their_independent_noise(seed):
    """Correlated latents behind a linear map: whitened by the past no rotation has the true axes."""
    rng = np.random.default_rng(seed)
    graph = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1]])
    jacobian = graph * np.cos(rng.normal(size=(300, 3, 3)))
    spread = np.array([[1.0, 0.6, 0.4], [0.6, 1.0, 0.6], [0.4, 0.6, 1.0]])
    mixing = np.linalg.qr(rng.normal(size=(3, 3)))[0] @ np.diag([1.0, 2.0, 0.5])
    past = rng.multivariate_normal(np.zeros(3), spread, 2000) @ mixing.T
    noise = 0.3 * mixing @ mixing.T
    model = SimpleNamespace(n_latents=3, lags=1, n_actions=0)
    dense = mixing @ jacobian @ np.linalg.inv(mixing)
    options = {"n_starts": 16, "steps": 80}
    found = [
        _time_axes(model, _moments(model, dense, past, noise, white), 0, options)
        for white in ("past", "noise")
    ]
    whole = np.abs(_clearer(found).turn @ mixing)
    assert (np.sort(whole, 1)[:, :2] < 0.05 * whole.max(1, keepdims=True)).all()
    assert _clearer(found).graph.sum() == 5
    wrong = np.abs(found[0].turn @ mixing)
    assert (np.sort(wrong, 1)[:, 1] > 0.2 * wrong.max(1)).any()


def test_first_frames_are_whitened_by_themselves():
    """Of two frames all past latents are draws from N(0, I); later ones are what drove them made of them."""
    assert _whitenings(2, 1) == _whitenings(3, 2) == ["past"]
    assert _whitenings(3, 1) == _whitenings(25, 2) == ["past", "noise"]
