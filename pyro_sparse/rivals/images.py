r"""A variational autoencoder of images: the program of the `VAE`, with convolutions for networks.

Published images of factors are fitted with a Bernoulli "likelihood" of shades of grey, which is no density.
Here a pixel is normal with one noise for all of them, learned (Rybkin, Daniilidis & Levine 2021): a nat is a
nat, shades are data, and a pixel that hardly ever changes is not blown up to the weight of one that does.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..likelihoods import Likelihood, Normal
from ..nets.images import SHRINK, ConvolutionalDecoder, ConvolutionalEncoder
from .vae import VAE

__all__ = ["ImageVAE"]


class ImageVAE(VAE):
    r"""Convolutional VAE, β-VAE or FactorVAE of images.

    Parameters
    ----------
    shape : tuple of int
        (channel, row, column) of an image; rows and columns multiples of 16. The table has a row for each
        image, ``images.reshape(len(images), -1)``.
    n_factors : int
        K.
    likelihood : str or Likelihood, optional
        By default ``Normal(shared=True)``, one noise for all pixels, in the images' own units; "bernoulli"
        for black and white.
    width : int
        Channels: convolutions of width, width, 2 width and 2 width, kernel 4, stride 2, and their mirror.
    hidden : int
        Width of the layer between convolutions and factors.
    beta, total_correlation : float
        As in `VAE`.

    Raises
    ------
    ValueError
        `shape` is not that of an image, or its rows or columns are no multiples of 16; as in `VAE`.

    Notes
    -----
    It begins at random, with the mean image for a constant. Settings of `pyro_sparse.fit` that suit it are
    ``learning_rate=1e-3``, some thousand steps, few restarts and a small `holdout`.

    References
    ----------
    Kim and Mnih (2018), *Disentangling by factorising*, table 1 (the layers, for images of 64 x 64).

    Rybkin, Daniilidis and Levine (2021), *Simple and effective VAE training with calibrated decoders*.

    Examples
    --------
    >>> import torch
    >>> model = ImageVAE((3, 32, 32), n_factors=6, width=8)
    >>> model.setup(n_restarts=2)
    >>> model.decode(torch.zeros(2, 10, 6), None).shape
    torch.Size([2, 10, 3072])
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        n_factors: int,
        likelihood: str | Likelihood | None = None,
        width: int = 32,
        hidden: int = 256,
        beta: float = 1.0,
        total_correlation: float = 0.0,
    ) -> None:
        if len(shape) != 3 or min(shape) < 1 or shape[1] % SHRINK or shape[2] % SHRINK:
            raise ValueError(
                f"shape: got {tuple(shape)}, wanted (channel, row, column) of an image with rows and columns "
                f"in multiples of {SHRINK}; crop, pad or resize"
            )
        super().__init__(
            math.prod(shape),
            n_factors,
            Normal(shared=True) if likelihood is None else likelihood,
            hidden,
            beta=beta,
            data_start=False,
            total_correlation=total_correlation,
        )
        self.shape, self.width = (shape[0], shape[1], shape[2]), width

    def build(self, feature_names: list[str] | None) -> None:
        self.build_ratio()
        layers = {"width": self.width, "hidden": self.hidden}
        self.decoder = ConvolutionalDecoder(self.n_restarts, self.shape, self.n_factors, **layers)
        self.encoder = ConvolutionalEncoder(
            self.n_restarts, self.shape, self.n_factors, missing=self.missing, **layers
        )

    def start(
        self,
        scores: Tensor,
        maps: Tensor,
        loadings: Tensor,
        intercept: Tensor,
        residual_sd: Tensor,
        bent: Tensor,
        unit: Tensor | float = 1.0,
    ) -> None:
        """Begin with the mean image for a constant, and nothing else."""
        with torch.no_grad():
            self.decoder.intercept.copy_(intercept.expand_as(self.decoder.intercept))
