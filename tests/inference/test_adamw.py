"""The short AdamW against torch's own, through held parameters, decay and a saved state."""

from __future__ import annotations

import torch

from pyro_sparse.inference.adamw import AdamW


def parameters():
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(s, generator=generator)) for s in ((3, 4), (5,), (2, 2), (1,))]


def groups(own):
    return [{"params": own[:2], "weight_decay": 0.0}, {"params": own[2:3]}, {"params": own[3:]}]


def steps(own, optimiser, n, first=0):
    for step in range(first, first + n):
        generator = torch.Generator().manual_seed(step)
        for i, p in enumerate(own):
            held = i == 1 and (step < 3 or step == 5)
            p.grad = None if held else torch.randn(p.shape, generator=generator)
        for group in optimiser.param_groups:
            group["lr"] = 0.01 / (1 + step)
        optimiser.step()


def test_same_bits_as_torch():
    short, long = parameters(), parameters()
    own = AdamW(groups(short), lr=0.01, weight_decay=0.2)
    theirs = torch.optim.AdamW(groups(long), lr=0.01, weight_decay=0.2, fused=True)
    steps(short, own, 7)
    steps(long, theirs, 7)
    for a, b in zip(short, long, strict=True):
        assert torch.equal(a, b)
        for name, value in theirs.state[b].items():
            assert torch.equal(own.state[a][name], value), name


def test_goes_on_from_a_state():
    """Saved after four steps and loaded into another: the same bits as without a break."""
    whole, first = parameters(), parameters()
    straight, broken = (AdamW(groups(p), lr=0.01, weight_decay=0.2) for p in (whole, first))
    steps(whole, straight, 8)
    steps(first, broken, 4)
    again = AdamW(groups(first), lr=0.01, weight_decay=0.2)
    again.load_state_dict(broken.state_dict())
    steps(first, again, 4, first=4)
    assert all(torch.equal(a, b) for a, b in zip(whole, first, strict=True))
