r"""What the zeros of a graph pin down by themselves, when features may depend on their factors linearly.

Let two models share the graph, with latents related by :math:`z = h(\hat z)`, T the Jacobian of h, J that of
the features. Column j of T must bring no latent into a feature that the estimate j does not reach:

.. math:: J_{r \cdot}\, T_{\cdot j} = 0 \quad \text{for all features r without j.}

If these rows have rank K - 1, only :math:`T_{jj}` is left. That is the classical condition for the zeros of a
factor analysis; the rank that a pattern allows (generic, for almost all loadings) is the size of a matching.
A feature that bends has rows in several directions, and so counts several times: see `free_given_zeros`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_bipartite_matching

from ._draws import feature_graphs

__all__ = ["free_given_zeros"]

Bools = NDArray[np.bool_]

# Rows for each column that are looked at first: more of them only pin down more.
_FIRST = 8


def free_given_zeros(graph: ArrayLike, directions: ArrayLike = 1, *, overdetermined: bool = False) -> Bools:
    r"""Whether latent i may still be a function of the estimated latent j, given the zeros of the graph.

    .. math:: \text{free}_{ij} \iff \text{some}\ t \in \ker B_j \ \text{has}\ t_i \ne 0, \qquad
              B_j = \text{generic rows of all features without j}

    with as many rows for feature r as its derivatives have linearly independent directions. One for each, the
    default, is right for linear decoders and for features :math:`f(w^\top z)`, and cautious for all others.
    With as many as the feature has factors (enough nonlinearity) what is left is `may_depend`:
    :math:`c_i \subseteq c_j`.

    **Zeros that cost nothing.** Any straight decoder can be turned until each factor has K - 1 zeros, in any
    places, and its fit is the same. Zeros are evidence for axes only beyond that: with `overdetermined` what
    is pinned down must stay so whichever straight feature is left out. Two anchors for each factor do; that
    is why one is not enough.

    Parameters
    ----------
    graph : array_like of shape (..., feature, factor)
        1 where the factor reaches the feature; one graph or a stack.
    directions : array_like of number, shape () or (feature,)
        Directions of each feature's derivatives, at least 1, `inf` for all; no more count than the feature
        has factors.
    overdetermined : bool
        Whether zeros count only as far as no single feature with one direction decides.

    Returns
    -------
    ndarray of bool, shape (..., factor, factor)
        True at (i, j) where the zeros do not keep the true latent i from depending on the estimate j. True on
        the diagonal, and in the row of a latent without edges.

    Raises
    ------
    ValueError
        If an entry is not 0 or 1, or `directions` has another shape or a number below 1.

    References
    ----------
    Anderson and Rubin (1956), *Statistical inference in factor analysis*, section 5, identification by zeros
    in given places; Reiersøl (1950), Psychometrika 15(2).

    Examples
    --------
    A cycle of three features can be turned into three anchors if it is linear, and not if features bend:

    >>> cycle = [[1, 1, 0], [0, 1, 1], [1, 0, 1]]
    >>> free_given_zeros(cycle).astype(int)
    array([[1, 1, 1],
           [1, 1, 1],
           [1, 1, 1]])
    >>> free_given_zeros(cycle, directions=2).astype(int)
    array([[1, 0, 0],
           [0, 1, 0],
           [0, 0, 1]])
    """
    edges = feature_graphs(graph)
    turns = np.asarray(directions, dtype=float)
    if turns.shape not in ((), (edges.shape[-2],)):
        raise ValueError(
            f"directions: want one number, or one for each of {edges.shape[-2]} features, "
            f"got shape {turns.shape}"
        )
    if not (turns >= 1).all():
        raise ValueError(f"directions: want numbers of at least 1, got {turns[~(turns >= 1)].flat[0]}")
    turns = np.broadcast_to(turns, edges.shape[-2:-1])
    k = edges.shape[-1]
    flat = edges.reshape(-1, *edges.shape[-2:])
    free = np.empty((len(flat), k, k), dtype=bool)
    cache: dict[bytes, Bools] = {}  # draws of a graph repeat where edges are nearly certain
    for n, draw in enumerate(flat):
        key = draw.tobytes()
        if key not in cache:
            cache[key] = _free(draw, turns, overdetermined)
        free[n] = cache[key]
    return free.reshape(*edges.shape[:-2], k, k)


def _free(edges: Bools, turns: NDArray[np.float64], overdetermined: bool) -> Bools:
    """The same for one graph."""
    nonempty = edges.any(axis=1)
    edges, turns = edges[nonempty], turns[nonempty]
    patterns, pattern_of_row = np.unique(edges, axis=0, return_inverse=True)
    pattern_of_row, size = pattern_of_row.ravel(), patterns.sum(axis=1)
    copies = np.bincount(pattern_of_row, turns, len(patterns))
    free = _left_by(patterns, np.minimum(copies, size))
    straight = turns == 1
    if not overdetermined or not straight.any():
        return free
    # What each half of the straight features pins down stays so if any one of them is left out: nearly always
    # this is the answer. They are dealt out in turn, those that pin down most first.
    dealt = np.zeros(len(edges), dtype=int)
    order = np.lexsort((pattern_of_row, edges.sum(axis=1)))
    order = order[straight[order]]
    dealt[order] = np.arange(len(order)) % 2
    halves = [~straight | (dealt == half) for half in (0, 1)]
    counts = [np.bincount(pattern_of_row[half], turns[half], len(patterns)) for half in halves]
    most = free | np.logical_or(*(_left_by(patterns, np.minimum(n, size)) for n in counts))
    # Else they are left out one by one: those that touch a latent that is not pinned down by both halves, and
    # that are not one too many anyway; features of one pattern are alike.
    touched = patterns[:, (most & ~np.eye(len(most), dtype=bool)).any(axis=1)].any(axis=1)
    some = np.bincount(pattern_of_row, straight, len(patterns)) > 0
    for p in np.flatnonzero(some & (copies <= size) & touched):
        if (free == most).all():
            break
        fewer = np.minimum(copies, size)
        fewer[p] -= 1
        free |= _left_by(patterns, fewer)
    return free


def _left_by(patterns: Bools, copies: NDArray[np.float64]) -> Bools:
    """What is free given rows of these patterns, so many of each."""
    k = patterns.shape[1]
    rows = np.repeat(patterns, copies.astype(int), axis=0)
    rows = rows[np.argsort(rows.sum(axis=1), kind="stable")]  # those that pin down most come first
    # A latent with an anchor is pinned down in every column but its own.
    unanchored = np.flatnonzero(~rows[rows.sum(axis=1) == 1].any(axis=0))
    free = np.eye(k, dtype=bool)
    columns = np.arange(k) if len(unanchored) else unanchored
    for limit in (_FIRST * k, len(rows)):
        if not len(columns):
            break
        left = _unpinned(rows[:limit], columns, unanchored)
        open_ = left.any(axis=1)
        if limit >= len(rows) or not open_.any():
            free[np.ix_(unanchored, columns)] |= left.T
            break
        columns = columns[open_]
    return free


def _unpinned(rows: Bools, columns: NDArray[np.intp], unanchored: NDArray[np.intp]) -> Bools:
    """Latents of `unanchored` that some largest matching with the rows leaves out: (column, unanchored).

    One problem for each column j, with the rows that lack j and the latents of `unanchored` but j, solved
    all at once as blocks of a single graph.
    """
    matchable = ~rows.T[columns][:, :, None] & rows[None][:, :, unanchored]  # (column, row, latent)
    block, row, latent = np.nonzero(matchable)
    n, m = len(rows), len(unanchored)
    total = len(columns) * m
    i, c = (at.astype(np.int32) for at in (block * n + row, block * m + latent))  # older SciPy wants these
    graph = csr_array((np.ones(len(i), dtype=bool), (i, c)), shape=(len(columns) * n, total))
    matched = maximum_bipartite_matching(graph, perm_type="column")  # the latent of each row, or -1
    took = np.zeros(total, dtype=bool)
    took[matched[matched >= 0]] = True
    # Whoever is left out can change places: latent c takes a row from the latent that has it.
    source = np.flatnonzero(~took)
    swap = matched[i] >= 0
    start = np.concatenate([c[swap], np.full(len(source), total)])
    end = np.concatenate([matched[i][swap], source])
    walk = csr_array((np.ones(len(start), dtype=np.int8), (start, end)), shape=(total + 1, total + 1))
    reached = breadth_first_order(walk, total, return_predecessors=False)
    left = np.zeros(total + 1, dtype=bool)
    left[reached] = True
    unpinned: Bools = left[:total].reshape(len(columns), m) & (columns[:, None] != unanchored)
    return unpinned
