"""Every page of the docs runs as written: its blocks in order, in one namespace and an empty folder.

The tag of a fence says what a block is. ``python`` runs. ``py`` is excused: it needs another package, a
cluster or a file that is not here; `EXCUSED` counts these, so that excuses do not grow unseen. Other tags are
other languages. `tests/test_house.py` runs the README and the contributors' page, `make notebooks` the
tutorials.
"""

from __future__ import annotations

import re
import sys
import types
import warnings
from pathlib import Path
from typing import NamedTuple

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BUILT = ("_build", "api", "auto_gallery", "gallery", "tutorials")
OTHER_LANGUAGES = {"bash", "console", "r", "text"}
# Pages without a fit, or with one that takes no time. The others are slow tests.
QUICK = {"coming_from/sslasso.md", "dependency.md"}
# Blocks that do not run, by page; each is code of another package, or needs what a test cannot have.
EXCUSED = {
    "coming_from/mofa.md": 1,
    "coming_from/pymc.md": 1,
    "coming_from/scvi_tools.md": 1,
    "coming_from/tigramite.md": 1,
    "processes.md": 3,  # dask, ray, torchrun
}
LEAST_RUN = 57  # blocks of all pages together


class Block(NamedTuple):
    """What stands between two fences."""

    language: str
    line: int  # of the opening fence, from 1
    code: str


def blocks(page: Path) -> list[Block]:
    """Fenced blocks of a page, but for MyST's directives, whose tags are in braces.

    Raises
    ------
    ValueError
        A fence is not closed.
    """
    found: list[Block] = []
    tag: str | None = None
    start, lines = 0, page.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        fence = re.match(r"\s*```(.*)", line)
        if fence and tag is None:
            tag, start = fence[1].strip(), number
        elif fence and tag is not None:
            found.append(Block(tag, start, "\n".join(lines[start : number - 1])))
            tag = None
    if tag is not None:
        raise ValueError(f"{page.name}:{start}: this fence is not closed")
    return [block for block in found if not block.language.startswith("{")]


def run(page: Path, name: str) -> types.ModuleType:
    """Run the ``python`` blocks of a page in a module of that name, which `sys.modules` must hold.

    Lines keep their numbers, so that an error is reported at its place on the page.
    """
    module = sys.modules[name]
    for block in blocks(page):
        if block.language == "python":
            exec(compile("\n" * block.line + block.code, str(page), "exec"), module.__dict__)
    return module


PAGES = sorted(path for path in DOCS.rglob("*.md") if path.relative_to(DOCS).parts[0] not in BUILT)
RUN = [page for page in PAGES if any(block.language == "python" for block in blocks(page))]


def as_parameter(page: Path) -> object:
    name = page.relative_to(DOCS).as_posix()
    return pytest.param(page, id=name, marks=[] if name in QUICK else [pytest.mark.slow])


@pytest.fixture
def module(monkeypatch, tmp_path):
    """An empty module that classes of a page can belong to, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    page = types.ModuleType("page_of_the_docs")
    monkeypatch.setitem(sys.modules, page.__name__, page)
    yield page
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.mark.parametrize("page", [as_parameter(page) for page in RUN])
def test_a_page_runs_as_written(page, module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what speaks against a fit is a warning; readers see it, and go on
        run(page, module.__name__)


def test_blocks_are_python_unless_they_are_excused():
    languages = {(page.name, block.language) for page in PAGES for block in blocks(page)}
    unknown = {pair for pair in languages if pair[1] not in {"python", "py", *OTHER_LANGUAGES}}
    assert not unknown, "a fence without a known tag would not run, and nobody would see it"
    excused = {
        page.relative_to(DOCS).as_posix(): sum(block.language == "py" for block in blocks(page))
        for page in PAGES
    }
    assert {page: count for page, count in excused.items() if count} == EXCUSED
    assert sum(block.language == "python" for page in PAGES for block in blocks(page)) >= LEAST_RUN
    assert {page.relative_to(DOCS).as_posix() for page in RUN} >= QUICK


def test_a_page_that_fails_is_reported_at_its_line(tmp_path, module):
    page = tmp_path / "page.md"
    page.write_text(
        "# Title\n\n```python\na = 1\n```\n\n```py\nnot run\n```\n\n```python\nb = a + 1\n1 / 0\n```\n"
    )
    with pytest.raises(ZeroDivisionError) as failure:
        run(page, module.__name__)
    assert failure.traceback[-1].lineno + 1 == 13
    assert module.b == 2
    page.write_text("```python\na = 1\n")
    with pytest.raises(ValueError, match="page.md:1: this fence is not closed"):
        blocks(page)
