r"""Draws of rows' factors given a draw of the measurement model by Markov chains, under any normal prior.

Of a linear decoder under normal noise exactly, intercepts with them; under other likelihoods by Laplace
proposals (`edges/moves/rows.py`), with intercepts, cuts and dispersions of the fit, which chains do not
keep.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyro
import torch
from numpy.typing import NDArray

from ...posterior import arviz as _arviz
from ...posterior.draws import of_kept_chains
from ..training.restarts import pick
from .factor_spread import expanded_cells
from .normal_rows import NormalState, SeenRows, has_normal_rows, parameters_of

if TYPE_CHECKING:
    from ..._utils.types import ArvizData
    from ...data.read import Batch
    from ...models.base import FactorModel
    from .latent_regression import RowDraws
    from .result import Fit

__all__ = ["Measurement", "measurements"]

Array = NDArray[np.float64]
_DRAWS, _EXPANDED = 250, 60  # of each chain, at most: exact ones, those with proposals
_NEWTON = 15  # steps to rows' modes, half as long after one that went down
_LEAST = 1e-6  # share of a feature's variance that is no factor's


class Measurement(NamedTuple):
    """What a chain says of how cells depend on factors.

    Attributes
    ----------
    rows : sequence of callable
        Of each draw, for `latent_regression.regressed`.
    weight : ndarray (feature, factor)
        Mean over the draws.
    start : ndarray (row, factor)
        Factors to begin at.
    """

    rows: Sequence[RowDraws]
    weight: Array
    start: Array


def measurements(
    fit: Fit, idata: ArvizData, used: NDArray[np.bool_], rng: np.random.Generator
) -> Iterator[Measurement]:
    """Of each chain that counts.

    Parameters
    ----------
    fit : Fit
        Of a linear decoder, with its rows.
    idata : InferenceData or DataTree
        From its `edge_posterior`, by Markov chains.
    used : ndarray of bool (factor,)
        Factors that are drawn; the weights of others are 0.
    rng : numpy.random.Generator
        Of the intercepts that chains begin at.
    """
    if has_normal_rows(fit.model):
        chains, seen = parameters_of(fit, idata), SeenRows.of(fit.table)
        n_draws = chains.weight.shape[1]
        for c in range(len(chains.weight)):
            numbers = _spread(n_draws, _DRAWS) + c * n_draws
            states = [chains.at(number) for number in numbers]
            states = [state._replace(weight=state.weight[:, used]) for state in states]
            intercept = chains.at(numbers[0]).intercept(seen, rng)
            yield Measurement(
                [_NormalRows(state, seen, intercept) for state in states],
                np.mean([state.weight for state in states], 0),
                np.zeros((len(seen.which), int(used.sum()))),  # the first draw is exact
            )
        return
    for weights in _weights(fit, idata):
        some = weights[_spread(len(weights), _EXPANDED)][..., used]
        restart = pick(fit.model, [fit.best]).cpu().double()
        restart.eval()
        batch = fit.table.batch(torch.device("cpu"), torch.float64)
        rows = [_ExpandedRows(restart, batch, weight, used) for weight in some]
        yield Measurement(rows, some.mean(0), rows[0].modes())


def _spread(n: int, most: int) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = np.linspace(0, n - 1, min(n, most)).round().astype(int)
    return numbers


def _weights(fit: Fit, idata: ArvizData) -> Array:
    """Draws of weights on the linear predictor, (chain, draw, feature, factor), from standardised ones."""
    group = _arviz.get_group(idata, "posterior")
    kept = np.flatnonzero(_arviz.get_group(idata, "sample_stats")["kept"].to_numpy())
    loading, cov = (
        of_kept_chains(idata, group[name].isel(chain=kept).transpose("chain", "draw", *dims)).to_numpy()
        for name, dims in (
            ("weight", ("feature", "factor")),
            ("factor_correlation", ("factor", "other_factor")),
        )
    )
    loading, cov = np.nan_to_num(loading.astype(float)), np.nan_to_num(cov.astype(float))
    beside = fit.model.likelihood.variance_beside()
    variance = beside if isinstance(beside, float) else beside[fit.best].detach().cpu().double().numpy()
    left = np.maximum(1 - ((loading @ cov) * loading).sum(-1), _LEAST)
    weights: Array = loading * np.sqrt(variance / left)[..., None]
    return weights


class _NormalRows:
    """Exact draws of rows' factors of a linear decoder under normal noise.

    Intercepts are drawn with them, in place: all draws of a chain share one array and go on from there.
    """

    def __init__(self, state: NormalState, rows: SeenRows, intercept: Array):
        self.state, self.rows, self.intercept = state, rows, intercept

    def __call__(
        self, z: Array, mean: Array, precision: Array, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        weight, noise, rows = self.state.weight, self.state.noise, self.rows
        seen = rows.patterns[rows.which]
        left, k = self.state.left(rows), weight.shape[1]
        outer = weight[:, :, None] * (weight / noise[:, None])[:, None]
        inner = (rows.patterns @ outer.reshape(-1, k * k)).reshape(-1, k, k) + precision
        spread = np.linalg.inv(inner)
        pull = ((left - seen * self.intercept) / noise) @ weight + mean @ precision
        root = np.linalg.cholesky(spread)
        unit = rng.standard_normal((*z.shape, 1))
        z = (spread[rows.which] @ pull[..., None] + root[rows.which] @ unit)[..., 0]
        unexplained = left - seen * (z @ weight.T)
        count = np.maximum(seen.sum(0), 1)
        off = rng.standard_normal(len(noise)) * np.sqrt(noise / count)
        self.intercept[:] = unexplained.sum(0) / count + off
        return z, (unexplained - seen * self.intercept) / noise


class _ExpandedRows:
    """Draws of rows' factors of a linear decoder by Laplace proposals (`edges/moves/rows.py`)."""

    def __init__(self, restart: FactorModel, batch: Batch, weight: Array, used: NDArray[np.bool_]):
        self.restart, self.batch, self.weight = restart, batch, weight
        whole = torch.zeros(1, len(weight), len(used), dtype=torch.float64)
        nothing = torch.zeros(1, len(batch), len(used), dtype=torch.float64)
        with torch.no_grad(), pyro.validation_enabled(False):
            self.offset = restart.decode(nothing, whole)[0]

    def _looked_at(self, z: Array, mean: Array, precision: Array) -> tuple[Array, Array, Array, Array]:
        """Log density, slopes of the cells, mean and precision of the proposal from here."""
        f = (self.offset + torch.as_tensor(z @ self.weight.T)).unsqueeze(0)
        slope, information = (part[0].numpy() for part in expanded_cells(self.restart, self.batch, f))
        with torch.no_grad(), pyro.validation_enabled(False):
            level = self.restart.likelihood.log_prob(f, self.batch.x, self.batch.mask, self.batch.per_row)[0]
        off = z - mean
        inner = np.einsum("nj,jk,jl->nkl", information, self.weight, self.weight) + precision
        step = np.linalg.solve(inner, (slope @ self.weight - off @ precision)[..., None])[..., 0]
        log_p = level.numpy() - 0.5 * ((off @ precision) * off).sum(-1)
        return log_p, slope, z + step, inner

    def modes(self) -> Array:
        """Rows' likeliest factors under a standard normal prior.

        Far from them a Newton step overshoots, and a row that began there would never move.
        """
        n, k = len(self.batch), self.weight.shape[1]
        z, step, mean, precision = np.zeros((n, k)), np.ones((n, 1)), np.zeros(k), np.eye(k)
        log_p, _, centre, _ = self._looked_at(z, mean, precision)
        for _ in range(_NEWTON):
            new = z + step * (centre - z)
            log_p_there, _, centre_there, _ = self._looked_at(new, mean, precision)
            up = log_p_there >= log_p
            step = np.where(up[:, None], 1.0, step / 2)
            log_p = np.where(up, log_p_there, log_p)
            z, centre = np.where(up[:, None], new, z), np.where(up[:, None], centre_there, centre)
        return z

    def __call__(
        self, z: Array, mean: Array, precision: Array, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        log_p, slope, centre, inner = self._looked_at(z, mean, precision)
        root = np.linalg.cholesky(inner)
        unit = rng.standard_normal(z.shape)
        new = centre + np.linalg.solve(root.swapaxes(-1, -2), unit[..., None])[..., 0]
        log_p_there, slope_there, back, inner_back = self._looked_at(new, mean, precision)
        gain = log_p_there - log_p + _log_normal(z - back, inner_back) - _log_normal(new - centre, inner)
        yes = np.log(rng.random(len(z))) < np.nan_to_num(gain, nan=-np.inf)
        return np.where(yes[:, None], new, z), np.where(yes[:, None], slope_there, slope)


def _log_normal(off: Array, precision: Array) -> Array:
    """Log density of a normal distribution, up to a constant, by its precision."""
    squares = np.einsum("nk,nkl,nl->n", off, precision, off)
    level: Array = 0.5 * (np.linalg.slogdet(precision)[1] - squares)
    return level
