"""Dependency tables: supports by finite differences, diversity by brute force, laws by their statistics."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats
from sklearn.kernel_ridge import KernelRidge

from pyro_sparse.datasets import dependency_data, sim1
from pyro_sparse.datasets._gaussian_transitions import leaky_relu
from pyro_sparse.datasets.dependency import (
    DEPENDENCY_MECHANISMS,
    DEPENDENCY_STRUCTURES,
    _rounded,
    dependency_mean,
)
from pyro_sparse.graphs import sufficient_diversity


def identified(s, i):
    """The three conditions of the paper for one latent, over every set of features."""
    reach = [set(np.flatnonzero(row)) for row in s]
    for size in range(1, len(s) + 1):
        for chosen in combinations(range(len(s)), size):
            sets = [reach[r] for r in chosen]
            if set.intersection(*sets) == {i}:
                return True
            if set.union(*sets) != set(range(s.shape[1])):
                continue
            for k in range(size):
                others = sets[:k] + sets[k + 1 :]
                if others and set.intersection(*others) - sets[k] == {i}:
                    return True
                if sets[k] - set().union(*others) == {i}:
                    return True
    return False


def test_diversity_is_that_of_all_sets_of_features():
    rng = np.random.default_rng(0)
    answers = []
    for _ in range(300):
        s = rng.random((rng.integers(2, 6), rng.integers(2, 5))) < rng.uniform(0.3, 0.8)
        wanted = all(s[:, i].any() and identified(s, i) for i in range(s.shape[1]))
        assert sufficient_diversity(s).holds == wanted, s.astype(int).tolist()
        answers.append(wanted)
    assert 0.1 < np.mean(answers) < 0.9
    assert not sufficient_diversity(np.array([[1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 1, 0], [0, 0, 0, 1]])).holds
    assert not sufficient_diversity(np.array([[1, 1, 0], [1, 1, 1], [0, 0, 1]])).holds


@pytest.mark.parametrize(("structure", "diverse"), DEPENDENCY_STRUCTURES.items())
@pytest.mark.parametrize("size", [(3, None), (5, 5), (4, 11)])
def test_structures_are_as_diverse_as_they_say(structure, diverse, size):
    supports = [dependency_data(structure, *size, n=2, seed=s).support for s in range(5)]
    for support in supports:
        assert support.shape == (size[1] or 9, size[0])
        assert support.any(0).all() and support.any(1).all()
        assert sufficient_diversity(support).holds == diverse
    same = [np.array_equal(supports[0], other) for other in supports[1:]]
    assert not any(same) if structure in ("random", "duplicate") else all(same)


def test_named_structures():
    def rows(structure, *size):
        return dependency_data(structure, *size, n=2).support.tolist()

    assert rows("cycle", 4, 4) == [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]]
    assert rows("triangular", 3, 5) == [[1, 1, 1], [0, 1, 1], [0, 0, 1], [1, 1, 1], [0, 1, 1]]
    assert rows("complement", 3, 3) == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    assert rows("ones", 2, 3) == [[1, 1]] * 3
    twice = np.array(rows("duplicate", 5))
    np.testing.assert_array_equal(twice[:, 0], twice[:, 4])
    assert len(np.unique(twice.T, axis=0)) == 4
    assert 0.3 < np.mean([dependency_data(d_z=8, n=2, seed=s).support.mean() for s in range(20)]) < 0.5
    given = dependency_data([[True, False], [True, True]], n=5)
    assert given.support.tolist() == [[1, 0], [1, 1]] and given.settings["structure"] == [[1, 0], [1, 1]]


@pytest.mark.parametrize("mechanism", DEPENDENCY_MECHANISMS)
def test_the_support_is_that_of_the_jacobian(mechanism):
    for structure in ("random", "triangular"):
        data = dependency_data(structure, d_z=4, n=400, mechanism=mechanism, seed=2)
        z, h = data.z[:200], 1e-5
        columns = [dependency_mean(data, z + h * e) - dependency_mean(data, z - h * e) for e in np.eye(4)]
        jacobian = np.stack(columns, axis=-1) / (2 * h)
        strength = np.sqrt((jacobian**2).mean(0))
        assert (strength[data.support == 0] == 0).all()
        assert strength[data.support == 1].min() > 0.02
        several = data.support.sum(1) > 1
        assert jacobian[:, several].std(0).max(1).min() > 0.02  # not linear


@pytest.mark.parametrize("mechanism", DEPENDENCY_MECHANISMS)
def test_features_are_standardised_noisy_and_tell_the_latents(mechanism):
    data = dependency_data("cycle", d_z=3, n=3000, mechanism=mechanism, noise=0.03, seed=1)
    mean = dependency_mean(data, data.z)
    np.testing.assert_allclose(mean.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(mean.std(0), 1, atol=1e-12)
    error = (data.x - mean) / 0.03
    assert stats.kstest(error.ravel(), "norm").pvalue > 1e-3
    assert stats.kstest(data.z.ravel(), "norm").pvalue > 1e-3
    assert np.abs(np.corrcoef(error.T, mean.T)[:9, 9:]).max() < 0.08
    x, z = data.x, data.z
    model = KernelRidge(alpha=0.01, kernel="rbf", gamma=0.05).fit(x[:1000], z[:1000])
    left = ((z[1000:] - model.predict(x[1000:])) ** 2).mean(0)
    assert left.max() < 0.08


def test_the_parts_of_a_feature_have_the_sizes_asked_for():
    """A sine of unknown phase is linear in sine and cosine: least squares takes the two parts apart."""
    data = dependency_data(np.ones((1, 1)), n=20_000, mechanism="sine", noise=0.0, seed=3)
    z = data.z[:, 0]
    waves = np.column_stack([z, np.sin(2 * z), np.cos(2 * z), np.ones_like(z)])
    weights, residual = np.linalg.lstsq(waves, data.x[:, 0], rcond=None)[:2]
    assert residual[0] < 1e-18
    bent = waves[:, 1:3] @ weights[1:3]
    assert bent.std() / (z * weights[0]).std() == pytest.approx(0.7, rel=1e-9)


def test_the_rounded_corner():
    u = np.linspace(-40, 40, 801)
    assert leaky_relu(np.array([-2.0, 3.0])).tolist() == [-0.4, 3.0]
    np.testing.assert_allclose(_rounded(u), 0.2 * u + 0.2 * np.logaddexp(0, 4 * u), atol=1e-12)
    assert np.abs(_rounded(u) - leaky_relu(u)).max() == pytest.approx(0.2 * np.log(2))


def test_splits_and_seeds():
    data = dependency_data("random", n=50, n_test=20, seed=7)
    longer = dependency_data("random", n=50, n_test=30, seed=7)
    np.testing.assert_array_equal(data.part("train")[0], longer.part("train")[0])
    np.testing.assert_allclose(data.part("test")[0], longer.part("test")[0][:20], atol=1e-12)
    assert data.x.shape == (70, 15) and data.part("test")[1].shape == (20, 5)
    assert not np.isclose(data.x[:50], dependency_data("random", n=50, seed=8).x).any()
    again = dependency_data(**data.settings)
    np.testing.assert_array_equal(again.x, data.x)
    quiet = dependency_data("random", n=50, n_test=20, noise=0.0, seed=7)
    np.testing.assert_array_equal(quiet.support, data.support)
    np.testing.assert_allclose(quiet.x, dependency_mean(data, data.z), atol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"structure": "ring"}, "structure='ring': want one of cycle, triangular"),
        ({"structure": "cycle", "d_z": 2}, "d_z: want a whole number of at least 3, got 2"),
        ({"d_z": 1}, "d_z: want a whole number of at least 2, got 1"),
        ({"d_x": 4}, "d_x: want a whole number of at least 5, got 4"),
        ({"d_z": 60, "d_x": 60, "structure": "random"}, None),
        ({"n": 1}, "n: want a whole number of at least 2, got 1"),
        ({"n_test": -1}, "n_test: want a whole number of at least 0, got -1"),
        ({"mechanism": "tanh"}, "mechanism='tanh': want one of leaky_relu, softplus"),
        ({"noise": -0.1}, "noise=-0.1 is a standard deviation"),
        ({"noise": np.nan}, "noise=nan is a standard deviation"),
        ({"seed": 0.5}, "seed: want a whole number of at least .*, got 0.5"),
        ({"structure": [[1, 2]]}, r"structure: want a table \(d_x, d_z\) of 0 and 1"),
        ({"structure": [[1, 0], [1, 0]]}, "drop empty rows and columns"),
        ({"structure": [1, 0]}, r"got shape \(2,\)"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    if message is None:  # large, but not too large
        assert dependency_data(**{"n": 2, **arguments}).x.shape == (2, 60)
        return
    with pytest.raises(ValueError, match=message):
        dependency_data(**{"n": 10, **arguments})


def test_a_structure_that_cannot_be_drawn_is_named(monkeypatch):
    monkeypatch.setattr("pyro_sparse.datasets.dependency._DENSITY", 1.0)
    with pytest.raises(ValueError, match="none of 10000 draws with d_x=9, d_z=3 is diverse; raise d_x"):
        dependency_data(d_z=3, n=2)


def test_bad_latents_are_named():
    data = dependency_data("cycle", d_z=3, n=5)
    with pytest.raises(ValueError, match=r"z: want shape \(N, 3\), got \(2, 4\)"):
        dependency_mean(data, np.zeros((2, 4)))
    with pytest.raises(ValueError, match=r"want what dependency_data\(\) returned, got 'sim1'"):
        dependency_mean(sim1(n=4), np.zeros((2, 2)))
