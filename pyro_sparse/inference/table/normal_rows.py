r"""Rows of a linear decoder under normal noise, which are normal with their factors summed out.

.. math:: x_i \sim N(c + B^\top d_i,\; W C W^\top + \Psi)

Their parameters in the draws of Markov chains: loadings are kept standardised, and are

.. math:: w_{jk} = \lambda_{jk}\, \sigma_j \Big/ \sqrt{1 - \lambda_j^\top C \lambda_j}

on factors of variance 1. Intercepts are not kept. Given all else and a flat prior they are normal, with the
factors summed out,

.. math:: c \sim N(A^{-1} b, A^{-1}), \qquad A = \sum_i \Sigma_{o_i o_i}^{-1}, \quad
          b = \sum_i \Sigma_{o_i o_i}^{-1} (x_{o_i} - B_{o_i}^\top d_i),

over the seen cells :math:`o_i` of each row. The chains' own prior of them has the standard deviation of the
column, so that the difference is of order 1 / n.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._utils.declared import keeps
from ...posterior import arviz as _arviz
from ...posterior.draws import of_kept_chains
from ...posterior.same_fit import check_labels

if TYPE_CHECKING:
    from ..._utils.types import ArvizData
    from ...data.read import Table
    from ...models.base import FactorModel
    from .result import Fit

__all__ = ["NormalChains", "NormalState", "SeenRows", "drawn_cells", "has_normal_rows", "parameters_of"]

Array = NDArray[np.float64]
_LEAST = 1e-6  # share of a feature's variance that is noise: loadings of single precision know no less
_TOGETHER = 2_000_000  # numbers of patterns looked at together


def has_normal_rows(model: FactorModel) -> bool:
    """Whether rows are normal under a model: a linear decoder, normal noise.

    Parameters
    ----------
    model : FactorModel
    """
    straight = keeps(model, "masked decoder") and getattr(model, "decoder_kind", "") == "linear"
    return straight and keeps(model.likelihood, "normal noise")


class SeenRows(NamedTuple):
    """Rows of a table in model units, and which of them miss the same cells.

    Attributes
    ----------
    x : ndarray (row, feature)
    mask : ndarray of bool (row, feature) or None
        True where seen; None where all were.
    design : ndarray (row, effect) or None
    patterns : ndarray (pattern, feature)
        What rows have seen, as 0 and 1.
    which : ndarray of int (row,)
        The pattern of each.
    sizes : ndarray (pattern,)
        Rows of each.
    """

    x: Array
    mask: NDArray[np.bool_] | None
    design: Array | None
    patterns: Array
    which: NDArray[np.intp]
    sizes: Array

    @classmethod
    def of(cls, table: Table) -> SeenRows:
        """Of a table in memory.

        Parameters
        ----------
        table : Table
        """
        n, g = table.x.shape
        patterns, which = np.ones((1, g), bool), np.zeros(n, np.intp)
        if table.mask is not None:
            patterns, which = np.unique(table.mask, axis=0, return_inverse=True)
        which = which.reshape(-1)
        sizes = np.bincount(which, minlength=len(patterns)).astype(float)
        design = table.per_row.get("design")
        return cls(table.x, table.mask, design, patterns.astype(float), which, sizes)


class NormalState(NamedTuple):
    """One draw of the parameters, in model units.

    Attributes
    ----------
    weight : ndarray (feature, factor)
        On factors of variance 1.
    noise : ndarray (feature,)
        Variance.
    cov : ndarray (factor, factor)
        Correlations of the factors.
    effects : ndarray (effect, feature) or None
        Of the columns of the design, beside what least squares took.
    """

    weight: Array
    noise: Array
    cov: Array
    effects: Array | None

    def covariance(self) -> Array:
        """Of a row, (feature, feature)."""
        whole: Array = self.weight @ self.cov @ self.weight.T + np.diag(self.noise)
        return whole

    def of_covariates(self, design: Array | None) -> Array | float:
        """What covariates add to rows with this design (row, effect), (row, feature)."""
        return 0.0 if self.effects is None or design is None else design @ self.effects

    def left(self, rows: SeenRows) -> Array:
        """Cells less what covariates say of them, 0 where missing, (row, feature)."""
        x = rows.x - self.of_covariates(rows.design)
        return x if rows.mask is None else np.where(rows.mask, x, 0.0)

    def intercept(self, rows: SeenRows, rng: np.random.Generator) -> Array:
        """A draw of the intercepts (feature,) given all else and rows.

        Parameters
        ----------
        rows : SeenRows
        rng : numpy.random.Generator
        """
        if rows.mask is None:  # A is n times the precision of a row
            return self.left(rows).mean(0) + self._around(1, rng)[0] / math.sqrt(len(rows.x))
        patterns, which, sizes = rows.patterns, rows.which, rows.sizes
        scaled, spread = self.weight / self.noise[:, None], self._spread(patterns)
        left = self.left(rows) / self.noise
        z = (spread[which] @ (left @ self.weight)[..., None])[..., 0]
        of_pattern = np.zeros((len(patterns), z.shape[1]))
        np.add.at(of_pattern, which, z)
        pull = left.sum(0) - (patterns * (of_pattern @ scaled.T)).sum(0)
        precision = np.diag(sizes @ patterns / self.noise)
        half = np.linalg.cholesky(spread) * np.sqrt(sizes)[:, None, None]
        some = max(1, _TOGETHER // self.weight.size)
        for at in range(0, len(patterns), some):
            here = slice(at, at + some)
            part = (patterns[here, :, None] * (scaled @ half[here])).swapaxes(0, 1).reshape(len(scaled), -1)
            precision -= part @ part.T
        root = np.linalg.cholesky(precision)
        off = np.linalg.solve(root, pull) + rng.standard_normal(len(pull))
        drawn: Array = np.linalg.solve(root.T, off)
        return drawn

    def log_density(self, rows: SeenRows, intercept: Array) -> Array:
        """Of each row's seen cells, factors summed out, (row,), in nats of model units.

        Parameters
        ----------
        rows : SeenRows
        intercept : ndarray (feature,)
        """
        patterns, which = rows.patterns, rows.which
        left = self.left(rows) - patterns[which] * intercept
        pull, spread = (left / self.noise) @ self.weight, self._spread(patterns)
        explained = ((spread[which] @ pull[..., None])[..., 0] * pull).sum(-1)
        log_det = np.linalg.slogdet(self.cov)[1] - np.linalg.slogdet(spread)[1]
        log_det = log_det + patterns @ (np.log(self.noise) + math.log(2 * math.pi))
        levels: Array = -0.5 * (log_det[which] + (left**2 / self.noise).sum(-1) - explained)
        return levels

    def replicate(self, rows: SeenRows, intercept: Array, rng: np.random.Generator) -> Array:
        """New rows (row, feature) with the covariates of these, their factors drawn anew.

        Parameters
        ----------
        rows : SeenRows
        intercept : ndarray (feature,)
        rng : numpy.random.Generator
        """
        new: Array = intercept + self.of_covariates(rows.design) + self._around(len(rows.x), rng)
        return new

    def _around(self, n: int, rng: np.random.Generator) -> Array:
        """Rows (n, feature) around 0."""
        g, k = self.weight.shape
        z = rng.standard_normal((n, k)) @ np.linalg.cholesky(self.cov).T
        drawn: Array = z @ self.weight.T + np.sqrt(self.noise) * rng.standard_normal((n, g))
        return drawn

    def _spread(self, patterns: Array) -> Array:
        """Covariance of the factors given the cells of each pattern, (pattern, factor, factor)."""
        g, k = self.weight.shape
        outer = self.weight[:, :, None] * (self.weight / self.noise[:, None])[:, None]
        inner = (patterns @ outer.reshape(g, k * k)).reshape(-1, k, k) + np.linalg.inv(self.cov)
        spread: Array = np.linalg.inv(inner)
        return spread


class NormalChains(NamedTuple):
    """Draws of the parameters by chains that count, each as often as it counts: `of_kept_chains`.

    Attributes
    ----------
    weight : ndarray (chain, draw, feature, factor)
    noise : ndarray (chain, draw, feature)
    cov : ndarray (chain, draw, factor, factor)
    effects : ndarray (chain, draw, effect, feature) or None
        As in `NormalState`.
    numbers : tuple of ndarray
        Of the chains and of their draws.
    """

    weight: Array
    noise: Array
    cov: Array
    effects: Array | None
    numbers: tuple[NDArray[np.int64], NDArray[np.int64]]

    def __len__(self) -> int:
        return self.weight.shape[0] * self.weight.shape[1]

    def at(self, number: int) -> NormalState:
        """The draw of this number, chain after chain."""
        place = divmod(int(number), self.weight.shape[1])
        effects = None if self.effects is None else self.effects[place]
        return NormalState(self.weight[place], self.noise[place], self.cov[place], effects)


def parameters_of(fit: Fit, idata: ArvizData) -> NormalChains:
    """What the chains of an edge posterior drew of the rows' distribution, in model units.

    Parameters
    ----------
    fit : Fit
        With the rows that it was fitted to.
    idata : InferenceData or DataTree
        From its `edge_posterior`.

    Raises
    ------
    ValueError, TypeError
        It is of another fit, or does not hold what a row's distribution has; the fit has no rows.
    """
    check_labels(fit, idata)
    if why := _lack(fit, idata):
        raise ValueError(f"idata: {why}")
    if not len(fit.table.x):
        raise ValueError("idata: intercepts want the rows of the fit, which a loaded one has not; give them "
                         "first, fit.with_data(X)")  # fmt: skip
    posterior = _arviz.get_group(idata, "posterior")
    kept = np.flatnonzero(_arviz.get_group(idata, "sample_stats")["kept"].to_numpy())

    def drawn(name: str, *dims: str) -> tuple[Array, tuple[NDArray[np.int64], NDArray[np.int64]]]:
        draws = posterior[name].isel(chain=kept).transpose("chain", "draw", *dims)
        draws = of_kept_chains(idata, draws)
        numbers = [
            draws[dim].to_numpy() if dim in draws.coords else np.arange(draws.sizes[dim])
            for dim in ("chain", "draw")
        ]
        return draws.to_numpy().astype(float), (numbers[0], numbers[1])

    loading, numbers = drawn("weight", "feature", "factor")
    noise_sd = drawn("noise_sd", "feature")[0] / fit.table.scale
    cov = drawn("factor_correlation", "factor", "other_factor")[0]
    left = 1 - ((loading @ cov) * loading).sum(-1)
    weight = loading * (noise_sd / np.sqrt(np.maximum(left, _LEAST)))[..., None]
    effects = None
    if fit.table.design is not None and fit.table.slopes is not None:
        contrasts = np.linalg.pinv(fit.table.design.contrasts()[1])
        whole = contrasts @ drawn("covariate_effect", "covariate", "feature")[0]
        effects = (whole - fit.table.slopes) / fit.table.scale
    return NormalChains(weight, noise_sd**2, cov, effects, numbers)


def _lack(fit: Fit, idata: ArvizData) -> str:
    """What an edge posterior does not hold of the rows' distribution; empty if nothing."""
    fix = "leave idata out, and the parameters are those of the fit"
    if not keeps(fit.model.likelihood, "normal noise"):
        kinds = ", ".join(dict.fromkeys(part.name for part, _ in fit.model.likelihood.families()))
        return (
            f"holds no intercepts of {kinds} columns, which edge_posterior does not keep; wanted normal "
            f"noise in all columns; {fix}"
        )
    if not has_normal_rows(fit.model):
        return (
            "holds no parameters of curves, of which edge_posterior keeps edges and loadings only, wanted a "
            f"linear decoder; {fix}"
        )
    posterior = _arviz.get_group(idata, "posterior")
    wanted = ["noise_sd", "factor_correlation", *["covariate_effect"] * (fit.table.design is not None)]
    if missing := [name for name in wanted if name not in posterior]:
        method = idata.attrs.get("edge_method", "?")
        return (
            f"has no {missing[0]}, which the method {method!r} does not keep; wanted "
            f'fit.edge_posterior("mcmc"), or {fix}'
        )
    return ""


def drawn_cells(
    x: Array, mask: NDArray[np.bool_], mean: Array, covariance: Array, draws: int, rng: np.random.Generator
) -> Array:
    """Normal rows with draws of their missing cells given the seen ones, (draw, row, feature).

    Parameters
    ----------
    x : ndarray (row, feature)
    mask : ndarray of bool (row, feature)
        True where seen.
    mean : ndarray (feature,) or (row, feature)
    covariance : ndarray (feature, feature)
    draws : int
    rng : numpy.random.Generator
    """
    drawn, mean = np.repeat(x[None], draws, 0), np.broadcast_to(mean, x.shape)
    patterns, which = np.unique(mask, axis=0, return_inverse=True)
    for number, seen in enumerate(patterns):
        if seen.all():
            continue
        rows, o, h = np.flatnonzero(which.reshape(-1) == number), np.flatnonzero(seen), np.flatnonzero(~seen)
        across = covariance[np.ix_(o, h)]
        gain = np.linalg.solve(covariance[np.ix_(o, o)], across)
        spread = covariance[np.ix_(h, h)] - across.T @ gain
        root = np.linalg.cholesky((spread + spread.T) / 2)
        centre = mean[np.ix_(rows, h)] + (x - mean)[np.ix_(rows, o)] @ gain
        noise = rng.standard_normal((draws, len(rows), len(h)))
        drawn[:, rows[:, None], h] = centre + noise @ root.T
    return drawn
