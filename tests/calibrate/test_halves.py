"""Halves of the rows beside all of them: what is claimed, lost and gained, counted by hand; inputs divided.

Fits of halves are stood in for by edge posteriors whose probabilities are known; the example of `halves`
makes real ones.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import pyro_sparse as ps
from pyro_sparse.calibrate import halves
from pyro_sparse.calibrate.halves import _divided
from pyro_sparse.findings.finding import Finding, findings_of
from pyro_sparse.posterior.later_findings import with_findings
from pyro_sparse.posterior.tables import to_arviz
from tests._fake_fit import fake_fit

assert callable(ps.fit)  # its module is there to be stood in for
FIT = fake_fit(n_restarts=2)
G, K = FIT.weights.shape[1:]
TRUE = FIT.weights[0] != 0
N = 60
X = np.random.default_rng(0).normal(size=(N, G))
DRAWS = 2 * 1000


def posterior(p, order=None, sign=1.0, findings=(), **about):
    """An edge posterior with these probabilities, its factors in another order and with other signs."""
    order = np.arange(K) if order is None else np.array(order)
    weight = np.broadcast_to(sign * FIT.weights[0][:, order], (2, DRAWS // 2, G, K))
    return to_arviz(
        FIT, edge=np.ones(weight.shape, dtype=np.int8), weight=weight, probability=p[:, order],
        restart_probability=np.stack([p[:, order]] * 2), method=about.pop("method", "mcmc"), note="",
        is_score=about.pop("is_score", False), kept=[True, True], edge_weight=weight[0, 0], findings=findings,
        attrs=about,
    )  # fmt: skip


def sure(p_there=0.999, p_not=0.001):
    return np.where(TRUE, p_there, p_not)


@pytest.fixture
def answered(monkeypatch):
    """`halves` with edge posteriors for the two halves in place of fits."""

    def ask(whole, *of_halves, model="model", **options):
        queue, rows, asked = list(of_halves), [], []

        def chains(**of_chains):
            asked.append(of_chains)
            return queue.pop(0)

        def fit(model, table, **given):
            rows.append(table)
            asked.append(given)
            return SimpleNamespace(edge_posterior=chains)

        monkeypatch.setattr(sys.modules["pyro_sparse.inference.fit"], "fit", fit)
        monkeypatch.setattr("pyro_sparse.inference.training.interrupt.whole", lambda f, *a, **k: f(*a, **k))
        return ps.calibrate.halves(model, X, whole, **options), rows, asked

    return ask


def test_what_is_claimed_lost_and_gained_is_counted_by_hand(answered):
    whole, first = sure(), sure(0.96, 0.04)
    j, k = np.argwhere(TRUE)[0]
    a, b = np.argwhere(~TRUE)[0]
    whole[j, k], whole[a, b] = 0.3, 0.6
    check, *_ = answered(posterior(whole), posterior(first), posterior(np.full((G, K), 0.5)))
    assert check.n_present.tolist() == [TRUE.sum(), 0]
    assert check.n_absent.tolist() == [(~TRUE).sum(), 0]
    assert check.claimed == pytest.approx([0.04 * TRUE.sum(), 0])
    assert check.lost == pytest.approx([0.7 + 0.001 * (TRUE.sum() - 1), 0])
    assert check.gained == pytest.approx([0.6 + 0.001 * ((~TRUE).sum() - 1), 0])
    e = check.lost[0] / check.claimed[0]
    assert check.e_present == pytest.approx((e + 1) / 2)  # a half that claims nothing says nothing
    assert check.holds
    assert check.idata.attrs["verdict"] == posterior(whole).attrs["verdict"]
    assert len(check.edges) == 2 * G * K


def test_where_nothing_is_lost_nothing_speaks_against_the_probabilities(answered):
    check, rows, _ = answered(posterior(sure()), posterior(sure()), posterior(sure()))
    assert check.holds
    assert "Nothing here speaks against" in str(check)
    assert sorted(np.concatenate(rows).tolist()) == sorted(X.tolist())  # each row in one of the halves
    assert len(rows[0]) == len(rows[1]) == N // 2


def test_edges_that_halves_are_sure_of_and_all_rows_lose_are_a_doubt(answered):
    whole = sure()
    lost = np.argwhere(TRUE[:, 0])[:2, 0]
    whole[lost, 0] = 0.01
    check, *_ = answered(posterior(whole), posterior(sure()), posterior(whole))
    assert not check.holds
    (finding,) = check.findings
    assert finding.kind == "halves"
    assert finding.is_doubt
    assert finding.factors == (FIT.factor_names[0],)
    assert f"{FIT.feature_names[lost[0]]} on {FIT.factor_names[0]}" in str(finding)
    for number in (0, 1):  # of these features every edge is open, for another column has what this one lost
        assert finding.touches(FIT.feature_names[lost[0]], FIT.factor_names[number])
    table = ps.summary(check.idata)
    assert (table[table["factor"] == FIT.factor_names[0]]["verdict"] == "open").all()
    assert (table["verdict"] == "present").any()
    assert str(finding) in str(check)


def test_edges_of_a_factor_that_all_rows_do_not_have_are_lost_and_said_so(answered):
    empty = np.flatnonzero(~TRUE.any(0))[0]
    half, first = sure(), np.argwhere(TRUE[:, 0])[:, 0]
    half[first, 0], half[first, empty] = 0.001, 0.999
    check, *_ = answered(posterior(sure()), posterior(half), posterior(sure()))
    finding = check.findings[0]
    assert "of them of factors that all rows do not have" in str(finding)
    assert "its number of factors is not settled" in str(finding)
    assert set(finding.factors) == {FIT.factor_names[empty]}


def test_edges_that_halves_rule_out_and_all_rows_have_are_a_doubt(answered):
    half = sure(p_not=1e-9)
    missed = np.argwhere(TRUE)[:3]
    half[tuple(missed.T)] = 1e-9
    check, *_ = answered(posterior(sure(1 - 1e-9, 1e-9)), posterior(half), posterior(half))
    least = 1 / DRAWS  # what so many draws cannot tell from none
    assert check.claimed_absent == pytest.approx(np.full(2, least * ((~TRUE).sum() + 3)))
    assert check.gained == pytest.approx([3, 3], abs=1e-6)
    assert {edge for finding in check.findings for edge in finding.edges} == {
        (FIT.feature_names[j], FIT.factor_names[k]) for j, k in missed
    }
    assert check.e_absent == pytest.approx(3 / (least * ((~TRUE).sum() + 3)))


def test_factors_of_halves_are_matched_to_those_of_all_rows(answered):
    order = np.roll(np.arange(K), 1)
    check, *_ = answered(posterior(sure()), posterior(sure(), order), posterior(sure(), sign=-1.0))
    assert check.congruence.to_numpy() == pytest.approx(np.repeat(TRUE.any(0), 2).reshape(K, 2) * 1.0)
    assert check.lost == pytest.approx(np.full(2, 0.001 * TRUE.sum()))


def test_edges_in_doubt_are_no_claims(answered):
    doubt = Finding("chains", "they disagree", severity="doubt", source="chains")
    lost = np.where(np.roll(TRUE, 1, 0), 0.99, 0.01)
    in_doubt = posterior(lost, findings=[doubt])
    check, *_ = answered(posterior(sure()), in_doubt, in_doubt)
    assert check.n_present.tolist() == [0, 0]
    assert check.holds
    assert str(check) == "Half of the rows decide no edge, so that nothing can be compared."


def test_what_a_likelihood_reads_of_rows_is_divided_and_other_settings_are_not(answered):
    depth = np.arange(float(N))
    settings = {"depth": depth, "exposure": depth, "n_factors_init": list(range(N)), "restarts": 2}
    model = SimpleNamespace(likelihood=SimpleNamespace(per_row_inputs=("depth",)))
    check, rows, given = answered(posterior(sure()), *[posterior(sure())] * 2, model=model, **settings)
    assert check.holds
    for table, asked in zip(rows, given[::2], strict=True):
        index = [np.flatnonzero((X == row).all(1))[0] for row in table]
        assert asked["depth"].tolist() == depth[index].tolist() == asked["exposure"].tolist()
        assert asked["n_factors_init"] == list(range(N)) and asked["restarts"] == 2


@pytest.mark.parametrize(("means", "edges"), [("practical", None), ("prior", {"edge": "prior"}), ("", {})])
def test_edges_of_halves_mean_what_those_of_all_rows_do(answered, means, edges):
    about = {"edge_means": means} if means else {}
    *_, given = answered(posterior(sure(), **about), *[posterior(sure())] * 2, edges=edges)
    assert [asked.get("edge", "") for asked in given[1::2]] == [means] * 2


def test_a_half_with_scores_is_not_compared(answered):
    with pytest.raises(RuntimeError, match="X: half of its rows, 30, has scores and no probabilities"):
        answered(posterior(sure()), posterior(sure(), is_score=True))


def test_each_split_divides_the_rows_anew(answered):
    check, rows, _ = answered(posterior(sure()), *[posterior(sure())] * 4, splits=2)
    assert len(check.claimed) == 4
    assert not np.array_equal(rows[0], rows[2])


def test_a_later_finding_is_said_by_the_verdict_and_counted():
    idata = posterior(sure(), verdict=f"{G * K} of {G * K} edges decided ({TRUE.sum()} present, "
                      f"{(~TRUE).sum()} absent), 0 open.\nAll else.")  # fmt: skip
    doubt = Finding(
        "halves", "they differ", severity="doubt", source="chains", factors=(FIT.factor_names[0],)
    )
    later = with_findings(idata, [doubt])
    left = TRUE[:, 1:].sum(), (~TRUE[:, 1:]).sum()
    assert later.attrs["verdict"].splitlines() == [
        f"{sum(left)} of {G * K} edges decided ({left[0]} present, {left[1]} absent), {G} open.",
        "All else.",
        "They differ.",
    ]
    assert str(doubt) in [str(f) for f in findings_of(idata=later)]
    assert str(doubt) not in [str(f) for f in findings_of(idata=idata)]
    assert with_findings(idata, []) is idata


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (X, X[[1, 3]]),
        (pd.DataFrame(X), pd.DataFrame(X).iloc[[1, 3]]),
        (list(range(N)), np.array([1, 3])),
        ("batch", "batch"),
        (["age", "sex"], ["age", "sex"]),
        ({"q*": "ordinal"}, {"q*": "ordinal"}),
        ({"age": list(range(N))}, {"age": np.array([1, 3])}),
        (np.arange(3), np.arange(3)),
        (None, None),
    ],
)
def test_what_has_a_value_for_each_row_is_divided(value, wanted):
    got = _divided(value, np.array([1, 3]), N)
    if isinstance(wanted, dict):
        assert got.keys() == wanted.keys()
        got, wanted = (next(iter(d.values())) for d in (got, wanted))
    assert np.array_equal(np.asarray(got, dtype=object), np.asarray(wanted, dtype=object))


def test_sparse_tables_and_data_of_programs_are_divided():
    index = np.array([0, 5, 9])
    assert np.array_equal(_divided(sparse.csr_matrix(X), index, N).toarray(), X[index])
    holes = np.where(np.arange(G) == 1, np.nan, X)
    holes[:2, 1] = 0.5
    labels = [f"site {i % 3}" for i in range(N)]
    data = ps.Data(holes, rows={"site": labels, "dose": np.arange(float(N))}, features={"size": np.arange(G)})
    half = _divided(data, index, N)
    assert np.array_equal(half.x, data.x[index])
    assert np.array_equal(half.seen, data.seen[index])
    assert half.rows["dose"].tolist() == [0.0, 5.0, 9.0]
    assert [half.labels["site"][i] for i in half.rows["site"]] == [labels[i] for i in index]
    assert half.sample_names == [data.sample_names[i] for i in index]
    assert np.array_equal(half.features["size"], np.arange(G))
    assert len(data.x) == N


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"X": X[:39]}, ValueError, "X: has 39 rows, wanted 40 at least, 20 a half"),
        ({"X": {"rna": X}}, TypeError, "X: got a dict, whose rows cannot be divided here"),
        ({"idata": posterior(sure(), is_score=True)}, ValueError, "idata: holds no probabilities of Markov"),
        ({"idata": posterior(sure(), method="jacobian")}, ValueError, "idata: holds no probabilities"),
        ({"idata": posterior(sure(), kind="tasks")}, TypeError, "idata: got the posterior of tasks"),
        ({"splits": 0}, ValueError, "splits: "),
        (
            {"idata": posterior(sure(), salient_loading=0.3)},
            ValueError,
            "idata: is of loadings of at least 0.3",
        ),
        (
            {"idata": posterior(sure(), edge_means="practical"), "edges": {"edge": "prior"}},
            ValueError,
            "edges: ask for edge='prior', idata is of 'practical'; leave edge out",
        ),
        ({"checkpoint": "fit.ckpt"}, ValueError, "checkpoint: is of the fit of all rows"),
    ],
)
def test_bad_input_is_refused_before_a_fit(change, error, words):
    given = {"model": "model", "X": X, "idata": posterior(sure())} | change
    with pytest.raises(error, match=words):
        halves(**given)


def test_another_table_is_refused(answered):
    whole = posterior(sure())
    renamed = fake_fit(n_restarts=2)
    renamed.feature_names = [f"other {j}" for j in range(G)]
    weight = np.broadcast_to(FIT.weights[0], (2, 4, G, K))
    other = to_arviz(
        renamed, edge=np.ones(weight.shape, dtype=np.int8), weight=weight, probability=sure(),
        method="mcmc", is_score=False, note="", kept=[True, True],
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"idata: is of \d+ features and \d+ factors, and model and X have"):
        answered(whole, other)


def test_a_half_that_cannot_be_fitted_says_why(monkeypatch):
    def fit(*_, **__):
        raise ValueError("column 'x' is constant")

    monkeypatch.setattr(sys.modules["pyro_sparse.inference.fit"], "fit", fit)
    with pytest.raises(
        RuntimeError, match="X: half of its rows, 30, cannot be fitted: column 'x' is constant"
    ):
        ps.calibrate.halves("model", X, posterior(sure()))
