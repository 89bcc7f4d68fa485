"""What an import leaves for later: the package and its command line start without the libraries of a fit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# of the extras, by the names they are imported under
EXTRAS = {
    "anndata",
    "celer",
    "dask",
    "distributed",
    "jinja2",
    "matplotlib",
    "pooch",
    "pyarrow",
    "ray",
    "skglm",
}


def loaded_after(statements: str) -> set[str]:
    """Libraries that a fresh process has imported after some statements."""
    code = f"{statements}\nimport json, sys\nprint(json.dumps([name.split('.')[0] for name in sys.modules]))"
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


# torch alone takes a second and a half, and none of these is needed to say --help
HEAVY = {"arviz", "h5py", "numba", "numpy", "pandas", "pyro", "scipy", "sklearn", "torch", "tqdm", "xarray"}


@pytest.mark.parametrize("module", ["pyro_sparse", "pyro_sparse.cli"])
def test_nothing_heavy_is_imported_before_it_is_used(module):
    loaded = loaded_after(f"import {module}")
    assert "pyro_sparse" in loaded
    assert loaded & (HEAVY | EXTRAS) == set()


def test_fit_leaves_what_it_does_not_need():
    """pandas imports pyarrow where it is installed, so that extra says nothing here."""
    loaded = loaded_after("import pyro_sparse as ps\nps.fit")
    assert {"torch", "pyro"} <= loaded
    assert loaded & ({"arviz", "h5py", "sklearn", "typer"} | EXTRAS - {"pyarrow"}) == set()
