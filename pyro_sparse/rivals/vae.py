r"""The two nearest relatives of the sparse decoder: the same program without sparsity, and without the
network.

A `VAE` lets every feature see every factor; ``beta`` weighs the divergence of its guide, *summed* over
factors, so that ``beta=1`` is the evidence lower bound and nothing else, and ``total_correlation`` what is
left of it in the factors' dependence.  `sparse_factor_analysis` keeps the sparse weights and drops the
network.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .._utils.checks import check_whole
from ..likelihoods import Likelihood
from ..models.base import FactorModel
from ..models.sparse_decoder import SparseDecoder
from ..nets.layers import DenseDecoder
from .total_correlation import DensityRatio

__all__ = ["VAE", "sparse_factor_analysis"]


class VAE(FactorModel):
    r"""Variational autoencoder, β-VAE and FactorVAE: every feature depends on every factor.

    .. math:: z_i \sim N(0, I), \quad x_{ij} \sim \mathrm{likelihood}(f_\theta(z_i)_j), \qquad
              \mathcal L = \sum_i E_q \log p(x_i \mid z_i) - \beta \sum_i \sum_k KL(q(z_{ik} \mid x_i)
              \,\|\, N(0, 1))

    less :math:`\gamma\, KL(q(z) \| \prod_k q(z_k))` for each row, with q(z) the mean of the rows' guides.

    Parameters
    ----------
    n_features, n_factors : int
        G and K.
    likelihood : str or Likelihood
        As in `SparseDecoder`.
    hidden, encoder_hidden : int
        Widths of the decoder's and the encoder's two hidden layers.
    beta : float
        Weight of the divergence, positive; 1 is the VAE of Kingma & Welling (2014), larger the β-VAE of
        Higgins et al. (2017).  In nats per nat: divided by neither K nor the batch.
    factor_cov : bool
        Learn the correlation of the factors.
    data_start : bool
        Begin at the same data-driven guess as `SparseDecoder`, so that a comparison is about sparsity;
        False begins at random, as published VAEs do.
    total_correlation : float
        γ, 0 or more: weight of the total correlation of the factors, in nats per nat of a row, as the
        FactorVAE of Kim & Mnih (2018) has it. A `DensityRatio` network is trained along. No reported ELBO
        contains it. Steps are then of 1e-3 by default (`fit_settings`), and more of them are of use.

    Raises
    ------
    ValueError
        ``beta <= 0``, ``total_correlation < 0``, or impossible sizes.

    Examples
    --------
    >>> import torch
    >>> model = VAE(n_features=7, n_factors=2)
    >>> model.setup(n_restarts=3)
    >>> model.decode(torch.zeros(3, 10, 2), None).shape
    torch.Size([3, 10, 7])
    """

    def __init__(
        self,
        n_features: int,
        n_factors: int,
        likelihood: str | Likelihood = "normal",
        hidden: int = 50,
        encoder_hidden: int = 64,
        beta: float = 1.0,
        factor_cov: bool = False,
        data_start: bool = True,
        total_correlation: float = 0.0,
    ) -> None:
        super().__init__(n_features, n_factors, likelihood, encoder_hidden, factor_cov)
        if not beta > 0:
            raise ValueError(f"beta: got {beta}, wanted a positive number (1 is the plain VAE)")
        if not 0 <= total_correlation < math.inf:
            raise ValueError(
                f"total_correlation: got {total_correlation}, wanted a weight of at least 0 (0: a plain VAE)"
            )
        check_whole(1, hidden=hidden)
        self.total_correlation = float(total_correlation)
        self.beta, self.hidden, self.data_start = float(beta), int(hidden), data_start

    def build(self, feature_names: list[str] | None) -> None:
        self.decoder = DenseDecoder(self.n_restarts, self.n_features, self.n_factors, self.hidden)
        self.build_ratio()

    def build_ratio(self) -> None:
        """Make the network of the total correlation, if it is asked for."""
        if self.total_correlation:
            self.ratio = DensityRatio(self.n_restarts, self.n_factors)

    def latent_loss(self, z: Tensor) -> Tensor:
        """Weighted total correlation of the draws, and the loss that its network learns by, (restart,)."""
        return self.total_correlation * self.ratio.total_correlation(z) + self.ratio.loss(z)

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
        if not self.data_start:
            scores, maps, loadings = (torch.zeros_like(guess) for guess in (scores, maps, loadings))
            residual_sd, bent = torch.zeros_like(residual_sd), torch.zeros_like(bent)
        super().start(scores, maps, loadings, intercept, residual_sd, bent, unit)
        with torch.no_grad():
            self.decoder.skip.copy_(loadings.mT * unit)


def sparse_factor_analysis(n_features: int, n_factors: int, **options: Any) -> SparseDecoder:
    r"""Factor analysis with spike-and-slab-lasso loadings, :math:`x_i = c + W z_i + \varepsilon_i`.

    Parameters
    ----------
    n_features, n_factors : int
        G and K.
    **options
        Passed on to `SparseDecoder`; `decoder` is fixed to "linear".

    Returns
    -------
    SparseDecoder

    Raises
    ------
    TypeError
        If `decoder` is given.

    References
    ----------
    Ročková & George (2016), Fast Bayesian factor analysis via automatic rotations to sparsity, JASA 111.

    Examples
    --------
    >>> sparse_factor_analysis(7, 2).decoder_kind
    'linear'
    """
    if "decoder" in options:
        raise TypeError("sparse_factor_analysis: the decoder is linear; use SparseDecoder for another one")
    return SparseDecoder(n_features, n_factors, decoder="linear", **options)
