"""Encoders of a multi-task model: from a sample's inputs to its representation. Plain modules, no sites.

They end in a linear layer without activation, so that a linear map of the latents can be folded behind them.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

__all__ = ["ENCODERS", "ConvEncoder", "task_encoder"]

ENCODERS = ("linear", "mlp", "conv")


class ConvEncoder(nn.Module):
    """Four strided convolutions, a hidden layer, a linear layer.

    Parameters
    ----------
    shape : tuple of int
        (channel, row, column); rows and columns at least 16.
    n_latents : int
    hidden : int
        Width of the layer before the last.

    References
    ----------
    The layout of Lachapelle, Deleu et al. (2023), appendix D.2, as usual for images of this size.
    """

    def __init__(self, shape: tuple[int, ...], n_latents: int, hidden: int = 256):
        super().__init__()
        channels, rows, columns = shape
        layers: list[nn.Module] = []
        for width in (32, 32, 64, 64):
            layers += [nn.Conv2d(channels, width, 4, stride=2, padding=1), nn.ReLU()]
            channels, rows, columns = width, rows // 2, columns // 2
        self.convolutions = nn.Sequential(*layers)
        self.head = nn.Sequential(
            nn.Flatten(),
            nn.Linear(channels * rows * columns, hidden),
            nn.ReLU(),
            nn.Linear(hidden, n_latents),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Images (row, channel, height, width) to (row, latent)."""
        return self.head(self.convolutions(x.contiguous(memory_format=torch.channels_last)))


def task_encoder(
    kind: str | nn.Module, shape: tuple[int, ...], n_latents: int, hidden: int = 128
) -> nn.Module:
    """A fresh encoder.

    Parameters
    ----------
    kind : {"linear", "mlp", "conv"} or Module
        A module is copied; it must take samples (row, ...) to (row, latent).
    shape : tuple of int
        Of one sample's inputs.
    n_latents : int
    hidden : int
        Width of the hidden layers ("mlp": two of them; "conv": the last but one).

    Returns
    -------
    Module

    Raises
    ------
    ValueError
        An unknown kind, "conv" without images, or a module that answers in another shape.
    """
    if isinstance(kind, nn.Module):
        encoder = copy.deepcopy(kind)
        like = next(encoder.parameters(), torch.zeros(()))
        with torch.no_grad():
            try:
                answer = tuple(encoder(like.new_zeros(2, *shape)).shape)
            except (RuntimeError, ValueError) as error:
                raise ValueError(
                    f"encoder: it takes no inputs of shape {(2, *shape)} ({error}); make it for n_features"
                ) from error
        if answer != (2, n_latents):
            raise ValueError(
                f"encoder: it takes {(2, *shape)} to {answer}; want {(2, n_latents)}, one number per latent"
            )
        return encoder
    if not isinstance(kind, str) or kind not in ENCODERS:
        raise ValueError(f"encoder: want {', '.join(ENCODERS)} or a Module, got {kind!r}")
    if kind == "conv":
        if len(shape) != 3 or min(shape[1:]) < 16:
            raise ValueError(
                "encoder: 'conv' wants n_features=(channel, row, column) with at least 16 rows and columns, "
                f"got {shape}"
            )
        return ConvEncoder(shape, n_latents, hidden).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    size = math.prod(shape)
    if kind == "linear":
        return nn.Sequential(nn.Flatten(), nn.Linear(size, n_latents))
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(size, hidden),
        nn.LeakyReLU(0.1),
        nn.Linear(hidden, hidden),
        nn.LeakyReLU(0.1),
        nn.Linear(hidden, n_latents),
    )
