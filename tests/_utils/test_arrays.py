"""Arithmetic of numpy on a tensor's memory, and functions made machine code."""

from __future__ import annotations

import numpy as np
import torch

from pyro_sparse._utils import arrays as _arrays


def test_what_is_written_to_an_array_is_written_to_its_tensor():
    parameter = torch.nn.Parameter(torch.ones(2, 3))
    xp, own = _arrays.arrays(parameter)
    own *= 2
    assert xp is np and parameter.eq(2).all() and parameter.requires_grad
    assert torch.equal(_arrays.tensor(own.sum(1)), torch.tensor([6.0, 6.0]))
    xp, same = _arrays.arrays(torch.ones(2, device="meta"))
    assert xp is torch and _arrays.tensor(same) is same


def test_where_machine_code_cannot_be_kept_it_is_made_anew(monkeypatch):
    made = []

    def njit(**settings):
        made.append(settings)
        if settings.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(_arrays, "njit", njit)
    assert _arrays.compiled(max) is max
    assert [settings.pop("cache", False) for settings in made] == [True, False] and made[0] == made[1]
