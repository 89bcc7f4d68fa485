r"""Learned noise of sparse rows, integrated over levels of its logarithm.

A plugged-in variance makes a task of few rows too sure: whether its targets are explained is what the rows
do not say. With the likelihood :math:`L_t(v)` at some variances v of each task, all that has to do with the
noise is sums: over the variances of a task and, where the prior's own parameters h are learned, over a grid
of these,

.. math:: p(v_t \mid y) \propto L_t(v_t) \sum_h p(h \mid y_{-t})\, p(v_t \mid h), \qquad
          p(h \mid y_{-t}) \propto p(h) \prod_{s \ne t} \sum_v L_s(v)\, p(v \mid h)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from scipy.special import gammainccinv, gammaincinv, gammaln, logsumexp

from ....data.tasks import relative_spread
from ....models._task_noise import NoiseGrid, log_inverse_gamma, noise_grid
from .row_checks import Rows
from .rows import RowPrior

__all__ = ["first_noise_prior", "log_noise_prior", "log_spread", "mass_at_levels", "wide_levels"]

_FIRST = (1.0, 0.1)  # where a first search of the sites begins, if the prior's own parameters are learned
_LEAST = (1.0, 0.001)  # and what its levels reach down to, where rows do not say
_TAIL = 0.002  # of either end of the noise, left out of the levels
_FINE = 12  # points between two levels
_REACH = 0.004  # of either end of the posterior, left out of the levels that edges are averaged over
_TASKS = 32  # looked at at a time

Array = NDArray[np.float64]


def first_noise_prior(prior: RowPrior) -> tuple[float, float]:
    """The inverse gamma, or one to begin with where its parameters are learned."""
    return _FIRST if isinstance(prior.noise_prior, str) else prior.noise_prior


def wide_levels(rows: Rows, prior: RowPrior, count: int) -> Array:
    """Variances (level, row), equally spaced in their logarithm, with nearly all that the noise may be.

    They run from the noise of a least-squares fit of all features to that of none.

    Parameters
    ----------
    rows : Rows
        Flat.
    prior : RowPrior
    count : int
    """
    m = rows.cross.shape[-1]
    slopes = (np.linalg.pinv(rows.gram, hermitian=True) @ rows.cross[..., None])[..., 0]
    least = np.maximum(rows.square - (rows.cross * slopes).sum(-1), 0)
    a, b = _LEAST if isinstance(prior.noise_prior, str) else prior.noise_prior
    low = np.log((b + least / 2) / gammainccinv(a + np.maximum(rows.dof - m, 0) / 2, _TAIL))
    high = np.log((max(b, _FIRST[1]) + rows.square / 2) / gammaincinv(a + rows.dof / 2, _TAIL))
    return np.exp(low + (high - low) * np.linspace(0, 1, count)[:, None])


def mass_at_levels(
    levels: Array, log_likelihood: Array, prior: RowPrior, shape: tuple[int, ...], count: int
) -> tuple[Array, Array, Array]:
    """Variances to average over, (level, row), their posterior mass, and log p(y) of each row.

    Parameters
    ----------
    levels, log_likelihood : ndarray (level, row)
        `wide_levels`, and what the targets say of them.
    prior : RowPrior
    shape : tuple of int
        Of the rows, (..., task).
    count : int
        Of the variances asked for.
    """
    place = np.linspace(0, len(levels) - 1, _FINE * (len(levels) - 1) + 1)
    log_fine = CubicSpline(np.arange(len(levels)), np.log(levels))(place)  # a line
    log_like = CubicSpline(np.arange(len(levels)), log_likelihood)(place)
    log_mass = log_like + log_noise_prior(log_fine, log_like, prior, shape)
    total = logsumexp(log_mass, axis=0)
    mass = np.exp(log_mass - total)
    evidence = total + np.log(log_fine[1] - log_fine[0])
    below = np.cumsum(mass, axis=0)
    first = np.maximum((below < _REACH).sum(0) - 1, 0)
    last = np.minimum((below < 1 - _REACH).sum(0) + 1, len(place) - 1)
    row = np.arange(mass.shape[1])
    low, high = log_fine[first, row], log_fine[last, row]
    # Each point of the fine grid is shared by the two levels beside it: edges are lines between levels.
    at = np.clip((log_fine - low) / (high - low) * (count - 1), 0, count - 1)
    hat = np.maximum(1 - np.abs(at - np.arange(count)[:, None, None]), 0)
    return (
        np.exp(low + (high - low) * np.linspace(0, 1, count)[:, None]),
        (hat * mass).sum(1),
        evidence,
    )


def log_noise_prior(
    log_levels: Array, log_likelihood: Array, prior: RowPrior, shape: tuple[int, ...]
) -> Array:
    """Log density of the log variance of each task at some values, given all other tasks.

    Parameters
    ----------
    log_levels, log_likelihood : ndarray (level, row)
        Equally spaced logarithms of variances, and log p(y) there; rows flat.
    prior : RowPrior
    shape : tuple of int
        Of the rows, (..., task); those along the last axis share what is learned.
    """
    if not isinstance(prior.noise_prior, str):
        return log_inverse_gamma(log_levels, *prior.noise_prior)
    n_tasks, answer = shape[-1], np.empty(log_levels.shape)
    spread = log_spread(prior, shape).ravel()
    for first in range(0, log_levels.shape[1], n_tasks):
        some = slice(first, first + n_tasks)
        answer[:, some] = _given_others(log_levels[:, some], log_likelihood[:, some], spread[some])
    return answer


def log_spread(prior: RowPrior, shape: tuple[int, ...]) -> Array:
    """log g of each task (`models/_task_noise.py`), 0 where nothing is said of the targets' scale."""
    scale = 1.0 if prior.target_scale is None else prior.target_scale
    return relative_spread(np.broadcast_to(np.asarray(scale, dtype=float), shape))


def _given_others(log_levels: Array, log_likelihood: Array, spread: Array) -> Array:
    chunks = [slice(i, i + _TASKS) for i in range(0, log_levels.shape[1], _TASKS)]
    log_step = np.log(log_levels[1] - log_levels[0])
    most = log_likelihood.max(0)
    likelihood = np.exp(log_likelihood - most).T[:, None]  # (task, 1, level)

    def of_tasks(some: slice, grid: NoiseGrid) -> Array:
        density = _density(log_levels[:, some], grid, spread[some])
        return _log((likelihood[some] @ density)[:, 0]) + (most + log_step)[some, None]

    grid = noise_grid(lambda grid: np.sum([of_tasks(some, grid).sum(0) for some in chunks], axis=0))
    answer = np.empty(log_levels.shape)
    for some in chunks:
        density = _density(log_levels[:, some], grid, spread[some])
        others = grid.log_mass - _log((likelihood[some] @ density)[:, 0])
        mass = np.exp(others - logsumexp(others, axis=1, keepdims=True))
        answer[:, some] = _log(density @ mass[..., None])[..., 0].T
    return answer


def _density(log_levels: Array, grid: NoiseGrid, spread: Array) -> Array:
    """Of the log variance at the levels (level, task) under each point of the grid: (task, level, point)."""
    scales = grid.scales(spread)
    log_v = log_levels.T[..., None]
    # As `log_inverse_gamma`, in place: of all that edges of tasks need, this takes the most time. It is at
    # most some sqrt(shape), so that the exponential cannot overflow.
    log_density = log_v * -grid.shape
    log_density += (grid.shape * np.log(scales) - gammaln(grid.shape))[:, None]
    log_density -= np.exp(-log_v) * scales[:, None]
    return np.asarray(np.exp(log_density, out=log_density))


def _log(values: Array) -> Array:
    return np.asarray(np.log(np.maximum(values, np.finfo(float).tiny)))
