"""How many factors: against the bootstrap, other tables of the same population, and graphs fitted by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

import pyro_sparse as ps
from pyro_sparse.inference.table import number_of_factors as module
from pyro_sparse.inference.table.factor_likelihood import Moments
from pyro_sparse.inference.table.graph_search import best_graphs, graph_level
from pyro_sparse.inference.table.linear_maximum import row_moments
from pyro_sparse.inference.table.number_of_factors import _has_neighbours, number_findings
from pyro_sparse.inference.table.parallel_analysis import (
    beside_noise,
    number_probabilities,
    parallel_analysis,
)

N = 300


def standardised(x):
    return (x - x.mean(0)) / x.std(0)


def of_three(rng, weak, minor=0.0):
    """Two factors of five features and a weak one of three; thirty more of N(0, minor^2) loadings."""
    third = np.where(np.arange(13) >= 10, weak, 0.0)[:, None]
    loadings = np.hstack(
        [np.concatenate([np.kron(np.eye(2), np.full((5, 1), 0.7)), np.zeros((3, 2))]), third]
    )
    further = minor * np.random.default_rng(1000).normal(size=(13, 30))
    left = np.sqrt(1 - (loadings**2).sum(1) - (further**2).sum(1).clip(max=0.4))
    common = rng.normal(size=(N, 3)) @ loadings.T + rng.normal(size=(N, 30)) @ further.T
    return common + left * rng.normal(size=(N, 13))


def eigenvalues(x):
    return beside_noise(standardised(x), np.corrcoef(x.T), N)


@pytest.mark.parametrize("heavy", [False, True])
def test_an_eigenvalue_varies_as_the_bootstrap_says(heavy):
    rng = np.random.default_rng(1000)
    z = rng.normal(size=(N, 2)) @ np.kron(np.diag([0.9, 0.5]), np.ones((1, 4)))  # far from each other
    x = z + 0.6 * (rng.standard_t(4, size=(N, 8)) if heavy else rng.normal(size=(N, 8)))
    answer = eigenvalues(x)
    again = [
        np.linalg.eigvalsh(np.corrcoef(x[rng.integers(N, size=N)].T))[::-1][:2] for _ in range(1000)
    ]  # the others are nearly equal, and take each other's places
    np.testing.assert_allclose(answer.sd[:2], np.std(again, 0), rtol=0.25)
    np.testing.assert_allclose(answer.value, np.linalg.eigvalsh(np.corrcoef(x.T))[::-1], atol=1e-9)
    noise = [np.linalg.eigvalsh(np.corrcoef(rng.normal(size=(8, N))))[::-1] for _ in range(200)]
    np.testing.assert_allclose(answer.noise, np.mean(noise, 0), atol=0.03)


def test_probabilities_of_numbers_add_up_and_only_count_those_allowed():
    above = np.array([1.0, 0.8, 0.9, 0.3, 0.2])
    p = number_probabilities(above, 4)
    np.testing.assert_allclose(p, [0.2, 0.0, 0.5, 0.3])  # two, where the third is surer than the second
    np.testing.assert_allclose(number_probabilities(above, 2), [0.2, 0.8])
    np.testing.assert_allclose(number_probabilities(above, 1), [1.0])


@pytest.mark.slow
def test_probabilities_of_a_third_factor_are_calibrated():
    """Loadings from a wide range; whether the third eigenvalue is above noise on average over many tables."""
    grid = np.linspace(0.1, 0.5, 9)
    gaps = []
    for weak in grid:
        of = [eigenvalues(of_three(np.random.default_rng([7, seed]), weak)) for seed in range(40)]
        gaps.append(np.mean([e.value[2] - e.noise[2] for e in of]))
    threshold = np.interp(0, gaps, grid)
    probability, is_there = np.empty(400), np.empty(400, dtype=bool)
    for seed in range(400):
        rng = np.random.default_rng([1000, seed])
        weak = rng.uniform(0.1, 0.45)
        probability[seed] = eigenvalues(of_three(rng, weak)).above[2]
        is_there[seed] = weak > threshold
    for low, high in ((0.0, 0.1), (0.1, 0.5), (0.5, 0.9), (0.9, 1.0)):
        inside = (probability >= low) & (probability <= high)
        assert inside.sum() > 50
        assert is_there[inside].mean() == pytest.approx(probability[inside].mean(), abs=0.12)


def fitted(x, n_factors=4, **options):
    model = ps.models.SparseDecoder(n_factors=n_factors, decoder="linear", **options)
    return ps.fit(model, x, restarts=2, steps=500, seed=1000, progress=False)


@pytest.fixture(scope="module")
def close():
    """A fit of a table whose third factor is a close decision, and that no graph explains."""
    for seed in range(100):
        x = of_three(np.random.default_rng([1000, seed]), 0.3, minor=0.1)
        above = eigenvalues(x).above
        if parallel_analysis(np.corrcoef(x.T), N) == 3 and above[2] < 0.9 and above[3] < 0.02:
            return fitted(x)
    raise AssertionError("no such table")


@pytest.mark.slow
def test_the_weak_factor_is_doubted_and_no_other(close):
    table = close.number_of_factors()
    kept = int(table.index[table["kept"]][0])
    assert table["probability"].sum() == pytest.approx(1) and close.settings["supported_factors"] == kept
    (doubt,) = [finding for finding in close.findings if finding.kind == "number"]
    fewer, more = table["probability"].loc[: kept - 1].sum(), table["probability"].loc[kept + 1 :].sum()
    assert doubt.size == pytest.approx(fewer if "fewer" in doubt.message else more)
    with_two = max(
        (g for g in best_graphs(Moments(np.cov(close.table.x.T, bias=True), N), 2) if g.edge.shape[1] == 2),
        key=lambda graph: graph.level,
    ).loadings
    weights = close.weights[close.best]
    for k, name in enumerate(close.factor_names):
        cosines = weights[:, k] @ with_two / np.maximum(np.linalg.norm(weights[:, k]), 1e-9)
        lost = weights[:, k].any() and np.abs(cosines / np.linalg.norm(with_two, axis=0)).max() < 0.9
        assert lost == (name in doubt.factors)
    assert doubt.is_doubt and 1 <= len(doubt.factors) < 3


def test_the_criterion_is_that_of_graphs_and_a_table_of_the_model_is_settled():
    rng = np.random.default_rng(1000)
    x = rng.normal(size=(N, 2)) @ np.kron(np.eye(2), np.full((1, 4), 0.7)) + 0.6 * rng.normal(size=(N, 8))
    fit = fitted(x, 3)
    table, moments = fit.number_of_factors(), row_moments(fit.table, np.arange(N))[1]
    assert fit.settings.get("supported_factors") is None and table["kept"].tolist() == [
        False,
        False,
        True,
        False,
        False,
    ]
    level = {graph.edge.shape[1]: graph_level(moments, graph) for graph in reversed(best_graphs(moments, 3))}
    for k, value in level.items():
        assert table["criterion"][k] == pytest.approx(value - level[2], abs=0.01)
    posterior = np.exp(table["criterion"]) / np.exp(table["criterion"]).sum()
    np.testing.assert_allclose(table["probability"], posterior.fillna(0), atol=1e-6)
    assert table["probability"][2] > 0.9 and table["restarts"].sum() == 2
    assert not [finding for finding in fit.findings if finding.kind == "number"]


def test_nothing_is_said_where_no_bound_acts(close):
    settings = {name: value for name, value in close.settings.items() if name != "supported_factors"}
    assert number_findings(close) and number_findings(replace(close, settings=settings)) == []


def test_a_note_where_all_factors_are_there_with_one_more(monkeypatch):
    """A likely third factor beside two that stay as they are."""
    fit = fitted(of_three(np.random.default_rng([1000, 0]), 0.5), 2)
    bound = replace(fit, settings={**fit.settings, "supported_factors": 2, "likeliest_factors": 3})
    assert number_findings(bound) == []  # no more were offered
    monkeypatch.setattr(module, "number_probabilities", lambda above, most: np.array([0.0, 0.9, 0.1]))
    (note,) = number_findings(bound)
    assert not note.is_doubt and not note.factors and note.size == pytest.approx(0.1)
    assert "more than 2 with a probability of 0.10, and these are among them" in note.message
    np.testing.assert_allclose(bound.number_of_factors()["probability"], [0.0, 0.0, 0.9, 0.1])


def test_rows_are_wanted(close):
    with pytest.raises(ValueError, match="wants the rows of the fit"):
        replace(close, table=close.table.rows(np.arange(0))).number_of_factors()


def test_a_number_has_no_probability_where_its_neighbours_were_not_tried():
    offered = 4
    for levels, has in (
        ([-np.inf, -3.0, 0.0, -2.0, -np.inf, -np.inf], True),
        ([-np.inf, -3.0, 0.0, -np.inf, -np.inf, -np.inf], False),
        ([-np.inf, -np.inf, 0.0, -1.0, -np.inf, -np.inf], False),
        ([-np.inf, -np.inf, -np.inf, -1.0, 0.0, -np.inf], True),  # no more were offered
        ([-np.inf] * 6, False),
    ):
        assert _has_neighbours(np.array(levels), offered) is has


def test_of_curves_there_are_eigenvalues_and_no_probability():
    rng = np.random.default_rng(1000)
    x = rng.normal(size=(100, 4))
    fit = ps.fit(ps.models.SparseDecoder(n_factors=2), x, restarts=2, steps=20, progress=False)
    table = fit.number_of_factors()
    assert table["probability"].isna().all() and table["criterion"].isna().all()
    values = np.linalg.eigvalsh(np.corrcoef(x.T))[::-1]
    np.testing.assert_allclose(table["eigenvalue"], [np.nan, *values[:3]], atol=1e-5)
    distance = (table["eigenvalue"] - table["noise"]) / table["sd"]
    np.testing.assert_allclose(table["above"], norm.cdf(distance), atol=1e-9)
