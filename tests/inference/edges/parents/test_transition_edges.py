"""Edges of a transition: where the graph of the fit and the probabilities differ, the edge is in doubt."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from pyro_sparse.inference.edges.parents.transitions import _disputed
from pyro_sparse.posterior.transitions import GraphDraws

NAMES = ["latent 1", "latent 2"]


def graphs(probability):
    """Only probability and strength are read; of two restarts the second is the best."""
    p = np.asarray(probability, float)
    return GraphDraws(np.zeros((2, 1, *p.shape)), p, np.stack([p, p]), np.stack([0 * p, 1 + p]))


def fit(time=None, action=None):
    def of_best(graph):
        return None if graph is None else np.stack([1 - np.asarray(graph), np.asarray(graph)])

    return SimpleNamespace(
        latent_names=NAMES,
        action_names=["push"],
        graph_time=of_best(time),
        graph_action=of_best(action),
        best=1,
    )


def test_sure_edges_that_the_graph_has_otherwise_are_in_doubt():
    time, action = [[[1, 0], [1, 1]]], [[1], [0]]
    probability = {"time": graphs([[0.99, 0.96], [0.5, 0.03]]), "action": graphs([[0.2], [0.98]])}
    (doubt,) = _disputed(fit(time, action), probability)
    assert set(doubt.edges) == {("latent 1", "latent 2"), ("latent 2", "latent 2"), ("latent 2", "push")}
    assert "latent 2 -> latent 1 (derivative 1.96, probability 0.96)" in doubt.message
    assert doubt.is_doubt
    assert doubt.kind == "graph"


@pytest.mark.parametrize("probability", [[[0.99, 0.01], [0.5, 0.9]], [[1.0, 0.5], [0.0, 0.06]]])
def test_edges_that_agree_or_are_not_sure_are_in_no_doubt(probability):
    assert _disputed(fit([[[1, 0], [0, 1]]]), {"time": graphs(probability)}) == []


def test_each_lag_is_compared_with_its_own_graph():
    time = [[[1, 0], [0, 1]], [[0, 0], [1, 0]]]
    probability = [[[0.99, 0.01], [0.01, 0.99]], [[0.01, 0.01], [0.01, 0.01]]]
    (doubt,) = _disputed(fit(time), {"time": graphs(probability)})
    assert doubt.edges == (("latent 2", "latent 1"),)
