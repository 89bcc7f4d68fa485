"""Optimisers without the compiler take torch's steps."""

from __future__ import annotations

import copy

import pytest
import torch

from pyro_sparse._utils.optimisers import eager


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_the_steps_are_those_of_torch_to_the_bit(kind):
    ends, states = [], []
    for made in (kind, eager(kind)):
        p = torch.nn.Parameter(torch.linspace(-2, 2, 7))
        optimiser = made([{"params": [p], "weight_decay": 0.1}], lr=0.05)
        for step in range(6):
            if step == 3:  # from a copy of its state
                optimiser.load_state_dict(copy.deepcopy(optimiser.state_dict()))
            optimiser.zero_grad(set_to_none=True)
            (p**4).sum().backward()
            optimiser.step()
        ends.append(p.detach())
        states.append(optimiser.state_dict()["state"][0]["exp_avg"])
    assert torch.equal(*ends) and torch.equal(*states)


def test_climbs_with_a_closure_are_those_of_torch_to_the_bit():
    ends = []
    for made in (torch.optim.LBFGS, eager(torch.optim.LBFGS)):
        p = torch.nn.Parameter(torch.linspace(-2, 2, 7))
        optimiser = made([p], max_iter=5, line_search_fn="strong_wolfe")

        def loss(p=p, optimiser=optimiser):
            optimiser.zero_grad()
            value = ((p - 1) ** 4).sum()
            value.backward()
            return value

        assert optimiser.step(loss) > loss()
        ends.append(p.detach())
    assert torch.equal(*ends)
