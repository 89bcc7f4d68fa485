"""What sequences show before a fit, against sets made for it and clean ones."""

from __future__ import annotations

import numpy as np
import pytest

import pyro_sparse as ps
from pyro_sparse.data.checks.sequences import counter_columns, missing_lag, moving_means, sequence_findings
from pyro_sparse.data.sequences import as_sequences


def frames(n=60, t=30, seed=0, second=0.0):
    """Two latents that drive each other, behind five features."""
    rng = np.random.default_rng(seed)
    z = np.zeros((n, t + 10, 2))
    for k in range(2, t + 10):
        drive = 0.5 * z[:, k - 1] + 0.4 * np.sin(z[:, k - 1, ::-1]) + second * z[:, k - 2, ::-1]
        z[:, k] = drive + 0.5 * rng.normal(size=(n, 2))
    return z[:, 10:] @ rng.normal(size=(2, 5)) + 0.02 * rng.normal(size=(n, t, 5))


def model(lags=1, n_features=5):
    return ps.models.LatentTransition(n_features, 2, lags=lags)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", [(60, 30), (2, 500), (200, 3)])
def test_nothing_is_said_of_clean_sequences(shape, seed):
    assert sequence_findings(as_sequences(frames(*shape, seed=seed)), model()) == []


@pytest.mark.parametrize("even", [True, False])
def test_a_counter_is_named(even):
    x = frames()
    steps = np.ones((60, 30)) if even else np.random.default_rng(0).uniform(0.5, 2, (60, 30))
    data = as_sequences(np.insert(x, 2, np.cumsum(steps, 1) + 7.0, axis=2))
    (found,) = counter_columns(data)
    assert found.columns == ("x3",)
    assert found.is_doubt
    assert "time=" in found.remedy
    assert counter_columns(as_sequences(x)) == []


def test_what_repeats_around_missing_cells_is_no_counter():
    """1, 2, missing, 1, 2, missing, … goes up by 1 in every step between cells that were seen."""
    around = np.tile([1.0, 2.0, np.nan], 10)
    assert counter_columns(as_sequences(np.insert(frames(), 2, around, axis=2))) == []
    number = np.where(np.isnan(around), np.nan, np.arange(30.0))  # a counter with the same cells missing
    (found,) = counter_columns(as_sequences(np.insert(frames(), 2, number, axis=2)))
    assert found.columns == ("x3",) and "by the same amount in every step" in found.message
    level = np.repeat([1.0, 2.0], 15)  # a level that changes where a cell is missing does not stay the same
    level[15] = np.nan
    assert counter_columns(as_sequences(np.insert(frames(), 2, level, axis=2))) == []


def test_a_trend_and_a_season_are_named_with_their_columns_and_period():
    for shape in ((60, 30), (2, 600)):
        x = frames(*shape)
        time = np.arange(shape[1])
        x[:, :, 1] += 4 * x[:, :, 1].std() * time / shape[1]
        (found,) = moving_means(as_sequences(x))
        assert (found.kind, found.columns) == ("trend", ("x2",))
        x = frames(*shape)
        x[:, :, 3] += 1.5 * x[:, :, 3].std() * np.sin(2 * np.pi * time / 5)
        (found,) = moving_means(as_sequences(x))
        assert found.kind == "season"
        assert "x4" in found.columns
        assert "every 5 frames" in found.message


def test_what_actions_explain_is_no_trend():
    """All sequences get the same rising action, which is in the table."""
    x = frames()
    dose = np.broadcast_to(np.linspace(0, 3, 30) + 0.5 * np.random.default_rng(0).normal(size=30), (60, 30))
    x[:, :, 0] += 2 * dose
    assert moving_means(as_sequences(x)) != []
    assert moving_means(as_sequences(x, actions=dose)) == []


def test_a_start_far_from_rest_is_no_trend():
    x = frames()
    x += 8 * 0.5 ** np.arange(30)[None, :, None]
    assert moving_means(as_sequences(x)) == []


def test_a_lag_too_few_is_told_until_the_lags_are_enough():
    data = as_sequences(frames(second=0.4), lag=2)
    (found,) = missing_lag(data, 1, 2)
    assert "t-2" in found.message
    assert "lags=2" in found.remedy
    assert missing_lag(data, 2, 2) == []


def test_gaps_do_not_join_frames():
    """Two lags, and every third frame is missing: no step has three frames, and nothing can be said."""
    x = frames(second=0.4)
    x[:, ::3] = np.nan
    assert missing_lag(as_sequences(x), 1, 2) == []


def test_a_fit_says_so_before_and_keeps_it():
    x = np.insert(frames(30, 12), 0, np.arange(12.0), axis=2)
    small = ps.models.LatentTransition(6, 2, hidden=8, units=8, gated_units=4)
    options = {"steps": 4, "polish_steps": 0, "edge_steps": 2, "restarts": 1, "evaluate_every": 2}
    with pytest.warns(RuntimeWarning, match="'x1' changes by the same amount"):
        fit = ps.fit(small, x, progress=False, **options)
    assert any("'x1'" in text for text in fit.warnings)
    assert any(finding.columns == ("x1",) and finding.source == "data" for finding in fit.findings)


def test_levels_that_frames_jump_between_are_no_trend():
    """Frames that jump have a slope as a whole, and none in most halves of sequences."""
    step = np.zeros((4, 400))
    step[0, 150:] = step[1, 250:] = step[2, 180:240] = 1.0  # not in all halves, nor in most
    for changes, kinds in ((step, []), (np.tile(np.linspace(0, 1, 400), (4, 1)), ["trend"])):
        x = frames(4, 400, seed=1)
        x += 4 * x.std((0, 1)) * changes[:, :, None]
        for n_sequences in (1, 4):
            assert [finding.kind for finding in moving_means(as_sequences(x[:n_sequences]))] == kinds


def test_a_trend_hides_no_lag():
    x = frames(second=0.4)
    x += 3 * x.std((0, 1)) * np.linspace(0, 1, 30)[:, None]
    assert [finding.kind for finding in sequence_findings(as_sequences(x), model())] == ["trend", "lags"]
