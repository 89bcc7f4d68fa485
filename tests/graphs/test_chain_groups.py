"""Chains by the graph they hold: agreement decides, not nats; evidence weighs as far as it is known."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_sparse.graphs import pool_chains, same_graph
from pyro_sparse.graphs.chain_groups import ChainPool
from pyro_sparse.graphs.chain_verdict import alternative_graphs, left_out

ONE, OTHER = np.array([[0.99, 0.02], [0.01, 0.98]]), np.array([[0.02, 0.99], [0.01, 0.98]])
EXACT = np.zeros((4, 2, 2))


def test_chains_that_agree_are_kept_however_far_below():
    pool = pool_chains(np.stack([ONE] * 4), EXACT, [0.0, -29.0, -400.0, -3.0], 2.0)
    assert pool.keep.all() and pool.n_graphs == 1
    np.testing.assert_allclose(pool.weight, 0.25)


@pytest.mark.parametrize("reach", [np.inf, 1000.0])
def test_another_graph_counts_by_its_evidence(reach):
    p = np.stack([ONE, ONE, OTHER, OTHER])
    pool = pool_chains(p, EXACT, [0.0, 0.0, -1.0, -1.0], 0.0, reach)
    assert pool.group.tolist() == [0, 0, 1, 1] and pool.keep.all()
    np.testing.assert_allclose(pool.share, [1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1))])
    np.testing.assert_allclose(pool.weight, pool.share[pool.group] / 2)
    far = pool_chains(p, EXACT, [-40.0, -41.0, 0.0, -1.0], 2.0, reach)
    assert far.keep.tolist() == [False, False, True, True] and far.group.tolist() == [1, 1, 0, 0]
    assert far.weight.tolist() == [0.0, 0.0, 0.5, 0.5]
    assert left_out(far)[0] == "Chain 0 holds another graph, 40 nats below the best, and was left out."


def test_what_is_hardly_known_decides_hardly_anything():
    p = np.stack([ONE, ONE, OTHER, OTHER])
    known, vague = (pool_chains(p, EXACT, [0.0, 0.0, -6.0, -6.0], error) for error in (0.5, 60.0))
    assert not known.keep[2:].any() and vague.keep.all()
    assert 0.5 < vague.share[0] < 0.58
    counted = pool_chains(p[[0, 2, 3, 3]], EXACT, [0.0, -6.0, -6.0, -6.0], None, reach=15.0)
    np.testing.assert_allclose(counted.share, [0.75, 0.25])
    assert counted.keep.all() and counted.group.tolist() == [1, 0, 0, 0]
    np.testing.assert_allclose(counted.weight, 0.25)


def test_differences_within_the_error_of_chains_are_none():
    p = np.stack([ONE, ONE + [[-0.5, 0.0], [0.0, 0.0]]])
    known, vague = (np.full(p.shape, error) for error in (0.01, 0.1))
    assert not same_graph(p, known)[0, 1] and same_graph(p, vague)[0, 1]
    assert not same_graph(p, np.full(p.shape, np.nan))[0, 1]
    half_way = np.stack([ONE, ONE + [[-0.2, 0.0], [0.0, 0.0]], ONE + [[-0.4, 0.0], [0.0, 0.0]]])
    assert pool_chains(half_way, np.zeros(half_way.shape), np.zeros(3), 1.0).n_graphs == 1


@pytest.mark.parametrize(
    ("level", "kept"),
    [
        ([0.0, -400.0, -300.0, -900.0], [0, 2]),  # one alone could not disagree
        ([-300.0, 0.0, np.nan, -200.0], [1, 3]),
    ],
)
@pytest.mark.parametrize("error", [2.0, None])
def test_two_chains_stay_whatever_their_distance(level, kept, error):
    others = np.stack([ONE, OTHER, 1 - ONE, 1 - OTHER])
    pool = pool_chains(others, EXACT, level, error, 15.0)
    assert np.flatnonzero(pool.keep).tolist() == kept
    assert pool.counts.sum() == (1 if error else 2)
    np.testing.assert_allclose(pool.weight.sum(), 1.0)


def test_a_failed_chain_stays_only_where_there_is_no_other():
    pool = pool_chains(np.stack([ONE, OTHER]), EXACT[:2], [0.0, np.nan], 1.0)
    assert pool.keep.all() and pool.group.tolist() == [0, -1] and pool.weight.tolist() == [1.0, 0.0]
    three = pool_chains(np.stack([ONE, OTHER, ONE]), EXACT[:3], [0.0, np.nan, 0.0], 1.0)
    assert three.keep.tolist() == [True, False, True]
    assert left_out(three) == ["Chain 1 failed, its log joint is not finite, and was left out."]
    with pytest.raises(ValueError, match="no chain is finite"):
        pool_chains(np.stack([ONE, OTHER]), EXACT[:2], [np.nan, np.inf], 1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"error": EXACT[:3]}, "probability, error, log_evidence: want"),
        ({"log_evidence": [0.0]}, "probability, error, log_evidence: want"),
        ({"uncertainty": -1.0}, "uncertainty, reach: want nats, 0 or more"),
        ({"reach": np.nan}, "uncertainty, reach: want nats, 0 or more"),
    ],
)
def test_what_does_not_fit(change, message):
    fine = {
        "probability": np.stack([ONE] * 4),
        "error": EXACT,
        "log_evidence": np.zeros(4),
        "uncertainty": 1.0,
    }
    with pytest.raises(ValueError, match=message):
        pool_chains(**{**fine, **change})


def test_alternative_graphs_are_named_with_the_edges_between_them():
    p = np.stack([ONE, OTHER, ONE, ONE])
    pool = ChainPool(
        np.array([0, 1, 0, 0]), np.array([0.8, 0.2]), np.ones(4, bool), np.full(4, 0.25), np.zeros(4)
    )
    pool = pool._replace(weight=np.array([0.8 / 3, 0.2, 0.8 / 3, 0.8 / 3]))
    message, edges = alternative_graphs(pool, p)
    assert (
        message == "The chains hold 2 graphs, 2 edges apart: chains 0, 2 and 3 (share 0.80), chain 1 (0.20)"
    )
    assert edges.tolist() == [[True, True], [False, False]]
    alone = pool._replace(keep=np.array([True, False, True, True]))
    assert alternative_graphs(alone, p)[0] == "" and not alternative_graphs(alone, p)[1].any()
