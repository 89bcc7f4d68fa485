r"""Factors of each row, all at once, proposed from the normal that a row's cells amount to where it stands.

With :math:`z \sim N(0, C)`, cells expanded at the row's present factors (slope g_j and minus second derivative
h_j in f_j) and :math:`J = \partial f / \partial z`,

.. math:: q(z') = N\bigl(z + P^{-1} (J^\top g - C^{-1} z),\, P^{-1}\bigr), \qquad
          P = C^{-1} + J^\top \mathrm{diag}(h)\, J,

and Metropolis (Gamerman 1997, Statistics and Computing 7): nearly a draw of its own where a row's density is
nearly normal, at two looks at the cells.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..density.cells import Cells
from ..density.decoder_program import DecoderProgram, DecoderState

__all__ = ["LineRows", "line_rows"]


class LineRows(NamedTuple):
    """What a move of the factors leaves behind.

    Attributes
    ----------
    z : Tensor (chain, row, factor)
    f : Tensor (chain, feature, row)
    terms : tuple of Tensor (chain, feature, row)
        log p of every cell at f, its slope and minus its second derivative.
    accept : Tensor (chain, row)
        Acceptance probabilities.
    """

    z: Tensor
    f: Tensor
    terms: tuple[Tensor, ...]
    accept: Tensor


def line_rows(
    program: DecoderProgram,
    state: DecoderState,
    f: Tensor,
    terms: tuple[Tensor, ...],
    cells: Cells,
    rng: np.random.Generator,
) -> LineRows:
    """New factors of a linear decoder.

    Parameters
    ----------
    program : DecoderProgram
        Of a linear decoder.
    state : DecoderState
    f : Tensor (chain, feature, row)
        Of the state.
    terms : tuple of Tensor (chain, feature, row)
        log p of every cell at f, its slope and minus its second derivative.
    cells : Cells
    rng : numpy.random.Generator
    """
    z, head = state.z, state.head
    here = _proposal(program, state.weight, z, terms)
    unit = torch.as_tensor(rng.standard_normal((*here.mean.shape[1:], len(here.mean)))).movedim(-1, 0)
    new = here.at(unit.to(here.mean)).permute(1, 2, 0).to(z)
    moved = program.curve.value(new, state.weight, state.trunk, head)
    there_terms = cells.expanded(moved, state.noise)
    there = _proposal(program, state.weight, new, there_terms)
    gain = (there_terms[0] - terms[0]).double().sum(1) + there.log_density(z) - here.log_density(new)
    gain += 0.5 * (_squares(program, z) - _squares(program, new))
    accept = gain.clamp(max=0).exp().nan_to_num(0.0)
    yes = torch.as_tensor(rng.random(tuple(accept.shape))).to(accept) < accept
    cell = yes.unsqueeze(1)
    return LineRows(
        z=torch.where(yes.unsqueeze(-1), new, z),
        f=torch.where(cell, moved, f),
        terms=tuple(torch.where(cell, b, a) for a, b in zip(terms, there_terms, strict=True)),
        accept=accept,
    )


def _squares(program: DecoderProgram, z: Tensor) -> Tensor:
    return ((z @ program.precision.to(z)) * z).sum(-1).double()


class _Normal(NamedTuple):
    """Mean (factor, chain, row) and root of the precision, by entries of its lower half, (chain, row)."""

    mean: Tensor
    root: list[list[Tensor]]

    def at(self, unit: Tensor) -> Tensor:
        """The draw that standard normals (factor, chain, row) stand for."""
        return self.mean + torch.stack(_upper_solved(self.root, list(unit)))

    def log_density(self, z: Tensor) -> Tensor:
        """At z (chain, row, factor), up to a constant."""
        off = z.to(self.mean).movedim(-1, 0) - self.mean
        n = len(self.root)
        squares = sum(sum(self.root[i][k] * off[i] for i in range(k, n)).square() for k in range(n))
        return sum(self.root[k][k].log() for k in range(n)) - 0.5 * squares


def _proposal(program: DecoderProgram, weight: Tensor, z: Tensor, terms: tuple[Tensor, ...]) -> _Normal:
    """In double precision: large counts have precisions that single precision cannot take apart."""
    _, slope, bend = terms
    first, second = np.tril_indices(weight.shape[-1])
    pairs = (bend.mT @ (weight[..., first] * weight[..., second])).double().movedim(-1, 0)
    prior = program.precision.double()
    entries = iter(pairs + prior[:, first, second].T.unsqueeze(-1))
    precision = [[next(entries) for _ in range(i + 1)] for i in range(weight.shape[-1])]
    root = _root(precision)
    z = z.double()
    pull = ((slope.mT @ weight).double() - z @ prior).movedim(-1, 0)
    step = _upper_solved(root, _lower_solved(root, list(pull)))
    return _Normal(z.movedim(-1, 0) + torch.stack(step), root)


# Matrices are small and many: their entries are vectors over rows, which a library call for each would not be.
def _root(matrix: list[list[Tensor]]) -> list[list[Tensor]]:
    """Cholesky factor of matrices given by entries of their lower half."""
    root: list[list[Tensor]] = []
    for i, row in enumerate(matrix):
        root.append([])
        for k, entry in enumerate(row):
            left = entry
            for m in range(k):
                left = left - root[i][m] * root[k][m]
            root[i].append(left.clamp(min=1e-12).sqrt() if i == k else left / root[k][k])
    return root


def _lower_solved(root: list[list[Tensor]], right: list[Tensor]) -> list[Tensor]:
    """L^-1 of a vector."""
    solved: list[Tensor] = []
    for i, left in enumerate(right):
        for k in range(i):
            left = left - root[i][k] * solved[k]
        solved.append(left / root[i][i])
    return solved


def _upper_solved(root: list[list[Tensor]], right: list[Tensor]) -> list[Tensor]:
    """L^-T of a vector."""
    solved = list(right)
    for i in reversed(range(len(right))):
        for k in range(i + 1, len(right)):
            solved[i] = solved[i] - root[k][i] * solved[k]
        solved[i] = solved[i] / root[i][i]
    return solved
