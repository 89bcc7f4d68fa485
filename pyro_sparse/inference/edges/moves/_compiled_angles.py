r"""Angles between factors with loadings summed out (`marginal_angles.py`), compiled: all pairs in one call.

Normal noise, and slab and spike that are normal or Laplace. Random numbers are given. Features are the last
axis. A density is kept as a factor and a logarithm, as in `density/_compiled_weight.py`.
"""

from __future__ import annotations

import numpy as np

from ...._utils.arrays import COMPILED as AVAILABLE
from ...._utils.arrays import compiled as _compile
from ..density._compiled_weight import ROOT_HALF, norm, weight_under
from ..density.weight import LEAST_PRECISION

__all__ = ["AVAILABLE", "angle", "angle_steps", "follow", "in_slabs", "log_lkj", "log_prior"]


@_compile
def angle_steps(
    pairs, weight, edge, cov, log_det, maps, gram, centred, noise, log_slab, log_spike, permitted, laplace,
    spike, slab_scale, concentration, log_weight, by, gumbel, uniform, drawn,
):  # fmt: skip
    """Pairs (i, j) in turn; `weight` and `edge` (chain, factor, feature), `cov` and `maps` change in place.

    So do `log_det` (chain,) of `cov`, `gram` (chain, factor, factor, feature or 1) and `centred` (chain,
    factor, feature), which follow the factors. `log_slab` and `log_spike` (chain, factor, feature) are
    probabilities over scales, `permitted` is (factor, feature). Of random numbers `by` and `gumbel` are
    (pair, place, chain), `uniform` (pair, chain, feature), and `drawn` (pair, any, chain, feature): under a
    Laplace uniform ones for sign and size, else a normal one.
    """
    n_chains, k, g = weight.shape
    wide = 1 if gram.shape[3] > 1 else 0
    a, b, first, root = np.empty(g), np.empty(g), np.empty(g), np.empty(g)
    for c in range(n_chains):
        for m in range(len(pairs)):
            i, j = pairs[m]
            n_free = in_slabs(weight[c, i], permitted[i], slab_scale, first)
            if n_free < 0:
                continue
            for f in range(g):
                a[f], b[f] = gram[c, j, j, wide * f], centred[c, j, f]
            for other in range(k):
                if other != j:
                    for f in range(g):
                        b[f] -= gram[c, j, other, wide * f] * weight[c, other, f]
            for f in range(g):
                a[f] = max(a[f] * slab_scale * slab_scale / noise[c, f], LEAST_PRECISION)
                b[f] *= slab_scale / noise[c, f]
                root[f] = ROOT_HALF / np.sqrt(a[f])
            begun = np.arccos(min(max(cov[c, i, j], -1.0), 1.0))
            best, cos, alpha, beta = -np.inf, 0.0, 1.0, 0.0
            for p in range(by.shape[1]):
                tried_cos, sin, along, across = angle(begun, by[m, p, c])
                level = gumbel[m, p, c] + (k - 1 - n_free) * np.log(sin)
                level += log_lkj(log_det[c] + 2 * np.log(along), concentration, log_weight)
                level += log_prior(
                    first, 1 / along, permitted[i], log_slab[c, i], log_spike[c, i], laplace, spike
                ) + _log_evidence(
                    a,
                    b,
                    root,
                    first,
                    across / along,
                    permitted[j],
                    log_slab[c, j],
                    log_spike[c, j],
                    laplace,
                    spike,
                )
                if level > best:
                    best, cos, alpha, beta = level, tried_cos, along, across
            if alpha == 1:
                continue
            for f in range(g):
                weight[c, i, f] /= alpha
                centred[c, i, f] = alpha * centred[c, i, f] + beta * centred[c, j, f]
                if permitted[j, f]:
                    tilt = b[f] - beta / alpha * first[f] * a[f]
                    high, of_slab = norm(a[f], tilt, root[f], 1.0, laplace)
                    low, of_spike = norm(a[f], tilt, root[f], spike, laplace)
                    against = log_spike[c, j, f] + low - log_slab[c, j, f] - high
                    against = np.exp(min(against, 700.0)) * of_spike / of_slab
                    there = uniform[m, c, f] < 1 / (1 + against)
                    scale = 1.0 if there else spike
                    tail = drawn[m, 1, c, f] if laplace else 0.0
                    size = weight_under(a[f], tilt, scale, laplace, drawn[m, 0, c, f], tail)
                    weight[c, j, f], edge[c, j, f] = slab_scale * size, there
            log_det[c] += 2 * np.log(alpha)
            follow(maps[c], cov[c], i, j, alpha, beta, cos)
            for other in range(k):
                for f in range(gram.shape[3]):
                    gram[c, i, other, f] = alpha * gram[c, i, other, f] + beta * gram[c, j, other, f]
            for other in range(k):
                for f in range(gram.shape[3]):
                    gram[c, other, i, f] = alpha * gram[c, other, i, f] + beta * gram[c, other, j, f]


@_compile
def in_slabs(weight, permitted, slab_scale, first):
    """Loadings of a factor in units of the slab, to `first`; how many are free, -1 where one of them is 0.

    Zeros of a start are no draws of the spike, and do not move.
    """
    n_free, at_mode = 0, False
    for f in range(len(weight)):
        first[f] = weight[f] / slab_scale
        n_free += permitted[f]
        at_mode |= permitted[f] and first[f] == 0
    return -1 if at_mode else n_free


@_compile
def follow(maps, cov, i, j, alpha, beta, cos):
    """The maps and the correlations (factor, factor) of a chain in which factor i has moved towards j."""
    for other in range(len(cov)):
        maps[i, other] = alpha * maps[i, other] + beta * maps[j, other]
        new = alpha * cov[i, other] + beta * cov[j, other]
        cov[i, other] = cov[other, i] = 1.0 if other == i else cos if other == j else new


@_compile
def angle(begun, by):
    """Cosine and sine, alpha and beta, as in `marginal_angles.py`."""
    if by == 0:
        return np.cos(begun), max(abs(np.sin(begun)), 1e-12), 1.0, 0.0
    cos, sin = np.cos(begun + by), np.sin(begun + by)
    if sin < 0:
        cos = -cos
    sin = max(abs(sin), 1e-12)
    alpha = sin / max(np.sin(begun), 1e-12)
    return cos, sin, alpha, cos - alpha * np.cos(begun)


@_compile
def log_lkj(log_det, concentration, log_weight):
    """log density of a correlation matrix."""
    level = -np.inf
    for s in range(len(concentration)):
        at = log_weight[s] + (concentration[s] - 1) * log_det
        level = max(level, at) + np.log1p(np.exp(-abs(level - at))) if s else at
    return level


@_compile
def log_prior(first, by, permitted, log_slab, log_spike, laplace, spike):
    """log density of loadings that are multiplied, up to a constant."""
    level, product = 0.0, 1.0
    narrow = 1 / spike if laplace else 1 / (spike * spike)
    for f in range(len(first)):
        if permitted[f]:
            u = first[f] * by
            size = abs(u) if laplace else 0.5 * u * u
            of_slab, of_spike = log_slab[f] - size, log_spike[f] - narrow * size
            level += max(of_slab, of_spike)
            product *= 1 + np.exp(-abs(of_slab - of_spike))
            if product > 1e200:
                level += np.log(product)
                product = 1.0
    return level + np.log(product)


@_compile
def _log_evidence(a, b, root, first, by, permitted, log_slab, log_spike, laplace, spike):
    """log of the integrals over loadings and edges, their origins shifted, up to a constant."""
    level, product = 0.0, 1.0
    for f in range(len(first)):
        if permitted[f]:
            shift = by * first[f]
            tilt = b[f] - shift * a[f]
            high, of_slab = norm(a[f], tilt, root[f], 1.0, laplace)
            low, of_spike = norm(a[f], tilt, root[f], spike, laplace)
            high += log_slab[f]
            low += log_spike[f]
            level += shift * (b[f] - 0.5 * shift * a[f]) + max(high, low)
            smaller = np.exp(-abs(high - low))
            product *= of_slab + smaller * of_spike if high > low else smaller * of_slab + of_spike
            if product < 1e-200:
                level += np.log(product)
                product = 1.0
    return level + np.log(product)
