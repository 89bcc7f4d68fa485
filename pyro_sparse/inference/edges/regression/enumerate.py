r"""All supports of a sparse linear row: the exact posterior, for up to 15 features.

.. math:: p(\gamma \mid y) \propto p(\gamma)\, |M_\gamma|^{-1/2}
          e^{-\frac{1}{2 \sigma^2}(y'y - h_\gamma' M_\gamma^{-1} h_\gamma)}, \qquad
          M = I + S F'F S / \sigma^2

in units of the normal slab. One tree serves all :math:`2^m` supports: at its k-th fork feature k is either
struck out of M or eliminated as Cholesky does, so that a support costs a few operations. Learned noise is
integrated: in closed form where the slab is in its units (a Student density), else on a grid of its log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, expit, gammainccinv, gammaincinv, gammaln, logsumexp, polygamma
from torch import Tensor

from ....models._task_noise import log_inverse_gamma
from .noise_levels import log_noise_prior
from .row_checks import Rows, rows_of
from .rows import RowDraws, RowPosterior, RowPrior

__all__ = ["MAX_FEATURES", "enumerate_edges"]

MAX_FEATURES = 15  # 32,768 supports a task; each feature more doubles time and memory
_BUDGET = 2**20  # supports times noise levels held at a time
_TAIL = 1e-11  # of the noise's distribution, left out of the grid at either end
_STEP = 0.7  # of the grid, in posterior standard deviations: a trapezoid rule then errs below 1e-9
_FINE_STEP = 0.2  # of learned noise, whose prior may be narrower than what a few rows say
_LEAST_NOISE = (1.0, 0.001)  # what the grid of learned noise reaches down to, where rows do not say

Array = NDArray[np.float64]


def enumerate_edges(
    features: ArrayLike, targets: ArrayLike, prior: RowPrior, mask: ArrayLike | None = None
) -> RowPosterior:
    """Exact edge probabilities of sparse linear rows with a normal slab and a point mass at zero.

    Parameters
    ----------
    features : array_like of shape (..., task, sample, feature)
    targets : array_like of shape (..., task, sample)
    prior : RowPrior
        ``slab="normal"``; `eta` known or of a row (``eta_over="row"``).
    mask : array_like of bool, shape (..., task, sample), optional
        Samples that exist; what stands elsewhere is not looked at.

    Returns
    -------
    RowPosterior
        A feature that is constant in a task keeps the probability that the prior and the other features of
        the row give it. Draws of edges and weights are exact, and so is `log_evidence`.

    Raises
    ------
    ValueError
        If an input does not fit, there are more than 15 features, or the prior is not one of the above.

    Notes
    -----
    Time grows as the number of tasks times 2^m, and memory as 2^m: large tables are done in pieces. Learned
    noise with ``slab_units="target"`` costs some 50 times as much, and more where noise is a small part of
    the targets' variance; with ``slab_units="noise"`` it is free.

    References
    ----------
    George and McCulloch (1997), Approaches for Bayesian variable selection, Statistica Sinica 7.
    """
    if prior.slab != "normal":
        raise ValueError(
            f'slab: enumeration wants "normal", got {prior.slab!r}; use expectation propagation or Gibbs'
        )
    if prior.eta is None and prior.eta_over != "row":
        raise ValueError(
            f'eta_over: enumeration wants "row", got {prior.eta_over!r}; use expectation propagation, or '
            "give eta"
        )
    rows = rows_of(features, targets, prior, mask)
    m = rows.cross.shape[-1]
    if m > MAX_FEATURES:
        raise ValueError(
            f"features: enumeration wants at most {MAX_FEATURES} features, got {m}; use expectation "
            "propagation"
        )
    shape = rows.cross.shape
    log_noise = _learned(rows, prior) if rows.noise is None and prior.noise_prior == "learned" else None
    moments = [_moments(chunk) for chunk in _chunks(rows, prior, log_noise)]
    prob, first, second, size, rate, evidence = (np.concatenate(p) for p in zip(*moments, strict=True))
    scale = rows.scale.reshape(-1, m)
    if rows.log_odds is None:
        a, b = prior.eta_prior
        eta = np.broadcast_to(((a + size) / (a + b + m))[:, None], prob.shape)
    else:
        eta = expit(rows.log_odds)
    return RowPosterior(
        edge_prob=np.clip(prob, 0, 1).reshape(shape),
        weight_mean=(scale * first).reshape(shape),
        weight_sd=(scale * np.sqrt(np.maximum(second - first**2, 0))).reshape(shape),
        eta=eta.reshape(shape).copy(),
        noise_variance=(1 / rate).reshape(shape[:-1]),
        log_evidence=evidence.reshape(shape[:-1]),
        converged=np.ones(shape[:-1], dtype=bool),
        gap=np.zeros(shape),
        sampler=_sampler(rows, prior, log_noise),
    )


class _Chunk(NamedTuple):
    """Some rows, flat: (row, ...), and levels of the noise for each, (row, level)."""

    gram: Array
    cross: Array
    square: Array
    dof: Array
    noise: Array
    log_weight: Array  # of the levels: log of prior density times width, and constants of the likelihood
    log_prior: Array  # (row, support)
    student: tuple[float, float] | None  # the inverse gamma, if it is integrated in closed form


class _Tree(NamedTuple):
    """For every row, level and support: log|M|, remaining squares, log joint, E[noise | support, level]."""

    log_det: Tensor
    rest: Tensor
    log_joint: Array
    noise: Array


def _supports(m: int) -> NDArray[np.int8]:
    """Shape (2^m, m); feature k is bit k."""
    return ((np.arange(2**m)[:, None] >> np.arange(m)) & 1).astype(np.int8)


def _learned(rows: Rows, prior: RowPrior) -> Array:
    """Log density of the log noise (row, level) where the tasks share what its prior learns."""
    log_like, levels = [], []
    for chunk in _chunks(rows, prior, np.zeros(1)):
        joint = _tree(chunk, torch.as_tensor(chunk.gram), torch.as_tensor(chunk.cross)).log_joint
        width = np.log(np.log(chunk.noise[:, 1:2] / chunk.noise[:, :1]))
        log_like.append(logsumexp(joint, axis=2) - width)
        levels.append(np.log(chunk.noise))
    log_levels, log_likelihood = np.concatenate(levels).T, np.concatenate(log_like).T
    return log_noise_prior(log_levels, log_likelihood, prior, rows.square.shape).T


def _chunks(rows: Rows, prior: RowPrior, log_noise: Array | None = None) -> Iterator[_Chunk]:
    """Some rows at a time; `log_noise` (row, level), the log density of learned log noise, is the prior's."""
    m = rows.cross.shape[-1]
    gram, cross = rows.gram.reshape(-1, m, m), rows.cross.reshape(-1, m)
    square, dof, samples = rows.square.ravel(), rows.dof.ravel(), rows.samples.ravel()
    student = None
    if rows.noise is None and prior.slab_units == "noise" and not isinstance(prior.noise_prior, str):
        student = prior.noise_prior
    if rows.noise is not None:
        noise, log_weight = rows.noise.reshape(-1, 1).copy(), np.zeros((len(square), 1))
    elif student is not None:
        noise, log_weight = np.ones((len(square), 1)), np.zeros((len(square), 1))
    else:
        noise, log_weight = _noise_grid(gram, cross, square, dof, prior, log_noise)
    constant = dof * np.log(2 * np.pi) + prior.intercept * np.log(samples)
    log_weight = log_weight - 0.5 * constant[:, None]
    supports = _supports(m)
    if rows.log_odds is None:
        a, b = prior.eta_prior
        size = supports.sum(1)
        log_prior = np.broadcast_to(betaln(a + size, b + m - size) - betaln(a, b), (len(square), 2**m))
    else:
        log_odds = rows.log_odds.reshape(-1, m)
        log_prior = log_odds @ supports.T - np.logaddexp(0, log_odds).sum(1, keepdims=True)
    step = max(1, _BUDGET // (2**m * noise.shape[1]))
    for i in range(0, len(square), step):
        some = slice(i, i + step)
        yield _Chunk(
            gram[some],
            cross[some],
            square[some],
            dof[some],
            noise[some],
            log_weight[some],
            log_prior[some],
            student,
        )


def _noise_grid(
    gram: Array, cross: Array, square: Array, dof: Array, prior: RowPrior, log_noise: Array | None
) -> tuple[Array, Array]:
    """Levels of the noise variance, shape (row, level), and the log of their prior mass.

    The grid runs from the noise of a least-squares fit of all features to that of none.
    """
    a, b = _LEAST_NOISE if isinstance(prior.noise_prior, str) else prior.noise_prior
    m = cross.shape[-1]
    fitted = (cross * (np.linalg.pinv(gram, hermitian=True) @ cross[..., None])[..., 0]).sum(-1)
    least = np.maximum(square - fitted, 0)
    slack = a + np.maximum(dof - m, 0) / 2
    low = np.log((b + least / 2) / gammainccinv(slack, _TAIL))
    high = np.log((b + square / 2) / gammaincinv(slack, _TAIL))
    step = _STEP if log_noise is None else _FINE_STEP
    width = step * np.sqrt(polygamma(1, a + dof / 2))
    points = int(np.ceil(((high - low) / width).max())) + 1
    width = (high - low) / max(points - 1, 1)
    x = low[:, None] + width[:, None] * np.arange(points)
    log_density = log_inverse_gamma(x, a, b) if log_noise is None else log_noise
    return np.exp(x), np.log(width)[:, None] + log_density


def _grow(gram: Tensor, cross: Tensor, square: Tensor) -> tuple[Tensor, Tensor]:
    """log|M| and y'y - h'M^-1 h of all supports: (..., 2^m) each, from (..., m, m), (..., m) and (...)."""
    m = cross.shape[-1]
    top = torch.cat([torch.eye(m, dtype=gram.dtype) + gram, cross.unsqueeze(-1)], -1)
    bottom = torch.cat([cross, square.unsqueeze(-1)], -1).unsqueeze(-2)
    state = torch.cat([top, bottom], -2).unsqueeze(-3)
    log_det = torch.zeros(state.shape[:-2], dtype=gram.dtype)
    for _ in range(m):
        column, kept = state[..., 1:, 0], state[..., 1:, 1:]
        pivot = state[..., 0, 0]
        # At least 1 but for rounding, M - I being a Gram matrix. The slope of `clamp` at 1, where a constant
        # feature lies, differs between versions of torch: here it is 1.
        pivot = pivot + (1 - pivot).clamp(min=0).detach()
        scaled = column / pivot.unsqueeze(-1)
        state = torch.cat([kept, kept - column.unsqueeze(-1) * scaled.unsqueeze(-2)], -3)
        log_det = torch.cat([log_det, log_det + pivot.log()], -1)
    return log_det, state[..., 0, 0].clamp(min=0)


def _tree(chunk: _Chunk, gram: Tensor, cross: Tensor) -> _Tree:
    noise = torch.as_tensor(chunk.noise)
    square = torch.as_tensor(chunk.square).unsqueeze(-1) / noise
    scaled = gram.unsqueeze(1) / noise[..., None, None], cross.unsqueeze(1) / noise[..., None]
    log_det, residual = _grow(*scaled, square)
    log_det_values, left = log_det.detach().numpy(), residual.detach().numpy()
    half = 0.5 * chunk.dof[:, None, None]
    if chunk.student is None:
        fit = -half * np.log(chunk.noise)[..., None] - 0.5 * left
        level = np.ones_like(fit)
    else:
        a, b = chunk.student
        fit = a * np.log(b) - gammaln(a) + gammaln(a + half) - (a + half) * np.log(b + 0.5 * left)
        level = (b + 0.5 * left) / (a + half - 1)
    log_joint = fit - 0.5 * log_det_values + chunk.log_weight[..., None] + chunk.log_prior[:, None]
    return _Tree(log_det, residual, log_joint, level)


def _moments(chunk: _Chunk) -> tuple[Array, Array, Array, Array, Array, Array]:
    """P(edge), E[u], E[u^2], E[size], E[1 / noise] and log evidence of each row."""
    gram = torch.tensor(chunk.gram, requires_grad=True)
    cross = torch.tensor(chunk.cross, requires_grad=True)
    tree = _tree(chunk, gram, cross)
    evidence = logsumexp(tree.log_joint, axis=(1, 2))
    weight = np.exp(tree.log_joint - evidence[:, None, None])
    # With the weights of the supports held, d(-rest/2)/dh = M^-1 h, and slopes in M's diagonal are second
    # moments: one backward pass gives what substitution in every support would.
    weights = torch.as_tensor(weight), torch.as_tensor(weight * tree.noise)
    # gram and cross are divided by the noise within, so their slopes are weighted by it: undone here.
    noise = torch.as_tensor(chunk.noise)[..., None]
    total = -0.5 * noise * (weights[1] * tree.log_det + weights[0] * tree.rest)
    slope, first = torch.autograd.grad(total.sum(), (gram, cross))
    second = -2 * torch.diagonal(slope, dim1=-2, dim2=-1).numpy()
    supports = _supports(chunk.cross.shape[-1])
    by_support = weight.sum(1)
    if chunk.student is None:
        precision = (weight.sum(2) / chunk.noise).sum(1)
    else:
        a, b = chunk.student
        shape = a + 0.5 * chunk.dof[:, None]
        left = tree.rest.detach().numpy()[:, 0]
        precision = (by_support * shape / (b + 0.5 * left)).sum(1)
    return by_support @ supports, first.numpy(), second, by_support @ supports.sum(1), precision, evidence


def _sampler(
    rows: Rows, prior: RowPrior, log_noise: Array | None
) -> Callable[[int, np.random.Generator], RowDraws]:
    def sample(n: int, rng: np.random.Generator) -> RowDraws:
        draws = [_sample(chunk, n, rng) for chunk in _chunks(rows, prior, log_noise)]
        edge, weight = (np.concatenate(p, axis=1) for p in zip(*draws, strict=True))
        shape = (n, *rows.cross.shape)
        return RowDraws(edge.reshape(shape), weight.reshape(shape) * rows.scale)

    return sample


def _sample(chunk: _Chunk, n: int, rng: np.random.Generator) -> tuple[NDArray[np.int8], Array]:
    """Edges and weights in units of the slab, (draw, row, feature)."""
    m = chunk.cross.shape[-1]
    tree = _tree(chunk, torch.as_tensor(chunk.gram), torch.as_tensor(chunk.cross))
    edge = np.empty((n, len(chunk.cross), m), dtype=np.int8)
    weight = np.zeros(edge.shape)
    for i, log_joint in enumerate(tree.log_joint):
        flat = log_joint.ravel()
        above = np.cumsum(np.exp(flat - flat.max()))
        # From the right, since the first entry of a run without mass must not be drawn.
        picked = np.searchsorted(above, above[-1] * rng.random(n), side="right").clip(max=len(flat) - 1)
        level, support = np.unravel_index(picked, log_joint.shape)
        edge[:, i] = _supports(m)[support]
        noise = chunk.noise[i, level]
        spread = np.ones(n)
        if chunk.student is not None:
            a, b = chunk.student
            left = tree.rest[i, 0].numpy()[support]
            spread = np.sqrt((b + 0.5 * left) / rng.gamma(a + 0.5 * chunk.dof[i], size=n))
        on = edge[:, i].astype(float)
        matrix = np.eye(m) + on[:, :, None] * on[:, None, :] * chunk.gram[i] / noise[:, None, None]
        lower = np.linalg.cholesky(matrix)
        mean = np.linalg.solve(matrix, (on * chunk.cross[i] / noise[:, None])[..., None])
        wiggle = np.linalg.solve(np.swapaxes(lower, -1, -2), rng.standard_normal((n, m, 1)))
        weight[:, i] = on * (mean[..., 0] + spread[:, None] * wiggle[..., 0])
    return edge, weight
