r"""Networks of a `DependencyVAE`: an encoder with full covariances, decoders whose Jacobian is read.

In a decoder, smooth and with one network per feature or one shared, feature j sees :math:`S_j \odot z`, S
being 0/1 and at first all ones: dense. After the axes are found S is the graph. A linear part beside the
network lets a nearly linear table be found at once. As in `nets/layers.py` every parameter has a leading
restart dimension and nothing here samples.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .._utils.types import AutogradContext
from .layers import BatchLinear, Encoder

__all__ = ["CorrelatedEncoder", "FeatureDecoder", "SharedDecoder", "smooth_leaky"]

_STRAIGHT, _BENT = 0.6, 0.4  # half the sum and half the difference of the slopes 1 and .2
_CORNER = 0.3


class CorrelatedEncoder(Encoder):
    r"""Amortised :math:`q(z|x) = N(B m(x), B L(x) L(x)^\top B^\top)`, L lower triangular.

    Independent factors given x would be a wish that bends the latents: little noise and several features per
    factor make the posterior of a row correlated, and a dense fit that may not say so gains nats by curves
    whose Jacobian has orthogonal columns everywhere. B are the axes: the identity until the model is turned.

    Parameters
    ----------
    n_restarts, n_features, n_factors, hidden, missing
        As in `Encoder`, whose answers are those of this one, its standard deviations the marginal ones.

    Attributes
    ----------
    axes : buffer (restart, factor, factor)
        B.
    """

    axes: Tensor
    log_sd_range = (-6.0, 1.5)  # little noise and many features tell a factor to a percent

    def __init__(
        self, n_restarts: int, n_features: int, n_factors: int, hidden: int = 64, missing: bool = False
    ):
        super().__init__(n_restarts, n_features, n_factors, hidden, missing)
        self.below = BatchLinear(n_restarts, hidden, n_factors * (n_factors - 1) // 2, gain=0.01)
        self.register_buffer("axes", torch.eye(n_factors).repeat(n_restarts, 1, 1))

    def gaussian(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Location (restart, row, factor), a root of the covariance, BL, and its log-determinant."""
        location, log_sd, h = self.read(x, mask)
        k = self.n_factors
        across = torch.eye(k, dtype=h.dtype, device=h.device).repeat(*h.shape[:2], 1, 1)  # the transpose of L
        row, column = torch.triu_indices(k, k, 1, device=h.device)
        across[..., row, column] = self.below(h)
        across = across * log_sd.exp().unsqueeze(-2)
        root = (across.flatten(1, 2) @ self.axes.mT).view_as(across).mT  # rows as one matrix: one product
        log_det = log_sd.sum(-1) + torch.linalg.slogdet(self.axes)[1].unsqueeze(-1)
        return location @ self.axes.mT, root, log_det

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return location and standard deviation of q(z | x)."""
        location, root, _ = self.gaussian(x, mask)
        return location, root.square().sum(-1).sqrt()

    @torch.no_grad()
    def turn(self, maps: Tensor) -> None:
        """Answer in new latents, ``z_old = maps @ z_new``, `maps` (restart, factor, factor)."""
        self.axes.copy_(torch.linalg.solve(maps, self.axes))


def smooth_leaky(h: Tensor) -> Tensor:
    r"""Leaky ReLU of slope .2 without its corner, so that a Jacobian has no steps.

    .. math:: \phi(h) = .6\,h + .4\sqrt{h^2 + .3^2}

    Parameters
    ----------
    h : Tensor
    """
    return _SmoothLeaky.apply(h)[0]


class _SmoothLeaky(torch.autograd.Function):
    """The value and its root, in half the passes over memory that the formula's tape would take."""

    generate_vmap_rule = True

    @staticmethod
    def forward(h: Tensor) -> tuple[Tensor, Tensor]:
        root = torch.addcmul(h.new_full((), _CORNER**2), h, h).sqrt_()
        return torch.add(_STRAIGHT * h, root, alpha=_BENT), root

    @staticmethod
    def setup_context(ctx: AutogradContext, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(inputs[0], output[1])
        ctx.save_for_forward(inputs[0], output[1])

    @staticmethod
    def backward(ctx: AutogradContext, gradient: Tensor, _: Tensor) -> Tensor:
        h, root = ctx.saved_tensors
        if torch.is_grad_enabled():  # of a Jacobian the curvature is wanted too
            root = torch.sqrt(h * h + _CORNER**2)
        return gradient * _slope(h, root)

    @staticmethod
    def jvp(ctx: AutogradContext, tangent: Tensor) -> tuple[Tensor, None]:
        return tangent * _slope(*ctx.saved_tensors), None


def _slope(h: Tensor, root: Tensor) -> Tensor:
    return (h / root).mul_(_BENT).add_(_STRAIGHT)


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
    r"""One wide layer for all features, which each feature feeds with its own masked factors.

    .. math:: f_j(z) = c_j + a_j^\top s + v_j^\top \phi(b + A s), \quad s = S_j \odot z

    The layer is the same for features that see the same factors, and evaluated once for them. It is one, not
    two: features differ in their curves more than a narrow second layer lets through.

    Parameters
    ----------
    n_restarts, n_features, n_factors : int
        Sizes.
    hidden : int
        Width of the layer.

    Notes
    -----
    `forward` takes ``z`` (restart, row, factor) and returns (restart, row, feature).
    """

    def __init__(self, n_restarts: int, n_features: int, n_factors: int, hidden: int = 128):
        super().__init__(n_restarts, n_features, n_factors)
        self.first = nn.Parameter(torch.randn(n_restarts, n_factors, hidden) / math.sqrt(n_factors))
        self.bias = nn.Parameter(torch.randn(n_restarts, 1, hidden) * 0.3)
        self.head = nn.Parameter(torch.randn(n_restarts, hidden, n_features) * (0.1 / math.sqrt(hidden)))

    def forward(self, z: Tensor, weights: Tensor | None = None) -> Tensor:
        """Linear predictor (restart, row, feature); `weights` is ignored."""
        if bool((self.mask == 1).all()):
            h = smooth_leaky(torch.baddbmm(self.bias, z, self.first))
            return self.straight(z) + torch.bmm(h, self.head)
        masks, slot, slots = self._groups()
        r, n, _ = z.shape
        masked = (z.unsqueeze(1) * masks.unsqueeze(2)).flatten(1, 2)
        h = smooth_leaky(torch.baddbmm(self.bias, masked, self.first)).view(-1, n, self.head.shape[1])
        heads = self.head.mT.flatten(0, 1)
        heads = heads.new_zeros(len(h) * slots, heads.shape[1]).index_copy(0, slot, heads)
        values = torch.bmm(h, heads.view(len(h), slots, -1).mT)
        return self.straight(z) + values.mT.flatten(0, 1).index_select(0, slot).view(r, -1, n).mT

    def _groups(self) -> tuple[Tensor, Tensor, int]:
        """The different masks (restart, group, factor), the slot of each feature, and the slots of a group.

        Every group has as many slots as the largest has features, so that all are one batch.
        """
        partitions = [torch.unique(mask, dim=0, return_inverse=True) for mask in self.mask]
        most = max(len(different) for different, _ in partitions)
        masks = torch.stack(
            [F.pad(different, (0, 0, 0, most - len(different))) for different, _ in partitions]
        )
        member = torch.stack([F.one_hot(group, most) for _, group in partitions])
        place = ((member.cumsum(1) - 1) * member).sum(-1)
        slots = int(place.max()) + 1
        group = torch.stack([group + r * most for r, (_, group) in enumerate(partitions)])
        return masks, (group * slots + place).flatten(), slots

    @torch.no_grad()
    def turn(self, maps: Tensor) -> None:
        """Read new latents: ``z_old = maps @ z_new``, `maps` (restart, factor, factor)."""
        super().turn(maps)
        self.first.copy_(maps.mT @ self.first)
