"""Steps of the oblique rotation (`axes.py`), compiled: all starts and steps in one call.

Of matrices of a few dozen numbers, where calls of numpy and of an optimiser take most of the time.
"""

from __future__ import annotations

import numpy as np

from ..._utils.arrays import COMPILED as AVAILABLE
from ..._utils.arrays import compiled as _compile

__all__ = ["AVAILABLE", "adam_steps"]

_MEAN, _SQUARE, _LEAST = 0.9, 0.999, 1e-8  # Adam's, as in torch


@_compile
def adam_steps(maps, loadings, smoothing, rate, barrier):
    """`maps` (start, factor, factor) after Adam's steps down the smooth count of loadings, in place.

    `loadings` are (feature, factor); `smoothing` and `rate` (step,); `barrier` keeps factors apart.
    """
    n_starts, k, _ = maps.shape
    for r in range(n_starts):
        mean, square = np.zeros((k, k)), np.zeros((k, k))
        of_mean, of_square = 1.0, 1.0
        unit = np.empty((k, k))
        length = np.empty(k)
        for s in range(len(smoothing)):
            for j in range(k):
                total = 0.0
                for i in range(k):
                    total += maps[r, i, j] ** 2
                length[j] = np.sqrt(total)
                for i in range(k):
                    unit[i, j] = maps[r, i, j] / length[j]
            inverse = np.ascontiguousarray(np.linalg.inv(unit).T)
            rotated = np.dot(loadings, inverse)
            bent = np.empty_like(rotated)
            for f in range(rotated.shape[0]):
                for j in range(k):
                    at = rotated[f, j] ** 2 + smoothing[s]
                    bent[f, j] = rotated[f, j] * 2 * smoothing[s] / (at * at)
            inner = np.dot(bent.T, rotated)
            for j in range(k):
                inner[j, j] += 2 * barrier
            slope = np.dot(inverse, inner)
            of_mean *= _MEAN
            of_square *= _SQUARE
            for j in range(k):
                along = 0.0
                for i in range(k):
                    along += unit[i, j] * slope[i, j]
                for i in range(k):
                    by = (unit[i, j] * along - slope[i, j]) / length[j]
                    mean[i, j] += (1 - _MEAN) * (by - mean[i, j])
                    square[i, j] = _SQUARE * square[i, j] + (1 - _SQUARE) * by * by
                    size = np.sqrt(square[i, j] / (1 - of_square)) + _LEAST
                    maps[r, i, j] -= rate[s] * mean[i, j] / (1 - of_mean) / size
