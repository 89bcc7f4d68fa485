"""Edges of a transition: where the graph of the fit and the probabilities differ, the edge is in doubt."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from pyro_sparse.inference.edges.parents.transitions import _disputed, _graphs
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


def test_a_restart_that_failed_is_not_compared():
    """Its edges are not those of the best restart's latents; one as good with other latents is compared."""
    by_chain = np.array([[[0.9, 0.1]] * 2, [[0.2, 0.1]] * 2, [[0.8, 0.1]] * 2])
    graph = np.zeros((3, 1, 2, 2))

    def gap(behind, recovered):
        agreement = pd.DataFrame({"behind": [0.0, *behind], "recovered": [1.0, *recovered]})
        of_fit = SimpleNamespace(
            model=SimpleNamespace(n_latents=2, lags=1, must=torch.zeros(2, 2) == 1),
            best=0, agreement=agreement, strength_time=graph, strength_action=None,
        )  # fmt: skip
        return _graphs(of_fit, np.zeros((3, 5, 2, 2)), by_chain)["time"].gap[0]

    assert gap([0.5, 1.0], [0.7, 0.99]) == pytest.approx([0.7, 0])  # as good: the data leave a choice
    assert gap([40.0, 5.0], [0.7, 0.99]) == pytest.approx([0.1, 0])
    assert np.isnan(gap([40.0, 5.0], [0.7, 0.8])).all()
