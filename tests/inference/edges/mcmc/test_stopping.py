"""Streams of sweeps: an end when halves agree, and only then; draws evenly spread, however many come."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_sparse.inference.edges.mcmc.stopping import BatchMeans, Halves, Thinned, spread

SHAPE = (4, 2000, 3)  # chain, feature, factor


def ended_after(each, tolerance=0.003, most=400):
    """Sweeps until the probabilities that `each` gives of a sweep's number are enough."""
    halves, total = Halves(tolerance), np.zeros(SHAPE)
    for done in range(1, most + 1):
        total = total + each(done)
        if halves.agree(total, done):
            return done
    return None


def test_the_end_comes_where_the_error_is_what_was_asked():
    """Of independent sweeps the variance falls as 1 / (chains x sweeps), which tells when to end."""
    rng = np.random.default_rng(0)
    p = rng.random(SHAPE[1:])
    share = (p * (1 - p)).mean()

    def each(done):
        return p + 0.3 * rng.standard_normal(SHAPE)

    for wanted in (80, 160, 320):
        error = 0.3**2 / (SHAPE[0] * wanted)
        assert ended_after(each, 1.5 * error / share) == wanted


def test_what_drifts_goes_on_and_what_stays_apart_does_not():
    rng = np.random.default_rng(1)
    apart = rng.random(SHAPE)
    assert ended_after(lambda done: apart) == 40
    assert ended_after(lambda done: np.full(SHAPE, min(0.2 + 0.002 * done, 0.8))) is None


def test_no_tolerance_never_ends():
    assert ended_after(lambda done: np.full(SHAPE, 0.5), tolerance=0.0) is None


@pytest.mark.parametrize("n", [1, 7, 10, 19, 20, 21, 280, 1100])
def test_draws_are_spread_over_all_that_came(n):
    stream = Thinned(10)
    for number in range(n):
        if stream.wants(number):
            stream.add(number)
        assert len(stream.items) < 20
    found = stream.chosen()
    assert len(found) == min(n, 10) and found[0] == 0
    assert np.diff(found).max(initial=1) <= 2 * np.diff(found).min(initial=n)
    assert n - found[-1] <= 2 * np.diff(found).max(initial=1)


def test_spread_has_both_ends():
    assert spread(10, 3) == [0, 4, 9] and spread(3, 10) == [0, 1, 2] and spread(0, 3) == []


@pytest.mark.parametrize("n", [1, 7, 20, 21, 1000, 1037])
def test_errors_of_means_are_those_of_stretches(n):
    """Of independent draws the error is their standard deviation over the root of their number."""
    x, batches = np.random.default_rng(0).normal(size=(n, 400)), BatchMeans(10)
    for item in x:
        batches.add(item)
    assert len(batches.sums) <= 20
    if n < 2:
        assert np.isnan(batches.error()).all()
    else:
        np.testing.assert_allclose(np.sqrt((batches.error() ** 2).mean()), n**-0.5, rtol=0.15)
