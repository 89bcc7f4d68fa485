r"""Do the tasks tell the latents apart? Which task uses which latent decides.

Tasks :math:`y_t = W_t f(x) + \text{noise}` with maximally sparse :math:`W_t` identify f up to permutation and
scale if their supports are rich enough: for every latent j, the tasks that do without j use all others
between them. With :math:`B_{tk} = 1` where task t uses latent k,

.. math:: \text{assumption 3.6} \iff C_{kj} > 0 \ \text{for all}\ k \ne j, \qquad C = B^\top (1 - B).

A task is here what an action is in `identifiability`: ``consistency(graph_a=B.T)`` is C == 0. The other
assumptions are in `task_variability`.

Lachapelle, Deleu et al. (2023), *Synergies between disentanglement and sparsity*, arXiv 2211.14666.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._utils.checks import check_whole
from ._draws import zero_one
from .identifiability import IdentifiabilityProbability, identifiability_probability

__all__ = [
    "SufficientSupports",
    "SupportFailure",
    "bernoulli_failure_bound",
    "sufficient_supports",
    "support_failure",
    "support_identifiability",
]

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


class SufficientSupports(NamedTuple):
    """Which latents the supports of the tasks tell apart.

    Parameters
    ----------
    separating : ndarray of int, shape (latent, latent)
        C: how many tasks use the latent of the row and not that of the column.
    free : ndarray of bool, shape (latent, latent)
        True where there is no such task: the true latent of the row may be a function of the learned latent
        of the column. Reflexive and transitive; ``blocks(graph_a=supports.T)`` sorts it.
    """

    separating: NDArray[np.intp]
    free: Bools

    @property
    def disentangled(self) -> Bools:
        """Of shape (latent,): which latents are recovered on their own."""
        alone: Bools = self.free.sum(axis=1) == 1
        return alone

    @property
    def failing(self) -> list[tuple[int, int]]:
        """Ordered pairs (k, j) such that no task uses k without j."""
        return [(int(k), int(j)) for k, j in np.argwhere(self.free) if k != j]

    @property
    def holds(self) -> bool:
        """Whether assumption 3.6 does: no pair fails."""
        return not self.failing


def sufficient_supports(supports: ArrayLike) -> SufficientSupports:
    r"""Sufficient variability of the task supports (assumption 3.6), and what is left where it fails.

    .. math::

        \bigcup_{S \in \mathcal S,\, j \notin S} S = [m] \setminus \{j\} \ \text{for all}\ j
        \iff C_{kj} = \#\{t : k \in S_t,\, j \notin S_t\} > 0 \ \text{for all}\ k \ne j.

    Where it fails, the proof still gives that, up to a permutation, latent k is a function of the learned
    latents j with :math:`C_{kj} = 0` only: no task of k does without j. It needs at least N tasks with
    :math:`\binom{N}{\lfloor N/2 \rfloor} \ge m`.

    Parameters
    ----------
    supports : array_like of shape (task, latent)
        1 where the task uses the latent.

    Returns
    -------
    SufficientSupports

    Raises
    ------
    ValueError
        If `supports` is not a matrix of 0 and 1.

    References
    ----------
    Lachapelle, Deleu et al. (2023), assumption 3.6 and equations 49 to 52 of the proof of theorem B.5.

    Examples
    --------
    Four tasks are enough for six latents:

    >>> supports = np.zeros((4, 6), dtype=int)
    >>> for task, used in enumerate([(0, 1, 2), (0, 3, 4), (1, 3, 5), (2, 4, 5)]):
    ...     supports[task, list(used)] = 1
    >>> sufficient_supports(supports).holds
    True
    >>> sufficient_supports(supports[:3]).failing[:3]
    [(2, 0), (2, 1), (4, 0)]
    """
    used = supports_of(supports, "supports")
    if used.ndim != 2:
        raise ValueError(
            f"supports: want shape (task, latent), got {used.shape}; "
            "give draws of supports to `support_identifiability`"
        )
    count = used.astype(np.intp)
    separating = count.T @ (1 - count)
    return SufficientSupports(separating, separating == 0)


def support_identifiability(draws: ArrayLike) -> IdentifiabilityProbability:
    r"""Probability that the supports tell the latents apart, as the share of draws in which they do.

    Parameters
    ----------
    draws : array_like of shape (..., task, latent)
        0/1 draws of the supports from their posterior; all leading axes, such as (chain, draw), are averaged
        over. The latents must be in one frame (`align`).

    Returns
    -------
    IdentifiabilityProbability
        ``consistency[k, j]``: that no task uses k without j. ``1 - all_disentangled``: that assumption 3.6
        fails.

    Raises
    ------
    ValueError
        If there is no draw, or an entry is not 0 or 1.

    Examples
    --------
    >>> supports = support_identifiability([[[1, 0], [0, 1]], [[1, 0], [1, 1]]])
    >>> supports.consistency
    array([[1. , 0. ],
           [0.5, 1. ]])
    >>> supports.all_disentangled
    0.5
    """
    used = supports_of(draws, "draws")
    if used.ndim < 3 or 0 in used.shape[:-2]:
        raise ValueError(
            f"draws: want at least one draw, shape (..., task, latent), got {used.shape}; "
            "use supports[None] for a single one"
        )
    return identifiability_probability(graph_a=used.swapaxes(-1, -2))


class SupportFailure(NamedTuple):
    """Probability that assumption 3.6 fails, when the edges are independent.

    Parameters
    ----------
    pairs : ndarray of shape (latent, latent)
        That no task uses the latent of the row without that of the column: exact. 1 on the diagonal.
    lower, upper : float
        Between these lies the probability that any pair fails: that of the worst pair, and the sum of all, at
        most 1.
    """

    pairs: Floats
    lower: float
    upper: float


def support_failure(probabilities: ArrayLike) -> SupportFailure:
    r"""Bounds on the probability that assumption 3.6 fails, from inclusion probabilities of the edges.

    .. math::

        P(C_{kj} = 0) = \prod_t \bigl(1 - \pi_{tk}(1 - \pi_{tj})\bigr), \qquad
        P(\text{fail}) \le \sum_{k \ne j} P(C_{kj} = 0).

    Exact for independent edges. Those of one task are often not: draws of whole supports answer that, in
    `support_identifiability`.

    Parameters
    ----------
    probabilities : array_like of shape (task, latent)
        :math:`\pi`, the probability that the task uses the latent.

    Returns
    -------
    SupportFailure

    Raises
    ------
    ValueError
        If `probabilities` is not a matrix of numbers from 0 to 1.

    References
    ----------
    Lachapelle, Deleu et al. (2023), proof of proposition B.7, with a probability for each edge.

    Examples
    --------
    >>> failure = support_failure([[0.9, 0.1], [0.2, 0.8]])
    >>> failure.pairs
    array([[1.    , 0.1824],
           [0.3564, 1.    ]])
    >>> failure.lower, failure.upper
    (0.3564, 0.5388)
    """
    pi = np.asarray(probabilities, dtype=float)
    if pi.ndim != 2 or pi.shape[1] == 0:
        raise ValueError(f"probabilities: want shape (task, latent), got {pi.shape}")
    if not ((pi >= 0) & (pi <= 1)).all():
        odd = pi[~((pi >= 0) & (pi <= 1))][0]
        raise ValueError(f"probabilities: want numbers from 0 to 1, got {odd}; NaN is no probability either")
    pairs = np.stack([np.prod(1 - pi[:, [k]] * (1 - pi), axis=0) for k in range(pi.shape[1])])
    np.fill_diagonal(pairs, 1.0)
    off = pairs[~np.eye(len(pairs), dtype=bool)]
    return SupportFailure(pairs, float(off.max(initial=0.0)), min(1.0, float(off.sum())))


def bernoulli_failure_bound(n_latents: int, n_tasks: int, probability: float = 0.5) -> float:
    r"""Bound on the probability that the supports of random tasks violate assumption 3.6.

    .. math:: P(\text{fail}) \le m(m-1)\bigl(1 - \eta(1-\eta)\bigr)^N

    for N independent tasks that use each of m latents with probability :math:`\eta`: how many to collect.

    Parameters
    ----------
    n_latents, n_tasks : int
        m and N.
    probability : float
        :math:`\eta`, from 0 to 1.

    Returns
    -------
    float
        At most 1.

    Raises
    ------
    ValueError
        If a number is out of range.

    References
    ----------
    Lachapelle, Deleu et al. (2023), proposition B.7.

    Examples
    --------
    >>> [round(bernoulli_failure_bound(6, n), 4) for n in (10, 20, 40)]
    [1.0, 0.0951, 0.0003]
    """
    check_whole(1, n_latents=n_latents)
    check_whole(0, n_tasks=n_tasks)
    if not 0 <= probability <= 1:
        raise ValueError(f"probability={probability}: want a number from 0 to 1")
    return min(1.0, n_latents * (n_latents - 1) * (1 - probability * (1 - probability)) ** n_tasks)


def supports_of(values: ArrayLike, name: str) -> Bools:
    """Supports as booleans; a clear complaint about anything else."""
    x = np.asarray(values)
    if x.ndim < 2:
        raise ValueError(f"{name}: want shape (..., task, latent), got {x.shape}")
    remedy = (
        "give probabilities to `support_failure`, draws to `support_identifiability`, or choose edges first"
    )
    return zero_one(x, name, remedy, wanted="0 or 1")
