"""How well are cells that were not seen predicted? Errors, log-likelihoods and rankings.

Missing cells (NaN) are never counted. Rankings score held-out items; the Sparse VAE paper's own variants,
which score the input, carry `reconstruction` in their names.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pyro_sparse.metrics._check import same_rows

__all__ = [
    "crps",
    "gaussian_log_likelihood",
    "heldout_mse",
    "multinomial_log_loss",
    "ndcg_at_k",
    "recall_at_k",
    "reconstruction_ndcg_at_k",
    "reconstruction_recall_at_k",
]


def heldout_mse(x: ArrayLike, prediction: ArrayLike, mask: ArrayLike | None = None) -> float:
    """Mean squared error over the observed cells, or over those a mask picks.

    Parameters
    ----------
    x : array_like of shape (N, G)
        The truth; NaN cells are left out.
    prediction : array_like of shape (N, G)
        The predictions; NaN there, in a counted cell, is an error and gives NaN.
    mask : array_like of bool, shape (N, G), optional
        Cells to score (True).

    Returns
    -------
    float
        The error, in squared units of x.

    Raises
    ------
    ValueError
        If shapes differ or no cell is left.
    """
    truth, guess, chosen = _cells(x, prediction, mask)
    return float(((truth - guess)[chosen] ** 2).mean())


def gaussian_log_likelihood(
    x: ArrayLike, prediction: ArrayLike, noise_sd: ArrayLike, mask: ArrayLike | None = None
) -> float:
    r"""Mean log-density per observed cell of independent normals, in nats.

    Parameters
    ----------
    x, prediction : array_like of shape (N, G)
        The truth (NaN is left out) and the predictive means.
    noise_sd : array_like broadcastable to (N, G)
        Predictive standard deviations, positive.
    mask : array_like of bool, shape (N, G), optional
        Cells to score (True).

    Returns
    -------
    float
        :math:`\frac1{|\Omega|}\sum_{ij\in\Omega} \log N(x_{ij}; \hat x_{ij}, \sigma_{ij}^2)`.

    Raises
    ------
    ValueError
        If shapes differ, a standard deviation is not positive, or no cell is left.
    """
    truth, guess, chosen = _cells(x, prediction, mask)
    sd = np.broadcast_to(np.asarray(noise_sd, dtype=float), truth.shape)
    if not (sd > 0).all():
        raise ValueError(f"noise_sd must be positive everywhere; its minimum is {np.min(sd)}")
    error = (truth - guess)[chosen] / sd[chosen]
    return float(np.mean(-0.5 * error**2 - np.log(sd[chosen]) - 0.5 * np.log(2 * np.pi)))


def crps(draws: ArrayLike, observed: ArrayLike) -> np.ndarray:
    r"""Continuous ranked probability score of each cell, from draws of its predictive distribution.

    .. math:: \mathrm{CRPS} = \mathrm{E}\,|X - x| - \tfrac12 \mathrm{E}\,|X - X'|

    In the units of x; the smaller, the better. Of one certain prediction it is the absolute error. Pairs of
    different draws only, so that the expectation does not depend on how many draws there are.

    Parameters
    ----------
    draws : array_like (draw, ...)
        At least two.
    observed : array_like (...)
        NaN where nothing was observed.

    Returns
    -------
    ndarray (...)
        NaN where nothing was observed.

    Raises
    ------
    ValueError
        Shapes that do not go together, fewer than two draws.

    References
    ----------
    Gneiting and Raftery (2007), Journal of the American Statistical Association 102(477); Ferro (2014),
    Quarterly Journal of the Royal Meteorological Society 140(683), on pairs of different draws.
    """
    sample, x = np.asarray(draws, dtype=float), np.asarray(observed, dtype=float)
    if sample.shape[1:] != x.shape or len(sample) < 2:
        raise ValueError(
            f"draws has shape {sample.shape}, observed {x.shape}: want (draw, *observed.shape), "
            "two draws or more"
        )
    n = len(sample)
    rank = (2 * np.arange(1, n + 1) - n - 1).reshape(-1, *[1] * x.ndim)
    apart = 2 * (rank * np.sort(sample, axis=0)).sum(0) / (n * (n - 1))
    score: np.ndarray = np.abs(sample - x).mean(0) - 0.5 * apart
    return score


def multinomial_log_loss(counts: ArrayLike, probability: ArrayLike) -> float:
    r"""Mean over rows of minus the log-probability of the counts, without the multinomial coefficient, in
    nats.

    .. math:: -\frac1N \sum_{ij} x_{ij} \log p_{ij}

    This is the "log loss" of the Sparse VAE paper's tables. NaN counts are left out.

    Parameters
    ----------
    counts : array_like of shape (N, G)
        Non-negative counts.
    probability : array_like of shape (N, G)
        Predicted shares; every row is normalised to sum to one.

    Returns
    -------
    float
        The loss; infinite where a counted word has probability 0.

    Raises
    ------
    ValueError
        If shapes differ, or a count or probability is negative.
    """
    x, p = same_rows(counts, probability, "counts", "probability", finite=False)
    if (p < 0).any() or (x < 0).any():
        raise ValueError("counts and probability must not be negative")
    counted = x > 0
    total = p.sum(1, keepdims=True)
    with np.errstate(divide="ignore"):
        log_p = np.log(p / np.where(total > 0, total, 1.0))
    return float(-(x[counted] * log_p[counted]).sum() / len(x))


def recall_at_k(scores: ArrayLike, heldout: ArrayLike, k: int, seen: ArrayLike | None = None) -> float:
    r"""Share of a row's held-out items among its k best-scored items not seen before.

    .. math:: \mathrm{Recall@}k = \frac{|\mathrm{top}_k \cap \mathrm{heldout}|}{\min(k, |\mathrm{heldout}|)}

    averaged over rows with at least one held-out item.

    Parameters
    ----------
    scores : array_like of shape (N, G)
        Larger is better; ties go to the earlier item.
    heldout : array_like of shape (N, G)
        Non-zero for the items to find.
    k : int
        Length of the list, 1 to G.
    seen : array_like of shape (N, G), optional
        Non-zero for the items the model was given: they are taken off the list.

    Returns
    -------
    float
        Value in [0, 1].

    Raises
    ------
    ValueError
        If shapes differ, a score is NaN, k is out of range, an item is both seen and held out, or nothing is
        held out.

    References
    ----------
    Liang et al. (2018).
    """
    gain, relevant = _ranked(scores, heldout, k, seen)
    return float((gain.sum(1) / np.minimum(k, relevant)).mean())


def ndcg_at_k(scores: ArrayLike, heldout: ArrayLike, k: int, seen: ArrayLike | None = None) -> float:
    r"""Normalised discounted cumulative gain of held-out items among the k best-scored unseen ones.

    .. math::

        \mathrm{NDCG@}k = \frac{\sum_{r=1}^k 1[\text{r-th item held out}]/\log_2(r+1)}
                               {\sum_{r=1}^{\min(k, |\mathrm{heldout}|)} 1/\log_2(r+1)}

    averaged over rows with at least one held-out item.

    Parameters
    ----------
    scores, heldout, k, seen
        As in `recall_at_k`.

    Returns
    -------
    float
        Value in [0, 1].

    Raises
    ------
    ValueError
        As in `recall_at_k`.

    References
    ----------
    Liang et al. (2018).
    """
    gain, relevant = _ranked(scores, heldout, k, seen)
    discount = 1 / np.log2(np.arange(2, k + 2))
    ideal = np.cumsum(discount)[np.minimum(k, relevant) - 1]
    return float(((gain * discount).sum(1) / ideal).mean())


def reconstruction_recall_at_k(scores: ArrayLike, x: ArrayLike, k: int) -> float:
    """Recall@k of the *input* items: what the Sparse VAE paper's tables call Recall@k.

    The model has seen the items it is asked for, so this measures reconstruction, not recommendation
    (which is `recall_at_k`).

    Parameters
    ----------
    scores : array_like of shape (N, G)
        Larger is better.
    x : array_like of shape (N, G)
        The input; non-zero entries are the items.
    k : int
        Length of the list.

    Returns
    -------
    float
        Value in [0, 1].

    References
    ----------
    Moran et al. (2022), table of MovieLens results.
    """
    return recall_at_k(scores, x, k)


def reconstruction_ndcg_at_k(scores: ArrayLike, x: ArrayLike, k: int) -> float:
    """NDCG@k of the *input* items: what the Sparse VAE paper's tables call NDCG@k; see `ndcg_at_k` for
    held-out items.

    Parameters
    ----------
    scores, x, k
        As in `reconstruction_recall_at_k`.

    Returns
    -------
    float
        Value in [0, 1].

    References
    ----------
    Moran et al. (2022), table of MovieLens results.
    """
    return ndcg_at_k(scores, x, k)


def _cells(
    x: ArrayLike, prediction: ArrayLike, mask: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    truth, guess = np.asarray(x, dtype=float), np.asarray(prediction, dtype=float)
    chosen = ~np.isnan(truth)
    if mask is not None:
        if np.shape(mask) != truth.shape:
            raise ValueError(f"mask has shape {np.shape(mask)}, x {truth.shape}: want the same")
        chosen &= np.asarray(mask, dtype=bool)
    if truth.shape != guess.shape:
        raise ValueError(f"x has shape {truth.shape}, prediction {guess.shape}: want the same")
    if not chosen.any():
        raise ValueError("no observed cell to score: x is NaN wherever mask is True")
    return truth, guess, chosen


def _items(x: np.ndarray) -> np.ndarray:
    """Where a table has an item; a missing cell (NaN) is none."""
    items: np.ndarray = (x != 0) & ~np.isnan(x)
    return items


def _ranked(
    scores: ArrayLike, heldout: ArrayLike, k: int, seen: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray]:
    """0/1 relevance of each row's k best items, and how many relevant items the row has."""
    value, items = same_rows(scores, heldout, "scores", "heldout", finite=False)
    if np.isnan(value).any():
        raise ValueError(f"scores: want a number for every item, got {int(np.isnan(value).sum())} NaN")
    wanted = _items(items)
    if value.shape != wanted.shape or not 1 <= k <= value.shape[1]:
        raise ValueError(
            f"scores {value.shape}, heldout {wanted.shape}, k={k}: want equal shapes and 1 <= k <= G"
        )
    if seen is not None:
        excluded = _items(np.asarray(seen, dtype=float))
        if excluded.shape != value.shape or (excluded & wanted).any():
            raise ValueError("seen must have the shape of scores, and no item may be both seen and held out")
        value = np.where(excluded, -np.inf, value)
    rows = wanted.any(1)
    if not rows.any():
        raise ValueError("heldout has no item in any row")
    best = np.argsort(-value[rows], axis=1, kind="stable")[:, :k]
    return np.take_along_axis(wanted[rows], best, axis=1).astype(float), wanted[rows].sum(1)
