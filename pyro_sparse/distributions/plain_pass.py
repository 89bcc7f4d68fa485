r"""The masked decoder forth and back in a handful of products, all restarts and features at once.

.. math:: f_j(z) = c_j + u_j\, w_j^\top z + v_j^\top \phi(b + B\, \phi(A (w_j \odot z)))

A small model's step is spent on calls, not on arithmetic: autograd makes three of each of these. Values and
gradients are those of `MaskedDecoder`; models that are too large for their hidden units to be kept go a few
features at a time instead (`decoded_cells.py`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._bend import Bend, by_head
from ._sweep import MaskedNet

__all__ = ["PlainPass"]


class PlainPass(Bend):
    """Values, then gradients, of masked decoders of one shape; hidden units keep their room between calls.

    Parameters
    ----------
    activation : {"relu", "tanh"}
    """

    def __init__(self, activation: str = "relu"):
        self.relu = activation == "relu"
        self.rooms: list[Tensor] = []

    def forward(self, net: MaskedNet, z: Tensor, rounded: bool = False) -> Tensor:
        """Linear predictor.

        Parameters
        ----------
        net : MaskedNet
            Tensors with a leading restart dimension.
        z : Tensor (restart, row, factor)
        rounded : bool
            Keep hidden units, and what they are multiplied with, as bfloat16, as `sweep` does.

        Returns
        -------
        Tensor (restart, feature, row)
        """
        n_restarts, n_features, n_factors = net.weights.shape
        n_rows, hidden = z.shape[1], net.first.shape[-1]
        kind = torch.bfloat16 if rounded else z.dtype
        shape = torch.Size([n_restarts, n_features * n_rows, hidden])
        if not self.rooms or self.rooms[0].shape != shape or self.rooms[0].dtype != kind:
            # kept: fresh pages cost more than their use
            self.rooms = [z.new_empty(shape, dtype=kind) for _ in range(3)]
        first, second, _ = self.rooms
        self.net, self.z, self.cubes = net, z, (n_restarts * n_features, n_rows, hidden)
        # w masks the first layer instead of the factors: one small matrix for each feature
        self.first = (net.weights.unsqueeze(-1) * net.first.unsqueeze(1)).view(-1, n_factors, hidden).to(kind)
        self.each_z = z.to(kind).unsqueeze(1).expand(-1, n_features, -1, -1).reshape(-1, n_rows, n_factors)
        self.trunk, self.head = net.trunk.to(kind), net.head.to(kind)
        torch.bmm(self.each_z, self.first, out=first.view(self.cubes))
        self.h1 = self.bend(first)
        self.h2 = self.bend(torch.baddbmm(net.bias.to(kind), self.h1, self.trunk, out=second))
        self.lines = net.weights * net.slope
        f = torch.baddbmm(net.intercept.mT, self.lines, z.mT)
        cube, head = self.h2.view(self.cubes), self.head.view(-1, 1, hidden)
        return f.add_(by_head(cube, head, self.rooms[2].view(self.cubes), z.dtype).view_as(f))

    def backward(self, score: Tensor) -> tuple[MaskedNet, Tensor]:
        """Gradients of a function of the linear predictor last returned, which may be asked for once.

        Parameters
        ----------
        score : Tensor (restart, feature, row)
            The function's derivatives by the linear predictor.

        Returns
        -------
        MaskedNet, Tensor (restart, row, factor)
            By the decoder's tensors, and by the factors.
        """
        net, z, cubes, down = self.net, self.z, self.cubes, self.rooms[2]
        n_rows, hidden = cubes[1:]
        columns = score.to(down.dtype).view(-1, n_rows, 1)
        head = torch.bmm(columns.mT, self.h2.view(cubes)).view_as(net.head).to(z.dtype)
        torch.mul(columns, self.head.view(-1, 1, hidden), out=down.view(cubes))
        d2 = self.through(down, self.h2, into=self.h2)
        trunk, bias = torch.bmm(self.h1.mT, d2).to(z.dtype), d2.sum(1, keepdim=True, dtype=z.dtype)
        torch.bmm(d2, self.trunk.mT, out=down)
        d1 = self.through(down, self.h1, into=down).view(cubes)
        of_first = torch.bmm(self.each_z.mT, d1).view(*net.weights.shape, hidden).to(z.dtype)
        toward = torch.bmm(score, z)
        weights = (of_first * net.first.unsqueeze(1)).sum(-1).addcmul_(toward, net.slope)
        slope = toward.mul_(net.weights).sum(-1, keepdim=True)
        first = of_first.mul_(net.weights.unsqueeze(-1)).sum(1)
        back = torch.bmm(d1, self.first.mT).view(*score.shape, -1)
        dz = back.sum(1, dtype=z.dtype).baddbmm_(score.mT, self.lines)
        grads = MaskedNet(weights, first, trunk, bias, slope, head, score.sum(2).unsqueeze(1))
        return grads, dz
