"""Frames of sequences are asked what rows of a table are: cells, levels, copies, whatever their order."""

from __future__ import annotations

import numpy as np
import pytest

import pyro_sparse as ps
from pyro_sparse.data.checks.frames import frame_findings
from pyro_sparse.data.checks.sequences import counter_columns, moving_means, sequence_findings
from pyro_sparse.data.sequences import as_sequences


def frames(n=60, t=30, seed=0):
    """Two latents that drive each other, behind five features."""
    rng = np.random.default_rng(seed)
    z = np.zeros((n, t + 10, 2))
    for k in range(1, t + 10):
        z[:, k] = 0.5 * z[:, k - 1] + 0.4 * np.sin(z[:, k - 1, ::-1]) + 0.5 * rng.normal(size=(n, 2))
    return z[:, 10:] @ rng.normal(size=(2, 5)) + 0.02 * rng.normal(size=(n, t, 5))


def found(x, is_measured=False):
    data = as_sequences(x)
    return frame_findings(data, list(range(x.shape[2])), is_measured)


def only(x, **options):
    (finding,) = found(x, **options)
    assert finding.source == "data"
    return finding


@pytest.mark.parametrize("shape", [(60, 30), (2, 500), (200, 4), (3, 5)])
def test_nothing_is_said_of_clean_frames(shape):
    assert found(frames(*shape)) == []


def test_a_cell_and_a_frame_far_out_are_named_by_sequence_and_frame():
    x = frames(300, 30)  # of 9,000 frames some are looked at, and those furthest out
    x[7, 12, 3] = 1e4
    cell = only(x)
    assert cell.kind == "cells" and cell.columns == ("x4",) and "'7, frame 13'" in cell.message
    x = frames()
    x[7, 12] *= 50
    row = only(x)
    assert row.kind == "rows" and row.is_doubt and "'7, frame 13'" in row.message


def test_filled_cells_codes_and_levels_are_named():
    rng = np.random.default_rng(1)
    x = frames()
    x[rng.random(x.shape) < 0.1] = 0.0
    assert only(x).kind == "cells"
    levels = np.digitize(frames()[..., :1], [-0.5, 0, 0.5]) + 1.0
    assert only(np.concatenate([frames(), levels], 2)).columns == ("x6",)
    levels[rng.random(levels.shape) < 0.02] = 9
    assert "is 9 in" in only(np.concatenate([frames(), levels], 2)).message


def test_sequences_that_repeat_are_counted_and_short_ones_of_answers_are_not():
    x = frames()
    finding = only(np.concatenate([x, x[:4]]))
    assert finding.kind == "rows" and "4 of 64 sequences" in finding.message
    answers = (frames(400, 3)[..., :2] > 0).astype(float)
    assert [finding.kind for finding in found(answers)] == ["kinds"]


def test_copies_and_totals_are_asked_for_where_variables_were_measured():
    rng = np.random.default_rng(2)
    x = 0.1 * rng.normal(size=(40, 50, 4)).cumsum(1) + rng.normal(size=(40, 50, 4))
    assert found(x, is_measured=True) == []
    copy = np.concatenate([x, x[..., :1] + 0.01 * rng.normal(size=(40, 50, 1))], 2)
    finding = only(copy, is_measured=True)
    assert finding.columns == ("x1", "x5") and "factor" not in finding.message
    total = np.concatenate([x, x[..., :2].sum(-1, keepdims=True)], 2)
    assert only(total, is_measured=True).columns == ("x1", "x2", "x5")
    assert found(total) == []


@pytest.mark.parametrize("kind", [ps.models.LatentTransition, ps.models.ObservedTransition])
def test_a_fit_says_what_its_frames_show(kind, hurried):
    x = frames(20, 10)[..., :3]
    x[3, 4, 1] = 1e5
    few = {"steps": 2, "edge_steps": 1, "polish_steps": 0, "restarts": 1}
    if kind is ps.models.LatentTransition:
        model, options = kind(3, 2, hidden=4, units=4, gated_units=2), few
    else:
        model, options = kind(), {}
    with pytest.warns(RuntimeWarning, match="far from all others"):
        fit = ps.fit(model, x, progress=False, **options)
    assert any("'3, frame 5'" in warning for warning in fit.warnings)


def test_what_stays_the_same_in_a_sequence_is_no_feature():
    x = frames()
    (finding,) = counter_columns(as_sequences(np.insert(x, 2, np.arange(60)[:, None] * np.ones(30), axis=2)))
    assert finding.columns == ("x3",) and finding.is_doubt and "stays the same" in finding.message


def test_a_season_of_two_frames_is_seen_though_a_frame_foretells_it():
    x = frames() + 0.8 * (-1.0) ** np.arange(30)[None, :, None]
    (finding,) = moving_means(as_sequences(x))
    assert finding.kind == "season" and "every 2 frames" in finding.message
    far = frames()
    for k in range(30):  # a start far from rest that alternates, too
        far[:, k] += 3 * (-0.8) ** k
    model = ps.models.LatentTransition(5, 2)
    assert not [f for f in sequence_findings(as_sequences(far), model) if f.kind in ("season", "means")]
