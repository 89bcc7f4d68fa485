"""Totals that are taken for depth, and what the factors say of them."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LinearRegression

import pyro_sparse as ps
from pyro_sparse.inference.table.depth import explained_by_factors


def counts(depth, rows=300, features=30, seed=1):
    rng = np.random.default_rng(seed)
    z, edge = rng.standard_normal((rows, 2)), rng.random((features, 2)) < 0.4
    weight = edge * rng.choice([-1, 1], edge.shape) * rng.uniform(0.5, 0.9, edge.shape)
    return rng.poisson(np.exp(z @ weight.T + 2 + depth * rng.standard_normal((rows, 1)))).astype(float)


def fitted(x, likelihood="poisson", **settings):
    model = ps.models.SparseDecoder(x.shape[1], 2, likelihood=likelihood, decoder="linear")
    fit = ps.fit(model, x, restarts=1, steps=200, progress=False, **settings)
    return [w for w in fit.warnings if "totals" in w]


def settings(x, **given):
    model = ps.models.SparseDecoder(x.shape[1], 2, likelihood="poisson", decoder="linear")
    return ps.fit(model, x, restarts=1, steps=5, progress=False, **given).settings["per_row"].get("exposure")


def test_share_is_adjusted_r_squared():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((90, 3)) @ np.diag([1.0, 2.0, 0.0])  # the last one is not used
    log_size = 0.5 * z[:, 0] - 0.2 * z[:, 1] ** 2 + rng.standard_normal(90)
    design = np.column_stack([z[:, :2], z[:, :2] ** 2])
    r2 = LinearRegression().fit(design, log_size).score(design, log_size)
    assert explained_by_factors(np.exp(log_size), z) == pytest.approx(1 - (1 - r2) * 89 / 85)
    assert (
        explained_by_factors(np.ones(90), z) == 0 and explained_by_factors(np.exp(log_size[:9]), z[:9]) == 0
    )


@pytest.mark.usefixtures("hurried")
@pytest.mark.slow
def test_totals_of_many_features_that_are_no_depth_are_told_of():
    x, told = counts(depth=0, features=310), ps.likelihoods.Poisson(size_factors=True)
    (said,) = fitted(x, told)
    assert "likelihood=Poisson(size_factors=False)" in said
    assert not fitted(x, ps.likelihoods.Poisson(size_factors=False))
    assert not fitted(x, told, exposure=np.ones(len(x)))
    assert len(fitted(sparse.csr_array(x), told)) == 1  # a table that is read by rows
    assert not fitted(x[:, :30], told)  # shared out


@pytest.mark.slow(hurried=True)
@pytest.mark.usefixtures("hurried")
def test_totals_are_taken_where_rows_differ_in_depth_and_only_there():
    assert not fitted(counts(depth=0))
    assert settings(counts(depth=0)) is None and settings(counts(depth=0.8)) == "from the cells"
    assert settings(counts(depth=0.8), exposure=np.ones(300)) == "given"
    between = counts(depth=0.12)
    (said,) = fitted(between)
    assert "rows may differ in depth" in said and "likelihood=Poisson(size_factors=True)" in said


@pytest.mark.usefixtures("hurried")
@pytest.mark.slow
def test_totals_that_are_depth_are_left_alone():
    assert not fitted(counts(depth=0.8, features=120))
    for likelihood in ("poisson", "negative_binomial", "multinomial"):
        assert not fitted(counts(depth=0.8), likelihood)


@pytest.mark.slow
def test_totals_that_factors_move_make_no_weights():
    """Of features that no factor moves; held as if they were known, they do."""
    rng = np.random.default_rng(1)
    edge = np.repeat(np.eye(4, dtype=bool), 12, axis=0)
    weight = edge * rng.choice([-1, 1], edge.shape) * rng.uniform(0.4, 1.0, edge.shape)
    level = rng.standard_normal((300, 1)) + 1 + 0.7 * rng.standard_normal(48)
    x = rng.poisson(np.exp(level + rng.standard_normal((300, 4)) @ weight.T)).astype(float)

    def found(**given):
        model = ps.models.SparseDecoder(48, 4, likelihood="poisson", decoder="linear")
        fit = ps.fit(model, x, restarts=2, steps=400, seed=0, progress=False, **given)
        factor = [int(np.abs(fit.weights[fit.best][own]).sum(0).argmax()) for own in edge.T]
        return fit.weights[fit.best][:, factor] != 0

    assert (found() == edge).mean() > 0.98
    assert (found(exposure=x.sum(1)) & ~edge).sum() >= 8
