"""The benchmark of tables off the model: what is simulated, and what is counted, by hand."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pytest

from benchmarks import misspecified
from benchmarks._questionnaires import Edges
from benchmarks.misspecified import CELLS, Cell


def options(**given):
    return Namespace(
        **{"seeds": 2, "quick": False, "first_seed": 1000, "cells": None, "offered": None, **given}
    )


def implied(loading):
    """Correlations of the items by the loadings alone."""
    cov = np.where(np.eye(5, dtype=bool), 1.0, misspecified.BETWEEN_FACTORS)
    r = loading @ cov @ loading.T
    np.fill_diagonal(r, 1)
    return r


def test_continuous_tables_correlate_as_their_loadings_say():
    x, loading, main = misspecified.simulate(Cell(0.1, 60_000, False), 1000)
    assert x.shape == (60_000, 25) and main.sum() == 25 and (main.sum(0) == 5).all()
    np.testing.assert_allclose(x.std(0), 1, atol=0.02)
    np.testing.assert_allclose(np.corrcoef(x.T), implied(loading), atol=0.02)
    assert ((loading[main] > 0.35) & (loading[main] <= 0.81)).all()


def test_other_loadings_have_the_spread_asked_for():
    for sd in (0.05, 0.1):
        drawn = [misspecified.simulate(Cell(sd, 10, False), seed) for seed in range(1000, 1040)]
        others = np.concatenate([loading[~main] for _, loading, main in drawn])
        assert others.std() == pytest.approx(sd, rel=0.06) and abs(others.mean()) < 0.1 * sd


def test_rough_tables_have_five_points_and_four_pairs_besides():
    x, loading, _ = misspecified.simulate(Cell(0.05, 60_000), 1000)
    assert set(np.unique(x)) == {1, 2, 3, 4, 5}
    besides = np.abs(np.corrcoef(x.T) - implied(loading))[np.triu_indices(25, 1)]
    assert (besides > 0.04).sum() == misspecified.N_PAIRS
    assert np.sort(besides)[: -misspecified.N_PAIRS].max() < 0.02


def test_points_keep_the_share_of_a_correlation_that_is_said():
    z = np.random.default_rng(0).normal(size=200_000)
    for cuts in ((0.0,), misspecified.CUTS, (-1.0, 0.2, 2.0)):
        points = np.digitize(z, cuts)
        assert misspecified.kept_of_correlation(cuts) == pytest.approx(
            np.corrcoef(z, points)[0, 1], abs=0.003
        )
    assert misspecified.kept_of_correlation((0.0,)) == pytest.approx(np.sqrt(2 / np.pi))


def test_seeds_make_other_tables():
    (x, loading, _), (again, *_), (other, *_) = (
        misspecified.simulate(CELLS["sd05_n300"], s) for s in (1000, 1000, 1001)
    )
    assert np.array_equal(x, again) and not np.array_equal(x, other)


def test_figures_counted_by_hand():
    """True factor 0 is fitted factor 1 reversed, true 1 is fitted 0, fitted 2 stands for none."""
    loading = np.array([[0.6, 0.05], [0.5, 0.25], [0.0, 0.7], [0.1, 0.4]])
    main = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], dtype=bool)
    fitted = np.column_stack([loading[:, 1], -loading[:, 0], [0, 0, 0, 0.2]])
    verdict = np.full((4, 3), "absent", dtype="<U7")
    verdict[[0, 1, 1, 2], [1, 1, 0, 0]] = "present"  # three main edges and a cross-loading
    verdict[3, 2] = "present"
    p = np.where(verdict == "present", 0.97, 0.02)
    lower, upper = fitted - 0.1, fitted + 0.1
    lower[0, 1], upper[0, 1] = 0.5, 0.7  # the size is right, the sign is not
    salient = np.zeros((4, 3))
    salient[[0, 1, 2, 1, 3], [1, 1, 0, 0, 2]] = 0.96
    draws = np.broadcast_to(fitted, (2, 3, 4, 3))
    edges = Edges(p, np.zeros((4, 3)), np.abs(fitted), verdict, lower, upper, draws)
    assert misspecified.figures(edges, salient, loading, main) == {
        "present": 5,
        "present_false": 2,
        "claimed_false": pytest.approx(5 * 0.03),
        "salient": 5,
        "salient_false": 2,
        "cover": 0.75,
        "true": 4,
        "true_present": 3,
    }


def test_a_factor_that_is_not_found_covers_nothing():
    loading = np.kron(np.eye(2), np.full((2, 1), 0.6))
    fitted = loading * [1, 0]
    zero = np.zeros((4, 2))
    edges = Edges(
        zero,
        zero,
        fitted,
        np.full((4, 2), "open"),
        fitted - 0.05,
        fitted + 0.05,
        np.broadcast_to(fitted, (2, 3, 4, 2)),
    )
    found = misspecified.figures(edges, zero, loading, loading > 0)
    assert found["cover"] == 0.5 and found["present"] == found["salient_false"] == 0


def test_jobs():
    jobs = misspecified.tasks(options())
    assert len(jobs) == 2 * len(CELLS) * 2 and {job["seed"] for job in jobs} == {1000, 1001}
    assert {job["k"] for job in jobs} == {5, 8}
    quick = misspecified.tasks(options(quick=True, seeds=1))
    assert [(job["cell"], job["k"]) for job in quick] == [("sd05_n300", 5), ("sd10_n300", 5)]


def test_counts_are_added_over_tables_and_coverage_is_a_mean():
    one = {**dict.fromkeys(misspecified.COUNTS, 2), "chains_cpu_s": 3.0, "fit_cpu_s": 2.0}
    rows = [{"cell": "sd05_n300", "k": 5, "seed": s, "cover": c, **one} for s, c in ((0, 0.8), (1, 1.0))]
    rows.append({"cell": "sd05_n300", "k": 8, "seed": 0, "cover": 0.9, **one})
    found = misspecified.collect(rows, options())
    assert found["sd05_n300_k5"]["present"] == 4 and found["sd05_n300_k5"]["cover"] == pytest.approx(0.9)
    assert found["sd05_n300_k8"]["n"] == 1
    assert [line["cell"] for line in misspecified.table(rows)] == ["sd05_n300_k5", "sd05_n300_k8"]


@pytest.mark.filterwarnings("ignore:X.*:RuntimeWarning", "ignore:edge_posterior.*:RuntimeWarning")
def test_a_short_run_has_all_figures(hurried):
    short = {"restarts": 1, "steps": 60, "sweeps": 40, "num_draws": 12}
    row = misspecified.run("sd05_n300", 5, 1000, short)
    assert set(misspecified.COUNTS) < set(row) and row["true"] == 25 and 0 <= row["cover"] <= 1
    assert row["present"] == row["present_false"] + row["true_present"]
    assert row["chains_cpu_s"] > 0 and row["fit_cpu_s"] > 0


@pytest.mark.parametrize("kind", ["ordinal", "bernoulli"])
def test_levels_and_answers_have_the_loadings_of_what_is_cut(kind):
    cell = CELLS[f"sd10_n1000_{kind}"]._replace(n=40_000, sd=0.0)
    x, loading, main = misspecified.simulate(cell, 1000)
    assert np.unique(x).tolist() == ([0.0, 1.0] if kind == "bernoulli" else [1.0, 2.0, 3.0, 4.0, 5.0])
    assert cell.likelihood == kind and (0.4 < loading[main]).all() and not loading[~main].any()
    if kind == "bernoulli":
        assert 0.15 < x.mean(0).min() < 0.35 and 0.65 < x.mean(0).max() < 0.85
    else:  # correlations of two items of a factor, cut, are those of their loadings but for .95 each
        kept = misspecified.kept_of_correlation(misspecified.CUTS)
        free = [(i, j) for i, j in ((0, 1), (2, 3), (5, 6), (10, 11), (15, 16), (20, 21))]
        got = np.array([np.corrcoef(x[:, i], x[:, j])[0, 1] for i, j in free])
        want = np.array([kept**2 * (loading[i] @ loading[j]) for i, j in free])
        assert np.median(np.abs(got - want)) < 0.02  # a pair may have residuals that correlate
