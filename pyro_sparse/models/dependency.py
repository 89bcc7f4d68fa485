r"""Which feature depends on which factor, without a prior on weights: a dense decoder, then its sparse axes.

.. math:: z_i \sim N(0, I), \qquad x_{ij} \sim \mathrm{likelihood}\big(f_j(S_j \odot z_i)\big)

with S all ones at first. Diverse dictionary learning (Zheng et al. 2026) asks for the f whose Jacobian has
the fewest nonzeros; a dense fit knows f up to a rotation of z, and the rotation with most zeros is found by a
search (`inference/table/decoder_axes.py`). S is then the graph, and the fit goes on with the other inputs
cut.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .._utils.checks import check_whole
from .._utils.declared import Declared
from ..data.table import Batch
from ..distributions import FullNormal
from ..likelihoods import LikelihoodLike
from ..nets.dependency import CorrelatedEncoder, FeatureDecoder, SharedDecoder
from .base import EdgeSet, FactorModel

__all__ = ["DependencyVAE"]


# What a subclass may write anew without changing the density of the program.
_FREE = frozenset({
    "build", "data_start", "edges", "encode", "factor_posterior", "fit_settings", "global_guide", "guide",
    "setup", "square", "start", "take_features",
})  # fmt: skip


class DependencyVAE(FactorModel):
    r"""Variational autoencoder whose axes are those in which its decoder depends on least.

    Parameters
    ----------
    n_features : int, optional
        G; default the number of columns of the table that is fitted.
    n_factors : int
        K, has to be given; as many factors as features are allowed (and then hard to identify).
    likelihood : str or Likelihood
        As in `SparseDecoder`.
    decoder : {"per_feature", "shared"}
        A small network for each feature, or one layer for all of them.
    hidden : int, optional
        Width of its hidden layer; default 16 for each feature, or 128 shared.
    encoder_hidden : int
        Width of the encoder's two hidden layers.

    Attributes
    ----------
    strength : buffer (restart, feature, factor)
        Root mean square Jacobian in units of the latents' standard deviations, relative to the feature's
        row: 1 is the only factor a feature depends on. All ones before the axes are found.
    decoder.mask : buffer (restart, feature, factor)
        S, 0 or 1.
    skewness : buffer (restart, factor)
        Of the factors over the rows that were learned from; zero before the fit has ended.

    Raises
    ------
    ValueError
        Impossible sizes, or an unknown decoder.

    References
    ----------
    Zheng, Li, Fan, Wilson & Zhang (2026), Diverse dictionary learning, arXiv 2604.17568.

    Examples
    --------
    >>> model = DependencyVAE(n_features=9, n_factors=3)
    >>> model.setup(n_restarts=2)
    >>> model.decode(torch.zeros(2, 10, 3), None).shape
    torch.Size([2, 10, 9])
    """

    edges = (EdgeSet("edge", ("feature", "factor"), "x"),)
    declares = (Declared("dense decoder", free=_FREE),)
    square = True
    data_start = False
    strength: Tensor
    skewness: Tensor
    encoder: CorrelatedEncoder

    def __init__(
        self,
        n_features: int | None = None,
        n_factors: int | None = None,
        likelihood: LikelihoodLike = "normal",
        decoder: str = "per_feature",
        hidden: int | None = None,
        encoder_hidden: int = 64,
    ) -> None:
        super().__init__(n_features, n_factors, likelihood, encoder_hidden, factor_cov=False)
        if decoder not in ("per_feature", "shared"):
            raise ValueError(f"decoder: got {decoder!r}, wanted 'per_feature' or 'shared'")
        self.decoder_kind = decoder
        hidden = (16 if decoder == "per_feature" else 128) if hidden is None else hidden
        check_whole(1, hidden=hidden)
        self.hidden = int(hidden)

    def build(self, feature_names: list[str] | None) -> None:
        kind = FeatureDecoder if self.decoder_kind == "per_feature" else SharedDecoder
        shape = (self.n_restarts, self.n_features, self.n_factors)
        self.decoder = kind(*shape, self.hidden)
        self.register_buffer("strength", torch.ones(shape))
        self.register_buffer("skewness", torch.zeros(self.n_restarts, self.n_factors))
        self.encoder = CorrelatedEncoder(
            self.n_restarts, self.n_features, self.n_factors, self.encoder_hidden, self.missing
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
        """Begin at random and sure of each row's factors.

        From the straight lines of a guess, or from posteriors so wide that the decoder sees no curve, most
        fits end in factors that are curves of the true ones.
        """
        with torch.no_grad():
            self.encoder.skip.normal_(std=self.n_features**-0.5)
            assert self.encoder.log_sd.bias is not None
            self.encoder.log_sd.bias.fill_(-3.0)
            self.decoder.intercept.copy_(intercept.expand_as(self.decoder.intercept))
            # `start_noise` takes half: normal noise begins at .37 of a feature's standard deviation
            self.likelihood.start_noise(torch.full_like(residual_sd, 0.74) * unit)

    def factor_posterior(self, batch: Batch) -> FullNormal:
        """q(z | x) of each row, event (factor,), batch (restart, row): Gaussian with a full covariance."""
        return FullNormal(*self.encoder.gaussian(batch.inputs, batch.mask))

    @property
    def weights(self) -> Tensor:
        """Strengths of the edges in the graph, (restart, feature, factor); zero elsewhere."""
        return self.strength * self.decoder.mask

    @torch.no_grad()
    def turn(self, maps: Tensor) -> None:
        """Go over to other latents, ``z_old = maps @ z_new``, `maps` (restart, factor, factor)."""
        self.decoder.turn(maps)
        self.encoder.turn(maps)

    def alike_factors(self) -> list[np.ndarray]:
        """Sets of factors that can change places: all can."""
        return [np.arange(self.n_factors)]
