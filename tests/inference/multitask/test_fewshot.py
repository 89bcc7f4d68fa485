"""The episodic trainer on scikit-learn's digits and on episodes whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.datasets import load_digits
from torch import nn

from pyro_sparse.inference.multitask.fewshot import FewShot, standardise
from pyro_sparse.inference.multitask.inner import GroupSVMHead, PrototypeHead


def digits(n_episodes, classes, seed, n_shot=5, n_query=5):
    """Single episodes of five digits."""
    data = load_digits()
    rng = np.random.default_rng(seed)
    for _ in range(n_episodes):
        parts = [
            rng.choice(np.flatnonzero(data.target == c), n_shot + n_query, replace=False)
            for c in rng.permutation(classes)
        ]
        rows = np.stack(parts)
        x, y = data.images[rows] / 16, np.repeat(np.arange(5)[:, None], n_shot + n_query, 1)
        yield (
            x[:, :n_shot].reshape(-1, 8, 8),
            y[:, :n_shot].ravel(),
            x[:, n_shot:].reshape(-1, 8, 8),
            y[:, n_shot:].ravel(),
        )


def network(seed=0, dropout=0.0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(dropout), nn.Linear(64, 32))


@pytest.fixture(scope="module")
def trained():
    episodes = list(digits(40, range(5), seed=1))
    head = GroupSVMHead(sparsity=0.35, ridge=0.1)
    untrained = FewShot(network(), head)
    return FewShot(network(), head).fit(episodes, steps=40, progress=False), untrained


def test_training_lowers_the_loss_and_new_digits_are_classified(trained):
    learner, untrained = trained
    loss = learner.history["loss"]
    assert len(loss) == 40 and loss.tail(10).mean() < loss.head(5).mean() - 0.2
    assert learner.history["features_used"].between(0, 1).all() and not learner.notes
    test = list(digits(40, range(5, 10), seed=2))
    before, after = untrained.evaluate(test), learner.evaluate(test)
    assert after.accuracy > 0.65 and before.accuracy > 0.5, "five digits never seen; chance is 0.2"
    assert after.features_used < 0.9 and after.gap_max <= 1e-6
    assert not learner.training, "a fit ends ready for use"


def test_the_score_is_counted_from_single_episodes(trained):
    learner, _ = trained
    test = list(digits(7, range(5, 10), seed=3))
    score = learner.evaluate(test, batch_size=3)
    accuracy, used = [], []
    for support_x, support_y, query_x, query_y in test:
        with torch.no_grad():
            support = learner.network(torch.as_tensor(support_x, dtype=torch.float32))
            query = learner.network(torch.as_tensor(query_x, dtype=torch.float32))
        mean, variance = support.mean(0), support.var(0, correction=0)
        scale = (variance + 0.1 * variance.mean()).sqrt()
        head = learner.head.fit((support - mean) / scale, torch.as_tensor(support_y))
        guess = (((query - mean) / scale) @ head.weight).argmax(1).numpy()
        accuracy.append((guess == query_y).mean())
        used.append((head.weight != 0).any(-1).numpy())
    np.testing.assert_allclose(score.by_episode, accuracy)
    assert score.accuracy == pytest.approx(np.mean(accuracy))
    interval = stats.ttest_1samp(accuracy, 0).confidence_interval(0.95)
    np.testing.assert_allclose(score.interval, interval)
    times = np.mean(used, 0)
    assert score.features_used == pytest.approx(times.mean())
    assert score.features_ever == pytest.approx((times > 0).mean())
    table = score.usage.set_index("feature").sort_index()
    np.testing.assert_allclose(table["usage"], times)
    assert (table["weight"].isna() == (times == 0)).all() and score.usage["usage"].is_monotonic_decreasing
    assert learner.evaluate(test, n_episodes=1).interval == (accuracy[0], accuracy[0])


def test_batches_are_taken_as_they_are():
    single = list(digits(4, range(5), seed=4))
    batch = tuple(np.stack(part) for part in zip(*single, strict=True))
    one = FewShot(network(), "ridge").fit(single, steps=3, episodes_per_step=4, progress=False)
    other = FewShot(network(), "ridge").fit(lambda: batch, steps=3, progress=False)
    np.testing.assert_array_equal(one.history, other.history)


def test_the_same_seed_gives_the_same_bits_and_leaves_the_stream_alone():
    episodes = list(digits(8, range(5), seed=5))

    def fit(seed):
        state = torch.get_rng_state()
        learner = FewShot(network(dropout=0.5), "prototype")
        torch.set_rng_state(state)
        learner.fit(episodes, steps=4, seed=seed, progress=False)
        assert torch.equal(torch.get_rng_state(), state)
        return torch.cat([p.flatten() for p in learner.parameters()])

    assert torch.equal(fit(0), fit(0)) and not torch.equal(fit(0), fit(1))


def test_an_interrupted_fit_is_returned():
    single = list(digits(2, range(5), seed=6))

    def episodes():
        for k in range(100):
            if k == 7:
                raise KeyboardInterrupt
            yield single[k % 2]

    learner = FewShot(network(), "ridge").fit(episodes(), steps=50, episodes_per_step=2, progress=False)
    assert learner.notes == ["interrupted at step 3 of 50"] and len(learner.history) == 3
    assert learner.evaluate(single).accuracy > 0


def test_features_that_are_all_dead_are_survived_and_the_bar_says_so(capsys):
    learner = FewShot(nn.Linear(2, 3), "group_svm").fit([(X, Y, X, Y)], steps=2)
    assert all(p.isfinite().all() for p in learner.parameters())
    shown = capsys.readouterr().err
    assert "2/2" in shown and "accuracy=0.500" in shown and "loss=0.693" in shown


def test_standardised_features_have_the_scale_of_their_support():
    support = torch.randn(3, 50, 4, dtype=torch.float64) * torch.tensor([1.0, 1.0, 1.0, 0.0])
    query = torch.randn(3, 5, 4, dtype=torch.float64)
    scaled, moved = standardise(support, query)
    np.testing.assert_allclose(scaled.mean(1), 0, atol=1e-12)
    assert ((scaled[..., :3].std(1) > 0.8) & (scaled[..., :3].std(1) < 1.01)).all()
    assert (scaled[..., 3] == 0).all() and moved.isfinite().all()
    same, others = standardise(5 * support + 2, 5 * query + 2)
    np.testing.assert_allclose(same, scaled, atol=1e-10)
    np.testing.assert_allclose(others, moved, atol=1e-10)


def test_the_temperature_is_learned():
    """Queries that are all easy: confidence should rise."""
    y = torch.arange(10).remainder(2)
    x = 3.0 * torch.nn.functional.one_hot(y, 2) + 0.1 * torch.randn(10, 2)
    learner = FewShot(nn.Identity(), "ridge").fit([(x, y, x, y)], steps=20, progress=False)
    assert float(learner.log_temperature.detach()) > 0.05


X, Y = np.zeros((4, 2)), np.array([0, 1, 0, 1])


@pytest.mark.parametrize(
    "episodes, message",
    [
        ([], "episodes: got none"),
        ([(X, Y, X)], r"episode 0: not enough values .* wanted \(support_x, support_y, query_x, query_y\)"),
        ([3], "episode 0: .* wanted"),
        ([(X, Y[:3], X, Y)], r"episode 0: got shapes \(4, 2\), \(3,\), .*wanted \(n, \.\.\.\), \(n,\)"),
        ([(X, Y, X[:, :1], Y)], r"episode 0: got shapes .*wanted \(n, \.\.\.\)"),
        ([(X, Y, X, Y + 1)], "episode 0: a query has label 2, which no example of its support has"),
        ([(X, 2 * Y, X, Y)], "episode 0: a query has label 1, which no example of its support has"),
        (
            [(X[None].repeat(2, 0), np.stack([Y, 0 * Y]), X[None].repeat(2, 0), np.stack([Y, Y]))],
            "a query has label 1, which no example of its support",
        ),
        ([(X, Y, X, Y), (X[:2], Y[:2], X, Y)], "episodes: those of one step have shapes"),
    ],
)
def test_episodes_that_do_not_fit(episodes, message):
    with pytest.raises(ValueError, match=message):
        FewShot(nn.Linear(2, 3), PrototypeHead()).fit(episodes, steps=1, progress=False)
    with pytest.raises(ValueError, match=message):
        FewShot(nn.Linear(2, 3), PrototypeHead()).evaluate(episodes)


def test_other_complaints():
    learner = FewShot(nn.Linear(2, 3), "ridge")
    with pytest.raises(ValueError, match="steps, episodes_per_step: got 0 and 4"):
        learner.fit([(X, Y, X, Y)], steps=0)
    with pytest.raises(ValueError, match="n_episodes: got 0, wanted at least 1; leave it out for all"):
        learner.evaluate([(X, Y, X, Y)], n_episodes=0)
    with pytest.raises(ValueError, match="head: got 'tree'"):
        FewShot(nn.Linear(2, 3), "tree")
    with pytest.raises(ValueError, match="values are not finite"):
        learner.fit([(X * np.nan, Y, X, Y)], steps=1, progress=False)
    with pytest.raises(FloatingPointError, match="step 0: the loss is nan; lower learning_rate"):
        learner.fit([(X, Y, X * np.nan, Y)], steps=1, progress=False)
