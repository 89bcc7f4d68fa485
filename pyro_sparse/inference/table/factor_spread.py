r"""How sure the factors of a row are, given the fit's parameters: Laplace's normal around their location.

.. math:: \operatorname{Cov}(z_i \mid x_i) \approx \Big(C^{-1} + \sum_{j\ \mathrm{seen}} \iota_{ij}\,
          \nabla f_j(z_i) \nabla f_j(z_i)^\top\Big)^{-1}, \qquad
          \iota_{ij} = -\frac{\partial^2 \log p(x_{ij} \mid f_{ij})}{\partial f_{ij}^2}

It is exact for a linear decoder under normal noise. A guide of independent normals is narrower, the more a
row's factors depend on one another given its cells. How unsure the parameters are is left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyro
import torch
from torch import Tensor

from ..training.restarts import pick
from .closed_cells import closed_terms

if TYPE_CHECKING:
    from ...data.read import Batch
    from ...models.base import FactorModel
    from .result import Fit

__all__ = ["expanded_cells", "factor_roots", "roots_of"]

_STEP = 1e-3  # of a factor, whose standard deviation is 1: for slopes by central differences, in float64


def roots_of(fit: Fit, batch: Batch, location: Tensor) -> Tensor:
    """`factor_roots` of the best restart of a fit, in its own order of factors.

    Parameters
    ----------
    fit : Fit
    batch : Batch
        Rows.
    location : Tensor (row, factor)
        Where their posteriors are.

    Raises
    ------
    ValueError
        Factors are no normal variables.
    """
    if not fit.model.gaussian_guide:
        raise ValueError(
            f"return_std, factor_draws: factors of a {type(fit.model).__name__} are no normal "
            "variables, wanted a model whose factors are; leave them out"
        )
    restart = pick(fit.model, [fit.best]).double()
    restart.eval()
    per_row = {name: values.double() for name, values in batch.per_row.items()}
    return factor_roots(restart, replace(batch, x=batch.x.double(), per_row=per_row), location)


@torch.no_grad()
def factor_roots(model: FactorModel, batch: Batch, location: Tensor) -> Tensor:
    """Roots L of the covariances L L' of rows' factors, lower triangular: (row, factor, factor), float64.

    Parameters
    ----------
    model : FactorModel
        Of one restart, in float64.
    batch : Batch
        Rows, in float64.
    location : Tensor (row, factor)
        Where their posteriors are.
    """
    z = location.double().unsqueeze(0)
    weights = getattr(model, "weights", None)
    slopes = []
    for k in range(z.shape[-1]):
        step = torch.zeros_like(z)
        step[..., k] = _STEP
        slopes.append((model.decode(z + step, weights) - model.decode(z - step, weights))[0] / (2 * _STEP))
    jacobian = torch.stack(slopes, -1)  # row, feature, factor
    information = expanded_cells(model, batch, model.decode(z, weights))[1][0]
    precision = torch.linalg.inv(model.factor_cov[0]) + (jacobian * information.unsqueeze(-1)).mT @ jacobian
    # the root of the inverse, from that of the reversed precision: one triangular solve
    root = torch.linalg.cholesky(precision.flip((-2, -1))).flip((-2, -1))  # upper: precision = root root'
    identity = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device).expand_as(root)
    return torch.linalg.solve_triangular(root, identity, upper=True).mT


def expanded_cells(model: FactorModel, batch: Batch, f: Tensor) -> tuple[Tensor, Tensor]:
    """Slope of each cell's log density in f, and minus its second derivative: (restart, row, feature).

    Both are 0 where a cell is missing. Cells of rows of shares depend on one another: theirs is the second
    derivative of Poisson counts, which is their mean.

    Parameters
    ----------
    model : FactorModel
    batch : Batch
        Rows.
    f : Tensor (restart, row, feature)
        Linear predictors.
    """
    with torch.no_grad():
        terms = closed_terms(model.likelihood, batch, f, 2)
    if terms is not None:
        return terms[1], terms[2]
    with torch.enable_grad(), pyro.validation_enabled(False):
        leaf = f.detach().requires_grad_()
        log_p = model.likelihood(leaf, batch.per_row).log_prob(batch.x)
        separate = log_p.shape == leaf.shape
        (slope,) = torch.autograd.grad(log_p.sum(), leaf, create_graph=separate, materialize_grads=True)
        if separate:
            (bend,) = torch.autograd.grad(slope.sum(), leaf, materialize_grads=True)
            information = -bend
        else:
            information = model.likelihood.mean(leaf, batch.per_row)
    slope, information = slope.detach(), information.detach().clamp(min=0)
    return (slope, information) if batch.mask is None else (slope * batch.mask, information * batch.mask)
