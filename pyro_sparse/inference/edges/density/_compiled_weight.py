r"""One weight under a normal factor (`weight.py`), compiled: integrals, draws, and loadings column by column.

Slab and spike are normal or Laplace. Random numbers are given. A density is kept as a factor and a logarithm,
so that of many only one logarithm is taken. erfcx is a table of polynomials made from SciPy's.
"""

from __future__ import annotations

import numpy as np
from numpy.polynomial import chebyshev
from scipy.special import erfcx

from ...._utils.arrays import COMPILED as AVAILABLE
from ...._utils.arrays import compiled as _compile
from .weight import FAR, LEAST_PRECISION

__all__ = [
    "AVAILABLE",
    "ROOT_HALF",
    "loading_steps",
    "norm",
    "scaled_tail",
    "truncated_normal",
    "weight_under",
]

ROOT_HALF = np.sqrt(0.5)
# Of erfcx(x) / t as polynomials of t = bend / (bend + x) in intervals of equal length; with 40 of degree 8
# they are right to 3e-15.
_BEND, _INTERVALS, _DEGREE = 3.0, 40, 8


def _erfcx_table() -> np.ndarray:
    """Coefficients (interval, power), of t in units of half an interval from its middle."""
    nodes = np.cos(np.pi * (np.arange(_DEGREE + 1) + 0.5) / (_DEGREE + 1))
    t = (np.arange(_INTERVALS)[:, None] + 0.5 * (nodes + 1)) / _INTERVALS
    series = chebyshev.chebfit(nodes, (erfcx(_BEND / t - _BEND) / t).T, _DEGREE).T
    return np.array([chebyshev.cheb2poly(of_interval) for of_interval in series])


_TABLE = _erfcx_table()


@_compile
def loading_steps(
    weight, edge, prob, gram, centred, noise, log_odds, permitted, laplace, spike, slab_scale, uniform, drawn
):
    """Columns of `weight` and `edge` (chain, feature, factor) in turn, and `prob`, all in place.

    `gram` (chain, feature or 1, factor, factor), `centred` (chain, feature, factor), `noise` (chain, feature)
    and `log_odds` (chain, feature, factor), infinite where an edge has to be there, are as in
    `LinearChains`; `permitted` is (feature, factor). Of random numbers `uniform` is (factor, chain, feature)
    and `drawn` (factor, any, chain, feature): under a Laplace uniform ones for sign and size, else a normal
    one.
    """
    n_chains, g, k = weight.shape
    wide = 1 if gram.shape[1] > 1 else 0
    log_spike = np.log(spike)
    for c in range(n_chains):
        for f in range(g):
            unit = slab_scale / noise[c, f]
            for j in range(k):
                if not permitted[f, j]:
                    weight[c, f, j], edge[c, f, j], prob[c, f, j] = 0.0, False, 0.0
                    continue
                b = centred[c, f, j]
                for other in range(k):
                    if other != j:
                        b -= gram[c, wide * f, j, other] * weight[c, f, other]
                a = max(gram[c, wide * f, j, j] * slab_scale * unit, LEAST_PRECISION)
                b *= unit
                root = ROOT_HALF / np.sqrt(a)
                high, of_slab = norm(a, b, root, 1.0, laplace)
                low, of_spike = norm(a, b, root, spike, laplace)
                against = low - log_spike - high - log_odds[c, f, j]
                p = 1 / (1 + np.exp(min(against, 700.0)) * of_spike / of_slab)
                there = uniform[j, c, f] < p
                scale = 1.0 if there else spike
                tail = drawn[j, 1, c, f] if laplace else 0.0
                weight[c, f, j] = slab_scale * weight_under(a, b, scale, laplace, drawn[j, 0, c, f], tail)
                edge[c, f, j], prob[c, f, j] = there, p


@_compile
def weight_under(a, b, scale, laplace, first, second):
    """A draw under exp(-a w^2/2 + b w), from two uniform numbers or, not under a Laplace, a normal one."""
    if laplace:
        return _laplace(a, b, scale, first, second)
    var = scale * scale / (1 + a * scale * scale)
    return var * b + np.sqrt(var) * first


@_compile
def norm(a, b, root, scale, laplace):
    """Logarithm and factor of the integral under exp(-a w^2/2 + b w), times the scale, up to a constant.

    `root` is (2a)^(-1/2).
    """
    if not laplace:
        var = scale * scale / (1 + a * scale * scale)
        return 0.5 * b * b * var, np.sqrt(var)
    middle, half = abs(b) * root, root / scale
    top = middle - half  # of the larger side
    if top < 0:
        return 0.0, 0.5 * (scaled_tail(-top) + scaled_tail(middle + half))
    if top > 6.1:  # all of the normal
        return top * top, 1.0
    return top * top, 1 + 0.5 * np.exp(-top * top) * (scaled_tail(middle + half) - scaled_tail(top))


@_compile
def _laplace(a, b, scale, sign, tail):
    """A weight under a Laplace density, from two uniform numbers."""
    s = 1 / np.sqrt(a)
    up, down = (b - 1 / scale) * s, -(b + 1 / scale) * s
    if sign < 1 / (1 + np.exp(min(_log_cut(down) - _log_cut(up), 700.0))):
        return s * truncated_normal(up, tail)
    return -s * truncated_normal(down, tail)


@_compile
def truncated_normal(x, uniform):
    """N(x, 1) given that it is positive: its quantile `1 - uniform` from above.

    With few operations: a guess of the normal quantile (Abramowitz and Stegun 1964, 26.2.23), and two of
    Halley's steps, which make 4e-4 of error 1e-15.
    """
    tail = np.log1p(-uniform)
    if uniform == 0:
        return 0.0
    if x < -FAR:
        return max(tail / x, 0.0)
    log_p = tail + _log_cut(x) - 0.5 * x * x
    mirrored = log_p > -np.log(2.0)
    if mirrored:  # what is left, without a cancellation
        log_p = np.log(uniform + (1 - uniform) * 0.5 * np.exp(-0.5 * x * x) * scaled_tail(x * ROOT_HALF))
    t = np.sqrt(-2 * log_p)
    z = (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))) - t
    for _ in range(2):
        cut = 0.5 * scaled_tail(-z * ROOT_HALF) if z < 0 else np.exp(_log_cut(z))
        slope = 1 / (cut * np.sqrt(2 * np.pi))
        step = (np.log(cut) - 0.5 * z * z - log_p) / slope
        z -= step / (1 + 0.5 * step * (z + slope))
    return max(x + z if mirrored else x - z, 0.0)


@_compile
def _log_cut(x):
    """log of exp(x^2/2) times the normal distribution function."""
    if x < 0:
        return np.log(0.5 * scaled_tail(-x * ROOT_HALF))
    return 0.5 * x * x + np.log1p(-0.5 * np.exp(-0.5 * x * x) * scaled_tail(x * ROOT_HALF))


@_compile
def scaled_tail(x):
    """erfcx of what is not negative."""
    t = _BEND / (_BEND + x)
    place = t * _INTERVALS
    interval = int(place) if place < _INTERVALS else _INTERVALS - 1  # of what is no number, too
    at = 2 * (place - interval) - 1
    total = _TABLE[interval, _DEGREE]
    for n in range(1, _DEGREE + 1):
        total = total * at + _TABLE[interval, _DEGREE - n]
    return t * total
