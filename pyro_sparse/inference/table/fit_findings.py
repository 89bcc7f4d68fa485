"""The doubts that the fit of a table may have: each one, in the order they are reported, and what decides it.

A check returns nothing where it does not apply. What only the whole fit knows is said here: whether its best
restart diverged, was trained to the end, stands at the maximum of a graph, or began with all factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from ...data.checks.factors import doubted_by_columns
from ...findings.finding import Finding
from ...posterior.rival_restarts import only_restart, restart_findings, unconfirmed
from .axis_findings import axis_findings
from .depth import depth_of_factors
from .folded import folded
from .lost_factors import lost_factor_findings
from .number_of_factors import number_findings
from .residual_pairs import residual_pair_findings
from .straight_curves import straight_findings
from .table_notes import of_units, of_weights
from .unexplained import unexplained_findings

if TYPE_CHECKING:
    from ...data.read import Batch
    from ...models.sparse_decoder import SparseDecoder
    from .linear_maximum import Maxima
    from .result import Fit
    from .trained_restarts import TrainedRestarts

__all__ = ["add_findings", "diverged_restarts", "few_rows"]

_FEW_ROWS = 5  # rows per feature below which edges are missed


def add_findings(
    fit: Fit,
    trained: TrainedRestarts,
    maxima: Maxima | None,
    *,
    notes: Sequence[str],
    learned: Batch,
    kept: NDArray[np.intp],
    is_complete: bool,
    is_dense: bool,
    is_penalised: bool,
) -> None:
    """Add to `fit.findings` what a reader should know of a fit, in this order.

    1. Why restarts are missing or cut short (`notes`), and what `data.checks` said of the table.
    2. Restarts that diverged.
    3. Numbers of edges, units of columns, a single restart, few rows: not where the best restart diverged.
    4. The number of factors: those that no other restart of a dense fit found; what parallel analysis says
       against graphs at their maxima, or for more factors than a complete fit kept.
    5. Factors that other restarts lack, and other axes.
    6. Covariance that the factors leave, as a whole and of pairs: of a model with a prior.
    7. Curves that a line would do for: of a complete fit without a penalty.
    8. Folded factors, factors that are the rows' depth, and factors that stand on repeated columns.

    Parameters
    ----------
    fit : Fit
        With the table that it was fitted to.
    trained : TrainedRestarts
    maxima : Maxima or None
        Where the restarts are at the maxima of their graphs.
    notes : sequence of str
        Of an interruption, or of restarts that were not merged.
    learned : Batch
        Rows that it was trained on.
    kept : ndarray of int
        Their positions in the table.
    is_complete : bool
        There are no `notes`, and enough steps for its number of factors and its curves to mean something.
    is_dense : bool
        Every restart began with all factors, so that each factor needs another restart to confirm it.
    is_penalised : bool
        The fit has a `latent_penalty`.
    """
    model, table, best = fit.model, fit.table, trained.best
    has_prior = getattr(model, "prior", None) is not None
    level = trained.rows.mean(1)
    is_finite = bool(np.isfinite(level[best]))
    add = fit.findings.extend
    add(Finding("training", note) for note in notes)
    add(table.findings)
    add(diverged_restarts(level))
    if is_finite and has_prior:
        add(of_weights(cast("SparseDecoder", model), best))
        add(of_units(model, table))
    if is_finite:
        add(only_restart(len(level)))
        add(few_rows(learned.total, model.n_features))
    if is_dense:
        add(unconfirmed(fit.alignment["congruence"], best, fit.factor_names))
    if maxima is not None:
        add(maxima.findings())
        add(number_findings(fit))
    elif is_complete:
        add(lost_factor_findings(fit))
    add(restart_findings(fit))  # reads what is there, so as not to repeat `unconfirmed`
    add(axis_findings(fit, trained.search))
    if is_finite and has_prior:
        add(unexplained_findings(fit))
        add(residual_pair_findings(fit))
    if is_finite and is_complete and not is_penalised:
        heldout = None if trained.heldout is None else trained.heldout[best]
        add(straight_findings(model, table, kept, heldout))
    add(folded(fit))
    add(depth_of_factors(model, learned, best))
    add(doubted_by_columns(table.findings, fit.effects[best], fit.feature_names, fit.factor_names))


def diverged_restarts(level: NDArray[np.floating]) -> list[Finding]:
    """A note of how many restarts diverged, or nothing.

    Parameters
    ----------
    level : ndarray (restart,)
        Mean ELBO of the rows that restarts are judged by, in nats.

    Examples
    --------
    >>> [note.remedy for note in diverged_restarts(np.array([-1.2, np.nan]))]
    ['lower learning_rate']
    """
    lost = int((~np.isfinite(level)).sum())
    message = (
        f"the ELBO of {lost} of {len(level)} restart(s) is not finite: they diverged, and say nothing of the "
        "data"
    )
    return [Finding("training", message, "lower learning_rate")] if lost else []


def few_rows(n_rows: int, n_features: int) -> list[Finding]:
    """A note where there are fewer than five rows to learn from for each feature, or nothing.

    Parameters
    ----------
    n_rows, n_features : int

    Examples
    --------
    >>> print(*few_rows(49, 10))
    49 rows for 10 features: few rows for so many features, expect missed edges
    >>> few_rows(50, 10)
    []
    """
    message = f"{n_rows} rows for {n_features} features: few rows for so many features, expect missed edges"
    return [Finding("rows", message, source="data")] if n_rows < _FEW_ROWS * n_features else []
