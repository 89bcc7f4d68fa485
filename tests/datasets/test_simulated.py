"""The generators draw from the transition they state, and their support is the graph that made the data."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from pyro_sparse.datasets import anchored, anchored60, sim1, topic_counts


def test_sim1_is_the_stated_function_of_z_plus_noise():
    data = sim1(n=4000, noise=0.5, seed=3)
    a, b = data.z.T
    mean = np.stack([a, 2 * a, 3 * a**2, 4 * b, 5 * b, 6 * np.sin(b), 7 * a * b], axis=1)
    residual = data.x - mean
    np.testing.assert_allclose(residual.std(0), 0.5, rtol=0.06)
    np.testing.assert_allclose(np.corrcoef(residual.T), np.eye(7), atol=0.07)
    assert data.x.shape == (4000, 7) and data.z.shape == (4000, 2)
    assert data.frame.columns.tolist() == data.feature_names == [f"x{i}" for i in range(1, 8)]


def test_sim1_support_by_perturbation():
    data = sim1(n=50, noise=0.0, seed=0)
    for k in range(2):
        z = data.z.copy()
        z[:, k] += 1.0
        a, b = z.T
        moved = np.stack([a, 2 * a, 3 * a**2, 4 * b, 5 * b, 6 * np.sin(b), 7 * a * b], axis=1)
        changed = ~np.isclose(moved, data.x).all(0)
        np.testing.assert_array_equal(changed.astype(int), data.support[:, k])


@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.8])
def test_sim1_correlation_and_split(rho):
    data = sim1(n=5000, rho=rho, seed=1)
    assert np.corrcoef(data.z.T)[0, 1] == pytest.approx(rho, abs=0.04)
    both = np.concatenate([data.splits["train"], data.splits["test"]])
    np.testing.assert_array_equal(np.sort(both), np.arange(5000))
    assert len(data.splits["train"]) == 2500
    x, z = data.part("test")
    np.testing.assert_array_equal(x, data.x[data.splits["test"]])
    np.testing.assert_array_equal(z, data.z[data.splits["test"]])


@pytest.mark.parametrize("make", [sim1, anchored60, topic_counts])
def test_seed_decides_every_number(make):
    first, again, other = make(seed=5), make(seed=5), make(seed=6)
    np.testing.assert_array_equal(first.x, again.x)
    np.testing.assert_array_equal(first.splits["train"], again.splits["train"])
    assert first.x.shape != other.x.shape or not np.array_equal(first.x, other.x)


def test_anchored_graph_and_functions():
    data = anchored(3000, 40, 5, n_test=200, anchors_per_factor=3, noise=0.0, seed=2)
    assert data.x.shape == (3200, 40) and data.support.shape == (40, 5)
    assert [len(data.splits[s]) for s in ("train", "test")] == [3000, 200]
    anchors = data.support[:15]
    np.testing.assert_array_equal(anchors.sum(0), 3)
    np.testing.assert_array_equal(anchors.sum(1), 1)
    assert set(data.kind[:15]) == {"anchor"} and set(data.kind[15:]) <= {"identity", "tanh", "sin", "square"}
    assert data.support.sum(1).min() >= 1 and data.support.sum(1).max() <= 3
    inverse = {"anchor": lambda x: x, "identity": lambda x: x, "tanh": np.arctanh}
    for j, kind in enumerate(data.kind):
        if kind in inverse:  # undo the function: what is left is linear in the parents, exactly and only
            target = data.x[:, j]
            inside = np.abs(target) < 0.999 if kind == "tanh" else np.ones(len(target), bool)
            coefficient, *_ = np.linalg.lstsq(data.z[inside], inverse[kind](target[inside]), rcond=None)
            np.testing.assert_array_equal((np.abs(coefficient) > 1e-6).astype(int), data.support[j])
            size = np.abs(coefficient[data.support[j] == 1])
            assert size.min() >= 1 and size.max() <= 3
        elif kind == "sin":
            assert np.abs(data.x[:, j]).max() <= 1
        else:
            assert data.x[:, j].min() >= 0


def test_anchored_noise_and_correlation():
    quiet, loud = (anchored(4000, 12, 4, rho=0.6, noise=s, seed=9) for s in (0.0, 0.7))
    np.testing.assert_allclose((loud.x - quiet.x).std(0), 0.7, rtol=0.06)
    correlation = np.corrcoef(loud.z.T)
    np.testing.assert_allclose(correlation[~np.eye(4, dtype=bool)], 0.6, atol=0.05)


def test_anchored60_size():
    data = anchored60(n=100, n_test=30, seed=0)
    assert data.x.shape == (130, 60) and data.z.shape == (130, 6)
    assert data.kind.count("anchor") == 12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 1}, "n: want a whole number of at least 2, got 1"),
        ({"n": 10, "n_features": 5}, "fewer than the 8 anchors"),
        ({"n": 10, "max_parents": 9}, "max_parents=9"),
        ({"n": 10, "kinds": ("cube",)}, "kinds="),
        ({"n": 10, "rho": -0.5}, "positive definite"),
        ({"n": 10, "noise": -1.0}, "noise=-1.0"),
        ({"n": 10, "n_factors": 0}, "n_factors: want .* got 0"),
        ({"n": 10, "n_test": -5}, "n_test: want a whole number of at least 0, got -5"),
        ({"n": 10, "n_features": 20.0}, "n_features: want a whole number of at least .*, got 20.0"),
        ({"n": 10, "max_parents": 1.5}, "max_parents: want a whole number of at least .*, got 1.5"),
        (
            {"n": 10, "anchors_per_factor": -1},
            "anchors_per_factor: want a whole number .*, got -1",
        ),
        ({"n": 10, "seed": None}, "seed: want a whole number of at least 0, got None"),
    ],
)
def test_anchored_refuses(arguments, message):
    defaults = {"n_features": 20, "n_factors": 4, "max_parents": 2}
    with pytest.raises(ValueError, match=message):
        anchored(**{**defaults, **arguments})


def test_sim1_refuses():
    with pytest.raises(ValueError, match="rho=1.0"):
        sim1(rho=1.0)
    for bad in (None, -1, 1.5):
        with pytest.raises(ValueError, match=f"seed: want a whole number of at least 0, got {bad}"):
            sim1(seed=bad)
    with pytest.raises(KeyError, match="split='validation'"):
        sim1(n=10).part("validation")


def test_topics_copied_half_in_training_only():
    data = topic_counts(n=1500, n_words=300, n_topics=10, correlation=0.5, seed=4)
    (x, theta), (_, original) = data.part("train"), data.part("test")
    np.testing.assert_allclose(theta.sum(1), 1)
    np.testing.assert_allclose(original.sum(1), 1)
    gap = np.log(theta[:, 5:]) - np.log(theta[:, :5])
    assert gap.mean() == pytest.approx(0, abs=0.02) and gap.std() == pytest.approx(0.5, rel=0.03)
    own = [np.corrcoef(original[:, k], original[:, k + 5])[0, 1] for k in range(5)]
    copied = [np.corrcoef(theta[:, k], theta[:, k + 5])[0, 1] for k in range(5)]
    assert max(own) < 0.2 and min(copied) > 0.5
    assert (x == np.rint(x)).all() and x.min() == 0 and x.sum(1).min() > 0


def test_topics_levels_order_and_support():
    def strength(level):
        theta = topic_counts(n=800, n_words=200, n_topics=4, correlation=level, seed=0).part("train")[1]
        return np.std(np.log(theta[:, 2:]) - np.log(theta[:, :2]))

    assert strength("high") < strength("medium") < strength("low")
    data = topic_counts(n=3000, n_words=200, n_topics=4, anchors_per_topic=3, draw="multinomial", seed=0)
    np.testing.assert_array_equal(data.support[:12].sum(0), 3)
    assert (data.support.sum(0) == 60).all()
    x, theta = data.part("test")
    assert x[:, data.support.sum(1) == 0].sum() == 0
    for j in range(12):  # an anchor word's rate follows its own topic
        rates = [np.corrcoef(x[:, j] / x.sum(1), theta[:, k])[0, 1] for k in range(4)]
        if x[:, j].sum() > 300:
            assert int(np.argmax(rates)) == int(np.argmax(data.support[j]))


def test_topics_from_real_counts():
    counts = topic_counts(n=120, n_words=80, n_topics=4, words_per_topic=20, seed=0).part("test")[0]
    data = topic_counts(counts=counts, n_topics=4, vocabulary=[f"w{j}" for j in range(80)], seed=1)
    assert data.x.shape[1] == 80 and data.support.shape == (80, 4) and data.feature_names[0] == "w0"
    assert len(data.splits["train"]) <= 120 and data.settings["fitted"]
    for other in (counts.tolist(), sparse.csr_array(counts)):
        again = topic_counts(counts=other, n_topics=4, seed=1)
        np.testing.assert_allclose(again.z, data.z)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"correlation": "strong"}, "correlation='strong'"),
        ({"n_topics": 5}, "n_topics=5 must be even"),
        ({"n_topics": 2.0}, "n_topics: want a whole number of at least .*, got 2.0"),
        ({"n": 2.5}, "n: want a whole number of at least .*, got 2.5"),
        ({"seed": None}, "seed: want a whole number of at least 0, got None"),
        ({"draw": "poisson"}, "draw='poisson'"),
        ({"n_words": 30}, "n_words=30 cannot hold"),
        ({"vocabulary": ["a"]}, "vocabulary has 1 names"),
    ],
)
def test_topics_refuse(arguments, message):
    with pytest.raises(ValueError, match=message):
        topic_counts(**{"n": 20, "n_words": 300, **arguments})
