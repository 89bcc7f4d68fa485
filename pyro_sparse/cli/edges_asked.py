"""What the command line says of single edges: factors by the names that tables print, columns by theirs."""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

__all__ = ["model_text", "read_edges"]

_FACTOR = re.compile(r"\s*(?:factor|f)?\s*(\d+)\s*", re.IGNORECASE)


def read_edges(
    option: str, lines: Sequence[str], columns: Sequence[str], n_factors: int
) -> list[tuple[str, int]]:
    """Edges (column, factor from 0) of lines such as "factor 1=x1,x2".

    Parameters
    ----------
    option : str
        What messages call it, such as "--anchors".
    lines : sequence of str
        A factor, an equals sign, and names of columns or patterns, separated by commas as in CSV.
    columns : sequence of str
        Those of the table.
    n_factors : int

    Raises
    ------
    ValueError
        A line is none such, or names a factor or a column that is not there.

    Examples
    --------
    >>> read_edges("--required", ["factor 2=x1,y*"], ["x1", "x2", "y1"], 2)
    [('x1', 1), ('y1', 1)]
    """
    edges: list[tuple[str, int]] = []
    for line in lines:
        head, equals, tail = line.partition("=")
        factor = _FACTOR.fullmatch(head)
        if not equals or factor is None:
            raise ValueError(f'{option}: got {line!r}, wanted a factor and columns, as "factor 1=x1,x2"')
        number = int(factor[1])
        if not 1 <= number <= n_factors:
            raise ValueError(
                f"{option}: there is no factor {number}; they count from 1, and --factors says that there "
                f"are "
                f"{n_factors} at most"
            )
        patterns = [
            name.strip() for name in next(csv.reader([tail], skipinitialspace=True), []) if name.strip()
        ]
        if not patterns:
            raise ValueError(f'{option}: {line!r} names no column; wanted such as "factor {number}=x1,x2"')
        for pattern in patterns:
            names = [pattern] if pattern in columns else [c for c in columns if fnmatchcase(c, pattern)]
            if not names:
                close = difflib.get_close_matches(pattern, columns, n=3) or list(columns[:5])
                raise ValueError(
                    f"{option}: {pattern!r} is no column of the table; did you mean one of {close}?"
                )
            edges += [(name, number - 1) for name in names]
    return edges


def model_text(model: str) -> str:
    """What `--model` says: the option itself, or what is in the file that it names.

    Parameters
    ----------
    model : str

    Raises
    ------
    ValueError
        It is neither, or the file is no text.
    """
    if "=~" in model:
        return model
    path = Path(model)
    if not path.is_file():
        raise ValueError(
            f"--model: {model!r} is no file, and says nothing itself; wanted such as "
            '"visual =~ x1 + x2 + x3; speed =~ x7 + x8 + x9", or a file with such lines'
        )
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeError as error:
        raise ValueError(f"--model: {model!r} is not UTF-8 text ({error}); save it as such") from error
