"""Criteria of identifiability as the papers state them: over all groups of features, with Python's sets.

Slow and plain on purpose. The package computes the same from closed forms; `certificates` and the tests
compare the two.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "anchored",
    "apart",
    "completely_disentangled",
    "diversity",
    "free_given_zeros",
    "groups_of",
    "rows_of",
    "structurally_sparse",
    "supports_differ",
]

Graph = NDArray[np.integer]


def rows_of(graph: Graph) -> list[frozenset[int]]:
    """The latents of every feature."""
    return [frozenset(np.flatnonzero(row).tolist()) for row in graph]


def groups_of(n: int) -> list[tuple[int, ...]]:
    """All groups of n features but the empty one."""
    return [group for size in range(1, n + 1) for group in combinations(range(n), size)]


def anchored(graph: Graph) -> list[bool]:
    """Moran et al. (2022), A1: whether every latent has two features of its own; one answer for all."""
    rows, k = rows_of(graph), graph.shape[1]
    return [all(sum(row == {j} for row in rows) >= 2 for j in range(k))] * k


def diversity(graph: Graph) -> NDArray[np.bool_]:
    """Zheng et al. (2026), assumption 2: its three conditions (row) for every latent (column)."""
    rows, (g, k) = rows_of(graph), graph.shape
    everything = frozenset(range(k))
    found = np.zeros((3, k), dtype=bool)
    for group in groups_of(g):
        common = frozenset.intersection(*(rows[r] for r in group))
        if len(common) == 1:
            found[2, list(common)] = True
        if frozenset().union(*(rows[r] for r in group)) != everything:
            continue
        for one in group:
            rest = [rows[r] for r in group if r != one]
            alone = rows[one] - frozenset().union(*rest)
            lacking = frozenset.intersection(*rest) - rows[one] if rest else frozenset()
            for condition, members in ((0, alone), (1, lacking)):
                if len(members) == 1:
                    found[condition, list(members)] = True
    return found


def structurally_sparse(graph: Graph) -> list[bool]:
    """Zheng et al. (2022), assumption iii: a group of features that has this latent alone in common."""
    return diversity(graph)[2].tolist()


def apart(graph: Graph, clauses: tuple[str, ...] = ("i", "ii", "iii")) -> NDArray[np.bool_]:
    """Zheng et al. (2026), definition 5: pairs of latents that some two groups of features keep apart."""
    rows, (g, k) = rows_of(graph), graph.shape
    reached = {frozenset().union(*(rows[r] for r in group)) for group in groups_of(g)}
    found = np.zeros((k, k), dtype=bool)
    for a in reached:
        for b in reached:
            for i in range(k):
                for j in range(k):
                    found[i, j] |= (
                        ("i" in clauses and i in a & b and j in a ^ b)
                        or ("ii" in clauses and i in a ^ b and j in a & b)
                        or ("iii" in clauses and i in a - b and j in b - a)
                        or ("iii" in clauses and i in b - a and j in a - b)
                    )
    return found


def free_given_zeros(
    graph: Graph, directions: NDArray[np.integer], rng: np.random.Generator, overdetermined: bool = False
) -> NDArray[np.bool_]:
    """Null spaces of random rows of the features without latent j, `directions` rows for each feature.

    With `overdetermined`, of every table with one straight feature left out, too.
    """
    if overdetermined:
        found = free_given_zeros(graph, directions, rng)
        for r in np.flatnonzero(directions == 1):
            found |= free_given_zeros(np.delete(graph, r, axis=0), np.delete(directions, r), rng)
        return found
    g, k = graph.shape
    owner = [r for r in range(g) for _ in range(int(min(directions[r], graph[r].sum())))]
    rows = np.array([graph[r] * rng.normal(size=k) for r in owner]).reshape(-1, k)
    owner = np.array(owner, dtype=int)
    free = np.zeros((k, k), dtype=bool)
    for j in range(k):
        without = np.vstack([rows[graph[owner, j] == 0], np.zeros((1, k))])
        _, sigma, v = np.linalg.svd(without)
        rank = int((sigma > 1e-9 * max(sigma.max(), 1e-300)).sum())
        free[:, j] = np.abs(v[rank:]).max(axis=0, initial=0) > 1e-7
    return free


def completely_disentangled(graph_a: Graph, graph_z: Graph) -> list[bool]:
    """Lachapelle et al. (2024): what all children and parents of latent i have in common is i alone."""
    d, everything = len(graph_z), frozenset(range(len(graph_z)))
    parents, children = rows_of(graph_z), rows_of(graph_z.T)
    of_action = rows_of(graph_a.T)
    found = []
    for i in range(d):
        sets = [parents[j] for j in children[i]] + [children[j] for j in parents[i]]
        sets += [of_action[a] for a in np.flatnonzero(graph_a[i])]
        found.append(frozenset.intersection(everything, *sets) == {i})
    return found


def supports_differ(supports: Graph) -> list[bool]:
    """Lachapelle, Deleu et al. (2023), 3.6: for each other latent j some task without j uses this one."""
    sets, m = rows_of(supports), supports.shape[1]
    without = [frozenset().union(*(s for s in sets if j not in s)) for j in range(m)]
    return [all(k in without[j] for j in range(m) if j != k) for k in range(m)]
