"""Axes of decoders with a known sparse Jacobian behind a rotation; Jacobians against autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import ortho_group

import pyro_sparse as ps
import pyro_sparse.inference.table.decoder_axes as module
from pyro_sparse.data.read import Batch
from pyro_sparse.inference.rotation.jacobian_axes import jacobian_axes
from pyro_sparse.inference.table.decoder_axes import decoder_axes, decoder_jacobian, strengths

G, K = 9, 3
GRAPH = np.tile(np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1]]), (3, 1))


def hidden(seed=0):
    """A model whose decoder sees `GRAPH` in axes that are not the ones its encoder answers in."""
    torch.manual_seed(seed)
    model = ps.models.DependencyVAE(G, K)
    model.setup(n_restarts=1)
    model.double()
    with torch.no_grad():
        model.decoder.mask.copy_(torch.as_tensor(GRAPH, dtype=torch.float64))
        model.decoder.slope.copy_((torch.rand(1, K, G) + 0.5) * torch.randn(1, K, G).sign())
        model.decoder.slope.mul_(model.decoder.mask.mT)
        model.decoder.first.mul_(model.decoder.mask.mT.repeat_interleave(model.hidden, -1))
        model.decoder.mask.fill_(1.0)
        for part in (model.encoder.location, model.encoder.skip):
            for p in part.parameters() if isinstance(part, torch.nn.Module) else [part]:
                p.zero_()
        model.encoder.skip[0, :K] = torch.eye(K)
    x = torch.randn(400, G, dtype=torch.float64)
    return model, batch_of(x)


def batch_of(x):
    return Batch(x=x, inputs=x, mask=None, total=len(x))


def test_jacobian_is_autograds():
    model, _ = hidden()
    z = torch.randn(1, 5, K, dtype=torch.float64)
    found = decoder_jacobian(model, z)
    for n in range(5):
        exact = torch.autograd.functional.jacobian(
            lambda row: model.decode(row.view(1, 1, K), None)[0, 0], z[0, n]
        )
        torch.testing.assert_close(found[0, n], exact)


def test_a_few_rows_at_a_time_say_the_same(monkeypatch):
    model, batch = hidden()
    assert len(batch) > 1 and len(batch) * G < module._CELLS
    at_once = strengths(model, batch)
    monkeypatch.setattr(module, "_CELLS", 7 * G)
    torch.testing.assert_close(strengths(model, batch), at_once)


@pytest.mark.parametrize("seed", range(3))
def test_the_rotation_is_undone(seed):
    model, batch = hidden(seed)
    turn = torch.as_tensor(ortho_group.rvs(K, random_state=seed))[None]
    model.turn(turn)
    (found,) = decoder_axes(model, batch)
    assert found.found > 0
    # the map leads back to the axes before the turn, up to order, sign and scale
    whole = turn[0].numpy() @ found.map
    unit = np.abs(whole) / np.linalg.norm(whole, axis=0)
    np.testing.assert_allclose(unit.max(0), 1, atol=0.02)
    model.turn(torch.as_tensor(found.map)[None])
    order = unit.argmax(0)
    strength = strengths(model, batch)[0].numpy()
    np.testing.assert_allclose((strength**2).sum(1), 1)
    np.testing.assert_array_equal((strength > 0.05)[:, np.argsort(order)], GRAPH == 1)


def test_orthogonal_search_equals_varimax_on_a_perfect_simple_structure():
    rng = np.random.default_rng(0)
    loadings = np.kron(np.eye(4), np.ones((5, 1))) * rng.uniform(0.5, 1, size=(20, 1))
    turn = ortho_group.rvs(4, random_state=1)
    rows = loadings @ turn
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    found = jacobian_axes(actions=np.einsum("ja,jb->jab", rows, rows), orthogonal=True, n_starts=24)
    np.testing.assert_allclose(found.map @ found.map.T, np.eye(4), atol=1e-10)
    np.testing.assert_allclose(np.abs(turn @ found.map.T).max(0), 1, atol=1e-4)
