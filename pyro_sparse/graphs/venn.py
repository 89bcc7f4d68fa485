r"""The Venn diagram of what several groups of features depend on: its atoms, in words and with probabilities.

Intersections and complements of the groups' index sets (`index_sets`) cut the latents into *atoms*: latents
that are seen by exactly the same groups,

.. math:: j \sim k \iff \{A : j \in I(A)\} = \{A : k \in I(A)\}.

To say what a group is, name what it shares (the genus) and what it has alone (the differentia).

Zheng, Li, Fan, Wilson, Zhang (2026), *Diverse dictionary learning*, arXiv 2604.17568.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._utils.wording import listed
from ._draws import feature_graph_draws, feature_graphs
from .index_sets import Features, names_of, positions_of

__all__ = ["AtomProbability", "Atoms", "Groups", "atom_probability", "atoms"]

Bools = NDArray[np.bool_]
Groups = Mapping[str, Features] | Sequence[Features]


@dataclass(frozen=True, eq=False)
class Atoms:
    """The Venn diagram of the index sets of several groups: print it.

    Parameters
    ----------
    groups : tuple of str
        Names of the groups.
    factors : tuple of str
        Names of the latents.
    inside : ndarray of bool, shape (factor, group)
        Whether the latent is in the index set of the group. Latents with equal rows are one atom.
    """

    groups: tuple[str, ...]
    factors: tuple[str, ...]
    inside: Bools

    @property
    def parts(self) -> dict[tuple[str, ...], tuple[str, ...]]:
        """The groups that an atom is in, and no other, with its latents; what most groups share comes first.

        The key ``()`` holds latents that reach no group.
        """
        atoms: dict[tuple[str, ...], tuple[str, ...]] = {}
        for row in sorted(
            {tuple(row) for row in self.inside.tolist()}, key=lambda r: (-sum(r), [not x for x in r])
        ):
            members = np.flatnonzero((self.inside == row).all(axis=1))
            key = tuple(name for name, on in zip(self.groups, row, strict=True) if on)
            atoms[key] = tuple(self.factors[k] for k in members)
        return atoms

    def describe(self, group: str) -> str:
        """Genus and differentia of one group, in a sentence.

        Parameters
        ----------
        group : str
            One of `groups`.

        Raises
        ------
        ValueError
            If there is no such group.
        """
        if group not in self.groups:
            raise ValueError(f"group: want one of {list(self.groups)}, got {group!r}")
        atoms = {key: names for key, names in self.parts.items() if group in key}
        if not atoms:
            return f"{group} depends on no latent"
        exclusive = atoms.pop((group,), ())
        others = [name for name in self.groups if name != group]
        shared = [
            f"with {listed([g for g in key if g != group])} ({', '.join(names)})"
            for key, names in atoms.items()
        ]
        alone = f"unlike {listed(others, 'or') if others else 'nothing else'}, {', '.join(exclusive)}"
        if not others:
            return f"{group} is {', '.join(exclusive)}"
        if not shared:
            return f"{group} shares nothing with {listed(others, 'or')}: it is {', '.join(exclusive)}"
        genus = f"{group} is what it shares {listed(shared)}"
        return f"{genus} and, {alone}" if exclusive else f"{genus} and nothing else"

    def __str__(self) -> str:
        lines = [f"{_region(key, self.groups)}: {', '.join(names)}" for key, names in self.parts.items()]
        return "\n".join([*lines, "", *(f"{self.describe(name)}." for name in self.groups)])

    __repr__ = __str__


def atoms(
    graph: ArrayLike,
    groups: Groups,
    *,
    feature_names: Sequence[str] | None = None,
    factor_names: Sequence[str] | None = None,
) -> Atoms:
    r"""Atoms of the Venn diagram of the groups' index sets: which latents sit in exactly which of them.

    .. math:: j \sim k \iff \{A : j \in I(A)\} = \{A : k \in I(A)\}

    found from the columns in :math:`O(|A| K)`, without visiting the :math:`2^{n}` regions.

    Parameters
    ----------
    graph : array_like or DataFrame of shape (feature, factor)
        One graph; for draws there is `atom_probability`.
    groups : mapping of name to features, or sequence of features
        Features by position from 0 or by name; groups may overlap. Without names they are A, B, C, …
    feature_names, factor_names : sequence of str, optional
        Default: those of a DataFrame; else factors are z1, z2, …

    Returns
    -------
    Atoms

    Raises
    ------
    ValueError
        If the graph is not one matrix of 0 and 1, a group is empty, or a feature is not in the graph.

    References
    ----------
    Zheng et al. (2026), proposition 1: atomic regions, genus and differentia.

    Examples
    --------
    >>> atoms([[1, 1, 0], [0, 1, 1]], {"left": [0], "right": [1]})
    left and right: z2
    left, not right: z1
    right, not left: z3
    <BLANKLINE>
    left is what it shares with right (z2) and, unlike right, z1.
    right is what it shares with left (z2) and, unlike left, z3.
    """
    edges = feature_graphs(graph)
    if edges.ndim != 2:
        raise ValueError(
            f"graph: want one graph (feature, factor), got {edges.shape}; give draws to `atom_probability`"
        )
    factors = names_of(graph, factor_names, edges.shape[1], "columns", "factor_names")
    names, members = _members(graph, edges, groups, feature_names)
    inside = np.stack([edges[rows].any(axis=0) for rows in members], axis=1)
    return Atoms(names, tuple(factors or [f"z{k + 1}" for k in range(edges.shape[1])]), inside)


class AtomProbability(NamedTuple):
    """How probable it is that a latent sits in an atom, given draws of the graph.

    Parameters
    ----------
    groups : tuple of str
        Names of the groups.
    inside : ndarray of bool, shape (atom, group)
        The groups that an atom is in: all that occur in a draw, with none inside last, if it occurs.
    probability : ndarray of shape (atom, factor)
        That the latent sits in exactly these groups. Columns sum to 1.
    size_sd : ndarray of shape (atom,)
        Posterior standard deviation of the number of latents in the atom.
    """

    groups: tuple[str, ...]
    inside: Bools
    probability: NDArray[np.float64]
    size_sd: NDArray[np.float64]

    @property
    def expected_size(self) -> NDArray[np.float64]:
        """Expected number of latents of each atom."""
        size: NDArray[np.float64] = self.probability.sum(axis=1)
        return size


def atom_probability(
    draws: ArrayLike, groups: Groups, *, feature_names: Sequence[str] | None = None
) -> AtomProbability:
    """Posterior probability of each latent's place in the Venn diagram, as the share of draws.

    Parameters
    ----------
    draws : array_like of 0 and 1, shape (..., feature, factor)
        All leading axes, such as (chain, draw), are averaged over; factors must be in one frame (`align`).
    groups : mapping of name to features, or sequence of features
        As in `atoms`; at most 62.
    feature_names : sequence of str, optional
        Names of the rows.

    Returns
    -------
    AtomProbability

    Raises
    ------
    ValueError
        As in `atoms`, and if there is no draw.

    Examples
    --------
    >>> atoms = atom_probability([[[1, 1], [0, 1]], [[1, 1], [1, 1]]], [[0], [1]])
    >>> atoms.inside.astype(int)
    array([[1, 1],
           [1, 0]])
    >>> atoms.probability
    array([[0.5, 1. ],
           [0.5, 0. ]])
    """
    edges = feature_graph_draws(draws)
    names, members = _members(draws, edges, groups, feature_names)
    if len(names) > 62:  # groups are bits of an int64
        raise ValueError(f"groups: want at most 62 in one diagram, got {len(names)}")
    reached = np.stack([edges[:, rows].any(axis=1) for rows in members], axis=-1)
    codes = reached @ (1 << np.arange(len(names), dtype=np.int64))
    distinct_codes, inverse = np.unique(codes, return_inverse=True)
    inside = (distinct_codes[:, None] >> np.arange(len(names))) & 1 == 1
    order = np.lexsort((*(~inside.T[::-1]), -inside.sum(axis=1)))
    place = order.argsort()[inverse.reshape(codes.shape)]  # the atom of each latent in each draw
    (n_draws, k), n = codes.shape, len(distinct_codes)
    probability = np.bincount((place * k + np.arange(k)).ravel(), minlength=n * k).reshape(n, k) / n_draws
    size = np.bincount((place + n * np.arange(n_draws)[:, None]).ravel(), minlength=n * n_draws)
    return AtomProbability(names, inside[order], probability, size.reshape(n_draws, n).std(axis=0))


def _members(
    graph: ArrayLike, edges: Bools, groups: Groups, feature_names: Sequence[str] | None
) -> tuple[tuple[str, ...], list[NDArray[np.intp]]]:
    """Names of the groups and positions of their features."""
    row_names = names_of(graph, feature_names, edges.shape[-2], "index", "feature_names")
    if not isinstance(groups, Mapping):
        letters = [chr(ord("A") + i) if i < 26 else f"group {i + 1}" for i in range(len(groups))]
        groups = dict(zip(letters, groups, strict=True))
    if not groups:
        raise ValueError("groups: want at least one group of features, got none")
    members = [
        positions_of(features, row_names, edges.shape[-2], f"groups[{name!r}]")
        for name, features in groups.items()
    ]
    for name, rows in zip(groups, members, strict=True):
        if not len(rows):
            raise ValueError(f"groups[{name!r}]: want at least one feature, got none; leave the group out")
    return tuple(str(name) for name in groups), members


def _region(key: tuple[str, ...], groups: tuple[str, ...]) -> str:
    others = [name for name in groups if name not in key]
    if not key:
        return "in none of them"
    return listed(key) + (f", not {listed(others, 'or')}" if others else "")
