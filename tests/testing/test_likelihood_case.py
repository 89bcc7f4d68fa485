"""The battery fails what it should: one deliberate fault at a time, each caught by the check meant for it."""

from __future__ import annotations

import math

import pyro.distributions as dist
import pytest
import torch

from pyro_sparse.likelihoods import Bernoulli, Likelihood, Multinomial, Normal, Poisson
from pyro_sparse.likelihoods.base import NOTHING
from pyro_sparse.likelihoods.given_cells import filled
from pyro_sparse.testing import LikelihoodTestCase


class WrongMean(Poisson):
    def mean(self, f, per_row=NOTHING):
        return 1.1 * super().mean(f, per_row)


class DeafToMasks(Bernoulli):
    def observation(self, f, mask=None, per_row=NOTHING):
        return super().observation(f, None, per_row)


class KeepsMissingInSoftmax(Multinomial):
    def observation(self, f, mask=None, per_row=NOTHING):
        return self(f, per_row)


class MixesRestarts(Normal):
    def forward(self, f, per_row=NOTHING):
        return dist.Normal(f.mean(0, keepdim=True).expand_as(f), self.noise_sd())


class NoGradient(Bernoulli):
    def forward(self, f, per_row=NOTHING):
        return dist.Bernoulli(logits=f.detach() + 0 * f)


class Overflows(Poisson):
    def forward(self, f, per_row=NOTHING):
        return dist.Poisson(f.exp(), validate_args=False)


class AcceptsAnything(Poisson):
    def check(self, x, feature_names=None):
        pass


class HalfDensity(Bernoulli):
    def log_prob(self, f, x, mask=None, per_row=NOTHING):
        return 0.5 * super().log_prob(f, x, mask, per_row)


class WrongSlopes(Normal):
    def slopes(self, *args, **kwargs):
        found = super().slopes(*args, **kwargs)
        return found._replace(by_f=-found.by_f)


class WrongOwnSlopes(Normal):
    """Forgets the weight of the priors."""

    def slopes(self, f, x, mask=None, per_row=NOTHING, of_cells=1.0, of_priors=1.0):
        return super().slopes(f, x, mask, per_row, of_cells)


class SlopesDeafToMasks(Normal):
    def slopes(self, f, x, mask=None, per_row=NOTHING, of_cells=1.0, of_priors=1.0):
        return super().slopes(f, x, None, per_row, of_cells, of_priors)


class NegatedGain(Normal):
    def feature_gain(self, full, reduced):
        return -super().feature_gain(full, reduced)


class MeanStatistic(Bernoulli):
    def feature_statistic(self, f, reference, x, mask=None, per_row=NOTHING):
        return super().feature_statistic(f, reference, x, mask, per_row) / f.shape[1]


class CountsMissingCells(Poisson):
    """Takes missing cells for what they are filled with."""

    def feature_statistic(self, f, reference, x, mask=None, per_row=NOTHING):
        return self(f, per_row).log_prob(filled(x, mask)[0]).sum(-2)


class ReadsBehindTheMask(Poisson):
    def feature_statistic(self, f, reference, x, mask=None, per_row=NOTHING):
        return self(f, per_row).log_prob(x.nan_to_num().clamp(min=0)).sum(-2)


class HundredfoldGain(Poisson):
    def feature_gain(self, full, reduced):
        return 100 * super().feature_gain(full, reduced)


class HundredfoldRefittedGain(Normal):
    def feature_gain(self, full, reduced):
        return 100 * super().feature_gain(full, reduced)


class MeasuredByItself(Poisson):
    """Exposures by the yardstick of whatever table is asked about."""

    def default_per_row(self, x, mask=None):
        total = x.nansum(1, keepdim=True)
        return {"exposure": total / total.median()}


class ViewByPosition(Normal):
    def encoder_view(self, x, per_row=NOTHING):
        return torch.cos(1e3 * x) + torch.arange(len(x))[:, None]


class CentredView(Normal):
    def encoder_view(self, x, per_row=NOTHING):
        return x - x.nanmean(0)


class ObservationOnly(Normal):
    """Long tails in rows, none in cells."""

    def observation(self, f, mask=None, per_row=NOTHING):
        cells = dist.StudentT(4.0, f, self._sd())
        return (cells if mask is None else cells.mask(mask.bool())).to_event(1)


class InfiniteAtZero(Bernoulli):
    """Positive numbers, and missing cells are filled with 0."""

    def forward(self, f, per_row=NOTHING):
        return dist.Gamma(torch.full_like(f, 0.7), (-f).exp())


class OutsideTheSupport(Bernoulli):
    def forward(self, f, per_row=NOTHING):
        return dist.LogNormal(f, 1.0)


class RefusesItsFiller(Poisson):
    filler = 0.5


class SigmaForItsSquare(Normal):
    def values(self):
        return {"sigma2": self._sd().squeeze(1)}


class HalfOfTheRow(Multinomial):
    """Tables are judged by one density, rows drawn from another."""

    def log_prob(self, f, x, mask=None, per_row=NOTHING):
        return 0.5 * super().log_prob(f, x, mask, per_row)


class OtherRows(Bernoulli):
    """The other way round."""

    separable = False

    def observation(self, f, mask=None, per_row=NOTHING):
        return super().observation(f + 0.1, mask, per_row)

    def log_prob(self, f, x, mask=None, per_row=NOTHING):
        return super().log_prob(f - 0.1, x, mask, per_row) + 0.01


class NoExposure(Bernoulli):
    def mean(self, f):
        return super().mean(f)


class ValuesAsProperty(Normal):
    @property
    def values(self):
        return {}


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
        (CountsMissingCells, "test_feature_statistic_of_missing_cells"),
        (ReadsBehindTheMask, "test_feature_statistic_of_missing_cells"),
        (HundredfoldGain, "test_feature_gain"),
        (HundredfoldRefittedGain, "test_feature_gain"),
        (MeasuredByItself, "test_default_per_row"),
        (ViewByPosition, "test_encoder_view"),
        (CentredView, "test_encoder_view"),
        (ObservationOnly, "test_score"),
        (InfiniteAtZero, "test_filler"),
        (OutsideTheSupport, "test_filler"),
        (SigmaForItsSquare, "test_shapes_and_dtypes"),
        (HalfOfTheRow, "test_log_prob_is_that_of_the_observation"),
        (OtherRows, "test_log_prob_is_that_of_the_observation"),
        (NoExposure, "test_signatures"),
        (ValuesAsProperty, "test_signatures"),
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

    def forward(self, f, per_row=NOTHING):
        return dist.Exponential(torch.exp(-f))


class Shares(Likelihood):
    """In (0, 1)."""

    def forward(self, f, per_row=NOTHING):
        return dist.Beta(2 + f.sigmoid(), 3 - f.sigmoid())


class Positive(Likelihood):
    """Most of its mass is far below its mean."""

    filler = 1.0

    def forward(self, f, per_row=NOTHING):
        return dist.LogNormal(f, torch.full_like(f, 3.0))


class Steep(Likelihood):
    """Infinite at both ends."""

    def forward(self, f, per_row=NOTHING):
        return dist.Beta(torch.full_like(f, 0.6), torch.full_like(f, 0.8))


class LongTails(Likelihood):
    """Of 3, 2 and 1 degrees of freedom: from two on no variance, then no mean."""

    def forward(self, f, per_row=NOTHING):
        return dist.StudentT(torch.tensor([3.0, 2.0, 1.0], dtype=f.dtype), f, 0.1)


class Corner(Likelihood):
    def forward(self, f, per_row=NOTHING):
        return dist.Laplace(f, 0.3)


class Successes(Likelihood):
    """Of 3, 40 and 7 trials."""

    trials = torch.tensor([3.0, 40.0, 7.0], dtype=torch.float64)

    def forward(self, f, per_row=NOTHING):
        return dist.Binomial(self.trials, logits=f)


class ClumpedSuccesses(Successes):
    def forward(self, f, per_row=NOTHING):
        return dist.BetaBinomial(f.exp(), torch.ones_like(f), self.trials)


LAWS = [Waiting, Shares, Positive, Steep, LongTails, Corner, Successes, ClumpedSuccesses]


@pytest.mark.slow
@pytest.mark.parametrize("distribution", LAWS)
@pytest.mark.parametrize("share", [1.0, 0.999])
def test_a_density_is_integrated_over_its_support(distribution, share):
    class Part(distribution):
        def log_prob(self, *args, **kwargs):
            return super().log_prob(*args, **kwargs) + math.log(share)

    class Case(LikelihoodTestCase):
        def make(self):
            return Part()

    if share == 1:
        Case().test_density_sums_to_one()
    else:
        with pytest.raises(AssertionError, match="density of feature 0"):
            Case().test_density_sums_to_one()


def test_a_filler_that_is_refused_is_named():
    class Case(LikelihoodTestCase):
        def make(self):
            return RefusesItsFiller()

    with pytest.raises(ValueError, match=r"RefusesItsFiller.filler: missing cells hold 0.5.*whole numbers"):
        Case().test_check()
