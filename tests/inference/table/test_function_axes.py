"""Sparse axes of any function: a rotation that is known, context by rows, and moments by autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import ortho_group

from pyro_sparse.inference import sparse_jacobian_axes

K = 4


def rotated(seed=0):
    """Three features of every latent, which depend on it alone, seen after a rotation and a scaling."""
    torch.manual_seed(seed)
    rotation = torch.as_tensor(ortho_group.rvs(K, random_state=seed))
    mixing = (
        torch.diag(torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=torch.float64)) @ rotation
    )  # z = white @ mixing
    slope = torch.rand(3, K, dtype=torch.float64) + 0.5

    def fn(z, shift=None):
        own = z @ torch.linalg.inv(mixing)
        curves = torch.sin(own) + 1.5 * own if shift is None else torch.cos(own + shift)
        return (slope * curves.unsqueeze(1)).flatten(1) * torch.tensor([8.0, 4, 2, 1] * 3)

    white = torch.linalg.qr(torch.randn(2000, K, dtype=torch.float64))[0] * 2000**0.5
    z = white @ mixing
    return fn, z, mixing


@pytest.mark.parametrize("seed", range(3))
def test_the_rotation_is_undone_whatever_the_scales(seed):
    fn, z, mixing = rotated(seed)
    found = sparse_jacobian_axes(fn, z, n_starts=24)
    between = np.abs(
        np.corrcoef(found.codes(z.numpy()), (z @ torch.linalg.inv(mixing)).numpy(), rowvar=False)
    )
    between = between[:K, K:]
    assert sorted(between.argmax(1)) == list(range(K)) and between.max(1).min() > 0.99
    assert found.objective == pytest.approx(3 * K, abs=0.5) and found.found > 0
    strongest = between.argmax(1)[np.argsort(-found.effect)]
    assert list(strongest) == [0, 1, 2, 3]  # in the order of their features' sizes


def test_context_goes_with_its_rows():
    fn, z, mixing = rotated()
    shift = torch.randn(len(z), 1, dtype=torch.float64)
    found = sparse_jacobian_axes(fn, z, shift, n_starts=24, chunk=300)
    between = np.abs(np.linalg.inv(mixing.T.numpy()) @ found.map)
    assert between.max(0).min() > 0.99
    exact = torch.func.vmap(
        torch.func.jacrev(lambda own, s: fn(own.unsqueeze(0), s.unsqueeze(0)).squeeze(0))
    )(z, shift)
    effect = exact.numpy() @ found.map
    np.testing.assert_allclose(found.effect, np.sqrt((effect**2).mean((0, 1))))


def test_a_latent_without_effect_vanishes_from_the_codes():
    z = torch.randn(500, 3)
    found = sparse_jacobian_axes(lambda z: torch.cat([z[:, :1], 2 * z[:, 1:2]], 1), z, n_starts=8)
    spread = np.sort(found.codes(z.numpy()).std(0))
    np.testing.assert_allclose(spread, [0, 0.5, 1], atol=0.02)


def test_bad_input_is_refused():
    z = torch.randn(50, 3)
    with pytest.raises(ValueError, match="more rows than latents"):
        sparse_jacobian_axes(lambda z: z, z[:3])
    with pytest.raises(ValueError, match="context: got 49 rows"):
        sparse_jacobian_axes(lambda z, c: z + c, z, z[:49])
    with pytest.raises(ValueError, match="chunk"):
        sparse_jacobian_axes(lambda z: z, z, chunk=0)
    with pytest.raises(ValueError, match="no feature depends"):
        sparse_jacobian_axes(lambda z: torch.ones(len(z), 2), z)
