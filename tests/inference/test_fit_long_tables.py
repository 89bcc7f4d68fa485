"""`ps.fit` of sequences in a long table: the order of its rows, steps and gaps, latents by id and time."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps

pytestmark = pytest.mark.usefixtures("hurried_module")


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
        "30 of 210 steps are unlinked by gaps, more than the regular step (1 days 00:00:00) lies between "
        "their frames: if none is missing there (weekends), give the frames' numbers as time"
    ]
    numbered = panel.assign(day=panel["day"].rank(method="dense"))
    assert not any("gaps" in note for note in fit_of(numbered).warnings)


def test_a_fit_is_shown_on_one_line(fitted):
    said = "TransitionFit(LatentTransition: 30 sequences, 4 features, 2 latents; one restart, held-out ELBO "
    assert repr(fitted).startswith(said) and len(repr(fitted)) < 200


def test_latents_of_a_new_table_are_found_by_id_and_time(panel, fitted):
    few = panel[~((panel["patient"] == 107) & (panel["day"] > DAYS[4]))]
    few = few[few["patient"].isin([107, 103, 125])]
    found = fitted.transform(few)  # id and time as in the fit
    pd.testing.assert_frame_equal(found, fitted.transform(few, id="patient", time="day"))
    assert found.index.names == ["patient", "day"] and list(found.columns) == ["latent 1", "latent 2"]
    both = few.set_index(["patient", "day"]).join(found)
    assert len(both) == len(found) == 21 and both.notna().all(axis=None)
    alone = few[few["patient"] == 107].sort_values("day")[list("abcd")].to_numpy()
    np.testing.assert_allclose(found.loc[107], fitted.transform(alone)[0], atol=1e-5)
    own = fitted.transform()  # of the fit: an array
    assert own.shape == (30, 8, 2) and fitted.sequences.sequence_names == [str(i) for i in range(100, 130)]
    np.testing.assert_allclose(found.loc[125], own[25], atol=1e-5)
    with pytest.raises(ValueError, match="id: the fit was given id='patient', time='day', and X has no col"):
        fitted.transform(few[list("abcd")])
    with pytest.raises(TypeError, match="unexpected argument 'ids'; .* one of actions, id, time, time_step"):
        fitted.transform(few, ids="patient")
    assert fitted.sequences.rows([25, 3]).index[7:9].tolist() == [(125, DAYS[7]), (103, DAYS[0])]


def test_the_step_can_be_given(panel):
    days = dict(zip(DAYS, np.cumsum([0, 2, 2, 2, 2, 2, 1, 1]), strict=True))
    uneven = panel.assign(day=panel["day"].map(days))
    with pytest.raises(ValueError, match="0.5 steps of 2 .* wanted whole steps: give time_step="):
        fit_of(uneven)
    assert (fit_of(uneven, time_step=1).sequences.linked == [True] + [False] * 5 + [True] * 2).all()
    with pytest.raises(TypeError, match="time_step: is for sequences, and SparseDecoder reads none"):
        ps.fit(ps.models.SparseDecoder(4, 2), panel[list("abcd")], time_step=1)
    with pytest.raises(
        TypeError, match="unknown setting 'step'; wanted an argument of fit or one of .*'steps'"
    ):
        fit_of(panel, step=3000)
