"""Settings of the spike-and-slab priors: what "auto" means, the ladder, masks, pruning, and every message."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from pyro_sparse.priors import (
    ARDNormal,
    Horseshoe,
    Laplace,
    Prior,
    RegularisedHorseshoe,
    SpikeSlabLasso,
    SpikeSlabNormal,
    SpikeSlabPrior,
)


def ready(prior, g=10, k=3, r=1, n=None, allowed=None):
    prior.setup(g, k, r, n, allowed)
    return prior


def test_auto_spike_grows_with_the_sample():
    assert ready(SpikeSlabLasso()).lambda0 == 200
    assert ready(SpikeSlabLasso(), n=50).lambda0 == 200
    assert ready(SpikeSlabLasso(), n=3000).lambda0 == 3000
    assert ready(SpikeSlabLasso(lambda1=500.0)).lambda0 == 500


def test_screening_follows_the_spike():
    assert ready(SpikeSlabLasso(lambda0=70.0)).screening_rate() == 70
    assert ready(SpikeSlabLasso(), n=3000).screening_rate() == 3000
    assert ready(Laplace()).screening_rate() == 0


def test_beta_prior_of_eta():
    allowed = torch.ones(10, 3, dtype=torch.bool)
    allowed[:6, 1] = False
    np.testing.assert_allclose(ready(SpikeSlabLasso()).b, [[10, 10, 10]])
    np.testing.assert_allclose(ready(SpikeSlabLasso(), allowed=allowed).b, [[10, 4, 10]])
    np.testing.assert_allclose(ready(SpikeSlabLasso(eta="global"), allowed=allowed).b, [[24, 24, 24]])
    np.testing.assert_allclose(ready(SpikeSlabLasso(b=3.0)).b, [[3, 3, 3]])
    prior = ready(SpikeSlabLasso(a=2.0, expected_size=2.5), allowed=allowed)
    mean = 2.0 / (2.0 + prior.b)
    np.testing.assert_allclose(mean * allowed.sum(0), [[2.5, 2.5, 2.5]], rtol=1e-6)


def test_log_hyper_is_the_density_of_eta():
    prior = ready(SpikeSlabLasso(a=2.0, b=3.0), r=2)
    prior.eta.copy_(torch.rand(2, 1, 3, generator=torch.Generator().manual_seed(0)))
    wanted = stats.beta(2, 3).logpdf(prior.eta).sum((1, 2))
    np.testing.assert_allclose(prior.log_hyper(), wanted, rtol=1e-5)
    shared = ready(SpikeSlabLasso(a=2.0, b=3.0, eta="global"), r=2)
    np.testing.assert_allclose(
        shared.log_hyper(), stats.beta(2, 3).logpdf(0.5), rtol=1e-5
    )  # one eta: counted once
    ibp = ready(SpikeSlabLasso(column="ibp", alpha=0.5))
    ibp.eta.copy_(torch.tensor([[[0.2, 0.6, 0.3]]]))
    sticks = np.array([0.6, 0.3 / 0.6, 0.2 / 0.3])
    np.testing.assert_allclose(ibp.log_hyper(), stats.beta(0.5, 1).logpdf(sticks).sum(), rtol=1e-5)


@pytest.mark.parametrize(
    "settings, path",
    [
        ({"lambda0": 100.0}, [(1, 1), (1, 10), (1, 100)]),
        ({"lambda0": 100.0, "ladder": "linear"}, [(1, 1), (1, 50.5), (1, 100)]),
        ({"lambda0": 100.0, "ladder_start": 25.0}, [(25, 25), (5, 50), (1, 100)]),
        ({"lambda0": 100.0, "ladder": None}, [(1, 100), (1, 100), (1, 100)]),
    ],
)
def test_ladder(settings, path):
    prior = ready(SpikeSlabLasso(**settings))
    for progress, (slab, spike) in zip((0.0, 0.5, 1.0), path, strict=True):
        prior.anneal(progress)
        assert prior.lambda1.item() == pytest.approx(slab) and prior.lambda0.item() == pytest.approx(spike)
    prior.anneal(7.0)
    assert prior.lambda0.item() == pytest.approx(path[-1][1])


def test_foot_of_the_ladder_is_a_lasso():
    prior = ready(SpikeSlabLasso(ladder_start=4.0))
    prior.anneal(0.0)
    w = torch.linspace(-3, 3, 30).reshape(1, 10, 3)
    torch.testing.assert_close(prior.prox(w, 0.1), torch.nn.functional.softshrink(w, 0.4))
    torch.testing.assert_close(prior.edge_log_odds(w), torch.zeros(1, 10, 3))


def test_normal_ladder():
    prior = ready(SpikeSlabNormal(slab_scale=1.0, spike_scale=0.01))
    assert prior.spike_scale.item() == pytest.approx(0.01)
    for progress, scale in ((0.0, 1.0), (0.5, 0.1), (1.0, 0.01)):
        prior.anneal(progress)
        assert prior.spike_scale.item() == pytest.approx(scale)


def test_forbidden_edges():
    allowed = torch.ones(10, 3, dtype=torch.bool)
    allowed[4:, 0] = False
    prior = ready(SpikeSlabLasso(), allowed=allowed)
    w = torch.full((1, 10, 3), 2.0)
    assert (prior.edge_log_odds(w)[0, 4:, 0] == -torch.inf).all()
    assert (prior.prox(w, 1e-3)[0, 4:, 0] == 0).all() and (prior.prox(w, 1e-3)[0, :4] > 0).all()
    prior.update(w)
    # Every free feature is an edge: with 4 of them eta = 4 / (4 + 4 - 1), not 4 / (10 + 10 - 1).
    np.testing.assert_allclose(prior.eta[0, 0], [4 / 7, 10 / 19, 10 / 19], rtol=1e-5)
    for other in (Laplace(), ARDNormal()):
        new = ready(other, allowed=allowed).prox(w, 0.1)
        assert (new[0, 4:, 0] == 0).all() and (new[0, :4, 0] > 0).all()


@pytest.mark.parametrize("column", ["none", "ibp"])
def test_unused_factors_die_and_are_reported(column):
    prior = ready(SpikeSlabLasso(lambda0=300.0, column=column), g=12, k=4)
    w = torch.zeros(1, 12, 4)
    w[0, :5, 1], w[0, 4:9, 3] = 1.0, -0.8
    w[0, 0, 0] = 1e-3  # a crumb is not an edge
    for _ in range(30):
        prior.update(w)
    assert (prior.eta[0, 0, [0, 2]] < 1e-3).all() and (prior.eta[0, 0, [1, 3]] > 0.2).all()
    assert (prior.edge_log_odds(w) > 0).any(-2).tolist() == [[False, True, False, True]]


def test_priors_without_a_spike_have_no_odds():
    for prior in (Laplace(), Horseshoe(), RegularisedHorseshoe(), ARDNormal()):
        assert ready(prior).edge_log_odds(torch.zeros(1, 10, 3)) is None


def test_given_probabilities_are_used():
    prior = ready(SpikeSlabLasso(b=1.0), r=2)
    prior.update(torch.zeros(2, 10, 3), prob=torch.full((2, 10, 3), 0.3))
    np.testing.assert_allclose(prior.eta, 0.3, rtol=1e-6)


def test_global_eta_is_shared():
    prior = ready(SpikeSlabLasso(eta="global", b=1.0), r=2)
    prob = torch.zeros(2, 10, 3)
    prob[0, :, 0], prob[1] = 1.0, 0.25
    prior.update(prob, prob=prob)
    np.testing.assert_allclose(prior.eta[:, 0], [[1 / 3] * 3, [0.25] * 3], rtol=1e-6)


def test_regularised_horseshoe_scale():
    prior = ready(RegularisedHorseshoe(expected_size=2), n=100)
    assert prior.tau.item() == pytest.approx(2 / 8 / math.sqrt(100))
    assert ready(RegularisedHorseshoe(tau=0.3)).tau.item() == pytest.approx(0.3)
    assert prior.distribution().variance < prior.slab_scale**2


def test_learned_rate_and_precision():
    w = torch.tensor([1.0, -2.0, 3.0]).reshape(1, 3, 1)
    laplace = ready(Laplace(learn=True, a=2.0, b=0.5), g=3, k=1)
    laplace.update(w)
    assert laplace.rate.item() == pytest.approx((3 + 1) / (6 + 0.5))
    fixed = ready(Laplace(rate=2.0), g=3, k=1)
    fixed.update(w)
    assert fixed.rate.item() == 2.0 and fixed.log_hyper().tolist() == [0.0]
    ard = ready(ARDNormal(a=2.0, b=0.5), g=3, k=1)
    ard.update(w)
    assert ard.precision.item() == pytest.approx((3 + 2) / (14 + 1))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: SpikeSlabLasso(lambda1=-1.0), "lambda1 is -1.0; it must be a positive finite number"),
        (lambda: SpikeSlabLasso(lambda1="auto"), "lambda1 is 'auto'"),
        (lambda: SpikeSlabLasso(lambda1=5.0, lambda0=2.0), "lambda0 is 2.0 and lambda1 5.0"),
        (lambda: SpikeSlabLasso(a=math.inf), "a is inf"),
        (lambda: SpikeSlabLasso(b=2.0, expected_size=3), "both set the prior of eta"),
        (lambda: SpikeSlabLasso(eta="row"), "eta is 'row'"),
        (lambda: SpikeSlabLasso(ladder="steep"), "ladder is 'steep'"),
        (lambda: SpikeSlabLasso(column="beta"), "column is 'beta'"),
        (lambda: SpikeSlabLasso(column="ibp", expected_size=2), "replaces the Beta prior"),
        (lambda: SpikeSlabLasso(alpha=2.0), "alpha is 2.0 without"),
        (lambda: SpikeSlabNormal(spike_scale=2.0), "spike_scale is 2.0 and slab_scale 1.0"),
        (lambda: SpikeSlabNormal(ladder="linear"), "ladder is 'linear'"),
        (lambda: Laplace(rate=0.0), "rate is 0.0"),
        (lambda: ARDNormal(b=-1.0), "b is -1.0"),
        (lambda: Horseshoe(tau=True), "tau is True"),
        (lambda: RegularisedHorseshoe(tau=1.0, expected_size=2), "both set the scale"),
        (lambda: ready(SpikeSlabLasso(expected_size=10)), "expected_size is 10 and a factor has at most 10"),
        (lambda: ready(RegularisedHorseshoe(expected_size=10)), "expected_size is 10 with n_features=10"),
        (lambda: ready(Laplace(), g=0), "n_features: want a whole number of at least 1, got 0"),
        (lambda: ready(Laplace(), k=1.5), "n_factors: want a whole number of at least 1, got 1.5"),
        (lambda: ready(Laplace(), allowed=torch.ones(3, 10)), r"allowed has shape \(3, 10\)"),
    ],
)
def test_bad_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_numpy_numbers_are_numbers():
    prior = SpikeSlabLasso(np.float32(2.0), lambda0=np.int64(40))
    prior.setup(np.int64(10), np.int64(3))
    assert prior.lambda1 == 2 and prior.lambda0 == 40 and prior.shape == (1, 10, 3)


def test_a_law_without_spike_and_slab_wants_odds_of_its_own():
    class Own(SpikeSlabLasso):
        def distribution(self):
            return torch.distributions.Laplace(torch.zeros_like(self.eta), 1.0)

    prior = Own()
    prior.setup(6, 2)
    weights = torch.randn(1, 6, 2)
    for ask in (prior.edge_log_odds, prior.update):
        with pytest.raises(
            TypeError, match=r"Own: distribution\(\) returns a Laplace.* override edge_log_odds"
        ):
            ask(weights)


def test_a_prior_needs_a_distribution():
    with pytest.raises(NotImplementedError, match=r"Prior does not define distribution\(\)"):
        ready(Prior()).distribution()


@pytest.mark.parametrize("make", [SpikeSlabLasso, SpikeSlabNormal])
def test_components_are_what_the_density_mixes(make):
    prior = ready(make())
    prior.anneal(0.6)
    w = torch.linspace(-2, 2, 15, dtype=torch.float64)[:, None, None]
    slab, spike = (part.log_prob(w).exp() for part in prior.components())
    mixed = prior.eta * slab + (1 - prior.eta) * spike
    torch.testing.assert_close(prior.distribution().log_prob(w).exp(), mixed.expand(15, 1, prior.n_factors))


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        (
            (0.5, 0.1),
            TypeError,
            r"Own.components\(\) returns \(0.5, 0.1\); it must return slab and spike, two",
        ),
        ((torch.distributions.Normal(0.0, 1.0),), TypeError, "two distributions of torch or Pyro"),
        (stats.norm(0, 1), TypeError, "two distributions of torch or Pyro"),
        (
            (torch.distributions.Normal(0.0, 0.1), torch.distributions.Normal(0.0, 1.0)),
            ValueError,
            "slab first, then the spike, which is narrower",
        ),
    ],
)
def test_components_are_looked_at(parts, error, message):
    class Own(SpikeSlabPrior):
        def components(self):
            return parts

    with pytest.raises(error, match=message):
        ready(Own())


def test_a_family_needs_components():
    assert Prior().components() is None
    with pytest.raises(NotImplementedError, match=r"SpikeSlabPrior does not define components\(\)"):
        ready(SpikeSlabPrior())
