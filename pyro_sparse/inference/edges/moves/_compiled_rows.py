"""Laplace normals of the factors of each row (`rows.py`), compiled: drawn from, and their densities."""

from __future__ import annotations

import numpy as np

from ...._utils.arrays import COMPILED as AVAILABLE
from ...._utils.arrays import compiled as _compile
from ...._utils.elementary import logarithm

__all__ = ["AVAILABLE", "row_normals", "solved_normals"]

_BLOCK = 128  # rows at a time: entries of their matrices are vectors over them


@_compile
def row_normals(slope, bend, weight, precision, z, unit, to):
    """log density of `to` (chain, row, factor), up to a constant, (chain, row).

    `slope` and `bend` are those of the cells (chain, feature, row) at `z`, `weight` (chain, feature, factor).
    With standard normals `unit` (factor, chain, row), `to` is drawn first; without any (0, ...) it is given.
    """
    n_chains, n, k = z.shape
    density = np.empty((n_chains, n))
    matrix, mean = np.empty((k, k, _BLOCK)), np.empty((k, _BLOCK))
    off, left = np.empty((k, _BLOCK)), np.empty(_BLOCK)
    of_cells, pulls = np.empty(_BLOCK), np.empty(_BLOCK)
    for c in range(n_chains):
        for start in range(0, n, _BLOCK):
            size = min(_BLOCK, n - start)
            for a in range(k):
                for i in range(size):
                    off[a, i] = z[c, start + i, a]
            for a in range(k):
                for b in range(a + 1):
                    matrix[a, b, :size] = precision[c, a, b]
                mean[a, :size] = 0.0
                for b in range(k):
                    by = precision[c, a, b]
                    for i in range(size):
                        mean[a, i] -= by * off[b, i]
            for j in range(weight.shape[1]):
                for i in range(size):
                    of_cells[i], pulls[i] = bend[c, j, start + i], slope[c, j, start + i]
                for a in range(k):
                    by = weight[c, j, a]
                    if by == 0:
                        continue
                    for i in range(size):
                        mean[a, i] += by * pulls[i]
                    for b in range(a + 1):
                        both = by * weight[c, j, b]
                        entry = matrix[a, b]
                        for i in range(size):
                            entry[i] += both * of_cells[i]
            _finish(matrix, mean, off, left, size, c, start, unit, to, density)
    return density


@_compile
def solved_normals(pairs, pull, precision, z, unit, to):
    """`row_normals`, where products of matrices have summed the features.

    `pairs` are entries of the lower halves of what cells add to the precision, row by row (chain, row,
    entry), `pull` what they add to the slope in the factors (chain, row, factor).
    """
    n_chains, n, k = z.shape
    density = np.empty((n_chains, n))
    matrix, mean = np.empty((k, k, _BLOCK)), np.empty((k, _BLOCK))
    off, left = np.empty((k, _BLOCK)), np.empty(_BLOCK)
    for c in range(n_chains):
        for start in range(0, n, _BLOCK):
            size = min(_BLOCK, n - start)
            for a in range(k):
                for i in range(size):
                    off[a, i] = z[c, start + i, a]
            entry = 0
            for a in range(k):
                for i in range(size):
                    mean[a, i] = pull[c, start + i, a]
                for b in range(k):
                    by = precision[c, a, b]
                    for i in range(size):
                        mean[a, i] -= by * off[b, i]
                for b in range(a + 1):
                    by = precision[c, a, b]
                    for i in range(size):
                        matrix[a, b, i] = by + pairs[c, start + i, entry]
                    entry += 1
            _finish(matrix, mean, off, left, size, c, start, unit, to, density)
    return density


@_compile
def _finish(matrix, mean, off, left, size, c, start, unit, to, density):
    """Of a block of rows, whose factors are `off`: the draw, and the log density of `to`."""
    k = len(mean)
    _root(matrix, size)
    for a in range(k):  # L^-1, then L^-T
        for b in range(a):
            for i in range(size):
                mean[a, i] -= matrix[a, b, i] * mean[b, i]
        for i in range(size):
            mean[a, i] /= matrix[a, a, i]
    _upper_solved(matrix, mean, size)
    for a in range(k):
        for i in range(size):
            mean[a, i] += off[a, i]
    if len(unit):
        for a in range(k):
            for i in range(size):
                off[a, i] = unit[a, c, start + i]
        _upper_solved(matrix, off, size)
        for a in range(k):
            for i in range(size):
                to[c, start + i, a] = mean[a, i] + off[a, i]
    for a in range(k):
        for i in range(size):
            off[a, i] = to[c, start + i, a] - mean[a, i]
    for i in range(size):
        left[i] = 0.0
    for a in range(k):
        for b in range(a + 1, k):
            for i in range(size):
                off[a, i] += matrix[b, a, i] * off[b, i] / matrix[a, a, i]
        for i in range(size):
            left[i] += logarithm(matrix[a, a, i]) - 0.5 * (matrix[a, a, i] * off[a, i]) ** 2
    for i in range(size):
        density[c, start + i] = left[i]


@_compile
def _root(matrix, size):
    """Cholesky factors in place, of lower halves."""
    for a in range(len(matrix)):
        for b in range(a + 1):
            entry = matrix[a, b]
            for m in range(b):
                for i in range(size):
                    entry[i] -= matrix[a, m, i] * matrix[b, m, i]
            for i in range(size):
                entry[i] = np.sqrt(max(entry[i], 1e-12)) if a == b else entry[i] / matrix[b, b, i]


@_compile
def _upper_solved(matrix, right, size):
    """L^-T of vectors, in place."""
    for a in range(len(matrix) - 1, -1, -1):
        for b in range(a + 1, len(matrix)):
            for i in range(size):
                right[a, i] -= matrix[b, a, i] * right[b, i]
        for i in range(size):
            right[a, i] /= matrix[a, a, i]
