r"""Prior of the noise of tasks, the parameters of which are learned from all of them.

.. math:: \sigma_t^2 \sim \mathrm{InverseGamma}(a, a s g_t^{-\kappa}), \quad \log s \sim N(\log 0.2, 1.5^2),
          \quad \log a \sim N(\log 2, 1), \quad \kappa \sim U(0, 1)

in variances of the task's own target, which is :math:`g_t` times the geometric mean of those of all tasks.
With :math:`\kappa = 0` noise is some share s of each target's variance, as it is where tasks have units of
their own; with 1 it is as large in all tasks, so that a target that varies little is nearly all noise. A
large shape a says that tasks differ little. What is known of (a, s, κ) goes by a grid, laid first over all
that the prior allows and then over where the posterior is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, logsumexp

__all__ = [
    "LEVEL",
    "SHAPE",
    "SHARES",
    "NoiseGrid",
    "log_hyperprior",
    "log_inverse_gamma",
    "noise_grid",
    "typical_noise",
]

LEVEL = (float(np.log(0.2)), 1.5)
"""Mean and standard deviation of log s: from a hundredth of the target's variance to all of it and more."""
SHAPE = (float(np.log(2.0)), 1.0)
"""The same of log a: noise of a task within a factor of some 3 of the others', more or less."""

_WIDE = 6.0  # standard deviations of the hyperprior that the first grid reaches to
SHARES = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
"""Of kappa, which a grid takes for as likely each."""

_SIZES = (9, 21), (9, 11), (9, 11)  # shapes and levels of the first grid, and of those after it
_NEAR = 4.0  # of the posterior, that the second one reaches to

Array = NDArray[np.float64]


class NoiseGrid(NamedTuple):
    """Points (a, s, kappa) and the logarithm of their posterior mass.

    Attributes
    ----------
    shape, level, share : ndarray (point,)
    log_mass : ndarray (point,)
        Its exponentials add to 1.
    """

    shape: Array
    level: Array
    share: Array
    log_mass: Array

    def scales(self, log_spread: Array) -> Array:
        """Of the inverse gammas of tasks whose targets have these log variances, (task, point)."""
        return self.shape * self.level * np.exp(-self.share * log_spread[:, None])


def log_hyperprior(log_shape: ArrayLike, log_level: ArrayLike) -> Array:
    """Log density of (log a, log s), up to a constant."""
    z = (np.asarray(log_shape) - SHAPE[0]) / SHAPE[1], (np.asarray(log_level) - LEVEL[0]) / LEVEL[1]
    return -0.5 * (z[0] ** 2 + z[1] ** 2)


def log_inverse_gamma(log_variance: ArrayLike, shape: ArrayLike, scale: ArrayLike) -> Array:
    """Log density of the logarithm of a variance which is inverse gamma."""
    a, b, log_v = np.asarray(shape), np.asarray(scale), np.asarray(log_variance)
    return np.asarray(a * np.log(b) - gammaln(a) - a * log_v - b * np.exp(-log_v))


def noise_grid(log_likelihood: Callable[[NoiseGrid], Array]) -> NoiseGrid:
    """Posterior of (a, s, kappa) on a grid.

    Parameters
    ----------
    log_likelihood : callable
        Of the points, summed over tasks: (point,).
    """
    centre, half = np.array([SHAPE[0], LEVEL[0]]), _WIDE * np.array([SHAPE[1], LEVEL[1]])
    for sizes in _SIZES:
        axes = [np.linspace(c - h, c + h, k) for c, h, k in zip(centre, half, sizes, strict=True)]
        at = np.stack([axis.ravel() for axis in np.meshgrid(*axes, SHARES, indexing="ij")])
        grid = NoiseGrid(np.exp(at[0]), np.exp(at[1]), at[2], log_hyperprior(at[0], at[1]))
        log_mass = grid.log_mass + log_likelihood(grid)
        grid = grid._replace(log_mass=log_mass - logsumexp(log_mass))
        mass = np.exp(grid.log_mass)
        centre = at[:2] @ mass
        step = np.array([axis[1] - axis[0] for axis in axes])
        sd = np.sqrt(((at[:2] - centre[:, None]) ** 2) @ mass + step**2 / 12)  # it may be at one point
        half = np.minimum(_NEAR * sd, half)
    return grid


def typical_noise(squares: ArrayLike, dof: ArrayLike, log_spread: ArrayLike) -> tuple[float, float, float]:
    """Shape, level and kappa that sums of squared residuals speak for: means (of logarithms, the first two).

    Parameters
    ----------
    squares : array_like (task,)
        In variances of the target.
    dof : array_like (task,)
        Rows that weights and intercept leave; a task with none says nothing.
    log_spread : array_like (task,)
        log g of the tasks (`data.tasks.relative_spread`).
    """
    known = np.asarray(dof) > 0
    rest, half = np.asarray(squares, dtype=float)[known] / 2, np.asarray(dof, dtype=float)[known] / 2

    def log_likelihood(grid: NoiseGrid) -> Array:
        a, b = grid.shape, grid.scales(np.asarray(log_spread)[known])
        of_task = a * np.log(b) - gammaln(a) + gammaln(a + half[:, None])
        return np.asarray((of_task - (a + half[:, None]) * np.log(b + rest[:, None])).sum(0))

    grid = noise_grid(log_likelihood)
    mass = np.exp(grid.log_mass)
    shape, level = (float(np.exp(mass @ np.log(v))) for v in (grid.shape, grid.level))
    return shape, level, float(mass @ grid.share)
