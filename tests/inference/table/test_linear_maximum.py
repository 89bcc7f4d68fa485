"""Restarts at the maxima of their graphs: for which fits, what is written, and what comes of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

import pyro_sparse as ps
from pyro_sparse.data.read import as_table
from pyro_sparse.inference import Schedule
from pyro_sparse.inference.table import job
from pyro_sparse.inference.table.by_rows import judge
from pyro_sparse.inference.table.graph_search import best_graphs
from pyro_sparse.inference.table.linear_maximum import (
    graph_worth,
    has_closed_form_maximum,
    put_at_maxima,
    row_moments,
)
from pyro_sparse.inference.table.parallel_analysis import parallel_analysis
from pyro_sparse.models import SparseDecoder

FACTORS, SIZE, N = 3, 4, 300


def rows(seed=1000, missing=0.0):
    """Three correlated factors of four features, columns in units of their own."""
    rng = np.random.default_rng(seed)
    edge = np.kron(np.eye(FACTORS), np.ones((SIZE, 1)))
    between = np.full((FACTORS, FACTORS), 0.3) + 0.7 * np.eye(FACTORS)
    z = rng.multivariate_normal(np.zeros(FACTORS), between, size=N)
    x = 0.7 * z @ edge.T + 0.7 * rng.normal(size=(N, len(edge)))
    x = 5 + x * np.linspace(0.5, 20, len(edge))
    return np.where(rng.random(x.shape) < missing, np.nan, x), edge > 0


def set_up(x, n_factors=5, restarts=4, **options):
    model = SparseDecoder(x.shape[1], n_factors, decoder="linear", **options)
    table = as_table(x, likelihood=model.likelihood)
    torch.manual_seed(0)
    model.setup(restarts, len(x), missing=table.missing)
    with torch.no_grad():
        model.weights.copy_(torch.randn_like(model.weights) * (torch.rand_like(model.weights) < 0.3))
        model.weights.mul_(model.allowed)
    return model.eval(), table


@pytest.mark.parametrize(
    ("options", "n_rows", "steps", "wanted"),
    [
        ({}, 300, 1250, True),
        ({"anchors": {0: 0}}, 300, 1250, True),
        ({"factor_cov": False}, 300, 1250, True),
        ({"prior": "spike_slab_normal"}, 300, 1250, True),
        ({}, 300, 100, False),
        ({}, 20, 1250, False),
        ({}, 1001, 1250, False),
        ({"decoder": "mlp"}, 300, 1250, False),
        ({"likelihood": "bernoulli"}, 300, 1250, False),
        ({"likelihood": ps.likelihoods.Normal(shared=True)}, 300, 1250, False),
        ({"prior": "horseshoe"}, 300, 1250, False),
        ({"prior": ps.priors.SpikeSlabLasso(lambda1=20.0)}, 300, 1250, False),
        ({"edge_odds": {(0, 0): 5.0}}, 300, 1250, False),
    ],
)
def test_for_whom(options, n_rows, steps, wanted):
    x = (np.random.default_rng(0).random((n_rows, 8)) < 0.5).astype(float)
    model = SparseDecoder(8, 2, **{"decoder": "linear", **options})
    model.setup(1, n_rows)
    table = as_table(x, likelihood=model.likelihood)
    assert has_closed_form_maximum(model, table, Schedule(steps=steps)) is wanted


def test_not_where_a_method_is_the_callers_own():
    class Doubled(SparseDecoder):
        def decode(self, z, weights):
            return 2 * super().decode(z, weights)

    x, _ = rows()
    model = Doubled(x.shape[1], 3, decoder="linear")
    model.setup(1, N)
    assert not has_closed_form_maximum(model, as_table(x, likelihood=model.likelihood), Schedule())


def test_the_search_takes_the_place_of_worse_restarts():
    x, edge = rows()
    model, table = set_up(x)
    maxima = put_at_maxima(model, table, np.arange(N))
    assert maxima.searched and len(maxima.searched) <= 2 and maxima.supported is None
    assert maxima.findings() == []
    found = (model.weights[maxima.best] != 0).numpy()
    found = found[:, found.any(0)]
    np.testing.assert_array_equal(found[:, np.argsort(found.argmax(0))], edge)
    assert maxima.level[maxima.best] == maxima.level.max()


@pytest.mark.slow
def test_minor_factors_do_not_count():
    """Five factors, and forty of N(0, .1^2) loadings that no theory names; a likelihood counts some."""
    rng, main = np.random.default_rng(1000), np.kron(np.eye(5), np.ones((5, 1)))
    minor = 0.1 * rng.normal(size=(25, 40))
    noise = np.sqrt(0.6 - (minor**2).sum(1).clip(max=0.5)) * rng.normal(size=(1000, 25))
    x = rng.normal(size=(1000, 5)) @ (0.63 * main.T) + rng.normal(size=(1000, 40)) @ minor.T + noise
    everyone = row_moments(as_table(x, likelihood=ps.likelihoods.Normal()), np.arange(1000))[1]
    supported = parallel_analysis(np.corrcoef(x.T), 1000)
    assert supported <= 6 < best_graphs(everyone, 10)[0].edge.shape[1]
    model, table = set_up(x, n_factors=10)
    with torch.no_grad():  # more factors than there are, in every restart
        model.weights.copy_(torch.randn_like(model.weights) * model.allowed)
    maxima = put_at_maxima(model, table, np.arange(1000))
    assert maxima.supported == supported < maxima.likeliest
    (note,) = maxima.findings()
    assert not note.is_doubt and f"the {supported} that parallel analysis finds" in note.message
    assert ((model.weights != 0).any(1).sum(1) <= supported).all()


@pytest.mark.parametrize("standardise", [True, False])
def test_what_is_written_is_the_posterior_of_the_rows(standardise):
    """Covariance of the columns, in their units, and the mean of each row's exact posterior."""
    x, _ = rows()
    model, _ = set_up(x)
    table = as_table(x, likelihood=model.likelihood, standardise=standardise)
    best = put_at_maxima(model, table, np.arange(N)).best
    w, c = (t[best].detach().double().numpy() for t in (model.weights, model.factor_cov))
    noise = model.likelihood.noise_sd()[best, 0].detach().double().numpy()
    implied = (w @ c @ w.T + np.diag(noise**2)) * np.outer(table.scale, table.scale)
    observed = np.cov(x.T, bias=True)
    np.testing.assert_allclose(np.diag(implied), np.diag(observed), rtol=0.02)
    assert (
        np.abs(implied - observed).max()
        < 0.15 * np.sqrt(np.outer(np.diag(observed), np.diag(observed))).max()
    )
    centred = table.x - model.decoder.intercept[best, 0].detach().double().numpy()
    precision = np.linalg.inv(c) + w.T @ (w / noise[:, None] ** 2)
    want = np.linalg.solve(precision, (w / noise[:, None] ** 2).T @ centred.T).T
    location, sd = model.encode(table.batch("cpu", torch.float32))
    np.testing.assert_allclose(location[best].detach(), want, atol=2e-3)
    np.testing.assert_allclose(sd[best, 0].detach(), np.diag(precision) ** -0.5, rtol=1e-3)


def test_required_and_forbidden_edges_stay():
    x, _ = rows()
    model, table = set_up(x, anchors={0: 1, 5: 2}, forbidden=[(1, 1)])
    with torch.no_grad():
        model.weights[model.must.expand_as(model.weights)] = 0.5
    before = model.weights.detach() != 0
    maxima = put_at_maxima(model, table, np.arange(N))
    assert not maxima.searched
    assert ((model.weights != 0) == before).all()


def test_graphs_of_tables_with_missing_cells_are_worth_what_their_cells_say():
    """Where next to nothing is missing it is what moments say; where much is, it is less."""
    x, _ = rows()
    tables = [as_table(x, likelihood=ps.likelihoods.Normal())]
    for share in (0.0005, 0.3):
        holes = np.random.default_rng(0).random(x.shape) < share
        tables.append(as_table(np.where(holes, np.nan, x), likelihood=ps.likelihoods.Normal()))
    gains = []
    for table in tables:
        mean, moments = row_moments(table, np.arange(N))
        worth = graph_worth(table, mean, moments)
        two, three = (next(g for g in best_graphs(moments, k) if g.edge.shape[1] == k) for k in (2, 3))
        gains.append(worth(three) - worth(two))
    assert gains[1] == pytest.approx(gains[0], rel=0.05) and 0 < gains[2] < 0.8 * gains[0]


def test_means_and_covariance_of_rows_with_missing_cells():
    """Those of the rows where nothing is missing; else where the likelihood of the seen cells is flat."""
    x, _ = rows()
    table = as_table(x, likelihood=ps.likelihoods.Normal())
    mean, moments = row_moments(table, np.arange(200))
    np.testing.assert_allclose(moments.covariance, np.cov(table.inputs[:200].T, bias=True))
    np.testing.assert_allclose(mean, table.inputs[:200].mean(0))
    assert moments.n_rows == 200
    table = as_table(rows(missing=0.15)[0], likelihood=ps.likelihoods.Normal())
    mean, moments = row_moments(table, np.arange(N))
    assert moments.n_rows == pytest.approx(N * table.mask.mean())

    def level(mean, covariance):
        total = 0.0
        for row, seen in zip(table.inputs, table.mask, strict=True):
            part, residual = covariance[np.ix_(seen, seen)], (row - mean)[seen]
            total -= 0.5 * (np.linalg.slogdet(part)[1] + residual @ np.linalg.solve(part, residual))
        return total

    best, rng = level(mean, moments.covariance), np.random.default_rng(0)
    for _ in range(5):
        change = 0.05 * rng.normal(size=moments.covariance.shape)
        assert level(mean, moments.covariance + change @ change.T) < best
        assert level(mean + 0.05 * rng.normal(size=mean.shape), moments.covariance) < best


def test_with_missing_cells_the_encoder_is_near_the_posterior():
    x, _ = rows(missing=0.1)
    model, table = set_up(x)
    best = put_at_maxima(model, table, np.arange(N)).best
    w, c = (t[best].detach().double().numpy() for t in (model.weights, model.factor_cov))
    noise = model.likelihood.noise_sd()[best, 0].detach().double().numpy()
    centre = model.decoder.intercept[best, 0].detach().double().numpy()
    location = model.encode(table.batch("cpu", torch.float32))[0][best].detach().numpy()
    used = (w != 0).any(0)
    for i in range(20):
        seen = table.mask[i]
        weighted = (w[seen] / noise[seen, None] ** 2).T
        want = np.linalg.solve(np.linalg.inv(c) + weighted @ w[seen], weighted @ (table.x[i] - centre)[seen])
        assert np.abs(location[i] - want)[used].max() < 0.5


def test_training_to_graphs_is_short_where_a_search_improves_them():
    """Not where edges are fixed, for then the trained graph stays, nor where the fit is a trial."""

    def steps_of(n_rows=N, steps=1250, **options):
        x = rows()[0][:n_rows]
        model = SparseDecoder(x.shape[1], 3, **{"decoder": "linear", **options})
        table = as_table(x, likelihood=model.likelihood)
        made = job.TableJob(model, table, restarts=2, seed=0, schedule=Schedule(steps=steps))
        return made.closed_form, made.schedule.steps

    assert steps_of() == (True, 150)
    assert steps_of(factor_cov=False) == (True, 150)
    assert steps_of(anchors={0: 1}) == (True, 1250)
    assert steps_of(forbidden=[(1, 1)]) == (True, 1250)
    assert steps_of(steps=400) == (False, 400)
    assert steps_of(n_rows=25) == (False, 1250)
    assert steps_of(decoder="mlp") == (False, 1250)


def test_held_out_rows_need_no_climb_where_the_encoder_is_exact():
    """The best bound: a row's log density less the divergence of independent factors from its posterior."""
    x, _ = rows()
    model, table = set_up(x)
    best = put_at_maxima(model, table, np.arange(N)).best
    batch = table.batch("cpu", torch.float32)
    w, c = (t[best].detach().double().numpy() for t in (model.weights, model.factor_cov))
    noise = model.likelihood.noise_sd()[best, 0].detach().double().numpy()
    centre = model.decoder.intercept[best, 0].detach().double().numpy()
    precision = np.linalg.inv(c) + w.T @ (w / noise[:, None] ** 2)
    apart = 0.5 * (np.log(np.diag(precision)).sum() - np.linalg.slogdet(precision)[1])
    best_bound = multivariate_normal(centre, w @ c @ w.T + np.diag(noise**2)).logpdf(table.x) - apart
    elbo = judge(model, batch, batch, exact=True)[1][best]
    assert elbo.mean() == pytest.approx(best_bound.mean(), abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("correlated", [0.0, 0.4])
def test_more_steps_lead_to_the_same_graph(correlated):
    """Dense graphs, whose axes are the hardest to find."""
    rng = np.random.default_rng([1000, round(10 * correlated)])
    edge = rng.random((15, 3)) < 0.4
    weight = edge * rng.uniform(0.4, 1, edge.shape) * rng.choice([-1, 1], edge.shape)
    root = np.linalg.cholesky((1 - correlated) * np.eye(3) + correlated)
    x = rng.normal(size=(200, 3)) @ root.T @ weight.T + 0.6 * rng.normal(size=(200, 15))
    fits = [
        ps.fit(SparseDecoder(n_factors=4, decoder="linear"), x, steps_to_graphs=steps, progress=False)
        for steps in (150, 600)
    ]
    levels = [max(fit.settings["graph_level"]) for fit in fits]
    assert levels[0] == pytest.approx(levels[1], abs=0.01)
    assert [fit.history["step"].max() for fit in fits] == [150, 600]
    graphs = [fit.weights[fit.best] != 0 for fit in fits]
    assert {column.tobytes() for column in graphs[0].T} == {column.tobytes() for column in graphs[1].T}


@pytest.mark.slow
def test_a_fit_has_one_answer_in_every_precision_and_number_of_restarts(monkeypatch):
    """A tuning table of four factors on which the restarts alone keep three."""
    from benchmarks._factor_tables import blocks

    table = blocks(1011)
    model = SparseDecoder(n_factors=table.offered, decoder="linear")
    graphs = []
    for settings in ({"restarts": 4}, {"restarts": 6, "dtype": "float64"}):
        fit = ps.fit(model, table.x, progress=False, **settings)
        graphs.append(fit.weights[fit.best] != 0)
        assert fit.best in fit.settings["searched"] or fit.settings["graph_level"]
    for graph in graphs:
        used = graph[:, graph.any(0)]
        np.testing.assert_array_equal(used[:, np.argsort(used.argmax(0))], table.loadings != 0)
    monkeypatch.setattr(job, "has_closed_form_maximum", lambda *about: False)
    alone = ps.fit(model, table.x, restarts=4, progress=False)
    assert (alone.weights[alone.best] != 0).any(0).sum() != table.loadings.shape[1]
