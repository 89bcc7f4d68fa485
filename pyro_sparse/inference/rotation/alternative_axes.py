r"""Other axes of the same space of factors: how many edges they need, and which edges they change.

With :math:`J_j` the slopes of feature j and C the covariance of the factors, the leading eigenvector
:math:`d_j` of :math:`C^{1/2} E[J_j^\top J_j] C^{1/2}` is the feature's direction in white factors. Axes T
(columns of length 1) turn directions into loadings :math:`\Lambda = D T^{-\top}`, and the axes with fewest
sizeable ones are the sparsest (`axes.oblique`).

**The wrong edges are in another column than the wrong factor.** Where :math:`z_k + a z_m` stands in the place
of factor k, its own column is right, and every feature of factor k has

.. math:: \lambda_k z_k + \lambda_m z_m = \lambda_k (z_k + a z_m) + (\lambda_m - a \lambda_k) z_m:

the column of factor *m* gains an edge wherever k has one. So what a doubt about axes touches are the loadings
that differ between two sets of axes, not the factors whose scores do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from .axes import SILENT, counted, obliques

__all__ = ["Alternative", "Directions", "alternatives", "directions", "in_axes_of"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_SIZE = 0.1  # of a loading that counts half an edge, where a direction has length 1
_STARTS, _SHRINK = 64, (0.3, _SIZE**2)  # the search ends with the count by which its axes are compared
_MOST_CORRELATED = 0.9  # two factors of a solution


class Directions(NamedTuple):
    """What features say of the axes.

    Attributes
    ----------
    scores : ndarray (row, factor)
        Of the fit, mean 0, variance 1.
    white : ndarray (row, factor)
        The same space, covariance 1.
    direction : ndarray (feature, factor)
        In white factors, length 1; 0 for a feature that hardly depends on any.
    loadings : ndarray (feature, factor)
        In the axes of the fit.
    """

    scores: Floats
    white: Floats
    direction: Floats
    loadings: Floats


class Alternative(NamedTuple):
    """Other axes, factors in the order of the fit's.

    Attributes
    ----------
    more : float
        Smooth number of sizeable loadings, less that of the fit's axes.
    changed : ndarray of bool (feature, factor)
        Edges of one and not of the other.
    correlation : ndarray (factor,)
        Of each factor's scores with those it has in the fit, at least 0.
    """

    more: float
    changed: Bools
    correlation: Floats


def directions(scores: Floats, moments: Floats) -> Directions:
    """Directions of features, from scores and from slopes.

    Parameters
    ----------
    scores : ndarray (row, factor)
    moments : ndarray (feature, factor, factor)
        :math:`E[J_j^\\top J_j]`.
    """
    centred = scores - scores.mean(0)
    values, axes = np.linalg.eigh(centred.T @ centred / len(centred))
    values = np.maximum(values, 1e-9 * values[-1])
    root, inverse = (axes * np.sqrt(values)) @ axes.T, (axes / np.sqrt(values)) @ axes.T
    share = root @ moments @ root
    total = np.trace(share, axis1=1, axis2=2)
    direction = np.linalg.eigh(share)[1][:, :, -1] * (total > SILENT * total.max())[:, None]
    sd = np.maximum(centred.std(0), 1e-12)
    return Directions(centred / sd, centred @ inverse, direction, direction @ inverse * sd)


def alternatives(of: Directions) -> list[Alternative]:
    """Axes at which searches from many starts end, those with the fewest edges first.

    Parameters
    ----------
    of : Directions

    Returns
    -------
    list of Alternative
        The fit's own axes are among them where they are an optimum: nothing is changed there.
    """
    k = of.direction.shape[1]
    if (of.direction != 0).any(1).sum() <= k:
        return []
    ends = obliques(of.direction, _STARTS, epsilon=_SHRINK, max_correlation=_MOST_CORRELATED)
    to_loadings = [np.linalg.lstsq(of.direction, loadings, rcond=None)[0] for loadings, _ in ends]
    return [_compared(of, np.linalg.pinv(map_).T) for map_ in to_loadings]


def in_axes_of(of: Directions, scores: Floats) -> Alternative:
    """Axes that scores of the same rows are, or come nearest to.

    Parameters
    ----------
    of : Directions
    scores : ndarray (row, factor)
        Where they are fewer than the fit's, its other factors stay; the best matched ones where more.
    """
    k = of.scores.shape[1]
    between = np.nan_to_num(np.corrcoef(of.scores.T, scores.T)[:k, k:])
    matched, place = linear_sum_assignment(-np.abs(between))
    target = of.scores.copy()
    target[:, matched] = scores[:, place]
    target = (target - target.mean(0)) / np.maximum(target.std(0), 1e-12)
    map_ = np.linalg.lstsq(of.white, target, rcond=None)[0]
    return _compared(of, map_ / np.maximum(np.linalg.norm(map_, axis=0), 1e-12))


def _compared(of: Directions, map_: Floats) -> Alternative:
    """Axes that a map of white factors makes, columns of length 1, beside the fit's."""
    k = map_.shape[1]
    loadings = of.direction @ np.linalg.pinv(map_).T
    between = np.abs(np.nan_to_num(np.corrcoef(of.scores.T, (of.white @ map_).T)[:k, k:]))
    _, place = linear_sum_assignment(-between)  # the first is 0, 1, ... of a square matrix
    before, after = counted(of.loadings, _SIZE), counted(loadings[:, place], _SIZE)
    return Alternative(
        float(after.sum() - before.sum()), np.abs(before - after) > 0.5, between[np.arange(k), place]
    )
