"""Tables off the model: what is simulated, and how edges are counted, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import _faults_off_model as faults_off_model
from benchmarks._faults_off_model import edge_counts, off_model, simulate


def test_factors_are_correlated_and_features_have_one_to_three():
    draws = [simulate(seed) for seed in range(5000, 5010)]
    z = np.concatenate([z for _, z, _ in draws])
    np.testing.assert_allclose(np.corrcoef(z.T), 0.5 + 0.5 * np.eye(4), atol=0.05)
    parents = np.concatenate([edges.sum(1) for _, _, edges in draws])
    share = np.bincount(parents, minlength=4)[1:] / len(parents)
    np.testing.assert_allclose(share, [0.45, 0.35, 0.2], atol=0.09)
    assert all(x.shape == (400, 30) for x, _, _ in draws)


def test_edges_are_counted_against_the_factor_they_stand_for():
    """Fitted factor 2 is true factor 1 reversed, fitted 1 is true 2, fitted 3 stands for none."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(100, 2))
    scores = np.column_stack([z[:, 1], -z[:, 0], rng.normal(size=100)])
    edges = np.array([[1, 0], [1, 1], [0, 1]], dtype=bool)
    verdict = np.array([["absent", "present", "present"], ["open", "present", "absent"], ["present"] * 3])
    probability = np.where(verdict == "present", 0.96, 0.1)
    counts = edge_counts(verdict, probability, scores, z, edges)
    assert counts == {
        "present": 6,
        "present_false": 3,
        "claimed_false": pytest.approx(6 * 0.04),
        "true": 4,
        "true_present": 3,
    }


def test_counts_are_added_over_tables(monkeypatch):
    monkeypatch.setattr(
        faults_off_model, "run", lambda seed, quick: dict.fromkeys(faults_off_model.COUNTS, seed)
    )
    assert off_model([1, 2, 4]) == dict.fromkeys(faults_off_model.COUNTS, 7)
