"""Index sets and atoms against Python's own sets; the words; complaints."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from pyro_sparse.graphs import atom_probability, atoms, index_set, index_sets

SMALL = [[1, 1, 0], [0, 1, 1]]
DOUBLED = [[1, 1, 0], [1, 1, 1], [0, 0, 1]]


def sets_of(graph, features):
    return set().union(*(np.flatnonzero(np.asarray(graph)[r]).tolist() for r in features))


def as_set(inside):
    return set(np.flatnonzero(inside).tolist())


def test_worked_examples():
    found = index_sets(SMALL, [0], [1])
    assert (as_set(found.a), as_set(found.b)) == ({0, 1}, {1, 2})
    assert as_set(found.intersection) == {1}
    assert as_set(found.symmetric_difference) == {0, 2}
    assert as_set(found.only_a) == {0} and as_set(found.only_b) == {2}
    assert not index_set(SMALL, []).any()
    assert atoms(np.ones((3, 3)), [[0], [1], [2]]).parts == {("A", "B", "C"): ("z1", "z2", "z3")}
    assert set(atoms(DOUBLED, [[0], [1], [2]]).parts.values()) == {("z1", "z2"), ("z3",)}


def test_index_sets_and_atoms_are_those_of_sets():
    rng = np.random.default_rng(0)
    for _ in range(200):
        g, k, n = rng.integers(1, 7), rng.integers(1, 6), rng.integers(1, 5)
        graph = (rng.random((g, k)) < rng.uniform(0.2, 0.8)).astype(int)
        groups = [rng.choice(g, rng.integers(1, g + 1), replace=False).tolist() for _ in range(n)]
        wanted = [sets_of(graph, own) for own in groups]
        for own, want in zip(groups, wanted, strict=True):
            assert as_set(index_set(graph, own)) == want
        for a, b in itertools.combinations(range(n), 2):
            found = index_sets(graph, groups[a], groups[b])
            assert as_set(found.intersection) == wanted[a] & wanted[b]
            assert as_set(found.symmetric_difference) == wanted[a] ^ wanted[b]
            assert as_set(found.only_a) == wanted[a] - wanted[b]
            assert as_set(found.only_b) == wanted[b] - wanted[a]
        found = atoms(graph, groups, factor_names=[str(j) for j in range(k)])
        assert sorted(itertools.chain(*found.parts.values())) == sorted(str(j) for j in range(k))
        for region in itertools.product([False, True], repeat=n):  # every region of the diagram
            want = set(range(k))
            for inside, own in zip(region, wanted, strict=True):
                want &= own if inside else set(range(k)) - own
            key = tuple(name for name, inside in zip(found.groups, region, strict=True) if inside)
            assert {int(j) for j in found.parts.get(key, ())} == want


def test_draws_are_counted_and_stacks_are_one_by_one():
    rng = np.random.default_rng(1)
    draws = rng.random((2, 30, 5, 4)) < 0.4
    groups = {"a": [0, 1], "b": [2, 3, 4], "c": [0]}
    found = atom_probability(draws, groups)
    np.testing.assert_allclose(found.probability.sum(axis=0), 1)
    each = [atoms(graph, groups, factor_names="wxyz") for graph in draws.reshape(-1, 5, 4)]
    for row, p, sd in zip(found.inside, found.probability, found.size_sd, strict=True):
        key = tuple(name for name, on in zip(groups, row, strict=True) if on)
        there = np.array([[name in one.parts.get(key, ()) for name in "wxyz"] for one in each])
        np.testing.assert_allclose(p, there.mean(axis=0))
        assert sd == pytest.approx(there.sum(axis=1).std())
    np.testing.assert_allclose(found.expected_size.sum(), 4)
    sizes = found.inside.sum(axis=1)
    assert (np.diff(sizes) <= 0).all() and found.inside[0].all() and not found.inside[-1].any()
    stacked = index_set(draws, [0, 3])
    assert stacked.shape == (2, 30, 4)
    np.testing.assert_array_equal(stacked[1, 7], index_set(draws[1, 7], [0, 3]))


def test_words():
    found = atoms([[1, 1, 1, 0], [1, 1, 0, 0]], {"wine": [0], "beer": [1]})
    assert found.describe("wine") == "wine is what it shares with beer (z1, z2) and, unlike beer, z3"
    assert found.describe("beer") == "beer is what it shares with wine (z1, z2) and nothing else"
    assert "in none of them: z4" in str(found) and "wine, not beer: z3" in str(found)
    apart = atoms([[1, 0], [0, 1]], [[0], [1]])
    assert apart.describe("A") == "A shares nothing with B: it is z1"
    assert atoms([[0, 0], [1, 1]], [[0], [1]]).describe("A") == "A depends on no latent"
    assert atoms([[1, 1]], [[0]]).describe("A") == "A is z1, z2"
    three = atoms([[1, 1, 1], [1, 1, 0], [1, 0, 0]], [[0], [1], [2]])
    assert three.describe("A") == (
        "A is what it shares with B and C (z1) and with B (z2) and, unlike B or C, z3"
    )


def test_names_come_from_the_table_or_the_caller():
    table = pd.DataFrame(SMALL, index=["age", "size"], columns=["factor 1", "factor 2", "factor 3"])
    found = atoms(table == 1, {"A": ["age"], "B": ["size"]})
    assert found.parts[("A", "B")] == ("factor 2",)
    assert as_set(index_set(SMALL, ["size"], feature_names=["age", "size"])) == {1, 2}
    np.testing.assert_array_equal(index_set(table, ["age", 1]), [True, True, True])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: index_set([[0.3, 1]], [0]), "graph: want edges of 0 or 1, got 0.3; choose edges first"),
        (lambda: index_set([[np.nan, 1]], [0]), "graph: want edges of 0 or 1, got nan"),
        (lambda: index_set([1, 0], [0]), r"graph: want shape \(..., feature, factor\).* got \(2,\)"),
        (lambda: index_set(SMALL, [2]), "features: want positions from 0 to 1 or names, got 2"),
        (lambda: index_set(SMALL, [True, False]), "want positions from 0 to 1 or names, got True"),
        (lambda: index_set(SMALL, [-1]), "features: want positions from 0 to 1 or names, got -1"),
        (lambda: index_set(SMALL, "age"), r"features: want a list of features.* use \['age'\]"),
        (lambda: index_set(SMALL, ["age"]), "no feature is called 'age'; want a position"),
        (lambda: index_set(SMALL, ["age"], feature_names=["a", "b"]), "want one of a, b"),
        (lambda: index_set(SMALL, [0], feature_names=["a"]), "feature_names: want 2 names.* got 1"),
        (lambda: atoms(SMALL, []), "groups: want at least one group"),
        (lambda: atoms(SMALL, {"A": []}), r"groups\['A'\]: want at least one feature, got none"),
        (lambda: atoms(SMALL, [[7]]), r"groups\['A'\]: want positions from 0 to 1"),
        (lambda: atoms([SMALL], [[0]]), r"graph: want one graph.* got \(1, 2, 3\); give draws to `atom_prob"),
        (lambda: atoms(SMALL, [[0]], factor_names=["x"]), "factor_names: want 3 names"),
        (lambda: atoms(SMALL, [[0]]).describe("B"), r"group: want one of \['A'\], got 'B'"),
        (lambda: atom_probability(SMALL, [[0]]), "draws: want at least one draw"),
        (lambda: atom_probability([SMALL], [[0]] * 63), "groups: want at most 62"),
    ],
)
def test_complaints(call, message):
    with pytest.raises(ValueError, match=message):
        call()
