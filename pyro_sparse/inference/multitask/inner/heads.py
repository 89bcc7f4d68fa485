r"""Heads of few-shot classification: what turns labelled support features into scores of query features.

.. math:: s(q) = q^\top W(X, y) + b(X, y)

Every head is linear in the query and differentiable in the support, so that one trainer serves all: the
group-lasso SVM (dense where its sparsity is 0), ridge regression of one-hot labels, and class prototypes.
They stand beside `group_svm` because each is a convex problem inside a bilevel fit, without parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ._check import check_episodes
from .group_svm import group_svm

__all__ = ["GroupSVMHead", "Head", "LinearHead", "PrototypeHead", "RidgeHead", "get_head"]


class LinearHead(NamedTuple):
    """A fitted head: scores are ``query @ weight + bias``.

    Attributes
    ----------
    weight : Tensor (..., feature, class)
        A feature that is not used has a row of exact zeros.
    bias : Tensor (..., class)
    gap : Tensor (...)
        Relative duality gap of the fit; 0 for closed forms.
    """

    weight: Tensor
    bias: Tensor
    gap: Tensor

    def scores(self, query: Tensor) -> Tensor:
        """Scores (..., query, class) of query features (..., query, feature)."""
        return query @ self.weight + self.bias[..., None, :]


class Head:
    """Base of the heads: a subclass says how to `fit`.

    Calling a head, ``head(support, labels, query)``, gives the scores of the query.
    """

    def fit(self, support: Tensor, labels: Tensor, n_classes: int | None = None) -> LinearHead:
        """Fit to support features (..., example, feature) with labels (..., example)."""
        raise NotImplementedError

    def __call__(
        self, support: Tensor, labels: Tensor, query: Tensor, n_classes: int | None = None
    ) -> Tensor:
        """Scores (..., query, class) of query features (..., query, feature).

        Raises
        ------
        ValueError
            Support and query have different features or episodes.
        """
        if query.ndim != support.ndim or query.shape[-1] != support.shape[-1]:
            raise ValueError(
                f"query: got shape {tuple(query.shape)}, wanted (..., query, feature) with the episodes and "
                f"features of support, {tuple(support.shape)}"
            )
        return self.fit(support, labels, n_classes).scores(query)


@dataclass(frozen=True)
class GroupSVMHead(Head):
    r"""Group-lasso multiclass SVM; :math:`\lambda_2 = \mathrm{ridge} \cdot \|X\|_F^2 / n`.

    Parameters
    ----------
    sparsity : float
        Share of the :math:`\lambda_1` that leaves no feature; 0 is the dense SVM.
    ridge : float
        In units of the mean squared norm of an example, so that the scale of the features does not matter.
        The smaller it is, the fewer features a given `sparsity` leaves, and the longer the solver takes.
    tol, max_iter
        As in `group_svm`.

    Examples
    --------
    >>> x = torch.tensor([[1.0, 0.1], [1.0, -0.1], [-1.0, 0.1], [-1.0, -0.1]])
    >>> scores = GroupSVMHead(sparsity=0.5)(x, torch.tensor([0, 0, 1, 1]), x)
    >>> scores.argmax(-1).tolist()
    [0, 0, 1, 1]
    """

    sparsity: float = 0.3
    ridge: float = 0.1
    tol: float = 1e-6
    max_iter: int = 5000

    def fit(self, support: Tensor, labels: Tensor, n_classes: int | None = None) -> LinearHead:
        """Fit to support features (..., example, feature) with labels (..., example)."""
        n_classes = check_episodes(support, labels, n_classes)
        svm = group_svm(
            support,
            labels,
            n_classes,
            sparsity=self.sparsity,
            l2=_positive("ridge", self.ridge) * _mean_square(support),
            tol=self.tol,
            max_iter=self.max_iter,
        )
        return LinearHead(svm.weight, svm.weight.new_zeros(*svm.gap.shape, n_classes), svm.gap)


@dataclass(frozen=True)
class RidgeHead(Head):
    r"""Ridge regression of one-hot labels, both centred, with :math:`\lambda = \mathrm{ridge} \|X\|_F^2 / n`.

    .. math:: \min_{W, b} \tfrac{1}{2n} \|X W + 1 b^\top - Y\|^2 + \tfrac{\lambda}{2} \|W\|^2

    Parameters
    ----------
    ridge : float
        In units of the mean squared norm of a centred example.

    References
    ----------
    Bertinetto et al. (2019), Meta-learning with differentiable closed-form solvers.
    """

    ridge: float = 0.1

    def fit(self, support: Tensor, labels: Tensor, n_classes: int | None = None) -> LinearHead:
        """Fit to support features (..., example, feature) with labels (..., example)."""
        n_classes = check_episodes(support, labels, n_classes)
        y = _targets(support, labels, n_classes)
        x_mean, y_mean = support.mean(-2, keepdim=True), y.mean(-2, keepdim=True)
        x, n = support - x_mean, support.shape[-2]
        penalty = _positive("ridge", self.ridge) * n * _mean_square(x)
        gram = x @ x.mT + penalty[..., None, None] * torch.eye(n, dtype=x.dtype, device=x.device)
        weight = x.mT @ torch.linalg.solve(gram, y - y_mean)
        return LinearHead(weight, (y_mean - x_mean @ weight)[..., 0, :], weight.new_zeros(x.shape[:-2]))


@dataclass(frozen=True)
class PrototypeHead(Head):
    r"""Squared distance to each class's mean feature, :math:`-\|q - c_l\|^2` without :math:`-\|q\|^2`.

    The term left out is the same for all classes: neither the softmax nor the nearest class sees it.

    References
    ----------
    Snell, Swersky & Zemel (2017), Prototypical networks for few-shot learning.
    """

    def fit(self, support: Tensor, labels: Tensor, n_classes: int | None = None) -> LinearHead:
        """Fit to support features (..., example, feature) with labels (..., example).

        Raises
        ------
        ValueError
            A class without an example has no prototype.
        """
        n_classes = check_episodes(support, labels, n_classes)
        y = _targets(support, labels, n_classes)
        count = y.sum(-2)
        if (count == 0).any():
            raise ValueError(
                f"labels: class {int((count == 0).nonzero()[0, -1])} has no example in some episode; wanted "
                "at least one each, draw the support by class"
            )
        centre = (y.mT @ support) / count[..., None]
        return LinearHead(2 * centre.mT, -centre.square().sum(-1), support.new_zeros(support.shape[:-2]))


_HEADS: dict[str, Head] = {
    "group_svm": GroupSVMHead(),
    "dense_svm": GroupSVMHead(sparsity=0.0),
    "ridge": RidgeHead(),
    "prototype": PrototypeHead(),
}


def get_head(head: str | Head) -> Head:
    """The head of this name with its default settings, or the head itself.

    Parameters
    ----------
    head : {"group_svm", "dense_svm", "ridge", "prototype"} or Head

    Raises
    ------
    ValueError
        Unknown name.
    """
    if isinstance(head, Head):
        return head
    if head not in _HEADS:
        raise ValueError(f"head: got {head!r}, wanted a Head or one of {', '.join(map(repr, _HEADS))}")
    return _HEADS[head]


def _targets(support: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    return torch.nn.functional.one_hot(labels.long(), n_classes).to(support.dtype)


def _mean_square(x: Tensor) -> Tensor:
    """Mean squared norm of an example (...,), never quite zero: features may all be dead."""
    return x.square().sum(-1).mean(-1).clamp_min(torch.finfo(x.dtype).tiny)


def _positive(name: str, value: float) -> float:
    if not value > 0:
        raise ValueError(f"{name}: got {value!r}, wanted a positive number")
    return value
