"""The transition benchmark on made-up rows: what it asks, what it counts."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pytest

from benchmarks import _transition_off_model as off_model
from benchmarks import transition


def row(dataset="TimeDiag", seed=0, **figures):
    return {
        "dataset": dataset,
        "seed": seed,
        "mcc": 0.99,
        "r": 0.99,
        "r_con": 0.99,
        "shd": 0,
        "shd_best": 0,
        "edges": 10,
        "true_edges": 10,
        "gap": 2.0,
        "recovered": 0.999,
        "flagged": False,
        "cpu_s": 100.0,
        **figures,
    }


def test_tasks_go_seed_by_seed_through_all_sets():
    options = Namespace(
        dataset=None,
        quick=False,
        seeds=2,
        published_decoder=False,
        first_seed=0,
        baselines=False,
        off_model=False,
    )
    jobs = transition.tasks(options)
    assert len(jobs) == 2 * len(transition.SETS)
    assert [job["seed"] for job in jobs[: len(transition.SETS)]] == [0] * len(transition.SETS)
    options = Namespace(
        dataset=["TimeDiag"],
        quick=True,
        seeds=1,
        published_decoder=True,
        first_seed=1000,
        baselines=False,
        off_model=False,
    )
    assert transition.tasks(options) == [
        {"dataset": "TimeDiag", "seed": 1000, "quick": True, "decoder_seed": 0}
    ]


@pytest.mark.parametrize(
    ("figures", "missed"),
    [
        ({}, False),
        ({"mcc": 0.97}, True),
        ({"r_con": 0.97}, True),
        ({"shd": 3}, False),
        ({"shd_best": 1}, True),
    ],
)
def test_a_miss_is_any_figure_short(figures, missed):
    assert transition.missed("TimeDiag", row(**figures)) is missed


def test_silent_misses_are_counted_apart():
    rows = [row(), row(seed=1, mcc=0.9, flagged=True), row(seed=2, mcc=0.9), row(seed=3, flagged=True)]
    figures = transition.collect(rows, Namespace())["TimeDiag"]
    assert figures["missed"] == [False, True, True, False]
    assert figures["missed_silently"] == 1
    assert figures["cpu_seconds"] == [100.0] * 4
    (line,) = transition.table(rows)
    assert (line["n"], line["missed"], line["flagged"], line["false alarms"]) == (4, 2, 1, 1)
    assert line["mcc"] == pytest.approx(0.945)


def test_baselines_run_on_the_block_sets_and_stand_apart():
    options = Namespace(
        dataset=["TimeDiag"],
        quick=False,
        seeds=1,
        published_decoder=False,
        first_seed=0,
        baselines=True,
        off_model=False,
    )
    jobs = transition.tasks(options)
    assert jobs[0] == {"dataset": "TimeDiag", "seed": 0, "quick": False}
    assert {job["dataset"] for job in jobs[1:]} == set(transition.BLOCKS)
    assert ("ActionBlockDiag", "pcl") not in {(job["dataset"], job.get("method")) for job in jobs}
    assert ("TimeBlockDiag", "pcl") in {(job["dataset"], job.get("method")) for job in jobs}
    other = {"dataset": "TimeBlockDiag", "method": "pcl", "mcc": 0.7, "r": 0.9, "r_con": 0.8, "cpu_s": 9.0}
    figures = transition.collect([row(), other], Namespace())
    assert figures["baselines"]["TimeBlockDiag"]["pcl"]["mcc"] == [0.7]
    assert figures["TimeDiag"]["mcc"] == [0.99]
    assert [line["dataset"] for line in transition.table([row(), other])] == [
        "TimeDiag",
        "TimeBlockDiag: pcl",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["random", "mask_off"])
def test_a_baseline_is_scored(method):
    found = transition.run("TimeBlockDiag", 1000, quick=True, method=method)
    assert 0 < found["mcc"] <= found["r"] + 0.1


@pytest.mark.slow
def test_the_quick_run_finds_its_graphs():
    found = transition.run("TimeDiag", 1000, quick=True)
    assert found["mcc"] > 0.9
    assert found["edges"] == found["true_edges"] == 5


@pytest.mark.parametrize("family", off_model.FAMILIES)
def test_off_model_latents_move_with_their_parents_and_no_others(family):
    rng = np.random.default_rng(0)
    graph, mean = off_model.mechanisms(family, rng)
    z = rng.normal(size=(500, 4))
    for source in range(4):
        moved = z.copy()
        moved[:, source] += rng.normal(size=500)
        change = np.abs(mean(moved) - mean(z)).max(0)
        assert ((change > 1e-3) == (graph[:, source] == 1)).all() and (
            change[graph[:, source] == 0] == 0
        ).all()


@pytest.mark.parametrize("family", off_model.FAMILIES)
def test_off_model_sequences_come_to_rest(family):
    x, z, graph = off_model.simulated(family, seed=1000, n=60)
    assert x.shape == (60, 10, 10) and z.shape == (60, 10, 4) and graph.sum() == 9
    assert graph.diagonal().all() and np.isfinite(x).all() and np.abs(z).max() < 12
    np.testing.assert_array_equal(x, off_model.simulated(family, seed=1000, n=60)[0])


def test_off_model_figures_count_misses_and_flags():
    counts = dict.fromkeys(off_model.COUNTS, 1.0)
    rows = [
        {"mcc": mcc, "flagged": flagged, **counts}
        for mcc, flagged in ((0.99, False), (0.99, True), (0.8, True), (0.7, False))
    ]
    figures = off_model.figures(rows)
    assert (figures["n"], figures["good"], figures["missed"], figures["missed_flagged"]) == (4, 2, 2, 1)
    assert figures["good_flagged"] == 1 and figures["present"] == 4
    options = Namespace(off_model=True, quick=True, seeds=1, first_seed=0, dataset=None, baselines=False)
    options.published_decoder = False
    jobs = transition.tasks(options)
    assert [job["family"] for job in jobs] == list(off_model.FAMILIES)[:2]
    shown = transition.collect([{**row, "family": "gated"} for row in rows], options)
    assert shown == {"off_model": figures}
