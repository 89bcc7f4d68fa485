"""Tiny dictionaries around a tiny layer, in double precision."""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import nn

from pyro_sparse.inference.edges.dictionaries.latent_graph import LatentGraph


class TopK(nn.Module):
    """Unit directions, an encoder of its own, k active."""

    def __init__(self, d, n, k, seed):
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        draw = lambda *size: torch.randn(*size, generator=g, dtype=torch.float64)  # noqa: E731
        self.dec = nn.Parameter(nn.functional.normalize(draw(n, d), dim=1))
        self.enc = nn.Parameter(self.dec.detach() + 0.1 * draw(n, d))
        self.bias = nn.Parameter(0.1 * draw(d))
        self.k = k

    def scores(self, x):
        return (x - self.bias) @ self.enc.T + 0.05

    def encode(self, x):
        value, at = torch.relu(self.scores(x)).topk(self.k, -1)
        return torch.zeros(*x.shape[:-1], len(self.enc), dtype=x.dtype).scatter(-1, at, value)

    def decode(self, f):
        return f @ self.dec + self.bias


class Soft(TopK):
    """An encoder whose slope differs from row to row."""

    def encode(self, x):
        return torch.relu(self.scores(x)) ** 2


def pair(seed=0, d_in=5, d_out=4, n_in=8, n_out=7, k=3, soft=False):
    """Dictionary, dictionary, layer, rows."""
    torch.manual_seed(seed)
    layer = nn.Sequential(nn.Linear(d_in, 9), nn.GELU(), nn.Linear(9, d_out)).double()
    x = torch.randn(40, d_in, dtype=torch.float64)
    kind = Soft if soft else TopK
    return TopK(d_in, n_in, k, seed), kind(d_out, n_out, k, seed + 1), layer, x


def graph_of(strength, directions=None, rate=0.5, effect="slope"):
    """A `LatentGraph` of given strengths (output, input), every latent a direction of its own."""
    strength = np.asarray(strength, dtype=float)
    n_out, n_in = strength.shape
    out, into = (np.eye(n_out), np.eye(n_in)) if directions is None else directions
    return LatentGraph(
        csr_array(strength), into, out, np.full(n_in, rate), np.full(n_out, rate),
        [f"in {j}" for j in range(n_in)], [f"out {i}" for i in range(n_out)], 1000, effect,
    )  # fmt: skip
