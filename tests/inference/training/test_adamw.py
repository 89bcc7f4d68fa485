"""AdamW of machine code takes torch's steps."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from pyro_sparse._utils.arrays import COMPILED
from pyro_sparse.inference.training import adamw
from pyro_sparse.inference.training.adamw import AdamW

SHAPES = [(2, 3, 5), (4,), (1, 1), (2, 7)]


def parameters(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(s, generator=generator).to(dtype)) for s in SHAPES]


def groups(own):
    return [{"params": own[:2], "weight_decay": 0.1}, {"params": own[2:], "weight_decay": 0.0}]


def steps(optimiser, own, n, seed=1):
    """Move by random gradients of many sizes; in every third step the second parameter has none."""
    generator = torch.Generator().manual_seed(seed)
    for step in range(n):
        for group in optimiser.param_groups:
            group["lr"] = 0.05 / (1 + step)
        for i, p in enumerate(own):
            p.grad = (torch.randn(p.shape, generator=generator) * 10.0 ** (2 * i - 4)).to(p.dtype)
            if i == 1 and step % 3 == 0:
                p.grad = None
        optimiser.step()


@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 2e-6), (torch.float64, 1e-12)])
def test_the_steps_are_those_of_torch(dtype, close):
    ours, theirs = parameters(dtype), parameters(dtype)
    mine = AdamW(groups(ours), lr=0.05, betas=(0.9, 0.99))
    plain = torch.optim.AdamW(groups(theirs), lr=0.05, betas=(0.9, 0.99))
    steps(mine, ours, 40)
    steps(plain, theirs, 40)
    for p, q in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(p.detach(), q.detach(), rtol=close, atol=close)
        for name in ("exp_avg", "exp_avg_sq"):
            torch.testing.assert_close(mine.state[p][name], plain.state[q][name], rtol=10 * close, atol=0)
        assert float(mine.state[p]["step"]) == float(plain.state[q]["step"])
    assert all(bool(own.memory) is COMPILED for own in mine._moved)


def test_a_run_goes_on_where_it_was_saved():
    own = parameters()
    optimiser = AdamW(groups(own), lr=0.05, betas=(0.9, 0.999))
    steps(optimiser, own, 10)
    saved, at = copy.deepcopy(optimiser.state_dict()), [p.detach().clone() for p in own]
    steps(optimiser, own, 5, seed=2)
    wanted = [p.detach().clone() for p in own]
    for p, before in zip(own, at, strict=True):
        p.data.copy_(before)
    steps(optimiser, own, 3, seed=3)  # in the same object, whose memory is of another state
    for p, before in zip(own, at, strict=True):
        p.data.copy_(before)
    optimiser.load_state_dict(saved)
    steps(optimiser, own, 5, seed=2)
    assert all(torch.equal(p.detach(), want) for p, want in zip(own, wanted, strict=True))


@pytest.mark.parametrize("turned", [False, True])
def test_gradients_that_stay_where_they_are(turned):
    (p,), (q,) = (parameters()[3:] for _ in range(2))
    mine = AdamW([{"params": [p], "weight_decay": 0.0}], lr=0.05, betas=(0.9, 0.999))
    plain = torch.optim.AdamW([q], lr=0.05, weight_decay=0.0)
    place = torch.zeros(7, 2).mT if turned else torch.zeros(2, 7)
    for step in range(5):
        place.copy_(torch.arange(14.0).reshape(2, 7) - 3 * step)
        p.grad, q.grad = place if step else place.contiguous(), place.clone()
        mine.step()
        plain.step()
    torch.testing.assert_close(p, q)


def test_torch_takes_the_steps_where_there_is_no_machine_code(monkeypatch):
    monkeypatch.setattr(adamw, "COMPILED", False)
    own = parameters()
    optimiser = AdamW(groups(own), lr=0.05, betas=(0.9, 0.999))
    steps(optimiser, own, 4)
    assert not any(own.memory for own in optimiser._moved)
    assert float(optimiser.state[own[0]]["step"]) == 4
