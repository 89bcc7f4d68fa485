r"""The dual of the group-lasso SVM as functions of a point: its weights, value, gradient and gap.

.. math:: D(\Lambda) = n - \langle Y, \Lambda \rangle - \tfrac{\lambda_2}{2} \|W\|^2, \qquad
          W = S(X^\top (Y - \Lambda)) / \lambda_2, \qquad \nabla (-D) = Y - X W

for :math:`\Lambda` with rows in the simplex, and the block soft-thresholding
:math:`S(V)_j = (1 - \lambda_1 / \|V_j\|)_+ V_j`. Everything is batched over episodes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["SVMDual", "simplex"]


class SVMDual(NamedTuple):
    """The data of one dual problem per episode.

    Attributes
    ----------
    x : Tensor (episode, example, feature)
    y : Tensor (episode, example, class)
        One-hot labels.
    l1, l2 : Tensor (episode,)
        Penalties.
    """

    x: Tensor
    y: Tensor
    l1: Tensor
    l2: Tensor

    def correlation(self, dual: Tensor) -> Tensor:
        """V = X' (Y - Lambda), (episode, feature, class)."""
        return self.x.mT @ (self.y - dual)

    def weight(self, dual: Tensor) -> Tensor:
        """W (episode, feature, class); rows that are not used are exact zeros."""
        v, l1 = self.correlation(dual), self.l1[:, None, None]
        size = v.norm(dim=-1, keepdim=True)
        on = size > l1
        return torch.where(on, v * (1 - l1 / torch.where(on, size, 1.0)), 0.0) / self.l2[:, None, None]

    def cost(self, dual: Tensor) -> Tensor:
        """What the solver decreases, n - D, (episode,)."""
        weight = self.weight(dual)
        return (self.y * dual).sum((-1, -2)) + 0.5 * self.l2 * weight.square().sum((-1, -2))

    def gradient(self, dual: Tensor) -> Tensor:
        """Of `cost`, (episode, example, class)."""
        return self.y - self.x @ self.weight(dual)

    def gap(self, dual: Tensor) -> Tensor:
        """Relative duality gap of a feasible point and its weights, (primal - dual) / primal, (episode,)."""
        weight = self.weight(dual)
        scores = self.x @ weight
        hinge = (1 - self.y + scores).amax(-1) - (scores * self.y).sum(-1)
        half = 0.5 * self.l2 * weight.square().sum((-1, -2))
        primal = hinge.sum(-1) + self.l1 * weight.norm(dim=-1).sum(-1) + half
        value = self.y.shape[-2] - (self.y * dual).sum((-1, -2)) - half
        return (primal - value) / primal

    def of(self, episodes: Tensor) -> SVMDual:
        """The problems of some episodes."""
        return SVMDual(*(tensor[episodes] for tensor in self))


def simplex(p: Tensor) -> Tensor:
    """Euclidean projection of every last row onto the probability simplex, by sorting."""
    falling = p.sort(dim=-1, descending=True).values
    count = torch.arange(1, p.shape[-1] + 1, dtype=p.dtype, device=p.device)
    level = (falling.cumsum(-1) - 1) / count
    last = (falling > level).sum(-1, keepdim=True) - 1
    return (p - level.gather(-1, last)).clamp_min(0)
