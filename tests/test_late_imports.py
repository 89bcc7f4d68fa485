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


@pytest.fixture(scope="module")
def process():
    """What one process sees that imports the package, fits and goes on; an import takes seconds."""
    code = """
import importlib, json, random, sys
import numpy as np, pyro, torch

python, torch_rng, numpy_rng = random.getstate(), torch.get_rng_state(), np.random.get_state()[1].copy()
threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
import pyro_sparse as ps

seen = {
    "python stream": random.getstate() == python,
    "torch stream": bool((torch.get_rng_state() == torch_rng).all()),
    "numpy stream": bool((np.random.get_state()[1] == numpy_rng).all()),
    "torch settings": (torch.get_num_threads(), torch.get_default_dtype()) == (threads, dtype),
    "no parameters": not pyro.get_param_store().keys(),
}
ps.fit
seen["before a fit"] = list(sys.modules)
x = np.random.default_rng(0).normal(size=(60, 6))
model = ps.models.SparseDecoder(n_factors=2, decoder="linear")
ps.fit(model, x, restarts=2, steps=30, progress=False)
counts = ps.models.SparseDecoder(n_factors=2, decoder="linear", likelihood="poisson")
ps.fit(counts, np.round(np.exp(x)), restarts=1, steps=5, progress=False)  # which climbs by LBFGS
seen["after a fit"] = list(sys.modules)
seen["rivals"] = "pyro_sparse.rivals" in sys.modules
seen["rival"] = [ps.rivals.ImageVAE.__name__, hasattr(ps, "rival")]
import pyro_sparse.plots, pyro_sparse.pages.any_fit

seen["pyplot"] = "matplotlib.pyplot" in sys.modules
seen["refused"] = []
for room in ("pyro_sparse.posterior", "pyro_sparse.plots", "pyro_sparse.cli"):
    for name in [name for name in sys.modules if name.split(".")[0] == "pyro_sparse"]:
        del sys.modules[name]
    try:
        importlib.import_module(room)
    except ImportError as error:
        seen["refused"].append(f"{room}: {error}")
print(json.dumps(seen))
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_importing_leaves_the_global_state_alone(process):
    kept = ("python stream", "torch stream", "numpy stream", "torch settings", "no parameters")
    assert [name for name in kept if not process[name]] == []


def test_fit_leaves_what_it_does_not_need(process):
    """pandas imports pyarrow where it is installed, so that extra says nothing here."""
    assert "pyro_sparse.inference.fit" in process["before a fit"]
    loaded = {name.split(".")[0] for name in process["before a fit"]}
    assert loaded & ({"arviz", "h5py", "sklearn", "typer"} | EXTRAS - {"pyarrow"}) == set()


def test_a_fit_imports_neither_the_compiler_nor_its_algebra(process):
    assert {"torch._dynamo", "sympy"} & set(process["after a fit"]) == set()


def test_rivals_are_found_without_an_import_of_their_own(process):
    assert not process["rivals"]
    assert process["rival"] == ["ImageVAE", False]


def test_matplotlib_is_imported_late(process):
    assert not process["pyplot"]


def test_rooms_may_be_the_first_that_are_imported(process):
    """A package that is still being imported has not all its names; which one that is, the caller decides."""
    assert process["refused"] == []
