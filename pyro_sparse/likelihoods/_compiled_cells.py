r"""Cells that are levels of a logistic response, compiled: log p, its slope and curvature, and sums.

With u = exp(f) and a = exp(-c) of the cut c below a cell's level, b of the one above,

.. math:: p = \frac{u (a - b)}{(1 + u a)(1 + u b)}, \qquad \text{of the lowest level}\ \frac{1}{1 + u b},

so that a cell takes one exponential, one logarithm and one division, in double precision whatever f has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .._utils.arrays import COMPILED, compiled
from .._utils.elementary import exponential, logarithm

__all__ = ["level_sums", "level_terms", "loading_jets"]

Array = npt.NDArray[np.float64]
Cells = npt.NDArray[Any]  # numbers of a precision that the caller chose
_FARTHEST = 30.0  # |f| and |cut| up to which no product of _TOGETHER cells over- or underflows
_TOGETHER = 4  # cells that share a logarithm where only sums are wanted
_BLOCK = 256  # rows at a time: their numbers stay in the nearest memory


def level_terms(f: Tensor, x: Tensor, cuts: Tensor, order: int) -> tuple[Tensor, ...] | None:
    """As `Likelihood.cell_terms`, of levels x.

    Parameters
    ----------
    f : Tensor (..., chain, feature, row)
    x : Tensor (chain or 1, feature, row)
    cuts : Tensor (chain or 1, feature or 1, cut)
    order : int
        How many derivatives.

    Returns
    -------
    tuple of Tensor (..., chain, feature, row), or None
        None without numba, or where numbers are too large for these formulas.
    """
    factors = _factors(f, x, None, cuts)
    if factors is None:
        return None
    flat = f.detach().reshape(-1, *f.shape[-2:]).numpy()
    terms = np.empty((order + 1, *flat.shape), flat.dtype)
    if _terms(flat, x.detach().numpy(), factors, f.shape[-3], terms):
        return None
    return tuple(torch.from_numpy(terms).view(order + 1, *f.shape))


def level_sums(f: Tensor, x: Tensor, mask: Tensor | None, cuts: Tensor) -> Tensor | None:
    """Sums of log p over rows, (chain, feature), float64; f is (chain, feature, row), else as `level_terms`.

    Parameters
    ----------
    mask : Tensor (chain or 1, feature, row), optional
        1 where a cell was seen.
    """
    factors = _factors(f, x, mask, cuts)
    if factors is None or f.ndim != 3:
        return None
    sums = np.empty(f.shape[:2])
    cells = f.detach().numpy(), x.detach().numpy(), _observed(x, mask)
    return None if _sums(*cells, factors, sums) else torch.from_numpy(sums)


def loading_jets(
    f: Tensor, x: Tensor, mask: Tensor | None, cuts: Tensor, begun: tuple[Array, Array], along: Array,
    projection: Array, prior: float, farthest: float, width: float,
) -> tuple[Array, Array, Array] | None:  # fmt: skip
    """Log-likelihoods of steps of f along a row vector, at their modes and to either side.

    Two steps of Newton's method lead to the mode of the likelihood and a normal density of the projection.

    Parameters
    ----------
    f, x, mask, cuts
        As in `level_sums`.
    begun : tuple of ndarray (chain, feature)
        Slope and minus the second derivative of the log-likelihood at f.
    along : ndarray (chain, feature or 1, row)
    projection : ndarray (chain, feature)
        Where a step of 0 is, from the mean of the normal density.
    prior : float
        Precision of that density.
    farthest : float
        That a step of Newton's method moves f of a cell.
    width : float
        Standard deviations from the mode to either side.

    Returns
    -------
    tuple of ndarray, or None
        The step to the mode and the standard deviation (chain, feature); value, slope and minus the second
        derivative below, at and above the mode (derivative, place, chain, feature).
    """
    factors = _factors(f, x, mask, cuts)
    if factors is None or f.ndim != 3:
        return None
    steps, sd, jets = np.zeros(f.shape[:2]), np.empty(f.shape[:2]), np.empty((3, 3, *f.shape[:2]))
    cells = f.detach().numpy(), x.detach().numpy(), _observed(x, mask)
    far = _jets(*cells, factors, *begun, along, projection, prior, farthest, width, steps, sd, jets)
    return None if far else (steps, sd, jets)


def _factors(f: Tensor, x: Tensor, mask: Tensor | None, cuts: Tensor) -> Array | None:
    """exp(-cut), with those of the ends of the line (chain, feature, cut + 2); None where not to be used."""
    tensors = (f, x, cuts) if mask is None else (f, x, mask, cuts)
    if not COMPILED or any(t.device.type != "cpu" for t in tensors):
        return None
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return None
    if f.ndim < 3 or any(t.ndim != 3 or t.shape[0] not in (1, f.shape[-3]) for t in tensors[1:]):
        return None
    if any(t.shape[1:] != f.shape[-2:] for t in tensors[1:-1]) or cuts.shape[1] not in (1, f.shape[-2]):
        return None
    at = cuts.detach().double().numpy()
    if not ((np.abs(at) <= _FARTHEST) | np.isposinf(at)).all():
        return None
    factors = np.zeros((*at.shape[:-1], at.shape[-1] + 2))
    factors[..., 1:-1] = np.exp(-at)
    return factors


def _observed(x: Tensor, mask: Tensor | None) -> Cells:
    """The mask, or one without rows."""
    return x.detach().numpy()[..., :0] if mask is None else mask.detach().numpy()


@compiled
def _of_levels(level: Cells, factors: Array, below: Array, above: Array, not_lowest: Array) -> None:
    """Of each cell's level: the factors at either side, and 1, or 0 for the lowest."""
    for i in range(len(level)):
        below[i], above[i] = 0.0, factors[1]
        not_lowest[i] = min(np.float64(level[i]), 1.0)
    for at in range(1, len(factors) - 1):  # several cells at a time, which looking them up is not
        low, high = factors[at], factors[at + 1]
        for i in range(len(level)):
            here = level[i] == at
            below[i] = low if here else below[i]
            above[i] = high if here else above[i]


@compiled
def _terms(f: Cells, level: Cells, factors: Array, n_chains: int, terms: Cells) -> int:
    """`level_terms` of f (any, feature, row), written to `terms`; how many cells were too far."""
    order, n = len(terms) - 1, f.shape[2]
    below, above, not_lowest = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    log_p, slope, bend = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    far = 0
    for m in range(len(f)):
        chain = m % n_chains
        of_level = level[chain if len(level) > 1 else 0]
        of_cuts = factors[chain if len(factors) > 1 else 0]
        for g in range(f.shape[1]):
            for start in range(0, n, _BLOCK):
                size = min(_BLOCK, n - start)
                at_rows = f[m, g, start : start + size]
                _of_levels(
                    of_level[g, start : start + size], of_cuts[g if len(of_cuts) > 1 else 0],
                    below, above, not_lowest,
                )  # fmt: skip
                for i in range(size):
                    at, rise = np.float64(at_rows[i]), not_lowest[i]
                    far += 0 if abs(at) <= _FARTHEST else 1
                    u = exponential(at)
                    low, high = 1 + u * below[i], 1 + u * above[i]
                    share = 1 / (low * high)
                    from_low, from_high = rise * share * high, u * above[i] * low * share
                    log_p[i] = rise * at + logarithm((rise * (below[i] - above[i]) + (1 - rise)) * share)
                    slope[i] = from_low - from_high
                    bend[i] = from_low * (1 - from_low) + from_high * (1 - from_high)
                written = terms[:, m, g, start : start + size]
                for i in range(size):
                    written[0, i] = log_p[i]
                if order > 0:
                    for i in range(size):
                        written[1, i] = slope[i]
                if order > 1:
                    for i in range(size):
                        written[2, i] = bend[i]
    return far


@compiled
def _log_product(of_cells: Array, size: int) -> float:
    """Sum of logarithms of the first of these numbers, which are lost."""
    n_products = -(-size // _TOGETHER)
    for i in range(size, _TOGETHER * n_products):
        of_cells[i] = 1.0
    for n in range(1, _TOGETHER):
        for i in range(n_products):
            of_cells[i] *= of_cells[n * n_products + i]
    total = 0.0
    for i in range(n_products):
        total += logarithm(of_cells[i])
    return total


@compiled
def _sums(f: Cells, level: Cells, mask: Cells, factors: Array, sums: Array) -> int:
    """`level_sums`; how many cells were too far."""
    n = f.shape[2]
    below, above, not_lowest = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    of_cells = np.empty(_BLOCK)
    far = 0
    for c in range(len(f)):
        of_cuts = factors[c if len(factors) > 1 else 0]
        cells = c if len(level) > 1 else 0
        observed = mask[c if len(mask) > 1 else 0]
        for g in range(f.shape[1]):
            total = 0.0
            for start in range(0, n, _BLOCK):
                size = min(_BLOCK, n - start)
                at_rows = f[c, g, start : start + size]
                _of_levels(
                    level[cells, g, start : start + size], of_cuts[g if len(of_cuts) > 1 else 0],
                    below, above, not_lowest,
                )  # fmt: skip
                if mask.shape[2]:
                    _hide(observed[g, start : start + size], below, above, not_lowest)
                for i in range(size):
                    at, rise = np.float64(at_rows[i]), not_lowest[i]
                    far += 0 if abs(at) <= _FARTHEST else 1
                    u = exponential(at)
                    share = 1 / ((1 + u * below[i]) * (1 + u * above[i]))
                    total += rise * at
                    of_cells[i] = (rise * (below[i] - above[i]) + (1 - rise)) * share
                total += _log_product(of_cells, size)
            sums[c, g] = total
    return far


@compiled
def _hide(observed: Cells, below: Array, above: Array, not_lowest: Array) -> None:
    """Cells that were not seen become those of a single level, of which p is 1."""
    for i in range(len(observed)):
        below[i] = below[i] if observed[i] > 0 else 0.0
        above[i] = above[i] if observed[i] > 0 else 0.0
        not_lowest[i] = not_lowest[i] if observed[i] > 0 else 0.0


@compiled
def _jets(
    f: Cells, level: Cells, mask: Cells, factors: Array, slope: Array, bend: Array, along: Array,
    projection: Array, prior: float, farthest: float, width: float, steps: Array, sd: Array, jets: Array,
) -> int:  # fmt: skip
    """`loading_jets`; how many cells were too far."""
    n = f.shape[2]
    below, above, not_lowest, of_cells = np.empty(n), np.empty(n), np.empty(n), np.empty(n + _TOGETHER)
    far = 0
    for c in range(len(f)):
        of_cuts = factors[c if len(factors) > 1 else 0]
        cells = c if len(level) > 1 else 0
        observed = mask[c if len(mask) > 1 else 0]
        for g in range(f.shape[1]):
            _of_levels(level[cells, g], of_cuts[g if len(of_cuts) > 1 else 0], below, above, not_lowest)
            if mask.shape[2]:
                _hide(observed[g], below, above, not_lowest)
            by = along[c, g if along.shape[1] > 1 else 0]
            largest = 0.0
            for i in range(n):
                largest = max(largest, abs(by[i]))
            first, second, step = slope[c, g], bend[c, g], 0.0
            for look in range(4):
                if look < 2:
                    newton = (first - prior * (projection[c, g] + step)) / (second + prior)
                    step += newton / max(abs(newton) * largest / farthest, 1.0)
                    at_step = step
                elif look == 2:
                    steps[c, g], sd[c, g] = step, 1 / np.sqrt(second + prior)
                    at_step = step - width * sd[c, g]
                else:
                    at_step = step + width * sd[c, g]
                total, first, second = 0.0, 0.0, 0.0
                for i in range(n):
                    way, rise = by[i], not_lowest[i]
                    at = np.float64(f[c, g, i]) + at_step * way
                    far += 0 if abs(at) <= _FARTHEST else 1
                    u = exponential(at)
                    low, high = 1 + u * below[i], 1 + u * above[i]
                    share = 1 / (low * high)
                    from_low, from_high = rise * share * high, u * above[i] * low * share
                    total += rise * at
                    of_cells[i] = (rise * (below[i] - above[i]) + (1 - rise)) * share
                    first += way * (from_low - from_high)
                    second += way * way * (from_low * (1 - from_low) + from_high * (1 - from_high))
                total += _log_product(of_cells, n)
                place = 1 if look < 2 else 0 if look == 2 else 2
                jets[0, place, c, g], jets[1, place, c, g], jets[2, place, c, g] = total, first, second
    return far
