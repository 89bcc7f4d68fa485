"""The loop's steps: order of rows, schedule, proximal maps, deletions, state."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyro_sparse import priors
from pyro_sparse.data.read import Batch
from pyro_sparse.inference import Schedule
from pyro_sparse.inference.table.sparse_run import SparseRun
from pyro_sparse.inference.training.loop import stopped_at
from pyro_sparse.models import SparseDecoder
from pyro_sparse.rivals import VAE, VSC

R, N, G, K = 2, 40, 6, 2


def batch_of(n=N, seed=1):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n, K, generator=generator)
    x = z @ torch.tensor([[1.0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]]) + 0.3 * torch.randn(
        n, G, generator=generator
    )
    return Batch(x, x, None, n)


def run_of(model=None, heldout=True, **settings):
    torch.manual_seed(0)
    model = model or SparseDecoder(G, K, hidden=4, encoder_hidden=4)
    model.setup(R, N)
    schedule = Schedule(**{"steps": 20, "batch_size": 8, "evaluate_every": 5, **settings})
    return SparseRun(model, batch_of(), batch_of(10, 2) if heldout else None, schedule, first_restart=3)


def test_every_row_is_seen_once_before_any_twice():
    run = run_of()
    seen = []
    for _ in range(2):
        rows = torch.cat([run._next_batch().x for _ in range(N // 8)])
        seen.append(rows)
        assert torch.equal(rows.sort(0).values, run.train.x.sort(0).values)
    assert not torch.equal(*seen)
    assert run._next_batch().total == N
    large = run_of(batch_size=1000)
    assert len(large._next_batch()) == N


def test_history_has_a_row_per_restart_and_entry():
    run = run_of()
    run.finish()
    assert [(h["step"], h["restart"]) for h in run.history] == [
        (s, r) for s in (5, 10, 15, 20) for r in (3, 4)
    ]
    assert {h["stage"] for h in run.history} <= {"start", "dense", "lasso", "sparse"}
    assert all(np.isfinite([h["elbo"], h["heldout_elbo"]]).all() for h in run.history)
    assert run.history[-1]["edges"] == int((run.model.weights[1] != 0).sum())
    without = run_of(heldout=False)
    without.finish()
    assert all(np.isnan(h["heldout_elbo"]) for h in without.history)


def test_the_encoder_waits():
    run = run_of(encoder_frozen_until=0.5, warm_up=0)
    before = {n: p.detach().clone() for n, p in run.model.encoder.named_parameters()}
    head = run.model.decoder.head.detach().clone()
    for _ in range(10):
        run.advance()
    assert all(torch.equal(p, before[n]) for n, p in run.model.encoder.named_parameters())
    assert not torch.equal(head, run.model.decoder.head)
    run.advance()
    assert not torch.equal(run.model.encoder.skip, before["skip"])


def test_training_raises_the_elbo():
    run = run_of(steps=100, warm_up=5)
    run.finish()
    first, last = (np.mean([h["elbo"] for h in run.history if h["step"] == s]) for s in (5, 100))
    assert last > first + 1


@pytest.mark.parametrize(
    "make", [lambda: VAE(G, K, hidden=4, encoder_hidden=4), lambda: VSC(G, K, hidden=4, encoder_hidden=4)]
)
def test_models_without_weights(make):
    run = run_of(make())
    run.finish()
    assert run.step == 20 and run.history[-1]["edges"] == 0


def test_patience_stops_only_after_everything_settled():
    run = run_of(steps=40, evaluate_every=1, patience=2, learning_rate=1e-12)
    run.finish()
    assert run.schedule.settled < run.step < 40
    endless = run_of(steps=40, evaluate_every=4, patience=None, learning_rate=1e-12)
    endless.finish()
    assert endless.step == 40


@pytest.mark.parametrize(("gain", "counts"), [(0.0, False), (0.0009, False), (0.0011, True), (0.01, True)])
def test_a_thousandth_of_a_nat_is_a_gain(gain, counts, monkeypatch):
    """While it trains, and by `stopped_at` for parts that ran to their end."""
    run = run_of(steps=40, evaluate_every=1, patience=3, learning_rate=1e-12, prune_at=(), lasso_until=0.3)
    settled = run.schedule.settled
    assert settled + 6 < 40

    def judged(run):
        return np.array([-5.0 + gain * (run.step > settled + 2), -7.0])

    monkeypatch.setattr(SparseRun, "_judged", judged)
    run.finish()
    assert run.step == settled + (6 if counts else 3)
    later = [{**row, "step": run.step + i} for row in run.history[-R:] for i in (1, 2)]  # of a part alone
    assert stopped_at([*run.history, *later], run.schedule) == run.step


def test_the_priors_hooks_are_called_in_their_stages():
    calls, run = [], None

    class Spy(priors.SpikeSlabLasso):
        def anneal(self, progress):
            calls.append(("anneal", progress))
            super().anneal(progress)

        def update(self, weights, prob=None):
            calls.append(("update", run.step))
            super().update(weights, prob)

        def prox(self, weights, step):
            if run is not None:  # before it begins a run asks whether there is a proximal map
                calls.append(("prox", run.step))
            return super().prox(weights, step)

    run = run_of(SparseDecoder(G, K, prior=Spy(), hidden=4, encoder_hidden=4), steps=40, em_every=2)
    run.finish()
    steps = {name: [v for n, v in calls if n == name] for name in ("anneal", "update", "prox")}
    stages = [run.schedule.stage(s) for s in range(40)]
    assert steps["prox"] == [s for s in range(40) if stages[s] == "sparse"]
    assert steps["update"] == [s for s in range(0, 40, 2) if stages[s] in ("lasso", "sparse")]
    assert steps["anneal"][0] == 0 and steps["anneal"][-1] == 1 and len(steps["anneal"]) == 40
    assert run.model.prior.lambda0 == run.model.prior.spike_rate


def test_required_weights_are_not_shrunk():
    model = SparseDecoder(G, K, hidden=4, encoder_hidden=4, required=[(0, 1)])
    run = run_of(model, steps=40, prune_at=(0.5,), lasso_from=0.0)
    run.finish()
    assert (model.weights[:, 0, 1] != 0).all()


def test_the_proximal_step_is_adams_own():
    run = run_of(encoder_frozen_until=0, warm_up=0, learning_rate=0.01)
    run.advance()
    gradient = run.model.weights.grad
    # after one step Adam's second moment, bias-corrected, is the squared gradient
    expected = 0.01 / (gradient.abs() + 1e-8)
    torch.testing.assert_close(run._preconditioner(0.01), expected, rtol=1e-4, atol=1e-8)


def test_a_step_that_is_not_finite_says_where():
    run = run_of()
    run.advance()
    with torch.no_grad():
        run.model.decoder.intercept[1] = torch.nan
    with pytest.raises(
        FloatingPointError, match=r"step 1: site 'x' .*restart\(s\) \[1\]; lower learning_rate"
    ):
        run.advance()


def test_state_resumes_to_the_bit(tmp_path):
    through = run_of()
    through.finish()
    first = run_of()
    for _ in range(11):
        first.advance()
    torch.save(first.state(), tmp_path / "state.pt")
    torch.manual_seed(99)
    torch.randn(5)
    second = run_of()
    second.load(torch.load(tmp_path / "state.pt", weights_only=True))
    second.finish()
    assert second.history == through.history
    for (name, a), (_, b) in zip(
        second.model.state_dict().items(), through.model.state_dict().items(), strict=True
    ):
        assert torch.equal(a, b), name
