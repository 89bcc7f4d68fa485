"""Which frames lead to which: several lags, blank frames, gaps, and too few steps of any kind."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.data.sequences import as_sequences
from pyro_sparse.inference.edges.parents.transitions import steps_of
from pyro_sparse.inference.rotation.jacobian_axes import JacobianAxes
from pyro_sparse.inference.transition.transition_axes import _graph, find_axes, latents, seen_steps
from pyro_sparse.metrics import mcc
from tests.inference._transitions import SMALL, model_of


@pytest.mark.parametrize(
    ("past", "gap_a", "graph", "gap"),
    [
        ([[1.0, 0.2, 0.1, 0.05], [0.05, 0.1, 0.8, 0.1]], np.inf, [[1, 0, 0, 0], [0, 0, 1, 0]], np.log(4)),
        ([[1.0, 0.2, 0.1, 0.05], [0.05, 0.1, 0.8, 0.1]], 0.3, [[1, 0, 0, 0], [0, 0, 1, 0]], 0.3),
        ([[0.02, 0.01, 0.01, 0.01], [0.03, 0.02, 0.01, 0.01]], np.inf, np.ones((2, 4)), 0.0),
    ],
    ids=["edges of two lags", "the actions' gap is narrower", "hardly an edge"],
)
def test_with_several_lags_edges_and_gap_are_those_of_each_lag(past, gap_a, graph, gap):
    action = None if gap_a == np.inf else np.array([[1], [0]])
    all_lags = {"graph_z": np.ones((2, 2), dtype=int), "gap": min(5.0, gap_a), "gap_a": gap_a}
    search = {"map": np.eye(2), "strength_z": None, "strength_a": None, "objective": 0.0, "epsilon": 0.1}
    found = JacobianAxes(**search, **all_lags, graph_a=action, agreement=1, n_starts=1)
    model = ps.models.LatentTransition(3, 2, n_actions=0 if action is None else 1, lags=2, hidden=4, units=4)
    got, width = _graph(model, found, np.c_[past, [9.0, 0.0]] if model.n_actions else np.array(past))
    np.testing.assert_array_equal(got, graph if action is None else np.c_[graph, action])
    assert width == pytest.approx(gap)


@pytest.mark.slow
def test_it_finds_the_lag_of_an_edge():
    """Latent 1 is driven by itself two frames ago, latent 2 by latent 1 one frame ago."""
    rng = np.random.default_rng(1)
    z = rng.normal(size=(40, 30, 2))
    for t in range(2, 30):
        led = np.stack([z[:, t - 2, 0], z[:, t - 1, 0]], -1)
        z[:, t] = 1.3 * np.sin(1.5 * led) + 0.3 * z[:, t]
    x = z @ np.array([[1, 0, 1, 1], [0, 1, 1, -1]])
    settings = {"steps": 800, "polish_steps": 0, "edge_steps": 100, "restarts": 3, "progress": False}
    fit = ps.fit(model_of(x, 2, lags=2, hidden=32, units=64), x, **settings)
    order = np.asarray(mcc(z.reshape(-1, 2), fit.transform().reshape(-1, 2)).permutation)
    graph = fit.graph_time[fit.best][:, order][:, :, order]
    np.testing.assert_array_equal(graph, [[[0, 0], [1, 0]], [[1, 0], [0, 0]]])
    assert fit.gap[fit.best] > 0.7


@pytest.mark.parametrize("lags", [0, 1, 2])
def test_steps_lead_from_seen_frames_to_seen_ones(lags):
    rng = np.random.default_rng(0)
    x, a = rng.normal(size=(20, 7, 4)), rng.normal(size=(20, 7, 2))
    x[1, 3], x[2, 0], x[3, 6], x[4, 2, 1], a[5, 4] = np.nan, np.nan, np.nan, np.nan, np.nan
    x, a = [x[0, :5], *x[1:]], [a[0, :5], *a[1:]]
    batch = as_sequences(x, actions=a, lag=lags).batch()
    torch.manual_seed(0)
    model = model_of(x[0], 3, n_actions=2, lags=lags)
    model.setup(2, 20, missing=True)
    z = latents(model, batch)
    inputs, use = seen_steps(model, batch, z)
    want = [
        (s, t)
        for s in range(20)
        for t in range(lags, len(x[s]))
        if not any(np.isnan(x[s][t - back]).all() for back in range(lags + 1)) and (s, t) != (5, 4)
    ]
    assert [(s, t + lags) for s, t in use.nonzero().tolist()] == want
    for row, (s, t) in zip(inputs[1], want, strict=True):
        past = [z[1, s, t - back] for back in range(1, lags + 1)]
        torch.testing.assert_close(row, torch.cat([*past, batch.actions[s, t]]))


def test_too_few_steps_between_seen_frames():
    x = np.random.default_rng(0).normal(size=(30, 4, 4))
    batch = as_sequences(x).batch()
    x[:, ::2] = np.nan
    model = model_of(x, 2)
    model.setup(1, missing=True)
    for bad in (as_sequences(x, like=as_sequences(np.nan_to_num(x))).batch(), batch.rows(torch.arange(0))):
        with pytest.raises(ValueError, match=r"X: has 0 step\(s\) from frames that were seen"):
            find_axes(model, bad)


def test_a_checkpoint_is_of_its_time_stamps(tmp_path):
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 4)), columns=list("abcd"))
    short = {**SMALL, "steps": 5, "polish_steps": 0, "edge_steps": 2}
    options = {"time": "t", "restarts": 1, "checkpoint": tmp_path / "run.pt", **short}
    ps.fit(model_of(table, 2), table.assign(t=np.arange(60)), **options)
    with pytest.raises(ValueError, match="belongs to another fit .data:"):
        ps.fit(model_of(table, 2), table.assign(t=np.r_[:30, 40:70]), **options)


@pytest.mark.parametrize("blank", [False, True])
def test_too_few_steps_are_found_before_the_fit(blank):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(19, 2, 4)) if not blank else rng.normal(size=(25, 2, 4))
    x[:6, 1] = np.nan if blank else x[:6, 1]
    with pytest.raises(ValueError, match=r"X: has 19 step\(s\) from 1 frame.*, wanted at least 20"):
        ps.fit(model_of(x, 2), x, **SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("lags", [0, 1, 2, 3])
def test_a_gap_counts_once(lags):
    """Steps of one sequence with a gap and, later, a missing action: those of the fit and of new data."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4))
    table = pd.DataFrame(x, columns=list("abcd")).assign(t=np.arange(60), u=rng.normal(size=60))
    table = table.drop(index=20)
    table.loc[40, "u"] = np.nan
    columns = {"time": "t", "actions": ["u"]}
    settings = {"restarts": 1, "steps": 5, "polish_steps": 0, "edge_steps": 2, "progress": False}
    fit = ps.fit(model_of(x, 2, n_actions=1, lags=lags), table, **columns, **settings)
    want = set(range(lags, 60)) - {20, 40} - set(range(21, 21 + lags))
    for one in (fit, fit.with_data(table, **columns)):
        led = [t - (t > 20) for t in sorted(want)]
        np.testing.assert_allclose(steps_of(one)[1][0], fit.transform()[0][led])
