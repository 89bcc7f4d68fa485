"""The rival penalties against their closed forms."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from pyro_sparse.rivals import HessianPenalty, LatentL1, OrthogonalJacobian

B, K, G = 6, 3, 4


def latents(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def quadratic():
    """Features z'Q_i z, and their Hessians."""
    form = latents(G, K, K)
    return lambda z: torch.einsum("...j,gjk,...k->...g", z, form, z), form + form.mT


def score(penalty, fn, z, wanted, n=60):
    torch.manual_seed(3)
    draws = torch.stack([penalty(fn, z) for _ in range(n)]).detach()
    assert draws.std() / math.sqrt(n) < 0.05 * wanted  # the test can see a bias
    return abs(float((draws.mean() - wanted) / (draws.std() / math.sqrt(n))))


def pairs(matrix):
    """2 sum of squares off the diagonal."""
    return 2 * (matrix**2).sum((-2, -1)) - 2 * (matrix.diagonal(dim1=-2, dim2=-1) ** 2).sum(-1)


def test_latent_l1():
    z = latents(2, B, K)
    torch.testing.assert_close(LatentL1()(None, z), torch.stack([part.abs().sum() / B for part in z]))


def test_hessian_penalty_of_a_quadratic():
    fn, hessian = quadratic()
    for n in (2, 5):
        penalty = HessianPenalty(n_directions=n, reduction="sum")
        assert score(penalty, fn, latents(300, K), pairs(hessian).sum()) < 3.5


def test_hessian_penalty_takes_the_worst_feature_of_each_row():
    """With one mixing feature the largest is that one's; all directions of two latents give two values."""
    fn, z = lambda z: torch.stack([z[..., 0] * z[..., 1], z[..., 0] ** 2], -1), latents(B, 2)
    torch.manual_seed(0)
    largest = HessianPenalty()(fn, z)
    torch.manual_seed(0)
    torch.testing.assert_close(largest, HessianPenalty(reduction="sum")(fn, z), atol=1e-8, rtol=1e-8)
    # v'Hv = 2 v0 v1 = +-2: the variance of two draws is 8 if they differ, else 0
    assert float(largest) * B == pytest.approx(8 * round(float(largest) * B / 8), abs=1e-6)


def test_additive_networks_pass_the_hessian_penalty():
    additive = HessianPenalty()(lambda z: torch.sin(z) @ latents(K, G), latents(B, K))
    assert float(additive) < 1e-20


def test_orthogonal_jacobian_of_a_line():
    line = latents(K, G)
    assert score(OrthogonalJacobian(), lambda z: z @ line, latents(300, K), pairs(line @ line.T)) < 3.5
    columns = torch.linalg.qr(latents(G, K))[0] * torch.tensor([1.0, 5.0, 0.1])
    assert float(OrthogonalJacobian()(lambda z: z @ columns.T, latents(B, K))) < 1e-20


@pytest.mark.parametrize("penalty", [HessianPenalty(), OrthogonalJacobian()])
def test_restarts_masks_and_the_answer_that_is_there(penalty):
    fn, _ = quadratic()
    z = latents(2, B, K).requires_grad_()
    torch.manual_seed(0)
    plain = penalty(fn, z)
    torch.manual_seed(0)
    torch.testing.assert_close(penalty(fn, z, fn(z)), plain)
    assert plain.shape == (2,)
    (gradient,) = torch.autograd.grad(penalty(lambda own: torch.tanh(fn(own)), z).sum(), z)
    assert torch.isfinite(gradient).all() and (gradient != 0).any()
    # an additive network stays so under any mask, if the masks are the same everywhere
    torch.manual_seed(0)
    network = nn.Sequential(nn.Dropout(0.5), nn.Linear(K, G)).double().train()
    if isinstance(penalty, HessianPenalty):
        own = z[0]
        assert float(penalty(network, own, network(own)).detach()) < 1e-15
    with torch.no_grad():
        assert not penalty(fn, z).requires_grad


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: HessianPenalty(n_directions=1), "n_directions: got 1, wanted a whole number of at least 2"),
        (lambda: OrthogonalJacobian(n_directions=2.5), "n_directions: got 2.5"),
        (lambda: HessianPenalty(step=0.0), "step: got 0.0, wanted a positive number"),
        (lambda: HessianPenalty(reduction="mean"), "reduction: got 'mean', wanted 'max' or 'sum'"),
        (lambda: LatentL1(weight=-1), "weight: got -1"),
    ],
)
def test_complaints(make, words):
    with pytest.raises(ValueError, match=words):
        make()
