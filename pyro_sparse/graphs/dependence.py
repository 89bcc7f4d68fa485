r"""Which latents may still be mixed, given which features depend on them: set-theoretic identifiability.

Two models with the same density of the features and the same number of edges have latents related by
:math:`z = h(\hat z)`. For every two groups of features, the latents that both see, those that one sees and
those that the other sees are kept apart (`kept_apart`). All pairs of groups together leave

.. math:: \partial z_i / \partial \hat z_j \ne 0 \ \text{only if}\ c_i \subseteq c_j,

:math:`c_j` being the features that latent j reaches, up to a permutation (`may_depend`).

Zheng, Li, Fan, Wilson, Zhang (2026), *Diverse dictionary learning*, arXiv 2604.17568.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._draws import feature_graph_draws, feature_graphs
from .diversity import column_in_column
from .identifiability import IdentifiabilityProbability, shares_of
from .index_sets import Features, index_sets

__all__ = ["Mode", "dependency_identifiability", "kept_apart", "may_depend"]

Bools = NDArray[np.bool_]
Mode = Literal["support", "paper"]


def may_depend(graph: ArrayLike, mode: Mode = "support") -> Bools:
    r"""Whether latent i may still be a function of the estimated latent j, all pairs of groups considered.

    .. math:: \text{support:}\ c_i \subseteq c_j, \qquad \text{paper:}\ c_i = c_j

    up to a permutation of the estimates; a latent without edges may be anything. "paper" is what definition 5
    says of all pairs of groups together; "support" is what is left of it without clause (ii).

    **Why the cautious mode is the default.** With :math:`x = (z_1 + \sin z_2,\; z_2)` and
    :math:`\hat z = (z_1 + z_2,\; z_2)` both models have the same density of x, the same support and as many
    edges, and yet :math:`\partial z_1 / \partial \hat z_2 = -1` where :math:`c_1 \subset c_2`. Clause (ii)
    seems to need more than the support.

    Parameters
    ----------
    graph : array_like of shape (..., feature, factor)
        One graph or a stack.
    mode : {"support", "paper"}
        "support" claims less.

    Returns
    -------
    ndarray of bool, shape (..., factor, factor)
        True at (i, j) where nothing keeps the true latent i from depending on the learned latent j. Reflexive
        and transitive.

    Raises
    ------
    ValueError
        If an entry is not 0 or 1, or `mode` is another.

    References
    ----------
    Zheng et al. (2026), definition 5 and theorem 1.

    Examples
    --------
    >>> may_depend([[1, 1], [0, 1]]).astype(int)
    array([[1, 1],
           [0, 1]])
    >>> may_depend([[1, 1], [0, 1]], mode="paper").astype(int)
    array([[1, 0],
           [0, 1]])
    """
    _check(mode)
    edges = feature_graphs(graph)
    inside = column_in_column(edges)
    if mode == "support":
        return inside
    return (inside & inside.swapaxes(-1, -2)) | ~np.asarray(edges.any(axis=-2))[..., None]


def kept_apart(
    graph: ArrayLike,
    a: Features,
    b: Features,
    mode: Mode = "support",
    *,
    feature_names: Sequence[str] | None = None,
) -> Bools:
    r"""What two groups of features alone guarantee: latent i does not depend on the estimated latent j.

    .. math::

        \text{(i)}\ & i \in I_a \cap I_b,\ j \in I_a \mathbin\Delta I_b \\
        \text{(ii)}\ & i \in I_a \mathbin\Delta I_b,\ j \in I_a \cap I_b \quad \text{(mode "paper" only)} \\
        \text{(iii)}\ & i \in I_a \setminus I_b,\ j \in I_b \setminus I_a \ \text{or the reverse}

    Parameters
    ----------
    graph : array_like or DataFrame of shape (..., feature, factor)
        One graph or a stack.
    a, b : sequence of int or str
        The two groups, by position from 0 or by name.
    mode : {"support", "paper"}
        As in `may_depend`, which joins all pairs of groups.
    feature_names : sequence of str, optional
        Names of the rows.

    Returns
    -------
    ndarray of bool, shape (..., factor, factor)

    Raises
    ------
    ValueError
        If an entry is not 0 or 1, a feature is not in the graph, or `mode` is another.

    References
    ----------
    Zheng et al. (2026), definition 5.

    Examples
    --------
    >>> kept_apart([[1, 1, 0], [0, 1, 1]], [0], [1]).astype(int)
    array([[0, 0, 1],
           [1, 0, 1],
           [1, 0, 0]])
    """
    _check(mode)
    sets = index_sets(graph, a, b, feature_names=feature_names)

    def pairs(i: Bools, j: Bools) -> Bools:
        return i[..., :, None] & j[..., None, :]

    shared, either = sets.intersection, sets.symmetric_difference
    apart = pairs(shared, either) | pairs(sets.only_a, sets.only_b) | pairs(sets.only_b, sets.only_a)
    return apart | pairs(either, shared) if mode == "paper" else apart


def dependency_identifiability(draws: ArrayLike, mode: Mode = "support") -> IdentifiabilityProbability:
    r"""Probability that the graph keeps a latent apart from all others: the share of draws in which it does.

    Parameters
    ----------
    draws : array_like of shape (..., feature, factor)
        0/1 draws of the graph from their posterior; all leading axes, such as (chain, draw), are averaged
        over. The factors must be in one frame (`align`).
    mode : {"support", "paper"}
        As in `may_depend`. With "support" a latent is disentangled where `structural_sparsity` holds; with
        "paper" where no other latent reaches the same features, which sufficient diversity implies.

    Returns
    -------
    IdentifiabilityProbability
        ``consistency[i, j]``: that latent i may depend on the estimate j. A latent without edges is not
        disentangled.

    Raises
    ------
    ValueError
        If there is no draw, an entry is not 0 or 1, or `mode` is another.

    References
    ----------
    Zheng et al. (2026), theorem 1, asked of every draw.

    Examples
    --------
    >>> draws = [[[1, 0], [0, 1]], [[1, 1], [0, 1]]]
    >>> dependency_identifiability(draws).disentangled
    array([0.5, 1. ])
    >>> dependency_identifiability(draws, mode="paper").disentangled
    array([1., 1.])
    """
    edges = feature_graph_draws(draws)
    return shares_of(may_depend(edges, mode), used=np.asarray(edges.any(axis=-2)))


def _check(mode: str) -> None:
    if mode not in ("support", "paper"):
        raise ValueError(f'mode: want "support" or "paper", got {mode!r}')
