r"""Coordinate descent under the spike-and-slab lasso, compiled: one task after the other.

The proximal map is that of `priors.em.ssl_prox`, for one number: Newton's method from the spike's end and
from the slab's, each on the stretch where it is monotone, and the better of the two.
"""

from __future__ import annotations

import math

import numpy as np

from ._compiled import AVAILABLE, _compile

__all__ = ["AVAILABLE", "descend"]

_ROUNDING = 4 * float(np.finfo(np.float64).eps)


@_compile
def _newton(w, lower, upper, size, step, odds, low, gap):
    """Root of w + step * rate(w) - size between the bounds."""
    for _ in range(50):
        absent = 1 / (1 + math.exp(min(odds + gap * w, 700.0)))  # exp overflows above 709
        slope = max(1 - step * gap * gap * absent * (1 - absent), 1e-6)
        new = min(max(w - (w + step * (low + gap * absent) - size) / slope, lower), upper)
        if abs(new - w) <= _ROUNDING * size:
            return new
        w = new
    return w


@_compile
def _excess(w, size, step, odds, low, gap):
    """The objective at w, relative to its value at zero."""
    # log sigmoid(odds) - log sigmoid(odds + gap * w), without overflow
    before = min(odds, 0.0) - math.log1p(math.exp(-abs(odds)))
    after = min(odds + gap * w, 0.0) - math.log1p(math.exp(-abs(odds + gap * w)))
    return w * (0.5 * w - size) + step * (low * w - (before - after))


@_compile
def prox(v, step, odds, low, gap):
    """Global minimiser of (w - v)^2 / 2 - step * log density; odds are those of the slab at zero."""
    size = abs(v)
    start = size - step * low
    if start <= 0:
        return 0.0
    if gap <= 0:
        return start if v > 0 else -start
    bend = step * gap * gap
    # Up to 4 the objective is convex; above, it is not between two turning points.
    turn = 2 * math.atanh(min(math.sqrt(1 - 4 / bend), 1 - 1e-16)) if bend > 4 else 0.0
    spike_end = min(max((-turn - odds) / gap, 0.0), start)
    slab_end = min(max((turn - odds) / gap, 0.0), start)
    spike = _newton(0.0, 0.0, spike_end, size, step, odds, low, gap)
    slab = _newton(start, slab_end, start, size, step, odds, low, gap)
    in_spike = _excess(spike, size, step, odds, low, gap)
    in_slab = _excess(slab, size, step, odds, low, gap)
    best, least = (slab, in_slab) if in_slab < in_spike else (spike, in_spike)
    if least >= 0:
        return 0.0
    return best if v > 0 else -best


@_compile
def descend(gram, moment, weight, temper, odds, low, high, sweeps):
    """Sweep over the coordinates of every task, in place; odds and rates are (task, feature)."""
    n_tasks, d = moment.shape
    for t in range(n_tasks):
        for _ in range(sweeps):
            moved = False
            for j in range(d):
                diagonal, old = gram[t, j, j], weight[t, j]
                new = 0.0
                if diagonal > 0:
                    pull = moment[t, j]
                    for i in range(d):
                        pull -= gram[t, j, i] * weight[t, i]
                    lam = low[t, j]
                    new = prox(old + pull / diagonal, temper[t] / diagonal, odds[t, j], lam, high[t, j] - lam)
                if new != old:
                    weight[t, j] = new
                    moved = True
            if not moved:
                break
