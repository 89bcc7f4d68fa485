"""What is read of a sparse autoencoder, by calls alone: codes, decoder directions, and the encoder's rows.

Any object with ``encode(x)`` and ``decode(f)`` will do. Its decoder must be affine, so that a latent has one
direction. The encoders in use (ReLU, TopK, BatchTopK, JumpReLU) are affine too wherever a latent is active:
the slope of its code is one row. Whether they are is measured, at two rows for each latent.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

__all__ = ["Autoencoder", "codes_of", "decoder_directions", "encoder_rows"]

_CHUNK = 512  # latents decoded at a time
_TOLERANCE = 0.02  # relative error of sums in bfloat16; in single precision it is a thousand times less


@runtime_checkable
class Autoencoder(Protocol):
    """A sparse autoencoder, whoever trained it."""

    def encode(self, x: Tensor) -> Tensor:
        """Codes (row, latent) of activations (row, d); zero where a latent is not active."""

    def decode(self, f: Tensor) -> Tensor:
        """Activations (row, d) of codes (row, latent)."""


def codes_of(sae: Autoencoder, x: Tensor, name: str) -> Tensor:
    """Codes (row, latent) of activations, after a look at what `encode` returned.

    Raises
    ------
    TypeError, ValueError
        `encode` returned no tensor of that shape, or a code that is not a number.
    """
    f = sae.encode(x)
    if not isinstance(f, Tensor):
        raise TypeError(f"{name}: encode returned a {type(f).__name__}, wanted a tensor (row, latent)")
    if f.dim() != 2 or len(f) != len(x):
        raise ValueError(
            f"{name}: encode returned shape {tuple(f.shape)} for {len(x)} rows, wanted (row, latent)"
        )
    if not torch.isfinite(f).all():
        raise ValueError(f"{name}: encode returned codes that are not finite; look at its parameters and x")
    return f


def decoder_directions(sae: Autoencoder, codes: Tensor, name: str) -> Tensor:
    """What one unit of each latent adds to the decoded activations, (latent, d).

    Parameters
    ----------
    sae : Autoencoder
    codes : Tensor (row, latent)
        Some codes of data, to check that the decoder is affine.
    name : str
        Of the argument, for errors.

    Raises
    ------
    ValueError
        `decode` is not affine.
    """
    n = codes.shape[1]
    with torch.no_grad():
        constant = sae.decode(codes.new_zeros(1, n))
        unit = torch.eye(n, dtype=codes.dtype, device=codes.device)
        directions = torch.cat([sae.decode(some) - constant for some in unit.split(_CHUNK)])
        decoded = sae.decode(codes)
        error = (codes @ directions + constant - decoded).norm()
    if not error <= _TOLERANCE * decoded.norm():
        raise ValueError(
            f"{name}: decode is not affine (the directions of single latents miss its sum by "
            f"{float(error / decoded.norm()):.1%}); wanted a decoder whose latents have one direction each"
        )
    return directions


def encoder_rows(sae: Autoencoder, x: Tensor, codes: Tensor) -> Tensor | None:
    """Slope of each latent's code in the activations, (latent, d), or None if it varies between rows.

    Parameters
    ----------
    sae : Autoencoder
    x : Tensor (row, d)
    codes : Tensor (row, latent)
        Codes of `x`. A latent that none of these rows has keeps a slope of zero.
    """
    on = codes != 0
    rows = codes.new_zeros(codes.shape[1], x.shape[1])
    size = codes.abs()
    strongest = size.argmax(0)
    weakest = torch.where(on, size, torch.inf).argmin(0)  # where a slope that varies differs the most
    latents = torch.nonzero(on.any(0)).squeeze(1)
    if not len(latents):
        return rows
    slopes = []
    for at in (strongest[latents], weakest[latents]):
        gradients = []
        for where, latent in zip(at.split(_CHUNK), latents.split(_CHUNK), strict=True):
            inputs = x[where].detach().clone().requires_grad_()
            with torch.enable_grad():
                total = codes_of(sae, inputs, "sae_out").gather(1, latent.unsqueeze(1)).sum()
            if not total.requires_grad:
                return None
            gradients.append(torch.autograd.grad(total, inputs)[0])
        slopes.append(torch.cat(gradients))
    if not ((slopes[0] - slopes[1]).norm(dim=1) <= _TOLERANCE * slopes[0].norm(dim=1)).all():
        return None
    rows[latents] = slopes[0]
    return rows
