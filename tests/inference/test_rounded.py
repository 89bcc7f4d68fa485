"""Training steps whose hidden units are bfloat16: near the exact gradients, and nothing else is rounded."""

from __future__ import annotations

import re

import joblib
import numpy as np
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.datasets import sim1
from pyro_sparse.distributions import _sweep
from pyro_sparse.distributions.decoded_cells import DecodedCells, recomputed_predictor
from pyro_sparse.distributions.plain_pass import PlainPass
from pyro_sparse.inference.training.loop import Run
from pyro_sparse.likelihoods import get_likelihood
from pyro_sparse.models import sparse_decoder
from tests._tasks import tasks_on_latents
from tests.distributions.test_decoded_cells import B, G, H, R, gradients, net_of, problem
from tests.inference._quick import DATA, in_a_hurry, quick, same, small

__all__ = ["in_a_hurry"]  # a fixture for every test here

PART = 0.03  # of its norm that a gradient may be off: eight bits are 0.004, and several roundings add up


def near(found, exact):
    """Gradients of the right kind, off by a little, and not by nothing."""
    off = [float((a - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True)]
    assert all(a.dtype == b.dtype for a, b in zip(found, exact, strict=True))
    assert max(off) < PART, off
    assert max(off) > 1e-5, "nothing was rounded"


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("likelihood", ["normal", "poisson"])
def test_gradients_of_a_few_features_at_a_time(activation, likelihood, monkeypatch):
    monkeypatch.setattr(_sweep, "CHUNK_BYTES", 3 * B * H * 2.0)
    decoder, w, permitted, z = problem(activation, torch.float32)
    likelihood = get_likelihood(likelihood)
    likelihood.setup(G, R)
    with torch.no_grad():
        x = likelihood.observation(0.3 * decoder(z, w)).sample()[0]
    leaves, net = [w, z, *decoder.parameters()], net_of(decoder, w)

    def slopes(rounded):
        cells = DecodedCells(likelihood, net, z, permitted=permitted, activation=activation, rounded=rounded)
        value = cells.log_prob(x).sum()
        return value.detach(), gradients(value, leaves, permitted)

    (value, found), (true_value, exact) = slopes(True), slopes(False)
    torch.testing.assert_close(value, true_value, rtol=1e-2, atol=0)
    near(found, exact)
    cells = [
        DecodedCells(likelihood, net, z, permitted=permitted, activation=activation, rounded=one)
        for one in (True, False)
    ]
    with torch.no_grad():
        assert torch.equal(cells[0].log_prob(x), cells[1].log_prob(x))  # a value alone is not rounded


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_gradients_of_all_features_at_once(activation):
    decoder, w, _, z = problem(activation, torch.float32)
    net, one, toward = net_of(decoder, w), PlainPass(activation), torch.randn(R, G, B)

    @torch.no_grad()
    def slopes(rounded):
        f = one.forward(net, z, rounded).clone()
        grads, dz = one.backward(toward)
        return f, [*grads, dz]

    (f, found), (true_f, exact) = slopes(True), slopes(False)
    assert f.dtype == true_f.dtype == torch.float32
    near([f, *found], [true_f, *exact])


def test_gradients_of_coupled_features():
    decoder, w, permitted, z = problem(dtype=torch.float32)
    net, leaves, toward = net_of(decoder, w), [w, z, *decoder.parameters()], torch.randn(R, B, G)
    found, exact = (
        gradients(
            (recomputed_predictor(net, z, permitted, "relu", rounded) * toward).sum(), leaves, permitted
        )
        for rounded in (True, False)
    )
    near(found, exact)


@pytest.mark.slow
@pytest.mark.parametrize("chunks", [True, False])
def test_a_fit(chunks, tmp_path, monkeypatch):
    """Its steps are rounded, and its parameters, and what it says of rows, are single precision."""
    if chunks:
        monkeypatch.setattr(sparse_decoder, "CHUNKED_FROM", 0)
    found, plain = quick(dtype="bfloat16"), quick()
    assert found.settings["dtype"] == "bfloat16" and not found.model.rounded
    assert {p.dtype for p in found.model.parameters()} == {torch.float32}
    assert not np.array_equal(found.weights, plain.weights)
    np.testing.assert_allclose(found.heldout_elbo, plain.heldout_elbo, atol=0.05)
    found.save(tmp_path / "fit.pt")
    loaded = ps.load(tmp_path / "fit.pt")
    np.testing.assert_array_equal(loaded.transform(DATA), found.transform(DATA))
    assert loaded.settings["dtype"] == "bfloat16"


def test_what_a_fit_is_judged_by_is_exact(monkeypatch):
    seen = []
    judge = Run._judged

    def noted(run):
        seen.append(run.model.rounded)
        return judge(run)

    monkeypatch.setattr(Run, "_judged", noted)
    quick(dtype="bfloat16")
    assert seen and not any(seen)


def test_resumed_and_in_processes(tmp_path, monkeypatch):
    whole, advance, steps = quick(dtype=torch.bfloat16), Run.advance, []

    def cut(run):
        steps.append(1)
        if len(steps) == 12:
            raise RuntimeError("cut off")
        advance(run)

    where = {"dtype": "bfloat16", "checkpoint": tmp_path / "run.pt", "checkpoint_every": 5}
    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="cut off"):
        patched.setattr(Run, "advance", cut)
        quick(**where)
    with pytest.raises(ValueError, match="checkpoint"):  # of another fit
        quick(**{**where, "dtype": "float32"})
    same(whole, quick(**where))
    with joblib.parallel_config("sequential"):
        parts = quick(dtype="bfloat16", n_jobs=2)
    assert parts.settings["dtype"] == "bfloat16"
    np.testing.assert_allclose(parts.heldout_elbo, whole.heldout_elbo, atol=0.05)


@pytest.mark.slow
def test_the_same_graph():
    data = sim1(n=500, seed=1003)
    fits = [
        ps.fit(ps.models.SparseDecoder(7, 2), data.x, restarts=2, dtype=dtype, progress=False)
        for dtype in ("float32", "bfloat16")
    ]
    for fit in fits:
        assert ps.metrics.mcc(data.z, fit.transform(data.x)).value > 0.98
    np.testing.assert_array_equal(*[(fit.weights[fit.best] != 0).sum() for fit in fits])
    np.testing.assert_allclose(fits[1].heldout_elbo.max(), fits[0].heldout_elbo.max(), atol=0.1)


def test_where_there_are_no_hidden_units():
    wanted = "dtype: 'bfloat16' rounds the hidden units of a SparseDecoder with decoder='mlp', and this is a "
    x, y, _, _ = tasks_on_latents()
    for model, given, said in (
        (small(decoder="linear"), (DATA,), "SparseDecoder with decoder='linear'; wanted 'float32'"),
        (ps.models.DependencyVAE(7, 2), (DATA,), "DependencyVAE"),
        (ps.models.LatentTransition(7, 2), (DATA[None],), "LatentTransition"),
        (ps.models.MultiTaskRegression(x[0].shape[1], 2), (x, y), "MultiTaskRegression"),
    ):
        with pytest.raises(ValueError, match="^" + re.escape(wanted + said)):
            ps.fit(model, *given, dtype="bfloat16", progress=False)
