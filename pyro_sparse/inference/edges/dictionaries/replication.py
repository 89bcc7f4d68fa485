r"""How probable is it that another refit shows an edge? A latent class model of what several refits show.

Refit r shows pair n (an output latent and an input latent) with a level :math:`l_{rn}` of evidence: the log
odds of an edge given that refit alone, cut into levels. Pairs are of a few classes that refits show in
different ways, from those that are never an edge to those that always are:

.. math::

    c_n \sim \pi, \qquad l_{rn} \mid c_n = k \sim \phi_k, \qquad
    \pi \sim \mathrm{Dirichlet}(.1), \quad \phi_k \sim \mathrm{Dirichlet}(.1),

Another refit *shows* an edge if by itself it gives it a probability above one half, which anyone with another
refit can check; one of class k at the rate :math:`q_k = \sum_{l: \mathrm{odds} > 1} \phi_{kl}`. With two
classes and two levels these rates are the sensitivity of refits and one minus their specificity. What refits
say goes in as it is, not as 0 or 1: one that is unsure has a level of its own, and one that is sure
counts for what being sure was worth in the others.

Pairs with the same levels are exchangeable, so a Gibbs sweep draws how many of them are of each class.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from ...._utils.checks import check_whole

__all__ = ["N_CLASSES", "Replication", "level_of", "replication"]

Array = NDArray[np.float64]

N_CLASSES = 5
# Log odds between levels. Beyond 8 refits are as sure as they get.
_CUTS = np.array([-6.0, -4.0, -2.0, 0.0, 2.0, 4.0, 6.0, 8.0])
_LEVEL = 0.1  # Dirichlet concentration of the levels in a class: it shows few levels
_SHARE = 0.1  # and of the classes: one that is not needed stays nearly empty


class Replication(NamedTuple):
    """Probabilities that another refit shows each edge.

    Attributes
    ----------
    probability : ndarray (pair,)
        Rao-Blackwellised, mean over the chains.
    by_chain : ndarray (chain, pair)
    share : ndarray (chain, draw, class)
        Of pairs that are of each class; classes in the order of their rates.
    rate : ndarray (chain, draw, class)
        At which a refit shows an edge: gives it a probability above one half.
    pattern_probability : ndarray (chain, draw, pattern)
        The same probability given one draw of the parameters, for each combination of levels.
    pattern : ndarray of int (pair,)
        Which combination of levels each pair has.
    """

    probability: Array
    by_chain: Array
    share: Array
    rate: Array
    pattern_probability: Array
    pattern: NDArray[np.intp]


def level_of(probability: ArrayLike) -> NDArray[np.intp]:
    """Level of evidence of each probability of an edge, from 0; -1 where it is NaN.

    Parameters
    ----------
    probability : array_like

    Examples
    --------
    >>> level_of([0.0, 0.4, 0.6, 1.0, np.nan]).tolist()
    [0, 3, 4, 8, -1]
    """
    p = np.asarray(probability, dtype=float)
    with np.errstate(divide="ignore"):
        log_odds = np.log(p) - np.log1p(-p)
    return np.where(np.isnan(p), -1, np.searchsorted(_CUTS, log_odds, side="right")).astype(np.intp)


def replication(
    probability: ArrayLike,
    *,
    num_draws: int = 500,
    burn_in: int = 200,
    n_chains: int = 4,
    n_classes: int = N_CLASSES,
    seed: int | np.random.SeedSequence = 0,
) -> Replication:
    """Probability that another refit shows each edge, given what at least two refits show.

    Parameters
    ----------
    probability : array_like (refit, pair)
        Probability of each edge given each refit alone; NaN where a refit lacks one of the two latents.
    num_draws, burn_in : int
        Gibbs sweeps kept and left out, of each chain.
    n_chains : int
        Chains from different starts.
    n_classes : int
        Classes of pairs; those that are not needed stay nearly empty.
    seed : int or SeedSequence

    Returns
    -------
    Replication

    Raises
    ------
    ValueError
        Not two refits, no pair, a number outside [0, 1], or a setting out of range.

    Examples
    --------
    >>> shown = np.array([[1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0]]) * 0.998
    >>> p = replication(shown + 0.001).probability
    >>> bool(p[0] > p[3] > p[8]), bool(p[0] < 0.9)
    (True, True)
    """
    check_whole(1, num_draws=num_draws, n_chains=n_chains, n_classes=n_classes)
    check_whole(0, burn_in=burn_in)
    p = np.asarray(probability, dtype=float)
    if p.ndim != 2 or len(p) < 2 or not p.shape[1] or not (np.isnan(p) | ((p >= 0) & (p <= 1))).all():
        raise ValueError(
            f"probability: got shape {p.shape}, wanted numbers in [0, 1] of shape (refit, pair) of at least "
            "two refits"
        )
    level = level_of(p)
    n_levels = len(_CUTS) + 1
    # Refits are exchangeable: what counts is how many show each level
    shown = np.stack([(level == at).sum(0) for at in range(n_levels)], 1)
    patterns, pattern, count = np.unique(shown, axis=0, return_inverse=True, return_counts=True)
    pattern = pattern.ravel()
    shows = (np.arange(n_levels) > _CUTS.searchsorted(0.0)).astype(float)
    runs = [
        _chain(patterns, count, shows, num_draws, burn_in, n_classes, np.random.default_rng(child))
        for child in _children(seed, n_chains)
    ]
    share, rate, table = (np.stack(parts) for parts in zip(*runs, strict=True))
    by_chain = table.mean(1)[:, pattern]
    return Replication(by_chain.mean(0), by_chain, share, rate, table, pattern)


def _children(seed: int | np.random.SeedSequence, n: int) -> list[np.random.SeedSequence]:
    parent = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    return parent.spawn(n)


def _chain(
    patterns: NDArray[np.intp],
    count: NDArray[np.intp],
    shows: Array,
    num_draws: int,
    burn_in: int,
    n_classes: int,
    rng: np.random.Generator,
) -> tuple[Array, Array, Array]:
    """Shares and rates of classes, and the probability of each pattern, for each draw."""
    # Begun in classes that show edges at rates spread over (0, 1), in a random way
    centre = (np.arange(n_classes) + rng.random(n_classes)) / n_classes
    place = np.linspace(0.0, 1.0, patterns.shape[1])
    near = -np.abs(place - centre[:, None]) / rng.uniform(0.1, 0.5)
    log_phi = near - logsumexp(near, axis=1, keepdims=True)
    log_share = np.full(n_classes, -np.log(n_classes))
    shares, rates = np.zeros((num_draws, n_classes)), np.zeros((num_draws, n_classes))
    table = np.zeros((num_draws, len(patterns)))
    for sweep in range(burn_in + num_draws):
        log_class = log_share + patterns @ log_phi.T
        posterior = np.exp(log_class - logsumexp(log_class, axis=1, keepdims=True))
        posterior /= posterior.sum(1, keepdims=True)
        members = rng.multinomial(count, posterior)  # (pattern, class)
        if sweep >= burn_in:
            d = sweep - burn_in
            rate = np.exp(log_phi) @ shows
            order = np.argsort(rate)
            table[d] = posterior @ rate
            shares[d], rates[d] = np.exp(log_share)[order], rate[order]
        log_share = _log_dirichlet(_SHARE + members.sum(0), rng)
        log_phi = np.stack([_log_dirichlet(_LEVEL + row, rng) for row in members.T @ patterns])
    return shares, rates, table


def _log_dirichlet(concentration: Array, rng: np.random.Generator) -> Array:
    """Logarithm of a draw; of an entry that is as good as zero it stays finite."""
    gamma = np.maximum(rng.standard_gamma(concentration), 1e-300)
    log: Array = np.log(gamma) - np.log(gamma.sum())
    return log
