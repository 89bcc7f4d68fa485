"""Derivatives of a factor model's likelihood (`factor_likelihood.py`), compiled: every entry in one loop."""

from __future__ import annotations

import numpy as np

from ..._utils.arrays import COMPILED as AVAILABLE
from ..._utils.arrays import compiled as _compile

__all__ = ["AVAILABLE", "derivatives"]


@_compile
def derivatives(
    covariance, n, loadings, correlations, noise, precision, features, factors, first, second
):  # fmt: skip
    """Gradient and expected information by loadings, correlations, and all log noise variances.

    `covariance` (feature, feature) is that of `n` rows, `precision` the inverse of the model's; loadings are
    those of `features` and `factors` (edge,), correlations those of the factors `first` and `second` (pair,).
    """
    n_edges, n_pairs, g = len(features), len(first), len(noise)
    through = np.dot(loadings, correlations)
    weighted, turned = np.dot(precision, through), np.dot(precision, loadings)
    within, between = np.dot(through.T, weighted), np.dot(through.T, turned)
    across = np.dot(loadings.T, turned)
    misfit = np.dot(np.dot(precision, covariance), precision) - precision
    by_loading, by_correlation = np.dot(misfit, through), np.dot(np.dot(loadings.T, misfit), loadings)
    p, q = n_edges, n_edges + n_pairs
    gradient, information = np.empty(q + g), np.empty((q + g, q + g))
    for a in range(n_edges):
        i, k = features[a], factors[a]
        gradient[a] = n * by_loading[i, k]
        for b in range(a + 1):
            j, m = features[b], factors[b]
            at = n * (precision[i, j] * within[k, m] + weighted[i, m] * weighted[j, k])
            information[a, b] = information[b, a] = at
        for b in range(n_pairs):
            s, t = first[b], second[b]
            at = n * (turned[i, s] * between[k, t] + turned[i, t] * between[k, s])
            information[a, p + b] = information[p + b, a] = at
        for j in range(g):
            at = n * precision[i, j] * weighted[j, k] * noise[j]
            information[a, q + j] = information[q + j, a] = at
    for a in range(n_pairs):
        s, t = first[a], second[a]
        gradient[p + a] = n * by_correlation[s, t]
        for b in range(a + 1):
            u, v = first[b], second[b]
            at = n * (across[s, u] * across[t, v] + across[s, v] * across[t, u])
            information[p + a, p + b] = information[p + b, p + a] = at
        for j in range(g):
            at = n * turned[j, s] * turned[j, t] * noise[j]
            information[p + a, q + j] = information[q + j, p + a] = at
    for i in range(g):
        gradient[q + i] = n * 0.5 * misfit[i, i] * noise[i]
        for j in range(g):
            information[q + i, q + j] = n * 0.5 * precision[i, j] ** 2 * noise[i] * noise[j]
    return gradient, information
