r"""Doubts about the axes of a curved decoder: others as sparse, factors within others, curves of others.

A factor of a masked decoder can stand for no true one although every chain has it and no zero of the graph is
missing: the difference of two correlated factors, a factor's absolute value, a copy that takes a few features
over. Four figures of the fit show them.

* **Other axes.** Where other axes of the same space need hardly more edges (`rotation/alternative_axes.py`),
  the edges that these change are in doubt; where they need clearly fewer, the factors are.
* **Elsewhere than a search.** A search of its own ended in other axes (`axis_restarts.py`): one of the two is
  wrong, and the edges that differ are in doubt.
* **Within another.** All features of a factor but one depend on one other factor, too: sliding the factor
  along the other changes no edge but that one.
* **A curve of another.** Scores that a curve of another factor's scores explains better than a line does:
  factors of a normal distribution depend on each other linearly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from ...data.large_table import LargeTable
from ...findings.finding import Finding
from ..rotation.alternative_axes import Alternative, alternatives, directions, in_axes_of
from ..training.restarts import in_frame, pick
from .axis_restarts import AxisStart
from .decoder_axes import second_moments

if TYPE_CHECKING:
    from ...data.read import Batch
    from ...models.base import FactorModel
    from .result import Fit

__all__ = ["axis_findings", "curve_share", "nested_factors"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# The first and the last are those of tables that are searched for axes (`axis_restarts.py`).
_MOST_FEATURES, _MOST_ROWS, _LEAST_ROWS = 500, 2000, 100
# On off-model tables whose factors were rotated pairs of the true ones 3.3 edges or more were saved, on
# tables with right factors at most 0.2 (tuning seeds 1000 to 1003).
_SAVED = 2.0
# Axes that need up to one edge more are as good: of 42 off-model fits (tuning seeds) three have such, which
# change 6 of their 2,111 true edges and 3 of their 12 false ones; up to 2.5 more would have touched 34 and 4.
_AS_GOOD = 1.0
_SAME_AXIS = 0.9  # correlation of scores from which an axis is the same
_NAMED = 4  # edges in a message
_OWN_FEATURES = 1  # features that a factor has and another has not, up to which it lies within the other
_LEAST_FEATURES = 3  # of a factor asked about: of two features one in common would do
# Right factors had .04 at most on tables of that kind (1000 to 1007), a factor's absolute value .10 to .23;
# of four independent normal factors and 300 rows the largest is below .07 in 98 of 100 tables.
_CURVED = 0.08
_KNOTS = (0.2, 0.4, 0.6, 0.8)  # quantiles of the scores, where a cubic spline may change


def axis_findings(fit: Fit, search: AxisStart | None = None) -> list[Finding]:
    """Doubts about factors and edges of a curved decoder's best restart.

    Parameters
    ----------
    fit : Fit
        With the rows it was fitted to.
    search : AxisStart, optional
        Axes that a search found for the same table, where they were not those of its restarts.

    Returns
    -------
    list of Finding
        One for each of the four reasons at most. Empty for a linear decoder, whose axes `certificates`
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
    like = model.factor_cov
    restart = pick(model, [int(fit.best)])
    batch = table.rows(np.arange(len(table.x))[:_MOST_ROWS]).batch(like.device, like.dtype)
    scores = _scores(fit, restart, batch)[:, used]
    moments = second_moments(restart, batch)[1][0].cpu().numpy()
    order = np.asarray(fit.alignment["permutation"])[int(fit.best)][used]
    sign = np.asarray(fit.alignment["sign"])[int(fit.best)][used]
    moments = moments[:, order][:, :, order] * np.outer(sign, sign)
    features, names = fit.feature_names, [fit.factor_names[k] for k in used]
    doubts = _of_alternatives(alternatives(directions(scores, moments)), features, names)
    if search is not None:
        batch = table.rows(search.rows).batch(like.device, like.dtype)
        same_rows = directions(_scores(fit, restart, batch)[:, used], moments)
        doubts += _of_search(in_axes_of(same_rows, search.scores), features, names)
    return [*doubts, *_of_nested(edge[:, used], names), *_of_curves(scores, names)]


def _scores(fit: Fit, restart: FactorModel, batch: Batch) -> Floats:
    """Factors of rows, (row, factor), in the order and with the signs of the fit."""
    with torch.no_grad():
        location = restart.encode(batch)[0][0].cpu().double().numpy()
    return np.asarray(in_frame(fit, location))


def _of_alternatives(others: list[Alternative], features: list[str], names: list[str]) -> list[Finding]:
    """Factors, where other axes need clearly fewer edges; else edges of axes that need hardly more."""
    remedy = "more restarts, or an anchor for each factor"
    if others and others[0].more <= -_SAVED:
        best = others[0]
        factors = tuple(np.array(names)[best.changed.any(0) | (best.correlation < _SAME_AXIS)].tolist())
        message = (
            f"{', '.join(factors)}: other axes of the same space explain the features with {-best.more:.0f} "
            "edges fewer"
        )
        return (
            [Finding("axes", message, remedy, "doubt", factors=factors, size=-best.more)] if factors else []
        )
    as_good = [axes for axes in others if axes.more < _AS_GOOD and axes.changed.any()]
    if not as_good:
        return []
    edges = _edges(np.any([axes.changed for axes in as_good], axis=0), features, names)
    more = min(axes.more for axes in as_good)
    message = (
        f"other axes of the same space explain the features with about as many edges ({more:+.1f}), and "
        f"differ in {_listed(edges)}"
    )
    return [Finding("axes", message, remedy, "doubt", edges=edges, size=more)]


def _of_search(alternative: Alternative, features: list[str], names: list[str]) -> list[Finding]:
    edges = _edges(alternative.changed, features, names)
    if not edges:
        return []
    least = float(alternative.correlation.min())
    message = (
        f"a search of its own for the sparsest axes ended in others (correlation {least:.2f} of "
        f"{names[int(alternative.correlation.argmin())]}), which differ in {_listed(edges)}"
    )
    remedy = "more restarts, or an anchor for each factor"
    return [Finding("axes", message, remedy, "doubt", edges=edges, size=least)]


def _edges(changed: Bools, features: list[str], names: list[str]) -> tuple[tuple[str, str], ...]:
    return tuple((features[j], names[k]) for j, k in np.argwhere(changed))


def _listed(edges: tuple[tuple[str, str], ...]) -> str:
    labels = [f"{feature!r} on {factor}" for feature, factor in edges[:_NAMED]]
    more = len(edges) - len(labels)
    return f"{len(edges)} edge(s): {', '.join(labels)}{f' and {more} more' if more else ''}"


def _of_nested(edge: Bools, names: list[str]) -> list[Finding]:
    within = nested_factors(edge)
    if not within:
        return []
    pairs = [f"{names[k]} within {names[m]}" for k, m in within.items()]
    message = (
        f"{', '.join(pairs)}: nearly all its features depend on the other factor, too, so that the two can "
        "have some of them wrongly"
    )
    remedy = "a feature of its own, as an anchor, would settle it"
    return [Finding("axes", message, remedy, "doubt", factors=_both(within, names))]


def _of_curves(scores: Floats, names: list[str]) -> list[Finding]:
    share = curve_share(scores)
    of = {int(k): int(share[:, k].argmax()) for k in np.flatnonzero(share.max(0) > _CURVED)}
    if not of:
        return []
    pairs = [f"{names[k]} of {names[m]}" for k, m in of.items()]
    message = (
        f"{', '.join(pairs)}: its scores are in part a curve of the other's, so one true factor may be split "
        "between the two"
    )
    remedy, size = "fewer factors, or more restarts", float(share.max())
    return [Finding("axes", message, remedy, "doubt", factors=_both(of, names), size=size)]


def _both(pairs: dict[int, int], names: list[str]) -> tuple[str, ...]:
    """Both factors of each pair, once: where one is split, it is the other that has its false edges."""
    return tuple(names[k] for k in sorted({*pairs, *pairs.values()}))


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
    within: dict[int, int] = {}
    for k in np.flatnonzero(count >= _LEAST_FEATURES):
        larger = np.where(count > count[k], alone[k], edge.shape[0] + 1)
        if larger.min() <= _OWN_FEATURES:
            within[int(k)] = int(larger.argmin())
    return within


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
