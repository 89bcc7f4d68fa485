r"""Is a dependency graph diverse enough to identify its latents? Anchors, structural sparsity, diversity.

Let :math:`R_r` be the latents that reach feature r and :math:`c_j` the features that latent j reaches. What
the papers ask of *some set* of features (there are 2^G) is equivalent to a question about pairs of columns,

.. math:: \text{structural sparsity of } i \iff c_i \ne \emptyset \text{ and } c_i \not\subseteq c_j
          \ \text{for all}\ j \ne i,

and likewise for the two other conditions of diversity: inclusion and matrix products, whole stacks at a time.

Zheng, Li, Fan, Wilson, Zhang (2026), *Diverse dictionary learning*, arXiv 2604.17568.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._draws import feature_graphs

__all__ = ["Diversity", "anchors", "column_in_column", "structural_sparsity", "sufficient_diversity"]

Bools = NDArray[np.bool_]


def anchors(graph: ArrayLike) -> NDArray[np.intp]:
    r"""Number of anchor features of every latent: features that depend on it and on nothing else.

    .. math:: a_i = \#\{r : R_r = \{i\}\}; \qquad \text{Moran et al. ask for}\ a_i \ge 2 \ \text{for all}\ i.

    Parameters
    ----------
    graph : array_like of shape (..., feature, factor)
        1 where the factor reaches the feature; one graph or a stack.

    Returns
    -------
    ndarray of int, shape (..., factor)

    Raises
    ------
    ValueError
        If an entry is not 0 or 1.

    References
    ----------
    Moran, Sridhar, Wang, Blei (2022), assumption A1.

    Examples
    --------
    >>> anchors([[1, 0], [1, 0], [0, 1], [0, 1], [1, 1]])
    array([2, 2])
    """
    edges = feature_graphs(graph)
    single = edges.sum(axis=-1, keepdims=True) == 1
    return np.asarray((edges & single).sum(axis=-2), dtype=np.intp)


def structural_sparsity(graph: ArrayLike) -> Bools:
    r"""Structural sparsity of every latent: some group of features has this latent, and no other, in common.

    .. math:: \exists A : \bigcap_{r \in A} R_r = \{i\} \iff c_i \ne \emptyset \ \text{and no}\ j \ne i
              \ \text{with}\ c_i \subseteq c_j

    It holds for all latents if no column contains another.

    Parameters
    ----------
    graph : array_like of shape (..., feature, factor)
        One graph or a stack.

    Returns
    -------
    ndarray of bool, shape (..., factor)

    Raises
    ------
    ValueError
        If an entry is not 0 or 1.

    References
    ----------
    Zheng, Ng, Zhang (2022), *On the identifiability of nonlinear ICA: sparsity and beyond*, assumption iii.

    Examples
    --------
    >>> structural_sparsity([[1, 1, 0], [0, 1, 1], [1, 0, 1]])
    array([ True,  True,  True])
    >>> structural_sparsity([[1, 1], [0, 1]])
    array([False,  True])
    """
    edges = feature_graphs(graph)
    return _some(edges, -2) & ~_some(_others(column_in_column(edges)), -1)


class Diversity(NamedTuple):
    """Which of the three conditions of sufficient diversity hold for each latent.

    Parameters
    ----------
    exclusive : ndarray of bool, shape (..., factor)
        Condition 1: among features that need all latents, one depends on this latent alone of what the others
        leave over.
    missing : ndarray of bool, shape (..., factor)
        Condition 2: among features that need all latents, this latent is all that one lacks of what the
        others have in common.
    common : ndarray of bool, shape (..., factor)
        Condition 3, `structural_sparsity`: some features have this latent, and no other, in common.
    """

    exclusive: Bools
    missing: Bools
    common: Bools

    @property
    def diverse(self) -> Bools:
        """Of shape (..., factor): whether any of the three holds."""
        return self.exclusive | self.missing | self.common

    @property
    def holds(self) -> Bools:
        """Of shape (...,): whether each latent has one of them, assumption 2 of the paper."""
        return np.asarray(self.diverse.all(axis=-1))


def sufficient_diversity(graph: ArrayLike) -> Diversity:
    r"""Sufficient diversity (assumption 2): for every latent one of three conditions on some group A.

    .. math::

        \text{(1)}\ \textstyle\bigcup_A R_r = \text{all},\ R_k \setminus \bigcup_{A \setminus k} R_r = \{i\}
        &\iff c_i \ne \emptyset,\ \text{no}\ j \ne i : c_j \subseteq c_i \\
        \text{(2)}\ \textstyle\bigcup_A R_r = \text{all},\ \bigcap_{A \setminus k} R_r \setminus R_k = \{i\}
        &\iff \exists k \notin c_i : \{j \ne i : c_i \subseteq c_j\} \subseteq R_k, \
        R_k \cup \textstyle\bigcup_{r \in c_i} R_r = \text{all} \\
        \text{(3)}\ \textstyle\bigcap_A R_r = \{i\}
        &\iff c_i \ne \emptyset,\ \text{no}\ j \ne i : c_i \subseteq c_j

    Diverse is not sparse: a graph with all edges but one per latent is diverse.

    Parameters
    ----------
    graph : array_like of shape (..., feature, factor)
        One graph or a stack. A latent without any edge belongs to "all", so that (1) and (2) fail beside it.

    Returns
    -------
    Diversity

    Raises
    ------
    ValueError
        If an entry is not 0 or 1.

    References
    ----------
    Zheng et al. (2026), assumption 2 and theorem 3. The theorem also asks for enough nonlinearity and a
    positive density of the latents; for (1) and (2) see the caution in `may_depend`.

    Examples
    --------
    >>> diversity = sufficient_diversity(np.triu(np.ones((4, 4))))
    >>> np.array(diversity).astype(int)
    array([[1, 0, 0, 0],
           [1, 1, 1, 0],
           [0, 0, 0, 1]])
    >>> bool(diversity.holds)
    True
    """
    edges = feature_graphs(graph)
    there, inside = _some(edges, -2), _others(column_in_column(edges))
    # A group for (2) does best as all of c_i and one feature more, which must have what is left to cover.
    together = _product(edges.swapaxes(-1, -2), edges) > 0
    needed = inside | ~together  # (..., i, j); i itself is not needed, for i shares features with i
    lacks_none = _product(~edges, needed.swapaxes(-1, -2)) == 0  # (..., feature, i)
    return Diversity(
        exclusive=there & ~_some(inside, -2),
        missing=there & _some(lacks_none & ~edges, -2),
        common=there & ~_some(inside, -1),
    )


def _some(x: Bools, axis: int) -> Bools:
    return np.asarray(x.any(axis=axis))


def _product(a: Bools, b: Bools) -> NDArray[np.float32]:
    """How often both are there: BLAS counts many times faster than numpy's product of bools."""
    # float32 counts exactly up to 2^24, some 17 million features
    return a.astype(np.float32) @ b.astype(np.float32)


def column_in_column(edges: Bools) -> Bools:
    """True at (..., i, j) where column i is a subset of column j."""
    subset: Bools = _product(edges.swapaxes(-1, -2), ~edges) == 0
    return subset


def _others(pairs: Bools) -> Bools:
    """The same without the diagonal."""
    return pairs & ~np.eye(pairs.shape[-1], dtype=bool)
