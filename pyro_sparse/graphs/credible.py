r"""Which columns may be the parents of a row: the smallest set that holds them all, surely enough.

With parents :math:`\mathrm{Pa}_j` of row j in the posterior, the set is

.. math:: S_j = \arg\min_S |S| \quad\text{such that}\quad P(\mathrm{Pa}_j \subseteq S) \ge 1 - \alpha,

the probability being the share of draws. It speaks of the parents jointly, which probabilities of single
edges cannot: two columns that stand in for each other, each with probability 1/2, are both in the set.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._draws import graphs_of

__all__ = ["CredibleParents", "CredibleSets", "credible_parents", "credible_sets"]

_EXACT = 15  # undecided columns up to which every set is tried, 2^15 of them


class CredibleSets(NamedTuple):
    """For each row, a set of columns that holds all its parents.

    Parameters
    ----------
    member : ndarray of bool, shape (row, column)
        The sets.
    probability : ndarray of float, shape (row,)
        Share of draws in which all parents of the row are in the set; at least 1 - alpha.
    exact : ndarray of bool, shape (row,)
        Whether no smaller set will do. Where False the set came from the greedy search: it has the
        probability, and none of its columns can be left out, but a different set may be smaller.
    """

    member: NDArray[np.bool_]
    probability: NDArray[np.float64]
    exact: NDArray[np.bool_]


class CredibleParents(NamedTuple):
    """For each row, a set of columns that holds its parent, if it has exactly one.

    Parameters
    ----------
    member : ndarray of bool, shape (row, column)
        The sets; empty where no draw gives the row exactly one parent.
    probability : ndarray of float, shape (row,)
        Share that has its parent in the set, of the draws in which the row has exactly one; NaN without any.
    single : ndarray of float, shape (row,)
        Share of draws in which the row has exactly one parent. Where it is low the set answers a question
        that hardly arises.
    """

    member: NDArray[np.bool_]
    probability: NDArray[np.float64]
    single: NDArray[np.float64]


def credible_sets(draws: ArrayLike, alpha: float = 0.1) -> CredibleSets:
    r"""Smallest set of columns that contains *all* parents of a row with probability at least 1 - alpha.

    .. math::

        S_j = \arg\min_S |S| \quad\text{such that}\quad
        \frac1N \sum_{n=1}^N 1[\mathrm{Pa}^{(n)}_j \subseteq S] \ge 1 - \alpha

    Of sets equally small, one of the most probable. A row without parents is covered by every set: the set
    may be empty. One row at a time; nothing is said about all rows at once.

    A column that is a parent in more than a share alpha of the draws must be in the set, one that never is
    cannot help. Of the columns between, all sets are tried if there are at most 15; if more, the column that
    costs the fewest draws is left out again and again while 1 - alpha of the draws remain covered.

    Parameters
    ----------
    draws : array_like of 0 and 1, shape (..., draw, row, column)
        Joint draws of the graph; leading axes, such as chain, are pooled.
    alpha : float
        In [0, 1).

    Returns
    -------
    CredibleSets

    Raises
    ------
    ValueError
        If `draws` has fewer than three axes, no entries, or entries other than 0 and 1, or `alpha` is out of
        range.

    Examples
    --------
    Column 0 is a parent in all draws, columns 1 and 2 stand in for each other, column 3 shows up once in ten:

    >>> draws = [[[1, 1, 0, 0]]] * 5 + [[[1, 0, 1, 0]]] * 4 + [[[1, 0, 0, 1]]]
    >>> sets = credible_sets(draws)
    >>> sets.member.astype(int), sets.probability
    (array([[1, 1, 1, 0]]), array([0.9]))
    """
    graphs, need = _needed(draws, alpha)
    smallest_sets = [_smallest(graphs[:, j], need) for j in range(graphs.shape[1])]
    member = np.array([inside for inside, _ in smallest_sets], dtype=bool).reshape(graphs.shape[1:])
    covered = ~(graphs & ~member).any(axis=2)
    return CredibleSets(
        member, covered.mean(axis=0), np.array([exact for _, exact in smallest_sets], dtype=bool)
    )


def credible_parents(draws: ArrayLike, alpha: float = 0.1) -> CredibleParents:
    r"""Smallest set of columns that contains *the* parent of a row, given that it has exactly one.

    .. math::

        S_j = \arg\min_S |S| \quad\text{such that}\quad
        \frac{\sum_n 1[\mathrm{Pa}^{(n)}_j = \{k\},\ k \in S]}{\sum_n 1[|\mathrm{Pa}^{(n)}_j| = 1]}
        \ge 1 - \alpha

    which takes columns from the most probable down; of equally probable ones the first. Draws that give the
    row no parent, or several, are left out.

    Parameters
    ----------
    draws : array_like of 0 and 1, shape (..., draw, row, column)
        As in `credible_sets`.
    alpha : float
        In [0, 1).

    Returns
    -------
    CredibleParents

    Raises
    ------
    ValueError
        As in `credible_sets`.

    Examples
    --------
    >>> draws = [[[1, 0, 0]]] * 6 + [[[0, 1, 0]]] * 3 + [[[1, 1, 1]]]
    >>> parents = credible_parents(draws, alpha=0.4)
    >>> parents.member.astype(int), parents.single
    (array([[1, 0, 0]]), array([0.9]))
    """
    graphs, _ = _needed(draws, alpha)
    counts = (graphs & (graphs.sum(axis=2, keepdims=True) == 1)).sum(axis=0)
    total = counts.sum(axis=1)
    order = np.argsort(-counts, axis=1, kind="stable")
    ranked = np.take_along_axis(counts, order, axis=1)
    before = np.cumsum(ranked, axis=1) - ranked
    need = np.ceil((1 - alpha) * total - 1e-9)
    member = np.zeros(counts.shape, dtype=bool)
    np.put_along_axis(member, order, before < need[:, None], axis=1)
    share = np.where(total > 0, (counts * member).sum(axis=1) / np.maximum(total, 1), np.nan)
    return CredibleParents(member, share, total / len(graphs))


def _needed(draws: ArrayLike, alpha: float) -> tuple[NDArray[np.bool_], int]:
    """The draws, and how many of them a set must cover."""
    if not 0 <= alpha < 1:
        raise ValueError(f"alpha: want a probability in [0, 1), got {alpha!r}; for sets of 90 % it is 0.1")
    graphs = graphs_of(draws)
    # Rounding may put a whole number a little above itself, as (1 - .18) * 150.
    return graphs, int(np.ceil((1 - alpha) * len(graphs) - 1e-9))


def _smallest(parents: NDArray[np.bool_], need: int) -> tuple[NDArray[np.bool_], bool]:
    """Smallest set that covers `need` of the drawn parent sets (draw, column), and whether it surely is."""
    count = parents.sum(axis=0)
    forced = count > len(parents) - need
    optional = np.flatnonzero((count > 0) & ~forced)
    member = np.array(forced)
    if len(optional) > _EXACT:
        return _greedy(parents, optional, need), False
    covered = _covered_by_every_set(parents[:, optional])
    size = np.array([bin(code).count("1") for code in range(len(covered))])
    best = np.lexsort((-covered, np.where(covered >= need, size, len(size))))[0]
    member[optional] = (best >> np.arange(len(optional))) & 1
    return member, True


def _covered_by_every_set(parents: NDArray[np.bool_]) -> NDArray[np.intp]:
    """How many draws have no parent outside of each set of columns, sets written as binary numbers."""
    m = parents.shape[1]
    covered = np.bincount(parents @ (1 << np.arange(m)), minlength=1 << m)
    for bit in range(m):
        halves = covered.reshape(-1, 2, 1 << bit)
        halves[:, 1] += halves[:, 0]
    return covered


def _greedy(parents: NDArray[np.bool_], optional: NDArray[np.intp], need: int) -> NDArray[np.bool_]:
    """Leave out the column that costs the fewest draws, while `need` of them stay covered."""
    member, covered = np.asarray(parents.any(axis=0)), np.ones(len(parents), dtype=bool)
    while len(optional):
        cost = parents[covered][:, optional].sum(axis=0)
        cheapest = int(cost.argmin())
        if covered.sum() - cost[cheapest] < need:
            break
        member[optional[cheapest]] = False
        covered &= ~parents[:, optional[cheapest]]
        optional = np.delete(optional, cheapest)
    return member
