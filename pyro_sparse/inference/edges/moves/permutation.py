r"""A move of Markov chains that exchanges factors: between modes that ordinary sweeps never leave.

Exchanging two factors everywhere leaves the likelihood as it is. What says which factor is which are anchors
(features that see one factor only, softly where they are weak), odds of single edges, and rates with priors
of their own. So only these are asked: each anchor with its weight summed out, the edges of a factor at the
odds of its new place,

.. math:: \log\frac{p(x_{\mathrm{anchors}}, \gamma_\pi, \eta_\pi \mid z_{\pi})}
          {p(x_{\mathrm{anchors}}, \gamma, \eta \mid z)} = \sum_k E_{k \pi(k)} - E_{kk}, \qquad
          E_{kl} = \sum_{j \text{ anchors } k} \log \int p(x_j \mid w z_l)\, \psi_1(w)\, dw
          + \sum_j \log p(\gamma_{jl} \mid \eta_l, o_{jk}) + \log p_k(\eta_l)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Anchors", "anchors_of", "exchanged", "prior_of_places"]

Array = NDArray[np.float64]
_TRIES = 10  # exchanges proposed for each factor in one move


class Anchors(NamedTuple):
    """Rows that see one factor only, and which factors may change places.

    Attributes
    ----------
    rows : ndarray of int (anchor,)
        Features.
    factors : ndarray of int (anchor,)
        The factor each of them sees.
    pairs : ndarray of int (pair, 2)
        Factors that differ in their anchors, in the odds of their edges or in the priors of their rates, and
        in nothing else.
    """

    rows: NDArray[np.intp]
    factors: NDArray[np.intp]
    pairs: NDArray[np.intp]


def anchors_of(
    permitted: NDArray[np.bool_],
    must: NDArray[np.bool_],
    rates: tuple[Array, Array],
    edge_offset: Array | None = None,
) -> Anchors:
    """Anchors, and pairs of factors that can be exchanged.

    Parameters
    ----------
    permitted, must : ndarray of bool (feature, factor)
    rates : tuple of ndarray (factor,)
        a and b of the inclusion rates.
    edge_offset : ndarray (feature, factor), optional
        Log odds of single edges.
    """
    single = (permitted.sum(1) == 1) & (must == permitted).all(1)
    rows = np.flatnonzero(single)
    factors = permitted[rows].argmax(1)
    fixed = np.concatenate([permitted[~single], must[~single]])
    believed = np.stack(rates) if edge_offset is None else np.concatenate([np.stack(rates), edge_offset])
    k = permitted.shape[1]
    pairs = [
        (i, j)
        for i in range(k)
        for j in range(i)
        if np.array_equal(fixed[:, i], fixed[:, j])
        and (np.isin([i, j], factors).any() or not np.array_equal(believed[:, i], believed[:, j]))
    ]
    return Anchors(rows, factors, np.array(pairs, dtype=np.intp).reshape(-1, 2))


def prior_of_places(
    edge: NDArray[np.bool_],
    log_odds: Array,
    free: NDArray[np.bool_],
    rates: tuple[Array, Array],
    shared: bool,
    edge_offset: Array | None = None,
) -> Array:
    """Log prior of each factor's edges and rate if it took the place of another, (chain, place, factor).

    Of factors that differ as `anchors_of` lets pairs differ; up to a constant for each factor.

    Parameters
    ----------
    edge : ndarray of bool (chain, feature, factor)
    log_odds : ndarray (chain, 1, factor)
        Of the inclusion rates, which go with their factors.
    free : ndarray of bool (feature, factor)
        Edges that may be there or not.
    rates : tuple of ndarray (factor,)
        a and b.
    shared : bool
        One rate for the whole graph.
    edge_offset : ndarray (feature, factor), optional
        Log odds of single edges beside those of their factor.
    """
    n, _, k = edge.shape
    level = np.zeros((n, k, k))
    if edge_offset is not None:
        for place in range(k):
            rows = free[:, place]
            odds = log_odds + edge_offset[rows, place, None]  # chain, feature, factor
            level[:, place] += (edge[:, rows] * odds - np.logaddexp(0, odds)).sum(1)
    if not shared:
        a, b = (np.broadcast_to(rate, (k,))[:, None] for rate in rates)
        level -= (a - 1) * np.logaddexp(0, -log_odds) + (b - 1) * np.logaddexp(0, log_odds)
    return level


def exchanged(
    evidence: Array, moment: Array, precision: Array, pairs: NDArray[np.intp], rng: np.random.Generator
) -> NDArray[np.intp]:
    """Order of the factors of each chain, (chain, factor), after Metropolis exchanges of two at a time.

    Parameters
    ----------
    evidence : ndarray (chain, factor, factor)
        E: of the second factor in the place of the first.
    moment : ndarray (chain, factor, factor)
        Z'Z; zeros where the factors' prior is exchanged with them.
    precision : ndarray (chain or 1, factor, factor)
        Of the factors' prior.
    pairs : ndarray of int (pair, 2)
    rng : numpy.random.Generator
    """
    n, k = evidence.shape[:2]
    precision = np.broadcast_to(precision, evidence.shape)
    order = np.tile(np.arange(k), (n, 1))
    level = _level(evidence, moment, precision, order)
    chain = np.arange(n)
    for _ in range(_TRIES * k):
        i, j = pairs[rng.integers(len(pairs), size=n)].T
        swapped = order.copy()
        swapped[chain, i], swapped[chain, j] = order[chain, j], order[chain, i]
        new = _level(evidence, moment, precision, swapped)
        yes = np.log(rng.random(n)) < new - level
        order, level = np.where(yes[:, None], swapped, order), np.where(yes, new, level)
    return order


def _level(evidence: Array, moment: Array, precision: Array, order: NDArray[np.intp]) -> Array:
    log_evidence = np.take_along_axis(evidence, order[..., None], -1)[..., 0].sum(-1)
    turned = np.take_along_axis(np.take_along_axis(moment, order[..., None], 1), order[:, None], 2)
    return log_evidence - 0.5 * (turned * precision).sum((-1, -2))
