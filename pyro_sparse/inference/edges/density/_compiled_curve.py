"""`Curve` of `loadings.py`, compiled: the polynomial about the mode, and the slab over the grid.

Slabs are Laplace or normal, of scale 1. Arrays are (any, chain, feature) where nothing else is said.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...._utils.arrays import compiled as _compile
from ...._utils.elementary import exponential
from ._compiled_weight import ROOT_HALF, norm

__all__ = ["drawn", "interpolated", "log_integrals"]

Array = NDArray[np.float64]
_LOWEST = -700.0  # of what an exponential is taken


@_compile
def log_integrals(
    shift, mode, sd, power, end, likelihood, laplace, spike_scale, least_bend, nodes, weights, tiny, ends
):  # fmt: skip
    """log of the integrals of slab and spike at each shift; the spike's under the parabola at a loading of 0.

    `shift` is (any, chain, feature), `mode` and `sd` (chain, feature), `likelihood` (chain, feature, node);
    the result is (2, any, chain, feature). `spike_scale` is above 0, and `least_bend` the least bend of that
    parabola, in units of 1 / sd^2.
    """
    integrals, heights, at_zero = np.empty((2, *shift.shape)), np.empty(len(nodes)), np.empty(3)
    constant = -np.log(2 * spike_scale) if laplace else -np.log(spike_scale)
    for m in range(len(shift)):
        for c in range(shift.shape[1]):
            for g in range(shift.shape[2]):
                middle = mode[c, g] - shift[m, c, g]
                _heights(middle, sd[c, g], likelihood[c, g], laplace, nodes, tiny, heights)
                total = 0.0
                for i in range(len(nodes)):
                    total += heights[i] * weights[i]
                integrals[0, m, c, g] = np.log(total * sd[c, g])
                _expanded(-middle, sd[c, g], power[:, c, g], end[:, :, c, g], ends, at_zero)
                a = max(at_zero[2], least_bend / (sd[c, g] * sd[c, g]))
                level, factor = norm(a, at_zero[1], ROOT_HALF / np.sqrt(a), spike_scale, laplace)
                if laplace:
                    factor *= np.sqrt(2 * np.pi / a)
                integrals[1, m, c, g] = at_zero[0] + level + np.log(factor) + constant
    return integrals


@_compile
def drawn(shift, mode, sd, likelihood, laplace, nodes, tiny, target, y):
    """Standard deviations from the mode of draws from the slab; two uniforms each, (chain, feature)."""
    t, heights = np.empty(shift.shape), np.empty(len(nodes))
    step = nodes[1] - nodes[0]
    for c in range(len(shift)):
        for g in range(shift.shape[1]):
            middle = mode[c, g] - shift[c, g]
            _heights(middle, sd[c, g], likelihood[c, g], laplace, nodes, tiny, heights)
            mass, at = 0.0, 0
            for i in range(len(nodes) - 1):
                mass += heights[i] + heights[i + 1]
            left, mass = target[c, g] * mass, 0.0
            while at < len(nodes) - 2 and mass + heights[at] + heights[at + 1] < left:
                mass += heights[at] + heights[at + 1]
                at += 1
            low, high = heights[at], heights[at + 1]
            u = y[c, g]  # of a density that goes from low to high in a straight line
            share = u * (low + high) / (low + np.sqrt(low * low + u * (high * high - low * low)))
            t[c, g] = nodes[at] + share * step
    return t


@_compile
def interpolated(shift, loading, mode, sd, power, end, likelihood, laplace, nodes, tiny, ends):
    """Log-likelihood and interpolated slab at loadings (chain, feature); the expansion at a loading of 0."""
    values, heights = np.empty((5, *shift.shape)), np.empty(2)
    step, work = nodes[1] - nodes[0], np.empty(3)
    for c in range(len(shift)):
        for g in range(shift.shape[1]):
            scale, middle = sd[c, g], mode[c, g] - shift[c, g]
            of_power, of_end = power[:, c, g], end[:, :, c, g]
            _expanded(loading[c, g] - middle, scale, of_power, of_end, ends, work)
            values[0, c, g] = work[0]
            t = (loading[c, g] - middle) / scale
            place = min(max((t - nodes[0]) / step, 0.0), len(nodes) - 1 - 1e-9)
            at = int(place)
            _heights(middle, scale, likelihood[c, g, at : at + 2], laplace, nodes[at : at + 2], tiny, heights)
            inside = abs(t) <= nodes[-1]
            values[1, c, g] = heights[0] + (place - at) * (heights[1] - heights[0]) if inside else 0.0
            _expanded(-middle, scale, of_power, of_end, ends, values[2:, c, g])
    return values


@_compile
def _heights(middle, sd, likelihood, laplace, nodes, tiny, heights):
    """Likelihood times slab at the nodes, above zero."""
    constant = -np.log(2.0) if laplace else -0.5 * np.log(2 * np.pi)
    for i in range(len(nodes)):
        u = middle + nodes[i] * sd
        size = abs(u) if laplace else 0.5 * u * u
        heights[i] = likelihood[i] * exponential(max(constant - size, _LOWEST)) + tiny


@_compile
def _expanded(away, sd, power, end, ends, expansion):
    """Value, slope and bend so far from the mode: `Shape.expanded`."""
    width = ends * sd
    t = away / width
    inside = min(max(t, -1.0), 1.0)
    value, slope, half_bend = 0.0, 0.0, 0.0
    for n in range(len(power) - 1, -1, -1):
        half_bend = half_bend * inside + slope
        slope = slope * inside + value
        value = value * inside + power[n]
    bend, beyond = -2 * half_bend, t - inside
    if beyond != 0:
        side = 1 if t > 0 else 0
        value += beyond * (end[1, side] - 0.5 * end[2, side] * beyond)
        slope, bend = end[1, side] - end[2, side] * beyond, end[2, side]
    expansion[0], expansion[1], expansion[2] = value, slope / width, bend / (width * width)
