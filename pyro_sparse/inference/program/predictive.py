"""What a program expects of the columns before it has seen them, against what they are.

A prior that does not suit the units of a table, or a program without an intercept for columns that are not
centred, gives edges that are certain and wrong. So the program is run without its data, and each column's
mean and standard deviation are compared with those of its draws.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pyro import poutine
from torch import Tensor

from ..._utils.torch_state import default_device, default_dtype, undisturbed
from ..._utils.wording import listed
from ...findings.finding import Finding
from ...programs.parameters import GivenParameters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...programs.data import Data
    from ...programs.program import Program

__all__ = ["ColumnMoments", "compared_with_prior", "prior_moments"]

Array = NDArray[np.float64]

_DRAWS = 50
_LEAST_CELLS = 3  # of a column, for a standard deviation
# Of the logarithm of a standard deviation, beyond all draws. Priors of noise have long tails: of 2,640
# columns drawn from their own programs one was twice below its fifty draws.
_COLUMN = math.log(3.0)
# Of its mean over the columns. Of a table with loadings near 1, under a slab of .8, no edge was wrong in
# units of .2 (beyond by a factor of 1.6); three of eight were absent in units of .1 (by 3.2), all in .01.
_TABLE = math.log(2.0)
# Of what is left over of a mean, in the column's standard deviations. Without an intercept that table had no
# false edge with means of .3 (.18 left), one with means of .5 (.37), and five with means of 1.
_SHIFT = 0.3
# Standard deviations of drawn means. With an intercept from N(0, 1) means of 6 did no harm; with means of 20
# both of two tables had false edges (one and four): a factor that stands for a mean costs less.
_COSTLY = 10.0
_SHOWN = 3  # names in a message
_TINY = 1e-300  # in place of 0, for a logarithm

_SCALE = (
    "z-score the columns, or give the program priors (slab, spike, noise) in their units, since edges are "
    "weights that are large by its measure"
)
_CENTRE = (
    "centre the columns, or give the program an intercept of that size, since a factor may stand for the mean"
)


def compared_with_prior(
    model: Program,
    data: Data,
    factors: Sequence[str],
    parameters: Mapping[str, Tensor] | None = None,
    *,
    seed: int = 0,
    device: str = "cpu",
) -> list[Finding]:
    """Doubts about columns whose mean or standard deviation the program does not expect.

    A program that cannot be run without its data has none.

    Parameters
    ----------
    model : Program
    data : Data
    factors : sequence of str
        By the names of the fit.
    parameters : mapping of str to Tensor, optional
        Values of `pyro.param`; default the initial ones.
    seed : int
        Of a random stream of its own.
    device : str
    """
    try:
        by_site = prior_moments(model, data, parameters, seed=seed, device=device)
    except Exception:  # of a user's program, which need not run without its data: no check, and a fit
        return []
    findings = []
    for moments in by_site.values():
        kept = moments.of_finite_draws()
        if kept is None:
            continue
        for is_unlike, what, remedy in (
            (unlike_in_sd(kept), ("standard deviation", kept.sd, kept.drawn_sd), _SCALE),
            (unlike_in_mean(kept), ("mean", kept.mean, kept.drawn_mean), _CENTRE),
        ):
            if is_unlike.any():
                findings.append(_doubt(data.feature_names, factors, is_unlike, *what, remedy))
    return findings


class ColumnMoments(NamedTuple):
    """Means and standard deviations of the columns of one observed site, NaN of those that it does not score.

    Attributes
    ----------
    mean, sd : ndarray (feature,)
        Of the data, in the units in which the program observes them.
    n_cells : ndarray (feature,)
        Those that are seen and scored.
    drawn_mean, drawn_sd : ndarray (draw, feature)
        Of tables drawn from the program, in the same cells.
    """

    mean: Array
    sd: Array
    n_cells: Array
    drawn_mean: Array
    drawn_sd: Array

    def of_finite_draws(self) -> ColumnMoments | None:
        """Without draws that have a number too large for the machine; None if these are the most."""
        scored = np.isfinite(self.sd)
        finite = (np.isfinite(self.drawn_mean) & np.isfinite(self.drawn_sd))[:, scored].all(1)
        if not scored.any() or finite.mean() < 0.5:
            return None
        return self._replace(drawn_mean=self.drawn_mean[finite], drawn_sd=self.drawn_sd[finite])


def prior_moments(
    model: Program,
    data: Data,
    parameters: Mapping[str, Tensor] | None = None,
    *,
    draws: int = _DRAWS,
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, ColumnMoments]:
    """Moments of the columns, as they are and as the program draws them, of each site of measured cells.

    Sites of counts, levels and answers are left out, and so is a program with a `pyro.factor`, which says how
    likely data are and not how they come about.

    Parameters
    ----------
    model : Program
    data : Data
    parameters : mapping of str to Tensor, optional
        Values of `pyro.param`; default the initial ones.
    draws : int
    seed : int
        Of a random stream of its own.
    device : str
    """
    with (
        undisturbed(seed),
        default_dtype(torch.float64),
        default_device(device),
        GivenParameters(parameters),
        torch.no_grad(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        view = data.view(model.n_factors, data.tensors(device))
        nodes = poutine.trace(model.program).get_trace(view).nodes
        observed = {name: node for name, node in nodes.items() if _is_observed(node)}
        if any(not node["value"].numel() for node in observed.values()):
            return {}
        scored = {name: _scored(node, data) for name, node in observed.items() if _is_measured(node, data)}
        if not scored:
            return {}
        of_data = {name: _moments(observed[name], cells) for name, cells in scored.items()}
        drawn: dict[str, list[tuple[Array, Array, Array]]] = {name: [] for name in scored}
        for _ in range(draws):
            nodes = poutine.trace(poutine.uncondition(model.program)).get_trace(view).nodes
            for name, cells in scored.items():
                drawn[name].append(_moments(nodes[name], cells))
    return {
        name: ColumnMoments(
            *of_data[name],
            np.stack([mean for mean, _, _ in drawn[name]]),
            np.stack([sd for _, sd, _ in drawn[name]]),
        )
        for name in scored
    }


def unlike_in_sd(moments: ColumnMoments) -> NDArray[np.bool_]:
    """Columns (feature,) whose standard deviation lies beyond those of all draws, singly or together.

    Where the mean over the columns of the logarithm does, it is the columns on that side.

    Parameters
    ----------
    moments : ColumnMoments
    """
    log_sd, drawn = (np.log(np.maximum(sd, _TINY)) for sd in (moments.sd, moments.drawn_sd))
    is_unlike = np.abs(_beyond(log_sd, drawn)) > _COLUMN
    scored = np.isfinite(log_sd)
    together = float(_beyond(log_sd[scored].mean(keepdims=True), drawn[:, scored].mean(1, keepdims=True))[0])
    if abs(together) > _TABLE:
        is_unlike |= np.sign(together) * (log_sd - np.median(drawn, axis=0)) > _TABLE
    return is_unlike


def unlike_in_mean(moments: ColumnMoments) -> NDArray[np.bool_]:
    r"""Columns (feature,) whose mean lies beyond those of all draws and is not learned, or at a high price.

    Of a mean that lies d beyond the draws, a level with a normal prior of variance w^2 leaves

    .. math:: d \, \frac{s^2 / n}{w^2 + s^2 / n}

    over, where the denominator is the variance of drawn means; without a level that is all of it. What lies
    many standard deviations off costs more density than a factor that stands for it.

    Parameters
    ----------
    moments : ColumnMoments
    """
    of_rows = (moments.drawn_sd**2).mean(0) / moments.n_cells
    variance = np.maximum(moments.drawn_mean.var(0), _TINY)
    beyond = np.abs(_beyond(moments.mean, moments.drawn_mean))
    left = beyond * np.minimum(of_rows / variance, 1.0)
    is_costly = np.abs(moments.mean - moments.drawn_mean.mean(0)) > _COSTLY * np.sqrt(variance)
    is_unlike: NDArray[np.bool_] = np.where(is_costly, beyond, left) > _SHIFT * moments.sd
    return is_unlike


def _beyond(value: Array, drawn: Array) -> Array:
    """How far a number of each column is below the least draw (negative) or above the largest; 0 between."""
    return np.minimum(value - drawn.min(0), 0.0) + np.maximum(value - drawn.max(0), 0.0)


def _doubt(
    names: Sequence[str],
    factors: Sequence[str],
    is_unlike: NDArray[np.bool_],
    what: str,
    value: Array,
    drawn: Array,
    remedy: str,
) -> Finding:
    """About all edges of some columns."""
    columns = tuple(name for name, is_so in zip(names, is_unlike, strict=True) if is_so)
    more = len(columns) - _SHOWN
    shown = f"{', '.join(columns[:_SHOWN])} and {more} more" if more > 0 else listed(columns)
    is_ = _span(value[is_unlike].min(), value[is_unlike].max())
    expected = _span(*np.quantile(drawn[:, is_unlike], (0.05, 0.95)))
    return Finding(
        "predictive",
        f"{shown}: {what} {is_}, where the program expects {expected} before it has seen the data",
        remedy,
        "doubt",
        edges=tuple((name, factor) for name in columns for factor in factors),
        columns=columns,
    )


def _span(low: float, high: float) -> str:
    """Two numbers of two digits, or one if they are the same."""
    first, last = (f"{number:.3g}" if abs(number) >= 10 else f"{number:.2g}" for number in (low, high))
    return first if first == last else f"{first} to {last}"


def _is_observed(node: dict[str, Any]) -> bool:
    is_named_only = node["type"] != "sample" or type(node["fn"]).__name__ == "_Subsample"
    return not is_named_only and node["is_observed"] and not node["infer"].get("_deterministic")


def _is_measured(node: dict[str, Any], data: Data) -> bool:
    """Whether a site has a cell of continuous support for each row and feature."""
    fn, value = node["fn"], node["value"]
    cells = value.shape[: value.dim() - fn.event_dim]
    return tuple(cells) == (len(data), data.x.shape[-1]) and not fn.support.is_discrete


def _scored(node: dict[str, Any], data: Data) -> NDArray[np.bool_]:
    """Cells (row, feature) that enter a site's density, by its masks, and were seen."""
    seen = np.logical_and.reduce(data.seen.reshape(len(data), -1, data.x.shape[-1]), axis=1)
    masks, fn = [node["mask"]], node["fn"]
    while fn is not None:
        masks.append(getattr(fn, "_mask", None))
        fn = getattr(fn, "base_dist", None)
    for mask in masks:
        if mask is not None:
            seen = seen & torch.as_tensor(mask).cpu().numpy()
    return np.asarray(seen, dtype=bool)


def _moments(node: dict[str, Any], cells: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    """Mean, standard deviation and number of the scored cells of each column of a site."""
    value = node["value"].double().cpu().numpy().reshape(*cells.shape, -1)
    count = (cells.sum(0) * value.shape[-1]).astype(float)
    count[count < _LEAST_CELLS] = np.nan
    with np.errstate(all="ignore"):
        mean = np.where(cells[..., None], value, 0.0).sum((0, 2)) / count
        apart = np.where(cells[..., None], value - mean[:, None], 0.0)
        return mean, np.sqrt((apart**2).sum((0, 2)) / count), count
