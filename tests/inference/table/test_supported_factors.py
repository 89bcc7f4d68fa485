"""Factors beyond those of parallel analysis only where the model explains the table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.data.read import read_table
from pyro_sparse.inference.table import job
from pyro_sparse.inference.table.supported_factors import supported_factors
from pyro_sparse.inference.training.restarts import pick


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


def bound(fit, x, n_factors):
    table = read_table(pd.DataFrame(x), {}, likelihood=fit.model.likelihood)
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


@pytest.mark.slow
@pytest.mark.parametrize("supported", [1, None])
def test_restarts_with_more_factors_are_neither_chosen_nor_rivals(monkeypatch, supported):
    monkeypatch.setattr(job, "supported_factors", lambda *_: supported)
    model = ps.models.SparseDecoder(n_factors=3, decoder="linear", likelihood="ordinal")
    fit = ps.fit(model, questionnaire(0), restarts=4, steps=500, seed=0, progress=False)
    used = (fit.weights != 0).any(1).sum(1)
    assert used.max() > 1
    assert used[fit.best] == (supported or 2)
    assert fit.settings.get("supported_factors") == supported
    assert sum("parallel analysis" in finding.message for finding in fit.findings) == (supported is not None)
    assert supported is None or used[fit.equally_good].max() == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1000, 1001, 1002])
def test_clean_questionnaires_are_not_bounded(seed):
    model = ps.models.SparseDecoder(n_factors=6, decoder="linear", likelihood="ordinal")
    fit = ps.fit(model, questionnaire(seed), restarts=4, seed=seed, progress=False)
    assert "supported_factors" not in fit.settings
    assert int((fit.weights[fit.best] != 0).any(0).sum()) == 2
