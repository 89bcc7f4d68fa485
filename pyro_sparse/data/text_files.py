"""Delimited text into DataFrames: what lies between fields, which decimal mark, which encoding.

What the caller does not say is looked up in the first lines. Where they allow one reading only it is taken,
with a warning that says so; where they allow several, the file is refused with the arguments that decide.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
from pandas.io.common import get_handle

from .._utils.sources import check_text

__all__ = ["SEPARATORS", "TextFormat", "read_text", "refuse_numbers", "refuse_repeats"]

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".txt": "\t"}
SPACES = r"\s+"  # how pandas is told that any white space lies between fields
_BY_NAME = {"tab": "\t", "\\t": "\t", "space": SPACES, " ": SPACES, "\\s+": SPACES}
_SHOWN = {"\t": "tabs", SPACES: "spaces"}
_AS_ARGUMENT = {"\t": "tab", SPACES: "space"}
_CANDIDATES = (";", "\t", "|", ",")
_SAMPLE = 500  # lines in which separator and decimal mark are looked for
_LONGEST_FIELD = 2**31 - 1  # characters; the limit of the csv module, 131,072, is no error of the file
_LEAST_GRID = 6  # names in order that are taken for wavelengths or the like, not for a row of numbers
_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_EXPONENT = r"(?:[eE][+-]?\d+)?"
# Numbers by what stands in them: one mark; both, of which the last is the decimal one.
_COMMA = re.compile(rf"[+-]?\d*,\d+{_EXPONENT}")
_POINT = re.compile(rf"[+-]?\d*\.\d+{_EXPONENT}")
_POINTS_THEN_COMMA = re.compile(r"[+-]?\d{1,3}(?:\.\d{3})+,\d+")
_COMMAS_THEN_POINT = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+\.\d+")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?:[.,]\d{3})+")  # which may be one number or another


@dataclass(frozen=True)
class TextFormat:
    """How a text is written; None is for what is to be found out.

    Parameters
    ----------
    sep : str, optional
        What lies between fields: one character, "tab" or "space" (any white space).
    decimal, thousands : str, optional
        The marks in numbers.
    encoding : str, optional
        A name that Python knows, such as "cp1252" (Windows, Western Europe).

    Raises
    ------
    ValueError
        None of these can be meant.
    """

    sep: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        if self.sep is not None:
            sep = _BY_NAME.get(self.sep, self.sep)
            if sep != SPACES and (len(sep) != 1 or sep.isalnum() or sep in "\"'.\n"):
                raise ValueError(
                    f"sep: got {self.sep!r}, wanted what lies between fields: one character such as ';', or "
                    "'tab' or 'space'"
                )
            object.__setattr__(self, "sep", sep)
        for name, value in (("decimal", self.decimal), ("thousands", self.thousands)):
            if value is not None and (len(value) != 1 or value.isalnum() or value in '+-"\n'):
                raise ValueError(f"{name}: got {value!r}, wanted the mark in numbers, such as ',' or '.'")
        if self.decimal is not None and self.decimal == self.thousands:
            raise ValueError(f"thousands: is {self.thousands!r}, and so is decimal; give two different marks")
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError as error:
                raise ValueError(
                    f"encoding: got {self.encoding!r}, which is none that Python knows; give for instance "
                    "'utf-8', 'utf-16', 'cp1252' (Windows, Western Europe) or 'latin-1'"
                ) from error

    @property
    def given(self) -> list[str]:
        """What the caller said."""
        return [name for name in ("sep", "decimal", "thousands", "encoding") if getattr(self, name)]


def read_text(
    path: Path,
    default_sep: str,
    text_format: TextFormat = TextFormat(),
    missing: Sequence[str] = (),
    index: str | None = None,
) -> tuple[pd.DataFrame, TextFormat, list[str]]:
    """A table from delimited text, how it was read, and what to say of that.

    Parameters
    ----------
    path : Path
        Maybe compressed.
    default_sep : str
        What lies between fields by the file's name, where neither the caller nor the first lines say another.
    text_format : TextFormat
        What the caller says.
    missing : sequence of str
        What stands for missing cells, beside empty fields and pandas' own words ("NA", "NULL", …).
    index : str, optional
        A column in which nothing is missing, whatever it holds.

    Returns
    -------
    frame : DataFrame
    text_format : TextFormat
        Nothing in it is None but `thousands`.
    notes : list of str
        Of what neither the caller nor the name of the file says.

    Raises
    ------
    ValueError
        Several readings are possible; the first line holds no names; rows do not suit it.
    """
    encoding = text_format.encoding or _marked_encoding(path)
    check_text(path, encoding)
    wanted = replace(text_format, encoding=encoding or "utf-8")
    chosen = _chosen_format(path, default_sep, wanted)
    # pandas renames a repeated column without a word, so the header is read as data first.
    plain = partial(pd.read_csv, path, sep=chosen.sep, encoding=chosen.encoding, skipinitialspace=True)
    header = plain(header=None, nrows=1, dtype=str, keep_default_na=False).iloc[0]
    names = header.str.strip().tolist()
    refuse_numbers(names, path)
    refuse_repeats(names, path)
    row_names = {index, ""}  # in which a code is a name
    codes = {name: list(missing) for name in names if name not in row_names} if missing else None
    read = partial(plain, decimal=chosen.decimal, thousands=chosen.thousands, na_values=codes)
    return _with_row_names(read, names, path), chosen, _notes(path, default_sep, text_format, chosen)


def _with_row_names(read: partial[pd.DataFrame], names: list[str], path: Path) -> pd.DataFrame:
    """The table; what rows have beyond the header are their names, if it is one field in front of each."""
    frame = read(header=0, names=names)

    def widened(**rows: int) -> pd.DataFrame:
        """One column more than the header names, as text; the python engine reads absent fields as NaN."""
        limit = csv.field_size_limit(_LONGEST_FIELD)  # of that engine only
        settings = {key: value for key, value in read.keywords.items() if key in ("sep", "encoding")}
        try:
            return pd.read_csv(
                path, **settings, skipinitialspace=True, header=None, names=range(len(names) + 1), dtype=str,
                keep_default_na=False, engine="python", **rows,
            )  # fmt: skip
        finally:
            csv.field_size_limit(limit)

    # The kind of index does not say whether rows begin with a name: since pandas 3, names that are evenly
    # spaced numbers make a RangeIndex as well. The first row's fields are counted instead.
    if isinstance(frame.index, pd.RangeIndex) and not widened(nrows=2).iloc[1:, -1].notna().any():
        return frame
    # What rows have beyond the header pandas takes for row names, which R's write.table gives no name.
    more = frame.index.nlevels
    if more == 1:
        last = widened().iloc[1:, -1]  # separators at the ends of rows are no fields
        if not last.any():
            return read(header=0, names=names, index_col=False, usecols=range(len(names)))
        if last.notna().all() and names[0] != "":
            return frame
    raise ValueError(
        f"path: {path.name!r} has {len(names)} names in its first line and {more} more field(s) in the "
        "second; wanted as many in every line, or in front of every row one more, its name"
    )


def _marked_encoding(path: Path) -> str | None:
    """UTF-16 where the first bytes say so, as of Windows' "Unicode text"."""
    with get_handle(path, "rb", compression="infer", is_text=False) as opened:
        return "utf-16" if opened.handle.read(2) in _MARKS else None


def _chosen_format(path: Path, default_sep: str, wanted: TextFormat) -> TextFormat:
    """Separator and decimal mark, from the caller or the first lines."""
    encoding = "utf-8-sig" if wanted.encoding == "utf-8" else wanted.encoding  # a mark is no part of a name
    with get_handle(path, "r", compression="infer", encoding=encoding, errors="strict") as opened:
        lines = [line for line in islice(opened.handle, _SAMPLE) if line.strip("\r\n")]
    if not lines:
        raise ValueError(f"path: {path.name!r} has no line with anything in it; give a table")
    if len(lines) == _SAMPLE and len(lines) > 2:
        lines.pop()  # a quoted field may go on
    try:
        sep = _chosen_separator(path, lines, default_sep, wanted.sep)
        decimal, thousands = _chosen_marks(path, lines, sep, wanted)
    except csv.Error as error:
        raise ValueError(
            f"path: a field of {path.name!r}, whose first line begins {lines[0][:20]!r} …, has over "
            f"{csv.field_size_limit():,} characters; is a quote left open?"
        ) from error
    if decimal == sep and wanted.decimal is None:
        decimal = "."
    return replace(wanted, sep=sep, decimal=decimal, thousands=thousands)


def _rows(lines: Iterable[str], sep: str) -> list[list[str]]:
    if sep == SPACES:
        lines = (re.sub(r"[ \t]+", " ", line.strip()) for line in lines)
    return [
        row
        for row in csv.reader(lines, delimiter=" " if sep == SPACES else sep, skipinitialspace=True)
        if row
    ]


def _suits(rows: list[list[str]]) -> bool:
    """Whether all rows have as many fields as the first, at least two, or all of them one more (a name)."""
    n = len(rows[0]) if rows else 0
    lengths = {len(row) for row in rows[1:]}
    return n >= 2 and (not lengths or lengths <= {n} or lengths <= {n + 1})


def _chosen_separator(path: Path, lines: list[str], default: str, given: str | None) -> str:
    heads = {sep: len(next(iter(_rows(lines[:1], sep)), [])) for sep in _CANDIDATES}
    likely = max(heads, key=heads.__getitem__)
    if given is not None:
        divided = given == SPACES or len(next(iter(_rows(lines[:1], given)), [])) > 1
        if divided or heads[likely] < 2:
            return given
        raise ValueError(
            f"sep: {given!r} does not divide the first line of {path.name!r}, {lines[0].strip()[:40]!r}, "
            f"which looks separated by {likely!r}; give sep={_AS_ARGUMENT.get(likely, likely)!r}"
        )
    if heads[likely] < 2:
        by_spaces = _rows(lines, SPACES)
        return SPACES if len(by_spaces) > 1 and _suits(by_spaces) else default
    # names may hold commas; of as many fields by either, semicolons in every row decide
    in_every_row = len(lines) > 1 and all(";" in line for line in lines[1:])
    more = heads[likely] > heads[default] or in_every_row
    if heads[default] > 1 and not (likely == ";" and more):
        return default
    if _suits(_rows(lines, likely)):
        return likely
    argument = _AS_ARGUMENT.get(likely, likely)
    mark = ", decimal=','" if likely == ";" and re.search(r"\d,\d", "".join(lines[1:])) else ""
    raise ValueError(
        f"path: the first line of {path.name!r}, {lines[0].strip()[:40]!r}, looks separated by {likely!r}, "
        f"and not all rows have as many fields; say what lies between fields: sep={argument!r}{mark}"
    )


def _chosen_marks(
    path: Path, lines: list[str], sep: str, wanted: TextFormat
) -> tuple[str | None, str | None]:
    """Decimal mark and thousands mark."""
    decimal, thousands = wanted.decimal, wanted.thousands
    if decimal is not None:
        return decimal, thousands
    if thousands is not None:
        return "," if thousands == "." else ".", thousands
    if sep == ",":  # "1,5" in quotes is for the caller to judge
        return ".", None
    cells = [cell.strip() for row in _rows(lines, sep)[1:] for cell in row]
    commas, points = ([cell for cell in cells if mark.fullmatch(cell)] for mark in (_COMMA, _POINT))
    comma_last = next((cell for cell in cells if _POINTS_THEN_COMMA.fullmatch(cell)), None)
    point_last = next((cell for cell in cells if _COMMAS_THEN_POINT.fullmatch(cell)), None)
    grouped = all(_THOUSANDS.fullmatch(cell) for cell in (points if comma_last else commas))
    if comma_last and not point_last and grouped:
        return ",", "."
    if point_last and not comma_last and grouped:
        return ".", ","
    if not commas and not comma_last:
        return ".", None
    if not points and not comma_last and not point_last and not grouped:
        return ",", None
    if grouped and not points and not comma_last:
        raise ValueError(
            f"path: {path.name!r} holds numbers such as {commas[0]!r}, whose comma may be for decimals or "
            "for thousands; say which: decimal=',' or thousands=','"
        )
    both = [*commas[:1], *points[:1], *filter(None, (comma_last, point_last))]
    shown = ", ".join(map(repr, both[:2]))
    raise ValueError(
        f"path: {path.name!r} holds numbers with commas and with points ({shown}); say which mark is for "
        "decimals: decimal=',' or decimal='.'"
    )


def _notes(path: Path, default_sep: str, given: TextFormat, chosen: TextFormat) -> list[str]:
    """What neither the caller nor the file's name says."""
    said, arguments = [], []
    if given.sep is None and chosen.sep != default_sep:
        said.append(f"{_SHOWN.get(str(chosen.sep), chosen.sep)} between fields")
        arguments.append("sep=")
    if given.decimal is None and chosen.decimal != "." and given.thousands is None:
        said.append(f"{chosen.decimal} for decimals")
        arguments.append("decimal=")
    if given.thousands is None and chosen.thousands is not None:
        said.append(f"{chosen.thousands} for thousands")
        arguments.append("thousands=")
    if not said:
        return []
    listed = " and ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said)
    how = " and ".join([", ".join(arguments[:-1]), arguments[-1]] if len(arguments) > 1 else arguments)
    verb = "say" if len(arguments) > 1 else "says"
    return [f"path: {path.name!r} is read with {listed}; {how} {verb} otherwise"]


def refuse_numbers(names: list[str], path: Path) -> None:
    """Complain of a first line that is one of the table: numbers, and not whole ones (years) or in order.

    Parameters
    ----------
    names : list of str
    path : Path

    Raises
    ------
    ValueError
        It is.
    """
    numbers = pd.to_numeric(pd.Series(names), errors="coerce").to_numpy(dtype=float)
    empty = np.array([name.lower() in ("", "na", "nan") for name in names])
    if names[0] == "" or empty.all() or not (np.isfinite(numbers) | empty).all():
        return
    last = np.flatnonzero(~empty)[-1] + 1  # separators at the end of the line are no names
    numbers, empty = numbers[:last][~empty[:last]], empty[:last]
    steps, whole = np.diff(numbers), (numbers == np.round(numbers)).all()
    if empty.any() or len(set(numbers)) < len(numbers):
        named = False
    else:
        named = whole or (len(numbers) >= _LEAST_GRID and ((steps > 0).all() or (steps < 0).all()))
    if not named:
        shown = ", ".join(map(repr, names[:3]))
        raise ValueError(
            f"path: the first line of {path.name!r} holds numbers ({shown}), wanted names of columns; write "
            "a line with names in front of it"
        )


def refuse_repeats(names: list[str], path: Path) -> None:
    """Complain of columns that have one name, or none.

    Parameters
    ----------
    names : list of str
    path : Path

    Raises
    ------
    ValueError
        There are such columns.
    """
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated and repeated[0] == "":
        raise ValueError(
            f"path: the first line of {path.name!r} has {names.count('')} empty fields, wanted a name for "
            "every column; write them, or if it is a row of the table, a line with names in front of it"
        )
    if repeated:
        raise ValueError(
            f"path: column {repeated[0]!r} occurs {names.count(repeated[0])} times in {path.name!r}"
            f"{f' ({len(repeated)} such names)' if len(repeated) > 1 else ''}; give every column its own name"
        )
