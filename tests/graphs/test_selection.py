"""Choosing edges: against the definition, set by set, and against the truth in a simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pyro_sparse.graphs import (
    bayesian_fdr,
    edge_gap,
    expected_fdr,
    kept_restarts,
    median_probability_graph,
    q_values,
)


def test_q_values_by_definition():
    p = np.random.default_rng(0).choice([0.0, 0.2, 0.5, 0.9, 0.97, 1.0], size=(5, 4))
    got = q_values(p)
    for index in np.ndindex(p.shape):
        assert got[index] == pytest.approx((1 - p[p >= p[index]]).mean())


def test_q_values_of_nothing():
    assert q_values(np.zeros((0, 3))).shape == (0, 3)


def test_fdr_selects_the_largest_admissible_set():
    """Against all subsets of ten edges with distinct probabilities."""
    p = np.random.default_rng(1).uniform(size=10)
    for fdr in (0.0, 0.05, 0.2, 0.4, 1.0):
        sets = itertools.chain.from_iterable(itertools.combinations(range(10), n) for n in range(1, 11))
        largest = max((len(s) for s in sets if (1 - p[list(s)]).mean() <= fdr), default=0)
        chosen = bayesian_fdr(p, fdr, floor=0.0)
        assert chosen.sum() == largest
        assert expected_fdr(p, chosen) <= fdr + 1e-12


def test_floor_keeps_out_what_sure_edges_would_carry_in():
    p = np.array([1.0] * 40 + [0.4, 0.1, 0.1, 0.0])
    assert bayesian_fdr(p, 0.1, floor=0.0).sum() == 44
    assert bayesian_fdr(p, 0.1).sum() == 40


def test_ties_go_together():
    chosen = bayesian_fdr(np.array([1.0, 0.7, 0.7, 0.7]), 0.2)
    assert chosen.tolist() == [True, False, False, False]


def test_realised_rate_is_the_nominal_one_when_probabilities_are_right():
    rng = np.random.default_rng(2)
    p = rng.beta(0.3, 0.5, size=(200, 400))
    truth = rng.uniform(size=p.shape) < p
    rates = []
    for probability, edge in zip(p, truth, strict=True):
        chosen = bayesian_fdr(probability, 0.1, floor=0.0)
        rates.append((chosen & ~edge).sum() / max(chosen.sum(), 1))
    assert np.mean(rates) == pytest.approx(0.1, abs=0.01)


def test_median_probability_graph():
    assert median_probability_graph([0.49, 0.5, 0.51]).tolist() == [False, True, True]


def test_expected_fdr_of_nothing_is_zero():
    assert expected_fdr([0.2, 0.9], [False, False]) == 0
    assert expected_fdr([0.2, 0.9], [True, True]) == pytest.approx(0.45)


def test_gap_over_kept_restarts():
    p = np.array([[[0.9, 0.1]], [[0.2, 0.15]], [[0.0, 1.0]]])
    np.testing.assert_allclose(edge_gap(p), [[0.9, 0.9]])
    np.testing.assert_allclose(edge_gap(p, [True, True, False]), [[0.7, 0.05]])
    assert np.isnan(edge_gap(p, [True, False, False])).all()


def test_kept_restarts_by_total_nats():
    elbo = np.array([-1.0, -1.01, -1.2, -3.0, np.nan])
    assert kept_restarts(elbo, 1000).tolist() == [True, True, False, False, False]  # 10 and 200 nats
    assert kept_restarts(elbo, 10_000).tolist() == [True, True, False, False, False]  # the runner-up stays
    assert kept_restarts(elbo, 10_000, at_least=1).tolist() == [True, False, False, False, False]
    assert kept_restarts(elbo, 50).tolist() == [True, True, True, False, False]
    assert kept_restarts(elbo, 1000, at_least=9).tolist() == [True, True, True, True, False]


def test_kept_restarts_never_drop_the_best():
    # The restart with the best held-out ELBO need not have the best training ELBO.
    assert kept_restarts([-1.0, -1.5, -9.0], 1000, best=1).tolist() == [True, True, False]
    assert kept_restarts([np.nan], 10).tolist() == [True]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: q_values([0.1, 1.2]), r"probability: want numbers in \[0, 1\], got values from 0.1 to 1.2"),
        (lambda: q_values([0.1, np.nan]), r"probability: want numbers in \[0, 1\]"),
        (lambda: bayesian_fdr([0.5], 10), r"fdr: want a rate in \[0, 1\], got 10; ten per cent is 0.1"),
        (lambda: bayesian_fdr([0.5], 0.1, floor=2), "floor: want a probability"),
        (lambda: expected_fdr([0.5], [True, False]), r"selected: want the shape of probability, \(1,\)"),
        (lambda: edge_gap([[0.5]], [True, False]), r"keep: want shape \(1,\), one flag per restart"),
        (lambda: edge_gap(0.5), r"probability: want shape \(restart"),
        (lambda: kept_restarts([], 3), r"elbo: want shape \(restart,\)"),
    ],
)
def test_messages(call, message):
    with pytest.raises(ValueError, match=message):
        call()
