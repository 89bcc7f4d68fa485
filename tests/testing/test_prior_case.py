"""The battery fails what it should: one deliberate fault at a time, each caught by the check meant for it."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy import stats

from pyro_sparse import priors
from pyro_sparse.distributions import SpikeSlabLasso as SpikeSlabLassoDensity
from pyro_sparse.priors import em
from pyro_sparse.testing import PriorTestCase


def battery(prior_class, **settings):
    class Case(PriorTestCase):
        def make(self):
            return prior_class(**settings)

        def by_scipy(self, prior):
            slab, spike = float(prior.lambda1), float(prior.lambda0)
            return prior.eta.numpy(), stats.laplace(scale=1 / slab), stats.laplace(scale=1 / spike)

    return Case()


class DroppedNormalisers(priors.SpikeSlabLasso):
    """The E-step as widely published: without lambda1 and lambda0 before the exponentials."""

    def edge_log_odds(self, weights):
        return torch.logit(self.eta) + (self.lambda0 - self.lambda1) * weights.abs()


class ForgottenBeta(priors.SpikeSlabLasso):
    """An M-step that forgets the Beta prior."""

    def update(self, weights, prob=None):
        self.eta.copy_(self.edge_log_odds(weights).sigmoid().mean(1, keepdim=True))


class ForgottenMask(priors.SpikeSlabLasso):
    """An M-step that counts forbidden edges."""

    def update(self, weights, prob=None):
        prob = em.edge_probability(weights, self.eta, self.lambda1, self.lambda0)
        self.eta.copy_(em.eta_step(prob, self.a, self.b))


class LocalProx(priors.SpikeSlabLasso):
    """The common shortcut: soft threshold at the current slope, a local step and not the minimiser."""

    def prox(self, weights, step):
        return em.soft_threshold(
            weights, step * em.penalty_rate(weights, self.eta, self.lambda1, self.lambda0)
        )


class LearnedLaplace(priors.Laplace):
    def __init__(self):
        super().__init__(rate=3.0, learn=True)


class StartProx(LearnedLaplace):
    """Thresholds by the rate it began with, not the learned one."""

    def prox(self, weights, step):
        return em.soft_threshold(weights, step * self.start).masked_fill(~self.allowed, 0.0)


class FirstProx(LearnedLaplace):
    """The rate of restart 0 and factor 0 for everybody."""

    def prox(self, weights, step):
        return em.soft_threshold(weights, step * self.rate[:1, :, :1]).masked_fill(~self.allowed, 0.0)


class UnmaskedProx(LearnedLaplace):
    def prox(self, weights, step):
        return em.soft_threshold(weights, step * self.rate)


class StuckLadder(priors.SpikeSlabLasso):
    """A ladder that stops half-way."""

    def anneal(self, progress):
        super().anneal(progress / 2)


class Forgets(priors.SpikeSlabLasso):
    """Every step of the ladder begins anew."""

    def anneal(self, progress):
        super().anneal(progress)
        self.eta.fill_(0.5)


class ForgetsAtTheFoot(LearnedLaplace):
    """So does the foot of a ladder that has no other step."""

    def anneal(self, progress):
        if progress == 0:
            self.rate.fill_(self.start)


class Notes(priors.SpikeSlabLasso):
    """No fault: how often it learned, and from what, is noted in buffers that the density does not read."""

    def __init__(self):
        super().__init__()
        self.register_buffer("n_updates", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean_size", torch.zeros(()))
        self.register_buffer("sizes", torch.zeros(1))

    def allocate(self):
        super().allocate()
        self.sizes = self.sizes.new_zeros(self.n_factors)

    def update(self, weights, prob=None):
        super().update(weights, prob)
        self.n_updates += 1
        self.mean_size.copy_(weights.abs().mean())
        self.sizes.copy_(weights.abs().mean((0, 1)))


class Unnormalised(priors.Laplace):
    class Density(dist.Laplace):
        def log_prob(self, value):
            return super().log_prob(value) + 0.01

    def distribution(self):
        return self.Density(torch.zeros_like(self.rate), 1 / self.rate)


class BadSampler(priors.Laplace):
    class Density(dist.Laplace):
        def rsample(self, sample_shape=()):
            return 1.1 * super().rsample(sample_shape)

    def distribution(self):
        return self.Density(torch.zeros_like(self.rate), 1 / self.rate)


class NaNGradient(priors.Laplace):
    """|w| written as a square root has no derivative at zero."""

    class Density(dist.Laplace):
        def log_prob(self, value):
            return -((value**2).sqrt()) / self.scale - (2 * self.scale).log()

    def distribution(self):
        return self.Density(torch.zeros_like(self.rate), 1 / self.rate)


class WrongGradient(priors.Laplace):
    class Density(dist.Laplace):
        def log_prob(self, value):
            return (
                super().log_prob(value.detach())
                - 1.01 * (value - value.detach()).sum() * value.detach().sign()
            )

    def distribution(self):
        return self.Density(torch.zeros_like(self.rate), 1 / self.rate)


class Forgetful(priors.Laplace):
    """State kept outside the buffers."""

    scale = 1.0

    def update(self, weights, prob=None):
        self.scale = float(weights.abs().mean())

    def distribution(self):
        return dist.Laplace(torch.zeros_like(self.rate), torch.full_like(self.rate, self.scale))


class BadProgram(priors.Laplace):
    """A program that charges for forbidden edges."""

    def forward(self):
        return pyro.sample(self.site, self.distribution().expand(self.shape).to_event(2))


class SinglePrecision(priors.Laplace):
    def distribution(self):
        return dist.Laplace(torch.zeros_like(self.rate).float(), (1 / self.rate).float())


class NoChecks(priors.Laplace):
    def setup(self, n_features, n_factors, n_restarts=1, n_samples=None, allowed=None):
        self.n_features, self.n_factors, self.n_restarts = n_features, n_factors, n_restarts


class OtherSum(priors.SpikeSlabLasso):
    """Trains one density and declares another."""

    def log_density(self, weights):
        return 0.5 * super().log_density(weights)


class OtherDensity(OtherSum):
    """The other way round: a density that the sum of its parent does not know."""

    def log_density(self, weights):
        density = SpikeSlabLassoDensity(self.eta, self.lambda1, self.lambda0)
        return torch.where(self.allowed, density.log_prob(weights), 0.0).sum((-2, -1))

    def distribution(self):
        return SpikeSlabLassoDensity(self.eta, 2 * self.lambda1, self.lambda0)


class BentRates(priors.SpikeSlabLasso):
    """Rates that are not what update() learns."""

    @property
    def inclusion(self):
        return self.eta**2


class FixedRates(priors.SpikeSlabLasso):
    """Rates that do not follow the weights."""

    def update(self, weights, prob=None):
        self.eta.fill_(0.3)


class PointSpike(priors.SpikeSlabPrior):
    """All of the spike at zero."""

    def components(self):
        return dist.Laplace(0.0, 1.0), dist.Delta(torch.tensor(0.0))


class SizesByPosition(priors.SpikeSlabLasso):
    def setup(self, *sizes, allowed=None):
        super().setup(*sizes, allowed=allowed)


class NoProbabilities(priors.SpikeSlabLasso):
    def update(self, weights):
        super().update(weights)


class RatesByMethod(priors.SpikeSlabLasso):
    def inclusion(self):
        return self.eta


@pytest.mark.parametrize(
    "prior_class, check, message",
    [
        (OtherSum, "program_scores_the_density", "not close"),
        (OtherDensity, "program_scores_the_density", "not close"),
        (BentRates, "update_climbs_to_the_maximum", "lowered|is higher at"),
        (FixedRates, "update_climbs_to_the_maximum", "lowered|is higher at"),
        (PointSpike, "components_are_densities", "the spike of components.. is a Delta with mass"),
        (SizesByPosition, "signatures", "unexpected keyword argument 'n_features'"),
        (NoProbabilities, "signatures", r"NoProbabilities.update\(weights\): too many positional"),
        (RatesByMethod, "signatures", "RatesByMethod.inclusion: is a method, and the package reads it"),
        (DroppedNormalisers, "edge_odds_are_bayes", r"P\(edge"),
        (DroppedNormalisers, "update_climbs_to_the_maximum", "lowered|is higher at"),
        (ForgottenBeta, "update_climbs_to_the_maximum", "lowered|is higher at"),
        (ForgottenMask, "update_climbs_to_the_maximum", "lowered|is higher at"),
        (LocalProx, "prox_minimises", "is not the minimiser"),
        (StartProx, "prox_minimises", "is not the minimiser"),
        (FirstProx, "prox_minimises", "is not the minimiser"),
        (UnmaskedProx, "prox_minimises", "0 at forbidden edges"),
        (StuckLadder, "ladder_ends_at_the_prior", "Not equal to tolerance"),
        (Forgets, "ladder_ends_at_the_prior", "changes what update.. learned: eta"),
        (ForgetsAtTheFoot, "ladder_ends_at_the_prior", "changes what update.. learned: rate"),
        (Unnormalised, "density_integrates_to_one", "mass of the density"),
        (BadSampler, "samples_follow_density", "do not follow"),
        (NaNGradient, "gradient", "at 0, 1e3 and -1e3 is"),
        (WrongGradient, "gradient", "w times the gradient"),
        (Forgetful, "state_dict_round_trip", "log_density changed"),
        (BadProgram, "program_scores_the_density", "not close"),
        (SinglePrecision, "dtype_and_device", "dtype.* do not match"),
        (NoChecks, "setup_refuses_bad_sizes", "was accepted"),
    ],
)
def test_a_fault_is_caught(prior_class, check, message):
    with pytest.raises(AssertionError, match=message):
        getattr(battery(prior_class), f"test_{check}")()


@pytest.mark.parametrize("prior_class", [priors.SpikeSlabLasso, Notes])
def test_the_same_prior_without_the_fault_passes(prior_class):
    case = battery(prior_class)
    for name in [n for n in dir(case) if n.startswith("test_")]:
        getattr(case, name)()


def test_missing_pieces_are_named():
    with pytest.raises(NotImplementedError, match=r"must define make\(\)"):
        PriorTestCase().test_gradient()

    class Odd(priors.Laplace):
        def edge_log_odds(self, weights):
            return torch.zeros_like(weights)

    class NoComponents(PriorTestCase):
        def make(self):
            return Odd()

    with pytest.raises(NotImplementedError, match=r"must define by_scipy\(prior\)"):
        NoComponents().test_edge_odds_are_bayes()


def test_density_written_apart_from_the_prior():
    """A distribution whose slab and spike are swapped must show against the components."""

    class Swapped(priors.SpikeSlabLasso):
        def distribution(self):
            return SpikeSlabLassoDensity(1 - self.eta, self.lambda0, self.lambda1)

    with pytest.raises(AssertionError):
        battery(Swapped).test_edge_odds_are_bayes()


def test_rates_are_compared_with_eta_itself():
    """By default the mixture is written down from eta, not from the prior's own `inclusion`."""

    class Rates(PriorTestCase):
        def make(self):
            return BentRates()

    with pytest.raises(AssertionError, match=r"P\(edge"):
        Rates().test_edge_odds_are_bayes()
