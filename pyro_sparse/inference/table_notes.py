"""What a reader of a table's fit should know of its weights and its columns: sentences for `fit.warnings`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data import Table
from ..findings import Finding
from .restarts import told_edges
from .weight_scores import has_zeros

__all__ = ["of_copies", "of_slips", "of_units", "of_weights"]

_UNITS = 0.2, 8.0  # standard deviations of columns that prior, least noise and steps are made for
_FAR = 1000.0  # standard deviations of all other cells from their mean: no measurement is there
_SENTINELS = [sign * float("9" * digits) for digits in (2, 3, 4, 5) for sign in (-1, 1)]


def of_weights(model: Any, best: int) -> list[Finding]:
    """What the numbers of edges and factors of a fit with a prior should tell a reader.

    Parameters
    ----------
    model : FactorModel
        Trained, with a prior on its weights.
    best : int
        Restart.
    """
    edges = (model.weights[best] != 0).cpu().numpy()
    told = told_edges(model)
    permitted = model.permitted.cpu().numpy()
    if not permitted.any():
        message = "no edge was left to find: every edge is forbidden"
        return [Finding("size", message, "leave some open if the data should decide")]
    if not (edges & ~told).any() and (permitted & ~told).any():
        more = " but those it was told" if told.any() else ""
        message = (
            f"the best restart has no edge{more}: the data support no shared factor, or the prior is too "
            "strong"
        )
        return [Finding("size", message)]
    notes = []
    prior, weights = model.prior, model.weights.detach()
    lasso = prior.edge_log_odds(weights) is None and has_zeros(prior, weights)
    if lasso and bool((weights[best] != 0)[model.permitted].all()):
        message = (
            f"no weight is zero: {type(prior).__name__} is too weak for so many rows to leave any edge out"
        )
        notes.append(Finding("prior", message, "raise its rate, or take a spike and slab"))
    return notes


def of_units(model: Any, table: Table) -> list[Finding]:
    """A sentence where columns are in units that prior, least noise and steps are not made for.

    Parameters
    ----------
    model : FactorModel
        Trained.
    table : Table
        What it was fitted to.
    """
    sd = table.input_scale / table.scale
    if model.likelihood.noise_sd() is None or (sd.min() >= _UNITS[0] and sd.max() <= _UNITS[1]):
        return []
    message = (
        f"columns have standard deviations from {sd.min():.2g} to {sd.max():.2g}: prior, least noise and "
        "steps are made for about 1, and edges may be lost"
    )
    return [Finding("columns", message, "standardise, or give them in other units", source="data")]


def of_copies(model: Any, table: Table) -> list[Finding]:
    """A sentence where columns repeat another one but for its units: a factor without noise of its own.

    Parameters
    ----------
    model : FactorModel
        Trained.
    table : Table
        What it was fitted to.
    """
    if model.likelihood.noise_sd() is None or not len(table.inputs):  # a table read by rows keeps none
        return []
    first: dict[bytes, str] = {}
    copies = []
    for name, column in zip(table.feature_names, table.inputs.T, strict=True):
        column = np.round(column / np.linalg.norm(column), 6)
        key = (column * np.sign(column[np.abs(column).argmax()]) + 0.0).tobytes()
        if first.setdefault(key, name) != name:
            copies.append(f"{name!r} repeats {first[key]!r}")
    if not copies:
        return []
    more = f" ({len(copies)} such columns)" if len(copies) > 1 else ""
    message = f"column {copies[0]} but for units{more}: the two make a factor of their own"
    return [Finding("columns", message, "drop one of them", source="data")]


def of_slips(likelihood: Any, table: Table) -> list[Finding]:
    """Sentences on what a table under the normal likelihood looks like, and probably should not be.

    Parameters
    ----------
    likelihood : Likelihood
        Others say themselves what they want.
    table : Table
        What is fitted.

    Notes
    -----
    Columns that are all 0 or 1; columns that number the rows; a cell far from all others; a code for missing
    cells, such as -999; counts.
    """
    if likelihood.name != "normal" or not len(table.inputs):  # a table read by rows keeps none
        return []
    x = table.x * table.scale + table.centre
    seen = np.ones(x.shape, bool) if table.mask is None else table.mask
    columns = [np.round(one[own], 6) for one, own in zip(x.T, seen.T, strict=True)]
    whole = [bool((one == np.rint(one)).all()) for one in columns]
    if all(whole):
        if all(np.isin(one, (0, 1)).all() for one in columns):
            message = 'every column is 0 or 1: likelihood="bernoulli" is made for that, "normal" is not'
            return [Finding("likelihood", message, source="data")]
        if _are_counts(columns):
            message = (
                'all cells are whole numbers from 0, as counts are: likelihood="poisson" or '
                '"negative_binomial" is made for that; for "normal" take their logarithm'
            )
            return [Finding("likelihood", message, source="data")]
    looks = {"numbers the rows": ([_numbers_rows(one) for one in columns], "drop it")}
    shuffled = [w and _is_shuffled(one) for w, one in zip(whole, columns, strict=True)]
    if sum(shuffled) == 1:  # several are ranks
        looks["has each number once, as names of rows do"] = (shuffled, "drop it if it is no measurement")
    notes = []
    for what, (found, mend) in looks.items():
        if any(found):
            name = table.feature_names[found.index(True)]
            notes.append(
                Finding(
                    "columns", f"column {name!r} {what}{_more(found)}", mend, source="data", columns=(name,)
                )
            )
    codes = [_code(one) for one in columns]
    if any(found := [code is not None for code in codes]):
        j = found.index(True)
        count = int((columns[j] == codes[j]).sum())
        name = table.feature_names[j]
        message = f"column {name!r} is {codes[j]:g} in {count} cells, far from all others{_more(found)}"
        remedy = f"if that stands for missing, X.replace({codes[j]:g}, float('nan'))"
        notes.append(Finding("cells", message, remedy, source="data", columns=(name,)))
    far = [None if code is not None else _far(one) for one, code in zip(columns, codes, strict=True)]
    if any(found := [value is not None for value in far]):
        j = found.index(True)
        name = table.feature_names[j]
        message = (
            f"column {name!r} has a cell of {far[j]:.6g}, over {_FAR:g} standard deviations from all "
            f"others{_more(found)}"
        )
        notes.append(
            Finding("cells", message, "correct it, or set it to NaN", source="data", columns=(name,))
        )
    return notes


def _more(found: list[bool]) -> str:
    return f" ({sum(found)} such columns)" if sum(found) > 1 else ""


def _are_counts(columns: list[np.ndarray]) -> bool:
    """Whether whole numbers begin at 0, have a tail, and no end that many reach (a scale or a pixel has)."""
    at_end = [(one == one.max()).mean() for one in columns]
    middle = [np.median(one) for one in columns]
    tails = [one.max() - m - 1.4 * (m - one.min()) for one, m in zip(columns, middle, strict=True)]
    return bool(
        all(one.min() >= 0 for one in columns)
        and np.mean([one.min() == 0 for one in columns]) >= 0.5
        and max(one.max() for one in columns) >= 5
        and np.median(at_end) <= max(0.02, 2 / len(columns[0]))
        and np.median(tails) > 0  # those of ranks and of ages are alike
    )


def _numbers_rows(column: np.ndarray) -> bool:
    """Whether whole numbers go up from row to row, or down."""
    step = np.diff(column)
    whole = len(column) >= 20 and (column == np.rint(column)).all()
    return bool(whole and ((step > 0).all() or (step < 0).all()))


def _is_shuffled(column: np.ndarray) -> bool:
    """Whether a column of whole numbers is n numbers in a row, in another order than that."""
    n = len(column)
    if n < 20 or column.max() - column.min() != n - 1 or _numbers_rows(column):
        return False
    return len(np.unique(column)) == n


def _code(column: np.ndarray) -> float | None:
    """A row of nines that several cells have, beyond all others and far from them."""
    for code in _SENTINELS:
        at = column == code
        rest = column[~at]
        if at.sum() < 3 or len(rest) < 3:
            continue
        gap = rest.min() - code if code < 0 else code - rest.max()
        if gap > 3 * rest.std() or (code < 0 <= rest.min()):
            return code
    return None


def _far(column: np.ndarray) -> float | None:
    """The one cell that lies far from all others, in their standard deviations."""
    if len(column) < 3:
        return None
    i = int(np.abs(column - np.median(column)).argmax())
    rest = np.delete(column, i)
    sd = rest.std()
    far = sd > 1e-9 * np.abs(rest).max() and abs(column[i] - rest.mean()) > _FAR * sd
    return float(column[i]) if far else None
