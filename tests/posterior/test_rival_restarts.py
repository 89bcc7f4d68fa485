"""What other restarts say against the best one: factors they lack, chains, factors held by anchors alone."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import pyro_sparse as ps
from pyro_sparse.graphs.restart_choice import found_factors
from pyro_sparse.graphs.selection import kept_restarts
from pyro_sparse.models import SparseDecoder
from pyro_sparse.posterior.rival_restarts import compared_restarts, level_of, prescribed_edges, unconfirmed
from tests._fake_fit import fake_fit


def test_factors_held_by_their_anchors_alone_are_not_found():
    edge = np.zeros((2, 5, 2), dtype=bool)
    edge[:, 0, 0] = edge[:, 1, 1] = edge[0, 2:, 0] = edge[1, 3, 1] = edge[1, 4, 0] = True
    assert found_factors(edge, prescribed_edges(object())).tolist() == [2, 2]
    model = SparseDecoder(5, 2, anchors={0: 0, 1: 1})
    model.setup(2)
    assert found_factors(edge, prescribed_edges(model)).tolist() == [1, 2]


@pytest.mark.slow
def test_a_graph_that_was_told_whole_is_not_called_empty():
    rng = np.random.default_rng(0)
    graph = np.kron(np.eye(2, dtype=bool), np.ones((4, 1), dtype=bool))
    x = rng.normal(size=(120, 2)) @ graph.T + 0.6 * rng.normal(size=(120, 8))
    required, forbidden = (list(map(tuple, np.argwhere(part).tolist())) for part in (graph, ~graph))
    model = SparseDecoder(8, 2, decoder="linear", required=required, forbidden=forbidden)
    said = " ".join(ps.fit(model, x, restarts=1, steps=40, progress=False).warnings)
    assert "no edge" not in said
    noise = SparseDecoder(8, 2, decoder="linear", anchors={0: 0, 4: 1})
    said = " ".join(ps.fit(noise, rng.normal(size=(120, 8)), restarts=1, progress=False).warnings)
    assert "no edge but those it was given" in said


@pytest.mark.slow
def test_right_anchors_do_not_make_a_restart_with_one_factor_look_like_two():
    rng = np.random.default_rng(28)
    loading = np.kron(np.eye(2), np.full((4, 1), 0.7))
    x = rng.normal(size=(200, 2)) @ loading.T + 0.51**0.5 * rng.normal(size=(200, 8))
    model = SparseDecoder(8, 2, decoder="linear", factor_cov=False, anchors={0: 0, 4: 1})
    fit = ps.fit(model, x, restarts=4, seed=0, progress=False)
    assert (fit.weights[fit.best] != 0).sum(0).tolist() == [4, 4]
    assert fit.elbo[fit.best] > fit.elbo.max() - 20 / 200


def test_factors_that_only_the_best_restart_found_are_named():
    congruence = np.array([[0.97, np.nan, 0.2], [1.0, 1.0, 1.0], [0.5, 0.3, 0.9]])
    names = ["factor 1", "factor 2", "factor 3"]
    (doubt,) = unconfirmed(congruence, 1, names)
    assert doubt.is_doubt and doubt.factors == ("factor 2", "factor 3")
    assert [str(doubt)] == ["no other restart found factor 2, factor 3: their axes are a guess"]
    assert unconfirmed(congruence[[0, 1, 1]], 1, names) == []
    assert unconfirmed(congruence[:1], 0, names) == []


def test_level_is_of_rows_kept_aside_where_there_are_any():
    fit = SimpleNamespace(elbo=np.array([1.0, 2.0]), heldout_elbo=np.array([np.nan, 3.0]))
    assert level_of(fit).tolist() == [1.0, 3.0]


def test_chains_are_compared_as_their_restarts_are():
    fit = fake_fit()
    kept, rivals = compared_restarts(fit)
    assert kept.tolist() == kept_restarts(fit.elbo, 200, best=0, rivals=rivals).tolist()
    assert rivals.tolist() == [False, *[True] * 4, False]  # the last has lost a factor, and is far worse
    chains = np.array([5, 0, 1])
    assert compared_restarts(fit, chains)[1].tolist() == [False, False, True]
    assert compared_restarts(fit, chains)[0].tolist() == [False, True, True]
