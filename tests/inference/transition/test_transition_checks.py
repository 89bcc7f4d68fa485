"""Doubts about axes of sequences, latent by latent: shared noise, free rotations, restarts."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pyro_sparse.findings.finding import doubted_edges
from pyro_sparse.inference.transition.transition_checks import (
    AxisChecks,
    axis_findings,
    evidence_findings,
    graph_findings,
    mixing_error,
    restart_findings,
    unclear_edges,
)

NAMES = ["latent 1", "latent 2", "latent 3"]
GRAPH = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1]]) == 1


def jacobians(graph, error=0.02, bent=True, n=400, seed=0):
    rng = np.random.default_rng(seed)
    values = np.cos(rng.normal(size=(n, *graph.shape))) if bent else np.ones((n, *graph.shape))
    return graph * values + error * rng.normal(size=values.shape)


def checks(correlation=0.0, mixing=None, share=0.3):
    noise = np.eye(3)
    noise[0, 2] = noise[2, 0] = correlation
    return AxisChecks(noise, np.full(3, share), np.zeros((3, 3)) if mixing is None else mixing)


@pytest.mark.parametrize("scale", [np.ones(3), np.array([0.5, 1.0, 2.0])])
def test_error_of_the_mixing_is_that_of_rotations_fitted_to_noisy_jacobians(scale):
    """Least squares for the angles, with derivatives by differences of rotated Jacobians."""
    d, error, rng = 3, 0.03, np.random.default_rng(1)
    truth = GRAPH * np.cos(rng.normal(size=(50, d, d)))
    pairs = [(i, j) for i in range(d) for j in range(i)]
    columns = []
    for i, j in pairs:
        mix = np.zeros((d, d))
        mix[i, j], mix[j, i] = scale[i] / scale[j], -scale[j] / scale[i]
        near = np.eye(d) + 1e-6 * mix
        columns.append(((near @ truth @ np.linalg.inv(near) - truth) / 1e-6)[:, ~GRAPH])
    design = np.stack(columns, -1)
    second = np.einsum("sek,sel->kl", design, design) / len(design)
    expected = np.sqrt(error**2 * np.diag(np.linalg.inv(second)))
    noisy = truth + (~GRAPH) * error * rng.choice([-1.0, 1.0], truth.shape)
    found = mixing_error(noisy, GRAPH, scale)
    for (i, j), one in zip(pairs, expected, strict=True):
        assert found[i, j] == pytest.approx(one * scale[i] / scale[j], rel=0.1)
        assert found[j, i] == pytest.approx(one * scale[j] / scale[i], rel=0.1)


def test_rotations_that_keep_the_zeros_are_free():
    """Two latents that drive nothing else and have the same parents may be rotated into each other."""
    graph = np.array([[1, 0, 0], [1, 0, 0], [1, 0, 0]]) == 1
    found = mixing_error(jacobians(graph, bent=False), graph, np.ones(3))
    assert found[1, 2] == found[2, 1] == 1.0
    assert found[0].max() < 0.2
    assert mixing_error(jacobians(GRAPH), GRAPH, np.ones(3)).max() < 0.1
    full = np.ones((3, 3)) == 1
    assert (mixing_error(jacobians(full), full, np.ones(3)) == 1 - np.eye(3)).all()


def test_latents_that_share_noise_are_named_and_no_others():
    (found,) = axis_findings(checks(correlation=0.5), NAMES, 1)
    assert found.factors == ("latent 1", "latent 3")
    assert "0.50" in found.message
    assert axis_findings(checks(correlation=0.1), NAMES, 1) == []
    assert axis_findings(checks(correlation=0.5, share=1e-3), NAMES, 1) == []  # errors of the fit, not noise
    assert axis_findings(checks(correlation=0.5), NAMES, 0) == []


def test_a_latent_that_may_hold_another_is_in_doubt_with_its_edges():
    mixing = np.zeros((3, 3))
    mixing[1, 2] = 0.6
    (found,) = axis_findings(checks(mixing=mixing), NAMES, 1)
    assert found.factors == ("latent 2",)
    assert "latent 3" in found.message
    touched = doubted_edges([found], NAMES, NAMES, targets_are_factors=True)
    assert touched.sum() == 5
    assert not touched[0, 2]


def test_a_narrow_gap_is_a_doubt_and_little_influence_where_noise_does_not_fix_the_axes():
    def table(gap, influence):
        return pd.DataFrame({"gap": [gap, 2.0], "influence": [influence, 1.0]})

    little = checks(share=1e-3)
    assert graph_findings(table(2.0, 0.8), 0, little) == []
    (everything,) = graph_findings(table(0.5, 0.8), 0, checks())
    assert everything.touches_all
    (near,) = graph_findings(table(0.5, 0.8), 0, checks(), [("latent 1", "latent 2")])
    assert "which of 1 edge(s) near that break are there is a guess" in near.message
    assert doubted_edges([near], NAMES, NAMES, targets_are_factors=True).sum() == 1
    (linear,) = graph_findings(table(2.0, 1 / 26), 0, little)
    assert "span 4% of the directions" in linear.message
    assert "nearly linear" in linear.message
    (unseen,) = graph_findings(table(2.0, 1 / 26).assign(beyond_linear=0.4), 0, little)
    assert "do not show that the dynamics bend" in unseen.message
    assert graph_findings(table(2.0, 1 / 26), 1, little) == []  # of the best restart only
    assert graph_findings(table(2.0, 1 / 26), 0, checks()) == []


def test_only_edges_near_the_break_are_unclear():
    strength = np.array([[5.0, 2.1, 1.9, 1.3], [1.0, 0.7, 0.6, 9.0]])
    graph = np.array([[1, 1, 1, 1], [0, 0, 0, 0]])
    free = np.ones((2, 4), bool)
    free[1, 3] = False  # forbidden, however strong it would be
    expected = [[False, False, True, True], [True, True, False, False]]  # twice 1.0, and half of 1.3
    assert unclear_edges(strength, graph, free).tolist() == expected
    assert not unclear_edges(strength, np.ones((2, 4)), free).any()  # no zero to be near to


def test_an_edge_about_which_graph_and_evidence_differ_is_in_doubt_alone():
    assert evidence_findings([], [], []) == []
    edges = [("latent 3", "latent 1"), ("latent 3", "latent 1"), ("latent 2", "latent 2")]  # two lags of one
    (differing,) = evidence_findings(edges, [1.87, 0.5, 0.01], [0.01, 0.02, 0.97])
    assert "latent 1 -> latent 3 (derivative 1.87, probability 0.01)" in differing.message
    touched = doubted_edges([differing], NAMES, NAMES, targets_are_factors=True)
    assert np.argwhere(touched).tolist() == [[1, 1], [2, 0]]


def test_restarts_doubt_the_latent_that_none_has_and_the_edge_that_none_has():
    rng = np.random.default_rng(0)
    own = rng.normal(size=(500, 3))
    other = own.copy()
    other[:, 1] = 0.5 * own[:, 1] + rng.normal(size=500)
    allowed = np.eye(3) == 1
    (found,) = restart_findings(np.stack([own, other]), 0, allowed, [[], []], NAMES)
    assert found.factors == ("latent 2",)
    assert restart_findings(np.stack([own, other, own]), 0, allowed, [[], [], []], NAMES) == []
    edge = ("latent 1", "latent 3")
    (found,) = restart_findings(np.stack([own, own]), 0, allowed, [[], [edge]], NAMES)
    assert found.edges == (edge,)
    assert found.is_doubt
    assert restart_findings(np.stack([own] * 3), 0, allowed, [[], [edge], []], NAMES) == []
    (alone,) = restart_findings(own[None], 0, allowed, [[]], NAMES)
    assert not alone.is_doubt


def test_mixing_that_the_graph_allows_is_no_doubt_of_a_restart():
    rng = np.random.default_rng(0)
    own = rng.normal(size=(500, 3))
    other = own.copy()
    other[:, 0] = own[:, 0] + own[:, 1]
    allowed = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]]) == 1
    assert restart_findings(np.stack([own, other]), 0, allowed, [[], []], NAMES) == []
    (found,) = restart_findings(np.stack([own, other]), 0, np.eye(3) == 1, [[], []], NAMES)
    assert found.factors == ("latent 1",)
