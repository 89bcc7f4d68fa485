"""Optimisers without the compiler take torch's steps, and a fit does not import the compiler."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch

from pyro_sparse._utils.optimisers import eager

_FIT = """
import sys
import numpy as np
import pyro_sparse as ps
x = np.random.default_rng(0).normal(size=(60, 6))
model = ps.models.SparseDecoder(n_factors=2, decoder="linear")
ps.fit(model, x, restarts=2, steps=30, progress=False)
print(sorted({"torch._dynamo", "sympy"} & set(sys.modules)))
"""


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


def test_a_fit_imports_neither_the_compiler_nor_its_algebra():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", _FIT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
