"""Every complaint of `as_sequences`: what it names, what it saw, what it wants."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from pyro_sparse.data.sequences import as_sequences
from pyro_sparse.likelihoods import Bernoulli
from tests._sequences import LABELS, NAN, A, X


def table(**columns):
    base = {"who": ["a"] * 8 + ["b"] * 8, "t": [*range(8)] * 2, "x": np.arange(16.0), "do": list("ab") * 8}
    return pd.DataFrame(base | columns)


def at(values, i, value):
    values = list(values)
    values[i] = value
    return values


TEXT = pd.Series(["a"]).dtype  # object, or str since pandas 3
RNG = np.random.default_rng(0)
DAYS = pd.date_range("2020-01-01", periods=16)
READ = {"id": "who", "time": "t", "actions": ["do"]}


@pytest.mark.parametrize(
    ("data", "options", "kind", "text"),
    [
        (table(t=at(np.arange(16.0), 3, NAN)), READ, ValueError,
         "time: column 't' is missing in row 3 (1 such row(s))"),
        (table(t=at(DAYS, 5, pd.NaT)), READ, ValueError, "time: column 't' is missing in row 5"),
        (table(t=at(np.arange(16.0), 2, np.inf)), READ, ValueError, "time: column 't' is inf in row 2"),
        (table(t=at([*range(8)] * 2, 9, 5)), READ, ValueError,
         "time: sequence 'b' has two rows at 5 (1 such pair(s))"),
        (table(), {"time": "t", "feature_names": ["x"]}, ValueError,
         "time: sequence '0' has two rows at 0 (8 such"),
        (table(t=[str(d) for d in DAYS]), READ, TypeError,
         "time: column 't' holds text; wanted numbers, datetimes"),
        (table(t=[True, False] * 8), READ, TypeError, "time: column 't' holds bool"),
        (table(t=at(np.arange(16.0), 3, 3.5)), READ, ValueError,
         "time: sequence 'a' goes from 2.0 to 3.5, 1.5 steps of 1 (2 such pair(s)); wanted whole steps"),
        (table(t=at(DAYS, 15, DAYS[15] + pd.Timedelta("6h"))), READ, ValueError,
         "1.25 steps of 1 days 00:00:00"),
        (table(t=pd.date_range("2020", periods=16, freq="MS")), READ | {"time_step": 2}, ValueError,
         "0.5 steps of 2 month(s)"),
        (table(t=DAYS), READ | {"time_step": 1}, ValueError, "time_step=1: a number counts months"),
        (table(t=DAYS), READ | {"time_step": "D"}, ValueError, "a number or a time difference, such as '1D'"),
        (table(), READ | {"time_step": "1D"}, ValueError,
         "time_step='1 days 00:00:00': time holds int64; wanted a number"),
        (table(), READ | {"time_step": 0}, ValueError, "time_step=0: wanted more than 0"),
        (table(), READ | {"time_step": -1}, ValueError, "time_step=-1: wanted more than 0"),
        (table(), {"actions": ["do"], "id": "who", "time_step": 1}, ValueError,
         "time_step=1: there is no time column"),
        (table(who=at(["a"] * 16, 4, None)), READ, ValueError, "id: column 'who' is missing in row 4"),
        (table(), READ | {"id": "name"}, ValueError,
         "id: X has no column 'name'; give one of ['who', 't', 'x', 'do']"),
        (table().set_index(["who", "t"]), {"actions": ["do"]}, ValueError,
         "id: got none, and the index of X has levels 'who', 't'; give id=, time= (names of levels or"),
        (table().set_index(["who", "t"]), {"actions": ["do"], "time": "t"}, ValueError, "id: got none, and"),
        (table(), READ | {"time": "when"}, ValueError, "time: X has no column 'when'"),
        (table(), READ | {"actions": ["do", "done"]}, ValueError, "actions: X has no column 'done'"),
        (table(), READ | {"feature_names": ["y"]}, ValueError, "feature_names: X has no column 'y'"),
        (table(), READ | {"feature_names": ["do"]}, ValueError,
         "feature_names: column 'do' is already in actions; use"),
        (table(), READ | {"actions": ["do", "do"]}, ValueError, "actions: column 'do' is already in actions"),
        (table(), READ | {"actions": np.zeros((2, 8, 1))}, ValueError,
         "actions: is ndarray (2, 8, 1), X is a DataFrame"),
        (table(), READ | {"actions": []}, ValueError, "actions: is list (0,), X is a DataFrame"),
        (table(), READ | {"action_names": ["a"]}, ValueError, "action_names: is for arrays"),
        (table(), {"id": "who", "time": "t"}, TypeError,
         "X: column 'do' holds text ('a', 'b'), wanted numbers (1 such column(s)); name it"),
        (table(z=DAYS), READ, TypeError, f"X: column 'z' holds {DAYS.dtype}, wanted numbers"),
        (table()[["who", "t", "do"]], READ, ValueError, "X: no column is left for features"),
        (table()[:0].assign(do=0), READ, ValueError, "X: has no rows"),
        (table().set_axis(["who", "t", "x", "x"], axis=1), {}, ValueError, "X: column 'x' occurs 2 times"),
        (table(x=at(np.arange(16.0), 11, -np.inf)), READ, ValueError,
         "X: column 'x' has -inf in sequence 'b', frame 3"),
        (table(do=at(np.arange(16.0), 1, np.inf)), READ, ValueError,
         "actions: column 'do' has inf in sequence 'a', frame 1"),
        (table(do="a"), READ, ValueError, "actions: column 'do' has 1 level(s) ['a']; wanted at least 2"),
        (table(do=at([None] * 16, 1, "a")), READ, ValueError, "actions: column 'do' has 1 level(s)"),
        (table(do=3.0), READ, ValueError, "actions: column 'do' is constant at 3"),
        (table(do=DAYS), READ, TypeError,
         f"actions: column 'do' holds {DAYS.dtype}; wanted numbers or labels"),
        (table(x=2.5), READ, ValueError, "X: column 'x' is constant at 2.5"),
        (table(z=NAN), READ, ValueError, "X: column 'z' has no observed value"),
        (table(x=[NAN] * 8 + [*range(8)]), READ, ValueError, "X: sequence 'a' has no observed value (1 such"),
        (table(do=["a", "b", *[None] * 14]), READ, ValueError,
         "X: has 2 linked step(s) in 2 sequence(s), wanted at least 10"),
        (table(t=np.r_[0:4, 10:18:2, 30:46:2]), READ | {"time_step": 1}, ValueError,
         "X: has 5 linked step(s)"),
        (table(who=at(["a"] * 16, 6, "c")), {"id": "who", "feature_names": ["x"]}, ValueError,
         "X: sequence 'c' has 1 frame(s) (1 such sequence(s)), wanted at least lag+1=2"),
        (table(who=["a"] * 13 + ["c"] * 3), {"id": "who", "feature_names": ["x"], "lag": 3}, ValueError,
         "X: sequence 'c' has 3 frame(s) (1 such sequence(s)), wanted at least lag+1=4"),
        (table(who=np.arange(16)), {"id": "who", "feature_names": ["x"]}, ValueError,
         "X: T=1, every sequence has one frame"),
    ],
)  # fmt: skip
def test_complaints_about_tables(data, options, kind, text):
    with pytest.raises(kind, match=re.escape(text)):
        as_sequences(data, **options)


@pytest.mark.parametrize(
    ("data", "options", "kind", "text"),
    [
        (X, {"lag": -1}, ValueError, "lag: want a whole number of at least 0, got -1"),
        (X, {"lag": 1.5}, ValueError, "lag: want a whole number of at least 0, got 1.5"),
        (X, {"lag": 0}, ValueError, "lag=0: without actions nothing drives the latents"),
        (X, {"id": "who"}, ValueError, "id: is for a DataFrame, X is ndarray; leave it out"),
        (X, {"time_step": 1}, ValueError, "time_step: is for a DataFrame"),
        (X[:, :1], {}, ValueError, "X: T=1, every sequence has one frame, and there are no actions"),
        (X[0, 0], {}, ValueError, "X: ndarray has 1 dimension(s); wanted (sequence, time, feature)"),
        (X[None], {}, ValueError, "X: ndarray has 4 dimension(s)"),
        (3.0, {}, ValueError, "X: float has 0 dimension(s)"),
        ([], {}, ValueError, "X: list has 1 dimension(s)"),
        (X[:0], {}, ValueError, "X: no sequence"),
        (X[..., :0], {}, ValueError, "X: has 0 features; wanted at least one"),
        ([X[0], X[1, :0]], {}, ValueError, "X: sequence '1' has no frames; drop it"),
        ([X[0], X[1, :, :2]], {}, ValueError, "X[1]: has 2 feature(s) , X[0] has 3"),
        ([pd.DataFrame(X[0]), pd.DataFrame(X[1]).set_axis(list("abc"), axis=1)], {}, ValueError,
         "X[1]: has 3 feature(s) ['a', 'b', 'c'], X[0] has 3 ['0', '1', '2']"),
        ([X[0], [["a", "b", "c"]]], {}, TypeError, "X[1]: cannot be read as numbers"),
        ([X[0], X[1, :2]], {"lag": 2}, ValueError, "X: sequence '1' has 2 frame(s)"),
        (np.where(X == X[2, 3, 1], np.inf, X), {}, ValueError,
         "X: column 'x2' has inf in sequence '2', frame 3"),
        (np.where(X == X[2, 3, 1], NAN, X)[2:3, :3], {}, ValueError,
         "X: has 2 linked step(s) in 1 sequence(s)"),
        (X, {"feature_names": ["a"]}, ValueError, "feature_names: has 1 names, X has 3 features"),
        (X, {"feature_names": list("aba")}, ValueError, "feature_names: 'a' occurs 2 times"),
        (X, {"action_names": ["a"]}, ValueError, "action_names: are ['a'] for 0 action(s)"),
        (X, {"actions": A, "action_names": ["a"]}, ValueError, "action_names: are ['a'] for 2 action(s)"),
        (X, {"actions": A, "action_names": ["a", "a"]}, ValueError, "action_names: are ['a', 'a'] for 2"),
        (X, {"actions": A[:3]}, ValueError, "actions: has 3 sequence(s), X has 4; give one per sequence"),
        (X, {"actions": 3}, ValueError, "actions: has 0 sequence(s), X has 4"),
        (X, {"actions": A[:, 1:]}, ValueError,
         "actions: sequence '0' has 4 frame(s), X has 5; give one row per frame"),
        (list(X), {"actions": [A[0], A[1], A[2, :3], A[3]]}, ValueError,
         "actions: sequence '2' has 3 frame(s), X has 5"),
        (list(X), {"actions": [A[0], A[1, :, :1], *A[2:]]}, ValueError,
         "actions: sequence '1' has 1 action(s)"),
        (X, {"actions": A[..., :0]}, ValueError, "actions: sequence '0' has 0 action(s)"),
        (X, {"actions": A[..., None]}, ValueError, "actions: has 3 dimension(s) in one sequence"),
        (X[0], {"actions": 1.0}, ValueError, "actions: has 0 dimension(s) in one sequence"),
        (X, {"actions": np.where(A == A[1, 2, 0], np.inf, A)}, ValueError,
         "actions: column 'a1' has inf in sequence '1', frame 2"),
        (X, {"actions": A * [0, 1]}, ValueError, "actions: column 'a1' is constant at 0"),
        (X * [1, 0, 1], {}, ValueError, "X: column 'x2' is constant at"),
    ],
)  # fmt: skip
def test_complaints_about_arrays(data, options, kind, text):
    with pytest.raises(kind, match=re.escape(text)):
        as_sequences(data, **options)


@pytest.mark.parametrize(
    ("data", "options", "kind", "text"),
    [
        (table(do=at(["a"] * 16, 3, "c"), dose=1.0), READ | {"actions": ["do", "dose"]}, ValueError,
         "actions: column 'do' has level 'c' (1 such level(s)), which the model was not fitted to; it knows"),
        (table(), {"id": "who", "time": "t"}, ValueError,
         "actions: the fit was given actions=['do', 'dose'], and X has no column 'dose'; give them"),
        (table(dose=1.0).drop(columns="who"), {}, ValueError,
         "id: the fit was given id='who', time='t', actions=['do', 'dose'], and X has no column 'who'; give"),
        (table(dose=1.0).drop(columns="t"), {"id": "who"}, ValueError,
         "time: the fit was given time='t', actions=['do', 'dose'], and X has no column 't'; give them, or a "
         "list of arrays (time, feature), one for each sequence, its frames in order"),
        (np.zeros((2, 3, 1)), {}, ValueError, "actions: the model was fitted with actions ['do', 'dose']"),
        (table(), READ, ValueError,
         "actions: are ['do'], the model was fitted to ['do', 'dose']; give the same"),
        (table(dose="high"), READ | {"actions": ["do", "dose"]}, TypeError,
         f"actions: column 'dose' holds {TEXT}, the model was fitted to numbers"),
        (table(dose=1.0).rename(columns={"x": "y"}), READ, ValueError, "feature_names: X has no column 'x'"),
        (np.zeros((2, 3, 2)), {"actions": np.zeros((2, 3, 2))}, ValueError,
         "X: has 2 feature(s), the model was fitted to 1"),
        (np.zeros((2, 3, 1)), {"actions": LABELS[:2, :3]}, ValueError,
         "actions: are ['a1'], the model was fitted to"),
        (table(t=DAYS, dose=1.0), READ | {"actions": ["do", "dose"]}, ValueError,
         "time_step=1: a number counts months"),
    ],
)  # fmt: skip
def test_complaints_about_new_data(data, options, kind, text):
    fit = as_sequences(table(dose=RNG.normal(size=16)), **(READ | {"actions": ["do", "dose"]}))
    with pytest.raises(kind, match=re.escape(text)):
        as_sequences(data, like=fit, **options)


def test_values_that_the_likelihood_refuses():
    with pytest.raises(
        ValueError, match=r"X: column 'x1' holds .* likelihood=\"bernoulli\" wants 0, 1 or NaN"
    ):
        as_sequences(X, likelihood=Bernoulli())


def test_actions_for_a_fit_without():
    with pytest.raises(ValueError, match="actions: the model was fitted without actions"):
        as_sequences(X, actions=A, like=as_sequences(X))


def test_actions_alone_can_be_learned_from():
    """One frame each is enough where actions drive it and no past is asked for."""
    x, a = X.reshape(20, 1, 3), A.reshape(20, 1, 2)
    assert as_sequences(x, actions=a, lag=0).x.shape == (20, 1, 3)
    with pytest.raises(ValueError, match="X: sequences have 1 frame.* follows from 1 before it; set lags=0"):
        as_sequences(x, actions=a, lag=1)
    few = np.where(np.arange(20)[:, None, None] < 9, a, NAN)
    with pytest.raises(ValueError, match="X: has 9 linked step"):
        as_sequences(x, actions=few, lag=0)


def test_few_steps_are_counted_beyond_the_lag():
    """Five sequences of four frames: 15 steps of lag 1, 10 of lag 2, 5 of lag 3."""
    x = RNG.normal(size=(5, 4, 1))
    assert as_sequences(x, lag=2).linked is None
    with pytest.raises(ValueError, match="X: has 5 linked step"):
        as_sequences(x, lag=3)


@pytest.mark.parametrize("factor", [1e200, 1e-200])
def test_a_feature_or_an_action_whose_spread_cannot_be_computed_is_named(factor):
    x = np.random.default_rng(1000).normal(size=(3, 8, 2))
    far = np.stack([x[..., 0], x[..., 1] * factor], -1)
    with pytest.raises(ValueError, match="X: column 'x2' has values so large or so small"):
        as_sequences(far)
    with pytest.raises(ValueError, match="actions: column 'a2' has values so large or so small"):
        as_sequences(x, actions=far)


def test_what_is_not_standardised_may_not_be_too_large_for_single_precision():
    x = np.random.default_rng(1000).normal(size=(3, 8, 2))
    with pytest.raises(ValueError, match=r"X: column 'x2' holds numbers up to .*other units"):
        as_sequences(x * [1, 1e20], standardise=False)
    with pytest.raises(ValueError, match=r"actions: column 'a1' holds numbers up to .*other units"):
        as_sequences(x, actions=x * [1e20, 1], standardise=False)
    assert as_sequences(x * [1, 1e20]).scale[1] > 1e19
