r"""A move of Markov chains that exchanges factors: between modes that ordinary sweeps never leave.

An anchor feature sees one factor only and so says which factor is which; a weak one says it softly.
Exchanging two factors everywhere but in the rows of anchors leaves all other features as well explained as
before, so that only the anchors are asked, each with its own weight summed out:

.. math:: \log\frac{p(x_{\mathrm{anchors}} \mid z_{\pi})}{p(x_{\mathrm{anchors}} \mid z)} =
          \sum_k E_{k \pi(k)} - E_{kk}, \qquad E_{kl} = \sum_{j \text{ anchors } k} \log \int
          p(x_j \mid w z_l)\, \psi_1(w)\, dw
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Anchors", "anchors_of", "exchanged"]

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
        Factors that differ in their anchors only.
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
        a and b of the inclusion rates; factors with different priors keep their places.
    edge_offset : ndarray (feature, factor), optional
        Log odds of single edges; likewise.
    """
    single = (permitted.sum(1) == 1) & (must == permitted).all(1)
    rows = np.flatnonzero(single)
    factors = permitted[rows].argmax(1)
    believed = [] if edge_offset is None else [edge_offset]
    profiles = np.concatenate([permitted[~single], must[~single], np.stack(rates), *believed])
    k = permitted.shape[1]
    pairs = [
        (i, j)
        for i in range(k)
        for j in range(i)
        if np.array_equal(profiles[:, i], profiles[:, j]) and np.isin([i, j], factors).any()
    ]
    return Anchors(rows, factors, np.array(pairs, dtype=np.intp).reshape(-1, 2))


def exchanged(
    evidence: Array, moment: Array, precision: Array, pairs: NDArray[np.intp], rng: np.random.Generator
) -> NDArray[np.intp]:
    """Order of the factors of each chain, (chain, factor), after Metropolis exchanges of two at a time.

    Parameters
    ----------
    evidence : ndarray (chain, factor, factor)
        E: anchors of the first factor, if they saw the values of the second.
    moment : ndarray (chain, factor, factor)
        Z'Z.
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
