"""Figures of the house, on trees small enough to count by hand."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks import house

TEXT = '''
"""A file."""
import numpy as np  # for arrays


def f(x: Any, y: int, *rest: Any | None, z=0) -> None:
    """Its docstring.

    In four lines.
    """
    found = x
    for one in rest:
        # a comment of its own
        total = one

    return found
'''


def test_shares_are_those_counted_by_hand():
    tree = ast.parse(TEXT)
    assert house.any_share([tree]) == pytest.approx(2 / 3)  # of x, y and rest
    assert house.vague_share([tree]) == pytest.approx(3 / 7)  # rest, found, one; x, y, z and total are none
    assert house.comment_share([TEXT]) == pytest.approx(2 / 16)
    (function,) = house.functions(tree)
    assert house.body_length(function) == 6
    assert [arg.arg for arg in house.parameters(function)] == ["x", "y", "z", "rest"]


@pytest.mark.parametrize(
    ("arrows", "upward"),
    [
        ({("report", "models"), ("models", "priors"), ("report", "priors")}, 0),
        ({("a", "b"), ("b", "a")}, 1),
        ({("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")}, 1),
        ({("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")}, 2),
    ],
)
def test_arrows_upward_are_those_that_no_order_is_rid_of(arrows, upward):
    assert house.upward(arrows) == upward


def test_rooms_are_folders_and_imports_for_types_are_no_arrows():
    root = house.PACKAGE
    trees = {
        root / "a" / "one.py": ast.parse("from ..b import two\nfrom . import other"),
        root / "a" / "other.py": ast.parse("if TYPE_CHECKING:\n    from ..c.three import T"),
        root / "b" / "two.py": ast.parse("def f():\n    from ..c.three import g\n    return g"),
        root / "c" / "three.py": ast.parse("import numpy"),
    }
    rooms = {(Path(a).name, Path(b).name) for a, b in house.room_arrows(trees)}
    assert rooms == {("a", "b"), ("b", "c")}


def test_names_of_packages_and_of_modules_are_counted_apart():
    root = house.PACKAGE
    trees = {
        root / "__init__.py": ast.parse("__all__ = ['a', 'b']"),
        root / "data" / "__init__.py": ast.parse("__all__ = ['c']"),
        root / "data" / "read.py": ast.parse("__all__ = ['d', 'e', 'f']"),
    }
    assert house.public_names(trees) == {"public_top": 2, "public_all": 3, "public_modules": 3}


def test_a_walk_ends_at_the_nearest_call():
    stacks = {"fit A.step": ["fit", "a", "A.step"], "fit B.step": ["fit", "B.step"], "edges B.step": ["x"]}
    assert house._nearest(stacks, r"^fit .*\.step$") == 2
    with pytest.raises(RuntimeError, match="no call of"):
        house._nearest(stacks, "^fit .*sweep$")
