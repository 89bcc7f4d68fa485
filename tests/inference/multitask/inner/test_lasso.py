"""Lasso, elastic net, group lasso against scikit-learn in float64, on both paths; gaps from residuals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyro_sparse.inference.multitask.inner import moments, sparse_weights
from pyro_sparse.inference.multitask.inner.lasso import duality_gap, largest_penalty
from tests.inference.inner.problems import KINDS, needs_numba, objective, sklearn_weights, tasks

both = pytest.mark.parametrize("compiled", KINDS)


def agree(found, features, targets, penalty, ridge=0.0, atol=1e-9, **settings):
    """Weights and support of every task are scikit-learn's."""
    for t, lam in enumerate(np.broadcast_to(penalty, len(features))):
        wanted, _ = sklearn_weights(features[t].numpy(), targets[t].numpy(), float(lam), ridge, **settings)
        np.testing.assert_allclose(found.weight[t], wanted, atol=atol)
        np.testing.assert_array_equal(found.active[t], (wanted != 0).any(1))


@both
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("share", [0.5, 0.05, 0.002])
def test_scikit_learns_answer(compiled, k, ridge, share):
    features, targets = tasks(k=k)
    data = moments(features, targets)
    penalty = share * largest_penalty(data)
    found = sparse_weights(data, penalty, ridge, compiled=compiled)
    agree(found, features, targets, penalty.numpy(), ridge)
    assert found.relative_gap.max() < 1e-13
    intercept = data.intercept(found.weight)
    for t in range(4):
        wanted = sklearn_weights(features[t].numpy(), targets[t].numpy(), float(penalty[t]), ridge)[1]
        np.testing.assert_allclose(intercept[t], wanted, atol=1e-9)


@both
@pytest.mark.parametrize("k", [1, 2])
def test_more_features_than_samples(compiled, k):
    features, targets = tasks(n_tasks=3, n=15, d=40, k=k, density=0.1)
    data = moments(features, targets)
    penalty = 0.1 * largest_penalty(data)
    found = sparse_weights(data, penalty, compiled=compiled)
    agree(found, features, targets, penalty.numpy())
    assert found.relative_gap.max() < 1e-13


@both
def test_a_small_penalty_with_more_features_than_samples_still_converges(compiled):
    features, targets = tasks(n_tasks=2, n=10, d=25)
    data = moments(features, targets)
    found = sparse_weights(data, 1e-4 * largest_penalty(data), compiled=compiled)
    assert found.relative_gap.max() < 1e-12
    assert (found.active.sum(1) < 10).all()


@both
@pytest.mark.parametrize("intercept", [False, True])
def test_weighted_ragged_tasks(compiled, intercept):
    features, targets = tasks()
    rng = np.random.default_rng(5)
    mask, weights = rng.random((4, 30)) < 0.6, rng.uniform(0.5, 2, size=(4, 30))
    features[~torch.as_tensor(mask)] = torch.nan
    data = moments(features, targets, torch.as_tensor(mask), torch.as_tensor(weights), intercept)
    penalty = 0.1 * largest_penalty(data)
    found = sparse_weights(data, penalty, compiled=compiled)
    for t in range(4):
        seen = mask[t]
        wanted = sklearn_weights(
            features[t].numpy()[seen],
            targets[t].numpy()[seen],
            float(penalty[t]),
            weights=weights[t][seen],
            intercept=intercept,
        )[0]
        np.testing.assert_allclose(found.weight[t], wanted, atol=1e-9)
        np.testing.assert_array_equal(found.active[t], wanted[:, 0] != 0)


@both
@pytest.mark.parametrize("k", [1, 3])
def test_a_penalty_for_each_feature_is_a_scale_of_its_column(compiled, k):
    features, targets = tasks(k=k)
    scale = torch.as_tensor(np.random.default_rng(1).uniform(0.2, 5, size=(4, 6)))
    found = sparse_weights(moments(features, targets), 0.1 * scale, compiled=compiled)
    scaled = features / scale.unsqueeze(1)
    for t in range(4):
        wanted = sklearn_weights(scaled[t].numpy(), targets[t].numpy(), 0.1)[0] / scale[t].numpy()[:, None]
        np.testing.assert_allclose(found.weight[t], wanted, atol=1e-9)
        np.testing.assert_array_equal(found.active[t], (wanted != 0).any(1))


@both
@pytest.mark.parametrize("k", [1, 2])
def test_empty_and_full_supports(compiled, k):
    features, targets = tasks(k=k, density=1.0)
    data = moments(features, targets)
    most = largest_penalty(data)
    assert not sparse_weights(data, most, compiled=compiled).active.any()
    assert sparse_weights(data, 0.999 * most, compiled=compiled).active.sum(1).eq(1).all()
    full = sparse_weights(data, 1e-5 * most, compiled=compiled)
    assert full.active.all()
    agree(full, features, targets, 1e-5 * most.numpy(), atol=1e-8)


def test_largest_penalty_is_the_paper_s():
    features, targets = tasks(k=1)
    x, y = features - features.mean(1, keepdim=True), targets - targets.mean(1, keepdim=True)
    wanted = [np.abs(x[t].numpy().T @ y[t].numpy()).max() / 30 for t in range(4)]
    np.testing.assert_allclose(largest_penalty(moments(features, targets)), wanted, rtol=1e-12)


@both
@pytest.mark.parametrize("k", [1, 2])
def test_equal_columns_and_columns_of_zeros(compiled, k):
    features, targets = tasks(d=4, k=k, density=1.0)
    wide = torch.cat([features, features[..., :2], torch.zeros(4, 30, 1), -features[..., :1]], -1)
    data = moments(wide, targets)
    start = torch.ones(4, 8, k, dtype=torch.float64)
    for begin in (None, start):
        found = sparse_weights(data, 0.02, start=begin, tol=1e-12, compiled=compiled)
        assert found.relative_gap.max() < 1e-12
        assert (found.weight[:, 6] == 0).all()
        for t in range(4):
            wanted, intercept = sklearn_weights(features[t].numpy(), targets[t].numpy(), 0.02)
            least = objective(features[t].numpy(), targets[t].numpy(), wanted, intercept, 0.02)
            own = data.intercept(found.weight)[t].numpy()
            value = objective(wide[t].numpy(), targets[t].numpy(), found.weight[t].numpy(), own, 0.02)
            np.testing.assert_allclose(value, least, rtol=1e-12)
            together = found.weight[t, :4].clone()
            together[:2] += found.weight[t, 4:6]
            together[0] -= found.weight[t, 7]
            np.testing.assert_allclose(together, wanted, atol=1e-9)


@needs_numba
def test_of_equal_columns_the_compiled_path_keeps_one():
    features, targets = tasks(d=3, density=1.0)
    data = moments(torch.cat([features, features], -1), targets)
    found = sparse_weights(data, 1e-3, start=torch.ones(4, 6, 1), compiled=True)
    assert (found.active.sum(1) == 3).all()


@both
def test_nearly_equal_columns_end(compiled):
    features, targets = tasks(n=40, d=5, density=1.0)
    for size in (1e-4, 1e-6, 1e-8, 1e-10):
        noise = torch.as_tensor(np.random.default_rng(2).normal(size=features.shape))
        data = moments(torch.cat([features, features + size * noise], -1), targets)
        found = sparse_weights(data, 0.01 * largest_penalty(data), compiled=compiled)
        assert found.relative_gap.max() < 1e-10
        assert found.sweeps.max() < 100


@both
def test_constant_targets_and_features_have_no_weight(compiled):
    features, targets = tasks(k=1)
    targets[0], features[1, :, 2] = 0.1, 0.3
    data = moments(features, targets)
    penalty = 0.01 * largest_penalty(data)
    assert penalty[0] == 0
    found = sparse_weights(data, penalty, compiled=compiled)
    assert not found.active[0].any() and not found.active[1, 2]
    assert found.active[2:].any(1).all() and found.gap[0] == 0


@both
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize(("of_x", "of_y"), [(1e8, 1.0), (1e-8, 1e8), (1.0, 1e-12), (1e60, 1e-60)])
def test_units_do_not_matter(compiled, k, of_x, of_y):
    features, targets = tasks(k=k)
    plain = sparse_weights(moments(features, targets), 0.05, compiled=compiled)
    data = moments(features * of_x, targets * of_y)
    found = sparse_weights(data, 0.05 * of_x * of_y, compiled=compiled)
    np.testing.assert_allclose(found.weight * (of_x / of_y), plain.weight, atol=1e-12)
    assert torch.equal(found.active, plain.active)


@both
def test_features_of_many_scales(compiled):
    features, targets = tasks(d=5)
    scale = torch.tensor([1e-6, 1e-3, 1.0, 1e3, 1e6], dtype=torch.float64)
    found = sparse_weights(moments(features * scale, targets), 0.05 * scale.expand(4, 5), compiled=compiled)
    plain = sparse_weights(moments(features, targets), 0.05, compiled=compiled)
    np.testing.assert_allclose(found.weight * scale.unsqueeze(1), plain.weight, atol=1e-11)
    assert found.relative_gap.max() < 1e-12


@both
@pytest.mark.parametrize("k", [1, 2])
def test_single_precision_in_and_out(compiled, k):
    features, targets = tasks(k=k, noise=0.0, dtype=torch.float32)
    data = moments(features, targets)
    penalty = 1e-4 * largest_penalty(data)
    found = sparse_weights(data, penalty, compiled=compiled)
    wanted = sparse_weights(moments(features.double(), targets.double()), penalty, compiled=compiled)
    assert found.weight.dtype == torch.float32 and found.relative_gap.max() < 1e-12
    assert torch.equal(found.weight, wanted.weight.float())


@needs_numba
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("d", [5, 50])
def test_both_paths_give_one_answer(k, d):
    features, targets = tasks(n_tasks=6, n=20, d=d, k=k, density=0.3)
    data = moments(features, targets)
    for share in (0.3, 0.03):
        penalty = share * largest_penalty(data)
        compiled, tensors = (sparse_weights(data, penalty, compiled=way) for way in (True, False))
        assert torch.equal(compiled.active, tensors.active)
        np.testing.assert_allclose(compiled.weight, tensors.weight, atol=1e-11)


@both
def test_one_output_that_is_constant_does_not_hide_the_others(compiled):
    features, targets = tasks(k=3)
    targets[..., 0] = 2.0
    found = sparse_weights(moments(features, targets), 0.05, compiled=compiled)
    pair = sparse_weights(moments(features, targets[..., 1:]), 0.05, compiled=compiled)
    np.testing.assert_allclose(found.weight[..., 1:], pair.weight, atol=1e-12)
    assert (found.weight[..., 0] == 0).all() and found.sweeps.max() < 100


def gap_from_residuals(x, y, penalty, weight):
    """Primal less the best dual value among multiples of the residual, from samples instead of moments."""
    n = len(x)
    left = y - x @ weight
    primal = (left**2).sum() / (2 * n) + (penalty * np.sqrt((weight**2).sum(1))).sum()
    limit = (penalty / np.sqrt(((x.T @ left / n) ** 2).sum(1))).min()
    scale = np.clip((y * left).sum() / (left**2).sum(), 0, limit)
    return primal - (y * y - (y - scale * left) ** 2).sum() / (2 * n)


@pytest.mark.parametrize("k", [1, 2])
def test_the_gap_is_that_of_residuals(k):
    features, targets = tasks(k=k)
    x, y = features - features.mean(1, keepdim=True), targets - targets.mean(1, keepdim=True)
    data, penalty = moments(features, targets), torch.full((4, 6), 0.1, dtype=torch.float64)
    rng = np.random.default_rng(0)
    exact = sparse_weights(data, penalty).weight
    for size in (1.0, 1e-2, 1e-4):
        weight = exact + size * torch.as_tensor(rng.normal(size=exact.shape))
        found = duality_gap(data.gram, data.moment, data.square, penalty, weight)
        for t in range(4):
            wanted = gap_from_residuals(x[t].numpy(), y[t].numpy(), 0.1, weight[t].numpy())
            np.testing.assert_allclose(found[t], wanted, rtol=1e-8, atol=1e-14)


@both
def test_the_returned_gap_bounds_what_is_missing(compiled):
    features, targets = tasks(n=15, d=12)
    data = moments(features, targets)
    best = sparse_weights(data, 0.01)
    with pytest.warns(RuntimeWarning, match="did not converge"):
        rough = sparse_weights(data, 0.01, max_sweeps=1, start=torch.ones(4, 12, 1), compiled=compiled)
    for t in range(4):
        x, y = features[t].numpy(), targets[t].numpy()
        values = [
            objective(x, y, found.weight[t].numpy(), data.intercept(found.weight)[t].numpy(), 0.01)
            for found in (rough, best)
        ]
        assert values[0] - values[1] <= rough.gap[t] + 1e-14
    np.testing.assert_allclose(rough.relative_gap, 2 * rough.gap / data.square)


@both
def test_a_tiny_residual_leaves_no_false_gap(compiled):
    """The squares of residuals are differences of moments: their rounding must not pass for convergence."""
    features, targets = tasks(noise=0.0)
    data = moments(features, targets)
    penalty = 1e-7 * largest_penalty(data)
    found = sparse_weights(data, penalty, compiled=compiled)
    agree(found, features, targets, penalty.numpy(), atol=1e-7)
    assert found.relative_gap.max() < 1e-12


@both
def test_a_start_does_not_change_the_answer_and_saves_sweeps(compiled):
    features, targets = tasks(n=20, d=15)
    data = moments(features, targets)
    cold = sparse_weights(data, 0.01, compiled=compiled)
    start = cold.weight.clone()
    warm = sparse_weights(data, 0.01, start=start, compiled=compiled)
    wild = sparse_weights(data, 0.01, start=100 * torch.randn(4, 15, 1).double(), compiled=compiled)
    np.testing.assert_allclose(warm.weight, cold.weight, atol=1e-12)
    np.testing.assert_allclose(wild.weight, cold.weight, atol=1e-12)
    assert torch.equal(start, cold.weight)
    assert warm.sweeps.sum() <= cold.sweeps.sum()


@both
def test_what_is_given_is_left_alone(compiled):
    data = moments(*tasks())
    before = [data.gram.clone(), data.moment.clone()]
    sparse_weights(data, 0.05, 0.1, compiled=compiled)
    assert torch.equal(before[0], data.gram) and torch.equal(before[1], data.moment)


@both
def test_no_task(compiled):
    data = moments(torch.zeros(0, 5, 3), torch.zeros(0, 5, 1))
    found = sparse_weights(data, 0.1, compiled=compiled)
    assert found.weight.shape == (0, 3, 1) and found.active.shape == (0, 3)


@both
def test_an_unreachable_tolerance_is_what_rounding_allows(compiled):
    data = moments(*tasks(k=2))
    assert sparse_weights(data, 0.05, tol=0.0, compiled=compiled).relative_gap.max() < 1e-13


@both
@pytest.mark.parametrize("k", [1, 2])
def test_the_warning_has_the_gap(compiled, k):
    data = moments(*tasks(n=10, d=30, k=k))
    penalty = 1e-3 * largest_penalty(data)
    with pytest.warns(
        RuntimeWarning, match=r"4 of 4 tasks .* in 1 sweeps: largest .* gap \d\S+, wanted 1.0"
    ) as seen:
        found = sparse_weights(data, penalty, max_sweeps=1, compiled=compiled)
    assert f"{float(found.relative_gap.max()):.2e}" in str(seen[0].message)
    assert seen[0].filename == __file__


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"penalty": 0.0}, "penalty: want finite and > 0, got 0.0; without a penalty use ridge_weights"),
        ({"penalty": -1.0}, "penalty: want finite and > 0, got -1.0"),
        ({"penalty": torch.tensor([1.0, 1, torch.nan, 1])}, "penalty: want finite and > 0, got nan"),
        ({"penalty": torch.ones(6)}, r"penalty: got shape \(6,\), want \(\), \(task,\) or .* \(4, 6\)"),
        ({"penalty": torch.ones(4, 5)}, r"penalty: got shape \(4, 5\)"),
        ({"penalty": torch.ones(4, 6, 1)}, r"penalty: got shape \(4, 6, 1\)"),
        ({"ridge": -0.1}, "ridge: want finite and >= 0, .* got -0.1"),
        ({"ridge": torch.inf}, "ridge: want finite"),
        ({"ridge": torch.ones(6)}, r"ridge: .* \(task,\) \(4,\)"),
        ({"start": torch.zeros(4, 6)}, r"start: want finite, of shape \(4, 6, 1\), got \(4, 6\)"),
        ({"start": torch.full((4, 6, 1), torch.nan)}, "start: want finite"),
        ({"tol": -1.0}, "tol: want >= 0, got -1.0"),
        ({"max_sweeps": 0}, "max_sweeps: want >= 1, got 0"),
    ],
)
def test_complaints(change, words):
    with pytest.raises(ValueError, match=words):
        sparse_weights(**{"data": moments(*tasks()), "penalty": 0.1, **change})


def test_moments_that_do_not_fit():
    data = moments(*tasks())
    with pytest.raises(ValueError, match=r"data: gram \(4, 5, 5\) .* do not fit moment \(4, 6, 1\)"):
        sparse_weights(data._replace(gram=data.gram[:, 1:, 1:]), 0.1)


def test_complaints_of_the_gap():
    data = moments(*tasks())
    with pytest.raises(ValueError, match=r"penalty \(6,\) and weight \(4, 6, 1\): want"):
        duality_gap(data.gram, data.moment, data.square, torch.ones(6), torch.zeros(4, 6, 1))


def test_without_numba_the_tensors_are_used(monkeypatch):
    from pyro_sparse.inference.multitask.inner import _compiled

    data = moments(*tasks())
    wanted = sparse_weights(data, 0.05).weight
    monkeypatch.setattr(_compiled, "AVAILABLE", False)
    torch.testing.assert_close(sparse_weights(data, 0.05).weight, wanted)
    with pytest.raises(ValueError, match="compiled: numba is not installed .* pip install numba"):
        sparse_weights(data, 0.05, compiled=True)
