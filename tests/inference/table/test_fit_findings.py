"""Which doubts a fit is asked about, in which order, with every check replaced by its name."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from pyro_sparse.findings.finding import Finding
from pyro_sparse.inference.table import fit_findings
from pyro_sparse.inference.table.fit_findings import add_findings, diverged_restarts, few_rows

FIRST = ["note", "table"]
OF_WEIGHTS = ["of_weights", "of_units"]
OF_NUMBERS = ["only_restart", "few_rows"]
OF_RESTARTS = ["restart_findings", "axis_findings"]
OF_ROWS = ["unexplained_findings", "residual_pair_findings"]
LAST = ["folded", "depth_of_factors", "doubted_by_columns"]
CHECKS = [
    *OF_WEIGHTS, *OF_NUMBERS, "unconfirmed", "number_findings", "lost_factor_findings", *OF_RESTARTS,
    *OF_ROWS, "straight_findings", *LAST,
]  # fmt: skip


def named(name):
    return [Finding("training", name)]


@pytest.fixture
def asked(monkeypatch):
    """The names of the checks that a fit is asked, in order."""
    for name in CHECKS:
        monkeypatch.setattr(fit_findings, name, lambda *arguments, name=name: named(name))

    def ask(
        rows=((-1.0, -2.0), (-1.0, -3.0)), prior="spike and slab", maxima=None, notes=("note",), **options
    ):
        table = SimpleNamespace(findings=named("table"))
        model = SimpleNamespace(prior=prior, n_features=7)
        fit = SimpleNamespace(
            model=model, table=table, findings=[], alignment={"congruence": None}, effects=[None, None],
            factor_names=[], feature_names=[],
        )  # fmt: skip
        trained = SimpleNamespace(rows=np.array(rows), heldout=None, best=0, search=None)
        options = {"is_complete": True, "is_dense": False, "is_penalised": False, **options}
        add_findings(
            fit,
            trained,
            maxima,
            notes=notes,
            learned=SimpleNamespace(total=100),
            kept=np.arange(100),
            **options,
        )
        return [finding.message for finding in fit.findings]

    return ask


def test_a_complete_fit_is_asked_all_but_what_is_for_graphs_and_dense_fits(asked):
    lost, straight = ["lost_factor_findings"], ["straight_findings"]
    start = [*FIRST, *OF_WEIGHTS, *OF_NUMBERS]
    assert asked() == [*start, *lost, *OF_RESTARTS, *OF_ROWS, *straight, *LAST]
    assert asked(is_penalised=True) == [*start, *lost, *OF_RESTARTS, *OF_ROWS, *LAST]
    assert asked(is_complete=False) == [*start, *OF_RESTARTS, *OF_ROWS, *LAST]


def test_factors_of_graphs_at_their_maxima_are_asked_of_parallel_analysis(asked):
    maxima = SimpleNamespace(findings=lambda: named("maxima"))
    numbers = ["maxima", "number_findings"]
    said = asked(maxima=maxima)
    assert said[6:8] == numbers and "lost_factor_findings" not in said
    assert asked(maxima=maxima, is_complete=False)[6:8] == numbers


def test_a_dense_fit_hears_of_unconfirmed_factors_before_rival_restarts(asked):
    """`restart_findings` leaves out factors that `unconfirmed` has named."""
    said = asked(prior=None, is_dense=True, is_complete=False)
    assert said == [*FIRST, *OF_NUMBERS, "unconfirmed", *OF_RESTARTS, *LAST]


def test_of_a_diverged_best_restart_no_weight_and_no_row_is_asked(asked):
    said = asked(rows=[[np.nan, -1.0], [-1.0, -1.0]])
    assert said[:2] == FIRST and said[2].startswith("the ELBO of 1 of 2 restart(s) is not finite")
    assert said[3:] == ["lost_factor_findings", *OF_RESTARTS, *LAST]
    of_another = asked(rows=[[-1.0, -1.0], [-1.0, np.inf]])
    assert of_another[3:5] == OF_WEIGHTS and set(OF_ROWS) < set(of_another)


@pytest.mark.parametrize(("level", "n_lost"), [([-1.0, -2.0], 0), ([-1.0, -np.inf], 1), ([np.nan] * 3, 3)])
def test_restarts_that_diverged_are_counted(level, n_lost):
    notes = diverged_restarts(np.array(level))
    assert len(notes) == bool(n_lost)
    assert all(f" {n_lost} of {len(level)} restart(s)" in note.message for note in notes)


def test_five_rows_for_each_feature_are_enough():
    assert few_rows(5 * 7, 7) == []
    (note,) = few_rows(5 * 7 - 1, 7)
    assert (note.kind, note.source) == ("rows", "data") and "34 rows for 7 features" in note.message
