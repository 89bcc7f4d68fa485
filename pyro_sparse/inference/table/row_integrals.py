r"""Integrals over the factors of each row, by importance sampling.

.. math:: \log \int p(x_i \mid z) N(z; 0, C)\, dz \approx \log \frac1D \sum_d \frac{p(x_i \mid z_{id})
          N(z_{id}; 0, C)}{q_i(z_{id})}

with q a Student t distribution at the mode of the integrand, with the spread of Laplace's normal (Geweke
1989, Econometrica 57(6)). Rows, and what stands before them (restarts, chains), are integrated all at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

__all__ = ["proposed", "row_modes", "sums_of_squares", "t_draws"]

_NEWTON, _LONGEST = 8, 2.0  # steps towards a row's mode, and the length of one in a factor's prior units
_ARRIVED = 1e-5  # length of a step after which the next is of its square: below what single precision knows
_FREEDOM = 8.0  # of the proposal


def row_modes(z: Tensor, expanded: Callable[[Tensor], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Modes of rows' factors, and roots of the precision there, lower triangular.

    Parameters
    ----------
    z : Tensor (..., row, factor), float64
        Where to begin.
    expanded : callable
        Of factors: slope (..., row, factor) of the log joint density, and minus its curvature (..., row,
        factor, factor).

    Returns
    -------
    mode : Tensor (..., row, factor)
    root : Tensor (..., row, factor, factor)
    """
    for _ in range(_NEWTON):
        slope, precision = expanded(z)
        step = torch.linalg.solve(precision, slope.unsqueeze(-1)).squeeze(-1)
        length = step.abs().amax(-1, keepdim=True)
        z = z + step * (_LONGEST / length.clamp(min=_LONGEST))
        if bool((length < _ARRIVED).all()):
            break
    return z, torch.linalg.cholesky(expanded(z)[1])


def sums_of_squares(weight: Tensor) -> Callable[[Tensor], Tensor]:
    r"""The map of numbers b of cells to :math:`\sum_j b_{ij} w_j w_j^\top` of rows, half of each summed.

    Parameters
    ----------
    weight : Tensor (..., feature, factor)

    Returns
    -------
    callable
        Of b (..., row, feature): a tensor (..., row, factor, factor).
    """
    k = weight.shape[-1]
    first, second = np.tril_indices(k)
    products = weight[..., first] * weight[..., second]
    place = np.empty((k, k), dtype=np.intp)
    place[first, second] = place[second, first] = np.arange(len(first))
    entry = torch.as_tensor(place.ravel(), device=weight.device)

    def summed(of_cells: Tensor) -> Tensor:
        return (of_cells @ products).index_select(-1, entry).unflatten(-1, (k, k))

    return summed


def t_draws(shape: tuple[int, ...], n: int, rng: np.random.Generator) -> Iterator[Tensor]:
    """Draws of a Student t distribution over the last dimension, every second the mirror image of the last.

    Parameters
    ----------
    shape : tuple of int
        Of a draw.
    n : int
        Even.
    rng : numpy.random.Generator
    """
    for _ in range(n // 2):
        unit, chi = rng.standard_normal(shape), rng.chisquare(_FREEDOM, (*shape[:-1], 1))
        draw = torch.as_tensor(unit * np.sqrt(_FREEDOM / chi))
        yield draw
        yield -draw


def proposed(mode: Tensor, root: Tensor, draws: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """Factors that draws stand for, and the log of their prior density over that of the proposal.

    Parameters
    ----------
    mode, root : Tensor
        From `row_modes`.
    draws : Tensor (draw, ..., row, factor)
        From `t_draws`.
    precision : Tensor (..., factor, factor)
        Inverse of C.

    Returns
    -------
    z : Tensor (draw, ..., row, factor)
    log_ratio : Tensor (draw, ..., row)
    """
    k, draws = mode.shape[-1], draws.to(mode).expand(-1, *mode.shape)
    # All draws of a row are columns of one system.
    z = mode + torch.linalg.solve_triangular(root.mT, draws.movedim(0, -1), upper=True).movedim(-1, 0)
    log_prior = 0.5 * torch.linalg.slogdet(precision)[1].unsqueeze(-1) - 0.5 * k * math.log(2 * math.pi)
    log_prior = log_prior - 0.5 * ((z @ precision) * z).sum(-1)
    constant = math.lgamma((_FREEDOM + k) / 2) - math.lgamma(_FREEDOM / 2)
    constant -= 0.5 * k * math.log(_FREEDOM * math.pi)
    log_t = constant + root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    log_t = log_t - 0.5 * (_FREEDOM + k) * (draws.square().sum(-1) / _FREEDOM).log1p()
    return z, log_prior - log_t
