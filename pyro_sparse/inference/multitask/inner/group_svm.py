r"""Multiclass SVM whose features come and go as groups: one row of weights per feature, all episodes at once.

.. math:: \min_W \sum_i \max_l (1 - Y_{il} + x_i W_l - x_i W_{y_i}) + \lambda_1 \sum_j \|W_j\| +
          \tfrac{\lambda_2}{2} \|W\|^2 = \max_{\Lambda_i \in \Delta_C}\; n - \langle Y, \Lambda \rangle
          - \tfrac{1}{2 \lambda_2} \|S(V)\|^2, \quad V = X^\top (Y - \Lambda),\; W = S(V) / \lambda_2

with :math:`S(V)_j = (1 - \lambda_1 / \|V_j\|)_+ V_j`. An episode has few examples, so the dual is solved: its
gradient :math:`Y - XW` has the Lipschitz constant :math:`\|X\|^2 / \lambda_2`, and accelerated projected
gradient, finished by Newton's steps on a face of the simplices, closes the gap (`svm_face.py`).
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ._check import check_episodes
from .implicit import GradientContext
from .svm_dual import SVMDual, simplex
from .svm_face import face_steps
from .svm_gradient import adjoint

__all__ = ["GroupSVM", "group_svm", "zero_weight_l1"]

_CHECK_EVERY = 25  # steps: a gap costs as much as a gradient
_NEAR, _WORTH = 1e-2, 0.1  # gap from which on Newton's steps are tried, and the share they must leave at most


class GroupSVM(NamedTuple):
    r"""Solution of `group_svm`.

    Attributes
    ----------
    weight : Tensor (..., feature, class)
        W; rows of features that are not used are exact zeros. Differentiable in the features and penalties.
    dual : Tensor (..., example, class)
        :math:`\Lambda`, float64; every row is in the simplex.
    gap : Tensor (...)
        Relative duality gap, (primal - dual) / primal, float64: W's objective is within this share of the
        least.
    active : Tensor of bool (..., feature)
        Features in use.
    converged : Tensor of bool (...)
        Whether the gap is within `tol`.
    """

    weight: Tensor
    dual: Tensor
    gap: Tensor
    active: Tensor
    converged: Tensor


def group_svm(
    x: Tensor,
    labels: Tensor,
    n_classes: int | None = None,
    *,
    sparsity: float | Tensor = 0.5,
    l2: float | Tensor = 1.0,
    tol: float = 1e-6,
    max_iter: int = 5000,
) -> GroupSVM:
    r"""Group-lasso multiclass SVM of each episode, without intercept.

    Parameters
    ----------
    x : Tensor (..., example, feature)
        Leading dimensions are episodes. Centre the features: there is no intercept.
    labels : Tensor of int (..., example)
        0 to ``n_classes - 1``.
    n_classes : int, optional
        C; default, the largest label plus one.
    sparsity : float or Tensor (...)
        :math:`\lambda_1` as a share of `zero_weight_l1`; 0 is the SVM of Crammer & Singer, 1 and more leave
        no feature.
    l2 : float or Tensor (...)
        :math:`\lambda_2 > 0`; ``1 / C`` of scikit-learn's ``LinearSVC(multi_class="crammer_singer")``.
    tol : float
        Relative duality gap to stop at.
    max_iter : int
        Steps after which to give up, with a warning.

    Returns
    -------
    GroupSVM
        `weight` in the dtype of `x`, the rest in float64, in which the problem is solved.

    Raises
    ------
    TypeError
        `x` is not of floating point, or `labels` are not whole numbers.
    ValueError
        Shapes that do not fit, values that are not finite, labels or penalties out of range.

    Warns
    -----
    ConvergenceWarning
        The gap is above `tol` after `max_iter` steps.

    Notes
    -----
    The gradient is that of the exact solution, and counts that :math:`\lambda_1` is a share of a limit that
    depends on `x`. Where the dual solution is not unique, or the set of features in use about to change, it
    is one of several one-sided derivatives.

    The objective is that of Lachapelle et al. (2023), Eq. 79, whose dual (Eq. 8) leaves the constant n out.

    References
    ----------
    Lachapelle et al. (2023), Synergies between disentanglement and sparsity, Eqs. 7, 8 and 79; Crammer &
    Singer (2001), JMLR 2; O'Donoghue & Candès (2015), Adaptive restart for accelerated gradient schemes.

    Examples
    --------
    >>> x = torch.tensor([[1.0, 0.1], [1.0, -0.1], [-1.0, 0.1], [-1.0, -0.1]])
    >>> svm = group_svm(x, torch.tensor([0, 0, 1, 1]), l2=0.5)
    >>> svm.active.tolist(), bool(svm.converged)
    ([True, False], True)
    """
    n_classes = check_episodes(x, labels, n_classes)
    if not tol > 0:
        raise ValueError(f"tol: got {tol}, wanted a positive number")
    if max_iter < 1:
        raise ValueError(f"max_iter: got {max_iter}, wanted at least 1")
    lead = x.shape[:-2]
    share, ridge = _per_episode("sparsity", sparsity, x), _per_episode("l2", l2, x)
    if (share < 0).any():
        raise ValueError(f"sparsity: got {float(share.min()):g}, wanted 0 or more (a share of the largest)")
    if (ridge <= 0).any():
        raise ValueError(f"l2: got {float(ridge.min()):g}, wanted a positive number (the dual needs it)")
    work = x.double()
    l1 = share * zero_weight_l1(work, labels, n_classes)
    y = _one_hot(labels, n_classes).reshape(-1, x.shape[-2], n_classes)
    flat = work.reshape(-1, *x.shape[-2:])
    weight, dual, gap = _Solve.apply(flat, l1.reshape(-1), ridge.reshape(-1), y, tol, max_iter)
    if bool((gap > tol).any()):
        from sklearn.exceptions import ConvergenceWarning  # late: `ps.fit` starts without scikit-learn

        warnings.warn(
            f"group_svm: relative duality gap {float(gap.max()):.2g} after {max_iter} steps, wanted {tol:g} "
            f"({int((gap > tol).sum())} of {len(gap)} episodes); raise max_iter or l2, or centre and scale x",
            ConvergenceWarning,
            stacklevel=2,
        )
    return GroupSVM(
        weight.reshape(*lead, *weight.shape[1:]).to(x.dtype),
        dual.reshape(*lead, *dual.shape[1:]),
        gap.reshape(lead),
        (weight.detach() != 0).any(-1).reshape(*lead, -1),
        (gap <= tol).reshape(lead),
    )


def zero_weight_l1(x: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    r"""The :math:`\lambda_1` from which on no feature is used.

    .. math:: \lambda_1^{\max} = \tfrac{C}{C - 1} \max_j \|[X^\top (Y - 1/C)]_j\|

    At W = 0 the hinge's subgradients spread each example's unit over the *wrong* classes,
    :math:`\Lambda_{i y_i} = 0`. Spread evenly they give this formula: sharp for two classes, sufficient for
    more, where another spread may need less. The factor :math:`C / (C - 1)` belongs to it: the gradient of
    the hinge at 0 is not that of a softmax.

    Parameters
    ----------
    x : Tensor (..., example, feature)
    labels : Tensor of int (..., example)
    n_classes : int
        C, at least 2.

    Returns
    -------
    Tensor (...)
        Differentiable in `x`.
    """
    v = x.mT @ (_one_hot(labels, n_classes).to(x.dtype) - 1.0 / n_classes)
    return n_classes / (n_classes - 1) * v.norm(dim=-1).amax(-1)


class _Solve(torch.autograd.Function):
    """Episodes (episode, example, feature) to weights, with the implicit gradient."""

    @staticmethod
    def forward(
        ctx: GradientContext, x: Tensor, l1: Tensor, l2: Tensor, y: Tensor, tol: float, max_iter: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        problem = SVMDual(x, y, l1, l2)
        dual, gap = _accelerated(problem, tol, max_iter)
        ctx.save_for_backward(*problem, dual)
        ctx.mark_non_differentiable(dual, gap)
        return problem.weight(dual), dual, gap

    @staticmethod
    @once_differentiable
    def backward(ctx: GradientContext, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        *problem, dual = ctx.saved_tensors
        return (*adjoint(SVMDual(*problem), dual, grad), None, None, None)


def _accelerated(problem: SVMDual, tol: float, max_iter: int) -> tuple[Tensor, Tensor]:
    """Dual solution and its gap, by accelerated projected gradient with what `face_steps` adds."""
    top = torch.linalg.matrix_norm(problem.x, 2).square()
    step = (problem.l2 / top.clamp_min(torch.finfo(top.dtype).tiny ** 0.5))[:, None, None]
    dual = torch.full_like(problem.y, 1.0 / problem.y.shape[-1])
    ahead, momentum, gap = dual, torch.ones_like(step), problem.gap(dual)
    for k in range(1, max_iter + 1):
        new = simplex(ahead - step * problem.gradient(ahead))
        move = new - dual
        uphill = ((ahead - new) * move).sum((-1, -2), keepdim=True) > 0  # then the momentum is dropped
        momentum = torch.where(uphill, 1.0, momentum)
        grown = (1 + (1 + 4 * momentum.square()).sqrt()) / 2
        ahead = torch.where(uphill, new, new + (momentum - 1) / grown * move)
        dual, momentum = new, grown
        if k % _CHECK_EVERY == 0 or k == max_iter:
            gap = problem.gap(dual)
            near = ((gap > tol) & (gap < _NEAR)).nonzero()[:, 0]
            if len(near):
                some = problem.of(near)
                refined = face_steps(some, dual[near])
                good = some.gap(refined) < _WORTH * gap[near]  # a restart for less would cost its momentum
                near, refined = near[good], refined[good]
                dual, ahead = dual.index_copy(0, near, refined), ahead.index_copy(0, near, refined)
                momentum = momentum.index_fill(0, near, 1.0)
                gap = problem.gap(dual)
            if bool((gap <= tol).all()):
                break
    refined = face_steps(problem, dual)  # the gradient wants the very face
    better = (its := problem.gap(refined)) <= gap
    return torch.where(better[:, None, None], refined, dual), torch.where(better, its, gap)


def _one_hot(labels: Tensor, n_classes: int) -> Tensor:
    return torch.nn.functional.one_hot(labels.long(), n_classes).double()


def _per_episode(name: str, value: float | Tensor, x: Tensor) -> Tensor:
    tensor = torch.as_tensor(value, dtype=torch.float64, device=x.device)
    if not torch.isfinite(tensor).all():
        raise ValueError(f"{name}: got {value}, wanted finite numbers")
    try:
        return tensor.expand(x.shape[:-2])
    except RuntimeError:
        raise ValueError(
            f"{name}: got shape {tuple(tensor.shape)}, wanted a number or one per episode, "
            f"{tuple(x.shape[:-2])}"
        ) from None
