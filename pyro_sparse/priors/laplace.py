r"""The Laplace prior: the Bayesian reading of the lasso, its rate fixed or learned per factor.

.. math:: w_{jk} \mid \lambda_k \sim \tfrac{\lambda_k}{2} e^{-\lambda_k |w_{jk}|}, \qquad
          \lambda_k \sim \mathrm{Gamma}(a, b)

One component: it shrinks and zeroes, but it has no notion of an edge's probability.
"""

from __future__ import annotations

import pyro.distributions as dist
import torch
from torch import Tensor

from . import em
from .base import Prior
from .spike_slab import check_positive

__all__ = ["Laplace"]


class Laplace(Prior):
    r"""Laplace prior on every weight.

    Parameters
    ----------
    rate : float
        Rate of the Laplace, in units of one over a weight: the value, or the start if it is learned.
    learn : bool
        Learn one rate per factor under a Gamma(a, b) prior: :math:`\lambda_k = (G_k + a - 1) / (\sum_j
        |w_{jk}| + b)`.
    a, b : float
        Shape and rate of the Gamma prior; used only when learning.

    Attributes
    ----------
    rate : Tensor
        Current rates, shape (R, 1, K).

    Raises
    ------
    ValueError
        If a number is not positive.

    Examples
    --------
    >>> import torch
    >>> from pyro_sparse.priors import Laplace
    >>> prior = Laplace(rate=2.0)
    >>> prior.setup(n_features=2, n_factors=1)
    >>> prior.prox(torch.tensor([[[3.0], [0.5]]]), step=0.5).flatten()
    tensor([2., 0.])
    """

    rate: Tensor

    capturable = True

    def __init__(self, rate: float = 1.0, learn: bool = False, a: float = 1.0, b: float = 1.0) -> None:
        super().__init__()
        check_positive(rate=rate, a=a, b=b)
        self.start, self.learn, self.a, self.b = float(rate), bool(learn), float(a), float(b)
        self.register_buffer("rate", torch.full((1, 1, 1), self.start))

    def allocate(self) -> None:
        """Allocate the rates."""
        super().allocate()
        self.rate = self.rate.new_full((self.n_restarts, 1, self.n_factors), self.start)

    def distribution(self) -> dist.Laplace:
        """Density of one weight, batch shape (R, 1, K)."""
        return dist.Laplace(torch.zeros_like(self.rate), 1 / self.rate)

    def update(self, weights: Tensor, prob: Tensor | None = None) -> None:
        """M-step for the rates, when they are learned; ``prob`` is not used."""
        if self.learn:
            with torch.no_grad():
                count = self.allowed.to(weights.dtype).sum(-2, keepdim=True)
                total = (weights.abs() * self.allowed).sum(-2, keepdim=True)
                # the mode is at zero where few edges are permitted and a is small
                self.rate.copy_((count + self.a - 1).clamp(min=1e-6) / (total + self.b))

    def prox(self, weights: Tensor, step: Tensor | float) -> Tensor:
        """Soft threshold at ``step`` times the rate; zero at forbidden edges."""
        return em.soft_threshold(weights, step * self.rate).masked_fill(~self.allowed, 0.0)

    def log_hyper(self) -> Tensor:
        """Log Gamma density of the rates when they are learned, shape (R,); otherwise zero."""
        if not self.learn:
            return super().log_hyper()
        ones = torch.ones_like(self.rate)
        density: Tensor = dist.Gamma(self.a * ones, self.b * ones).log_prob(self.rate)
        return density.sum((-2, -1))
