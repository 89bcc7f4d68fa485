"""Sphinx: Markdown pages, docstrings in numpydoc style, tutorials that `make notebooks` executed."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # benchmarks are not installed

from benchmarks.house import draw_rooms  # noqa: E402

draw_rooms(HERE / "pictures" / "rooms.svg")

project = "pyro_sparse"
author = "The pyro_sparse developers"
copyright = author
version = release = installed("pyro-sparse")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "numpydoc"]
exclude_patterns = ["_build"]
default_role = "code"  # single backticks in docstrings are code
nitpicky = False  # the links of other projects need a network

myst_enable_extensions = ["amsmath", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "show-inheritance": True, "member-order": "bysource"}
autodoc_typehints = "none"  # numpydoc's parameter sections say it, with shapes
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_title = f"pyro_sparse {release}"
