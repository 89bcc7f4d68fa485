"""Rows with one answer to all questions are told where they are more than traits give, and not else."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.data.checks.factors import doubted_by_columns
from pyro_sparse.findings.finding import Finding

# the search for clusters of rows is most of what a check of a table takes: a rough one will do
pytestmark = pytest.mark.usefixtures("hurried_module")

CUTS = {2: [0.0], 3: [-0.5, 0.5], 5: [-1.0, -0.33, 0.33, 1.0], 7: [-1.5, -0.9, -0.3, 0.3, 0.9, 1.5]}


def questionnaire(seed, share=0.0, n=300, p=12, k=3, n_levels=5, strength=1.0, is_keyed_one_way=False):
    """Answers 1 to n_levels to p items of k factors; and the rows that have one answer to all of them."""
    rng = np.random.default_rng(seed)
    w = np.zeros((p, k))
    sign = 1 if is_keyed_one_way else rng.choice([-1, 1], p)
    w[np.arange(p), np.arange(p) * k // p] = strength * sign
    x = rng.normal(size=(n, k)) @ w.T + 0.9 * rng.normal(size=(n, p))
    answers = np.digitize(x / np.sqrt(strength**2 + 0.81), CUTS[n_levels]) + 1.0
    careless = rng.random(n) < share
    answers[careless] = rng.integers(1, n_levels + 1, (careless.sum(), 1))
    return pd.DataFrame(answers).add_prefix("x"), careless


def told(x, likelihood="normal", **options):
    return [finding for finding in ps.check_table(x, likelihood, **options) if finding.kind == "answers"]


@pytest.mark.parametrize("likelihood", ["normal", "ordinal"])
@pytest.mark.parametrize(("p", "n_levels"), [(8, 5), (12, 3), (12, 7), (40, 5)])
def test_rows_of_one_answer_are_told_and_counted(p, n_levels, likelihood):
    for seed in (1000, 1001):
        x, careless = questionnaire(seed, 0.1, p=p, k=2, n_levels=n_levels)
        (finding,) = told(x, likelihood)
        alike = (x.nunique(axis=1) == 1).sum()
        assert careless.sum() <= alike <= finding.size * len(x) <= 1.2 * alike
        assert finding.columns == tuple(x.columns)
        first = ", ".join(repr(str(row)) for row in np.flatnonzero(careless)[:2])
        assert first in finding.message or finding.size * len(x) > alike
        assert told(x[~careless], likelihood) == []


def test_what_was_done_to_the_answers_before_hides_nothing():
    x, _ = questionnaire(1002, 0.1)
    (plain,) = told(x)
    reversed_items = x.assign(x1=6 - x.x1, x5=6 - x.x5)
    (finding,) = told(reversed_items)
    assert finding.size == plain.size and "'x1' and 'x5' counted in reverse" in finding.message
    assert told((x - x.mean()) / x.std())[0].size == plain.size
    holes = x.mask(np.random.default_rng(0).random(x.shape) < 0.05)
    assert abs(told(holes)[0].size - plain.size) < 0.02
    rng = np.random.default_rng(0)
    beside = x.assign(age=rng.integers(18, 80, len(x)), weight=rng.normal(size=len(x)))
    assert told(beside)[0].columns == plain.columns
    (slider,) = told(np.rint(20 * x - 10 + rng.uniform(-9, 9, x.shape)).where(x.nunique(axis=1) > 1, 20 * x))
    assert slider.size == pytest.approx((x.nunique(axis=1) == 1).mean())


@pytest.mark.parametrize("n_levels", CUTS)
@pytest.mark.parametrize("strength", [1.0, 1.5, 3.0])
def test_honest_rows_of_one_answer_are_not_told(strength, n_levels):
    for seed in (1000, 1001):
        for p, k in ((6, 1), (12, 1), (12, 3)):
            x, _ = questionnaire(
                seed, p=p, k=k, strength=strength, n_levels=n_levels, is_keyed_one_way=bool(seed % 2)
            )
            assert told(x) == []


def test_rows_of_one_and_the_same_answer_are_told_unless_it_is_the_middle_one():
    x, _ = questionnaire(1003)
    alike = np.random.default_rng(0).random(len(x)) < 0.12
    for answer, n_told in ((1.0, 1), (4.0, 1), (3.0, 0)):
        x.loc[alike] = answer
        assert len(told(x)) == n_told


def test_counts_are_no_answers():
    x, _ = questionnaire(1004, 0.15)
    assert told(x, "poisson") == []


def test_copies_of_other_rows_are_told_beside_them():
    x, careless = questionnaire(1005, 0.1, p=40, k=5)
    assert [finding.kind for finding in ps.check_table(x) if finding.kind in ("rows", "answers")] == [
        "answers"
    ]
    honest = np.flatnonzero(~careless)
    twice = pd.concat([x, x.iloc[honest[:5]]], ignore_index=True)
    (rows,) = [finding for finding in ps.check_table(twice) if finding.kind == "rows"]
    assert rows.message.startswith("5 of ")


def test_all_edges_of_these_columns_are_in_doubt():
    note = Finding("answers", "one answer", source="data", columns=("a", "b"), size=0.1)
    effects = np.array([[0.9, 0.1], [0.9, 0.0], [0.1, 0.4], [0.0, 0.4]])
    (doubt,) = doubted_by_columns([note], effects, list("abcd"), ["factor 1", "factor 2"])
    assert doubt.is_doubt and doubt.factors == ("factor 1",) and "10% of the rows" in doubt.message
    assert doubt.touches("a", "factor 2") and doubt.touches("c", "factor 1")
    assert not doubt.touches("c", "factor 2")


def test_a_fit_warns_and_doubts_the_edges():
    x, _ = questionnaire(1000, 0.1)
    model = ps.models.SparseDecoder(n_factors=3, decoder="linear")
    with pytest.warns(RuntimeWarning, match="people who did not read the questions"):
        fit = ps.fit(model, x, seed=0, restarts=1, steps=20, progress=False)
    (doubt,) = [finding for finding in fit.findings if finding.kind == "answers" and finding.is_doubt]
    assert doubt.touches("x3", fit.factor_names[0])
