"""Rates, temperatures and the two parts of a transition's schedule."""

from __future__ import annotations

import pytest

from pyro_sparse.inference.transition.transition_schedule import TransitionSchedule


def test_steps_are_decided_by_what_drives():
    assert TransitionSchedule().decided(1, 100).steps == 3000
    assert TransitionSchedule().decided(0, 100).steps == 4000
    assert TransitionSchedule().decided(0, 100).polish_steps == 2000
    assert TransitionSchedule(steps=7, polish_steps=0).decided(0, 100).steps == 7
    assert TransitionSchedule(steps=7, polish_steps=0).decided(0, 100).polish_steps == 0


@pytest.mark.parametrize(("n", "wanted"), [(1, 1), (200, 4), (9000, 180), (25_600, 512), (200_000, 512)])
def test_few_sequences_are_not_seen_too_often(n, wanted):
    plan = TransitionSchedule().decided(1, n)
    assert plan.batch_size == wanted  # 3,000 steps are sixty passes, or fewer
    assert TransitionSchedule(steps=6000).decided(1, n).batch_size == min(512, max(1, n // 100))
    assert TransitionSchedule(steps=300).decided(1, n).batch_size == 512  # thirty passes of 5,000 or fewer
    assert TransitionSchedule(batch_size=77).decided(1, n).batch_size == 77
    assert plan.decided(1, 10 * n) == plan


def test_the_rate_rises_stays_and_falls():
    plan = TransitionSchedule(steps=1000, warm_up=100, learning_rate=0.1, decay_from=0.4)
    assert plan.rate(0) == pytest.approx(0.1 * 1.002 / 100)
    assert plan.rate(100) == plan.rate(400) == pytest.approx(0.1 * 1.002)
    assert plan.rate(700) == pytest.approx(0.1 * 0.502)
    assert plan.rate(1000) == pytest.approx(0.1 * 0.002)
    assert plan.settled == 401
    assert plan.kl_weight(0) == 1


def test_the_temperature_falls_by_a_constant_factor():
    plan = TransitionSchedule(steps=100, temperature_start=2.0, temperature_end=0.5)
    assert plan.temperature(0) == 2
    assert plan.temperature(50) == pytest.approx(1)
    assert plan.temperature(100) == pytest.approx(0.5)


def test_the_second_part():
    plan = TransitionSchedule(steps=1000, edge_steps=30, edge_rate=0.5, patience=3).of_edges()
    assert (plan.steps, plan.learning_rate, plan.patience, plan.warm_up) == (30, 0.5, None, 50)
    assert plan.stage(0) == "dense"
    assert set(plan.as_dict()) == set(TransitionSchedule.names())


@pytest.mark.parametrize(
    "bad",
    [
        {"steps": 0},
        {"steps": 1.5},
        {"batch_size": 0},
        {"evaluate_every": 0},
        {"edge_steps": -1},
        {"polish_steps": -1},
        {"warm_up": -1},
        {"patience": 0},
        {"learning_rate": 0.0},
        {"temperature_end": 0.0},
    ],
)
def test_impossible_settings(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))}: (got|want)"):
        TransitionSchedule(**bad)


def test_the_polish_only_falls():
    plan = TransitionSchedule(steps=1000, polish_rate=0.5).of_polish(200)
    assert (plan.steps, plan.learning_rate, plan.decay_from) == (200, 0.5, 0.0)
    assert plan.rate(100) == pytest.approx(0.5 * 0.502)
