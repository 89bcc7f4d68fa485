"""Hypothesis strategies for fuzzing: tables, sequences and tasks as people have them.

Each gives a `Case`: arguments for `pyro_sparse.fit`, the numbers that should be read from them, and whether
nobody could fit them. `outcome` says what came of a call. What Hypothesis draws is small (sizes, seeds, the
names of one or two oddities), so that a failing case shrinks to the least that fails.

Hypothesis is an optional requirement: ``pip install 'pyro-sparse[test]'``.

Examples
--------
A model of one's own, fuzzed with pytest:

>>> from hypothesis import given, settings
>>> import pyro_sparse as ps
>>> from pyro_sparse.testing import outcome, strategies
>>> class MyModel(ps.models.SparseDecoder):
...     pass
>>> @settings(max_examples=5, deadline=None, derandomize=True)
... @given(strategies.tables(likelihood="normal"))
... def test_my_model(case):
...     def call():
...         model = MyModel(n_factors=2, decoder="linear")
...         return ps.fit(model, **case.arguments, restarts=1, steps=2, progress=False)
...
...     found = outcome(call, case)
...     assert found.kind in ("right", "refused"), found
>>> test_my_model()
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ._cases import Case, require_hypothesis
from ._fuzz_cells import COUNTS, LIKELIHOODS, is_allowed, odd_cells, values_for
from ._fuzz_containers import CONTAINERS
from ._fuzz_frames import REPEATED_NAMES, draw_frame
from ._fuzz_sequences import draw_sequences
from ._fuzz_tasks import draw_tasks

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["Case", "sequences", "tables", "tasks"]

_FEWEST_ROWS = 10  # that a fit of a table takes


def tables(
    *, likelihood: str | None = None, max_rows: int = 24, max_features: int = 5
) -> SearchStrategy[Case]:
    """Strategy of tables: arrays, lists, data frames, masked arrays, scipy.sparse, Arrow, polars, tensors.

    Parameters
    ----------
    likelihood : str, optional
        Name of a likelihood of the package: values that it allows, but for what is put among them.
        Default: any of these, see `Case.likelihood`.
    max_rows, max_features : int
        Most of each, at least 10 and 2; a few cases have none, or one.

    Returns
    -------
    SearchStrategy of Case
        With X, and now and then mask, exposure, feature_names or standardise.

    Raises
    ------
    ImportError
        Hypothesis is not installed.
    ValueError
        Another likelihood, or a most that is too small.

    Examples
    --------
    >>> from hypothesis import find
    >>> case = find(tables(likelihood="normal"), lambda case: "float64 array" in case.done)
    >>> type(case.arguments["X"]).__name__, case.likelihood
    ('ndarray', 'normal')
    """
    if likelihood is not None and likelihood not in LIKELIHOODS:
        raise ValueError(
            f"likelihood: got {likelihood!r}, wanted one of {list(LIKELIHOODS)}, or None for any"
        )
    _check_most({"max_rows": (max_rows, _FEWEST_ROWS), "max_features": (max_features, 2)})
    return require_hypothesis().composite(_table)(likelihood, max_rows, max_features)


def sequences(*, max_sequences: int = 4, max_frames: int = 10) -> SearchStrategy[Case]:
    """Strategy of sequences: lists, stacked arrays, long tables with ids, times (gaps, dates, text), actions.

    Parameters
    ----------
    max_sequences, max_frames : int
        Most of each, at least 2 and 6; a few cases have fewer.

    Returns
    -------
    SearchStrategy of Case
        With X, and now and then actions, id, time.

    Raises
    ------
    ImportError
        Hypothesis is not installed.
    ValueError
        A most is too small.
    """
    _check_most({"max_sequences": (max_sequences, 2), "max_frames": (max_frames, 6)})
    return require_hypothesis().composite(draw_sequences)(max_sequences, max_frames)


def tasks(*, max_tasks: int = 4, max_rows: int = 10) -> SearchStrategy[Case]:
    """Strategy of tasks: lists, one array, rows with labels, data frames, a column for each task.

    Parameters
    ----------
    max_tasks, max_rows : int
        Most tasks, at least 2, and rows of each, at least 6; a few cases have fewer.

    Returns
    -------
    SearchStrategy of Case
        With X and y, and now and then task.

    Raises
    ------
    ImportError
        Hypothesis is not installed.
    ValueError
        A most is too small.
    """
    _check_most({"max_tasks": (max_tasks, 2), "max_rows": (max_rows, 6)})
    return require_hypothesis().composite(draw_tasks)(max_tasks, max_rows)


def _check_most(sizes: dict[str, tuple[int, int]]) -> None:
    for name, (value, least) in sizes.items():
        if value < least:
            raise ValueError(f"{name}: got {value}, wanted at least {least}")


# ---- tables: what goes beside X ----------------------------------------------------------------------------
def _table(draw: Callable[..., Any], likelihood: str | None, max_rows: int, max_features: int) -> Case:
    st = require_hypothesis()
    kind = likelihood or draw(st.sampled_from(LIKELIHOODS))
    usual = draw(st.integers(0, 9)) < 9
    n = draw(st.integers(_FEWEST_ROWS, max_rows) if usual else st.sampled_from([0, 1, 2, _FEWEST_ROWS - 1]))
    d = draw(st.integers(2, max_features) if usual else st.sampled_from([0, 1]))
    cells, done = odd_cells(draw, values_for(kind, n, d, draw(st.integers(0, 2**16))))
    read: Any
    if draw(st.booleans()):
        data, read, refuse, words = draw_frame(draw, cells)
        names: list[str] | None = [str(name) for name in data.columns]
    else:
        container = draw(st.sampled_from(list(CONTAINERS)))
        data, read, refuse = CONTAINERS[container](draw, cells)
        words = [container]
        names = [str(name) for name in data.columns] if isinstance(data, pd.DataFrame) else None
        if names is None and container in ("Arrow table", "polars table"):
            names = [f"c{j}" for j in range(d)]
    case = Case(
        {"X": data}, None if read is None else [read], None, names, None, kind, (*done, *words), refuse
    )
    beside = draw(st.sampled_from([*["nothing"] * 8, *_BESIDE]))
    return case if beside == "nothing" or read is None or not read.size else _BESIDE[beside](draw, case, read)


def _with(
    case: Case,
    words: str,
    refuse: str = "",
    cells: np.ndarray | None = None,
    features: list[str] | None = None,
    **beside: object,
) -> Case:
    return Case(
        {**case.arguments, **beside}, case.cells if cells is None else [cells], None,
        features or case.features, None, case.likelihood, (*case.done, words), case.refuse or refuse,
    )  # fmt: skip


def _mask(draw: Callable[..., Any], case: Case, cells: np.ndarray) -> Case:
    st = require_hypothesis()
    observed = np.random.default_rng(draw(st.integers(0, 9))).random(cells.shape) < 0.85
    kind = draw(
        st.sampled_from(
            ["bool", "0 and 1", "weights", "transposed", "one column less", "frame", "inverted words"]
        )
    )
    read = np.where(observed, cells, np.nan)
    if (
        kind == "frame"
        and case.features
        and len(set(case.features)) == len(case.features)
        and not case.refuse
    ):
        X = case.arguments["X"]
        if isinstance(X, pd.DataFrame):  # columns in another order: they are found by name
            mask: Any = pd.DataFrame(observed, X.index, X.columns).iloc[:, ::-1]
            return _with(case, "mask: a frame in another order", cells=read, mask=mask)
    if kind in ("bool", "0 and 1", "frame"):
        return _with(
            case, f"mask: {kind}", cells=read, mask=observed.astype(float) if kind == "0 and 1" else observed
        )
    if kind == "weights":
        return _with(case, "mask: weights", "a mask of fractions", mask=np.full(cells.shape, 0.5))
    if kind == "inverted words":
        return _with(case, "mask: text", "a mask of text", mask=np.full(cells.shape, "yes"))
    wrong = (
        observed[:, 1:] if kind == "one column less" or observed.shape[0] == observed.shape[1] else observed.T
    )
    return _with(case, f"mask: {kind}", "a mask of another shape", mask=wrong)


def _exposure(draw: Callable[..., Any], case: Case, cells: np.ndarray) -> Case:
    n = len(cells)
    kind = draw(require_hypothesis().sampled_from(["good", "good", *_EXPOSURES]))
    if case.likelihood not in (*COUNTS, "categorical"):
        return _with(case, "exposure", "no exposures under this likelihood", exposure=np.ones(n))
    if kind == "good":
        return _with(case, "exposure", exposure=np.random.default_rng(0).uniform(0.5, 2, n))
    return _with(case, f"exposure: {kind}", f"exposures: {kind}", exposure=_EXPOSURES[kind](n))


_EXPOSURES: dict[str, Callable[[int], Any]] = {
    "one too many": lambda n: np.ones(n + 1),
    "zero": lambda n: np.arange(float(n)),
    "missing": lambda n: np.full(n, np.nan),
    "infinite": lambda n: np.full(n, np.inf),
    "negative": lambda n: -np.ones(n),
    "text": lambda n: ["a"] * n,
    "a name": lambda n: "depth",
    "a matrix": lambda n: np.ones((n, 2)),
    "far apart": lambda n: np.where(np.arange(n) == 0, 1e-40, 1.0),
    "complex": lambda n: np.ones(n) * 1j,
}


def _feature_names(draw: Callable[..., Any], case: Case, cells: np.ndarray) -> Case:
    d = cells.shape[1]
    kind = draw(
        require_hypothesis().sampled_from(["good", "too few", "repeated", "numbers", "one text", "a number"])
    )
    good: Any = [f"name {j}" for j in range(d)]
    if kind in ("good", "numbers") and case.refuse == REPEATED_NAMES:
        case = replace(case, refuse="")  # the frame's own names are not asked for
    if kind == "good":
        return _with(case, "feature_names", features=good, feature_names=good)
    if kind == "numbers":
        return _with(
            case,
            "feature_names: numbers",
            features=[str(j + 50) for j in range(d)],
            feature_names=np.arange(d) + 50,
        )
    names = {"too few": good[1:], "repeated": ["a"] * d, "one text": "f", "a number": 3}[kind]
    return _with(
        case, f"feature_names: {kind}", "" if d < 2 else f"feature_names {kind}", feature_names=names
    )


def _raw(draw: Callable[..., Any], case: Case, cells: np.ndarray) -> Case:
    return _with(case, "standardise=False", standardise=False)


_BESIDE: dict[str, Callable[..., Case]] = {
    "mask": _mask, "exposure": _exposure, "feature_names": _feature_names, "standardise": _raw,
}  # fmt: skip


def is_readable(case: Case) -> bool:
    """Whether all that the case holds is within the support of its likelihood."""
    return case.cells is not None and all(is_allowed(case.likelihood, cells).all() for cells in case.cells)
