r"""Coordinate descent with an exact finish, compiled: one task after the other, each to its own support.

The same problems as `lasso.py`'s tensors, for the case that one task's Gram matrix fits a cache. A sweep
moves one coordinate (one row of W) at a time; when a sweep leaves the support alone, the equations on it are
solved exactly, and the answer is kept if its signs and the gradient outside agree: then it is the optimum, to
rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

try:
    from numba import njit
except ImportError:  # the extra "fast" is not installed
    njit = None

__all__ = ["AVAILABLE", "descend"]

AVAILABLE = njit is not None


def _compile(function: Any) -> Any:
    return function if njit is None else njit(cache=True, nogil=True, fastmath=False)(function)


@_compile
def _solve_on(gram, right, index, size, low, x):
    """Cholesky solution of gram[index, index] x = right[index]; False if the matrix is singular."""
    for a in range(size):
        i = index[a]
        for b in range(a + 1):
            total = gram[i, index[b]]
            for c in range(b):
                total -= low[a, c] * low[b, c]
            if a == b:
                if total <= 1e-12 * gram[i, i]:
                    return False
                low[a, a] = np.sqrt(total)
            else:
                low[a, b] = total / low[b, b]
    for a in range(size):
        total = right[index[a]]
        for c in range(a):
            total -= low[a, c] * x[c]
        x[a] = total / low[a, a]
    for a in range(size - 1, -1, -1):
        total = x[a]
        for c in range(a + 1, size):
            total -= low[c, a] * x[c]
        x[a] = total / low[a, a]
    return True


@_compile
def _gap(moment, square, penalty, weight, gradient):
    """Primal minus dual value; gradient is moment - gram @ weight."""
    n_coordinates, n_outputs = moment.shape
    fitted, left, norms, scale = 0.0, 0.0, 0.0, 1.0
    for j in range(n_coordinates):
        size, pull = 0.0, 0.0
        for o in range(n_outputs):
            fitted += moment[j, o] * weight[j, o]
            left += gradient[j, o] * weight[j, o]
            size += weight[j, o] ** 2
            pull += gradient[j, o] ** 2
        norms += penalty[j] * np.sqrt(size)
        pull = np.sqrt(pull)
        if pull > penalty[j]:
            scale = min(scale, penalty[j] / pull)
    rest, along = square - fitted - left, square - fitted
    if rest > 0:
        scale = min(scale, max(along / rest, 0.0))
    return max(0.5 * rest + norms - scale * along + 0.5 * scale**2 * rest, 0.0)


@_compile
def _scalar_task(gram, moment, square, penalty, weight, gradient, tol, max_sweeps):
    """One output: soft thresholds, and an active-set step whenever the support has settled."""
    d = moment.shape[0]
    index, low, x, right = np.empty(d, np.int64), np.empty((d, d)), np.empty(d), np.empty(d)
    target = max(tol, 1e-13) * 0.5 * square
    only_active, found_gap, sweep = False, np.inf, 0
    while sweep < max_sweeps:
        sweep += 1
        changed, moved = False, 0.0
        for j in range(d):
            old = weight[j, 0]
            own = gram[j, j]
            if own <= 0 or (only_active and old == 0.0):
                continue
            free = gradient[j, 0] + own * old
            new = 0.0
            if free > penalty[j]:
                new = (free - penalty[j]) / own
            elif free < -penalty[j]:
                new = (free + penalty[j]) / own
            if new != old:
                step = new - old
                weight[j, 0] = new
                for i in range(d):
                    gradient[i, 0] -= gram[j, i] * step
                moved = max(moved, own * step * step)
                if (new == 0.0) != (old == 0.0) or new * old < 0:
                    changed = True
        if changed and not only_active and sweep > 2:
            only_active = True
            continue
        if changed:
            continue
        # the support has settled: the optimum on it, or as far towards it as the signs allow
        size = 0
        for j in range(d):
            if weight[j, 0] != 0.0:
                index[size] = j
                right[j] = moment[j, 0] - (penalty[j] if weight[j, 0] > 0 else -penalty[j])
                size += 1
        solved = _solve_on(gram, right, index, size, low, x)
        if solved:
            share, first = 1.0, -1
            for a in range(size):
                old = weight[index[a], 0]
                if old * x[a] <= 0:
                    part = old / (old - x[a])
                    if part < share:
                        share, first = part, a
            for a in range(size):
                j = index[a]
                weight[j, 0] = x[a] if first < 0 else weight[j, 0] + share * (x[a] - weight[j, 0])
            if first >= 0:
                weight[index[first], 0] = 0.0
            for i in range(d):
                gradient[i, 0] = moment[i, 0]
            for a in range(size):
                j = index[a]
                if weight[j, 0] != 0.0:
                    for i in range(d):
                        gradient[i, 0] -= gram[j, i] * weight[j, 0]
            if first >= 0:
                continue
        if solved or moved <= 1e-3 * target:
            found_gap = _gap(moment, square, penalty, weight, gradient)
            if found_gap <= target and not only_active:
                break
        only_active = not only_active and not solved
    if found_gap == np.inf or sweep >= max_sweeps:
        found_gap = _gap(moment, square, penalty, weight, gradient)
    return found_gap, sweep


@_compile
def _group_task(gram, moment, square, penalty, weight, gradient, tol, max_sweeps):
    """Several outputs: block soft thresholds until the gap is small."""
    d, n_outputs = moment.shape
    target = tol * 0.5 * square
    free = np.empty(n_outputs)
    found_gap, sweep = np.inf, 0
    while sweep < max_sweeps:
        sweep += 1
        only_active = sweep % 10 > 1
        for j in range(d):
            own = gram[j, j]
            if own <= 0 or (only_active and weight[j, 0] == 0.0):
                continue
            norm = 0.0
            for o in range(n_outputs):
                free[o] = gradient[j, o] + own * weight[j, o]
                norm += free[o] ** 2
            norm = np.sqrt(norm)
            factor = max(0.0, 1.0 - penalty[j] / norm) / own if norm > 0 else 0.0
            moved = False
            for o in range(n_outputs):
                step = factor * free[o] - weight[j, o]
                free[o] = step
                weight[j, o] += step
                moved = moved or step != 0.0
            if moved:
                for i in range(d):
                    for o in range(n_outputs):
                        gradient[i, o] -= gram[j, i] * free[o]
        if sweep % 10 == 0 or sweep == max_sweeps:
            found_gap = _gap(moment, square, penalty, weight, gradient)
            if found_gap <= target:
                break
    return found_gap, sweep


@_compile
def descend(gram, moment, square, penalty, weight, tol, max_sweeps):
    """Solve every task in place; returns gap and sweeps, each (task,)."""
    n_tasks, d, n_outputs = moment.shape
    gaps, sweeps = np.zeros(n_tasks), np.zeros(n_tasks, np.int64)
    gradient = np.empty((d, n_outputs))
    for t in range(n_tasks):
        if square[t] <= 0:
            weight[t] = 0.0
            continue
        for i in range(d):
            for o in range(n_outputs):
                gradient[i, o] = moment[t, i, o]
        for j in range(d):
            for o in range(n_outputs):
                if weight[t, j, o] != 0.0:
                    for i in range(d):
                        gradient[i, o] -= gram[t, j, i] * weight[t, j, o]
        if n_outputs == 1:
            gaps[t], sweeps[t] = _scalar_task(
                gram[t], moment[t], square[t], penalty[t], weight[t], gradient, tol, max_sweeps
            )
        else:
            gaps[t], sweeps[t] = _group_task(
                gram[t], moment[t], square[t], penalty[t], weight[t], gradient, tol, max_sweeps
            )
    return gaps, sweeps
