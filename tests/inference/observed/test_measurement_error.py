"""Variables measured with error, and clean ones with all that looks like it."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.data.frame_covariates import as_designed_sequences
from pyro_sparse.inference.observed.measurement_error import _pieces, measurement_error
from pyro_sparse.inference.observed.steps import observed_values

TRANSITION = np.array([[0.8, 0, 0], [0.5, 0.5, 0], [0, 0, 0.6]])


def walk(seed, n=400, error=0.0, second=0.0, bend=lambda x: x):
    """a drives b; error in standard deviations of a; b acts on itself two rows later, too."""
    rng = np.random.default_rng(seed)
    x = np.zeros((n + 50, 3))
    for t in range(2, n + 50):
        x[t] = TRANSITION @ bend(x[t - 1]) + [0, 0, second * x[t - 2, 2]] + rng.normal(size=3)
    x = x[50:]
    x[:, 0] += error * x[:, 0].std() * rng.normal(size=n)
    return pd.DataFrame(x, columns=list("abc"))


def found(table, **options):
    sequences = as_designed_sequences(table, **options)
    return measurement_error(sequences, observed_values(sequences))


@pytest.mark.parametrize(
    "seeds", [range(1000, 1001), pytest.param(range(1000, 1004), marks=pytest.mark.slow)]
)
def test_a_variable_with_error_is_told(seeds):
    told = [doubt for seed in seeds for doubt in found(walk(seed, n=1000, error=1.2))]
    assert len(told) >= 0.75 * len(seeds)
    for doubt in told:
        assert doubt.is_doubt and doubt.kind == "measurement" and doubt.columns == ("a",)
        assert 0.4 < doubt.size < 0.75  # 1.44 of 2.44
        assert doubt.touches("a", "b") and doubt.touches("b", "c") and doubt.touches("c", "a")
        assert not doubt.touches("c", "c") and not doubt.touches("c", "b")


CLEAN = {
    "one lag": {},
    "two lags": {"second": 0.3},
    "curves": {"bend": lambda x: 2 * np.tanh(x / 2)},
}


@pytest.mark.parametrize("kind", list(CLEAN))
@pytest.mark.parametrize(
    "seeds", [range(1000, 1001), pytest.param(range(1001, 1004), marks=pytest.mark.slow)]
)
def test_clean_variables_are_left_alone(kind, seeds):
    for seed in seeds:
        table = walk(seed, **CLEAN[kind])
        assert found(table) == []
        assert found(table.round(0 if kind == "one lag" else 1)) == []


def test_levels_of_people_are_no_error():
    people = [walk(s, n=50).add(3 * s % 7).assign(who=f"p{s}", row=range(50)) for s in range(1000, 1008)]
    assert found(pd.concat(people), id="who", time="row") == []


def test_runs_end_where_a_cell_is_missing_and_where_a_sequence_does():
    table = walk(1000, n=60).assign(who=np.repeat(["p", "q"], 30), row=[*range(30)] * 2)
    table.loc[10, "b"] = np.nan
    sequences = as_designed_sequences(table, id="who", time="row")
    pieces = _pieces(sequences, observed_values(sequences))
    assert pieces.y.shape == (3, 30, 3) and pieces.counted.sum(1).tolist() == [6, 15, 26]


def test_levels_and_tables_that_are_short_or_wide_are_not_looked_at():
    assert found((walk(1000, n=1000, error=1.2) / 2).round()) == []
    assert found(walk(1000, n=80, error=1.2)) == []
    wide = pd.concat([walk(s, error=1.2).add_suffix(str(s)) for s in range(3)], axis=1)
    assert found(wide) == []


def test_a_fit_leaves_edges_of_what_is_measured_with_error_open():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = ps.fit(ps.models.ObservedTransition(lags=1), walk(1001, n=1000, error=1.2), progress=False)
    assert [f.columns for f in fit.findings if f.kind == "measurement"] == [("a",)]
    summary = ps.summary(fit.edge_posterior(), include_doubted=True)
    assert summary.loc["c -> c", "verdict"] == "present"
    assert set(summary.loc[["a -> a", "a -> b", "b -> a"], "verdict"]) <= {"open"}
