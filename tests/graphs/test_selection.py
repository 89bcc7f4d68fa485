"""Choosing edges: against the definition, set by set, and against the truth in a simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pyro_sparse.graphs import (
    bayesian_fdr,
    consensus,
    edge_gap,
    edge_verdicts,
    expected_fdr,
    median_probability_graph,
    unresolved,
)
from pyro_sparse.graphs.selection import kept_restarts, q_values, stability_bound


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
    assert expected_fdr([0.2, 0.9], [0, 1]) == pytest.approx(0.1)


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
    rivals = [False, False, True, False, True]
    assert kept_restarts(elbo, 10_000, rivals=rivals).tolist() == [True, False, True, False, False]
    assert kept_restarts(elbo, 50, rivals=rivals).tolist() == [True, True, True, False, False]
    assert kept_restarts(elbo, 1000, at_least=9).tolist() == [True, True, True, True, False]


def test_kept_restarts_never_drop_the_best():
    # The restart with the best held-out ELBO need not have the best training ELBO.
    assert kept_restarts([-1.0, -1.5, -9.0], 1000, best=1).tolist() == [True, True, False]
    assert kept_restarts([np.nan], 10).tolist() == [True]
    failed = kept_restarts([np.nan, -1.0, -2.0, -9.0], 1000, best=0)  # of it nobody is so many nats below
    assert failed.tolist() == [True] * 4


def test_given_edges_are_named_and_leave_no_room():
    p = np.array([1.0, 1.0, 1.0, 1.0, 0.62, 0.6, 0.97, 0.0])
    given = np.arange(8) < 4
    free = p[~given]
    assert bayesian_fdr(p, 0.1)[4:].tolist() == [True, False, True, False]  # (0 + .03 + .38) / 6 < .1
    assert bayesian_fdr(p, 0.1, given=given).tolist() == [True] * 4 + bayesian_fdr(free, 0.1).tolist()
    np.testing.assert_allclose(q_values(p, given)[4:], q_values(free))
    assert (q_values(p, given)[:4] == 0).all() and bayesian_fdr(p, 0.0, given=given).sum() == 4
    assert bayesian_fdr([0.2, 1.0], given=[True, True]).all()
    with pytest.raises(ValueError, match=r"given: want the shape of probability, \(8,\), got \(2,\)"):
        q_values(p, [True, False])


def test_unresolved_is_a_gap_above_a_quarter():
    assert unresolved([[0.25, 0.2501], [np.nan, 1.0]]).tolist() == [[False, True], [False, True]]


def test_verdicts_at_the_ends_of_the_range_that_is_open():
    p = [[0.95, 0.949, 0.05], [0.051, 1.0, 0.0]]
    assert edge_verdicts(p).tolist() == [["present", "open", "absent"], ["open", "present", "absent"]]
    assert edge_verdicts(p, sure=0.99).tolist() == [["open"] * 3, ["open", "present", "absent"]]
    gap = [[0.3, np.nan, 0.25], [0.0, np.nan, 0.9]]
    assert edge_verdicts(p, gap).tolist() == [["open", "open", "absent"], ["open", "present", "open"]]


def test_verdicts_of_right_probabilities_are_as_sure_as_they_say():
    rng = np.random.default_rng(0)
    p = rng.beta(0.3, 0.5, size=20_000)
    truth = rng.uniform(size=p.shape) < p
    said = edge_verdicts(p, sure=0.9)
    assert truth[said == "present"].mean() > 0.9
    assert truth[said == "absent"].mean() < 0.1
    assert 0.3 < truth[said == "open"].mean() < 0.6


def test_verdicts_refuse_other_shapes_and_levels():
    with pytest.raises(ValueError, match="sure: got 0.5, wanted a probability above"):
        edge_verdicts([0.2], sure=0.5)
    with pytest.raises(ValueError, match=r"gap: want the shape of probability, \(1,\), got \(2,\)"):
        edge_verdicts([0.2], gap=[0.0, 0.0])


def test_consensus_run_by_run():
    p = np.array([[[0.99, 0.97], [0.6, 0.1]], [[0.95, 0.3], [0.99, 0.2]], [[1.0, 0.96], [0.98, 0.0]]])
    found = consensus(p)
    # named alone at .1: run 0 {.99, .97}, run 1 {.95, .99}, run 2 {1, .96, .98}
    np.testing.assert_allclose(found.share, [[1, 2 / 3], [2 / 3, 0]])
    assert found.agreed.tolist() == [[True, False], [False, False]]
    assert found.disputed.tolist() == [[False, True], [True, False]]
    np.testing.assert_allclose(found.mean, [[0.98, 2.23 / 3], [2.57 / 3, 0.1]])
    np.testing.assert_allclose(found.minimum, [[0.95, 0.3], [0.6, 0.0]])
    assert consensus(p, fdr=0.0).share.tolist() == [[1 / 3, 0], [0, 0]]
    assert consensus(p, fdr=1.0, floor=0.98).agreed.sum() == 0


def test_stability_bound_by_hand_and_in_a_simulation():
    named = np.zeros((2, 5, 10), dtype=bool)
    named[0, 0, :4], named[1, 0, :6] = True, True  # q = 5 of p = 50
    assert stability_bound(named, 0.75) == pytest.approx(25 / (0.5 * 50))
    assert stability_bound(named, 1.0) == pytest.approx(0.5)
    # Thirty of a hundred edges named at random in each of ten runs: how many are named in at least six?
    rng = np.random.default_rng(0)
    runs = rng.permuted(np.broadcast_to(np.arange(100) < 30, (400, 10, 100)), axis=2)
    false = (runs.mean(axis=1) >= 0.6).sum(axis=1).mean()
    assert 1 < false < stability_bound(runs[0], 0.6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: q_values([0.1, 1.2]), r"probability: want numbers in \[0, 1\], got values from 0.1 to 1.2"),
        (lambda: q_values([0.1, np.nan]), r"probability: want numbers in \[0, 1\]"),
        (lambda: bayesian_fdr([0.5], 10), r"fdr: want a rate in \[0, 1\], got 10; ten per cent is 0.1"),
        (lambda: bayesian_fdr([0.5], 0.1, floor=2), "floor: want a probability"),
        (lambda: expected_fdr([0.5], [True, False]), r"selected: want the shape of probability, \(1,\)"),
        (
            lambda: expected_fdr([0.9, 0.2], [0.9, 0.2]),
            "selected: want edges of 0 or 1, got .*; choose edges with bayesian_fdr first",
        ),
        (lambda: edge_gap([[0.5]], [True, False]), r"keep: want shape \(1,\), one flag per restart"),
        (lambda: edge_gap(0.5), r"probability: want shape \(restart"),
        (lambda: kept_restarts([], 3), r"elbo: want shape \(restart,\)"),
        (lambda: kept_restarts([-1.0, -2.0], 10, best=7), "best: want a restart from 0 to 1, got 7"),
        (lambda: kept_restarts([-1.0, -2.0], 10, best=-1), "best: want a restart from 0 to 1, got -1"),
        (lambda: kept_restarts([-1.0], -5), "n_samples: want a number of rows, 0 or more, got -5"),
        (lambda: bayesian_fdr([0.5], "0.1"), r"fdr: want a rate in \[0, 1\], got '0.1'"),
        (lambda: consensus([0.5, 0.6]), r"probability: want shape \(run, ...\) .* got \(2,\)"),
        (lambda: consensus(np.zeros((0, 2))), "probability: want shape .* at least one run"),
        (lambda: consensus([[1.5]]), r"probability: want numbers in \[0, 1\]"),
        (lambda: consensus([[0.5]], fdr=5), r"fdr: want a rate in \[0, 1\], got 5"),
        (
            lambda: stability_bound([[True]], 0.5),
            "threshold: want a share of runs above 1/2 and at most 1, got 0.5",
        ),
        (lambda: stability_bound([True]), r"named: want shape \(run, ...\) with runs and edges, got \(1,\)"),
        (lambda: stability_bound([[0.7]]), "named: want edges of 0 or 1, got 0.7; choose edges with"),
    ],
)
def test_messages(call, message):
    with pytest.raises(ValueError, match=message):
        call()
