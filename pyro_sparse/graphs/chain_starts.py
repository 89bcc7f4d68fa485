"""What do chains say that began elsewhere? A factor to which they came back is known to the data.

A chain that begins with a factor and stays there repeats its start, be it a restart of the fit. One that
begins without it, in axes that no fit has chosen or at a restart that the chains leave, and ends with the
factors of all others, was led there by nothing but the data.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .alignment import SAME_FACTOR, similarity
from .chain_groups import ChainPool

__all__ = ["came_back"]

_FEWEST, _FEWEST_WITHOUT_FIT = 1, 2  # that began without; the fit, if it has the factor too, is one more


def came_back(loading: ArrayLike, began: ArrayLike, fitted: ArrayLike, pool: ChainPool) -> NDArray[np.bool_]:
    r"""Factors that all chains kept have in common, although some of them began without.

    A chain has a factor if Tucker's congruence with its mean over the chains is at least .9, and began
    without it if that of no column that it began at is so large in size. If the fit has the factor, too, one
    such chain is enough: chain and fit came to it by two ways. Else there must be two, since the fit came to
    other axes; a chain that began at the fit's and left them is one of them.

    Parameters
    ----------
    loading : array_like of shape (chain, feature, factor)
        Mean loadings of each chain, all in one frame.
    began : array_like of shape (chain, feature, any)
        Where the chains began, with any number of factors in any order and of any signs; NaN of chains of
        which that is not known, which are no evidence.
    fitted : array_like of shape (feature, factor)
        Of the fit's best restart, in the frame of the chains.
    pool : ChainPool
        Which chains are kept, and what each counts.

    Returns
    -------
    ndarray of bool, shape (factor,)

    Raises
    ------
    ValueError
        Shapes do not fit.

    Examples
    --------
    Two chains have two factors in common. The second began in axes 45 degrees away:

    >>> from pyro_sparse.graphs.chain_groups import pool_chains
    >>> end = np.kron(np.eye(2), np.ones((3, 1)))
    >>> began = np.stack([np.full(end.shape, np.nan), end @ [[0.7, -0.7], [0.7, 0.7]]])
    >>> pool = pool_chains(np.ones((2, 6, 2)), np.zeros((2, 6, 2)), [0.0, 0.0], None)
    >>> came_back(np.stack([end, end]), began, end, pool).tolist()
    [True, True]
    >>> came_back(np.stack([end, end]), began, began[1], pool).tolist()
    [False, False]
    """
    means, starts, of_fit = (np.asarray(values, dtype=float) for values in (loading, began, fitted))
    shapes = (3, 3, means.shape[:2], means.shape[1:])
    if shapes != (means.ndim, starts.ndim, starts.shape[:2], of_fit.shape):
        raise ValueError(
            "loading, began, fitted: want (chain, feature, factor), (chain, feature, any) and (feature, "
            f"factor), got {means.shape}, {starts.shape} and {of_fit.shape}"
        )
    if pool.keep.shape != means.shape[:1]:
        raise ValueError(f"pool: is of {len(pool.keep)} chains, want one of the {len(means)} of loading")
    kept = np.flatnonzero(pool.keep)
    confirmed = np.zeros(means.shape[2], dtype=bool)
    if not np.isfinite(means[kept]).all():  # a failed chain that is kept for want of others
        return confirmed
    known = [c for c in kept if np.isfinite(starts[c]).all()]
    together = np.average(means[kept], axis=0, weights=pool.weight[kept])
    for k in range(len(confirmed)):
        factor = together[:, [k]]
        everywhere = min(similarity(means[c][:, [k]], factor)[0, 0] for c in kept) >= SAME_FACTOR
        without = sum(np.abs(similarity(starts[c], factor)).max() < SAME_FACTOR for c in known)
        in_fit = similarity(of_fit[:, [k]], factor)[0, 0] >= SAME_FACTOR
        confirmed[k] = everywhere and without >= (_FEWEST if in_fit else _FEWEST_WITHOUT_FIT)
    return confirmed
