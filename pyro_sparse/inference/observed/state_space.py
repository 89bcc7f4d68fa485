r"""A vector autoregression that is seen with error, beside autoregressions of more lags.

.. math:: x_t = A x_{t-1} + B u_t + w_t,\quad w_t \sim N(0, Q), \qquad
          y_t = x_t + v_t,\quad v_t \sim N(0, R),\ R \text{ diagonal}

The Kalman filter that has settled has the covariance P of a predicted state, the root of its Riccati
equation, and that of an innovation, S = P + R. Innovations then are a linear recursion:

.. math:: e_t = y_t - A y_{t-1} - B u_t + M e_{t-1}, \qquad M = A R S^{-1}
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize
from torch import Tensor

__all__ = [
    "ErrorModel",
    "Pieces",
    "autoregression_score",
    "error_model",
    "innovations",
    "settled_covariance",
]

_DOUBLINGS = 7  # the filter settles within 2^7 frames
_LEAST_ERROR = 1e-4  # of a variance: what counts as none, for the Riccati equation divides by it
_START = 0.3  # of the variance of what the past leaves of a variable, in errors
_MOST_STEPS = 60  # of L-BFGS
_LEAST_GAIN = 1.0  # nats that errors add to one lag, or nothing else is looked at
_MOST_FITS = 8  # while terms are dropped
_REWEIGHTINGS = 3


class Pieces(NamedTuple):
    """Runs of frames that were seen whole, padded to one length, standardised.

    Attributes
    ----------
    y : Tensor (piece, time, variable)
    inputs : Tensor (piece, time, column)
        Ones, actions and covariates of each frame.
    counted : ndarray of bool (piece, time)
        Frames that likelihoods are of: those with as many before them as the longest lag.
    """

    y: Tensor
    inputs: Tensor
    counted: NDArray[np.bool_]


class ErrorModel(NamedTuple):
    """An autoregression of one lag that is seen with error, at its largest likelihood.

    Attributes
    ----------
    score : float
        Log-likelihood less half of log n for each parameter (nats).
    errors : ndarray (variable,)
        Variances of errors.
    edges : ndarray of bool (target, source)
        Coefficients that are not 0.
    """

    score: float
    errors: NDArray[np.float64]
    edges: NDArray[np.bool_]


def settled_covariance(A: Tensor, Q: Tensor, errors: Tensor) -> Tensor:
    """Covariance of a predicted state after many frames, by doubling.

    Parameters
    ----------
    A, Q : Tensor (variable, variable)
    errors : Tensor (variable,)
        Variances, above 0.

    References
    ----------
    Anderson (1978), *Second-order convergent algorithms for the steady-state Riccati equation*.
    """
    step, eye = A.T, torch.eye(len(A), dtype=A.dtype)
    information, P = torch.diag(1 / errors), Q
    for _ in range(_DOUBLINGS):
        solved = torch.linalg.solve(eye + information @ P, torch.cat([step, information @ step.T], 1))
        by_step, by_information = solved[:, : len(A)], solved[:, len(A) :]
        information = information + step @ by_information
        P = P + step.T @ P @ by_step
        step = step @ by_step
    return (P + P.T) / 2


def innovations(y: Tensor, inputs: Tensor, A: Tensor, B: Tensor, M: Tensor) -> Tensor:
    """What the settled filter leaves of each frame, (piece, time, variable), all frames at once.

    Parameters
    ----------
    y, inputs
        As of `Pieces`.
    A, M : Tensor (variable, variable)
    B : Tensor (variable, column)
    """
    left = y - inputs @ B.T
    left = torch.cat([left[:, :1], left[:, 1:] - y[:, :-1] @ A.T], 1)
    back, power = 1, M
    while back < y.shape[1]:  # sums of twice as many frames each time
        left = torch.cat([left[:, :back], left[:, back:] + left[:, :-back] @ power.T], 1)
        back, power = 2 * back, power @ power
    return left


class _Likelihood:
    """The density of frames, of all parameters in one row: A, B, log scales of Q, Q, roots of R."""

    def __init__(self, pieces: Pieces, with_error: NDArray[np.bool_], edges: NDArray[np.bool_]):
        self.pieces, self.n = pieces, int(pieces.counted.sum())
        self.counted = torch.as_tensor(pieces.counted)
        self.chosen = torch.as_tensor(np.flatnonzero(with_error))
        self.places = tuple(torch.as_tensor(axis) for axis in np.nonzero(edges))
        self.d, self.width = pieces.y.shape[2], pieces.inputs.shape[2]
        self.below = torch.tril_indices(self.d, self.d, -1)
        self.sizes = [int(edges.sum()), self.d * self.width, self.d, self.below.shape[1], len(self.chosen)]

    def unpacked(self, flat: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """A, B, Q and the diagonal of R."""
        a, b, scale, off, root = flat.split(self.sizes)
        lower = torch.diag(scale.exp()).index_put((self.below[0], self.below[1]), off)
        errors = torch.full((self.d,), _LEAST_ERROR, dtype=flat.dtype)
        return (
            torch.zeros(self.d, self.d, dtype=flat.dtype).index_put(self.places, a),
            b.view(self.d, self.width),
            lower @ lower.T,
            errors.index_put((self.chosen,), root**2 + _LEAST_ERROR),
        )

    def cost(self, flat: Tensor) -> Tensor:
        """Minus the log-likelihood of a frame, less its constant."""
        A, B, Q, errors = self.unpacked(flat)
        S = settled_covariance(A, Q, errors) + torch.diag(errors)
        factor = torch.linalg.cholesky_ex(S)[0]
        M = torch.linalg.solve(S, torch.diag(errors) @ A.T).T
        e = innovations(self.pieces.y, self.pieces.inputs, A, B, M)[self.counted]
        white = torch.linalg.solve_triangular(factor, e.T, upper=False)
        return 0.5 * (white**2).sum() / self.n + factor.diagonal().log().sum()

    def cost_and_slope(self, flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """For the optimiser."""
        with torch.enable_grad():
            values = torch.tensor(flat, requires_grad=True)
            cost = self.cost(values)
            (slope,) = torch.autograd.grad(cost, values)
        if not (torch.isfinite(cost) and torch.isfinite(slope).all()):
            return 1e10, np.zeros_like(flat)
        return float(cost.detach()), slope.numpy()

    def maximised(self, start: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        """Parameters of the largest likelihood, and its score."""
        best = optimize.minimize(
            self.cost_and_slope, start, jac=True, method="L-BFGS-B", options={"maxiter": _MOST_STEPS}
        )
        constant = 0.5 * self.d * np.log(2 * np.pi)
        score = -self.n * (float(best.fun) + constant) - 0.5 * np.log(self.n) * sum(self.sizes)
        return np.asarray(best.x), score

    def needless(self, flat: NDArray[np.float64]) -> NDArray[np.intp]:
        """Coefficients of A and roots of R worth less than their price by the curvature, least first."""
        with torch.enable_grad():
            curvature = torch.autograd.functional.hessian(self.cost, torch.tensor(flat)).numpy() * self.n
        covariance = np.linalg.pinv(curvature, hermitian=True)
        n_edges, end = self.sizes[0], len(flat)
        kept = [*range(n_edges), *range(end - self.sizes[4], end)]
        dropped: list[int] = []

        def cost_of_dropping(at: list[int]) -> float:
            return float(0.5 * flat[at] @ np.linalg.pinv(covariance[np.ix_(at, at)]) @ flat[at])

        so_far, price = 0.0, 0.5 * np.log(self.n)
        while kept:
            costs = [cost_of_dropping([*dropped, k]) for k in kept]
            least = int(np.argmin(costs))
            if costs[least] - so_far >= price:
                break
            so_far = costs[least]
            dropped.append(kept.pop(least))
        return np.array(dropped, dtype=int)


def error_model(pieces: Pieces, may_err: NDArray[np.bool_], wanted: float = -np.inf) -> ErrorModel | None:
    """The error model of the edges and errors that a criterion (BIC) leaves of all.

    None where errors add nothing to one lag, or cannot reach the score that is wanted.

    Parameters
    ----------
    pieces : Pieces
    may_err : ndarray of bool (variable,)
        Variables that may have errors.
    wanted : float
        Score; the most that can be reached is that of all terms at the price of one edge for each variable.
    """
    d = pieces.y.shape[2]
    with_error, edges = may_err.copy(), np.ones((d, d), dtype=bool)
    likelihood = _Likelihood(pieces, with_error, edges)
    flat, score = likelihood.maximised(_start(pieces, with_error))
    price, n_errors = 0.5 * np.log(likelihood.n), int(with_error.sum())
    if score + price * n_errors - one_lag_score(pieces) < _LEAST_GAIN:
        return None
    if score + price * (d * d - d + n_errors - 1) < wanted:
        return None
    drop = likelihood.needless(flat)
    for _ in range(_MOST_FITS):
        n_edges, first_root = likelihood.sizes[0], len(flat) - likelihood.sizes[4]
        drop = drop[: -(-len(drop) // 2)]  # what the others are worth then is looked at anew
        if not len(drop) and with_error.sum() > 1:  # curvature says little of an error near 0
            drop = np.array([first_root + int(np.abs(flat[first_root:]).argmin())])
        elif not len(drop):
            break
        fewer_edges, fewer_errors = edges.copy(), with_error.copy()
        fewer_edges[tuple(np.argwhere(edges)[drop[drop < n_edges]].T)] = False
        fewer_errors[np.flatnonzero(with_error)[drop[drop >= first_root] - first_root]] = False
        candidate = _Likelihood(pieces, fewer_errors, fewer_edges)
        moved, better = candidate.maximised(np.delete(flat, drop))
        if better >= score:
            likelihood, flat, score, edges, with_error = candidate, moved, better, fewer_edges, fewer_errors
            drop = likelihood.needless(flat)
        elif len(drop) > 1:
            drop = drop[:-1]
        else:
            break
    errors = likelihood.unpacked(torch.as_tensor(flat))[3].numpy()
    return ErrorModel(score, np.where(with_error, errors, 0.0), edges)


def _start(pieces: Pieces, with_error: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Least squares, a share of what it leaves in errors."""
    y, inputs = pieces.y.numpy(), pieces.inputs.numpy()
    at = pieces.counted
    before = np.roll(y, 1, axis=1)[at]
    design = np.concatenate([before, inputs[at]], 1)
    weights, *_ = np.linalg.lstsq(design, y[at], rcond=None)
    d = y.shape[2]
    left = y[at] - design @ weights
    covariance = left.T @ left / len(left) + 1e-6 * np.eye(d)
    lower = np.linalg.cholesky(covariance)
    errors = np.sqrt(_START * covariance.diagonal()[with_error])
    scale = np.log(lower.diagonal()) + 0.5 * np.log(np.where(with_error, 1 - _START, 1.0))
    parts = [weights[:d].T.ravel(), weights[d:].T.ravel(), scale, lower[np.tril_indices(d, -1)], errors]
    return np.concatenate(parts)


def one_lag_score(pieces: Pieces) -> float:
    """Score of all coefficients of one lag, without error."""
    y, at = pieces.y.numpy(), pieces.counted
    design, target = np.concatenate([np.roll(y, 1, axis=1)[at], pieces.inputs.numpy()[at]], 1), y[at]
    n, d = target.shape
    left = target - design @ np.linalg.lstsq(design, target, rcond=None)[0]
    log_det = float(np.linalg.slogdet(left.T @ left / n + 1e-9 * np.eye(d))[1])
    fit = -0.5 * n * (log_det + d + d * np.log(2 * np.pi))
    return fit - 0.5 * np.log(n) * (d * design.shape[1] + d * (d + 1) // 2)


def autoregression_score(pieces: Pieces, lags: int) -> float:
    """Score, as of `ErrorModel`, of the autoregression without error whose terms the criterion takes.

    They are taken one by one.

    Parameters
    ----------
    pieces : Pieces
    lags : int
        The longest.
    """
    y, inputs, at = pieces.y.numpy(), pieces.inputs.numpy(), pieces.counted
    d, n, width = y.shape[2], int(at.sum()), inputs.shape[2]
    past = [np.roll(y, lag, axis=1)[at] for lag in range(1, lags + 1)]
    design, target = np.concatenate([inputs[at], *past], 1), y[at]
    price = 0.5 * np.log(n)
    terms = [_terms_by_criterion(design, target[:, j], width, price) for j in range(d)]
    gram, cross = design.T @ design, design.T @ target
    weight = np.eye(d)
    for _ in range(_REWEIGHTINGS):  # of seemingly unrelated regressions
        blocks = [[weight[i, j] * gram[np.ix_(terms[i], terms[j])] for j in range(d)] for i in range(d)]
        wanted = np.concatenate([cross[terms[i]] @ weight[i] for i in range(d)])
        flat = np.linalg.lstsq(np.block(blocks), wanted, rcond=None)[0]
        ends = np.cumsum([len(of_one) for of_one in terms])[:-1]
        left = target - np.stack([design[:, terms[j]] @ w for j, w in enumerate(np.split(flat, ends))], 1)
        covariance = left.T @ left / n + 1e-9 * np.eye(d)
        weight = np.linalg.inv(covariance)
    log_det = float(np.linalg.slogdet(covariance)[1])
    return -0.5 * n * (log_det + d + d * np.log(2 * np.pi)) - price * (len(flat) + d * (d + 1) // 2)


def _terms_by_criterion(
    design: NDArray[np.float64], target: NDArray[np.float64], n_always: int, price: float
) -> list[int]:
    """Columns that forward selection takes, the first ones always."""
    terms, candidates = list(range(n_always)), list(range(n_always, design.shape[1]))
    while candidates:
        both = np.column_stack([design[:, candidates], target])
        part = design[:, terms]
        left = both - part @ np.linalg.lstsq(part, both, rcond=None)[0]
        rest = left[:, -1]
        share = (
            (left[:, :-1].T @ rest) ** 2 / (left[:, :-1] ** 2).sum(0).clip(1e-9) / max(rest @ rest, 1e-300)
        )
        best = int(share.argmax())
        if -0.5 * len(target) * np.log1p(-min(float(share[best]), 1 - 1e-9)) < price:
            break
        terms.append(candidates.pop(best))
    return terms
