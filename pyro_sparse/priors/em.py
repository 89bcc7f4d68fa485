r"""The spike-and-slab lasso's closed forms as small pure functions: E-step, M-steps for eta, proximal map.

E-step :math:`p^* = P(\text{slab} \mid w)`; M-step
:math:`\eta_k = (\sum_j p^*_{jk} + a - 1) / (a + b + G_k - 2)`; the weight step solves
:math:`\min_w \tfrac12 (w - v)^2 - t \log[\eta\psi_1(w) + (1-\eta)\psi_0(w)]` globally, although that
objective is not convex. Tensors in, tensors out; shapes broadcast; no state.
"""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._utils.arrays import COMPILED, arrays, compiled, tensor
from ..distributions.spike_slab_lasso import SpikeSlabLasso

__all__ = [
    "edge_log_odds",
    "edge_probability",
    "eta_step",
    "ordered_eta_step",
    "informed_eta_step",
    "penalty_rate",
    "soft_threshold",
    "solved_log_odds",
    "ssl_prox",
]

Array: TypeAlias = "NDArray[Any] | Tensor"  # what `arrays` hands out
# Inclusion probabilities stay this far from 0 and 1: log odds of at most 14 either way, exact in float32.
ETA_MARGIN = 1e-6
# Newton iterations of an accelerator, which is not asked after each whether they are enough: what has not
# come to rest by then is no better than zero, or turns in the last digits.
_UNASKED, _UNASKED_DOUBLE = 10, 40
# Beyond these log odds a probability is 0 or 1 to 1e-13; so many halvings leave as little of the interval.
_FAR, _HALVINGS = 30.0, 50


def edge_log_odds(weights: Tensor, eta: Tensor, lambda1: Tensor | float, lambda0: Tensor | float) -> Tensor:
    r"""E-step as log odds, :math:`\log[\eta\lambda_1 / ((1-\eta)\lambda_0)] + (\lambda_0-\lambda_1)|w|`."""
    return SpikeSlabLasso(eta, lambda1, lambda0, validate_args=False).posterior_log_odds(weights)


def edge_probability(
    weights: Tensor, eta: Tensor, lambda1: Tensor | float, lambda0: Tensor | float
) -> Tensor:
    r"""E-step: :math:`p^*(w) = \eta\psi_1(w) / [\eta\psi_1(w) + (1-\eta)\psi_0(w)]`, normalisers included.

    Source: Ročková and George (2018), equation (2.3).
    """
    return torch.sigmoid(edge_log_odds(weights, eta, lambda1, lambda0))


def penalty_rate(weights: Tensor, eta: Tensor, lambda1: Tensor | float, lambda0: Tensor | float) -> Tensor:
    r"""Slope of the marginal penalty, :math:`\lambda^*(w) = \lambda_1 p^*(w) + \lambda_0 (1 - p^*(w))`.

    Source: Ročková and George (2018), equation (2.4).
    """
    absent = torch.sigmoid(-edge_log_odds(weights, eta, lambda1, lambda0))
    return lambda1 + (lambda0 - lambda1) * absent


def eta_step(
    prob: Tensor,
    a: Tensor | float,
    b: Tensor | float,
    allowed: Tensor | None = None,
    shared: bool = False,
) -> Tensor:
    r"""M-step for eta under a Beta(a, b) prior.

    .. math:: \eta_k = \frac{\sum_j p^*_{jk} + a - 1}{G_k + a + b - 2}

    Parameters
    ----------
    prob : Tensor
        Edge probabilities, shape (..., G, K).
    a, b : Tensor or float
        Beta parameters, broadcastable to the result.
    allowed : Tensor, optional
        Boolean (G, K): edges that may exist. Only these are summed and counted in :math:`G_k`.
    shared : bool
        One eta for all factors instead of one each.

    Returns
    -------
    Tensor
        Shape (..., 1, K), or (..., 1, 1) if ``shared``; kept ``ETA_MARGIN`` inside (0, 1).
    """
    expected, count = _counts(prob, allowed)
    if shared:
        expected, count = expected.sum(-1, keepdim=True), count.sum(-1, keepdim=True)
    return _ratio(expected + (a - 1), count + (a + b - 2))


def ordered_eta_step(prob: Tensor, alpha: float, allowed: Tensor | None = None) -> Tensor:
    r"""M-step for eta under a stick-breaking Indian-buffet prior cut at K factors.

    With :math:`\eta_{(k)} = \prod_{l \le k} \nu_l` and :math:`\nu_l \sim \mathrm{Beta}(\alpha, 1)`, the
    expected log posterior of the fractions :math:`\nu`

    .. math:: \sum_k S_k \log\eta_k + (G_k - S_k) \log(1 - \eta_k) + (\alpha - 1) \log\eta_{(K)},
              \qquad S_k = \sum_j p^*_{jk}

    is maximised under :math:`\eta_{(1)} \ge \dots \ge \eta_{(K)}`. It is an isotonic binomial regression;
    once the factors are ordered by their share :math:`S_k / G_k`, only the last one can be out of order, so
    pooling has a closed form. The factors keep their places: the order is of the values.

    Parameters
    ----------
    prob : Tensor
        Edge probabilities, shape (..., G, K).
    alpha : float
        Concentration; below 1 the least-used factor is driven towards eta = 0.
    allowed : Tensor, optional
        Boolean (G, K).

    Returns
    -------
    Tensor
        Shape (..., 1, K).

    References
    ----------
    Ročková and George (2016), Fast Bayesian factor analysis via automatic rotations to sparsity, JASA 111,
    section 3.
    """
    expected, count = _counts(prob, allowed)
    count = count.expand_as(expected)
    order = (expected / count.clamp(min=1)).argsort(-1, descending=True)
    # Pseudo-count of the last factor, then the pooled share of the last m factors for every m.
    last_found = expected.gather(-1, order).flip(-1).cumsum(-1).flip(-1) + (alpha - 1)
    last_count = count.gather(-1, order).flip(-1).cumsum(-1).flip(-1) + (alpha - 1)
    floor = _ratio(last_found, last_count).amin(-1, keepdim=True)
    eta = torch.maximum(_ratio(expected, count), floor)
    return eta.scatter(-1, order[..., -1:], floor)


def informed_eta_step(
    prob: Tensor,
    prior_log_odds: Tensor,
    a: Tensor | float,
    b: Tensor | float,
    allowed: Tensor | None = None,
    shared: bool = False,
) -> Tensor:
    r"""M-step for eta where some edges are more probable than others of their factor.

    With :math:`\operatorname{logit} \eta_{jk} = \operatorname{logit} \eta_k + o_{jk}` the mode solves

    .. math:: \sum_j \eta_{jk} + (a + b - 2)\, \eta_k = \sum_j p^*_{jk} + a - 1

    by bisection in :math:`\operatorname{logit} \eta_k`; with o = 0 it is `eta_step`.

    Parameters
    ----------
    prob : Tensor
        Edge probabilities, shape (..., G, K).
    prior_log_odds : Tensor
        o, shape (G, K).
    a, b, allowed, shared
        As for `eta_step`.

    Returns
    -------
    Tensor
        :math:`\eta_k`, shape (..., 1, K), or (..., 1, 1) if ``shared``; kept ``ETA_MARGIN`` inside (0, 1).
    """
    free = torch.ones_like(prior_log_odds) if allowed is None else allowed.to(prob.dtype)
    wanted = (prob * free).sum((-2, -1) if shared else -2, keepdim=True) + (a - 1)
    log_odds = solved_log_odds(wanted, prior_log_odds, free, a + b - 2)
    return torch.sigmoid(log_odds).clamp(ETA_MARGIN, 1 - ETA_MARGIN)


def solved_log_odds(wanted: Tensor, prior_log_odds: Tensor, free: Tensor, beside: Tensor | float) -> Tensor:
    r"""l with :math:`\sum_j \sigma(l_k + o_{jk}) + n_0 \sigma(l_k) = t_k`, by bisection.

    Parameters
    ----------
    wanted : Tensor
        t, shape (..., 1, K), or (..., 1, 1) where one l is that of all columns.
    prior_log_odds : Tensor
        o, shape (G, K).
    free : Tensor
        1 where an edge is counted, shape (G, K).
    beside : Tensor or float
        :math:`n_0`, counts of the prior of :math:`\sigma(l)`.

    Returns
    -------
    Tensor
        Shape of `wanted`, within `_FAR` of 0.
    """
    axes = (-2,) if wanted.shape[-1] == prior_log_odds.shape[-1] else (-2, -1)
    low, high = torch.full_like(wanted, -_FAR), torch.full_like(wanted, _FAR)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        expected = (torch.sigmoid(middle + prior_log_odds) * free).sum(axes, keepdim=True)
        less = expected + beside * torch.sigmoid(middle) < wanted
        low, high = torch.where(less, middle, low), torch.where(less, high, middle)
    return (low + high) / 2


def _counts(prob: Tensor, allowed: Tensor | None) -> tuple[Tensor, Tensor]:
    """Expected number of edges (..., 1, K) and number of possible edges (1, K) in each column."""
    if allowed is None:
        allowed = torch.ones(prob.shape[-2:], dtype=torch.bool, device=prob.device)
    count = allowed.to(prob.dtype).sum(-2, keepdim=True)
    return torch.where(allowed, prob, torch.zeros_like(prob)).sum(-2, keepdim=True), count


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """The mode of a Beta log density, also when it sits on the boundary or both counts vanish."""
    # The log density is n log(eta) + m log(1 - eta): with n <= 0 it falls from zero on, with m <= 0 it rises
    # up to one.
    n, m = numerator.clamp(min=0), (denominator - numerator).clamp(min=0)
    mode = torch.where(n + m == 0, torch.full_like(n, 0.5), n / (n + m))
    return mode.clamp(ETA_MARGIN, 1 - ETA_MARGIN)


def soft_threshold(weights: Tensor, threshold: Tensor | float) -> Tensor:
    r"""Proximal map of a Laplace log density: :math:`\mathrm{sign}(v)\,(|v| - \text{threshold})_+`."""
    return weights.sign() * (weights.abs() - threshold).clamp(min=0)


def ssl_prox(
    weights: Tensor,
    step: Tensor | float,
    eta: Tensor | float,
    lambda1: Tensor | float,
    lambda0: Tensor | float,
    max_iter: int = 50,
) -> Tensor:
    r"""Global minimiser of :math:`\tfrac12 (w - v)^2 - t \log[\eta\psi_1(w) + (1-\eta)\psi_0(w)]`, element by
    element.

    For v > 0 a stationary point solves :math:`h(w) = w + t\lambda^*(w) - v = 0`. The slope of h is
    :math:`1 - t(\lambda_0-\lambda_1)^2 p^*(1-p^*)`: positive for small and for large p*, negative in between
    when :math:`t(\lambda_0-\lambda_1)^2 > 4`. So there are at most two local minima, one on the spike side
    (usually 0) and one on the slab side. On its own side each is the root of a monotone function, concave on
    the spike side and convex on the slab side, which Newton's method reaches monotonically; the better of the
    two is returned. Exact zeros result below a threshold that lies between the bounds of Ročková and George
    (2018), theorem 1.

    Parameters
    ----------
    weights : Tensor
        v, any shape.
    step : Tensor or float
        t > 0 (0 returns v), broadcastable.
    eta, lambda1, lambda0 : Tensor or float
        Parameters of the spike-and-slab lasso, broadcastable.
    max_iter : int
        Limit of Newton iterations; a handful is usual. An accelerator makes ten, in double precision forty,
        and is never waited for.

    Returns
    -------
    Tensor
        Shape of the broadcast arguments.
    """
    params = [p if isinstance(p, Tensor) else torch.as_tensor(p) for p in (step, eta, lambda1, lambda0)]
    xp, v, t, prob, low, high = arrays(weights, *(p.to(weights) for p in params))
    ready = v.ndim == prob.ndim == 3 and t.shape == v.shape and low.ndim == high.ndim == 0
    if COMPILED and ready and xp is np and v.dtype == np.float32:
        solution = np.empty_like(v)
        _each_prox(v, t, prob, float(low), float(high), max_iter, solution)
        return tensor(solution)
    eps = torch.finfo(weights.dtype).eps
    size, gap, prob = abs(v), high - low, xp.clip(prob, eps, 1 - eps)
    zero = xp.zeros_like(size + t * prob * gap)
    odds_of_spike = (1 - prob) / prob * (high / low)  # at w = 0
    base = -xp.log(odds_of_spike)
    bend, shift = t * gap, t * low - size
    asked = xp is np

    def newton(w: Array, lower: Array, upper: Array) -> Array:
        if not asked:
            return _unasked(
                cast(Tensor, w), cast(Tensor, lower), cast(Tensor, upper), (-base, gap, bend, shift), max_iter
            )
        for _ in range(max_iter):
            odds = odds_of_spike * xp.exp(-gap * w)
            absent = odds / (1 + odds)
            slope = xp.maximum(1 - bend * gap * absent * (1 - absent), least)
            new = xp.minimum(xp.maximum(w - (w + shift + bend * absent) / slope, lower), upper)
            done = bool((abs(new - w) <= close).all())
            w = new
            if done:
                break
        return w

    def objective(w: Array) -> Array:  # relative to its value at zero
        gain = xp.log1p(odds_of_spike * xp.exp(-gap * w)) - xp.log1p(odds_of_spike)
        value: Array = w * (0.5 * w - size) + t * (low * w - gain)
        return value

    # Where h turns: p*(1 - p*) = 1 / (t gap^2), or p* = 1/2 where it never does. Its slope is 0
    # there, and held at `least`: Newton's step then ends at a bound.
    close, least, four = 4 * eps * size, zero + 1e-6, zero + 4
    curve = xp.sqrt(1 - 4 / xp.maximum(bend * gap, four))
    turn = 2 * xp.arctanh(xp.minimum(curve, zero + (1 - eps)))  # logit of (1 + curve) / 2
    start = xp.maximum(-shift, zero)
    tiny = xp.maximum(gap, zero + 1e-12)  # a plain lasso has no gap: h is a line, and any ends will do
    spike_end = xp.minimum(xp.maximum((-turn - base) / tiny, zero), start)
    slab_end = xp.minimum(xp.maximum((turn - base) / tiny, zero), start)
    best = newton(start, slab_end, start)
    # On the spike side h rises from h(0) to h(spike_end): a root other than 0 lies there only between signs.
    odds = odds_of_spike * xp.exp(-gap * spike_end)
    inside = (shift + bend * odds_of_spike / (1 + odds_of_spike) < 0) & (
        spike_end + shift + bend * odds / (1 + odds) >= 0
    )
    if not asked or inside.any():
        spike = xp.where(inside, newton(zero, zero, spike_end), zero)
        best = xp.where(objective(best) < objective(spike), best, spike)
    return tensor(xp.where(objective(best) < 0, best * xp.sign(v), zero))


def _unasked(
    w: Tensor, lower: Tensor, upper: Tensor, coefficients: tuple[Tensor, ...], max_iter: int
) -> Tensor:
    """The same iterations in fewer calls, so many of them that no answer moves (see `_UNASKED`)."""
    log_odds, gap, bend, shift = coefficients
    ones, steep = torch.ones_like(bend), bend * gap
    for _ in range(min(max_iter, _UNASKED_DOUBLE if w.dtype == torch.float64 else _UNASKED)):
        absent = torch.addcmul(log_odds, gap, w, value=-1).sigmoid_()
        slope = torch.addcmul(ones, steep, torch.addcmul(absent, absent, absent, value=-1), value=-1)
        rise = torch.addcmul(shift, bend, absent).add_(w)
        w = torch.addcdiv(w, rise, slope.clamp_min_(1e-6), value=-1).clamp(lower, upper)
    return w


@compiled
def _one_prox(size: float, step: float, low: float, gap: float, spike_odds: float, max_iter: int) -> float:
    """`ssl_prox` of a positive number."""
    bend, shift = step * gap, step * low - size
    start, base, turn = max(-shift, 0.0), -np.log(spike_odds), 0.0
    if bend * gap > 4:
        turn = 2 * np.arctanh(min(np.sqrt(1 - 4 / (bend * gap)), 1 - 1e-15))
    end = min(max((-turn - base) / max(gap, 1e-12), 0.0), start)
    odds = spike_odds * np.exp(-gap * end)
    inside = shift + bend * spike_odds / (1 + spike_odds) < 0 <= end + shift + bend * odds / (1 + odds)
    best, lowest = 0.0, 0.0
    for side in range(1 if inside else 0, -1, -1):  # the spike's root where it has one, then the slab's
        lower = 0.0 if side else min(max((turn - base) / max(gap, 1e-12), 0.0), start)
        upper = end if side else start
        w = lower if side else upper
        for _ in range(max_iter):
            odds = spike_odds * np.exp(-gap * w)
            absent = odds / (1 + odds)
            slope = max(1 - bend * gap * absent * (1 - absent), 1e-6)
            new = min(max(w - (w + shift + bend * absent) / slope, lower), upper)
            moved, w = abs(new - w), new
            if moved <= 1e-9 * size:  # below what single precision keeps of the solution
                break
        gain = np.log1p(spike_odds * np.exp(-gap * w)) - np.log1p(spike_odds)
        value = w * (0.5 * w - size) + step * (low * w - gain)
        if value < lowest:
            best, lowest = w, value
    return best


@compiled
def _each_prox(
    v: NDArray[np.float32],
    t: NDArray[np.float32],
    eta: NDArray[np.float32],
    low: float,
    high: float,
    max_iter: int,
    solution: NDArray[np.float32],
) -> None:
    """`ssl_prox` of weights (R, G, K) one after the other, in double precision; `eta` may have axes of 1."""
    gap = high - low
    for r in range(v.shape[0]):
        for g in range(v.shape[1]):
            for k in range(v.shape[2]):
                slab = float(eta[r % eta.shape[0], g % eta.shape[1], k % eta.shape[2]])
                slab = min(max(slab, 1e-7), 1 - 1e-7)  # about single precision's epsilon, as in `ssl_prox`
                odds = (1 - slab) / slab * high / low  # of the spike at w = 0
                best = _one_prox(abs(float(v[r, g, k])), float(t[r, g, k]), low, gap, odds, max_iter)
                solution[r, g, k] = best if v[r, g, k] > 0 else -best
