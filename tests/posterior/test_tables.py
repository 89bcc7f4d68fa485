"""The tables: every column against the arrays it came from, for a score and for a probability."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from pyro_sparse.graphs import bayesian_fdr
from pyro_sparse.graphs.selection import q_values
from pyro_sparse.plots._style import Edges
from pyro_sparse.posterior import arviz as _arviz
from pyro_sparse.posterior.edge_table import weights_vary
from pyro_sparse.posterior.tables import edge_prob, given_edges, summary, to_arviz
from tests._fake_fit import fake_fit, fit_with_strengths


@pytest.fixture(scope="module")
def fit():
    return fake_fit()


@pytest.fixture(scope="module")
def idata(fit):
    return fit.edge_posterior(num_draws=10)


def calibrated(fit, draws=400, seed=0):
    """The same fit through an imaginary calibrated method, with real draws of the weights."""
    rng = np.random.default_rng(seed)
    shape = (fit.n_restarts, draws, *fit.weights.shape[1:])
    weight = fit.weights[:, None] + 0.1 * rng.normal(size=shape)
    return to_arviz(
        fit,
        edge=(rng.uniform(size=shape) < fit.edge_score[:, None]).astype(np.int8),
        weight=weight,
        probability=fit.edge_score[fit.best],
        method="imagined",
        is_score=False,
        note="",
    ), weight


def test_summary_columns_against_the_arrays(fit, idata):
    table = summary(idata, fdr=0.1)
    assert len(table) == 12 * 4
    p = fit.edge_score[0]
    by_edge = table.set_index(["feature", "factor"])
    for j, feature in enumerate(fit.feature_names):
        for k, factor in enumerate(fit.factor_names):
            row = by_edge.loc[(feature, factor)]
            assert row["score"] == p[j, k]
            assert row["weight"] == fit.weights[0, j, k]
            assert row["effect"] == fit.effects[0, j, k]
            assert row["q_value"] == pytest.approx(q_values(p)[j, k])
            assert row["selected"] == bayesian_fdr(p, 0.1)[j, k]
            assert row["unresolved"] == (j == 0 and k == 0)
    assert table.index[0] == f"{table['feature'].iloc[0]} -> {table['factor'].iloc[0]}"
    assert (np.diff(table["score"]) <= 0).all()


def test_a_score_is_never_called_a_probability(idata):
    table = summary(idata)
    assert "score" in table and "probability" not in table
    assert table.attrs["is_score"] is True
    assert "not calibrated" in table.attrs["note"]
    assert (table["verdict"] == "open").all()
    assert edge_prob(idata).attrs["is_score"] is True


def test_a_probability_is_called_one(fit):
    idata, _ = calibrated(fit, draws=20)
    table = summary(idata)
    assert "probability" in table and "score" not in table
    assert table.attrs["is_score"] is False
    assert table.attrs["edge_method"] == "imagined"
    sure = summary(idata, sure=0.8).set_index(["feature", "factor"])
    p, gap = sure["probability"], sure["gap"].fillna(0)
    assert ((sure["verdict"] == "present") == ((p >= 0.8) & (gap <= 0.25))).all()
    assert ((sure["verdict"] == "absent") == ((p <= 0.2) & (gap <= 0.25))).all()
    assert set(sure["verdict"]) == {"present", "absent", "open"}


def test_interval_of_a_score_spans_the_kept_restarts(fit, idata):
    # The shortest interval that holds nine tenths of five values holds four of them, so compare equal tails.
    table = summary(idata, prob=0.5, kind="eti")
    row = table.set_index(["feature", "factor"]).loc[("item 4", "factor 1")]
    low, high = np.quantile(fit.weights[:5, 3, 0], [0.25, 0.75])
    assert (row["eti50_lb"], row["eti50_ub"]) == pytest.approx((low, high))


@pytest.mark.parametrize("restarts", [1, 4])
def test_strengths_have_no_interval(restarts):
    """Each restart has one weight of an edge: its draws are that or 0, which is no interval of the weight."""
    idata = fit_with_strengths(n_restarts=restarts).edge_posterior("jacobian", num_draws=20)
    table = summary(idata)
    assert table[["hdi90_lb", "hdi90_ub"]].isna().all(axis=None)
    assert "probability" in table and set(table["verdict"]) >= {"present", "absent"}
    assert not weights_vary(idata)


def test_interval_of_draws_hdi_and_eti(fit):
    idata, weight = calibrated(fit)
    pooled = np.sort(weight[:5, :, 3, 0].ravel())
    eti = summary(idata, prob=0.8, kind="eti").loc["item 4 -> factor 1"]
    assert (eti["eti80_lb"], eti["eti80_ub"]) == pytest.approx(tuple(np.quantile(pooled, [0.1, 0.9])))
    hdi = summary(idata, prob=0.8, kind="hdi").loc["item 4 -> factor 1"]
    inside = int(np.floor(0.8 * len(pooled)))
    widths = pooled[inside:] - pooled[:-inside]
    assert hdi["hdi80_ub"] - hdi["hdi80_lb"] == pytest.approx(widths.min(), rel=0.02)


def test_a_restart_that_could_not_have_the_factor_makes_no_gap():
    fit = fake_fit(n_restarts=2)
    fit.elbo[1] = fit.heldout_elbo[1] = -3.0
    assert summary(fit.edge_posterior(num_draws=3))["gap"].notna().all()
    fit.weights[1, :, 2] = 0.0
    assert summary(fit.edge_posterior(num_draws=3))["gap"].isna().all()


def test_edges_that_were_told_leave_no_room_in_the_rate(fit):
    fit = copy.copy(fit)
    must = torch.zeros(12, 4, dtype=torch.bool)
    must[:8, 0] = True
    fit.model = SimpleNamespace(must=must)
    p = np.full((12, 4), 0.02)
    p[:8, 0], p[8, 1], p[9, 1], p[10, 2] = 1.0, 0.97, 0.75, 0.6
    shape = (6, 5, 12, 4)
    idata = to_arviz(
        fit,
        edge=np.zeros(shape, dtype=np.int8),
        weight=np.zeros(shape),
        probability=p,
        method="imagined",
        is_score=False,
        note="",
    )
    table = summary(idata).set_index(["feature", "factor"])
    told = table.loc[[(f"item {j + 1}", "factor 1") for j in range(8)]]
    assert told["selected"].all() and (told["q_value"] == 0).all()
    others = table[table["selected"]].drop(index=told.index)
    assert others["probability"].tolist() == [0.97]  # with .75, .14 of two; among all ten, .03 of ten
    assert Edges(idata, 0.1).selected.sum() == 9
    group = _arviz.get_group(idata, "edge_posterior")
    assert given_edges(group).sum() == 8 and not given_edges(group.drop_vars("given")).any()


def test_one_restart_has_no_interval_and_no_gap():
    table = summary(fake_fit(n_restarts=1).edge_posterior(num_draws=3))
    assert table[["hdi90_lb", "hdi90_ub", "gap"]].isna().all(axis=None)
    assert not table["unresolved"].any()


def test_selected_only_and_stricter_rates(idata):
    assert summary(idata, selected_only=True)["selected"].all()
    counts = [len(summary(idata, fdr, selected_only=True)) for fdr in (0.0, 0.01, 0.1)]
    assert counts == sorted(counts) and counts[0] < counts[-1]


def test_edge_prob_is_a_table_of_features_by_factors(fit, idata):
    table = edge_prob(idata)
    want = pd.DataFrame(fit.edge_score[0], fit.feature_names, fit.factor_names)
    np.testing.assert_array_equal(table, want)
    assert list(table.index) == fit.feature_names and list(table.columns) == fit.factor_names
    assert (table.index.name, table.columns.name) == ("feature", "factor")


def test_arviz_itself_reads_the_object(idata):
    assert float(_arviz.get_group(idata, "posterior")["edge"].mean()) > 0
    hdi = _arviz.arviz().hdi(
        _arviz.get_group(idata, "posterior")[["weight"]],
        **{"prob" if _arviz.is_modern() else "hdi_prob": 0.9},
    )
    assert hdi["weight"].sizes["feature"] == 12


def test_the_data_are_stored_as_the_fit_reads_them(fit):
    """Columns by name, what a masked array hides missing, whatever holds the numbers."""
    x = np.random.default_rng(0).integers(0, 9, (200, 12)).astype(float)
    x[3, 4] = np.nan
    frame = pd.DataFrame(x, columns=fit.feature_names)
    for data in (
        frame[frame.columns[::-1]],
        frame.astype("Int64"),
        np.ma.masked_array(np.nan_to_num(x), np.isnan(x)),
        torch.tensor(x, requires_grad=True),
    ):
        held = _arviz.get_group(fit.edge_posterior(num_draws=2, X=data), "observed_data")["x"]
        assert list(held["feature"].values) == fit.feature_names
        np.testing.assert_array_equal(held, x)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edge": np.zeros((6, 2, 12, 3))}, r"edge: want shape .* got \(6, 2, 12, 3\)$"),
        ({"edge": np.zeros((1, 12, 12, 4))}, r"got \(1, 12, 12, 4\); chains .* want chain_restart=.*\[0\]"),
        ({"edge": np.full((6, 2, 12, 4), 0.3)}, r"edge: want draws of 0 or 1, got 0.3 and 575 more such"),
        ({"edge": np.full((6, 2, 12, 4), np.nan)}, r"edge: want draws of 0 or 1, got nan"),
        ({"weight": np.zeros((6, 3, 12, 4))}, r"weight: want shape \(6, 2, 12, 4\), got \(6, 3, 12, 4\)"),
        ({"probability": np.zeros((4, 12))}, r"probability: want shape \(12, 4\), got \(4, 12\)"),
        ({"restart_probability": np.zeros((12, 4))}, r"restart_probability: want shape \(6, 12, 4\)"),
        ({"probability": np.full((12, 4), 2.0)}, r"probability: want numbers in \[0, 1\]"),
        ({"edge_weight": np.zeros((4, 12))}, r"edge_weight: want shape \(12, 4\), got \(4, 12\)"),
        ({"edge_effect": np.zeros(12)}, r"edge_effect: want shape \(12, 4\), got \(12,\)"),
        ({"X": np.zeros(3)}, r"X: has 1 dimension\(s\), shape \(3,\); wanted \(row, feature\)"),
        ({"X": np.zeros((3, 5))}, r"X: has 5 feature\(s\), the model was fitted to 12"),
    ],
)
def test_to_arviz_messages(fit, change, message):
    arrays = {
        "edge": np.zeros((6, 2, 12, 4)),
        "weight": np.zeros((6, 2, 12, 4)),
        "probability": np.zeros((12, 4)),
    }
    with pytest.raises(ValueError, match=message):
        to_arviz(fit, **{**arrays, **change}, method="m", is_score=True, note="")


def test_pooled_draws_are_a_chain_that_began_at_the_best_restart(fit):
    rng = np.random.default_rng(0)
    edge = rng.integers(0, 2, (1, 30, 12, 4))
    p = edge.mean((0, 1))
    told = {"chain_restart": [fit.best], "restart_probability": p[None]}
    idata = to_arviz(
        fit, edge=edge, weight=edge * 1.0, probability=p, method="m", is_score=False, note="", **told
    )
    np.testing.assert_array_equal(_arviz.get_group(idata, "posterior")["edge"], edge)
    assert summary(idata)["gap"].isna().all()


def test_summary_messages(idata):
    with pytest.raises(ValueError, match=r"fdr: want a rate in \[0, 1\], got 5"):
        summary(idata, fdr=5)
    with pytest.raises(ValueError, match=r"fdr: want a rate in \[0, 1\], got '0.1'; ten per cent is 0.1"):
        summary(idata, fdr="0.1")
    with pytest.raises(ValueError, match="prob: want a probability strictly between 0 and 1, got 94"):
        summary(idata, prob=94)
    with pytest.raises(ValueError, match="kind: want \"hdi\".* got 'sd'"):
        summary(idata, kind="sd")
    fix = r"fit.edge_posterior\(\) makes one, and fit.summary\(\) its table"
    with pytest.raises(TypeError, match=f"idata: want an ArviZ object .* got DataFrame; {fix}"):
        summary(pd.DataFrame())
    for wrong in (fake_fit(), None):
        with pytest.raises(
            TypeError, match=f"idata: want an ArviZ object .* got {type(wrong).__name__}; fit"
        ):
            summary(wrong)
    other = _arviz.from_dict({"posterior": {"a": (("chain", "draw"), np.zeros((1, 4)))}}, {})
    with pytest.raises(KeyError, match=r"no group 'edge_posterior' among \['posterior'\]"):
        summary(other)
