r"""Sparse axes of a representation that many tasks share: the map in which their weights have the most zeros.

If targets are :math:`w_t^\top h` with a representation h known up to a linear map, then in the axes
:math:`z = B h` the weights are :math:`B^{-\top} w_t`, and those are sparse in the true axes only. The
weights of the tasks are to B what the effects of actions are to a transition: the same search
(`jacobian_axes.py`), given :math:`S_t = w_t w_t^\top` and turned the other way round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from .jacobian_axes import _assemble, _Contraction, _descend, _independent, _whitening

__all__ = ["TaskAxes", "task_axes"]

_RATES = (0.05, 0.2)
_BARRIER = 3.0


@dataclass(frozen=True, eq=False)
class TaskAxes:
    """Sparse axes of stacked task weights.

    Parameters
    ----------
    map : ndarray of shape (latent, latent)
        B: ``latent_new = map @ latent_old``. Scaled so that every column of `weights` has mean square 1.
    weights : ndarray of shape (task, latent)
        The weights in the new axes.
    objective : float
        Smooth number of weights in use, per task.
    agreement, n_starts : int
        How many random starts ended at an objective within one percent of the best.
    """

    map: NDArray[np.float64]
    weights: NDArray[np.float64]
    objective: float
    agreement: int
    n_starts: int


def task_axes(
    weights: ArrayLike,
    *,
    n_starts: int = 24,
    steps: int = 200,
    epsilon: tuple[float, ...] = (0.3, 0.1),
    seed: int = 0,
) -> TaskAxes:
    r"""Axes in which tasks use the fewest latents.

    .. math:: \min_B \sum_{tk} \frac{v_{tk}^2}{v_{tk}^2 + \epsilon^2}, \qquad v_t = B^{-\top} w_t, \quad
              \textstyle\sum_t v_{tk}^2 = T

    Parameters
    ----------
    weights : array_like of shape (task, latent)
        Least-squares or ridge weights of every task, in any linear map of the latents.
    n_starts : int
        Random starts, optimised in one batch.
    steps : int
        Steps on :math:`\frac12 \sum \log(v^2 + \epsilon^2)` over rotations; then half as many on each count.
    epsilon : tuple of float
        Smoothing constants, falling, in root mean squares of a weight. The last one should not be below the
        weights' standard errors.
    seed : int

    Returns
    -------
    TaskAxes

    Raises
    ------
    ValueError
        Fewer tasks than latents, weights that are not finite, or that leave a direction of the latent unused.

    References
    ----------
    Lachapelle, Deleu et al. (2023), Synergies between disentanglement and sparsity, theorem 3.1: under their
    assumption 3.6 the sparsest weights identify the axes.
    """
    w = np.asarray(weights, dtype=float)
    if w.ndim != 2 or not w.size:
        raise ValueError(f"weights: want shape (task, latent), got {w.shape}")
    n_tasks, d = w.shape
    if n_tasks < d:
        raise ValueError(
            f"weights: {n_tasks} tasks cannot fix {d} axes; want at least as many tasks as latents"
        )
    if not np.isfinite(w).all():
        raise ValueError("weights: want finite numbers, got NaN or infinity")
    if np.linalg.matrix_rank(w, tol=1e-6 * np.linalg.norm(w, 2)) < d:
        raise ValueError("weights: the tasks leave a direction of the latent unused; lower n_latents")
    if n_starts < 1 or steps < 2 or not epsilon or min(epsilon) <= 0:
        raise ValueError(
            f"n_starts={n_starts}, steps={steps}, epsilon={epsilon}: want at least 1, 2, and positive"
        )
    white = _whitening(w.T @ w / n_tasks)
    v = w @ white.T
    problem = _Contraction(d, None, v[:, :, None] * v[:, None, :])
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(n_starts, d, d, generator=generator, dtype=torch.float64)
    rate = torch.as_tensor(np.geomspace(*_RATES, n_starts))[:, None, None]
    middle = float(np.exp(np.log(epsilon).mean()))
    maps = _descend(problem, torch.linalg.qr(start)[0], "log", middle, steps, rate)
    for small in sorted(epsilon, reverse=True):
        maps = _descend(problem, maps, "count", small, steps // 2, rate, _BARRIER)
    ends = _descend(problem, maps, "count", small, steps // 2, 0.02, barrier=0.0)
    best = _assemble(problem, ends, small)
    objective = float(problem.cost(best, small).sum()) / n_tasks
    same = (problem.cost(ends, small).sum(-1) / n_tasks < 1.01 * objective) & _independent(ends)
    turn = best.numpy() @ white
    return TaskAxes(np.linalg.inv(turn).T, w @ turn.T, objective, int(same.sum()), n_starts)
