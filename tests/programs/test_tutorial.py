"""The programs of the tutorial are short and use public names only."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).parents[2] / "tutorials" / "write_your_model.py"


def functions():
    return {n.name: n for n in ast.parse(TUTORIAL.read_text()).body if isinstance(n, ast.FunctionDef)}


@pytest.mark.parametrize("name", ["factor_analysis", "dosed", "saturating"])
def test_a_program_has_at_most_25_lines(name):
    function = functions()[name]
    assert function.end_lineno - function.lineno + 1 <= 25


def test_no_private_name_is_used():
    text = TUTORIAL.read_text()
    assert re.findall(r"\.\s*_\w+|import _\w+|_pyro\w*", text) == []
    assert all(
        line.split()[1].count(".") <= 1 for line in text.splitlines() if line.startswith("from pyro_sparse")
    )
