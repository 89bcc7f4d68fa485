"""Did the fit find the mechanisms? R_con (latents, up to the mixing that the theory allows) and SHD (graphs).

Both compare learned latents with true ones in one order: ``permutation[i]`` is the learned latent that stands
for the true latent i, as `mcc` returns it. R_con takes that order; SHD also asks for the one that fits best.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import quadratic_assignment

from pyro_sparse.metrics._check import graph_pair, matching_of, rows_and_test_rows
from pyro_sparse.metrics.factors import mcc, root_r2

__all__ = ["MechanismSHD", "mechanism_shd", "r_con"]

_CELLS = 10_000_000  # of the table behind the search, 4 bytes each


class MechanismSHD(NamedTuple):
    """Structural Hamming distance of action and time graphs, in the given order and in the best one.

    Parameters
    ----------
    value : int
        False plus missed edges in the given order.
    best : int
        In the best order found.
    permutation : ndarray of int, shape (K,)
        That order: the estimated latent of each true one.
    exact : bool
        Whether no order at all is better (the search was exhaustive).
    """

    value: int
    best: int
    permutation: np.ndarray
    exact: bool


def r_con(
    z_true: ArrayLike,
    z_hat: ArrayLike,
    consistency: ArrayLike,
    permutation: ArrayLike | None = None,
    z_true_test: ArrayLike | None = None,
    z_hat_test: ArrayLike | None = None,
) -> float:
    r"""How well each true latent is predicted, linearly, by the learned ones that it may be mixed with.

    .. math:: R_{con} = \frac1K\sum_i \sqrt{\max(0, R^2_i)}

    with :math:`R^2_i` that of the least squares of :math:`z_i` on an intercept and on
    :math:`\{\hat z_{\pi(j)} : C_{ij} = 1\}`. It is MCC if C is the identity and the same rows are scored, R
    (`r_score`) if C is full, and in between elsewhere: 1 says that nothing is mixed that theory can separate.

    Parameters
    ----------
    z_true, z_hat : array_like of shape (N, K) and (N, L)
        Latents the regression is fitted on.
    consistency : array_like of bool, shape (K, K)
        ``pyro_sparse.graphs.consistency`` of the *true* graphs.
    permutation : array_like of int, shape (K,), optional
        Learned latent of each true one (-1: none). By default that of `mcc` on the rows of the fit.
    z_true_test, z_hat_test : array_like of shape (M, K) and (M, L), optional
        Latents it is scored on; by default the same rows.

    Returns
    -------
    float
        Value in [0, 1].

    Raises
    ------
    ValueError
        If shapes do not fit, only one test array is given, a latent is not consistent with itself, or
        `permutation` repeats a learned latent or names one that is not there.

    References
    ----------
    Lachapelle et al. (2024), section on experiments.

    Examples
    --------
    >>> z = np.random.default_rng(0).standard_normal((200, 2))
    >>> learned = z @ [[1.0, 0.0], [1.0, 1.0]]  # the first learned latent has some of the second
    >>> round(r_con(z, learned, [[1, 1], [0, 1]]), 3), r_con(z, learned, np.eye(2)) < 0.95
    (1.0, True)
    """
    true, hat, test_true, test_hat = rows_and_test_rows(z_true, z_hat, z_true_test, z_hat_test)
    k = true.shape[1]
    allowed = np.asarray(consistency) != 0
    if allowed.shape != (k, k) or not allowed.diagonal().all():
        raise ValueError(
            f"consistency: want shape {(k, k)} with a true diagonal, got shape {allowed.shape}; "
            "make it with pyro_sparse.graphs.consistency from the true graphs"
        )
    order = matching_of(mcc(true, hat).permutation if permutation is None else permutation, k, hat.shape[1])
    scores = []
    for i in range(k):
        columns = order[allowed[i] & (order >= 0)]
        scores.append(root_r2(true[:, [i]], hat[:, columns], test_true[:, [i]], test_hat[:, columns]))
    return float(np.mean(scores))


def mechanism_shd(
    true_a: ArrayLike | None = None,
    estimated_a: ArrayLike | None = None,
    true_z: ArrayLike | None = None,
    estimated_z: ArrayLike | None = None,
    permutation: ArrayLike | None = None,
) -> MechanismSHD:
    r"""Edges to add or take away in the action and time graphs, which share one order of the latents.

    .. math::

        \mathrm{SHD}(\pi) = \sum_{i\ell} |G^a_{i\ell} - \hat G^a_{\pi(i)\ell}|
            + \sum_{ik} |G^z_{ik} - \hat G^z_{\pi(i)\pi(k)}|

    Latents are permuted, actions never, even if there are as many of both. The published figures take
    :math:`\pi` from `mcc`; the best order differs where correlations mislead it. On a graph of self-loops
    alone every order costs the same, so that its SHD says nothing about the latents.

    **Search.** Pairwise swaps from `permutation` until none helps, then branch and bound: orders are built
    latent by latent, and given up once they must cost as much as the best known. That is exact as long as the
    partial orders alive at once fit into 40 MB, which they do up to 8 latents, and nearly always at 10; else
    the cheapest of them go on, and `exact` is False.

    Parameters
    ----------
    true_a, estimated_a : array_like of shape (K, M), optional
        Non-zero where the action (column) drives the latent (row).
    true_z, estimated_z : array_like of shape (K, K), optional
        Non-zero where the latent of the column drives that of the row.
    permutation : array_like of int, shape (K,), optional
        Estimated latent of each true one, such as ``mcc(...).permutation``; default: the given order.

    Returns
    -------
    MechanismSHD

    Raises
    ------
    ValueError
        If no pair of graphs is given, half a pair is, shapes differ, an entry is NaN, or `permutation` is
        none.

    References
    ----------
    Lachapelle et al. (2024), section on experiments.

    Examples
    --------
    >>> true = np.tril(np.ones((3, 3)))
    >>> shd = mechanism_shd(true_z=true, estimated_z=true[::-1, ::-1])
    >>> shd.value, shd.best, shd.permutation, shd.exact
    (6, 0, array([2, 1, 0]), True)
    """
    truth, guess = _joint(true_a, estimated_a, true_z, estimated_z)
    k = len(truth)
    order = np.arange(k) if permutation is None else np.asarray(permutation, dtype=int)
    if not np.array_equal(np.sort(order), np.arange(k)):
        raise ValueError(f"permutation={order.tolist()} is not a permutation of {k} latents")
    best, exact, better = order, False, True
    while better and not exact:  # a cheaper order leaves less to search for the next
        best = _swap(truth, guess, best)
        cheaper, exact = _branch_and_bound(truth, guess, _distance(truth, guess, best))
        better = cheaper is not None
        best = best if cheaper is None else cheaper
    return MechanismSHD(_distance(truth, guess, order), _distance(truth, guess, best), best, exact)


def _joint(
    true_a: ArrayLike | None,
    estimated_a: ArrayLike | None,
    true_z: ArrayLike | None,
    estimated_z: ArrayLike | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Both graphs side by side, [G^z, G^a] of shape (K, K + M), for truth and estimate."""
    sides: list[list[np.ndarray]] = [[], []]
    for name, true, estimated in (("z", true_z, estimated_z), ("a", true_a, estimated_a)):
        if (true is None) != (estimated is None):
            raise ValueError(f"true_{name} and estimated_{name} go together: give both or neither")
        if true is not None and estimated is not None:
            pair = graph_pair(true, estimated, f"true_{name}", f"estimated_{name}")
            if name == "z" and pair[0].shape[0] != pair[0].shape[1]:
                raise ValueError(f"true_z: want a square graph of latents, got shape {pair[0].shape}")
            for side, graph in zip(sides, pair, strict=True):
                side.append(graph)
    if not sides[0]:
        raise ValueError("true_a, true_z: want at least one graph with its estimate, got none")
    if true_z is None:  # no edges there to disagree on
        empty = np.zeros((len(sides[0][0]),) * 2, dtype=bool)
        sides = [[empty, *side] for side in sides]
    if len({len(graph) for graph in sides[0]}) > 1:
        raise ValueError(f"true_a has {len(sides[0][1])} latents, true_z {len(sides[0][0])}: want the same")
    return np.hstack(sides[0]), np.hstack(sides[1])


def _distance(truth: np.ndarray, guess: np.ndarray, order: np.ndarray) -> int:
    k = len(truth)
    return int((truth[:, :k] != guess[order][:, order]).sum() + (truth[:, k:] != guess[order, k:]).sum())


def _swap(truth: np.ndarray, guess: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Swap pairs until no swap helps: graph matching with the actions as nodes that stay where they are."""
    k, nodes = truth.shape
    true, estimated = (np.vstack([g, np.zeros((nodes - k, nodes))]) for g in (truth, guess))
    fixed = np.repeat(np.arange(k, nodes)[:, None], 2, axis=1)
    options: dict[str, object] = {
        "maximize": True,  # edges in common
        "partial_match": fixed,
        "partial_guess": np.column_stack([np.arange(k), order]),
        "rng": np.random.default_rng(0),  # nothing is left to draw; without it SciPy looks at the global one
    }
    order = quadratic_assignment(true, estimated, method="2opt", options=options).col_ind
    return order[:k]


def _branch_and_bound(truth: np.ndarray, guess: np.ndarray, bound: int) -> tuple[np.ndarray | None, bool]:
    """The cheapest order that costs less than `bound`, if there is one; and whether all were looked at.

    `prices[n, m, c]` is what partial order n has to pay for giving the estimate c to the true latent m:
    actions, self-loop, and edges to and from the latents that have theirs. The cheapest c of each m bounds
    what is ahead.
    """
    k = len(truth)
    width = max(1, _CELLS // k**2)
    steps = np.argsort(
        -(truth.sum(1) + truth[:, :k].sum(0)), kind="stable"
    )  # many edges first: they tell most
    fixed_prices = (truth[:, None, k:] != guess[None, :, k:]).sum(-1) + (
        truth.diagonal()[:, None] != guess.diagonal()[None, :]
    )
    prices, costs, orders = (
        fixed_prices[None].astype(np.int32),
        np.zeros(1, dtype=np.int32),
        np.zeros((1, k), dtype=int),
    )
    exact = True
    for done, i in enumerate(steps, start=1):
        left = steps[done:]
        least = costs[:, None] + prices[:, i] + prices[:, left].min(-1).sum(-1)[:, None]
        parent, latent = np.nonzero(least < bound)
        if len(parent) > width:
            exact = False
            kept = np.argsort(least[parent, latent], kind="stable")[:width]
            parent, latent = parent[kept], latent[kept]
        costs, orders = costs[parent] + prices[parent, i, latent], orders[parent]
        orders[:, i] = latent
        out = truth[i, None, :k, None] != guess[:, None, :k]  # (latent, m, c): edge from m or c to i
        back = truth[None, :, i, None] != guess[:, :k].T[:, None]  # and from i
        prices = prices[parent] + out[latent] + back[latent]
        prices[np.arange(len(latent)), :, latent] = bound  # taken
    return (orders[np.argmin(costs)] if len(costs) else None), exact
