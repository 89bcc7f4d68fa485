"""The autoencoder benchmark: its known graph, its figures on answers made by hand, its sums."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pytest
import torch

from benchmarks import _autoencoders, autoencoder


def test_seeds_are_those_asked_for():
    options = Namespace(seeds=2, first_seed=1000, quick=True, real=None)
    assert autoencoder.tasks(options) == [{"seed": 1000, "quick": True}, {"seed": 1001, "quick": True}]


def test_the_known_graph_is_as_described():
    known = _autoencoders.known_graph(0, 4000)
    assert known.graph.shape == (48, 96) and (known.graph.sum(1) >= 2).all()
    assert 1 <= known.graph.sum(0).mean() < 1.5 and known.graph.any(0).all()
    made = torch.relu(known.codes_in @ torch.tensor(known.weight).float().T)
    assert ((known.codes_out > 0) <= (made > 0)).all()
    np.testing.assert_array_equal(known.weight != 0, known.graph)
    together = np.corrcoef((known.codes_in > 0).numpy().T)
    assert (together - np.eye(96)).max() > 0.3  # topics
    torch.testing.assert_close(known.y, known.codes_out @ known.directions_out)


def test_a_dictionary_learns_directions_and_keeps_them_at_length_one():
    torch.manual_seed(0)
    true = torch.nn.functional.normalize(torch.randn(8, 16), dim=1)
    codes = (torch.rand(20_000, 8) < 0.2) * (0.5 + torch.rand(20_000, 8))
    sae = _autoencoders.trained(codes @ true, 10, 3, seed=0, batch=64, lr=5e-3)
    assert (true @ sae.dec.T).max(1).values.min() > 0.9
    torch.testing.assert_close(sae.dec.norm(dim=1), torch.ones(10))
    assert ((sae.encode(codes @ true) > 0).sum(1) <= 3).all()


def test_figures_of_a_perfect_and_of_a_lost_answer():
    graph = np.array([[1, 1, 0], [0, 0, 1]], dtype=bool)
    places = [(np.arange(2), np.array([1, 0])), (np.arange(3), np.array([2, 0, 1]))]
    p = np.zeros((2, 3))
    p[np.ix_([1, 0], [2, 0, 1])] = graph
    found = autoencoder.figures(p, np.ones((2, 3)), graph, places)
    assert found["ap"] == found["ap_found"] == found["brier_skill"] == 1 and found["ece"] == 0
    assert found["above_correlation"] == pytest.approx(0.5)
    half = autoencoder.figures(p, p, graph, [(np.array([0]), np.array([1])), places[1]])
    assert half["ap_found"] == 1 and half["ap"] < 1 and half["brier_skill_all"] < 1
    signs = autoencoder.by_sign(p, graph, np.array([[False, True, False], [False] * 3]), places)
    assert signs == {"ap_exciting": 1.0, "inhibiting": 1, "inhibiting_named": 1.0}


def test_true_codes_and_correlations_by_hand():
    true = np.eye(4)
    directions = 2 * true[[2, 0]] + 0.1
    code, latent = autoencoder.found_places(directions, true)
    assert code.tolist() == [0, 2] and latent.tolist() == [1, 0]
    f = np.random.default_rng(0).normal(size=(50, 3))
    f[:, 2] = 1.0
    c = autoencoder.correlation(f, f[:, :2])
    np.testing.assert_allclose(c[:2], np.abs(np.corrcoef(f[:, :2].T)), atol=1e-12)
    assert not c[2].any()
    chosen = autoencoder.chosen(c, np.array([1, -1]), np.array([0, 1]))
    assert np.isnan(chosen[1]).all() and chosen[0] == pytest.approx(c[1])


def test_bins_are_pooled_over_data_sets():
    said, found = np.array([0.02, 0.04, 0.95, 0.97]), np.array([False, False, True, True])
    bins = autoencoder.binned(said, found)
    assert bins[0] == [pytest.approx(0.06), 0, 2] and bins[-1] == [pytest.approx(1.92), 2, 2]
    names = (
        *autoencoder.ASKED, "ece", "brier_skill_all", "ap_correlation", "ap_one", "ap_exciting",
        "inhibiting_named", "in_found", "out_found",
    )  # fmt: skip
    rows = [{**dict.fromkeys(names, value), "replication": bins} for value in (0.9, 1.0)]
    result = autoencoder.collect(rows, Namespace())
    assert result["synthetic"]["ap"] == pytest.approx(0.95) and result["met"]["ap"]
    assert not result["met"]["ap_found"] and result["met"]["bins"] and result["met"]["sure"]
    assert np.allclose(result["replication"], [[0.03, 0], [0.96, 1]]) and result["replication_n"] == [4, 4]
