"""Before chains run: which restarts they begin at, over which factors and rows, and what a sweep costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln

from ...._utils.checks import check_whole
from ...._utils.types import TableLike, VectorLike
from ....data.columns import check_number, check_rows
from ....data.row_weights import counted_like
from ....posterior.rival_restarts import criterion_of
from ..density.rates import rate_prior
from .initialise import has_normal_noise

if TYPE_CHECKING:
    from ....data.table import Table
    from ...table.result import Fit

__all__ = [
    "MOST_GB",
    "MOST_ROWS",
    "chain_plan",
    "free_plan",
    "gigabytes",
    "is_exact",
    "is_free",
    "may_be_empty",
    "pivot_of",
    "row_limit",
    "seconds_of",
    "table_of",
]

Array = NDArray[np.float64]
MOST_GB = 4  # of chains over a table that is read by rows
# Seconds of a sweep, each cell of each chain: of a line, and of it for each two factors; of a curve for
# each two hidden units. Measured on 1,000 x 30 to 1,000 x 300 cells, and on bfi with 50 hidden units.
_LINE, _PAIR, _UNITS = 5e-8, 1e-9, 3e-9
_SLOW = 15.0  # seconds of a sweep, beyond which some of the rows stand for all
_FEWEST_ROWS, MOST_ROWS = 500, 100_000
# Prior probability of a factor without an edge, below which chains run over factors that the fit left empty,
# too: of 200 tables from a prior that makes it 1e-9 the fit lost factors in 13, and chains without them had a
# Brier score .165 higher there.
_RARELY_EMPTY = 0.05


def chain_plan(fit: Fit, chains: int) -> tuple[list[int], list[bool]]:
    """Restart of each chain, and whether it begins with all edges: pairs, the best restart's first.

    Parameters
    ----------
    fit : Fit
    chains : int

    Raises
    ------
    ValueError
        Fewer than two chains: one alone cannot say whether it found everything.
    """
    level, _ = criterion_of(fit)
    good = [
        fit.best,
        *(r for r in np.argsort(-level, kind="stable") if r in fit.equally_good and r != fit.best),
    ]
    check_whole(2, chains=chains)  # one alone could not disagree
    pairs = -(-chains // 2)
    restarts = [int(good[p % len(good)]) for p in range(pairs) for _ in (0, 1)][:chains]
    return restarts, [bool(c % 2) for c in range(chains)]


def free_plan(fit: Fit, restarts: list[int]) -> tuple[list[int], list[bool], int]:
    """Restart of each chain, whether it begins in other axes, and over how many factors the chains run.

    They run over those that the fit kept, where the prior thinks that others may be empty: offered more,
    chains split the factors that there are. A restart with another number of them gives way to the best one,
    in other axes.
    """
    used = (fit.weights != 0).any(1)
    n_used = max(1, int(used[fit.best].sum()))
    alike = [int(used[r].sum()) == n_used for r in restarts]
    first = [r not in restarts[:c] for c, r in enumerate(restarts)]
    rotated = [not (same and new) for same, new in zip(alike, first, strict=True)]
    kept = n_used if may_be_empty(fit) else fit.model.n_factors
    return [r if same else fit.best for r, same in zip(restarts, alike, strict=True)], rotated, kept


def may_be_empty(fit: Fit) -> bool:
    r"""Whether the prior leaves a factor without an edge often enough for chains to do without it.

    .. math:: P(\text{no edge}) = B(a, b + G) / B(a, b)
    """
    a, b = rate_prior(fit.model.prior)
    empty = np.exp(betaln(a, b + fit.model.n_features) - betaln(a, b))
    return bool(empty.max() >= _RARELY_EMPTY)


def is_free(fit: Fit) -> bool:
    """Whether nothing tells the factors apart, so that chains may begin in any axes."""
    model = fit.model
    return len(model.alike_factors()) == 1 and bool(model.permitted.all()) and not bool(model.must.any())


def pivot_of(fit: Fit) -> Array:
    """What says which factor is which: weights of straight lines, sizes of curves with the weights' signs."""
    weights: Array = fit.weights[fit.best]
    if fit.model.decoder_kind == "linear":
        return weights
    return np.where(weights != 0, np.sign(weights) * np.sqrt(fit.effects[fit.best]), 0.0)


def is_exact(fit: Fit) -> bool:
    """Whether every conditional has a closed form."""
    return fit.model.decoder_kind == "linear" and has_normal_noise(fit.model.likelihood)


def table_of(fit: Fit, X: TableLike | None, per_row: Mapping[str, VectorLike] | None) -> Table:
    """The table that chains read: the fit's own, or X in the fit's units.

    Parameters
    ----------
    fit : Fit
    X : array_like (row, feature), optional
    per_row : mapping of str to array_like (row,), optional
        Of the rows of X.

    Raises
    ------
    ValueError
        A loaded fit without X; too few rows; rows without a cell.
    """
    if X is not None:
        table = counted_like(X, per_row or {}, fit.table, fit.model.likelihood)
        check_number(len(table.x))
        if table.mask is not None:
            check_rows(table.mask)
        return table
    if not len(fit.table.x):
        raise ValueError(
            "X: a loaded fit holds no data, and chains need them; pass X=, the table it was made of"
        )
    return fit.table


def seconds_of(fit: Fit, n_chains: int) -> float:
    """About how long a row of a sweep of so many chains takes one processor, where draws touch the rows."""
    model = fit.model
    if model.decoder_kind == "mlp":
        cell = _UNITS * model.hidden * (model.hidden + model.n_factors)
    else:
        cell = _LINE + _PAIR * model.n_factors**2
    return float(n_chains * model.n_features * cell)


def row_limit(fit: Fit, exact: bool, n_chains: int) -> int:
    """Rows that chains use: all of most tables."""
    if exact:
        return MOST_ROWS
    return int(np.clip(_SLOW / seconds_of(fit, n_chains), _FEWEST_ROWS, MOST_ROWS))


def gigabytes(fit: Fit, n_rows: int | None = None) -> float:
    """About how much memory chains take over so many rows, by default as many as `mcmc_edges` would use."""
    rows = n_rows or row_limit(fit, is_exact(fit), 2)
    return 24e-9 * rows * fit.model.n_features * _hidden(fit)


def _hidden(fit: Fit) -> int:
    """Hidden units of a curve; a line takes as much work as a curve with four."""
    return fit.model.hidden if fit.model.decoder_kind == "mlp" else 4
