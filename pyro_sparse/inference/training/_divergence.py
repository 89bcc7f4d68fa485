r"""Divergence of a row's guide from the factors' prior, whatever that is, by the same draws for every row.

.. math:: KL(q \| p) = E_{z \sim q}[\log q(z) - \log p(z)]
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Distribution, kl_divergence

from ...distributions import FullNormal

__all__ = ["balanced_draws", "divergence", "draw_at"]

_PAIRS = 16  # antithetic draws where there is no closed form: a few hundredths of a nat a row


def divergence(q: Distribution, prior: Distribution) -> Tensor:
    """In closed form where there is one; else an average over draws that are the same for all rows.

    Parameters
    ----------
    q : Distribution
        Gaussian, batch (restart, row), event (factor,).
    prior : Distribution
        Of the same event, batch (restart, 1).

    Returns
    -------
    Tensor of shape (restart, row)
        In nats; differentiable.
    """
    try:
        return kl_divergence(q, prior)
    except NotImplementedError:  # a model's own `factor_prior`
        half = balanced_draws(_PAIRS, _PAIRS, q.mean)
        draws = [draw_at(q, noise) for noise in torch.cat([half, -half])]
        return torch.stack([q.log_prob(z) - prior.log_prob(z) for z in draws]).mean(0)


def balanced_draws(n: int, balanced: int, like: Tensor) -> Tensor:
    """Draws of a standard normal vector, the same whenever they are asked for: scrambled Sobol points.

    Parameters
    ----------
    n : int
    balanced : int
        So many in a row have mean squares of 1, so that no standard deviation runs away.
    like : Tensor (..., factor)
        Says how many factors, and device and type.

    Returns
    -------
    Tensor of shape (n, factor)
    """
    engine = torch.quasirandom.SobolEngine(like.shape[-1], scramble=True, seed=0)
    tail = 2.0**-31  # half the distance of two points: 0 may be one
    z = torch.special.ndtri(
        engine.draw(-(-n // balanced) * balanced, dtype=torch.float64).clamp(tail, 1 - tail)
    )
    z = z.unflatten(0, (-1, balanced))
    return (z / z.square().mean(1, keepdim=True).sqrt()).flatten(0, 1)[:n].to(like)


def draw_at(q: Distribution, noise: Tensor) -> Tensor:
    """The draw of a Gaussian that standard normal noise becomes.

    Parameters
    ----------
    q : Distribution
        Independent normals or a `FullNormal`.
    noise : Tensor (factor,) or (restart, row, factor)
    """
    if isinstance(q, FullNormal):
        return q.loc + (q.factor @ noise.unsqueeze(-1)).squeeze(-1)
    return q.mean + q.stddev * noise
