"""`ps.fit` of sequences in a long table: the order of its rows, steps and gaps, latents by id and time."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps

DAYS = pd.bdate_range("2024-01-01", periods=8)  # a weekend after the fifth


@pytest.fixture(scope="module")
def panel():
    """Thirty patients on eight business days, rows in no order."""
    x = np.random.default_rng(0).normal(size=(30, 8, 4)).cumsum(1)
    table = pd.DataFrame(x.reshape(-1, 4), columns=list("abcd"))
    table.insert(0, "patient", np.repeat(np.arange(100, 130), 8))
    table.insert(1, "day", np.tile(DAYS, 30))
    return table.sample(frac=1, random_state=0)


def fit_of(table, lags=1, **options):
    model = ps.models.LatentTransition(4, 2, lags=lags, hidden=8, units=4, gated_units=4)
    quick = {"steps": 20, "edge_steps": 5, "restarts": 1, "batch_size": 16, "progress": False}
    return ps.fit(model, table, id="patient", time="day", **{**quick, **options})


@pytest.fixture(scope="module")
def fitted(panel):
    return fit_of(panel)


def test_the_order_of_rows_does_not_change_the_fit(panel, fitted):
    again = fit_of(panel.sort_values(["day", "patient"]))
    np.testing.assert_array_equal(again.strength_time, fitted.strength_time)
    np.testing.assert_array_equal(again.heldout_elbo, fitted.heldout_elbo)


def test_gaps_are_counted(panel, fitted):
    assert [note for note in fitted.warnings if "gaps" in note] == [
        "30 of 210 steps are unlinked by gaps: more than the regular step (1 days 00:00:00) lies between "
        "their frames; if none is missing there (weekends), give the frames' numbers as time"
    ]
    numbered = panel.assign(day=panel["day"].rank(method="dense"))
    assert not any("gaps" in note for note in fit_of(numbered).warnings)


def test_the_step_can_be_given(panel):
    days = dict(zip(DAYS, np.cumsum([0, 2, 2, 2, 2, 2, 1, 1]), strict=True))
    uneven = panel.assign(day=panel["day"].map(days))
    with pytest.raises(ValueError, match="0.5 steps of 2 .* wanted whole steps: give step="):
        fit_of(uneven)
    assert (fit_of(uneven, step=1).sequences.linked == [True] + [False] * 5 + [True] * 2).all()
    with pytest.raises(TypeError, match="step: is for sequences, and SparseDecoder reads none"):
        ps.fit(ps.models.SparseDecoder(4, 2), panel[list("abcd")], step=1)
