"""Fits of programs: restarts, frames, checkpoints, Ctrl-C, and what is said to a slip."""

from __future__ import annotations

import functools
import os
import signal

import numpy as np
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.inference.program import job
from tests._programs import linear

WEIGHT = np.array([[0.9, 0], [0.8, 0], [0.7, 0], [0, 0.9], [0, -0.8], [0, 0.7]])


def simulated(seed=0, rows=150):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, 2)) @ WEIGHT.T + 0.5 * rng.standard_normal((rows, 6))


@functools.cache
def fit_of_program():
    """Made once, for the tests of its edges, too."""
    return ps.fit(ps.Program(linear, 2), simulated(), restarts=3, sweeps=60, progress=False)


@pytest.fixture(scope="module")
def fit():
    return fit_of_program()


def test_the_weights_of_the_best_restart_are_the_true_ones_up_to_order_and_sign(fit):
    true, weights = np.abs(WEIGHT), np.abs(fit.weights[fit.best])
    order = [0, 1] if weights[0, 0] > weights[0, 1] else [1, 0]
    np.testing.assert_allclose(weights[:, order], true, atol=0.2)
    assert (fit.edge_score[fit.best][:, order][true > 0] > 0.95).all()


def test_restarts_are_aligned_and_the_largest_factor_comes_first(fit):
    sizes = (fit.weights[fit.best] ** 2).sum(0)
    assert sizes[0] >= sizes[1] and (fit.alignment["congruence"] > 0.9).all()
    signs = np.sign((fit.weights * fit.weights[fit.best]).sum(1))
    np.testing.assert_array_equal(signs, np.ones((3, 2)))


def test_the_last_position_has_values_on_their_own_support(fit):
    values = fit.values()
    assert (values["sd"] > 0).all() and ((values["eta"] > 0) & (values["eta"] < 1)).all()
    torch.testing.assert_close(values["W"], fit.position["W"][fit.best])


@pytest.mark.slow
def test_a_seed_gives_the_same_bits_and_another_one_does_not(fit):
    again = ps.fit(ps.Program(linear, 2), simulated(), restarts=3, sweeps=60, progress=False)
    other = ps.fit(ps.Program(linear, 2), simulated(), restarts=3, sweeps=60, seed=1, progress=False)
    np.testing.assert_array_equal(again.weights, fit.weights)
    assert not np.array_equal(other.weights, fit.weights)


def test_history_has_a_row_for_each_restart_and_look(fit):
    assert list(fit.history.columns) == ["step", "restart", "log_marginal", "edges"]
    assert len(fit.history) == 3 * 6 and fit.history["step"].max() == 60


@pytest.mark.slow
def test_a_fit_that_was_cut_off_resumes_bit_for_bit(fit, tmp_path, monkeypatch):
    path, advance, made = tmp_path / "run.pt", job.ProgramGroup._advance, []

    def interrupted(group):
        advance(group)
        made.append(group.step)
        if len(made) == 17:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(job.ProgramGroup, "_advance", interrupted)
    settings = {"restarts": 3, "sweeps": 60, "progress": False, "checkpoint": path, "checkpoint_every": 5}
    with pytest.raises(KeyboardInterrupt):
        ps.fit(ps.Program(linear, 2), simulated(), **settings)
    monkeypatch.setattr(job.ProgramGroup, "_advance", advance)
    resumed = ps.fit(ps.Program(linear, 2), simulated(), **settings)
    np.testing.assert_array_equal(resumed.weights, fit.weights)
    np.testing.assert_array_equal(resumed.log_marginal, fit.log_marginal)

    def other(d):
        return linear(d)

    with pytest.raises(ValueError, match="belongs to another fit"):
        ps.fit(ps.Program(other, 2), simulated(), **settings)


@pytest.mark.slow
def test_ctrl_c_once_sweeps_count_returns_the_fit_so_far(monkeypatch):
    advance = job.ProgramGroup._advance

    def interrupted(group):
        advance(group)
        if group.step == 22:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(job.ProgramGroup, "_advance", interrupted)
    with pytest.warns(RuntimeWarning, match="interrupted at sweep 22 of 24"):
        fit = ps.fit(ps.Program(linear, 2), simulated(), restarts=2, sweeps=24, progress=False)
    assert fit.history["step"].max() == 20 and any("interrupted" in warning for warning in fit.warnings)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sweeps": 5}, "sweeps: .*20"),
        ({"restarts": 0}, "restarts"),
        ({"n_jobs": 2}, "n_jobs: the restarts of a program share one pass"),
        ({"steps": 9}, "unknown setting 'steps'"),
    ],
)
def test_a_slip_is_said_before_the_work(arguments, words):
    with pytest.raises((ValueError, TypeError), match=words):
        ps.fit(ps.Program(linear, 2), simulated(rows=20), **{"restarts": 2, "progress": False, **arguments})


def test_a_bare_function_is_told_how_to_become_a_model():
    with pytest.raises(TypeError, match=r"got the function linear.*ps\.Program\(linear"):
        ps.fit(linear, simulated(rows=20))


@pytest.mark.slow
def test_a_saved_fit_comes_back_whole(fit, tmp_path):
    fit.save(path := tmp_path / "fit.pt")
    again = ps.load(path, ps.Program(linear, 2), ps.Data(simulated()))
    np.testing.assert_array_equal(again.weights, fit.weights)
    assert again.settings == fit.settings and again.findings == fit.findings
    short = {"sweeps": 12, "warm_up": 2}
    np.testing.assert_array_equal(
        ps.edge_prob(again.edge_posterior(**short)), ps.edge_prob(fit.edge_posterior(**short))
    )


def test_a_file_wants_its_program_and_its_data(fit, tmp_path):
    fit.save(path := tmp_path / "fit.pt")
    with pytest.raises(ValueError, match="pass model=, the ps.Program, and data="):
        ps.load(path)
    with pytest.raises(ValueError, match="fit of another program"):
        ps.load(path, ps.Program(linear, 3), ps.Data(simulated()))
    with pytest.raises(ValueError, match="other rows or features"):
        ps.load(path, ps.Program(linear, 2), ps.Data(simulated(rows=20)))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="checkpoint"):
        ps.load(path, ps.Program(linear, 2), ps.Data(simulated()))
