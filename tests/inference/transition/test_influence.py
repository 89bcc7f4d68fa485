"""Sufficient influence of a fitted Jacobian, on mechanisms whose span is known."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_sparse.inference.transition.influence import fitted_influence, share_spanned

GRAPH = np.array([[1, 0, 1, 0], [1, 1, 0, 1]])  # two latents; two past latents, two actions


def jacobian(curved, n=500, error=0.01):
    """Every derivative varies by itself, or none does."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(n, *GRAPH.shape)) if curved else np.ones((n, *GRAPH.shape))
    return GRAPH * values + (1 - GRAPH) * error * rng.normal(size=values.shape)


def test_rank_error_and_share():
    found = fitted_influence(jacobian(True), GRAPH, n_latents=2, lags=1)
    assert found["time"].influence.dimension.tolist() == [3] and found["time"].influence.rank.tolist() == [3]
    assert found["actions"].influence.dimension.tolist() == [1, 1]
    assert found["time"].error == pytest.approx(0.01, rel=0.1)
    assert share_spanned(found) == 1


def test_a_constant_jacobian_spans_one_direction():
    found = fitted_influence(jacobian(False), GRAPH, n_latents=2, lags=1)
    assert found["time"].influence.rank.tolist() == [1]
    assert share_spanned(found) == pytest.approx(1 / 3)


def test_variation_within_the_error_does_not_count():
    rng = np.random.default_rng(1)
    values = jacobian(False, error=0.05)
    values += 0.02 * rng.normal(size=values.shape) * GRAPH
    found = fitted_influence(values, GRAPH, n_latents=2, lags=1)
    assert found["time"].influence.rank.tolist() == [1]


def test_what_cannot_be_asked_is_left_out():
    assert fitted_influence(jacobian(True)[:1], GRAPH, n_latents=2, lags=1) == {}  # fewer steps than edges
    assert set(fitted_influence(jacobian(True)[:, :, 2:], GRAPH[:, 2:], n_latents=2, lags=0)) == {"actions"}
    twice = np.concatenate([jacobian(True)[:, :, :2], jacobian(True)], 2)
    graph = np.concatenate([GRAPH[:, :2], GRAPH], 1)
    assert set(fitted_influence(twice, graph, n_latents=2, lags=2)) == {"actions"}
    assert share_spanned({}) == 1
