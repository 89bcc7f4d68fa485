"""Columns that say the same: nearly equal ones, and sets of which one follows from the others.

Such columns have correlated noise, which a factor model takes for a factor. A pair is a copy if what the two
share is beyond what the rest of the table shares with them; of a set, one column's residual given the others
is next to nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...findings.finding import Finding
from ._cells import MOST_COLUMNS, Cells, correlation, listed

__all__ = ["copied_columns", "dependent_columns"]

# Tuned on simulated tables of seeds from 1000. Two indicators of one factor with noise of .15 sd correlate by
# .98, but given a third their partial correlation is a half; that of a copy stays near 1.
_LEAST_CORRELATION = 0.97
_LEAST_PARTIAL = 0.75
_CURVE, _BENT = 0.8, 0.05  # of a third column's variance, by a cubic of the pair, and beyond a line
_SAME_TO_THE_EYE = 0.995  # three copies of one column: each pair's partial correlation given the third is low
_MOST_SAME = 4  # copies of one column; of more the partial correlation decides
_EXACT = 1e-6  # of a column's variance; the residual of an exact dependence is rounding only
_NEARLY = 4e-4  # of a column's variance: a sum of rounded numbers; indicators of one factor stay far above
_CONDITIONED_ON = 3  # columns that a partial correlation is given
_MOST_SETS = 20
_MOST_MEMBERS = 8  # of sets looked for one column at a time
_SPARE_ROWS = 12  # beyond the columns, for a rank to say something
_LEAST_ROWS = 20
_MOST_COLUMNS_SEARCHED = 150  # one column at a time


def copied_columns(cells: Cells) -> tuple[list[Finding], list[int]]:
    """Pairs of columns that are one measurement twice, and the second of each pair.

    Parameters
    ----------
    cells : Cells

    Returns
    -------
    findings : list of Finding
        At most one, which names the pairs.
    copies : list of int
    """
    n_features = len(cells.features)
    if not 2 <= n_features <= MOST_COLUMNS:
        return [], []
    r = correlation(cells.view, cells.mask)
    pairs = []
    for j, k in _strong(r):
        complete = cells.mask[:, j] & cells.mask[:, k]
        if complete.sum() < _LEAST_ROWS:
            continue
        close = float(_gram(cells.view[complete][:, [j, k]])[0][0, 1])
        is_close = abs(close) >= _LEAST_CORRELATION
        if is_close and _are_copies(r, j, k, close, cells) and not _bends_another(cells, j, k, close):
            pairs.append((int(j), int(k), close))
    if not pairs:
        return [], []
    pairs.sort(key=lambda pair: -abs(pair[2]))
    phrases = []
    for j, k, close in pairs[:3]:
        first, second = cells.features[j], cells.features[k]
        if abs(close) > 1 - 1e-9:
            phrases.append(f"{second!r} repeats {first!r} but for units")
        else:
            phrases.append(f"{second!r} is nearly a copy of {first!r} (correlation {close:.3f})")
    copies = sorted({k for _, k, _ in pairs})
    more = f" ({len(copies)} such columns)" if len(copies) > 1 else ""
    named = sorted({member for pair in pairs for member in pair[:2]})
    return [
        Finding(
            "columns",
            f"column {', '.join(phrases)}{more}, and the two make a factor of their own",
            "drop one of them, or put their mean in the place of both",
            source="data",
            columns=tuple(cells.features[j] for j in named),
            size=abs(pairs[0][2]),
        )
    ], copies


def _strong(r: NDArray[np.float64]) -> list[tuple[int, int]]:
    rows, columns = np.nonzero(np.triu(np.abs(r) >= _LEAST_CORRELATION - 0.02, 1))
    return list(zip(rows.tolist(), columns.tolist(), strict=True))


def _are_copies(r: NDArray[np.float64], j: int, k: int, close: float, cells: Cells) -> bool:
    """Whether two columns share more than the rest of the table shares with them."""
    together = np.maximum(np.abs(r[j]), np.abs(r[k]))
    together[[j, k]] = 0.0
    n_same = int((together >= _SAME_TO_THE_EYE).sum()) + 2
    if abs(close) >= _SAME_TO_THE_EYE and n_same <= _MOST_SAME:
        return True
    controls = np.argsort(-together)[: min(_CONDITIONED_ON, len(r) - 2)]
    rows = cells.mask[:, [j, k, *controls]].all(1)
    if rows.sum() < _LEAST_ROWS:
        return False
    block, _ = _gram(cells.view[np.ix_(rows, np.array([j, k, *controls]))])
    precision = np.linalg.pinv(block + 1e-6 * np.eye(len(block)))
    partial = abs(precision[0, 1]) / np.sqrt(abs(precision[0, 0] * precision[1, 1]))
    return bool(partial >= _LEAST_PARTIAL)


def _bends_another(cells: Cells, j: int, k: int, close: float) -> bool:
    """Whether a third column is a curve of the pair with little noise: all three are items of one factor."""
    pair = (cells.view[:, j] + np.sign(close) * cells.view[:, k]) / 2
    complete = cells.mask[:, j] & cells.mask[:, k]
    for third in range(len(cells.features)):
        rows = complete & cells.mask[:, third]
        if third in (j, k) or rows.sum() < _LEAST_ROWS:
            continue
        y = cells.view[rows, third]
        left = [_left_by_curve(pair[rows], y, degree) for degree in (1, 3)]
        explained = 1 - np.array(left) / max(float(y.var()), 1e-300)
        if explained[1] >= _CURVE and explained[1] - explained[0] >= _BENT:
            return True
    return False


def _left_by_curve(x: NDArray[np.float64], y: NDArray[np.float64], degree: int) -> float:
    """Variance that a polynomial leaves; with few distinct values of x the shortest of all that fit alike."""
    powers = np.vander((x - x.mean()) / max(float(x.std()), 1e-300), degree + 1)
    return float((y - powers @ np.linalg.lstsq(powers, y, rcond=None)[0]).var())


def dependent_columns(cells: Cells, copies: list[int]) -> list[Finding]:
    """Sets of columns of which each follows from the others: totals, differences, shares, one-hot sets.

    Parameters
    ----------
    cells : Cells
    copies : list of int
        Columns to leave out, for they were named already.

    Returns
    -------
    list of Finding
        One for each set; the first gives the rank of the table.
    """
    active = [j for j in range(len(cells.features)) if j not in set(copies)]
    if len(active) < 3 or len(active) > MOST_COLUMNS:
        return []
    sets = _by_inverse(cells, active)
    if sets is None:
        sets = _one_by_one(cells, active)
    if cells.likelihood in ("multinomial", "categorical"):  # rows may have one total, which is conditioned on
        sets = [members for members in sets if len(members) < len(active)]
    if not sets:
        return []
    rank = len(active) - len(sets)
    return [_finding(cells, members, rank if not i else None) for i, members in enumerate(sets[:3])]


def _by_inverse(cells: Cells, active: list[int]) -> list[list[int]] | None:
    """Sets by the inverse of the correlation of complete rows; None where there are too few of these."""
    rows = cells.mask[:, active].all(1)
    n_rows = int(rows.sum())
    if n_rows < len(active) + _SPARE_ROWS:
        return None
    r, noise = _gram(cells.values[np.ix_(rows, np.array(active))])
    spare = n_rows / (n_rows - len(active))
    left = list(range(len(active)))
    sets: list[list[int]] = []
    while len(left) > 2 and len(sets) < _MOST_SETS:
        inverse = np.linalg.inv(r[np.ix_(left, left)] + 1e-10 * np.eye(len(left)))
        residual = spare / np.maximum(np.diag(inverse), 1e-300)
        residual += noise[left]
        least = residual.min()
        if least > _NEARLY:
            break
        at = int(np.flatnonzero(residual <= max(_EXACT, 1.01 * least))[-1])
        weights = -inverse[at] / inverse[at, at]
        weights[at] = 0.0
        kept = _pruned(r, left[at], [left[k] for k in np.argsort(np.abs(weights)) if k != at])
        sets.append(sorted([active[k] for k in [*kept, left[at]]]))
        left.pop(at)
    return sets


def _gram(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Correlations, and the variance of each column that is rounding only, where its mean is far from 0."""
    scale = np.abs(x).max(0)
    x = x / np.where(scale > 0, scale, 1.0)
    sd = x.std(0)
    usable = sd > 0
    z = np.where(usable, (x - x.mean(0)) / np.where(usable, sd, 1.0), 0.0)
    r = z.T @ z / len(z)
    return r + np.diag(np.where(usable, 0.0, 1.0)), (1e-15 / np.where(usable, sd, 1.0)) ** 2


def _residual(r: NDArray[np.float64], j: int, predictors: list[int]) -> float:
    """Share of a column's variance that others leave."""
    if not predictors:
        return 1.0
    block = r[np.ix_(predictors, predictors)] + 1e-12 * np.eye(len(predictors))
    return max(1.0 - float(r[j, predictors] @ np.linalg.solve(block, r[predictors, j])), 0.0)


def _pruned(r: NDArray[np.float64], j: int, candidates: list[int]) -> list[int]:
    """The few columns that column j follows from, the least needed of the candidates coming first."""
    whole = _residual(r, j, candidates)
    most = _EXACT if whole < _EXACT else min(_NEARLY, 2 * whole)
    kept = list(candidates)
    step = max(len(kept) // 2, 1)
    while step:  # many at a time as long as that goes well, then one by one
        at = 0
        while at < len(kept):
            trial = kept[:at] + kept[at + step :]
            if trial and _residual(r, j, trial) <= most:
                kept = trial
            else:
                at += step
        step //= 2
    return kept


def _one_by_one(cells: Cells, active: list[int]) -> list[list[int]]:
    """Sets of a table with few complete rows: for each column, the others that leave least of it, in turn."""
    if len(active) > _MOST_COLUMNS_SEARCHED:
        return []
    z = cells.view
    r = correlation(z, cells.mask)
    sets: list[list[int]] = []
    for j in active[::-1]:
        others = [k for k in active if k != j and not any(k == dependent[-1] for dependent in sets)]
        members = _pursuit(cells, r, j, others)
        if members and not any(set(members) == set(dependent) for dependent in sets):
            sets.append([*members, j])
    unique = []
    for dependent in sets:
        if sorted(dependent) not in unique:
            unique.append(sorted(dependent))
    return unique


def _pursuit(cells: Cells, r: NDArray[np.float64], j: int, others: list[int]) -> list[int]:
    """Columns that a column follows from exactly, by orthogonal matching pursuit; empty if there are none."""
    members: list[int] = []
    for _ in range(min(_MOST_MEMBERS, len(others))):
        residual = r[j] - (
            r[:, members] @ np.linalg.pinv(r[np.ix_(members, members)]) @ r[members, j] if members else 0
        )
        score = np.abs(residual)
        score[[k for k in range(len(r)) if k not in others or k in members]] = -1.0
        members.append(int(score.argmax()))
        if len(members) < 2:
            continue
        rows = cells.mask[:, [*members, j]].all(1)
        if rows.sum() < _LEAST_ROWS + len(members):
            return []
        block, _ = _gram(cells.values[np.ix_(rows, np.array([*members, j]))])
        if _residual(block, len(members), list(range(len(members)))) < _EXACT:
            kept = _pruned(block, len(members), list(range(len(members))))
            return [members[k] for k in kept]
    return []


def _finding(cells: Cells, members: list[int], rank: int | None) -> Finding:
    names = [cells.features[j] for j in members]
    rows = cells.mask[:, members].all(1)
    x = cells.values[np.ix_(rows, np.array(members))]
    total = x.sum(1)
    typical = abs(float(total.mean()))
    is_constant = bool(total.std() <= 0.02 * typical and total.std() <= 0.1 * np.sqrt(x.var(0).sum()))
    x = np.round(x, 6)
    if is_constant and np.isin(x, (0, 1)).all():
        description = f"exactly one of columns {listed(names)} is 1 in every row, a one-hot set"
        remedy = "drop one of them, and read the others as contrasts with it; or leave the set out"
    elif is_constant:
        shown = float(f"{total.mean():.3g}")
        description = f"columns {listed(names)} add to {shown:g} in every row, as shares do"
        remedy = (
            "take logarithms of ratios to one of them, or drop one; of counts, give the counts themselves "
            'with likelihood="multinomial"'
        )
    else:
        description = (
            f"columns {listed(names)} are linearly dependent (a total, a difference): each follows from the "
            "others"
        )
        remedy = f"drop one of them, such as {names[-1]!r}"
    of = "" if rank is None else f", so that {len(cells.features)} columns have rank {rank}"
    return Finding(
        "columns",
        f"{description}{of}; what is made of others shares their noise, which is taken for a factor",
        remedy,
        source="data",
        columns=tuple(names),
        size=float(len(names)),
    )
