r"""The spike-and-slab lasso prior: a slab for the edges that exist, a spike for the others, both Laplace.

.. math:: w_{jk} \mid \eta_k \sim \eta_k\,\psi_{\lambda_1} + (1-\eta_k)\,\psi_{\lambda_0}, \qquad
          \psi_\lambda(w) = \tfrac{\lambda}{2} e^{-\lambda|w|}

During a fit the rates climb a ladder from one plain lasso to the wanted spike and slab (dynamic posterior
exploration), eta follows by EM, and the exact proximal map of the marginal penalty gives exact zeros.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.distributions import Laplace

from .. import distributions as dist
from .._utils.declared import Declared
from . import em
from .spike_slab import AROUND_DENSITY, Scales, SpikeSlabPrior, check_positive

__all__ = ["SpikeSlabLasso"]


class SpikeSlabLasso(SpikeSlabPrior):
    r"""Spike-and-slab lasso on every weight, one inclusion probability per factor or for all.

    Parameters
    ----------
    lambda1 : float
        Rate of the slab, in units of one over a weight.
    lambda0 : float or "auto"
        Rate of the spike at the top of the ladder; "auto" is max(200, n_samples).
    a, b : float
        Beta prior of eta. ``b="auto"`` is the number of weights that share one eta: few edges are expected.
    expected_size : float, optional
        Expected number of features per factor; sets b so that the prior mean of eta is its share of the
        features.
    eta : {"factor", "global"}
        One inclusion probability per factor, or one for the whole graph.
    ladder : {"geometric", "linear"} or None
        How the rates move in :meth:`anneal`. None: they stay at ``lambda1`` and ``lambda0``.
    ladder_start : float, optional
        Common rate of spike and slab at the foot of the ladder, where the prior is a plain lasso. Default:
        ``lambda1``, the usual path on which the slab does not move.
    column : {"none", "ibp"}
        "ibp" replaces the Beta prior by a stick-breaking Indian-buffet prior cut at K factors.
    alpha : float, optional
        Concentration of the Indian-buffet prior. Default: 1 / n_features.

    Attributes
    ----------
    eta : Tensor
        Inclusion probabilities, shape (R, 1, K), also when they are all equal.
    lambda1, lambda0 : Tensor
        Current rates, shape ().

    Raises
    ------
    ValueError
        If a number is not positive, ``lambda0 < lambda1``, a choice is unknown, or two settings contradict.

    Examples
    --------
    >>> import torch
    >>> from pyro_sparse.priors import SpikeSlabLasso
    >>> prior = SpikeSlabLasso(lambda0=100.0, expected_size=2)
    >>> prior.setup(n_features=7, n_factors=5, n_restarts=3)
    >>> prior.edge_log_odds(torch.zeros(3, 7, 5)).shape
    torch.Size([3, 7, 5])

    References
    ----------
    Ročková and George (2018), The Spike-and-Slab LASSO, JASA 113; (2016), JASA 111, for "ibp". Moran,
    Sridhar, Wang and Blei (2022), Identifiable deep generative models via sparse decoding, algorithm 1.
    """

    declares = (Declared("spike and slab", free=AROUND_DENSITY),)
    lambda1: Tensor
    lambda0: Tensor

    capturable = True

    def __init__(
        self,
        lambda1: float = 1.0,
        lambda0: float | Literal["auto"] = "auto",
        a: float = 1.0,
        b: float | Literal["auto"] = "auto",
        expected_size: float | None = None,
        eta: Literal["factor", "global"] = "factor",
        ladder: Literal["geometric", "linear"] | None = "geometric",
        ladder_start: float | None = None,
        column: Literal["none", "ibp"] = "none",
        alpha: float | None = None,
    ) -> None:
        super().__init__(a, b, expected_size, eta, column, alpha)
        spike = None if lambda0 == "auto" else lambda0
        check_positive(lambda1=lambda1, lambda0=spike, ladder_start=ladder_start)
        if spike is not None and spike < lambda1:
            raise ValueError(
                f"lambda0 is {spike} and lambda1 {lambda1}; the spike's lambda0 must be the larger."
            )
        if ladder not in ("geometric", "linear", None):
            raise ValueError(f'ladder is {ladder!r}; it must be "geometric", "linear" or None.')
        self.slab_rate, self._spike_rate = float(lambda1), spike
        self.ladder, self.ladder_start = ladder, ladder_start
        self.register_buffer("lambda1", torch.tensor(self.slab_rate))
        self.register_buffer("lambda0", torch.tensor(self.spike_rate))

    @property
    def spike_rate(self) -> float:
        """Rate of the spike at the top of the ladder."""
        if self._spike_rate is None:
            # the spike narrows with what N rows say of a weight: at 1,000 rows a rate of 10 is far too weak
            return max(200.0, float(self.n_samples or 0), self.slab_rate)
        return float(self._spike_rate)

    def rates(self) -> tuple[Tensor, Tensor]:
        return self.lambda1, self.lambda0

    def scales(self) -> Scales:
        """Inverse rates."""
        return Scales("laplace", 1 / self.slab_rate, 1 / self.spike_rate)

    def arguments_of(self, slab: float, spike: float) -> dict[str, float]:
        return {"lambda1": 1 / slab, "lambda0": 1 / spike}

    def allocate(self) -> None:
        """Allocate eta = 1/2 and put the rates at the top of the ladder."""
        super().allocate()
        self.lambda1.fill_(self.slab_rate)
        self.lambda0.fill_(self.spike_rate)

    def components(self) -> tuple[Laplace, Laplace]:
        """Slab and spike at the current rates."""
        zero = torch.zeros_like(self.lambda1)
        return Laplace(zero, 1 / self.lambda1), Laplace(zero, 1 / self.lambda0)

    def distribution(self) -> dist.SpikeSlabLasso:
        """Marginal density of one weight, batch shape that of `inclusion`."""
        return dist.SpikeSlabLasso(self.inclusion, self.lambda1, self.lambda0)

    def prox(self, weights: Tensor, step: Tensor | float) -> Tensor:
        """Exact proximal map of the marginal penalty, zero at forbidden edges. See ``priors.em.ssl_prox``."""
        new = em.ssl_prox(weights, step, self.inclusion, self.lambda1, self.lambda0)
        return new.masked_fill(~self.allowed, 0.0)

    def screening_rate(self) -> float:
        """The spike's rate at the top of the ladder: what is screened is what the spike would hold."""
        return float(self.spike_rate)

    def anneal(self, progress: float) -> None:
        r"""Move spike and slab from their common start s to their final rates, u = ``progress``.

        Geometric: :math:`\lambda(u) = s\,(\lambda / s)^u`; linear: :math:`\lambda(u) = s + u(\lambda - s)`.
        """
        if self.ladder is None:
            return
        u = min(max(float(progress), 0.0), 1.0)
        s = self.slab_rate if self.ladder_start is None else self.ladder_start

        def level(final: float) -> float:
            return s * (final / s) ** u if self.ladder == "geometric" else s + u * (final - s)

        self.lambda1.fill_(level(self.slab_rate))
        self.lambda0.fill_(level(self.spike_rate))

    def extra_repr(self) -> str:
        """What ``print(prior)`` shows."""
        spike = "auto" if self._spike_rate is None else self._spike_rate
        return f"lambda1={self.slab_rate}, lambda0={spike}, ladder={self.ladder!r}, column={self.column!r}"
