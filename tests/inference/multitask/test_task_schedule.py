"""The record of a multi-task fit's settings."""

from __future__ import annotations

import math

import pytest
from torch import nn

from pyro_sparse.inference import TaskSchedule


def test_the_rate_by_hand():
    plan = TaskSchedule(steps=1000, learning_rate=0.1, warm_up=50)
    assert plan.rate(0) == pytest.approx(0.1 / 50)
    assert plan.rate(24) == pytest.approx(0.1 * 0.5 * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * 0.024))))
    assert plan.rate(500) == pytest.approx(0.1 * 0.505)
    assert plan.rate(1000) == pytest.approx(0.001)
    short = TaskSchedule(steps=20, learning_rate=1.0, warm_up=100)  # risen after a tenth of the steps
    assert short.rate(1) == pytest.approx(0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi / 20)))
    assert TaskSchedule(steps=0, learning_rate=0.1).rate(0) == pytest.approx(0.1)
    assert TaskSchedule(steps=9, warm_up=0, learning_rate=0.1).rate(0) == pytest.approx(0.1)


def test_the_sparse_stage():
    plan = TaskSchedule(steps=1000, sparse_steps=70, sparse_rate=0.02, patience=3, batch_size=5).of_sparse()
    assert (plan.steps, plan.learning_rate, plan.patience, plan.batch_size) == (70, 0.02, None, 5)
    assert set(plan.as_dict()) == set(TaskSchedule.names())


def test_defaults_follow_the_encoder():
    def numbers(kind, **options):
        plan = TaskSchedule(**options).for_encoder(kind)
        return plan.steps, plan.learning_rate, plan.of_sparse().steps

    assert numbers("linear") == (300, 0.02, 100)
    assert numbers("mlp") == numbers("conv") == numbers("linear", axes=False) == (1500, 0.002, 500)
    assert numbers("linear", steps=90, learning_rate=0.1, sparse_steps=7) == (90, 0.1, 7)
    assert numbers(nn.Linear(2, 1), steps=0) == (0, 0.002, 0)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"batch_size": 0}, "batch_size: want a whole number of at least 1, got 0"),
        ({"evaluate_every": 1.5}, "evaluate_every: want a whole number of at least 1, got 1.5"),
        ({"steps": -1}, "steps: want a whole number of at least 0, or None, got -1"),
        ({"sparse_steps": 2.5}, "sparse_steps: want .*, got 2.5"),
        ({"warm_up": -3}, "warm_up: want .*, got -3"),
        ({"learning_rate": 0.0}, "learning_rate: want a positive number, or None, got 0.0"),
        ({"sparse_rate": float("nan")}, "sparse_rate: want .*, got nan"),
        ({"ridge": 0.0}, "ridge: want .*, got 0.0"),
        ({"weight_decay": -1.0}, "weight_decay: want a number, 0 or more, got -1.0"),
        ({"penalty": 0.0}, r"penalty: want a share of the largest penalty in \(0, 1\), got 0.0"),
        ({"penalty": 1.0}, "penalty: want .*, got 1.0"),
        ({"penalty": -0.1}, "penalty: want .*, got -0.1"),
        ({"patience": 1.5}, "patience: want a whole number of at least 1, or None, got 1.5"),
        ({"axes": "no"}, "axes: want True or False, got 'no'"),
    ],
)
def test_bad_settings(option, message):
    with pytest.raises(ValueError, match=message):
        TaskSchedule(**option)
