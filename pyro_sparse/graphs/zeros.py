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


def free_given_zeros(graph: ArrayLike, directions: ArrayLike = 1) -> Bools:
    r"""Whether latent i may still be a function of the estimated latent j, given the zeros of the graph.

    .. math:: \text{free}_{ij} \iff \text{some}\ t \in \ker B_j \ \text{has}\ t_i \ne 0, \qquad
              B_j = \text{generic rows of all features without j}

    with as many rows for feature r as its derivatives have linearly independent directions. One for each, the
    default, is right for linear decoders and for features :math:`f(w^\top z)`, and cautious for all others.
    With as many as the feature has factors (enough nonlinearity) what is left is `may_depend`:
    :math:`c_i \subseteq c_j`.

    Parameters
    ----------
    graph : array_like of shape (..., feature, factor)
        1 where the factor reaches the feature; one graph or a stack.
    directions : array_like of number, shape () or (feature,)
        Directions of each feature's derivatives, at least 1, `inf` for all; no more count than the feature
        has factors.

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
    found = np.empty((len(flat), k, k), dtype=bool)
    for n, one in enumerate(flat):
        found[n] = _free(one, turns)
    return found.reshape(*edges.shape[:-2], k, k)


def _free(edges: Bools, turns: NDArray[np.float64]) -> Bools:
    """The same for one graph."""
    k = edges.shape[1]
    patterns, which = np.unique(edges[edges.any(axis=1)], axis=0, return_inverse=True)
    size = patterns.sum(axis=1)
    copies = np.bincount(which.ravel(), turns[edges.any(axis=1)], len(patterns))
    rows = np.repeat(patterns, np.minimum(copies, size).astype(int), axis=0)
    rows = rows[np.argsort(rows.sum(axis=1), kind="stable")]  # those that pin down most come first
    # A latent with an anchor is pinned down in every column but its own.
    rest = np.flatnonzero(~rows[rows.sum(axis=1) == 1].any(axis=0))
    free = np.eye(k, dtype=bool)
    columns = np.arange(k) if len(rest) else rest
    for limit in (_FIRST * k, len(rows)):
        if not len(columns):
            break
        left = _unpinned(rows[:limit], columns, rest)
        open_ = left.any(axis=1)
        if limit >= len(rows) or not open_.any():
            free[np.ix_(rest, columns)] |= left.T
            break
        columns = columns[open_]
    return free


def _unpinned(rows: Bools, columns: NDArray[np.intp], rest: NDArray[np.intp]) -> Bools:
    """Latents of `rest` that some largest matching with the rows leaves out: shape (column, rest).

    One problem for each column j, with the rows that lack j and the latents of `rest` but j, solved all at
    once as blocks of a single graph.
    """
    allowed = ~rows.T[columns][:, :, None] & rows[None][:, :, rest]  # (column, row, latent)
    block, row, latent = np.nonzero(allowed)
    n, m = len(rows), len(rest)
    total = len(columns) * m
    i, c = block * n + row, block * m + latent
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
    return left[:total].reshape(len(columns), m) & (columns[:, None] != rest)
