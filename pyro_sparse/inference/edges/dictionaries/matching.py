"""Which latents of several dictionaries are the same: mutual best cosines of their decoder directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["SAME", "MatchedLatents", "match_latents"]

Array = NDArray[np.float64]

# A latent that is the sum of two orthogonal ones has a cosine of .71 with each: above .8 it is one of them.
SAME = 0.8
_CHUNK = 2048  # latents compared at a time


class MatchedLatents(NamedTuple):
    """Latents that at least two refits have.

    Attributes
    ----------
    number : ndarray of int, shape (latent, refit)
        Number of the latent in each refit; -1 where the refit lacks it.
    cosine : ndarray, shape (latent,)
        The least cosine by which two refits were joined.
    """

    number: NDArray[np.intp]
    cosine: NDArray[np.float64]


def match_latents(
    directions: Sequence[ArrayLike], living: Sequence[ArrayLike] | None = None, cosine: float = SAME
) -> MatchedLatents:
    """Join latents of refits that are each other's best match, the surest pairs first.

    Parameters
    ----------
    directions : sequence of array_like (latent, d)
        Decoder directions of each refit, of any length.
    living : sequence of array_like of bool (latent,), optional
        Latents to be matched. Default: all.
    cosine : float
        Pairs must be above, in [0, 1).

    Returns
    -------
    MatchedLatents
        In the order of the first refit, then of those that it lacks. No two latents of a refit are joined,
        whatever a third refit says.

    Raises
    ------
    ValueError
        Directions of different spaces, a direction that is not finite, or `cosine` out of range.

    Examples
    --------
    >>> same = match_latents([np.eye(3), np.eye(3)[[2, 0]]])
    >>> same.number.tolist()
    [[0, 1], [2, 0]]
    """
    if not 0 <= cosine < 1:
        raise ValueError(f"cosine: got {cosine!r}, wanted a number from 0 to below 1")
    units: list[NDArray[np.float32]] = []
    numbers: list[NDArray[np.intp]] = []
    for refit, of_refit in enumerate(directions):
        d = np.asarray(of_refit, dtype=np.float32)
        alive = np.ones(len(d), bool) if living is None else np.asarray(living[refit], dtype=bool)
        if d.ndim != 2 or (units and d.shape[1] != units[0].shape[1]) or not np.isfinite(d[alive]).all():
            raise ValueError(
                f"directions: number {refit} has shape {d.shape}, wanted finite numbers (latent, d) with the "
                "same d everywhere: refits are of the same layer"
            )
        size = np.linalg.norm(d, axis=1)
        kept = np.flatnonzero(alive & (size > 0))
        units.append(d[kept] / size[kept, None])
        numbers.append(kept)
    pairs = [
        (float(c), (a, int(numbers[a][i])), (b, int(numbers[b][j])))
        for a in range(len(units))
        for b in range(a + 1, len(units))
        for i, j, c in zip(*_mutual(units[a], units[b]), strict=True)
        if c > cosine
    ]
    return _joined(sorted(pairs, key=lambda pair: -pair[0]), len(units))


def _mutual(
    a: NDArray[np.float32], b: NDArray[np.float32]
) -> tuple[NDArray[np.intp], NDArray[np.intp], Array]:
    """Pairs of rows of unit length that are each other's nearest, and their cosines."""
    if not len(a) or not len(b):
        return np.zeros(0, int), np.zeros(0, int), np.zeros(0)
    of_a, of_b, best = np.zeros(len(a), int), np.zeros(len(b), int), np.full(len(b), -np.inf)
    cosine = np.zeros(len(a))
    for start in range(0, len(a), _CHUNK):
        c = a[start : start + _CHUNK] @ b.T
        of_a[start : start + len(c)] = c.argmax(1)
        cosine[start : start + len(c)] = c.max(1)
        better = c.max(0) > best
        of_b[better] = start + c.argmax(0)[better]
        best = np.maximum(best, c.max(0))
    i = np.flatnonzero(of_b[of_a] == np.arange(len(a)))
    return i, of_a[i], cosine[i]


def _joined(pairs: list[tuple[float, tuple[int, int], tuple[int, int]]], n_refits: int) -> MatchedLatents:
    """Groups of latents, at most one of each refit, from pairs with the surest first."""
    group_of: dict[tuple[int, int], dict[int, int]] = {}
    least: dict[int, float] = {}
    for c, first, second in pairs:
        left = group_of.setdefault(first, dict([first]))
        right = group_of.setdefault(second, dict([second]))
        if left is right or set(left) & set(right):
            continue
        left |= right
        least[id(left)] = c
        for latent in right.items():
            group_of[latent] = left
    groups = {id(group): group for group in group_of.values() if len(group) > 1}
    order = sorted(groups.values(), key=lambda group: [group.get(r, np.inf) for r in range(n_refits)])
    index = np.array([[group.get(r, -1) for r in range(n_refits)] for group in order], dtype=np.intp)
    cosines = np.array([least[id(group)] for group in order])
    return MatchedLatents(index.reshape(len(order), n_refits), cosines)
