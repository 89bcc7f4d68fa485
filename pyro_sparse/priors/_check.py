"""What a prior returns, looked at once before a fit trains on it, so that a slip in it shows at once."""

from __future__ import annotations

import torch
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor

from .base import Prior

__all__ = ["check_prior"]


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
        What they return has another shape than the weights, or edge odds are not numbers.
    """
    name, shape = type(prior).__name__, torch.Size(prior.shape)
    law = prior.distribution()
    if not isinstance(law, TorchDistributionMixin):
        raise TypeError(
            f"{name}.distribution() returned {_kind(law)}; want the Pyro distribution of one weight, such as "
            "pyro.distributions.Laplace(0.0, 1.0)"
        )
    try:
        fits = not law.event_shape and torch.broadcast_shapes(law.batch_shape, shape) == shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"{name}.distribution() has batch shape {tuple(law.batch_shape)} and event shape "
            f"{tuple(law.event_shape)}; want a batch shape that broadcasts to (restart, feature, factor) = "
            f"{tuple(shape)}, and event shape ()"
        )
    weights = torch.full(shape, 0.5, device=prior.allowed.device)
    weights[:, ::2] = 0.0
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


def _kind(thing: object) -> str:
    kind = type(thing)
    return "None" if thing is None else f"a {kind.__module__.split('.')[0]} {kind.__name__}"
