"""Weights of tasks as callers give them: by name, in order, scaled; complaints name the task."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from pyro_sparse.data.task_weights import read_task_weight
from pyro_sparse.data.tasks import as_tasks

NAMES = ["a", "b", "7"]


@pytest.mark.parametrize(
    "given",
    [
        {"b": 1, "a": 3.0, 7: 2},
        pd.Series([1, 2, 3], index=["b", 7, "a"]),
        pd.Series({"b": 1, "a": 3, "7": 2}, dtype="Float64"),
        [3, 1, 2],
        np.array([3, 1, 2], dtype=object),
        np.array([30, 10, 20], dtype=np.float32),
        torch.tensor([3.0, 1.0, 2.0], requires_grad=True),
    ],
)
def test_all_forms_say_the_same(given):
    np.testing.assert_allclose(read_task_weight(given, NAMES), [1.5, 0.5, 1.0], rtol=1e-12)


def test_equal_weights_are_ones_and_none_stays_none():
    assert read_task_weight(None, NAMES) is None
    for value in (1, 0.1, 1e300, 1e-300):
        np.testing.assert_array_equal(read_task_weight([value] * 3, NAMES), np.ones(3))


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        (
            {"a": 1, "b": 1, "c": 1},
            ValueError,
            r"task_weight: got 'c', which names no task, wanted .*'a', 'b'",
        ),
        ({"a": 1}, ValueError, r"task_weight: got none for 2 of 3 tasks \('b', '7'\), wanted one for each"),
        ({"a": 1, "b": 1, "7": 1, 7: 1}, ValueError, "task_weight: got '7' twice, wanted every task once"),
        (
            pd.Series([1.0, 1, 1]),
            ValueError,
            "got '0', which names no task, .* or give an array in this order",
        ),
        (
            [1, 2],
            ValueError,
            r"task_weight: got shape \(2,\), wanted \(3,\), one number per task; give them in",
        ),
        (np.ones((3, 1)), ValueError, r"task_weight: got shape \(3, 1\), wanted \(3,\)"),
        ([1, 0, 1], ValueError, "task_weight: got 0 for task 'b', wanted positive finite numbers; leave out"),
        ([1, 1, -2.5], ValueError, "task_weight: got -2.5 for task '7', wanted positive"),
        ({"a": np.nan, "b": 1, 7: 1}, ValueError, "task_weight: got nan for task 'a', wanted positive"),
        ({"a": None, "b": 1, 7: 1}, ValueError, "task_weight: got nan for task 'a', wanted positive"),
        ([1, np.inf, 1], ValueError, "task_weight: got inf for task 'b', wanted positive finite"),
        ([1, 1e-13, 1], ValueError, "got 1e-13 for task 'b' beside 1, wanted at least 1e-12 of the largest"),
        (2.0, TypeError, "task_weight: got 2.0, wanted one number for each of 3 tasks; give a mapping"),
        ("size", TypeError, "task_weight: got 'size', wanted one number for each of 3 tasks"),
        (["1", 2, 3], TypeError, "wanted one number for each of 3 tasks"),
        ({"a": "1", "b": 2, 7: 3}, TypeError, "wanted one number for each of 3 tasks"),
        ([[1], [2, 3], 1], TypeError, "wanted one number for each of 3 tasks"),
        ({1, 2, 3}, TypeError, "wanted one number for each of 3 tasks"),
    ],
)
def test_bad_weights(given, kind, message):
    with pytest.raises(kind, match=message):
        read_task_weight(given, NAMES)


def test_tasks_keep_their_weights():
    rng = np.random.default_rng(0)
    tasks = as_tasks(rng.normal(size=(3, 4, 2)), rng.normal(size=(3, 4)))
    assert tasks.weight is None and tasks.rows([1]).weight is None
    assert tasks.batch().weight is None and tasks.batch().rows(torch.tensor([1])).weight is None
    tasks = type(tasks)(**{**vars(tasks), "weight": np.array([1.5, 0.5, 1.0])})
    assert tasks.rows([2, 0]).weight.tolist() == [1.0, 1.5]
    batch = tasks.batch(dtype=torch.float64)
    assert batch.weight.dtype == torch.float64 and batch.whole().weight.tolist() == [1.5, 0.5, 1.0]
    assert batch.rows(torch.tensor([2, 0])).weight.tolist() == [1.0, 1.5]
