"""Exponentials and logarithms for compiled loops, which do several numbers at a time.

A library's functions are calls, and loops with a call in them take one number after the other.
"""

from __future__ import annotations

import numpy as np

from .arrays import strictly_compiled

__all__ = ["exponential", "logarithm"]


@strictly_compiled
def exponential(x: float) -> float:
    """exp(x) for |x| < 700, to some 1e-14 of it."""
    shifted = x * 1.4426950408889634 + 6755399441055744.0  # whose last bits are the nearest whole number
    n = shifted - 6755399441055744.0
    r = x - n * 0.6931471803691238
    r -= n * 1.9082149292705877e-10
    p = r / 39916800 + 1 / 3628800
    p = p * r + 1 / 362880
    p = p * r + 1 / 40320
    p = p * r + 1 / 5040
    p = p * r + 1 / 720
    p = p * r + 1 / 120
    p = p * r + 1 / 24
    p = p * r + 1 / 6
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    bits = np.float64(shifted).view(np.int64)
    power = np.int64((bits + np.int64(1023)) << np.int64(52)).view(np.float64)
    return p * power


@strictly_compiled
def logarithm(x: float) -> float:
    """log(x), to some 1e-14; minus infinity where x is not above 0."""
    bits = np.float64(x).view(np.int64)
    n = (bits - np.int64(4604544271217802189)) >> np.int64(52)  # so that what is left is 1, within sqrt(2)
    left = np.int64(bits - (n << np.int64(52))).view(np.float64)
    s = (left - 1.0) / (left + 1.0)
    q = s * s
    p = q / 15 + 1 / 13
    p = p * q + 1 / 11
    p = p * q + 1 / 9
    p = p * q + 1 / 7
    p = p * q + 1 / 5
    p = p * q + 1 / 3
    p = p * q + 1.0
    return np.float64(n) * 0.6931471805599453 + 2 * s * p if x > 0 else -np.inf
