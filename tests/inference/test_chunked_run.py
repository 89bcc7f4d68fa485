"""Training a few features at a time: the same steps as the plain pass, resumed, penalised, recorded."""

from __future__ import annotations

import copy

import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.data.read import Batch
from pyro_sparse.inference import DependencyPenalty, Schedule
from pyro_sparse.inference.table.sparse_run import SparseRun
from pyro_sparse.inference.training.elbo import elbo_by_restart, rowwise_elbo
from pyro_sparse.models import SparseDecoder, sparse_decoder

pytestmark = pytest.mark.usefixtures("hurried_module")


R, N, G, K = 2, 40, 8, 3


@pytest.fixture(autouse=True)
def always(monkeypatch):
    monkeypatch.setattr(sparse_decoder, "CHUNKED_FROM", 0)


def batch_of(likelihood, missing):
    torch.manual_seed(1000)
    x = torch.randn(N, G) if likelihood == "normal" else torch.poisson(torch.full((N, G), 2.0))
    mask = torch.rand(N, G) < 0.8 if missing else None
    x = (x if mask is None else x * mask).double()
    per_row = {"exposure": torch.rand(N, 1).double() + 0.5} if likelihood == "poisson" else {}
    return Batch(x, x, mask, N, per_row=per_row)


def run_of(chunked, likelihood="normal", missing=False, dependency=None, **settings):
    torch.manual_seed(1001)
    model = SparseDecoder(G, K, hidden=6, encoder_hidden=4, likelihood=likelihood)
    model.setup(R, N, missing=missing)
    model.double()
    model.chunked = chunked
    with torch.no_grad():
        model.weights.normal_()
        model.allowed[:, :3, 1:] = False
        model.allowed[:, 3] = False
        model.project()
    settings = {"steps": 30, "batch_size": 10, "evaluate_every": 10, "lasso_from": 0.2, **settings}
    batch = batch_of(likelihood, missing)
    return SparseRun(model, batch, batch, Schedule(**settings), 0, dependency)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("likelihood", ["normal", "poisson", "multinomial"])
def test_steps_are_those_of_the_plain_pass(likelihood, missing):
    runs = [run_of(chunked, likelihood, missing) for chunked in (False, True)]
    for run in runs:
        torch.manual_seed(1002)
        for _ in range(12):
            run.advance()
    for (name, one), other in zip(runs[0].model.named_parameters(), runs[1].model.parameters(), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-6, atol=1e-8, msg=name)


def test_elbos_are_those_of_the_plain_pass():
    run = run_of(True)
    plain = copy.deepcopy(run.model)
    plain.chunked = False
    found = []
    for model in (plain, run.model):
        torch.manual_seed(1)
        total = elbo_by_restart(model.model, model.guide, run.train, R)
        torch.manual_seed(1)
        found.append((total, rowwise_elbo(model, run.train, num_draws=2)))
    torch.testing.assert_close(found[1], found[0], rtol=1e-10, atol=1e-10)
    z = torch.randn(R, 5, K).double()
    with torch.no_grad():
        torch.testing.assert_close(run.model.decode(z, plain.weights), plain.decode(z, plain.weights))


def test_resumed_is_bit_identical():
    straight = run_of(True)
    straight.finish()
    first = run_of(True)
    for _ in range(13):
        first.advance()
    state = copy.deepcopy(first.state())
    second = run_of(True)
    second.load(state)
    second.finish()
    states = straight.model.state_dict(), second.model.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert straight.history == second.history


def test_a_penalty_on_the_decoder_takes_the_plain_pass():
    runs = [run_of(chunked, dependency=DependencyPenalty(weight=0.1)) for chunked in (False, True)]
    for run in runs:
        torch.manual_seed(1002)
        run.advance()
    for one, other in zip(runs[0].model.parameters(), runs[1].model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert runs[1].model.chunked and "decode" not in vars(runs[1].model)


def test_the_history_says_which_features_need_no_hidden_units(monkeypatch):
    run = run_of(True, lasso_from=1.0, lasso_until=1.0, prune_at=())
    run.finish()
    assert [row["closed_form"] for row in run.history] == [4] * 2 * 3
    monkeypatch.setattr(sparse_decoder, "CHUNKED_FROM", 1e9)
    small = run_of(True)
    small.finish()
    assert {row["closed_form"] for row in small.history} == {0}


def test_a_small_model_takes_the_plain_pass_and_a_fit_says_so(monkeypatch):
    monkeypatch.setattr(sparse_decoder, "CHUNKED_FROM", 2e6)
    x = torch.randn(60, 6, generator=torch.Generator().manual_seed(1000)).numpy()
    fit = ps.fit(SparseDecoder(6, 2, hidden=5), x, restarts=2, steps=20, progress=False, seed=1000)
    assert (fit.history["closed_form"] == 0).all()
