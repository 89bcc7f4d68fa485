"""The penalty's record, and what it does in `ps.fit`: gradient, clean reports, resuming, refusals."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, dataclass

import numpy as np
import pandas as pd
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.data.read import Batch
from pyro_sparse.inference import DependencyPenalty, DependencySchedule, LatentPenalty, mean_abs_jacobian
from pyro_sparse.inference.table.dependency_run import DependencyRun
from pyro_sparse.inference.table.sparse_run import SparseRun
from pyro_sparse.models import DependencyVAE, SparseDecoder
from pyro_sparse.rivals import VAE, VSC, HessianPenalty, LatentL1, OrthogonalJacobian

pytestmark = pytest.mark.usefixtures("hurried_module")


DATA = ps.datasets.sim1(n=120, seed=1).x
R, N, G, K = 2, 40, 6, 2
QUICK = {"restarts": 2, "steps": 20, "batch_size": 20, "evaluate_every": 5, "progress": False}


@dataclass(frozen=True)
class Constant(LatentPenalty):
    """No gradient, and a value nobody could overlook."""

    def __call__(self, fn, z, x_hat=None):
        return torch.full(z.shape[:-2], 1e6)


def vae(**options):
    return VAE(7, K, hidden=5, encoder_hidden=4, **options)


def quick(model=None, **options):
    return ps.fit(model or vae(), DATA, **{**QUICK, **options})


def run_of(dependency, model=None, **settings):
    torch.manual_seed(0)
    model = model or VAE(G, K, hidden=4, encoder_hidden=4)
    model.setup(R, N)
    x = torch.randn(N, G, generator=torch.Generator().manual_seed(1))
    dense = isinstance(model, DependencyVAE)
    kind, run = (DependencySchedule, DependencyRun) if dense else (ps.inference.Schedule, SparseRun)
    schedule = kind(**{"steps": 20, "batch_size": 8, "evaluate_every": 5, **settings})
    return run(model, Batch(x, x, None, N), None, schedule, 0, dependency)


def same(one, two):
    for (name, a), (_, b) in zip(one.model.state_dict().items(), two.model.state_dict().items(), strict=True):
        assert torch.equal(a, b), name
    np.testing.assert_array_equal(one.elbo, two.elbo)
    assert one.history.equals(two.history)


# ---- the record


def test_weight_over_the_training():
    steady, rising = LatentPenalty(0.5), LatentPenalty(0.5, (0.2, 0.6))
    assert [steady.weight_at(p) for p in (0.0, 0.5, 1.0)] == [0.5, 0.5, 0.5]
    assert [rising.weight_at(p) for p in (0.0, 0.2, 0.4, 0.6, 0.9)] == pytest.approx([0, 0, 0.25, 0.5, 0.5])
    assert LatentPenalty(0.5, (0.3, 0.3)).weight_at(0.29) == 0


def test_a_record_is_frozen_and_plain():
    penalty = DependencyPenalty(weight=0.1, warm_up=(0.0, 0.5), surrogate="log")
    with pytest.raises(FrozenInstanceError):
        penalty.weight = 1.0
    assert json.loads(json.dumps(penalty.as_dict())) == {
        "penalty": "DependencyPenalty",
        "weight": 0.1,
        "warm_up": [0.0, 0.5],
        "estimator": "auto",
        "surrogate": "log",
        "scaled": True,
        "width": 0.1,
    }
    assert penalty.copies(7) == 9 and DependencyPenalty().copies(7) == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weight": -0.1}, "weight: got -0.1, wanted a number of at least 0"),
        ({"weight": float("nan")}, "weight: got nan"),
        ({"weight": "high"}, "weight: got 'high'"),
        ({"warm_up": (0.5, 0.2)}, r"warm_up: got \(0.5, 0.2\), wanted two shares"),
        ({"warm_up": (0.0, 3.0)}, "0 <= begin <= end <= 1"),
        ({"warm_up": 0.3}, "warm_up: got 0.3"),
        ({"warm_up": (0.1, 0.2, 0.3)}, "warm_up: got"),
        ({"estimator": "all"}, "estimator: got 'all'"),
        ({"surrogate": "log", "estimator": "column"}, "biased for the concave surrogate"),
        ({"surrogate": "log", "width": 0}, "width: got 0"),
    ],
)
def test_complaints_of_the_record(options, words):
    with pytest.raises(ValueError, match=words):
        DependencyPenalty(**options)


def test_a_penalty_must_say_what_it_is():
    with pytest.raises(NotImplementedError, match="LatentPenalty: write __call__"):
        LatentPenalty()(lambda z: z, torch.zeros(3, 2))


# ---- in a fit


def test_a_penalty_of_every_row_is_refused_and_one_that_is_not_finite_named():
    class PerRow(LatentPenalty):
        def __call__(self, fn, z, x_hat=None):
            return z.abs().sum(-1)

    class Broken(LatentPenalty):
        def __call__(self, fn, z, x_hat=None):
            return torch.tensor([1.0, torch.inf])

    with pytest.raises(
        ValueError, match=r"PerRow returned shape \(2, 20\) for latents \(2, 20, 2\), wanted \(2,\)"
    ):
        quick(dependency=PerRow())
    with pytest.raises(
        FloatingPointError, match=r"step 0: .*penalty Broken is not finite in restart\(s\) \[1\]"
    ):
        quick(dependency=Broken())


def test_the_gradient_is_that_of_the_penalty_written_out():
    run = run_of(DependencyPenalty(weight=0.7, estimator="exact"))
    batch = run._next_batch()
    torch.manual_seed(4)
    run._bound(batch)
    _, z, x_hat = run.decoded[-1]
    first, second = (layer.weight for layer in run.model.decoder.layers)
    biases = [layer.bias for layer in run.model.decoder.layers]
    h = torch.bmm(z, first) + biases[0]
    deep = torch.bmm(torch.relu(h), second) + biases[1]
    slopes = torch.einsum(
        "rkh,rbh,rhl,rbl,rlg->rbkg",
        first,
        (h > 0) * 1.0,
        second,
        (deep > 0) * 1.0,
        run.model.decoder.head.weight,
    )
    each = (slopes + run.model.decoder.skip.unsqueeze(1)).abs().sum(-1).mean(1) * z.std(1, correction=0)
    wanted = 0.7 * each.sum()
    found = run._extra_loss()
    torch.testing.assert_close(found, wanted)
    parameters = [first, second, run.model.decoder.skip, *run.encoder_parameters]
    for a, b in zip(
        torch.autograd.grad(found, parameters, retain_graph=True, allow_unused=True),
        torch.autograd.grad(wanted, parameters, allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(a, b)
    assert "decode" not in vars(run.model)


def test_reports_are_clean():
    """A penalty without a gradient changes no bit, however large."""
    plain = quick()
    same(plain, quick(dependency=Constant(weight=5.0)))
    assert plain.settings["dependency"] is None
    same(plain, quick(dependency=DependencyPenalty(warm_up=(1.0, 1.0))))  # never acts
    same(plain, quick(dependency=DependencyPenalty(weight=0.0)))


@pytest.mark.slow(hurried=True)
def test_a_heavy_penalty_leaves_fewer_dependencies():
    strength = {}
    for weight in (0.0, 20.0):
        run = run_of(DependencyPenalty(weight=weight), steps=150, learning_rate=0.03, warm_up=5)
        run.finish()
        z = run.model.encode(run.train)[0]

        def decode(own, model=run.model):
            return model.decode(own, None)

        strength[weight] = mean_abs_jacobian(decode, z, scale="sd").sum((1, 2))
    assert (strength[20.0] < 0.3 * strength[0.0]).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "penalty",
    [
        DependencyPenalty(estimator="column"),
        DependencyPenalty(estimator="difference"),
        DependencyPenalty(surrogate="l0"),
        LatentL1(),
        HessianPenalty(),
        OrthogonalJacobian(),
    ],
)
@pytest.mark.parametrize(
    "make",
    [
        lambda: SparseDecoder(G, K, hidden=4, encoder_hidden=4),
        lambda: SparseDecoder(G, K, decoder="linear", encoder_hidden=4),
        lambda: VAE(G, K, hidden=4, encoder_hidden=4, beta=2.0),
        lambda: VSC(G, K, hidden=4, encoder_hidden=4),
        lambda: DependencyVAE(G, K, hidden=4, encoder_hidden=4),
    ],
)
def test_every_decoder_takes_every_penalty(make, penalty):
    run = run_of(penalty, make(), steps=10)
    run.finish()
    assert run.step == 10 and all(np.isfinite(h["elbo"]) for h in run.history)
    assert all(torch.isfinite(p).all() for p in run.model.parameters())
    assert "decode" not in vars(run.model)


def test_a_fit_says_what_it_was_penalised_by_and_keeps_it(tmp_path):
    penalty = DependencyPenalty(weight=0.2, warm_up=(0.0, 0.5))
    found = quick(dependency=penalty)
    assert found.settings["dependency"] == penalty.as_dict()
    found.save(tmp_path / "fit")
    assert ps.load(tmp_path / "fit").settings["dependency"] == penalty.as_dict()


def test_same_seed_same_bits_resumed_or_not(tmp_path):
    penalty = DependencyPenalty(weight=0.2)
    whole = run_of(penalty)
    whole.finish()
    first = run_of(penalty)
    for _ in range(7):
        first.advance()
    torch.save(first.state(), tmp_path / "state")
    second = run_of(penalty)
    torch.manual_seed(99)
    second.load(torch.load(tmp_path / "state", weights_only=True))
    second.finish()
    for (name, a), b in zip(
        whole.model.state_dict().items(), second.model.state_dict().values(), strict=True
    ):
        assert torch.equal(a, b), name
    assert pd.DataFrame(whole.history).equals(pd.DataFrame(second.history))


def test_a_checkpoint_of_another_penalty_is_refused(tmp_path):
    file = tmp_path / "run"
    quick(dependency=DependencyPenalty(weight=0.2), checkpoint=file)
    with pytest.raises(ValueError, match="belongs to another fit.*dependency"):
        quick(dependency=DependencyPenalty(weight=0.3), checkpoint=file)
    with pytest.raises(ValueError, match="belongs to another fit.*dependency"):
        quick(checkpoint=file)


def test_refusals():
    penalty = DependencyPenalty()
    sequences = np.zeros((5, 10, 4))
    with pytest.raises(
        TypeError, match="dependency: is for tables and activations, and LatentTransition reads none"
    ):
        ps.fit(ps.models.LatentTransition(4, 2), sequences, dependency=penalty, progress=False)
    with pytest.raises(
        TypeError, match="dependency: is for tables and activations, and MultiTaskRegression reads none"
    ):
        ps.fit(ps.models.MultiTaskRegression(4, 2), np.zeros((9, 4)), np.zeros(9), dependency=penalty)
    with pytest.raises(TypeError, match="dependency: got a float, wanted a LatentPenalty"):
        quick(dependency=0.05)
