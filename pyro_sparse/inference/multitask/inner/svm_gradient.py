r"""Gradient of the group-lasso SVM by its optimality conditions: one small linear system per episode.

At the solution the dual moves within its face (`svm_face.py`), along which :math:`Y - XW` stays constant. For
a loss with :math:`G = \partial L / \partial W`, :math:`U = J[G]`, and Z on the face with
:math:`X J[X^\top Z] = X U` along it,

.. math:: \frac{\partial L}{\partial X} = (Y - \Lambda) (U - J[X^\top Z])^\top - Z W^\top, \qquad
          \frac{\partial L}{\partial \lambda} = \langle G - X^\top Z, \partial W / \partial \lambda \rangle

where :math:`\partial W_j / \partial \lambda_1 = -V_j / (\lambda_2 \|V_j\|)` and :math:`\partial W / \partial
\lambda_2 = -W / \lambda_2` at a fixed dual point.
"""

from __future__ import annotations

from torch import Tensor

from .svm_dual import SVMDual
from .svm_face import curvature, on_the_face

__all__ = ["adjoint"]


def adjoint(problem: SVMDual, dual: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Gradient of a loss in the features and in both penalties.

    Parameters
    ----------
    problem : SVMDual
    dual : Tensor (episode, example, class)
        The solution.
    grad : Tensor (episode, feature, class)
        The loss's gradient in the weights.

    Returns
    -------
    Tensor (episode, example, feature), Tensor (episode,), Tensor (episode,)

    Notes
    -----
    Where the dual solution is not unique the system is singular, though consistent: least squares.
    """
    x, j, weight = problem.x, curvature(problem, dual), problem.weight(dual)
    u = j(grad)
    z = on_the_face(x, dual, j, x @ u)
    back = x.mT @ z
    grad_x = (problem.y - dual) @ (u - j(back)).mT - z @ weight.mT
    residual = (grad - back) / problem.l2[:, None, None]
    return grad_x, -(residual * j.unit).sum((-1, -2)), -(residual * weight).sum((-1, -2))
