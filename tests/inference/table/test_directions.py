"""Directions of curved features against nonlinear least squares, noise, and the constraints of a model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import least_squares

from pyro_sparse.data.read import Batch
from pyro_sparse.inference.table.directions import admit, candidates, find_directions, release
from pyro_sparse.models import SparseDecoder

N, K = 600, 4
TRUE = np.array([[2.0, 0, 0, 0], [0, -1.5, 2.5, 0], [1.5, 0, -2.0, 1.2]])


@pytest.fixture(scope="module")
def table():
    """Three waves along sparse directions and two features of noise."""
    rng = np.random.default_rng(3)
    z = rng.normal(size=(N, K))
    x = np.hstack([np.sin(z @ TRUE.T), np.zeros((N, 2))]) + 0.4 * rng.normal(size=(N, 5))
    return torch.as_tensor(z), torch.as_tensor(x)


def test_candidates_are_sparse_and_reach_far():
    w = candidates(K)
    size = (w != 0).sum(1)
    assert set(size.tolist()) == {1, 2, 3}
    assert len({tuple(row.nonzero().flatten().tolist()) for row in w}) == 4 + 6 + 4
    assert 5 < w.norm(dim=1).max() <= 5.5
    assert torch.equal(w, candidates(K))
    assert (candidates(60) != 0).sum(1).max() == 2  # too many sets of three
    assert candidates(1).shape[1] == 1


def test_finds_each_direction_as_a_least_squares_fit_from_the_truth_does(table):
    z, x = table
    found = find_directions(z, x)
    assert found.real.tolist() == [True, True, True, False, False]
    for j, true in enumerate(TRUE):
        target = x[:, j].numpy() - x[:, j].numpy().mean()

        def residual(p, target=target):
            phase = z.numpy() @ p[:K]
            return target - p[K] * np.cos(phase) - p[K + 1] * np.sin(phase) - p[K + 2]

        best = least_squares(residual, np.concatenate([true, [0.0, 1.0, 0.0]]))
        share = 1 - 2 * best.cost / (target**2).sum()
        assert found.share[j].item() == pytest.approx(share, abs=0.01)
        w = found.weights[j].numpy()
        w = w * np.sign(w @ true)
        np.testing.assert_allclose(w, true, atol=0.25)
        assert (np.abs(w[true == 0]) < 0.25).all()


def test_noise_has_no_direction():
    rng = np.random.default_rng(0)
    found = find_directions(
        torch.as_tensor(rng.normal(size=(300, 5))), torch.as_tensor(rng.normal(size=(300, 60)))
    )
    assert found.real.sum() == 0


def test_missing_cells_do_not_count(table):
    z, x = table
    mask = torch.as_tensor(np.random.default_rng(1).random(x.shape) < 0.7)
    holes = torch.where(mask, x, 100.0)
    found = find_directions(z, holes, mask)
    assert found.real.tolist() == [True, True, True, False, False]
    rows = mask[:, 1]
    alone = find_directions(z[rows], x[rows][:, 1:2])
    assert found.share[1].item() == pytest.approx(alone.share.item(), abs=1e-3)


def model_of(table, **options):
    z, x = table
    torch.manual_seed(0)
    model = SparseDecoder(5, K, **options)
    model.setup(2, N)
    model.double()
    residual_sd = torch.ones(2, 1, 5, dtype=torch.float64)
    residual_sd[1, 0, 0] = 0.5
    model.start(
        z.expand(2, N, K), torch.zeros(2, 5, K), torch.full((2, 5, K), 0.3, dtype=torch.float64),
        torch.zeros(5), residual_sd, torch.zeros(2, dtype=torch.bool),
    )  # fmt: skip
    model.encode = lambda rows: (z.expand(2, N, K)[:, : len(rows)], torch.full((2, len(rows), K), 0.1))
    return model, Batch(x, x, None, N)


def test_unexplained_features_wait_are_admitted_held_and_released(table):
    model, batch = model_of(table)
    assert model.held.tolist() == [[True] * 5, [False, True, True, True, True]]
    assert (model.weights[0] == 0).all() and (model.weights[1, 0] != 0).all()
    assert admit(model, batch) == 5  # three waves in the first restart, two in the second
    assert model.held.tolist() == [[True, True, True, False, False], [False, True, True, False, False]]
    for j, true in enumerate(TRUE[1:], start=1):
        w = model.weights[:, j].detach().numpy()
        np.testing.assert_allclose(np.abs(w), np.abs(true / np.abs(true).max()) * np.ones((2, 1)), atol=0.12)
    assert (model.weights[:, 3:] == 1).all()
    assert (model.decoder.slope[0] == 0).all()
    noise = model.likelihood.noise_sd()[0, 0].detach().numpy()
    assert (noise[:3] < 0.3).all() and noise[3:] == pytest.approx(0.5, abs=0.01)
    with torch.no_grad():
        before = model.weights.clone()
        model.weights.add_(0.2)
        model.project()
    torch.testing.assert_close(model.weights[0, :3], before[0, :3])
    release(model)
    with torch.no_grad():
        model.weights.mul_(torch.tensor([0.5, 1, 1, 1]))
        model.project()
    assert not torch.allclose(model.weights[0, :3], before[0, :3])
    assert admit(model, batch) == 0


def test_a_direction_through_a_forbidden_edge_is_not_taken(table):
    model, batch = model_of(table, forbidden=[(0, 0)], required=[(3, 1)])
    assert not model.held[:, 3].any()  # what is required is there from the first
    admit(model, batch)
    assert not model.held[0, 0] and model.held[0, 1]
    assert model.weights[0, 0].tolist() == [0, 1, 1, 1]


def test_where_every_edge_is_forbidden_nothing_waits(table):
    model, batch = model_of(table, forbidden=[(j, k) for j in range(5) for k in range(K)])
    assert model.held.any() and admit(model, batch) == 0
    assert not model.held.any() and not model.weights.any()


def test_only_curves_and_gaussian_noise_make_a_feature_wait(table):
    assert not model_of(table, decoder="linear")[0].held.any()
    assert not model_of(table, likelihood="bernoulli")[0].held.any()
