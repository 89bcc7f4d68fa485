r"""Which chains hold the same graph, and how much each of these graphs counts.

Nats are the wrong ruler: of a table of 1,000 x 800 cells chains that agree in every edge are 29 apart, and of
a questionnaire chains at other axes are within ten. So chains are grouped first: two of them hold other
graphs where the probability of an edge differs by more than `UNRESOLVED_GAP`, and by more than that plus
three standard errors of its Monte Carlo error,

.. math:: \max_e |p_{ce} - p_{de}| - 3 \sqrt{s_{ce}^2 + s_{de}^2} > .25,

and chains are of one group if a path of chains that do not leads from one to the other (single linkage: a
chain that agrees with both has seen the way). Then groups are weighed by the evidence of what they explored.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components

from .selection import UNRESOLVED_GAP

__all__ = ["ChainPool", "gap_within", "pool_chains", "same_graph"]

Floats = NDArray[np.float64]
# Of a difference between chains: of thousands of edges hardly one exceeds these and .25 as well by chance.
_STANDARD_ERRORS = 3.0
# Share of all graphs that may be left out: an edge that all others have is present (P >= .95) without them.
_LEFT_OUT = 0.05
_DRAWS = 4000  # of the evidence's error, over which shares are averaged


class ChainPool(NamedTuple):
    """Chains by the graph they hold.

    Parameters
    ----------
    group : ndarray of int, shape (chain,)
        Which graph each chain holds, the one of largest share first; -1 for a chain that failed.
    share : ndarray of float, shape (group,)
        Of each graph in the posterior; they sum to one.
    keep : ndarray of bool, shape (chain,)
        Chains whose graph counts.
    weight : ndarray of float, shape (chain,)
        Of each chain in an average over those kept; they sum to one, chains of a graph alike.
    nats_below : ndarray of float, shape (chain,)
        How far the log evidence of the chain's graph is below the best; NaN for a failed one.
    """

    group: NDArray[np.intp]
    share: Floats
    keep: NDArray[np.bool_]
    weight: Floats
    nats_below: Floats

    @property
    def counts(self) -> NDArray[np.bool_]:
        """Chains kept whose graph has a share that matters, not only to be compared with: (chain,)."""
        of_chain = np.where(self.group >= 0, self.share[self.group], 0.0)
        return self.keep & (of_chain > _LEFT_OUT)

    @property
    def n_graphs(self) -> int:
        """Graphs that count."""
        return len(np.unique(self.group[self.keep]))


def same_graph(probability: ArrayLike, error: ArrayLike) -> NDArray[np.bool_]:
    """Which pairs of chains agree on every edge, up to what they are known to: (chain, chain).

    Parameters
    ----------
    probability : array_like of shape (chain, ...)
        Aligned edge probabilities of each chain.
    error : array_like of the same shape
        Their Monte Carlo standard errors; NaN where they are not known, which then differ by no error.
    """
    p = np.asarray(probability, dtype=float).reshape(len(np.asarray(probability)), -1)
    s = np.nan_to_num(np.asarray(error, dtype=float)).reshape(p.shape)
    alike = np.eye(len(p), dtype=bool)
    for c in range(len(p)):
        for d in range(c):
            apart = np.abs(p[c] - p[d]) - _STANDARD_ERRORS * np.hypot(s[c], s[d])
            alike[c, d] = alike[d, c] = not (apart > UNRESOLVED_GAP).any()
    return alike


def pool_chains(
    probability: ArrayLike,
    error: ArrayLike,
    log_evidence: ArrayLike,
    uncertainty: float | None,
    reach: float = np.inf,
) -> ChainPool:
    r"""Chains by the graph they hold, and what each graph counts.

    With :math:`\ell_g` the mean log evidence of a group's chains, known up to a normal error of standard
    deviation u, its share is

    .. math:: \mathrm{E}_\epsilon \frac{\exp(\ell_g + \epsilon_g)}{\sum_h \exp(\ell_h + \epsilon_h)},
              \qquad \epsilon_g \sim N(0, u^2),

    so that what is hardly known decides hardly anything. Graphs whose shares together are at most .05, and
    those that are more than `reach` below the best, are left out; but two chains always stay, since one alone
    could not disagree.

    Parameters
    ----------
    probability, error : array_like of shape (chain, ...)
        As in `same_graph`.
    log_evidence : array_like of shape (chain,)
        In nats, of what each chain explored; a chain where it is not finite has failed.
    uncertainty : float, optional
        u, in nats. None: evidence cannot be weighed, and a graph counts by its chains.
    reach : float
        Nats.

    Returns
    -------
    ChainPool

    Raises
    ------
    ValueError
        Shapes do not fit, a number is negative, or all chains have failed.

    Examples
    --------
    Two chains agree, a third holds another graph that is nearly as good, a fourth one that is far worse:

    >>> p = [[0.99, 0.01], [0.98, 0.02], [0.02, 0.97], [0.02, 0.03]]
    >>> pool = pool_chains(p, np.zeros((4, 2)), [-100.0, -101.0, -101.5, -160.0], uncertainty=1.0)
    >>> pool.group.tolist(), pool.keep.tolist()
    ([0, 0, 1, 2], [True, True, True, False])
    >>> pool.share.round(1).tolist()
    [0.7, 0.3, 0.0]
    """
    p, level = np.asarray(probability, dtype=float), np.asarray(log_evidence, dtype=float)
    if level.ndim != 1 or p.shape[:1] != level.shape or np.shape(error) != p.shape:
        raise ValueError(
            f"probability, error, log_evidence: want (chain, ...) twice and (chain,), got {p.shape}, "
            f"{np.shape(error)} and {level.shape}"
        )
    if not reach >= 0 or (uncertainty is not None and not uncertainty >= 0):
        raise ValueError(f"uncertainty, reach: want nats, 0 or more, got {uncertainty!r} and {reach!r}")
    sound = np.flatnonzero(np.isfinite(level) & np.isfinite(p).reshape(len(p), -1).all(1))
    if not len(sound):
        raise ValueError("log_evidence: no chain is finite: all have failed; start them anew")
    alike = same_graph(p[sound], np.asarray(error, dtype=float)[sound])
    n_groups, label = connected_components(alike, directed=False)
    of_group = np.array([level[sound[label == g]].mean() for g in range(n_groups)])
    size = np.bincount(label, minlength=n_groups)
    share = size / size.sum() if uncertainty is None else _shares(of_group, uncertainty)
    # As many chains, or as large a share: the better one first.
    order = np.lexsort((-of_group, -share))
    rank = np.argsort(order)
    group = np.full(len(level), -1)
    group[sound] = rank[label]
    share, of_group = share[order], of_group[order]
    counts = of_group >= of_group.max() - reach
    if uncertainty is not None:
        counts &= np.cumsum(share[::-1])[::-1] > _LEFT_OUT
    keep = (group >= 0) & counts[group]
    below = np.where(group >= 0, of_group.max() - of_group[group], np.nan)
    if keep.sum() < 2:  # the next best chain, which the averages then count by its share
        keep[np.lexsort((np.nan_to_num(-level, nan=np.inf), np.nan_to_num(below, nan=np.inf)))[:2]] = True
    return ChainPool(group, share, keep, _weights(group, share, keep), below)


def gap_within(pool: ChainPool, probability: Floats) -> Floats:
    """Largest difference of each edge between chains that are kept and hold the same graph, (row, column).

    Parameters
    ----------
    pool : ChainPool
    probability : ndarray (chain, row, column)

    Examples
    --------
    >>> p = np.array([[[0.99]], [[0.95]], [[0.02]]])
    >>> gap_within(pool_chains(p, np.zeros(p.shape), [0.0, 0.0, -1.0], uncertainty=0.0), p).round(2)
    array([[0.04]])
    """
    graphs = np.unique(pool.group[pool.keep])
    gaps = [np.ptp(probability[pool.keep & (pool.group == graph)], axis=0) for graph in graphs]
    widest: Floats = np.max(gaps, axis=0)
    return widest


def _shares(log_evidence: Floats, uncertainty: float) -> Floats:
    """Mean over the error, of fixed draws, so that equal evidence gives equal answers."""
    draws = np.random.default_rng(0).standard_normal((_DRAWS // 2, len(log_evidence)))
    level = log_evidence + uncertainty * np.concatenate([draws, -draws])
    odds = np.exp(level - level.max(1, keepdims=True))
    shares: Floats = (odds / odds.sum(1, keepdims=True)).mean(0)
    return shares


def _weights(group: NDArray[np.intp], share: Floats, keep: NDArray[np.bool_]) -> Floats:
    """Shares of the groups kept, divided among their chains kept."""
    weight = np.zeros(len(group))
    for g in np.unique(group[keep]):
        members = keep & (group == g)
        weight[members] = (share[g] if g >= 0 else 0.0) / members.sum()
    weight /= weight.sum()
    return weight
