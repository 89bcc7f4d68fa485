"""A slip in a prior of one's own is told at once, with the class and the method where it is."""

from __future__ import annotations

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from scipy import stats

import pyro_sparse as ps
from pyro_sparse.models import MultiTaskRegression, SparseDecoder
from pyro_sparse.priors import Laplace, Prior

DATA = ps.datasets.sim1(n=60, seed=1).x


def own(distribution=None, odds=None):
    class Own(Prior):
        def distribution(self):
            return dist.Laplace(0.0, 1.0) if distribution is None else distribution()

        def edge_log_odds(self, weights):
            return None if odds is None else odds(weights)

    return Own()


def fitted(prior, **options):
    model = SparseDecoder(7, 2, prior=prior, hidden=5, encoder_hidden=4)
    return ps.fit(model, DATA, **{"restarts": 2, "steps": 5, "progress": False, **options})


@pytest.mark.parametrize(
    ("distribution", "error", "message"),
    [
        (lambda: None, TypeError, r"returned None; want the Pyro distribution of one weight"),
        (lambda: torch.distributions.Laplace(0.0, 1.0), TypeError, "returned a torch Laplace; want the Pyro"),
        (stats.norm, TypeError, "returned a scipy rv_continuous_frozen; want the Pyro"),
        (lambda: dist.Laplace(torch.zeros(3), 1.0), ValueError, r"has batch shape \(3,\) .*= \(1, 7, 2\)"),
        (lambda: dist.Normal(torch.zeros(4, 1, 1, 1), 1.0), ValueError, r"has batch shape \(4, 1, 1, 1\)"),
        (
            lambda: dist.Laplace(torch.zeros(2), 1.0).to_event(1),
            ValueError,
            r"has .* event shape \(2,\); want",
        ),
    ],
)
def test_a_density_that_is_none(distribution, error, message):
    with pytest.raises(error, match=rf"^Own.distribution\(\) {message}"):
        fitted(own(distribution))


@pytest.mark.parametrize(
    ("odds", "error", "message"),
    [
        (lambda w: w.sum(-1), ValueError, r"has shape \(1, 7\); want that of weights, .* = \(1, 7, 2\)"),
        (lambda w: w * torch.nan, ValueError, "is NaN where a weight is 0; want the log odds"),
        (lambda w: (w - 0.5) / (w - 0.5), ValueError, "is NaN where a weight is 0.5"),
        (lambda w: w.detach().numpy(), TypeError, "returned a numpy ndarray; want a tensor"),
    ],
)
def test_odds_that_are_none(odds, error, message):
    with pytest.raises(error, match=rf"^Own.edge_log_odds\(weights\) {message}"):
        fitted(own(odds=odds))


def test_infinite_odds_are_odds():
    scores = fitted(own(odds=lambda w: w.log().nan_to_num(nan=torch.inf))).edge_score
    assert np.isfinite(scores).all()


def test_odds_that_are_nan_for_some_weights_only_are_told_from_no_zeros():
    fit = fitted(own(odds=lambda w: torch.where((w == 0) | (w == 0.5), w, torch.nan)))
    with pytest.raises(ValueError, match=r"fit: Own.edge_log_odds\(weights\) is NaN at \d+ of 28 weights"):
        fit.edge_posterior()


@pytest.mark.parametrize("model", [SparseDecoder, MultiTaskRegression])
def test_a_constructor_that_stops_half_way(model):
    class Half(Laplace):
        def __init__(self):
            self.start = 1.0

    with pytest.raises(TypeError, match=r"prior: Half.__init__ does not call super\(\).__init__\(\)"):
        model(7, 2, prior=Half())


def test_a_prior_of_tasks_is_looked_at_too():
    model = MultiTaskRegression(4, 2, prior=own(lambda: None))
    with pytest.raises(TypeError, match=r"^Own.distribution\(\) returned None"):
        model.setup(3)
