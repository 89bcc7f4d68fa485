r"""Factors of rows with missing cells, compiled: without a matrix of every row."""

from __future__ import annotations

import numpy as np

from ...._utils.arrays import COMPILED as AVAILABLE
from ...._utils.arrays import compiled as _compile

__all__ = ["AVAILABLE", "explained_by_rows", "factors_of_rows"]


@_compile
def factors_of_rows(precision, pattern, pull, normal, known):
    """Factors, in place of `normal` (chain, row, factor), and sums over rows of each pattern: z z' and d z'.

    `precision` (chain, pattern, factor, factor) is lost.
    """
    n_chains, n_patterns, k, _ = precision.shape
    outer, of_known = np.zeros(precision.shape), np.zeros((n_chains, n_patterns, known.shape[1], k))
    for c in range(n_chains):
        _roots(precision[c])
        for r in range(len(pattern)):
            root, z, square = precision[c, pattern[r]], normal[c, r], outer[c, pattern[r]]
            _solved(root, pull[c, r])
            for a in range(k - 1, -1, -1):
                z[a] = (z[a] + pull[c, r, a]) * root[a, a]
                for b in range(a):
                    z[b] -= root[a, b] * z[a]
            for a in range(k):
                for b in range(a + 1):
                    square[a, b] += z[a] * z[b]
                for q in range(known.shape[1]):
                    of_known[c, pattern[r], q, a] += known[r, q] * z[a]
        for p in range(n_patterns):
            for a in range(k):
                for b in range(a):
                    outer[c, p, b, a] = outer[c, p, a, b]
    return outer, of_known


@_compile
def explained_by_rows(precision, pattern, pull):
    """Log determinants (chain, pattern) and the sum over rows of pull' precision^-1 pull (chain,).

    `precision` and `pull` are lost.
    """
    n_chains, n_patterns, k, _ = precision.shape
    log_det, explained = np.zeros((n_chains, n_patterns)), np.zeros(n_chains)
    for c in range(n_chains):
        _roots(precision[c])
        for p in range(n_patterns):
            for a in range(k):
                log_det[c, p] -= 2 * np.log(precision[c, p, a, a])
        for r in range(len(pattern)):
            _solved(precision[c, pattern[r]], pull[c, r])
            for a in range(k):
                explained[c] += pull[c, r, a] * pull[c, r, a]
    return log_det, explained


@_compile
def _roots(precision):
    """Cholesky factors of matrices, in place of their lower triangles, but for inverses on the diagonal."""
    k = precision.shape[1]
    for p in range(len(precision)):
        low = precision[p]
        for a in range(k):
            for b in range(a + 1):
                total = low[a, b]
                for i in range(b):
                    total -= low[a, i] * low[b, i]
                low[a, b] = 1 / np.sqrt(total) if a == b else total * low[b, b]


@_compile
def _solved(root, vector):
    """A triangle's inverse times a vector, in its place."""
    for a in range(len(vector)):
        total = vector[a]
        for b in range(a):
            total -= root[a, b] * vector[b]
        vector[a] = total * root[a, a]
