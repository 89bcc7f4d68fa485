r"""Sets of latents seen through groups of features: what two groups share, and what is each one's own.

The index set of a group A of features holds the latents that reach any of them,

.. math:: I(A) = \bigcup_{r \in A} \{k : S_{rk} = 1\}.

Intersection, complement and symmetric difference of two such sets are what can be identified under the
weakest assumptions; `venn` has the diagram of several groups.

Zheng, Li, Fan, Wilson, Zhang (2026), *Diverse dictionary learning*, arXiv 2604.17568.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._draws import feature_graphs

__all__ = ["Features", "IndexSets", "index_set", "index_sets", "names_of", "positions_of"]

Bools = NDArray[np.bool_]
Features = Sequence[int | np.integer | str]


def index_set(graph: ArrayLike, features: Features, *, feature_names: Sequence[str] | None = None) -> Bools:
    r"""Latents that reach at least one of the given features, :math:`I(A)`.

    Numpy's operators are the set algebra: ``a & b`` is the intersection, ``a & ~b`` the complement of b in a,
    ``a ^ b`` the symmetric difference.

    Parameters
    ----------
    graph : array_like or DataFrame of shape (..., feature, factor)
        1 where the factor reaches the feature; or a stack of such graphs.
    features : sequence of int or str
        A: positions from 0, or names. The index set of no feature is empty.
    feature_names : sequence of str, optional
        Names of the rows. Default: those of a DataFrame.

    Returns
    -------
    ndarray of bool, shape (..., factor)

    Raises
    ------
    ValueError
        If an entry is not 0 or 1, or a feature is not in the graph.

    References
    ----------
    Zheng et al. (2026), the index sets of definition 5.

    Examples
    --------
    >>> graph = [[1, 1, 0], [0, 1, 1]]
    >>> a, b = index_set(graph, [0]), index_set(graph, [1])
    >>> (a & b).astype(int), (a ^ b).astype(int)
    (array([0, 1, 0]), array([1, 0, 1]))
    """
    edges = feature_graphs(graph)
    names = names_of(graph, feature_names, edges.shape[-2], "index", "feature_names")
    rows = positions_of(features, names, edges.shape[-2], "features")
    return np.asarray(edges[..., rows, :].any(axis=-2))


class IndexSets(NamedTuple):
    """Index sets of two groups of features, and their set algebra; every entry is a latent in or out.

    Parameters
    ----------
    a, b : ndarray of bool, shape (..., factor)
        The two index sets.
    """

    a: Bools
    b: Bools

    @property
    def intersection(self) -> Bools:
        """What both depend on."""
        return self.a & self.b

    @property
    def only_a(self) -> Bools:
        """What a depends on and b does not: the complement of b's index set in a's."""
        return self.a & ~self.b

    @property
    def only_b(self) -> Bools:
        """What b depends on and a does not."""
        return self.b & ~self.a

    @property
    def symmetric_difference(self) -> Bools:
        """What exactly one of the two depends on."""
        return self.a ^ self.b


def index_sets(
    graph: ArrayLike, a: Features, b: Features, *, feature_names: Sequence[str] | None = None
) -> IndexSets:
    r"""Index sets of two groups of features with their intersection, complements and symmetric difference.

    Parameters
    ----------
    graph : array_like or DataFrame of shape (..., feature, factor)
        As in `index_set`.
    a, b : sequence of int or str
        The two groups; they may overlap.
    feature_names : sequence of str, optional
        As in `index_set`.

    Returns
    -------
    IndexSets

    Raises
    ------
    ValueError
        As in `index_set`.

    Examples
    --------
    >>> sets = index_sets([[1, 1, 0], [0, 1, 1]], [0], [1])
    >>> sets.intersection.astype(int), sets.only_a.astype(int)
    (array([0, 1, 0]), array([1, 0, 0]))
    """
    return IndexSets(
        index_set(graph, a, feature_names=feature_names), index_set(graph, b, feature_names=feature_names)
    )


def positions_of(features: Features, names: list[str] | None, n: int, argument: str) -> NDArray[np.intp]:
    """Features, by position or by name, as positions."""
    if isinstance(features, str):
        raise ValueError(
            f"{argument}: want a list of features, got the text {features!r}; use [{features!r}]"
        )
    positions = []
    for feature in features:
        if isinstance(feature, str):
            if names is None or feature not in names:
                few = ", ".join((names or [])[:5]) + (", …" if len(names or []) > 5 else "")
                expected = f"one of {few}" if names else "a position: the features have no names"
                raise ValueError(f"{argument}: no feature is called {feature!r}; want {expected}")
            positions.append(names.index(feature))
        elif isinstance(feature, int | np.integer) and not isinstance(feature, bool) and 0 <= feature < n:
            positions.append(int(feature))
        else:
            raise ValueError(f"{argument}: want positions from 0 to {n - 1} or names, got {feature!r}")
    return np.array(positions, dtype=np.intp)


def names_of(
    graph: object, names: Sequence[str] | None, n: int, axis: str, argument: str
) -> list[str] | None:
    """Names that were given, or those of a DataFrame."""
    if names is None and hasattr(graph, "columns"):
        names = list(getattr(graph, axis))
    if names is None:
        return None
    if len(names) != n:
        raise ValueError(f"{argument}: want {n} names, as in the graph, got {len(names)}")
    return [str(name) for name in names]
