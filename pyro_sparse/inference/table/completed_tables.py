r"""A table with its missing cells filled in: once, by expectations, or several times, by draws.

Draws are for analyses that should know how unsure a filled cell is. Missing cells h of a row are drawn given
its seen ones o, under a linear decoder and normal noise from

.. math:: x_h \mid x_o \sim N\big(\mu_h + \Sigma_{ho} \Sigma_{oo}^{-1} (x_o - \mu_o),\;
          \Sigma_{hh} - \Sigma_{ho} \Sigma_{oo}^{-1} \Sigma_{oh}\big), \qquad
          \Sigma = \Lambda C \Lambda^\top + \Psi + E,

E being the covariance beyond the model's (`impute.py`), and else from
:math:`z \sim p(z \mid x_o)`, by Laplace's normal (`factor_spread.py`), and :math:`x_h \sim p(x_h \mid z)`.

References
----------
Rubin (1987), *Multiple Imputation for Nonresponse in Surveys*, Wiley
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch

from ..._utils.checks import check_whole
from ..._utils.declared import keeps
from ..._utils.torch_state import undisturbed
from ...data.columns import as_frame
from ...data.design import features_of
from ...data.drawn_cells import with_cells
from ...data.ordered_categories import labels_of, with_words
from ...data.read import Table, give_back, read_like
from ...data.views import as_one_table
from ..training.restarts import pick
from .factor_spread import roots_of
from .impute import add_residuals, positive
from .normal_rows import SeenRows, drawn_cells, has_normal_rows, parameters_of

if TYPE_CHECKING:
    from ..._utils.types import ArvizData, TableLike
    from .result import Fit

__all__ = ["completed", "completed_draws"]

MOST_CELLS = 200_000_000  # of all tables together: 1.6 GB
MOST_FEATURES = 2000  # of a dense covariance, as in `Fit.excess_cov`


def completed(fit: Fit, X: TableLike, table: Table, num_draws: int) -> np.ndarray | pd.DataFrame:
    """`X` with expectations in its missing cells: see `Fit.impute`.

    Parameters
    ----------
    fit : Fit
    X : array_like (row, feature) or DataFrame
    table : Table
        What the fit read of it.
    num_draws : int
        As in `Fit.predict`.
    """
    X = as_one_table(X)
    names, labels, whole = fit.feature_names, labels_of(fit.model), as_frame(X)
    X = features_of(X, fit.table.taken)
    filled = read_like(X, names, labels)  # what was seen stays as it is
    if table.mask is not None:
        predicted, excess = fit._expected(table, num_draws, average=True), fit.excess_cov
        if excess is not None:
            predicted = add_residuals(predicted, table.x, table.mask, *fit.implied_moments(), excess)
        filled = np.where(table.mask, filled, fit.table.given_back(predicted, table.per_row))
    table_of_cells = give_back(filled, X, names)
    if labels and isinstance(table_of_cells, pd.DataFrame):
        table_of_cells = with_words(table_of_cells, as_frame(X), names, labels)
    if isinstance(table_of_cells, pd.DataFrame) and isinstance(whole, pd.DataFrame):
        return whole.assign(**table_of_cells) if len(whole.columns) > len(filled.T) else table_of_cells
    return table_of_cells


def completed_draws(
    fit: Fit, X: TableLike, table: Table, draws: int, seed: int, idata: ArvizData | None
) -> list[np.ndarray | pd.DataFrame]:
    """`X` with draws in its missing cells, `draws` times: see `Fit.impute`.

    Parameters
    ----------
    fit : Fit
    X : array_like (row, feature) or DataFrame
    table : Table
        What the fit read of it.
    draws, seed : int
    idata : InferenceData or DataTree, optional
        Whose draws of loadings and noise the tables take in turn.
    """
    check_whole(1, draws=draws)
    check_whole(0, seed=seed)
    _check_drawn(fit, table, draws, idata)
    X = as_frame(as_one_table(X))
    seen = np.ones(table.x.shape, bool) if table.mask is None else table.mask
    rows = np.flatnonzero(~seen.all(1))
    holes, labels = table.rows(rows), labels_of(fit.model)
    cells = np.zeros(table.x.shape)
    tables = []
    for drawn in _draws_of(fit, holes, draws, seed, idata):
        cells[rows] = fit.table.given_back(drawn, holes.per_row)
        tables.append(with_cells(X, cells, seen, fit.feature_names, labels, fit.table.taken))
    return tables


def _check_drawn(fit: Fit, table: Table, draws: int, idata: ArvizData | None) -> None:
    """Complain of what no cells can be drawn of."""
    likelihood = fit.model.likelihood.unadjusted
    if keeps(likelihood, "row totals"):
        raise ValueError(
            f"draws: {likelihood.name!r} shares out a row's total, which is not known where cells are "
            'missing; wanted counts of their own ("poisson", "negative_binomial"), or leave draws out'
        )
    if not fit.model.gaussian_guide:
        raise ValueError(
            f"draws: factors of a {type(fit.model).__name__} are no normal variables, wanted a model whose "
            "factors are; leave draws out"
        )
    if idata is not None and fit.model.n_features > MOST_FEATURES:
        raise ValueError(
            f"idata: there are {fit.model.n_features} features, wanted at most {MOST_FEATURES}, whose "
            "covariance is drawn whole; leave idata out"
        )
    if draws * table.x.size > MOST_CELLS:
        n, g = table.x.shape
        raise ValueError(
            f"draws: {draws} tables of {n} x {g} cells would take {8e-9 * draws * n * g:.1f} GB, wanted at "
            f"most {8e-9 * MOST_CELLS:.1f}; give fewer draws, or some rows at a time"
        )


def _draws_of(fit: Fit, holes: Table, draws: int, seed: int, idata: ArvizData | None) -> Iterator[np.ndarray]:
    """Cells (row, feature) of rows that miss some, in model units, one draw after the other."""
    rng = np.random.default_rng(seed)
    if holes.mask is None:
        return iter([holes.x] * draws)
    if idata is not None:
        return _by_chains(fit, holes, holes.mask, draws, idata, rng)
    if has_normal_rows(fit.model) and fit.model.n_features <= MOST_FEATURES:
        mean, covariance = fit.implied_moments()
        if (excess := fit.excess_cov) is not None:
            covariance = covariance + excess
        return iter(drawn_cells(holes.x, holes.mask, mean, covariance, draws, rng))
    return iter(_by_factors(fit, holes, draws, seed))


def _by_factors(fit: Fit, holes: Table, draws: int, seed: int) -> list[np.ndarray]:
    """Rows' factors from their posterior, then cells given these, by the best restart."""
    like = fit.model.factor_cov
    batch = holes.batch(like.device, like.dtype)
    location = fit._posterior(batch, True)
    roots, location = roots_of(fit, batch, location), location.double()
    restart = pick(fit.model, [fit.best]).double()
    restart.eval()
    per_row = {name: values.double() for name, values in batch.per_row.items()}
    weights, shift = getattr(restart, "weights", None), np.zeros(1)
    if holes.mask is not None and (excess := fit.excess_cov) is not None:
        nothing = np.zeros(holes.x.shape)
        shift = add_residuals(nothing, holes.x, holes.mask, *fit.implied_moments(), excess)
    drawn = []
    with undisturbed(seed), torch.no_grad():
        for _ in range(draws):
            z = location + (roots @ torch.randn_like(location).unsqueeze(-1)).squeeze(-1)
            f = restart.decode(z.unsqueeze(0), weights)
            try:
                cells = restart.likelihood.observation(f, None, per_row).sample()[0]
            except NotImplementedError as error:
                raise ValueError(
                    f"draws: cells of a {type(restart.likelihood).__name__} cannot be drawn, for its "
                    "distribution has no sample(); write one, or leave draws out"
                ) from error
            drawn.append(cells.cpu().double().numpy() + shift)
    return drawn


def _by_chains(
    fit: Fit, holes: Table, mask: np.ndarray, draws: int, idata: ArvizData, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Cells given draws of loadings, noise, correlations and effects, and intercepts drawn with them."""
    chains, rows, excess = parameters_of(fit, idata), SeenRows.of(fit.table), fit.excess_cov
    design = holes.per_row.get("design")
    for number in np.linspace(0, len(chains) - 1, draws).round().astype(int):
        state = chains.at(number)
        mean = state.intercept(rows, rng) + state.of_covariates(design)
        covariance = state.covariance()
        if excess is not None:
            covariance = positive(covariance + excess)
        yield drawn_cells(holes.x, mask, mean, covariance, 1, rng)[0]
