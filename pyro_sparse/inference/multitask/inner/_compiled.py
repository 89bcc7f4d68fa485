r"""Coordinate descent with an exact finish, compiled: one task after the other, each to its own support.

The same problems as in `_tensors.py`, where one task's Gram matrix fits a cache. Sweeps move one row of W
at a time. Once they leave the support alone, the equations on it are solved: for one output at once, as far
as the signs allow, for several by Newton steps,

.. math:: (G_{AA} \otimes I + \partial^2 \textstyle\sum_{j \in A} \lambda_j \lVert W_{j:} \rVert)\, \Delta
          = Q_A - G_{AA} W_A - \lambda_A W_A / \lVert W_A \rVert .

If the gradient outside of the support agrees, this is the optimum, to rounding; else the sweeps go on. Every
step lowers the objective; where it stops falling, this precision has no more to give.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ...._utils.arrays import COMPILED as AVAILABLE
from ...._utils.arrays import compiled as _compile

__all__ = ["AVAILABLE", "descend", "solve_supports", "usable"]

Array = NDArray[np.float64]

_ROUNDING = 1e-13  # of a gradient, in units of the terms it adds; of a pivot, in units of its diagonal
_LEVELS = 4  # falling penalties to begin with, a sweep each: fewer features enter that must leave again
_NEWTON_STEPS = 20
_LEAST_SHARE = 0.01  # of a Newton step
_NEWTON_SIZE = 300  # unknowns up to which a Newton step is cheaper than the sweeps it saves


def usable(data: Tensor) -> bool:
    """Whether numba is installed and the data is where it can reach it."""
    return AVAILABLE and data.device.type == "cpu"


@_compile
def _factor(low, size, least):
    """Cholesky factor of the lower triangle, in place; the first row that depends on those above, or -1.

    It does where at most the share `least` of its diagonal is its own.
    """
    for a in range(size):
        diagonal = low[a, a]
        for b in range(a + 1):
            total = low[a, b]
            for c in range(b):
                total -= low[a, c] * low[b, c]
            if b < a:
                low[a, b] = total / low[b, b]
            elif total > least * diagonal:
                low[a, a] = np.sqrt(total)
            else:
                return a
    return -1


@_compile
def _forward(low, size, x):
    for a in range(size):
        total = x[a]
        for c in range(a):
            total -= low[a, c] * x[c]
        x[a] = total / low[a, a]


@_compile
def _backward(low, size, x):
    for a in range(size - 1, -1, -1):
        x[a] /= low[a, a]
        for c in range(a):
            x[c] -= low[a, c] * x[a]


@_compile
def _gradient(gram, moment, weight, gradient):
    """moment - gram @ weight, anew."""
    n_outputs, d = moment.shape
    for o in range(n_outputs):
        for i in range(d):
            gradient[o, i] = moment[o, i]
        for j in range(d):
            step = weight[o, j]
            if step != 0.0:
                for i in range(d):
                    gradient[o, i] -= gram[j, i] * step


@_compile
def _norm(array, j):
    total = 0.0
    for o in range(array.shape[0]):
        total += array[o, j] ** 2
    return np.sqrt(total)


@_compile
def _value(moment, penalty, weight, gradient):
    """The objective, up to half the square."""
    value = 0.0
    for j in range(len(penalty)):
        for o in range(moment.shape[0]):
            value -= 0.5 * (moment[o, j] + gradient[o, j]) * weight[o, j]
        value += penalty[j] * _norm(weight, j)
    return value


@_compile
def _gap(moment, square, penalty, weight, gradient):
    """Primal minus dual value; gradient is moment - gram @ weight."""
    fitted, left, norms, scale = 0.0, 0.0, 0.0, np.inf
    for j in range(len(penalty)):
        for o in range(moment.shape[0]):
            fitted += moment[o, j] * weight[o, j]
            left += gradient[o, j] * weight[o, j]
        norms += penalty[j] * _norm(weight, j)
        pull = _norm(gradient, j)
        if pull > 0:
            scale = min(scale, penalty[j] / pull)
    residual, along = square - fitted - left, square - fitted
    scale = min(scale, max(along / residual, 0.0) if residual > 0 else 1.0)
    return max(0.5 * residual + norms - scale * along + 0.5 * scale**2 * residual, 0.0)


@_compile
def _settled(gram, moment, penalty, weight, gradient):
    """Whether no feature outside of the support wants to enter, to rounding."""
    terms = 0.0
    for j in range(len(penalty)):
        terms += np.sqrt(max(gram[j, j], 0.0)) * _norm(weight, j)
    for j in range(len(penalty)):
        diagonal = gram[j, j]
        if diagonal > 0 and _norm(weight, j) == 0.0:
            slack = _ROUNDING * (_norm(moment, j) + np.sqrt(diagonal) * terms)
            if _norm(gradient, j) > penalty[j] + slack:
                return False
    return True


@_compile
def _support(weight, index):
    size = 0
    for j in range(weight.shape[1]):
        if _norm(weight, j) > 0:
            index[size] = j
            size += 1
    return size


@_compile
def _excess(penalty, gradient):
    """How many times its penalty the strongest feature is worth."""
    most = 1.0
    for j in range(len(penalty)):
        if penalty[j] > 0:
            most = max(most, _norm(gradient, j) / penalty[j])
    return most


@_compile
def _scalar_sweep(gram, penalty, times, weight, gradient, only_active):
    """Every coordinate to its minimum at so many times the penalty; whether the support or a sign changed."""
    changed = False
    d = len(penalty)
    for j in range(d):
        old, diagonal, least = weight[0, j], gram[j, j], times * penalty[j]
        if diagonal <= 0 or (only_active and old == 0.0):
            continue
        free, new = gradient[0, j] + diagonal * old, 0.0
        if free > least:
            new = (free - least) / diagonal
        elif free < -least:
            new = (free + least) / diagonal
        if new != old:
            step = new - old
            weight[0, j] = new
            for i in range(d):
                gradient[0, i] -= gram[j, i] * step
            changed = changed or new * old <= 0
    return changed


@_compile
def _scalar_finish(gram, moment, penalty, weight, gradient, index, low, x):
    """To the optimum on the support, or as far as the signs allow; whether it was reached.

    Where columns depend on each other, along the direction in which only the penalty changes, until one of
    them is out: the solution that is found has independent columns.
    """
    size = _support(weight, index)
    for a in range(size):
        for b in range(a + 1):
            low[a, b] = gram[index[a], index[b]]
    dependent = _factor(low, size, _ROUNDING)
    if dependent < 0:
        for a in range(size):
            j = index[a]
            x[a] = moment[0, j] - (penalty[j] if weight[0, j] > 0 else -penalty[j])
        _forward(low, size, x)
        _backward(low, size, x)
        for a in range(size):
            x[a] -= weight[0, index[a]]
    else:
        size, slope = dependent + 1, 0.0
        for a in range(dependent):
            x[a] = low[dependent, a]
        _backward(low, dependent, x)
        x[dependent] = -1.0
        for a in range(size):
            j = index[a]
            slope += x[a] * ((penalty[j] if weight[0, j] > 0 else -penalty[j]) - gradient[0, j])
        if slope > 0:
            for a in range(size):
                x[a] = -x[a]
    share, first = (1.0 if dependent < 0 else np.inf), -1
    for a in range(size):
        old = weight[0, index[a]]
        if old * x[a] < 0 and abs(old) <= share * abs(x[a]):
            share, first = -old / x[a], a
    if dependent >= 0 and first < 0:
        return True
    for a in range(size):
        weight[0, index[a]] += share * x[a]
    if first >= 0:
        weight[0, index[first]] = 0.0
    _gradient(gram, moment, weight, gradient)
    return first < 0


@_compile
def _scalar_task(gram, moment, penalty, weight, gradient, max_sweeps, index, low, x):
    """One output: soft thresholds until the support has settled, then its equations."""
    value, sweep, excess = np.inf, 0, _excess(penalty, gradient)
    while excess > 1 and sweep < min(_LEVELS, max_sweeps):
        sweep += 1
        _scalar_sweep(gram, penalty, excess ** (1 - sweep / (_LEVELS + 1)), weight, gradient, False)
    while sweep < max_sweeps:
        for _ in range(2):
            sweep += 1
            _scalar_sweep(gram, penalty, 1.0, weight, gradient, False)
        reached = False
        while not reached and sweep < max_sweeps:
            sweep += 1
            if not _scalar_sweep(gram, penalty, 1.0, weight, gradient, True):
                reached = _scalar_finish(gram, moment, penalty, weight, gradient, index, low, x)
        now = _value(moment, penalty, weight, gradient)
        if now >= value or _settled(gram, moment, penalty, weight, gradient):
            break
        value = now
    return sweep


@_compile
def _group_sweep(gram, penalty, times, weight, gradient, free, only_active):
    """Every feature to its minimum at so many times the penalty; whether the support changed."""
    changed = False
    n_outputs, d = weight.shape
    for j in range(d):
        diagonal, old, norm = gram[j, j], _norm(weight, j), 0.0
        if diagonal <= 0 or (only_active and old == 0.0):
            continue
        for o in range(n_outputs):
            free[o] = gradient[o, j] + diagonal * weight[o, j]
            norm += free[o] ** 2
        norm = np.sqrt(norm)
        least = times * penalty[j]
        factor = (1.0 - least / norm) / diagonal if norm > least else 0.0
        changed = changed or (factor == 0.0) != (old == 0.0)
        for o in range(n_outputs):
            step = factor * free[o] - weight[o, j]
            if step != 0.0:
                weight[o, j] += step
                for i in range(d):
                    gradient[o, i] -= gram[j, i] * step
    return changed


@_compile
def _group_equations(gram, penalty, weight, gradient, index, size, low, x):
    """Curvature of the objective on the support, and minus its gradient."""
    k = weight.shape[0]
    for a in range(size):
        i = index[a]
        norm = _norm(weight, i)
        bend = penalty[i] / norm
        for o in range(k):
            row, unit = a * k + o, weight[o, i] / norm
            for b in range(a + 1):
                for p in range(k):
                    low[row, b * k + p] = gram[i, index[b]] if o == p else 0.0
            for p in range(k):
                low[row, a * k + p] -= bend * unit * weight[p, i] / norm
            low[row, row] += bend + 10 * _ROUNDING * gram[i, i]  # equal columns do not stop a step
            x[row] = gradient[o, i] - penalty[i] * unit


@_compile
def _group_finish(gram, moment, square, penalty, weight, gradient, index, low, x):
    """Newton steps on the support, as long as they lower the objective or what its equations lack."""
    k, size = weight.shape[0], _support(weight, index)
    if size * k > len(x):
        return
    left, full, value = np.inf, False, _value(moment, penalty, weight, gradient)
    old = np.empty(size * k)
    for _ in range(_NEWTON_STEPS):
        _group_equations(gram, penalty, weight, gradient, index, size, low, x)
        before, left = left, 0.0
        for a in range(size * k):
            left = max(left, abs(x[a]))
        if full and left >= 0.5 * before or _factor(low, size * k, 0.0) >= 0:
            return
        _forward(low, size * k, x)
        _backward(low, size * k, x)
        most = 1.0  # no further than where a row is nearest to zero
        for a in range(size):
            along, length = 0.0, 0.0
            for o in range(k):
                old[a * k + o] = weight[o, index[a]]
                along -= old[a * k + o] * x[a * k + o]
                length += x[a * k + o] ** 2
            if along > 0:
                most = min(most, along / length)
        share, now = 2 * most, np.inf
        while not now <= value + _ROUNDING * square:
            share = 0.5 * share if share > _LEAST_SHARE * most else 0.0
            for a in range(size * k):
                weight[a % k, index[a // k]] = old[a] + share * x[a]
            _gradient(gram, moment, weight, gradient)
            now = _value(moment, penalty, weight, gradient)
            if share == 0.0:
                return
        full, value = share == 1.0, min(value, now)


@_compile
def _group_task(gram, moment, square, penalty, weight, gradient, tol, max_sweeps, index, low, x):
    """Several outputs: block soft thresholds until the support has settled, then Newton steps."""
    free = np.empty(moment.shape[0])
    value, sweep, excess = np.inf, 0, _excess(penalty, gradient)
    while excess > 1 and sweep < min(_LEVELS, max_sweeps):
        sweep += 1
        _group_sweep(gram, penalty, excess ** (1 - sweep / (_LEVELS + 1)), weight, gradient, free, False)
    while sweep < max_sweeps:
        sweep += 1
        _group_sweep(gram, penalty, 1.0, weight, gradient, free, False)
        for _ in range(10):
            sweep += 1
            if not _group_sweep(gram, penalty, 1.0, weight, gradient, free, True):
                break
        _group_finish(gram, moment, square, penalty, weight, gradient, index, low, x)
        if _gap(moment, square, penalty, weight, gradient) <= tol * 0.5 * square:
            now = _value(moment, penalty, weight, gradient)
            if now >= value or _settled(gram, moment, penalty, weight, gradient):
                break
            value = now
    return sweep


@_compile
def _descend_scalar(gram, moment, square, penalty, weight, max_sweeps, gaps, sweeps):
    n_tasks, d = penalty.shape
    gradient, index, low, x = np.empty((1, d)), np.empty(d, np.int64), np.empty((d, d)), np.empty(d)
    for t in range(n_tasks):
        q, w, lam = moment[t], weight[t], penalty[t]
        _gradient(gram[t], q, w, gradient)
        sweeps[t] = _scalar_task(gram[t], q, lam, w, gradient, max_sweeps, index, low, x)
        _gradient(gram[t], q, w, gradient)
        gaps[t] = _gap(q, square[t], lam, w, gradient)


@_compile
def _descend_group(gram, moment, square, penalty, weight, tol, max_sweeps, gaps, sweeps):
    n_tasks, k, d = moment.shape
    size = min(d * k, _NEWTON_SIZE)
    gradient, index, low, x = np.empty((k, d)), np.empty(d, np.int64), np.empty((size, size)), np.empty(size)
    for t in range(n_tasks):
        q, w, lam = moment[t], weight[t], penalty[t]
        _gradient(gram[t], q, w, gradient)
        sweeps[t] = _group_task(gram[t], q, square[t], lam, w, gradient, tol, max_sweeps, index, low, x)
        _gradient(gram[t], q, w, gradient)
        gaps[t] = _gap(q, square[t], lam, w, gradient)


def descend(
    gram: Array, moment: Array, square: Array, penalty: Array, weight: Array, tol: float, max_sweeps: int
) -> tuple[Array, NDArray[np.int64]]:
    """Solve every task in place; returns gap and sweeps, each (task,)."""
    gaps, sweeps = np.zeros(len(square)), np.zeros(len(square), np.int64)
    weight[square <= 0] = 0
    # one output after the other: inner loops then run along memory
    moment, solution = (np.ascontiguousarray(array.swapaxes(1, 2)) for array in (moment, weight))
    if moment.shape[1] == 1:
        _descend_scalar(gram, moment, square, penalty, solution, max_sweeps, gaps, sweeps)
    else:
        _descend_group(gram, moment, square, penalty, solution, tol, max_sweeps, gaps, sweeps)
    weight[:] = solution.swapaxes(1, 2)
    return gaps, sweeps


@_compile
def solve_supports(gram, right, active, answer):
    """gram[A, A] answer[A] = right[A] in every task, A its active rows; returns which were singular."""
    n_tasks, d, n_outputs = right.shape
    singular = np.zeros(n_tasks, np.bool_)
    index, low, x = np.empty(d, np.int64), np.empty((d, d)), np.empty(d)
    for t in range(n_tasks):
        size = 0
        for j in range(d):
            if active[t, j]:
                for b in range(size):
                    low[size, b] = gram[t, j, index[b]]
                low[size, size] = gram[t, j, j]
                index[size] = j
                size += 1
        if _factor(low, size, _ROUNDING) >= 0:
            singular[t] = True
            continue
        for o in range(n_outputs):
            for a in range(size):
                x[a] = right[t, index[a], o]
            _forward(low, size, x)
            _backward(low, size, x)
            for a in range(size):
                answer[t, index[a], o] = x[a]
    return singular
