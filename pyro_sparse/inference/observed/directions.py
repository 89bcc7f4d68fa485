r"""Whether a column acts on the variables of a frame, or follows from them: which account costs fewer nats.

Of a column z, the variables y of a frame and their past, two accounts can be written down:

.. math:: \text{acts:}\quad p(z \mid \text{past})\, p(y \mid \text{past}, z), \qquad
          \text{follows:}\quad p(y \mid \text{past})\, p(z \mid y)

They differ in what they rule out. A column that follows from the frame has nothing to do with the past
once the frame is known. One that acts and was chosen at random has nothing to do with the past, but has once
the frame is known. And if z is a rule such as 1 where y > 0, noise that is cut in two is no normal noise
about two means. Normal regressions and logistic ones, and an information criterion (BIC), weigh the accounts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .terms import winsorised

__all__ = ["Accounts", "accounts_of", "is_usable"]

_LEAST_SHARE = 1e-6  # of a variance, below which it counts as nothing
_RIDGE, _MOST_STEPS, _LONGEST = 1e-3, 50, 5.0  # of a logistic regression: classes may be apart
_LEAST_MINOR = 10  # rows of the rarer of two values
_LEAST_PER_COLUMN = 3  # rows for each coefficient


class Accounts(NamedTuple):
    """Log-likelihoods of the column and the frame less half of log n for each coefficient (nats).

    Attributes
    ----------
    random : float
        It acts, and depends on nothing but its own past.
    policy : float
        It acts, and depends on the variables' past, too.
    relayed : float
        It acts, depends on that past, and is all by which the past reaches the frame.
    follows : float
        It follows from the frame.
    habit : float
        It follows from the frame and its own past.
    share : float
        Of what is not known of the column given all pasts, what the frame tells: of the entropy of two
        values, of the variance of a number. 1: without error; below 0: less than pasts do.
    copied : float
        Of the variance of the column given pasts, the share that lines in the frame explain.
    information : float
        About the column, in the frame given its past (nats, of all rows, normal).
    """

    random: float
    policy: float
    relayed: float
    follows: float
    habit: float
    share: float
    copied: float
    information: float


def is_usable(column: NDArray[np.float64], n_coefficients: int) -> bool:
    """Whether there are rows enough, and values enough of a column, for accounts of it.

    Parameters
    ----------
    column : ndarray (row,)
    n_coefficients : int
        Of the largest regression.
    """
    values, counts = np.unique(column, return_counts=True)
    if len(values) < 2 or len(column) < _LEAST_PER_COLUMN * n_coefficients:
        return False
    return len(values) > 2 or int(counts.min()) >= _LEAST_MINOR


def accounts_of(
    column: NDArray[np.float64],
    frame: NDArray[np.float64],
    past: NDArray[np.float64],
    own_past: NDArray[np.float64],
) -> Accounts:
    """Both accounts of a column, a number or of two values.

    Parameters
    ----------
    column : ndarray (row,)
    frame : ndarray (row, variable)
    past : ndarray (row, column)
        All that leads to the frame, beside the column.
    own_past : ndarray (row, column)
        Of the column.
    """
    is_binary = len(np.unique(column)) == 2
    as_given = _explained(column, frame, past)
    z = (column == column.max()).astype(float) if is_binary else winsorised(column[:, None])[:, 0]
    frame, past, own_past = _varying(frame), _varying(past), _varying(own_past)
    n, d = frame.shape
    price = 0.5 * np.log(n)

    def fitted(*parts: NDArray[np.float64]) -> tuple[float, float]:
        design = np.concatenate([np.ones((n, 1)), *parts], 1)
        value = _logistic(design, z) if is_binary else _normal(design, z)
        return value, value - price * design.shape[1]

    # A rule may have two cuts, such as |y| > 1. Of a number, squares would take skewed noise for a rule.
    bent = [_bent(frame)] if is_binary else []
    by_frame = [fitted(part) for part in (frame, *bent)]
    with_habit = [fitted(part, own_past) for part in (frame, *bent)]
    by_past = [fitted(part, own_past) for part in (past, _bent(past))]
    alone = [fitted(), fitted(own_past)]
    copied = _explained(z, frame, past)
    information = -0.5 * n * np.log(max(1 - copied, _LEAST_SHARE))
    if as_given > 1 - _LEAST_SHARE:  # a sum of variables, which is none of their values cut off
        copied = as_given
    net = information - price * d
    before = max(alone[0][0], alone[1][0], by_past[0][0])
    after = max(value for value, _ in by_frame)
    share = 1 - after / min(before, -1e-9) if is_binary else 1 - np.exp(-2 * (after - before) / n)
    return Accounts(
        net + max(score for _, score in alone),
        net + max(score for _, score in by_past),
        max(score for _, score in by_past) + _by_column_alone(frame, past, z),
        max(score for _, score in by_frame),
        max(score for _, score in with_habit),
        float(share),
        copied,
        information,
    )


def _varying(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Those that vary, standardised, values far out cut off."""
    columns = winsorised(columns)
    return np.asarray(columns[:, columns.std(0) > 0.5])  # they have a standard deviation of 1 or 0


def _bent(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Columns and their squares."""
    return np.concatenate([columns, columns**2 - 1], 1)


def _left(values: NDArray[np.float64], design: NDArray[np.float64]) -> NDArray[np.float64]:
    """What least squares leaves of values."""
    return np.asarray(values - design @ np.linalg.lstsq(design, values, rcond=None)[0])


def _explained(z: NDArray[np.float64], frame: NDArray[np.float64], past: NDArray[np.float64]) -> float:
    """Share of the variance of z given the past that the frame, given the past, explains."""
    design = np.insert(past, 0, 1.0, axis=1)
    left, rest = _left(frame, design), _left(z, design)
    axes, sizes, _ = np.linalg.svd(left, full_matrices=False)
    axes = axes[:, sizes > _LEAST_SHARE * max(sizes[0], _LEAST_SHARE)]
    return float(((axes.T @ rest) ** 2).sum() / max((rest**2).sum(), 1e-300))


def _by_column_alone(frame: NDArray[np.float64], past: NDArray[np.float64], z: NDArray[np.float64]) -> float:
    """By how many nats (BIC) the column alone explains a frame better than the past alone does."""
    n, d = frame.shape
    sizes = []
    for columns in (past, z[:, None]):
        left = _left(frame, np.insert(columns, 0, 1.0, axis=1))
        covariance = left.T @ left / n + _LEAST_SHARE * np.eye(d)
        sizes.append(0.5 * n * float(np.linalg.slogdet(covariance)[1]))
    return sizes[0] - sizes[1] + 0.5 * np.log(n) * d * (past.shape[1] - 1)


def _normal(design: NDArray[np.float64], z: NDArray[np.float64]) -> float:
    """Largest log-likelihood of a normal regression of z, of variance 1, up to a constant."""
    variance = float((_left(z, design) ** 2).mean())
    return -0.5 * len(z) * np.log(max(variance, _LEAST_SHARE))


def _logistic(design: NDArray[np.float64], z: NDArray[np.float64]) -> float:
    """Largest log-likelihood of a logistic regression of 0/1 z, by Newton's method with short steps."""
    weights = np.zeros(design.shape[1])
    ridge = _RIDGE * np.eye(len(weights))
    for _ in range(_MOST_STEPS):
        p = 1 / (1 + np.exp(-np.clip(design @ weights, -30, 30)))
        curvature = (design.T * np.maximum(p * (1 - p), 1e-9)) @ design + ridge
        step = np.linalg.solve(curvature, design.T @ (z - p) - _RIDGE * weights)
        length = float(np.abs(step).max())
        weights += step * min(1.0, _LONGEST / max(length, 1e-12))
        if length < 1e-6:
            break
    linear = np.clip(design @ weights, -30, 30)
    return float((z * linear - np.logaddexp(0, linear)).sum())
