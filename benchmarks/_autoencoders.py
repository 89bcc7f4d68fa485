"""Small sparse autoencoders, trained here, and activations with a known graph between two sparse codes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TopK(nn.Module):
    """A dictionary of unit directions of which each row uses k; dead latents learn from the error (AuxK)."""

    def __init__(self, d: int, n: int, k: int) -> None:
        super().__init__()
        start = F.normalize(torch.randn(n, d), dim=1)
        self.dec, self.enc = nn.Parameter(start), nn.Parameter(start.clone())
        self.b_dec, self.b_enc = nn.Parameter(torch.zeros(d)), nn.Parameter(torch.zeros(n))
        self.k = k
        self.register_buffer("since", torch.zeros(n))  # rows since it was active

    def scores(self, x: Tensor) -> Tensor:
        return F.relu((x - self.b_dec) @ self.enc.T + self.b_enc)

    def encode(self, x: Tensor) -> Tensor:
        return kept(self.scores(x), self.k)

    def decode(self, f: Tensor) -> Tensor:
        return f @ self.dec + self.b_dec

    def loss(self, x: Tensor, window: int) -> Tensor:
        scores = self.scores(x)
        f = kept(scores, self.k)
        error = x - self.decode(f)
        self.since += len(x)
        self.since[(f > 0).any(0)] = 0
        dead = self.since > window
        total = error.square().mean()
        if dead.any():
            some = kept(scores[:, dead], min(x.shape[1] // 2, int(dead.sum())))
            total = total + (some @ self.dec[dead] - error.detach()).square().mean() / 32
        return total

    @torch.no_grad()
    def only_turn(self) -> None:
        """Take the part of the gradient away that would change a direction's length."""
        self.dec.grad -= (self.dec.grad * self.dec).sum(1, keepdim=True) * self.dec

    @torch.no_grad()
    def normalise(self) -> None:
        self.dec.copy_(F.normalize(self.dec, dim=1))


def kept(scores: Tensor, k: int) -> Tensor:
    """The k greatest of each row, else 0."""
    value, at = scores.topk(k, -1, sorted=False)
    return torch.zeros_like(scores).scatter(-1, at, value)


def trained(
    x: Tensor, n: int, k: int, seed: int, batch: int = 256, lr: float = 2e-3, epochs: int = 1
) -> TopK:
    """A dictionary of the rows of x, each seen `epochs` times; dead is what has not been used for a while."""
    torch.manual_seed(seed)
    sae = TopK(x.shape[1], n, k)
    optimiser = torch.optim.Adam(sae.parameters(), lr)
    steps = epochs * (len(x) // batch)
    order = torch.cat([torch.randperm(len(x))[: len(x) // batch * batch] for _ in range(epochs)])
    for step, rows in enumerate(order.split(batch)):
        for group in optimiser.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / (0.02 * steps), (1 - step / steps) / 0.2)
        optimiser.zero_grad()
        sae.loss(x[rows], window=max(2000, len(order) // 30)).backward()
        sae.only_turn()
        optimiser.step()
        sae.normalise()
    return sae.eval().requires_grad_(False)


class Known(NamedTuple):
    """Activations around a layer, and the graph of the codes behind them."""

    graph: np.ndarray  # (output code, input code)
    weight: np.ndarray
    x: Tensor
    y: Tensor
    codes_in: Tensor
    codes_out: Tensor
    directions_in: Tensor
    directions_out: Tensor


def known_graph(
    seed: int,
    rows: int,
    n_in: int = 96,
    n_out: int = 48,
    d: int = 64,
    active: float = 5.0,
    noise: float = 0.01,
    topics: int = 8,
    boost: float = 30.0,
) -> Known:
    r"""Sparse codes u and :math:`v = \mathrm{relu}(W u - \theta)`, in directions of a space of d dimensions.

    Each output code has at least two parents, and each input code about one child: with more children the
    sparsest code after the layer would be that before it, and its graph the identity. Codes of a topic are
    `boost` times as likely together, so that a correlation is no edge.
    """
    r, g = np.random.default_rng([seed, 17]), torch.Generator().manual_seed(seed)
    graph = np.zeros((n_out, n_in), dtype=bool)
    graph[np.arange(n_in) % n_out, r.permutation(n_in)] = True  # one child each, and two parents
    for j in np.flatnonzero(r.random(n_in) < 0.35):
        graph[r.integers(n_out), j] = True
    weight = graph * r.uniform(0.6, 1.4, graph.shape) * np.where(r.random(graph.shape) < 0.15, -1, 1)
    first = graph.argmax(1)
    weight[np.arange(n_out), first] = np.abs(weight[np.arange(n_out), first])  # at least one excites
    rate = r.permutation(np.geomspace(0.4, 2.0, n_in))
    rate = torch.tensor(rate / rate.mean() * active / n_in).float()
    topic = torch.tensor(r.integers(0, topics, n_in))
    now = torch.randint(topics, (rows,), generator=g)
    lift = 1 + (boost - 1) * (topic == now[:, None]).float()
    on = torch.rand(rows, n_in, generator=g) < (rate * lift * topics / (topics + boost - 1)).clamp_max(0.9)
    u = on * (0.5 + torch.rand(rows, n_in, generator=g))
    theta = torch.tensor(r.uniform(0.1, 0.4, n_out)).float()
    v = F.relu(u @ torch.tensor(weight).float().T - theta)
    into, out = (F.normalize(torch.randn(n, d, generator=g), dim=1) for n in (n_in, n_out))
    x = u @ into + noise * torch.randn(rows, d, generator=g)
    return Known(graph, weight, x, v @ out, u, v, into, out)


def learned_layer(x: Tensor, y: Tensor, seed: int, hidden: int = 768, steps: int = 5000) -> nn.Sequential:
    """A layer linear, GELU, linear that has learned to take x to y."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(x.shape[1], hidden), nn.GELU(), nn.Linear(hidden, y.shape[1]))
    optimiser = torch.optim.Adam(net.parameters(), 2e-3)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = 2e-3 * (1 - step / steps)
        rows = torch.randint(len(x), (512,))
        loss = (net(x[rows]) - y[rows]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return net.eval().requires_grad_(False)


class Scaled:
    """A dictionary that was trained on activations divided by one number."""

    def __init__(self, sae: TopK, unit: float) -> None:
        self.sae, self.unit = sae, unit

    def encode(self, x: Tensor) -> Tensor:
        return self.sae.encode(x / self.unit)

    def decode(self, f: Tensor) -> Tensor:
        return self.sae.decode(f) * self.unit
