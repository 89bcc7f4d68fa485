"""A run of sequences ends with its best state on held-out ones, each restart with its own."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse._utils.torch_state import undisturbed
from pyro_sparse.data.sequences import as_sequences
from pyro_sparse.inference.training import checkpoint as files
from pyro_sparse.inference.training.elbo import rowwise_elbo
from pyro_sparse.inference.transition.transition_axes import find_axes
from pyro_sparse.inference.transition.transition_notes import fell
from pyro_sparse.inference.transition.transition_polish import polish
from pyro_sparse.inference.transition.transition_run import UNDONE, EdgeRun, TransitionRun

FEW = {"steps": 240, "batch_size": 512, "evaluate_every": 20, "warm_up": 20, "learning_rate": 0.03}


def panel(n=20, frames=6):
    """Two latents, the first drives the second."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(n, frames, 2))
    for t in range(1, frames):
        z[:, t, 0] = np.tanh(2 * z[:, t - 1, 0]) + 0.5 * z[:, t, 0]
        z[:, t, 1] = np.sin(2 * z[:, t - 1, 0]) + 0.5 * z[:, t, 1]
    return z @ rng.normal(size=(2, 5)) + 0.1 * rng.normal(size=(n, frames, 5))


def run_of(restarts=1, heldout=True, **settings):
    data = as_sequences(panel()).batch()
    train, aside = (data.rows(torch.arange(*ends)).whole() for ends in ((0, 14), (14, 20)))
    torch.manual_seed(0)
    model = ps.models.LatentTransition(5, 2, hidden=64, units=64, gated_units=8)
    model.setup(restarts, 14)
    schedule = ps.inference.TransitionSchedule(**{**FEW, **settings}).decided(1, 14)
    return TransitionRun(model, train, aside if heldout else None, schedule)


def heldout_elbo(model, batch):
    with undisturbed(seed=0, threads=None):
        return rowwise_elbo(model, batch, 4).mean(-1).numpy()


def stop(run, step):
    if run.step == step:
        raise KeyboardInterrupt


@pytest.fixture(scope="module")
def overfitted():
    run = run_of(restarts=2)
    run.finish()
    return run


def test_every_restart_ends_with_its_own_best(overfitted):
    path = pd.DataFrame(overfitted.history).pivot(index="step", columns="restart", values="heldout_elbo")
    assert (path.iloc[-1] < path.max() - 5).all()  # or this shows nothing
    assert path.idxmax().nunique() == 2
    np.testing.assert_allclose(heldout_elbo(overfitted.model, overfitted.heldout), path.max(), rtol=1e-5)
    for row in overfitted.history:
        assert row["stage"] == (UNDONE if row["step"] > path.idxmax()[row["restart"]] else "dense")


def test_nothing_changes_where_the_last_state_is_the_best_or_nothing_was_kept_aside():
    runs = []
    for heldout in (True, False):
        runs.append(run_of(steps=40, heldout=heldout))
        runs[-1].finish()
        assert {row["stage"] for row in runs[-1].history} == {"dense"}
    for name, value in runs[0].model.state_dict().items():
        assert torch.equal(value, runs[1].model.state_dict()[name])


def test_a_worse_last_state_within_its_error_stays():
    run = run_of(steps=20)
    run.finish()
    own = [p.detach().clone() for p in run.trained]
    rows = torch.tensor([[0.0, 0.0, 0.0, 0.0]])
    for lost, back in ((torch.tensor([[2.0, -2.0, 2.0, -1.0]]), False), (torch.full((1, 4), 0.1), True)):
        best = [p + 1 for p in own]
        run.kept = {"step": [10], "rows": rows + lost, "last": rows, "parts": best}
        run.settle()
        wanted = best if back else own
        assert all(torch.equal(p, w) for p, w in zip(run.trained, wanted, strict=True))
        assert (run.history[-1]["stage"] == UNDONE) == back


@pytest.mark.slow
def test_a_resumed_run_goes_back_to_the_same_state(overfitted, tmp_path):
    """Stopped when the best state lies behind it, and after the end."""

    for steps in (200, 240):
        run = run_of(restarts=2)
        with pytest.raises(KeyboardInterrupt):
            run.finish(lambda run, steps=steps: stop(run, steps))
        files.write_run(tmp_path / "run.pt", "{}", [], run.state())
        again = run_of(restarts=2)
        again.load(files.read_run(tmp_path / "run.pt", "{}")[1])
        again.finish()
        assert again.history == overfitted.history
        for name, value in overfitted.model.state_dict().items():
            assert torch.equal(again.model.state_dict()[name], value)


@pytest.mark.usefixtures("hurried")
@pytest.mark.slow
def test_a_polish_that_loses_sequences_kept_aside_is_undone():
    run = run_of()
    run.finish()
    before = heldout_elbo(run.model, run.heldout)
    schedule = ps.inference.TransitionSchedule(**{**FEW, "polish_steps": 120, "polish_rate": 0.03}).decided(
        1, 14
    )
    found = find_axes(run.model, run.train)
    state = {name: value.clone() for name, value in run.model.state_dict().items()}
    polish(run.model, found, run.train, schedule)
    without = heldout_elbo(run.model, run.heldout)
    run.model.load_state_dict(state)
    polish(run.model, found, run.train, schedule, heldout=run.heldout)
    assert without < before - 3  # or this shows nothing
    assert heldout_elbo(run.model, run.heldout) > before - 1


def test_free_edges_are_not_taken_back():
    run = run_of(steps=20)
    run.finish()
    model = run.model
    schedule = ps.inference.TransitionSchedule(steps=20, edge_steps=20).decided(1, 14)
    assert not EdgeRun(model, run.train, run.heldout, schedule.of_edges()).keeps
    model.must.fill_(True)
    assert EdgeRun(model, run.train, run.heldout, schedule.of_edges()).keeps


@pytest.mark.usefixtures("hurried")
@pytest.mark.slow
def test_a_fit_says_that_it_went_back_and_reports_what_it_kept():
    model = ps.models.LatentTransition(5, 2, hidden=64, units=64, gated_units=8)
    settings = {
        **FEW,
        "steps": 400,
        "polish_steps": 40,
        "edge_steps": 100,
        "holdout": 0.3,
        "restarts": 1,
        "seed": 0,
    }
    fit = ps.fit(model, panel(), progress=False, **settings)
    path = fit.history.groupby("stage")["heldout_elbo"]
    assert path.last()[UNDONE] < path.last()["dense"] - 20
    assert fit.heldout_elbo[0] > path.last()["dense"] - 2
    fell_from = f"held-out ELBO fell from {path.last()['dense']:.0f} at step "
    assert any(note.startswith(fell_from) for note in fit.warnings)


def history(dense, undone=(), edges=()):
    rows = [("dense", v) for v in dense] + [(UNDONE, v) for v in undone] + [("edges", v) for v in edges]
    table = pd.DataFrame(rows, columns=["stage", "heldout_elbo"])
    table["step"] = 100 * np.arange(1, len(table) + 1)
    table.loc[table["stage"] == "edges", "step"] -= 100 * (len(table) - len(edges))
    return table.assign(restart=0)


def test_what_is_said_of_a_held_out_elbo_that_fell():
    assert fell(history([1.0, 5.0], [4.0], edges=[2.0, 4.0]), 0, 4.0, 10.0) == []
    assert fell(history([], edges=[2.0, -40.0]), 1, -40.0, 10.0) == []  # another restart's
    (went_back,) = fell(history([1.0, 122.0], [5.0, -1261.0], [120.0]), 0, 120.0, 20.0)
    assert str(went_back).startswith(
        "held-out ELBO fell from 122 at step 200 to -1261 at step 400: overfit, so"
    )
    assert "went back" in str(went_back)
    (stayed,) = fell(history([1.0, 122.0, 90.0]), 0, 110.0, 20.0)
    assert "from 122 at step 200 to 90 at step 300: overfit; fewer steps" in str(stayed)
    drop, reported = fell(history([1.0, 122.0], edges=[90.0, 40.0]), 0, 40.0, 20.0)
    assert "of the edges' networks fell from 90 at step 100 to 40 at step 200" in str(drop)
    assert str(reported).startswith("held-out ELBO, 40, is that of the edges' networks, and was 122 in the")
