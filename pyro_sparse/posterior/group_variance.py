r"""Covariance of the factors within groups of rows, in every draw of the chains.

Draws of rows' factors are made under the model's own prior, one for all rows, and lean towards it: of a
factor that a group does not have at all they still vary by as much as its cells leave unknown. With
:math:`V_i` the posterior covariance of row i's factors, C their correlations and
:math:`R_i = I - V_i C^{-1}` (their reliability), draws from a group whose factors have covariance
:math:`C_g` have

.. math:: E[D_g] = C + \frac1{n_g} \sum_{i \in g} R_i\, (C_g - C)\, R_i^\top ,

for the posterior mean is :math:`R_i` times the factors and their error, and D = C where the group is like all
rows. :math:`C_g` solves this for the covariance :math:`D_g` of each draw, without its negative eigenvalues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data.groups import rows_by_group
from . import arviz as _arviz

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._utils.types import ArvizData

__all__ = ["GroupRows", "covariances_within", "shares_within"]

Array = NDArray[np.float64]
# Mean squared reliability below which a group's cells say next to nothing of a factor: its variance there
# would be known to no better than 1 / .1 times what draws of the prior vary by.
_MEASURED = 0.1


class GroupRows(NamedTuple):
    """What shares within groups are made of, of the chains kept.

    Attributes
    ----------
    scores : ndarray (chain, draw, row, factor)
        NaN of factors that the chains did not run over.
    loading : ndarray (chain, draw, feature, factor)
        Standardised; of the draw next to that of the scores, of which fewer are kept.
    correlation : ndarray (chain, draw, factor, factor)
        Of the same draws.
    samples, factors : list of str
    caller_row : ndarray of int (row,) or None
        Which row of the caller each is, where frequency weights repeat rows.
    """

    scores: Array
    loading: Array
    correlation: Array
    samples: list[str]
    factors: list[str]
    caller_row: NDArray[np.intp] | None = None

    @classmethod
    def of(cls, idata: ArvizData) -> GroupRows:
        """From an edge posterior with draws of standardised loadings.

        Parameters
        ----------
        idata : InferenceData or DataTree

        Raises
        ------
        ValueError
            It has no draws of scores, or is of a curved decoder.
        """
        if idata.attrs.get("decoder", "linear") != "linear":
            raise ValueError(
                f"groups: the edge posterior is of a decoder {idata.attrs['decoder']!r}, whose shares in a "
                'group do not follow from those in all rows; wanted decoder="linear": leave groups out'
            )
        if "scores" not in _arviz.group_names(idata):
            raise ValueError(
                "groups: the edge posterior has no draws of scores, which say how factors vary in groups; "
                "wanted fit.edge_posterior(scores=True)"
            )
        of_rows = _arviz.get_group(idata, "scores")
        z = of_rows["z"].transpose("chain", "draw", "sample", "factor")
        kept = np.flatnonzero(_arviz.get_group(idata, "sample_stats")["kept"].to_numpy())
        posterior = _arviz.get_group(idata, "posterior")
        n, wanted = posterior.sizes["draw"], z.sizes["draw"]
        at = np.linspace(0, n - 1, wanted).round().astype(int)
        loading = posterior["weight"].isel(chain=kept, draw=at)
        loading = loading.transpose("chain", "draw", "feature", "factor")
        k = loading.sizes["factor"]
        correlation = np.broadcast_to(np.eye(k), (len(kept), wanted, k, k))
        if "factor_correlation" in posterior:
            drawn = posterior["factor_correlation"].isel(chain=kept, draw=at)
            correlation = drawn.transpose("chain", "draw", "factor", "other_factor").to_numpy()
        return cls(
            z.to_numpy().astype(float),
            loading.to_numpy().astype(float),
            correlation.astype(float),
            [str(name) for name in z["sample"].to_numpy()],
            [str(name) for name in z["factor"].to_numpy()],
            of_rows["caller_row"].to_numpy() if "caller_row" in of_rows else None,
        )

    def of_groups(self, values: Any) -> dict[str, NDArray[np.intp]]:
        """Rows of each group; of frequency weights each row of the caller as often as it counts.

        Parameters
        ----------
        values : Series, categorical or array (row,)
            A level for each row of the caller, or for each row of the scores.

        Raises
        ------
        TypeError, ValueError
            As `rows_by_group`.
        """
        if self.caller_row is None or np.shape(values)[:1] == (len(self.samples),):
            return rows_by_group(values, self.samples, "the scores")
        first = np.flatnonzero(np.diff(self.caller_row, prepend=-1))
        names = [self.samples[i] for i in first]
        of_caller = rows_by_group(values, names, "the fit", self.caller_row)
        return {level: np.flatnonzero(np.isin(self.caller_row, at)) for level, at in of_caller.items()}


def shares_within(
    rows: GroupRows, at: NDArray[np.intp], views: Sequence[Sequence[int]], active: float
) -> Array:
    """Share of the variance of each view's features within a group of rows, by factor and of all factors.

    Parameters
    ----------
    rows : GroupRows
    at : ndarray of int
        The group's rows.
    views : sequence of sequence of int
        Features of each view.
    active : float
        Share in all rows from which a factor that the group does not measure makes the answer NaN.

    Returns
    -------
    ndarray (chain, draw, view, factor + 1)
        The last one of all factors.
    """
    n_chains, n_draws, _, n_factors = rows.scores.shape
    shares = np.zeros((n_chains, n_draws, len(views), n_factors + 1))
    run = np.isfinite(rows.scores).all((0, 1, 2))
    used = np.flatnonzero(run)
    for c in range(n_chains):
        loading = rows.loading[c][..., used]
        model = rows.correlation[c][:, used[:, None], used]
        within, measured = covariances_within(rows.scores[c][:, at][..., used], model)
        for v, features in enumerate(views):
            weight = loading[:, features]
            rest = np.clip(1 - _quadratic(weight, model), 0, 1)
            explained = _quadratic(weight, within)
            total = np.maximum(explained + rest, np.finfo(float).tiny)
            each = weight**2 * np.diagonal(within, axis1=1, axis2=2)[:, None]
            shares[c, :, v, used] = (each / total[..., None]).mean(1).T
            shares[c, :, v, -1] = (explained / total).mean(1)
            if (unknown := ~measured & ((weight**2).mean((0, 1)) >= active)).any():
                shares[c, :, v, used[unknown]] = np.nan
                shares[c, :, v, -1] = np.nan
    return np.clip(shares, 0, 1)


def _quadratic(weight: Array, covariance: Array) -> Array:
    """Variance of each feature's factors, (draw, feature)."""
    variance: Array = ((weight @ covariance) * weight).sum(-1)
    return variance


def covariances_within(scores: Array, correlation: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Covariances of the factors over rows of one group.

    Parameters
    ----------
    scores : ndarray (draw, row, factor)
        Of one chain, two rows at least.
    correlation : ndarray (draw, factor, factor)
        C of each draw.

    Returns
    -------
    covariance : ndarray (draw, factor, factor)
        Around the group's mean; of factors that the rows do not measure it is C.
    measured : ndarray of bool (factor,)
    """
    n = scores.shape[1]
    away = scores - scores.mean(0)
    spread = np.einsum("dni,dnj->nij", away, away, optimize=True) / max(len(scores) - 1, 1)
    reliability = np.eye(scores.shape[2]) - spread @ np.linalg.inv(correlation.mean(0))
    measured = (np.diagonal(reliability, axis1=1, axis2=2) ** 2).mean(0) >= _MEASURED
    covariance = correlation.copy()
    at = np.flatnonzero(measured)
    if not len(at):
        return covariance, measured
    within = scores[..., at] - scores[..., at].mean(1, keepdims=True)
    model = correlation[:, at[:, None], at]
    surplus = np.swapaxes(within, 1, 2) @ within / (n - 1) - model
    pulled = reliability[:, at[:, None], at].reshape(n, -1)
    k = len(at)
    # R ⊗ R, averaged over rows: ((i, j), (k, l)) as the rows of a product have it, ((i, k), (j, l)) as wanted
    pull = (pulled.T @ pulled / n).reshape(k, k, k, k).transpose(0, 2, 1, 3).reshape(k * k, k * k)
    change = np.linalg.solve(pull, surplus.reshape(len(scores), -1).T).T.reshape(surplus.shape)
    value, vector = np.linalg.eigh(model + (change + np.swapaxes(change, 1, 2)) / 2)
    whole = (vector * np.maximum(value, 0)[:, None]) @ np.swapaxes(vector, 1, 2)
    covariance[:, at[:, None], at] = whole
    return covariance, measured
