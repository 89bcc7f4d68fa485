"""Names from a table that a spreadsheet would compute, a terminal obey or a browser run."""

from __future__ import annotations

import csv
import io

import numpy as np
import pandas as pd
import pytest

from pyro_sparse._utils.display import EdgeTable
from pyro_sparse._utils.escaping import csv_bytes, csv_text, printable, write_csv
from pyro_sparse.cli.printing import print_edges, say
from pyro_sparse.pages import page as _page

EVIL = [
    "=1+1",
    "+1",
    "-2",
    "@SUM(A1)",
    "\t=1",
    " =1",
    "\r=1",
    "＝1",
    "\x1b[2J",
    "a\x00b",
    "a\nb",
    "\u202eabc",
    "\x9b1m",
]
FINE = ["age", "x = 1", "1-2", "a@b.org", "élan", "日本", "α'β", "3.5", "", "'quoted"]


@pytest.mark.parametrize("name", EVIL)
def test_no_cell_is_a_formula_or_holds_control_characters(name):
    text = csv_text(name)
    assert text == printable(text, one_line=True)
    assert not text.lstrip().startswith(("=", "+", "-", "@", "＝"))
    assert all(character.isprintable() for character in text)


@pytest.mark.parametrize("name", [*FINE, 1.5, -3, None, np.float64(-1), True])
def test_other_cells_stay_as_they_are(name):
    assert csv_text(name) is name or csv_text(name) == name


def test_csv_defuses_names_of_rows_and_columns_and_cells_but_no_numbers(tmp_path):
    frame = pd.DataFrame({"=a": [-1.5, np.nan], "@b": ["-c", "d"], "ok": [True, False]}, index=["+r", "s"])
    frame.index.name = "=i"
    rows = list(csv.reader(io.StringIO(csv_bytes(frame).decode())))
    assert rows == [["'=i", "'=a", "'@b", "ok"], ["'+r", "-1.5", "'-c", "True"], ["s", "", "d", "False"]]
    assert frame.columns[0] == "=a" and frame["@b"].iloc[0] == "-c"  # the caller's own is untouched
    plain = pd.DataFrame(np.random.default_rng(0).normal(size=(5, 3)), columns=list("abc"))
    assert write_csv(plain, tmp_path / "a.csv", index=False).read_text() == plain.to_csv(index=False)
    categories = pd.DataFrame({"a": pd.Categorical(["=x", "y"])})
    assert csv_bytes(categories, index=False) == b"a\n'=x\ny\n"


def edge_table(names):
    n = len(names)
    frame = {"feature": names, "factor": "[red]f[/red]", "probability": 1.0, "weight": 0.5, "effect": 0.2}
    table = EdgeTable(
        {**frame, "gap": 0.0, "unresolved": False, "selected": True, "verdict": "present"}, range(n)
    )
    table.index.name = "edge"
    table.attrs = {"is_score": False, "fdr": 0.1}
    return table


def test_terminals_get_no_commands_and_no_markup(capsys):
    names = ["\x1b]0;title\x07", "[bold]x[/bold]", "a\x9b2Jb", "two\nlines", "\u202egnp.exe"]
    print_edges(edge_table(names), verdict=["it is \x1b[31mred"])
    say("column '\x1b[5m'")
    print(repr(edge_table(names).set_index(pd.Index(names, name="edge"))))
    said = capsys.readouterr()
    shown = said.out + said.err
    assert not [c for c in shown if c != "\n" and not c.isprintable()]
    assert "[bold]x[/bold]" in said.out and "[red]f[/red]" in said.out and r"two\nlines" in said.out
    assert r"it is \x1b[31mred" in said.out and r"column '\x1b[5m'" in said.err


def test_pages_escape_names(tmp_path, monkeypatch):
    jinja2 = pytest.importorskip("jinja2")
    source = {"t": '<p title="{{ name }}">{{ name }}</p>{{ number }}{{ ready | safe }}'}
    source |= {"page.css": "", "page.js": ""}
    monkeypatch.setattr(jinja2, "PackageLoader", lambda package: jinja2.DictLoader(source))
    facts = {"name": '<script>\x1b"é\u202e\ud800', "number": 1.5, "ready": "<b>ok</b>"}
    page = _page.write_page(tmp_path / "t.html", "t", facts).read_text()
    safe = r"&lt;script&gt;\x1b&#34;é\u202e\ud800"
    assert page == f'<p title="{safe}">{safe}</p>1.5<b>ok</b>'
