r"""Joint draws from an expectation propagation fit, made right by weighing them.

Weights are drawn one after the other, from

.. math:: q(w_j, \gamma_j \mid w_{\text{drawn}}) \propto e^{-A w^2/2 + B w}\, p(w \mid \gamma)\, p(\gamma)

with (A, B) what the likelihood, the weights drawn and the sites of those to come say of :math:`w_j`: all
exact but the sites. Several candidates are drawn for each one that is kept, and picked in proportion to
posterior over proposal, where priors cancel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..density.weight import SpikeSlab, edge_summed_out, floor_precision
from .rows import RowDraws

__all__ = ["Target", "sequential_draws"]

_CANDIDATES = 4
_ORDERS = 16  # of the features; a new one for every so many draws

Array = NDArray[np.float64]


class Target(NamedTuple):
    """What draws are drawn by, and what they are weighed by, fit by fit.

    Attributes
    ----------
    gram : ndarray (fit, feature, feature)
    linear : ndarray (fit, feature)
        The likelihood of weights u over the slab's unit is taken for exp(linear'u - u'gram u / 2).
    unit : ndarray (fit,)
        Of the slab's scale.
    log_likelihood : callable
        Of weights (draw, row, feature), the numbers of their fits (draw, row) and a random generator: the
        logarithm of what the likelihood is, less that of its integral, (draw, row).
    """

    gram: Array
    linear: Array
    unit: Array
    log_likelihood: Callable[[Array, NDArray[np.intp], np.random.Generator], Array]


def sequential_draws(
    density: SpikeSlab,
    target: Target,
    tau: Array,
    nu: Array,
    log_odds: Array,
    *,
    weight: Array,
    n: int,
    rng: np.random.Generator,
) -> RowDraws:
    """Edges, and weights over slab scale: (draw, row, feature).

    Parameters
    ----------
    density : SpikeSlab
        Of flat rows, one per fit: level by level, as `weight` of shape (level, row) says how to mix them.
    target : Target
    tau, nu, log_odds : ndarray of shape (fit, feature)
        The fits.
    """
    n_rows = weight.shape[1]
    m = tau.shape[-1]
    edges, weights, ratios = [], [], []
    total = _CANDIDATES * n
    gram, linear, unit = target.gram, target.linear, target.unit
    above = np.cumsum(weight, axis=0)
    for size in np.diff(np.linspace(0, total, min(_ORDERS, total) + 1).astype(int)):
        order = rng.permutation(m)
        level = (rng.random((size, n_rows)) * above[-1] > above[:-1, None]).sum(0)
        fit = level * n_rows + np.arange(n_rows)
        full = gram[:, order][:, :, order].copy()
        full[:, np.arange(m), np.arange(m)] += tau[:, order]
        lower = np.linalg.cholesky(full)
        shift = np.linalg.solve(lower, (linear + nu)[:, order, None])[..., 0]
        lower, shift = lower[fit], shift[fit]
        w, edge = np.zeros((size, n_rows, m)), np.zeros((size, n_rows, m), dtype=bool)
        ratio = np.zeros((size, n_rows))
        for k in range(m - 1, -1, -1):
            j = order[k]
            corner = lower[..., k, k]
            a = floor_precision(corner**2 - tau[fit, j])
            pull = shift[..., k] - (lower[..., k + 1 :, k] * w[..., order[k + 1 :]]).sum(-1)
            b = corner * pull - nu[fit, j]
            of_feature = density._replace(ratio=density.ratio[fit, j])
            log_norm, prob = edge_summed_out(of_feature, a, b, log_odds[fit, j])
            edge[..., j] = rng.random(a.shape) < prob
            w[..., j] = x = of_feature.draw(a, b, edge[..., j], rng)
            ratio += log_norm + 0.5 * a * x**2 - b * x
        ratio += target.log_likelihood(w, fit, rng)
        edges.append(edge)
        weights.append(w * unit[fit][..., None])
        ratios.append(ratio)
    keep = _picked(np.concatenate(ratios), n, rng)
    row = np.arange(n_rows)
    return RowDraws(np.concatenate(edges)[keep, row].astype(np.int8), np.concatenate(weights)[keep, row])


def _picked(ratio: Array, n: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """n of the candidates of each row, shape (n, row), systematically resampled in random order."""
    p = np.exp(ratio - ratio.max(0))
    above = np.cumsum(p, axis=0) / p.sum(0)
    at = (np.arange(n)[:, None] + rng.random(p.shape[1])) / n
    picked = np.stack([np.searchsorted(c, u) for c, u in zip(above.T, at.T, strict=True)], axis=1)
    return rng.permuted(picked.clip(max=len(p) - 1), axis=0)
