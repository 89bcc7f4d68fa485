"""The verdict: each sentence appears when, and only when, its diagnostic says so."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_sparse.graphs import between_chain_gap, co_membership_rhat, keep_chains, verdict
from pyro_sparse.graphs.chain_verdict import contradictions
from pyro_sparse.graphs.chains import CoMembershipRhat, KeptChains

TWO = KeptChains(np.array([True, True]), np.array([0.0, 3.0]))


def rhat_of(value):
    table = np.full((3, 3), np.nan)
    table[0, 2] = table[2, 0] = value
    table[0, 1] = table[1, 0] = 1.0
    return CoMembershipRhat(table, value, 2, 1)


FINE = "No edge is disputed between the chains."


def test_all_is_well():
    assert verdict(np.full((3, 2), 0.25), rhat_of(1.05), TWO) == [FINE]


def test_columns_with_unresolved_edges_are_named_with_their_rows():
    gap = np.zeros((4, 3))
    gap[[0, 1, 3], 2], gap[1, 0] = 0.5, 0.26
    assert verdict(gap, kept=TWO, rows=list("abcd"), columns=["1", "2", "3"]) == [
        "Two chains disagree on factor 1 (feature b): add an anchor for it, more rows, or fewer factors.",
        "Two chains disagree on factor 3 (features a, b, d): add an anchor for it, more rows, or fewer "
        "factors.",
    ]
    assert verdict(gap[:, :1], words=("task", "latent"))[0].startswith(
        "At least two chains disagree on latent 0 (task 1): add an anchor for it, more rows, or fewer latents"
    )
    four = KeptChains(np.ones(4, dtype=bool), np.zeros(4))
    assert verdict(gap, kept=four)[0].startswith("At least two of 4 chains disagree on factor 0")


def test_long_lists_are_cut():
    (sentence,) = verdict(np.ones((9, 1)))
    assert "(features 0, 1, 2, 3, 4 and 4 more)" in sentence


def test_left_out_and_failed_chains_and_rhat():
    kept = KeptChains(np.array([True, False, False, True]), np.array([0.0, 40.2, np.nan, 1.0]))
    assert verdict(np.zeros((3, 2)), rhat_of(1.31), kept, rows=list("abc")) == [
        "Chain 1 is 40 nats below the best and was left out.",
        "Chain 2 failed, its log joint is not finite, and was left out.",
        "Chains differ in how often features share a factor, most of all a and c (R-hat 1.31): run them "
        "longer.",
    ]
    assert verdict(np.zeros((3, 2)), rhat_of(1.0), kept, rows=list("abc"))[2:] == [FINE]
    assert verdict(np.zeros((3, 2)), rhat_of(1.31), rhat_limit=1.4) == [FINE]
    assert verdict(np.zeros((3, 2)), rhat_of(np.nan)) == [FINE]


def test_one_chain_proves_nothing():
    alone = "There is only one chain to look at: run more, to see whether they agree."
    kept = KeptChains(np.array([True, False]), np.array([0.0, 99.0]))
    assert verdict(np.full((2, 2), np.nan), rhat_of(1.5)) == [alone]
    assert verdict(np.full((2, 2), np.nan), kept=kept) == [
        "Chain 1 is 99 nats below the best and was left out.",
        alone,
    ]


def test_from_draws_to_sentences():
    """Three chains; the third is stuck in a worse mode, the first two put rows 0 and 1 into other columns."""
    rng = np.random.default_rng(0)
    draws = np.zeros((3, 100, 3, 2))
    draws[:, :, 2, 1] = rng.random((3, 100)) < 0.5
    draws[0, :, :2, 0], draws[1, :, 0, 0], draws[1, :, 1, 1] = 1, 1, 1
    kept = keep_chains(np.array([[-50.0], [-52.0], [-90.0]]) + rng.normal(size=(3, 100)))
    good = draws[kept.keep]
    found = verdict(between_chain_gap(good), co_membership_rhat(good), kept, rows=["x", "y", "z"])
    assert found[0] == "Chain 2 is 40 nats below the best and was left out."
    assert [sentence.split(":")[0] for sentence in found[1:3]] == [
        "Two chains disagree on factor 0 (feature y)",
        "Two chains disagree on factor 1 (feature y)",
    ]
    assert found[3].startswith(
        "Chains differ in how often features share a factor, most of all x and y (R-hat 7.07)"
    )
    assert len(found) == 4


def test_contradictions_want_a_probability_and_evidence():
    nan = np.nan
    p = [[nan, 0.9, 0.52], [0.49, nan, 0.9], [0.97, 0.2, nan], [0.99, nan, 0.9]]
    rate = [0.3, 0.2, 0.8]  # at .8 odds of 9 are little news
    found = contradictions(p, rate, list("abcd"), ["f 1", "f 2", "f 3"])
    start = "Anchors or constraints contradict the data: without them"
    assert [sentence.split(". Look")[0] for sentence in found] == [
        f"{start} f 1 would have edges to d (p 0.99), c (p 0.97)",
        f"{start} f 2 would have edges to a (p 0.90)",
    ]
    assert contradictions(np.full((2, 1), nan), [0.5], list("ab"), ["f 1"]) == []
    assert contradictions([[1.0]], [1.0], ["a"], ["f 1"]) != []  # rates rounded to one
    (many,) = contradictions(np.full((9, 1), 0.99), [0.5], list("abcdefghi"), ["f 1"])
    assert "e (p 0.99) and 4 more. Look" in many


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: contradictions([0.1], [0.1], [], []), r"if_permitted: want shape \(row, column\)"),
        (lambda: contradictions([[0.1]], [0.1, 0.2], ["a"], ["b"]), r"got \(1, 1\), \(2,\)"),
        (lambda: contradictions([[0.1]], [0.1], ["a", "b"], ["c"]), "rows: want 1 names"),
        (lambda: verdict([0.1, 0.2]), r"gap: want shape \(row, column\), got \(2,\)"),
        (
            lambda: verdict([[1.2, np.nan]]),
            r"gap: want differences of probabilities in \[0, 1\], got 1.2 to 1.2",
        ),
        (lambda: verdict([[0.1]], rows=["a", "b"]), "rows: want 1 names, as in gap, got 2"),
        (lambda: verdict([[0.1]], columns=[]), "columns: want 1 names, as in gap, got 0"),
    ],
)
def test_messages(call, message):
    with pytest.raises(ValueError, match=message):
        call()
