"""Two more restarts of a curved decoder: from the sparsest axes, with the factors that its restarts lack.

Restarts begin at linear guesses. On tables of curves all of them can end in the same wrong axes (two
correlated factors as their sum and difference) or without a factor that hardly shows in correlations, and no
later step leaves that. `single_index.search` climbs from the factors of two of them and from principal
components, adds what the residuals ask for and finds the sparsest axes. If these are not the best restart's,
a straight and a random-curve restart begin there. They count only if the better of the two beats the best
restart; then they replace the worst ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from ...data.large_table import LargeTable
from ..rotation.single_index import SingleIndex, search, sparse_axes
from .linear_maximum import any_edge_is_possible
from .schedule import LEAST_STEPS
from .start import Start

if TYPE_CHECKING:
    from ...data.table import Table
    from ...models.base import FactorModel
    from ...models.sparse_decoder import SparseDecoder
    from .dependency_schedule import DependencySchedule
    from .schedule import Schedule

__all__ = ["AxisStart", "axis_start", "is_better", "replaced_restarts", "searches_axes"]

_LEAST_ROWS, _MOST_FEATURES, _MOST_CELLS = (
    100,
    500,
    50_000,
)  # the search takes some ten seconds at 12,000 cells
_LEAST_EDGES = 2  # of a factor that is continued
_SAME_SCORES = 0.97  # correlation from which a factor of the best restart is that of the sparsest axes
_RIDGE = 0.01  # of the linear map from cells to scores, in units of a cell's variance
_LEAST_LEFT = 0.02  # variance that a start leaves of a feature, as in `start.py`
_STANDARD_ERRORS = 2.0  # within which axes with fewer edges fit as well, see `is_better`


class AxisStart(NamedTuple):
    """Where the new restarts begin.

    Attributes
    ----------
    start : Start
    n_factors : int
    rows : ndarray of int
        Of the table, that the search read.
    scores : ndarray (row, factor)
        Theirs, in the sparsest axes.
    """

    start: Start
    n_factors: int
    rows: NDArray[np.intp]
    scores: NDArray[np.float64]


def searches_axes(model: FactorModel, table: Table, schedule: Schedule | DependencySchedule) -> bool:
    """Whether the search is for this model, table and schedule.

    It is for curved decoders with normal noise whose factors can change places; not for tables read by rows
    or of very many features, where it would cost as much as the fit.

    Parameters
    ----------
    model : FactorModel
        Set up.
    table : Table
    schedule : Schedule or DependencySchedule
    """
    if getattr(model, "decoder_kind", "") != "mlp" or isinstance(table, LargeTable) or not model.data_start:
        return False
    model = cast("SparseDecoder", model)
    n_rows, n_features = table.x.shape
    free = any_edge_is_possible(model) and len(model.alike_factors()) == 1
    sizes = n_rows >= _LEAST_ROWS and n_features <= _MOST_FEATURES and model.n_factors >= 2
    normal = model.likelihood.noise_sd() is not None
    return free and sizes and normal and schedule.steps >= LEAST_STEPS


def axis_start(
    model: SparseDecoder,
    table: Table,
    kept: NDArray[np.intp],
    level: NDArray[np.float64],
    best: int,
) -> AxisStart | None:
    """A start in the sparsest axes, or None where those are the best restart's.

    Parameters
    ----------
    model : SparseDecoder
        Trained.
    table : Table
    kept : ndarray of int
        Rows to learn from.
    level : ndarray (restart,)
        The higher the better; of restarts with fewest factors the best by it is continued beside `best`.
    best : int
    """
    rows = kept[: max(_LEAST_ROWS, _MOST_CELLS // table.x.shape[1])]
    x = np.asarray(table.inputs[rows], dtype=float)
    observed = None if table.mask is None else table.mask[rows]
    used = (model.weights.detach() != 0).sum(1).cpu().numpy() >= _LEAST_EDGES
    like = model.weights
    with torch.no_grad():
        location, _ = model.encode(table.rows(rows).batch(like.device, like.dtype))
    scores = location.detach().cpu().double().numpy()
    guesses = [scores[r][:, used[r]] for r in _continued(used, level, best)]
    if not guesses:
        return None
    try:
        index_model = search(x, guesses, model.n_factors, observed)
    except np.linalg.LinAlgError:
        return None
    sparse, _ = sparse_axes(index_model)
    if not np.isfinite(sparse).all() or _same_factors(sparse, scores[best][:, used[best]]):
        return None
    return AxisStart(_as_start(x, sparse, index_model), sparse.shape[1], rows, sparse)


def _continued(used: NDArray[np.bool_], level: NDArray[np.float64], best: int) -> list[int]:
    """The best restart, and the best of those with the fewest factors, at least two."""
    count = used.sum(1)
    several = np.flatnonzero((count >= 2) & np.isfinite(level))
    if not len(several) or count[best] < 1:
        return []
    fewest = several[count[several] == count[several].min()]
    return list(dict.fromkeys([best, int(fewest[level[fewest].argmax()])]))


def _same_factors(sparse: NDArray[np.float64], scores: NDArray[np.float64]) -> bool:
    """Whether the factors are the same one by one, up to order, sign and a little curvature."""
    if sparse.shape[1] != scores.shape[1]:
        return False
    k = sparse.shape[1]
    between = np.abs(np.nan_to_num(np.corrcoef(sparse.T, scores.T)[:k, k:]))
    return bool((between[linear_sum_assignment(-between)] >= _SAME_SCORES).all())


def _as_start(x: NDArray[np.float64], scores: NDArray[np.float64], model: SingleIndex) -> Start:
    """Scores as a linear map of the cells, which is what an encoder begins with."""
    cells = np.nan_to_num(x)
    gram = cells.T @ cells + _RIDGE * len(cells) * np.eye(cells.shape[1])
    maps = np.linalg.solve(gram, cells.T @ (scores - scores.mean(0)))
    maps /= np.maximum((cells @ maps).std(0), 1e-9)
    k = scores.shape[1]
    loadings = np.nan_to_num(np.corrcoef(cells.T, scores.T)[:-k, -k:])
    left = np.sqrt(np.clip(1 - model.explained, _LEAST_LEFT, 1.0))
    return Start(cells @ maps, maps, loadings, left)


def is_better(new: NDArray[np.float64], old: NDArray[np.float64], more_edges: int) -> bool:
    r"""Whether new axes are to be preferred to old ones: by BIC, or by fewer edges at the same fit.

    .. math:: \sum_i (\mathrm{new}_i - \mathrm{old}_i) > \tfrac12 \Delta \log N \quad\text{or}\quad
              \Delta < 0,\ \text{the sum not below minus two standard errors}

    Training leaves noise of some ten nats in a curved decoder's ELBO; axes with fewer edges that fit as well
    to within it are the sparser explanation.

    Parameters
    ----------
    new, old : ndarray (row,)
        ELBO of each row.
    more_edges : int
        :math:`\Delta`, edges of the new axes less those of the old ones.

    Examples
    --------
    >>> rows = np.linspace(-1, 1, 100)
    >>> is_better(rows + 0.1, rows, more_edges=4), is_better(rows + 0.1, rows, more_edges=5)
    (True, False)
    """
    difference = new - old
    total = float(difference.sum())
    if not np.isfinite(total):
        return False
    error = float(difference.std()) * np.sqrt(len(difference))
    fewer = more_edges < 0 and total >= -_STANDARD_ERRORS * error
    return bool(total > 0.5 * more_edges * np.log(len(difference))) or fewer


def replaced_restarts(level: NDArray[np.float64], best: int, n_new: int) -> list[int]:
    """Places of the new restarts: those of the worst, the best one's only if there is no other.

    Parameters
    ----------
    level : ndarray (restart,)
    best : int
    n_new : int

    Examples
    --------
    >>> replaced_restarts(np.array([-3.0, -1.0, -2.0]), 1, 2), replaced_restarts(np.array([-3.0]), 0, 2)
    ([0, 2], [0])
    """
    order = [int(r) for r in np.argsort(np.where(np.isfinite(level), level, -np.inf), kind="stable")]
    others = [r for r in order if r != best]
    return others[:n_new] if others else [best]
