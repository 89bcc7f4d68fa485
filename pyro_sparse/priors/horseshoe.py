r"""The horseshoe priors: a pole at zero and Cauchy tails, so that noise is shrunk hard and signals hardly at
all.

.. math:: w_{jk} \sim N(0, \tau_k^2 \lambda_{jk}^2), \qquad \lambda_{jk} \sim C^+(0, 1)

The local scales are integrated out. There is no mixture indicator, hence no edge probability: the
pseudo-inclusion ("shrinkage factor") of the literature is a score without a null hypothesis, so
``edge_log_odds`` is None.
"""

from __future__ import annotations

from typing import Literal

import pyro.distributions
import torch
from torch import Tensor

from .. import distributions as dist
from .base import Prior
from .spike_slab import check_positive

__all__ = ["Horseshoe", "RegularisedHorseshoe"]


class Horseshoe(Prior):
    r"""Horseshoe with its exact marginal density; the global scale is learned per factor or fixed.

    Parameters
    ----------
    tau : float or "factor"
        A fixed global scale, or "factor": one per factor, by EM under a half-Cauchy prior.
    scale : float
        Scale of that half-Cauchy, and the start of tau.

    Attributes
    ----------
    tau : Tensor
        Current global scales, shape (R, 1, K).

    Raises
    ------
    ValueError
        If a number is not positive.

    References
    ----------
    Carvalho, Polson and Scott (2010), Biometrika 97.
    """

    tau: Tensor

    capturable = True

    def __init__(self, tau: float | Literal["factor"] = "factor", scale: float = 1.0) -> None:
        super().__init__()
        check_positive(tau=None if tau == "factor" else tau, scale=scale)
        self.learn, self.scale = tau == "factor", float(scale)
        self.start = self.scale if tau == "factor" else float(tau)
        self.register_buffer("tau", torch.full((1, 1, 1), self.start))

    def allocate(self) -> None:
        """Allocate the global scales."""
        super().allocate()
        self.tau = self.tau.new_full((self.n_restarts, 1, self.n_factors), self.start)

    def distribution(self) -> dist.Horseshoe:
        """Marginal density of one weight, batch shape (R, 1, K)."""
        return dist.Horseshoe(self.tau)

    def update(self, weights: Tensor, prob: Tensor | None = None) -> None:
        r"""One EM step for the global scales; ``prob`` is not used.

        With :math:`S_k = \sum_j E[w_{jk}^2/\lambda_{jk}^2 \mid w_{jk}]` and scale s, :math:`u = \tau_k^2` is
        the positive root of :math:`(G_k + 2)u^2 + (G_k s^2 - S_k)u - S_k s^2 = 0`.
        """
        if self.learn:
            with torch.no_grad():
                n = self.allowed.to(weights.dtype).sum(-2, keepdim=True)
                squares = self.distribution().expected_scaled_square(weights) * self.allowed
                total, s2 = self.tau**2 * squares.sum(-2, keepdim=True), self.scale**2
                half = (n * s2 - total) / (2 * (n + 2))
                new = (half**2 + total * s2 / (n + 2)).sqrt() - half
                # weights that are all zero take tau towards zero, where there is no density
                self.tau.copy_(new.sqrt().clamp(min=1e-6 * self.scale))

    def log_hyper(self) -> Tensor:
        """Log half-Cauchy density of the global scales when they are learned, shape (R,); otherwise zero."""
        if not self.learn:
            return super().log_hyper()
        prior = pyro.distributions.HalfCauchy(torch.full_like(self.tau, self.scale))
        density: Tensor = prior.log_prob(self.tau)
        return density.sum((-2, -1))


class RegularisedHorseshoe(Prior):
    r"""Regularised horseshoe: a horseshoe whose largest weights are held by a normal slab of standard
    deviation c.

    Parameters
    ----------
    tau : float or "auto"
        Global scale. "auto" is :math:`p_0 / (G - p_0) / \sqrt N`, with :math:`p_0` the expected size and N
        taken as one when it is not known.
    slab_scale : float
        c, in units of a weight.
    expected_size : float, optional
        :math:`p_0`, the expected number of features per factor; default a quarter of them. Only with
        ``tau="auto"``.
    n_nodes : int
        Quadrature nodes of the local scale.

    Attributes
    ----------
    tau : Tensor
        Global scale, shape ().

    Raises
    ------
    ValueError
        If a number is not positive, or the expected size is not below the number of features.

    References
    ----------
    Piironen and Vehtari (2017), Electronic Journal of Statistics 11, equations (2.8) and (3.12).
    """

    tau: Tensor

    capturable = True

    def __init__(
        self,
        tau: float | Literal["auto"] = "auto",
        slab_scale: float = 2.0,
        expected_size: float | None = None,
        n_nodes: int = 64,
    ) -> None:
        super().__init__()
        fixed = None if tau == "auto" else tau
        check_positive(tau=fixed, slab_scale=slab_scale, expected_size=expected_size, n_nodes=n_nodes)
        if fixed is not None and expected_size is not None:
            raise ValueError(
                f"tau={tau} and expected_size={expected_size} both set the scale; leave one out."
            )
        self._tau, self.slab_scale, self.expected_size = fixed, float(slab_scale), expected_size
        self.n_nodes = n_nodes
        self.register_buffer("tau", torch.tensor(1.0 if fixed is None else float(fixed)))

    def allocate(self) -> None:
        """Set the global scale."""
        super().allocate()
        if self._tau is None:
            size = self.n_features / 4 if self.expected_size is None else self.expected_size
            if size >= self.n_features:
                raise ValueError(
                    f"expected_size is {size} with n_features={self.n_features}; "
                    "it must be smaller than that."
                )
            self.tau.fill_(size / (self.n_features - size) / (self.n_samples or 1) ** 0.5)

    def distribution(self) -> dist.RegularisedHorseshoe:
        """Marginal density of one weight, batch shape ()."""
        return dist.RegularisedHorseshoe(self.tau, torch.full_like(self.tau, self.slab_scale), self.n_nodes)
