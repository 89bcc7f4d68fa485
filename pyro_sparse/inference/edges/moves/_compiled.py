r"""Moves of linear decoders, compiled: all chains and steps in one call.

Orbits of `communalities.py` and `axes.py`, the maps of `expansion.py` and the steps of `correlations.py`, as
loops over the few numbers of a chain, where calls of numpy take most of the time. Random numbers are given.
Features are the last axis, so that inner loops are long. Where a matrix cannot be inverted a density is not a
number, and the move is not taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...._utils.arrays import COMPILED as AVAILABLE
from ...._utils.arrays import compiled as _compile

__all__ = [
    "AVAILABLE",
    "LARGEST",
    "axes_orbit",
    "by_factor",
    "communality_orbit",
    "correlation_steps",
    "expansion_steps",
]

# Loadings of a chain up to which this is faster than numpy. CPU time of a move by numpy over that here, four
# chains, one thread: axes and communalities, 9 features and 3 factors 5.2, 11.4; 25, 10: 2.8, 3.8; 100, 20:
# 1.1, 1.3; 400, 5: 1.5, 1.4; 400, 20: .9, 1.2.
LARGEST = 4000


def by_factor(array: NDArray[Any]) -> NDArray[Any]:
    """From (chain, feature, factor) to (chain, factor, feature), in memory too, and free to be written to."""
    return np.swapaxes(array, -1, -2).copy()


@_compile
def communality_orbit(
    ratio, speed, step, n_steps, far, unit, total, moves, free, odds, rate, laplace, spike, slab_scale, prior,
    n, moment, precision, gram, pull, squares, cells,
):  # fmt: skip
    """Leapfrog steps of `ratio` and `speed` (chain, feature), in place, and what log p gains by them.

    `unit`, `odds` and `rate` (logarithms of odds and probability of an edge) are (chain, factor, feature),
    `free` numbers of loadings (chain, feature); `gram` (chain, feature, factor, factor) and what follows are
    of rows whose factors were drawn, without a feature where there are no such rows.
    """
    n_chains, k, g = unit.shape
    gain = np.empty(n_chains)
    weight, scaled, work = np.empty((k, g)), np.empty((k, g)), np.empty((k, g))
    left, log_left, noise = np.empty(g), np.empty(g), np.empty(g)
    slope, by_size, by_noise, by_weight = np.empty(g), np.empty(g), np.empty(g), np.empty(g)
    for c in range(n_chains):
        for s in range(n_steps + 1):
            for j in range(g):
                if s:
                    speed[c, j] += 0.5 * step * slope[j]
                    ratio[c, j] += step * speed[c, j]
                at = ratio[c, j]
                at = far if at > far else -far if at < -far else at
                odds_explained = np.exp(at)
                left[j] = 1 / (1 + odds_explained)
                log_left[j] = -np.log(1 + odds_explained)
                noise[j] = left[j] * total[c, j]
                slope[j] = odds_explained * left[j]  # for now: the share explained
                size = np.sqrt(slope[j] * total[c, j])
                for a in range(k):
                    weight[a, j] = unit[c, a, j] * size
                    scaled[a, j] = weight[a, j] / noise[j]
            level = _complete_rows(
                weight, scaled, noise, log_left, n, moment[c], precision[c], work, by_size, by_noise
            )
            if gram.shape[1]:
                level += _other_rows(
                    weight, noise, log_left, gram[c], pull[c], squares[c], cells[c], by_size, by_noise
                )
            for a in range(k):
                level += _weight_prior(
                    weight[a], odds[c, a], rate[c, a], laplace, spike, slab_scale, by_weight
                )
                for j in range(g):
                    by_size[j] += by_weight[j] * weight[a, j]
            for j in range(g):
                share, slope[j] = slope[j], 0.0
                if moves[c, j]:
                    level += 0.5 * free[c, j] * (log_left[j] + min(max(ratio[c, j], -far), far))
                    level -= prior[0] * log_left[j] + prior[1] / noise[j]
                    of_noise = noise[j] * by_noise[j] - (prior[0] + 1 - prior[1] / noise[j])
                    slope[j] = 0.5 * left[j] * (by_size[j] + free[c, j]) - share * (of_noise + 1)
                if s:
                    speed[c, j] += 0.5 * step * slope[j]
            if s == 0:
                begun = level
        gain[c] = level - begun
    return gain


@_compile
def axes_orbit(
    direction, speed, step, n_steps, straight, odds, rate, laplace, spike, slab_scale, concentration,
    log_weight,
):  # fmt: skip
    """Steps of `direction` and `speed` (chain, factor, factor), in place, and what log p gains by them.

    `straight`, `odds` and `rate` are (chain, factor, feature), `concentration` and `log_weight` those of LKJ.
    """
    n_chains, k, g = straight.shape
    gain = np.empty(n_chains)
    loading, by_loading, slope = np.empty(g), np.empty((k, g)), np.empty((k, k))
    back, work, inner = np.empty((k, k)), np.empty((k, k)), np.empty((k, k))
    for c in range(n_chains):
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
                level += _weight_prior(
                    loading, odds[c, b], rate[c, b], laplace, spike, slab_scale, by_loading[b]
                )
                for a in range(k):
                    total = 0.0
                    for j in range(g):
                        total += straight[c, a, j] * by_loading[b, j]
                    work[a, b] = total
            for a in range(k):  # loading' by_loading, with loading = straight back
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
                begun = level
        gain[c] = level - begun
    return gain


@_compile
def expansion_steps(
    weight, whole, by, precision, maps, n_rows, n_free, point, odds, rate, laplace, spike, slab_scale, normal,
    threshold, scales, steps,
):  # fmt: skip
    """Maps of factors, in turn; `weight` (chain, factor, feature), `whole` and `by` change in place.

    `n_free` (factor,) are the permitted loadings; with a spike at zero (`point`) those that are there count.
    """
    n_chains, k, g = weight.shape
    level, tried, slope = np.empty(k), np.empty(g), np.empty(g)
    for c in range(n_chains):
        for a in range(k):
            level[a] = _weight_prior(weight[c, a], odds[c, a], rate[c, a], laplace, spike, slab_scale, slope)
        for m in range(len(maps)):
            i, j = maps[m]
            pull, sharp = 0.0, whole[c, j, j] * precision[c, i, i]
            for b in range(k):
                pull += whole[c, j, b] * precision[c, b, i]
            if i == j:
                log_s = scales[m] * normal[m, c]
                a, gain, shrunk = np.expm1(log_s), 0.0, np.exp(-log_s)
                there = 0 if point else n_free[j]
                for f in range(g):
                    tried[f] = weight[c, j, f] * shrunk
                    if point and weight[c, j, f] != 0:
                        there += 1
                gain = (n_rows - there) * log_s - a * (pull + 0.5 * a * sharp)
            else:
                a, gain = normal[m, c] / np.sqrt(sharp), 0.0
                if steps[m] > 0:
                    a *= steps[m]
                    gain = -a * (pull + 0.5 * a * sharp)
                else:  # drawn from what factors say
                    a -= pull / sharp
                for f in range(g):
                    tried[f] = weight[c, j, f] - a * weight[c, i, f]
            new = _weight_prior(tried, odds[c, j], rate[c, j], laplace, spike, slab_scale, slope)
            taken = threshold[m, c] < new - level[j] + gain
            if point:
                for f in range(g):
                    taken &= (weight[c, j, f] == 0) == (tried[f] == 0)
            if taken:
                level[j] = new
                for f in range(g):
                    weight[c, j, f] = tried[f]
                for b in range(k):
                    by[c, i, b] += a * by[c, j, b]
                    whole[c, i, b] += a * whole[c, j, b]
                for b in range(k):
                    whole[c, b, i] += a * whole[c, b, j]


@_compile
def correlation_steps(cov, whole, n_rows, pairs, step, least, concentration, log_weight, normal, log_uniform):
    """Metropolis steps of pairs of factors, in turn; `cov` (chain, factor, factor) changes in place."""
    n_chains, k, _ = cov.shape
    low, inverse = np.empty((k, k)), np.empty((k, k))
    for c in range(n_chains):
        level, definite, now = 0.0, False, 0.0
        for m in range(-1, len(pairs)):
            if m >= 0:
                i, j = pairs[m]
                now = cov[c, i, j]
                size = step * (1 - now * now)
                new = now + size * normal[m, c]
                if not abs(new) < 1 - 1e-9:
                    continue
                cov[c, i, j] = cov[c, j, i] = new
            for a in range(k):
                for b in range(a + 1):
                    low[a, b] = cov[c, a, b]
            log_det = _inverted_symmetric(low, inverse)
            definite = log_det > least
            there = _lkj(log_det if definite else 0.0, concentration, log_weight)[0] - 0.5 * n_rows * log_det
            for a in range(k):
                for b in range(k):
                    there -= 0.5 * inverse[a, b] * whole[c, a, b]
            if m < 0:
                level = there
                continue
            back = step * (1 - new * new)
            ratio = np.log(size / back) - 0.5 * (new - now) ** 2 * (1 / (back * back) - 1 / (size * size))
            if definite and log_uniform[m, c] < there - level + ratio:
                level = there
            else:
                cov[c, i, j] = cov[c, j, i] = now


@_compile
def _weight_prior(weight, odds, rate, laplace, spike, slab_scale, slope):
    """log density of weights, up to a constant, and its slope: `SpikeSlab.sloped`, of many one logarithm."""
    level, product = 0.0, 1.0
    narrow = 0.0 if spike == 0 else 1 / spike if laplace else 1 / (spike * spike)
    log_spike = 0.0 if spike == 0 else np.log(spike)
    for j in range(len(weight)):
        u = weight[j] / slab_scale
        if laplace:
            size, towards = abs(u), -1.0 if u > 0 else 1.0 if u < 0 else -u
        else:
            size, towards = 0.5 * u * u, -u
        level += rate[j] - size
        if spike > 0:
            against = -odds[j] - log_spike - (narrow - 1) * size  # log odds of the spike
            smaller = np.exp(-abs(against))
            if against > 0:
                level += against
                towards *= 1 + (narrow - 1) / (1 + smaller)
            else:
                towards *= 1 + (narrow - 1) * smaller / (1 + smaller)
            product *= 1 + smaller
            if product > 1e200:
                level += np.log(product)
                product = 1.0
        slope[j] = towards / slab_scale
    return level + np.log(product)


@_compile
def _complete_rows(weight, scaled, noise, log_noise, n, moment, precision, moved, by_size, by_noise):
    """log p of complete rows, up to a constant; `by_size`: derivatives by weights, times these."""
    k, g = weight.shape
    low, within, spread = np.empty((k, k)), np.empty((k, k)), np.empty((k, k))
    for i in range(g):
        for a in range(k):
            total = 0.0
            for j in range(g):
                total += moment[i, j] * scaled[a, j]
            moved[a, i] = total
    for a in range(k):
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
        level -= 0.5 * (n * log_noise[j] + moment[j, j] / noise[j])
        pulled, pushed = by_noise[j] / noise[j], by_size[j]
        by_noise[j] = 0.5 * (moment[j, j] / noise[j] - 2 * pulled - n + pushed) / noise[j]
        by_size[j] = pulled - pushed
    return level


@_compile
def _other_rows(weight, noise, log_noise, gram, pull, squares, cells, by_size, by_noise):
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
        level -= 0.5 * (cells[j] * log_noise[j] + left)
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
