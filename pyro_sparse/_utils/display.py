"""Tables that print the columns that matter, where pandas would hide them in a narrow terminal.

They are data frames in all else: slicing, methods and files know all columns.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import ClassVar

import pandas as pd

from .escaping import printable

__all__ = ["AgreementTable", "EdgeTable"]

_OWN_UNITS = ("weight", "strength", "error")  # three decimals could round all of these to 0
_LEAST = 3  # columns that are printed however narrow the terminal is


class _Narrow(pd.DataFrame):
    """A data frame whose repr has the columns of `_first` that fit, in that order, and names the others."""

    _first: ClassVar[tuple[str, ...]] = ()
    _needed: ClassVar[tuple[str, ...]] = ()  # one of these, under this index: else it is another table by now
    _under: ClassVar[str] = ""

    @property
    def _constructor(self) -> Callable[..., pd.DataFrame]:
        return type(self)

    def __repr__(self) -> str:
        if self.empty or self.index.name != self._under or not set(self.columns) & set(self._needed):
            return printable(str(super().__repr__()))
        leading = [name for first in self._first for name in self.columns if fnmatchcase(str(name), first)]
        names = [name for name in leading if name != "selected" or not self[name].all()]
        fallback = (pd.get_option("display.width") or 80, 24)
        width = shutil.get_terminal_size(fallback).columns
        text = self._in_short(names)
        while len(names) > _LEAST and max(map(len, text.splitlines())) > width:
            names = names[:-1]
            text = self._in_short(names)
        others = [str(name) for name in self.columns if name not in names]
        size = f"[{len(self)} row{'' if len(self) == 1 else 's'}"
        about = f"{size}; more columns: {', '.join(others)}]" if others else f"{size}]"
        return printable(f"{text}\n\n{textwrap.fill(about, width)}")

    def _in_short(self, names: list[str]) -> str:
        """The frame with these columns; of many rows the first and the last, as pandas has it."""
        most, few = pd.get_option("display.max_rows"), pd.get_option("display.min_rows")
        return str(
            self.to_string(
                columns=names,
                formatters={name: _figure(self[name]) for name in names if self[name].dtype.kind == "f"},
                max_rows=most,
                min_rows=few if most and len(self) > most else None,
                show_dimensions=False,
            )
        )


def _figure(column: pd.Series) -> Callable[[float], str]:
    """How to write its numbers: three places, or, in units of one's own, as many digits as it takes."""
    largest = float(column.abs().max())
    small = column.name in _OWN_UNITS and 0 < largest < 0.1
    digits = ".3g" if small else ".7g" if largest >= 1e4 else ".3f"
    return lambda value: format(value, digits)


class EdgeTable(_Narrow):
    """What `summary` returns: its index says of which edge a row is."""

    _first = (
        "probability",
        "score",
        "p_salient_*",
        "weight",
        "strength",
        "verdict",
        "gap",
        "effect",
        "selected",
        "q_value",
    )
    _needed, _under = ("probability", "score"), "edge"


class AgreementTable(_Narrow):
    """`agreement` of a fit: a row for each restart."""

    _first = (
        "similarity", "recovered", "least", "edges_differing", "gap", "influence", "factors", "error",
        "elbo", "behind", "found", "beyond_linear",
    )  # fmt: skip
    _needed, _under = ("similarity",), "restart"
