r"""Weights of edges: each from a slab if its edge is there and from a spike if not, the indicator summed out.

.. math:: p(w_k) = \pi_k\,p_1(w_k) + (1 - \pi_k)\,p_0(w_k), \qquad \pi_k = \operatorname{logit}^{-1}(\ell_k)

Slab and spike are normal, Laplace or Student-t distributions around zero, and the spike may be a point mass
at zero: then the density is with respect to counting measure at zero and Lebesgue measure elsewhere.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

import pyro.distributions as dist
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Laplace, Normal, StudentT, constraints

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Component", "EdgeWeights", "as_component", "widened_spikes"]

NEVER = -30.0  # log odds of an edge that is not permitted; of a required one their negative
# Of the slab's scale, up to which widened spikes grow: wider ones would take the slab's weights.
_WIDEST = 0.5
# Of the slab's scale: what stands for a point mass where a density of finite slope is wanted, in training.
_POINT = 0.05
_heat: ContextVar[Tensor | float] = ContextVar("heat", default=1.0)


@contextmanager
def widened_spikes(heat: Tensor | float) -> Iterator[None]:
    """Spikes `heat` times as wide inside, up to half of their slab: for starts, and only there.

    Parameters
    ----------
    heat : Tensor or float
        Above 1 a point mass is a narrow normal, too.
    """
    token = _heat.set(heat)
    try:
        yield
    finally:
        _heat.reset(token)


class Component(NamedTuple):
    """A distribution around zero, by its scale and its degrees of freedom.

    Attributes
    ----------
    family : {"normal", "laplace", "student", "point"}
    scale : Tensor
        Of a point mass 0; more while it is widened.
    df : Tensor or float
        Of a Student distribution; else infinite.
    """

    family: str
    scale: Tensor
    df: Tensor | float = float("inf")

    def log_prob(self, w: Tensor) -> Tensor:
        """Its log density."""
        zero = torch.zeros_like(self.scale)
        if self.family == "laplace":
            density = dist.Laplace(zero, self.scale, validate_args=False)
        elif self.family == "student":
            density = dist.StudentT(self.df, zero, self.scale, validate_args=False)
        else:
            density = dist.Normal(zero, self.scale, validate_args=False)
        log_prob: Tensor = density.log_prob(w)
        return log_prob

    def sample(self, shape: torch.Size) -> Tensor:
        """Draws of this shape."""
        if self.family == "point":
            return torch.zeros(shape, dtype=self.scale.dtype, device=self.scale.device)
        zero, scale = torch.zeros_like(self.scale).expand(shape), self.scale.expand(shape)
        if self.family == "laplace":
            density = dist.Laplace(zero, scale)
        elif self.family == "student":
            df = torch.as_tensor(self.df, dtype=scale.dtype, device=scale.device)
            density = dist.StudentT(df.expand(shape), zero, scale)
        else:
            density = dist.Normal(zero, scale)
        drawn: Tensor = density.sample()
        return drawn


def as_component(name: str, distribution: dist.TorchDistribution) -> Component:
    """A slab or a spike as a `Component`.

    Parameters
    ----------
    name : str
        "slab" or "spike", for the message.
    distribution : Distribution
        Normal, Laplace or StudentT around 0, or Delta(torch.tensor(0.)) for a spike.

    Raises
    ------
    TypeError, ValueError
        It is of another family, or not around zero.
    """
    kinds = {Normal: "normal", Laplace: "laplace", StudentT: "student", dist.Delta: "point"}
    kind = next((word for family, word in kinds.items() if isinstance(distribution, family)), None)
    if kind is None or (kind == "point" and name == "slab"):
        point = " or Delta(torch.tensor(0.))" if name == "spike" else ""
        positive = ""
        if distribution.support in (constraints.positive, constraints.nonnegative):
            positive = "; weights that are not negative are ps.gates times a ps.sample of this distribution"
        raise TypeError(
            f"{name}: got {type(distribution).__name__}, wanted Normal, Laplace or StudentT around 0{point}, "
            f"such as dist.Normal(0., 1.){positive}"
        )
    centre = distribution.v if kind == "point" else distribution.loc
    with suppress(RuntimeError):  # under `vmap` its numbers cannot be looked at, and were before
        if bool((centre != 0).any()):
            raise ValueError(f"{name}: is around {centre.flatten()[0].item():g}, wanted 0")
    if kind == "point":
        return Component("point", torch.zeros_like(centre))
    return Component(kind, distribution.scale, getattr(distribution, "df", float("inf")))


class EdgeWeights(dist.TorchDistribution):
    r"""Weights of one feature on its factors, edges summed out; the factors are the event.

    Parameters
    ----------
    log_odds : Tensor (..., factor)
        :math:`\ell`, of each edge before the data.
    slab, spike : Component
        From `as_component`.
    permitted, required : Tensor of bool (..., factor), optional
        Edges that can be there, and those that must be. A weight that is not permitted is drawn from the
        spike and is to be multiplied with `permitted`.

    Examples
    --------
    >>> import torch, pyro.distributions as dist
    >>> normal = [as_component(n, dist.Normal(0.0, s)) for n, s in (("slab", 1.0), ("spike", 0.1))]
    >>> EdgeWeights(torch.zeros(2), *normal).edge_prob(torch.tensor([0.0, 1.0])).round(decimals=3)
    tensor([0.0910, 1.0000])
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    support = constraints.real_vector
    has_rsample = False

    def __init__(
        self,
        log_odds: Tensor,
        slab: Component,
        spike: Component,
        permitted: Tensor | None = None,
        required: Tensor | None = None,
    ):
        if permitted is not None:
            log_odds = torch.where(permitted, log_odds, torch.full_like(log_odds, NEVER))
        if required is not None:
            log_odds = torch.where(required, torch.full_like(log_odds, -NEVER), log_odds)
        shape = torch.broadcast_shapes(log_odds.shape, slab.scale.shape, spike.scale.shape)
        self.log_odds = log_odds.expand(shape)
        self.slab, self.narrow_spike = slab, spike
        super().__init__(shape[:-1], shape[-1:], validate_args=False)

    @property
    def spike(self) -> Component:
        """As it is, or widened (`widened_spikes`)."""
        heat = _heat.get()
        if isinstance(heat, float) and heat == 1.0:
            return self.narrow_spike
        scale = self.narrow_spike.scale
        if self.narrow_spike.family == "point":
            heat = torch.as_tensor(heat, dtype=scale.dtype, device=scale.device)
            wide = torch.minimum(_POINT * self.slab.scale * heat, _WIDEST * self.slab.scale)
            return Component("point", torch.where(heat > 1, wide, torch.zeros_like(wide)))
        widest = torch.maximum(scale, _WIDEST * self.slab.scale)
        return self.narrow_spike._replace(scale=torch.minimum(scale * heat, widest))

    def expand(self, batch_shape: torch.Size, _instance: None = None) -> EdgeWeights:
        """The same of a larger batch."""
        batch_shape = torch.Size(batch_shape)  # lists come, too
        expanded = EdgeWeights.__new__(EdgeWeights)
        expanded.log_odds = self.log_odds.expand(*batch_shape, *self.event_shape)
        expanded.slab, expanded.narrow_spike = self.slab, self.narrow_spike
        dist.TorchDistribution.__init__(expanded, batch_shape, self.event_shape, validate_args=False)
        return expanded

    def log_densities(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """Of each weight together with its edge's being there, and with its being absent."""
        there, spike = F.logsigmoid(self.log_odds), self.spike
        absent = F.logsigmoid(-self.log_odds)
        if spike.family == "point":  # a narrow normal while it is widened
            is_wide, zero, never = spike.scale > 0, value == 0, torch.full_like(value, -torch.inf)
            narrow = Component("normal", torch.where(is_wide, spike.scale, torch.ones_like(spike.scale)))
            at_zero = torch.where(zero, torch.zeros_like(value), never)
            there = torch.where(zero & ~is_wide, never, there + self.slab.log_prob(value))
            return there, absent + torch.where(is_wide, narrow.log_prob(value), at_zero)
        return there + self.slab.log_prob(value), absent + spike.log_prob(value)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density of a feature's weights."""
        there, absent = self.log_densities(value)
        # Not logaddexp, whose second derivative is inf / inf where a weight is 40 spikes wide.
        both = there - F.logsigmoid(there - absent)
        if self.narrow_spike.family == "point":
            both = torch.where(
                torch.isneginf(there), absent, torch.where(torch.isneginf(absent), there, both)
            )
        return both.sum(-1)

    def edge_prob(self, value: Tensor) -> Tensor:
        """Probability of each edge given its weight."""
        there, absent = self.log_densities(value)
        return torch.sigmoid(there - absent)

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # noqa: B008 (as torch has it)
        """Draws; `drawn_edges` then says which edges were there."""
        shape = torch.Size((*sample_shape, *self.log_odds.shape))
        uniform = torch.rand(shape, dtype=self.log_odds.dtype, device=self.log_odds.device)
        self.drawn_edges = uniform.logit() < self.log_odds
        return torch.where(self.drawn_edges, self.slab.sample(shape), self.narrow_spike.sample(shape))
