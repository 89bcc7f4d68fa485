r"""In which directions a decoder's layers and weights may move far: their Fisher information.

With :math:`\theta_j` the weights and the last layer of feature j, and :math:`\tau` the hidden layers, which
all features share, derivatives of f_j give an arrow of blocks

.. math:: A_j = \sum_i h_{ij} \frac{\partial f_{ij}}{\partial \theta_j}
                \frac{\partial f_{ij}}{\partial \theta_j}^\top, \quad
          B_j = \sum_i h_{ij} \frac{\partial f_{ij}}{\partial \theta_j}
                \frac{\partial f_{ij}}{\partial \tau}^\top, \quad
          C = \sum_{ij} h_{ij} \frac{\partial f_{ij}}{\partial \tau}
                \frac{\partial f_{ij}}{\partial \tau}^\top,

h being minus the second derivative of log p(x_ij | f_ij). With the prior's precisions on the diagonal it is
the mass matrix of the Hamiltonian moves (Girolami and Calderhead 2011, JRSS B 73(2), with the matrix of the
warm-up held fixed) and the Hessian of the Gauss-Newton steps of `layers.py`: :math:`M = L L^\top`, x = x_0 +
:math:`L^{-\top} y`. Entry by entry hidden layers are stiff a thousandfold, and hardly move.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ..density.decoder_program import DecoderProgram, DecoderState

__all__ = ["Coordinates", "Metric", "information"]

_WIDEST = 1000  # entries of the hidden layers whose information is taken pair by pair, not each by itself
_LARGEST = 10_000_000  # numbers of B: of larger tables features and hidden layers are taken apart
_WORK = 1.5e10  # multiplications for all of it: beyond, some of the rows stand for all
_AT_ONCE = 4_000_000  # derivatives of hidden layers
_JITTER = 1e-5  # of a diagonal, which single precision has to resolve


@dataclass(frozen=True, eq=False)
class Metric:
    """The information of every chain, without the prior's.

    Parameters
    ----------
    blocks : Tensor (chain, feature, entry, entry), float64
        A: of a feature's weights, then its last layer.
    across : Tensor (chain, feature, entry, hidden layers) or None
        B; None where hidden layers are taken entry by entry, or the table is large.
    common : Tensor (chain, hidden layers, hidden layers) or (chain, hidden layers), float64
        C, or its diagonal.
    permitted : Tensor of bool (feature, factor)
    """

    blocks: Tensor
    across: Tensor | None
    common: Tensor
    permitted: Tensor

    def blended(self, metric: Metric) -> Metric:
        """The mean of two."""
        across = None
        if self.across is not None and metric.across is not None:
            across = 0.5 * (self.across + metric.across)
        blocks, common = 0.5 * (self.blocks + metric.blocks), 0.5 * (self.common + metric.common)
        return Metric(blocks, across, common, self.permitted)

    def damped(self, by: Tensor) -> Metric:
        """The diagonal, and the ones of the prior with it, (1 + by) times as large; `by` is (chain,)."""
        blocks, common = self.blocks.clone(), self.common.clone()
        blocks.diagonal(dim1=-2, dim2=-1).mul_(1 + by.view(-1, 1, 1))
        entries = common if common.ndim == 2 else common.diagonal(dim1=-2, dim2=-1)
        entries.mul_(1 + by.view(-1, 1)).add_(by.view(-1, 1))
        return Metric(blocks, self.across, common, self.permitted)

    def exchanged(self, turn: Tensor) -> Metric:
        """Factors in another order, (chain, 1, factor) as for `Tensor.gather`."""
        blocks, across, common = self.blocks, self.across, self.common
        k, block_size, width = turn.shape[-1], blocks.shape[-1], common.shape[-1]
        order = torch.arange(block_size, device=blocks.device).repeat(len(blocks), 1)
        order[:, :k] = turn[:, 0]
        rows = order.view(len(blocks), 1, -1, 1)
        blocks = blocks.gather(2, rows.expand_as(blocks))
        blocks = blocks.gather(3, rows.mT.expand_as(blocks))
        if across is not None:
            across = across.gather(2, rows.expand_as(across))
        if width:
            hidden_order = torch.arange(width, device=blocks.device).repeat(len(blocks), 1)
            first = hidden_order[0, : k * self._first_width].view(k, -1)
            hidden_order[:, : first.numel()] = first[turn[:, 0]].flatten(1)
            if across is not None:
                across = across.gather(3, hidden_order.view(len(blocks), 1, 1, -1).expand_as(across))
            if common.ndim == 2:
                common = common.gather(1, hidden_order)
            else:
                common = common.gather(1, hidden_order.unsqueeze(-1).expand_as(common))
                common = common.gather(2, hidden_order.unsqueeze(1).expand_as(common))
        return Metric(blocks, across, common, self.permitted)

    @property
    def _first_width(self) -> int:
        """Hidden units: a feature's own entries are weights, constant, slope and one for each."""
        return self.blocks.shape[-1] - self.permitted.shape[1] - 2

    @cached_property
    def root(self) -> Tensor:
        """Inverse root of what is left of C, with ones of the prior, when all features' own entries are free.

        Their prior counts as nothing here, since it depends on the edges and this does not.
        """
        entries = self.common if self.common.ndim == 2 else self.common.diagonal(dim1=-2, dim2=-1)
        entries = (1 + _JITTER) * entries + 1.0
        if self.common.ndim == 2:
            return entries.rsqrt()
        left = self.common.clone()
        left.diagonal(dim1=-2, dim2=-1).copy_(entries)
        if self.across is not None:
            blocks = self.blocks + torch.eye(self.blocks.shape[-1]).to(self.blocks)
            whitened = _inverse_root(blocks) @ self.across
            left = left - (whitened.mT @ whitened).sum(1)
        return _inverse_root(left)

    def coordinates(self, scale: Tensor, precision: Tensor) -> Coordinates:
        """With the prior.

        Parameters
        ----------
        scale : Tensor (chain, feature, factor)
            Of each weight.
        precision : Tensor (basis,)
            Of the last layer.
        """
        k = scale.shape[-1]
        prior = precision.new_ones(self.blocks.shape[:-1])
        prior[..., :k] = torch.where(self.permitted, scale.double() ** -2, 1.0)
        prior[..., k:] = precision
        blocks = self.blocks.clone()
        blocks.diagonal(dim1=-2, dim2=-1).mul_(1 + _JITTER).add_(prior)
        inverse = _inverse_root(blocks)
        across = None if self.across is None else (inverse @ self.across).to(scale).flatten(1, 2)
        return Coordinates(inverse.to(scale), across, self.root.to(scale))


@dataclass(frozen=True, eq=False)
class Coordinates:
    """In which the posterior is nearly round: a step y in them, and a slope in what they stand for.

    Parameters
    ----------
    blocks : Tensor (chain, feature, entry, entry)
        Inverse root of each feature's block.
    across : Tensor (chain, feature times entry, hidden layers) or None
        Inverse root times B.
    common : Tensor (chain, hidden layers, hidden layers) or (chain, hidden layers)
        Inverse root of what is left of C.
    """

    blocks: Tensor
    across: Tensor | None
    common: Tensor

    @property
    def size(self) -> int:
        return self.blocks.shape[1] * self.blocks.shape[2] + self.common.shape[-1]

    def step(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """L^-T y: of features (chain, feature, entry), and of hidden layers (chain, hidden layers)."""
        shape = self.blocks.shape[:-1]
        features, common = y.split([shape[1] * shape[2], self.common.shape[-1]], 1)
        common = common * self.common if self.common.ndim == 2 else _by(self.common.mT, common)
        if self.across is not None:
            features = features - _by(self.across, common)
        return _by(self.blocks.mT, features.reshape(shape)), common

    def slope(self, features: Tensor, common: Tensor) -> Tensor:
        """L^-1 of a slope, (chain, size)."""
        whitened = _by(self.blocks, features).flatten(1)
        if self.across is not None:
            common = common - _by(self.across.mT, whitened)
        common = common * self.common if self.common.ndim == 2 else _by(self.common, common)
        return torch.cat([whitened, common], 1)


def information(program: DecoderProgram, state: DecoderState, rng: np.random.Generator) -> Metric:
    """The Fisher information where the chains are.

    Of many rows, some at random stand for all. Estimates from few cells are drawn towards their diagonals.

    Parameters
    ----------
    program : DecoderProgram
    state : DecoderState
    rng : numpy.random.Generator
    """
    n_chains, n_features, n_rows = *state.weight.shape[:2], state.z.shape[1]
    blocks, across, common = _blank(program, state)
    block_size, width = blocks.shape[-1], common.shape[-1]
    work = n_chains * n_features * (block_size + (width if common.ndim == 3 else 0)) ** 2
    n = int(np.clip(_WORK / work, min(n_rows, 10), n_rows))
    rows = torch.as_tensor(rng.permutation(n_rows)[:n], device=state.z.device)
    z, times = state.z[:, rows], n_rows / n
    cells = program.cells_of(state).rows(rows)
    most = max(block_size, width) if common.ndim == 3 else block_size
    chunk_size = max(1, _AT_ONCE // (n_chains * n * most)) if cells.separate else n_features
    for features in torch.arange(n_features, device=z.device).split(chunk_size):
        layers = (state.weight[:, features], state.trunk, state.head[:, features])
        run = program.curve.forwards(z, *layers)
        bend = cells.features(features).expanded(run.f, state.noise[:, features])[2]
        root = (times * bend.clamp(min=0)).sqrt().unsqueeze(2)
        of_blocks, pairs = program.curve.derivatives(run, z, *layers)
        of_blocks[:, :, : program.permitted.shape[1]] *= program.permitted[features].unsqueeze(-1)
        of_blocks, pairs = of_blocks * root, [(into, out * root) for into, out in pairs]
        blocks[:, features] = (of_blocks @ of_blocks.mT).double()
        if common.ndim == 2:
            squares = [(into.square() @ out.square().mT).sum(1).flatten(1) for into, out in pairs]
            common += torch.cat(squares, 1).double()
        elif width:
            of_common = torch.cat([(i.unsqueeze(3) * o.unsqueeze(2)).flatten(2, 3) for i, o in pairs], 2)
            common += (of_common @ of_common.mT).double().sum(1)
            if across is not None:
                across[:, features] = (of_blocks @ of_common.mT).double()
    if common.ndim == 3 and width:
        sure = n_features * n / (n_features * n + width)
        across = None if across is None else across * sure
        entries = common.diagonal(dim1=-2, dim2=-1).clone()
        common *= sure
        common.diagonal(dim1=-2, dim2=-1).copy_(entries)
    return Metric(blocks, across, common, program.permitted)


def _blank(program: DecoderProgram, state: DecoderState) -> tuple[Tensor, Tensor | None, Tensor]:
    """A, B and C of nothing at all."""
    n, g, k = state.weight.shape
    block_size, zero = k + state.head.shape[-1], state.head.new_zeros
    width = sum(layer[0].numel() for layer in state.trunk) if program.curve.activation is not None else 0
    apart = width > _WIDEST or n * g * block_size * width > _LARGEST
    common = zero(n, width) if width > _WIDEST else zero(n, width, width)
    return zero(n, g, block_size, block_size), None if apart else zero(n, g, block_size, width), common


def _by(matrix: Tensor, vector: Tensor) -> Tensor:
    """Matrix times vector; as a row from the left, since as a column it may take ten times as long."""
    return (vector.unsqueeze(-2) @ matrix.mT).squeeze(-2)


def _inverse_root(matrix: Tensor) -> Tensor:
    """L^-1; where rounding has cost a matrix its sign, that of its diagonal."""
    root, failed = torch.linalg.cholesky_ex(matrix)
    plain = torch.diag_embed(matrix.diagonal(dim1=-2, dim2=-1).clamp(min=1.0).sqrt())
    root = torch.where((failed == 0)[..., None, None], root, plain)
    eye = torch.eye(root.shape[-1], dtype=root.dtype, device=root.device)
    return torch.linalg.solve_triangular(root, eye.expand_as(root), upper=False)
