r"""A penalty for every task, from the data: a grid below its largest useful value, and folds or a criterion.

.. math:: \lambda_1 = \lambda_{\max}(F_t) > \dots > \lambda_L = r \lambda_{\max}(F_t)

Every solution starts from the last one's. Folds are tasks like any other, so all of them are solved in one
batch.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .glm import FAMILIES, half_deviance, sparse_glm
from .lasso import largest_penalty, sparse_weights
from .moments import moments, sample_weights
from .ridge import ridge_weights

__all__ = ["PenaltyChoice", "choose_penalty", "penalty_grid"]


class PenaltyChoice(NamedTuple):
    """What `choose_penalty` returns.

    Attributes
    ----------
    penalty : Tensor (task,)
        The chosen one.
    grid : Tensor (task, level)
        Those that were tried, falling.
    score : Tensor (task, level)
        What was minimised: mean loss of samples left out, or the information criterion per sample.
    """

    penalty: Tensor
    grid: Tensor
    score: Tensor


def penalty_grid(largest: Tensor, levels: int = 30, ratio: float = 1e-3) -> Tensor:
    """Falling penalties of every task, equally spaced in their logarithm.

    Parameters
    ----------
    largest : Tensor (task,)
        See `largest_penalty`.
    levels : int
        At least 2.
    ratio : float
        Last over first, in (0, 1).

    Returns
    -------
    Tensor (task, level)

    Raises
    ------
    ValueError
        Fewer than two levels, or a ratio outside (0, 1).
    """
    if levels < 2 or not 0 < ratio < 1:
        raise ValueError(f"levels: want >= 2, got {levels}; ratio: want in (0, 1), got {ratio}")
    steps = torch.linspace(0, 1, levels, dtype=largest.dtype, device=largest.device)
    return largest.unsqueeze(1) * ratio**steps


def choose_penalty(
    features: Tensor,
    targets: Tensor,
    *,
    by: str = "cv",
    kind: str = "lasso",
    family: str = "normal",
    mask: Tensor | None = None,
    folds: int = 5,
    levels: int = 30,
    ratio: float = 1e-3,
    per_task: bool = True,
    seed: int = 0,
) -> PenaltyChoice:
    r"""Choose the penalty of every task.

    Parameters
    ----------
    features : Tensor (task, sample, feature)
    targets : Tensor (task, sample, output)
    by : {"cv", "bic", "aic", "ebic"}
        Folds, or :math:`-2 \log(\text{likelihood}) / n + c \cdot \text{(weights in use)} / n` with c = log n,
        2, or log n + log(features); the variance of normal targets is estimated at each level. Criteria are
        for the lasso with fewer features than samples: else the variance may come to nothing.
    kind : {"lasso", "ridge"}
        "ridge" chooses :math:`\kappa`; its grid begins at :math:`\lVert F_t \rVert_F^2 / n`.
    family : {"normal", "bernoulli", "poisson"}
        The last two with one output, and "lasso" only.
    mask : Tensor of bool (task, sample), optional
    folds : int
        At least 2; no more than the samples of the smallest task. Ones and zeros (counts and zeros) are dealt
        out evenly.
    levels, ratio : int, float
        See `penalty_grid`.
    per_task : bool
        False: one *share* of the largest penalty for all tasks, by the sum of their scores.
    seed : int
        Of the folds.

    Returns
    -------
    PenaltyChoice

    Raises
    ------
    ValueError
        A name that does not exist, folds that leave a task without samples, or with one class only.

    References
    ----------
    Chen and Chen (2008), Extended Bayesian information criteria (with its gamma = 1/2).
    """
    if by not in ("cv", "bic", "aic", "ebic"):
        raise ValueError(f"by: want cv, bic, aic or ebic, got {by!r}")
    if kind not in ("lasso", "ridge") or (kind == "ridge" and (by != "cv" or family != "normal")):
        raise ValueError(f"kind: want lasso, or ridge with by='cv' and family='normal'; got {kind!r}")
    if family != "normal" and family not in FAMILIES:
        raise ValueError(f"family: want normal, {' or '.join(FAMILIES)}, got {family!r}")
    with torch.no_grad():
        observed = torch.ones(features.shape[:2], dtype=torch.bool) if mask is None else mask
        observed = observed.to(features.device)
        data = moments(features, targets, observed)
        if kind == "lasso":
            grid = penalty_grid(largest_penalty(data), levels, ratio)
        else:
            grid = penalty_grid(data.gram.diagonal(dim1=1, dim2=2).sum(1), levels, ratio)
        if by == "cv":
            fold = _folds(observed, targets[..., 0] > 0, family, folds, seed)
            score = _left_out(features, targets, observed, grid, kind, family, fold)
        else:
            score = _criterion(features, targets, observed, grid, family, by)
        level = score.argmin(1) if per_task else score.sum(0).argmin().expand(len(grid))
        return PenaltyChoice(grid.gather(1, level.unsqueeze(1))[:, 0], grid, score)


def _folds(mask: Tensor, above: Tensor, family: str, folds: int, seed: int) -> Tensor:
    """Fold of every sample, as equal in size as can be within each task (and class)."""
    fewest = int(mask.sum(1).min()) if len(mask) else folds
    if not 2 <= folds <= fewest:
        raise ValueError(f"folds: want 2 to {fewest} (the samples of the smallest task), got {folds}")
    generator = torch.Generator().manual_seed(seed)
    # Masked samples come last, so that those seen are dealt out evenly.
    place = torch.rand(mask.shape, generator=generator).to(mask.device) + 2 * (~mask)
    if family != "normal":
        place = place + above
        needed = (above, ~above) if family == "bernoulli" else (above,)
        single = torch.stack([(group & mask).sum(1) < 2 for group in needed]).any(0).nonzero()[:, 0].tolist()
        if single:
            raise ValueError(
                f"targets: tasks {single[:5]} have fewer than two ones, zeros or positive counts, so "
                "that a fold leaves none to learn from; drop them or choose by a criterion"
            )
    return place.argsort(1).argsort(1) % folds


def _along(
    features: Tensor, targets: Tensor, mask: Tensor, grid: Tensor, kind: str, family: str
) -> list[tuple[Tensor, Tensor]]:
    """Weights and intercepts at every level."""
    solutions = []
    weight = None
    data = moments(features, targets, mask)
    for level in range(grid.shape[1]):
        if family != "normal":
            answer = sparse_glm(features, targets, grid[:, level], family, mask=mask, start=weight, tol=1e-6)
            weight, intercept = answer.weight, answer.intercept
        else:
            if kind == "lasso":
                weight = sparse_weights(data, grid[:, level], start=weight, tol=1e-7).weight
            else:
                weight = ridge_weights(data, grid[:, level])
            intercept = data.intercept(weight)
        solutions.append((weight, intercept))
    return solutions


def _loss(predicted: Tensor, targets: Tensor, share: Tensor, family: str) -> Tensor:
    if family == "normal":
        loss = 0.5 * (targets - predicted) ** 2
    else:
        loss = half_deviance(FAMILIES[family], predicted, targets)
    return (share * torch.where(share > 0, loss, torch.zeros_like(loss))).sum((1, 2))


def _left_out(
    features: Tensor, targets: Tensor, mask: Tensor, grid: Tensor, kind: str, family: str, fold: Tensor
) -> Tensor:
    n_folds = int(fold[mask].max()) + 1
    inside = torch.cat([mask & (fold != k) for k in range(n_folds)])
    outside = torch.cat([mask & (fold == k) for k in range(n_folds)])
    x, y = features.repeat(n_folds, 1, 1), targets.repeat(n_folds, 1, 1)
    share = sample_weights(x, outside).unsqueeze(-1)
    paths = _along(x, y, inside, grid.repeat(n_folds, 1), kind, family)
    losses = [_loss(x @ w + b.unsqueeze(1), y, share, family) for w, b in paths]
    return torch.stack(losses, 1).reshape(n_folds, len(grid), -1).mean(0)


def _criterion(features: Tensor, targets: Tensor, mask: Tensor, grid: Tensor, family: str, by: str) -> Tensor:
    n = mask.sum(1).to(features)
    share = sample_weights(features, mask).unsqueeze(-1)
    price = {"aic": torch.full_like(n, 2.0), "bic": n.log()}.get(by, n.log() + math.log(features.shape[-1]))
    scores = []
    for weight, intercept in _along(features, targets, mask, grid, "lasso", family):
        loss = _loss(features @ weight + intercept.unsqueeze(1), targets, share, family)
        used = (weight != 0).sum((1, 2))
        n_outputs = targets.shape[2]
        fit = n_outputs * (2 * loss / n_outputs).clamp(min=1e-300).log() if family == "normal" else 2 * loss
        scores.append(fit + price * used / n)
    return torch.stack(scores, 1)
