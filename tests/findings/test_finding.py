"""Findings: what they touch, how they are written, and that every output reads the same list."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import pyro_sparse as ps
from pyro_sparse.findings.finding import (
    Finding,
    confirmed_by_chains,
    doubted_edges,
    findings_of,
    read_findings,
    sentences,
    write_findings,
)
from pyro_sparse.graphs import bayesian_fdr
from pyro_sparse.posterior.edge_table import selected_edges
from tests._fake_fit import fake_fit

DOUBT = Finding("restarts", "no other restart found factor 2", "an anchor", "doubt", factors=("factor 2",))
EDGE = Finding("chains", "two chains disagree", severity="doubt", source="chains", edges=(("b", "factor 1"),))
NOTE = Finding("rows", "few rows", columns=("a",), size=3.0)
ROWS, COLUMNS = ["a", "b"], ["factor 1", "factor 2"]


def test_a_doubt_touches_what_it_names_and_a_note_nothing():
    assert doubted_edges([NOTE], ROWS, COLUMNS).sum() == 0
    assert doubted_edges([DOUBT, NOTE], ROWS, COLUMNS).tolist() == [[False, True], [False, True]]
    assert doubted_edges([EDGE], ROWS, COLUMNS).tolist() == [[False, False], [True, False]]
    assert doubted_edges([replace(EDGE, edges=())], ROWS, COLUMNS).all()
    elsewhere = replace(DOUBT, factors=("factor 9",), edges=(("z", "factor 1"),))
    assert not doubted_edges([elsewhere], ROWS, COLUMNS).any()


def test_a_finding_touches_the_edges_that_a_doubt_of_its_kind_leaves_open():
    for finding in (DOUBT, EDGE, replace(EDGE, edges=())):
        touched = [[finding.touches(row, column) for column in COLUMNS] for row in ROWS]
        assert touched == doubted_edges([finding], ROWS, COLUMNS).tolist()


def test_an_edge_posterior_is_no_fit():
    with pytest.raises(TypeError, match=r"fit: a SimpleNamespace has no findings; .* as idata="):
        findings_of(SimpleNamespace(attrs={}))


def test_in_a_transition_a_latent_is_touched_as_target_and_as_source():
    names = ["latent 1", "latent 2", "latent 3"]
    doubt = replace(DOUBT, factors=("latent 2",))
    touched = doubted_edges([doubt], names, names, targets_are_factors=True)
    assert touched.tolist() == [[False, True, False], [True, True, True], [False, True, False]]


def test_files_keep_findings_as_they_are():
    for findings in ([], [DOUBT, EDGE, NOTE]):
        assert read_findings(write_findings(findings)) == findings
    for text in ("{}x", '[{"kind": "a"}]', "3", '[{"kind": "a", "message": ""}]'):
        with pytest.raises(ValueError, match="findings: not written by this package"):
            read_findings(text)


def test_chains_confirm_what_no_other_restart_found_and_nothing_else():
    unconfirmed = replace(DOUBT, kind="unconfirmed")
    assert confirmed_by_chains([DOUBT, unconfirmed, NOTE], ["factor 1"]) == [DOUBT, unconfirmed, NOTE]
    restart, note, rest = confirmed_by_chains([DOUBT, unconfirmed, NOTE], ["factor 1", "factor 2"])
    assert (restart, rest) == (DOUBT, NOTE) and not note.is_doubt and note.factors == ("factor 2",)
    both = replace(unconfirmed, factors=("factor 2", "factor 3"))
    assert confirmed_by_chains([both], ["factor 2"]) == [both]


def test_a_doubt_that_chains_took_back_does_not_return_with_the_fit():
    fit = fake_fit()
    name = fit.factor_names[0]
    doubt = Finding("unconfirmed", f"no other restart found {name}", "more", "doubt", factors=(name,))
    fit.findings.extend([doubt, replace(DOUBT, factors=(name,))])
    numbers = np.full(fit.weights.shape[1:], 0.99)
    draws = np.ones((len(fit.weights), 4, *numbers.shape), np.int8)
    packed = {"edge": draws, "weight": draws * 0.5, "probability": numbers, "method": "mcmc"}
    packed |= {"is_score": False, "note": "of a test"}
    before = ps.posterior.tables.to_arviz(fit, **packed)
    after = ps.posterior.tables.to_arviz(fit, **packed, confirmed=[name])
    kinds = [[f.kind for f in findings_of(fit, idata) if f.is_doubt] for idata in (before, after)]
    assert sorted(kinds[0]) == ["restarts", "unconfirmed"] and kinds[1] == ["restarts"]
    said = f"No other restart found {name}: more"
    assert said in before.attrs["verdict"] and said not in after.attrs["verdict"]


def test_bad_findings_are_refused():
    with pytest.raises(ValueError, match="severity: want one of"):
        Finding("a", "b", severity="error")
    with pytest.raises(ValueError, match="source: want one of"):
        Finding("a", "b", source="user")
    with pytest.raises(ValueError, match="message: is empty"):
        Finding("a", "")


def test_doubts_come_first_and_sources_can_be_told_apart():
    assert sentences([NOTE, DOUBT, EDGE]) == [str(DOUBT), str(EDGE), "few rows"]
    assert sentences([NOTE, EDGE], "chains") == ["two chains disagree"]


def test_of_edges_in_doubt_none_is_selected_unless_asked_for():
    """The rest are selected as if those in doubt were not there."""
    rng = np.random.default_rng(0)
    p, doubted = rng.random((8, 3)), rng.random((8, 3)) < 0.3
    given = np.zeros(p.shape, bool)
    given[0, 0] = doubted[0, 0] = True
    for fdr in (0.05, 0.2, 0.4):
        selected = selected_edges(p, fdr, doubted, given)
        free = ~doubted | given
        assert (selected[free] == bayesian_fdr(p[free], fdr, given=given[free])).all()
        assert not selected[~free].any() and selected[0, 0]
        every = selected_edges(p, fdr, doubted, given, include_doubted=True)
        assert (every == bayesian_fdr(p, fdr, given=given)).all()
    assert not selected_edges(p, 0.2, np.ones(p.shape, bool)).any()
    with pytest.raises(ValueError, match="fdr"):
        selected_edges(p, 2.0, np.ones(p.shape, bool))


def test_edges_that_nobody_asked_for_are_open_without_a_doubt_of_the_others():
    note = Finding("empty", "chains ran over one factor", factors=("factor 2",))
    assert note.leaves_open and not note.is_doubt
    assert doubted_edges([note], ["x"], ["factor 1", "factor 2"]).tolist() == [[False, True]]
    assert not Finding("pairs", "two items share more", factors=("factor 2",)).leaves_open


@pytest.mark.slow
def test_summary_certificate_report_and_pictures_read_one_list(tmp_path):
    """A doubt about factor 2 opens its edges everywhere, and is said everywhere."""
    pytest.importorskip("jinja2")
    fit = fake_fit(n_restarts=1)
    fit.findings = [DOUBT]
    draws = np.broadcast_to(fit.weights[:, None] != 0, (1, 8, *fit.weights.shape[1:]))
    draws = np.concatenate([draws, draws])
    idata = ps.posterior.to_arviz(
        fit, edge=draws.astype(np.int8), weight=draws * 0.5, probability=draws[0].mean(0), method="mcmc",
        is_score=False, note="made up", restart_probability=draws.mean(1), chain_restart=[0, 0],
        kept=[True, True], findings=[NOTE],
    )  # fmt: skip
    assert findings_of(fit, idata) == findings_of(idata=idata) == [DOUBT, NOTE]
    table = ps.summary(idata)
    of_two = (table["factor"] == "factor 2").to_numpy()
    assert (table["verdict"][of_two] == "open").all() and not table["selected"][of_two].any()
    assert {"present", "absent"} == set(table["verdict"][~of_two])
    assert ps.summary(idata, include_doubted=True)["selected"][of_two].any()
    certificate = ps.identify(fit, idata=idata)
    assert certificate.table.at["factor 2", "verdict"] == "unresolved"
    assert certificate.table.at["factor 2", "would_help"] == "an anchor" and str(DOUBT) in certificate.caution
    assert "No other restart found factor 2: an anchor." in idata.attrs["verdict"]
    assert "No edge is disputed" not in idata.attrs["verdict"]
    page = ps.report(fit, tmp_path / "report.html", idata=idata).read_text()
    assert "not of one lucky start" not in page
    assert page.count("o other restart found factor 2") == 1 and "Few rows." in page
    from pyro_sparse.plots._style import Edges

    edges = Edges(idata, 0.1)
    assert not edges.selected[:, 1].any() and edges.selected.sum() == table["selected"].sum()
