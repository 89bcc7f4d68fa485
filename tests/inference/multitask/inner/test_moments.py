"""Moments against NumPy, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyro_sparse.inference.multitask.inner import moments
from pyro_sparse.inference.multitask.inner.moments import sample_weights
from tests.inference.inner.problems import tasks


def ragged(n_tasks=4, n=30, seed=3):
    generator = np.random.default_rng(seed)
    return torch.as_tensor(generator.random((n_tasks, n)) < 0.7), torch.as_tensor(
        generator.random((n_tasks, n))
    )


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_moments_are_numpys_weighted_covariances(k, weighted, masked):
    features, targets = tasks(k=k)
    mask, weights = ragged()
    if masked:
        features[~mask], targets[~mask] = torch.nan, torch.inf
    data = moments(features, targets, mask if masked else None, weights if weighted else None)
    for t in range(len(features)):
        seen = mask[t].numpy() if masked else np.ones(30, bool)
        share = weights[t].numpy()[seen] if weighted else np.ones(seen.sum())
        joined = np.hstack([features[t].numpy()[seen], targets[t].numpy()[seen]])
        covariance = np.cov(joined.T, aweights=share, ddof=0)
        np.testing.assert_allclose(data.gram[t], covariance[:6, :6], atol=1e-13)
        np.testing.assert_allclose(data.moment[t], covariance[:6, 6:], atol=1e-13)
        np.testing.assert_allclose(data.square[t], np.trace(covariance[6:, 6:]), atol=1e-13)
        mean = np.average(joined, axis=0, weights=share)
        np.testing.assert_allclose(data.centre[t], mean[:6], atol=1e-13)
        np.testing.assert_allclose(data.target_centre[t], mean[6:], atol=1e-13)


def test_without_intercept_nothing_is_centred():
    features, targets = tasks(k=2)
    data = moments(features, targets, intercept=False)
    np.testing.assert_allclose(data.gram, features.mT @ features / 30, atol=1e-14)
    np.testing.assert_allclose(data.moment, features.mT @ targets / 30, atol=1e-14)
    np.testing.assert_allclose(data.square, (targets**2).sum((1, 2)) / 30, atol=1e-13)
    assert (data.intercept(torch.ones(4, 6, 2)) == 0).all()


def test_intercept_centres_the_residuals():
    features, targets = tasks(k=2)
    weight = torch.randn(4, 6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    left = targets - features @ weight - moments(features, targets).intercept(weight).unsqueeze(1)
    np.testing.assert_allclose(left.mean(1), 0, atol=1e-14)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_residual_is_the_gradient_of_the_loss_and_can_be_differentiated(weighted, intercept):
    features, targets = tasks(n_tasks=2, n=7, d=3, k=2)
    mask, weights = ragged(2, 7)
    weight = torch.randn(2, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    settings = {"mask": mask, "weights": weights} if weighted else {}

    def of(f, y, w):
        return moments(f, y, intercept=intercept, **settings).residual(w)

    share = sample_weights(features, **settings).unsqueeze(-1)
    trial = weight.clone().requires_grad_()
    left = targets - features @ trial
    left = left - (share * left).sum(1, keepdim=True) if intercept else left
    (wanted,) = torch.autograd.grad(0.5 * (share * left**2).sum(), trial)
    np.testing.assert_allclose(of(features, targets, weight), wanted, atol=1e-13)
    inputs = [part.clone().requires_grad_() for part in (features, targets, weight)]
    assert torch.autograd.gradcheck(of, inputs)


def test_single_precision_is_summed_in_double():
    features, targets = tasks(n=200, dtype=torch.float32)
    features = features + 1000
    data, wanted = moments(features, targets), moments(features.double(), targets.double())
    assert data.gram.dtype == torch.float64 and data.dtype == torch.float32
    assert torch.equal(data.gram, wanted.gram) and torch.equal(data.moment, wanted.moment)


def test_constant_columns_are_exactly_nothing_and_keep_their_gradient():
    features, targets = tasks(k=2)
    features[:, :, 1], targets[:, :, 0] = 0.1, 1 / 3
    features.requires_grad_()
    data = moments(features, targets)
    assert (data.gram[:, 1] == 0).all() and (data.gram[:, :, 1] == 0).all()
    assert (data.moment[:, 1] == 0).all() and (data.moment[:, :, 0] == 0).all()
    np.testing.assert_allclose(data.square, targets[..., 1].var(1, correction=0), rtol=1e-12)
    (slope,) = torch.autograd.grad(data.features[0, 0, 1], features)
    np.testing.assert_allclose(slope[0, :, 1], np.eye(30)[0] - 1 / 30, atol=1e-15)


def test_slices_and_transposes_are_like_copies():
    features, targets = tasks()
    wide = torch.stack([features, features + 1], -1).transpose(1, 2)
    seen = wide[..., 0].transpose(1, 2)
    assert not seen.is_contiguous()
    torch.testing.assert_close(moments(seen, targets).gram, moments(features, targets).gram)


def test_no_task_is_fine():
    assert moments(torch.zeros(0, 5, 3), torch.zeros(0, 5, 1)).gram.shape == (0, 3, 3)


def test_weights_of_samples():
    features = torch.zeros(2, 3, 1)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    weights = torch.tensor([[1.0, 3, 5], [2, 1, 1]])
    np.testing.assert_allclose(sample_weights(features, mask, weights), [[0.25, 0.75, 0], [1, 0, 0]])
    np.testing.assert_allclose(sample_weights(features), 1 / 3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"targets": torch.zeros(4, 30)}, r"targets \(4, 30\): want \(task, sample, feature\)"),
        ({"targets": torch.zeros(3, 30, 1)}, r"features \(4, 30, 6\) and targets \(3, 30, 1\)"),
        ({"features": torch.zeros(4, 30, 0)}, "at least one feature"),
        ({"mask": torch.ones(4, 29, dtype=torch.bool)}, r"mask: got shape \(4, 29\), want .* \(4, 30\)"),
        ({"mask": torch.ones(4, 30)}, "mask: want bool, .* got torch.float32; use mask > 0"),
        ({"mask": torch.zeros(4, 30, dtype=torch.bool)}, r"tasks \[0, 1, 2, 3\] have no sample"),
        ({"weights": torch.ones(4)}, r"weights: got shape \(4,\)"),
        ({"weights": -torch.ones(4, 30)}, "weights: want finite and >= 0, got -1.0 to -1.0"),
        ({"weights": torch.full((4, 30), torch.nan)}, "weights: want finite"),
        ({"features": torch.full((4, 30, 6), torch.nan)}, r"features: tasks \[0, 1, 2, 3\] .* NaN"),
        ({"targets": torch.full((4, 30, 1), torch.inf)}, r"targets: tasks \[0, 1, 2, 3\] .* infinite"),
        ({"features": torch.randn(4, 30, 6).double() * 1e200}, "features: .* too large to square"),
    ],
)
def test_complaints(change, words):
    features, targets = tasks()
    with pytest.raises(ValueError, match=words):
        moments(**{"features": features, "targets": targets, **change})
