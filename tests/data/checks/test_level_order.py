"""Levels in another order than what they mean are told, with their order, and others are not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.data.checks import level_order
from pyro_sparse.data.checks.factors import doubted_by_columns
from pyro_sparse.findings.finding import Finding

# the search for clusters of rows is most of what a check of a table takes: a rough one will do
pytestmark = pytest.mark.usefixtures("hurried_module")

WORDS = ["low", "mid", "high"]


def table(seed, n=300, p=8, n_levels=3):
    """Measurements of two factors, and the levels of a column that the first is cut into."""
    rng = np.random.default_rng(seed)
    w = np.zeros((p, 2))
    w[: p // 2, 0] = w[p // 2 :, 1] = 0.9
    x = rng.normal(size=(n, 2)) @ w.T + 0.7 * rng.normal(size=(n, p))
    levels = np.digitize(x[:, 0], np.quantile(x[:, 0], np.arange(1, n_levels) / n_levels))
    return pd.DataFrame(x).add_prefix("x"), levels


def told(x, likelihood="normal", **options):
    return [finding for finding in ps.check_table(x, likelihood, **options) if finding.kind == "order"]


@pytest.mark.parametrize("likelihood", ["normal", "ordinal"])
def test_words_that_are_sorted_by_the_alphabet(likelihood):
    for seed in (1000, 1001):
        x, levels = table(seed)
        words = np.array(WORDS, dtype=object)[levels]
        kinds = {"x0": likelihood, "*": "normal"}
        right = x.assign(x0=pd.Categorical(words, categories=WORDS, ordered=True))
        sorted_words = x.assign(x0=pd.Categorical(words, ordered=True))
        if likelihood == "normal":  # which reads numbers only
            right, sorted_words = (t.assign(x0=t.x0.cat.codes.astype(float)) for t in (right, sorted_words))
        assert told(right, kinds) == []
        (finding,) = told(sorted_words, kinds)
        order = ["low", "mid", "high"] if likelihood == "ordinal" else ["1", "2", "0"]
        assert finding.columns == ("x0",) and finding.severity == "note"
        assert any(f"'x0' is {' < '.join(way)} by them" in finding.message for way in (order, order[::-1]))


def test_codes_without_an_order_and_numbers_that_are_given_anew():
    x, levels = table(1002, n_levels=5)
    codes = np.array([30.0, 10.0, 50.0, 20.0, 40.0])[levels]
    (finding,) = told(x.assign(x0=codes))
    assert "10 < " in finding.message or " < 10" in finding.message
    assert finding.size == pytest.approx(told(x.assign(x0=codes / 10 - 7))[0].size)
    assert told(x.assign(x0=levels)) == [] == told(x.assign(x0=-levels))
    holes = x.assign(x0=codes).mask(np.random.default_rng(0).random(x.shape) < 0.1)
    assert told(holes)[0].columns == ("x0",)


def test_a_column_that_says_nothing_of_the_others_has_any_order():
    x, _ = table(1003)
    assert told(x.assign(x0=np.random.default_rng(0).integers(0, 5, len(x)))) == []


def test_few_rows_columns_levels_or_counts_are_not_asked():
    x, levels = table(1004, n_levels=4)
    codes = np.array([2.0, 0.0, 3.0, 1.0])[levels]
    assert told(x.assign(x0=codes)) and not told(x.assign(x0=codes)[:30])
    assert not told(x.assign(x0=codes)[["x0", "x1", "x2"]])
    assert not told(x.assign(x0=codes), {"x0": "poisson", "*": "normal"})


def test_levels_are_those_before_effects_of_covariates_were_taken_out():
    x, levels = table(1005, n_levels=4)
    age = np.random.default_rng(1).normal(size=len(x))
    codes = np.array([2.0, 0.0, 3.0, 1.0])[levels]
    with_age = x.add(0.5 * age, axis=0).assign(x0=codes)
    (finding,) = told(with_age, covariates=pd.DataFrame({"age": age}))
    assert finding.columns == ("x0",)


def test_columns_of_which_much_is_lost_are_apart():
    x, levels = table(1006, n_levels=4)
    other = np.digitize(x.x5, np.quantile(x.x5, [0.33, 0.67]))
    much, little = np.array([2.0, 0.0, 3.0, 1.0])[levels], np.array([0.0, 2.0, 1.0])[other]
    first, second = told(x.assign(x0=much, x5=little))
    assert first.columns == ("x0",) and first.size >= level_order.MUCH_LOST > second.size
    assert second.columns == ("x5",)


@pytest.mark.parametrize(
    ("means", "lost"),
    [
        ((1.0, -1.0, 0.0), 0.5 / 2),  # falling: 1, then -1 and 0 together
        ((-1.0, 1.0, 0.0), 0.5 / 2),  # rising, likewise
        ((1.0, -2.0, 1.0), 4.5 / 6),  # 1 and -2 together, or -2 and 1
        ((2.0, -1.0, 1.0, -2.0), 2 / 10),  # falling, -1 and 1 together
    ],
)
def test_what_the_order_loses_is_what_monotone_means_by_hand_leave(means, lost):
    rng = np.random.default_rng(3)
    levels = np.repeat(np.arange(len(means)), 100)
    others = np.array(means)[levels][:, None] + 0.05 * rng.normal(size=(len(levels), 5))
    (finding,) = told(pd.DataFrame(others).add_prefix("x").assign(code=levels + 1.0))
    assert finding.columns == ("code",) and finding.size == pytest.approx(lost, abs=0.02)


def test_all_edges_of_such_a_column_are_in_doubt():
    notes = [
        Finding("order", "levels", source="data", columns=("b",), size=0.5),
        Finding("order", "levels", source="data", columns=("c",), size=0.2),  # a little is lost
    ]
    effects = [[0.9, 0.0], [0.1, 0.8], [0.8, 0.1], [0.0, 0.9]]
    (doubt,) = doubted_by_columns(notes, effects, list("abcd"), ["factor 1", "factor 2"])
    assert doubt.is_doubt and doubt.edges == (("b", "factor 1"), ("b", "factor 2")) and not doubt.factors
