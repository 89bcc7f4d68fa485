"""The theory against worked examples and against its own definition: which maps keep which graphs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pyro_sparse.graphs import blocks, completely_disentangled, consistency, identifiability_probability
from pyro_sparse.graphs.identifiability import sufficient_influence

TWO_OF_THREE = [[1, 1, 0], [1, 0, 1], [0, 1, 1]]


def action_block_non_diag():
    graph = np.repeat(np.eye(5, dtype=int), 2, axis=0)
    graph[8:, 0] = 1
    return graph


def time_blocks(*more):
    graph = np.eye(5, dtype=int)
    for pair in more:
        graph[pair] = 1
    return np.kron(graph, np.ones((2, 2), dtype=int))


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize(
    ("a", "z", "wanted"),
    [
        ([[1, 0], [1, 1]], None, [[1, 1], [0, 1]]),
        ([[0], [1]], None, [[1, 1], [0, 1]]),
        (TWO_OF_THREE, None, np.eye(3)),
        (None, np.tril(np.ones((3, 3))), np.eye(3)),
        (None, np.ones((2, 2)), np.ones((2, 2))),
        (None, [[1, 0, 0], [1, 1, 0], [1, 0, 1]], np.eye(3)),
        ([[1], [1]], None, np.ones((2, 2))),
        ([[1], [1]], np.eye(2), np.eye(2)),
    ],
)
def test_worked_examples(a, z, wanted):
    np.testing.assert_array_equal(consistency(a, z), wanted)
    assert completely_disentangled(a, z).all() == np.array_equal(wanted, np.eye(len(wanted)))


def test_the_block_graphs_of_the_paper():
    free = consistency(action_block_non_diag())
    rows = [{0, 1, 8, 9}] * 2 + [{2, 3}] * 2 + [{4, 5}] * 2 + [{6, 7}] * 2 + [{8, 9}] * 2
    assert [set(np.flatnonzero(row)) for row in free] == rows
    assert consistency(np.repeat(np.eye(5), 2, axis=0)).sum() == 20
    assert consistency(graph_z=time_blocks()).sum() == 20
    assert consistency(graph_z=time_blocks((0, 4), (4, 0), (4, 2))).sum() == 24
    ring = [[int(j in (i, (i - 1) % 10)) for j in range(10)] for i in range(10)]
    for graph in ({"graph_a": ring}, {"graph_z": np.eye(10)}, {"graph_z": np.tril(np.ones((10, 10)))}):
        assert consistency(**graph).sum() == 10


def test_a_map_keeps_every_action_hessian_iff_its_support_is_consistent(rng):
    """The Hessian of log p in (z, a) turns into L^T H when z = L z_hat: exhaustively for three latents."""
    supports = np.array(list(itertools.product([0, 1], repeat=9))).reshape(-1, 3, 3)
    values = supports * rng.uniform(1, 2, supports.shape)
    for _ in range(60):
        graph = rng.random((3, rng.integers(1, 4))) < rng.uniform(0.2, 0.8)
        hessian = graph * rng.uniform(1, 2, graph.shape)
        keeps = ((values.swapaxes(1, 2) @ hessian)[:, ~graph] == 0).all(axis=1)
        inside = (supports <= consistency(graph)).all(axis=(1, 2))
        np.testing.assert_array_equal(keeps, inside)


def test_a_map_keeps_every_time_hessian_iff_its_support_is_consistent_up_to_automorphism(rng):
    """In (z_t, z_{t-1}) it is L^T H L; a permutation that maps the graph to itself may come on top."""
    supports = np.array(list(itertools.product([0, 1], repeat=9))).reshape(-1, 3, 3)
    orders = np.eye(3, dtype=int)[list(itertools.permutations(range(3)))]
    full = np.array([any((p <= s).all() for p in orders) for s in supports])  # some L of it is invertible
    supports = supports[full]
    values = supports * rng.uniform(1, 2, supports.shape)
    for _ in range(60):
        graph = rng.random((3, 3)) < rng.uniform(0.2, 0.8)
        hessian = graph * rng.uniform(1, 2, graph.shape)
        keeps = ((values.swapaxes(1, 2) @ hessian @ values)[:, ~graph] == 0).all(axis=1)
        same = [p for p in orders if np.array_equal(p.T @ graph @ p, graph)]
        allowed = [consistency(graph_z=graph) @ p for p in same]
        inside = np.array([any((s <= c).all() for c in allowed) for s in supports])
        np.testing.assert_array_equal(keeps, inside)


def random_graphs(rng, d):
    a = (rng.random((d, rng.integers(1, 6))) < rng.uniform(0.1, 0.9)) if rng.random() < 0.7 else None
    z = (rng.random((d, d)) < rng.uniform(0.1, 0.9)) if a is None or rng.random() < 0.5 else None
    return a, z


def test_consistent_maps_form_a_group(rng):
    for _ in range(200):
        d = int(rng.integers(2, 7))
        free = consistency(*random_graphs(rng, d))
        first, second = (free * rng.uniform(0.5, 1, (d, d)) + 3 * d * np.eye(d) for _ in range(2))
        assert np.abs((first @ second)[~free]).max(initial=0) < 1e-12
        assert np.abs(np.linalg.inv(first)[~free]).max(initial=0) < 1e-12


def criterion(a, z):
    """The published criterion in words of sets."""
    d = len(a if a is not None else z)
    result = []
    for i in range(d):
        alike = set(range(d))
        if z is not None:
            for child in np.flatnonzero(z[:, i]):
                alike &= set(np.flatnonzero(z[child]))
            for parent in np.flatnonzero(z[i]):
                alike &= set(np.flatnonzero(z[:, parent]))
        if a is not None:
            for action in np.flatnonzero(a[i]):
                alike &= set(np.flatnonzero(a[:, action]))
        result.append(alike == {i})
    return result


def test_criterion_by_sets(rng):
    seen = set()
    for _ in range(1000):
        a, z = random_graphs(rng, int(rng.integers(1, 7)))
        got = completely_disentangled(a, z).tolist()
        assert got == criterion(a, z)
        seen.add((any(got), all(got)))
    assert len(seen) == 3  # none, some, all of the latents: each occurs


def test_blocks_of_the_block_graph():
    found = blocks(action_block_non_diag())
    assert found.equivalent == ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
    assert found.connected == ((0, 1, 8, 9), (2, 3), (4, 5), (6, 7))
    assert np.argwhere(found.leak).tolist() == [[0, 8], [0, 9], [1, 8], [1, 9]]


def test_blocks_by_reachability(rng):
    for _ in range(100):
        d = int(rng.integers(1, 7))
        graphs = random_graphs(rng, d)
        free, found = consistency(*graphs), blocks(*graphs)
        either = np.linalg.matrix_power((free | free.T).astype(float), d) > 0
        for parts, together in ((found.connected, either), (found.equivalent, free & free.T)):
            assert sorted(sum(parts, ())) == list(range(d))
            label = {i: part for part in parts for i in part}
            np.testing.assert_array_equal(
                [[label[i] == label[j] for j in range(d)] for i in range(d)], together
            )
        np.testing.assert_array_equal(
            found.leak, [[free[i, j] > free[j, i] for j in range(d)] for i in range(d)]
        )


def test_orthogonal_consistent_maps_do_not_leak(rng):
    """The remark of `blocks` on homoscedastic noise: project onto both sets in turn and see what is left."""
    found = blocks([[1, 0], [1, 0], [1, 1]])
    free = consistency([[1, 0], [1, 0], [1, 1]])
    q = rng.standard_normal((3, 3))
    for _ in range(8_000):
        u, _, v = np.linalg.svd(q * free)
        q = u @ v
    assert np.abs(q[~free]).max() < 0.01  # it did converge
    assert np.abs(q[found.leak]).max() < 0.01 < np.abs(q[0, 1])


def test_stacks_go_graph_by_graph(rng):
    a, z = rng.random((2, 5, 4, 3)) < 0.5, rng.random((2, 5, 4, 4)) < 0.5
    free, alone = consistency(a, z), completely_disentangled(a, z)
    for at in np.ndindex(2, 5):
        np.testing.assert_array_equal(free[at], consistency(a[at], z[at]))
        np.testing.assert_array_equal(alone[at], completely_disentangled(a[at], z[at]))


def test_probabilities_by_enumerating_all_graphs(rng):
    p = np.array([[0.9, 0.2], [0.7, 0.6], [0.1, 0.8]])
    draws = rng.random((4, 5000, 3, 2)) < p
    free, alone, every, mixed = np.zeros((3, 3)), np.zeros(3), 0.0, np.zeros((3, 3))
    for bits in itertools.product([0, 1], repeat=6):
        graph = np.array(bits).reshape(3, 2)
        weight = np.where(graph, p, 1 - p).prod()
        subset = np.array([[set(np.flatnonzero(x)) <= set(np.flatnonzero(y)) for y in graph] for x in graph])
        free, mixed = free + weight * subset, mixed + weight * (subset | subset.T)
        alone, every = (
            alone + weight * np.array(criterion(graph, None)),
            every + weight * all(criterion(graph, None)),
        )
    got = identifiability_probability(graph_a=draws)
    for name, wanted in [
        ("consistency", free),
        ("disentangled", alone),
        ("all_disentangled", every),
        ("mixed", mixed),
    ]:
        np.testing.assert_allclose(getattr(got, name), wanted, atol=0.015)


def test_probabilities_keep_the_two_graphs_of_a_draw_together():
    a = [[[1], [1]], [[1], [1]]]
    z = [np.eye(2), np.ones((2, 2))]
    assert identifiability_probability(a, z).all_disentangled == 0.5


def ring(d):
    return np.array([[j in (i, (i - 1) % d) for j in range(d)] for i in range(d)])


def sine_slope(z, graph):
    """Derivative of sum_j G_ij sin(w_i z_j + i), of shape (sample, i, j)."""
    i = np.arange(graph.shape[0])[:, None]
    w = (i + 3) / np.pi
    return graph * w * np.cos(w * z[:, None, :] + i)


def test_sines_influence_enough_and_lines_do_not(rng):
    graph = ring(10)
    a = rng.uniform(-2, 2, (500, 10))
    curved = sufficient_influence(sine_slope(a, graph), graph, "actions")
    assert curved.holds and curved.condition < 10
    assert curved.rank.tolist() == curved.dimension.tolist() == [2] * 10
    line = np.broadcast_to(graph * rng.uniform(1, 2, graph.shape), (500, 10, 10))
    straight = sufficient_influence(line, graph, "actions")
    assert not straight.holds and straight.rank.tolist() == [1] * 10 and straight.condition > 1e12
    assert sufficient_influence(
        line * np.eye(10), np.eye(10), "actions"
    ).holds  # one child: nothing to tell apart
    in_time = sufficient_influence(line * np.eye(10), np.eye(10), "time")
    assert (in_time.rank.tolist(), in_time.dimension.tolist(), in_time.holds) == ([1], [10], False)


def test_time_diag_is_well_conditioned_and_time_non_diag_nearly_singular(rng):
    z = rng.standard_normal((5000, 10))
    diagonal = np.eye(10) * (1 + 0.5 * np.cos(z))[:, None, :]
    easy = sufficient_influence(diagonal, np.eye(10), "time")
    assert easy.holds and easy.condition < 20
    lower = np.tril(np.ones((10, 10)))
    hard = sufficient_influence(np.eye(10) + 0.5 * sine_slope(z, lower), lower, "time")
    assert hard.holds and hard.rank.tolist() == [55]
    assert 0.003 < hard.smallest[0] < 0.01 and 3 < hard.largest[0] < 4
    assert not sufficient_influence(
        np.eye(10) + 0.5 * sine_slope(z, lower), lower, "time", tolerance=0.01
    ).holds


def test_influence_by_its_gram_matrix_and_off_the_graph(rng):
    graph = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 0]])
    jacobian = rng.standard_normal((40, 3, 3))
    got = sufficient_influence(jacobian, graph, "actions")
    for k, children in enumerate([[0, 1, 2], [1]]):
        values = np.linalg.eigvalsh(jacobian[:, children, k].T @ jacobian[:, children, k] / 40)
        np.testing.assert_allclose([got.smallest[k], got.largest[k]], np.sqrt(values[[0, -1]]))
    assert got.dimension.tolist() == got.rank.tolist() == [3, 1, 0] and got.holds
    assert np.isnan(got.smallest[2]) and got.condition == pytest.approx(
        np.max(got.largest[:2] / got.smallest[:2])
    )
    beside = sufficient_influence(jacobian + 9 * (graph == 0), graph, "actions")
    np.testing.assert_array_equal(beside.smallest, got.smallest)
    empty = sufficient_influence(jacobian, np.zeros((3, 3)), "time")
    assert empty.holds and empty.condition == 1


def test_a_missing_direction_is_infinitely_ill_conditioned():
    jacobian = np.zeros((5, 2, 1))
    jacobian[:, 0] = 1
    found = sufficient_influence(jacobian, [[1], [1]], "actions")
    assert found.condition == np.inf and not found.holds
    assert sufficient_influence(0 * jacobian, [[1], [0]], "actions").rank.tolist() == [0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "want at least one graph, got neither"),
        ({"graph_a": [1, 0]}, r"graph_a: want shape .*, got \(2,\)"),
        ({"graph_a": [[0.3]]}, "graph_a: want edges of 0 or 1, got 0.3; give draws"),
        ({"graph_z": [[np.nan]]}, "graph_z: want edges of 0 or 1, got nan"),
        ({"graph_z": [[1, 0]]}, r"graph_z: want a square .*, got \(1, 2\)"),
        ({"graph_a": [[1], [0], [1]], "graph_z": np.eye(2)}, "want the same latents and leading axes"),
    ],
)
def test_bad_graphs(arguments, message):
    with pytest.raises(ValueError, match=message):
        consistency(**arguments)


def test_bad_stacks():
    with pytest.raises(ValueError, match=r"want one graph, got a stack of shape \(3,\)"):
        blocks(graph_z=np.ones((3, 2, 2)))
    with pytest.raises(ValueError, match=r"want at least one draw.*\(2, 2\); use graph\[None\]"):
        identifiability_probability(graph_z=np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"got shape \(0, 2, 2\)"):
        identifiability_probability(graph_z=np.ones((0, 2, 2)))
    with pytest.raises(ValueError, match="same leading axes"):
        identifiability_probability(np.ones((4, 2, 2)), np.ones((5, 2, 2)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"jacobian": np.ones((5, 2))}, r"jacobian: want shape .* got \(5, 2\) over \(2, 2\)"),
        ({"graph": np.ones((2, 3))}, r"got \(5, 2, 2\) over \(2, 3\)"),
        ({"graph": [[0.5, 1], [1, 1]]}, "graph: want edges of 0 or 1"),
        ({"jacobian": np.full((5, 2, 2), np.nan)}, "jacobian: want finite"),
        ({"kind": "both"}, "kind: want .*, got 'both'"),
        (
            {"jacobian": np.ones((5, 2, 1)), "graph": [[1], [1]]},
            r'graph: want \(latent, latent\) with kind="time"',
        ),
        ({"tolerance": 1.0}, "tolerance: want a share"),
        ({"jacobian": np.ones((3, 2, 2))}, "want at least 4 samples .*got 3; evaluate it at more"),
    ],
)
def test_bad_influence(change, message):
    arguments = {"jacobian": np.ones((5, 2, 2)), "graph": np.ones((2, 2)), "kind": "time"} | change
    with pytest.raises(ValueError, match=message):
        sufficient_influence(**arguments)
