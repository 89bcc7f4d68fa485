r"""Sparse axes of a representation that many tasks share: the map in which their weights have the most zeros.

If targets are :math:`w_t^\top h` with a representation h known up to a linear map, then in the axes
:math:`z = B h` the weights are :math:`B^{-\top} w_t`, and those are sparse in the true axes only. The
weights of the tasks are to B what the effects of actions are to a transition: the same search
(`rotation/axis_search.py`), given :math:`S_t = w_t w_t^\top` and turned the other way round; of rank one, so
that a strength is the square of one product.

Tasks need not tell all latents apart: two that are always used together, by weights without a preferred
direction, can be mixed at no cost. Such latents make a *block*, and within it these axes mean nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse.csgraph import connected_components

from ..._utils.quiet import ignored
from ..rotation.axis_search import descend

__all__ = ["RESOLVED", "TaskAxes", "independent_blocks", "task_axes"]

RESOLVED = 3.0
"""Standard errors of the evidence, which is zero on average for latents that can be mixed at no cost."""

UNCORRELATED = 0.15
"""Largest correlation of latents in different blocks at which they still pass for independent."""

_RATES = (0.05, 0.2)  # which suits is not known before: the starts share the range, as in `jacobian_axes`
_BARRIER = 3.0  # weights that a determinant smaller by a factor e must save: no axis is kept twice
_INDEPENDENT = 0.4  # length left of a unit row off the span of the others, for it to be an axis of its own
_FOLDS = 2  # each chooses the axes that the other is judged in
_ROWS = 20_000  # enough for independent components
_TOGETHER = 48  # rows of maps, whose strengths of a thousand tasks stay near the processor


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
    evidence : ndarray of shape (latent, latent)
        How surely the tasks tell two latents apart: by how many standard errors (over tasks) mixing the
        two costs weights, on tasks that did not choose the axes. Infinite on the diagonal; zero where there
        are too few tasks to set some aside.
    block : ndarray of int (latent,)
        Latents with the same number cannot be told apart: evidence below `RESOLVED`, directly or in a chain.
    agreement, n_starts : int
        How many random starts ended at an objective within one percent of the best.
    """

    map: NDArray[np.float64]
    weights: NDArray[np.float64]
    objective: float
    evidence: NDArray[np.float64]
    block: NDArray[np.int64]
    agreement: int
    n_starts: int


def task_axes(
    weights: ArrayLike,
    *,
    n_starts: int = 96,
    steps: int = 200,
    epsilon: tuple[float, ...] = (0.3, 0.1),
    seed: int = 0,
    task_weight: ArrayLike | None = None,
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
    task_weight : array_like of shape (task,), optional
        What each task's terms in these sums, and in the evidence, are multiplied by; positive, with mean 1.

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
    search: dict[str, Any] = {
        "n_starts": n_starts,
        "steps": steps,
        "epsilon": sorted(epsilon, reverse=True),
        "seed": seed,
    }
    counts = None if task_weight is None else np.asarray(task_weight, dtype=float)
    turn, objective, same = _search(w, counts, **search)
    evidence = _evidence(w, counts, turn, **{**search, "n_starts": -(-n_starts // 2)})
    block = connected_components(evidence < RESOLVED, directed=False)[1]
    return TaskAxes(np.linalg.inv(turn).T, w @ turn.T, objective, evidence, block, same, n_starts)


def _search(
    w: NDArray, counts: NDArray | None, n_starts: int, steps: int, epsilon: list[float], seed: int
) -> tuple[NDArray, float, int]:
    """The map of the weights (rows give columns of mean square 1), its objective, and starts that agree."""
    d = w.shape[1]
    counted = w if counts is None else w * counts[:, None]
    values, vectors = np.linalg.eigh(counted.T @ w / len(w))
    white = (vectors / np.sqrt(values)).T
    v = w @ white.T
    problem = _Weights(v, counts)
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(n_starts, d, d, generator=generator, dtype=torch.float64)
    rate = torch.as_tensor(np.geomspace(*_RATES, n_starts))[:, None, None]
    middle = float(np.exp(np.log(epsilon).mean()))
    maps = descend(problem, torch.linalg.qr(start)[0], "log", middle, steps, rate)
    for small in epsilon:
        maps = descend(problem, maps, "count", small, steps // 2, rate, _BARRIER)
    # Without the barrier, which prefers orthogonal axes.
    ends = descend(problem, maps, "count", epsilon[-1], steps // 2, 0.02, barrier=0.0)
    best = _assemble(problem, ends, epsilon[-1])
    objective = float(problem.cost(best, epsilon[-1]).sum()) / len(w)
    same = (problem.cost(ends, epsilon[-1]).sum(-1) / len(w) < 1.01 * objective) & _independent(ends)
    return best.numpy() @ white, objective, int(same.sum())


class _Weights:
    """Squared weights of a batch of maps, r_kt = b_k' v_t for row k of a map and task t, and their number."""

    def __init__(self, weights: NDArray[np.float64], counts: NDArray[np.float64] | None = None) -> None:
        self.d = weights.shape[1]
        self.weights = torch.as_tensor(weights)
        self.counts = None if counts is None else torch.as_tensor(counts)

    def cost(self, maps: torch.Tensor, epsilon: float) -> torch.Tensor:
        """Smooth number of tasks that use each axis of each map."""
        squared = (maps @ self.weights.T).square_()
        in_use = squared / (squared + epsilon**2)
        return in_use.sum(-1) if self.counts is None else in_use @ self.counts

    def gradient(self, maps: torch.Tensor, kind: str, epsilon: float) -> torch.Tensor:
        """Gradient of the cost by the map ("count"), or of sum log(r^2 + epsilon^2) / 2 ("log")."""
        rows = maps.reshape(-1, self.d)
        gradient = torch.empty_like(rows)
        for few, few_gradients in zip(rows.split(_TOGETHER), gradient.split(_TOGETHER), strict=True):
            r = few @ self.weights.T
            level = r.square().add_(epsilon**2)
            if kind == "log":
                r.div_(level)
            else:
                r.mul_(2 * epsilon**2).div_(level.square_())
            if self.counts is not None:
                r.mul_(self.counts)
            torch.mm(r, self.weights, out=few_gradients)
        return gradient.view(maps.shape)


def _assemble(problem: _Weights, maps: torch.Tensor, epsilon: float) -> torch.Tensor:
    """The cheapest axes of all general maps, each independent of the cheaper ones.

    Without orthogonality the cost is a sum over rows, so the best basis is found greedily. A whole map seldom
    is best: it saves edges where it keeps a sparse axis twice, almost, and forgets a dense one.
    """
    rows = left = maps.reshape(-1, problem.d)
    cost = problem.cost(maps, epsilon).reshape(-1)
    taken = []
    for _ in range(problem.d):
        length = left.norm(dim=-1)
        free = length > min(_INDEPENDENT, float(length.max()) / 2)
        taken.append(int(torch.where(free, cost, torch.inf).argmin()))
        unit = left[taken[-1]] / length[taken[-1]]
        left = left - (left @ unit)[:, None] * unit
    return rows[taken]


def _independent(maps: torch.Tensor) -> torch.Tensor:
    """Whether every row of a map with unit rows stands off the span of the others."""
    return torch.linalg.inv(maps).norm(dim=-2).amax(-1) < 1 / _INDEPENDENT


def _evidence(
    w: NDArray,
    counts: NDArray | None,
    turn: NDArray,
    n_starts: int,
    steps: int,
    epsilon: list[float],
    seed: int,
) -> NDArray:
    """Standard errors by which an equal mixture of two axes costs more, on tasks the axes were not chosen by.

    Every fold is judged in axes that the other folds chose, so that latents which can be mixed at no cost get
    evidence of zero on average.
    """
    n, d = w.shape
    no_evidence = np.zeros((d, d))
    np.fill_diagonal(no_evidence, np.inf)
    order = np.random.default_rng(seed).permutation(n)
    folds = [(np.setdiff1d(order, fold), fold) for fold in np.array_split(order, _FOLDS)]
    if d == 1 or any(len(fold) < 2 or np.linalg.matrix_rank(w[training]) < d for training, fold in folds):
        return no_evidence
    more = np.zeros((n, d, d))
    for training, test in folds:
        fold_turn, *_ = _search(w[training], _of_fold(counts, training), n_starts, steps, epsilon, seed)
        # in the order of the whole
        alike = np.abs(np.corrcoef(w @ turn.T, w @ fold_turn.T, rowvar=False)[:d, d:])
        v = w[test] @ fold_turn[linear_sum_assignment(-np.nan_to_num(alike))[1]].T
        of_test = _of_fold(counts, test)
        v = v / np.sqrt(_mean(v**2, of_test))
        cost = v**2 / (v**2 + epsilon[-1] ** 2)
        for k in range(d):
            for j in range(k):
                mixed = v[:, [j, k]] @ np.array([[1.0, 1.0], [1.0, -1.0]])
                mixed = mixed**2 / _mean(mixed**2, of_test)
                more[test, j, k] = (mixed / (mixed + epsilon[-1] ** 2)).sum(1) - cost[:, j] - cost[:, k]
    mean = _mean(more, counts)
    if counts is None:
        error = more.std(0, ddof=1) / np.sqrt(n)
    else:  # of a weighted mean, with as many rows as the weights are worth
        error = np.sqrt((counts[:, None, None] ** 2 * (more - mean) ** 2).sum(0) / (n * (n - 1)))
    evidence = np.divide(mean, error, out=np.zeros((d, d)), where=error > 0)
    return np.where(np.isinf(no_evidence), no_evidence, evidence + evidence.T)


def _of_fold(counts: NDArray | None, fold: NDArray) -> NDArray | None:
    """Weights of some of the tasks, with mean 1."""
    return None if counts is None else counts[fold] / counts[fold].mean()


def _mean(of_tasks: NDArray, counts: NDArray | None) -> NDArray:
    """Mean over tasks (task, ...), weighted by counts of mean 1."""
    if counts is None:
        return np.asarray(of_tasks.mean(0))
    return np.tensordot(counts, of_tasks, 1) / len(of_tasks)


def independent_blocks(latents: ArrayLike, block: ArrayLike, seed: int = 0) -> NDArray[np.float64]:
    r"""Axes within blocks by independence, where the latents of different blocks are uncorrelated.

    What the tasks cannot tell apart, independent non-Gaussian latents still do (independent component
    analysis). Whether latents are independent shows across blocks: where those are correlated, nothing
    speaks for independence within one, and its axes stay. So do they if there is one block only.

    Parameters
    ----------
    latents : array_like of shape (row, latent)
        Centred within tasks, in the axes of `task_axes`.
    block : array_like of int (latent,)
        `TaskAxes.block`.
    seed : int
        Of the start.

    Returns
    -------
    ndarray of shape (latent, latent)
        ``latent_new = map @ latent_old``; block diagonal, the identity where nothing is changed.

    References
    ----------
    Hyvärinen and Oja (2000), Independent component analysis; scikit-learn's FastICA.
    """
    from sklearn.decomposition import FastICA  # importing it moves Python's random state
    from sklearn.exceptions import ConvergenceWarning

    z, label = np.asarray(latents, dtype=float), np.asarray(block)
    if len(z) > _ROWS:
        z = z[np.random.default_rng(seed).permutation(len(z))[:_ROWS]]
    across = np.abs(np.corrcoef(z, rowvar=False)) * (label[:, None] != label)
    turn = np.eye(len(label))
    for number in np.unique(label):
        members = np.flatnonzero(label == number)
        if 1 < len(members) < len(label) and across[members].max() < UNCORRELATED:
            with ignored(category=ConvergenceWarning):
                search = FastICA(len(members), whiten="unit-variance", random_state=seed, max_iter=500)
                turn[np.ix_(members, members)] = search.fit(z[:, members]).components_
    return turn
