r"""Sparse axes of a space: the linear map of the latent in which a loading matrix has the most zeros.

A dense fit finds the right space and leaves the axes free; sparsity finds them. `varimax` is the simplest
case (an orthogonal map, fourth moments). `oblique` allows correlated factors and counts zeros directly,

.. math:: \min_T \sum_{jk} \frac{\lambda_{jk}^2}{\lambda_{jk}^2 + \epsilon}, \qquad
          \Lambda = A (T^{-1})^\top, \quad \mathrm{diag}(T^\top T) = 1,

with :math:`\epsilon` falling to a small value and all random starts in one batch. `simple` chooses: an
oblique map has :math:`K(K-1)/2` more free numbers, the correlations, and must save as many loadings.
"""

from __future__ import annotations

import numpy as np
import torch

from ..._utils.optimisers import eager
from ..._utils.varimax import varimax
from ._compiled_axes import AVAILABLE, adam_steps

__all__ = ["SILENT", "counted", "n_sizeable", "oblique", "obliques", "promax", "simple", "varimax"]

SILENT = 1e-3  # of the largest total slope: a feature with less says nothing about axes
BARRIER = 0.1  # weight of what keeps two factors apart


def promax(loadings: np.ndarray, power: float = 4.0) -> tuple[np.ndarray, np.ndarray]:
    r"""Oblique rotation towards the varimax loadings raised to a power (Hendrickson & White 1964).

    .. math:: \min_T \lVert A T - Q \rVert, \qquad Q_{jk} = A_{jk} |A_{jk}|^{p-1}

    Parameters
    ----------
    loadings : ndarray (feature, factor)
        Of orthogonal, unit-variance factors.
    power : float
        p; the higher, the more correlated the factors.

    Returns
    -------
    loadings : ndarray (feature, factor)
    correlation : ndarray (factor, factor)
        Of the rotated factors, unit diagonal.

    References
    ----------
    Hendrickson and White (1964), Promax: a quick method for rotation to oblique simple structure, British
    Journal of Statistical Psychology 17

    Examples
    --------
    >>> rotated, correlation = promax(np.kron(np.eye(2), np.full((3, 1), 0.7)))
    >>> np.abs(rotated).max(1).round(2).tolist()
    [0.7, 0.7, 0.7, 0.7, 0.7, 0.7]
    >>> bool(np.allclose(correlation, np.eye(2)))
    True
    """
    orthogonal = loadings @ varimax(loadings)
    target = orthogonal * np.abs(orthogonal) ** (power - 1)
    map_ = np.linalg.lstsq(orthogonal, target, rcond=None)[0]
    map_ = map_ * np.sqrt(np.diag(np.linalg.inv(map_.T @ map_)))
    inverse = np.linalg.inv(map_)
    return orthogonal @ map_, inverse @ inverse.T


def oblique(
    loadings: np.ndarray,
    n_starts: int = 8,
    steps: int = 300,
    epsilon: tuple[float, float] = (0.3, 0.1),
    max_correlation: float = 0.95,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    r"""Oblique rotation with the fewest sizeable loadings.

    Parameters
    ----------
    loadings : ndarray (feature, factor)
        Of orthogonal, unit-variance factors.
    n_starts : int
        Varimax, and random rotations of it, optimised in one batch.
    epsilon : (float, float)
        First and last value of the smoothing constant.
    max_correlation : float
        Solutions with two factors more correlated than this are discarded (they are one factor twice).

    Returns
    -------
    loadings : ndarray (feature, factor)
    correlation : ndarray (factor, factor)
        Of the rotated factors, unit diagonal.
    """
    solutions = obliques(loadings, n_starts, steps, epsilon, max_correlation, seed)
    if not solutions:
        return loadings @ varimax(loadings), np.eye(loadings.shape[1])
    return solutions[0]


def obliques(
    loadings: np.ndarray,
    n_starts: int = 8,
    steps: int = 300,
    epsilon: tuple[float, float] = (0.3, 0.1),
    max_correlation: float = 0.95,
    seed: int = 0,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Where the starts of `oblique` end, those with the fewest sizeable loadings first.

    Parameters
    ----------
    loadings, n_starts, steps, epsilon, max_correlation, seed
        As in `oblique`.

    Returns
    -------
    list of (loadings, correlation)
        As `oblique` returns them, one for each start that does not end in one factor twice.
    """
    n_factors = loadings.shape[1]
    if n_factors == 1:
        return [(loadings.copy(), np.eye(1))]
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(n_starts, n_factors, n_factors, generator=generator, dtype=torch.float64).numpy()
    map_ = varimax(loadings) + np.linspace(0.0, 1.0, n_starts).reshape(-1, 1, 1) * noise
    done = np.arange(steps)
    smoothing = epsilon[0] * (epsilon[1] / epsilon[0]) ** (done / (steps - 1))
    rate = 0.05 * (1 - done / steps) + 1e-3
    if AVAILABLE:
        adam_steps(map_, np.ascontiguousarray(loadings, dtype=float), smoothing, rate, BARRIER)
    else:
        _descend(map_, loadings, smoothing, rate)
    rotated, unit, _, _ = _rotated(map_, loadings)
    cost = (rotated**2 / (rotated**2 + epsilon[1])).sum((1, 2))
    correlation = np.swapaxes(unit, -1, -2) @ unit
    worst = np.abs(correlation - np.eye(n_factors)).max((1, 2))
    order = [r for r in cost.argsort(kind="stable") if worst[r] < max_correlation and np.isfinite(cost[r])]
    return [(rotated[r], correlation[r]) for r in order]


def _descend(map_: np.ndarray, loadings: np.ndarray, smoothing: np.ndarray, rate: np.ndarray) -> None:
    """`adam_steps` by torch, `map_` in place."""
    moved = torch.as_tensor(map_)  # the same memory: slopes of such small matrices are quicker in numpy
    optimiser = eager(torch.optim.Adam)([moved], lr=0.05)
    for small, step in zip(smoothing, rate, strict=True):
        optimiser.param_groups[0]["lr"] = float(step)
        moved.grad = torch.as_tensor(_slope(map_, loadings, float(small)))
        optimiser.step()


def _rotated(turn: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Loadings (start, feature, factor), the map in unit columns, its inverse transposed, their lengths."""
    length = np.sqrt((turn**2).sum(1, keepdims=True))
    unit = turn / length
    inverse = np.swapaxes(np.linalg.inv(unit), -1, -2)
    return a @ inverse, unit, inverse, length


def _slope(turn: np.ndarray, a: np.ndarray, small: float) -> np.ndarray:
    r"""Slope of the smooth count of loadings plus :data:`BARRIER` times :math:`-\log|T^\top T|`.

    Written out: with unit columns T and :math:`\Lambda = A T^{-\top}`, whose count has the slope D, it is
    :math:`-T^{-\top} (D^\top \Lambda + 2 b I)` in T. Autograd takes three to five times as long.
    """
    loadings, unit, inverse, length = _rotated(turn, a)
    bent = loadings * (2 * small) / (loadings**2 + small) ** 2
    inner = np.swapaxes(bent, -1, -2) @ loadings + 2 * BARRIER * np.eye(a.shape[1])
    slope = -inverse @ inner
    slope -= unit * (unit * slope).sum(1, keepdims=True)  # the length of a column says nothing
    return np.asarray(slope / length)


def counted(loadings: np.ndarray, size: float = 0.1) -> np.ndarray:
    r"""How much of an edge each loading is: :math:`\lambda^2 / (\lambda^2 + s^2)`, half at the size s.

    Parameters
    ----------
    loadings : ndarray
        Of any shape.
    size : float
    """
    squares = loadings**2
    return np.asarray(squares / (squares + size**2))


def n_sizeable(loadings: np.ndarray, size: float = 0.1) -> float:
    r"""Smooth number of loadings larger than `size`, of which one as large as it counts half.

    .. math:: \sum_{jk} \lambda_{jk}^2 / (\lambda_{jk}^2 + s^2)

    Parameters
    ----------
    loadings : ndarray (feature, factor)
    size : float
    """
    return float(counted(loadings, size).sum())


def simple(loadings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Oblique axes if they save more sizeable loadings than they have correlations, else orthogonal ones.

    Parameters
    ----------
    loadings : ndarray (feature, factor)
        Of orthogonal, unit-variance factors.

    Returns
    -------
    loadings : ndarray (feature, factor)
    correlation : ndarray (factor, factor)
    """
    k = loadings.shape[1]
    straight = loadings @ varimax(loadings)
    slanted, correlation = oblique(loadings)
    if n_sizeable(straight) - n_sizeable(slanted) > k * (k - 1) / 2:
        return slanted, correlation
    return straight, np.eye(k)
