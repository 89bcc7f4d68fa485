"""`pyro-sparse explain`: each kind of finding has its text, and each text is found by what a warning says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from typer.testing import CliRunner

import pyro_sparse
from pyro_sparse.cli.commands import app
from pyro_sparse.cli.explain import all_explanations, explained
from pyro_sparse.data.checks import sequences

PACKAGE = Path(pyro_sparse.__file__).parent


@pytest.fixture(scope="module")
def package():
    """First arguments of `Finding(…)`, and all strings, of the package's files, which are parsed once."""
    filed, strings = [], []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding" and node.args:
                filed.append(node.args[0])
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                strings.append(" ".join(node.value.lower().split()))
    return filed, " ".join(strings)


def filed_kinds(filed):
    """Of the first arguments of `Finding(…)`; where that is a name, what it can be."""
    kinds = set(sequences._WORDS)
    for kind in filed:
        assert isinstance(kind, ast.Name | ast.Constant)
        if isinstance(kind, ast.Constant):
            kinds.add(kind.value)
        else:
            assert kind.id in ("kind", "how"), "say above what it can be"
    return kinds


def test_every_kind_that_is_filed_has_a_text_and_no_text_is_of_another(package):
    assert {entry.kind for entry in all_explanations()} == filed_kinds(package[0])


def test_texts_are_whole_and_their_words_are_said_by_the_package(package):
    literals = package[1]
    for entry in all_explanations():
        assert entry.title and entry.means and entry.touches and entry.do, entry.title
        for said in entry.says:
            assert said.lower() in literals, f"{entry.title}: nothing says {said!r}"
            assert entry in explained(f"warning: something {said} and more")


@pytest.mark.parametrize(
    ("asked", "title"),
    [
        (
            "No other restart found factor 2: more restarts would settle it.",
            "No other restart found a factor",
        ),
        ("share more than they explain", "Too few factors"),
        ("graphs", "The chains hold several graphs"),
        ("the chains disagre on factor", "Chains disagree on a factor"),
        (
            "column 'b' is nearly a copy of 'a' (correlation 1.000)",
            "A column is a copy of another one, or follows",
        ),
        ("x1 and x2 (0.30) correlate beyond their factors", "Two columns share something of their own"),
    ],
)
def test_what_is_found(asked, title):
    assert explained(asked)[0].title.startswith(title)


def test_the_command_prints_it_and_says_what_there_is():
    done = CliRunner().invoke(app, ["explain", "no", "other", "restart", "found", "factor 2"])
    assert done.exit_code == 0
    assert "What to do: More restarts (--restarts" in " ".join(done.output.split())
    with pytest.raises(ValueError, match=r"nothing is known of 'xyz'.*restarts, unconfirmed"):
        explained("xyz")


def test_advice_in_the_texts_has_options_that_there_are():
    helped = CliRunner().invoke(app, ["fit", "--help"], env={"COLUMNS": "200"}).output
    helped += CliRunner().invoke(app, ["summary", "--help"], env={"COLUMNS": "200"}).output
    words = {word.strip("(),.;:") for entry in all_explanations() for word in entry.do.split()}
    for option in sorted(word for word in words if word.startswith("--")):
        assert option.split("=")[0] in helped, option
