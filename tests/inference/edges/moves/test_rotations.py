"""Moves between axes: what they leave as it is, where they go, and who may move.

That chains with them leave the prior alone is tested with the chains (`test_edges_chains.py`).
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pyro_sparse.inference.edges.density.weight import SpikeSlab
from pyro_sparse.inference.edges.moves import rotations as _turns
from pyro_sparse.inference.edges.moves.rotations import Turns, related_factors
from pyro_sparse.priors import LKJ

SLAB, FLAT = 1.0, LKJ(1.0)


def turns(permitted, related=True, ratio=0.1, round_share=1.0, prior=FLAT):
    permitted = np.asarray(permitted, dtype=bool)
    density, k = SpikeSlab(True, np.array(ratio)), permitted.shape[1]
    must, every = np.zeros_like(permitted), np.full((k, k), related)
    return Turns(permitted, must, every, density, SLAB, round_share, prior)


THREE = np.array([[1.0, 0.5, 0.3], [0.5, 1.0, 0.2], [0.3, 0.2, 1.0]])


def test_a_turn_changes_neither_what_is_predicted_nor_the_law_of_the_factors():
    rng = np.random.default_rng(0)
    weight, z = rng.normal(size=(50, 4, 3)), rng.normal(size=(50, 7, 3))
    new, whole = turns(np.ones((4, 3))).turned(weight, THREE[None], np.zeros((50, 1, 3)), rng)
    assert (np.abs(new - weight).max((1, 2)) > 0.1).mean() > 0.9  # some angles are small
    np.testing.assert_allclose((z @ whole.swapaxes(1, 2)) @ new.swapaxes(1, 2), z @ weight.swapaxes(1, 2))
    np.testing.assert_allclose(whole @ THREE @ whole.swapaxes(1, 2), np.tile(THREE, (50, 1, 1)), atol=1e-12)


def test_a_swivel_keeps_the_covariance_of_what_is_predicted():
    rng = np.random.default_rng(0)
    weight, cov = rng.normal(size=(50, 4, 3)), np.tile(THREE, (50, 1, 1))
    new, other, by = turns(np.ones((4, 3))).swivelled(weight, cov, np.zeros((50, 1, 3)), rng)
    np.testing.assert_allclose(new @ by, weight, atol=1e-10)
    np.testing.assert_allclose(by @ cov @ by.swapaxes(1, 2), other, atol=1e-10)
    assert (np.abs(other - cov).max((1, 2)) > 0.01).mean() > 0.9
    np.testing.assert_allclose(np.diagonal(other, axis1=1, axis2=2), 1.0)
    np.testing.assert_allclose(
        new @ other @ new.swapaxes(1, 2), weight @ cov @ weight.swapaxes(1, 2), atol=1e-10
    )
    assert (np.linalg.eigvalsh(other) > 0).all()


@pytest.mark.parametrize("prior", [FLAT, LKJ((1.0, 30.0))])
@pytest.mark.slow
def test_swivels_leave_loadings_and_correlations_of_the_prior_alone(monkeypatch, prior):
    """Without data the prior is the density."""
    monkeypatch.setattr(_turns, "_CELLS", 10**9)
    rng, n, k = np.random.default_rng(1), 4000, 3
    cov = prior.draw(n, k, rng)
    permitted = np.ones((5, k), dtype=bool)
    permitted[0, 1:] = False  # the other two can be swivelled towards the first, which cannot be moved
    edge = rng.random((n, 5, k)) < 0.4
    weight = rng.laplace(size=edge.shape) * np.where(edge, SLAB, 0.1) * permitted
    log_odds = np.full((n, 1, k), np.log(0.4 / 0.6))
    own = turns(permitted, prior=prior)
    assert np.argwhere(own.swivels).tolist() == [[1, 0], [1, 2], [2, 0], [2, 1]]
    new, other = weight, cov
    for _ in range(60):
        new, other, _ = own.swivelled(new, other, log_odds, rng)
    assert np.corrcoef(cov[:, 1, 2], other[:, 1, 2])[0, 1] < 0.2 and not new[:, ~permitted].any()
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        assert stats.ttest_ind(cov[:, i, j] ** 2, other[:, i, j] ** 2, equal_var=False).pvalue > 6e-5
        assert stats.ks_2samp(cov[:, i, j], other[:, i, j]).pvalue > 1e-3
    for j, factor in [(0, 0), (2, 0), (2, 1), (3, 2)]:
        before, after = np.abs(weight[:, j, factor]), np.abs(new[:, j, factor])
        assert stats.ks_2samp(before, after).pvalue > 1e-3


@pytest.mark.slow
def test_angles_are_visited_as_often_as_the_prior_of_their_loadings_says(monkeypatch):
    """Against the density by scipy, over all angles; loadings of one factor are on record for each draw."""
    monkeypatch.setattr(_turns, "_CELLS", 10**9)
    rng = np.random.default_rng(0)
    n, cov = 20_000, np.array([[1.0, 0.4], [0.4, 2.0]])
    weight, log_odds = np.array([[1.0, 0.2], [0.7, -0.5], [0.3, 1.1]]), np.array([[-0.5, 1.0]])
    own = turns(np.ones((3, 2)))
    found, _ = own.turned(np.tile(weight, (n, 1, 1)), cov[None], np.tile(log_odds, (n, 1, 1)), rng)
    root = np.linalg.cholesky(cov)

    def at(angle):
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        return weight @ root @ turn @ np.linalg.inv(root)

    angles = np.linspace(0, np.pi, 4000, endpoint=False)
    all_ = np.stack([at(angle) for angle in angles])
    eta = 1 / (1 + np.exp(-log_odds))
    dens = eta * stats.laplace.pdf(all_) + (1 - eta) * stats.laplace.pdf(all_, scale=0.1)
    chance = dens.prod((1, 2)) / dens.prod((1, 2)).sum()
    for statistic in (np.abs, np.square, lambda w: np.abs(w) < 0.1):
        want = (chance[:, None, None] * statistic(all_)).sum(0)
        np.testing.assert_allclose(statistic(found).mean(0), want, atol=0.02 * max(1, want.max()))


def test_steps_alone_lead_to_the_prior_of_the_loadings_too(monkeypatch):
    """As above by many short steps, without any that goes all the way round."""
    monkeypatch.setattr(_turns, "_STEPS", (0.5, 1.5))
    rng, n = np.random.default_rng(0), 4000
    weight, log_odds = np.array([[1.0, 0.2], [0.7, -0.5], [0.3, 1.1]]), np.array([[-0.5, 1.0]])
    own, found, odds = (
        turns(np.ones((3, 2)), round_share=0.0),
        np.tile(weight, (n, 1, 1)),
        np.tile(log_odds, (n, 1, 1)),
    )
    for _ in range(120):
        found, _ = own.turned(found, np.eye(2)[None], odds, rng)
    angles = np.linspace(0, np.pi, 4000, endpoint=False)
    cos, sin = np.cos(angles), np.sin(angles)
    all_ = weight @ np.stack([cos, -sin, sin, cos], -1).reshape(-1, 2, 2)
    eta = 1 / (1 + np.exp(-log_odds))
    dens = eta * stats.laplace.pdf(all_) + (1 - eta) * stats.laplace.pdf(all_, scale=0.1)
    chance = dens.prod((1, 2)) / dens.prod((1, 2)).sum()
    for statistic in (np.abs, np.square):
        want = (chance[:, None, None] * statistic(all_)).sum(0)
        np.testing.assert_allclose(statistic(found).mean(0), want, atol=0.04 * max(1, want.max()))


def test_of_large_tables_fewer_pairs_move_and_they_seldom_go_round(monkeypatch):
    rng, own = np.random.default_rng(0), turns(np.ones((4, 8)))
    every = np.triu(own.pairs)
    assert len([far for _, far in own._some(every, 2, rng) if not far]) == 16  # two for each factor
    monkeypatch.setattr(_turns, "_CELLS", 3 * 2 * 2 * 4)
    sweeps = [own._some(every, 2, rng) for _ in range(300)]
    assert {sum(not far for _, far in pairs) for pairs in sweeps} == {3}
    monkeypatch.setattr(_turns, "_CELLS", 0.1 * 2 * 4 * 120)
    share = np.mean([any(far for _, far in own._some(every, 2, rng)) for _ in range(600)])
    assert 0.02 < share < 0.09  # a twentieth: 240 angles of all loadings are twenty times what is allowed


def test_only_factors_that_see_the_same_features_turn():
    everything = np.ones((4, 3), dtype=bool)
    assert turns(everything).pairs.sum() == 6
    assert not turns(everything, ratio=0.0).swivels.any()  # a point of zero does not turn
    assert not turns(everything, ratio=0.0).pairs.any()
    both = everything.copy()
    both[0, :2] = False  # the first two do not see the first feature, and the third one does
    assert np.argwhere(turns(both, related=False).pairs).tolist() == [[0, 1], [1, 0]]
    assert not turns(both).pairs.any()  # its loading on that feature would spread to them
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(3, 4, 3)) * both
    new, _ = turns(both, related=False).turned(weight, np.eye(3)[None], np.zeros((3, 1, 3)), rng)
    assert not new[:, ~both].any() and (new[..., 2] == weight[..., 2]).all()


def test_factors_are_related_where_any_chain_has_them_correlated():
    cov = np.tile(np.eye(3), (2, 1, 1))
    cov[1, 0, 2] = cov[1, 2, 0] = 0.3
    cov[0, 0, 1] = cov[0, 1, 0] = 1e-12  # rounding of an inverse
    assert np.argwhere(related_factors(cov)).tolist() == [[0, 2], [2, 0]]


def test_zeros_of_a_mode_are_not_swivelled():
    """They are no draws of a spike, under which loadings that grow as an angle closes are less likely."""
    rng = np.random.default_rng(0)
    weight, cov = rng.standard_normal((300, 30, 3)) / 10, np.tile(np.eye(3), (300, 1, 1))
    weight[:100, :, 1:], weight[100:200, 5:] = 0.0, 0.0
    new, other = weight, cov
    for _ in range(3):
        new, other, _ = turns(np.ones((30, 3))).swivelled(new, other, np.zeros((300, 1, 3)), rng)
    assert np.linalg.eigvalsh(other).min() > 1e-3
    moved = np.abs(other - cov).max((1, 2)) > 0.01
    assert moved[200:].mean() > 0.9 and not moved[100:200].any()
