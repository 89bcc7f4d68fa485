r"""The masked decoder as a curve with a linear last layer, forwards and backwards.

.. math:: f_j(z) = \beta_j^\top \phi(u) + o(u), \qquad u = w_j \odot z, \quad \beta_j \sim N(0, \Lambda^{-1})

MLP: :math:`\phi = [1, \sum_k u_k, \text{last hidden layer}]` and no offset o. Linear decoder:
:math:`\phi = [1]`, :math:`o = \sum_k u_k`. Hidden layers are laid out (chain, hidden, feature times row), so
that each of them is one matrix product for each chain: the first is that of :math:`A^\top \mathrm{diag}(w_j)`
and z, and u itself is never made. The derivatives are written out, at a fraction of what autograd costs at
these sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ....distributions._bend import tanh_

__all__ = ["Curve", "Pass", "Trunk"]


class Trunk(NamedTuple):
    """Hidden layers in units of their prior: every entry is standard normal before it sees data.

    Attributes
    ----------
    first : Tensor (chain, factor, hidden)
    second : Tensor (chain, hidden, hidden)
    bias : Tensor (chain, 1, hidden)
    """

    first: Tensor
    second: Tensor
    bias: Tensor


class Pass(NamedTuple):
    """f and the sum of u (chain, feature, row), both hidden layers (chain, hidden, feature times row)."""

    f: Tensor
    straight: Tensor
    below: Tensor
    above: Tensor


@dataclass(frozen=True, eq=False)
class Curve:
    """Basis of a feature's curve, and the prior of its coefficients.

    Parameters
    ----------
    activation : {"relu", "tanh"} or None
        None: the linear decoder.
    hidden : int
    first_sd, second_sd, bias_sd : float
        Prior standard deviations of the hidden layers: entries of the first, the root of a sum over the
        second's inputs, biases.
    intercept_sd, slope_sd, head_sd : float
        Of the last layer: constant, slope, root of the sum of the head's variances.
    """

    activation: str | None
    hidden: int
    first_sd: float = 1.0
    second_sd: float = 1.4
    bias_sd: float = 0.5
    intercept_sd: float = 1.0
    slope_sd: float = 0.7
    head_sd: float = 1.0

    @property
    def scales(self) -> tuple[float, float, float]:
        """What `Trunk`'s entries are multiplied by."""
        return self.first_sd, self.second_sd / math.sqrt(self.hidden), self.bias_sd

    def head_precision(self, like: Tensor) -> Tensor:
        """Diagonal of Lambda, (basis,)."""
        if self.activation is None:
            sd = [self.intercept_sd]
        else:
            sd = [self.intercept_sd, self.slope_sd, *[self.head_sd / math.sqrt(self.hidden)] * self.hidden]
        return torch.tensor(sd, dtype=torch.float64, device=like.device) ** -2

    def design(self, z: Tensor, weight: Tensor, trunk: Trunk, cells: Tensor | None = None) -> Tensor:
        """phi (..., chain, feature, basis, row), with the cells as one more row if they are given.

        Parameters
        ----------
        z : Tensor (chain, row, factor)
        weight : Tensor (..., chain, feature, factor)
        trunk : Trunk
        cells : Tensor (chain or 1, feature, row), optional
        """
        rows = (1 if self.activation is None else 2 + self.hidden) + (cells is not None)
        phi = z.new_empty(*weight.shape[:-1], rows, z.shape[1])
        phi[..., 0, :] = 1.0
        if cells is not None:
            phi[..., -1, :] = cells
        if self.activation is not None:
            tried = weight.reshape(-1, *weight.shape[-3:]).transpose(0, 1)  # chains first
            straight, _, above = self._layers(z, tried.flatten(1, 2), trunk)
            basis = phi.view(-1, *phi.shape[-4:]).transpose(0, 1)
            sizes = *tried.shape[1:3], z.shape[1]
            basis[..., 1, :] = straight.view(len(z), *sizes)
            basis[..., 2 : 2 + self.hidden, :] = above.view(len(z), -1, *sizes).movedim(1, 3)
        return phi

    def offset(self, z: Tensor, weight: Tensor) -> Tensor | float:
        """The part of the curve without a coefficient, (chain, feature, row)."""
        return weight @ z.mT if self.activation is None else 0.0

    def value(self, z: Tensor, weight: Tensor, trunk: Trunk, head: Tensor) -> Tensor:
        """f, (chain, feature, row)."""
        return self.forwards(z, weight, trunk, head).f

    def forwards(self, z: Tensor, weight: Tensor, trunk: Trunk, head: Tensor) -> Pass:
        """f with what `backwards` needs.

        Parameters
        ----------
        z : Tensor (chain, row, factor)
        weight : Tensor (chain, feature, factor)
        trunk : Trunk
        head : Tensor (chain, feature, basis)
        """
        head = head.to(z)
        if self.activation is None:
            return Pass(torch.baddbmm(head, weight, z.mT), z, z, z)
        straight, below, above = self._layers(z, weight, trunk)
        c, g, n = *weight.shape[:2], z.shape[1]
        f = (above.view(c, self.hidden, g, n) * head[..., 2:].mT.contiguous().unsqueeze(-1)).sum(1)
        f += head[..., :1]
        return Pass(f.addcmul_(head[..., 1:2], straight), straight, below, above)

    def to_factors(
        self, run: Pass, slope: Tensor, z: Tensor, weight: Tensor, trunk: Trunk, head: Tensor
    ) -> Tensor:
        """Slope in z, (chain, row, factor), from the slope in f; arguments as in `forwards`."""
        if self.activation is None:
            return slope.mT @ weight
        under = self._back(run, slope, trunk, head)[0].view(len(z), -1, z.shape[1])
        slope = head[..., 1:2].to(z) * slope
        return torch.baddbmm(slope.mT @ weight, under.mT, self._inwards(weight, trunk))

    def to_layers(
        self, run: Pass, slope: Tensor, z: Tensor, weight: Tensor, trunk: Trunk, head: Tensor
    ) -> tuple[Tensor, ...]:
        """Slopes in the weights and, of a curve, in `Trunk`'s three parts; arguments as in `forwards`."""
        if self.activation is None:
            return (slope @ z,)
        under, over = self._back(run, slope, trunk, head)
        a, b, c = self.scales
        inward_slope = (under.view(len(z), -1, z.shape[1]) @ z).view(len(z), -1, *weight.shape[1:])
        return (
            a * (inward_slope * trunk.first.mT.unsqueeze(2)).sum(1) + head[..., 1:2].to(z) * (slope @ z),
            a * (inward_slope * weight.unsqueeze(1)).sum(2).mT,
            b * torch.bmm(run.below, over.mT),
            c * over.sum(-1).unsqueeze(1),
        )

    def to_head(self, run: Pass, slope: Tensor) -> Tensor:
        """Slope in the last layer, (chain, feature, basis), from the slope in f."""
        constant = slope.sum(-1, keepdim=True)
        if self.activation is None:
            return constant
        c, g, n = slope.shape
        above = (run.above.view(c, -1, g, n) * slope.unsqueeze(1)).sum(-1).mT
        return torch.cat([constant, (slope * run.straight).sum(-1, keepdim=True), above], -1)

    def derivatives(
        self, run: Pass, z: Tensor, weight: Tensor, trunk: Trunk, head: Tensor
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Of f: in a feature's weights and last layer (chain, feature, entry, row), and in the hidden layers.

        The latter are products of what goes into an entry, (chain, feature, in, row), and of f's slope in
        what comes out, (chain, feature, out, row): a pair for each of `Trunk`'s parts, none for a line.
        """
        c, g, n = *weight.shape[:2], z.shape[1]
        constant = torch.ones_like(run.f).unsqueeze(2)
        if self.activation is None:
            return torch.cat([z.mT.unsqueeze(1).expand(-1, g, -1, -1), constant], 2), []
        a, b, bias = self.scales
        layers = (*self._back(run, torch.ones_like(run.f), trunk, head), run.below, run.above)
        under, over, below, above = (layer.view(c, -1, g, n).transpose(1, 2) for layer in layers)
        back = a * (trunk.first.unsqueeze(1) @ under) + head[..., 1:2].to(z).unsqueeze(2)
        masked = weight.unsqueeze(-1) * z.mT.unsqueeze(1)
        feature_derivatives = torch.cat(
            [back * z.mT.unsqueeze(1), constant, run.straight.unsqueeze(2), above], 2
        )
        return feature_derivatives, [(masked, a * under), (below, b * over), (constant, bias * over)]

    def _inwards(self, weight: Tensor, trunk: Trunk) -> Tensor:
        """What takes factors into the first hidden layer, (chain, hidden times feature, factor)."""
        return (self.first_sd * trunk.first.mT.unsqueeze(2) * weight.unsqueeze(1)).flatten(1, 2)

    def _layers(self, z: Tensor, weight: Tensor, trunk: Trunk) -> tuple[Tensor, Tensor, Tensor]:
        """Sum of u (chain, feature, row) and the hidden layers (chain, hidden, feature times row)."""
        _, b, c = self.scales
        rows = z.mT.contiguous()  # large products run along rows, and fast
        below = torch.bmm(self._inwards(weight, trunk), rows)
        below = self._bend(below.view(len(z), self.hidden, -1))
        above = self._bend(torch.baddbmm(c * trunk.bias.mT, b * trunk.second.mT, below))
        return weight @ rows, below, above

    def _back(self, run: Pass, slope: Tensor, trunk: Trunk, head: Tensor) -> tuple[Tensor, Tensor]:
        """Slopes in what both hidden layers bend, (chain, hidden, feature times row)."""
        across = head[..., 2:].to(slope).mT.contiguous().unsqueeze(-1)
        over = self._unbend((across * slope.unsqueeze(1)).flatten(2), run.above)
        return self._unbend(torch.bmm(self.scales[1] * trunk.second, over), run.below), over

    def _bend(self, h: Tensor) -> Tensor:
        return h.relu_() if self.activation == "relu" else tanh_(h)

    def _unbend(self, slope: Tensor, h: Tensor) -> Tensor:
        if self.activation == "relu":
            return torch.ops.aten.threshold_backward(slope, h, 0.0)
        return torch.ops.aten.tanh_backward(slope, h)
