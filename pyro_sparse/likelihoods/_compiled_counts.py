r"""Negative binomial cells, compiled: log p, its slope and curvature, at one exponential and one logarithm.

With o the log odds of a count, :math:`f_{ij} - \log \theta_j`, and :math:`t = e^{-|o|}`,

.. math:: \log p = -x\,[(-o)_+ + \log(1 + t)] - \theta\,[o_+ + \log(1 + t)],

so that no large numbers cancel. In double precision whatever f has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .._utils.arrays import COMPILED, compiled
from .._utils.elementary import exponential, logarithm

__all__ = ["count_terms"]

Array = npt.NDArray[np.float64]
Cells = npt.NDArray[Any]  # numbers of a precision that the caller chose
_FARTHEST = 700.0  # |o| up to which its exponential is a number; beyond, torch's formulas are used


def count_terms(f: Tensor, x: Tensor, dispersion: Tensor, order: int) -> tuple[Tensor, ...] | None:
    """As `Likelihood.cell_terms`, of counts x with log means f.

    Parameters
    ----------
    f : Tensor (..., chain, feature, row)
    x : Tensor (chain or 1, feature, row)
    dispersion : Tensor (chain, feature)
        1 / theta.
    order : int
        How many derivatives.

    Returns
    -------
    tuple of Tensor (..., chain, feature, row), or None
        None without numba, where gradients are followed, or where numbers are too large.
    """
    tensors = (f, x, dispersion)
    if not COMPILED or f.ndim < 3 or any(t.device.type != "cpu" for t in tensors):
        return None
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return None
    if dispersion.shape != f.shape[-3:-1] or x.ndim != 3 or x.shape[0] not in (1, f.shape[-3]):
        return None
    if x.shape[1:] != f.shape[-2:] or not f.dtype == x.dtype:
        return None
    flat = f.detach().contiguous().view(-1, *f.shape[-2:]).numpy()
    n_terms = 3 if order else 1  # the slope alone is no cheaper
    terms, theta = np.empty((n_terms, *flat.shape), flat.dtype), 1 / dispersion.detach().double().numpy()
    if _terms(flat, x.detach().contiguous().numpy(), np.ascontiguousarray(theta), np.log(theta), terms):
        return None
    return tuple(torch.from_numpy(terms).view(n_terms, *f.shape))[: order + 1]


@compiled
def _terms(f: Cells, x: Cells, theta: Array, log_theta: Array, terms: Cells) -> int:
    """`count_terms` of f (any, feature, row), written to `terms`; how many cells were too far."""
    n_terms, n, n_chains, far = len(terms), f.shape[2], len(theta), 0
    for m in range(len(f)):
        chain = m % n_chains
        counts = x[chain if len(x) > 1 else 0]
        for g in range(f.shape[1]):
            size, log_size = theta[chain, g], log_theta[chain, g]
            at, count = f[m, g], counts[g]
            log_p = terms[0, m, g]
            slope, bend = terms[n_terms // 2, m, g], terms[n_terms - 1, m, g]
            for i in range(n):
                odds, number = np.float64(at[i]) - log_size, np.float64(count[i])
                away = abs(odds)
                far += 0 if away <= _FARTHEST else 1
                t = exponential(-away)
                both = logarithm(1 + t)
                log_p[i] = -number * (0.5 * (away - odds) + both) - size * (0.5 * (away + odds) + both)
                if n_terms > 1:
                    large = 1 / (1 + t)
                    over = large if odds >= 0 else t * large
                    slope[i] = number * (1 - over) - size * over
                    bend[i] = (number + size) * t * large * large
    return far
