"""Convolutions whose every parameter carries a leading restart dimension: from images to factors and back.

Restarts are the groups of one grouped convolution. Images are rows of a table, (channel, row, column)
flattened, as everywhere else in the package. Plain modules: no sample sites, no likelihood.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .layers import BatchLinear, Encoder

__all__ = ["BatchConv", "ConvolutionalDecoder", "ConvolutionalEncoder"]

SHRINK = 16  # four strides of 2


class BatchConv(nn.Module):
    """``n_restarts`` independent convolutions of kernel 4, stride 2 and padding 1: half the size, or twice.

    Parameters
    ----------
    n_restarts, n_in, n_out : int
        Number of convolutions, channels in and out.
    up : bool
        Transposed: twice the size.
    gain : float
        Standard deviation of the initial weights times the root of the number of inputs of an output.

    Notes
    -----
    Input (row, restart * n_in, height, width), output (row, restart * n_out, height', width').
    """

    def __init__(
        self, n_restarts: int, n_in: int, n_out: int, up: bool = False, gain: float = math.sqrt(2.0)
    ):
        super().__init__()
        self.n_restarts, self.up = n_restarts, up
        shape = (n_restarts, n_in, n_out, 4, 4) if up else (n_restarts, n_out, n_in, 4, 4)
        # Of a transposed kernel with stride 2 a pixel sees 2 x 2 entries
        self.weight = nn.Parameter(torch.randn(shape) * gain / math.sqrt(n_in * (4 if up else 16)))
        self.bias = nn.Parameter(torch.zeros(n_restarts, n_out))

    def forward(self, x: Tensor) -> Tensor:
        """Images (row, restart * channel, height, width) to images."""
        convolve: Callable[..., Tensor] = F.conv_transpose2d if self.up else F.conv2d
        weight, bias = self.weight.flatten(0, 1), self.bias.flatten()
        return convolve(x, weight, bias, stride=2, padding=1, groups=self.n_restarts)


class ConvolutionalEncoder(nn.Module):
    r"""Amortised :math:`q(z|x) = N(\mu(x), \mathrm{diag}\, s^2(x))` of images.

    Four convolutions of `width`, `width`, twice and twice `width` channels, a hidden layer, two linear ones.

    Parameters
    ----------
    n_restarts : int
    shape : tuple of int
        (channel, row, column); rows and columns multiples of 16.
    n_factors : int
    width, hidden : int
        Channels of the first convolution, width of the hidden layer.
    missing : bool
        Whether a mask is part of the input.

    Notes
    -----
    Input ``x`` and ``mask`` (row, pixel); output two tensors (restart, row, factor).
    """

    def __init__(
        self,
        n_restarts: int,
        shape: tuple[int, int, int],
        n_factors: int,
        width: int = 32,
        hidden: int = 256,
        missing: bool = False,
    ):
        super().__init__()
        channels, rows, columns = shape
        self.n_restarts, self.missing = n_restarts, missing
        self.shape = (channels * (2 if missing else 1), rows, columns)
        widths = (self.shape[0], width, width, 2 * width, 2 * width)
        pairs = zip(widths[:-1], widths[1:], strict=True)
        self.convolutions = nn.ModuleList([BatchConv(n_restarts, a, b) for a, b in pairs])
        n_flat = widths[-1] * (rows // SHRINK) * (columns // SHRINK)
        self.dense = BatchLinear(n_restarts, n_flat, hidden)
        self.location = BatchLinear(n_restarts, hidden, n_factors, gain=0.1)
        self.log_sd = BatchLinear(n_restarts, hidden, n_factors, gain=0.1, bias=-1.0)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return location and standard deviation of q(z | x)."""
        if self.missing:
            mask = torch.ones_like(x) if mask is None else mask.to(x.dtype)
            x = torch.cat([x * mask, mask - 1.0], -1)
        h = x.view(-1, *self.shape).repeat(1, self.n_restarts, 1, 1)
        for layer in self.convolutions:
            h = torch.relu(layer(h))
        h = h.reshape(len(x), self.n_restarts, -1).transpose(0, 1)
        h = torch.relu(self.dense(h))
        return self.location(h), self.log_sd(h).clamp(*Encoder.log_sd_range).exp()


class ConvolutionalDecoder(nn.Module):
    """The encoder's mirror image: a hidden layer, four transposed convolutions, and a constant of each pixel.

    Parameters
    ----------
    n_restarts : int
    shape : tuple of int
        (channel, row, column); rows and columns multiples of 16.
    n_factors : int
    width, hidden : int
        Channels of the last hidden images, width of the hidden layer.

    Notes
    -----
    Input ``z`` (restart, row, factor), output (restart, row, pixel).
    """

    def __init__(
        self, n_restarts: int, shape: tuple[int, int, int], n_factors: int, width: int = 32, hidden: int = 256
    ):
        super().__init__()
        channels, rows, columns = shape
        widths = (2 * width, 2 * width, width, width, channels)
        self.n_restarts, self.small = n_restarts, (widths[0], rows // SHRINK, columns // SHRINK)
        self.dense = nn.ModuleList(
            [
                BatchLinear(n_restarts, n_factors, hidden),
                BatchLinear(n_restarts, hidden, math.prod(self.small)),
            ]
        )
        pairs = zip(widths[:-1], widths[1:], strict=True)
        # The last at a small gain: the first images are the constant, not noise to be unlearned
        gains = (math.sqrt(2.0), math.sqrt(2.0), math.sqrt(2.0), 0.1)
        self.convolutions = nn.ModuleList(
            [BatchConv(n_restarts, a, b, up=True, gain=g) for (a, b), g in zip(pairs, gains, strict=True)]
        )
        self.intercept = nn.Parameter(torch.zeros(n_restarts, 1, math.prod(shape)))

    def project(self) -> None:
        """Nothing to constrain."""

    def forward(self, z: Tensor, weights: Tensor | None = None) -> Tensor:
        """Linear predictor (restart, row, pixel); `weights` is ignored."""
        n_rows, h = z.shape[1], z
        for layer in self.dense:
            h = torch.relu(layer(h))
        h = h.transpose(0, 1).reshape(n_rows, self.n_restarts * self.small[0], *self.small[1:])
        for layer in self.convolutions[:-1]:
            h = torch.relu(layer(h))
        h = self.convolutions[-1](h).reshape(n_rows, self.n_restarts, -1).transpose(0, 1)
        return h + self.intercept
