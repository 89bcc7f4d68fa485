"""Put restarts (or posterior draws) of a factor model in one frame.

A factor model is the same model after its factors are permuted and their signs flipped, so two restarts that
found the same answer rarely look alike. Each one is matched to a *pivot*: compare every column with every
column of the pivot (cosine of loadings, or correlation of factor values), take the one-to-one match with
the largest sum (Hungarian algorithm), and flip signs so that matched columns point the same way. With
`repivot` the pivot is then replaced by the mean of the aligned set, until nothing moves.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

__all__ = [
    "SAME_FACTOR",
    "SAME_LATENTS",
    "Alignment",
    "agreement_matrix",
    "align",
    "apply_alignment",
    "match_columns",
    "orient",
    "similarity",
]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Kind = Literal["loadings", "factors"]
# Lorenzo-Seva and ten Berge (2006) call .85 to .94 a fair similarity, and factors from .95 on equal.
SAME_FACTOR = 0.9  # congruence from which two columns of loadings are one factor
SAME_LATENTS = 0.95  # the same of dense loadings, and correlation from which values of two latents are one's
_MAX_REPIVOTS = 20
_BLOCK = 256  # members compared at once, which bounds the memory


class Alignment(NamedTuple):
    """How each restart is carried into the pivot's frame.

    `aligned[r][:, k] = sign[r, k] * original[r][:, permutation[r, k]]`. The leading axis, here restart, is
    (chain, draw) where `align_draws` made it.

    Parameters
    ----------
    permutation : ndarray of int, shape (restart, factor)
        Which original column stands at place `k`.
    sign : ndarray of float, shape (restart, factor)
        +1 or -1.
    congruence : ndarray of float, shape (restart, factor)
        ``|similarity|`` of the aligned column with the pivot's, in [0, 1]; 0 where one of the two is empty,
        NaN where both are (there is nothing to compare).
    """

    permutation: NDArray[np.intp]
    sign: NDArray[np.float64]
    congruence: NDArray[np.float64]


def _columns(values: ArrayLike, name: str, kind: str) -> tuple[Floats, Bools]:
    """Unit-norm columns (empty ones stay zero) and which are not empty, of a matrix or a stack of them."""
    x = np.asarray(values, dtype=float)
    if x.ndim < 2:
        raise ValueError(f"{name}: want a matrix of shape (feature or sample, factor), got shape {x.shape}")
    if not np.isfinite(x).all():
        raise ValueError(f"{name}: want finite numbers, got NaN or infinity; drop the failed restart first")
    if kind not in ("loadings", "factors"):
        raise ValueError(f'kind: want "loadings" or "factors", got {kind!r}')
    largest = np.abs(x).max(axis=-2, initial=0.0, keepdims=True)
    if kind == "factors":
        x = x - x.mean(axis=-2, keepdims=True)
    # Divide by the largest entry first, so that tiny columns do not underflow when squared; a column
    # that is constant up to rounding counts as empty.
    x = x / np.where(largest > 0, largest, 1.0)
    norm = np.sqrt((x**2).sum(axis=-2, keepdims=True))
    filled = norm > 1e-12
    return np.where(filled, x / np.where(filled, norm, 1.0), 0.0), filled[..., 0, :]


def similarity(a: ArrayLike, b: ArrayLike, kind: Kind = "loadings") -> NDArray[np.float64]:
    r"""Signed similarity of every column of `a` with every column of `b`.

    :math:`s_{kl} = a_k^\top b_l / (\|a_k\|\,\|b_l\|)`: Tucker's congruence coefficient for loadings; with the
    column means removed, Pearson's correlation, for factor values. Empty (all zero, or constant) columns
    have similarity 0 with everything.

    Parameters
    ----------
    a : array_like of shape (..., row, factor_a)
        A matrix, or a stack of them.
    b : array_like of shape (..., row, factor_b)
    kind : {"loadings", "factors"}

    Returns
    -------
    ndarray of shape (..., factor_a, factor_b), values in [-1, 1]

    Raises
    ------
    ValueError
        If the row counts differ, an array is no matrix, or holds NaN or infinity.

    References
    ----------
    Lorenzo-Seva and ten Berge (2006), Methodology 2(2), equation 1.
    """
    unit_a, _ = _columns(a, "a", kind)
    unit_b, _ = _columns(b, "b", kind)
    if unit_a.shape[-2] != unit_b.shape[-2]:
        raise ValueError(f"b: want as many rows as a ({unit_a.shape[-2]}), got {unit_b.shape[-2]}")
    cosines: Floats = np.clip(np.swapaxes(unit_a, -1, -2) @ unit_b, -1.0, 1.0)
    return cosines


def match_columns(similarities: ArrayLike) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """One-to-one match of rows to columns with the largest sum of ``|similarity|``.

    Pairs with nothing in common (similarity 0, such as empty columns) are matched in increasing order, so
    that the answer does not depend on how the solver breaks ties.

    Parameters
    ----------
    similarities : array_like of shape (..., factor_a, factor_b), factor_a <= factor_b
        A matrix, or a stack of them.

    Returns
    -------
    permutation : ndarray of int, shape (..., factor_a)
        The column matched to each row.
    sign : ndarray of float, shape (..., factor_a)
        Sign of the matched similarity; +1 where it is 0.

    Raises
    ------
    ValueError
        If there are more rows than columns.
    """
    s = np.asarray(similarities, dtype=float)
    if s.ndim < 2 or s.shape[-2] > s.shape[-1]:
        raise ValueError(f"similarities: want shape (a, b) with a <= b factors, got {s.shape}; transpose it")
    if not s.shape[-2]:
        return np.zeros(s.shape[:-1], np.intp), np.ones(s.shape[:-1])
    # Where each row has a column of its own that is most like it, that is the best match, and most have.
    permutation = np.abs(s).argmax(-1)
    matched = np.take_along_axis(s, permutation[..., None], -1)[..., 0]
    clear = (np.diff(np.sort(permutation, -1), axis=-1) > 0).all(-1)
    clear &= (matched != 0).all(-1) & np.isfinite(s).all((-1, -2))
    for index in map(tuple, np.argwhere(~clear)):
        permutation[index] = _assigned(s[index])
    matched = np.take_along_axis(s, permutation[..., None], -1)[..., 0]
    return permutation, np.where(matched < 0, -1.0, 1.0)


def _assigned(s: Floats) -> NDArray[np.intp]:
    """The column matched to each row of one matrix, by the assignment problem."""
    permutation: NDArray[np.intp]
    rows, permutation = linear_sum_assignment(-np.abs(s))
    loose = s[rows, permutation] == 0
    if loose.any():
        taken = np.setdiff1d(np.arange(s.shape[1]), permutation[~loose])
        permutation[loose] = taken[: loose.sum()]
    return permutation


def align(
    stack: ArrayLike,
    pivot: int | ArrayLike = 0,
    kind: Kind = "loadings",
    repivot: bool = False,
    groups: ArrayLike | None = None,
) -> Alignment:
    """Match every member of a stack to a pivot, by permutation and sign.

    Parameters
    ----------
    stack : array_like of shape (restart, row, factor)
        Loadings (row = feature) or factor values (row = sample) of each restart or draw.
    pivot : int or array_like of shape (row, factor)
        Member of the stack, or a matrix, that sets the order and the signs.
    kind : {"loadings", "factors"}
        Compare columns by ``|cosine|`` or by ``|correlation|``.
    repivot : bool
        Afterwards align again to the mean of the aligned (unit-norm) columns, until nothing changes. Use it
        for posterior draws, where no draw is special; for restarts the best one is the natural pivot.
    groups : array_like of shape (factor,), optional
        A label for each factor: only factors of equal label may change places. Give factors that constraints
        tell apart (an anchor, an order) labels of their own; they keep their place. Default: all alike.

    Returns
    -------
    Alignment

    Raises
    ------
    ValueError
        If shapes do not fit, `pivot` is out of range, or a value is not finite.
    """
    x = np.asarray(stack, dtype=float)
    if x.ndim != 3:
        raise ValueError(
            f"stack: want shape (restart, row, factor), got {x.shape}; use stack[None] for a single one"
        )
    if np.ndim(pivot) == 0:
        index = int(pivot)  # type: ignore[arg-type]
        if not -len(x) <= index < len(x):
            raise ValueError(f"pivot: want a restart number below {len(x)}, got {index}")
        reference = x[index]
    else:
        reference = np.asarray(pivot, dtype=float)
        if reference.shape != x.shape[1:]:
            raise ValueError(f"pivot: want shape {x.shape[1:]} as in the stack, got {reference.shape}")
    places = _places(groups, x.shape[-1])
    result, mean = _align_to(x, reference, kind, places)
    for _ in range(_MAX_REPIVOTS if repivot else 0):
        again, mean = _align_to(x, mean, kind, places)
        moved = (again.permutation != result.permutation).any() or (again.sign != result.sign).any()
        result = again
        if not moved:
            break
    return result


def _places(groups: ArrayLike | None, n_factors: int) -> list[NDArray[np.intp]]:
    """Factors that may change places with each other, group by group."""
    labels = np.zeros(n_factors) if groups is None else np.asarray(groups)
    if labels.shape != (n_factors,):
        raise ValueError(f"groups: want one label per factor, shape ({n_factors},), got {labels.shape}")
    _, inverse = np.unique(labels, return_inverse=True)
    return [np.flatnonzero(inverse == g) for g in range(inverse.max(initial=-1) + 1)]


def _align_to(
    x: Floats, reference: Floats, kind: Kind, places: list[NDArray[np.intp]]
) -> tuple[Alignment, Floats]:
    """Alignment to a matrix, and the mean of the aligned unit-norm columns."""
    unit_reference, filled_reference = _columns(reference, "pivot", kind)
    n_factors = x.shape[-1]
    permutation, sign = np.zeros((len(x), n_factors), np.intp), np.ones((len(x), n_factors))
    congruence, total = np.zeros((len(x), n_factors)), np.zeros(x.shape[1:])
    for start in range(0, len(x), _BLOCK):
        block = slice(start, start + _BLOCK)
        unit, filled = _columns(x[block], "stack", kind)
        s = np.clip(unit_reference.T @ unit, -1.0, 1.0)
        for place in places:
            match, sign[block, place] = match_columns(s[:, place[:, None], place])
            permutation[block, place] = place[match]
        order = permutation[block]
        matched = np.take_along_axis(s, order[:, :, None], axis=2)[..., 0]
        both_empty = ~filled_reference & ~np.take_along_axis(filled, order, axis=1)
        congruence[block] = np.where(both_empty, np.nan, np.abs(matched))
        total += (np.take_along_axis(unit, order[:, None, :], axis=2) * sign[block, None, :]).sum(axis=0)
    return Alignment(permutation, sign, congruence), total / max(len(x), 1)


def apply_alignment(values: ArrayLike, alignment: Alignment, signed: bool = True) -> NDArray[Any]:
    """Carry anything whose first axis is restart and last axis is factor into the common frame.

    Parameters
    ----------
    values : array_like of shape (restart, ..., factor)
        Loadings, factor values, edge probabilities, inclusion rates.
    alignment : Alignment
        From `align`; or from `align_draws`, for values of shape (chain, draw, ..., factor).
    signed : bool
        Flip signs too. Off for what has no sign: probabilities, effects, eta.

    Returns
    -------
    ndarray of the same shape
    """
    x = np.asarray(values)
    permutation, sign, _ = alignment
    lead = permutation.ndim - 1
    if x.ndim <= lead or (*x.shape[:lead], x.shape[-1]) != permutation.shape:
        axes = "restart" if lead == 1 else "chain, draw"
        raise ValueError(
            f"values: want shape ({axes}, ..., factor), these as in {permutation.shape}, got {x.shape}"
        )
    shape = (*x.shape[:lead], *(1,) * (x.ndim - lead - 1), x.shape[-1])
    moved = np.take_along_axis(x, permutation.reshape(shape), axis=-1)
    return moved * sign.reshape(shape) if signed else moved


def orient(weights: ArrayLike) -> NDArray[np.float64]:
    """Sign of each column that makes its large entries mostly positive: the sign of the sum of cubes.

    The cube lets the large loadings decide, without hanging on a single one.

    Parameters
    ----------
    weights : array_like of shape (feature, factor)

    Returns
    -------
    ndarray of shape (factor,)
        +1 or -1; +1 for empty columns.
    """
    unit, _ = _columns(weights, "weights", "loadings")
    return np.where((unit**3).sum(axis=0) < 0, -1.0, 1.0)


def agreement_matrix(stack: ArrayLike, kind: Kind = "loadings") -> NDArray[np.float64]:
    """How alike every two restarts are, whatever their order and signs.

    Entry (r, s) is the sum of absolute similarity over the best one-to-one match of columns, divided by the
    larger of the two counts of non-empty columns: 1 when the answers are the same, lower when columns differ
    *or* one restart uses factors that the other does not.

    Parameters
    ----------
    stack : array_like of shape (restart, row, factor)
    kind : {"loadings", "factors"}

    Returns
    -------
    ndarray of shape (restart, restart)
        Symmetric, in [0, 1]; NaN for two restarts that are both empty.
    """
    x = np.asarray(stack, dtype=float)
    if x.ndim != 3:
        raise ValueError(f"stack: want shape (restart, row, factor), got {x.shape}")
    normalised = [_columns(member, "stack", kind) for member in x]
    result = np.full((len(x), len(x)), np.nan)
    for r, (unit_r, filled_r) in enumerate(normalised):
        for s, (unit_s, filled_s) in enumerate(normalised[: r + 1]):
            used = max(filled_r.sum(), filled_s.sum())
            if used:
                table = np.abs(unit_r.T @ unit_s)
                rows, columns = linear_sum_assignment(-table)
                result[r, s] = result[s, r] = min(1.0, table[rows, columns].sum() / used)
    return result
