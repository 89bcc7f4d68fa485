"""Graphs of restarts in the frame of the best one, against graphs that were permuted by hand."""

from __future__ import annotations

import numpy as np

import pyro_sparse as ps
from pyro_sparse.inference.transition.restart_graphs import (
    by_parent,
    differing_edges,
    edges_near_break,
    framed,
)

NAMES = [["latent 1", "latent 2", "latent 3"], ["push", "pull"]]
RNG = np.random.default_rng(0)


def model(**options):
    transition = ps.models.LatentTransition(6, 3, n_actions=2, lags=2, **options)
    transition.take_actions(NAMES[1], [1, 1])
    return transition


def test_restarts_come_into_the_frame_of_the_best_and_back():
    lags = RNG.normal(size=(2, 3, 3))
    action = RNG.normal(size=(3, 2))
    order = np.array([2, 0, 1])  # of the second restart: where it keeps each latent of the best
    place = np.argsort(order)
    own = [m[np.ix_(place, place)] for m in lags]
    edges = np.stack([np.hstack([*lags, action]), np.hstack([*own, action[place]])])
    time, of_actions = framed(model(), edges, np.stack([np.arange(3), order]))
    for restart in range(2):
        np.testing.assert_array_equal(time[restart], lags)
        np.testing.assert_array_equal(of_actions[restart], action)
    np.testing.assert_array_equal(by_parent((time, of_actions), 0), edges[0])
    assert differing_edges((time, of_actions), 1, 0, NAMES) == []


def test_an_edge_that_differs_at_one_lag_differs():
    time, action = np.zeros((2, 2, 3, 3)), np.zeros((2, 3, 2))
    time[1, 1, 0, 2] = action[1, 2, 1] = 1
    assert differing_edges((time, action), 1, 0, NAMES) == [("latent 1", "latent 3"), ("latent 3", "pull")]
    assert differing_edges((None, action), 1, 0, NAMES) == [("latent 3", "pull")]


def test_edges_near_the_break_are_named_and_given_ones_are_not():
    time, action = np.full((1, 2, 3, 3), 0.1), np.full((1, 3, 2), 0.1)
    for lag in range(2):
        np.fill_diagonal(time[0, lag], 3.0)
    time[0, 1, 0, 2] = 1.6  # a zero of more than half the weakest edge
    action[0, 0, 0], action[0, 1, 1] = 2.0, 1.1
    graphs = (time > 2.5).astype(int), (action > 1.05).astype(int)
    near = [("latent 1", "latent 1"), ("latent 1", "latent 3"), ("latent 2", "latent 2"), ("latent 3",) * 2]
    assert edges_near_break(model(), (time, action), graphs, 0, NAMES) == near
    forbidden = model(forbidden_time=[(0, 2)])
    assert edges_near_break(forbidden, (time, action), graphs, 0, NAMES) == []
