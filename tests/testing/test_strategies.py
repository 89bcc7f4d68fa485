"""Fuzzed tables, sequences and tasks are read right or refused clearly; the judge notices what is not."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.data.read import as_table
from pyro_sparse.data.sequences import as_sequences
from pyro_sparse.data.tasks import as_tasks
from pyro_sparse.likelihoods import get_likelihood
from pyro_sparse.testing import outcome, strategies
from pyro_sparse.testing._cases import Case

hypothesis = pytest.importorskip("hypothesis")
FIXED = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "suppress_health_check": list(hypothesis.HealthCheck),
}


def read_table(case):
    beside = {name: value for name, value in case.arguments.items() if name != "X"}
    return as_table(case.arguments["X"], likelihood=get_likelihood(case.likelihood), **beside)


def read_sequences(case):
    return as_sequences(case.arguments["X"], **{n: v for n, v in case.arguments.items() if n != "X"})


def read_tasks(case):
    return as_tasks(case.arguments["X"], case.arguments.get("y"), case.arguments.get("task"))


def counts_of(strategy, read, cases):
    """How many of these were right and refused; anything else fails, shrunk to the least case."""
    counts = {"right": 0, "refused": 0}

    @hypothesis.settings(max_examples=cases, **FIXED)
    @hypothesis.given(strategy)
    def judged(case):
        found = outcome(lambda: read(case), case)
        assert found.kind in counts, (found, case)
        counts[found.kind] += 1

    judged()
    return counts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "read", "cases"),
    [
        (strategies.tables, read_table, 60),
        (strategies.sequences, read_sequences, 30),
        (strategies.tasks, read_tasks, 30),
    ],
)
def test_what_people_have_is_read_right_or_refused_by_name(strategy, read, cases):
    counts = counts_of(strategy(), read, cases)
    assert min(counts.values()) >= cases // 10, "the strategy tries one side only"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "read"),
    [(strategies.tables, read_table), (strategies.sequences, read_sequences), (strategies.tasks, read_tasks)],
)
def test_many_cases_are_read_right_or_refused_by_name(strategy, read):
    assert sum(counts_of(strategy(), read, 1000).values()) >= 900  # Hypothesis may end a small space early


@pytest.mark.slow
def test_tables_are_fitted_and_asked():
    def fit(case):
        model = ps.models.SparseDecoder(n_factors=1, decoder="linear", likelihood=case.likelihood)
        return ps.fit(model, **case.arguments, restarts=1, steps=2, progress=False)

    assert counts_of(strategies.tables(), fit, 100)["right"] >= 20


@pytest.mark.slow
def test_the_cells_of_a_case_are_those_in_its_container():
    """Read another way: by pandas, of the frames that hold floats only."""

    @hypothesis.settings(max_examples=30, **FIXED)
    @hypothesis.given(strategies.tables(likelihood="poisson"))
    def compared(case):
        X = case.arguments["X"]
        if (
            isinstance(X, np.ndarray)
            and X.dtype == float
            and not case.refuse
            and "mask" not in case.arguments
        ):
            if not isinstance(X, np.ma.MaskedArray):
                np.testing.assert_array_equal(case.cells[0], X)
        if (
            isinstance(X, pd.DataFrame)
            and not case.refuse
            and all(dtype.kind == "f" for dtype in X.dtypes if isinstance(dtype, np.dtype))
        ):
            if "mask" not in case.arguments:
                np.testing.assert_array_equal(case.cells[0], X.to_numpy())

    compared()


# ---- the judge ---------------------------------------------------------------------------------------------
def plain_case(**changes):
    cells = np.random.default_rng(1000).normal(size=(12, 3))
    return replace(Case({"X": cells}, [cells], features=["x1", "x2", "x3"]), **changes)


def test_a_sound_reading_is_right_and_a_named_complaint_is_a_refusal():
    case = plain_case()
    assert outcome(lambda: read_table(case), case).kind == "right"
    assert outcome(lambda: as_table("a", likelihood=get_likelihood("normal"))).kind == "refused"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"x": lambda x: x[:, ::-1]}, "other numbers"),
        ({"x": lambda x: np.where(x == x.max(), np.nan, x)}, "not finite"),
        ({"mask": lambda mask: np.arange(36).reshape(12, 3) > 0}, "other missing cells"),
        ({"feature_names": lambda names: names[::-1]}, "feature names"),
        ({"x": lambda x: x[:-1]}, "shape"),
        ({"x": lambda x: x * 1e200, "scale": lambda scale: scale * 1e-200}, "too large"),
    ],
)
def test_a_reading_that_is_wrong_is_silent(change, why):
    case = plain_case()
    table = read_table(case)
    wrong = replace(table, **{name: of(getattr(table, name)) for name, of in change.items()})
    found = outcome(lambda: wrong, case)
    assert found.kind == "silent" and why in found.why


def test_what_nobody_could_fit_and_what_the_likelihood_does_not_allow_is_silent_if_accepted():
    case = plain_case()
    table = read_table(case)
    assert outcome(lambda: table, replace(case, refuse="text")).kind == "silent"
    assert outcome(lambda: table, replace(case, likelihood="poisson")).kind == "silent"


def bare():
    raise ValueError("it did not work")


def foreign():
    raise ValueError("X: not raised by the package")


def unnamed():
    as_table(np.arange(24.0).reshape(12, 2) ** 2, likelihood=None)


def warned():
    warnings.warn("invalid value encountered in divide", RuntimeWarning, stacklevel=1)


@pytest.mark.parametrize("call", [bare, foreign, unnamed, warned, lambda: {}["a"], lambda: 1 / 0])
def test_everything_else_is_obscure(call):
    assert outcome(call).kind == "obscure"


def test_errors_of_ones_own_model_count_where_its_folder_is_named():
    assert outcome(foreign, sources=(__file__,)).kind == "refused"
    assert outcome(bare, sources=(__file__,)).kind == "obscure"


def test_the_fit_itself_is_held_against_its_input():
    case = plain_case()
    model = ps.models.SparseDecoder(n_factors=1, decoder="linear")
    fit = ps.fit(model, case.arguments["X"], restarts=1, steps=2, progress=False)
    assert outcome(lambda: fit, case).kind == "right"
    broken = replace(fit, weights=fit.weights * np.nan)
    assert "weights is not finite" in outcome(lambda: broken, case).why


# ---- the way in --------------------------------------------------------------------------------------------
def test_without_hypothesis_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(ImportError, match=r"want hypothesis.*pyro-sparse\[test\]"):
        strategies.tables()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: strategies.tables(likelihood="gamma"), "likelihood: got 'gamma'"),
        (lambda: strategies.tables(max_rows=9), "max_rows: got 9, wanted at least 10"),
        (lambda: strategies.sequences(max_frames=2), "max_frames: got 2, wanted at least 6"),
        (lambda: strategies.tasks(max_tasks=1), "max_tasks: got 1, wanted at least 2"),
    ],
)
def test_settings_that_make_no_cases_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
