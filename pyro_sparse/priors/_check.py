"""What a prior returns, looked at once before a fit trains on it, so that a slip in it shows at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyro
import torch
from pyro import poutine
from pyro.distributions import Delta
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor
from torch.distributions import Distribution

from .._utils.torch_state import undisturbed
from .base import Prior

__all__ = ["check_prior", "point_mass"]


@torch.no_grad()
def check_prior(prior: Prior) -> None:
    """Complain of a density or of edge odds that a fit cannot use.

    Parameters
    ----------
    prior : Prior
        Set up.

    Raises
    ------
    TypeError
        `distribution` returns no Pyro distribution, or `edge_log_odds` neither a tensor nor None.
    ValueError
        What they return has another shape than the weights, or edge odds are not numbers; slab or spike has
        mass at single points; `log_density` is not the density of the prior's program.
    """
    name, shape = type(prior).__name__, torch.Size(prior.shape)
    distribution = prior.distribution()
    if not isinstance(distribution, TorchDistributionMixin):
        raise TypeError(
            f"{name}.distribution() returned {_kind(distribution)}; want the Pyro distribution of one "
            "weight, such as pyro.distributions.Laplace(0.0, 1.0)"
        )
    try:
        fits = not distribution.event_shape and np.broadcast_shapes(distribution.batch_shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"{name}.distribution() has batch shape {tuple(distribution.batch_shape)} and event shape "
            f"{tuple(distribution.event_shape)}; want a batch shape that broadcasts to "
            f"(restart, feature, factor) = {tuple(shape)}, and event shape ()"
        )
    # half of them exact zeros, as a fit's weights are
    weights = torch.full(shape, 0.5, device=prior.allowed.device)
    weights[:, ::2] = 0.0
    if not type(prior).__module__.startswith("pyro_sparse."):
        _refuse_points(prior)
        _refuse_two_densities(prior, weights + 0.1)  # a density may have a pole at zero
    odds = prior.edge_log_odds(weights)
    if odds is None:
        return
    if not isinstance(odds, Tensor):
        raise TypeError(
            f"{name}.edge_log_odds(weights) returned {_kind(odds)}; want a tensor of the shape of weights "
            "or None"
        )
    if odds.shape != shape:
        raise ValueError(
            f"{name}.edge_log_odds(weights) has shape {tuple(odds.shape)}; want that of weights, "
            f"(restart, feature, factor) = {tuple(shape)}"
        )
    if bool(odds.isnan().any()):
        at = float(weights[odds.isnan()][0])
        raise ValueError(
            f"{name}.edge_log_odds(weights) is NaN where a weight is {at:g}; want the log odds that the edge "
            "is there, or None instead of a tensor if the prior has none"
        )


def _refuse_points(prior: Prior) -> None:
    """Complain of slab or spike with mass at single points: no density has an answer to what lies there."""
    components = prior.components()
    for role, component in zip(("slab", "spike"), components or (), strict=False):
        if point_mass(component):
            raise ValueError(
                f"prior: the {role} of {type(prior).__name__}.components() is a {type(component).__name__} "
                "with mass at single points, and a weight that is not exactly there would always be of the "
                "other component; want a narrow density, such as Laplace(0.0, 0.01)"
            )


def point_mass(distribution: Distribution) -> bool:
    """Whether a distribution has mass at single points.

    Parameters
    ----------
    distribution : torch.distributions.Distribution
    """
    base: Any = distribution  # torch types `support` as optional
    while (inner := getattr(base, "base_dist", None)) is not None:
        base = inner
    try:
        return isinstance(base, Delta) or bool(base.support.is_discrete)
    except (NotImplementedError, AttributeError):  # it says nothing of its support
        return False


def _refuse_two_densities(prior: Prior, weights: Tensor) -> None:
    """Complain if what a fit may train by, `log_density`, is not the density of the prior's program.

    A program that draws more than the weights has no such sum, and is not looked at.
    """
    with undisturbed(0), pyro.plate("restart", prior.n_restarts, dim=-1):
        trace = poutine.trace(poutine.condition(prior, {prior.site: weights})).get_trace()
    trace.compute_log_prob()
    if set(trace.nodes) - {"_INPUT", "_RETURN", "restart", prior.site, prior.hyper_site}:
        return
    declared, density = trace.nodes[prior.site]["log_prob"], prior.log_density(weights)
    if density.shape != declared.shape or not torch.allclose(density, declared, rtol=1e-3, atol=1e-3):
        name, at = type(prior).__name__, float(weights.flatten()[0])
        stated, wanted = (float(values.flatten()[0]) for values in (density, declared))
        raise ValueError(
            f"prior: {name}.log_density(weights) is {stated:.6g}, and its program, which draws from "
            f"distribution(), has log density {wanted:.6g} at the same weights (the first is {at:g}): a fit "
            "would train by one and declare the other; write distribution() alone, or both alike"
        )


def _kind(thing: object) -> str:
    kind = type(thing)
    return "None" if thing is None else f"a {kind.__module__.split('.')[0]} {kind.__name__}"
