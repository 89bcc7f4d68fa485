"""Time in `as_sequences`: stamps of every kind, the regular step, gaps, and which frames are linked."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from pyro_sparse.data.sequences import as_sequences
from tests._sequences import NAN, X, long

RNG = np.random.default_rng(0)


def timed(times, **options):
    """Frames of one feature at these times (of one sequence, or of each id)."""
    times = times if isinstance(times, dict) else {"a": times}
    table = pd.concat([pd.DataFrame({"id": k, "t": v}) for k, v in times.items()], ignore_index=True)
    table["x"] = np.arange(len(table)) % 7
    return as_sequences(table, id="id", time="t", **options)


def rule(lengths, gaps, known, lag):
    """Frame by frame what `linked` says, from the definition."""
    want = np.zeros((len(lengths), max(lengths)), dtype=bool)
    for s, n in enumerate(lengths):
        for t in range(n):
            last = range(max(1, t - lag + 1), t + 1)
            want[s, t] = known[s][t] and not any((s, u) in gaps for u in last)
    return want


@pytest.mark.parametrize("lag", [0, 1, 2, 3, 9])
def test_links_follow_the_definition(lag):
    times = [[0, 1, 2, 5, 6, 7, 8, 9, 10, 12], [3, 4, 5, 6, 7, 8], [1, 4, 5, 6, 7, 8, 9, 10, 11, 12]] * 2
    gaps = {(s, t) for s, row in enumerate(times) for t in range(1, len(row)) if row[t] - row[t - 1] > 1}
    x = [RNG.normal(size=(len(row), 2)) for row in times]
    actions = [RNG.normal(size=(len(row), 1)) for row in times]
    actions[1][2] = actions[0][0] = actions[2][9] = NAN
    got = as_sequences(long(x, actions, times=times), id="id", time="t", actions=["a1"], lag=lag)
    known = [~np.isnan(a[:, 0]) for a in actions]
    np.testing.assert_array_equal(got.linked, rule([len(t) for t in times], gaps, known, lag))
    assert got.step == 1 and isinstance(got.step, int)
    np.testing.assert_array_equal(got.time[0], times[0])
    np.testing.assert_array_equal(got.time[1], [*times[1], NAN, NAN, NAN, NAN])


def test_links_by_hand():
    got = timed({"a": [0, 1, 2, 4, 5, 6, 7, 8, 9, 10], "b": [5, 6, 7]})
    np.testing.assert_array_equal(got.linked, [[1, 1, 1, 0, 1, 1, 1, 1, 1, 1], [1] * 3 + [0] * 7])
    got = timed({"a": [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14], "b": [5, 6, 7]}, lag=2)
    np.testing.assert_array_equal(got.linked, [[1, 1, 1, 0, 0] + [1] * 9, [1] * 3 + [0] * 11])


def test_a_missing_frame_keeps_its_place():
    x = X.copy()
    x[0, 2] = NAN
    got = as_sequences(x)
    assert got.present is None and got.linked is None
    assert not got.mask[0, 2].any() and got.mask.sum() == x.size - 3 and not got.x[0, 2].any()


MONTHS = ["2020-01-31", "2020-02-29", "2020-03-31", "2020-06-30", "2020-07-31", "2020-08-31", "2020-09-30"]
LATER = ["2020-10-31", "2020-11-30", "2020-12-31", "2021-01-31", "2021-02-28", "2021-03-31", "2021-04-30"]


@pytest.mark.parametrize(
    ("times", "gaps", "step"),
    [
        (np.r_[0:3, 5:15] * 0.1, [3], pytest.approx(0.1)),
        (np.r_[0:3, 5:15] * 10, [3], 10),
        (pd.array(np.r_[0:3, 5:15], dtype="Int64"), [3], 1),
        (pd.to_datetime(MONTHS + LATER), [3], 1),
        (pd.date_range("1990-01-01", periods=14, freq="QS").delete(4), [4], 3),
        (pd.date_range("1990-01-15", periods=14, freq="MS") + pd.Timedelta("14D"), [], 1),
        (pd.date_range("2001", periods=14, freq="YS").delete([3]), [3], 12),
        (pd.date_range("2020-02-20", periods=16, freq="D").delete(9), [9], pd.Timedelta("1D")),
        (pd.date_range("2020-03-27", periods=16, freq="D", tz="Europe/Paris"), [], pd.Timedelta("1D")),
        (pd.date_range("2020-03-28 20:00", periods=16, freq="h", tz="Europe/Paris"), [], pd.Timedelta("1h")),
        (pd.date_range("2020-10-24 20:00", periods=16, freq="h", tz="Europe/Paris"), [], pd.Timedelta("1h")),
        (pd.period_range("1959Q1", periods=14, freq="Q").delete(5), [5], 1),
        (pd.period_range("2020-01", periods=14, freq="M").astype(object), [], 1),
        (pd.to_timedelta(np.r_[0:4, 6:14], unit="s"), [4], pd.Timedelta("1s")),
    ],
    ids=[
        "floats", "integers", "nullable", "ends of months", "quarters", "mid-months", "years", "days",
        "days across a clock change", "hours in spring", "hours in autumn", "periods", "objects",
        "timedeltas",
    ],
)  # fmt: skip
def test_time_stamps_of_every_kind(times, gaps, step):
    got = timed(times)
    linked = np.ones(len(times), dtype=bool)
    linked[gaps] = False
    np.testing.assert_array_equal(np.ones_like(linked) if got.linked is None else got.linked[0], linked)
    assert got.step == step
    assert list(got.time[0]) == list(times if times.dtype == object else pd.Series(times).to_numpy())


@pytest.mark.parametrize("written", [MONTHS + LATER, pd.date_range("2020-02-20", periods=14).astype(str)])
def test_dates_of_a_database_are_time_stamps(written):
    """Columns of `datetime.date` came as objects and were refused."""
    stamps = pd.to_datetime(written)
    got, wanted = timed(np.array(stamps.date, dtype=object)), timed(stamps)
    assert got.step == wanted.step and got.linked is None or (got.linked == wanted.linked).all()
    np.testing.assert_array_equal(got.time, wanted.time)


def test_decimal_numbers_of_a_database_keep_every_digit():
    clock = 10**17 + np.r_[0:3, 5:15]  # as floats consecutive ones would be one
    got = timed(np.array([Decimal(int(t)) for t in clock], dtype=object))
    assert got.step == 1 and not got.linked[0, 3]
    np.testing.assert_array_equal(got.time[0], clock)
    tenths = timed(np.array([Decimal(int(t)) / 10 for t in range(12)], dtype=object))
    assert tenths.step == pytest.approx(0.1) and tenths.linked is None


def test_objects_that_are_no_time_are_refused_in_words():
    days = np.array([date(1200 + i, 1, 1) for i in range(12)], dtype=object)
    if pd.to_datetime("2020-01-01").unit == "ns":  # since pandas 3 these are stamps in microseconds
        with pytest.raises(ValueError, match=r"holds date values that are no time stamps .*freq='D'"):
            timed(days)
    assert timed(pd.PeriodIndex([str(day) for day in days], freq="Y")).step == 1
    with pytest.raises(TypeError, match="holds text; wanted numbers, datetimes or periods"):
        timed(np.array([f"t{i}" for i in range(12)], dtype=object))
    with pytest.raises(TypeError, match="holds mixed values; wanted numbers, datetimes or periods"):
        timed(np.array([Decimal(1), 2.5, Decimal(4), 5.5], dtype=object))
    with pytest.raises(ValueError, match="time: column 't' is inf in row 3"):
        timed(np.array([*map(Decimal, (0, 1, 2, "Infinity", 4, 5))], dtype=object))


def test_the_step_can_be_given():
    """Steps of 2 are the most common; then come a step of 3 and ten of 1."""
    times = np.r_[0:26:2, 27:38]
    with pytest.raises(ValueError, match=re.escape("from 24 to 27, 1.5 steps of 2 (11 such pair(s))")):
        timed(times)
    got = timed(times, time_step=1)
    assert got.step == 1 and np.flatnonzero(got.linked[0]).tolist() == [0, *range(14, 24)]


def test_stamps_of_an_inexact_clock_are_taken_for_whole_steps_of_a_given_step():
    rng = np.random.default_rng(0)
    steps = np.r_[np.arange(12), np.arange(14, 30)]  # one step of three
    seconds = 600.0 * steps + rng.uniform(-60, 60, len(steps))
    times = pd.Timestamp("2024-03-01") + pd.to_timedelta(seconds, unit="s")
    with pytest.raises(ValueError, match=r"give time_step= \(stamps may be off by a quarter of it\)"):
        timed(times)
    got = timed(times, time_step="10min")
    assert got.linked[0].tolist() == [t != 12 for t in range(len(steps))]
    off = np.abs(np.diff(seconds) / 600 - np.diff(steps)).max()
    assert got.jitter == pytest.approx(off, abs=1e-6) and 0 < off < 0.2
    (note, *_) = [finding for finding in got.findings if finding.kind == "stamps"]
    assert f"up to {off:.0%} of a step" in note.message and not note.is_doubt
    with pytest.raises(ValueError, match="wanted whole steps"):
        timed(times, time_step="6min")
    assert timed(np.arange(12.0)).jitter == 0


def test_given_steps_of_calendars():
    quarters = pd.date_range("1990-01-01", periods=14, freq="QS")
    assert timed(quarters, time_step=3).linked is None
    days = pd.date_range("2020-01-01", periods=28, freq="D")
    for step in ("1D", pd.Timedelta("24h"), np.timedelta64(1, "D")):
        assert timed(days, time_step=step).linked is None and timed(
            days, time_step=step
        ).step == pd.Timedelta("1D")
    mondays = pd.date_range("2020-01-06", periods=14, freq="7D")
    assert timed(mondays).linked is None and timed(mondays).step == pd.Timedelta("7D")


def test_padding_of_time():
    got = timed({"a": pd.date_range("2020-01-01", periods=12), "b": pd.date_range("2020-01-01", periods=2)})
    assert pd.isna(got.time[1, 2:]).all() and got.time[1, 1] == np.datetime64("2020-01-02")
    got = timed(
        {
            "a": pd.period_range("2020-01", periods=12, freq="M"),
            "b": pd.period_range("2020-01", periods=2, freq="M"),
        }
    )
    assert pd.isna(got.time[1, 2:]).all() and got.time[1, 1] == pd.Period("2020-02", "M")


def test_like_uses_the_step_of_the_fit():
    fit = timed(pd.date_range("2020-01-01", periods=12))
    new = pd.DataFrame({"t": pd.to_datetime(["2021-05-01", "2021-05-03", "2021-05-05"]), "x": [1.0, 2, 3]})
    new["id"] = 1
    assert as_sequences(new, time="t", like=fit).linked.tolist() == [[True, False, False]]
    monthly = timed(pd.to_datetime(MONTHS + LATER))
    new["t"] = pd.to_datetime(["2022-01-31", "2022-03-31", "2022-04-30"])
    assert as_sequences(new, time="t", like=monthly).linked.tolist() == [[True, False, True]]


def test_a_single_gap_in_a_regular_series_is_found_whatever_its_place():
    for hole in range(1, 13):
        steps = np.delete(np.arange(14), hole)
        want = [a + 1 == b for a, b in pairwise(steps)]
        got = timed(steps * 0.3)
        assert got.linked[0, 0] and got.linked[0, 1:].tolist() == want


def test_dates_in_the_index_that_go_back_are_refused():
    """Newest first, as exports of prices are, time would run backwards; of ids within each sequence."""
    days = pd.date_range("2020-01-01", periods=16, name="day")
    table = pd.DataFrame({"a": np.arange(16.0), "b": np.arange(16.0) ** 2}, days)
    for back in (
        table[::-1],
        table.iloc[[0, 1, 3, 2, *range(4, 16)]],
        table[::-1].set_axis(days[::-1].to_period("D")),
    ):
        with pytest.raises(
            ValueError, match=r"^time: got none, and the dates in the index of X go back .*time='"
        ):
            as_sequences(back)
    with pytest.raises(ValueError, match=r"\(2020-01-15 .* comes after 2020-01-16 .*X.rename_axis\('date'\)"):
        as_sequences(table[::-1].rename_axis(None))
    np.testing.assert_array_equal(as_sequences(table[::-1], time="day").x, as_sequences(table).x)
    np.testing.assert_array_equal(as_sequences(table[::-1].sort_index()).x, as_sequences(table).x)

    ids = pd.concat([table, table + 10]).assign(person=["u"] * 16 + ["v"] * 16)
    np.testing.assert_array_equal(as_sequences(ids, id="person").lengths, [16, 16])  # one after the other
    with pytest.raises(ValueError, match="the dates in the index of X go back"):
        as_sequences(ids[::-1], id="person")
    with pytest.raises(ValueError, match="the dates in the index of X go back"):
        as_sequences(ids.drop(columns="person"))  # two sequences taken for one
    twice = ids.drop(columns="person").sort_index()
    assert as_sequences(twice).n_frames == 32  # equal dates do not go back
    assert as_sequences(table[::-1].reset_index(drop=True)).n_frames == 16  # numbers of rows say nothing
