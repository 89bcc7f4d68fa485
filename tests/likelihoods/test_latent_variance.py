"""What shares of variance are shares of, where cells have no noise of their own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import pyro_sparse as ps


@pytest.mark.parametrize("name", ["bernoulli", "ordinal"])
def test_answers_through_a_logit_stand_beside_logistic_noise(name):
    """The standardised loading is the correlation of a factor with the response behind the answer."""
    rng, weight = np.random.default_rng(0), 1.3
    z = rng.standard_normal(400_000)
    response = weight * z + rng.logistic(size=z.size)
    beside = float(ps.likelihoods.get_likelihood(name).variance_beside())
    assert beside == pytest.approx(stats.logistic.var())
    assert weight / np.sqrt(weight**2 + beside) == pytest.approx(np.corrcoef(response, z)[0, 1], abs=0.005)
    # and the answers are those of the model: yes where the response is positive
    chance = np.mean((response > 0)[np.abs(z - 0.5) < 0.02])
    assert chance == pytest.approx(torch.sigmoid(torch.tensor(weight * 0.5)).item(), abs=0.02)


def test_rates_stand_beside_one():
    assert ps.likelihoods.get_likelihood("poisson").variance_beside() == 1.0
