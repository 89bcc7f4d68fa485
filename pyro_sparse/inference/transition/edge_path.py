"""A path of ever fewer edges that needs no level: held-out rows say where to stop.

Edges are removed little by little, the weakest first; wrongly removed ones may return; of all fits on the way
the sparsest is chosen whose held-out score the rows cannot tell from the best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Checkpoint", "Path", "decreasing_path", "one_standard_error"]


class Checkpoint(NamedTuple):
    """One fit on a path.

    Attributes
    ----------
    edges : ndarray of bool
        The edges it may use.
    state : Any
        What the fit returned, for whoever made it.
    scores : ndarray of shape (row,)
        Held-out score of every row, larger is better.
    strengths : ndarray of the shape of `edges`
        Estimated loss without an edge that is there, gain with one that is not.
    """

    edges: NDArray[np.bool_]
    state: Any
    scores: NDArray[np.float64]
    strengths: NDArray[np.float64]

    @property
    def level(self) -> int:
        """Number of edges."""
        return int(self.edges.sum())


class Path(NamedTuple):
    """A decreasing path of edges and where it should stop.

    Attributes
    ----------
    checkpoints : tuple of Checkpoint
        From the most edges to the fewest.
    chosen : int
        Index of the fewest edges within one standard error of the best.
    loss, error : ndarray of shape (checkpoint,)
        Mean held-out score lost against the best checkpoint, and its standard error over rows.
    """

    checkpoints: tuple[Checkpoint, ...]
    chosen: int
    loss: NDArray[np.float64]
    error: NDArray[np.float64]


def one_standard_error(scores: ArrayLike) -> tuple[int, NDArray[np.float64], NDArray[np.float64]]:
    r"""The simplest candidate that is worse than the best by at most one standard error.

    .. math:: d_{cn} = s_{\mathrm{best}, n} - s_{cn}, \qquad \bar d_c \le \mathrm{sd}(d_c) / \sqrt N

    The error is that of the difference, row by row: what makes all candidates good or bad at a row cancels.

    Parameters
    ----------
    scores : array_like of shape (candidate, row)
        Larger is better; candidates from the most complex to the simplest, rows independent of each other.

    Returns
    -------
    chosen : int
        Index of the candidate.
    loss, error : ndarray of shape (candidate,)
        Mean difference to the best, and its standard error.

    Raises
    ------
    ValueError
        If there are fewer than two rows or a score is not finite.

    References
    ----------
    Breiman et al. (1984), Classification and regression trees, section 3.4.3, with paired differences.

    Examples
    --------
    >>> one_standard_error([[2.0, 5.0, 3.0], [2.1, 4.9, 3.0], [1.0, 4.0, 2.1]])[0]
    1
    """
    s = np.asarray(scores, dtype=float)
    if s.ndim != 2 or s.shape[1] < 2 or not np.isfinite(s).all():
        raise ValueError(
            f"scores: got shape {s.shape} with {int((~np.isfinite(s)).sum())} values not finite, wanted "
            "finite numbers of shape (candidate, row) with at least 2 rows; hold out more rows"
        )
    difference = s[s.mean(1).argmax()] - s
    loss, error = difference.mean(1), difference.std(1, ddof=1) / np.sqrt(s.shape[1])
    return int(np.flatnonzero(loss <= error)[-1]), loss, error


State = TypeVar("State")
Train: TypeAlias = Callable[[NDArray[np.bool_], State | None], tuple[State, ArrayLike, ArrayLike]]


def decreasing_path(
    train: Train[State],
    permitted: ArrayLike,
    required: ArrayLike | None = None,
    levels: Sequence[int] | None = None,
    swaps: int = 2,
    patience: int = 3,
) -> Path:
    """Choose the number of edges, and which, from held-out rows: prune, let edges return, refine.

    Every level keeps the strongest edges of the one before and trains again. *Regrowth*: while an edge left
    out is estimated to gain more than the weakest edge kept, the two change places; the exchange stays if
    held-out rows agree. The walk ends when `patience` levels in a row are more than one standard error worse
    than the best; then the gap below the chosen level is halved until it is closed.

    Parameters
    ----------
    train : callable
        ``train(edges, state) -> (state, scores, strengths)``: fits with the edges where the boolean array is
        True, from the state of the checkpoint before (None at first, never to be changed in place). `scores`
        has shape (row,); `strengths` that of `edges`, one unit for loss and gain, NaN for an edge not to
        return.
    permitted, required : array_like of bool, any common shape
        Edges that are not forbidden; edges that are always there.
    levels : sequence of int, optional
        Edge counts to visit after that of all permitted edges, decreasing. Default: each a fifth smaller than
        the one before, down to the required edges, refined at the end.
    swaps : int
        Exchanges tried at each level; 0 is plain pruning.
    patience : int
        Levels without hope before the walk ends.

    Returns
    -------
    Path

    Raises
    ------
    ValueError
        If the masks or levels do not fit, or `train` returns another shape or a number that is not finite.

    References
    ----------
    Lachapelle et al. (2024), arXiv 2401.04890, choose the level from a grid of separate runs instead.
    """
    free, must = _check_masks(permitted, required)
    total, least = int(free.sum()), int(must.sum())
    if levels is not None and list(levels) != sorted({n for n in levels if least <= n < total}, reverse=True):
        raise ValueError(
            f"levels: got {list(levels)}, wanted decreasing whole numbers below the {total} permitted edges "
            f"and not below the {least} required ones"
        )

    def visit(edges: NDArray[np.bool_], state: State | None) -> Checkpoint:
        now = _train(train, edges, state)
        for _ in range(swaps):
            exchanged = _exchange(now, free, must)
            if exchanged is None:
                break
            candidate = _train(train, exchanged, now.state)
            if candidate.scores.mean() <= now.scores.mean():
                break
            now = candidate
        return now

    path = [visit(free, None)]
    for level in _shrinking(total, least) if levels is None else levels:
        path.append(visit(_strongest(path[-1], must, level), path[-1].state))
        if len(path) - 1 - _judge(path)[0] >= patience:
            break
    while levels is None:
        chosen = _judge(path)[0]
        if chosen + 1 == len(path) or path[chosen].level - path[chosen + 1].level < 2:
            break
        middle = (path[chosen].level + path[chosen + 1].level) // 2
        path.insert(chosen + 1, visit(_strongest(path[chosen], must, middle), path[chosen].state))
    return Path(tuple(path), *_judge(path))


def _check_masks(permitted: ArrayLike, required: ArrayLike | None) -> tuple[NDArray[np.bool_], ...]:
    free = np.asarray(permitted)
    must = np.zeros_like(free) if required is None else np.asarray(required)
    if free.dtype != bool or must.dtype != bool or must.shape != free.shape or not free.any():
        raise ValueError(
            f"permitted, required: got {free.dtype} {free.shape} and {must.dtype} {must.shape}, "
            "wanted boolean arrays of one shape that permit an edge"
        )
    if (must & ~free).any():
        raise ValueError(
            f"required: {int((must & ~free).sum())} edges are not permitted; permit or drop them"
        )
    return free, must


def _shrinking(total: int, least: int) -> list[int]:
    levels, level = [], total
    while level > least:
        level = max(least, min(level - 1, int(0.8 * level)))
        levels.append(level)
    return levels


def _judge(path: list[Checkpoint]) -> tuple[int, NDArray[np.float64], NDArray[np.float64]]:
    rows = sorted({len(checkpoint.scores) for checkpoint in path})
    if len(rows) > 1:
        raise ValueError(f"train: got scores of {rows} rows; score the same rows at every level")
    return one_standard_error([checkpoint.scores for checkpoint in path])


def _train(train: Train[State], edges: NDArray[np.bool_], state: State | None) -> Checkpoint:
    new_state, scores, strengths = train(edges.copy(), state)
    s, strength = np.asarray(scores, dtype=float), np.asarray(strengths, dtype=float)
    if (
        s.ndim != 1
        or strength.shape != edges.shape
        or not (np.isfinite(strength[edges]).all() and np.isfinite(s).all())
    ):
        raise ValueError(
            f"train: at {int(edges.sum())} edges got scores of shape {s.shape} and strengths of shape "
            f"{strength.shape}, wanted (row,) and {edges.shape}, finite but for edges left out"
        )
    return Checkpoint(edges, new_state, s, np.where(np.isnan(strength), -np.inf, strength))


def _strongest(now: Checkpoint, must: NDArray[np.bool_], level: int) -> NDArray[np.bool_]:
    """The required edges and the strongest of the others that are there."""
    rank = np.where(must, np.inf, np.where(now.edges, now.strengths, -np.inf)).ravel()
    kept = np.zeros(rank.size, dtype=bool)
    kept[np.argsort(-rank, kind="stable")[:level]] = True
    return kept.reshape(must.shape)


def _exchange(now: Checkpoint, free: NDArray[np.bool_], must: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    """The weakest edge out and the strongest of those left out in, if that one is stronger."""
    outside = np.where(free & ~now.edges, now.strengths, -np.inf).ravel()
    inside = np.where(now.edges & ~must, now.strengths, np.inf).ravel()
    if outside.max() <= inside.min():
        return None
    edges = now.edges.ravel().copy()
    edges[[inside.argmin(), outside.argmax()]] = [False, True]
    return edges.reshape(now.edges.shape)
