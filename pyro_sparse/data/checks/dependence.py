"""Columns that say the same: nearly equal ones, and sets of which one follows from the others.

Such columns have correlated noise, which a factor model takes for a factor. A pair is a copy if what the two
share is beyond what the rest of the table shares with them; of a set, one column's residual given the others
is next to nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ...findings.finding import Finding
from ._cells import MOST_COLUMNS, Cells, correlation, listed

__all__ = ["MAKES_A_FACTOR", "SHARES_NOISE", "copied_columns", "dependent_columns"]

# Tuned on simulated tables of seeds from 1000. Two indicators of one factor with noise of .15 sd correlate by
# .98, but given a third their partial correlation is a half; that of a copy stays near 1.
_LEAST_CORRELATION = 0.97
_LEAST_PARTIAL = 0.75
# Two indicators with noise of .2 sd correlate by .98 at most. Of six such pairs that clean tables were told
# of (seeds 1000 to 1999, 50000 to 50999) the partial correlation is .92 at most, of 84 copies with noise
# (seeds 1000 to 1059) .95 or more.
_CLOSER_THAN_INDICATORS, _LEAST_PARTIAL_OF_INDICATORS = 0.985, 0.94
_CURVE, _BENT = 0.8, 0.05  # of a third column's variance, by a cubic of the pair, and beyond a line
_SAME_TO_THE_EYE = 0.995  # three copies of one column: each pair's partial correlation given the third is low
_MOST_SAME = 4  # copies of one column; of more the partial correlation decides
_EXACT = 1e-6  # of a column's variance; the residual of an exact dependence is rounding only
_ROUNDED = 1.6  # times the variance, or standard deviation, that rounding alone leaves
_FINE_GRID = 0.01  # of a column's variance, which rounding makes; of a scale of few levels it is more
_NEARLY = 4e-4  # of a column's variance: a sum of rounded numbers; indicators of one factor stay far above
_CONDITIONED_ON = 3  # columns that a partial correlation is given
MAKES_A_FACTOR = ", and the two make a factor of their own"
SHARES_NOISE = "; what is made of others shares their noise, which is taken for a factor"
_EXACT_PAIR = 1e-9
_NEAR_COPY = "is nearly a copy of {{}} (correlation {:.3f})"
_ORDER = "both put the rows in one order"
_MOST_SETS = 20
_MOST_MEMBERS = 8  # of sets looked for one column at a time
_SPARE_ROWS = 12  # beyond the columns, for a rank to say something
_LEAST_ROWS, _LEAST_EXACT_ROWS = 20, 6  # beyond the columns; fewer do where nothing at all is left
_SAME_ORDER = 0.999  # correlation of normal scores from which a column is another's curve, without noise
_MANY_LEVELS = 0.5  # of the cells, in columns whose single cells are compared
_SAME_CELLS = 0.1  # of the rows, in which two columns hold one number that neither has twice
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
        if complete.sum() < _LEAST_EXACT_ROWS:
            continue
        close = float(_gram(cells.view[complete][:, [j, k]])[0][0, 1])
        is_exact = abs(close) > 1 - _EXACT_PAIR and _are_numbers(cells, [j, k])
        if complete.sum() < _LEAST_ROWS and not is_exact:
            continue
        is_close = abs(close) >= _LEAST_CORRELATION
        if is_close and _are_copies(r, j, k, close, cells) and not _bends_another(cells, j, k, close):
            how = "repeats {} but for units" if abs(close) > 1 - _EXACT_PAIR else _NEAR_COPY.format(close)
            pairs.append((int(j), int(k), close, how))
    known = {pair[:2] for pair in pairs}
    pairs += [pair for pair in (*_curves(cells), *_same_cells(cells)) if pair[:2] not in known]
    if not pairs:
        return [], []
    pairs.sort(key=lambda pair: -abs(pair[2]))
    phrases = [
        f"{cells.features[k]!r} {how.replace('{}', repr(cells.features[j]))}" for j, k, _, how in pairs[:3]
    ]
    copies = sorted({k for _, k, _, _ in pairs})
    more = f" ({len(copies)} such columns)" if len(copies) > 1 else ""
    named = sorted({member for pair in pairs for member in pair[:2]})
    is_mean = all(close > 0 and (j, k) in known for j, k, close, _ in pairs)
    return [
        Finding(
            "columns",
            f"column {', '.join(phrases)}{more}{MAKES_A_FACTOR}",
            "drop one of them" + (", or put their mean in the place of both" if is_mean else ""),
            source="data",
            columns=tuple(cells.features[j] for j in named),
            size=abs(pairs[0][2]),
        )
    ], copies


def _curves(cells: Cells) -> list[tuple[int, int, float, str]]:
    """Pairs of columns whose cells have one order: a column and its logarithm, or its ranks."""
    many = np.flatnonzero(cells.n_levels > np.maximum(_MANY_LEVELS * cells.mask.sum(0), _LEAST_ROWS - 1))
    if len(many) < 2:
        return []
    mask = cells.mask[:, many]
    scores = np.zeros(mask.shape)
    for at, j in enumerate(many.tolist()):
        rank = np.asarray(stats.rankdata(cells.values[mask[:, at], j]))
        scores[mask[:, at], at] = stats.norm.ppf(rank / (len(rank) + 1))
    r = correlation(scores, mask)
    rows, columns = np.nonzero(np.triu(np.abs(r) >= _SAME_ORDER - 0.02, 1))
    pairs = []
    for j, k in zip(rows.tolist(), columns.tolist(), strict=True):
        complete = mask[:, j] & mask[:, k]
        if complete.sum() < _LEAST_ROWS:
            continue
        order = float(np.asarray(np.corrcoef(scores[complete][:, [j, k]].T))[0, 1])
        if abs(order) >= _SAME_ORDER:
            pairs.append((int(many[j]), int(many[k]), order, f"is a curve of {{}} ({_ORDER})"))
    return pairs


def _same_cells(cells: Cells) -> list[tuple[int, int, float, str]]:
    """Pairs of columns that hold one number in many rows, of numbers that neither has in another row."""
    many = np.flatnonzero(cells.n_levels > np.maximum(_MANY_LEVELS * cells.mask.sum(0), _LEAST_ROWS - 1))
    if len(many) < 2 or not cells.is_normal:
        return []
    single = np.full((len(cells.values), len(many)), np.nan)
    for at, number_of in enumerate(many.tolist()):
        column = cells.values[:, number_of]
        number, count = np.unique(column, return_counts=True)
        single[:, at] = np.where(np.isin(column, number[count == 1]), column, np.nan)
    order = np.argsort(single, 1)
    ordered = np.take_along_axis(single, order, 1)
    row, place = np.nonzero(np.abs(np.diff(ordered, axis=1)) <= 1e-12 * np.abs(ordered[:, 1:]))
    same = np.sort(np.stack([order[row, place], order[row, place + 1]], 1), 1)
    pairs, count = np.unique(same, axis=0, return_counts=True)
    found = []
    for (first, second), n_same in zip(pairs.tolist(), count.tolist(), strict=True):
        j, k = int(many[first]), int(many[second])
        together = cells.mask[:, j] & cells.mask[:, k]
        if n_same >= max(_LEAST_EXACT_ROWS, _SAME_CELLS * together.sum()):
            how = f"holds the same number as {{}} in {n_same} of {together.sum()} rows"
            found.append((j, k, float(n_same / together.sum()), how))
    return found


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
    is_closer = abs(close) >= _CLOSER_THAN_INDICATORS
    return bool(partial >= (_LEAST_PARTIAL if is_closer else _LEAST_PARTIAL_OF_INDICATORS))


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
    if not sets and _rounded_total(cells, active):
        sets = [active]
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
    x = cells.values[np.ix_(rows, np.array(active))]
    r, noise = _gram(x)
    nearly = np.maximum(_NEARLY, _ROUNDED * _rounding(x))
    spare = n_rows / (n_rows - len(active))
    left = list(range(len(active)))
    sets: list[list[int]] = []
    while len(left) > 2 and len(sets) < _MOST_SETS:
        inverse = np.linalg.inv(r[np.ix_(left, left)] + 1e-10 * np.eye(len(left)))
        residual = spare / np.maximum(np.diag(inverse), 1e-300)
        residual += noise[left]
        least = residual.min()
        if least <= _NEARLY:
            at = int(np.flatnonzero(residual <= max(_EXACT, 1.01 * least))[-1])
        elif (residual <= nearly[left]).any():
            at = int(np.argmin(residual / nearly[left]))
        else:
            break
        weights = -inverse[at] / inverse[at, at]
        weights[at] = 0.0
        candidates = [left[k] for k in np.argsort(np.abs(weights)) if k != at]
        kept = _pruned(r, left[at], candidates, float(nearly[left[at]]))
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


def _are_numbers(cells: Cells, columns: list[int]) -> bool:
    """Whether cells differ from row to row, so that in few rows, too, none are equal by chance."""
    return bool((cells.n_levels[columns] > _MANY_LEVELS * cells.mask[:, columns].sum(0)).all())


def _rounding(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of each column's variance that is rounding to some decimals; 0 on no fine grid."""
    shares = np.zeros(x.shape[1])
    for j, column in enumerate(x.T):
        for decimals in range(4):
            if np.abs(column - np.round(column, decimals)).max() <= 1e-9 * np.abs(column).max():
                shares[j] = 10.0 ** (-2 * decimals) / 12 / max(float(column.var()), 1e-300)
                break
    return np.where(shares <= _FINE_GRID, shares, 0.0)


def _rounded_total(cells: Cells, active: list[int]) -> bool:
    """Whether all columns are rounded shares of one total, so that rows add to it but for rounding."""
    rows = cells.mask[:, active].all(1)
    x = cells.values[np.ix_(rows, np.array(active))]
    if len(x) < _LEAST_ROWS or x.min() < -1e-9 * x.max():
        return False
    decimals = [d for d in range(4) if np.abs(x - np.round(x, d)).max() <= 1e-9 * x.max()]
    total = x.sum(1)
    if not decimals or total.std() > 0.02 * total.mean() or total.std() > 0.2 * np.sqrt(x.var(0).sum()):
        return False
    return bool(total.std() <= _ROUNDED * 10.0 ** -decimals[0] * np.sqrt(x.shape[1] / 12))


def _residual(r: NDArray[np.float64], j: int, predictors: list[int]) -> float:
    """Share of a column's variance that others leave."""
    if not predictors:
        return 1.0
    block = r[np.ix_(predictors, predictors)] + 1e-12 * np.eye(len(predictors))
    return max(1.0 - float(r[j, predictors] @ np.linalg.solve(block, r[predictors, j])), 0.0)


def _pruned(r: NDArray[np.float64], j: int, candidates: list[int], nearly: float = _NEARLY) -> list[int]:
    """The few columns that column j follows from, the least needed of the candidates coming first."""
    whole = _residual(r, j, candidates)
    most = _EXACT if whole < _EXACT else min(nearly, 2 * whole)
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
        least = _LEAST_EXACT_ROWS if _are_numbers(cells, [*members, j]) else _LEAST_ROWS
        if rows.sum() < least + len(members):
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
    is_centred = bool(np.abs(total).max() <= 1e-6 * np.sqrt(x.var(0).sum()))
    x = np.round(x, 6)
    lowest, highest = x.min(0), x.max(0)
    if is_centred:
        description = f"columns {listed(names)} add to 0 in every row, as differences from a row's mean do"
        remedy = "give the cells before the mean of each row was taken off"
    elif is_constant and ((x == lowest) | (x == highest)).all() and ((x == highest).sum(1) == 1).all():
        description = f"exactly one of columns {listed(names)} is 1 in every row, a one-hot set"
        remedy = "drop one of them, and read the others as contrasts with it; or leave the set out"
    elif is_constant:
        shown = float(f"{np.median(total):.3g}")
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
        f"{description}{of}{SHARES_NOISE}",
        remedy,
        source="data",
        columns=tuple(names),
        size=float(len(names)),
    )
