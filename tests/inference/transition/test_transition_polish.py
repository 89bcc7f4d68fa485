"""The polish: straighter latents, the same axes, and a way back."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.data.sequences import as_sequences
from pyro_sparse.datasets import transition_data
from pyro_sparse.inference.transition import transition_polish as module
from pyro_sparse.inference.transition.transition_axes import find_axes, latents
from pyro_sparse.inference.transition.transition_polish import polish
from pyro_sparse.inference.transition.transition_run import PolishRun, RefitRun, TransitionRun
from pyro_sparse.metrics import r_score


@pytest.fixture(scope="module")
def trained():
    data = transition_data("ActionDiag", n=2000, d_z=3, d_x=6, seed=1004)
    x, z, a = data.part("train")
    batch = as_sequences(x, actions=a, lag=0).batch()
    torch.manual_seed(0)
    model = ps.models.LatentTransition(6, 3, n_actions=3, lags=0, hidden=32, units=32, gated_units=16)
    model.setup(1, len(batch))
    schedule = ps.inference.TransitionSchedule(
        steps=400, batch_size=256, polish_steps=300, evaluate_every=10_000
    )
    TransitionRun(model, batch, None, schedule).finish()
    return model, batch, schedule, z


@pytest.fixture
def dense(trained):
    """A model of the test's own, trained once."""
    return copy.deepcopy(trained[0]), *trained[1:]


def frames(model, batch):
    return latents(model, batch)[0].detach().numpy().reshape(-1, 3)


@pytest.mark.slow
def test_latents_become_straighter(dense, monkeypatch):
    monkeypatch.setattr(module, "_AROUND", 100)
    model, batch, schedule, z = dense
    before = r_score(z.reshape(-1, 3), frames(model, batch))
    answer = polish(model, find_axes(model, batch), batch, schedule)[0]
    assert r_score(z.reshape(-1, 3), frames(model, batch)) > before
    assert model.dense
    assert model.allowed.all()
    assert not model.must.any()
    assert answer.graph.shape == (3, 3)
    assert (frames(model, batch) @ answer.map.T).std(0) == pytest.approx(np.ones(3), rel=1e-2)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("place", "call"), [(PolishRun, "advance"), (RefitRun, "advance"), (module, "find_axes")]
)
def test_ctrl_c_leaves_the_fit_as_it_was(dense, monkeypatch, place, call):
    model, batch, schedule, _ = dense
    answer, before = find_axes(model, batch), frames(model, batch)

    def pressed(*_, **__):
        raise KeyboardInterrupt

    short = ps.inference.TransitionSchedule(steps=5, batch_size=256, polish_steps=5, evaluate_every=10_000)
    with monkeypatch.context() as patch:
        patch.setattr(place, call, pressed)
        with pytest.raises(KeyboardInterrupt):
            polish(model, answer, batch, short)
    assert model.dense
    assert model.allowed.all()
    np.testing.assert_array_equal(frames(model, batch), before)


@pytest.mark.slow
@pytest.mark.usefixtures("hurried")
def test_a_fit_may_be_polished_and_interrupted(monkeypatch):
    data = transition_data("ActionDiag", n=100, d_z=2, d_x=4, seed=1004)
    x, _, a = data.part("train")
    model = ps.models.LatentTransition(4, 2, n_actions=2, lags=0, hidden=8, units=8, gated_units=4)
    settings = {"restarts": 1, "steps": 110, "edge_steps": 5, "batch_size": 32, "progress": False}
    fit = ps.fit(model, x, actions=a, polish_steps=10, **settings)
    assert fit.settings["polish_steps"] == 10
    assert fit.graph_action.shape == (1, 2, 2)

    def pressed(run):
        raise KeyboardInterrupt

    monkeypatch.setattr(PolishRun, "advance", pressed)
    with pytest.warns(RuntimeWarning, match="interrupted after the dense fit"):
        fit = ps.fit(model, x, actions=a, polish_steps=10, **settings)
    assert "interrupted after the dense fit" in fit.warnings[0]
    assert np.isfinite(fit.transform()).all()
