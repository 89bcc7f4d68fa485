"""Options that several commands have, with what they say in ``--help``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

__all__ = [
    "BAD_INPUT",
    "EXIT_CODES",
    "INTERRUPTED",
    "NOTHING_FOUND",
    "Anchors",
    "Decimal",
    "Encoding",
    "Explore",
    "Forbidden",
    "Force",
    "Layer",
    "LearnScales",
    "MaxRows",
    "Missing",
    "ModelText",
    "Required",
    "Resume",
    "Sep",
    "Sheet",
    "Thousands",
    "reading_of",
]

# 2 as Typer's own where an option is wrong, 130 as a shell's for Ctrl-C (128 + SIGINT).
NOTHING_FOUND, BAD_INPUT, INTERRUPTED = 3, 2, 130
EXIT_CODES = (
    "Exit codes: 0 done; 2 bad input, and the message says how to fix it; 3 done and saved, but not one "
    "edge was kept; 130 interrupted, and all files are written for the fit so far."
)
_READING, _GRAPH = "How the table is read", "What is known of the edges"


def _of_reading(metavar: str, text: str) -> Any:
    """An option that says how the table is read."""
    return typer.Option(metavar=metavar, help=text, rich_help_panel=_READING, show_default=False)


def _of_edges(text: str) -> Any:
    """An option that says what is known of the edges."""
    return typer.Option(metavar="FACTOR=COLUMNS", help=text, rich_help_panel=_GRAPH, show_default=False)


Sep = Annotated[
    str | None,
    _of_reading(
        "MARK",
        'What lies between fields of a text: one character such as ";", tab, or space. By default as '
        "the first lines tell.",
    ),
]
Decimal = Annotated[
    str | None,
    _of_reading(
        "MARK",
        'Mark for decimals, such as ",". By default as the first lines tell.',
    ),
]
Thousands = Annotated[
    str | None,
    _of_reading(
        "MARK",
        'Mark for thousands, such as "." or ",".',
    ),
]
Encoding = Annotated[
    str | None,
    _of_reading(
        "NAME",
        "How letters are written: utf-8 (the default), utf-16, cp1252 (Windows), latin-1.",
    ),
]
Missing = Annotated[
    list[str] | None,
    _of_reading(
        "CODES",
        "Code or word that stands for a missing cell, beside an empty one: "
        "--missing 999 --missing -9, or --missing=999,-9,refused.",
    ),
]
Sheet = Annotated[
    str | None,
    _of_reading(
        "SHEET",
        "Sheet of an .xlsx workbook, by name or number; by default the first.",
    ),
]
Layer = Annotated[
    str | None,
    _of_reading("NAME", "Layer of an .h5ad file that holds the cells, such as counts; by default its X."),
]
Anchors = Annotated[
    list[str] | None,
    _of_edges(
        'Columns that depend on one factor only: --anchors "factor 1=x1,x2". Factors count from 1, '
        "as in the tables.",
    ),
]
Required = Annotated[
    list[str] | None,
    _of_edges(
        'Edges that have to be there: --required "factor 1=x3".',
    ),
]
Forbidden = Annotated[
    list[str] | None,
    _of_edges(
        'Edges that cannot be there: --forbidden "factor 2=x1,x2".',
    ),
]
ModelText = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="TEXT",
        help='Which columns measure which factor, as lavaan writes it: --model "visual =~ x1 + x2 + x3; '
        'speed =~ x7 + x8 + x9", or a file with such lines. These edges are there and no others; --explore '
        "asks for the others, too. It says which columns and how many factors; effects are linear.",
        rich_help_panel=_GRAPH,
        show_default=False,
    ),
]
Explore = Annotated[
    bool,
    typer.Option(
        "--explore",
        help="With --model: it is what is expected, and all else is asked.",
        rich_help_panel=_GRAPH,
    ),
]
LearnScales = Annotated[
    bool,
    typer.Option(
        "--learn-scales",
        help="Let the chains learn how large weights of edges are, and how small those of none; where the "
        "verdict says that the weights are unlike their prior.",
    ),
]
MaxRows = Annotated[
    int | None,
    typer.Option(
        min=10, metavar="ROWS", help="Rows that the chains use at most; by default as many as time allows."
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Go on with a fit to --out that was interrupted, where it stopped: the same command with "
        "this added.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the results of an earlier fit in --out.")]


def reading_of(
    sep: str | None,
    decimal: str | None,
    thousands: str | None,
    encoding: str | None,
    missing: list[str] | None,
    sheet: str | None,
    layer: str | None = None,
) -> dict[str, Any]:
    """Options of reading as arguments of `data.files.read_table`, those that were given.

    Parameters
    ----------
    sep, decimal, thousands, encoding, sheet, layer : str or None
    missing : list of str or None
        Each may hold several codes, separated by commas.
    """
    codes = [code.strip() for line in missing or [] for code in line.split(",")]
    given = {
        "sep": sep, "decimal": decimal, "thousands": thousands, "encoding": encoding, "sheet": sheet,
        "layer": layer, "missing": [code for code in codes if code],
    }  # fmt: skip
    return {name: value for name, value in given.items() if value}
