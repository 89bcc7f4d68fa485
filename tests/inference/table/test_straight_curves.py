"""Whether a linear decoder would do: its bound against closed forms, and what is said of tables."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import pyro_sparse as ps
from pyro_sparse.inference.table import job
from pyro_sparse.inference.table.factor_likelihood import FactorFit
from pyro_sparse.inference.table.straight_curves import linear_bounds

# rough axes and posteriors of rows: none of these tests is about how good they are
pytestmark = pytest.mark.usefixtures("hurried_module")

N, G, K = 200, 8, 2


def graph():
    loadings = np.array([[0.8, 0], [0.7, 0], [0.6, 0.3], [0, 0.8], [0, 0.7], [0.5, 0.5]])
    correlations = np.array([[1.0, 0.4], [0.4, 1.0]])
    correlated = ~np.eye(2, dtype=bool)
    noise = np.linspace(0.3, 0.8, 6)
    return FactorFit(loadings != 0, correlated, loadings, correlations, noise, 0.0)


def test_bounds_are_those_of_independent_factors():
    """log p less the divergence of N(m, diag) from N(m, P^-1), of whole rows and of rows with holes."""
    fit, rng = graph(), np.random.default_rng(0)
    unit = rng.uniform(0.5, 3.0, 6)
    x, seen = rng.normal(size=(5, 6)), rng.random((5, 6)) < 0.7
    seen[0] = True
    implied = fit.loadings @ fit.correlations @ fit.loadings.T + np.diag(fit.noise)
    whole = linear_bounds(fit, x, None, unit)
    for mask in (np.ones((5, 6), bool), seen):
        bounds = linear_bounds(fit, x, mask, unit)
        for i, here in enumerate(mask):
            inside = np.diag(unit[here]) @ implied[np.ix_(here, here)] @ np.diag(unit[here])
            density = multivariate_normal(np.zeros(here.sum()), inside).logpdf(x[i, here] * unit[here])
            loadings = fit.loadings[here]
            p = np.linalg.inv(fit.correlations) + loadings.T @ np.diag(1 / fit.noise[here]) @ loadings
            q = np.diag(1 / np.diag(p))
            divergence = 0.5 * (np.trace(p @ q) - 2 - np.linalg.slogdet(p @ q)[1])
            assert bounds[i] == pytest.approx(density - divergence)
        if mask.all():
            np.testing.assert_allclose(bounds, whole)


def fitted(x, **options):
    model = ps.models.SparseDecoder(n_factors=K, **{"hidden": 8, **options})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ps.fit(model, x, restarts=2, steps=300, holdout=0.2, seed=1000, progress=False)


def table(curve, seed=1000):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(N, K))
    return curve(z[:, np.arange(G) % K]) + 0.4 * rng.normal(size=(N, G))


@pytest.mark.parametrize(
    ("curve", "options", "told"),
    [
        (lambda z: z, {}, 1),
        (lambda z: np.where(np.arange(G) < 4, z, 1.5 * np.abs(z)), {}, 0),
        (lambda z: z, {"decoder": "linear"}, 0),
        (lambda z: z, {"anchors": {0: 0}}, 0),
        (lambda z: z, {"likelihood": "student_t"}, 0),
    ],
)
def test_only_neural_decoders_of_straight_features_are_told(curve, options, told, monkeypatch):
    monkeypatch.setattr(job, "LEAST_STEPS", 1)
    fit = fitted(table(curve), **options)
    notes = [finding for finding in fit.findings if finding.kind == "straight"]
    assert len(notes) == told
    for note in notes:
        assert not note.is_doubt and "the 40 held-out rows" in note.message and note.size >= 0
        assert note.remedy.startswith('try decoder="linear"')


def test_a_trial_says_nothing():
    """After a few steps of training a curved table looks straight."""
    model = ps.models.SparseDecoder(n_factors=K, hidden=4)
    fit = ps.fit(model, table(np.abs), restarts=1, steps=10, holdout=0.2, seed=0, progress=False)
    assert not [finding for finding in fit.findings if finding.kind == "straight"]


def test_without_held_out_rows_nothing_is_asked():
    model = ps.models.SparseDecoder(n_factors=K, hidden=4)
    fit = ps.fit(model, table(lambda z: z), restarts=1, steps=20, holdout=0.0, seed=0, progress=False)
    assert not [finding for finding in fit.findings if finding.kind == "straight"]
