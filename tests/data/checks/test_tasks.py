"""What tasks show before a fit: rows too few, outcomes that are no numbers with normal noise."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_sparse.data.checks.tasks import (
    coded_outcomes,
    outcome_kinds,
    outcomes_among_features,
    row_counts,
    task_findings,
    units_of_features,
)
from pyro_sparse.data.tasks import as_tasks
from tests._tasks import tasks_on_latents


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_said_of_clean_tasks(seed):
    x, y, *_ = tasks_on_latents(seed)
    assert task_findings(as_tasks(x, y), 3) == []


@pytest.mark.parametrize("rows", [3, 4])
def test_rows_that_weights_fit_exactly_leave_all_in_doubt(rows):
    x, y, *_ = tasks_on_latents(n=rows)
    (found,) = row_counts(as_tasks(x, y), 3)
    assert found.is_doubt
    assert found.touches_all
    assert "at least 5 rows" in found.remedy
    assert row_counts(as_tasks(x, y), rows - 2) == []


def test_a_few_tasks_with_few_rows_have_open_edges_and_others_have_not():
    x, y, *_ = tasks_on_latents(n=20, t=10)
    xs, ys = list(x), list(y)
    xs[4], ys[4] = xs[4][:3], ys[4][:3]
    (found,) = row_counts(as_tasks(xs, ys), 3)
    assert found.is_doubt and not found.touches_all
    assert found.columns == ("task 5",)
    assert {task for task, _ in found.edges} == {"task 5"} and found.touches("task 5", "latent 3")
    assert not found.touches("task 4", "latent 3")


@pytest.mark.parametrize("code", [-999.0, 999.0, -99.0])
def test_codes_for_missing_outcomes_are_named_with_their_tasks(code):
    """One in each of three tasks: no task alone has many."""
    x, y, *_ = tasks_on_latents(t=10)
    y = (y - y.mean(1, keepdims=True)) / y.std(1, keepdims=True)
    assert coded_outcomes(as_tasks(x, y)) == []
    y[[1, 4, 6], [0, 3, 5]] = code
    (found,) = task_findings(as_tasks(x, y), 3)
    assert found.columns == ("task 2", "task 5", "task 7") and f"are {code:g}, far from all" in found.message
    assert "NaN" in found.remedy
    y[y == code] = np.nan
    assert task_findings(as_tasks(x, y), 3) == []
    wide = 400 * np.where(np.isnan(y), 0.0, y)
    wide[[1, 4, 6], [0, 3, 5]] = code  # of outcomes that reach so far it is a number as any other
    assert coded_outcomes(as_tasks(x, wide)) == []


@pytest.mark.parametrize("codes", [(0, 1), (1, 2), (-1, 1)])
def test_yes_and_no_are_named_with_an_estimator_that_suits(codes):
    x, y, *_ = tasks_on_latents(t=10)
    coded = np.where(y > 10, codes[1], codes[0]).astype(float)
    (found,) = outcome_kinds(as_tasks(x, coded))
    assert len(found.columns) == 10
    assert 'likelihood="bernoulli"' in found.remedy and "SparseTaskSVM" in found.remedy
    assert task_findings(as_tasks(x, coded), 3, normal=False) == []


def test_small_counts_are_named_and_large_or_rounded_numbers_are_not():
    x, y, *_ = tasks_on_latents(t=10)
    rng = np.random.default_rng(0)
    few = rng.poisson(2.0, y.shape).astype(float)
    (found,) = outcome_kinds(as_tasks(x, few))
    assert "counts" in found.message and 'likelihood="poisson"' in found.remedy
    assert outcome_kinds(as_tasks(x, rng.poisson(400.0, y.shape).astype(float))) == []
    assert outcome_kinds(as_tasks(x, np.round(10 * y) - 200)) == []


def test_an_outcome_among_the_features_is_told():
    x, y, *_ = tasks_on_latents(n=20, t=12)
    leaked = np.concatenate([x, 3 - 2 * y[..., None]], 2)
    (doubt,) = outcomes_among_features(as_tasks(leaked, y))
    assert doubt.is_doubt and doubt.touches_all and doubt.columns == (f"x{leaked.shape[2]}",)
    assert "in 12 of 12 tasks" in doubt.message and doubt in task_findings(as_tasks(leaked, y), 3)
    leaked[4:, :, -1] = np.random.default_rng(0).normal(size=leaked[4:, :, -1].shape)
    assert not outcomes_among_features(as_tasks(leaked, y))  # of four tasks of twelve it is
    two = x[..., :2] @ np.array([1.0, 0.02])  # without noise, and nearly one feature in all tasks
    assert not outcomes_among_features(as_tasks(x, two))
    noiseless = np.einsum("tsf,tf->ts", x, np.eye(x.shape[2])[np.arange(12) % x.shape[2]])
    assert not outcomes_among_features(as_tasks(x, noiseless))  # a feature each, and not the same one


def test_features_in_other_units_in_some_tasks_are_told():
    x, y, *_ = tasks_on_latents(n=20, t=30)
    x = x.copy()
    x[::3, :, 1] *= 10
    (doubt,) = units_of_features(as_tasks(x, y))
    assert doubt.is_doubt and doubt.columns == ("x2",) and "in 10 of 30 tasks" in doubt.message
    assert doubt.size == pytest.approx(10, rel=0.3)


@pytest.mark.parametrize("seed", range(5000, 5010))
def test_tasks_whose_features_vary_by_chance_or_smoothly_are_not(seed):
    rng = np.random.default_rng(seed)
    x, y, *_ = tasks_on_latents(seed, n=12, t=30)
    assert not units_of_features(as_tasks(x * np.exp(rng.normal(0, 0.6, (30, 1, x.shape[2]))), y))
    assert not units_of_features(as_tasks(x * np.where(rng.random((30, 1, 1)) < 0.5, 1, 2), y))
