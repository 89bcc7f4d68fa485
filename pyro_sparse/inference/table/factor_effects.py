"""Which covariate moves which factor: posterior of a regression of the factors, which scores cannot give."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from scipy.linalg import block_diag

from ..._utils.checks import check_whole
from ..._utils.declared import keeps
from ..._utils.wording import listed
from ...data.checks._cells import normal_scores
from ...data.checks.beyond_covariates import what_is_beyond
from ...data.design import Design, design_of
from ...data.large_table import LargeTable
from ...findings.finding import Finding, doubted_edges, findings_of, write_findings
from ...posterior import arviz as _arviz
from ...posterior.draw_table import draw_table
from ...posterior.same_fit import check_labels
from .factor_rows import measurements
from .latent_regression import Regression, direct_effects, regressed
from .normal_rows import has_normal_rows

if TYPE_CHECKING:
    from ..._utils.types import ArvizData
    from .result import Fit

__all__ = ["factor_effects"]

Array = NDArray[np.float64]
_SURE = 0.01  # chance below which a direct effect is said, or a curve, shared among all covariates
_NAMED = 3  # features in a message
_BEYOND = {
    "curve": "give its square as well, or give it in classes",
    "product": "give their product as well",
    "values": "say which row is of which cluster (groups=)",
    "near": "say which rows are of one place or period (groups=)",
}
_ALIKE = 0.7  # of the largest score: what one feature takes from the factors the others show with half of it


def factor_effects(
    fit: Fit,
    idata: ArvizData,
    covariates: Any = None,
    *,
    groups: Any = None,
    prob: float = 0.9,
    kind: _arviz.IntervalKind = "hdi",
    seed: int = 0,
) -> pd.DataFrame:
    r"""Posterior of the effect of each covariate on each factor, and of each group's mean.

    .. math:: z_i \sim N(B^\top d_i + u_{g(i)},\; \Sigma), \qquad u_{gk} \sim N(0, \tau_k^2)

    A regression of `transform`'s scores, or of `factor_draws`, is pulled towards 0 by what the cells leave
    unknown of a row's factors; this one is not. Loadings and noise are those of the chains: what a factor is
    does not depend on the covariates it is regressed on.

    Parameters
    ----------
    fit : Fit
        Of a linear decoder, with its rows.
    idata : InferenceData or DataTree
        From its `edge_posterior`, by Markov chains.
    covariates : Series, DataFrame, mapping or array (row,) or (row, covariate), optional
        Numbers, and categories as text or booleans, of the rows of the fit.
    groups : the same, optional
        Groups (schools, batches, persons), whose means are drawn towards each other (a random intercept of
        each factor, its standard deviation half-Cauchy with scale .5).
    prob : float
        Probability inside the interval.
    kind : {"hdi", "eti"}
        Shortest interval, or equal tails.
    seed : int

    Returns
    -------
    DataFrame
        One row per covariate and factor: `covariate`, `factor`, `mean`, `sd`, the ends of the interval,
        `hdi90_lb` and `hdi90_ub` (named by kind and prob), and `doubted`: whether a doubt of the edge
        posterior touches the factor, whose axis, and with it the effect, may then be another. Of a number it
        is the effect of its unit, of a category that of each level against the average row, all else equal,
        in standard deviations of the factor over the rows. NaN of factors that the chains did not run over.
        `attrs["findings"]` has what was warned of, as JSON.

    Warns
    -----
    RuntimeWarning
        A covariate moves features past the factors (score test): its effects on factors are then off. Groups
        are not tested. Or factors depend on covariates beyond lines (a curve, clusters of rows with one
        value), and intervals are too narrow.

    Raises
    ------
    TypeError, ValueError
        The fit has no linear decoder or no rows, idata is not its edge posterior by Markov chains, or the
        covariates are not one value for each row, constant, missing, or what factors are net of already.

    References
    ----------
    Rosseel and Loh (2022), *A structural after measurement approach to structural equation modeling*,
    Psychological Methods 27(4).

    Examples
    --------
    >>> import numpy as np
    >>> import pyro_sparse as ps
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(20, 70, 200)
    >>> z = 0.04 * (age - 45) + rng.normal(size=200)
    >>> X = z[:, None] + rng.normal(size=(200, 4))
    >>> fit = ps.fit(ps.models.SparseDecoder(n_factors=1, decoder="linear"), X, restarts=2, progress=False)
    >>> idata = fit.edge_posterior(seed=0, progress=False)
    >>> effects = ps.factor_effects(fit, idata, {"age": age})
    >>> bool(effects.hdi90_lb[0] > 0 or effects.hdi90_ub[0] < 0)
    True
    """
    check_whole(0, seed=seed)
    check_labels(fit, idata)
    _check(fit, idata)
    given = _designs(fit, covariates, groups)
    used = _used(idata)
    if not used.any():
        raise ValueError("idata: its chains ran over no factor, so that there is nothing to regress")
    rng = np.random.default_rng(seed)
    drawn, slopes, weights = [], [], []
    for measurement in measurements(fit, idata, used, rng):
        coefficients, of_cells = regressed(given.regression, measurement.rows, measurement.start, rng)
        drawn.append(given.contrasts @ coefficients)
        slopes.append(of_cells)
        weights.append(measurement.weight)
    findings = [
        *_past_factors(fit, given, np.mean(slopes, 0), np.mean(weights, 0)),
        *_beyond_lines(fit, given, used),
    ]
    for finding in findings:
        warnings.warn(f"factor_effects: {finding}", RuntimeWarning, stacklevel=2)
    names = np.array(fit.factor_names, dtype=object)
    draws = xr.DataArray(
        np.stack(drawn),
        dims=("chain", "draw", "covariate", "factor"),
        coords={"covariate": given.names, "factor": names[used]},
    )
    touched = doubted_edges(findings_of(idata=idata), fit.feature_names, fit.factor_names).all(0)
    rows = pd.DataFrame(
        {
            "covariate": np.repeat(given.names, len(names)),
            "factor": np.tile(names, len(given.names)),
            "doubted": np.tile(touched, len(given.names)),
        }
    )
    table = rows.merge(draw_table(draws, prob, kind), "left", ["covariate", "factor"])
    table = table[[*(name for name in table if name != "doubted"), "doubted"]]
    table.attrs["findings"] = write_findings(findings)
    return table


def _check(fit: Fit, idata: ArvizData) -> None:
    """Complain of what has no rows whose factors could be drawn."""
    model = fit.model
    if getattr(model, "decoder_kind", "") != "linear" or not keeps(model, "masked decoder"):
        raise ValueError(
            f"fit: is of a {type(model).__name__} whose features are no straight lines of its factors; "
            'wanted SparseDecoder(decoder="linear")'
        )
    if isinstance(fit.table, LargeTable):
        raise ValueError("fit: its table is read by rows, whose factors are not drawn; wanted one in memory")
    if not len(fit.table.x):
        raise ValueError("fit: has no rows in memory; a loaded one takes them by fit.with_data(X)")
    if fit.table.weights is not None:
        raise ValueError(
            "fit: its rows have weights, which a regression of factors does not know; leave them out"
        )
    posterior = _arviz.get_group(idata, "posterior")
    wanted = ["factor_correlation", *["noise_sd"] * has_normal_rows(model)]
    if missing := [name for name in wanted if name not in posterior]:
        raise ValueError(
            f"idata: has no {missing[0]}, which the method {idata.attrs.get('edge_method', '?')!r} does not "
            'keep; wanted fit.edge_posterior("mcmc")'
        )


class _Given(NamedTuple):
    """Covariates and groups: the regression, and what is reported of its coefficients.

    Attributes
    ----------
    regression : Regression
    names : list of str
        Of what is reported.
    contrasts : ndarray (covariate, effect)
        Of coefficients.
    design : Design or None
        Of the covariates that are no groups, and
    rows, beside : ndarray (row, effect)
        their design matrix, and that of all else.
    terms : list of (str, ndarray)
        Name and design (row, effect) of each covariate that is no group.
    """

    regression: Regression
    names: list[str]
    contrasts: Array
    design: Design | None
    rows: Array
    beside: Array
    terms: list[tuple[str, Array]]


def _designs(fit: Fit, covariates: Any, groups: Any) -> _Given:
    """The design of what was given, behind what factors are regressed on without being asked."""
    if covariates is None and groups is None:
        raise ValueError("covariates, groups: got none of both; give one, such as {'age': age}")
    n, samples = len(fit.table.x), fit.table.sample_names
    of_fit = fit.table.per_row.get("design")
    beside = [] if of_fit is None else [of_fit]
    if not has_normal_rows(fit.model):
        beside.append(np.ones((n, 1)))  # intercepts are those of the fit, and loadings those of the chains
    terms: list[tuple[str, Array]] = []
    names: list[str] = []
    design, of_covariates = None, np.zeros((n, 0))
    blocks = [np.zeros((0, sum(rows.shape[1] for rows in beside)))]
    grouped = []
    if covariates is not None:
        design, of_covariates = _design_of(fit, "covariates", covariates, n, samples)
        terms = list(_by_term(design, of_covariates))
        names, contrasts = design.contrasts()
        blocks.append(contrasts)
    for group in _columns(groups):
        of_group, rows = _design_of(fit, "groups", group, n, samples)
        levels, contrasts = of_group.contrasts()
        names += levels
        blocks.append(contrasts)
        grouped.append((rows, contrasts))
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"groups: {twice[0]!r} is there twice; give it once, as a covariate or as a group")
    regression = Regression(np.concatenate([np.zeros((n, 0)), *beside, of_covariates], 1), grouped)
    others = np.concatenate([np.zeros((n, 0)), *beside, *(rows for rows, _ in grouped)], 1)
    return _Given(regression, names, block_diag(*blocks), design, of_covariates, others, terms)


def _design_of(fit: Fit, role: str, values: Any, n: int, samples: list[str] | None) -> tuple[Design, Array]:
    if isinstance(values, str):
        raise TypeError(f"{role}: got the name {values!r}, wanted the values, such as table[{values!r}]")
    design, rows = design_of({role: values}, n, samples)
    net_of = {term.name for term in fit.table.design.terms} if fit.table.design is not None else set()
    if taken := [term.name for term in design.terms if term.name in net_of]:
        raise ValueError(
            f"{role}: factors of this fit are net of {taken[0]!r}, which it was given; fit without it to ask "
            "for its effects on factors"
        )
    return design, rows


def _columns(groups: Any) -> Iterator[Any]:
    """Each grouping by itself: one may lie within another."""
    if isinstance(groups, pd.DataFrame):
        yield from (groups.iloc[:, [j]] for j in range(groups.shape[1]))
    elif isinstance(groups, Mapping):
        yield from ({name: values} for name, values in groups.items())
    elif groups is not None:
        yield groups


def _by_term(design: Design, rows: Array) -> Iterator[tuple[str, Array]]:
    at = 0
    for term in design.terms:
        width = max(1, len(term.levels) - 1)
        yield term.name, rows[:, at : at + width]
        at += width


def _used(idata: ArvizData) -> NDArray[np.bool_]:
    """Factors that the chains ran over and gave an edge."""
    weight = _arviz.get_group(idata, "posterior")["weight"].transpose("factor", ...)
    used: NDArray[np.bool_] = (
        (np.nan_to_num(weight.to_numpy()) != 0).reshape(weight.sizes["factor"], -1).any(1)
    )
    return used


# ---- what may be wrong -------------------------------------------------------------------------------------
def _past_factors(fit: Fit, given: _Given, slopes: Array, weight: Array) -> list[Finding]:
    """Covariates that move features past the factors."""
    findings = []
    if weight.shape[0] <= weight.shape[1] + 1:
        return []
    for name, rows in given.terms:
        p_value, z_score = direct_effects(slopes, rows, weight)
        if p_value >= _SURE / len(given.terms):
            continue
        order = [j for j in np.argsort(-z_score)[:_NAMED] if z_score[j] > _ALIKE * z_score.max()]
        worst = [fit.feature_names[j] for j in order]
        message = (
            f"{name} moves {listed(worst)} directly, past the factors (score test, p = {p_value:.2g}), and "
            "its effects on factors take some of that up"
        )
        remedy = "leave these features out and see whether the effects stay"
        findings.append(
            Finding("direct", message, remedy, source="chains", columns=tuple(worst), size=p_value)
        )
    return findings


def _beyond_lines(fit: Fit, given: _Given, used: NDArray[np.bool_]) -> list[Finding]:
    """Covariates of which factors are no straight lines, or whose values are those of clusters of rows."""
    if given.design is None:
        return []
    scores = np.asarray(fit.transform())[:, used]
    beyond = what_is_beyond(
        np.apply_along_axis(normal_scores, 0, scores), given.design, given.rows, _SURE, given.beside
    )
    if beyond is None:
        return []
    return [
        Finding(
            "covariates",
            f"{beyond.said}; intervals of effects take rows for independent and effects for lines, and are "
            "too narrow",
            _BEYOND[beyond.kind],
            source="chains",
            size=beyond.share,
        )
    ]
