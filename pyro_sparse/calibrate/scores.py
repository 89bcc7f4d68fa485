r"""Numbers that compare edge probabilities with the truth: pure functions of two arrays.

.. math:: \mathrm{ECE} = \sum_b \frac{n_b}{N} |\bar\gamma_b - \bar p_b|, \qquad
          \mathrm{Brier} = \text{reliability} - \text{resolution} + \text{uncertainty} + \text{within-bin}

over bins b of equal width. A calibrated forecast has :math:`E[\gamma \mid p] = p`; every number here has a
known mean then, and `ece` has a floor that is not zero.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlog1py, xlogy

from .._utils.checks import check_whole
from ._check import Array, bin_of, groups, pair

__all__ = [
    "BrierDecomposition",
    "brier_decomposition",
    "cluster_ece",
    "cluster_z",
    "ece",
    "ece_when_calibrated",
    "log_score",
    "mean_z",
    "spiegelhalter_z",
]


class BrierDecomposition(NamedTuple):
    """Parts of a Brier score: it is `reliability - resolution + uncertainty + within_bin`.

    Attributes
    ----------
    reliability : float
        Squared gap between what is said and what is so, bin by bin; 0 is best.
    resolution : float
        Variance of the frequencies between bins; large is best.
    uncertainty : float
        Variance of the truths themselves.
    within_bin : float
        What binning hides: variance of the probabilities within bins minus twice their covariance with the
        truths there; 0 when a bin holds one value only.
    """

    reliability: float
    resolution: float
    uncertainty: float
    within_bin: float


def ece(probability: ArrayLike, truth: ArrayLike, bins: int = 15) -> float:
    r"""Expected calibration error, :math:`\sum_b \frac{n_b}{N} |\bar\gamma_b - \bar p_b|`.

    Parameters
    ----------
    probability : array_like of any shape
        Edge probabilities in [0, 1].
    truth : array_like of the same shape
        1 or True where there is an edge, else 0.
    bins : int
        Bins of equal width; a probability on a boundary belongs to the upper bin.

    Returns
    -------
    float
        In [0, 1]. It is above 0 for a calibrated forecast too: compare with `ece_when_calibrated`.

    Raises
    ------
    ValueError
        If shapes differ, there is no edge, a value is out of range, or `bins` is no positive whole number.

    References
    ----------
    Naeini, Cooper and Hauskrecht (2015), Obtaining well calibrated probabilities using Bayesian binning,
    AAAI.
    """
    p, gamma = pair(probability, truth)
    return float(np.abs(np.bincount(bin_of(p, bins), gamma - p)).sum() / p.size)


def ece_when_calibrated(
    probability: ArrayLike, *, bins: int = 15, simulations: int = 500, seed: int = 0
) -> Array:
    """ECE of truths drawn from the probabilities themselves: what a calibrated forecast scores by chance.

    Parameters
    ----------
    probability : array_like of any shape
        Edge probabilities in [0, 1].
    bins : int
        As in `ece`.
    simulations : int
        How many sets of truths, each edge drawn independently of the others.
    seed : int
        Same seed, same numbers.

    Returns
    -------
    ndarray of shape (simulation,)
        The mean is the floor of the ECE at this sample size.

    Raises
    ------
    ValueError
        As in `ece`, or if `simulations` is no positive whole number.
    """
    p, _ = pair(probability, np.zeros(np.shape(probability)))
    check_whole(1, simulations=simulations)
    home, rng = bin_of(p, bins), np.random.default_rng(seed)
    expected = np.bincount(home, p)
    drawn = (np.bincount(home[rng.random(p.size) < p], minlength=len(expected)) for _ in range(simulations))
    return np.array([np.abs(count - expected).sum() for count in drawn]) / p.size


def cluster_ece(
    probability: ArrayLike,
    truth: ArrayLike,
    group: ArrayLike,
    *,
    bins: int = 15,
    simulations: int = 500,
    seed: int = 0,
) -> Array:
    r"""ECE after turning the deviations of whole data sets round at random: its floor for dependent edges.

    .. math::

        \mathrm{ECE}^* = \tfrac1N \sum_b \Bigl| \sum_d s_d \sum_{e \in d \cap b} (\gamma_e - p_e) \Bigr|,
        \qquad s_d = \pm 1

    Edges of one data set deviate together (they share a sparsity rate, their features are alike), and then
    the ECE of a calibrated forecast is larger by chance than `ece_when_calibrated` says.

    Parameters
    ----------
    probability, truth
        As in `ece`.
    group : array_like
        Data set of each edge: labels of the same shape, or of the leading axes of it.
    bins, simulations, seed
        As in `ece_when_calibrated`.

    Returns
    -------
    ndarray of shape (simulation,)
        Compare with `ece`; rough below some twenty data sets.

    Raises
    ------
    ValueError
        As in `ece`, or if the labels do not fit.

    References
    ----------
    The wild cluster bootstrap: Cameron, Gelbach and Miller (2008), Review of Economics and Statistics 90.
    """
    p, gamma = pair(probability, truth)
    check_whole(1, simulations=simulations)
    home, rng = groups(group, np.shape(probability)), np.random.default_rng(seed)
    sets = int(home.max()) + 1
    deviation = np.bincount(home * bins + bin_of(p, bins), gamma - p, minlength=sets * bins)
    deviation = deviation.reshape(sets, bins)
    turned = (rng.choice([-1.0, 1.0], sets) @ deviation for _ in range(simulations))
    return np.array([np.abs(total).sum() for total in turned]) / p.size


def brier_decomposition(probability: ArrayLike, truth: ArrayLike, bins: int = 15) -> BrierDecomposition:
    r"""Murphy's parts of the Brier score, and the part within bins that makes them add up exactly.

    .. math::

        \tfrac1N \sum_i (p_i - \gamma_i)^2 = \sum_b \tfrac{n_b}{N} (\bar p_b - \bar\gamma_b)^2
        - \sum_b \tfrac{n_b}{N} (\bar\gamma_b - \bar\gamma)^2 + \bar\gamma (1 - \bar\gamma)
        + \tfrac1N \sum_i \bigl[(p_i - \bar p_b)^2 - 2 (p_i - \bar p_b)(\gamma_i - \bar\gamma_b)\bigr]

    Parameters
    ----------
    probability, truth, bins
        As in `ece`.

    Returns
    -------
    BrierDecomposition

    Raises
    ------
    ValueError
        As in `ece`.

    References
    ----------
    Murphy (1973), Journal of Applied Meteorology 12, 595-600; the last part is from Stephenson, Coelho and
    Jolliffe (2008), Weather and Forecasting 23, 752-757.
    """
    p, gamma = pair(probability, truth)
    home = bin_of(p, bins)
    count = np.maximum(np.bincount(home), 1)
    mean_probability, frequency = np.bincount(home, p) / count, np.bincount(home, gamma) / count
    inside = p - mean_probability[home]
    return BrierDecomposition(
        reliability=float(np.mean((mean_probability - frequency)[home] ** 2)),
        resolution=float(np.mean((frequency[home] - gamma.mean()) ** 2)),
        uncertainty=float(gamma.mean() * (1 - gamma.mean())),
        within_bin=float(np.mean(inside**2 - 2 * inside * (gamma - frequency[home]))),
    )


def log_score(probability: ArrayLike, truth: ArrayLike) -> float:
    r"""Mean of :math:`-\gamma \log p - (1 - \gamma) \log(1 - p)`, in nats per edge.

    Parameters
    ----------
    probability, truth
        As in `ece`.

    Returns
    -------
    float
        Infinite if a certain claim is wrong. Means of L draws can be 0 or 1 by chance; (sum + 1/2) / (L + 1)
        cannot.

    Raises
    ------
    ValueError
        As in `ece`.
    """
    p, gamma = pair(probability, truth)
    return float(-np.mean(xlogy(gamma, p) + xlog1py(1 - gamma, -p)))


def spiegelhalter_z(probability: ArrayLike, truth: ArrayLike) -> float:
    r"""Spiegelhalter's test: is the Brier score what the probabilities themselves expect?

    .. math:: z = \frac{\sum_i (\gamma_i - p_i)(1 - 2 p_i)}{\sqrt{\sum_i (1 - 2 p_i)^2 p_i (1 - p_i)}}

    Standard normal if the probabilities are right and edges are independent given them; positive if they are
    too sure, negative if they are not sure enough.

    Parameters
    ----------
    probability, truth
        As in `ece`.

    Returns
    -------
    float
        0 if nothing can deviate and nothing does; infinite if a certain claim is wrong and no other varies.

    Raises
    ------
    ValueError
        As in `ece`.

    References
    ----------
    Spiegelhalter (1986), Probabilistic prediction in patient management and clinical trials, Statistics in
    Medicine 5, 421-433.
    """
    p, gamma = pair(probability, truth)
    slope = 1 - 2 * p
    return _ratio(float(((gamma - p) * slope).sum()), float(np.sqrt((slope**2 * p * (1 - p)).sum())))


def mean_z(probability: ArrayLike, truth: ArrayLike) -> float:
    r"""Are there as many edges as the probabilities claim?

    .. math:: z = \frac{\sum_i (\gamma_i - p_i)}{\sqrt{\sum_i p_i (1 - p_i)}}

    Standard normal if the probabilities are right and edges are independent given them; negative if too many
    edges are claimed, positive if too few.

    Parameters
    ----------
    probability, truth
        As in `ece`.

    Returns
    -------
    float
        0 if nothing can deviate and nothing does; infinite if a certain claim is wrong and no other varies.

    Raises
    ------
    ValueError
        As in `ece`.
    """
    p, gamma = pair(probability, truth)
    return _ratio(float((gamma - p).sum()), float(np.sqrt((p * (1 - p)).sum())))


def cluster_z(deviation: ArrayLike, group: ArrayLike) -> float:
    r"""Is the mean deviation zero, when edges of one data set may deviate together?

    .. math:: z = \sqrt{D}\, \bar c / \operatorname{sd}(c), \qquad c_d = \sum_{e \in d} \text{deviation}_e

    With deviation :math:`\gamma - p` it asks whether too many edges are claimed (z < 0) or too few; with
    :math:`(\gamma - p)(1 - 2p)` it is Spiegelhalter's test for dependent edges.

    Parameters
    ----------
    deviation : array_like of any shape
    group : array_like
        Data set of each edge: labels of the same shape, or of the leading axes of it.

    Returns
    -------
    float
        Roughly standard normal under calibration (Student's t with D - 1 degrees of freedom); NaN for a
        single data set. Infinite if all deviate alike, as few data sets may by chance: turning each round at
        random gives a two-sided p-value of :math:`2^{1-D}`.

    Raises
    ------
    ValueError
        If a deviation is not finite, or the labels do not fit.
    """
    values = np.asarray(deviation, dtype=float)
    if values.size == 0 or not np.isfinite(values).all():
        strange = int((~np.isfinite(values)).sum())
        raise ValueError(
            f"deviation: want finite numbers, at least one, got {strange} others among {values.size}; "
            "leave out edges without a probability"
        )
    total = np.bincount(groups(group, values.shape), values.ravel())
    if len(total) < 2:
        return np.nan
    # Sums that rounding alone keeps from zero, or from each other, are no deviation.
    close = 1e-12 * np.abs(values).sum()
    total[np.abs(total) <= close] = 0
    sd = float(total.std(ddof=1)) if np.ptp(total) > close else 0.0
    return _ratio(float(total.mean()), sd / np.sqrt(len(total)))


def _ratio(top: float, bottom: float) -> float:
    if bottom > 0:
        return top / bottom
    return float(np.sign(top) * np.inf) if top else 0.0
