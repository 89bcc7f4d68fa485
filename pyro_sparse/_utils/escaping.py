"""Names from a table, as they may be written where other programs act on what they read.

A spreadsheet computes a cell that begins with = + - @, and a terminal obeys control characters.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from .atomic import write_atomically

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["csv_bytes", "csv_text", "printable", "write_csv"]

# C0 and C1 control characters but tab and line feed, line and paragraph separators, and what turns the
# direction of writing (Unicode TR 9, table 1), by which a text can look like another one
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # OWASP, "CSV Injection"; the wide ones too


def printable(text: str, one_line: bool = False) -> str:
    r"""Text with control characters written out, as ``\x1b``.

    Parameters
    ----------
    text : str
    one_line : bool
        Whether tabs and line feeds are written out, too.

    Examples
    --------
    >>> print(printable("red \x1b[31m"))
    red \x1b[31m
    """
    text = _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
    return text.replace("\t", r"\t").replace("\n", r"\n") if one_line else text


def csv_text(value: object) -> object:
    """A name as a cell of CSV that no spreadsheet computes; what is no text stays as it is.

    Control characters, tabs and line feeds among them, are written out; an apostrophe stands before what
    would be a formula.

    Parameters
    ----------
    value : any

    Examples
    --------
    >>> csv_text("=1+1"), csv_text("plain - name"), csv_text(-1.5)
    ("'=1+1", 'plain - name', -1.5)
    """
    if not isinstance(value, str):
        return value
    value = printable(value, one_line=True)
    return f"'{value}" if value.lstrip().startswith(_FORMULA) else value


def csv_bytes(frame: pd.DataFrame, index: bool = True) -> bytes:
    """A table as CSV in UTF-8, its names by `csv_text`.

    Parameters
    ----------
    frame : DataFrame
    index : bool
        Whether its row names are written.
    """
    import pandas as pd  # the command line, which escapes what it prints, starts without it

    safe = pd.DataFrame(frame).copy()
    for j, kind in enumerate(safe.dtypes):
        if not pd.api.types.is_numeric_dtype(kind):
            safe.isetitem(j, safe.iloc[:, j].astype(object).map(csv_text))
    safe.columns = safe.columns.map(csv_text)
    safe.index = safe.index.map(csv_text).rename(csv_text(frame.index.name))
    return safe.to_csv(index=index).encode("utf-8", "backslashreplace")


def write_csv(frame: pd.DataFrame, path: Path, index: bool = True) -> Path:
    """Write a table as `csv_bytes` has it, whole or not at all.

    Parameters
    ----------
    frame : DataFrame
    path : path
    index : bool
    """
    return write_atomically(path, csv_bytes(frame, index))
