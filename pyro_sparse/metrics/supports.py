"""Did the fit find the true graph? F1 and Hamming distance of supports, SHD, false discoveries.

Factor columns are matched first, by the caller's permutation or by the most edges in common.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment

from pyro_sparse.metrics._check import edges_of, graph_pair, matching_of, same_rows

__all__ = ["SupportScores", "fdp", "shd", "support_scores"]


class SupportScores(NamedTuple):
    """Agreement of two 0/1 supports after matching columns.

    Parameters
    ----------
    f1, precision, recall : float
        Of the edges, in [0, 1].
    hamming : int
        Number of cells that differ.
    permutation : ndarray of int, shape (K,)
        The estimated column matched to each true one; -1 where none was left.
    """

    f1: float
    precision: float
    recall: float
    hamming: int
    permutation: np.ndarray


def support_scores(
    true: ArrayLike, estimated: ArrayLike, permutation: ArrayLike | None = None
) -> SupportScores:
    """F1, precision, recall and Hamming distance of two feature-by-factor supports after matching columns.

    Edges of unmatched estimated columns count as false, edges of unmatched true columns as missed.

    Parameters
    ----------
    true : array_like of shape (G, K)
        Non-zero where there is an edge.
    estimated : array_like of shape (G, L)
        Likewise.
    permutation : array_like of shape (K,), optional
        Estimated column of each true column (-1: none), such as `mcc(...).permutation`. By default the
        matching with most edges in common, which is also the one of least Hamming distance.

    Returns
    -------
    SupportScores
        Two empty supports agree perfectly (F1 = 1).

    Raises
    ------
    ValueError
        If the features differ in number, an entry is NaN, or the permutation is no matching.
    """
    truth, estimate = same_rows(edges_of(true, "true"), edges_of(estimated, "estimated"), "true", "estimated")
    k = truth.shape[1]
    if permutation is None:
        matching = np.full(k, -1)
        rows, columns = linear_sum_assignment(-(truth.T.astype(float) @ estimate.astype(float)))
        matching[rows] = columns
    else:
        matching = matching_of(permutation, k, estimate.shape[1], "columns")
    kept = matching >= 0
    hits = int((truth[:, kept] * estimate[:, matching[kept]]).sum())
    n_true, n_found = int(truth.sum()), int(estimate.sum())
    f1 = 2 * hits / (n_true + n_found) if n_true + n_found else 1.0
    precision = hits / n_found if n_found else float(n_true == 0)
    recall = hits / n_true if n_true else 1.0
    return SupportScores(f1, precision, recall, n_true + n_found - 2 * hits, matching)


def shd(
    true: ArrayLike, estimated: ArrayLike, permutation: ArrayLike | None = None, reversal: int = 2
) -> int:
    """Structural Hamming distance of two directed graphs: edges to add or take away.

    Parameters
    ----------
    true, estimated : array_like of shape (K, M)
        Non-zero where there is an edge. Square graphs are factor by factor; others (factor by action) have
        only their rows permuted.
    permutation : array_like of shape (K,), optional
        Estimated factor of each true one; default: the given order.
    reversal : {1, 2}
        Price of an edge that points the wrong way in a square graph: 2 (one to remove, one to add) or 1.

    Returns
    -------
    int
        The distance.

    Raises
    ------
    ValueError
        If shapes differ, an entry is NaN, or `permutation` is not a permutation of the rows.
    """
    truth, estimate = graph_pair(true, estimated)
    if reversal not in (1, 2):
        raise ValueError(f"reversal={reversal} must be 1 or 2")
    square = truth.shape[0] == truth.shape[1]
    if permutation is not None:
        order = np.asarray(permutation, dtype=int)
        if not np.array_equal(np.sort(order), np.arange(len(truth))):
            raise ValueError(f"permutation={order.tolist()} is not a permutation of {len(truth)} rows")
        estimate = estimate[order][:, order] if square else estimate[order]
    distance = int((truth != estimate).sum())
    if square and reversal == 1:
        turned = (truth & ~estimate) & (estimate & ~truth).T
        distance -= int(turned.sum())
    return distance


def fdp(true: ArrayLike, selected: ArrayLike) -> float:
    """False discovery proportion: the share of selected edges that are not there (0 when none is selected).

    Parameters
    ----------
    true, selected : array_like of the same shape
        Non-zero for an edge, and for a selected edge. Match factors first.

    Returns
    -------
    float
        Value in [0, 1].

    Raises
    ------
    ValueError
        If shapes differ, or an entry is NaN.
    """
    truth, chosen = edges_of(true, "true"), edges_of(selected, "selected")
    if truth.shape != chosen.shape:
        raise ValueError(f"true has shape {truth.shape}, selected {chosen.shape}: want the same")
    return float((chosen & ~truth).sum() / max(int(chosen.sum()), 1))
