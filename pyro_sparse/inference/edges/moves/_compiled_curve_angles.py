r"""Angles between factors with loadings summed out, compiled, under any likelihood: all pairs in one call.

As `_compiled_angles.py`, but the log-likelihood of a loading of the factor towards which others move is a
curve (`density/loadings.py`), its slab integrated over a grid, and each move is a proposal, which is taken or
not. Random numbers are given.
"""

from __future__ import annotations

import numpy as np

from ...._utils.arrays import compiled as _compile
from ...._utils.elementary import exponential, logarithm
from ..density._compiled_weight import ROOT_HALF, norm, weight_under
from ..density.loadings import ENDS, HERMITE, LEAST_BEND, NODES, TINY, WEIGHTS
from ._compiled_angles import angle, follow, in_slabs, log_lkj, log_prior

__all__ = ["curve_steps"]

_STEP = NODES[1] - NODES[0]
_LAST = NODES[-1]
_DEGREE = len(HERMITE) - 1
_LOWEST = -700.0  # of what an exponential is taken


@_compile
def curve_steps(
    others, j, weight, edge, cov, log_det, maps, mode, sd, power, end, likelihood, log_slab, log_spike,
    permitted, laplace, spike, slab_scale, concentration, log_weight, by, gumbel, uniform, drawn, log_uniform,
):  # fmt: skip
    """Each of `others` in its plane with j, in turn; what is first in `angle_steps` changes in place.

    So does `mode` (chain, feature) of the loadings on j, in units of the slab. `sd` (chain, feature), `power`
    (chain, feature, 9), `end` (chain, feature, 3, side) and `likelihood` (chain, feature, node) are those of
    `Shape`. Of random numbers `uniform` is (pair, 3, chain, feature): for edges, and two for a slab; `drawn`
    (pair, any, chain, feature) for a spike: two uniform ones under a Laplace, else a normal one;
    `log_uniform` (pair, chain) is what a proposal's logarithm of acceptance has to be above.
    """
    n_chains, k, g = weight.shape
    n_places = by.shape[1]
    cosine, along, across, level = (
        np.empty(n_places), np.empty(n_places), np.empty(n_places), np.empty(n_places)
    )  # fmt: skip
    first, new, there = np.empty(g), np.empty(g), np.empty(g, np.bool_)
    heights, parabola, sums = np.empty(len(NODES)), np.empty(3), np.empty((g, 2, len(NODES) + 1))
    for c in range(n_chains):
        for f in range(g):
            if permitted[j, f]:
                _slab_sums(sd[c, f], likelihood[c, f], laplace, sums[f])
        for m in range(len(others)):
            i = others[m]
            n_free = in_slabs(weight[c, i], permitted[i], slab_scale, first)
            if n_free < 0:
                continue
            begun = np.arccos(min(max(cov[c, i, j], -1.0), 1.0))
            for p in range(n_places):
                cosine[p], sin, along[p], across[p] = angle(begun, by[m, p, c])
                level[p] = gumbel[m, p, c] + (k - 1 - n_free) * np.log(sin)
                level[p] += log_lkj(log_det[c] + 2 * np.log(along[p]), concentration, log_weight)
                level[p] += log_prior(
                    first, 1 / along[p], permitted[i], log_slab[c, i], log_spike[c, i], laplace, spike
                )
            for f in range(g):
                if permitted[j, f]:
                    _add_evidence(
                        mode[c, f], first[f], along, across, sd[c, f], power[c, f], end[c, f], sums[f],
                        log_slab[c, j, f], log_spike[c, j, f], laplace, spike, level,
                    )  # fmt: skip
            best, alpha, beta, cos = -np.inf, 1.0, 0.0, 0.0
            for p in range(n_places):
                if level[p] > best:
                    best, cos, alpha, beta = level[p], cosine[p], along[p], across[p]
            if alpha == 1:
                continue
            gain = 0.0
            for f in range(g):
                if permitted[j, f]:
                    middle, present = mode[c, f] - beta / alpha * first[f], weight[c, j, f] / slab_scale
                    _slab_heights(middle, sd[c, f], likelihood[c, f], laplace, heights)
                    _expanded(-middle, sd[c, f], power[c, f], end[c, f], parabola)
                    slab, narrow = log_slab[c, j, f], log_spike[c, j, f]
                    against = narrow + _log_spike(parabola, sd[c, f], laplace, spike) - slab
                    against -= _log_slab(middle, sd[c, f], sums[f], laplace)
                    there[f] = uniform[m, 0, c, f] < 1 / (1 + np.exp(min(against, 700.0)))
                    if there[f]:
                        t = _drawn(heights, uniform[m, 1, c, f], uniform[m, 2, c, f])
                        new[f] = middle + t * sd[c, f]
                    else:
                        a = max(parabola[2], LEAST_BEND / (sd[c, f] * sd[c, f]))
                        tail = drawn[m, 1, c, f] if laplace else 0.0
                        new[f] = weight_under(a, parabola[1], spike, laplace, drawn[m, 0, c, f], tail)
                    gain += _excess(
                        new[f], middle, sd[c, f], power[c, f], end[c, f], heights, parabola, slab, narrow,
                        laplace, spike,
                    )  # fmt: skip
                    _slab_heights(mode[c, f], sd[c, f], likelihood[c, f], laplace, heights)
                    _expanded(-mode[c, f], sd[c, f], power[c, f], end[c, f], parabola)
                    gain -= _excess(
                        present, mode[c, f], sd[c, f], power[c, f], end[c, f], heights, parabola, slab,
                        narrow, laplace, spike,
                    )  # fmt: skip
            if not log_uniform[m, c] < gain:
                continue
            for f in range(g):
                weight[c, i, f] /= alpha
                mode[c, f] -= beta / alpha * first[f]
                if permitted[j, f]:
                    weight[c, j, f], edge[c, j, f] = slab_scale * new[f], there[f]
            log_det[c] += 2 * np.log(alpha)
            follow(maps[c], cov[c], i, j, alpha, beta, cos)


@_compile
def _add_evidence(
    mode, first, along, across, sd, power, end, sums, log_slab, log_spike, laplace, spike, level
):
    """log of a feature's integral over its loading and edge, added to what each place has."""
    parabola = np.empty(3)
    for p in range(len(level)):
        middle = mode - across[p] / along[p] * first
        _expanded(-middle, sd, power, end, parabola)
        of_slab = log_slab + _log_slab(middle, sd, sums, laplace)
        of_spike = log_spike + _log_spike(parabola, sd, laplace, spike)
        smaller = exponential(max(-abs(of_slab - of_spike), _LOWEST))
        level[p] += max(of_slab, of_spike) + logarithm(1 + smaller)


@_compile
def _slab_heights(middle, sd, likelihood, laplace, heights):
    """Likelihood times slab at the nodes, above zero."""
    for n in range(len(NODES)):
        u = middle + NODES[n] * sd
        size = abs(u) if laplace else 0.5 * u * u
        heights[n] = likelihood[n] * exponential(max(-size, _LOWEST)) + TINY


@_compile
def _slab_sums(sd, likelihood, laplace, sums):
    """What `_log_slab` asks of the likelihood, wherever the slab's middle is.

    Over nodes that are equally far apart a Laplace slab is e^-middle times a geometric series on one side of
    0 and e^middle times another on the other: sums of their terms from each node on and up to it. A normal
    slab is e^(-middle^2 / 2) times a polynomial of e^(-middle sd step): its coefficients.
    """
    n = len(NODES)
    if not laplace:
        for i in range(n):
            t = NODES[i] * sd
            sums[0, i] = WEIGHTS[i] * sd * likelihood[i] * exponential(max(-0.5 * t * t, _LOWEST))
        return
    sums[0, n] = sums[1, 0] = 0.0
    for i in range(n):
        sums[1, i + 1] = sums[1, i] + WEIGHTS[i] * sd * likelihood[i] * exponential(NODES[i] * sd)
    for i in range(n - 1, -1, -1):
        sums[0, i] = sums[0, i + 1] + WEIGHTS[i] * sd * likelihood[i] * exponential(-NODES[i] * sd)


@_compile
def _log_slab(middle, sd, sums, laplace):
    """log of the slab's integral, up to the constant of the slab's family."""
    if laplace:
        n = len(NODES)
        # from which node on loadings are above 0
        first = min(max(np.ceil((-middle / sd - NODES[0]) / _STEP), 0.0), float(n))
        if first == 0:
            return logarithm(sums[0, 0] + TINY) - middle
        if first == n:
            return logarithm(sums[1, n] + TINY) + middle
        at = int(first)
        return logarithm(exponential(-middle) * sums[0, at] + exponential(middle) * sums[1, at] + TINY)
    last, steep, total = len(NODES) - 1, abs(middle * sd * _STEP), 0.0
    ratio = exponential(max(-steep, _LOWEST))
    for i in range(last + 1):  # the highest power first; 1 / ratio, where it is that, is taken out
        total = total * ratio + sums[0, i if middle < 0 else last - i]
    return logarithm(total + TINY) + 0.5 * last * steep - 0.5 * middle * middle


@_compile
def _log_spike(parabola, sd, laplace, spike):
    """log of the spike's integral under the parabola at a loading of 0, up to the same and 1 / scale."""
    a = max(parabola[2], LEAST_BEND / (sd * sd))
    level, factor = norm(a, parabola[1], ROOT_HALF / np.sqrt(a), spike, laplace)
    factor *= np.sqrt(2 * np.pi / a) if laplace else np.sqrt(2 * np.pi)
    return parabola[0] + level + logarithm(factor)


@_compile
def _drawn(heights, target, y):
    """Standard deviations from the mode of a draw from the slab, from two uniform numbers."""
    mass, at = 0.0, 0
    for n in range(len(heights) - 1):
        mass += heights[n] + heights[n + 1]
    left, mass = target * mass, 0.0
    while at < len(heights) - 2 and mass + heights[at] + heights[at + 1] < left:
        mass += heights[at] + heights[at + 1]
        at += 1
    low, high = (
        heights[at],
        heights[at + 1],
    )  # of a density that goes from one to the other in a straight line
    return NODES[at] + y * (low + high) / (low + np.sqrt(low * low + y * (high * high - low * low))) * _STEP


@_compile
def _excess(loading, middle, sd, power, end, heights, parabola, log_slab, log_spike, laplace, spike):
    """log of likelihood and prior at a loading, less that of what it is drawn from: `Curve.excess`."""
    t = (loading - middle) / sd
    place = min(max((t - NODES[0]) / _STEP, 0.0), len(NODES) - 1 - 1e-9)
    at = int(place)
    height = heights[at] + (place - at) * (heights[at + 1] - heights[at]) if abs(t) <= _LAST else 0.0
    size = abs(loading) if laplace else 0.5 * loading * loading
    of_spike = log_spike - (size / spike if laplace else size / (spike * spike))
    a = max(parabola[2], LEAST_BEND / (sd * sd))
    under = of_spike + parabola[0] + parabola[1] * loading - 0.5 * a * loading * loading
    drawn = np.logaddexp(log_slab + np.log(height), under)
    at_loading = np.empty(3)
    _expanded(loading - middle, sd, power, end, at_loading)
    return at_loading[0] + np.logaddexp(log_slab - size, of_spike) - drawn


@_compile
def _expanded(away, sd, power, end, expansion):
    """Value, slope and bend so far from the mode: `Shape.expanded`."""
    width = ENDS * sd
    t = away / width
    inside = min(max(t, -1.0), 1.0)
    value, slope, half_bend = 0.0, 0.0, 0.0
    for n in range(_DEGREE, -1, -1):
        half_bend = half_bend * inside + slope
        slope = slope * inside + value
        value = value * inside + power[n]
    bend, beyond = -2 * half_bend, t - inside
    if beyond != 0:
        side = 1 if t > 0 else 0
        value += beyond * (end[1, side] - 0.5 * end[2, side] * beyond)
        slope, bend = end[1, side] - end[2, side] * beyond, end[2, side]
    expansion[0], expansion[1], expansion[2] = value, slope / width, bend / (width * width)
