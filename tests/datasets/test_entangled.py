"""The regression of figure 1: its rows, noise and rotation, and the order of methods that it shows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LassoCV, RidgeCV

from pyro_sparse.datasets import fig1_data


def test_latents_have_the_covariance_and_labels_the_noise():
    data = fig1_data(0.2, 4000, seed=1, n_test=2, m=20)
    distance = np.array([[abs(i - j) for j in range(20)] for i in range(20)])
    np.testing.assert_allclose(np.cov(data.z.T), 0.5**distance, atol=0.1)
    signal = data.z @ data.weights
    error = data.y - signal
    assert signal.std() / error.std() == pytest.approx(5.0, rel=0.05)
    assert stats.kstest(error / error.std(), "norm").pvalue > 1e-3
    assert abs(np.corrcoef(error, signal)[0, 1]) < 0.06


def test_weights_are_normal_on_a_random_set():
    weights = np.stack([fig1_data(0.05, 2, seed=s, n_test=1).weights for s in range(300)])
    assert ((weights != 0).sum(1) == 5).all()
    assert stats.kstest(weights[weights != 0], "norm").pvalue > 1e-3
    assert stats.chisquare((weights != 0).sum(0)).pvalue > 1e-3


def test_entangled_features_are_a_rotation():
    data = fig1_data(0.05, 30, seed=0)
    for split, rows in (("train", 30), ("test", 1000)):
        (z, y), (r, same) = data.part(split), data.part(split, entangled=True)
        assert z.shape == r.shape == (rows, 100)
        np.testing.assert_array_equal(y, same)
        np.testing.assert_allclose(r @ r.T, z @ z.T, atol=1e-9)
    np.testing.assert_allclose(data.rotation.T @ data.rotation, np.eye(100), atol=1e-12)
    assert np.abs(data.rotation).max() < 0.6  # no axis is left where it was


def test_more_rows_leave_all_else_as_it_is():
    few, many, other = fig1_data(0.2, 25, seed=4), fig1_data(0.2, 150, seed=4), fig1_data(0.2, 25, seed=5)
    np.testing.assert_array_equal(few.weights, many.weights)
    np.testing.assert_array_equal(few.rotation, many.rotation)
    # equal but for rounding: a product of matrices may be summed in another order when one has more rows
    for a, b in zip(few.part("test"), many.part("test"), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    for a, b in zip(few.part("train"), many.part("train"), strict=True):
        np.testing.assert_allclose(a, b[:25], atol=1e-12)
    assert not np.isclose(few.y, other.y).any()


def test_only_the_lasso_on_latents_finds_a_sparse_task_from_few_rows():
    data = fig1_data(0.05, 50, seed=0)
    scores = {}
    for entangled in (False, True):
        train, test = data.part("train", entangled), data.part("test", entangled)
        scores["lasso", entangled] = LassoCV(cv=5, alphas=20).fit(*train).score(*test)
        scores["ridge", entangled] = RidgeCV(np.logspace(-2, 3, 20), cv=5).fit(*train).score(*test)
    assert scores["lasso", False] > 0.9 and scores["lasso", True] < 0.7
    assert scores["ridge", False] == pytest.approx(scores["ridge", True], abs=1e-6)
    assert scores["ridge", False] < 0.8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"share": 0.0}, r"share=0.0: want a share in \(0, 1\]"),
        ({"share": 0.001}, "share=0.001: want .* that holds at least one"),
        ({"n": 0}, "n: want a whole number of at least .*, got 0"),
        ({"n_test": 1.5}, "n_test: want a whole number of at least .*, got 1.5"),
        ({"m": 0}, "m: want a whole number of at least .*, got 0"),
        ({"correlation": 1.0}, "correlation=1.0"),
        ({"snr": 0.0}, "snr=0.0: want a finite number above 0"),
        ({"seed": "a"}, "seed: want a whole number of at least .*, got 'a'"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        fig1_data(**{"share": 0.2, "n": 25, **arguments})


def test_a_split_that_is_not_there_is_named():
    with pytest.raises(KeyError, match="split='validation' is not one of"):
        fig1_data(0.2, 25).part("validation")
