"""Does a fit whose restarts BIC compares keep fewer factors than parallel analysis is sure of?

Under yes/no answers, levels and counts the restarts find the factors, and each may lose one. Eigenvalues do
not depend on restarts. What they are sure of, by how much they differ between halves of the rows, and the
fit does not keep, is reported. Fewer eigenvalues than factors say nothing: of factors correlated .5
parallel analysis misses one in four tables of ten, and likelihood has them right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from ..._utils.wording import listed
from ...data.large_table import LargeTable
from ...findings.finding import Finding
from ...graphs.alignment import SAME_FACTOR, similarity
from .cell_correlations import cell_eigenvalues
from .graph_search import rotated_graph
from .linear_maximum import any_edge_is_possible, row_moments
from .number_of_factors import kept_factors

if TYPE_CHECKING:
    from ...models.sparse_decoder import SparseDecoder
    from .factor_likelihood import Moments
    from .result import Fit

__all__ = ["lost_factor_findings"]

Array = NDArray[np.float64]
# Probability from which it is reported. In 3 of 1,000 tables of yes/no answers, levels and counts (200 each
# of five kinds, seeds 1000 to 1199, 150 to 3,000 rows) parallel analysis is so sure of a factor too many, and
# at .5 in 11. Of 15 factors that 100 fits of yes/no answers lost (seeds 1000 to 1039) 12 are reported at .8,
# and 9 at .95.
_SURE = 0.8
_LEAST_ROWS, _MOST_FEATURES, _MOST_CELLS = 30, 100, 300_000  # eigenvalues of 100 halves take a second
_MOST_WITH_HOLES = 50_000  # cells, where some are missing: each pattern of a row is a matrix to solve, often
_NAMED = 6  # features in a message
_REMEDY = "more rows, or an anchor for each factor that theory gives"


def lost_factor_findings(fit: Fit) -> list[Finding]:
    """A doubt about factors of the fit in whose place more have others; a note where all would be the same.

    Parameters
    ----------
    fit : Fit
        Of any model; of others than linear decoders whose noise is not normal nothing is said.

    Returns
    -------
    list of Finding
        One, or none.
    """
    if "log_likelihood" not in fit.settings or not _is_small(fit):
        return []
    if not any_edge_is_possible(cast("SparseDecoder", fit.model)):
        return []
    mean, moments = row_moments(fit.table, np.arange(len(fit.table.x)))
    at_least = np.minimum.accumulate(cell_eigenvalues(fit, mean, moments).above)
    kept, sure = kept_factors(fit), int((at_least >= _SURE).sum())
    if sure <= kept:
        return []
    probability = float(at_least[kept])
    message = (
        f"the number of factors is not settled: the fit keeps {kept}, and parallel analysis finds {sure} "
        f"(more than {kept} with a probability of {probability:.2f})"
    )
    if kept >= fit.model.n_factors:
        return [Finding("number", message, "try a larger n_factors", size=probability)]
    factors, columns, n_lost = _differences(fit, moments, sure)
    if columns:
        more = f" and {len(columns) - _NAMED} more" if len(columns) > _NAMED else ""
        lacking = "share one" if n_lost == 1 else f"have {n_lost}"
        message += f"; then {', '.join(columns[:_NAMED])}{more} {lacking} that the fit lacks"
    if factors:
        message += f"; {listed(factors)} {'is' if len(factors) == 1 else 'are'} none of those {sure}"
    return [
        Finding(
            "number",
            message,
            f"{_REMEDY}; fit.number_of_factors() has the figures",
            "doubt" if factors else "note",
            factors=tuple(factors),
            columns=tuple(columns[:_NAMED]),
            size=probability,
        )
    ]


def _is_small(fit: Fit) -> bool:
    """Whether the eigenvalues take a second at most, of rows that are in memory."""
    if isinstance(fit.table, LargeTable):
        return False
    n_rows, n_features = fit.table.x.shape
    most = _MOST_CELLS if fit.table.mask is None else _MOST_WITH_HOLES
    return n_rows >= _LEAST_ROWS and n_features <= _MOST_FEATURES and n_rows * n_features <= most


def _differences(fit: Fit, moments: Moments, n_factors: int) -> tuple[list[str], list[str], int]:
    """Factors of the fit that are not among so many of a factor analysis; their features and number."""
    weights = np.asarray(fit.weights, dtype=float)[int(fit.best)]
    used = np.flatnonzero((weights != 0).any(0))
    others = rotated_graph(moments, n_factors, fit.model.learn_factor_cov).loadings
    same = np.abs(similarity(weights[:, used], others)) >= SAME_FACTOR
    lost = ~same.any(0)
    features = (others[:, lost] != 0).any(1)
    return (
        [fit.factor_names[k] for k in used[~same.any(1)]],
        [fit.feature_names[j] for j in np.flatnonzero(features)],
        int(lost.sum()),
    )
