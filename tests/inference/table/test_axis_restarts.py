"""Restarts in sparser axes: when they are sought, where they begin, whether they count, whom they replace."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.data.read import as_table
from pyro_sparse.inference import Schedule
from pyro_sparse.inference.table.axis_restarts import axis_start, is_better, replaced_restarts, searches_axes
from pyro_sparse.models import SparseDecoder

CURVES = (np.tanh, np.abs, lambda u: u, np.square)


def curves(seed=1000, n=300):
    """Sixteen features: six of each of two correlated factors alone, four of both."""
    rng = np.random.default_rng(seed)
    z = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], size=n)
    c = np.array([[1, 0]] * 6 + [[0, 1]] * 6 + [[1, 1], [1, -1]] * 2)
    x = np.column_stack([CURVES[j % 4](z @ w / np.linalg.norm(w)) for j, w in enumerate(c)])
    return (x - x.mean(0)) / x.std(0) + 0.3 * rng.normal(size=x.shape), z


class Trained:
    """A model that answers what the search asks: weights, and factors of rows."""

    def __init__(self, scores):
        self.n_factors = 3
        self.weights = torch.ones(len(scores), 16, scores[0].shape[1])
        self.scores = torch.as_tensor(np.stack(scores), dtype=torch.float32)

    def encode(self, batch):
        return self.scores[:, : len(batch)], torch.ones(())


@pytest.fixture(scope="module")
def example():
    x, z = curves()
    return as_table(x, likelihood=SparseDecoder(16, 3).likelihood), z


@pytest.mark.slow
def test_sums_and_differences_lead_to_the_true_axes(example):
    table, z = example
    turned = z @ np.array([[1.0, 1.0], [1.0, -1.0]])
    found = axis_start(Trained([turned]), table, np.arange(len(z)), np.zeros(1), 0)
    assert found is not None and found.n_factors == 2
    between = np.abs(np.corrcoef(z.T, found.start.scores.T)[:2, 2:]).max(1)
    assert between.min() > 0.85  # a linear map of curved features
    np.testing.assert_allclose(found.start.scores, table.inputs @ found.start.maps, atol=1e-6)
    assert found.start.scores.std(0) == pytest.approx(1)


@pytest.mark.slow
def test_the_true_axes_are_left_alone(example):
    table, z = example
    assert axis_start(Trained([z]), table, np.arange(len(z)), np.zeros(1), 0) is None


def test_a_fit_without_factors_is_left_alone(example):
    table, z = example
    model = Trained([z])
    model.weights = torch.zeros_like(model.weights)
    assert axis_start(model, table, np.arange(len(z)), np.zeros(1), 0) is None


@pytest.mark.parametrize(
    ("options", "steps", "sought"),
    [
        ({}, 1250, True),
        ({}, 100, False),
        ({"decoder": "linear"}, 1250, False),
        ({"anchors": {0: 0}}, 1250, False),
        ({"forbidden": [(0, 0)]}, 1250, False),
        ({"likelihood": "poisson"}, 1250, False),
    ],
)
def test_where_axes_are_sought(options, steps, sought):
    counts = np.random.default_rng(0).poisson(3.0, size=(120, 16)).astype(float)
    model = SparseDecoder(16, 3, **options)
    table = as_table(counts, likelihood=model.likelihood)
    model.setup()
    assert searches_axes(model, table, Schedule(steps=steps)) is sought


def test_fewer_edges_win_within_two_standard_errors_and_not_beyond():
    rows = np.tile([-1.0, 1.0], 200)
    old = np.zeros(400)
    error = 1 / np.sqrt(400)
    assert is_better(rows - 1.9 * error, old, more_edges=-1)
    assert not is_better(rows - 2.1 * error, old, more_edges=-1)
    assert not is_better(rows - 1.9 * error, old, more_edges=0)
    assert not is_better(np.full(400, np.nan), old, more_edges=-1)


def test_bic_pays_for_edges():
    old, n = np.zeros(400), 400
    price = 0.5 * np.log(n) / n  # of an edge, in nats per row
    assert is_better(old + 3.1 * price, old, more_edges=3)
    assert not is_better(old + 2.9 * price, old, more_edges=3)


def test_the_worst_are_replaced_and_never_the_best_of_several():
    level = np.array([-5.0, np.nan, -1.0, -4.0])
    assert replaced_restarts(level, 2, 2) == [1, 0]
    assert replaced_restarts(np.array([-2.0, -1.0]), 0, 2) == [1]
    assert replaced_restarts(np.array([-2.0]), 0, 2) == [0]


@pytest.mark.slow
def test_a_fit_of_curves_ends_in_the_true_axes():
    """Eight restarts alone share the wrong axes here, with 12 false edges."""
    rng = np.random.default_rng(1000)
    fits = []
    for seed in (1000, 1001):
        x, z = curves(seed + int(rng.integers(100)))
        fit = ps.fit(SparseDecoder(16, 3), x, restarts=4, seed=seed, progress=False)
        used = fit.weights[fit.best].any(0)
        between = np.abs(np.corrcoef(z.T, fit.transform()[:, used].T)[:2, 2:]).max(1)
        fits.append(between.min())
    assert min(fits) > 0.9


def test_restarts_of_a_fit_that_found_its_axes_keep_their_record():
    stub = SimpleNamespace(decoder_kind="linear")
    assert searches_axes(stub, None, Schedule()) is False
