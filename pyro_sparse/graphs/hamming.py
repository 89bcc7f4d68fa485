r"""The graph that is expected to differ least from the truth, in structural Hamming distance.

With edges :math:`\hat g` against the unknown g, a false edge costs a and a missing one b:

.. math:: E[d(\hat g, g)] = \sum_e \hat g_e\, a\, (1 - p_e) + (1 - \hat g_e)\, b\, p_e,

least where edges with :math:`p_e \ge a / (a + b)` are named. Where an edge that points the wrong way counts
once, not twice, i → j and j → i are decided together, from how often the draws hold one, the other, or both.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._draws import ROUNDING, graphs_of, probabilities, zero_one

__all__ = ["expected_shd", "shd_optimal_graph"]

Floats = NDArray[np.float64]


def shd_optimal_graph(
    draws: ArrayLike,
    *,
    weight_false: float = 1.0,
    weight_missing: float = 1.0,
    reversal_counts_once: bool = False,
) -> NDArray[np.bool_]:
    r"""Graph of least posterior expected structural Hamming distance, see `expected_shd`.

    Edges with :math:`p_e \ge a/(a+b)`, for a = `weight_false` and b = `weight_missing`; with equal weights
    this is `median_probability_graph`. With `reversal_counts_once` each pair of opposite edges takes the one
    of its four states (both, either, none) that costs least; of states that cost the same, that with more
    edges. Any 0/1 matrix may come out: nothing forbids cycles.

    Parameters
    ----------
    draws : array_like, shape (..., draw, row, column) or (row, column)
        Draws of the graph, leading axes pooled; or edge probabilities, which are all that is needed unless
        `reversal_counts_once`.
    weight_false, weight_missing : float
        Cost of naming an edge that is not there, and of not naming one that is; not negative, not both 0.
    reversal_counts_once : bool
        Count an edge of a square graph that points the wrong way as (a + b) / 2 instead of a + b. Wants 0/1
        draws.

    Returns
    -------
    ndarray of bool, shape (row, column)

    Raises
    ------
    ValueError
        If a value is outside of [0, 1], a weight is negative, or for `reversal_counts_once` the graph is not
        square or no 0/1 draws are given.

    Examples
    --------
    An edge is there for sure, its direction is open. Not to name it costs 1; to name it in the likelier
    direction costs .6 if a reversal counts once, and 1.2 if it counts as a false and a missing edge:

    >>> draws = [[[0, 1], [0, 0]]] * 2 + [[[0, 0], [1, 0]]] * 3
    >>> shd_optimal_graph(draws, weight_false=2, reversal_counts_once=True).astype(int)
    array([[0, 0],
           [1, 0]])
    >>> shd_optimal_graph(draws, weight_false=2).astype(int)
    array([[0, 0],
           [0, 0]])
    """
    a, b = _weights(weight_false, weight_missing)
    p, turned = _moments(draws, reversal_counts_once)
    if turned is None:
        return p >= a / (a + b) - ROUNDING
    here, there, c = p, p.T, (a + b) / 2
    states = [(True, True), (True, False), (False, True), (False, False)]
    cost = np.stack(
        [
            (a * (1 - here) if x else b * here)
            + (a * (1 - there) if y else b * there)
            - c * ((x and not y) * turned + (y and not x) * turned.T)
            for x, y in states
        ]
    )
    # Rounding must not choose between states of equal cost.
    best = np.round(cost, 12).argmin(axis=0)
    upper = np.triu(np.ones(p.shape, dtype=bool), 1)
    graph = upper & np.isin(best, (0, 1)) | (upper & np.isin(best, (0, 2))).T
    return graph | np.diag(np.diag(p) >= a / (a + b) - ROUNDING)


def expected_shd(
    draws: ArrayLike,
    graph: ArrayLike,
    *,
    weight_false: float = 1.0,
    weight_missing: float = 1.0,
    reversal_counts_once: bool = False,
) -> float:
    r"""Posterior expected structural Hamming distance of a graph.

    .. math::

        \sum_{ij} \hat g_{ij}\, a\, (1 - p_{ij}) + (1 - \hat g_{ij})\, b\, p_{ij}
        \;-\; \frac{a + b}{2} \sum_{i \ne j} \hat g_{ij} (1 - \hat g_{ji})\, P(g_{ij} = 0, g_{ji} = 1)

    with the second term only if `reversal_counts_once`: an edge that points the wrong way is then half of the
    false edge and the missing one that it is made of. With weights 1 the distance is that of `metrics.shd`.

    Parameters
    ----------
    draws : array_like, shape (..., draw, row, column) or (row, column)
        As in `shd_optimal_graph`.
    graph : array_like of 0 and 1, shape (row, column)
    weight_false, weight_missing : float
        As in `shd_optimal_graph`.
    reversal_counts_once : bool
        As in `shd_optimal_graph`.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        As in `shd_optimal_graph`, and if `graph` has another shape or entries other than 0 and 1.
    """
    a, b = _weights(weight_false, weight_missing)
    p, turned = _moments(draws, reversal_counts_once)
    if np.shape(graph) != p.shape:
        raise ValueError(f"graph: want the shape of a draw, {p.shape}, got {np.shape(graph)}")
    g = zero_one(graph, "graph", "choose edges first").astype(float)
    cost = (g * a * (1 - p) + (1 - g) * b * p).sum()
    if turned is not None:
        cost -= (a + b) / 2 * (g * (1 - g.T) * turned).sum()
    return float(cost)


def _weights(weight_false: float, weight_missing: float) -> tuple[float, float]:
    for name, weight in (("weight_false", weight_false), ("weight_missing", weight_missing)):
        if not (np.isfinite(weight) and weight >= 0):
            raise ValueError(f"{name}: want a cost of 0 or more, got {weight!r}")
    if weight_false + weight_missing == 0:
        raise ValueError(
            "weight_false, weight_missing: both are 0, so that every graph is as good; raise one"
        )
    return float(weight_false), float(weight_missing)


def _moments(draws: ArrayLike, turned: bool) -> tuple[Floats, Floats | None]:
    """P(g_ij = 1) and, if asked for, P(g_ij = 0, g_ji = 1)."""
    shape = np.shape(draws)
    if not turned:
        p = probabilities(draws, "draws")
        if p.ndim < 2 or 0 in shape[:-2]:
            raise ValueError(
                f"draws: want shape (..., draw, row, column), or (row, column) of probabilities, got {shape}"
            )
        return p.mean(axis=tuple(range(p.ndim - 2))), None
    if len(shape) < 3:
        raise ValueError(
            f"draws: reversal_counts_once wants joint draws, shape (..., draw, row, column), got {shape}; "
            "probabilities of single edges do not tell how often i -> j goes with j -> i"
        )
    if shape[-1] != shape[-2]:
        raise ValueError(f"draws: reversal_counts_once wants square graphs, got {shape[-2:]}")
    graphs = graphs_of(draws)
    return graphs.mean(axis=0), (~graphs & graphs.swapaxes(1, 2)).mean(axis=0)
