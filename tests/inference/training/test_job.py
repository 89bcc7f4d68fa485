"""The one loop over restarts, with a family that only counts: what is trained, written and resumed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pyro_sparse.inference.training.interrupt import Stopped
from pyro_sparse.inference.training.job import train
from pyro_sparse.inference.training.ranks import ALONE


class Counted:
    """A group of ten steps; Ctrl-C at some of them, or while it is concluded."""

    def __init__(self, job, restarts):
        self.job, self.restarts, self.step, self.is_concluded = job, restarts, 0, None

    @property
    def is_early(self):
        return self.step < 3

    @property
    def place(self):
        return f"at step {self.step} of 10 of {list(self.restarts)}"

    def load(self, saved):
        self.step = saved["step"]

    def state(self):
        return {"step": self.step}

    def finish(self, show):
        while self.step < 10:
            if (self.restarts.start, self.step) == self.job.pressed_at:
                raise Stopped
            self.step += 1
            self.job.log.append((self.restarts.start, self.step))
            show(SimpleNamespace(step=self.step, history=[], schedule=None, done=self.step == 10))

    def conclude(self, notes, alone, show):
        self.is_concluded = (list(notes), alone)
        if self.job.refuses == self.restarts.start:
            notes.append("interrupted at its end")
            return False
        return True


class Counting:
    """A job of three groups."""

    n_steps, ranks, fingerprint = 30, ALONE, '{"job": "counting"}'

    def __init__(self, pressed_at=None, not_made=None, refuses=None):
        self.pressed_at, self.not_made, self.refuses, self.log = pressed_at, not_made, refuses, []

    def groups(self):
        return [range(0, 2), range(2, 3), range(3, 4)]

    def make(self, restarts):
        if restarts.start == self.not_made:
            raise KeyboardInterrupt
        return Counted(self, restarts)

    def status(self, run):
        raise AssertionError("there is no history to show")

    def conclude(self, trained, notes):
        return [list(group.restarts) for group in trained], notes, trained


def test_all_groups_are_trained_and_concluded():
    groups, notes, trained = train(Counting(), progress=False)
    assert groups == [[0, 1], [2], [3]] and notes == []
    assert [group.is_concluded for group in trained] == [([], True), ([], False), ([], False)]
    assert all(group.step == 10 for group in trained)


def test_ctrl_c_keeps_what_is_worth_a_look():
    job = Counting(pressed_at=(2, 5))
    groups, notes, trained = train(job, progress=False)
    assert groups == [[0, 1], [2]] and notes == ["interrupted at step 5 of 10 of [2]"]
    assert trained[-1].is_concluded == (notes, False) and (3, 1) not in job.log


def test_what_is_not_worth_a_look_is_left_out_or_raises():
    groups, notes, _ = train(Counting(pressed_at=(2, 1)), progress=False)
    assert groups == [[0, 1]] and notes == ["interrupted at step 1 of 10 of [2]"]
    with pytest.raises(KeyboardInterrupt):
        train(Counting(pressed_at=(0, 1)), progress=False)


def test_ctrl_c_while_a_group_is_made():
    groups, notes, _ = train(Counting(not_made=2), progress=False)
    assert groups == [[0, 1]] and notes == ["interrupted when restart 2 was set up"]
    with pytest.raises(KeyboardInterrupt):
        train(Counting(not_made=0), progress=False)


def test_a_group_of_which_nothing_came_is_left_out():
    groups, notes, _ = train(Counting(refuses=2), progress=False)
    assert groups == [[0, 1]] and notes == ["interrupted at its end"]


def test_a_file_resumes_at_the_step_and_leaves_finished_groups_alone(tmp_path):
    path = tmp_path / "run.pt"
    train(Counting(pressed_at=(2, 7)), progress=False, checkpoint=path, checkpoint_every=4)
    again = Counting()
    groups, notes, trained = train(again, progress=False, checkpoint=path)
    assert groups == [[0, 1], [2], [3]] and notes == [] and all(group.step == 10 for group in trained)
    assert again.log == [(2, step) for step in (8, 9, 10)] + [(3, step) for step in range(1, 11)]
    finished = Counting()
    train(finished, progress=False, checkpoint=path)
    assert finished.log == []
