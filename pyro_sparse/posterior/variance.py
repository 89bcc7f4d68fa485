r"""How much of each view's variance goes with each factor, and whether the factor is active there.

.. math:: R^2_{mk} = \frac1{|m|} \sum_{j \in m} \lambda_{jk}^2, \qquad
          R^2_m = \frac1{|m|} \sum_{j \in m} \lambda_j^\top C\, \lambda_j

over the features j of view m, with standardised loadings :math:`\lambda` and the factors' correlations C, in
every draw of the chains. Edges are a poor sign of activity: of a thousand genes some have an edge by chance.

Within group g of the rows the factors have a covariance :math:`C_g` of their own (`group_variance.py`):

.. math:: R^2_{gmk} = \frac1{|m|} \sum_{j \in m} \frac{\lambda_{jk}^2\, C_{g,kk}}{s_{gj}}, \qquad
          R^2_{gm} = \frac1{|m|} \sum_{j \in m} \frac{\lambda_j^\top C_g\, \lambda_j}{s_{gj}}, \qquad
          s_{gj} = \lambda_j^\top C_g\, \lambda_j + 1 - \lambda_j^\top C\, \lambda_j
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from ..data.groups import rows_by_group
from ..data.views import views_of
from . import arviz as _arviz
from .draw_table import draw_table
from .draws import of_kept_chains
from .group_variance import GroupRows, shares_within
from .salience import check_has_loadings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .._utils.types import ArvizData

__all__ = ["ACTIVE", "TOTAL", "variance_explained"]

ACTIVE = 0.01  # share of a view's variance from which a factor is called active there, as MOFA's users do
TOTAL = "all factors"


def variance_explained(
    idata: ArvizData,
    views: Mapping[str, Sequence[str]] | None = None,
    *,
    groups: Any = None,
    active: float = ACTIVE,
    prob: float = 0.9,
    kind: _arviz.IntervalKind = "eti",
) -> pd.DataFrame:
    r"""Share of the variance of each view's features that goes with each factor, in all rows or by group.

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `fit.edge_posterior()` of a table, with draws of standardised loadings.
    views : mapping of str to sequence of str, optional
        Features by view. Default: what stands before ":" in their names (`join_views`); else all in one view.
    groups : Series, categorical or array (row,), optional
        A level (batch, site, condition) for each row of the fit, in its order: shares are those within each
        group. Of a linear decoder and `edge_posterior(scores=True)`.
    active : float
        Share from which a factor is active in a view, in (0, 1).
    prob : float
        Probability inside the interval.
    kind : {"hdi", "eti"}
        Shortest interval, or equal tails.

    Returns
    -------
    DataFrame
        One row per view and factor, and one for "all factors" of each view: `view`, `factor`, `variance`
        (posterior mean, in [0, 1]), the ends of its interval (`eti90_lb`, `eti90_ub`, named by kind and prob)
        and `p_active`, the posterior probability that it is at least `active`. Under likelihoods without a
        noise of their own it is the variance of the linear predictor plus π²/3 (logits) or 1 (counts). Shares
        of correlated factors do not add up to that of all. With `groups` the same for each group, in a first
        column `group`; NaN where a group's rows do not measure a factor that is active in the view in all
        rows.

    Raises
    ------
    TypeError, ValueError
        The object has no draws of standardised loadings; `active` is out of range; a view names a feature
        that is not there, or none. With `groups`: it has no draws of scores, or is of a curved decoder; not
        one level for each row, a missing one, or a group of one row.

    Notes
    -----
    Within a group, of feature j, the share of factor k is

    .. math:: \lambda_{jk}^2\, C_{g,kk} \;/\;
              \big(\lambda_j^\top C_g\, \lambda_j + 1 - \lambda_j^\top C\, \lambda_j\big)

    with :math:`C_g` the covariance of the factors of the group's rows around the group's means. What groups
    differ by on average is no variance within them, as in MOFA, which centres each group (a fit with
    `groups=` has taken it out already); loadings and noise are those of all groups, so a group that is
    noisier than the others has shares that are too large. Intervals are for the rows that are there, not for
    further ones of such groups.

    A single group of all rows has nearly the shares without groups, not to the digit: those are of a
    population whose factors have variance 1, these of its rows.

    MOFA's R² compares squared residuals with squared cells; where the model holds the two agree.
    """
    check_has_loadings(idata)
    if not 0 < active < 1:
        raise ValueError(f"active: got {active!r}, wanted a share of variance between 0 and 1, such as .01")
    posterior = _arviz.get_group(idata, "posterior")
    features = [str(name) for name in posterior["feature"].to_numpy()]
    members = _members(views, features)
    if groups is not None:
        rows = GroupRows.of(idata)
        by_group = rows_by_group(groups, rows.samples)
        return _within_groups(idata, rows, by_group, members, active, prob, kind)
    kept = np.flatnonzero(_arviz.get_group(idata, "sample_stats")["kept"].to_numpy())
    loading = posterior["weight"].isel(chain=kept).transpose("chain", "draw", "feature", "factor")
    of_features = loading**2
    whole = _of_all(posterior, loading, kept)
    every = xr.concat([of_features, whole], "factor")
    of_views = [every.isel(feature=at).mean("feature") for at in members.values()]
    shares = xr.concat(of_views, pd.Index(list(members), name="view"))
    shares = shares.transpose("chain", "draw", "view", "factor")
    return _table(of_kept_chains(idata, shares), active, prob, kind)


def _within_groups(
    idata: ArvizData,
    rows: GroupRows,
    by_group: Mapping[str, NDArray[np.intp]],
    members: Mapping[str, list[int]],
    active: float,
    prob: float,
    kind: _arviz.IntervalKind,
) -> pd.DataFrame:
    """The table of each group, one below the other."""
    tables = []
    for group, at in by_group.items():
        values = shares_within(rows, at, list(members.values()), active)
        shares = xr.DataArray(
            values,
            dims=("chain", "draw", "view", "factor"),
            coords={"view": list(members), "factor": [*rows.factors, TOTAL]},
        )
        table = _table(of_kept_chains(idata, shares), active, prob, kind)
        table.insert(0, "group", group)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _table(shares: xr.DataArray, active: float, prob: float, kind: _arviz.IntervalKind) -> pd.DataFrame:
    """Means and intervals of draws (chain, draw, view, factor); those of nothing known are NaN."""
    sure = (shares >= active).mean(("chain", "draw"))
    table = draw_table(shares.fillna(0.0), prob, kind, p_active=sure)
    unknown = shares.isnull().any(("chain", "draw")).to_numpy().ravel()
    table.loc[unknown, table.columns[2:]] = np.nan
    return table.drop(columns="sd").rename(columns={"mean": "variance"})


def _of_all(posterior: xr.Dataset, loading: xr.DataArray, kept: np.ndarray) -> xr.DataArray:
    """Share of each feature's variance that goes with all factors, (chain, draw, feature, one factor)."""
    values = loading.to_numpy().astype(float)
    if "factor_correlation" in posterior:
        cov = posterior["factor_correlation"].isel(chain=kept).to_numpy()
        share = ((values @ cov) * values).sum(-1)
    else:
        share = (values**2).sum(-1)
    total = xr.DataArray(np.clip(share, 0, 1)[..., None], dims=("chain", "draw", "feature", "factor"))
    coords = {name: loading[name] for name in ("chain", "draw", "feature") if name in loading.coords}
    return total.assign_coords(factor=[TOTAL], **coords)


def _members(views: Mapping[str, Sequence[str]] | None, features: list[str]) -> dict[str, list[int]]:
    if views is None:
        return views_of(features)
    place = {name: j for j, name in enumerate(features)}
    members: dict[str, list[int]] = {}
    for view, names in views.items():
        if unknown := [name for name in names if name not in place]:
            raise ValueError(
                f"views: {view!r} names {unknown[0]!r}, and the table has no such feature; its features "
                f"begin {features[:3]}"
            )
        if not len(names):
            raise ValueError(f"views: {view!r} has no features; leave it out")
        members[str(view)] = [place[name] for name in names]
    if not members:
        raise ValueError("views: got none; give some, or leave it out")
    return members
