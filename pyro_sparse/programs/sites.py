"""Sites of a program that declare something: edges, gates, factors, or which axis of a site is the factors'.

Each is one `pyro.sample` statement with a note in its `infer` dictionary, by which inference knows it; any
Pyro algorithm may ignore the note. What they return has rows and features where a table has them, (row,
factor) and (feature, factor), also under a plate of particles to the left of a program's own plates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from ..distributions.edge_weights import NEVER, Component, EdgeWeights, as_component
from ..distributions.unsqueezed import Unsqueezed

if TYPE_CHECKING:
    from .data import FactorAxis

__all__ = ["DECLARED", "correlation", "deterministic", "edges", "factors", "gates", "sample"]

DECLARED = "pyro_sparse"  # key of a site's `infer` dictionary under which its declaration stands
PLATES = 2  # of a program: rows at -2, features at -1


def edges(
    name: str,
    *,
    log_odds: Tensor | float,
    to: FactorAxis,
    slab: dist.TorchDistribution,
    spike: dist.TorchDistribution,
    permitted: Tensor | None = None,
    required: Tensor | None = None,
) -> Tensor:
    r"""Weights of edges from each feature to the factors, inside the plate of features.

    .. math:: w_{jk} \sim \pi_{jk}\,p_\text{slab} + (1 - \pi_{jk})\,p_\text{spike}, \qquad
              \operatorname{logit} \pi_{jk} = \ell_{jk}

    Parameters
    ----------
    name : str
        Of the site.
    log_odds : Tensor or float
        :math:`\ell`, of an edge before the data, broadcast to (feature, factor).
    to : FactorAxis
        `d.factors`.
    slab, spike : Distribution
        `Normal`, `Laplace` or `StudentT` around 0, their scales broadcast to (feature, factor); a spike may
        be a point, `Delta(torch.tensor(0.))`, too. The spike is narrower than the slab.
    permitted, required : Tensor of bool, optional
        Edges that may be there (others have weight 0), and edges that are there, broadcast to (feature,
        factor).

    Returns
    -------
    Tensor (feature, factor)
        Weights.

    References
    ----------
    George and McCulloch (1993), Variable selection via Gibbs sampling, JASA 88, equation (4).
    """
    slab_of, spike_of = _component("slab", slab), _component("spike", spike)
    log_odds = torch.as_tensor(log_odds, dtype=slab_of.scale.dtype)
    for argument, value in (("log_odds", log_odds), ("slab", slab_of.scale), ("spike", spike_of.scale)):
        _check_last_axis(argument, value, to)
    log_odds = _with_plates(log_odds)
    shape = torch.broadcast_shapes(log_odds.shape, slab_of.scale.shape, spike_of.scale.shape, (to.size,))
    density = EdgeWeights(log_odds.expand(shape), slab_of, spike_of, permitted, required)
    weight = pyro.sample(name, density, infer={DECLARED: {"kind": "edges", "to": to.name}})
    weight = _without_plates(weight)
    return weight if permitted is None else weight * permitted


def gates(name: str, *, log_odds: Tensor | float, to: FactorAxis, permitted: Tensor | None = None) -> Tensor:
    r"""0/1 edges from each feature to the factors, inside the plate of features.

    A mechanism multiplies with them.

    .. math:: \gamma_{jk} \sim \operatorname{Bernoulli}\bigl(\operatorname{logit}^{-1} \ell_{jk}\bigr)

    Parameters
    ----------
    name : str
    log_odds : Tensor or float
        Broadcast to (feature, factor).
    to : FactorAxis
        `d.factors`.
    permitted : Tensor of bool, optional
        Edges that may be there.

    Returns
    -------
    Tensor (feature, factor) of 0 and 1
    """
    log_odds = torch.as_tensor(log_odds, dtype=torch.get_default_dtype())
    _check_last_axis("log_odds", log_odds, to)
    log_odds = log_odds.expand(torch.broadcast_shapes(log_odds.shape, (to.size,)))
    log_odds = _with_plates(log_odds)
    if permitted is not None:
        log_odds = torch.where(permitted, log_odds, torch.full_like(log_odds, NEVER))
    density = dist.Bernoulli(logits=log_odds).to_event(1)
    gate = pyro.sample(name, density, infer={DECLARED: {"kind": "gates", "to": to.name}})
    gate = _without_plates(gate)
    return gate if permitted is None else gate * permitted


def factors(name: str, distribution: dist.TorchDistribution) -> Tensor:
    """Latent factors of each row, inside the plate of rows: the last axis is that of the factors.

    It declares an axis that may rotate: chains try rotations of it and of every site that has the axis, and
    factors are matched between chains and restarts.

    Parameters
    ----------
    name : str
    distribution : Distribution
        Of shape (factor,) or (row, factor), independent; or with an event whose last axis is the factors',
        such as (frame, factor), and a batch of nothing or of the rows.

    Returns
    -------
    Tensor (row, factor) or (row, ..., factor)

    Raises
    ------
    ValueError
        It has no axis.
    """
    n_events = max(1, len(distribution.event_shape))
    if not distribution.event_shape:
        if not distribution.batch_shape:
            raise ValueError(
                f"{name}: its distribution is of a single number, wanted one for each factor: "
                "dist.Normal(torch.zeros(d.n_factors), 1.)"
            )
        distribution = distribution.to_event(1)
    batch = distribution.batch_shape
    if batch and batch[-1] != 1:  # rows, at the place of the features
        distribution = Unsqueezed(distribution)
    declared = {"kind": "factors", "axis": "factor"}
    value = pyro.sample(name, distribution, infer={DECLARED: declared})
    outside = value.dim() <= n_events  # of any plate, which chains refuse by its name
    return value if outside else value.squeeze(-n_events - 1)


def correlation(name: str, of: FactorAxis, concentration: Tensor | float = 2.0) -> Tensor:
    r"""Cholesky factor of the factors' correlation matrix: the `scale_tril` of their normal distribution.

    .. math:: C = L L^\top, \qquad p(C) \propto |C|^{c - 1}

    Chains move it together with the axes of the factors, and give back draws of C.

    Parameters
    ----------
    name : str
    of : FactorAxis
        `d.factors`.
    concentration : Tensor or float
        c: 1 is flat over correlation matrices, more is nearer to none.

    Returns
    -------
    Tensor (factor, factor)
        L, lower triangular; of a single factor 1, and no site.

    References
    ----------
    Lewandowski, Kurowicka and Joe (2009), Generating random correlation matrices based on vines and extended
    onion method, Journal of Multivariate Analysis 100(9).
    """
    if of.size == 1:
        return torch.ones(1, 1)
    declared = {"kind": "correlation", "axis": of.name}
    drawn = pyro.sample(name, dist.LKJCholesky(of.size, concentration), infer={DECLARED: declared})
    return _without_unit_plates(drawn, 2)


def sample(
    name: str, distribution: dist.TorchDistribution, *, axes: str | None = None, each: str | None = None
) -> Tensor:
    """`pyro.sample`, of which the last axis of the value may be declared as the factors'.

    Parameters
    ----------
    name : str
    distribution : Distribution
    axes : {"factor"}, optional
        The site's last axis is that of the factors, and rotates with them: effects on factors, say.
    each : {"factor"}, optional
        The site's last axis has one number for each factor, such as its rate of edges: it changes its order
        with the factors and does not rotate.

    Returns
    -------
    Tensor
        Of a site without a plate its event, as is.
    """
    infer = _declared_axis(axes, each)
    drawn = pyro.sample(name, distribution, infer=infer)
    return _without_unit_plates(drawn, len(distribution.event_shape))


def deterministic(name: str, value: Tensor, *, axes: str | None = None, each: str | None = None) -> Tensor:
    """`pyro.deterministic`, of which the last axis of the value may be declared as the factors'.

    What is computed of sites, to be kept among the draws: the rate of each factor that is a product of
    sticks, say. The sticks themselves belong to places and not to factors; do not declare them.

    Parameters
    ----------
    name : str
    value : Tensor
    axes, each : {"factor"}, optional
        As of `sample`.

    Returns
    -------
    Tensor
        The value.
    """
    density = dist.Delta(value, event_dim=value.dim()).mask(False)
    infer = {"_deterministic": True, **_declared_axis(axes, each)}
    drawn: Tensor = pyro.sample(name, density, obs=value, infer=infer)
    return drawn


def _declared_axis(axes: str | None, each: str | None) -> dict[str, Any]:
    """What a site notes of its last axis."""
    for argument, value in (("axes", axes), ("each", each)):
        if value not in (None, "factor"):
            raise ValueError(f"{argument}: want 'factor' (of the last axis) or None, got {value!r}")
    if axes and each:
        raise ValueError(
            "each: a site rotates with the factors or has one number for each; give axes or each"
        )
    kind = "axis" if axes else "each" if each else None
    return {} if kind is None else {DECLARED: {"kind": kind, "axis": axes or each}}


def _without_unit_plates(drawn: Tensor, n_events: int) -> Tensor:
    """(particle, 1, 1, event) of a site without a plate, under a plate of particles, as (particle, event)."""
    plates = drawn.shape[: drawn.dim() - n_events]
    if n_events and len(plates) > PLATES and plates[-PLATES:] == (1,) * PLATES:
        return drawn.reshape(*plates[:-PLATES], *drawn.shape[drawn.dim() - n_events :])
    return drawn


def _check_last_axis(argument: str, value: Tensor, to: FactorAxis) -> None:
    """Complain of numbers of features where those of factors are wanted."""
    if value.dim() and value.shape[-1] not in (1, to.size):
        raise ValueError(
            f"{argument}: has shape {tuple(value.shape)}, wanted (feature, factor) with {to.size} or 1 at "
            "the end; of one number for each feature write value[..., None]"
        )


def _component(name: str, distribution: dist.TorchDistribution) -> Component:
    """A slab or a spike, its numbers (feature, factor) with the plate of rows where there are particles.

    At least of the default precision: chains run in double, and it may have been made outside of the program.
    """
    component = as_component(name, distribution)
    scale, df = component.scale, component.df
    real = torch.promote_types(scale.dtype, torch.get_default_dtype())
    df = _with_plates(df.to(real)) if isinstance(df, Tensor) else df
    return component._replace(scale=_with_plates(scale.to(real)), df=df)


def _with_plates(value: Tensor) -> Tensor:
    """(particle, feature, ...) with the plate of rows between, where there are particles and it is not there.

    It is there in a number of each feature that was drawn in the plate of features.
    """
    batch = value.shape[: value.dim() - 1]
    if len(batch) < PLATES or (len(batch) > PLATES and batch[-PLATES] == 1):
        return value
    return value.unsqueeze(-1 - PLATES)


def _without_plates(value: Tensor) -> Tensor:
    """(particle, 1, feature, ...) without the plate of rows."""
    has = value.dim() - 1 >= PLATES and value.shape[-1 - PLATES] == 1
    return value.squeeze(-1 - PLATES) if has else value
