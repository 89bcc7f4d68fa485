"""Edge posteriors know which fit they were made of, for fits of tables, sequences and tasks."""

from __future__ import annotations

import numpy as np
import pytest

import pyro_sparse as ps
from pyro_sparse.posterior import arviz as _arviz
from pyro_sparse.posterior.same_fit import check_same_fit, fit_mark
from tests._fake_fit import fake_fit
from tests._tasks import quick_fit, tasks_on_latents

pytestmark = pytest.mark.usefixtures("hurried_module")


def table(seed):
    x = np.random.default_rng(0).normal(size=(60, 5))
    model = ps.models.SparseDecoder(5, 2, hidden=4, encoder_hidden=4)
    return ps.fit(model, x, restarts=2, steps=5, seed=seed, progress=False), "score"


def sequences(seed):
    x = np.random.default_rng(0).normal(size=(20, 6, 4))
    model = ps.models.LatentTransition(4, 2, hidden=4, units=4, gated_units=4)
    settings = {"steps": 5, "edge_steps": 2, "polish_steps": 2, "restarts": 1, "progress": False}
    return ps.fit(model, x, seed=seed, **settings), "gate_probability"


def tasks(seed):
    X, Y, *_ = tasks_on_latents()
    return quick_fit(X, Y, seed=seed), "score"


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    "make", [table, sequences, pytest.param(tasks, marks=pytest.mark.slow(hurried=True))]
)
def test_the_posterior_of_another_fit_is_refused(make, tmp_path):
    (fit, method), (other, _) = make(0), make(1)
    before = fit_mark(fit)
    idata = fit.edge_posterior(method, num_draws=5)
    fit.transform()
    assert fit_mark(fit) == before == idata.attrs["fit_mark"]
    check_same_fit(fit, idata)
    with pytest.raises(ValueError, match="idata: is the edge posterior of another fit .* give fit.edge_post"):
        check_same_fit(other, idata)
    fit.save(tmp_path / "fit.pt")
    _arviz.to_netcdf(idata, tmp_path / "edges.nc")
    check_same_fit(ps.load(tmp_path / "fit.pt"), _arviz.from_netcdf(tmp_path / "edges.nc"))


def test_a_posterior_without_a_mark_is_taken():
    fit = fake_fit()
    idata = fit.edge_posterior(num_draws=5)
    check_same_fit(fit, idata)
    fit.weights = fit.weights + 1
    with pytest.raises(ValueError, match="another fit"):
        check_same_fit(fit, idata)
    del idata.attrs["fit_mark"]
    check_same_fit(fit, idata)
