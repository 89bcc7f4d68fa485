r"""Does a decoder bend enough, and are its anchors strong enough? What theory assumes beside the graph.

Let :math:`D^{(s)}_{jk} = \partial E[x_j] / \partial z_k` at the point s. Structural sparsity wants the slopes
of every feature to point in as many directions as it has factors, anchors to have the same curve and to be at
least as steep as features of several factors:

.. math:: \operatorname{rank}\,(D^{(s)}_{jk})_{s,\,k \in R_j} = |R_j|, \qquad
          \sum_s (D^{(s)}_{jk})^2 \ge \sum_s |D^{(s)}_{jk}| \sum_{k'} |D^{(s)}_{lk'}|.

All of it is measured on a fitted decoder: a true one may be a little off on either side.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._draws import feature_graphs

__all__ = ["SlopeDirections", "anchor_likeness", "anchor_scale", "slope_directions"]

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


class SlopeDirections(NamedTuple):
    """In how many directions the slopes of each feature point.

    Parameters
    ----------
    directions : ndarray of int, shape (feature,)
        At least 1, at most the number of the feature's factors.
    evenness : ndarray of shape (feature,)
        Smallest singular value of the slopes over the largest, each factor's slopes having root mean square
        1: 0 where they are always in proportion, 1 where they vary freely. NaN with fewer than two factors.
    bends : ndarray of bool, shape (feature,)
        True where several factors have as many directions.
    """

    directions: NDArray[np.intp]
    evenness: Floats
    bends: Bools


def slope_directions(slopes: ArrayLike, graph: ArrayLike, tolerance: float = 0.2) -> SlopeDirections:
    r"""Directions of every feature's slopes: enough nonlinearity, measured.

    Parameters
    ----------
    slopes : array_like of shape (point, feature, factor)
        Derivatives of the expected features at points of the latents; units do not matter.
    graph : array_like of shape (feature, factor)
        1 where the factor reaches the feature; other slopes are ignored.
    tolerance : float
        Singular values above this share of the largest count as a direction, in (0, 1). Fitted slopes have
        errors: a straight feature's own reach about a tenth.

    Returns
    -------
    SlopeDirections

    Raises
    ------
    ValueError
        If shapes do not fit, a slope is not finite, or `tolerance` is out of range.

    References
    ----------
    Zheng, Ng, Zhang (2022), assumption i: the Jacobian's row spans the space of its support.

    Examples
    --------
    The features are z1 + z2, whose slopes are constant, and z1 + z2 squared:

    >>> z2 = np.linspace(-2, 2, 9)
    >>> slopes = np.stack([np.ones((9, 2)), np.column_stack([np.ones(9), 2 * z2])], axis=1)
    >>> slope_directions(slopes, [[1, 1], [1, 1]]).directions
    array([1, 2])
    """
    edges, d = _checked(slopes, graph, "slopes", "(point, feature, factor)")
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance: want a share between 0 and 1, got {tolerance}")
    directions, evenness = np.ones(len(edges), dtype=np.intp), np.full(len(edges), np.nan)
    for j in np.flatnonzero(edges.sum(axis=1) > 1):
        feature_slopes = d[:, j, edges[j]]
        size = np.sqrt((feature_slopes**2).mean(axis=0))
        alive = size > 1e-6 * size.max(initial=0.0)
        sigma = np.zeros(len(size))
        if alive.any():
            values = np.linalg.svd(feature_slopes[:, alive] / size[alive], compute_uv=False)
            sigma[: len(values)] = values
            directions[j] = int((sigma > tolerance * sigma[0]).sum())
        evenness[j] = sigma[-1] / sigma[0] if sigma[0] > 0 else 0.0
    several = edges.sum(axis=1)
    return SlopeDirections(directions, evenness, (several > 1) & (directions == several))


def anchor_scale(slopes: ArrayLike, graph: ArrayLike) -> Floats:
    r"""How comfortably a factor's two best anchors outweigh the features of several factors.

    .. math:: \min_l \frac{\sum_s (D^{(s)}_{jk})^2}{\sum_s |D^{(s)}_{jk}| \sum_{k'} |D^{(s)}_{lk'}|}

    of the second best anchor j of factor k, over the features l that are no anchors. The published condition
    writes a weight and the curve behind it separately; multiplied by the anchor's weight, both sides depend
    on their product alone, the slope.

    Parameters
    ----------
    slopes : array_like of shape (point, feature, factor)
        Derivatives of the expected features, in standard deviations of feature and factor.
    graph : array_like of shape (feature, factor)
        1 where the factor reaches the feature.

    Returns
    -------
    ndarray of shape (factor,)
        At least 1 where the condition holds; NaN with fewer than two anchors, infinite if all features are
        anchors.

    Raises
    ------
    ValueError
        If shapes do not fit or a slope is not finite.

    References
    ----------
    Moran, Sridhar, Wang, Blei (2022), assumption A2; Bing, Bunea, Ning, Wegkamp (2020) for linear decoders.

    Examples
    --------
    >>> slopes = [[[0.9, 0], [0.8, 0], [0, 0.9], [0, 0.9], [0.3, 0.4]]]
    >>> anchor_scale(slopes, np.array(slopes)[0] != 0).round(3)
    array([1.143, 1.286])
    """
    edges, d = _checked(slopes, graph, "slopes", "(point, feature, factor)")
    d = np.abs(d) * edges
    total = d[:, edges.sum(axis=1) > 1].sum(axis=2)  # (point, feature that is no anchor)
    scale = np.full(edges.shape[1], np.nan)
    for k, anchors in enumerate(_anchors_of(edges)):
        if len(anchors) > 1:
            most = (d[:, anchors, k].T @ total).max(axis=1, initial=0.0)
            power = (d[:, anchors, k] ** 2).sum(axis=0)
            scale[k] = np.sort(np.divide(power, most, out=np.full(len(anchors), np.inf), where=most > 0))[-2]
    return scale


def anchor_likeness(means: ArrayLike, graph: ArrayLike) -> Floats:
    r"""How alike the curves of a factor's two most similar anchors are: their absolute correlation.

    Parameters
    ----------
    means : array_like of shape (point, feature)
        Expected features at points of the latents; units do not matter.
    graph : array_like of shape (feature, factor)
        1 where the factor reaches the feature.

    Returns
    -------
    ndarray of shape (factor,)
        1 where two anchors answer alike, up to scale; NaN with fewer than two anchors.

    Raises
    ------
    ValueError
        If shapes do not fit or a mean is not finite.

    References
    ----------
    Moran, Sridhar, Wang, Blei (2022), assumption A1: two anchors have the same expectation given the factor.

    Examples
    --------
    >>> z = np.linspace(-2, 2, 9)
    >>> anchor_likeness(np.column_stack([z, 3 * z, z**2]), [[1], [1], [1]])
    array([1.])
    """
    edges, x = _checked(means, graph, "means", "(point, feature)")
    x = x - x.mean(axis=0)
    size = np.sqrt((x**2).sum(axis=0))
    unit = np.where(size > 0, x / np.where(size > 0, size, 1.0), 0.0)
    likeness = np.full(edges.shape[1], np.nan)
    for k, anchors in enumerate(_anchors_of(edges)):
        if len(anchors) > 1:
            table = np.abs(unit[:, anchors].T @ unit[:, anchors])
            likeness[k] = min(1.0, table[np.triu_indices(len(anchors), 1)].max())
    return likeness


def _anchors_of(edges: Bools) -> list[NDArray[np.intp]]:
    single = edges.sum(axis=1) == 1
    return [np.flatnonzero(single & edges[:, k]) for k in range(edges.shape[1])]


def _checked(values: ArrayLike, graph: ArrayLike, name: str, shape: str) -> tuple[Bools, Floats]:
    edges, x = feature_graphs(graph), np.asarray(values, dtype=float)
    if edges.ndim != 2:
        raise ValueError(f"graph: want one graph (feature, factor), got {edges.shape}")
    want = edges.shape if shape.count(",") == 2 else edges.shape[:1]
    if x.shape[1:] != want or len(x) == 0:
        raise ValueError(f"{name}: want shape {shape} over a graph {edges.shape}, got {x.shape}")
    if not np.isfinite(x).all():
        raise ValueError(f"{name}: want finite numbers, got NaN or infinity; leave those points out")
    return edges, x
