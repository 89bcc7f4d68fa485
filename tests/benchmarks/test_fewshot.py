"""The few-shot benchmark on made-up results: what it asks, what it counts."""

from __future__ import annotations

from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import fewshot


def result(by_episode, features_used=0.4, gap_max=1e-9):
    by_episode = np.asarray(by_episode)
    return SimpleNamespace(
        by_episode=by_episode,
        accuracy=by_episode.mean(),
        features_used=features_used,
        features_ever=1.0,
        gap_max=gap_max,
    )


def test_the_difference_is_paired_by_episode():
    row = fewshot.score(result([0.8, 0.6, 1.0]), result([0.7, 0.5, 0.9], 1.0, gap_max=1e-7))
    assert row["difference"] == pytest.approx(0.1) and row["difference_se"] == pytest.approx(0, abs=1e-12)
    assert row["accuracy"] == pytest.approx(0.8) and row["accuracy_dense"] == pytest.approx(0.7)
    assert row["features_used"] == 0.4 and row["gap_max"] == 1e-7


@pytest.mark.parametrize(
    "change, expected",
    [
        ({}, True),
        ({"accuracy": 0.795}, True),
        ({"accuracy": 0.78}, False),
        ({"features_used": 0.51}, False),
        ({"gap_max": 2e-6}, False),
    ],
)
def test_a_run_must_be_accurate_and_sparse_and_solved(change, expected):
    row = {"accuracy": 0.81, "accuracy_dense": 0.8, "features_used": 0.5, "gap_max": 1e-6, **change}
    assert fewshot.reached(row) is expected


def test_tasks_and_figures_of_both_data_sets():
    options = Namespace(seeds=2, first_seed=0, quick=True)
    tasks = fewshot.tasks(options)
    assert {(task["data"], task["seed"]) for task in tasks} == {
        (d, s) for d in fewshot.PENALTIES for s in (0, 1)
    }
    assert tasks[0]["steps"] < fewshot.tasks(Namespace(**{**vars(options), "quick": False}))[0]["steps"]
    rows = [
        {
            **task,
            **fewshot.score(result([0.8, 0.9]), result([0.8, 0.9])),
            "accuracy_prototype": 0.9,
            "cpu_seconds": 1.0,
        }
        for task in tasks
    ]
    rows[0]["accuracy"] = 0.5
    figures = fewshot.collect(rows, options)
    assert figures["digits"]["reached"] == 1 and figures["glyphs"]["reached"] == figures["glyphs"]["n"] == 2
    assert figures["digits"]["accuracy"] == pytest.approx((0.5 + 0.85) / 2)
