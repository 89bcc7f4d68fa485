r"""The inclusion rate, integrated out: what edges that share it say of each other.

Were the edges independent given the data, with Bayes factors :math:`B_i`, the rate's posterior would be

.. math:: p(\eta \mid y) \propto \mathrm{Beta}(\eta; a, b) \prod_i (1 - \eta + \eta B_i)

A shared rate is summarised by it (leaving out one edge at a time); the rate of a single row is given levels
where it has its mass.
"""

from __future__ import annotations

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from scipy.special import betaln, logit, logsumexp

from .ep_sites import Odds
from .row_checks import pooled
from .rows import RowPrior

__all__ = ["collapsed", "rate_levels"]

_GRID = np.linspace(-10, 10, 61)  # of the rate's logit, in standard deviations
_WIDER = 1.25  # edges are not independent: the rate is less well known than if they were
_SURE = 1e-12  # probabilities closer to 0 or 1 are as good as that

Array = NDArray[np.float64]


def collapsed(prior: RowPrior, shape: tuple[int, ...]) -> Odds:
    r"""Log odds of each edge a priori, given what the data say of those that share its rate.

    :math:`E[\eta] / E[1 - \eta]` under :math:`\mathrm{Beta}(\eta) \prod_i (1 - \eta + \eta B_i)` over the
    others, with B their Bayes factors.
    """
    (a, b), over = prior.eta_prior, prior.eta_over

    def odds(prob: Array, log_odds: Array) -> Array:
        p = prob.reshape(shape)
        bayes = _logit(p) - log_odds.reshape(shape)
        centre, sd = _rate_logit(p, prior)
        z = centre + sd * _GRID.reshape(-1, *(1 for _ in shape))
        edge, none = -np.logaddexp(0, -z), -np.logaddexp(0, z)
        term = np.logaddexp(none, edge + bayes)
        cavity = a * edge + b * none + np.stack([pooled(t, over)[0] for t in term]) - term
        return (logsumexp(cavity + edge, axis=0) - logsumexp(cavity + none, axis=0)).reshape(prob.shape)

    return odds


def _rate_logit(p: Array, prior: RowPrior) -> tuple[Array, Array]:
    """Centre and spread of the logit of the rate, were the edges independent; one for all that share it."""
    a, b = prior.eta_prior
    n_edges, size = pooled(p, prior.eta_over)
    mean = (a + n_edges) / (a + b + size)
    unsure, _ = pooled(p * (1 - p), prior.eta_over)
    var = mean * (1 - mean) / (a + b + size + 1) + unsure / (a + b + size) ** 2
    return _logit(mean), _WIDER * np.sqrt(var) / (mean * (1 - mean))


def rate_levels(p: Array, prior: RowPrior, count: int) -> tuple[Array, Array]:
    """Levels of the rate's log odds, shape (level, row), by Gauss-Hermite; the log of their prior mass."""
    a, b = prior.eta_prior
    centre, sd = (v[:, 0] for v in _rate_logit(p, prior))
    node, mass = hermegauss(count)
    z = centre + sd * node[:, None]
    density = -a * np.logaddexp(0, -z) - b * np.logaddexp(0, z) - betaln(a, b)
    return z, density + np.log(mass)[:, None] + 0.5 * node[:, None] ** 2 + np.log(sd)


def _logit(p: Array) -> Array:
    return logit(np.clip(p, _SURE, 1 - _SURE))
