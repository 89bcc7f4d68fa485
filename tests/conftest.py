"""One thread per process: the models are tiny, and several test processes share the cores."""

from __future__ import annotations

import functools
import gc
import importlib
import itertools
import warnings

import numpy as np
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.data.checks import clusters, groups
from pyro_sparse.inference.edges.mcmc import initialise
from pyro_sparse.inference.multitask import job as task_job
from pyro_sparse.inference.multitask.task_axes import task_axes
from pyro_sparse.inference.observed import job as observed_job
from pyro_sparse.inference.rotation import alternative_axes, axes
from pyro_sparse.inference.rotation.axes import oblique, obliques, varimax
from pyro_sparse.inference.rotation.jacobian_axes import jacobian_axes
from pyro_sparse.inference.table import (
    by_rows,
    dependency_run,
    directions,
    function_axes,
    marginal_likelihood,
    result,
    start,
    unfold,
)
from pyro_sparse.inference.table import refine as refinement
from pyro_sparse.inference.table.refine import refine
from pyro_sparse.inference.training import loop
from pyro_sparse.inference.training.elbo import rowwise_elbo
from pyro_sparse.inference.transition import transition_axes, transition_run

torch.set_num_threads(1)


def pytest_configure(config):
    """Before several processes run all tests: machine code is made once and read from disk by each."""
    several = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if several and config.args_source is config.ArgsSource.TESTPATHS and not config.option.collectonly:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(40, 4))
        gaps = np.where(rng.random(x.shape) < 0.1, np.nan, x)
        few = {"restarts": 2, "steps": 2, "seed": 0, "progress": False}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for decoder, table in itertools.product(("mlp", "linear"), (x, gaps)):
                fit = ps.fit(ps.models.SparseDecoder(n_factors=2, decoder=decoder), table, **few)
            fit.edge_posterior(edge="practical", sweeps=40, warm_up=20, progress=False)
            tasks = np.repeat(x.reshape(4, 10, 4), 2, axis=1)
            for inner in ("ssl", "lasso"):
                ps.fit(ps.models.MultiTaskRegression(4, 2), tasks, tasks[..., 0], inner=inner, **few)


def pytest_collection_finish():
    """What has been imported stays: it need not be looked through for garbage again and again."""
    gc.collect()
    gc.freeze()


def _few_steps(model, batch, steps=60, **options):
    return refine(model, batch, steps=min(steps, 5), **options)


def _few_draws(model, batch, num_draws=1, **options):
    """More than the sixteen of `log_likelihood` are what a test asks for."""
    return rowwise_elbo(model, batch, num_draws if num_draws > 16 else min(num_draws, 2), **options)


_rough_oblique = functools.partial(oblique, steps=10, n_starts=2)
_rough_axes = functools.partial(jacobian_axes, steps=10, n_starts=4)
_HURRIED = {
    (axes, "oblique"): _rough_oblique,
    (axes, "varimax"): functools.partial(varimax, max_iter=50),
    (alternative_axes, "obliques"): functools.partial(obliques, steps=10),
    (alternative_axes, "_STARTS"): 2,
    (function_axes, "jacobian_axes"): _rough_axes,
    (transition_axes, "jacobian_axes"): _rough_axes,
    (task_job, "task_axes"): functools.partial(task_axes, steps=10, n_starts=4),
    (groups, "_MOST_CLUSTERS"): 2,
    (groups, "_STARTS"): 1,
    (clusters, "_MOST_CLUSTERS"): 2,
    (clusters, "_STARTS"): 1,
    (marginal_likelihood, "_ROUNDS"): 1,
    (marginal_likelihood, "_DRAWS"): (8, 16),
    (directions, "find_directions"): functools.partial(directions.find_directions, steps=5),
    (start, "factor_analysis"): functools.partial(start.factor_analysis, max_iter=20),
    (unfold, "_STEPS"): 5,
    (unfold, "_LESSONS"): 5,
    (observed_job, "measurement_error"): lambda sequences, values: [],
    (loop, "rowwise_elbo"): _few_draws,
    (by_rows, "rowwise_elbo"): _few_draws,
    (dependency_run, "rowwise_elbo"): _few_draws,
    (result, "rowwise_elbo"): _few_draws,
    (transition_run, "rowwise_elbo"): _few_draws,
    (refinement, "refine"): _few_steps,
    (result, "refine"): _few_steps,
    (initialise, "refine"): _few_steps,
}
_PATIENT = {place: getattr(*place) for place in _HURRIED}


def _hurry(monkeypatch):
    for (module, name), value in _HURRIED.items():
        monkeypatch.setattr(module, name, value)


def _is_patient(request):
    marker = request.node.get_closest_marker("slow")
    return marker is not None and not marker.kwargs.get("hurried", False)


@pytest.fixture
def hurried(request, monkeypatch):
    """Rough axes, bounds, posteriors of rows and clusters: good ones are most of a tiny fit's time.

    Nor are models of measurement error fitted.

    Not in slow tests, but for those that are marked ``slow(hurried=True)``.
    """
    if not _is_patient(request):
        _hurry(monkeypatch)


@pytest.fixture(scope="module")
def hurried_module():
    """The same where the tests of a module share fits."""
    with pytest.MonkeyPatch.context() as patch:
        _hurry(patch)
        yield


@pytest.fixture
def patient(monkeypatch):
    """What a user gets, for a single test of a module that is in a hurry."""
    for (module, name), value in _PATIENT.items():
        monkeypatch.setattr(module, name, value)


@pytest.fixture(autouse=True)
def unhurried(request, monkeypatch):
    """Slow tests are to see what a user sees, whatever the other tests of their module are content with.

    But for those that are marked ``slow(hurried=True)``.
    """
    if _is_patient(request) and "hurried_module" in request.fixturenames:
        for (module, name), value in _PATIENT.items():
            monkeypatch.setattr(module, name, value)


@pytest.fixture
def no_pictures(monkeypatch):
    """For pages of which only the words matter: drawing is what takes time."""
    module = importlib.import_module("pyro_sparse.pages.of_table")  # ps.report is a function
    monkeypatch.setattr(module, "_pictures", lambda *args: {})
