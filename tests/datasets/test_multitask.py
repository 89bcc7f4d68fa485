"""Streams of tasks: the grid and its distribution, those of weights, labels and mixing, each by itself."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from pyro_sparse.datasets import proxy_data, task_weights
from pyro_sparse.datasets._shapes_grid import COUNTS, LEVELS, grid, levels_of
from pyro_sparse.datasets.multitask import TASK_WEIGHTS, MultiTaskStream


@pytest.fixture(scope="module")
def tasks():
    return proxy_data("bernoulli", rho=0.9, d_x=8, seed=3)


def test_the_grid_without_noise_is_every_combination_of_levels_standardised():
    cells = grid(0.0, 0.0, np.random.default_rng(0))
    assert cells.z.shape == (480_000, 6) and COUNTS == (10, 10, 10, 8, 4, 15)
    some = np.random.default_rng(1).integers(480_000, size=200)
    every = itertools.product(*LEVELS.values())
    raw = dict(enumerate(every))
    for k, values in enumerate(LEVELS.values()):
        wanted = [(raw[cell][k] - values.mean()) / values.std() for cell in some]
        np.testing.assert_allclose(cells.z[some, k], wanted, atol=1e-12)
        np.testing.assert_allclose([values[j] for j in levels_of(some)[:, k]], [raw[c][k] for c in some])


def test_noise_of_the_latents_stays_in_the_cell_and_fills_it():
    plain = grid(0.0, 0.0, np.random.default_rng(0)).z
    moved = grid(0.0, 1.0, np.random.default_rng(0)).z
    np.testing.assert_allclose(moved.mean(0), 0, atol=1e-9)
    np.testing.assert_allclose(moved.std(0), 1, rtol=1e-9)
    for k, count in enumerate(COUNTS):
        # L levels and L gaps wide: uniform noise of one gap makes the sum uniform over L gaps.
        half = np.sqrt(3)
        assert stats.kstest(moved[::37, k], stats.uniform(-half, 2 * half).cdf).pvalue > 1e-3
        levels = np.digitize(moved[:, k], np.linspace(-half, half, count + 1)[1:-1])
        wanted = np.unique(plain[:, k], return_inverse=True)[1]
        assert (levels == wanted).mean() > 0.99  # the standardisation is of a finite sample


@pytest.mark.parametrize("rho", [-0.1, 0.0, 0.5, 0.9, 0.99])
def test_cells_have_the_probability_of_the_gaussian(rho):
    cells = grid(rho, 1.0, np.random.default_rng(5))
    covariance = np.full((6, 6), rho) + (1 - rho) * np.eye(6)
    wanted = stats.multivariate_normal(np.zeros(6), covariance).pdf(cells.z)
    np.testing.assert_allclose(np.diff(cells.cdf, prepend=0.0), wanted / wanted.sum(), atol=1e-14)
    drawn = cells.z[cells.draw((20_000,), np.random.default_rng(0))]
    mean = cells.z.T @ wanted / wanted.sum()
    truth = (cells.z - mean).T @ ((cells.z - mean) * wanted[:, None]) / wanted.sum()
    np.testing.assert_allclose(np.cov(drawn.T), truth, atol=0.03)


@pytest.mark.parametrize(
    ("kind", "transition"), [("laplace", stats.laplace), ("gaussian", stats.norm), ("bernoulli", stats.norm)]
)
def test_weights_that_are_used_have_their_law(kind, transition):
    w = task_weights(kind, 2000, seed=0)
    assert stats.kstest(w[w != 0], transition.cdf).pvalue > 1e-3
    assert (w != 0).all() == (kind != "bernoulli")


def test_bernoulli_supports_are_uniform_over_all_but_the_empty_one():
    support = task_weights("bernoulli", 6300, seed=1) != 0
    seen = np.bincount(support @ 2 ** np.arange(6), minlength=64)
    assert seen[0] == 0
    assert stats.chisquare(seen[1:]).pvalue > 1e-3
    sparse = task_weights("bernoulli", 5000, m=20, seed=0, probability=0.1) != 0
    wanted = 0.1 / (1 - 0.9**20)
    assert abs(sparse.mean() - wanted) < 4 * np.sqrt(wanted / sparse.size)


@pytest.mark.parametrize("size", [2, 3, 6])
def test_blocks_are_whole_and_equally_frequent(size):
    support = task_weights(f"block{size}", 3000, m=6, seed=2) != 0
    assert (support.sum(1) == size).all()
    blocks = support.reshape(3000, 6 // size, size)
    assert (blocks.all(-1) | ~blocks.any(-1)).all()
    counts = blocks.all(-1).sum(0)
    assert len(counts) == 1 or stats.chisquare(counts).pvalue > 1e-3


def test_labels_are_signal_plus_noise_of_a_tenth_of_its_size(tasks):
    batch = tasks.batch(0)
    assert batch.x.shape == (8, 50, 8) and batch.y.shape == (8, 50)
    for t in range(8):
        signal = np.array([sum(a * b for a, b in zip(batch.w[t], z, strict=True)) for z in batch.z[t]])
        error = batch.y[t] - signal
        assert np.linalg.norm(error) == pytest.approx(0.1 * np.linalg.norm(signal), rel=1e-9)
        assert stats.shapiro(error).pvalue > 1e-4


def test_what_is_seen_is_a_mixing_of_the_latents(tasks):
    batch = tasks.batch(7)
    np.testing.assert_allclose(batch.x, np.einsum("ij,tnj->tni", tasks.mixing, batch.z), atol=1e-12)
    assert np.linalg.cond(tasks.mixing) == pytest.approx(5.0)
    assert tasks.mixing.shape == (8, 6)
    assert {row.tobytes() for row in batch.z.reshape(-1, 6)} <= {row.tobytes() for row in tasks.grid.z}


def test_the_test_set_is_uniform_over_the_grid(tasks):
    x, z = tasks.test(20_000)
    np.testing.assert_allclose(x, z @ tasks.mixing.T, atol=1e-12)
    np.testing.assert_allclose(np.corrcoef(z.T), np.eye(6), atol=0.04)
    np.testing.assert_allclose(z.std(0), 1, atol=0.03)
    training = np.concatenate([tasks.batch(s).z.reshape(-1, 6) for s in range(20)])
    assert np.corrcoef(training.T)[np.triu_indices(6, 1)].min() > 0.6


def test_a_seed_and_a_step_say_everything():
    one, two, other = (proxy_data("laplace", rho=0.5, n_tasks=2, n_samples=5, seed=s) for s in (0, 0, 1))
    for a, b in zip(one.batch(4), two.batch(4), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.mixing, two.mixing)
    assert not np.isclose(one.mixing, other.mixing).any()
    assert not np.isclose(one.batch(0).w, one.batch(1).w).any()
    assert not np.isclose(one.batch(0).w, other.batch(0).w).any()
    for step, batch in zip(range(3), one, strict=False):
        np.testing.assert_array_equal(batch.y, two.batch(step).y)
    more = proxy_data("laplace", rho=0.5, n_tasks=3, n_samples=5, seed=0)
    np.testing.assert_array_equal(more.mixing, one.mixing)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "blocks"}, "kind='blocks': want one of bernoulli"),
        ({"rho": 1.0}, "rho=1.0: want a common correlation of 6"),
        ({"rho": -0.2}, "rho=-0.2"),
        ({"n_tasks": 0}, "n_tasks: want a whole number of at least .*, got 0"),
        ({"n_samples": 2.5}, "n_samples: want a whole number of at least .*, got 2.5"),
        ({"d_x": 5}, "d_x: want a whole number of at least 6, got 5"),
        ({"condition": 0.5}, "condition=0.5: want a finite number, at least 1"),
        ({"latent_noise": 1.5}, "latent_noise=1.5: want a share of the gap"),
        ({"noise": -1}, "noise=-1: want a finite number"),
        ({"noise": np.nan}, "noise=nan: want a finite number"),
        ({"seed": -1}, "seed: want a whole number of at least 0, got -1"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        proxy_data(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "block3", "n_tasks": 4, "m": 8}, "m=8: want a multiple of 3"),
        ({"kind": "bernoulli", "n_tasks": 4, "probability": 0.0}, "probability=0.0"),
        ({"kind": "bernoulli", "n_tasks": 4, "probability": 1e-9}, "probability=1e-09: nearly all supports"),
        ({"kind": "bernoulli", "n_tasks": True}, "n_tasks: want a whole number of at least .*, got True"),
        ({"kind": "bernoulli", "n_tasks": 4, "m": 0}, "m: want a whole number of at least .*, got 0"),
    ],
)
def test_bad_weights_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        task_weights(**arguments)


def test_bad_steps_and_sizes_are_named(tasks):
    with pytest.raises(ValueError, match="step: want a whole number of at least 0, got -1"):
        tasks.batch(-1)
    with pytest.raises(ValueError, match="n: want a whole number of at least .*, got 0"):
        tasks.test(0)
    with pytest.raises(ValueError, match="kind='none'"):
        MultiTaskStream(tasks.grid, tasks.observe, kind="none")
    assert all(MultiTaskStream(tasks.grid, tasks.observe, kind=kind).kind == kind for kind in TASK_WEIGHTS)
