"""The named graphs, the transition, the mixing, the splits: each against its formula written out."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from pyro_sparse.datasets import transition_data, transition_graph
from pyro_sparse.datasets._gaussian_transitions import Mechanism, draw_mechanism, growth
from pyro_sparse.datasets.transition_graphs import TRANSITION_GRAPHS
from pyro_sparse.datasets.transitions import transition_jacobian, transition_mean, transition_mixing

PAIRS = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
TABLE = {  # edges of the paper's sets at ten latents, and entries its theory leaves free in C
    "ActionDiag": ({(i, i) for i in range(10)}, 10),
    "ActionNonDiag": ({(i, j) for i in range(10) for j in (i, (i - 1) % 10)}, 10),
    "ActionBlockDiag": ({(i, k) for k, pair in enumerate(PAIRS) for i in pair}, 20),
    "ActionBlockNonDiag": ({(i, k) for k, pair in enumerate(PAIRS) for i in pair} | {(8, 0), (9, 0)}, 24),
    "TimeDiag": ({(i, i) for i in range(10)}, 10),
    "TimeNonDiag": ({(i, j) for i in range(10) for j in range(i + 1)}, 10),
    "TimeBlockDiag": ({(i, j) for pair in PAIRS for i in pair for j in pair}, 20),
    "TimeBlockNonDiag": (
        {(i, j) for pair in PAIRS for i in pair for j in pair}
        | {(i, j) for b, c in [(0, 4), (4, 0), (4, 2)] for i in PAIRS[b] for j in PAIRS[c]},
        24,
    ),
}
EDGES = dict(zip(TABLE, (10, 20, 10, 12, 10, 55, 20, 32), strict=True))
SMALL = {"d_z": 6, "d_x": 8, "n": 40}
EVERY = [name.replace("(p)", "(0.5)") for name in TRANSITION_GRAPHS]


def free(action, time):
    """Entries (i, j) of C that (a,z)-consistency leaves free, by sets."""

    def parents(graph, i):
        return {j for j in range(graph.shape[1]) if graph[i, j]}

    d = len(time if action is None else action)
    allowed = np.ones((d, d), int)
    for i in range(d):
        for j in range(d):
            for graph in [g for g in (action, time) if g is not None]:
                allowed[i, j] &= parents(graph, i) <= parents(graph, j)
            if time is not None:
                allowed[i, j] &= parents(time.T, i) <= parents(time.T, j)
    return allowed


def differences(data, z, a, of):
    """Central differences of the true mean by z or by a, of shape (row, target, parent)."""
    point, step = {"z": z, "a": a}, 1e-5
    columns = []
    for j in range(point[of].shape[1]):
        ends = []
        for sign in (1, -1):
            moved = dict(point)
            moved[of] = point[of] + sign * step * (np.arange(point[of].shape[1]) == j)
            ends.append(transition_mean(data, **moved))
        columns.append((ends[0] - ends[1]) / (2 * step))
    return np.stack(columns, axis=2)


def inputs(data, rows=50, seed=0):
    rng = np.random.default_rng(seed)
    z = None if data.graph_z is None else rng.normal(size=(rows, data.z.shape[2]))
    a = None if data.graph_a is None else rng.uniform(-2, 2, (rows, data.actions.shape[2]))
    return z, a


def steps(data):
    """Past, action and value of every frame that the transition draws."""
    if data.graph_z is None:
        return None, data.actions.reshape(-1, data.actions.shape[2]), data.z.reshape(-1, data.z.shape[2])
    every = [data.pairs(split) for split in data.splits]
    a = None if data.actions is None else np.concatenate([p.actions for p in every])
    return np.concatenate([p.z_before for p in every]), a, np.concatenate([p.z_after for p in every])


# --- graphs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLE)
def test_graph_of_the_paper_entry_by_entry(name):
    edges, consistent = TABLE[name]
    action, time = transition_graph(name)
    graph = action if name.startswith("Action") else time
    assert (action is None) != (time is None)
    assert graph.shape == (10, 5 if name.startswith("ActionBlock") else 10)
    assert {tuple(map(int, edge)) for edge in np.argwhere(graph)} == edges
    assert graph.sum() == EDGES[name] and set(np.unique(graph)) == {0, 1}
    assert free(action, time).sum() == consistent


@pytest.mark.parametrize("shape", ["Diag", "NonDiag", "BlockDiag", "BlockNonDiag", "Random(0.3)"])
@pytest.mark.parametrize("d_z", [6, 12])
def test_both_graphs_are_those_of_the_two_sides(shape, d_z):
    both = transition_graph(f"ActionTime{shape}", d_z, seed=4)
    if not shape.startswith("Random"):
        np.testing.assert_array_equal(both.action, transition_graph(f"Action{shape}", d_z).action)
        np.testing.assert_array_equal(both.time, transition_graph(f"Time{shape}", d_z).time)
    assert both.time.shape == (d_z, d_z) and np.diag(both.time).all()


@pytest.mark.parametrize("d_z", [4, 6, 10])
def test_cross_is_identified_by_both_graphs_and_by_neither_alone(d_z):
    action, time = transition_graph("ActionTimeCross", d_z)
    np.testing.assert_array_equal(free(action, time), np.eye(d_z))
    assert free(action, None).sum() == free(None, time).sum() == 2 * d_z
    assert time[0, d_z - 1] == time[1, 2] == 1 and time[0, 1] == 0


def test_sizes_follow_the_pattern():
    assert transition_graph("ActionNonDiag", 3).action.tolist() == [[1, 0, 1], [1, 1, 0], [0, 1, 1]]
    assert transition_graph("TimeNonDiag", 7).time.sum() == 28
    blocks = transition_graph("TimeBlockNonDiag", 6).time[::2, ::2]
    assert blocks.tolist() == [[1, 0, 1], [0, 1, 0], [1, 1, 1]]


def test_random_graphs_have_the_density_and_the_seed():
    action = transition_graph("ActionRandom(0.3)", 60, seed=1).action
    time = transition_graph("TimeRandom(.3)", 60, seed=1).time
    assert action.mean() == pytest.approx(0.3, abs=0.03)
    assert time[~np.eye(60, dtype=bool)].mean() == pytest.approx(0.3, abs=0.03) and np.diag(time).all()
    np.testing.assert_array_equal(action, transition_graph("ActionRandom(0.3)", 60, seed=1).action)
    assert (action != transition_graph("ActionRandom(0.3)", 60, seed=2).action).any()
    assert transition_graph("ActionRandom(0)").action.sum() == 0
    assert transition_graph("TimeRandom(1)").time.all()
    data = transition_data("TimeRandom(0.3)", seed=5, **SMALL)
    np.testing.assert_array_equal(data.graph_z, transition_graph("TimeRandom(0.3)", 6, seed=5).time)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Diag",), r"name='Diag': want one of ActionDiag"),
        (("TimeTriangle",), "want one of"),
        ((3,), "name=3: want one of"),
        (("TimeRandom",), "density in brackets"),
        (("TimeDiag(0.2)",), "density in brackets"),
        (("ActionRandom(dense)",), "number between 0 and 1"),
        (("ActionRandom()",), "number between 0 and 1"),
        (("ActionRandom(1.5)",), "number between 0 and 1"),
        (("TimeDiag", 0), "d_z=0: TimeDiag needs a whole number of latents, at least 1"),
        (("TimeDiag", 2.5), "d_z=2.5"),
        (("ActionBlockDiag", 5), "d_z=5: .*blocks of two latents; want an even number"),
        (("ActionBlockNonDiag", 2), "at least 4"),
        (("TimeBlockNonDiag", 4), "at least 6"),
        (("ActionTimeCross", 2), "at least 4"),
        (("TimeRandom(0.2)", 4, -1), "seed: want a whole number of at least .*, got -1"),
        (("TimeRandom(0.2)", 4, 0.5), "seed: want .* got 0.5"),
    ],
)
def test_graph_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        transition_graph(*arguments)


# --- the transition of the latents -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["ActionNonDiag", "ActionBlockNonDiag", "TimeNonDiag", "ActionTimeBlockDiag"]
)
def test_mean_and_variance_are_the_published_formula(name):
    data = transition_data(name, k=2, seed=2, **(SMALL | {"n": 3000}))
    z, a, after = steps(data)
    mean, variance = np.zeros((5, 6)), np.zeros((5, 6))
    given = [(u, g) for u, g in ((a, data.graph_a), (z, data.graph_z)) if g is not None]
    for row in range(5):
        for i in range(6):
            w, exponent = (i + 3) / math.pi, 0.0
            mean[row, i] = 0.0 if z is None else z[row, i]
            for u, graph in given:
                for j in range(graph.shape[1]):
                    gain = 0.5 if u is z else 1.0
                    mean[row, i] += gain * graph[i, j] * math.sin(w * u[row, j] + i)
                    exponent += graph[i, j] * math.cos(w * u[row, j] + i)
            variance[row, i] = 0.1 / sum(g.shape[1] for _, g in given) * math.exp(exponent)
    head = [None if u is None else u[:5] for u in (z, a)]
    np.testing.assert_allclose(transition_mean(data, *head), mean, atol=1e-12)
    # k = 2: no public variance, but the residuals of all rows, over the formula's deviation, are N(0, 1)
    exponent = sum(
        (g * np.cos((np.arange(6)[:, None] + 3) / np.pi * u[:, None] + np.arange(6)[:, None])).sum(2)
        for u, g in given
    )
    deviation = np.sqrt(0.1 / sum(g.shape[1] for _, g in given) * np.exp(exponent))
    np.testing.assert_allclose(deviation[:5] ** 2, variance)
    residual = (after - transition_mean(data, z, a)) / deviation
    np.testing.assert_allclose(residual.mean(0), 0, atol=0.07)
    np.testing.assert_allclose(residual.std(0), 1, atol=0.06)


@pytest.mark.parametrize(
    ("name", "formula"), [("ActionDiag", np.sin), ("TimeDiag", lambda u: u + np.sin(u) / 2)]
)
def test_diagonal_sets_are_plain_sines(name, formula):
    data = transition_data(name, **SMALL)
    u = np.random.default_rng(1).normal(size=(3, 4, 6))  # any leading shape
    np.testing.assert_allclose(transition_mean(data, u, u), formula(u), atol=1e-12)


@pytest.mark.parametrize("name", EVERY)
def test_transition_noise_is_white_and_of_the_stated_size(name):
    data = transition_data(name, seed=1, **(SMALL | {"n": 2000}))
    z, a, after = steps(data)
    residual = (after - transition_mean(data, z, a)) / 0.01
    np.testing.assert_allclose(residual.mean(0), 0, atol=0.08)
    np.testing.assert_allclose(np.cov(residual.T), np.eye(6), atol=0.12)
    for cause in (z, a):
        if cause is not None:
            cross = np.corrcoef(residual.T, cause.T)[:6, 6:]
            np.testing.assert_allclose(cross, 0, atol=0.08)
    if data.graph_z is not None:
        np.testing.assert_allclose(np.cov(data.z[:, 0].T), np.eye(6), atol=0.12)
    if data.graph_a is not None:
        flat = data.actions.reshape(-1, data.actions.shape[2])
        assert np.abs(flat).max() <= 2
        np.testing.assert_allclose(np.cov(flat.T), 4 / 3 * np.eye(flat.shape[1]), atol=0.12)


@pytest.mark.parametrize(
    "how",
    [{"mechanism": "sine"}, {"mechanism": "leaky_relu"}, {"mechanism": "gp"}, {"sufficient": False}],
    ids=["sine", "leaky_relu", "gp", "linear"],
)
@pytest.mark.parametrize("name", EVERY)
def test_jacobian_is_that_of_the_mean_and_has_the_support_of_the_graph(name, how):
    data = transition_data(name, seed=3, **SMALL, **how)
    z, a = inputs(data)
    exact = transition_jacobian(data, z, a)
    for of, jacobian, graph in (("a", exact.action, data.graph_a), ("z", exact.time, data.graph_z)):
        if graph is None:
            assert jacobian is None
            continue
        numeric = differences(data, z, a, of)
        np.testing.assert_array_equal((np.abs(numeric) > 1e-6).any(0).astype(int), graph)
        np.testing.assert_allclose(np.median(np.abs(jacobian - numeric)), 0, atol=1e-9)
        assert (np.abs(jacobian - numeric) < 1e-6).mean() > 0.999  # a difference may straddle a kink
        # k = 1: linear means have the same derivatives everywhere, the others do not
        assert (jacobian.std(0)[graph == 1].max() < 1e-12) == ("sufficient" in how)


def test_influence_of_time_non_diag_is_nearly_singular():
    """Singular values of the derivatives along the 55 edges: from 3.5 down to about .005."""
    data = transition_data("TimeNonDiag", n=4000)
    edges = transition_jacobian(data, data.pairs().z_before).time[:, data.graph_z == 1]
    singular = np.linalg.svd(edges, compute_uv=False) / np.sqrt(len(edges))
    assert len(singular) == 55
    assert singular[0] == pytest.approx(3.5, rel=0.1) and 0.003 < singular[-1] < 0.01


@pytest.mark.parametrize("mechanism", ["leaky_relu", "gp"])
def test_other_mechanisms_move_as_much_as_the_sines(mechanism):
    graph = np.tril(np.ones((12, 12), int))
    u = np.random.default_rng(0).normal(size=(200, 12))
    rng = np.random.default_rng(1)
    slopes = [
        np.sqrt((draw_mechanism(mechanism, graph, False, rng).jacobian(u) ** 2).mean(0)) for _ in range(20)
    ]
    typical = np.mean(slopes, axis=0)[graph == 1]
    assert 0.3 < typical.min() and typical.max() < 2.0  # sines: (i + 3)/pi/sqrt(2), .7 upwards


@pytest.mark.parametrize("mechanism", ["sine", "leaky_relu", "gp"])
def test_the_variance_of_k2_keeps_the_graph_under_every_mechanism(mechanism):
    data = transition_data("TimeNonDiag", k=2, mechanism=mechanism, **(SMALL | {"n": 4000}))
    z, _, after = steps(data)
    w, shift = (np.arange(6) + 3) / np.pi, np.arange(6)
    last = np.cos(w[0] * z[:, 0] + shift[0])  # the only parent of latent 0
    squared = (after - transition_mean(data, z))[:, 0] ** 2
    assert np.mean(squared / (0.1 / 6 * np.exp(last))) == pytest.approx(1, abs=0.08)


# --- sequences of any length ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "how", [{}, {"mechanism": "leaky_relu"}, {"mechanism": "gp"}, {"sufficient": False}, {"k": 2}]
)
@pytest.mark.parametrize("name", ["TimeDiag", "TimeRandom(0.9)", "ActionTimeNonDiag"])
def test_long_sequences_stay_bounded_and_follow_the_law(name, how):
    data = transition_data(name, T=40, seed=6, **SMALL, **how)
    assert data.x.shape == (56, 40, 8) and data.z.shape == (56, 40, 6)
    spread = data.z[:, 20:].std((0, 1))
    assert 0.1 < spread.min() and spread.max() < 5
    if "k" not in how:
        z, a, after = steps(data)
        residual = after - transition_mean(data, z, a)
        np.testing.assert_allclose(residual.std(0), 0.3, rtol=0.1)
        assert data.settings["noise"] == 0.3


def test_short_sequences_are_as_published_and_frames_of_actions_are_independent():
    assert transition_data("TimeDiag", **SMALL).settings["shrink"] == 1
    assert transition_data("TimeDiag", T=3, **SMALL).settings["shrink"] == pytest.approx(0.6)
    data = transition_data("ActionNonDiag", T=4, **(SMALL | {"n": 1000}))
    assert data.settings["noise"] == 0.01 and data.settings["shrink"] is None
    after, before = data.z[:, 1:].reshape(-1, 6), data.z[:, :-1].reshape(-1, 6)
    assert np.abs(np.corrcoef(after.T, before.T)[:6, 6:]).max() < 0.08
    assert (
        transition_data("ActionDiag", **SMALL).x.shape[1] == 1
        and transition_data("TimeDiag", **SMALL).x.shape[1] == 2
    )


def test_growth_is_the_spectral_radius_of_a_linear_map():
    for seed in range(5):
        weight = np.random.default_rng(seed).normal(size=(4, 1, 4))
        linear = Mechanism("linear", weight, np.zeros((4, 1)), np.ones((4, 1)))
        radius = np.abs(np.linalg.eigvals(np.eye(4) + weight[:, 0] / 2)).max()
        assert growth(linear) == pytest.approx(radius, rel=0.05)
    # a bounded f adds nothing in the long run, a LeakyReLU network does not depend on the size of z
    far = 1e12 * np.random.default_rng(0).normal(size=(100, 3))
    rng = np.random.default_rng(1)
    for kind in ("sine", "gp"):
        bounded = draw_mechanism(kind, np.ones((3, 3), dtype=int), False, rng)
        assert growth(bounded) == 1 and np.abs(bounded(far)).max() < 100
    network = draw_mechanism("leaky_relu", np.ones((3, 3), dtype=int), False, rng)
    u, logs = far, []
    for _ in range(100):
        u = 1e12 * u / np.linalg.norm(u, axis=1, keepdims=True)
        u = u + 0.5 * network(u)
        logs.append(np.log(np.linalg.norm(u, axis=1) / 1e12))
    assert growth(network) >= np.exp(np.mean(logs, axis=0).max()) * 0.99


def test_the_caller_may_set_shrink_and_noise():
    data = transition_data("TimeDiag", T=5, shrink=0.5, noise=0.2, **(SMALL | {"n": 500}))
    z, _, after = steps(data)
    np.testing.assert_allclose(transition_mean(data, z), 0.5 * (z + np.sin(z) / 2), atol=1e-12)
    np.testing.assert_allclose((after - transition_mean(data, z)).std(0), 0.2, rtol=0.05)


# --- the mixing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("d_x", [6, 8, 20])
def test_mixing_is_one_to_one(d_x):
    data = transition_data("TimeDiag", n=40, d_z=6, d_x=d_x)
    z = np.random.default_rng(0).normal(size=(100, 6))
    step = 1e-6 * np.eye(6)
    jacobian = (
        transition_mixing(data, z[:, None] + step) - transition_mixing(data, z[:, None] - step)
    ) / 2e-6
    assert jacobian.shape == (100, 6, d_x)
    singular = np.linalg.svd(jacobian, compute_uv=False)
    # orthonormal columns and slopes in [.2, 1], three times: no direction shrinks by more than .2^3
    assert singular.min() > 0.2**3 * 0.99 and singular.max() < 1.001
    # the slopes are not constant: the mixing is not linear
    assert np.abs(jacobian - jacobian[0]).max() > 0.1


def test_observation_is_the_standardised_mixing_plus_noise():
    data = transition_data("TimeNonDiag", **(SMALL | {"n": 2000}))
    clean = transition_mixing(data, data.z)
    train = clean[data.splits["train"]]
    residual = data.x - (clean - train.mean((0, 1))) / train.std((0, 1))
    np.testing.assert_allclose(residual.std((0, 1)), 0.01, rtol=0.08)
    np.testing.assert_allclose(residual.mean((0, 1)), 0, atol=1e-3)


# --- splits, seeds --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ActionNonDiag", "TimeNonDiag"])
def test_one_standardisation_by_default_and_one_per_split_as_published(name):
    for published in (False, True):
        data = transition_data(name, observation_noise=0, published_splits=published, **SMALL)
        clean = transition_mixing(data, data.z)
        for split, rows in data.splits.items():
            by = clean[rows] if published else clean[data.splits["train"]]
            np.testing.assert_allclose(data.x[rows], (clean[rows] - by.mean((0, 1))) / by.std((0, 1)))
            own = np.abs(data.x[rows].mean((0, 1))).max() < 1e-12
            assert own == (published or split == "train")


@pytest.mark.parametrize("name", ["ActionNonDiag", "ActionTimeDiag"])
def test_published_splits_repeat_the_actions_of_train(name):
    for published in (False, True):
        data = transition_data(name, n_validation=10, n_test=12, published_splits=published, **SMALL)
        train, validation, test = (data.part(split)[2] for split in ("train", "validation", "test"))
        assert np.array_equal(validation, train[:10]) == np.array_equal(test, train[:12]) == published
        shared = np.isin(np.concatenate([validation, test]), train)
        assert shared.all() if published else not shared.any()
        z = data.z.reshape(-1, 6)
        assert len(np.unique(z, axis=0)) == len(z)  # latents are drawn afresh either way


def test_splits_cover_the_sequences():
    data = transition_data("TimeDiag", n_test=7, **SMALL)
    assert {split: len(rows) for split, rows in data.splits.items()} == {
        "train": 40,
        "validation": 8,
        "test": 7,
    }
    np.testing.assert_array_equal(np.concatenate(list(data.splits.values())), np.arange(55))


def test_seed_decides_every_number():
    make = {"name": "ActionTimeRandom(0.5)", "mechanism": "gp", **SMALL}
    first, again, other = (
        transition_data(seed=1, **make),
        transition_data(seed=1, **make),
        transition_data(seed=2, **make),
    )
    for what in ("x", "z", "actions", "graph_z", "graph_a"):
        np.testing.assert_array_equal(getattr(first, what), getattr(again, what))
        assert not np.array_equal(getattr(first, what), getattr(other, what)), what
    longer = transition_data(seed=1, n_test=30, **make)
    for mine, same in zip(first.part("train"), longer.part("train"), strict=True):
        np.testing.assert_array_equal(mine, same)


def test_decoder_is_redrawn_with_the_seed_or_fixed():
    z = np.random.default_rng(0).normal(size=(5, 6))
    redrawn = [transition_mixing(transition_data("TimeDiag", seed=s, **SMALL), z) for s in (1, 2)]
    assert not np.allclose(*redrawn)
    sets = [transition_data("TimeDiag", seed=s, decoder_seed=7, **SMALL) for s in (1, 2)]
    np.testing.assert_array_equal(*[transition_mixing(data, z) for data in sets])
    np.testing.assert_array_equal(sets[0].z, transition_data("TimeDiag", seed=1, **SMALL).z)
    own = transition_data("TimeDiag", seed=7, **SMALL)
    np.testing.assert_array_equal(transition_mixing(own, z), transition_mixing(sets[0], z))


def test_settings_rebuild_the_truth():
    data = transition_data("ActionTimeRandom(0.5)", mechanism="leaky_relu", T=4, seed=3, **SMALL)
    z, a = inputs(data)
    stored = json.loads(json.dumps(data.settings))
    np.testing.assert_array_equal(transition_mean(stored, z, a), transition_mean(data, z, a))
    np.testing.assert_array_equal(transition_mixing(stored, z), transition_mixing(data, z))
    np.testing.assert_array_equal(transition_data(**stored).x, data.x)


def test_part_and_pairs():
    data = transition_data("ActionTimeDiag", T=4, **SMALL)
    x, z, actions = data.part("test")
    np.testing.assert_array_equal(z, data.z[data.splits["test"]])
    pairs = data.pairs("test")
    assert [len(rows) for rows in pairs] == [3 * 8] * 5
    row = 3 * 5 + 1  # sequence 5, from frame 1 to frame 2
    for mine, of, t in zip(pairs, (x, x, z, z, actions), (1, 2, 1, 2, 2), strict=True):
        np.testing.assert_array_equal(mine[row], of[5, t])
    assert transition_data("TimeDiag", **SMALL).pairs().actions is None
    with pytest.raises(KeyError, match="split='valid' is not one of"):
        data.part("valid")
    with pytest.raises(ValueError, match="T=1: a single frame has no pairs"):
        transition_data("ActionDiag", **SMALL).pairs()
