r"""Do several chains of a sampler tell of the same graph? Draws in one frame, and numbers that say whether.

Labels of factors mean nothing to a sampler, so either relabel every draw first (`align_draws`) and compare
edge probabilities between chains, or look at what no relabelling changes: which rows share a column,

.. math:: C^{(n)}_{ij} = \sum_k \gamma^{(n)}_{ik} \gamma^{(n)}_{jk},

and how its draws differ between chains (R-hat). R-hat of single edges, or of their number, explodes where
hardly anything varies; entries that hardly vary are left out here, and counted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._draws import chains_of
from ._mixing import bulk_ess, halves, split_rhat
from .alignment import Alignment, Kind, align, apply_alignment, orient
from .selection import edge_gap, kept_restarts

__all__ = [
    "CoMembershipRhat",
    "KeptChains",
    "align_draws",
    "between_chain_gap",
    "co_membership_rhat",
    "effective_sample_size",
    "keep_chains",
]

Floats = NDArray[np.float64]


def align_draws(
    weights: ArrayLike,
    pivot: ArrayLike | None = None,
    kind: Kind = "loadings",
    groups: ArrayLike | None = None,
) -> Alignment:
    r"""Relabel every posterior draw: no two draws of a sampler need use the same order or signs of factors.

    .. math:: \pi^{(n)} = \arg\max_\pi \sum_k |\cos(m_k, w^{(n)}_{\pi(k)})|, \qquad
        s^{(n)}_k = \operatorname{sign} \cos(m_k, w^{(n)}_{\pi(k)})

    with m the pivot, then the mean of the aligned draws, until nothing moves or twenty times: `align` with
    `repivot`. Carry the weights, and whatever else has factors, into the common frame with
    `apply_alignment`.

    Parameters
    ----------
    weights : array_like of shape (chain, draw, row, factor)
        Loadings (row = feature) or factor values (row = sample).
    pivot : array_like of shape (row, factor), optional
        Sets order and signs, such as the best fit. Default: the last draw of the first chain, with the signs
        of loadings turned as `orient` wants them in the aligned mean.
    kind : {"loadings", "factors"}
        Compare columns by ``|cosine|`` or by ``|correlation|``.
    groups : array_like of shape (factor,), optional
        As in `align`.

    Returns
    -------
    Alignment
        Every field of shape (chain, draw, factor).

    Raises
    ------
    ValueError
        If shapes do not fit, there is no draw, or a value is not finite.

    Examples
    --------
    Two draws of one loading matrix; the second has the factors the other way round and one sign turned:

    >>> import numpy as np
    >>> first = np.array([[2.0, 0.0], [1.0, 0.0], [0.0, 3.0]])
    >>> draws = np.stack([first, first[:, ::-1] * [-1, 1]])[None]
    >>> aligned = align_draws(draws)
    >>> apply_alignment(draws, aligned)[0, 1]
    array([[0., 2.],
           [0., 1.],
           [3., 0.]])
    """
    x = np.asarray(weights, dtype=float)
    if x.ndim != 4 or 0 in x.shape:
        raise ValueError(
            f"weights: want shape (chain, draw, row, factor) with entries, got {x.shape}; "
            "use weights[None] for a single chain"
        )
    if not np.isfinite(x).all():
        raise ValueError("weights: want finite numbers, got NaN or infinity; leave the failed chain out")
    flat = x.reshape(-1, *x.shape[2:])
    alignment = align(
        flat, x[0, -1] if pivot is None else np.atleast_1d(pivot), kind, repivot=True, groups=groups
    )
    if pivot is None and kind == "loadings":
        alignment = alignment._replace(
            sign=alignment.sign * orient(apply_alignment(flat, alignment).mean(axis=0))
        )
    lead = (*x.shape[:2], x.shape[3])
    return Alignment(*(field.reshape(lead) for field in alignment))


def between_chain_gap(draws: ArrayLike) -> Floats:
    r"""Largest minus smallest probability of each edge over chains, :math:`\max_c p_{ce} - \min_c p_{ce}`.

    This is `edge_gap` of the chains' means; `unresolved` marks what is above .25.

    Parameters
    ----------
    draws : array_like of shape (chain, draw, row, column)
        Aligned draws of edges, or of their probabilities.

    Returns
    -------
    ndarray of shape (row, column)
        NaN with a single chain.

    Raises
    ------
    ValueError
        If the shape does not fit or a value is outside of [0, 1].
    """
    return edge_gap(chains_of(draws).mean(axis=1))


class CoMembershipRhat(NamedTuple):
    """R-hat of which rows share a column.

    Parameters
    ----------
    rhat : ndarray of float, shape (row, row)
        Symmetric; NaN on the diagonal and for pairs that hardly vary.
    largest : float
        Over all pairs; NaN if no pair varies.
    n_varying : int
        Pairs that have an R-hat.
    n_constant : int
        Pairs left out because they hardly vary.
    """

    rhat: Floats
    largest: float
    n_varying: int
    n_constant: int


def co_membership_rhat(draws: ArrayLike, rare: float = 0.01) -> CoMembershipRhat:
    r"""Split, rank-normalised R-hat of the number of columns that two rows share, for every pair of rows.

    Each chain is cut into halves of n draws, the values are replaced by normal scores of their ranks, and

    .. math:: \hat R = \sqrt{\frac{n - 1}{n} + \frac{B}{n W}}

    with B/n the variance of the halves' means and W the mean of their variances; likewise for the distances
    from the median, and the larger one counts. Pairs with a variance over all draws below r (1 - r) are left
    out: 0/1 values of which less than a share r is the rarer one. R-hat is capped at :math:`\sqrt n`, about
    what one move in each chain gives: chains that never move and disagree get that value, not infinity.

    Parameters
    ----------
    draws : array_like of shape (chain, draw, row, column)
        Draws of edges, or of their probabilities; they need not be aligned. At least four draws per chain.
    rare : float
        The share r, in [0, 1/2).

    Returns
    -------
    CoMembershipRhat

    Raises
    ------
    ValueError
        If there are fewer than two rows or four draws, the shape does not fit, or a value is out of range.

    References
    ----------
    Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), Bayesian Analysis 16(2), section 4.
    """
    if not 0 <= rare < 0.5:
        raise ValueError(f"rare: want a share of draws in [0, 1/2), got {rare!r}")
    x = chains_of(draws, at_least=4)
    n_rows = x.shape[2]
    if n_rows < 2:
        raise ValueError(f"draws: want at least two rows, which can share a column, got {n_rows}")
    rhat = np.full((n_rows, n_rows), np.nan)
    for i in range(n_rows - 1):  # row by row: all pairs of all draws need not fit into memory
        shared = np.matmul(x[:, :, i + 1 :], x[:, :, i, :, None])[..., 0]
        # Short of the limit by rounding counts as on it; with rare = 0 constant pairs are still left out.
        varies = shared.var(axis=(0, 1)) > max(rare * (1 - rare) - 1e-12, 1e-20)
        if varies.any():
            others = i + 1 + np.flatnonzero(varies)
            rhat[i, others] = rhat[others, i] = split_rhat(shared[..., varies])
    n_varying = int(np.isfinite(rhat).sum()) // 2
    largest = float(np.nanmax(rhat)) if n_varying else np.nan
    return CoMembershipRhat(rhat, largest, n_varying, n_rows * (n_rows - 1) // 2 - n_varying)


def effective_sample_size(values: ArrayLike) -> Floats:
    r"""How many independent draws the chains are worth, for each of several continuous quantities.

    With autocorrelations :math:`\rho_t` of the split, rank-normalised chains (N draws in all),

    .. math:: N \Big/ \Big(-1 + 2 \sum_{m < M} P_m + \max(\rho_{2M}, 0)\Big), \qquad
        P_m = \min_{l \le m} (\rho_{2l} + \rho_{2l+1}),

    M being the first pair with a sum below 0. At most :math:`N \log_{10} N`. Of use for the log joint and for
    weights; an edge that never moves tells nothing.

    Parameters
    ----------
    values : array_like of shape (chain, draw, ...)
        At least four draws per chain.

    Returns
    -------
    ndarray of shape (...)
        NaN for a quantity that is constant.

    Raises
    ------
    ValueError
        If the shape does not fit or a value is not finite.

    References
    ----------
    Geyer (1992), Statistical Science 7(4), section 3.3; Vehtari et al. (2021), as in `co_membership_rhat`.
    """
    x = np.asarray(values, dtype=float)
    if x.ndim < 2 or 0 in x.shape or x.shape[1] < 4:
        raise ValueError(
            f"values: want shape (chain, draw, ...) with 4 draws or more per chain, got {x.shape}"
        )
    if not np.isfinite(x).all():
        raise ValueError("values: want finite numbers, got NaN or infinity; leave the failed chain out")
    flat = x.reshape(*x.shape[:2], -1)
    sizes = np.full(flat.shape[2], np.nan)
    varies = np.ptp(halves(flat), axis=(0, 1)) > 0
    if varies.any():
        sizes[varies] = bulk_ess(flat[..., varies])
    return sizes.reshape(x.shape[2:])


class KeptChains(NamedTuple):
    """Which chains are good enough to be compared.

    Parameters
    ----------
    keep : ndarray of bool, shape (chain,)
    nats_below : ndarray of float, shape (chain,)
        How far the mean log joint of the chain's second half is below the best chain's; NaN for a failed one.
    """

    keep: NDArray[np.bool_]
    nats_below: Floats


def keep_chains(log_joint: ArrayLike, tolerance: float = 15.0) -> KeptChains:
    r"""Leave out chains that are stuck in a worse mode, whose disagreement says nothing about the edges.

    Kept are chains with :math:`\bar\ell_c \ge \max_b \bar\ell_b - \text{tolerance}`, :math:`\bar\ell_c` being
    the mean log joint density over the second half of chain c. Chains that are not finite there have failed.

    Parameters
    ----------
    log_joint : array_like of shape (chain, draw)
        Log joint density of each draw, in nats.
    tolerance : float
        Nats. Large tables want more: of 1,000 rows and 800 columns, chains that agreed in every edge were 29
        apart.

    Returns
    -------
    KeptChains

    Raises
    ------
    ValueError
        If the shape does not fit, `tolerance` is negative, or all chains have failed.
    """
    x = np.asarray(log_joint, dtype=float)
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"log_joint: want shape (chain, draw) with entries, got {x.shape}")
    if not tolerance >= 0:
        raise ValueError(f"tolerance: want a number of nats, 0 or more, got {tolerance!r}")
    late = x[:, x.shape[1] // 2 :]
    level = np.full(len(x), np.nan)
    sound = np.isfinite(late).all(axis=1)
    level[sound] = late[sound].mean(axis=1)
    if not sound.any():
        raise ValueError("log_joint: no chain is finite in its second half: all have failed; start them anew")
    return KeptChains(kept_restarts(level, 1, tolerance=tolerance, at_least=1), np.nanmax(level) - level)
