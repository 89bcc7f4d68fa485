r"""Factors, all rows at once, each row by itself.

Of a linear decoder: with :math:`z \sim N(0, C)` and the cells expanded at the row's present factors (slope
g_j and minus second derivative h_j in f_j),

.. math:: q(z') = N\bigl(z + P^{-1} (W^\top g - C^{-1} z),\, P^{-1}\bigr), \qquad
          P = C^{-1} + W^\top \mathrm{diag}(h)\, W,

and Metropolis (Gamerman 1997, Statistics and Computing 7): nearly a draw of its own, at two looks at the
cells. Of curves, of which such proposals were accepted in a tenth to a fifth of the rows, Hamiltonian
steps, a few rows at a time, so that hidden layers stay near the processor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..density.cells import Cells
from ..density.decoder_program import DecoderProgram, DecoderState
from ._compiled_rows import AVAILABLE, row_normals, solved_normals
from .hmc import Moved, hmc

__all__ = ["LineRows", "curve_rows", "line_rows"]

_FEATURES = 200  # up to which machine code sums them faster than products of matrices by a library
_AT_ONCE = 500_000  # numbers of a hidden layer of all features: few enough to stay near the processor


class LineRows(NamedTuple):
    """What a move of the factors leaves behind.

    Attributes
    ----------
    z : Tensor (chain, row, factor)
    f : Tensor (chain, feature, row)
    accept : Tensor (chain, row)
        Acceptance probabilities.
    """

    z: Tensor
    f: Tensor
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
    state : DecoderState
    f : Tensor (chain, feature, row)
        Of the state.
    terms : tuple of Tensor (chain, feature, row)
        log p of every cell at f, its slope and minus its second derivative.
    cells : Cells
    rng : numpy.random.Generator
    """
    z = state.z
    unit = torch.as_tensor(rng.standard_normal((z.shape[-1], *z.shape[:-1])), device=z.device)
    compiled = AVAILABLE and z.device.type == "cpu"
    if compiled:
        new, forth = _compiled(state, z, terms, unit)
    else:
        here = _proposal(state, z, terms)
        new = here.at(unit).permute(1, 2, 0).to(z)
        forth = here.log_density(new)
    moved = program.value(state, new)
    terms_there = cells.expanded(moved, state.noise)
    if compiled:
        back = _compiled(state, new, terms_there, unit[:0], z)[1]
    else:
        back = _proposal(state, new, terms_there).log_density(z)
    gain = (terms_there[0] - terms[0]).double().sum(1) + back - forth
    gain += 0.5 * (_squares(state, z) - _squares(state, new))
    accept = gain.clamp(max=0).exp().nan_to_num(0.0)
    yes = torch.as_tensor(rng.random(tuple(accept.shape)), device=z.device) < accept
    return LineRows(torch.where(yes.unsqueeze(-1), new, z), torch.where(yes.unsqueeze(1), moved, f), accept)


def curve_rows(
    program: DecoderProgram,
    state: DecoderState,
    cells: Cells,
    step: Tensor,
    rng: np.random.Generator,
) -> Moved:
    """New factors of a curve, and the acceptance probability of each row's.

    Parameters
    ----------
    program : DecoderProgram
    state : DecoderState
    cells : Cells
    step : Tensor (chain, row)
        Leapfrog step sizes.
    rng : numpy.random.Generator
    """
    head, precision = state.head.to(state.z), state.precision.to(state.z)
    layers = (state.weight, state.trunk, head)

    def energy_of(some: Cells) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        def energy(z: Tensor) -> tuple[Tensor, Tensor]:
            run = program.curve.forwards(z, *layers)
            log_p, slope = some.slope(run.f, state.noise)
            pull = z @ precision
            back = program.curve.to_factors(run, slope, z, *layers)
            return 0.5 * (pull * z).sum(-1) - log_p.sum(1), pull - back

        return energy

    n_chains, n = step.shape
    size = max(1, _AT_ONCE // (n_chains * program.curve.hidden * state.weight.shape[1]))
    moves = [
        hmc(energy_of(cells.rows(rows)), state.z[:, rows], step[:, rows], program.row_steps, rng)
        for rows in torch.arange(n, device=state.z.device).split(size)
    ]
    return Moved(*(torch.cat(parts, 1) for parts in zip(*moves, strict=True)))


def _compiled(
    state: DecoderState, z: Tensor, terms: tuple[Tensor, ...], unit: Tensor, to: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """A draw from the normal about z, or `to`, and its log density up to a constant."""
    to = torch.empty_like(z) if to is None else to
    (_, slope, bend), weight = terms, state.weight
    where = state.precision.double(), z, unit, to
    if slope.shape[1] <= _FEATURES:
        density = row_normals(*_in_order(slope, bend, weight.double(), *where))
    else:
        density = solved_normals(*_in_order(*_summed(weight, slope, bend), *where))
    return to, torch.from_numpy(density)


def _in_order(*tensors: Tensor) -> list[NDArray[Any]]:
    return [tensor.detach().contiguous().numpy() for tensor in tensors]


def _summed(weight: Tensor, slope: Tensor, bend: Tensor) -> tuple[Tensor, Tensor]:
    """Over features: of the lower half of W' diag(h) W each entry (chain, row, entry), and W' g."""
    first, second = np.tril_indices(weight.shape[-1])
    return bend.mT @ (weight[..., first] * weight[..., second]), slope.mT @ weight


def _squares(state: DecoderState, z: Tensor) -> Tensor:
    return ((z @ state.precision.to(z)) * z).sum(-1).double()


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
        total = torch.zeros_like(off[0])
        for k in range(n):
            whitened = self.root[k][k] * off[k]
            for i in range(k + 1, n):
                whitened = whitened + self.root[i][k] * off[i]
            total += self.root[k][k].log() - 0.5 * whitened.square()
        return total


def _proposal(state: DecoderState, z: Tensor, terms: tuple[Tensor, ...]) -> _Normal:
    """In double precision: large counts have precisions that single precision cannot take apart."""
    (_, slope, bend), weight = terms, state.weight
    first, second = np.tril_indices(weight.shape[-1])
    pairs, pull = (summed.double() for summed in _summed(weight, slope, bend))
    pairs, prior, z = pairs.movedim(-1, 0), state.precision, z.double()
    entries = iter(pairs + prior[:, first, second].T.unsqueeze(-1))
    root = _root([[next(entries) for _ in range(i + 1)] for i in range(weight.shape[-1])])
    pull = (pull - z @ prior).movedim(-1, 0)
    step = _upper_solved(root, _lower_solved(root, list(pull)))
    return _Normal(z.movedim(-1, 0) + torch.stack(step), root)


# Matrices are small and many: their entries are vectors over rows, which a library call each is not.
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
