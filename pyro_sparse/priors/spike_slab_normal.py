r"""The spike-and-slab normal prior: stochastic search variable selection, with the indicator summed out.

.. math:: w_{jk} \mid \eta_k \sim \eta_k\,N(0, s_1^2) + (1-\eta_k)\,N(0, s_0^2)

Smooth, so it has no exact zeros and no proximal map: small weights are spread over the spike instead.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.distributions import Normal

from .. import distributions as dist
from .._utils.declared import Declared
from .spike_slab import AROUND_DENSITY, Scales, SpikeSlabPrior, check_positive

__all__ = ["SpikeSlabNormal"]


class SpikeSlabNormal(SpikeSlabPrior):
    r"""Mixture of a wide and a narrow normal on every weight.

    Parameters
    ----------
    slab_scale, spike_scale : float
        Standard deviations, ``spike_scale < slab_scale``, in units of a weight.
    a, b, expected_size, eta
        Prior of the inclusion probabilities, as in :class:`SpikeSlabLasso`.
    ladder : {"geometric"} or None
        "geometric": :meth:`anneal` narrows the spike from the slab's scale; None: it stays as it is.
    column, alpha
        As in :class:`SpikeSlabLasso`.

    Notes
    -----
    A normal spike has no exact zeros: a fit's `edge_score` and edge probabilities say what its edges are, not
    which weights are zero.

    Raises
    ------
    ValueError
        If a scale is not positive, ``spike_scale >= slab_scale``, or a choice is unknown.

    Examples
    --------
    >>> from pyro_sparse.priors import SpikeSlabNormal
    >>> prior = SpikeSlabNormal(spike_scale=0.1)
    >>> prior.setup(n_features=7, n_factors=5)
    >>> prior.distribution().batch_shape
    torch.Size([1, 1, 5])

    References
    ----------
    George and McCulloch (1993), JASA 88. Ročková and George (2014), EMVS, JASA 109 (EM, and the spike's
    ladder).
    """

    declares = (Declared("spike and slab", free=AROUND_DENSITY),)
    spike_scale: Tensor

    capturable = True

    def __init__(
        self,
        slab_scale: float = 1.0,
        spike_scale: float = 0.05,
        a: float = 1.0,
        b: float | Literal["auto"] = "auto",
        expected_size: float | None = None,
        eta: Literal["factor", "global"] = "factor",
        ladder: Literal["geometric"] | None = "geometric",
        column: Literal["none", "ibp"] = "none",
        alpha: float | None = None,
    ) -> None:
        super().__init__(a, b, expected_size, eta, column, alpha)
        check_positive(slab_scale=slab_scale, spike_scale=spike_scale)
        if spike_scale >= slab_scale:
            raise ValueError(
                f"spike_scale is {spike_scale} and slab_scale {slab_scale}; spike_scale must be the smaller."
            )
        if ladder not in ("geometric", None):
            raise ValueError(f'ladder is {ladder!r}; it must be "geometric" or None.')
        self.slab_scale, self.final_spike_scale, self.ladder = float(slab_scale), float(spike_scale), ladder
        self.register_buffer("spike_scale", torch.tensor(self.final_spike_scale))

    def allocate(self) -> None:
        """Allocate eta = 1/2 and put the spike at its final scale."""
        super().allocate()
        self.spike_scale.fill_(self.final_spike_scale)

    def scales(self) -> Scales:
        """Standard deviations."""
        return Scales("normal", self.slab_scale, self.final_spike_scale)

    def arguments_of(self, slab: float, spike: float) -> dict[str, float]:
        return {"slab_scale": slab, "spike_scale": spike}

    def components(self) -> tuple[Normal, Normal]:
        """Slab and spike at the current scale."""
        zero = torch.zeros_like(self.spike_scale)
        return Normal(zero, torch.full_like(zero, self.slab_scale)), Normal(zero, self.spike_scale)

    def distribution(self) -> dist.SpikeSlabNormal:
        """Marginal density of one weight, batch shape that of `inclusion`."""
        slab = torch.full_like(self.spike_scale, self.slab_scale)
        return dist.SpikeSlabNormal(self.inclusion, slab, self.spike_scale)

    def anneal(self, progress: float) -> None:
        """Narrow the spike geometrically from the slab's scale (progress 0) to its own (progress 1)."""
        if self.ladder is not None:
            u = min(max(float(progress), 0.0), 1.0)
            self.spike_scale.fill_(self.slab_scale * (self.final_spike_scale / self.slab_scale) ** u)

    def extra_repr(self) -> str:
        """What ``print(prior)`` shows."""
        return f"slab_scale={self.slab_scale}, spike_scale={self.final_spike_scale}, column={self.column!r}"
