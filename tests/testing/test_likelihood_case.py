"""The battery fails what it should: one deliberate fault at a time, each caught by the check meant for it."""

from __future__ import annotations

import pyro.distributions as dist
import pytest
import torch

from pyro_sparse.models.likelihoods import Bernoulli, Likelihood, Multinomial, Normal, Poisson
from pyro_sparse.testing import LikelihoodTestCase


class WrongMean(Poisson):
    def mean(self, f, exposure=None):
        return 1.1 * super().mean(f, exposure)


class DeafToMasks(Bernoulli):
    def observation(self, f, mask=None, exposure=None):
        return super().observation(f, None, exposure)


class KeepsMissingInSoftmax(Multinomial):
    def observation(self, f, mask=None, exposure=None):
        return self(f, exposure)


class MixesRestarts(Normal):
    def forward(self, f, exposure=None):
        return dist.Normal(f.mean(0, keepdim=True).expand_as(f), self.noise_sd())


class NoGradient(Bernoulli):
    def forward(self, f, exposure=None):
        return dist.Bernoulli(logits=f.detach() + 0 * f)


class Overflows(Poisson):
    def forward(self, f, exposure=None):
        return dist.Poisson(f.exp(), validate_args=False)


class AcceptsAnything(Poisson):
    def check(self, x, feature_names=None):
        pass


class HalfDensity(Bernoulli):
    def log_prob(self, f, x, mask=None, exposure=None):
        return 0.5 * super().log_prob(f, x, mask, exposure)


class WrongSlopes(Normal):
    def slopes(self, *args, **kwargs):
        found = super().slopes(*args, **kwargs)
        return found._replace(by_f=-found.by_f)


class WrongOwnSlopes(Normal):
    """Forgets the weight of the priors."""

    def slopes(self, f, x, mask=None, exposure=None, of_cells=1.0, of_priors=1.0):
        return super().slopes(f, x, mask, exposure, of_cells)


class SlopesDeafToMasks(Normal):
    def slopes(self, f, x, mask=None, exposure=None, of_cells=1.0, of_priors=1.0):
        return super().slopes(f, x, None, exposure, of_cells, of_priors)


class NegatedGain(Normal):
    def feature_gain(self, full, reduced):
        return -super().feature_gain(full, reduced)


class MeanStatistic(Bernoulli):
    def feature_statistic(self, f, reference, x, mask=None, exposure=None):
        return super().feature_statistic(f, reference, x, mask, exposure) / f.shape[1]


class SigmaForItsSquare(Normal):
    def values(self):
        return {"sigma2": self._sd().squeeze(1)}


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (HalfDensity, "test_density_sums_to_one"),
        (WrongMean, "test_mean_is_the_expectation"),
        (DeafToMasks, "test_masking_is_dropping"),
        (DeafToMasks, "test_masked_cells_pass_no_gradient"),
        (KeepsMissingInSoftmax, "test_masking_is_dropping"),
        (MixesRestarts, "test_restarts_do_not_mix"),
        (NoGradient, "test_gradient"),
        (Overflows, "test_extreme_predictors_stay_finite"),
        (AcceptsAnything, "test_check"),
        (WrongSlopes, "test_slopes"),
        (WrongOwnSlopes, "test_slopes"),
        (SlopesDeafToMasks, "test_slopes"),
        (NegatedGain, "test_feature_gain"),
        (MeanStatistic, "test_feature_gain"),
        (SigmaForItsSquare, "test_shapes_and_dtypes"),
    ],
)
def test_broken_likelihoods_fail(broken, check):
    class Case(LikelihoodTestCase):
        bad_values = (-1.0, 2.5)

        def make(self):
            return broken()

    with pytest.raises(AssertionError):
        getattr(Case(), check)()


class Waiting(Likelihood):
    """Exponential waiting times: positive."""

    def forward(self, f, exposure=None):
        return dist.Exponential(torch.exp(-f))


class Shares(Likelihood):
    """In (0, 1)."""

    def forward(self, f, exposure=None):
        return dist.Beta(2 + f.sigmoid(), 3 - f.sigmoid())


@pytest.mark.parametrize("bounded", [Waiting, Shares])
def test_a_density_is_integrated_over_its_support(bounded):
    class Case(LikelihoodTestCase):
        def make(self):
            return bounded()

    Case().test_density_sums_to_one()
