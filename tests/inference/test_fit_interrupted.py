"""Ctrl-C between the training and the result: what has been trained is in the fit.

Jobs in the background ignore the signal, so that here a function raises what the signal would.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

import pyro_sparse as ps
from pyro_sparse.datasets import transition_data
from pyro_sparse.inference.multitask import job as tasks_module
from pyro_sparse.inference.multitask.job import TaskJob
from pyro_sparse.inference.multitask.task_result import MultiTaskFit
from pyro_sparse.inference.table.restart_runs import RestartRuns
from pyro_sparse.inference.training import restarts as restarts_module
from pyro_sparse.inference.transition import job as transition_module
from pyro_sparse.inference.transition.job import TransitionJob
from tests.inference._quick import in_a_hurry, quick
from tests.inference._transitions import SMALL, model_of

__all__ = ["in_a_hurry"]  # a fixture for every test here

pytestmark = pytest.mark.usefixtures("hurried_module")
SAYS = functools.partial(pytest.warns, RuntimeWarning)


def press(monkeypatch, owner, name, *calls):
    """Let these calls of a function (from 1) be interrupted; the keywords that all of them had."""
    real, seen = getattr(owner, name), []

    def pressed(*arguments, **options):
        seen.append(options)
        if len(seen) in calls:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(owner, name, pressed)
    return seen


@pytest.fixture(scope="module")
def tasks():
    rng = np.random.default_rng(0)
    z, w = rng.normal(size=(40, 20, 2)), rng.normal(size=(40, 2)) * rng.integers(2, size=(40, 2))
    return z @ rng.normal(size=(2, 4)), (z * w[:, None]).sum(-1) + 0.2 * rng.normal(size=(40, 20))


def fit_tasks(tasks, **options):
    settings = {"steps": 60, "sparse_steps": 10, "evaluate_every": 20, "progress": False}
    return ps.fit(ps.models.MultiTaskRegression(4, 2), *tasks, restarts=2, **{**settings, **options})


def fit_sequences(restarts=2, n=60):
    x, _, a = transition_data("ActionDiag", n=n, d_z=2, d_x=4, T=4, seed=1).part("train")
    model = model_of(x, n_latents=2, n_actions=a.shape[-1], lags=0)
    return ps.fit(model, x, actions=a, restarts=restarts, **{**SMALL, "polish_steps": 0})


def test_while_a_second_group_of_restarts_is_set_up(monkeypatch):
    monkeypatch.setattr(restarts_module, "GROUP_BYTES", 1)
    whole = quick()
    press(monkeypatch, RestartRuns, "begin", 3)
    with SAYS(match="^interrupted when restart 2 was set up; this is the fit so far$"):
        fit = quick()
    assert fit.n_restarts == 2
    np.testing.assert_array_equal(fit.history, whole.history.query("restart < 2"))
    press(monkeypatch, RestartRuns, "begin", 1)
    with pytest.raises(KeyboardInterrupt):
        quick()


@pytest.mark.slow(hurried=True)
@pytest.mark.parametrize(("job", "name"), [(TaskJob, "fresh"), (TransitionJob, "run")])
def test_while_a_second_restart_is_set_up(monkeypatch, tasks, job, name):
    press(monkeypatch, job, name, 2)
    with SAYS(match="^interrupted when restart 1 was set up; this is the fit so far$"):
        fit = fit_tasks(tasks) if job is TaskJob else fit_sequences()
    assert fit.n_restarts == 1
    if job is TransitionJob:
        monkeypatch.undo()
        assert fit.heldout_elbo == fit_sequences(restarts=1).heldout_elbo, "judged with its edges"
    press(monkeypatch, job, name, 1)
    with pytest.raises(KeyboardInterrupt):
        _ = fit_tasks(tasks) if job is TaskJob else fit_sequences()


@pytest.mark.slow
def test_while_restarts_of_sequences_are_judged(monkeypatch):
    whole = fit_sequences(n=300)
    monkeypatch.setattr(transition_module, "BRIEF", 10)
    press(monkeypatch, transition_module, "rowwise_elbo", 1)
    with SAYS(match="^interrupted when .* judged: 10 sequences at most told them apart;"):
        fit = fit_sequences(n=300)
    np.testing.assert_array_equal(fit.transform(), whole.transform())
    np.testing.assert_array_equal(fit.graph_action, whole.graph_action)
    assert np.isfinite(fit.heldout_elbo).all() and fit.n_restarts == 2
    press(monkeypatch, transition_module, "rowwise_elbo", 1, 2)
    with pytest.raises(KeyboardInterrupt):
        fit_sequences(n=300)


def test_while_restarts_of_tasks_are_judged(monkeypatch, tasks):
    whole = fit_tasks(tasks)
    press(monkeypatch, MultiTaskFit, "build", 1)
    with SAYS(match="^interrupted when .* judged: 50 tasks at most told them apart;"):
        fit = fit_tasks(tasks)
    np.testing.assert_array_equal(fit.weights, whole.weights)


@pytest.mark.parametrize(
    ("calls", "kept", "says"),
    [
        ((1,), 1, "in the search for the axes of restart 0"),
        ((2,), 1, "in the search for the axes of restart 1"),
        ((1, 2), 0, ""),
    ],
)
def test_in_the_search_for_the_axes_of_tasks(monkeypatch, tasks, calls, kept, says):
    seen = press(monkeypatch, tasks_module, "task_axes", *calls)
    if not kept:
        with pytest.raises(KeyboardInterrupt):
            fit_tasks(tasks)
        return
    with SAYS(match=f"^interrupted {says}; this is the fit so far$"):
        fit = fit_tasks(tasks)
    assert fit.n_restarts == kept and np.isfinite(fit.weights).all()
    assert ("n_starts" in seen[-1]) == (calls == (1,)), "a search for somebody who waits is a brief one"
    assert set(fit.history["stage"]) == ({"dense"} if calls == (1,) else {"dense", "sparse"})


@pytest.mark.parametrize(("call", "kept"), [(2, 1), (4, 1)])
def test_while_weights_of_tasks_are_settled(monkeypatch, tasks, call, kept):
    """Each restart settles after its search and at its end."""
    press(monkeypatch, tasks_module, "settle", call)
    with SAYS(match=f"^interrupted at step 10 of 10 of restart {call // 2 - 1};"):
        fit = fit_tasks(tasks)
    assert fit.n_restarts == kept
    if call == 4:
        monkeypatch.undo()
        own = np.abs(fit_tasks(tasks).weights).sum((1, 2))[0]  # signs are those of the best restart
        assert np.abs(fit.weights).sum() == own
