r"""The masked decoder feature by feature: values and gradients of a few features at a time, nothing stored.

A plain pass keeps every hidden unit of every row and feature until the gradient has come back; here a chunk
of features that fits in the cache goes forth and back at once. Features that follow one factor or none need
no hidden layer of their own. With :math:`t = w_{jk} z_k` alone, a relu decoder is

.. math:: f_j = c_j + u_j t + v_j^\top \mathrm{relu}(b + t_+ P_k^+ + t_- P_k^-), \qquad
          P_k^{\pm} = \mathrm{relu}(\pm A_k) B,

a piecewise-linear function of t whose bends all features of that factor and weight share (rows of W are scaled
to 1, so these are two for each factor), and a feature without factors is a constant.
Everything here is of one restart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["MaskedNet", "Routes", "routes", "sweep", "values"]

CHUNK_BYTES = 1.5e6  # one buffer of hidden units; larger ones fall out of the cache, smaller ones pay for calls

Score = Callable[[Tensor, Tensor], Tensor]


class MaskedNet(NamedTuple):
    """Tensors of a masked decoder, with or without a leading restart dimension.

    Parameters
    ----------
    weights : Tensor (feature, factor)
    first : Tensor (factor, hidden)
    trunk : Tensor (hidden, hidden)
    bias : Tensor (1, hidden)
    slope : Tensor (feature, 1)
    head : Tensor (feature, hidden)
    intercept : Tensor (1, feature)
    """

    weights: Tensor
    first: Tensor
    trunk: Tensor
    bias: Tensor
    slope: Tensor
    head: Tensor
    intercept: Tensor

    def restart(self, r: int) -> MaskedNet:
        """The tensors of one restart."""
        return MaskedNet(*(part[r] for part in self))


class Routes(NamedTuple):
    """How each feature is evaluated.

    Parameters
    ----------
    constant : Tensor of int
        Features that follow no factor.
    rays : list of (factor, weight, features)
        Features that follow one factor with one weight.
    dense : Tensor of int
        The rest: both hidden layers.
    """

    constant: Tensor
    rays: list[tuple[int, float, Tensor]]
    dense: Tensor


def routes(weights: Tensor, open_: Tensor | None, activation: str, gradient: bool) -> Routes:
    """Sort the features by what their row of W needs.

    Parameters
    ----------
    weights : Tensor (feature, factor)
    open_ : Tensor of bool (feature, factor), optional
        Edges that may move away from zero, default all. A zero weight that may move needs a gradient, and
        that of a relu through its hidden units needs them all (unless the whole row is zero: it has none).
    activation : {"relu", "tanh"}
    gradient : bool
        Whether gradients are wanted: if not, `open_` does not matter.
    """
    there = weights != 0
    count = there.sum(1)
    relu = activation == "relu"
    if gradient:
        still = torch.zeros_like(there[:, 0]) if open_ is None else ~(open_ & ~there).any(1)
    else:
        still = torch.ones_like(there[:, 0])
    constant = (count == 0) & (still | relu)
    single = (count == 1) & still & relu
    rays: dict[tuple[int, float], list[int]] = {}
    if single.any():
        rows = single.nonzero().flatten()
        factors = there[rows].to(torch.uint8).argmax(1).tolist()
        sizes = weights[rows].sum(1).tolist()
        for j, k, w in zip(rows.tolist(), factors, sizes, strict=True):
            rays.setdefault((k, w), []).append(j)
    found = [(k, w, torch.tensor(own, device=weights.device)) for (k, w), own in rays.items()]
    return Routes(constant.nonzero().flatten(), found, (~(constant | single)).nonzero().flatten())


@torch.no_grad()
def values(net: MaskedNet, z: Tensor, activation: str = "relu") -> Tensor:
    """Linear predictor (row, feature) of factors (row, factor): a few features at a time, by `routes`."""
    way = routes(net.weights, None, activation, gradient=False)
    f = torch.empty(len(net.weights), len(z), dtype=z.dtype, device=z.device)
    line = _lines(net, z)
    _simple_values(net, z, way, f, activation)
    for own in _chunks(net, z, way.dense):
        f[own] = _Chunk(net, z, own, activation).forward()
    return f.add_(line).T


@torch.no_grad()
def sweep(
    net: MaskedNet, z: Tensor, score: Score, open_: Tensor | None = None, activation: str = "relu"
) -> tuple[MaskedNet, Tensor]:
    r"""Gradients of a sum over cells, :math:`\sum_{ij} \ell_{ij}(f_{ij})`, by the decoder and the factors.

    Parameters
    ----------
    net : MaskedNet
        Of one restart.
    z : Tensor (row, factor)
    score : callable
        ``score(features, f)``, with `f` (feature, row) the linear predictor of the features with these
        numbers, returns the derivatives :math:`\ell'` (feature, row). It is asked once about each feature.
    open_ : Tensor of bool (feature, factor), optional
        Edges whose weight may move, default all; the gradient of the others is left out.
    activation : {"relu", "tanh"}

    Returns
    -------
    MaskedNet, Tensor (row, factor)
        Gradients, shaped like `net` and `z`.
    """
    grads, dz = MaskedNet(*(torch.zeros_like(part) for part in net)), torch.zeros_like(z)
    way = routes(net.weights, open_, activation, gradient=True)
    scores = torch.empty(len(net.weights), len(z), dtype=z.dtype, device=z.device)
    line = _lines(net, z)
    simple = torch.cat([way.constant, *(own for _, _, own in way.rays)])
    if len(simple):
        f = torch.empty_like(scores)
        _simple_values(net, z, way, f, activation)
        scores[simple] = score(simple, f[simple] + line[simple])
        _simple_gradients(net, z, way, scores, grads, dz, activation)
    for own in _chunks(net, z, way.dense):
        chunk = _Chunk(net, z, own, activation)
        scores[own] = score(own, chunk.forward().add_(line[own]))
        chunk.backward(scores[own], grads, dz)
    toward = scores @ z
    grads.weights.addcmul_(toward, net.slope)
    grads.slope.copy_((toward * net.weights).sum(1, keepdim=True))
    grads.intercept.copy_(scores.sum(1))
    dz.addmm_(scores.T, net.weights * net.slope)
    if open_ is not None:
        grads.weights.mul_(open_)
    return grads, dz


def _lines(net: MaskedNet, z: Tensor) -> Tensor:
    """Intercept and straight part of every feature, (feature, row)."""
    return torch.addmm(net.intercept.view(-1, 1), net.weights * net.slope, z.T)


def _chunks(net: MaskedNet, z: Tensor, features: Tensor) -> tuple[Tensor, ...]:
    """Features whose hidden units fit in the cache together."""
    each = max(1, len(z) * net.first.shape[1] * z.element_size())
    return features.split(max(1, int(CHUNK_BYTES // each))) if len(features) else ()


# ---- features that need both hidden layers -----------------------------------------------------------------
class _Chunk:
    """A few features forth and back; hidden units (feature * row, hidden) are overwritten on the way back."""

    def __init__(self, net: MaskedNet, z: Tensor, own: Tensor, activation: str):
        self.net, self.z, self.own, self.relu = net, z, own, activation == "relu"
        self.w, self.head = net.weights[own], net.head[own]

    def forward(self) -> Tensor:
        """Curved part of the linear predictor, (feature, row)."""
        net, n_rows = self.net, len(self.z)
        self.masked = (self.z * self.w.unsqueeze(1)).view(len(self.own) * n_rows, -1)
        bend = torch.relu_ if self.relu else torch.tanh_
        self.h1 = bend(self.masked @ net.first)
        self.h2 = bend(torch.addmm(net.bias, self.h1, net.trunk))
        self.cube = self.h2.view(len(self.own), n_rows, -1)
        return torch.bmm(self.cube, self.head.unsqueeze(-1)).squeeze(-1)

    def backward(self, score: Tensor, grads: MaskedNet, dz: Tensor) -> None:
        """Add the gradients given those of the linear predictor, (feature, row)."""
        net, own = self.net, self.own
        grads.head[own] = torch.bmm(score.unsqueeze(1), self.cube).squeeze(1)
        down = score.unsqueeze(-1) * self.head.unsqueeze(1)
        d2 = self._through(down.view_as(self.h2), self.h2)
        grads.trunk.addmm_(self.h1.T, d2)
        grads.bias.add_(d2.sum(0))
        d1 = self._through(d2 @ net.trunk.T, self.h1)
        grads.first.addmm_(self.masked.T, d1)
        back = (d1 @ net.first.T).view(len(own), len(self.z), -1)
        grads.weights[own] = (back * self.z).sum(1)
        dz.add_((back * self.w.unsqueeze(1)).sum(0))

    def _through(self, down: Tensor, h: Tensor) -> Tensor:
        """Gradient before a layer's bend, given that behind it and the layer's units."""
        return _through_relu(down, h) if self.relu else down.mul_(1 - h * h)


def _through_relu(down: Tensor, h: Tensor) -> Tensor:
    return torch.ops.aten.threshold_backward.grad_input(down, h, 0, grad_input=down)


# ---- features that follow one factor or none ---------------------------------------------------------------
def _bends(net: MaskedNet) -> Tensor:
    """What the trunk makes of each factor alone, upwards and downwards: (factor, 2, hidden)."""
    both = torch.stack([torch.relu(net.first), torch.relu(-net.first)], 1)
    return both @ net.trunk


def _ray(net: MaskedNet, bends: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """Positive and negative part of t (row,), as (row, 2), and the second layer's units, (row, hidden)."""
    parts = torch.stack([t, -t], 1).clamp_min_(0)
    return parts, torch.addmm(net.bias, parts, bends).relu_()


def _simple_values(net: MaskedNet, z: Tensor, way: Routes, f: Tensor, activation: str) -> None:
    """Write the curved part of constant and one-factor features into f (feature, row)."""
    if len(way.constant):
        h = torch.relu(net.bias[0]) if activation == "relu" else torch.tanh(net.bias[0])
        f[way.constant] = (net.head[way.constant] @ h).unsqueeze(1).expand(-1, len(z))
    if way.rays:
        bends = _bends(net)
        for k, w, own in way.rays:
            f[own] = net.head[own] @ _ray(net, bends[k], w * z[:, k])[1].T


def _simple_gradients(
    net: MaskedNet, z: Tensor, way: Routes, scores: Tensor, grads: MaskedNet, dz: Tensor, activation: str
) -> None:
    """Add the gradients of constant and one-factor features, given those of f (feature, row)."""
    if len(way.constant):
        relu, bias = activation == "relu", net.bias[0]
        h = torch.relu(bias) if relu else torch.tanh(bias)
        total = scores[way.constant].sum(1)
        grads.head[way.constant] = torch.outer(total, h)
        grads.bias.add_((total @ net.head[way.constant]) * ((h > 0) if relu else 1 - h * h))
    if not way.rays:
        return
    bends = _bends(net)
    dbends = torch.zeros_like(bends)
    for k, w, own in way.rays:
        head, score, zk = net.head[own], scores[own], z[:, k]
        parts, h = _ray(net, bends[k], w * zk)
        grads.head[own] = score @ h
        d2 = _through_relu(score.T @ head, h)
        dbends[k].addmm_(parts.T, d2)
        grads.bias.add_(d2.sum(0))
        signs = (parts > 0).to(z)
        signs[:, 1].neg_()
        by_t = score * (head @ _through_relu(signs @ bends[k], h).T)  # d/dt of each feature, (feature, row)
        grads.weights[own, k] = by_t @ zk
        dz[:, k].add_(by_t.sum(0), alpha=w)
    up, down = dbends.unbind(1)
    a = net.first
    grads.trunk.addmm_(torch.relu(a).T, up).addmm_(torch.relu(-a).T, down)
    grads.first.add_((a > 0) * (up @ net.trunk.T)).sub_((a < 0) * (down @ net.trunk.T))
