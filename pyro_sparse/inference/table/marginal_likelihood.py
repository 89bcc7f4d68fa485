r"""Which restart of a linear decoder is better: log densities of rows at its maximum, factors summed out.

.. math:: \log p(x_i \mid \theta) = \log \int \prod_j p(x_{ij} \mid w_j^\top z + c_j, \theta) N(z; 0, C)\, dz

Restarts were compared by their ELBO where they had ended. It is lower by as much as the guide is off, more
for two correlated factors than for one, and restarts end some nats short of their maxima. Yes/no answers of
three correlated factors (300 rows of 15, seed 1004): eight restarts, of which six have one factor and the
same edges, were spread over 18 nats, and the one with three factors was 4 short of the best; by the log
density, each at the maximum of its graph, the six have one value and the three factors are 3.5 nats better.

All restarts have the same draws of the factors (`row_integrals.py`), so that what these get wrong is alike in
them. Normal noise has closed forms, and `linear_maximum.py` compares graphs by them.
"""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import pyro
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..._utils.declared import hooks, keeps
from ..._utils.optimisers import eager
from ...data.large_table import LargeTable
from ...data.table import Batch, Table
from ..training.restarts import pick
from .closed_cells import cell_sums
from .factor_spread import expanded_cells
from .row_integrals import proposed, row_modes, sums_of_squares, t_draws

if TYPE_CHECKING:
    from ...models.base import FactorModel
    from ...models.sparse_decoder import SparseDecoder

__all__ = ["ComparedRows", "at_maximum", "compared_rows", "row_log_likelihood", "sums_out_factors"]

_DRAWS, _LOOKS = (32, 128), 200_000  # of a row's factors, least and most; rows times draws to look at
_AT_ONCE = 4_000_000  # numbers of all cells, draws and restarts: a few hundred MB with their derivatives
_NEAR = 1_000_000  # of these numbers that a climb looks at together: they stay near the processor
_ROUNDS, _STEPS, _FEW, _CLIMBED = 3, 8, 16, 2000  # of a climb: rounds, steps of each, draws of a row, rows
_COMPARED = 10_000  # rows, at most, that say which restart is better
# Limits of correlations in units of sqrt(log N / N): one r costs about N r² R R' / 2 if factors have
# reliabilities R, R', which is half of log N at the first for factors that are seen and at the second for .5.
_LIMITS = np.array([1.0, 2.0])
_LEAST_EIGENVALUE = 1e-3


def sums_out_factors(model: FactorModel) -> bool:
    """Whether rows of this model have a log density here: a declared linear decoder, its noise not normal.

    Parameters
    ----------
    model : FactorModel
    """
    if getattr(model, "decoder_kind", "") != "linear" or not keeps(model, "masked decoder"):
        return False
    return not hooks(model) and not keeps(model.likelihood, "normal noise")


class ComparedRows(NamedTuple):
    """What restarts are compared by.

    Attributes
    ----------
    log_density : ndarray (restart, row)
        At each restart's maximum; minus infinity of failed ones.
    correlations : ndarray of int (restart,)
        Between factors in use that are not zero there.
    """

    log_density: NDArray[np.float64]
    correlations: NDArray[np.intp]


def compared_rows(model: FactorModel, table: Table, alive: NDArray[np.bool_]) -> ComparedRows | None:
    """Log density of rows under every restart at its maximum, with the correlations that it pays for.

    Correlations below one of two limits are zero where the restart's BIC is then better; the fit's own stay
    as they are. With all of them charged, a sixth uncorrelated factor of four yes/no answers, 200 rows, had
    to be worth 24 nats where its edges cost 11, and was lost though a restart had it. None where the model's
    factors are not summed out, or the table is read by rows.

    Parameters
    ----------
    model : FactorModel
        Set up.
    table : Table
        Of more than `_COMPARED` rows evenly spread ones are taken.
    alive : ndarray of bool (restart,)
        Restarts that did not diverge.
    """
    if isinstance(table, LargeTable) or not sums_out_factors(model):
        return None
    some = _spread(table.batch(model.factor_cov.device, model.factor_cov.dtype), _COMPARED)
    rows, pairs = np.full((model.n_restarts, len(some)), -np.inf), np.zeros(model.n_restarts, dtype=int)
    if not alive.any():
        return ComparedRows(rows, pairs)
    restarts, n_rows = pick(model, np.flatnonzero(alive).tolist()), len(table.x)
    top = at_maximum(restarts, some)
    # the first is better where a climb went astray
    candidates = [
        restarts,
        top,
        *(_sparser(top, limit) for limit in _LIMITS * np.sqrt(np.log(n_rows) / n_rows)),
    ]
    level = np.stack([row_log_likelihood(m, some).cpu().numpy() for m in candidates])
    count = np.stack([_n_correlations(m) for m in candidates])
    worth = n_rows * level.mean(2) - 0.5 * np.log(n_rows) * count
    best, places = np.nan_to_num(worth, nan=-np.inf).argmax(0), np.arange(int(alive.sum()))
    rows[alive], pairs[alive] = level[best, places], count[best, places]
    return ComparedRows(rows, pairs)


def _sparser(model: FactorModel, limit: float) -> FactorModel:
    """A copy without correlations below a limit, where what is left is a correlation matrix."""
    sparser, full = copy.deepcopy(model), model.factor_cov
    rest = torch.where(full.abs() < limit, 0.0, full)
    valid = torch.linalg.eigvalsh(rest.double())[:, :1, None] > _LEAST_EIGENVALUE
    sparser.factor_cov.copy_(torch.where(valid, rest, full))
    return sparser


def _n_correlations(model: FactorModel) -> NDArray[np.intp]:
    """Learned correlations that are not zero between factors in use, (restart,)."""
    if not model.learn_factor_cov:
        return np.zeros(model.n_restarts, dtype=int)
    used = (cast("SparseDecoder", model).weights != 0).any(1)
    pairs = (model.factor_cov != 0) & used.unsqueeze(1) & used.unsqueeze(2)
    return pairs.triu(1).sum((1, 2)).cpu().numpy()


def _spread(batch: Batch, most: int) -> Batch:
    """At most so many rows, evenly spread."""
    some = np.linspace(0, len(batch) - 1, min(len(batch), most)).round().astype(int)
    return batch.rows(torch.as_tensor(some, device=batch.x.device))


@torch.no_grad()
def row_log_likelihood(model: FactorModel, batch: Batch) -> Tensor:
    """Log density of each row under every restart, (restart, row), in nats.

    Parameters
    ----------
    model : FactorModel
        For which `sums_out_factors` holds, set up.
    batch : Batch
    """
    decoder, n_rows = cast("SparseDecoder", model), len(batch)
    n_draws = int(np.clip(_LOOKS / n_rows, *_DRAWS)) // 2 * 2
    size = max(1, _AT_ONCE // (model.n_restarts * model.n_features * n_draws))
    rng, levels = np.random.default_rng(0), []
    with pyro.validation_enabled(False):
        for rows in torch.arange(n_rows, device=batch.x.device).split(size):
            drawn = _draws(decoder, batch.rows(rows), n_draws, rng)
            log_weight = _log_cells(decoder, drawn, decoder.weights) + drawn.log_ratio
            levels.append(log_weight.double().logsumexp(1) - math.log(n_draws))
    return torch.cat(levels, 1)


@torch.no_grad()
def at_maximum(model: FactorModel, batch: Batch) -> FactorModel:
    """A copy whose restarts are near the maximum of the likelihood that their graphs allow.

    Monte Carlo EM, each restart with all others at once: weights that are not 0, intercepts and the
    likelihood's own parameters by quasi-Newton steps given draws of the factors, C by their second moments
    (parameter expansion: by what a factor's exceeds 1 its weights grow).

    Parameters
    ----------
    model : FactorModel
        For which `sums_out_factors` holds, set up.
    batch : Batch
        Of more than `_CLIMBED` rows evenly spread ones are taken.

    Returns
    -------
    FactorModel
    """
    best = copy.deepcopy(cast("SparseDecoder", model))
    few = _spread(batch, _CLIMBED)
    rng, edge = np.random.default_rng(0), best.weights != 0
    moving = [best.weights, best.decoder.intercept, *best.likelihood.parameters()]
    with pyro.validation_enabled(False):
        for _ in range(_ROUNDS):
            drawn = _draws(best, few, _FEW, rng)
            climb = eager(torch.optim.LBFGS)(moving, max_iter=_STEPS, line_search_fn="strong_wolfe")
            climb.step(partial(_loss, best, drawn, edge, climb))
            best.weights.copy_(torch.where(edge, best.weights, 0.0))
            if best.learn_factor_cov:
                _follow_moments(best, drawn)
    return best


def _loss(model: SparseDecoder, drawn: _Drawn, edge: Tensor, climb: torch.optim.Optimizer) -> Tensor:
    """Minus the mean log density of a row, summed over restarts, with its slopes."""
    n_rows, total = len(drawn.batch), drawn.z.new_zeros(())
    size = max(1, _NEAR // (model.n_restarts * model.n_features * _FEW))
    with torch.enable_grad():
        climb.zero_grad()
        for rows in torch.arange(n_rows, device=drawn.z.device).split(size):
            some = drawn.rows(rows)
            log_weight = _log_cells(model, some, torch.where(edge, model.weights, 0.0)) + some.log_ratio
            loss = -log_weight.logsumexp(1).sum() / n_rows
            loss.backward()
            total += loss.detach()
    return total


def _follow_moments(model: SparseDecoder, drawn: _Drawn) -> None:
    """C as the factors' draws have it, each factor in units of its own standard deviation."""
    log_weight = _log_cells(model, drawn, model.weights) + drawn.log_ratio
    weight, z = log_weight.softmax(1).flatten(1, 2).double(), drawn.z.flatten(1, 2).double()
    moment = (z * weight.unsqueeze(-1)).mT @ z / weight.sum(1).view(-1, 1, 1)
    sd = moment.diagonal(dim1=-2, dim2=-1).sqrt()
    model.factor_cov.copy_(moment / sd.unsqueeze(-1) / sd.unsqueeze(-2))
    model.weights.mul_(sd.unsqueeze(1).to(model.weights))


class _Drawn(NamedTuple):
    """Draws of rows' factors from proposals.

    Attributes
    ----------
    z : Tensor (restart, draw, row, factor)
    log_ratio : Tensor (restart, draw, row)
        Log density of the factors' prior over that of the proposal.
    batch : Batch
        The rows.
    """

    z: Tensor
    log_ratio: Tensor
    batch: Batch

    def rows(self, rows: Tensor) -> _Drawn:
        """Those of some rows."""
        return _Drawn(self.z[:, :, rows], self.log_ratio[:, :, rows], self.batch.rows(rows))


def _log_cells(model: SparseDecoder, drawn: _Drawn, weights: Tensor) -> Tensor:
    """Log density of the rows' cells given their factors, (restart, draw, row).

    In closed form, if there is one, which leaves out what factors do not move (a count's gamma functions,
    say): of each row that is asked of its first draw only.
    """
    batch, (n_draws, n_rows) = drawn.batch, drawn.z.shape[1:3]
    f = model.decode(drawn.z.flatten(1, 2), weights).unflatten(1, (n_draws, n_rows))
    levels = cell_sums(model.likelihood, batch, f)
    if levels is None:
        every = batch.rows(torch.arange(n_rows, device=f.device).repeat(n_draws))
        observed = model.likelihood.observation(f.flatten(1, 2), every.mask, every.per_row)
        log_p: Tensor = observed.log_prob(every.x)
        return log_p.unflatten(1, (n_draws, n_rows))
    first = model.likelihood.observation(f[:, 0], batch.mask, batch.per_row).log_prob(batch.x)
    return levels + (first - levels[:, 0]).unsqueeze(1)


def _draws(model: SparseDecoder, batch: Batch, n_draws: int, rng: np.random.Generator) -> _Drawn:
    weights, precision = model.weights, torch.linalg.inv(model.factor_cov.double())
    wide = weights.double()
    squares = sums_of_squares(wide)

    def expanded(z: Tensor) -> tuple[Tensor, Tensor]:
        cells = expanded_cells(model, batch, model.decode(z.to(weights), weights))
        slope, information = (torch.nan_to_num(of_cells.double()) for of_cells in cells)
        return slope @ wide - z @ precision, squares(information) + precision.unsqueeze(1)

    mode, root = row_modes(model.encode(batch)[0].double(), expanded)
    draws = torch.stack([*t_draws((1, *mode.shape[1:]), n_draws, rng)])  # the same in all restarts
    z, log_ratio = (of_draws.transpose(0, 1) for of_draws in proposed(mode, root, draws, precision))
    return _Drawn(z.to(weights), log_ratio, batch)
