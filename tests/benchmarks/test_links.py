"""Links within the docs and the results lead to a heading; the build of the docs is slow to say so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").glob("*.md"), *ROOT.glob("*.md")])


def anchors(text: str) -> set[str]:
    """Of headings, as Markdown makes them, and of labels that are written out."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    headings = re.findall(r"^#+ +(.+)$", text, flags=re.M)
    written = re.findall(r"^\(([\w-]+)\)=", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings} | set(written)


def test_anchors_are_those_of_markdown():
    assert anchors("# A title\n\n```\n# a comment\n```\n(label)=\n## `code`, and more\n") == {
        "a-title",
        "code-and-more",
        "label",
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s:]*)#([\w-]+)\)", text)
    for target, anchor in links:
        where = page if not target else (page.parent / target)
        if where.suffix != ".md":
            continue
        assert anchor in anchors(where.read_text(encoding="utf-8")), f"{page.name} links to {target}#{anchor}"
