r"""Orbits of the Hamiltonian moves of linear decoders, compiled: all chains and steps in one call.

The densities are those of `communalities.py` and `axes.py`, as loops over the few numbers of a chain, where
calls of numpy take most of the time. Features are the last axis, so that inner loops are long. Where a matrix
cannot be inverted the level is not a number, and the move is not taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...._utils.arrays import COMPILED as AVAILABLE
from ...._utils.arrays import compiled as _compile

__all__ = ["AVAILABLE", "axes_orbit", "by_factor", "communality_orbit"]

_HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)
_LOG_2 = np.log(2.0)


def by_factor(array: NDArray[Any]) -> NDArray[Any]:
    """From (chain, feature, factor) to (chain, factor, feature), in memory too, and free to be written to."""
    return np.swapaxes(array, -1, -2).copy()


@_compile
def communality_orbit(
    ratio, speed, step, n_steps, far, unit, total, moves, there, odds, rate, laplace, spike, slab_scale,
    prior, n, moment, precision, gram, pull, squares, cells,
):  # fmt: skip
    """Leapfrog steps of `ratio` and `speed` (chain, feature), in place; log p before and after, last slope.

    `unit`, `there`, `odds` and `rate` (logarithms of odds and probability of an edge) are (chain, factor,
    feature); `gram` (chain, feature, factor, factor) and what follows are of rows whose factors were drawn,
    without a feature where there are no such rows.
    """
    n_chains, k, g = unit.shape
    begun, ended, slopes = np.empty(n_chains), np.empty(n_chains), np.empty((n_chains, g))
    weight, scaled, work = np.empty((k, g)), np.empty((k, g)), np.empty((k, g))
    share, left, noise = np.empty(g), np.empty(g), np.empty(g)
    by_size, by_noise = np.empty(g), np.empty(g)
    for c in range(n_chains):
        slope = slopes[c]
        for s in range(n_steps + 1):
            if s:
                for j in range(g):
                    speed[c, j] += 0.5 * step * slope[j]
                    ratio[c, j] += step * speed[c, j]
            for j in range(g):
                at = ratio[c, j]
                if at > far:
                    at = far
                elif at < -far:
                    at = -far
                share[j], left[j] = 1 / (1 + np.exp(-at)), 1 / (1 + np.exp(at))
                noise[j] = left[j] * total[c, j]
            for a in range(k):
                for j in range(g):
                    weight[a, j] = unit[c, a, j] * np.sqrt(share[j] * total[c, j])
                    scaled[a, j] = weight[a, j] / noise[j]
            level = _complete_rows(weight, scaled, noise, n, moment[c], precision[c], work, by_size, by_noise)
            if gram.shape[1]:
                level += _other_rows(weight, noise, gram[c], pull[c], squares[c], cells[c], by_size, by_noise)
            for j in range(g):
                free = 0.0
                for a in range(k):
                    if there[c, a, j]:
                        free += 1.0
                        u = weight[a, j] / slab_scale
                        log_prior, by_u = _weight_prior(u, odds[c, a, j], rate[c, a, j], laplace, spike)
                        level += log_prior
                        by_size[j] += by_u * u
                slope[j] = 0.0
                if moves[c, j]:
                    level += 0.5 * free * np.log(share[j]) + np.log(left[j])
                    level -= (prior[0] + 1) * np.log(noise[j]) + prior[1] / noise[j]
                    by_noise[j] -= (prior[0] + 1 - prior[1] / noise[j]) / noise[j]
                    slope[j] = 0.5 * left[j] * (by_size[j] + free)
                    slope[j] -= share[j] * (noise[j] * by_noise[j] + 1)
            if s:
                for j in range(g):
                    speed[c, j] += 0.5 * step * slope[j]
            else:
                begun[c] = level
        ended[c] = level
    return begun, ended, slopes


@_compile
def axes_orbit(
    direction, speed, step, n_steps, straight, odds, rate, laplace, spike, slab_scale, concentration,
    log_weight,
):  # fmt: skip
    """Steps of `direction` and `speed` (chain, factor, factor), in place; log p before and after, last slope.

    `straight`, `odds` and `rate` are (chain, factor, feature), `concentration` and `log_weight` those of LKJ.
    """
    n_chains, k, g = straight.shape
    begun, ended, slopes = np.empty(n_chains), np.empty(n_chains), np.empty((n_chains, k, k))
    loading, by_loading = np.empty(g), np.empty((k, g))
    back, work, inner = np.empty((k, k)), np.empty((k, k)), np.empty((k, k))
    for c in range(n_chains):
        slope = slopes[c]
        for s in range(n_steps + 1):
            if s:
                _along(direction[c], speed[c], slope, step[c])
            log_det = _inverted(direction[c], work, back)
            level, by_det = _lkj(2 * log_det, concentration, log_weight)
            level -= (g - 1) * log_det
            for b in range(k):
                for j in range(g):
                    loading[j] = 0.0
                for a in range(k):
                    for j in range(g):
                        loading[j] += straight[c, a, j] * back[a, b]
                for j in range(g):
                    log_prior, by_u = _weight_prior(
                        loading[j] / slab_scale, odds[c, b, j], rate[c, b, j], laplace, spike
                    )
                    level += log_prior
                    by_loading[b, j] = by_u / slab_scale
            # inner = loading' by_loading + …, with loading = straight back
            for a in range(k):
                for b in range(k):
                    total = 0.0
                    for j in range(g):
                        total += straight[c, a, j] * by_loading[b, j]
                    work[a, b] = total
            for a in range(k):
                for b in range(k):
                    total = g - 1 - 2 * by_det if a == b else 0.0
                    for i in range(k):
                        total += back[i, a] * work[i, b]
                    inner[a, b] = total
            for a in range(k):
                for b in range(k):
                    total = 0.0
                    for i in range(k):
                        total += inner[a, i] * back[b, i]
                    slope[a, b] = -total
            _to_tangent(slope, direction[c])
            if s:
                for a in range(k):
                    for b in range(k):
                        speed[c, a, b] += 0.5 * step[c] * slope[a, b]
                _to_tangent(speed[c], direction[c])
            else:
                begun[c] = level
        ended[c] = level
    return begun, ended, slopes


@_compile
def _weight_prior(u, odds, rate, laplace, spike):
    """log density of a weight and its slope (`SpikeSlab.sloped`); `rate`: log probability of an edge."""
    if laplace:
        size, level = abs(u), rate - _LOG_2
        towards = -1.0 if u > 0 else 1.0 if u < 0 else -u
    else:
        size, level, towards = 0.5 * u * u, rate - _HALF_LOG_2PI, -u
    level -= size
    if spike == 0:
        return level, towards
    narrow = 1 / spike if laplace else 1 / (spike * spike)
    against = -odds - np.log(spike) - (narrow - 1) * size
    if against > 700.0:
        return level + against, towards * narrow
    of_spike = np.exp(against)
    return level + np.log1p(of_spike), towards * (1 + of_spike / (1 + of_spike) * (narrow - 1))


@_compile
def _complete_rows(weight, scaled, noise, n, moment, precision, moved, by_size, by_noise):
    """Log density of complete rows; by_size: what its derivatives by weights and these multiply to."""
    k, g = weight.shape
    low, within, spread = np.empty((k, k)), np.empty((k, k)), np.empty((k, k))
    for a in range(k):
        for i in range(g):
            total = 0.0
            for j in range(g):
                total += moment[i, j] * scaled[a, j]
            moved[a, i] = total
        for b in range(a + 1):
            total = precision[a, b]
            for j in range(g):
                total += scaled[a, j] * weight[b, j]
            low[a, b] = total
    for a in range(k):
        for b in range(a + 1):
            total = 0.0
            for j in range(g):
                total += scaled[a, j] * moved[b, j]
            within[a, b] = within[b, a] = total
    level = -0.5 * n * _inverted_symmetric(low, spread)
    for a in range(k):
        for b in range(k):
            level += 0.5 * spread[a, b] * within[a, b]
    for a in range(k):  # low: within @ spread
        for b in range(k):
            total = 0.0
            for i in range(k):
                total += within[a, i] * spread[i, b]
            low[a, b] = total
    for j in range(g):
        by_size[j], by_noise[j] = 0.0, 0.0
    for a in range(k):
        for b in range(k):
            pull = spread[a, b]
            push = n * spread[a, b]
            for i in range(k):
                push += spread[a, i] * low[i, b]
            for j in range(g):
                by_noise[j] += pull * moved[b, j] * weight[a, j]
                by_size[j] += push * scaled[b, j] * weight[a, j]
    for j in range(g):
        level -= 0.5 * (n * np.log(noise[j]) + moment[j, j] / noise[j])
        pulled, pushed = by_noise[j] / noise[j], by_size[j]
        by_noise[j] = 0.5 * (moment[j, j] / noise[j] - 2 * pulled - n + pushed) / noise[j]
        by_size[j] = pulled - pushed
    return level


@_compile
def _other_rows(weight, noise, gram, pull, squares, cells, by_size, by_noise):
    """The same of rows whose factors were drawn, whose derivatives are added."""
    k, g = weight.shape
    level = 0.0
    for j in range(g):
        said, pulled = 0.0, 0.0
        for a in range(k):
            pulled += pull[j, a] * weight[a, j]
            for b in range(k):
                said += gram[j, a, b] * weight[a, j] * weight[b, j]
        left = (squares[j] - 2 * pulled + said) / noise[j]
        level -= 0.5 * (cells[j] * np.log(noise[j]) + left)
        by_noise[j] -= 0.5 * (cells[j] - left) / noise[j]
        by_size[j] += (pulled - said) / noise[j]
    return level


@_compile
def _inverted_symmetric(low, inverse):
    """Log determinant and `inverse` of a matrix whose lower triangle is given and lost; NaN: not positive."""
    k = low.shape[0]
    log_det = 0.0
    for a in range(k):
        for b in range(a + 1):
            total = low[a, b]
            for c in range(b):
                total -= low[a, c] * low[b, c]
            if a == b:
                log_det += np.log(total) if total > 0 else np.nan
                low[a, a] = np.sqrt(total) if total > 0 else np.nan
            else:
                low[a, b] = total / low[b, b]
    for a in range(k):  # inverse of the triangle, below the diagonal of `inverse` and on it
        inverse[a, a] = 1 / low[a, a]
        for b in range(a):
            total = 0.0
            for c in range(b, a):
                total -= low[a, c] * inverse[c, b]
            inverse[a, b] = total / low[a, a]
    for a in range(k):
        for b in range(a + 1):
            total = 0.0
            for c in range(a, k):
                total += inverse[c, a] * inverse[c, b]
            low[a, b] = total
    for a in range(k):
        for b in range(a + 1):
            inverse[a, b] = inverse[b, a] = low[a, b]
    return log_det


@_compile
def _inverted(matrix, work, inverse):
    """log |det| and `inverse`, by rows with pivots; NaN where there is none."""
    k = matrix.shape[0]
    log_det = 0.0
    for a in range(k):
        for b in range(k):
            work[a, b], inverse[a, b] = matrix[a, b], 1.0 if a == b else 0.0
    for a in range(k):
        top = a
        for b in range(a + 1, k):
            if abs(work[b, a]) > abs(work[top, a]):
                top = b
        pivot = work[top, a]
        if not abs(pivot) > 0:
            pivot = np.nan
        log_det += np.log(abs(pivot))
        for b in range(k):
            work[a, b], work[top, b] = work[top, b], work[a, b]
            inverse[a, b], inverse[top, b] = inverse[top, b], inverse[a, b]
        for b in range(k):
            work[a, b] /= pivot
            inverse[a, b] /= pivot
        for c in range(k):
            if c != a:
                times = work[c, a]
                for b in range(k):
                    work[c, b] -= times * work[a, b]
                    inverse[c, b] -= times * inverse[a, b]
    return log_det


@_compile
def _lkj(log_det, concentration, log_weight):
    """`LKJ.log_density` and `LKJ.slope`."""
    top, total, slope = -np.inf, 0.0, 0.0
    for s in range(len(concentration)):
        level = log_weight[s] + (concentration[s] - 1) * log_det
        top = level if level > top else top
    for s in range(len(concentration)):
        share = np.exp(log_weight[s] + (concentration[s] - 1) * log_det - top)
        total += share
        slope += share * (concentration[s] - 1)
    return top + np.log(total), slope / total


@_compile
def _to_tangent(vector, direction):
    """Rows without what of them points along the directions."""
    for a in range(len(vector)):
        along = 0.0
        for b in range(len(vector)):
            along += vector[a, b] * direction[a, b]
        for b in range(len(vector)):
            vector[a, b] -= along * direction[a, b]


@_compile
def _along(direction, speed, slope, step):
    """Directions and speeds after half a step of speed and a whole one along great circles."""
    for a in range(len(direction)):
        square = 0.0
        for b in range(len(direction)):
            speed[a, b] += 0.5 * step * slope[a, b]
            square += speed[a, b] * speed[a, b]
        size = np.sqrt(square)
        cos, sin, least = np.cos(size * step), np.sin(size * step), max(size, 1e-300)
        for b in range(len(direction)):
            unit, begun = speed[a, b] / least, direction[a, b]
            direction[a, b] = begun * cos + unit * sin
            speed[a, b] = size * (unit * cos - begun * sin)
