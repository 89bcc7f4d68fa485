"""Every container, unit and link rule of `as_sequences` on tables done by hand."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch

from pyro_sparse import _sequence_arrays
from pyro_sparse.models.likelihoods import Bernoulli, Normal
from pyro_sparse.sequences import as_sequences
from tests._framed import Convertible

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 5, 3)) * [1, 10, 100] + [0, 5, -7]
A = RNG.uniform(-2, 2, size=(4, 5, 2))
LABELS = np.array([list("uvwuv"), list("wwuvu"), list("uuuuv"), list("vvwuw")])
NAN = np.nan


def long(x=X, actions=None, labels=None, times=None):
    """One row per frame, shuffled."""
    rows = []
    for s in range(len(x)):
        for t in range(len(x[s])):
            row = {"id": f"s{s}", "t": t if times is None else times[s][t]}
            row |= {f"x{j + 1}": v for j, v in enumerate(x[s][t])}
            row |= {} if actions is None else {f"a{j + 1}": v for j, v in enumerate(actions[s][t])}
            row |= {} if labels is None else {"label": labels[s][t]}
            rows.append(row)
    table = pd.DataFrame(rows)
    mixed = table.iloc[RNG.permutation(len(table))]
    return pd.concat(
        [table.groupby("id").head(1), mixed[~mixed.index.isin(table.groupby("id").head(1).index)]]
    )


def timed(times, **options):
    """Frames of one feature at these times (of one sequence, or of each id)."""
    times = times if isinstance(times, dict) else {"a": times}
    table = pd.concat([pd.DataFrame({"id": k, "t": v}) for k, v in times.items()], ignore_index=True)
    table["x"] = np.arange(len(table)) % 7
    return as_sequences(table, id="id", time="t", **options)


def message(text):
    return re.escape(text)


# ---- containers


def same(one, other):
    for name in (
        "x",
        "mask",
        "present",
        "linked",
        "actions",
        "centre",
        "scale",
        "action_centre",
        "action_scale",
    ):
        a, b = getattr(one, name), getattr(other, name)
        assert (a is None) == (b is None), name
        if a is not None:
            np.testing.assert_allclose(a, b, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    "made",
    [
        X.tolist(),
        list(X),
        tuple(X),
        torch.as_tensor(X).requires_grad_(),
        list(torch.as_tensor(X)),
        [pd.DataFrame(x) for x in X],
    ],
    ids=["nested list", "list", "tuple", "tensor", "list of tensors", "list of frames"],
)
def test_containers_hold_the_same_numbers(made):
    same(as_sequences(made), as_sequences(X))


@pytest.mark.parametrize(
    "made",
    [A.tolist(), list(A), torch.as_tensor(A), [pd.DataFrame(a) for a in A]],
    ids=["nested list", "list", "tensor", "list of frames"],
)
def test_containers_of_actions_hold_the_same_numbers(made):
    same(as_sequences(X, actions=made), as_sequences(X, actions=A))


@pytest.mark.parametrize("made", [np.asarray, torch.as_tensor], ids=["array", "tensor"])
def test_stacked_sequences_are_read_at_once(made, monkeypatch):
    """There may be hundreds of thousands of them."""
    calls = []
    for name in ("read_array", "_columns_of"):
        own = getattr(_sequence_arrays, name)
        monkeypatch.setattr(_sequence_arrays, name, lambda *args, own=own: calls.append(own) or own(*args))
    same(as_sequences(made(X), actions=made(A)), as_sequences(list(X), actions=list(A)))
    assert len(calls) == 1 + 1 + len(X) + len(A)
    same(as_sequences(made(X), actions=made(A[..., 0])), as_sequences(X, actions=A[..., :1]))


def test_a_matrix_is_one_sequence():
    x, a = X.reshape(20, 3), A.reshape(20, 2)
    same(as_sequences(x, actions=a), as_sequences(x[None], actions=a[None]))
    same(as_sequences(x, actions=a[:, 0]), as_sequences(x[None], actions=a[None, :, :1]))
    same(as_sequences(x.tolist(), actions=a.tolist()), as_sequences([x], actions=[a]))
    assert as_sequences(x).sequence_names == ["0"]


def test_array_and_long_table_give_the_same_tensors():
    x, a, labels = X.copy(), A.copy(), LABELS.astype(object)
    x[1, 2], x[0, 0, 1], a[2, 3, 1], labels[3, 0] = NAN, NAN, NAN, None
    short = [5, 3, 4, 5]
    ragged = [v[:n] for v, n in zip(x, short, strict=True)]
    for xs, n in ((x, [5] * 4), (ragged, short)):
        both = [
            pd.DataFrame({"a1": a[s, :m, 0], "a2": a[s, :m, 1], "label": labels[s, :m]})
            for s, m in enumerate(n)
        ]
        ours = as_sequences(xs, actions=both, action_names=["a1", "a2", "label"])
        table = long(xs, a, labels)
        read = as_sequences(table, id="id", time="t", actions=["a1", "a2", "label"])
        same(ours, read)
        assert ours.feature_names == read.feature_names == ["x1", "x2", "x3"]
        assert ours.action_names == read.action_names == ["a1", "a2", "label=u", "label=v", "label=w"]
        assert read.sequence_names == ["s0", "s1", "s2", "s3"]
        one, other = ours.batch(dtype=torch.float64), read.batch(dtype=torch.float64)
        torch.testing.assert_close(one.x, other.x)
        torch.testing.assert_close(one.actions, other.actions)
        assert torch.equal(one.linked, other.linked) and torch.equal(one.mask, other.mask)
        # and back: what the caller gave
        back = np.where(ours.mask, ours.x * ours.scale + ours.centre, NAN)
        for s, v in enumerate(xs):
            np.testing.assert_allclose(back[s, : len(v)], v)


def test_id_and_time_may_be_index_levels():
    table = long(actions=A)
    same(
        as_sequences(table.set_index(["id", "t"]), id="id", time="t", actions=["a2"], feature_names=["x1"]),
        as_sequences(table, id="id", time="t", actions="a2", feature_names=["x1"]),
    )


def test_tables_of_other_libraries():
    table = long(actions=A)
    roles = {"id": "id", "time": "t", "actions": ["a1", "a2"]}
    same(as_sequences(Convertible(table), **roles), as_sequences(table, **roles))
    pieces = [pd.DataFrame(x, columns=list("uvw")) for x in X]
    acts = [pd.DataFrame(a) for a in A]
    got = as_sequences([Convertible(x) for x in pieces], actions=[Convertible(a) for a in acts])
    same(got, as_sequences(pieces, actions=acts))
    assert got.feature_names == list("uvw")


@pytest.mark.parametrize(
    ("ids", "wanted"),
    [
        (["s10", "s2", "s1"], ["s1", "s2", "s10"]),
        ([10, 2, 1], ["1", "2", "10"]),
        ([2, "b", 1], ["1", "2", "b"]),
        (pd.Categorical(["low", "mid", "top"], ["top", "mid", "low"]), ["top", "mid", "low"]),
    ],
)
def test_the_order_of_rows_does_not_matter(ids, wanted):
    table = long(X[:3], A[:3]).sort_values(["id", "t"])
    table["id"] = pd.Series(ids).iloc[np.arange(15) // 5].to_numpy()
    if isinstance(ids, pd.Categorical):
        table["id"] = pd.Categorical(table["id"], ids.categories)
    read = [
        as_sequences(rows, id="id", time="t", actions=["a1", "a2"])
        for rows in (table, table.iloc[::-1], table.sample(frac=1, random_state=1))
    ]
    assert [one.sequence_names for one in read] == [wanted] * 3
    for name in ("x", "actions", "centre", "scale", "time"):
        for one in read[1:]:
            np.testing.assert_array_equal(getattr(one, name), getattr(read[0], name))
    for name, x in zip(read[0].sequence_names, read[0].x, strict=True):
        i = [str(label) for label in ids].index(name)
        np.testing.assert_allclose(x * read[0].scale + read[0].centre, X[i])


def test_columns_without_id_or_time():
    table = pd.DataFrame(X.reshape(20, 3))
    same(as_sequences(table), as_sequences(X.reshape(1, 20, 3)))
    assert as_sequences(table).feature_names == ["0", "1", "2"]
    table["who"] = np.tile([1, 0], 10)  # interleaved, sorted by id
    got = as_sequences(table, id="who")
    same(got, as_sequences(np.stack([X.reshape(20, 3)[1::2], X.reshape(20, 3)[::2]])))
    assert got.sequence_names == ["0", "1"] and got.time is None and got.step is None


def test_nullable_and_boolean_features():
    table = pd.DataFrame(
        {"i": pd.array([1, None, 3, 4] * 3, dtype="Int64"), "b": [True, False, False, True] * 3}
    )
    got = as_sequences(table, standardise=False)
    same(got, as_sequences(table.astype(object), standardise=False))
    with pytest.raises(TypeError, match="column 'b' holds complex128, wanted numbers"):
        as_sequences(table.assign(b=1j))
    np.testing.assert_array_equal(got.x[0, :4], [[1, 1], [0, 0], [3, 0], [4, 1]])
    np.testing.assert_array_equal(got.mask[0, :3], [[1, 1], [0, 1], [1, 1]])


# ---- units


def test_standardisation_by_hand():
    """Two sequences, one ended early and one cell missing: seen cells are 1, 2, 3, 6 and 0, 2, 4, 4, 5."""
    first, second = [[1.0, 0], [2, 2], [NAN, 4]], [[3.0, 4], [6, 5]]
    got = as_sequences([first, second] * 5)
    np.testing.assert_allclose(got.centre, [3, 3])
    np.testing.assert_allclose(got.scale, [np.sqrt((4 + 1 + 0 + 9) / 4), np.sqrt((9 + 1 + 1 + 1 + 4) / 5)])
    s = got.scale
    np.testing.assert_allclose(got.x[0], [[-2 / s[0], -3 / s[1]], [-1 / s[0], -1 / s[1]], [0, 1 / s[1]]])
    np.testing.assert_allclose(got.x[1], [[0, 1 / s[1]], [3 / s[0], 2 / s[1]], [0, 0]])
    np.testing.assert_array_equal(got.mask[:2], [[[1, 1], [1, 1], [0, 1]], [[1, 1], [1, 1], [0, 0]]])
    np.testing.assert_array_equal(got.present[:2], [[1, 1, 1], [1, 1, 0]])
    np.testing.assert_array_equal(got.linked, got.present)
    assert got.lengths.tolist() == [3, 2] * 5 and got.n_frames == 25 and len(got) == 10


def test_actions_by_hand():
    """Numbers 0, 2, 4 (one missing) have mean 2; labels b, a, b have shares 1/3 and 2/3."""
    x = RNG.normal(size=(4, 4, 1))
    number = np.tile([[0.0], [2], [NAN], [4]], (4, 1, 1))
    got = as_sequences(x, actions=number, action_names=["dose"])
    s = np.sqrt(8 / 3)
    np.testing.assert_allclose(got.actions[0, :, 0], [-2 / s, 0, 0, 2 / s], atol=1e-12)
    np.testing.assert_array_equal(got.linked, [[True, True, False, True]] * 4)
    assert got.mask is None and got.present is None and got.action_names == ["dose"]
    assert got.action_levels == {} and got.action_centre == [2]

    label = np.array([["b", "a", None, "b"]] * 4, dtype=object)
    got = as_sequences(x, actions=label, action_names=["do"])
    assert got.action_names == ["do=a", "do=b"] and got.action_levels == {"do": ["a", "b"]}
    np.testing.assert_allclose(got.action_centre, [1 / 3, 2 / 3])
    np.testing.assert_allclose(got.action_scale, [np.sqrt(2) / 3] * 2)
    r = np.sqrt(2)
    np.testing.assert_allclose(got.actions[0], [[-1 / r, 1 / r], [r, -r], [0, 0], [-1 / r, 1 / r]])
    np.testing.assert_array_equal(got.linked, [[True, True, False, True]] * 4)
    assert as_sequences(x, actions=label, standardise=False).actions[0].tolist() == [
        [0, 1],
        [1, 0],
        [0, 0],
        [0, 1],
    ]


@pytest.mark.parametrize(
    ("values", "levels"),
    [
        (pd.Categorical(list("cacb") * 3, categories=list("zcba")), ["c", "b", "a"]),
        (pd.Categorical([3, 1, 3, None] * 3), [1, 3]),
        ([True, False, False, True] * 3, [False, True]),
        (pd.array([True, None, False, True] * 3, dtype="boolean"), [False, True]),
        (pd.array(["q", None, "p", "p"] * 3, dtype="string"), ["p", "q"]),
        (["None", None, "p", NAN] * 3, ["None", "p"]),
        (["10 mg", "2 mg", "2.5 mg", "0 mg"] * 3, ["0 mg", "2 mg", "2.5 mg", "10 mg"]),
    ],
    ids=["category", "numbers as category", "bool", "nullable bool", "string", "object", "doses"],
)
def test_what_is_a_label(values, levels):
    table = pd.DataFrame({"x": RNG.normal(size=12), "do": values})
    table = pd.concat([table] * 2, ignore_index=True)
    got = as_sequences(table, actions=["do"], standardise=False)
    assert got.action_levels == {"do": levels} and got.action_columns == ["do"]
    known = ~table["do"].isna().to_numpy()
    assert (got.linked is None) == known.all()
    for j, level in enumerate(levels):
        want = [bool(k) and v == level for k, v in zip(known, table["do"], strict=True)]
        np.testing.assert_array_equal(got.actions[0, :, j], want)


@pytest.mark.parametrize(
    ("values", "levels"),
    [
        (pd.cut([1.0, 5, 2, np.nan] * 3, [0, 3, 6]), ["(0, 3]", "(3, 6]"]),
        (pd.Categorical(pd.to_datetime(["2020-01-02", "2020-01-01"] * 6)), None),
        (pd.Series([("a", 1), ("b", 2)] * 6), ["('a', 1)", "('b', 2)"]),
    ],
    ids=["intervals", "dates", "tuples"],
)
def test_labels_that_no_file_can_hold_become_text(values, levels):
    table = pd.DataFrame(
        {"x": RNG.normal(size=24), "do": pd.concat([pd.Series(values)] * 2, ignore_index=True)}
    )
    got = as_sequences(table, actions=["do"])
    kept = got.action_levels["do"]
    assert len(kept) == 2 and all(type(level) is str for level in kept) and kept == (levels or kept)
    same(as_sequences(table, actions=["do"], like=got), got)
    same(as_sequences(table.assign(do=table["do"].map(str, na_action="ignore")), actions=["do"]), got)


def test_likelihoods_of_other_scales_keep_their_features():
    x = (X > 0).astype(float)
    got = as_sequences(x, actions=A, likelihood=Bernoulli())
    np.testing.assert_array_equal(got.x, x)
    np.testing.assert_allclose(got.actions, as_sequences(X, actions=A).actions)
    same(as_sequences(X, likelihood=Normal()), as_sequences(X))


def test_labels_of_an_array():
    text = LABELS.astype("U3")
    text[0, 0] = "nan"  # what numpy makes of NaN in an array of text
    got = as_sequences(X, actions=text)
    assert got.action_names == ["a1=u", "a1=v", "a1=w"]
    np.testing.assert_array_equal(np.argwhere(~got.linked), [[0, 0]])
    same(got, as_sequences(X, actions=[[[None if v == "nan" else str(v)] for v in row] for row in text]))
    same(as_sequences(X, actions=[pd.Categorical(row) for row in LABELS]), as_sequences(X, actions=LABELS))
    same(as_sequences(X, actions=[pd.Series(row) for row in LABELS]), as_sequences(X, actions=LABELS))


# ---- links


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


def test_the_step_can_be_given():
    """Steps of 2 are the most common; then come a step of 3 and ten of 1."""
    times = np.r_[0:26:2, 27:38]
    with pytest.raises(ValueError, match=message("from 24 to 27, 1.5 steps of 2 (11 such pair(s))")):
        timed(times)
    got = timed(times, step=1)
    assert got.step == 1 and np.flatnonzero(got.linked[0]).tolist() == [0, *range(14, 24)]


def test_given_steps_of_calendars():
    quarters = pd.date_range("1990-01-01", periods=14, freq="QS")
    assert timed(quarters, step=3).linked is None
    days = pd.date_range("2020-01-01", periods=28, freq="D")
    for step in ("1D", pd.Timedelta("24h"), np.timedelta64(1, "D")):
        assert timed(days, step=step).linked is None and timed(days, step=step).step == pd.Timedelta("1D")
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


# ---- tensors and rows


def test_tensors():
    whole = as_sequences(X, actions=A).batch()
    assert whole.x.dtype == whole.actions.dtype == torch.float32
    assert whole.mask is None and whole.present is None and whole.linked is None
    assert whole.total == len(whole) == 4
    assert as_sequences(X).batch().actions is None
    ragged = as_sequences([x[:n] for x, n in zip(X, [5, 2, 5, 4], strict=True)]).batch(dtype=torch.float64)
    assert ragged.x.dtype == torch.float64
    assert ragged.mask.dtype == ragged.present.dtype == ragged.linked.dtype == torch.bool
    assert ragged.mask.shape == (4, 5, 3) and ragged.present.sum(1).tolist() == [5, 2, 5, 4]


@pytest.mark.parametrize("full", [False, True], ids=["ragged", "full"])
def test_rows(full):
    x, a = X.copy(), A.copy()
    lengths = [5, 5, 5, 5] if full else [5, 2, 4, 5]
    if not full:
        x[0, 1, 2] = a[3, 2, 0] = NAN
    times = [np.arange(5) + 10 * s for s in range(4)]
    table = long([v[:n] for v, n in zip(x, lengths, strict=True)], a, times=times)
    data = as_sequences(table, id="id", time="t", actions=["a1", "a2"])
    batch = data.batch()
    part, mini = data.rows([3, 1]), batch.rows(torch.tensor([3, 1]))
    assert len(part) == len(mini) == 2 and mini.total == 4 and mini.whole().total == 2
    assert part.sequence_names == ["s3", "s1"]
    assert part.time[0, 0] == 30 and part.time[1, 1] == 11
    for name in ("x", "mask", "present", "linked", "actions"):
        everything, ours, tensor = getattr(data, name), getattr(part, name), getattr(mini, name)
        if everything is None:
            assert ours is None and tensor is None
            continue
        np.testing.assert_array_equal(ours, np.stack([everything[3], everything[1]]))
        np.testing.assert_allclose(tensor, ours, rtol=1e-6)
    same(data.rows(np.array([False, True, False, True])), data.rows([1, 3]))
    assert part.lengths.tolist() == [lengths[3], lengths[1]]


# ---- new data for a fit


def test_like_keeps_units_levels_and_step():
    fit = as_sequences(
        long(X, A, LABELS), id="id", time="t", actions=["a1", "label"], feature_names=["x1", "x3"]
    )
    new = long(X[:1, :2] + 1, A[:1], LABELS[:1])[["label", "x3", "t", "a1", "x2", "x1"]]
    got = as_sequences(new, time="t", actions=["label", "a1"], like=fit)
    assert got.feature_names == ["x1", "x3"] and got.action_names == fit.action_names
    assert got.action_levels == fit.action_levels and got.step == 1
    np.testing.assert_allclose(got.x[0] * fit.scale + fit.centre, X[0, :2][:, [0, 2]] + 1)
    np.testing.assert_allclose(got.actions[0], fit.actions[0, :2])


def test_like_for_arrays_goes_by_position():
    given = [pd.DataFrame({"n": a[:, 0], "w": w}) for a, w in zip(A, LABELS, strict=True)]
    fit = as_sequences(X, actions=given, feature_names=["p", "q", "r"], action_names=["dose", "do"])
    actions = [pd.DataFrame({"n": [0.5, NAN], "w": ["w", "u"]})]
    got = as_sequences(X[:1, :2], actions=actions, like=fit)
    assert got.feature_names == ["p", "q", "r"] and got.action_names == ["dose", "do=u", "do=v", "do=w"]
    np.testing.assert_allclose(got.x, fit.x[:1, :2])
    raw = got.actions[0] * fit.action_scale + fit.action_centre
    np.testing.assert_allclose(raw[0], [0.5, 0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(raw[1, 1:], [1, 0, 0], atol=1e-12)
    assert got.linked.tolist() == [[True, False]] and got.actions[0, 1, 0] == 0


def test_like_uses_the_step_of_the_fit():
    fit = timed(pd.date_range("2020-01-01", periods=12))
    new = pd.DataFrame({"t": pd.to_datetime(["2021-05-01", "2021-05-03", "2021-05-05"]), "x": [1.0, 2, 3]})
    assert as_sequences(new, time="t", like=fit).linked.tolist() == [[True, False, False]]
    monthly = timed(pd.to_datetime(MONTHS + LATER))
    new["t"] = pd.to_datetime(["2022-01-31", "2022-03-31", "2022-04-30"])
    assert as_sequences(new, time="t", like=monthly).linked.tolist() == [[True, False, True]]


def test_new_sequences_may_be_short():
    fit = as_sequences(X)
    assert as_sequences(X[:1, :1], like=fit).x.shape == (1, 1, 3)


def test_a_single_gap_in_a_regular_series_is_found_whatever_its_place():
    for hole in range(1, 13):
        steps = np.delete(np.arange(14), hole)
        want = [a + 1 == b for a, b in pairwise(steps)]
        got = timed(steps * 0.3)
        assert got.linked[0, 0] and got.linked[0, 1:].tolist() == want
