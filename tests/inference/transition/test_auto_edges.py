"""Edges by held-out sequences, in latents that are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.distributions import Normal

import pyro_sparse as ps
from pyro_sparse.data.sequences import as_sequences
from pyro_sparse.inference.transition.auto_edges import choose_edges, flip_gains, transition_density
from pyro_sparse.inference.transition.transition_run import EdgeRun, TransitionRun

TRUE = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1]], bool)


@pytest.fixture(scope="module")
def known():
    """A model whose posterior is the frames themselves: three features, three latents."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(400, 2, 3))
    z[:, 1, 0] = np.sin(2 * z[:, 0, 0])
    z[:, 1, 1] = 0.6 * z[:, 0, 1] + np.cos(2 * z[:, 0, 0])
    z[:, 1, 2] = -0.8 * z[:, 0, 2]
    z[:, 1] += 0.2 * rng.normal(size=(400, 3))
    batch = as_sequences(z, standardise=False).batch()
    torch.manual_seed(0)
    model = ps.models.LatentTransition(3, 3, hidden=4, units=4, gated_units=16)
    model.setup(1, 400)
    model.fold(torch.eye(3)[None], torch.zeros(1, 3, 3))

    class Exact(torch.nn.Module):
        def forward(self, x, mask=None):
            factor = 1e-4 * torch.eye(3).expand(1, len(x), 3, 3)
            return x[None], factor, torch.full((1, len(x)), 3 * float(np.log(1e-4)))

    model.encoder = Exact()
    return model, batch.rows(torch.arange(300)).whole(), batch.rows(torch.arange(300, 400)).whole()


def test_density_by_hand(known):
    model, train, _ = known
    gates = torch.rand(1, 3, 3)
    found = transition_density(model, train, gates)
    loc, log_sd = (part[0] for part in model.gated(train.x[None, :, 0], gates))
    wanted = Normal(loc, log_sd.exp()).log_prob(train.x[:, 1]) + Normal(0, 1).log_prob(train.x[:, 0])
    torch.testing.assert_close(found, wanted.detach(), atol=0.05, rtol=1e-2)


def test_gains_are_those_of_single_flips(known):
    model, train, _ = known
    edges = TRUE.copy()
    gains = flip_gains(model, train, edges)
    now = transition_density(model, train, torch.as_tensor(edges).float()[None]).sum(-1).mean()
    for i, j in ((0, 0), (0, 2), (2, 1)):
        other = edges.copy()
        other[i, j] = not other[i, j]
        then = transition_density(model, train, torch.as_tensor(other).float()[None]).sum(-1).mean()
        wanted = float(now - then) if edges[i, j] else float(then - now)
        assert gains[i, j] == pytest.approx(wanted, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_path_ends_at_the_true_graph_or_one_edge_before_it(known, seed):
    """One standard error keeps an edge that helps held-out sequences by chance: here in half of the seeds."""
    model, train, heldout = known
    torch.manual_seed(seed)
    schedule = ps.inference.TransitionSchedule(steps=1, edge_steps=300, batch_size=100, edge_rate=0.02)
    path = choose_edges(model, train, heldout, schedule)
    edges = path.checkpoints[path.chosen].edges
    assert edges[TRUE].all() and edges[~TRUE].sum() <= 1
    assert any((checkpoint.edges == TRUE).all() for checkpoint in path.checkpoints)
    np.testing.assert_array_equal(model.edge_probability[0].detach().numpy() > 0.5, edges)
    assert model.allowed.all()
    assert not model.must.any()


@pytest.mark.slow
def test_auto_wants_held_out_sequences():
    x = np.random.default_rng(0).normal(size=(40, 3, 4))
    model = ps.models.LatentTransition(4, 2, hidden=4, units=4, gated_units=4)
    settings = {"steps": 3, "edge_steps": 3, "restarts": 1, "progress": False}
    with pytest.raises(ValueError, match="raise holdout"):
        ps.fit(model, x, sparsity="auto", holdout=0, **settings)
    assert ps.fit(model, x, sparsity="auto", **settings).n_restarts == 1


def test_ctrl_c_leaves_the_callers_constraints(known, monkeypatch):
    model, train, heldout = known

    def pressed(run):
        raise KeyboardInterrupt

    monkeypatch.setattr(EdgeRun, "advance", pressed)
    with pytest.raises(KeyboardInterrupt):
        choose_edges(model, train, heldout, ps.inference.TransitionSchedule(steps=1, edge_steps=5))
    assert model.allowed.all()
    assert not model.must.any()


def test_a_bad_level_is_refused_before_anything_is_fitted(monkeypatch):
    def fitted(run):
        raise AssertionError("a dense fit was begun")

    monkeypatch.setattr(TransitionRun, "advance", fitted)
    x = np.random.default_rng(0).normal(size=(40, 3, 4))
    model = ps.models.LatentTransition(4, 2, hidden=4, units=4, gated_units=4)
    for sparsity, holdout in (("few", 0.1), ("auto", 0)):
        with pytest.raises(ValueError, match="sparsity: "):
            ps.fit(model, x, sparsity=sparsity, holdout=holdout, restarts=1, progress=False)
