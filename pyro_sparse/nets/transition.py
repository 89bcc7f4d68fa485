"""Networks of a latent transition: frames to latents and back, and latents to the next ones.

As in `nets/layers.py` every parameter has a leading restart dimension and nothing here samples.
`FrameEncoder` and `FrameDecoder` are ordinary networks with a Gaussian posterior of full covariance;
`SineTransition` is the dense transition that finds the latent space; `GatedTransition` has one small network
per latent whose inputs are gated by the edges.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .._utils.declared import Declared
from .._utils.types import AutogradContext
from .layers import BatchLinear

__all__ = ["FrameDecoder", "FrameEncoder", "GatedTransition", "SineTransition"]

_SLOPE = 0.2  # of leaky ReLUs, as in the published networks (Lachapelle et al. 2024)


class _Layers(nn.Module):
    """Three hidden layers of leaky ReLUs, (restart, row, n_in) to (restart, row, n_out)."""

    def __init__(self, n_restarts: int, n_in: int, hidden: int, n_out: int, depth: int = 3):
        super().__init__()
        sizes = [n_in, *[hidden] * depth]
        self.hidden = nn.ModuleList(
            BatchLinear(n_restarts, a, b, gain=math.sqrt(2 / (1 + _SLOPE**2)))
            for a, b in zip(sizes[:-1], sizes[1:], strict=True)
        )
        self.out = BatchLinear(n_restarts, hidden, n_out, gain=0.6)

    def forward(self, x: Tensor) -> Tensor:
        layers = [*self.hidden, self.out]
        return _Chain.apply(x, *(p for layer in layers for p in (layer.weight, layer.bias)))


class _Chain(torch.autograd.Function):
    """Affine maps with leaky ReLUs between them, and their gradient, in place where autograd would copy.

    Arguments are the input and then weight and bias of each map. The networks are so small that this is a
    sixth of their time.
    """

    @staticmethod
    def forward(ctx: AutogradContext, x: Tensor, *affine: Tensor) -> Tensor:
        activations = [x]
        for weight, bias in zip(affine[:-2:2], affine[1:-2:2], strict=True):
            x = nn.functional.leaky_relu(torch.baddbmm(bias, x, weight), _SLOPE, inplace=True)
            activations.append(x)
        ctx.save_for_backward(*activations, *affine[::2])
        return torch.baddbmm(affine[-1], x, affine[-2])

    @staticmethod
    @once_differentiable
    def backward(ctx: AutogradContext, slope: Tensor) -> tuple[Tensor | None, ...]:
        half = len(ctx.saved_tensors) // 2
        activations, weights = ctx.saved_tensors[:half], ctx.saved_tensors[half:]
        gradients: list[Tensor | None] = []
        for i in reversed(range(half)):
            gradients = [activations[i].mT @ slope, slope.sum(1, keepdim=True), *gradients]
            if not i:
                break
            slope = slope @ weights[i].mT
            # a leaky ReLU keeps signs, so that its value tells its slope
            torch.ops.aten.leaky_relu_backward.grad_input(
                slope, activations[i], _SLOPE, True, grad_input=slope
            )
        return slope @ weights[0].mT if ctx.needs_input_grad[0] else None, *gradients


class FrameEncoder(nn.Module):
    r"""Amortised :math:`q(z_t \mid x_t) = N(\mu(x_t), L L^\top)`, L lower triangular, one frame at a time.

    Parameters
    ----------
    n_restarts, n_features, n_latents : int
        Sizes.
    hidden : int
        Width of the three hidden layers.
    missing : bool
        Whether a mask is part of the input: a missing cell enters as 0 with its flag.

    Notes
    -----
    Input `x` and `mask` (frame, feature); output location (restart, frame, latent), L (restart, frame,
    latent, latent) and log|L| (restart, frame).
    """

    declares = (Declared("frame encoder network"),)
    log_sd_range = (-9.0, 2.0)
    place: Tensor

    def __init__(
        self, n_restarts: int, n_features: int, n_latents: int, hidden: int = 128, missing: bool = False
    ):
        super().__init__()
        self.n_restarts, self.n_latents, self.missing = n_restarts, n_latents, missing
        below = torch.ones(n_latents, n_latents, dtype=torch.bool).tril(-1).flatten()
        # where each entry below the diagonal stands in L's square, and in which unit
        place = 0.05 * torch.eye(n_latents**2)[below]
        self.register_buffer("place", place, persistent=False)
        n_out = 2 * n_latents + len(place)
        self.layers = _Layers(n_restarts, n_features * (2 if missing else 1), hidden, n_out)
        out = self.layers.out
        assert out.bias is not None
        with torch.no_grad():  # begin sure of itself, and with independent latents
            out.weight[..., n_latents:] *= 0.1
            out.bias[..., n_latents : 2 * n_latents] = -2.5

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Location, Cholesky factor and its log-determinant."""
        loc, log_sd, below = self.outputs(x, mask)
        k = self.n_latents
        return (
            loc,
            (below @ self.place).unflatten(-1, (k, k)) + torch.diag_embed(log_sd.exp()),
            log_sd.sum(-1),
        )

    def draw(self, x: Tensor, mask: Tensor | None, noise: Tensor) -> tuple[Tensor, Tensor]:
        r"""A draw :math:`\mu(x) + L e` without the matrix L, and log|L|.

        A training step needs no more, and two products with constant matrices, for all frames at once, are a
        fraction of one small product for each frame.

        Parameters
        ----------
        x, mask : Tensor (frame, feature)
        noise : Tensor (restart, frame, latent)
            e, standard normal.
        """
        loc, log_sd, below = self.outputs(x, mask)
        k = self.n_latents
        by_entry = self.place.unflatten(-1, (k, k))
        lower = (below * (noise @ by_entry.sum(1).mT)) @ by_entry.sign().sum(2)
        return loc + log_sd.exp() * noise + lower, log_sd.sum(-1)

    def outputs(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Location, log of L's diagonal, and the entries below it, row by row, before their unit."""
        if self.missing:
            mask = torch.ones_like(x) if mask is None else mask.to(x.dtype)
            x = torch.cat([x * mask, mask - 1.0], -1)
        out = self.layers(x.expand(self.n_restarts, *x.shape[-2:]))
        k = self.n_latents
        loc, log_sd, below = out.split([k, k, len(self.place)], -1)
        return loc, log_sd.clamp(*self.log_sd_range), below


class FrameDecoder(nn.Module):
    """Linear predictor of a frame from its latents, (restart, frame, latent) to (restart, frame, feature).

    Parameters
    ----------
    n_restarts, n_latents, n_features : int
        Sizes.
    hidden : int
        Width of the three hidden layers.
    """

    def __init__(self, n_restarts: int, n_latents: int, n_features: int, hidden: int = 128):
        super().__init__()
        self.layers = _Layers(n_restarts, n_latents, hidden, n_features)

    @property
    def intercept(self) -> Tensor:
        """Constant of each feature, (restart, 1, feature)."""
        bias = self.layers.out.bias
        assert bias is not None
        return bias

    def forward(self, z: Tensor) -> Tensor:
        """Linear predictor (restart, frame, feature)."""
        return self.layers(z)


class SineTransition(nn.Module):
    r"""Dense mean of the next latents: a line and one hidden layer of sines.

    .. math:: m(u) = c + A u + B \sin(W u + b)

    Sines learn a function of several inputs faster than ReLUs do, and bend everywhere (measured on the
    published generators and on others; `benchmarks/transition.py`).

    Parameters
    ----------
    n_restarts, n_inputs, n_latents : int
        Sizes; the inputs are past latents and then actions.
    units : int
        Number of sines.
    """

    def __init__(self, n_restarts: int, n_inputs: int, n_latents: int, units: int = 128):
        super().__init__()
        self.line = BatchLinear(n_restarts, n_inputs, n_latents, gain=0.6)
        self.inner = BatchLinear(n_restarts, n_inputs, units, gain=math.sqrt(n_inputs))
        self.outer = BatchLinear(n_restarts, units, n_latents, gain=0.03 * math.sqrt(units), bias=None)
        assert self.inner.bias is not None
        nn.init.uniform_(self.inner.bias, -3, 3)  # nearly a whole period

    def forward(self, inputs: Tensor) -> Tensor:
        """Mean (restart, row, latent) of inputs (restart, row, n_inputs)."""
        return self.line(inputs) + self.outer(self.inner(inputs).sin())

    def jacobian(self, inputs: Tensor) -> Tensor:
        """Derivative of the mean by the inputs, (restart, row, latent, n_inputs)."""
        slope = self.inner(inputs).cos()
        bent = torch.einsum("rnu,ruk,riu->rnki", slope, self.outer.weight, self.inner.weight)
        return bent + self.line.weight.mT.unsqueeze(1)


class GatedTransition(nn.Module):
    r"""Mean and log-scale of each next latent from its gated inputs, one small network per latent.

    .. math:: m_i(u) = c_i + a_i^\top (G_i \odot u) + v_i^\top \sin(W_i (G_i \odot u) + b_i)

    Parameters
    ----------
    n_restarts, n_inputs, n_latents : int
        Sizes.
    units : int
        Sines per latent.
    heteroscedastic : bool
        Let the log-scale depend on the gated inputs too; otherwise it is one number per latent.
    """

    def __init__(
        self,
        n_restarts: int,
        n_inputs: int,
        n_latents: int,
        units: int = 32,
        heteroscedastic: bool = False,
    ):
        super().__init__()
        self.n_latents, self.units, self.heteroscedastic = n_latents, units, heteroscedastic
        outputs = 2 if heteroscedastic else 1
        self.line = nn.Parameter(torch.zeros(n_restarts, n_latents, n_inputs, outputs))
        self.inner = nn.Parameter(torch.randn(n_restarts, n_latents, n_inputs, units))
        self.phase = nn.Parameter(torch.empty(n_restarts, n_latents, 1, units).uniform_(-3, 3))
        self.outer = nn.Parameter(0.03 * torch.randn(n_restarts, n_latents, units, outputs))
        self.constant = nn.Parameter(torch.zeros(n_restarts, n_latents, 1, outputs))
        self.log_sd = nn.Parameter(torch.full((n_restarts, 1, n_latents), -1.0))

    def forward(self, inputs: Tensor, gates: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-scale, each (restart, row, latent).

        Parameters
        ----------
        inputs : Tensor (restart, row, n_inputs)
        gates : Tensor (restart, latent, n_inputs) or (restart, row, latent, n_inputs)
            Between 0 and 1.
        """
        if gates.dim() == 3:
            # the same gates in every row: close them in the weights, and let one product serve all latents
            weights = gates.unsqueeze(-1)
            inner = (weights * self.inner).transpose(1, 2).flatten(2)
            line = (weights * self.line).transpose(1, 2).flatten(2)
            identity = torch.eye(self.n_latents, dtype=inputs.dtype, device=inputs.device)[:, None, :, None]
            outer = (self.outer.unsqueeze(3) * identity).flatten(3, 4).flatten(1, 2)
            hidden = torch.baddbmm(self.phase.transpose(1, 2).flatten(2), inputs, inner).sin()
            out = torch.baddbmm(torch.bmm(inputs, line), hidden, outer).unflatten(-1, (self.n_latents, -1))
            out = out + self.constant.transpose(1, 2)
        else:
            gated = (gates * inputs.unsqueeze(2)).transpose(1, 2)  # (restart, latent, row, n_inputs)
            hidden = (gated @ self.inner + self.phase).sin()
            out = (self.constant + gated @ self.line + hidden @ self.outer).transpose(1, 2)
        log_sd = self.log_sd.expand(out.shape[:-1])
        if self.heteroscedastic:
            log_sd = log_sd + out[..., 1]
        return out[..., 0], log_sd
