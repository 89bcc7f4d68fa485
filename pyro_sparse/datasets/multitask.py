r"""Tasks that share latents and use few of them: y_t = Z_t w_t + noise, with w_t sparse.

`proxy_data`: an endless stream of tasks on the latents of 3D Shapes, of which a linear mixing x = Mz is
observed (`shapes_data` shows images instead). `task_weights`: the distributions of w_t in the paper.

Lachapelle, Deleu et al. (2023), *Synergies between disentanglement and sparsity*, arXiv 2211.14666.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import ortho_group

from pyro_sparse._utils.checks import check_whole
from pyro_sparse.datasets._shapes_grid import COUNTS, Grid, grid
from pyro_sparse.datasets._stream import stream

__all__ = [
    "TASK_WEIGHTS",
    "MultiTaskStream",
    "TaskBatch",
    "proxy_data",
    "task_weights",
]

TASK_WEIGHTS = ("bernoulli", "block2", "block3", "block6", "laplace", "gaussian")

# Keys of the independent random streams that one seed opens.
_MIXING, LATENT_NOISE, _BATCH, _TEST = range(4)


def task_weights(
    kind: str,
    n_tasks: int,
    m: int = 6,
    seed: int | np.random.SeedSequence | np.random.Generator = 0,
    *,
    probability: float = 0.5,
) -> np.ndarray:
    r"""Weights of independent tasks, :math:`w_t = \bar w_t \odot s_t`, with the supports of the paper.

    =============  ======================================  ===================================================
    kind           weights of a task                       what it does to the theory (m = 6)
    =============  ======================================  ===================================================
    bernoulli      N(0, 1) on s, each latent in s with     assumption 3.6 holds, given enough tasks
                   `probability`, s never empty
    block2, 3, 6   N(0, 1) on one of the m/2, m/3 or m/6   6, 12 and 30 ordered pairs of latents are never
                   blocks of neighbours                    told apart; with blocks of six nothing is sparse
    laplace        Laplace(0, 1) on all                    not sparse: a weaker form, many weights are small
    gaussian       N(0, 1) on all                          not sparse, and no axis is special
    =============  ======================================  ===================================================

    Parameters
    ----------
    kind : str
        One of `TASK_WEIGHTS`.
    n_tasks, m : int
        Tasks, and latents.
    seed : int, SeedSequence or Generator
        Seed of the draw.
    probability : float
        Of a latent in a Bernoulli support, in (0, 1].

    Returns
    -------
    ndarray of shape (task, latent)
        The support of a task is where its row is not zero.

    Raises
    ------
    ValueError
        If the kind is unknown, blocks do not fill m, or a number is out of range.

    References
    ----------
    Lachapelle, Deleu et al. (2023), appendices D.2.1 and D.2.4. Bernoulli supports follow the paper, not its
    code, whose ``binomial_gauss`` adds the same latents, chosen anew for each batch, to all supports.

    Examples
    --------
    >>> (task_weights("block3", n_tasks=3, seed=1) != 0).astype(int)
    array([[1, 1, 1, 0, 0, 0],
           [0, 0, 0, 1, 1, 1],
           [0, 0, 0, 1, 1, 1]])
    """
    check_whole(1, n_tasks=n_tasks, m=m)
    if kind not in TASK_WEIGHTS:
        raise ValueError(f"kind={kind!r}: want one of {', '.join(TASK_WEIGHTS)}")
    rng = np.random.default_rng(seed)
    if kind == "laplace":
        return rng.laplace(size=(n_tasks, m))
    if kind == "gaussian":
        return rng.standard_normal((n_tasks, m))
    if kind == "bernoulli":
        support = _bernoulli(n_tasks, m, probability, rng)
    else:
        size = int(kind.removeprefix("block"))
        if m % size:
            raise ValueError(f"m={m}: want a multiple of {size} for kind={kind!r}")
        block = rng.integers(m // size, size=n_tasks)
        support = np.arange(m) // size == block[:, None]
    return support * rng.standard_normal((n_tasks, m))


def _bernoulli(n_tasks: int, m: int, probability: float, rng: np.random.Generator) -> np.ndarray:
    if not 0 < probability <= 1:
        raise ValueError(f"probability={probability}: want a number above 0 and at most 1")
    if m * probability < 0.01:
        raise ValueError(
            f"probability={probability}: nearly all supports of m={m} latents would be empty; raise it"
        )
    support = rng.random((n_tasks, m)) < probability
    while not (some := support.any(axis=1)).all():
        support[~some] = rng.random(((~some).sum(), m)) < probability
    return support


class TaskBatch(NamedTuple):
    """Data of several tasks.

    Parameters
    ----------
    x : ndarray of shape (task, sample, ...)
        Observations.
    y : ndarray of shape (task, sample)
        Labels.
    z : ndarray of shape (task, sample, latent)
        True latents.
    w : ndarray of shape (task, latent)
        True weights.
    """

    x: np.ndarray
    y: np.ndarray
    z: np.ndarray
    w: np.ndarray


@dataclass(frozen=True, eq=False)
class MultiTaskStream:
    r"""Fresh tasks at every step: :math:`y_t = Z_t w_t + r\,(\|Z_t w_t\| / \|e_t\|)\,e_t`, e standard normal.

    Batches depend on the seed and the step alone, so that they can be drawn in any order or again. Iterating
    over a stream gives the batches of steps 0, 1, 2 and so on, without end.

    Parameters
    ----------
    grid : Grid
        Latents of all cells and their probabilities.
    observe : callable
        Cells of any shape (...) to observations of shape (..., feature) or (..., channel, row, column).
    kind : str
        Distribution of the weights, as in `task_weights`.
    n_tasks, n_samples : int
        Tasks of a batch, and samples of a task.
    noise : float
        r, the size of the noise relative to the signal.
    seed : int
        Seed of the batches.
    mixing : ndarray of shape (d_x, latent) or None
        The true mixing where x is linear in z.
    settings : mapping
        The arguments that made it.
    """

    grid: Grid
    observe: Callable[[np.ndarray], np.ndarray]
    kind: str = "bernoulli"
    n_tasks: int = 8
    n_samples: int = 50
    noise: float = 0.1
    seed: int = 0
    mixing: np.ndarray | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_whole(1, n_tasks=self.n_tasks, n_samples=self.n_samples)
        if not 0 <= self.noise < np.inf:
            raise ValueError(f"noise={self.noise}: want a finite number, at least 0")
        task_weights(self.kind, 1, self.grid.z.shape[1])

    def batch(self, step: int) -> TaskBatch:
        """The tasks of one step.

        Parameters
        ----------
        step : int
            At least 0.

        Returns
        -------
        TaskBatch

        Raises
        ------
        ValueError
            If `step` is negative or not a whole number.
        """
        check_whole(0, step=step)
        rng = stream(self.seed, _BATCH, step)
        cells = self.grid.draw((self.n_tasks, self.n_samples), rng)
        w = task_weights(self.kind, self.n_tasks, self.grid.z.shape[1], rng)
        z = self.grid.z[cells]
        signal = (z @ w[:, :, None])[..., 0]
        e = rng.standard_normal(signal.shape)
        size = self.noise * np.linalg.norm(signal, axis=1) / np.linalg.norm(e, axis=1)
        return TaskBatch(self.observe(cells), signal + size[:, None] * e, z, w)

    def __iter__(self) -> Iterator[TaskBatch]:
        return (self.batch(step) for step in count())

    def test(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Observations of cells that are all equally probable, to measure disentanglement on.

        Parameters
        ----------
        n : int
            How many.

        Returns
        -------
        x, z : ndarray of shape (n, ...) and (n, latent)

        Raises
        ------
        ValueError
            If `n` is not a whole number above 0.
        """
        check_whole(1, n=n)
        cells = stream(self.seed, _TEST).integers(len(self.grid.z), size=n)
        return self.observe(cells), self.grid.z[cells]


def proxy_data(
    kind: str = "bernoulli",
    rho: float = 0.0,
    *,
    n_tasks: int = 8,
    n_samples: int = 50,
    d_x: int = 6,
    condition: float = 5.0,
    latent_noise: float = 1.0,
    noise: float = 0.1,
    seed: int = 0,
) -> MultiTaskStream:
    r"""The tasks of the 3D Shapes experiment with a linear mixing in place of the images.

    .. math:: x = Mz, \qquad M = U\,\mathrm{diag}(s)\,V^\top, \qquad s_1/s_m = \mathrm{condition},

    U and V random with orthonormal columns. All else is as there: latents on the standardised grid
    of 10 x 10 x 10 x 8 x 4 x 15 levels, and on it :math:`p(z) \propto N(z; 0, (1-\rho)I + \rho 11^\top)`.
    What an encoder of images must learn first is here linear from the start, so that a run takes seconds.

    Parameters
    ----------
    kind : str
        Distribution of the weights, as in `task_weights`.
    rho : float
        Common correlation of the Gaussian; above -1/5 and below 1. The realised one is lower, the grid being
        bounded.
    n_tasks, n_samples : int
        Tasks of a batch, and samples of a task.
    d_x : int
        Width of x; at least 6.
    condition : float
        Condition number of M.
    latent_noise : float
        Latents move uniformly by up to this share of half the gap between levels, once and for all, which
        takes away the grid; from 0 to 1.
    noise : float
        Norm of the noise of the labels relative to that of the signal, task by task.
    seed : int
        Seed of everything.

    Returns
    -------
    MultiTaskStream

    Raises
    ------
    ValueError
        If an argument is out of range.

    References
    ----------
    Lachapelle, Deleu et al. (2023), section 5.1 and appendix D.2.1.

    Examples
    --------
    >>> tasks = proxy_data("bernoulli", rho=0.9)
    >>> batch = tasks.batch(step=0)
    >>> batch.x.shape, batch.y.shape, batch.z.shape, batch.w.shape
    ((8, 50, 6), (8, 50), (8, 50, 6), (8, 6))
    """
    m = len(COUNTS)
    check_whole(m, d_x=d_x)
    if not 1 <= condition < np.inf:
        raise ValueError(f"condition={condition}: want a finite number, at least 1")
    rng = stream(seed, _MIXING)
    u, v = ortho_group.rvs(d_x, random_state=rng)[:, :m], ortho_group.rvs(m, random_state=rng)
    mixing = u * np.geomspace(condition**0.5, condition**-0.5, m) @ v.T
    cells = grid(rho, latent_noise, stream(seed, LATENT_NOISE))
    settings = {
        "kind": kind,
        "rho": rho,
        "n_tasks": n_tasks,
        "n_samples": n_samples,
        "d_x": d_x,
        "condition": condition,
        "latent_noise": latent_noise,
        "noise": noise,
        "seed": seed,
    }

    def observe(where: np.ndarray) -> np.ndarray:
        return cells.z[where] @ mixing.T

    return MultiTaskStream(cells, observe, kind, n_tasks, n_samples, noise, seed, mixing, settings)
