"""Slopes and curvatures of log densities, of all chains and elements in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor
from torch.func import grad, vjp, vmap

from .replay import Graph

__all__ = ["curvature_of", "diagonal_of", "pulled", "sum_of", "without_overflow"]

_SMALLEST_PRECISION = 1e-2


def pulled(function: Graph, point: Any) -> tuple[Any, Graph]:
    """`vjp` of a function of one argument that returns nothing beside its value.

    Parameters
    ----------
    function : callable
    point : Tensor or dict of Tensor
    """
    return cast("tuple[Any, Graph]", vjp(function, point))


def curvature_of(total: Graph, q: Tensor) -> tuple[Tensor, Tensor]:
    """Gradient (chain, element, D) and negative Hessian (chain, element, D, D) of the terms of elements.

    Parameters
    ----------
    total : callable
        Of (chain, element, D): the terms of each element, (chain, element).
    q : Tensor
    """

    def summed(q: Tensor) -> Any:
        return total(q).sum()

    gradient, back = pulled(grad(summed), q)

    def column(unit: Tensor) -> Any:
        return back(unit)[0]

    units = torch.eye(q.shape[-1], dtype=q.dtype, device=q.device)
    hessian = vmap(column)(units[:, None, None, :].expand(-1, *q.shape[:2], -1))  # (D, chain, element, D)
    hessian = hessian.movedim(0, -1)
    return gradient, -0.5 * (hessian + hessian.mT)


def diagonal_of(precision: Tensor) -> Tensor:
    """What stands in for a matrix that is not positive definite, (..., number).

    Parameters
    ----------
    precision : Tensor (..., number, number)
    """
    return precision.diagonal(dim1=-2, dim2=-1).nan_to_num(1.0).abs().clamp(min=_SMALLEST_PRECISION)


def sum_of(logs: Mapping[str, Tensor], sites: Any) -> Tensor:
    """Sum of the log densities of some sites, (chain,), without overflow.

    Parameters
    ----------
    logs : mapping of str to Tensor (chain, *batch)
    sites : iterable of str
    """
    terms = [logs[name].reshape(len(logs[name]), -1).sum(1) for name in sites]
    return without_overflow(sum(terms[1:], terms[0]))


def without_overflow(log_density: Tensor) -> Tensor:
    """Log densities, of which +inf counts as -inf.

    A density is infinite at single points at most, which no chain visits. Where one is computed to be, its
    formula has overflown: that of `InverseGamma` says so of every value below 1e-162, where the density is
    0. Chains would accept such a place whatever they came from, and never leave it.

    Parameters
    ----------
    log_density : Tensor
    """
    return torch.where(log_density == torch.inf, -torch.inf, log_density)
