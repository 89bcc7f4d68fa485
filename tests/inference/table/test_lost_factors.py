"""Fits that keep fewer factors than eigenvalues are sure of: loadings set by hand, of known tables."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

import pyro_sparse as ps
from pyro_sparse.inference.table import job
from pyro_sparse.inference.table.lost_factors import lost_factor_findings

# rough axes and posteriors of rows: none of these tests is about how good they are
pytestmark = pytest.mark.usefixtures("hurried_module")

N, PER_FACTOR = 400, 4
LOADINGS = np.kron(np.eye(3), np.full((PER_FACTOR, 1), 2.0))  # of logits


def answers(rng):
    f = rng.normal(size=(N, 3)) @ LOADINGS.T
    return (rng.random(f.shape) < 1 / (1 + np.exp(-f))).astype(float)


def fitted(x, n_factors=4, **options):
    options = {"likelihood": "bernoulli", "decoder": "linear", **options}
    model = ps.models.SparseDecoder(n_factors=n_factors, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ps.fit(model, x, restarts=2, steps=40, seed=1000, progress=False)


def with_loadings(fit, loadings):
    """The same fit, whose best restart has these."""
    weights = np.zeros_like(np.asarray(fit.weights))
    weights[:, :, : loadings.shape[1]] = loadings
    return replace(fit, weights=weights)


@pytest.fixture(scope="module")
def fit():
    return fitted(answers(np.random.default_rng(1000)))


def test_a_fit_with_all_factors_is_not_told(fit):
    assert lost_factor_findings(with_loadings(fit, LOADINGS)) == []


def test_a_lost_factor_is_named_by_its_columns_and_the_others_stand(fit):
    lacks = with_loadings(fit, LOADINGS[:, :2])
    (note,) = lost_factor_findings(lacks)
    assert note.kind == "number" and not note.is_doubt and not note.factors
    assert note.columns == tuple(fit.feature_names[2 * PER_FACTOR :]) and note.size > 0.99
    assert "the fit keeps 2, and parallel analysis finds 3" in note.message
    assert note.message.endswith("x9, x10, x11, x12 share one that the fit lacks") and "anchor" in note.remedy
    table = lacks.number_of_factors()
    assert note.size == pytest.approx(table["above"][1:4].min()) and table["above"][4] < 0.1


def test_a_factor_in_the_place_of_two_is_doubted(fit):
    merged = np.stack([LOADINGS[:, 0], LOADINGS[:, 1] + LOADINGS[:, 2]], 1)
    (doubt,) = lost_factor_findings(with_loadings(fit, merged))
    assert doubt.is_doubt and doubt.factors == (fit.factor_names[1],)
    assert f"; {fit.factor_names[1]} is none of those 3" in doubt.message
    assert "and 2 more have 2 that the fit lacks" in doubt.message and len(doubt.columns) == 6


def test_where_all_offered_are_in_use_more_are_to_be_offered(fit):
    (note,) = lost_factor_findings(with_loadings(fitted(fit.table.x, 2), LOADINGS[:, :2]))
    assert note.remedy == "try a larger n_factors" and not note.columns


def test_constrained_edges_curves_normal_noise_and_fits_without_rows_are_not_asked(fit):
    x = answers(np.random.default_rng(1000))
    for options in ({"forbidden": [(0, 1)]}, {"decoder": "mlp"}, {"likelihood": "normal"}):
        assert lost_factor_findings(with_loadings(fitted(x, **options), LOADINGS[:, :2])) == []
    without_rows = replace(fit, table=fit.table.rows(np.arange(0)))
    assert lost_factor_findings(with_loadings(without_rows, LOADINGS[:, :2])) == []


def test_several_lost_factors_are_counted(fit):
    (note,) = lost_factor_findings(with_loadings(fit, LOADINGS[:, :1]))
    assert "the fit keeps 1, and parallel analysis finds 3" in note.message
    assert note.message.endswith("and 2 more have 2 that the fit lacks")


def test_a_fit_says_so_itself_unless_it_is_a_trial(monkeypatch):
    assert not [f for f in fitted(answers(np.random.default_rng(1000)), 2).findings if f.kind == "number"]
    monkeypatch.setattr(job, "LEAST_STEPS", 1)
    rng = np.random.default_rng(1000)
    fit = fitted(answers(rng), 2)
    assert [f.kind for f in fit.findings].count("number") == 1
    assert [f.kind for f in fitted(rng.random((N, 6)) < 0.5, 2).findings].count("number") == 0
