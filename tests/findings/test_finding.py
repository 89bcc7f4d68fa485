"""Findings: what they touch, how they are written, and that every output reads the same list."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import pyro_sparse as ps
from pyro_sparse._utils.wording import listed
from pyro_sparse.findings.finding import (
    Finding,
    confirmed_by_chains,
    dispelled_by_chains,
    doubted_edges,
    findings_of,
    found_by_one_restart,
    read_findings,
    replaced_in_rivals,
    sentences,
    write_findings,
)
from pyro_sparse.graphs import bayesian_fdr
from pyro_sparse.posterior.edge_table import selected_edges
from pyro_sparse.posterior.verdicts import beside_verdict
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
    unconfirmed = found_by_one_restart(["factor 2"], "an anchor")
    assert confirmed_by_chains([DOUBT, unconfirmed, NOTE], ["factor 1"]) == [DOUBT, unconfirmed, NOTE]
    restart, note, rest = confirmed_by_chains([DOUBT, unconfirmed, NOTE], ["factor 1", "factor 2"])
    assert (restart, rest) == (DOUBT, NOTE) and not note.is_doubt and note.factors == ("factor 2",)
    assert confirmed_by_chains([note], ["factor 2"]) == [note]  # it has been said


def test_a_doubt_of_several_factors_shrinks_to_those_that_chains_did_not_confirm():
    three = found_by_one_restart(["factor 2", "factor 5", "factor 7"], "an anchor")
    assert str(three) == "no other restart found factor 2, factor 5 and factor 7: an anchor"
    left, gone = confirmed_by_chains([three], ["factor 1", "factor 5"])
    assert left == found_by_one_restart(["factor 2", "factor 7"], "an anchor")
    came_back = "but chains that began in other axes came back to"
    assert str(gone) == f"no other restart found factor 5, {came_back} it" and gone.factors == ("factor 5",)
    assert dispelled_by_chains([left, gone, NOTE]) == [gone]
    (gone,) = confirmed_by_chains([three], three.factors)
    assert not gone.is_doubt and str(gone) == f"{three.message}, {came_back} them"


def test_a_rival_is_none_if_chains_came_back_to_all_factors_with_edges_and_to_no_fewer():
    """Not even if they came back to the one factor that it has another for."""
    rival, every = replaced_in_rivals(["factor 2"], "an anchor"), ["factor 1", "factor 2", "factor 3"]
    assert rival.is_doubt and rival.kind == "rivals"
    for confirmed, with_edges in ((["factor 2"], every), (every[:2], every), (every, ()), ((), ())):
        assert confirmed_by_chains([rival], confirmed, with_edges) == [rival]
    for confirmed, with_edges in ((every, every), (every, every[1:])):
        (note,) = confirmed_by_chains([rival], confirmed, with_edges)
        assert not note.is_doubt and note.factors == ("factor 2",) and not note.remedy
        assert note.message == (
            f"{rival.message}, but chains that began in other axes came back to every factor that has an edge"
        )
        assert doubted_edges([note], ROWS, COLUMNS).sum() == 0 and dispelled_by_chains([note]) == [note]


def packed(fit, confirmed, empty=()):
    """An edge posterior in which every edge is probable, but for those of empty factors."""
    numbers = np.full(fit.weights.shape[1:], 0.99)
    numbers[:, list(empty)] = 0.0
    draws = np.broadcast_to(numbers > 0, (len(fit.weights), 4, *numbers.shape)).astype(np.int8)
    return ps.posterior.tables.to_arviz(
        fit, edge=draws, weight=draws * 0.5, probability=numbers, method="mcmc", is_score=False,
        note="of a test", confirmed=confirmed,
    )  # fmt: skip


def test_what_chains_confirm_does_not_return_with_the_fit():
    """Of all factors, which one restart alone found: in the findings, the verdict, and beside it."""
    fit = fake_fit()
    names = fit.factor_names
    fit.findings = [found_by_one_restart(names, "fit more"), replace(EDGE, source="fit")]
    before, some, after = (packed(fit, names[:n]) for n in (0, 1, len(names)))
    for idata, left in ((before, names), (some, names[1:]), (after, [])):
        doubts = [finding for finding in findings_of(fit, idata) if finding.is_doubt]
        assert [(f.kind, list(f.factors)) for f in doubts if f.kind == "unconfirmed"] == (
            [("unconfirmed", left)] if left else []
        )
        assert findings_of(fit, idata) == findings_of(idata=idata)
        said = idata.attrs["verdict"].count("No other restart found")
        assert said == bool(left) and (not left or f"{listed(left)}: fit more." in idata.attrs["verdict"])
        beside = [text for text in beside_verdict(fit, idata) if "no other restart" in text]
        assert len(beside) == (len(left) < len(names))  # what chains confirmed
    assert [f.kind for f in findings_of(fit, after) if f.is_doubt] == ["chains"]


def test_edges_of_a_rivals_factor_are_open_until_chains_came_back_to_all_factors():
    fit = fake_fit()
    names = fit.factor_names
    fit.findings = [replaced_in_rivals(names[:1], "fit more")]
    some, every = (packed(fit, names[:n]) for n in (1, len(names)))
    assert "as well has other factors in place of factor 1: fit more." in some.attrs["verdict"]
    assert "other factors" not in every.attrs["verdict"]
    for idata, is_doubt in ((some, True), (every, False)):
        (finding,) = findings_of(fit, idata)
        assert finding.is_doubt == is_doubt
        table = ps.summary(idata)
        open_ = (table["verdict"] == "open")[table["factor"] == names[0]]
        assert open_.all() if is_doubt else not open_.all()


def test_a_rival_with_a_factor_more_than_the_chains_have_stays_a_rival():
    fit = fake_fit(n_factors=3, n_active=3)
    fit.findings = [replaced_in_rivals(fit.factor_names[:1], "fit more")]
    fit.weights[fit.best][:, 2] = 0.0
    fit.heldout_elbo[:] = [0.0, *[-1.0] * (fit.n_restarts - 1)]
    assert fit.best == 0 and (fit.weights[1:, :, 2] != 0).any()
    for behind, is_rival in ((0.01, True), (1.0, False)):
        fit.heldout_elbo[1] = -behind
        (finding,) = findings_of(idata=packed(fit, fit.factor_names[:2], empty=[2]))
        assert finding.is_doubt == is_rival


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
