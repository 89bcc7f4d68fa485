"""Factors beyond those of parallel analysis only where the model explains the table."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.data.read import read_table
from pyro_sparse.inference.table.job import TableJob
from pyro_sparse.inference.table.supported_factors import supported_factors
from pyro_sparse.inference.table.trained_restarts import TrainedRestarts
from pyro_sparse.inference.training.restarts import pick
from pyro_sparse.posterior.rival_restarts import rival_restarts
from tests._fake_fit import fake_fit


def levels_of(predictor, rng):
    """Levels 0 to 3 of logistic noise around linear predictors (row, item)."""
    answers = predictor + rng.logistic(size=predictor.shape)
    return (answers[..., None] > [-1.5, 0, 1.5]).sum(-1).astype(float)


def questionnaire(seed, n=1500):
    """Answers to twelve items of two traits."""
    rng = np.random.default_rng([seed, 61])
    return levels_of(1.3 * np.repeat(rng.normal(size=(n, 2)), 6, axis=1), rng)


@pytest.fixture(scope="module")
def trained():
    """A fit of one factor to three items that have one."""
    rng = np.random.default_rng(0)
    x = levels_of(1.5 * rng.normal(size=(400, 1)) + np.zeros(3), rng)
    model = ps.models.SparseDecoder(n_factors=1, decoder="linear", likelihood="ordinal")
    return ps.fit(model, x, restarts=1, steps=150, seed=0, progress=False)


def bound(fit, x, n_factors, **changed):
    table = replace(read_table(pd.DataFrame(x), {}, likelihood=fit.model.likelihood), **changed)
    return supported_factors(pick(fit.model, [fit.best]), table, n_factors, seed=0)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_tables_of_the_model_s_own_bound_nothing(trained, missing):
    """But for one in 21, which is further from the model than all tables it is compared with."""
    rng = np.random.default_rng(0)
    bounds = []
    for seed in range(10):
        x = trained.sample(400, seed=seed)
        holes = rng.random(x.shape) < missing
        x[holes & ~holes.all(1, keepdims=True)] = np.nan
        bounds.append(bound(trained, x, n_factors=9))
    assert bounds.count(None) >= 7


def test_a_table_that_the_model_does_not_explain_has_the_factors_of_parallel_analysis(trained):
    own = trained.sample(400, seed=1)
    other = own.copy()
    other[:, 2] = np.random.default_rng(0).permutation(own[:, 2])  # goes with no other item
    assert bound(trained, other, n_factors=9) == 1
    assert bound(trained, other, n_factors=1) is None  # there is nothing to take away


def test_what_cannot_be_simulated_bounds_nothing(trained, monkeypatch):
    own = trained.sample(400, seed=1)
    own[:, 2] = np.random.default_rng(0).permutation(own[:, 2])
    assert bound(trained, own, n_factors=9, weights=SimpleNamespace(kind="survey")) is None

    def undrawn(*_):
        raise NotImplementedError

    monkeypatch.setattr("pyro_sparse.inference.table.supported_factors.drawn_rows", undrawn)
    assert bound(trained, own, n_factors=9) is None


@pytest.mark.parametrize(("supported", "best"), [(None, 2), (3, 2), (2, 1), (1, 0)])
@pytest.mark.parametrize("summed_out", [True, False])
def test_restarts_with_more_factors_are_not_chosen(supported, best, summed_out):
    """Restarts of one, two and three factors, each better than the last."""
    n = 100
    rows = np.repeat([[-10.0], [-9.0], [-8.0]], n, axis=1)
    edges = np.array([4, 8, 12])
    trained = TrainedRestarts(
        rows, None, edges, edges, 2, [], edges, edges > 0, [], None, [], rows if summed_out else None,
        supported, 3,
    )  # fmt: skip
    table_job = SimpleNamespace(table=SimpleNamespace(x=np.zeros((n, 12))))
    assert TableJob._best_of(table_job, trained, np.array([1, 2, 3])) == best
    messages = [finding.message for finding in trained.findings()]
    assert len(messages) == (supported is not None)
    assert all(f"no more than the {supported} that parallel analysis" in message for message in messages)


def test_restarts_with_more_factors_are_no_rivals():
    fit = fake_fit()
    wide = np.pad(fit.weights, [(0, 1), (0, 0), (0, 1)])
    wide[-1] = 1.0  # as good a restart, with one factor more than the best one can have
    used = int((fit.weights[fit.best] != 0).any(0).sum())
    settings = {"graph_level": [5.0] * len(wide)}
    free = SimpleNamespace(weights=wide, best=fit.best, settings=settings, model=fit.model)
    bounded = SimpleNamespace(**{**vars(free), "settings": {**settings, "supported_factors": used}})
    assert rival_restarts(free)[:, -1].all()
    assert not rival_restarts(bounded)[:, -1].any()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1000, 1001, 1002])
def test_clean_questionnaires_are_not_bounded(seed):
    model = ps.models.SparseDecoder(n_factors=6, decoder="linear", likelihood="ordinal")
    fit = ps.fit(model, questionnaire(seed), restarts=4, seed=seed, progress=False)
    assert "supported_factors" not in fit.settings
    assert int((fit.weights[fit.best] != 0).any(0).sum()) == 2
