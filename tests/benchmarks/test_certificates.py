"""The certificates benchmark: definitions on worked examples, what is counted, and that all of it runs."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pandas as pd
import pytest

from benchmarks import _by_definition as wanted
from benchmarks import certificates


def options(**given):
    return Namespace(**{"fits": False, "setting": None, "first_seed": 0, "seeds": 2, "quick": False, **given})


def test_definitions_of_worked_examples():
    cycle = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]])
    assert wanted.structurally_sparse(cycle) == [True] * 3
    assert wanted.diversity(np.ones((3, 3), dtype=int)).sum() == 0
    assert wanted.anchored(np.array([[1, 0], [1, 0], [0, 1], [0, 1]])) == [True] * 2
    assert wanted.anchored(np.array([[1, 0], [1, 0], [0, 1]])) == [False] * 2
    assert wanted.apart(np.array([[1, 1], [0, 1]]), ("i", "iii")).tolist() == [[False, False], [True, False]]
    assert wanted.apart(np.array([[1, 1], [0, 1]])).tolist() == [[False, True], [True, False]]
    assert wanted.completely_disentangled(np.eye(2, dtype=int), np.zeros((2, 2), dtype=int)) == [True] * 2
    assert (
        wanted.completely_disentangled(np.ones((2, 1), dtype=int), np.ones((2, 2), dtype=int)) == [False] * 2
    )
    assert wanted.supports_differ(np.array([[1, 0], [1, 1]])) == [True, False]


@pytest.mark.parametrize("theorem", ["(a, z)-consistency", "task supports"])
def test_other_certificates_say_what_their_theorems_say(theorem):
    rng = np.random.default_rng(21)
    figures = [certificates.compare(theorem, rng) for _ in range(100)]
    assert all(ours == theirs for ours, theirs in figures)
    assert 0.1 < np.mean([one for _, theirs in figures for one in theirs]) < 0.95


def test_jobs_rows_and_figures(monkeypatch):
    monkeypatch.setattr(certificates, "GRAPHS", 3)
    jobs = certificates.tasks(options())
    assert len(jobs) == 2 * len(certificates.THEOREMS)
    rows = [{**job, **certificates.run(**job)} for job in jobs[:2]]
    figures = certificates.collect(rows, options())
    assert figures["anchors"]["graphs"] == 3 and figures["zeros"]["disagree"] == 0
    assert len(certificates.tasks(options(fits=True))) == 2 * len(certificates.FITS)
    (job,) = certificates.tasks(options(setting=["ActionNonDiag"], seeds=1, first_seed=1000, quick=True))
    assert job == {"setting": "ActionNonDiag", "seed": 1000, "quick": True}


def test_only_what_is_called_identified_is_asked_for():
    rng = np.random.default_rng(22)
    z = rng.normal(size=(500, 3))
    found = np.column_stack([z[:, 2] ** 3, rng.normal(size=500), -z[:, 0], z[:, 1]])
    table = pd.DataFrame(
        {"verdict": ["identified", "identified", "mixed", "identified"], "probability": [1.0, 1.0, 0.0, 1.0]}
    )
    row = certificates.called(Namespace(table=table), z, found)
    assert (row["identified"], row["right"], row["others"]) == (3, 2, 1)
    assert row["least"] < 0.2  # a surplus factor that is called identified is wrong
    figures = certificates.collect([{"setting": "anchored60", "seed": 0, **row}], options())["anchored60"]
    assert figures["share_right"] == pytest.approx(2 / 3)
