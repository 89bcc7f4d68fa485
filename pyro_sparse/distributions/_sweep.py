r"""The masked decoder feature by feature: values and gradients of a few features at a time, nothing stored.

A plain pass keeps every hidden unit of every row and feature until the gradient has come back; here a chunk
of features that fits in the cache goes forth and back at once. Features that follow one factor or none need
no hidden layer of their own. With :math:`t = w_{jk} z_k` alone, a relu decoder is

.. math:: f_j = c_j + u_j t + v_j^\top \mathrm{relu}(b + t_+ P_k^+ + t_- P_k^-), \qquad
          P_k^{\pm} = \mathrm{relu}(\pm A_k) B,

a piecewise-linear function of t whose bends all features of that factor and weight share (rows of W are
scaled to 1, so these are two for each factor), and a feature without factors is a constant. (Accelerators
take longer for the many short calls of this than for the hidden units of a feature with one factor.)
Everything here is of one restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ._bend import Bend, by_head

__all__ = ["MaskedNet", "Routes", "routes", "sweep", "values"]

# One buffer of hidden units: larger ones fall out of the cache, smaller ones pay for calls. Accelerators'
# calls are dear and their memory large.
CHUNK_BYTES, CHUNK_BYTES_THERE = 1.5e6, 2e8

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
        return MaskedNet(*(tensor[r] for tensor in self))


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


def routes(weights: Tensor, permitted: Tensor | None, activation: str, gradient: bool) -> Routes:
    """Sort the features by what their row of W needs.

    Parameters
    ----------
    weights : Tensor (feature, factor)
    permitted : Tensor of bool (feature, factor), optional
        Edges that may move away from zero, default all. A zero weight that may move needs a gradient, and
        that of a relu through its hidden units needs them all (unless the whole row is zero: it has none).
    activation : {"relu", "tanh"}
    gradient : bool
        Whether gradients are wanted: if not, `permitted` does not matter.
    """
    there = weights != 0
    count = there.sum(1)
    relu = activation == "relu"
    if gradient:
        still = torch.zeros_like(there[:, 0]) if permitted is None else ~(permitted & ~there).any(1)
    else:
        still = torch.ones_like(there[:, 0])
    constant = (count == 0) & (still | relu)
    single = (count == 1) & still & relu & (weights.device.type == "cpu")
    rays: dict[tuple[int, float], list[int]] = {}
    if single.any():
        rows = single.nonzero().flatten()
        factors = there[rows].to(torch.uint8).argmax(1).tolist()
        sizes = weights[rows].sum(1).tolist()
        for j, k, w in zip(rows.tolist(), factors, sizes, strict=True):
            rays.setdefault((k, w), []).append(j)
    ray_routes = [(k, w, torch.tensor(features, device=weights.device)) for (k, w), features in rays.items()]
    return Routes(constant.nonzero().flatten(), ray_routes, (~(constant | single)).nonzero().flatten())


@torch.no_grad()
def values(net: MaskedNet, z: Tensor, activation: str = "relu") -> Tensor:
    """Linear predictor (row, feature) of factors (row, factor): a few features at a time, by `routes`."""
    way = routes(net.weights, None, activation, gradient=False)
    order, net = _in_order(net, way)
    f = _lines(net, z)
    for block, span in _blocks(net, z, way, activation):
        f[span].add_(block.forward())
    return _back(f, order).T


@torch.no_grad()
def sweep(
    net: MaskedNet,
    z: Tensor,
    score: Score,
    permitted: Tensor | None = None,
    activation: str = "relu",
    rounded: bool = False,
) -> tuple[MaskedNet, Tensor, Tensor]:
    r"""Gradients of a sum over cells, :math:`\sum_{ij} \ell_{ij}(f_{ij})`, by the decoder and the factors.

    Parameters
    ----------
    net : MaskedNet
        Of one restart.
    z : Tensor (row, factor)
    score : callable
        ``score(features, f)``, with `f` (feature, row) the linear predictor of the features with these
        numbers, returns the derivatives :math:`\ell'` (feature, row). It is asked once about each feature.
    permitted : Tensor of bool (feature, factor), optional
        Edges whose weight may move, default all; the gradient of the others is left out.
    activation : {"relu", "tanh"}
    rounded : bool
        Keep the hidden units of features with several factors, and what is multiplied with them, as bfloat16:
        half the memory, and on processors that multiply them a fraction of the time. Products are summed in
        single precision; what is added up over features or rows, and the straight part, stay as they are.

    Returns
    -------
    MaskedNet, Tensor (row, factor), Tensor (feature, row)
        Gradients, shaped like `net` and `z`, and the linear predictor.
    """
    way = routes(net.weights, permitted, activation, gradient=True)
    order, net = _in_order(net, way)
    grads, dz = MaskedNet(*(torch.zeros_like(tensor) for tensor in net)), torch.zeros_like(z)
    f, scores = _lines(net, z), z.new_empty(len(net.weights), len(z))
    for block, span in _blocks(net, z, way, activation, rounded):
        derivatives = score(order[span], f[span].add_(block.forward()))
        scores[span] = derivatives
        block.backward(derivatives, grads, dz)
    toward = scores @ z
    grads.weights.addcmul_(toward, net.slope)
    grads.slope.copy_((toward * net.weights).sum(1, keepdim=True))
    grads.intercept.copy_(scores.sum(1))
    dz.addmm_(scores.T, net.weights * net.slope)
    weights, slope, head, f = (_back(tensor, order) for tensor in (grads.weights, grads.slope, grads.head, f))
    if permitted is not None:
        weights.mul_(permitted)
    intercept = _back(grads.intercept.T, order).T
    return grads._replace(weights=weights, slope=slope, head=head, intercept=intercept), dz, f


def _in_order(net: MaskedNet, way: Routes) -> tuple[Tensor, MaskedNet]:
    """Features sorted by their route, so that those that go together are neighbours: numbers, and tensors."""
    order = torch.cat([way.constant, *(features for _, _, features in way.rays), way.dense])
    if len(way.dense) == len(order):
        return order, net
    per_feature = {name: getattr(net, name)[order] for name in ("weights", "slope", "head")}
    return order, net._replace(**per_feature, intercept=net.intercept[:, order])


def _back(rows: Tensor, order: Tensor) -> Tensor:
    """Rows in the features' own order."""
    return torch.empty_like(rows).index_copy_(0, order, rows)


def _blocks(
    net: MaskedNet, z: Tensor, way: Routes, activation: str, rounded: bool = False
) -> Iterator[tuple[_Flat | _Ray | _Chunk, slice]]:
    """What goes forth and back together, one after the other, and which of the sorted features it is."""
    space, at = _Space(net, z, activation), 0
    if len(way.constant):
        at = len(way.constant)
        yield _Flat(space, slice(0, at)), slice(0, at)
    if way.rays:
        rays = _Rays(net)
        for k, w, features in way.rays:
            span = slice(at, at + len(features))
            at = span.stop
            last = span.stop == len(net.weights) - len(way.dense)
            yield _Ray(space, rays, k, w, span, last), span
    if rounded:
        space = _Space(net, z, activation, torch.bfloat16)
    while at < len(net.weights):
        span = slice(at, min(at + space.together, len(net.weights)))
        at = span.stop
        yield _Chunk(space, span), span


def _lines(net: MaskedNet, z: Tensor) -> Tensor:
    """Intercept and straight part of every feature, (feature, row)."""
    return torch.addmm(net.intercept.view(-1, 1), net.weights * net.slope, z.T)


class _Space(Bend):
    """Room for the hidden units of a chunk, used again and again: fresh pages cost more than their use."""

    def __init__(self, net: MaskedNet, z: Tensor, activation: str, kind: torch.dtype | None = None):
        n_rows, hidden = len(z), net.first.shape[1]
        self.net, self.z, self.relu, self.kind = net, z.contiguous(), activation == "relu", kind or z.dtype
        self.first, self.trunk, self.bias, self.head = (
            tensor.to(self.kind) for tensor in (net.first, net.trunk, net.bias, net.head)
        )
        room = CHUNK_BYTES if z.device.type == "cpu" else CHUNK_BYTES_THERE
        together = int(room // (n_rows * hidden * self.first.element_size()))
        self.together = max(1, min(len(net.weights), together))
        self.rooms = z.new_empty(3, self.together * n_rows, hidden, dtype=self.kind)

    def room(self, index: int, n: int) -> Tensor:
        """The first n rows of one of three matrices (any, hidden)."""
        return self.rooms[index, :n]

    def add(self, total: Tensor, a: Tensor, b: Tensor) -> None:
        """Add a product to a total, which is not rounded if the units are."""
        if self.kind == total.dtype:
            total.addmm_(a, b)
        else:
            total.add_(a @ b)


# ---- features that need both hidden layers -----------------------------------------------------------------
class _Chunk:
    """A few features forth and back; hidden units (feature * row, hidden) are overwritten on the way back."""

    def __init__(self, space: _Space, span: slice):
        self.space, self.span = space, span
        self.w, self.head = space.net.weights[span], space.head[span].unsqueeze(1)

    def forward(self) -> Tensor:
        """Curved part of the linear predictor, (feature, row)."""
        space = self.space
        n = len(self.w) * len(space.z)
        self.masked = (space.z * self.w.unsqueeze(1)).view(n, -1).to(space.kind)
        self.h1 = space.bend(torch.mm(self.masked, space.first, out=space.room(0, n)))
        self.h2 = space.bend(torch.addmm(space.bias, self.h1, space.trunk, out=space.room(1, n)))
        self.cube = self.h2.view(len(self.w), len(space.z), -1)
        return by_head(self.cube, self.head, space.room(2, n).view_as(self.cube), space.z.dtype)

    def backward(self, score: Tensor, grads: MaskedNet, dz: Tensor) -> None:
        """Add the gradients given those of the linear predictor, (feature, row)."""
        space, span, n, score = self.space, self.span, len(self.h1), score.to(self.space.kind)
        grads.head[span] = torch.bmm(score.unsqueeze(1), self.cube).squeeze(1).to(dz.dtype)
        down = space.room(2, n)
        torch.mul(score.unsqueeze(-1), self.head, out=down.view_as(self.cube))
        d2 = space.through(down, self.h2, into=self.h2)
        space.add(grads.trunk, self.h1.T, d2)
        grads.bias.add_(d2.sum(0, dtype=dz.dtype))
        d1 = space.through(torch.mm(d2, space.trunk.T, out=down), self.h1, into=down)
        space.add(grads.first, self.masked.T, d1)
        back = (d1 @ space.first.T).view(len(self.w), len(space.z), -1).to(dz.dtype)
        grads.weights[span] = (back * space.z).sum(1)
        dz.add_(back.mul_(self.w.unsqueeze(1)).sum(0))


# ---- features that follow one factor or none ---------------------------------------------------------------
class _Flat:
    """Features without factors: constants."""

    def __init__(self, space: _Space, span: slice):
        self.span, self.n_rows, self.relu = span, len(space.z), space.relu
        self.head, self.h = space.net.head[span], space.bend(space.net.bias[0].clone())

    def forward(self) -> Tensor:
        """Curved part of the linear predictor, (feature, row)."""
        return (self.head @ self.h).unsqueeze(1).repeat(1, self.n_rows)

    def backward(self, score: Tensor, grads: MaskedNet, dz: Tensor) -> None:
        """Add the gradients given those of the linear predictor, (feature, row)."""
        total = score.sum(1)
        grads.head[self.span] = torch.outer(total, self.h)
        grads.bias.add_((total @ self.head) * ((self.h > 0) if self.relu else 1 - self.h * self.h))


class _Rays:
    """What the trunk makes of each factor alone: `table` (factor, 3, hidden), upwards, downwards, at zero."""

    def __init__(self, net: MaskedNet):
        self.net = net
        by_sign = torch.stack([torch.relu(net.first), torch.relu(-net.first)], 1) @ net.trunk
        self.table = torch.cat([by_sign, net.bias.expand(len(by_sign), 1, -1)], 1)
        self.back = torch.zeros_like(self.table)

    def gradients(self, grads: MaskedNet) -> None:
        """Add the gradients that the rays have left in `back`."""
        (up, down, bias), a = self.back.unbind(1), self.net.first
        grads.bias.add_(bias.sum(0))
        grads.trunk.addmm_(torch.relu(a).T, up).addmm_(torch.relu(-a).T, down)
        grads.first.add_((a > 0) * (up @ self.net.trunk.T)).sub_((a < 0) * (down @ self.net.trunk.T))


class _Ray:
    """Features that follow factor k with weight w: their hidden units are the same, (row, hidden)."""

    def __init__(self, space: _Space, rays: _Rays, k: int, w: float, span: slice, last: bool):
        self.space, self.rays, self.k, self.w, self.span, self.last = space, rays, k, w, span, last
        self.head, self.zk = space.net.head[span], space.z[:, k]
        t = w * self.zk
        self.by_sign = torch.stack([t.clamp_min(0), (-t).clamp_min_(0), torch.ones_like(t)], 1)

    def forward(self) -> Tensor:
        """Curved part of the linear predictor, (feature, row)."""
        room = self.space.room(0, len(self.zk))
        self.h = torch.mm(self.by_sign, self.rays.table[self.k], out=room).relu_()
        return self.head @ self.h.T

    def backward(self, score: Tensor, grads: MaskedNet, dz: Tensor) -> None:
        """Add the gradients given those of the linear predictor, (feature, row)."""
        table, h = self.rays.table[self.k, :2], self.h
        grads.head[self.span] = score @ h
        down = torch.mm(score.T, self.head, out=self.space.room(1, len(h)))
        d2 = self.space.through(down, h, into=down)
        self.rays.back[self.k].addmm_(self.by_sign.T, d2)
        up, down = self.by_sign[:, :2].sign().unbind(1)
        toward = d2 @ table.T
        dz[:, self.k].add_(up * toward[:, 0] - down * toward[:, 1], alpha=self.w)
        on, by_z = h.sign_(), score * self.zk  # which units are on; now by the weights, one for each feature
        by_weight = ((by_z * up) @ on).mul_(table[0]).sub_(((by_z * down) @ on).mul_(table[1]))
        grads.weights[self.span, self.k] = by_weight.mul_(self.head).sum(1)
        if self.last:
            self.rays.gradients(grads)
