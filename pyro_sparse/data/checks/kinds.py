"""What columns under a likelihood for measurements hold: codes, row numbers, counts, levels, yes or no."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ...findings.finding import Finding
from ._cells import Cells, listed, naming
from .ordinal import makes_a_factor

__all__ = [
    "CODE_GAP",
    "SENTINELS",
    "chosen_kinds",
    "column_kinds",
    "entry_mistakes",
    "few_levels",
    "missing_codes",
    "several_kinds",
]

# Rows of nines, as codes for a missing cell are.
SENTINELS = [sign * float("9" * digits) for digits in (2, 3, 4, 5) for sign in (-1, 1)]
CODE_GAP = 3.0  # standard deviations of all others, between these and such a code
# On a scale of few levels 7, 8 and 9 stand for "does not apply", "does not know" and "refused".
_LEVEL_CODES = (7, 8, 9)
_LEAST_GAP = 3  # from the last level to such a code
_MOST_CODED = 0.3  # of the cells
_MOST_LEVELS = 11  # of an answer on a scale, 0 to 10
_CELLS_A_LEVEL = 10  # from which few different numbers are levels, whatever they are
_PILED = 0.35  # of the answers at one end; a symmetric scale of five levels has some 15 % there
_SKEWED = 0.5  # skewness from which a scale's correlations depend on how easy its items are
_ONE_TOTAL = 0.02  # standard deviation of rows' totals over their mean
_NAMED_KINDS = {
    "binary": "yes or no",
    "levels": "a few levels",
    "counts": "counts",
    "numbers": "measurements",
}


def chosen_kinds(chosen: Mapping[str, list[str]]) -> list[Finding]:
    """What `likelihood="auto"` took columns for, in words.

    Parameters
    ----------
    chosen : mapping of str to list of str
        Names of columns by the likelihood that was chosen for them.
    """
    if not chosen:
        return []
    phrases = [f"{naming(names, 'column')} under {kind!r}" for kind, names in chosen.items()]
    return [
        Finding(
            "likelihood",
            f'"auto" reads {"; ".join(phrases)}',
            'say otherwise by name, as in likelihood={"age": "normal", "*": "auto"}',
            source="data",
            columns=tuple(name for names in chosen.values() for name in names),
        )
    ]


def column_kinds(cells: Cells) -> list[str]:
    """What each column looks like: "numbers", "binary" (0 or 1), "levels" or "counts".

    Parameters
    ----------
    cells : Cells
    """
    kinds = []
    seen = zip(cells.columns, cells.is_integer, cells.n_levels, cells.is_coarse, strict=True)
    for column, is_integer, n_levels, is_coarse in seen:
        least, most = column.min(), column.max()
        coded = None if is_coarse else _codes_of_levels(column, is_integer, n_levels)
        if coded is not None:
            kinds.append("binary" if coded == 2 else "levels")
        elif not is_integer:
            kinds.append("numbers")
        elif least >= 0 and most <= 1:
            kinds.append("binary")
        elif n_levels <= _MOST_LEVELS and most - least < _MOST_LEVELS:
            kinds.append("levels")
        elif least == 0 and (column == 0).mean() >= 0.01 and np.mean(column) > np.median(column):
            kinds.append("counts")
        else:
            kinds.append("numbers")
    return kinds


def _codes_of_levels(column: NDArray[np.float64], is_integer: bool, n_levels: int) -> int | None:
    """How many levels a column has that are not coded 0, 1, 2, …: in tenths, in steps of 25, z-scored."""
    if n_levels > _MOST_LEVELS or len(column) < _CELLS_A_LEVEL * n_levels:
        return None
    is_coded_apart = not is_integer or np.diff(np.unique(column)).min() > 1
    return int(n_levels) if is_coded_apart and n_levels > 1 else None


def several_kinds(cells: Cells) -> list[Finding]:
    """Columns of several kinds under the one normal likelihood.

    Parameters
    ----------
    cells : Cells
    """
    if not cells.is_normal:
        return []
    kinds = np.array(column_kinds(cells))
    present = [kind for kind in _NAMED_KINDS if (kinds == kind).any()]
    if len(present) < 2 or not {"numbers", "binary"} & set(present):
        return []
    others = [kind for kind in present if kind != "numbers"]
    phrases = []
    for kind in others:
        names = [cells.features[j] for j in np.flatnonzero(kinds == kind)]
        phrases.append(f"{_NAMED_KINDS[kind]} in {listed(names, 4)}")
    named = [cells.features[j] for j in np.flatnonzero(np.isin(kinds, others))]
    beside = " beside measurements" if "numbers" in present else ""
    return [
        Finding(
            "kinds",
            f"columns are of several kinds ({'; '.join(phrases)}{beside}): one normal likelihood serves them "
            "all, predictions leave their range, and columns of a kind may make a factor of their own",
            'give each kind its likelihood, by name or pattern: likelihood={"q*": "ordinal", "*": "normal"}, '
            'or likelihood="auto", which goes by what a column holds',
            source="data",
            columns=tuple(named),
            size=float(len(present)),
        )
    ]


def few_levels(cells: Cells) -> list[Finding]:
    """Answers on a scale of few levels, which pile up at an end.

    A doubt where the cut alone may make a factor of easy items and one of hard ones, else a note.

    Parameters
    ----------
    cells : Cells
    """
    if not cells.is_normal:
        return []
    kinds = column_kinds(cells)
    scale = [j for j, kind in enumerate(kinds) if kind in ("levels", "binary")]
    if not scale or len(scale) < 0.5 * len(kinds):
        return []
    piled = []
    for j in scale:
        column = cells.columns[j]
        ends = [float((column == end).mean()) for end in (column.min(), column.max())]
        skewness = float(((column - column.mean()) ** 3).mean() / column.std() ** 3)
        if cells.n_levels[j] <= 3 or max(ends) >= _PILED or abs(skewness) >= _SKEWED:
            piled.append((j, max(ends)))
    if len(piled) < max(2, 0.15 * len(scale)):
        return []
    names = [cells.features[j] for j, _ in piled]
    levels = [int(cells.n_levels[j]) for j, _ in piled]
    is_doubt = makes_a_factor(cells.values[:, scale])
    effect = (
        "under the normal likelihood easy and hard ones make a factor each"
        if is_doubt
        else "their loadings are a little small for it, but the piles are too slight to make a factor"
    )
    number = "" if cells.is_integer[scale].all() else "number the levels 1, 2, 3, … and "
    return [
        Finding(
            "levels",
            f"{naming(names, 'column')} {'have' if len(names) > 1 else 'has'} {_span(levels)} levels that "
            f"pile up at an end (up to {max(share for _, share in piled):.0%} of the cells in one): they are "
            f"ordinal, and {effect}",
            f'{number}take likelihood="ordinal", which reads levels as levels, and do not believe a factor '
            "that only parts high means from low ones",
            severity="doubt" if is_doubt else "note",
            source="data",
            columns=tuple(names),
            size=max(share for _, share in piled),
        )
    ]


def _span(values: list[int]) -> str:
    return str(min(values)) if min(values) == max(values) else f"{min(values)} to {max(values)}"


def entry_mistakes(cells: Cells) -> list[Finding]:
    """What a table under the normal likelihood looks like, and probably should not be.

    Parameters
    ----------
    cells : Cells

    Notes
    -----
    Columns that are all 0 or 1; counts; columns that number the rows.
    """
    if not cells.is_normal:
        return []
    columns, names = cells.columns, cells.features
    blurred = [name for name, column in zip(names, columns, strict=True) if _is_blurred(column)]
    if blurred:
        return [
            _note(
                f"{naming(blurred, 'column')} {'are' if len(blurred) > 1 else 'is'} so far from 0 that few "
                "digits are left for differences between rows",
                "subtract a constant, or give it in other units",
                blurred,
            )
        ]
    if cells.is_integer.all():
        if all(np.isin(column, (0, 1)).all() for column in columns):
            return [_note('every column is 0 or 1: likelihood="bernoulli" is made for that, "normal" is not')]
        if _are_counts(columns) and not _have_one_total(cells):
            return [
                _note(
                    "all cells are whole numbers from 0, as counts are: likelihood="
                    '"poisson" or "negative_binomial" is made for that; for "normal" take their logarithm'
                )
            ]
    looks = [("numbers the rows", [_numbers_rows(column) for column in columns], "drop it")]
    shuffled = [bool(whole) and _is_shuffled(c) for whole, c in zip(cells.is_integer, columns, strict=True)]
    if sum(shuffled) == 1:  # several are ranks
        looks.append(
            ("has each number once, as names of rows do", shuffled, "drop it if it is not a measurement")
        )
    findings = []
    for predicate, has_it, remedy in looks:
        if any(has_it):
            of = [names[j] for j in np.flatnonzero(has_it)]
            findings.append(_note(f"column {of[0]!r} {predicate}{_more(has_it)}", remedy, of))
    return findings


def missing_codes(cells: Cells) -> list[Finding]:
    """Numbers that stand for a missing cell, such as -999, or 9 beside levels from 1 to 5.

    Parameters
    ----------
    cells : Cells
    """
    columns, names = cells.columns, cells.features
    has_levels = cells.likelihood in ("normal", "ordinal")  # counts of 7 to 9 may stand apart by chance
    codes = [
        _code(column) or (_level_code(column) if is_integer and has_levels else None)
        for column, is_integer in zip(columns, cells.is_integer, strict=True)
    ]
    has_code = [code is not None for code in codes]
    if not any(has_code):
        return []
    j = has_code.index(True)
    count, code = int((columns[j] == codes[j]).sum()), codes[j]
    return [
        _note(
            f"column {names[j]!r} is {code:g} in {count} cells, far from all others{_more(has_code)}",
            f"if that stands for missing, X.replace({code:g}, float('nan'))",
            [names[j] for j in np.flatnonzero(has_code)],
        )
    ]


def _is_blurred(column: NDArray[np.float64]) -> bool:
    """Whether the spread of a column is within a million steps of its numbers' precision."""
    return bool(column.std() < 1e6 * np.spacing(np.abs(column).max()))


def _note(message: str, remedy: str = "", columns: list[str] | None = None) -> Finding:
    return Finding("kinds", message, remedy, source="data", columns=tuple(columns or ()))


def _more(has_it: list[bool]) -> str:
    return f" ({sum(has_it)} such columns)" if sum(has_it) > 1 else ""


def _are_counts(columns: list[NDArray[np.float64]]) -> bool:
    """Whether whole numbers begin at 0, have a tail, and no end that many reach (a scale or a pixel has)."""
    at_end = [(column == column.max()).mean() for column in columns]
    middle = [np.median(column) for column in columns]
    tails = [column.max() - m - 1.4 * (m - column.min()) for column, m in zip(columns, middle, strict=True)]
    return bool(
        all(column.min() >= 0 for column in columns)
        and np.mean([column.min() == 0 for column in columns]) >= 0.5
        and max(column.max() for column in columns) >= 5
        and np.median(at_end) <= max(0.02, 2 / len(columns[0]))
        and np.median(tails) > 0  # those of ranks and of ages are alike
    )


def _have_one_total(cells: Cells) -> bool:
    """Whether whole numbers add to nearly the same in every row, as shares in per cent do."""
    total = cells.values[cells.mask.all(1)].sum(1)
    return bool(len(total) and total.std() <= _ONE_TOTAL * abs(total.mean()))


def _numbers_rows(column: NDArray[np.float64]) -> bool:
    """Whether whole numbers go up from row to row, or down."""
    step = np.diff(column)
    whole = len(column) >= 20 and (column == np.rint(column)).all()
    return bool(whole and ((step > 0).all() or (step < 0).all()))


def _is_shuffled(column: NDArray[np.float64]) -> bool:
    """Whether a column of whole numbers is n numbers in a row, in another order than that."""
    n = len(column)
    if n < 20 or column.max() - column.min() != n - 1 or _numbers_rows(column):
        return False
    return len(np.unique(column)) == n


def _code(column: NDArray[np.float64]) -> float | None:
    """A row of nines that several cells have, beyond all others and far from them."""
    for code in SENTINELS:
        at = column == code
        others = column[~at]
        if at.sum() < 3 or len(others) < 3:
            continue
        gap = others.min() - code if code < 0 else code - others.max()
        if gap > CODE_GAP * others.std() or (code < 0 <= others.min()):
            return code
    return None


def _level_code(column: NDArray[np.float64]) -> float | None:
    """A last level of 7, 8 or 9, or a first one below 0, with a gap to a scale of few levels."""
    levels = np.unique(column)
    if not 3 <= len(levels) <= _MOST_LEVELS or levels[-1] - levels[0] > 2 * _MOST_LEVELS:
        return None
    for is_code, at in ((np.isin(levels, _LEVEL_CODES), -1), (levels < 0, 0)):
        others = levels[~is_code]
        if not is_code.any() or len(others) < 2:
            continue
        gap = levels[is_code].min() - others.max() if at else others.min() - levels[is_code].max()
        share = np.isin(column, levels[is_code])
        wanted = _LEAST_GAP if at or others.min() < 1 else 2  # -1 beside 1 to 5, and not beside 0 and 1
        if gap >= wanted and 3 <= share.sum() <= _MOST_CODED * len(column):
            return float(levels[at])
    return None
