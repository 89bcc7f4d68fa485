"""Where rows stand on the factors: scores of two of them against each other, or of one by group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..data.columns import as_frame, check_order, row_names
from ._style import colours, new_axes, shorten, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection

    from .._utils.types import RowInput, TableLike, VectorLike
    from ..inference.table.result import Fit

__all__ = ["plot_scores"]

# Okabe and Ito's colours, which stay apart for every kind of colour blindness, less black and yellow, which
# vanish on dark and on light, and a violet: more than seven cannot be told apart.
_PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8b6fc0")
_MANY = 12  # levels beyond which whole numbers are an amount, not a group
_DOTS = 3000  # rows beyond which dots are pixels of one picture, also in files of lines
_ALL = "all rows"


@styled
def plot_scores(
    fit: Fit,
    X: TableLike | None = None,
    factors: int | str | tuple[int | str, ...] = (0, 1),
    groups: VectorLike | str | None = None,
    *,
    ax: Axes | None = None,
    **per_row: RowInput,
) -> Axes:
    """Scores of rows on two factors as dots, coloured by group; or on one factor, a strip for each group.

    Parameters
    ----------
    fit : Fit
        Of a table.
    X : array_like (row, feature) or DataFrame, optional
        Rows to draw. Default: those of the fit.
    factors : int, str or tuple of one or two of these
        Positions or names of factors; with a single one rows are in strips, by group, over a box of the
        middle half with a line at the median.
    groups : array_like (row,) or str, optional
        A value for each row, or the name of a column of X (of an AnnData, of `obs`), feature or not. Text,
        categories, truth values and whole numbers of at most 12 levels are groups; other numbers are a
        scale of colours, or the horizontal axis under a single factor's scores.
    ax : Axes, optional
    **per_row : array_like (row,)
        As in `Fit.transform`. Rows of a fit that was given `groups` by their values need these again: they
        are taken from `groups`, or by their own name from here.

    Returns
    -------
    matplotlib Axes
        Beyond seven groups the smaller ones are grey dots, and so are rows without a group; the legend says
        how many.

    Raises
    ------
    TypeError
        `fit` is not that of a table.
    ValueError
        There is no such factor or column, or not one value for each row; or as in `Fit.transform`.
    """
    names = _factor_names(fit)
    first, *other = _positions(factors, names)
    table, values, label = _groups_of(fit, X, groups)
    scores = np.asarray(fit.transform(table, **_with_groups(fit, X, groups, per_row)), dtype=float)
    if values is not None and len(values) != len(scores):
        raise ValueError(f"groups: got {len(values)} values for {len(scores)} rows, wanted one for each row")
    amounts = None if values is None else _amounts(values)
    if other:
        ax = new_axes(ax, 6.4, 4.4)
        if amounts is None:
            _by_group(ax, scores[:, first], scores[:, other[0]], values, label)
        else:
            _by_amount(ax, scores[:, first], scores[:, other[0]], amounts, label)
        ax.set_xlabel(shorten([names[first]], 40)[0])
        ax.set_ylabel(shorten([names[other[0]]], 40)[0])
    elif amounts is None:
        ax = _strips(ax, scores[:, first], values)
        ax.set_xlabel(shorten([names[first]], 40)[0])
        ax.set_ylabel(shorten([label], 22)[0])
    else:
        ax = new_axes(ax, 6.4, 4.0)
        _dots(ax, amounts, scores[:, first], colours()["negative"])
        ax.set_xlabel(shorten([label], 40)[0])
        ax.set_ylabel(shorten([names[first]], 40)[0])
    ax.set_title(f"Scores of {len(scores):,} rows")
    return ax


# ---- what is asked -----------------------------------------------------------------------------------------
def _factor_names(fit: Fit) -> list[str]:
    if not (hasattr(fit, "transform") and hasattr(fit, "factor_names")):
        raise TypeError(
            f"fit: got a {type(fit).__name__}, wanted the fit of a table, whose rows have scores "
            "(fit.transform); of sequences draw fit.transform() itself"
        )
    return [str(name) for name in fit.factor_names]


def _positions(factors: int | str | tuple[int | str, ...], names: list[str]) -> list[int]:
    """Positions of the one or two factors that are asked for."""
    wanted = [factors] if isinstance(factors, str | int | np.integer) else list(factors)
    if len(wanted) not in (1, 2):
        raise ValueError(f"factors: got {len(wanted)}, wanted one or two")
    for factor in wanted:
        if factor not in names and (isinstance(factor, str) or factor not in range(len(names))):
            raise ValueError(
                f"factors: got {factor!r}, wanted a name or a position from 0 to {len(names) - 1}; the names "
                f"are {', '.join(map(repr, names[:6]))}{' …' if len(names) > 6 else ''}"
            )
    return [names.index(factor) if isinstance(factor, str) else int(factor) for factor in wanted]


def _groups_of(
    fit: Fit, X: TableLike | None, groups: VectorLike | str | None
) -> tuple[TableLike | None, pd.Series | None, str]:
    """The table without a column that only names groups, a value for each row, and what they are called."""
    if groups is None:
        return X, None, ""
    if not isinstance(groups, str):
        rows = fit.sample_names if X is None else row_names(as_frame(X))
        check_order("groups", row_names(groups), list(rows) if rows else None)
        keep = isinstance(groups, pd.Series | pd.Categorical)  # the order of their categories
        values = pd.Series(groups if keep else np.asarray(groups)).reset_index(drop=True)
        return X, values, str(getattr(groups, "name", None) or "group")
    X = as_frame(X)
    frame = X if isinstance(X, pd.DataFrame) else getattr(X, "obs", None)
    if frame is None or groups not in frame.columns:
        there = (
            "no columns by name" if frame is None else f"the columns {list(map(str, frame.columns[:6]))} …"
        )
        raise ValueError(
            f"groups: got {groups!r}, the name of a column, and X has {there}; give values, one for each row"
        )
    known = {*fit.feature_names, *fit.table.taken}
    if isinstance(X, pd.DataFrame) and groups not in known:
        X = X.drop(columns=groups)
    return X, frame[groups].reset_index(drop=True), groups


def _with_groups(
    fit: Fit, X: TableLike | None, groups: VectorLike | str | None, per_row: Mapping[str, RowInput]
) -> dict[str, Any]:
    """What `transform` is given of rows: groups too, if the fit was given some by their values."""
    design = fit.table.design
    by_value = (
        [t.name for t in design.terms if t.role == "groups" and t.name not in design.taken] if design else []
    )
    if X is None or groups is None or not by_value or set(by_value) & set(per_row):
        return dict(per_row)
    return {**per_row, "groups": groups}


def _amounts(values: pd.Series) -> NDArray[np.float64] | None:
    """Numbers that are no groups."""
    of = pd.api.types
    if not of.is_numeric_dtype(values.dtype) or of.is_bool_dtype(values.dtype):
        return None
    numbers = values.to_numpy(dtype=float, na_value=np.nan)
    there = numbers[np.isfinite(numbers)]
    whole = np.array_equal(there, np.round(there))
    return None if whole and len(np.unique(there)) <= _MANY else numbers


def _levels(values: pd.Series) -> tuple[list[str], NDArray[np.intp]]:
    """Names of the groups that have rows, in order, and the group of each row, -1 where it is missing."""
    category = values.astype("category").cat.remove_unused_categories()
    names = [f"{level:g}" if isinstance(level, float) else str(level) for level in category.cat.categories]
    return names, category.cat.codes.to_numpy().astype(np.intp)


# ---- drawing -----------------------------------------------------------------------------------------------
def _dots(ax: Axes, x: NDArray, y: NDArray, colour: str | NDArray, small: bool = False) -> PathCollection:
    """Rows as dots, in a random order, since rows in that of their groups would hide the first ones."""
    many, order = len(x) > _DOTS, np.random.default_rng(0).permutation(len(x))
    shades: dict[str, Any] = {"color": colour}
    if not isinstance(colour, str):
        shades = {"c": colour[order], **({} if colour.dtype.kind == "U" else {"cmap": "viridis"})}
    return ax.scatter(x[order], y[order], s=6 if many or small else 26, linewidths=0, **shades,
                      alpha=0.45 if many else 0.75, rasterized=many, zorder=1 if small else 2)  # fmt: skip


def _by_group(ax: Axes, x: NDArray, y: NDArray, values: pd.Series | None, label: str) -> None:
    from matplotlib.lines import Line2D

    if values is None:
        _dots(ax, x, y, colours()["negative"])
        return
    levels, code = _levels(values)
    size = np.bincount(code[code >= 0], minlength=len(levels))
    shown = np.sort(np.argsort(-size, kind="stable")[: len(_PALETTE)])
    named = [(shorten([levels[g]], 24)[0], _PALETTE[i], size[g]) for i, g in enumerate(shown)]
    here = np.isin(code, shown)
    grey, missing = colours()["muted"], int((code < 0).sum())
    if others := len(levels) - len(shown):
        named.append((f"{others} smaller group{'s' * (others > 1)}", grey, int((~here).sum()) - missing))
    if missing:
        named.append(("missing", grey, missing))
    _dots(ax, x[~here], y[~here], grey, small=True)
    _dots(ax, x[here], y[here], np.array(_PALETTE)[np.searchsorted(shown, code[here])])
    keys = [
        Line2D([], [], linestyle="", marker="o", markersize=3 if colour == grey else 6, markeredgewidth=0,
               color=colour, label=f"{name} ({n:,})")
        for name, colour, n in named
    ]  # fmt: skip
    ax.legend(handles=keys, title=shorten([label], 24)[0], loc="center left", bbox_to_anchor=(1.0, 0.5))


def _by_amount(ax: Axes, x: NDArray, y: NDArray, amounts: NDArray, label: str) -> None:
    there = np.isfinite(amounts)
    _dots(ax, x[~there], y[~there], colours()["muted"], small=True)
    bar = ax.figure.colorbar(
        _dots(ax, x[there], y[there], amounts[there]), ax=ax, shrink=0.8, aspect=24, pad=0.02
    )
    bar.set_label(shorten([label], 30)[0])
    bar.outline.set_visible(False)


def _strips(ax: Axes | None, scores: NDArray, values: pd.Series | None) -> Axes:
    """A strip of dots for each group, the first at the top, over a box of its middle half."""
    levels, code = ([_ALL], np.zeros(len(scores), dtype=int)) if values is None else _levels(values)
    if (code < 0).any():
        levels, code = [*levels, "missing"], np.where(code < 0, len(levels), code)
    ax, c = new_axes(ax, 6.4, 1.3 + 0.42 * max(len(levels), 2)), colours()
    jitter = np.random.default_rng(0).uniform(-0.28, 0.28, len(scores))
    for place, name in enumerate(levels):
        here = code == place
        grey = name == "missing" and place == len(levels) - 1 and (values is not None and values.isna().any())
        colour = c["muted"] if grey else _PALETTE[place % len(_PALETTE)]
        _dots(ax, scores[here], place + jitter[here], colour)
        low, middle, high = np.quantile(scores[here], [0.25, 0.5, 0.75])
        ax.barh(place, high - low, 0.72, low, color="none", edgecolor=c["muted"], linewidth=1.2, zorder=3)
        ax.vlines(middle, place - 0.36, place + 0.36, linewidth=2.2, color=c["muted"], zorder=4)
    sizes = np.bincount(code, minlength=len(levels))
    labels = [f"{name} ({n:,})" for name, n in zip(shorten(levels, 24), sizes, strict=True)]
    ax.set_yticks(range(len(levels)), labels)
    ax.set_ylim(len(levels) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    return ax
