r"""Decoders whose Jacobian is read: smooth networks, one per feature or one shared, with a mask on inputs.

Feature j sees :math:`S_j \odot z`, S being 0/1 and at first all ones: a dense decoder. After the axes are
found S is the graph. A linear part beside the network lets a nearly linear table be found at once. As in
`nets.py` every parameter has a leading restart dimension and nothing here samples.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .nets import BatchLinear

__all__ = ["FeatureDecoder", "SharedDecoder", "smooth_leaky"]

_SLOPE = 0.2
_CORNER = 0.3


def smooth_leaky(h: Tensor) -> Tensor:
    r"""Leaky ReLU of slope .2 without its corner, so that a Jacobian has no steps.

    .. math:: \phi(h) = .6\,h + .4\sqrt{h^2 + .3^2}

    Parameters
    ----------
    h : Tensor
    """
    return 0.5 * ((1 + _SLOPE) * h + (1 - _SLOPE) * torch.sqrt(h * h + _CORNER**2))


class _Masked(nn.Module):
    """A decoder with a straight part, an intercept and a mask (restart, feature, factor)."""

    mask: Tensor

    def __init__(self, n_restarts: int, n_features: int, n_factors: int):
        super().__init__()
        self.intercept = nn.Parameter(torch.zeros(n_restarts, 1, n_features))
        self.slope = nn.Parameter(
            torch.randn(n_restarts, n_factors, n_features) * (0.3 / math.sqrt(n_factors))
        )
        self.register_buffer("mask", torch.ones(n_restarts, n_features, n_factors))

    def project(self) -> None:
        """Nothing to constrain."""

    def straight(self, z: Tensor) -> Tensor:
        """Intercept and linear part, (restart, row, feature)."""
        return torch.baddbmm(self.intercept, z, self.slope * self.mask.mT)

    @torch.no_grad()
    def turn(self, maps: Tensor) -> None:
        """Read new latents: ``z_old = maps @ z_new``, `maps` (restart, factor, factor)."""
        self.slope.copy_(maps.mT @ self.slope)


class FeatureDecoder(_Masked):
    r"""One small network per feature.

    .. math:: f_j(z) = c_j + a_j^\top (S_j \odot z) + v_j^\top \phi\big(b_j + W_j (S_j \odot z)\big)

    Parameters
    ----------
    n_restarts, n_features, n_factors : int
        Sizes.
    hidden : int
        Width of each feature's hidden layer.

    Notes
    -----
    `forward` takes ``z`` (restart, row, factor) and returns (restart, row, feature).
    """

    def __init__(self, n_restarts: int, n_features: int, n_factors: int, hidden: int = 16):
        super().__init__(n_restarts, n_features, n_factors)
        self.hidden = hidden
        units = n_features * hidden
        self.first = nn.Parameter(torch.randn(n_restarts, n_factors, units) / math.sqrt(n_factors))
        self.bias = nn.Parameter(torch.randn(n_restarts, 1, units) * 0.3)
        self.head = nn.Parameter(torch.randn(n_restarts, 1, n_features, hidden) * (0.1 / math.sqrt(hidden)))

    def forward(self, z: Tensor, weights: Tensor | None = None) -> Tensor:
        """Linear predictor (restart, row, feature); `weights` is ignored."""
        first = self.first * self.mask.mT.repeat_interleave(self.hidden, -1)
        h = smooth_leaky(torch.baddbmm(self.bias, z, first))
        return self.straight(z) + (h.view(*h.shape[:2], -1, self.hidden) * self.head).sum(-1)

    @torch.no_grad()
    def turn(self, maps: Tensor) -> None:
        """Read new latents: ``z_old = maps @ z_new``, `maps` (restart, factor, factor)."""
        super().turn(maps)
        self.first.copy_(maps.mT @ self.first)


class SharedDecoder(_Masked):
    r"""One network for all features, which each feature feeds with its own masked factors.

    .. math:: f_j(z) = c_j + a_j^\top s + v_j^\top \phi\big(b_2 + B\,\phi(b_1 + A s)\big), \quad
              s = S_j \odot z

    While the mask is all ones the hidden layers are the same for every feature and evaluated once.

    Parameters
    ----------
    n_restarts, n_features, n_factors : int
        Sizes.
    hidden : int
        Width of the two hidden layers.

    Notes
    -----
    `forward` takes ``z`` (restart, row, factor) and returns (restart, row, feature).
    """

    def __init__(self, n_restarts: int, n_features: int, n_factors: int, hidden: int = 64):
        super().__init__(n_restarts, n_features, n_factors)
        self.first = nn.Parameter(torch.randn(n_restarts, n_factors, hidden) * math.sqrt(2 / n_factors))
        self.bias = nn.Parameter(torch.randn(n_restarts, 1, hidden) * 0.3)
        self.second = BatchLinear(n_restarts, hidden, hidden)
        self.head = nn.Parameter(torch.randn(n_restarts, hidden, n_features) * (0.1 / math.sqrt(hidden)))

    def forward(self, z: Tensor, weights: Tensor | None = None) -> Tensor:
        """Linear predictor (restart, row, feature); `weights` is ignored."""
        if bool((self.mask == 1).all()):
            h = smooth_leaky(torch.baddbmm(self.bias, z, self.first))
            return self.straight(z) + torch.bmm(smooth_leaky(self.second(h)), self.head)
        r, n, k = z.shape
        seen = (z.unsqueeze(2) * self.mask.unsqueeze(1)).reshape(r, -1, k)
        h = smooth_leaky(self.second(smooth_leaky(torch.baddbmm(self.bias, seen, self.first))))
        return self.straight(z) + (h.view(r, n, -1, h.shape[-1]) * self.head.mT.unsqueeze(1)).sum(-1)

    @torch.no_grad()
    def turn(self, maps: Tensor) -> None:
        """Read new latents: ``z_old = maps @ z_new``, `maps` (restart, factor, factor)."""
        super().turn(maps)
        self.first.copy_(maps.mT @ self.first)
