"""The schedule's curves at the points where they bend."""

from __future__ import annotations

import json
import re
from dataclasses import fields

import numpy as np
import pytest
import torch

from pyro_sparse.inference import DependencySchedule, Schedule, TaskSchedule, TransitionSchedule

S = Schedule(
    steps=1000, learning_rate=0.01, warm_up=10, decay_from=0.5, decay_to=0.1, kl_start=0.2, kl_until=0.4,
    encoder_frozen_until=0.1, lasso_from=0.3, lasso_until=0.7, prune_at=(0.6, 0.8),
)  # fmt: skip


def test_learning_rate_rises_holds_and_falls():
    assert S.rate(0) == pytest.approx(0.001)
    assert S.rate(9) == S.rate(500) == pytest.approx(0.01)
    assert S.rate(750) == pytest.approx(0.005)
    assert S.rate(999) == pytest.approx(0.001)  # not below decay_to
    assert Schedule(warm_up=0, learning_rate=0.3).rate(0) == pytest.approx(0.3)


def test_kl_weight_rises_to_one_and_stays():
    assert [S.kl_weight(s) for s in (0, 200, 400, 900)] == pytest.approx([0.2, 0.6, 1.0, 1.0])
    assert Schedule(kl_until=0).kl_weight(0) == 1.0


def test_stages_and_ladder():
    assert [S.stage(s) for s in (0, 99, 100, 299, 300, 699, 700, 999)] == [
        "start", "start", "dense", "dense", "lasso", "lasso", "sparse", "sparse",
    ]  # fmt: skip
    assert [S.ladder(s) for s in (0, 300, 500, 700, 999)] == pytest.approx([0, 0, 0.5, 1, 1])


def test_arrivals_deletions_and_when_all_is_settled():
    assert [s for s in range(1000) if S.prunes(s)] == [600, 800]
    assert [s for s in range(1000) if S.admits(s)] == [250]
    assert [s for s in range(1000) if S.releases(s)] == [700]
    assert S.settled == 801


def test_steps_that_lead_to_graphs():
    """At most so many, in the same stages; all of them where nothing is said."""
    assert S.to_graphs().steps == 150 and S.to_graphs().settled == 121
    assert Schedule(steps=100).to_graphs().steps == 100
    assert Schedule(steps=100, steps_to_graphs=None).to_graphs().steps == 100
    assert Schedule(steps_to_graphs=300).to_graphs() == Schedule(steps=300, steps_to_graphs=300)


def test_steps_until_restarts_are_compared():
    assert S.to_compare().steps == 400 and S.to_compare().settled == 321
    assert Schedule(steps=300).to_compare().steps == 300
    assert Schedule(steps_to_compare=None).to_compare() == Schedule(steps_to_compare=None)


def test_a_ladder_without_rungs_is_climbed():
    assert Schedule(lasso_from=0.0, lasso_until=0.0).ladder(0) == 1.0


def test_as_dict_is_json_and_complete():
    said = json.loads(json.dumps(S.as_dict()))
    assert set(said) == set(Schedule.names())
    assert said["prune_at"] == [0.6, 0.8]


@pytest.mark.parametrize(
    ("setting", "value"),
    [("steps", 0), ("steps", 1.5), ("batch_size", 0), ("em_every", 0), ("evaluate_every", -1)],
)
def test_whole_numbers(setting, value):
    with pytest.raises(ValueError, match=f"{setting}: want a whole number of at least 1, got {value}"):
        Schedule(**{setting: value})


def test_learning_rate_must_be_positive():
    with pytest.raises(ValueError, match="learning_rate: want a positive number, got 0"):
        Schedule(learning_rate=0)


@pytest.mark.parametrize("kind", [Schedule, DependencySchedule, TaskSchedule, TransitionSchedule])
@pytest.mark.parametrize("patience", [-1, 0, 1.5])
def test_patience_is_a_number_of_looks(kind, patience):
    with pytest.raises(
        ValueError, match=f"patience: want a whole number of at least 1, or None, got {patience}"
    ):
        kind(patience=patience)


@pytest.mark.parametrize("prune_at", [0.5, "a", ("a",), (0.5, 1.5), (0.5, (0.6,)), None])
def test_deletions_come_at_shares_of_the_steps(prune_at):
    with pytest.raises(ValueError, match=r"prune_at: want shares of the steps, such as .*, got"):
        Schedule(prune_at=prune_at)


@pytest.mark.parametrize("betas", [0.9, (0.9,), (0.9, 1.0), (-0.1, 0.9), ("a", 0.9), None])
def test_betas_are_two_shares(betas):
    with pytest.raises(ValueError, match=r"betas: want two numbers from 0 to below 1, got"):
        Schedule(betas=betas)


def test_a_linear_decoder_is_screened_half_as_much_unless_a_share_is_set():
    assert [Schedule().screening(linear) for linear in (False, True)] == [0.5, 0.25]
    assert [Schedule(lasso_weight=0.1).screening(linear) for linear in (False, True)] == [0.1, 0.1]


@pytest.mark.parametrize(
    "kind",
    [Schedule, DependencySchedule, TaskSchedule, TransitionSchedule],
)
def test_numbers_of_other_libraries_become_plain(kind):
    given = kind(
        steps=np.int64(20), batch_size=torch.tensor(5), learning_rate=np.float32(0.25), patience=np.array(2)
    )
    assert given == kind(steps=20, batch_size=5, learning_rate=0.25, patience=2)
    assert json.loads(json.dumps(given.as_dict()))["steps"] == 20
    with pytest.raises(ValueError, match="batch_size: want a whole number of at least 1.*, got 0"):
        kind(batch_size=np.int64(0))


WRONG = {
    "a count": (["abc", 1.5, 1e4, True, -1], "a whole number of at least"),
    "a share": ([-0.1, 1.5, "a", float("nan"), True], "a share "),
    "positive": ([0, -1.0, "x", float("inf")], "a positive number"),
    "not negative": ([-3, "x", float("nan")], "a number, 0 or more"),
}
KINDS = [Schedule, DependencySchedule, TaskSchedule, TransitionSchedule]


def limits():
    """Each setting of each schedule that is one number, and what is wrong for it."""
    for kind in KINDS:
        for field in fields(kind):
            like = WHAT.get(field.name)
            for value in WRONG[like][0] if like else ():
                yield kind, field.name, value, WRONG[like][1]


WHAT = {
    **dict.fromkeys(("steps", "batch_size", "evaluate_every", "em_every", "patience", "warm_up"), "a count"),
    **dict.fromkeys(("sparse_steps", "edge_steps", "polish_steps"), "a count"),
    **dict.fromkeys(("steps_to_graphs", "steps_to_compare"), "a count"),
    **dict.fromkeys(
        ("decay_from", "decay_to", "kl_until", "encoder_frozen_until", "reintroduce_at"), "a share"
    ),
    **dict.fromkeys(("lasso_from", "lasso_until", "relax_lasso_from", "axes_at", "unfold_at"), "a share"),
    "penalty": "a share",
    **dict.fromkeys(("learning_rate", "sparse_rate", "ridge", "polish_rate", "edge_rate"), "positive"),
    **dict.fromkeys(("temperature_start", "temperature_end"), "positive"),
    **dict.fromkeys(("kl_start", "lasso_weight", "weight_decay"), "not negative"),
}


@pytest.mark.parametrize(("kind", "name", "value", "wanted"), list(limits()))
def test_every_number_has_limits(kind, name, value, wanted):
    with pytest.raises(ValueError, match=f"^{name}: want {wanted}.*, got {re.escape(repr(value))}$"):
        kind(**{name: value})


@pytest.mark.parametrize("kind", KINDS)
def test_no_setting_is_without_limits(kind):
    assert {field.name for field in fields(kind)} - set(WHAT) <= {"betas", "prune_at", "axes"}


@pytest.mark.parametrize("kind", KINDS)
def test_none_is_possible_where_the_docstring_says_so(kind):
    for field in fields(kind):
        if field.name in {"betas", "prune_at", "axes"}:
            continue
        if "None" in field.type:
            assert getattr(kind(**{field.name: None}), field.name) is None
        else:
            with pytest.raises(ValueError, match=f"^{field.name}: want .*, got None$"):
                kind(**{field.name: None})


def test_several_numbers_of_other_libraries_become_a_tuple():
    given = Schedule(prune_at=np.array([0.5, 0.75]), betas=[np.float32(0.5), 0.75])
    assert given == Schedule(prune_at=(0.5, 0.75), betas=(0.5, 0.75))
    assert json.loads(json.dumps(given.as_dict()))["prune_at"] == [0.5, 0.75]
