"""The gallery shows every picture that the package draws, runs, and cuts off no text."""

from __future__ import annotations

import ast
import runpy
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import pyro_sparse as ps
from tests._pictures import cut_off

SCRIPTS = sorted((Path(__file__).parents[2] / "docs" / "gallery").glob("plot_*.py"))


def plots_of(script):
    """Names of the functions of `ps.plots` that a script calls, one for each call."""
    calls = [node.func for node in ast.walk(ast.parse(script.read_text())) if isinstance(node, ast.Call)]
    return [call.attr for call in calls if ast.unparse(call).startswith("ps.plots.")]


def test_every_plot_is_in_the_gallery():
    shown = [name for script in SCRIPTS for name in plots_of(script)]
    assert set(shown) == set(ps.plots.__all__)
    assert 12 <= len(shown) <= 20


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_draws_its_pictures_and_cuts_off_no_text(script):
    plt.close("all")  # of tests before in this process
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what speaks against a fit is a warning
        runpy.run_path(str(script))
    figures = [plt.figure(number) for number in plt.get_fignums()]
    try:
        assert len(figures) == len(plots_of(script))
        for figure in figures:
            assert not cut_off(figure.axes[0])
    finally:
        plt.close("all")
