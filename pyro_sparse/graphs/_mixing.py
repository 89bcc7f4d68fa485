"""Split R-hat and effective sample size of many quantities at once, arrays of shape (chain, draw, quantity).

Chains are cut into halves, values become normal scores of their ranks, z = Phi^-1((r - 3/8) / (S + 1/4)).
The numbers are those of Vehtari et al. (2021), as in ArviZ, which takes one quantity at a time; only where
chains are short (below some 16 draws) may the effective sample size differ from ArviZ's, mostly downwards.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import fft, special, stats

__all__ = ["bulk_ess", "halves", "scores", "split_rhat"]

Floats = NDArray[np.float64]


def halves(x: Floats) -> Floats:
    """Every chain cut in two, the middle one of an odd number of draws left out."""
    n = x.shape[1] // 2
    return np.concatenate([x[:, :n], x[:, -n:]])


def scores(x: Floats) -> Floats:
    """Normal scores of the ranks over chains and draws, (r - 3/8) / (S + 1/4)."""
    flat = x.reshape(-1, x.shape[2])
    ranks = stats.rankdata(flat, axis=0)
    normal: Floats = special.ndtri((ranks - 0.375) / (len(flat) + 0.25)).reshape(x.shape)
    return normal


def split_rhat(x: Floats) -> Floats:
    """The larger one of R-hat of the scores, and of those of the distances from the median."""
    half_chains = halves(x)
    folded = np.abs(half_chains - np.median(half_chains, axis=(0, 1)))
    n = half_chains.shape[1]
    rhats = []
    for z in (scores(half_chains), scores(folded)):
        within, between = z.var(axis=1, ddof=1).mean(axis=0), z.mean(axis=1).var(axis=0, ddof=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            rhats.append(np.sqrt((n - 1) / n + between / within))
    # Draws half 0 and half 1 are all as far from their median: no R-hat (NaN), which fmax passes over.
    larger: Floats = np.minimum(np.fmax(*rhats), np.sqrt(n))
    return larger


def bulk_ess(x: Floats) -> Floats:
    """Effective sample size by Geyer's initial monotone sequence, on scores of the halves."""
    z = scores(halves(x))
    m, n = z.shape[:2]
    centred = z - z.mean(axis=1, keepdims=True)
    size = fft.next_fast_len(2 * n, real=True)
    power = np.abs(fft.rfft(centred, n=size, axis=1)) ** 2
    covariance = fft.irfft(power, n=size, axis=1)[:, :n].mean(axis=0) / n
    within = covariance[0] * n / (n - 1)
    total = covariance[0] + z.mean(axis=1).var(axis=0, ddof=1)
    rho = 1 - (within - covariance) / total
    rho[0] = 1.0
    rho = np.concatenate([rho, np.zeros((2 + n % 2, z.shape[2]))])  # so that every sequence has an end
    pairs = rho[0::2] + rho[1::2]
    go_on = np.logical_and.accumulate(pairs > 0, axis=0)
    stop = go_on.argmin(axis=0)
    summed = np.where(go_on, np.minimum.accumulate(pairs, axis=0), 0.0).sum(axis=0)
    last = np.maximum(rho[2 * stop, np.arange(z.shape[2])], 0.0)
    effective: Floats = m * n / np.maximum(-1 + 2 * summed + last, 1 / np.log10(m * n))
    return effective
