r"""What dependency sparsity is measured against: other penalties that should tell axes apart.

The L1 norm of the latents, a decoder whose second derivatives do not mix latents (Peebles et al. 2020), and
one whose Jacobian has orthogonal columns (Wei et al. 2021). Each goes where a `DependencyPenalty` goes. The
last two estimate a sum over pairs of latents by the variance of a quadratic form over random signs,

.. math:: \mathrm{Var}_v(v^\top A v) = 2 \sum_{j \ne k} A_{jk}^2, \qquad v_j = \pm 1 .
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..inference.table._rowwise import around
from ..inference.table.jacobian_penalty import directional, graph
from ..inference.table.latent_penalty import LatentPenalty

__all__ = ["HessianPenalty", "LatentL1", "OrthogonalJacobian"]

Network = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class LatentL1(LatentPenalty):
    r"""The L1 norm of the latents of a row, :math:`\sum_k |z_k|`: sparse factors, not sparse dependencies.

    Attributes
    ----------
    weight, warm_up
        As for `LatentPenalty`. Smaller latents with a steeper decoder pay less; the Kullback-Leibler term
        alone resists.

    Examples
    --------
    >>> import torch
    >>> LatentL1()(lambda z: z, torch.tensor([[1.0, -2.0], [0.0, 1.0]]))
    tensor(2.)
    """

    def __call__(self, fn: Network, z: Tensor, x_hat: Tensor | None = None) -> Tensor:
        return z.abs().sum(-1).mean(-1)

    def copies(self, n_latents: int) -> int:
        return 1


@dataclass(frozen=True)
class HessianPenalty(LatentPenalty):
    r"""The Hessian penalty: no feature's second derivatives mix two latents.

    .. math:: \mathrm{mean}_b\, \max_i\; 2 \sum_{j \ne k}
              \Big(\frac{\partial^2 f_i}{\partial z_j \partial z_k}(z_b)\Big)^2

    by the sample variance of :math:`v^\top H_i v` over random signs, each a second central difference.

    Attributes
    ----------
    weight, warm_up
        As for `LatentPenalty`.
    n_directions : int
        Random signs for each row, at least 2.
    step : float
        Of the difference, in units of the latents. The published 0.1 sees a ReLU's kinks; the limit does not.
    reduction : {"max", "sum"}
        Over features; the paper takes the largest.

    Raises
    ------
    ValueError
        Fewer than 2 directions, a step that is not positive, an unknown `reduction`.

    References
    ----------
    Peebles, Peebles, Zhu, Efros, Torralba (2020), The Hessian penalty: a weak prior for
    unsupervised disentanglement, ECCV.

    Examples
    --------
    >>> import torch
    >>> additive = HessianPenalty()(lambda z: z**2, torch.randn(10, 2, dtype=torch.float64))
    >>> bool(additive < 1e-20)
    True
    """

    n_directions: int = 2
    step: float = 0.1
    reduction: str = "max"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_directions(self.n_directions)
        if not self.step > 0:
            raise ValueError(f"step: got {self.step!r}, wanted a positive number")
        if self.reduction not in ("max", "sum"):
            raise ValueError(f"reduction: got {self.reduction!r}, wanted 'max' or 'sum'")

    def __call__(self, fn: Network, z: Tensor, x_hat: Tensor | None = None) -> Tensor:
        moves = list((self.step * _signs(z, self.n_directions)).unbind())
        here, there = around(fn, z, [*moves, *(-move for move in moves)], x_hat)
        ahead, behind = there[: self.n_directions], there[self.n_directions :]
        curved = torch.stack([a - 2 * here + b for a, b in zip(ahead, behind, strict=True)]) / self.step**2
        spread = curved.var(0)
        return (spread.amax(-1) if self.reduction == "max" else spread.sum(-1)).mean(-1)

    def copies(self, n_latents: int) -> int:
        return 1 + 2 * self.n_directions


@dataclass(frozen=True)
class OrthogonalJacobian(LatentPenalty):
    r"""Orthogonal Jacobian regularisation (OroJaR): the columns of the Jacobian are orthogonal.

    .. math:: \mathrm{mean}_b\; 2 \sum_{j \ne k} \big(J(z_b)^\top J(z_b)\big)_{jk}^2

    by the sample variance of :math:`\|J v\|^2` over random signs; :math:`J v` is exact (published: a
    difference with a step of 0.1).

    Attributes
    ----------
    weight, warm_up
        As for `LatentPenalty`.
    n_directions : int
        Random signs for each row, at least 2.

    Raises
    ------
    ValueError
        Fewer than 2 directions.

    References
    ----------
    Wei, Shi, Liu, Ji, Gao, Wu, Zuo (2021), Orthogonal Jacobian regularization for unsupervised
    disentanglement in image generation, ICCV.

    Examples
    --------
    >>> import torch
    >>> turn = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64))[0]
    >>> turned = OrthogonalJacobian()(lambda z: z @ turn, torch.randn(10, 4, dtype=torch.float64))
    >>> bool(turned < 1e-20)
    True
    """

    n_directions: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_directions(self.n_directions)

    def __call__(self, fn: Network, z: Tensor, x_hat: Tensor | None = None) -> Tensor:
        training = torch.is_grad_enabled()
        with torch.enable_grad():
            x, inputs = graph(fn, z, x_hat)
            moved = directional(x, inputs, _signs(z, self.n_directions), batched=True)
            penalty = moved.square().sum(-1).var(0).mean(-1)
        return penalty if training else penalty.detach()

    def copies(self, n_latents: int) -> int:
        return 2 + self.n_directions


def _signs(z: Tensor, n: int) -> Tensor:
    """Random signs (n, ..., row, K)."""
    return torch.randint(2, (n, *z.shape), device=z.device).to(z) * 2 - 1


def _check_directions(n: int) -> None:
    if int(n) != n or n < 2:
        raise ValueError(
            f"n_directions: got {n!r}, wanted a whole number of at least 2 (a variance is taken)"
        )
