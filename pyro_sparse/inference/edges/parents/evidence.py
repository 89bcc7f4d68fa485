r"""How well a set of inputs explains a target: the evidence of a Gaussian process on those inputs alone.

.. math:: y_i \mid S, c, s, \sigma_i \sim N\big(0,\; c\,[K_S(s) + 1] + \sigma_i^2 I\big)

with K_S the covariance of wide one-layer networks that see the inputs in S. The curves' variance c and the
input scale s belong to all targets (what is known from one serves the other); each target's noise
:math:`\sigma_i^2` is averaged over a grid. K does not depend on the target, and is reduced to a tridiagonal
matrix, at a quarter of the cost of its eigenvalues, after which every c and noise cost a sweep along two
diagonals.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.special import erf, logsumexp

__all__ = ["AMPLITUDES", "KERNELS", "NOISES", "SCALES", "SetEvidence", "root_mean_square"]

KERNELS = ("arcsine", "linear", "features")
SCALES = (0.15, 0.8, 4.0)
"""s: prior variances of a hidden weight, per unit of the inputs' mean square."""
AMPLITUDES = 2.0 ** np.arange(-3, 4)
"""c: prior variances of a curve, per unit of the targets' mean square."""
NOISES = 2.0 ** np.arange(-8, 2)
"""Noise variances, in the same unit. Steps are those of `AMPLITUDES`, so that few ratios differ."""

_CONSTANT = 1.0  # variance of the constant, per unit of c
_BATCH = 64  # sets at a time, so that memory does not grow with their number


class SetEvidence:
    """Log evidence of sets of inputs for every target, computed once per set.

    Inputs are divided by one number, their root mean square, and so are targets. Origins and relative scales
    of columns are kept: they say how far a weight of ordinary size can move a target. A candidate of several
    columns is in a set with all of them, or not at all; the root mean square is then that of a candidate, so
    that columns whose squares add to those of one numeric column count as much as that.

    Parameters
    ----------
    inputs : ndarray of shape (row, column)
    targets : ndarray of shape (row, target)
    kernel : {"arcsine", "linear", "features"}
        "arcsine": infinitely many erf units. "features": `num_features` of them, with random weights; cost
        grows with the rows, not their cube. "linear": a plane.
    num_features : int
        Units of "features".
    seed : int
        Of the weights of "features".
    unit : float, optional
        What inputs are divided by in place of their root mean square.
    groups : ndarray of int, shape (column,), optional
        Candidate that each column of `inputs` belongs to; default its own.

    Attributes
    ----------
    shape : tuple of int
        Of the evidence of one set: (hyperparameter, target), the first running over pairs (s, c).
    """

    def __init__(
        self,
        inputs: NDArray,
        targets: NDArray,
        kernel: str = "arcsine",
        num_features: int = 128,
        seed: int = 0,
        unit: float | None = None,
        groups: NDArray[np.intp] | None = None,
    ) -> None:
        self._groups = groups
        self._x = inputs / (root_mean_square(inputs, groups) if unit is None else unit)
        self._y = targets / np.sqrt((targets**2).mean())
        self._kernel = kernel
        self._scales = (1.0,) if kernel == "linear" else SCALES
        self.shape = (len(self._scales) * len(AMPLITUDES), targets.shape[1])
        rng = np.random.default_rng(seed)
        self._weights = rng.standard_normal((inputs.shape[1] + 1, num_features))
        self._row_of: dict[bytes, int] = {}
        self._table = np.empty((0, *self.shape))

    def __len__(self) -> int:
        """Sets evaluated so far."""
        return len(self._row_of)

    def __call__(self, sets: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Log evidence in nats, shape (set, hyperparameter, target), of sets given as rows of booleans."""
        rows = self.rows(sets)
        return self._table[rows]

    def rows(self, sets: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Rows of `table` that hold the sets, evaluated now if they are new."""
        keys = [key.tobytes() for key in np.packbits(sets, axis=1)]
        fresh = {key: i for i, key in enumerate(keys) if key not in self._row_of}
        if fresh:
            new = sets[list(fresh.values())]
            blocks = [self._evaluate(new[i : i + _BATCH]) for i in range(0, len(new), _BATCH)]
            evaluated, total = len(self), len(self) + len(new)
            if total > len(self._table):  # twice the room, so that growing by single sets stays cheap
                room = np.empty((max(total, 2 * evaluated), *self.shape))
                room[:evaluated] = self._table[:evaluated]
                self._table = room
            self._table[evaluated:total] = np.concatenate(blocks)
            self._row_of.update((key, evaluated + i) for i, key in enumerate(fresh))
        return np.array([self._row_of[key] for key in keys])

    @property
    def table(self) -> NDArray[np.float64]:
        """Log evidence of every set evaluated so far, shape (set, hyperparameter, target)."""
        return self._table[: len(self)]

    def _evaluate(self, sets: NDArray[np.bool_]) -> NDArray[np.float64]:
        n = len(self._x)
        sets = sets if self._groups is None else sets[:, self._groups]
        ratio, index = np.unique(NOISES / AMPLITUDES[:, None], return_inverse=True)
        index = index.reshape(len(AMPLITUDES), len(NOISES))
        blocks = []
        for scale in self._scales:
            log_det, square = self._solve(sets, scale, ratio)
            c = AMPLITUDES[:, None, None]
            fit = log_det[:, index, None] + square[:, index] / c + n * np.log(2 * np.pi * c)
            blocks.append(logsumexp(-0.5 * fit, axis=2) - np.log(len(NOISES)))  # set, c, target
        return np.concatenate(blocks, axis=1)

    def _solve(
        self, sets: NDArray[np.bool_], scale: float, ratio: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """log|K + r I| and y'(K + r I)^-1 y for every set and ratio r of noise to amplitude."""
        y, wide = self._y, self._kernel == "arcsine"
        reduced = []
        for chosen in sets:
            if wide:
                reduced.append(_tridiagonal(_arcsine(self._x * chosen, scale), y))
            else:
                f = self._features(chosen, scale)
                reduced.append(_tridiagonal(f.T @ f, f.T @ y))
        diagonal, off, right = (np.stack(arrays) for arrays in zip(*reduced, strict=True))
        log_det, square = _sweep(diagonal, off, right, ratio)
        if not wide:  # K = F F' has the nonzero eigenvalues of F'F, and the inverse follows by Woodbury
            log_det += (len(y) - diagonal.shape[1]) * np.log(ratio)
            square = ((y**2).sum(0) - square) / ratio[:, None]
        return log_det, square

    def _features(self, chosen: NDArray[np.bool_], scale: float) -> NDArray[np.float64]:
        """F with K = F F'."""
        x = self._x * chosen
        constant = np.full((len(x), 1), np.sqrt(_CONSTANT))
        if self._kernel == "linear":
            return np.concatenate([constant, x], axis=1)
        units = erf(np.sqrt(scale) * (x @ self._weights[1:] + self._weights[0]))
        return np.concatenate([constant, units / np.sqrt(units.shape[1])], axis=1)


def root_mean_square(inputs: NDArray[np.float64], groups: NDArray[np.intp] | None = None) -> float:
    """Root mean square of a candidate's columns together, over rows and candidates.

    Parameters
    ----------
    inputs : ndarray of shape (row, column)
    groups : ndarray of int, shape (column,), optional
        Candidate of each column.
    """
    per_candidate = 1.0 if groups is None else len(groups) / len(np.unique(groups))
    return float(np.sqrt((inputs**2).mean() * per_candidate))


def _arcsine(x: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    r"""Covariance of erf(w'u) with u = (1, x) and w ~ N(0, s I), and the constant.

    :math:`\frac2\pi \arcsin \frac{2 s u'u'}{\sqrt{(1 + 2 s |u|^2)(1 + 2 s |u'|^2)}}`: Williams (1998), Neural
    Computation 10(5), equation 11.
    """
    inner = 2 * scale * (x @ x.T + 1)
    length = np.sqrt(1 + np.diag(inner))
    return 2 / np.pi * np.arcsin(inner / length[:, None] / length) + _CONSTANT


def _tridiagonal(matrix: NDArray, right: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Diagonal and off-diagonal of Q'AQ, and Q'y, with Q orthogonal."""
    n = len(matrix)
    packed, diagonal, off, tau, _ = lapack.dsytrd(matrix, lower=1, lwork=64 * n)
    rotated = np.array(right, order="F")
    if n > 1:
        reflectors = np.asfortranarray(packed[1:, :-1])
        rotated[1:] = lapack.dormqr("L", "T", reflectors, tau, rotated[1:], 64 * max(n, right.shape[1]))[0]
    return diagonal, off, rotated


def _sweep(
    diagonal: NDArray, off: NDArray, right: NDArray, ratio: NDArray
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """log|T + r I| and y'(T + r I)^-1 y of tridiagonal T: shapes (set, ratio) and (set, ratio, target)."""
    pivot = diagonal[:, :1] + ratio
    left = np.repeat(right[:, None, 0], len(ratio), axis=1)
    log_det, square = np.log(pivot), left**2 / pivot[..., None]
    for i in range(1, diagonal.shape[1]):
        e = off[:, i - 1, None]
        factor = e / pivot
        pivot = diagonal[:, i, None] + ratio - factor * e
        left = right[:, None, i] - factor[..., None] * left
        log_det += np.log(pivot)
        square += left**2 / pivot[..., None]
    return log_det, square
