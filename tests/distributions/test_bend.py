"""Tangents by numpy are torch's."""

from __future__ import annotations

import torch

from pyro_sparse.distributions._bend import tanh_


def test_tangents_are_torchs_and_in_place():
    for dtype, near in ((torch.float32, 3e-7), (torch.float64, 3e-16), (torch.bfloat16, 0.0)):
        h = torch.linspace(-12, 12, 2001).to(dtype)
        h[:3] = torch.tensor([torch.inf, -torch.inf, torch.nan])
        for given in (h.clone(), h.clone().view(3, -1).mT):
            wanted = torch.tanh(given)
            assert tanh_(given) is given and given.dtype == dtype
            torch.testing.assert_close(given, wanted, rtol=near, atol=0, equal_nan=True)
