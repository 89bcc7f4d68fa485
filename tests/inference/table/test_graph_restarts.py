"""Restarts at graphs of a search: for which fits, where they begin, and what becomes of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.data.read import as_table
from pyro_sparse.inference import Schedule
from pyro_sparse.inference.table import job
from pyro_sparse.inference.table.graph_restarts import (
    better_restarts,
    graph_starts,
    schedule_of_graphs,
    searches_graphs,
)
from pyro_sparse.models import SparseDecoder

pytestmark = pytest.mark.usefixtures("hurried_module")

FACTORS, SIZE, N = 2, 5, 400
EDGE = np.kron(np.eye(FACTORS), np.ones((SIZE, 1))) > 0


def answers(seed=1000):
    """Two factors of five yes/no answers each, and the factors."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(N, FACTORS))
    p = 1 / (1 + np.exp(-2.0 * z @ EDGE.T))
    return (rng.random(p.shape) < p).astype(float), z


@pytest.mark.parametrize(
    ("options", "n_rows", "steps", "wanted"),
    [
        ({"likelihood": "bernoulli"}, 300, 1250, True),
        ({"likelihood": "poisson"}, 300, 1250, True),
        ({"likelihood": "bernoulli", "prior": "spike_slab_normal"}, 300, 1250, True),
        ({}, 300, 1250, False),
        ({"likelihood": "bernoulli", "decoder": "mlp"}, 300, 1250, False),
        ({"likelihood": "bernoulli", "anchors": {0: 0}}, 300, 1250, False),
        ({"likelihood": "bernoulli", "prior": "horseshoe"}, 300, 1250, False),
        ({"likelihood": "bernoulli", "edge_odds": {(0, 0): 5.0}}, 300, 1250, False),
        ({"likelihood": "bernoulli"}, 300, 100, False),
        ({"likelihood": "bernoulli"}, 20, 1250, False),
    ],
)
def test_for_whom(options, n_rows, steps, wanted):
    x = (np.random.default_rng(0).random((n_rows, 8)) < 0.5).astype(float)
    model = SparseDecoder(8, 2, **{"decoder": "linear", **options})
    model.setup(1, n_rows)
    table = as_table(x, likelihood=model.likelihood)
    assert searches_graphs(model, table, Schedule(steps=steps)) is wanted


def test_starts_are_graphs_of_yes_no_answers_with_scores_by_regression():
    x, z = answers()
    model = SparseDecoder(x.shape[1], 4, decoder="linear", likelihood="bernoulli")
    model.setup(1, N)
    table = as_table(x, likelihood=model.likelihood)
    starts = graph_starts(model, table, np.arange(N))
    assert len({start.edge.shape[1] for start in starts}) == len(starts) <= 4
    first = starts[0]
    np.testing.assert_array_equal(first.edge[:, np.argsort(first.edge.argmax(0))], EDGE)
    wide = first.edges(4)
    np.testing.assert_array_equal(wide[:, :FACTORS], first.edge)
    assert wide.shape == (len(EDGE), 4) and not wide[:, FACTORS:].any()
    np.testing.assert_allclose(first.start.scores.std(0), 1.0)
    scores, sums = first.start.scores, x @ first.edge  # of answers that weigh alike, sums say all
    alike = np.abs(np.corrcoef(scores.T, sums.T)[:FACTORS, FACTORS:])
    assert (alike.max(1) > 0.97).all()
    assert (np.abs(np.corrcoef(scores.T, z.T)[:FACTORS, FACTORS:]).max(1) > 0.8).all()


def test_starts_of_columns_that_determine_one_another_are_numbers():
    x, _ = answers()
    twice = np.concatenate([x, 1 - x], 1)
    model = SparseDecoder(twice.shape[1], 2, decoder="linear", likelihood="bernoulli")
    model.setup(1, N)
    table = as_table(twice, likelihood=model.likelihood)
    starts = graph_starts(model, table, np.arange(N))
    assert len(starts) == 2 and all(np.isfinite(start.start.scores).all() for start in starts)


def test_a_schedule_without_a_lasso_goes_to_the_end():
    schedule = schedule_of_graphs(Schedule(steps=700, patience=3))
    assert schedule.steps == 700 and schedule.screening(True) == 0 and schedule.patience is None
    assert schedule.kl_weight(0) == 1.0


def test_better_restarts_take_the_places_of_the_worst_half():
    level = np.array([-5.0, np.nan, -1.0, -3.0])
    assert better_restarts(level, np.array([-4.0, np.nan, -2.0])) == [(1, 2), (0, 0)]
    assert better_restarts(level, np.array([-7.0])) == [(1, 0)]
    assert better_restarts(np.array([-5.0, -6.0]), np.array([-6.0])) == []


@pytest.mark.slow(hurried=True)
def test_a_fit_keeps_what_began_at_the_graph_if_it_is_better(monkeypatch):
    """It has the graph's edges alone, and the other restarts are as they were."""
    x, _ = answers()
    model = SparseDecoder(x.shape[1], 3, decoder="linear", likelihood="bernoulli")
    monkeypatch.setattr(job, "graph_starts", lambda *arguments: [])
    without = ps.fit(model, x, restarts=2, steps=500, seed=0, progress=False)
    assert "graph_restarts" not in without.settings
    monkeypatch.setattr(job, "graph_starts", lambda *arguments: graph_starts(*arguments)[:1])
    monkeypatch.setattr(job, "better_restarts", lambda level, new: [(0, 0)])
    fit = ps.fit(model, x, restarts=2, steps=500, seed=0, progress=False)
    assert fit.settings["graph_restarts"] == [0]
    edge = fit.weights[0] != 0
    assert not (edge & ~EDGE[:, edge.argmax(0) // SIZE]).any()  # no edge beside those of the graph
    assert fit.settings["n_factors_init"][0] == FACTORS
    again = ps.fit(model, x, restarts=2, steps=500, seed=0, progress=False)
    np.testing.assert_array_equal(again.weights, fit.weights)
    np.testing.assert_array_equal(fit.weights[1], without.weights[1])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1002, 1003])
def test_a_factor_of_five_answers_is_not_lost_among_noise(seed):
    rng, n = np.random.default_rng(seed), 200
    w = np.zeros(15)
    w[:5] = 1.5 * np.array([1, 1, -1, 1, -1])
    p = 1 / (1 + np.exp(-np.outer(rng.normal(size=n), w)))
    cells = np.hstack([rng.random(p.shape) < p, rng.normal(size=(n, 5))]).astype(float)
    x = pd.DataFrame(cells, columns=[*(f"b{j}" for j in range(15)), *(f"n{j}" for j in range(5))])
    kinds = {"b*": "bernoulli", "n*": "normal"}
    fit = ps.fit(SparseDecoder(n_factors=2, decoder="linear", likelihood=kinds), x, seed=0, progress=False)
    edge = fit.weights[fit.best] != 0
    assert edge[:5].any(1).sum() >= 4 and not edge[5:].any()
