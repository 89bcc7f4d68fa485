r"""Which strengths are edges: a mixture of what a fit's error leaves and of what is there.

The strength of an edge that is not there is not zero but the error of the axes, and an error in the axis of
factor k shows in column k. So, for strengths r in [0, 1],

.. math::

    r_{jk} \mid \gamma_{jk} = 1 \sim U(0, 1), \qquad
    r_{jk} \mid \gamma_{jk} = 0 \sim \tau_k\,|t_\nu|, \qquad
    \log \tau_k \sim N(\log \tau, s^2), \qquad \gamma_{jk} \sim \mathrm{Bernoulli}(\eta),

with :math:`\tau` and :math:`\eta` unknown too. A Gibbs run over edges, scales (on a grid) and rate takes
milliseconds; nobody has to say how many edges there are, or where a threshold lies.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logsumexp
from scipy.stats import t as student

__all__ = ["StrengthMixture", "edge_probability", "strength_mixture"]

_SLAB = 1.3  # of the Beta distribution of an edge
_TAIL = 3.0  # degrees of freedom
_SPREAD = 0.35  # of log scales between factors
GRID = np.geomspace(1e-4, 0.3, 80)
_CENTRE, _WIDTH = np.log(0.02), 1.5  # of the common log scale
CENTRE = int(np.abs(GRID - 0.02).argmin())  # where chains begin


class StrengthMixture(NamedTuple):
    """Posterior of the edges given one fit's strengths.

    Parameters
    ----------
    probability : ndarray (feature, factor)
        Rao-Blackwellised.
    edge : ndarray of int8 (draw, feature, factor)
    rate : ndarray (draw,)
        Share of edges.
    scale : ndarray (draw, factor)
        Size of strengths without an edge.
    """

    probability: NDArray[np.float64]
    edge: NDArray[np.int8]
    rate: NDArray[np.float64]
    scale: NDArray[np.float64]


def strength_mixture(
    strength: ArrayLike, num_draws: int = 500, burn_in: int = 100, seed: int | np.random.SeedSequence = 0
) -> StrengthMixture:
    """Draws of the graph given the strengths of one fit.

    Parameters
    ----------
    strength : array_like (feature, factor)
        In [0, 1], relative to the feature's row.
    num_draws, burn_in : int
        Gibbs sweeps kept and left out.
    seed : int or SeedSequence

    Returns
    -------
    StrengthMixture

    Raises
    ------
    ValueError
        The strengths are no matrix of numbers in [0, 1].

    Examples
    --------
    >>> r = np.array([[1.0, 0.01, 0.02], [0.6, 0.8, 0.01], [0.02, 0.7, 0.7]])
    >>> (strength_mixture(r).probability > 0.5).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    """
    r = np.asarray(strength, dtype=float)
    check_strengths(r, r.shape)
    rng = np.random.default_rng(seed)
    n_features, n_factors = r.shape
    spike, slab = log_spike(r), log_slab(r)
    between, centre_prior = log_priors()
    columns = np.arange(n_factors)

    edge = r > 0.1
    centre = CENTRE
    total = np.zeros_like(r)
    edges = np.zeros((num_draws, n_features, n_factors), np.int8)
    rates, scales = np.zeros(num_draws), np.zeros((num_draws, n_factors))
    for sweep in range(burn_in + num_draws):
        rate = rng.beta(1 + edge.sum(), 1 + (~edge).sum())
        log_scale = (spike * ~edge).sum(1) + between[:, [centre]]
        scale = categorical(log_scale, rng)
        centre = int(categorical((between[scale].sum(0) + centre_prior)[:, None], rng)[0])
        p = expit(np.log(rate) - np.log1p(-rate) + slab - spike[scale, :, columns].T)
        edge = rng.random(r.shape) < p
        if sweep >= burn_in:
            d = sweep - burn_in
            total += p
            edges[d], rates[d], scales[d] = edge, rate, GRID[scale]
    return StrengthMixture(total / num_draws, edges, rates, scales)


def edge_probability(strength: ArrayLike) -> NDArray[np.float64]:
    """Probability of every edge given the strengths of one fit, (feature, factor)."""
    return strength_mixture(strength).probability


# ---- parts that the mixture of binned strengths shares -----------------------------------------------------
def check_strengths(values: NDArray[np.float64], shape: tuple[int, ...]) -> None:
    """Raise unless a table of that shape, whose stored values these are, holds numbers in [0, 1]."""
    if (
        len(shape) != 2
        or 0 in shape
        or not (np.isfinite(values) & (values >= 0) & (values <= 1 + 1e-6)).all()
    ):
        raise ValueError(
            f"strength: want numbers in [0, 1] of shape (feature, factor), got shape {shape}"
            + (f" from {values.min():.3g} to {values.max():.3g}" if values.size else "")
        )


def log_spike(strength: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log density of strengths without an edge, for every scale of the grid in a first dimension."""
    grid = GRID.reshape(-1, *[1] * strength.ndim)
    density: NDArray[np.float64] = np.log(2) + student.logpdf(strength[None] / grid, _TAIL) - np.log(grid)
    return density


def log_slab(strength: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log density of strengths of edges."""
    density: NDArray[np.float64] = np.log(_SLAB) + (_SLAB - 1) * np.log(np.maximum(strength, 1e-12))
    return density


def log_priors() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of a column's scale given the common one, (scale, centre), and of the common one."""
    log_grid = np.log(GRID)
    between = -0.5 * ((log_grid[:, None] - log_grid[None]) / _SPREAD) ** 2
    return between - logsumexp(between, axis=0), -0.5 * ((log_grid - _CENTRE) / _WIDTH) ** 2


def categorical(log_weight: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One index along the first axis for each column, by the Gumbel trick."""
    return (log_weight + rng.gumbel(size=log_weight.shape)).argmax(0)
