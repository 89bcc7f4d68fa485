r"""Tables as the model would make them again: rows simulated from a fit, and ArviZ's posterior predictive.

.. math:: \tilde x_i \sim \int p(x \mid z, d_i, \theta)\, p(z \mid \theta)\, dz, \qquad
          \theta \sim p(\theta \mid x)

Factors are drawn anew, so that a replicate of a row is another row with its covariates and exposure: a model
whose factors reproduce each row need not know how rows come about (Gelman, Meng and Stern 1996, *Posterior
predictive assessment of model fitness via realized discrepancies*, Statistica Sinica 6(4)).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
import xarray as xr

from ..._utils.checks import check_whole
from ..._utils.torch_state import isolated, undisturbed
from ...data.large_table import LargeTable
from ...data.per_row import of_rows, tensors_of
from ...posterior import arviz as _arviz
from ...posterior.same_fit import fit_mark
from ..training.restarts import pick
from .normal_rows import NormalChains, SeenRows, parameters_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..._utils.types import ArvizData
    from ...data.read import Table
    from ...models.base import FactorModel
    from .result import Fit

__all__ = ["posterior_predictive", "simulated_rows"]

MOST_DRAWS = 100  # of each chain, where nobody says how many
MOST_NUMBERS = 50_000_000  # of all replicated tables: 200 MB
_FEWEST = 10  # draws, below which pictures of replicates say little


def simulated_rows(fit: Fit, n: int, seed: int) -> np.ndarray:
    """Rows (n, feature) of the best restart, in the caller's units, with inputs of rows drawn from the fit's.

    Parameters
    ----------
    fit : Fit
    n, seed : int
    """
    # what goes with a row goes together: a batch and its exposures
    n_rows = max((len(values) for values in fit.table.per_row.values()), default=1)
    drawn = of_rows(fit.table.per_row, np.random.default_rng(seed).integers(n_rows, size=n))
    with undisturbed(seed), torch.no_grad():
        return fit.table.given_back(_drawn(fit.model, n, drawn)[fit.best], drawn)


def _drawn(model: FactorModel, n: int, per_row: Mapping[str, np.ndarray]) -> np.ndarray:
    """Rows of each restart in model units, (restart, n, feature)."""
    prior = model.factor_prior()
    z = prior.expand((*prior.batch_shape[:-1], n)).sample()
    f = model.decode(z, getattr(model, "weights", None))
    observation = model.likelihood.observation(f, None, tensors_of(per_row, z.dtype, z.device))
    cells: np.ndarray = observation.sample().cpu().double().numpy()
    return cells


@isolated()
def posterior_predictive(
    fit: Fit, idata: ArvizData | None = None, *, draws: int | None = None, seed: int = 0
) -> ArvizData:
    """Replicates of a fit's table as ArviZ has them, for `arviz.plot_ppc`, `plot_bpv` and `loo_pit`.

    A replicate of a row has its covariates, exposure and missing cells, and factors of its own: it is another
    row of the model, not the same one measured again.

    Parameters
    ----------
    fit : Fit
        Of a table in memory.
    idata : InferenceData or DataTree, optional
        Its `edge_posterior()`, by Markov chains, of a linear decoder under normal noise: replicates have the
        parameters of their draws. Default: all have those of the fit's best restart, of any decoder and
        likelihood, which leaves out how unsure these are.
    draws : int, optional
        Of each chain, evenly spread, at most as many as `idata` has. Default 100, or as many as make 50
        million numbers (200 MB).
    seed : int

    Returns
    -------
    InferenceData or DataTree
        The groups of `idata`, and `posterior_predictive` (x: chain, draw, sample, feature; single precision),
        `observed_data` (x: sample, feature) and, where rows have any, `constant_data` (the design matrix of
        covariates; exposures); in the caller's units, levels as their numbers, NaN where missing. With
        `idata` also `log_likelihood` (x: chain, draw, sample), each row's log density with its factors summed
        out, at the same draws, so that weights of leave-one-out are of these. The attribute `parameters` of
        the first group says whose they are, "chains" or "fit". Chains are those that were kept; where they
        count differently, one chain has draws of each in proportion.

    Raises
    ------
    ValueError
        `idata` is of another fit or does not hold all parameters (of curves, of other likelihoods); the fit
        has no rows (`Fit.with_data`), is read by rows, or `draws` are too many.
    TypeError
        `fit` is not that of a table, or `idata` no edge posterior of one.

    References
    ----------
    Gelman, Meng and Stern (1996), *Posterior predictive assessment of model fitness via realized
    discrepancies*, Statistica Sinica 6(4)

    Examples
    --------
    >>> import numpy as np
    >>> import pyro_sparse as ps
    >>> X = np.repeat(np.random.default_rng(0).normal(size=(60, 1)), 4, axis=1)
    >>> X = X + 0.5 * np.random.default_rng(1).normal(size=X.shape)
    >>> fit = ps.fit(ps.models.SparseDecoder(4, 1), X, restarts=1, steps=60, progress=False)
    >>> ps.posterior_predictive(fit, draws=20)["posterior_predictive"]["x"].shape
    (1, 20, 60, 4)
    """
    if not hasattr(fit, "factor_draws"):
        raise TypeError(f"fit: want that of a table, whose rows can be simulated, got a {type(fit).__name__}")
    check_whole(1, True, draws=draws)
    check_whole(0, seed=seed)
    table = fit.table
    if isinstance(table, LargeTable):
        n, g = table.x.shape
        raise ValueError(
            f"fit: replicates of its {n} x {g} cells would be dense; wanted a table in memory: give some of "
            "the rows, fit.with_data(X[:1000])"
        )
    if not len(table.x):
        raise ValueError("fit: a loaded one has no rows to replicate; give them, fit.with_data(X)")
    if table.weights is not None and table.weights.kind == "survey":
        raise ValueError(
            "fit: has survey weights, and counts the moments of its rows rather than the rows; fit.sample(n) "
            "draws rows of the population"
        )
    if idata is None:
        n_draws = _number(table, 1, draws)
        model, n = pick(fit.model, [fit.best]), len(table.x)
        with undisturbed(seed), torch.no_grad():
            tables = [_as_given(table, _drawn(model, n, table.per_row)[0]) for _ in range(n_draws)]
        x = np.stack(tables)[None]
        source = {"parameters": "fit", "fit_mark": fit_mark(fit)}
        return _arviz.from_datasets(_groups(fit, x, (np.arange(1), np.arange(n_draws))), source)
    chains = parameters_of(fit, idata)
    n_chains, n_kept = chains.weight.shape[:2]
    number = min(_number(table, n_chains, draws), n_kept)
    at = np.unique(np.linspace(0, n_kept - 1, number).round().astype(int))
    x, levels = _of_chains(table, chains, at, np.random.default_rng(seed))
    numbers = chains.numbers[0], chains.numbers[1][at]
    there = {name: _arviz.get_group(idata, name) for name in _arviz.group_names(idata)}
    made = _groups(fit, x, numbers, levels)
    made["posterior_predictive"].attrs["parameters"] = "chains"
    return _arviz.from_datasets({**there, **made}, idata.attrs)


def _number(table: Table, n_chains: int, draws: int | None) -> int:
    """Draws of each chain, as many as memory bears."""
    n, g = table.x.shape
    most = MOST_NUMBERS // (n_chains * n * g)
    if draws is None and most >= _FEWEST:
        return min(MOST_DRAWS, most)
    if draws is None or draws > most:
        raise ValueError(
            f"draws: {draws or _FEWEST} of each of {n_chains} chains are "
            f"{4e-9 * (draws or _FEWEST) * n_chains * n * g:.2g} GB of {n} x {g} cells, wanted at most "
            f"{4e-9 * MOST_NUMBERS:.2g}; " + (f"give draws={most} or fewer" if most else "give fewer rows")
        )
    return draws


def _of_chains(
    table: Table, chains: NormalChains, at: NDArray[np.int64], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Replicates (chain, draw, row, feature) and rows' log densities, both in the caller's units."""
    n_chains, n_kept = chains.weight.shape[:2]
    rows = SeenRows.of(table)
    x = np.empty((n_chains, len(at), *table.x.shape), np.float32)
    levels = np.empty((n_chains, len(at), len(table.x)))
    log_scale = np.log(table.scale)
    units = log_scale.sum() if table.mask is None else table.mask @ log_scale
    for c in range(n_chains):
        for s, number in enumerate(at):
            state = chains.at(c * n_kept + number)
            intercept = state.intercept(rows, rng)
            x[c, s] = _as_given(table, state.replicate(rows, intercept, rng))
            levels[c, s] = state.log_density(rows, intercept) - units
    return x, levels


def _as_given(table: Table, cells: np.ndarray) -> np.ndarray:
    """Cells in the caller's units, single precision, NaN where the table's own are missing."""
    given = table.given_back(cells, table.per_row).astype(np.float32)
    return given if table.mask is None else np.where(table.mask, given, np.float32(np.nan))


def _groups(
    fit: Fit,
    x: np.ndarray,
    numbers: tuple[NDArray[np.int64], NDArray[np.int64]],
    levels: np.ndarray | None = None,
) -> dict[str, xr.Dataset]:
    """The groups that replicates bring, in the caller's units."""
    table = fit.table
    names = {"sample": table.sample_names, "feature": fit.feature_names}
    runs = {"chain": numbers[0], "draw": numbers[1]}
    cells = table.given_back(table.x, table.per_row)
    observed = cells if table.mask is None else np.where(table.mask, cells, np.nan)
    groups = {
        "posterior_predictive": xr.Dataset(
            {"x": (("chain", "draw", "sample", "feature"), x)}, {**runs, **names}
        ),
        "observed_data": xr.Dataset({"x": (("sample", "feature"), observed)}, names),
    }
    beside: dict[str, tuple[tuple[str, ...], np.ndarray]] = {
        name: (("sample",), values[:, 0] * table.row_units.get(name, 1.0))
        for name, values in table.per_row.items()
        if name != "design"
    }
    if "design" in table.per_row:
        beside["design"] = (("sample", "effect"), table.per_row["design"])
    if beside:
        groups["constant_data"] = xr.Dataset(beside, {"sample": table.sample_names})
    if levels is not None:
        dims = ("chain", "draw", "sample")
        groups["log_likelihood"] = xr.Dataset({"x": (dims, levels)}, {**runs, "sample": table.sample_names})
    return groups
