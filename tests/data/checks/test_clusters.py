"""Shuffled batches of counts and levels are noted; factors that make clusters are not."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.data.checks import clusters
from pyro_sparse.data.checks._cells import cells_of
from pyro_sparse.data.read import read_table
from pyro_sparse.likelihoods import get_likelihood

N, P = 400, 16


def latent(rng, n=N):
    """Two factors of eight columns each, (row, column)."""
    w = np.zeros((P, 2))
    w[np.arange(P), np.arange(P) % 2] = rng.uniform(0.7, 1.2, P) * rng.choice([-1, 1], P)
    return rng.normal(size=(n, 2)) @ w.T


def cells_from(rng, y, likelihood):
    if likelihood == "ordinal":
        y = (y + 0.7 * rng.normal(size=y.shape)) / y.std(0)
        return np.digitize(y, [-1.2, -0.4, 0.4, 1.2]) + 1.0
    if likelihood == "bernoulli":
        return (rng.random(y.shape) < 1 / (1 + np.exp(-1.5 * y))).astype(float)
    extra = rng.gamma(2.0, 0.5, y.shape) if likelihood == "negative_binomial" else 1.0
    return rng.poisson(np.exp(1.5 + 0.6 * y) * extra).astype(float)


def told(x, likelihood):
    density = get_likelihood(likelihood)
    return clusters.clustered_rows(cells_of(read_table(x, {}, likelihood=density), density))


@pytest.mark.parametrize(
    "likelihood",
    ["poisson", *(pytest.param(name, marks=pytest.mark.slow) for name in ("negative_binomial", "ordinal"))],
)
def test_shuffled_batches_are_noted_until_they_are_given(likelihood):
    """Of twenty tables 17, 20 and 15 are told of, by likelihood, and of none without batches."""
    notes = []
    for seed in range(1000, 1006):
        rng = np.random.default_rng(seed)
        batch = rng.permutation(np.arange(N) % 3)
        y = latent(rng)
        x = pd.DataFrame(cells_from(rng, y + 1.3 * rng.normal(size=(3, P))[batch], likelihood))
        note = [finding for finding in ps.check_table(x, likelihood) if finding.kind == "groups"]
        given = ps.check_table(x, likelihood, groups=batch.astype(str)) if note else []
        assert not [finding for finding in given if finding.kind == "groups"]
        assert told(cells_from(rng, y, likelihood), likelihood) == []
        notes += note
    assert len(notes) >= 2
    assert all(note.severity == "note" and "groups=" in note.remedy for note in notes)
    assert all("clusters that differ in most columns" in note.message for note in notes)


@pytest.mark.parametrize("likelihood", ["poisson", "ordinal"])
@pytest.mark.parametrize("of", ["steep", pytest.param("curved", marks=pytest.mark.slow), "sparse and binary"])
def test_factors_that_make_clusters_are_no_batches(likelihood, of):
    """At most one of eight tables of each kind."""
    n_told = 0
    for seed in range(1000, 1008):
        rng = np.random.default_rng(seed)
        y = latent(rng)
        if of == "steep":
            y = 2 * y
        elif of == "curved":
            y = np.where(np.arange(P) % 3 > 0, np.tanh(2 * y), y**2 - 1)
        else:
            yes = (rng.random((N, 2)) < 0.4) * 2.0 - 0.8
            y = np.where(np.arange(P) % 2, yes[:, :1], yes[:, 1:]) * rng.choice([-1.2, 1.2], P)
        n_told += bool(told(cells_from(rng, y, likelihood), likelihood))
    assert n_told <= 1


def test_clusters_of_a_binary_factor_differ_in_its_columns_only():
    rng = np.random.default_rng(1000)
    label = np.arange(N) % 2
    found = clusters._Partition(2, 2, label, 1.0, 100.0)
    everywhere = np.ones((N, P), bool)
    noise = rng.normal(size=(N, P))
    all_shifted = noise + label[:, None] * rng.normal(size=P) * 2
    half = noise + 2.0 * label[:, None] * (np.arange(P) < P // 2)
    for z, wanted in ((all_shifted, True), (half, False)):
        means = clusters._means(z, everywhere, found)
        assert (clusters._share_that_differs(means, False) is not None) is wanted


def test_ends_of_one_factor_differ_as_its_columns_correlate_and_batches_do_not():
    rng = np.random.default_rng(1000)
    everywhere = np.ones((N, P), bool)
    weights = rng.choice([-1.0, 1.0], P)
    factor = rng.normal(size=N)
    of_factor = factor[:, None] * weights + 0.7 * rng.normal(size=(N, P))
    label = np.arange(N) % 2
    chances = []
    for seed in range(20):
        shift = np.random.default_rng(seed).normal(size=P)
        chances.append(_chance(of_factor + label[:, None] * shift, label, everywhere))
    assert np.mean(np.array(chances) < 0.02) <= 0.2 and max(chances) > 0.3
    assert _chance(of_factor, (factor > 0).astype(int), everywhere) < 0.02


def _chance(z, label, mask):
    found = clusters._Partition(2, 2, label, 1.0, 100.0)
    means = clusters._means(z, mask, found)
    return clusters._sign_chance(z, mask, found, means, np.random.default_rng(0))


def test_yes_or_no_answers_and_many_zeros_are_not_asked():
    rng = np.random.default_rng(1000)
    y = latent(rng) + 1.5 * rng.normal(size=(3, P))[np.arange(N) % 3]
    assert told(cells_from(rng, y, "bernoulli"), "bernoulli") == []
    assert told(rng.poisson(np.exp(-1.5 + y)).astype(float), "poisson") == []


def test_the_check_leaves_random_numbers_alone():
    rng = np.random.default_rng(1000)
    x = cells_from(rng, latent(rng) + 1.3 * rng.normal(size=(3, P))[np.arange(N) % 3], "negative_binomial")
    before = random.getstate(), torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = told(x, "negative_binomial"), told(x, "negative_binomial")
    assert first == second != []
    assert random.getstate() == before[0] and torch.equal(torch.get_rng_state(), before[1])


@pytest.mark.slow
def test_batches_are_noted_where_many_rows_share_a_level():
    """Of twelve tables half of whose rows have the first level; told of are seven, and one if ties stay."""
    n_told = 0
    for seed in range(1000, 1012):
        rng = np.random.default_rng(seed)
        batch, y = rng.permutation(np.arange(N) % 3), latent(rng)
        shifted = y + 1.3 * rng.normal(size=(3, P))[batch]
        for table in (shifted, y):
            of_variable = (table + 0.7 * rng.normal(size=table.shape)) / table.std(0)
            levels = np.digitize(of_variable, [0.1, 0.9, 1.6]) + 1.0
            noted = bool(told(levels, "ordinal"))
            assert table is shifted or not noted
            n_told += noted
    assert n_told >= 4


def test_equal_cells_are_spread_within_their_level():
    rng = np.random.default_rng(0)
    values = rng.integers(1, 4, size=(300, 2)).astype(float)
    mask = rng.random(values.shape) < 0.9
    scores = clusters._spread_scores(values, mask, rng)
    for j, seen in enumerate(mask.T):
        assert not scores[~seen, j].any() and len(np.unique(scores[seen, j])) == seen.sum()
        np.testing.assert_allclose(scores[seen, j].std(), 1)
        for level in (1, 2):
            assert (
                scores[seen & (values[:, j] <= level), j].max()
                < scores[seen & (values[:, j] > level), j].min()
            )


def test_a_few_rows_of_their_own_hide_no_two_clusters():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(300, 3)) + 5 * (np.arange(300) % 2)[:, None]
    y[:6] = [0.0, 30.0, -30.0] + 0.1 * rng.normal(size=(6, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        partition = clusters._partition(y)
    assert partition.k == 2 < partition.n_components
    assert (partition.labels[6::2] != partition.labels[7::2]).all()
