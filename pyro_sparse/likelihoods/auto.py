"""Which likelihood suits a column, by its type and what it holds; where that cannot be known, it is asked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .base import Column, Likelihood
from .bernoulli import Bernoulli
from .normal import Normal
from .ordinal import Ordinal

__all__ = ["Auto"]

_MOST_LEVELS = 11  # of an answer on a scale, 0 to 10
_SHOWN = 6  # names in a message


class Auto(Likelihood):
    """The likelihood of each column by its type and its cells.

    True and False, or 0 and 1, are "bernoulli", ordered categories "ordinal", numbers with fractions
    "normal", and so are whole numbers that are neither few levels nor counts. Whole numbers that may be
    levels of a scale, counts or measurements are asked about.

    Examples
    --------
    >>> column = Column("height", float, np.array([1.71, 1.84]))
    >>> [likelihood.name for likelihood in Auto().choose([column])]
    ['normal']
    """

    name = "auto"
    reads_columns = True

    def choose(self, columns: Sequence[Column]) -> list[Likelihood]:
        """The likelihood of each column.

        Parameters
        ----------
        columns : sequence of Column

        Raises
        ------
        ValueError
            Columns of which it cannot be known.
        """
        unclear = [(column, may_be) for column in columns if (may_be := _may_be(column))]
        if unclear:
            names = ", ".join(repr(column.name) for column, _ in unclear[:_SHOWN])
            more = f" and {len(unclear) - _SHOWN} more" if len(unclear) > _SHOWN else ""
            column, may_be = unclear[0]
            raise ValueError(
                f'likelihood: "auto" cannot know what whole numbers are, in {names}{more}; '
                f"{column.name!r} has {may_be}. Say which, for columns or patterns, as in "
                f'{{{column.name!r}: "ordinal", "*": "auto"}}'
            )
        return [self._of(column) for column in columns]

    @staticmethod
    def _of(column: Column) -> Likelihood:
        if column.labels:
            return Ordinal()
        seen = column.values[np.isfinite(column.values)]
        if column.type is bool or (len(seen) and np.isin(seen, (0.0, 1.0)).all()):
            return Bernoulli()
        return Normal()


def _may_be(column: Column) -> str:
    """What a column of whole numbers may be, where that is more than one thing; else empty."""
    seen = column.values[np.isfinite(column.values)]
    if column.labels or column.type is bool or not len(seen) or (seen != np.rint(seen)).any():
        return ""
    low, high = seen.min(), seen.max()
    if low >= 0 and high <= 1:
        return ""
    if high - low < _MOST_LEVELS:
        may_be = 'levels ("ordinal"), counts ("poisson") or measurements ("normal")'
        return f"{low:g} to {high:g}, which may be {may_be}"
    if low == 0 and seen.mean() > np.median(seen):
        return f'{low:g} to {high:g}, which may be counts ("negative_binomial") or measurements ("normal")'
    return ""
