r"""Do features and task weights vary enough? What sparse multi-task learning assumes beside rich supports.

For features f and weights w of tasks with support S the theory wants

.. math:: \lambda_{\min}(F^\top F / N) > 0 \ (3.3), \qquad \operatorname{rank} W = m \ (3.4), \qquad
          P(w_S^\top a = 0 \mid S) = 0 \ \text{for all}\ a \ne 0 \ (3.5):

features in no proper subspace, weights in none, and the weights of one support not even a share of them.

Lachapelle, Deleu et al. (2023), *Synergies between disentanglement and sparsity*, arXiv 2211.14666.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from .identifiability import SufficientInfluence, spans
from .supports import supports_of

__all__ = [
    "SufficientVariability",
    "SufficientWithinSupports",
    "sufficient_representation",
    "sufficient_tasks",
    "sufficient_within_supports",
]

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

# Hyperplanes that are tried for each support: each costs a decomposition, and the bound on p is multiplied by
# their number.
_PLANES = 2000


class SufficientVariability(SufficientInfluence):
    """Whether, and how comfortably, vectors span their space.

    As in `SufficientInfluence`, with a single entry in each array, or one per support: `rank` against
    `dimension`; `smallest` and `largest`, the root mean square of the vectors along the direction that they
    visit least and most; `holds` and `condition`.
    """


def sufficient_representation(features: ArrayLike, tolerance: float = 1e-4) -> SufficientVariability:
    r"""Sufficient representation variability (assumption 3.3): the features are in no proper subspace.

    .. math:: \lambda_{\min}(F^\top F / N) > 0, \qquad \text{smallest} = \sqrt{\lambda_{\min}}

    Parameters
    ----------
    features : array_like of shape (sample, latent)
        F, the values of the representation; not centred, as the assumption is about them as they are. Their
        scale enters `smallest`: give standardised ones.
    tolerance : float
        Singular values below this share of the largest count as zero.

    Returns
    -------
    SufficientVariability

    Raises
    ------
    ValueError
        If `features` is not a finite matrix, or `tolerance` is not between 0 and 1.

    References
    ----------
    Lachapelle, Deleu et al. (2023), assumption 3.3.

    Examples
    --------
    >>> variability = sufficient_representation([[1.0, 0.0], [0.0, 3.0]])
    >>> variability.holds, variability.condition
    (True, 3.0)
    """
    x = _matrix(features, "features", "(sample, latent)")
    return SufficientVariability(*spans([x], tolerance))


def sufficient_tasks(weights: ArrayLike, tolerance: float = 1e-4) -> SufficientVariability:
    r"""Sufficient task variability (assumption 3.4): m rows of the weights are linearly independent.

    With 3.3 it identifies the representation up to an invertible linear map (theorem B.4).

    Parameters
    ----------
    weights : array_like of shape (task, latent) or (task, output, latent)
        W, true or fitted, over features of comparable scale.
    tolerance : float
        Singular values below this share of the largest count as zero. For fitted weights give their relative
        error: noise has full rank.

    Returns
    -------
    SufficientVariability

    Raises
    ------
    ValueError
        If `weights` has another shape or is not finite, or `tolerance` is not between 0 and 1.

    References
    ----------
    Lachapelle, Deleu et al. (2023), assumption 3.4.

    Examples
    --------
    >>> sufficient_tasks([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [2.0, 2.0, 0.0]]).rank
    array([2])
    """
    w = np.asarray(weights, dtype=float)
    w = w.reshape(-1, w.shape[-1]) if w.ndim == 3 else w
    x = _matrix(w, "weights", "(task, latent) or (task, output, latent)")
    return SufficientVariability(*spans([x], tolerance))


@dataclass(frozen=True, eq=False)
class SufficientWithinSupports(SufficientVariability):
    """Whether the weights of tasks with the same support span what the support allows.

    Arrays have an entry for each support that occurs, in lexicographic order; weights have unit length.

    Parameters
    ----------
    supports : ndarray of bool, shape (support, latent)
        The supports.
    n_tasks : ndarray of int
        Tasks that have it. With fewer than `dimension` the rank cannot be full: nothing is shown either way.
    concentration : ndarray of float
        Largest share of the tasks on one hyperplane, not counting those that define it; NaN with fewer tasks
        than `dimension`.
    p_value : ndarray of float
        Bound on the probability that so many lie there by chance, had the weights no preferred direction;
        1 where `concentration` is NaN.
    level : float
        p-values up to here, divided by the number of supports, speak against the assumption.
    """

    supports: Bools
    n_tasks: NDArray[np.intp]
    concentration: Floats
    p_value: Floats
    level: float

    @property
    def holds(self) -> bool:
        """Whether every rank reaches its dimension and no hyperplane holds too many tasks."""
        spread = self.p_value > self.level / len(self.p_value)
        return bool(((self.rank == self.dimension) & spread).all())


def sufficient_within_supports(
    weights: ArrayLike,
    supports: ArrayLike | None = None,
    tolerance: float = 1e-4,
    level: float = 0.01,
) -> SufficientWithinSupports:
    r"""Intra-support sufficient task variability (assumption 3.5), checked on the tasks at hand.

    .. math:: P\bigl(w_S^\top a = 0 \mid S\bigr) = 0 \ \text{for every support S and all}\ a \ne 0.

    Tasks of one support must not lie on a hyperplane: neither all of them (`rank`), nor more than chance puts
    there (`p_value`). If no direction is preferred, a vector of length 1 in s dimensions is within
    `tolerance` of a given hyperplane with probability :math:`I_{\tau^2}(\tfrac12, \tfrac{s-1}{2})`; planes
    through s - 1 of the tasks are tried, at most 2,000 for each support, and the binomial tail of the fullest
    one is multiplied by their number. Samples can show a violation and never exclude one.

    Parameters
    ----------
    weights : array_like of shape (task, latent)
        W, true or fitted. With several outputs give those of one: what holds for it holds for all together.
    supports : array_like of shape (task, latent), optional
        Supports; by default where the weights are not zero. Tasks that use nothing are left out.
    tolerance : float
        How near to a hyperplane is on it, relative to the length of the weights, and the share of the largest
        singular value that counts as zero. For fitted weights give their relative error.
    level : float
        Probability of a false alarm over all supports, in (0, 1).

    Returns
    -------
    SufficientWithinSupports

    Raises
    ------
    ValueError
        If `weights` is not a finite matrix, supports do not fit, no task uses anything, a task has a support
        of zero weights, or `tolerance` or `level` is not between 0 and 1.

    References
    ----------
    Lachapelle, Deleu et al. (2023), assumption 3.5 and appendix B.4.

    Examples
    --------
    Three kinds of tasks, in any number: supports 3.6 would accept, with one direction in each.

    >>> variability = sufficient_within_supports(np.tile([[1, 1, 0], [0, 1, 1], [1, 0, 1]], (20, 1)))
    >>> variability.holds, variability.rank, variability.dimension
    (False, array([1, 1, 1]), array([2, 2, 2]))
    """
    w = _matrix(weights, "weights", "(task, latent)")
    used = w != 0 if supports is None else supports_of(supports, "supports")
    if used.shape != w.shape:
        raise ValueError(f"supports: want the shape of the weights, {w.shape}, got {used.shape}")
    if not 0 < level < 1:
        raise ValueError(f"level={level}: want a probability between 0 and 1")
    w, used = (w * used)[used.any(axis=1)], used[used.any(axis=1)]
    if not len(w):
        raise ValueError("supports: want tasks that use a latent, got none")
    length = np.linalg.norm(w, axis=1, keepdims=True)
    if not length.all():
        task = int(np.flatnonzero(length == 0)[0])
        raise ValueError(f"weights: all weights on the support of task {task} (of those with one) are 0")
    patterns, pattern_of_task = np.unique(used, axis=0, return_inverse=True)
    unit = w / length
    tables = [unit[pattern_of_task.ravel() == i][:, support] for i, support in enumerate(patterns)]
    spanned = spans(tables, tolerance)
    concentration, p_value = np.array([_fullest_plane(table, tolerance) for table in tables]).T
    n_tasks = np.array([len(table) for table in tables])
    return SufficientWithinSupports(*spanned, patterns, n_tasks, concentration, p_value, level)


def _fullest_plane(unit: Floats, tolerance: float) -> tuple[float, float]:
    """Largest share of rows on a hyperplane through others, and a bound on its probability by chance."""
    n, s = unit.shape
    if n < s:
        return np.nan, 1.0
    if s == 1:
        return 0.0, 1.0
    planes = min(comb(n, s - 1), _PLANES)
    if planes < _PLANES:
        through = np.array(list(combinations(range(n), s - 1)))
    else:
        through = np.random.default_rng(0).random((planes, n)).argsort(axis=1)[:, : s - 1]
    normal = np.linalg.svd(unit[through])[2][:, -1]
    on = np.abs(unit @ normal.T) <= tolerance
    most = int(on.sum(axis=0).max()) - (s - 1)
    others, chance = n - (s - 1), special.betainc(0.5, (s - 1) / 2, tolerance**2)
    return most / others, min(1.0, planes * float(stats.binom.sf(most - 1, others, chance)))


def _matrix(values: ArrayLike, name: str, shape: str) -> Floats:
    x = np.asarray(values, dtype=float)
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"{name}: want shape {shape}, with entries, got {x.shape}")
    if not np.isfinite(x).all():
        raise ValueError(f"{name}: want finite numbers, got NaN or infinity; leave those rows out")
    return x
