r"""Swivels of factors towards others (`rotations.py`), compiled: all pairs of a sweep in one call.

Slab and spike that are normal or Laplace, and an `LKJ` prior of correlations. Random numbers are given.
Features are the last axis. Nothing of the likelihood changes, so that two columns of loadings and a row of
correlations are all there is to look at.
"""

from __future__ import annotations

import numpy as np

from ...._utils.arrays import compiled as _compile
from ._compiled_angles import log_lkj, log_prior

__all__ = ["swivel_steps"]


@_compile
def swivel_steps(
    pairs, weight, cov, log_det, maps, log_slab, log_spike, permitted, laplace, spike, slab_scale,
    concentration, log_weight, step, log_uniform,
):  # fmt: skip
    """Pairs (i, j) in turn; `weight` (chain, factor, feature), `cov` and `maps` change in place.

    So does `log_det` (chain,) of `cov`. `log_slab` and `log_spike` (chain, factor, feature) are probabilities
    over scales, `permitted` is (factor, feature). `step`, in radians, and `log_uniform` are (chain, pair).
    """
    n_chains, k, g = weight.shape
    first, second, new_first, new_second = np.empty(g), np.empty(g), np.empty(g), np.empty(g)
    for c in range(n_chains):
        for m in range(len(pairs)):
            i, j = pairs[m]
            begun = np.arccos(min(max(cov[c, i, j], -1.0), 1.0))
            angle = (begun + step[c, m]) % np.pi
            cos, sin = np.cos(angle), max(np.sin(angle), 1e-12)
            alpha = sin / max(np.sin(begun), 1e-12)
            beta = cos - alpha * np.cos(begun)
            n_free, at_mode = 0, False
            for f in range(g):
                first[f], second[f] = weight[c, i, f] / slab_scale, weight[c, j, f] / slab_scale
                new_first[f] = first[f] / alpha
                new_second[f] = second[f] - beta * new_first[f]
                n_free += permitted[i, f]
                at_mode |= permitted[i, f] and first[f] == 0
                at_mode |= permitted[j, f] and second[f] == 0
            if at_mode:  # zeros of a start are no draws of the spike
                continue
            level = (k - 1 - n_free) * np.log(alpha)
            level += log_lkj(log_det[c] + 2 * np.log(alpha), concentration, log_weight)
            level -= log_lkj(log_det[c], concentration, log_weight)
            level += log_prior(new_first, 1.0, permitted[i], log_slab[c, i], log_spike[c, i], laplace, spike)
            level += log_prior(new_second, 1.0, permitted[j], log_slab[c, j], log_spike[c, j], laplace, spike)
            level -= log_prior(first, 1.0, permitted[i], log_slab[c, i], log_spike[c, i], laplace, spike)
            level -= log_prior(second, 1.0, permitted[j], log_slab[c, j], log_spike[c, j], laplace, spike)
            if not log_uniform[c, m] < level:
                continue
            log_det[c] += 2 * np.log(alpha)
            for f in range(g):
                weight[c, i, f], weight[c, j, f] = slab_scale * new_first[f], slab_scale * new_second[f]
            for other in range(k):
                maps[c, i, other] = alpha * maps[c, i, other] + beta * maps[c, j, other]
                new = alpha * cov[c, i, other] + beta * cov[c, j, other]
                new = 1.0 if other == i else cos if other == j else new
                cov[c, i, other] = cov[c, other, i] = new
