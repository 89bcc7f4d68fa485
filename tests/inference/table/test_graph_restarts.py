"""Restarts at graphs of a search: for which fits, where they begin, and what becomes of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.data.read import as_table
from pyro_sparse.graphs.alignment import SAME_FACTOR, similarity
from pyro_sparse.inference import Schedule
from pyro_sparse.inference.table import further_restarts, graph_restarts, job
from pyro_sparse.inference.table.graph_restarts import (
    better_restarts,
    graph_starts,
    schedule_of_best,
    schedule_of_graphs,
    searches_graphs,
)
from pyro_sparse.inference.table.graph_search import best_graphs, graph_key, graph_level
from pyro_sparse.inference.table.linear_maximum import row_moments
from pyro_sparse.inference.training.ranks import Ranks
from pyro_sparse.likelihoods import get_likelihood
from pyro_sparse.models import SparseDecoder

pytestmark = pytest.mark.usefixtures("hurried_module")

FACTORS, SIZE, N = 2, 5, 400
EDGE = np.kron(np.eye(FACTORS), np.ones((SIZE, 1))) > 0


WEAK = np.kron(np.eye(4), np.ones((4, 1))) > 0  # four factors of four answers, the last of which is weak


def weak_answers(seed, n_rows=200, size=(2.0, 2.0, 2.0, 1.0)):
    rng = np.random.default_rng(seed)
    p = 1 / (1 + np.exp(-(rng.normal(size=(n_rows, 4)) * size) @ WEAK.T))
    return (rng.random(p.shape) < p).astype(float)


def starts_of(x, n_factors, likelihood="bernoulli", **options):
    model = SparseDecoder(x.shape[1], n_factors, decoder="linear", likelihood=likelihood, **options)
    model.setup(1, len(x))
    return graph_starts(model, as_table(x, likelihood=model.likelihood), np.arange(len(x)))


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
    of_search = starts[:-1]  # the last is of the number that parallel analysis finds, which may be there
    assert len({start.edge.shape[1] for start in of_search}) == len(of_search) <= 3
    assert starts[-1].edge.shape[1] == FACTORS
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


@pytest.mark.parametrize("seed", [1002, 1009, 1012, 1016, 1028])
def test_a_weak_factor_of_which_the_search_drops_answers_has_a_start_with_all(seed):
    """As many factors as there are, and the true graph; at most four starts, none of them twice."""
    starts = starts_of(weak_answers(seed), 6)
    right = [graph_key(start.edge) == graph_key(WEAK) for start in starts]
    assert right == [False, False, False, True]
    assert not any(start.edge.any(1).all() and start.edge.shape[1] == 4 for start in starts[:-1])


def test_of_further_graphs_that_with_the_fewest_factors_makes_room():
    x = weak_answers(1034)
    table = as_table(x, likelihood=get_likelihood("bernoulli"))
    moments = row_moments(table, np.arange(len(x)))[1]
    search = {graph.edge.shape[1]: graph for graph in reversed(best_graphs(moments, 6, True))}
    order = sorted(search, key=lambda k: -graph_level(moments, search[k]))[:4]
    assert order == [4, 3, 5, 6]  # the second has the fewest factors, the last is the worst
    wanted = [graph_key(search[k].edge) for k in (4, 5, 6)]
    assert [graph_key(start.edge) for start in starts_of(x, 6)[:-1]] == wanted


def test_a_graph_that_the_search_has_is_begun_at_twice():
    starts = starts_of(weak_answers(1004), 6)
    keys = [graph_key(start.edge) for start in starts]
    assert keys[0] == keys[-1] == graph_key(WEAK) and len(set(keys)) == len(keys) - 1 == 3


@pytest.mark.parametrize("n_factors", [1, 3])
def test_no_start_has_more_factors_than_are_offered(n_factors):
    assert max(start.edge.shape[1] for start in starts_of(weak_answers(1000), n_factors)) <= n_factors


def test_noise_has_no_start():
    x = (np.random.default_rng(1000).random((200, 10)) < 0.5).astype(float)
    assert starts_of(x, 3) == []


def test_starts_of_columns_that_determine_one_another_are_numbers():
    x, _ = answers()
    twice = np.concatenate([x, 1 - x], 1)
    model = SparseDecoder(twice.shape[1], 2, decoder="linear", likelihood="bernoulli")
    model.setup(1, N)
    table = as_table(twice, likelihood=model.likelihood)
    starts = graph_starts(model, table, np.arange(N))
    assert len(starts) == 3  # of one and two factors, and of as many as parallel analysis finds
    assert all(np.isfinite(start.start.scores).all() for start in starts)


def test_a_schedule_without_a_lasso_and_deletions_goes_to_the_end():
    schedule = schedule_of_graphs(Schedule(steps=700, patience=3))
    assert schedule.steps == 700 and schedule.screening(True) == 0 and schedule.patience is None
    assert schedule.kl_weight(0) == 1.0
    assert not any(schedule.prunes(step) for step in range(700)) and schedule.settled < 700


def test_a_trained_restart_goes_on_where_it_stands():
    """No lasso, no deletions, nothing held, and the prior's ladder is climbed."""
    schedule = schedule_of_best(Schedule(steps=400))
    assert schedule.steps == 400 and schedule.patience is None and schedule.kl_weight(0) == 1.0
    assert {schedule.stage(step) for step in range(400)} == {"sparse"}
    assert schedule.ladder(0) == 1.0 and not any(schedule.prunes(step) for step in range(400))


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
    training = {"restarts": 2, "steps": 500, "steps_to_compare": None, "seed": 0, "progress": False}
    monkeypatch.setattr(further_restarts, "graph_starts", lambda *arguments: [])
    without = ps.fit(model, x, **training)
    assert "graph_restarts" not in without.settings
    monkeypatch.setattr(further_restarts, "graph_starts", lambda *arguments: graph_starts(*arguments)[:1])
    monkeypatch.setattr(further_restarts, "better_restarts", lambda level, new: [(0, 0)])
    fit = ps.fit(model, x, **training)
    assert fit.settings["graph_restarts"] == [0]
    edge = fit.weights[0] != 0
    assert not (edge & ~EDGE[:, edge.argmax(0) // SIZE]).any()  # no edge beside those of the graph
    assert fit.settings["n_factors_init"][0] == FACTORS
    again = ps.fit(model, x, **training)
    np.testing.assert_array_equal(again.weights, fit.weights)
    np.testing.assert_array_equal(fit.weights[1], without.weights[1])


@pytest.fixture
def short(monkeypatch):
    """Fits of 40 steps, of which restarts that are compared make 20."""
    monkeypatch.setattr(graph_restarts, "LEAST_STEPS", 30)
    model = SparseDecoder(2 * SIZE, 2, decoder="linear", likelihood="bernoulli")
    settings = {"restarts": 1, "steps": 40, "evaluate_every": 10, "seed": 0, "progress": False}
    return lambda **given: ps.fit(model, answers()[0], **{**settings, "steps_to_compare": 20, **given})


@pytest.mark.parametrize(
    ("level", "last"), [(0.1, 40), (0.0, 40), (-2.9 / N, 40), (-3.1 / N, 20), (np.nan, 20)]
)
def test_training_further_must_not_lose_as_much_as_an_edge_costs(short, monkeypatch, level, last):
    """Half of log 400, 3.0 nats: its rows have a log density that differs by so much, each."""
    judged, calls = further_restarts.judged, []

    def changed(*arguments, **options):
        trained = judged(*arguments, **options)
        calls.append(trained)
        return trained._replace(
            log_likelihood=np.full_like(trained.log_likelihood, level if len(calls) > 1 else 0.0),
            parameters=np.zeros_like(trained.parameters),
        )

    monkeypatch.setattr(further_restarts, "graph_starts", lambda *arguments: [])
    for module in (job, further_restarts):
        monkeypatch.setattr(module, "judged", changed)
    fit = short()
    assert len(calls) == 2 and fit.history.step.max() == last
    assert fit.settings["steps_made"] == [last] and fit.settings["steps"] == 40


def test_training_further_that_diverges_or_is_interrupted_leaves_the_restart_as_it_was(short, monkeypatch):
    finish = job.SparseRun.finish

    def failing(error):
        def finished(self, *arguments):
            if self.schedule.lasso_until == 0:
                raise error
            return finish(self, *arguments)

        return finished

    monkeypatch.setattr(job.SparseRun, "finish", failing(FloatingPointError("step 3: not finite")))
    diverged = short()
    monkeypatch.setattr(job.SparseRun, "finish", failing(KeyboardInterrupt()))
    with pytest.warns(RuntimeWarning, match="interrupted when the best restart was trained further"):
        interrupted = short()
    assert diverged.settings["steps_made"] == interrupted.settings["steps_made"] == [20]
    np.testing.assert_array_equal(diverged.weights, interrupted.weights)
    assert not any("interrupted" in str(finding) for finding in diverged.findings)


def test_a_fit_in_several_processes_that_share_rows_has_all_its_steps(monkeypatch):
    """And its restarts are not those of one process, whose files it refuses."""
    monkeypatch.setattr(graph_restarts, "LEAST_STEPS", 30)
    model = SparseDecoder(2 * SIZE, 2, decoder="linear", likelihood="bernoulli")
    table = as_table(answers()[0], likelihood=model.likelihood)
    schedule = Schedule(steps=40, steps_to_compare=20)
    alone, shared = (
        job.TableJob(model, table, restarts=1, seed=0, schedule=schedule, ranks=ranks)
        for ranks in (Ranks(), Ranks(0, 2))
    )
    assert alone.schedule.steps == 20 and shared.schedule.steps == 40
    assert alone.fingerprint != shared.fingerprint


@pytest.mark.slow(hurried=True)
def test_the_best_restart_is_trained_further(monkeypatch):
    """The others have `steps_to_compare`; its history goes on, and its edges are its own."""
    x, _ = answers()
    model = SparseDecoder(x.shape[1], 3, decoder="linear", likelihood="bernoulli")

    def fitted(**settings):
        return ps.fit(model, x, restarts=2, steps=600, holdout=0, seed=0, progress=False, **settings)

    monkeypatch.setattr(job, "with_best_trained_further", lambda runs, whole, trained, *schedules: trained)
    compared = fitted()
    monkeypatch.undo()
    fit, whole = fitted(), fitted(steps_to_compare=None)
    best, last = fit.best, fit.history.groupby("restart").step.max()
    assert compared.settings["steps_made"] == [400, 400] and best == compared.best
    np.testing.assert_array_equal(fit.weights[1 - best], compared.weights[1 - best])
    assert not ((fit.weights[best] != 0) & (compared.weights[best] == 0)).any()
    assert last[best] == 600 and last[1 - best] == 400
    assert set(whole.history.groupby("restart").step.max()) == {600}
    np.testing.assert_array_equal(fit.weights, fitted().weights)


def cut_responses(seed):
    """Six factors of four yes/no answers, responses cut at their medians: 200 rows; and the graph."""
    rng = np.random.default_rng([seed, 13])
    rng.integers(2, 7), rng.integers(3, 7), rng.choice(3)
    loadings = np.zeros((24, 6))
    for k in range(6):
        loadings[4 * k : 4 * k + 4, k] = rng.uniform(0.5, 0.85, 4) * rng.choice([-1, 1], 4)

    def responses(rng, n_rows):
        y = rng.standard_normal((n_rows, 6)) @ loadings.T
        noise = rng.logistic(size=y.shape) * np.sqrt(3) / np.pi
        return y + np.sqrt(1 - (loadings**2).sum(1)) * noise

    cuts = np.median(responses(np.random.default_rng(5), 20000), 0)
    return (responses(rng, 200) > cuts).astype(float), loadings != 0


@pytest.mark.slow
def test_a_factor_of_answers_is_kept_that_graphs_of_the_search_lose(monkeypatch):
    x, edge = cut_responses(1019)
    model = SparseDecoder(n_factors=9, decoder="linear", likelihood="bernoulli")
    fit = ps.fit(model, x, restarts=4, seed=1019, progress=False)
    kept = np.abs(fit.weights[fit.best])
    assert kept.any(0).sum() == 6 and (similarity(kept, edge.astype(float)).max(0) > SAME_FACTOR).all()
    monkeypatch.setattr(graph_restarts, "_with_rotated", lambda graphs, rotated: graphs)
    with_deletions = replace(schedule_of_graphs(Schedule()), prune_at=Schedule().prune_at)
    monkeypatch.setattr(further_restarts, "schedule_of_graphs", lambda schedule: with_deletions)
    without = ps.fit(model, x, restarts=4, seed=1019, progress=False)
    assert without.weights[without.best].any(0).sum() < 6


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
