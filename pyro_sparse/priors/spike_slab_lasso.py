r"""The spike-and-slab lasso prior: a slab for the edges that exist, a spike for those that do not, both Laplace.

.. math:: w_{jk} \mid \eta_k \sim \eta_k\,\psi_{\lambda_1} + (1-\eta_k)\,\psi_{\lambda_0}, \qquad \eta_k \sim \mathrm{Beta}(a, b)

The indicators are summed out, so the only state is eta, updated in closed form. During a fit the rates climb a ladder
from one plain lasso to the wanted spike and slab (dynamic posterior exploration), and the exact proximal map gives zeros.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.distributions import Beta

from pyro_sparse import distributions as dist
from pyro_sparse.priors import em
from pyro_sparse.priors.base import Prior

__all__ = ["SpikeSlabLasso"]


class SpikeSlabLasso(Prior):
    r"""Spike-and-slab lasso on every weight, one inclusion probability per factor or for all.

    Parameters
    ----------
    lambda1 : float
        Rate of the slab, in units of one over a weight.
    lambda0 : float or "auto"
        Rate of the spike at the top of the ladder; "auto" is max(200, n_samples).
    a, b : float
        Beta prior of eta. ``b="auto"`` is the number of weights that share one eta, so that few edges are expected.
    expected_size : float, optional
        Expected number of features per factor; sets b so that the prior mean of eta is expected_size / n_features.
    eta : {"factor", "global"}
        One inclusion probability per factor, or one for the whole graph.
    ladder : {"geometric", "linear"} or None
        How the rates move in :meth:`anneal`. None: they stay at ``lambda1`` and ``lambda0``.
    ladder_start : float, optional
        Common rate of spike and slab at the foot of the ladder, where the prior is a plain lasso. Default: ``lambda1``,
        the usual path on which the slab does not move.
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
        If a rate or Beta parameter is not positive, ``lambda0 < lambda1``, or a choice is unknown.

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
    Ročková and George (2018), The Spike-and-Slab LASSO, JASA 113. Ročková and George (2016), JASA 111 ("ibp").
    Moran, Sridhar, Wang and Blei (2022), Identifiable deep generative models via sparse decoding, algorithm 1.
    """

    eta: Tensor
    lambda1: Tensor
    lambda0: Tensor
    b: Tensor

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
        super().__init__()
        positive = {"lambda1": lambda1, "a": a, "expected_size": expected_size}
        positive |= {"ladder_start": ladder_start, "alpha": alpha}
        positive |= {} if lambda0 == "auto" else {"lambda0": lambda0}
        positive |= {} if b == "auto" else {"b": b}
        for name, value in positive.items():
            if value is not None and not (isinstance(value, (int, float)) and 0 < value < float("inf")):
                raise ValueError(f"{name} is {value!r}; it must be a positive finite number.")
        if lambda0 != "auto" and lambda0 < lambda1:
            raise ValueError(
                f"lambda0 is {lambda0} and lambda1 is {lambda1}; the spike's rate lambda0 must be the larger."
            )
        if b != "auto" and expected_size is not None:
            raise ValueError(
                "b and expected_size both set the prior of eta; give one of them and leave the other out."
            )
        choices = {"eta": (eta, ("factor", "global")), "column": (column, ("none", "ibp"))}
        choices["ladder"] = (ladder, ("geometric", "linear", None))
        for name, (value, wanted) in choices.items():
            if value not in wanted:
                raise ValueError(f"{name} is {value!r}; it must be one of {wanted}.")
        if column == "ibp" and (eta == "global" or expected_size is not None or b != "auto"):
            raise ValueError(
                'column="ibp" replaces the Beta prior: leave eta="factor", b="auto" and expected_size=None.'
            )
        self.slab_rate, self.spike_rate = float(lambda1), lambda0
        self.a, self._b, self.expected_size = float(a), b, expected_size
        self.shared, self.ladder, self.column = eta == "global", ladder, column
        self.ladder_start, self._alpha = ladder_start, alpha
        self.register_buffer("eta", torch.full((1, 1, 1), 0.5))
        self.register_buffer("b", torch.ones(1, 1))
        self.register_buffer("lambda1", torch.tensor(self.slab_rate))
        self.register_buffer("lambda0", torch.tensor(self._top()))

    def setup(
        self,
        n_features: int,
        n_factors: int,
        n_restarts: int = 1,
        n_samples: int | None = None,
        allowed: Tensor | None = None,
    ) -> None:
        """Allocate eta = 1/2 and put the rates at the top of the ladder. See :meth:`Prior.setup`."""
        super().setup(n_features, n_factors, n_restarts, n_samples, allowed)
        if self.expected_size is not None and self.expected_size >= n_features:
            raise ValueError(
                f"expected_size is {self.expected_size} with n_features={n_features}; "
                "it must be smaller than the number of features."
            )
        self.eta = self.eta.new_full((self.n_restarts, 1, self.n_factors), 0.5)
        if self.expected_size is not None:
            self.b = self.b.new_full((1, n_factors), self.a * (n_features / self.expected_size - 1))
        elif self._b != "auto":
            self.b = self.b.new_full((1, n_factors), self._b)
        else:
            count = self.allowed.to(self.b.dtype).sum(-2, keepdim=True).clamp(min=1)
            self.b = count.sum(-1, keepdim=True).expand_as(count).clone() if self.shared else count
        self._set_rates(self.slab_rate, self._top())

    @property
    def alpha(self) -> float:
        """Concentration of the Indian-buffet prior."""
        return 1 / self.n_features if self._alpha is None else float(self._alpha)

    def distribution(self) -> dist.SpikeSlabLasso:
        """Marginal density of one weight, batch shape (R, 1, K)."""
        return dist.SpikeSlabLasso(self.eta, self.lambda1, self.lambda0)

    def edge_log_odds(self, weights: Tensor) -> Tensor:
        """E-step on the log scale, shape (R, G, K); minus infinity at forbidden edges."""
        odds = em.edge_log_odds(weights, self.eta, self.lambda1, self.lambda0)
        return odds.masked_fill(~self.allowed, -torch.inf)

    def update(self, weights: Tensor, prob: Tensor | None = None) -> None:
        """M-step for eta. See :func:`em.eta_step` and :func:`em.ordered_eta_step`."""
        with torch.no_grad():
            prob = self.edge_log_odds(weights).sigmoid() if prob is None else prob
            if self.column == "ibp":
                eta = em.ordered_eta_step(prob, self.alpha, self.allowed)
            else:
                b = self.b[:, :1] if self.shared else self.b
                eta = em.eta_step(prob, self.a, b, self.allowed, self.shared)
            self.eta.copy_(eta.expand_as(self.eta))

    def prox(self, weights: Tensor, step: Tensor | float) -> Tensor:
        """Exact proximal map of the marginal penalty; forbidden edges become zero. See :func:`em.ssl_prox`."""
        return em.ssl_prox(weights, step, self.eta, self.lambda1, self.lambda0) * self.allowed

    def anneal(self, progress: float) -> None:
        r"""Move spike and slab from their common start s to their final rates.

        Geometric: :math:`\lambda = s\,(\lambda_{\text{final}} / s)^u`; linear: :math:`\lambda = s + u(\lambda_{\text{final}} - s)`,
        u = ``progress``.
        """
        if self.ladder is None:
            return
        u = min(max(float(progress), 0.0), 1.0)
        s = self.slab_rate if self.ladder_start is None else self.ladder_start

        def level(final: float) -> float:
            return s * (final / s) ** u if self.ladder == "geometric" else s + u * (final - s)

        self._set_rates(level(self.slab_rate), level(self._top()))

    def log_hyper(self) -> Tensor:
        """Log prior density of eta (of the stick-breaking fractions under "ibp"), shape (R,)."""
        eta = self.eta.clamp(em.ETA_MARGIN, 1 - em.ETA_MARGIN)
        if self.column == "ibp":
            last = eta.amin((-2, -1)).log()
            return (
                self.n_factors * torch.as_tensor(self.alpha, dtype=eta.dtype).log() + (self.alpha - 1) * last
            )
        density = Beta(torch.as_tensor(self.a, dtype=eta.dtype, device=eta.device), self.b).log_prob(eta)
        return density[:, 0, 0] if self.shared else density.sum((-2, -1))

    def extra_repr(self) -> str:
        """What ``print(prior)`` shows."""
        return f"lambda1={self.slab_rate:g}, lambda0={self.spike_rate}, ladder={self.ladder!r}, column={self.column!r}"

    def _top(self) -> float:
        """The spike's rate at the top of the ladder."""
        if self.spike_rate == "auto":
            return max(200.0, float(self.n_samples or 0), self.slab_rate)
        return float(self.spike_rate)

    def _set_rates(self, lambda1: float, lambda0: float) -> None:
        self.lambda1.fill_(lambda1)
        self.lambda0.fill_(max(lambda0, lambda1))
