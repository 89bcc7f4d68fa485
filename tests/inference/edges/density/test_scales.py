"""Scales of spike and slab: the test against direct search and its own null, the draw against its density."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import optimize, special, stats

import pyro_sparse as ps
from pyro_sparse.inference.edges.density.mixture import MixtureDensity
from pyro_sparse.inference.edges.density.scales import (
    check_scales,
    drawn_density,
    likeliest_density,
    of_one_kind,
    unlike_prior,
)

SLAB, SPIKE = 1.5, 0.1
SHAPE = (30, 4)
FREE, NONE = np.ones(SHAPE, dtype=bool), np.zeros(SHAPE, dtype=bool)
FAMILIES = {True: stats.laplace, False: stats.norm}
ANCHORED = np.arange(30)[:, None] == np.arange(4)  # must be there, and no other edge of these features
PERMITTED = ANCHORED | (np.arange(30) > 3)[:, None]


def drawn(rng, laplace=True, n=1, must=NONE, permitted=FREE, slab=SLAB, spike=SPIKE):
    """Weights and rates' log odds from the prior."""
    eta = rng.beta(2, 4, size=(n, 1, SHAPE[1]))
    edge = (rng.random((n, *SHAPE)) < eta) | must
    unit = rng.laplace(size=edge.shape) if laplace else rng.standard_normal(edge.shape)
    weight = unit * np.where(edge, slab, spike) * permitted
    return weight, special.logit(eta)


@pytest.mark.parametrize("laplace", [True, False])
def test_ratio_is_that_of_a_direct_search(laplace):
    """With one draw the p value is twice that of chi-squared at twice the gain of Nelder and Mead's best."""
    weight, odds = drawn(np.random.default_rng(1), laplace, must=ANCHORED, permitted=PERMITTED, spike=0.18)
    kind, eta = FAMILIES[laplace], special.expit(odds[0])

    def loss(log_scales):
        slab, spike = (kind.pdf(weight[0], scale=s) for s in np.exp(np.clip(log_scales, -9, 9)))
        each = np.where(ANCHORED, slab, eta * slab + (1 - eta) * spike)
        return -np.log(each[PERMITTED]).sum()

    told = np.log([SLAB, SPIKE])
    best = optimize.minimize(loss, told, method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-9})
    found = check_scales(weight, odds, MixtureDensity(laplace, SLAB, SPIKE), PERMITTED, ANCHORED)
    assert best.fun < loss(told) - 1
    expected = 2 * stats.chi2.sf(2 * (loss(told) - best.fun), 2)
    assert found.p_value == pytest.approx(expected, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("laplace", [True, False])
def test_p_values_of_prior_draws_are_no_smaller_than_uniform_ones(laplace):
    rng, density = np.random.default_rng(2), MixtureDensity(laplace, SLAB, SPIKE)
    p = [check_scales(*drawn(rng, laplace), density, FREE, NONE).p_value for _ in range(300)]
    single = np.array(p) / 2  # of a single draw, as far as it was not cut at 1
    low = [(single < level).mean() for level in (0.05, 0.1, 0.3)]
    np.testing.assert_allclose(low, (0.05, 0.1, 0.3), atol=0.05)  # and so the test is no idle one either


def test_scales_of_all_draws_are_found_from_a_prior_that_is_far_off():
    weight, odds = drawn(np.random.default_rng(3), n=40)
    for slab, spike in ((0.3, 0.02), (1.0, 1 / 2800), (20.0, 5.0)):
        found = check_scales(weight, odds, MixtureDensity(True, slab, spike), FREE, NONE)
        assert found.p_value < 1e-6
        np.testing.assert_allclose((found.slab, found.spike), (SLAB, SPIKE), rtol=0.08)
        assert found.edges_then == pytest.approx(30 * special.expit(odds).sum((1, 2)).mean(), rel=0.05)


def test_one_rate_for_all_is_one_rate_for_all():
    rng = np.random.default_rng(4)
    weight, odds = drawn(rng, n=20)
    density = MixtureDensity(True, SLAB, SPIKE)
    each, one = (check_scales(weight, odds, density, FREE, NONE, shared) for shared in (False, True))
    assert each.p_value == one.p_value and each.slab != one.slab


def test_nothing_to_go_by():
    weight, odds = drawn(np.random.default_rng(5))
    density = MixtureDensity(True, SLAB, SPIKE)
    assert check_scales(weight, odds, density, ANCHORED, ANCHORED) is None
    assert likeliest_density(weight, odds, density, ANCHORED, ANCHORED) is density


def test_a_leap_is_to_the_scales_that_the_test_finds():
    weight, odds = drawn(np.random.default_rng(9), n=4)
    density = MixtureDensity(True, 0.3, 0.02)
    leap, check = (
        likeliest_density(weight, odds, density, FREE, NONE),
        check_scales(weight, odds, density, FREE, NONE),
    )
    assert (leap.slab, leap.spike, leap.laplace) == (check.slab, check.spike, True)
    assert leap.slab == pytest.approx(SLAB, rel=0.3) and leap.spike == pytest.approx(SPIKE, rel=0.3)


def test_half_of_the_draws_reject_nothing():
    rng, density = np.random.default_rng(11), MixtureDensity(True, SLAB, SPIKE)
    (right, odds), (wrong, more) = drawn(rng, n=20), drawn(rng, n=20, spike=5 * SPIKE)
    assert check_scales(wrong, more, density, FREE, NONE).p_value < 1e-3
    both = np.concatenate([right, wrong]), np.concatenate([odds, more])
    assert check_scales(*both, density, FREE, NONE).p_value > 0.01


def test_draws_that_are_no_numbers_move_no_scale():
    rng, density = np.random.default_rng(12), MixtureDensity(True, SLAB, SPIKE)
    weight = drawn(rng)[0]
    weight[0, 0], weight[0, 1], weight[0, 2] = np.inf, np.nan, -np.inf
    found = drawn_density(density, density, weight, np.abs(weight) > 0.5, FREE, rng)
    assert found is not density and np.isfinite([found.slab, found.spike]).all()


def test_only_scales_with_fewer_edges_are_a_warning():
    weight, odds = drawn(np.random.default_rng(10), n=10)
    narrow, wide = (MixtureDensity(True, *scales) for scales in ((0.3, 0.02), (3.0, 0.4)))
    many, few = (check_scales(weight, odds, density, FREE, NONE) for density in (narrow, wide))
    assert many.rejected and many.too_many
    assert few.rejected and not few.too_many and few.edges < few.edges_then


def test_learned_scales_that_are_alike_are_said_to_be():
    assert of_one_kind(0.31, 0.1) == []
    (said,) = of_one_kind(0.24, 0.2)
    assert "slab has a scale of 0.24, the spike of 0.2," in said


@pytest.mark.parametrize("laplace", [True, False])
def test_drawn_scales_have_their_conditional_law(laplace):
    rng = np.random.default_rng(6)
    weight = rng.standard_normal((2, *SHAPE))
    edge = np.abs(weight) > 0.7
    told, permitted = MixtureDensity(laplace, 2.0, 0.1), FREE.copy()
    permitted[:10] = False
    densities = [drawn_density(told, told, weight, edge, permitted, rng) for _ in range(2000)]
    for own, prior, found in (
        (edge & permitted, told.slab, [density.slab for density in densities]),
        (~edge & permitted, told.spike, [density.spike for density in densities]),
    ):
        n, w = own.sum(), np.abs(weight[own])
        if laplace:
            density, values = stats.invgamma(1 + n, scale=prior + w.sum()), np.array(found)
        else:
            density = stats.invgamma((1 + n) / 2, scale=(prior**2 + (w**2).sum()) / 2)
            values = np.square(found)
        assert stats.kstest(values, density.cdf).pvalue > 1e-3


def test_a_spike_stays_below_the_slab_and_an_empty_part_near_its_prior():
    rng = np.random.default_rng(7)
    told, weight = MixtureDensity(True, 1.0, 0.01), rng.laplace(size=(1, *SHAPE))
    assert drawn_density(told, told, weight, np.abs(weight) < 1, FREE, rng) is told  # spikes above slabs
    empty = [
        drawn_density(told, told, weight, np.ones_like(weight, dtype=bool), FREE, rng) for _ in range(400)
    ]
    assert np.median([density.spike for density in empty]) == pytest.approx(0.01 / np.log(2), rel=0.3)


def test_the_sentence_names_scales_in_the_prior_s_own_words():
    wide = drawn(np.random.default_rng(8), n=10)
    prior = ps.priors.SpikeSlabLasso(lambda1=3.0, lambda0=50.0)
    check = check_scales(*wide, MixtureDensity(True, 1 / 3, 1 / 50), FREE, NONE)
    (said,) = unlike_prior(prior, check)
    assert said.startswith("The weights are unlike their prior, SpikeSlabLasso(lambda1=3, lambda0=50), p <")
    assert "lambda1=0." in said and "learn_scales=True" in said and f"about {check.edges_then:.0f} of" in said
    (said,) = unlike_prior(ps.priors.SpikeSlabNormal(1.0, 0.05), check)
    assert "SpikeSlabNormal(slab_scale=1, spike_scale=0.05)" in said and "slab_scale=1." in said
    (said,) = unlike_prior(prior, check._replace(edges=6.4, edges_then=5.6))
    assert "suit them better. Unless" in said and "would be edges" not in said
    assert unlike_prior(prior, check._replace(p_value=0.01)) == []
    alike = check._replace(spike=check.slab / 2)
    assert "of one kind" in unlike_prior(prior, alike)[0] and check.too_many and not alike.too_many


def table(rng, counts):
    """Of three factors with one anchor each, weights from slab and spike; counts have the narrower slab."""
    g, k = 24, 3
    edge = (rng.random((g, k)) < 0.4) | np.eye(g, k, dtype=bool)
    w = rng.laplace(scale=np.where(edge, 0.8 if counts else SLAB, SPIKE))
    w[:k] *= np.eye(k)
    f = rng.standard_normal((200, k)) @ w.T
    return rng.poisson(np.exp(np.minimum(f, 8))) if counts else f + 0.5 * rng.standard_normal(f.shape)


@pytest.mark.slow
@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("counts", [False, True])
def test_a_wrong_prior_is_said_and_its_scales_can_be_learned(counts):
    x = table(np.random.default_rng(2 if counts else 1), counts)  # with 1 counts reach the ceiling, e^8
    prior = ps.priors.SpikeSlabLasso(lambda1=6.0, lambda0=60.0, b=2.0)
    likelihood = ps.likelihoods.Poisson(size_factors=False) if counts else "normal"
    model = ps.models.SparseDecoder(
        24, 3, prior=prior, decoder="linear", likelihood=likelihood, anchors={k: k for k in range(3)}
    )
    fit = ps.fit(model, x, restarts=1, steps=300, seed=0, standardise=False, progress=False)
    with pytest.warns(RuntimeWarning, match="unlike their prior") as said:
        told = fit.edge_posterior("mcmc", sweeps=150, num_draws=20)
    assert all(w.filename == __file__ for w in said if "unlike" in str(w.message))
    assert "unlike their prior" in told.attrs["verdict"] and told.attrs["prior_p_value"] < 0.01
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        learned = fit.edge_posterior("mcmc", sweeps=150, num_draws=20, learn_scales=True)
    slab, spike = learned.attrs["prior_scales"]
    assert 0.5 < slab < 2.5 and 0.05 < spike < 0.2
    assert np.isnan(learned.attrs["prior_p_value"])
    edges = [found["edge_posterior"]["probability"].to_numpy().sum() for found in (told, learned)]
    assert edges[1] < 0.8 * edges[0]
