"""Sphinx: Markdown pages, docstrings in numpydoc style, tutorials that `make notebooks` executed, a gallery.

The gallery is executed when the site is built; ``sphinx-build -D plot_gallery=0`` leaves its pictures out.
"""

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

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery"]  # the gallery's pages are made from its files, in auto_gallery
default_role = "code"  # single backticks in docstrings are code
nitpicky = False  # the links of other projects need a network

myst_enable_extensions = ["amsmath", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "show-inheritance": True, "member-order": "bysource"}
autodoc_typehints = "none"  # numpydoc's parameter sections say it, with shapes
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "within_subsection_order": "FileNameSortKey",
    "capture_repr": (),  # pictures, not the names of axes
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
}

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_title = f"pyro_sparse {release}"
