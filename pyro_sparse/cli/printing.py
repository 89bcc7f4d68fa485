"""What the command line prints: text for people, tables of edges, one JSON object for machines.

Standard output carries the result; everything else goes to standard error. Names from a table are no markup
and no commands to the terminal: control characters are written out.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .._utils.escaping import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd

    from .explain import Explanation

__all__ = ["jsonable", "print_doctor", "print_edges", "print_explanations", "print_json", "records", "say"]

_FEATURE = 8  # letters of a name at least, however narrow the terminal is


def say(text: str) -> None:
    """A line on standard error."""
    Console(stderr=True, soft_wrap=True).print(printable(text), markup=False, highlight=False)


def print_json(value: dict[str, Any]) -> None:
    """One object on one line of standard output."""
    print(json.dumps(jsonable(value), allow_nan=False))


def jsonable(value: object) -> Any:
    """Plain Python, NaN and infinity as null."""
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if hasattr(value, "tolist"):
        return jsonable(value.tolist())
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame as JSON objects."""
    return jsonable(frame.to_dict(orient="records"))


def print_edges(edges: pd.DataFrame, per_factor: int | None = None, verdict: Sequence[str] = ()) -> None:
    """Edges by factor, the strongest first, of each factor at most `per_factor`; below them the verdict.

    Parameters
    ----------
    edges : DataFrame
        From `pyro_sparse.summary`.
    per_factor : int, optional
    verdict : sequence of str
        Sentences on all edges together.
    """
    ordered = edges.sort_values(["factor", "effect"], ascending=[True, False], kind="stable", key=_natural)
    columns = _columns(edges)
    table = Table(
        title=f"{len(edges)} edges at a false-discovery rate of {edges.attrs['fdr']:g}",
        caption=_caption(edges, columns),
        caption_justify="left",
    )
    table.add_column("factor", no_wrap=True)
    table.add_column("feature", overflow="fold", min_width=_FEATURE)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for factor, group in ordered.groupby("factor", sort=False):
        shown = group.head(per_factor or len(group))
        for first, row in zip([factor, *[""] * len(shown)], shown.to_dict("records"), strict=False):
            mark = " ?" if row["unresolved"] else ""
            factor_name, feature = (
                Text(printable(str(name), one_line=True)) for name in (first, row["feature"])
            )
            figures = [figure(row) for figure in columns.values()]
            table.add_row(factor_name, feature.append(mark), *figures)
        if len(group) > len(shown):
            table.add_row("", f"and {len(group) - len(shown)} weaker", style="dim")
        table.add_section()
    console = Console()
    console.print(table)
    for sentence in verdict:
        console.print(printable(sentence), markup=False, highlight=False)


def _columns(edges: pd.DataFrame) -> dict[str, Callable[[Mapping[str, Any]], str]]:
    """What is printed of an edge, by the heads of the columns; shares of variance where draws say no more."""
    from ..posterior.salience import salience_column  # which takes a second

    about, number = edges.attrs, "score" if edges.attrs["is_score"] else "probability"
    columns: dict[str, Callable[[Mapping[str, Any]], str]] = {number: lambda row: _figure(row[number])}
    if "salient" not in about:
        columns |= {"weight": _signed, "variance": lambda row: _figure(row["effect"])}
    else:
        large = salience_column(about["salient"])
        bounds = [name for name in edges if str(name).endswith(("_lb", "_ub"))]
        if large in edges:
            columns[f"≥ {about['salient']:g}"] = lambda row: _figure(row[large])
        columns["loading"] = _signed
        columns[f"{100 * about['interval_prob']:g} %"] = lambda row: "…".join(_figure(row[b]) for b in bounds)
    return {**columns, "gap": lambda row: _figure(row["gap"])}


def _caption(edges: pd.DataFrame, columns: Mapping[str, object]) -> str:
    """What the columns and marks of a table of edges mean."""
    said = {
        "variance": "share of the feature's variance due to the factor",
        f"≥ {edges.attrs.get('salient', 0):g}": "probability that the loading is so large, its sign aside",
        "loading": "standardised",
        "gap": "between runs",
        "±": "neither rises nor falls throughout" if any(map(_turns, edges.to_dict("records"))) else "",
        "?": "unresolved, the runs disagree by more than .25" if edges["unresolved"].any() else "",
    }
    return "; ".join(
        f"{name}: {text}" for name, text in said.items() if text and name in {*columns, "±", "?"}
    )


def _signed(row: Mapping[str, Any]) -> str:
    """A weight, or its size behind ± where an edge that is there has no one direction."""
    weight = float(row["weight"])
    if _turns(row):
        return f"± {float(row['effect']) ** 0.5:.2f}"
    return _figure(weight)


def _figure(value: float) -> str:
    """Two places; nothing where there is no number."""
    return "" if value != value else f"{round(value, 2) + 0.0:.2f}"  # no "-0.00"


def _turns(row: Mapping[str, Any]) -> bool:
    """Whether an edge that is there is a curve that goes both ways."""
    from ..posterior.salience import goes_both_ways

    bounds = [float(value) for name, value in row.items() if str(name).startswith("hdi")]
    return len(bounds) == 2 and goes_both_ways(str(row.get("verdict")), *bounds)


def _natural(column: pd.Series) -> pd.Series:
    """Sort key under which "factor 10" follows "factor 9"."""
    if column.name != "factor":
        return column
    return column.map(lambda name: re.sub(r"\d+", lambda digits: digits[0].zfill(6), str(name)))


def print_explanations(found: Sequence[Explanation]) -> None:
    """What warnings mean, for people.

    Parameters
    ----------
    found : sequence of Explanation
    """
    console = Console()
    for number, entry in enumerate(found):
        if number:
            console.print()
        console.print(Text(entry.title, style="bold"))
        for head, text in (
            ("It means", entry.means),
            ("It touches", entry.touches),
            ("What to do", entry.do),
        ):
            console.print(Text(f"{head}: ", style="bold").append(text, style="not bold"), highlight=False)


def print_doctor(facts: dict[str, Any]) -> None:
    """What `pyro-sparse doctor` found, for people."""
    table = Table(show_header=False, box=None)
    table.add_row("pyro_sparse", facts["pyro_sparse"] or "not installed")
    table.add_row("python", f"{facts['python']} on {facts['platform']}")
    for name, version in facts["versions"].items():
        table.add_row(name, version or "[red]absent[/red]")
    table.add_row("threads", f"{facts['threads']} of {facts['cores']} cores (OMP_NUM_THREADS sets them)")
    table.add_row("devices", ", ".join(facts["devices"]))
    for name, missing in facts["missing"].items():
        fix = f"absent: {', '.join(missing)}; pip install 'pyro-sparse\\[{name}]'"
        table.add_row(f"extra {name}", fix if missing else "ready")
    Console(soft_wrap=True).print(table)
