r"""Doubts about the axes of a curved decoder: sparser axes, factors within others, factors that are curves.

A factor of a masked decoder can stand for no true one although every chain has it and no zero of the graph is
missing: the difference of two correlated factors, a factor's absolute value, a copy that takes a few features
over. Four figures of the fit show them.

* **Sparser axes.** With :math:`J_j` the slopes of feature j, the leading eigenvector of
  :math:`C^{1/2} E[J_j^\top J_j] C^{1/2}` is its direction. A factor is in doubt if the axes in which
  directions have most zeros are others, and have clearly fewer sizeable directions.
* **Within another.** All features of a factor but one depend on one other factor, too: sliding the factor
  along the other changes no edge but that one.
* **Left behind.** A restart that began in the sparsest axes ended in others: its training prefers them to
  what a search of its own prefers, and one of the two is wrong.
* **A curve of another.** Scores that a curve of another factor's scores explains better than a line does:
  factors of a normal distribution depend on each other linearly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from ..findings import Finding
from ..large_table import LargeTable
from .axes import n_sizeable, oblique
from .decoder_axes import second_moments
from .restarts import in_frame, pick

__all__ = ["axis_findings", "curve_share", "left_axes", "nested_factors", "sparser_axes"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_MOST_FEATURES, _MOST_ROWS, _LEAST_ROWS = 500, 2000, 100
_LOUD = 1e-3  # of the largest total slope: a feature with less says nothing about axes
_SIZEABLE = 0.2  # of a direction of length 1
# On off-model tables whose factors were rotated pairs of the true ones 3.3 or more were saved, on tables with
# right factors at most 0.2 (tuning seeds 1000 to 1003).
_SAVED = 2.0
_SAME_AXIS = 0.9  # correlation of scores from which an axis is the same
_OWN_FEATURES = 1  # features that a factor has and another has not, up to which it lies within the other
_LEAST_FEATURES = 3
# Right factors had .04 at most on tables of that kind (1000 to 1007), a factor's absolute value .10 to .23;
# of four independent normal factors and 300 rows the largest is below .07 in 98 of 100 tables.
_CURVED = 0.08
_KNOTS = (0.2, 0.4, 0.6, 0.8)


def axis_findings(fit: Any) -> list[Finding]:
    """Doubts about factors of a curved decoder's best restart.

    Parameters
    ----------
    fit : Fit
        With the rows it was fitted to.

    Returns
    -------
    list of Finding
        One for each of the three reasons at most. Empty for a linear decoder, whose axes `certificates`
        judge, and for tables that are read by rows or too large to look at.
    """
    model, table = fit.model, fit.table
    if getattr(model, "decoder_kind", "") != "mlp" or isinstance(table, LargeTable):
        return []
    if len(fit.feature_names) > _MOST_FEATURES or not _LEAST_ROWS <= len(table.x):
        return []
    edge = np.asarray(fit.weights[int(fit.best)]) != 0
    used = np.flatnonzero(edge.any(0))
    if len(used) < 2:
        return []
    rows = np.arange(len(table.x))[:_MOST_ROWS]
    restart, batch = _best_and_batch(fit, rows)
    scores = _scores(fit, restart, batch)[:, used]
    moments = second_moments(restart, batch)[1][0].cpu().numpy()
    order = np.asarray(fit.alignment["permutation"])[int(fit.best)][used]
    sign = np.asarray(fit.alignment["sign"])[int(fit.best)][used]
    moments = moments[:, order][:, :, order] * np.outer(sign, sign)
    names = [fit.factor_names[k] for k in used]
    return [
        *_of_sparser_axes(scores, moments, names),
        *_of_nested(edge[:, used], names),
        *_of_curves(scores, names),
    ]


def left_axes(fit: Any, rows: NDArray[np.intp], began: Floats) -> list[Finding]:
    """Doubts about factors of a best restart that began in the sparsest axes and is no longer there.

    Parameters
    ----------
    fit : Fit
        Its best restart is one of `settings["axis_restarts"]`, or nothing is said.
    rows : ndarray of int
        Of its table.
    began : ndarray (row, factor)
        Scores in which that restart began.
    """
    if int(fit.best) not in fit.settings.get("axis_restarts", []):
        return []
    used = np.flatnonzero((np.asarray(fit.weights[int(fit.best)]) != 0).any(0))
    scores = _scores(fit, *_best_and_batch(fit, rows))[:, used]
    between = np.abs(np.nan_to_num(np.corrcoef(began.T, scores.T)[: began.shape[1], began.shape[1] :]))
    nearest = between.max(0)
    left = tuple(fit.factor_names[k] for k in used[nearest < _SAME_AXIS])
    if not left:
        return []
    message = (
        f"{', '.join(left)}: training left the axes that a search for the sparsest ones found (correlation "
        f"{nearest.min():.2f})"
    )
    remedy, size = "more restarts, or an anchor for each", float(nearest.min())
    return [Finding("axes", message, remedy, "doubt", factors=left, size=size)]


def _best_and_batch(fit: Any, rows: NDArray[np.intp]) -> tuple[Any, Any]:
    """The best restart alone, and rows of the table as it reads them."""
    like = fit.model.factor_cov
    return pick(fit.model, [int(fit.best)]), fit.table.rows(rows).batch(like.device, like.dtype)


def _scores(fit: Any, restart: Any, batch: Any) -> Floats:
    """Factors of rows, (row, factor), in the order and with the signs of the fit."""
    with torch.no_grad():
        location = restart.encode(batch)[0][0].cpu().double().numpy()
    return np.asarray(in_frame(fit, location))


def _of_sparser_axes(scores: Floats, moments: Floats, names: list[str]) -> list[Finding]:
    other, saved = sparser_axes(scores, moments)
    if saved < _SAVED or not other.any():
        return []
    which = tuple(name for name, is_other in zip(names, other, strict=True) if is_other)
    message = (
        f"{', '.join(which)}: other axes of the same space explain the features with {saved:.0f} edges fewer"
    )
    return [
        Finding("axes", message, "more restarts, or an anchor for each", "doubt", factors=which, size=saved)
    ]


def _of_nested(edge: Bools, names: list[str]) -> list[Finding]:
    within = nested_factors(edge)
    if not within:
        return []
    said = [f"{names[k]} within {names[m]}" for k, m in within.items()]
    message = (
        f"{', '.join(said)}: nearly all its features depend on the other factor, too, so that the two can "
        "have some of them wrongly"
    )
    remedy = "a feature of its own, as an anchor, would settle it"
    return [Finding("axes", message, remedy, "doubt", factors=_both(within, names))]


def _of_curves(scores: Floats, names: list[str]) -> list[Finding]:
    share = curve_share(scores)
    of = {int(k): int(share[:, k].argmax()) for k in np.flatnonzero(share.max(0) > _CURVED)}
    if not of:
        return []
    said = [f"{names[k]} of {names[m]}" for k, m in of.items()]
    message = (
        f"{', '.join(said)}: its scores are in part a curve of the other's, so one true factor may be split "
        "between the two"
    )
    remedy, size = "fewer factors, or more restarts", float(share.max())
    return [Finding("axes", message, remedy, "doubt", factors=_both(of, names), size=size)]


def _both(pairs: dict[int, int], names: list[str]) -> tuple[str, ...]:
    """Both factors of each pair, once: where one is split, it is the other that has its false edges."""
    return tuple(names[k] for k in sorted({*pairs, *pairs.values()}))


def sparser_axes(scores: Floats, moments: Floats) -> tuple[Bools, float]:
    """Which factors are not among the sparsest axes, and how many sizeable directions those save.

    Parameters
    ----------
    scores : ndarray (row, factor)
    moments : ndarray (feature, factor, factor)
        :math:`E[J_j^\top J_j]`.

    Returns
    -------
    other : ndarray of bool (factor,)
    saved : float
    """
    k = scores.shape[1]
    centred = scores - scores.mean(0)
    values, axes = np.linalg.eigh(centred.T @ centred / len(centred))
    values = np.maximum(values, 1e-9 * values[-1])
    root, inverse = (axes * np.sqrt(values)) @ axes.T, (axes / np.sqrt(values)) @ axes.T
    share = root @ moments @ root
    total = np.trace(share, axis1=1, axis2=2)
    direction = np.linalg.eigh(share)[1][total > _LOUD * total.max(), :, -1]
    if len(direction) <= k:
        return np.zeros(k, dtype=bool), 0.0
    own = direction @ inverse * scores.std(0)
    found, _ = oblique(direction, n_starts=16, epsilon=(0.3, 0.01))
    rotation = np.linalg.lstsq(found, direction, rcond=None)[0].T
    between = np.abs(np.nan_to_num(np.corrcoef(scores.T, (centred @ inverse @ rotation).T)[:k, k:]))
    which, place = linear_sum_assignment(-between)
    other = np.zeros(k, dtype=bool)
    other[which] = between[which, place] < _SAME_AXIS
    return other, n_sizeable(own, _SIZEABLE) - n_sizeable(found, _SIZEABLE)


def nested_factors(edge: Bools) -> dict[int, int]:
    """Factors of which all features but one have one other factor, too, and that factor.

    Parameters
    ----------
    edge : ndarray of bool (feature, factor)

    Examples
    --------
    >>> nested_factors(np.array([[1, 1], [1, 1], [1, 1], [0, 1], [0, 1], [0, 1]], dtype=bool))
    {0: 1}
    """
    count = edge.sum(0)
    alone = count[:, None] - edge.T.astype(int) @ edge.astype(int)  # (k, m): features of k without m
    np.fill_diagonal(alone, edge.shape[0] + 1)
    found: dict[int, int] = {}
    for k in np.flatnonzero(count >= _LEAST_FEATURES):
        larger = np.where(count > count[k], alone[k], edge.shape[0] + 1)
        if larger.min() <= _OWN_FEATURES:
            found[int(k)] = int(larger.argmin())
    return found


def curve_share(scores: Floats) -> Floats:
    """Share of a factor's variance that a spline of another explains beyond a line, (other, factor).

    Parameters
    ----------
    scores : ndarray (row, factor)
    """
    z = (scores - scores.mean(0)) / np.maximum(scores.std(0), 1e-9)
    k = z.shape[1]
    share = np.zeros((k, k))
    for m in range(k):
        bends = [np.clip(z[:, m] - knot, 0, None) ** 3 for knot in np.quantile(z[:, m], _KNOTS)]
        line = np.column_stack([np.ones(len(z)), z[:, m]])
        left = []
        for design in (line, np.column_stack([line, z[:, m] ** 2, z[:, m] ** 3, *bends])):
            left.append((z - design @ np.linalg.lstsq(design, z, rcond=None)[0]).var(0))
        share[m] = left[0] - left[1]
    np.fill_diagonal(share, 0.0)
    return share
