r"""Linear regression under the spike-and-slab lasso, by exact coordinate descent along a ladder of spikes.

.. math:: \min_{\beta, \eta}\; \frac{1}{2\sigma^2} \lVert y - X\beta \rVert^2
          - \sum_j \log[\eta\psi_1(\beta_j) + (1-\eta)\psi_0(\beta_j)] - \log \mathrm{Beta}(\eta; a, b)

Given the others, one coefficient is the proximal map of the penalty with step
:math:`\sigma^2 / \lVert x_j \rVert^2`, solved globally; eta has its M-step after every sweep. Each spike of
the ladder starts from the last one's mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from . import em
from .spike_slab import check_positive

__all__ = ["SSLRegression", "ssl_regression"]


class SSLRegression(NamedTuple):
    """What :func:`ssl_regression` returns.

    Attributes
    ----------
    coef : Tensor
        The mode found, shape (..., P), with exact zeros.
    eta : Tensor
        Inclusion probability at the mode, shape (..., 1).
    prob : Tensor
        Probability of each edge given its coefficient, shape (..., P). A score, not a posterior.
    sweeps : int
        Sweeps over the coefficients, all levels together.
    converged : bool
        Whether the last level met the tolerance.
    """

    coef: Tensor
    eta: Tensor
    prob: Tensor
    sweeps: int
    converged: bool


def ssl_regression(
    X: Tensor,
    y: Tensor,
    ladder: Sequence[float],
    lambda1: float = 1.0,
    sigma: float = 1.0,
    eta: float = 0.5,
    beta_prior: tuple[float, float] | None = None,
    start: Tensor | None = None,
    max_sweeps: int = 1000,
    tol: float = 1e-10,
) -> SSLRegression:
    r"""Mode of the spike-and-slab lasso posterior of a linear regression with known noise.

    Parameters
    ----------
    X : Tensor
        Design, shape (..., N, P); leading dimensions are separate problems and broadcast with those of ``y``.
    y : Tensor
        Response, shape (..., N). There is no intercept: centre both.
    ladder : sequence of float
        The spikes lambda0 to go through, each at least ``lambda1``.
    lambda1 : float
        Rate of the slab.
    sigma : float
        Standard deviation of the noise.
    eta : float
        Inclusion probability; the start of it when it is learned.
    beta_prior : (float, float), optional
        Beta prior (a, b): learn eta, one per problem. Default: eta stays.
    start : Tensor, optional
        Coefficients to start from, broadcastable to (..., P). Default: zero.
    max_sweeps : int
        Limit per level of the ladder.
    tol : float
        A level ends when a sweep moves no coefficient by more than this times the largest (at least one);
        never below 8 machine epsilons.

    Returns
    -------
    SSLRegression
        Mode, eta, edge probabilities and how the search went.

    Raises
    ------
    ValueError
        If shapes do not fit, a column of X is zero, or a number is out of range.

    Examples
    --------
    >>> import torch
    >>> from pyro_sparse.priors import ssl_regression
    >>> X = torch.randn(100, 8, generator=torch.Generator().manual_seed(0))
    >>> y = 2 * X[:, 1] - X[:, 4]
    >>> found = ssl_regression(X, y, ladder=[1.0, 10.0, 100.0], sigma=0.5)
    >>> found.coef.nonzero().flatten()
    tensor([1, 4])

    References
    ----------
    Ročková and George (2018), The Spike-and-Slab LASSO, JASA 113, section 4 (they use a fixed-point step).
    """
    check_positive(lambda1=lambda1, sigma=sigma)
    if X.dim() < 2 or y.dim() < 1 or X.shape[-2] != y.shape[-1]:
        raise ValueError(
            f"X is {tuple(X.shape)} and y {tuple(y.shape)}; they must be (..., N, P) and (..., N)."
        )
    if not 0 < eta < 1:
        raise ValueError(f"eta is {eta!r}; it must be inside (0, 1).")
    if not len(ladder) or min(ladder) < lambda1:
        raise ValueError(
            f"ladder is {ladder!r}; it must hold at least one lambda0, none below lambda1={lambda1}."
        )
    gram, moment = X.mT @ X, (X.mT @ y[..., None]).squeeze(-1)
    square = gram.diagonal(dim1=-2, dim2=-1)
    if not bool((square > 0).all()):
        raise ValueError("X has a column of zeros; drop it, nothing can be learned about its coefficient.")
    coef = torch.zeros_like(moment) if start is None else start.to(moment).expand_as(moment).clone()
    share = moment.new_full((*moment.shape[:-1], 1), eta)
    step = sigma**2 / square
    sweeps, converged, tol = 0, False, max(tol, 8 * torch.finfo(moment.dtype).eps)
    for lambda0 in ladder:
        for _ in range(max_sweeps):
            before = coef.clone()
            for j in range(coef.shape[-1]):
                fit = (gram[..., j, :] * coef).sum(-1)
                free = coef[..., j] + (moment[..., j] - fit) / square[..., j]
                coef[..., j] = em.ssl_prox(free, step[..., j], share[..., 0], lambda1, lambda0)
            moved = (coef - before).abs().amax()
            if beta_prior is not None:
                prob = em.edge_probability(coef, share, lambda1, lambda0)
                new = em.eta_step(prob[..., None], *beta_prior)[..., 0]
                moved = torch.maximum(moved, (new - share).abs().amax())
                share = new
            sweeps += 1
            converged = bool(moved <= tol * coef.abs().amax().clamp(min=1.0))
            if converged:
                break
    prob = em.edge_probability(coef, share, lambda1, ladder[-1])
    return SSLRegression(coef, share, prob, sweeps, converged)
