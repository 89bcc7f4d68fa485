r"""Log density of each row under every restart of a linear decoder, its factors summed out.

.. math:: \log p(x_i \mid \theta) = \log \int \prod_j p(x_{ij} \mid w_j^\top z + c_j, \theta) N(z; 0, C)\, dz

Restarts were compared by their ELBO, which is lower by as much as the guide is off: independent normals, read
off a row by one network. That is more for two correlated factors than for one, and another amount in every
restart. Yes/no answers of three correlated factors (300 rows of 15, seed 1004): eight restarts, of which six
have the same factor and the same edges, were spread over 18 nats by the ELBO and 3 by this, and the one with
three factors, 4 nats short by the ELBO, was the best by 9.

Factors of a row are drawn from a Student t distribution at the mode, with Laplace's spread, and weighed
(Geweke 1989, Econometrica 57(6)), the same draws in all restarts. Normal noise has closed forms, and
`linear_maximum.py` compares graphs by them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import numpy as np
import pyro
import torch
from torch import Tensor

from ..._utils.declared import hooks, keeps

if TYPE_CHECKING:
    from ...data.read import Batch
    from ...models.base import FactorModel
    from ...models.sparse_decoder import SparseDecoder

__all__ = ["row_log_likelihood", "sums_out_factors"]

_NEWTON, _LONGEST = 8, 2.0  # steps towards a row's mode, and the length of one in a factor's prior units
_FREEDOM, _DRAWS, _LOOKS = 8.0, (32, 128), 200_000  # of the proposal; draws, and rows times draws, to look at
_AT_ONCE = 4_000_000  # numbers of a draw of all cells and restarts: a few hundred MB with its derivatives


def sums_out_factors(model: FactorModel) -> bool:
    """Whether rows of this model have a log density here: a declared linear decoder, its noise not normal.

    Parameters
    ----------
    model : FactorModel
    """
    if getattr(model, "decoder_kind", "") != "linear" or not keeps(model, "masked decoder"):
        return False
    return not hooks(model) and not keeps(model.likelihood, "normal noise")


def row_log_likelihood(model: FactorModel, batch: Batch) -> Tensor:
    """Log density of each row under every restart, (restart, row), in nats.

    Parameters
    ----------
    model : FactorModel
        For which `sums_out_factors` holds, set up.
    batch : Batch
    """
    decoder, n_rows = cast("SparseDecoder", model), len(batch)
    cells = model.n_restarts * model.n_features
    size = max(1, _AT_ONCE // cells)
    parts = torch.arange(n_rows, device=batch.x.device).split(size)
    rng, n_draws = np.random.default_rng(0), int(np.clip(_LOOKS / n_rows, *_DRAWS)) // 2 * 2
    with pyro.validation_enabled(False):
        return torch.cat([_of_rows(decoder, batch.rows(rows), n_draws, rng) for rows in parts], 1)


@torch.no_grad()
def _of_rows(model: SparseDecoder, batch: Batch, n_draws: int, rng: np.random.Generator) -> Tensor:
    weights, k = model.weights, model.n_factors
    wide = weights.double()
    precision = torch.linalg.inv(model.factor_cov.double())
    z = model.encode(batch)[0].double()

    def slope_and_precision(z: Tensor) -> tuple[Tensor, Tensor]:
        """Of the log joint density in a row's factors: slope (restart, row, factor), minus its curvature."""
        slope, bend = _expanded(model, batch, model.decode(z.to(weights), weights))
        inner = torch.einsum("rnj,rjk,rjl->rnkl", bend, wide, wide) + precision.unsqueeze(1)
        return slope @ wide - z @ precision, inner

    for _ in range(_NEWTON):
        slope, inner = slope_and_precision(z)
        step = torch.linalg.solve(inner, slope.unsqueeze(-1)).squeeze(-1)
        z = z + step * (_LONGEST / step.abs().amax(-1, keepdim=True).clamp(min=_LONGEST))
    root = torch.linalg.cholesky(slope_and_precision(z)[1])
    log_root = root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    of_prior = 0.5 * torch.linalg.slogdet(precision)[1].unsqueeze(-1) - 0.5 * k * math.log(2 * math.pi)
    of_t = math.lgamma((_FREEDOM + k) / 2) - math.lgamma(_FREEDOM / 2)
    base = of_prior - log_root - of_t + 0.5 * k * math.log(_FREEDOM * math.pi)
    levels, off = [], z[:1]
    for number in range(n_draws):
        off = -off if number % 2 else _drawn_t(z[:1], rng)  # of all restarts, each and its mirror image
        away = torch.linalg.solve_triangular(root.mT, off.expand_as(z).unsqueeze(-1), upper=True)
        drawn = z + away.squeeze(-1)
        f = model.decode(drawn.to(weights), weights)
        log_p = model.likelihood.observation(f, batch.mask, batch.per_row).log_prob(batch.x).double()
        joint = log_p - 0.5 * ((drawn @ precision) * drawn).sum(-1)
        levels.append(base + joint + 0.5 * (_FREEDOM + k) * (off.square().sum(-1) / _FREEDOM).log1p())
    return torch.stack(levels).logsumexp(0) - math.log(n_draws)


def _drawn_t(like: Tensor, rng: np.random.Generator) -> Tensor:
    """A draw of a Student t distribution of every row."""
    unit, chi = rng.standard_normal(tuple(like.shape)), rng.chisquare(_FREEDOM, (*like.shape[:-1], 1))
    return torch.as_tensor(unit * np.sqrt(_FREEDOM / chi)).to(like)


def _expanded(model: SparseDecoder, batch: Batch, f: Tensor) -> tuple[Tensor, Tensor]:
    """Slope of each cell's log density in f and minus its second derivative, both (restart, row, feature).

    Cells of rows of shares depend on one another: theirs is that of Poisson counts, which is their mean.
    """
    with torch.enable_grad():
        leaf = f.detach().requires_grad_()
        log_p = model.likelihood(leaf, batch.per_row).log_prob(batch.x)
        (slope,) = torch.autograd.grad(log_p.sum(), leaf, create_graph=log_p.shape == leaf.shape)
        if log_p.shape == leaf.shape:
            (bend,) = torch.autograd.grad(slope.sum(), leaf, materialize_grads=True)
        else:
            bend = -model.likelihood.mean(leaf, batch.per_row)
    seen = 1.0 if batch.mask is None else batch.mask
    slope, bend = (torch.nan_to_num(part.detach() * seen).double() for part in (slope, -bend))
    return slope, bend.clamp(min=0)
