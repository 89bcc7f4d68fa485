"""Actions that follow from what they seem to drive; true ones, policies and covariates that do not."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import pyro_sparse as ps
from pyro_sparse.data.frame_covariates import as_designed_sequences
from pyro_sparse.inference.observed.directions import accounts_of, is_usable
from pyro_sparse.inference.observed.steps import observed_values, steps_of
from pyro_sparse.inference.observed.timing import _partial, timing_findings

TRANSITION = np.array([[0.8, 0, 0], [0.5, 0.5, 0], [0, 0, 0.6]])
NAMES = list("abc")


def walk(seed, act=None, effect=(0.0, 0.0, 0.0), n=400, policy=None):
    """a drives b; an action, given or chosen by a policy of the frame before, moves them by so much."""
    rng = np.random.default_rng(seed)
    x, chosen = np.zeros((n, 3)), np.zeros(n) if act is None else np.asarray(act, float)
    for t in range(1, n):
        if policy is not None:
            chosen[t] = policy(x[t - 1], rng)
        x[t] = TRANSITION @ x[t - 1] + chosen[t] * np.array(effect) + rng.normal(size=3)
    return pd.DataFrame(x, columns=NAMES).assign(act=chosen)


def found(table, lags=1, **options):
    sequences = as_designed_sequences(table, **({"actions": ["act"]} | options))
    values = np.nan_to_num(observed_values(sequences))
    steps = steps_of(sequences, values, lags)
    design = np.insert(steps.inputs, 0, 1.0, axis=1)  # in place of a fit: all linear effects
    left = steps.targets - design @ np.linalg.lstsq(design, steps.targets, rcond=None)[0]
    return timing_findings(sequences, values, lags, left)


FOLLOWS = {
    "threshold": lambda x, rng: x["c"] > 0,
    "two cuts": lambda x, rng: x["c"].abs() > 1,
    "two columns": lambda x, rng: x["a"] / 2 + x["c"] > 0,
    "copy": lambda x, rng: x["c"],
    "sum": lambda x, rng: x["b"] - x["c"],
    "labels": lambda x, rng: np.array(["low", "middle", "high"])[np.digitize(x["c"], [-0.6, 0.6])],
}
INVOLVED = {"two columns": {"a", "c"}, "sum": {"b", "c"}}


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("rule", list(FOLLOWS))
def test_an_action_that_follows_from_its_row_or_the_next_is_told(rule, ahead):
    for seed in range(1000, 1004):
        table = walk(seed)
        act = FOLLOWS[rule](table, np.random.default_rng(seed))
        values = np.asarray(act) if rule == "labels" else np.asarray(act, float)
        (doubt,) = found(table.assign(act=np.roll(values, -ahead)))
        assert doubt.is_doubt and doubt.kind == "timing" and doubt.factors == ("act",)
        assert set(doubt.columns) == {"act"} | INVOLVED.get(rule, {"c"})
        assert ("next row" if ahead else "same row") in doubt.message
        assert doubt.touches("c", "c") and not doubt.touches("a", "b") or rule != "threshold"


def _coin(x, rng):
    return rng.integers(0, 2)


TRUE = {
    "coin": _coin,
    "seldom": lambda x, rng: rng.random() < 0.1,
    "number": lambda x, rng: rng.normal(),
    "dose": lambda x, rng: rng.integers(0, 4),
    "threshold of the row before": lambda x, rng: x[0] > 0,
    "a rule with chance": lambda x, rng: x[0] + 2 * rng.normal() > 0,
    "control": lambda x, rng: -0.3 * x[0] + rng.normal(),
}


@pytest.mark.parametrize("size", [0.3, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("policy", list(TRUE))
@pytest.mark.parametrize(
    "seeds", [range(1000, 1002), pytest.param(range(1002, 1006), marks=pytest.mark.slow)]
)
def test_actions_that_act_are_left_alone(policy, size, seeds):
    """A large effect makes the frame tell the action nearly without error, too."""
    for seed in seeds:
        assert found(walk(seed, effect=(size, 0, 0), policy=TRUE[policy])) == []


def test_a_covariate_that_is_the_frame_with_some_noise_is_told():
    rng = np.random.default_rng(1)
    table = walk(1000).drop(columns="act")
    (doubt,) = found(table.assign(w=table["b"] + 0.2 * rng.normal(size=400)), actions=None, covariates=["w"])
    assert doubt.columns == ("w", "b") and doubt.touches("b", "a") and not doubt.touches("a", "a")
    weather = np.zeros(400)
    for t in range(1, 400):
        weather[t] = 0.9 * weather[t - 1] + 0.4 * rng.normal()
    outside = walk(1001, act=weather, effect=(4, 1, 0)).rename(columns={"act": "w"})
    assert found(outside, actions=None, covariates=["w"]) == []


def test_a_fit_leaves_its_edges_open():
    table = walk(1000)
    table["act"] = (table["c"] > 0).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = ps.fit(ps.models.ObservedTransition(), table, actions=["act"], progress=False)
    summary = ps.summary(fit.edge_posterior(), include_doubted=True)
    assert ps.edge_prob(fit.edge_posterior(), "action").loc["c", "act"] > 0.95, "or there is nothing to doubt"
    assert summary.loc["act -> c", "verdict"] == "open" and summary.loc["a -> b", "verdict"] == "present"
    (doubt,) = [finding for finding in fit.findings if finding.kind == "timing"]
    assert "shift(1)" in doubt.remedy


@pytest.mark.parametrize("n_rows", [1, -1])
def test_an_action_of_another_row_is_told(n_rows):
    told = 0
    for seed in range(1000, 1010):
        act = np.random.default_rng([seed, 1]).integers(0, 2, 400)
        table = walk(seed, act=act, effect=(1.5, 0, 0))
        doubts = found(table.assign(act=np.roll(table["act"], n_rows)))
        told += len(doubts)
        for doubt in doubts:
            assert doubt.columns == ("act", "a") and doubt.factors == ("act",) and doubt.is_doubt
            assert ("too late" if n_rows > 0 else "too early") in doubt.message
            assert f"shift({-n_rows})" in doubt.remedy
    assert told >= 9


def test_a_fit_leaves_edges_of_an_action_of_another_row_open():
    act = np.random.default_rng(3).integers(0, 2, 400)
    table = walk(1001, act=act, effect=(2, 0, 0))
    verdicts = []
    for n_rows in (0, 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = table.assign(act=np.roll(table["act"], n_rows))
            fit = ps.fit(ps.models.ObservedTransition(), given, actions=["act"], progress=False)
        verdicts.append(ps.summary(fit.edge_posterior(), include_doubted=True).loc["act -> a", "verdict"])
    assert verdicts == ["present", "open"]


def people(seed, n_rows=0, effect=1.5):
    """Twenty people of forty rows, each with levels of their own."""
    rng = np.random.default_rng([seed, 2])
    walks = []
    for k in range(20):
        act = rng.integers(0, 2, 40)
        walk_of_one = walk(int(rng.integers(2**31)), act=act, effect=(effect, 0, 0), n=40)
        walk_of_one[NAMES] += 2 * rng.normal(size=3)
        act_as_given = np.roll(act, n_rows)
        walks.append(walk_of_one.assign(act=act_as_given, who=f"p{k}", row=range(40)))
    return pd.concat(walks, ignore_index=True)


@pytest.mark.parametrize("covariates", [None, ["who"]])
def test_levels_of_people_are_no_fault_of_an_action(covariates):
    """That their means are not in the model is another finding's matter."""
    for seed in range(1000, 1008):
        assert found(people(seed), id="who", time="row", covariates=covariates) == []


@pytest.mark.parametrize("n_rows", [1, -1])
def test_an_action_of_another_row_is_moved_within_people(n_rows):
    for seed in range(1000, 1004):
        (doubt,) = found(people(seed, n_rows), id="who", time="row", covariates=["who"])
        assert f"X.groupby('who')['act'].shift({-n_rows})" in doubt.remedy


def test_a_copy_of_the_frame_before_is_no_late_action():
    """Of yes/no variables a policy may be a copy, which lines explain without error."""
    told = []
    for seed in range(1000, 1020):
        rng = np.random.default_rng(seed)
        x, act = np.zeros((600, 3)), np.zeros(600)
        for t in range(1, 600):
            act[t] = x[t - 1, 0]
            logits = TRANSITION @ (2 * x[t - 1] - 1) + [2 * act[t] - 1, 0, 0]
            x[t] = logits + rng.logistic(size=3) > 0
        told += found(pd.DataFrame(x, columns=NAMES).assign(act=act))
    assert told == []


def test_partial_shares_are_those_of_two_regressions():
    rng = np.random.default_rng(0)
    beside, column = rng.normal(size=(80, 3)), rng.normal(size=80)
    targets = np.stack([beside[:, 0] + 0.5 * column, rng.normal(size=80)], 1) + rng.normal(size=(80, 2))
    p, share = _partial(targets, column, beside)
    sums = []
    for columns in (beside, np.column_stack([beside, column])):
        design = np.column_stack([np.ones(80), columns])
        sums.append(((targets - design @ np.linalg.lstsq(design, targets, rcond=None)[0]) ** 2).sum(0))
    np.testing.assert_allclose(share, 1 - sums[1] / sums[0])
    np.testing.assert_allclose(p, stats.f.sf((sums[0] - sums[1]) / (sums[1] / 75), 1, 75))
    owner = np.arange(80) // 20
    p, share = _partial(targets + 3 * owner[:, None], column, beside, owner)
    members = np.eye(4)[owner]
    sums = []
    for columns in (np.column_stack([members, beside]), np.column_stack([members, beside, column])):
        sums.append(((targets - columns @ np.linalg.lstsq(columns, targets, rcond=None)[0]) ** 2).sum(0))
    np.testing.assert_allclose(share, 1 - sums[1] / sums[0])
    np.testing.assert_allclose(p, stats.f.sf((sums[0] - sums[1]) / (sums[1] / 72), 1, 72))


def test_accounts_of_numbers_are_normal_likelihoods():
    """Of jointly normal columns the account with all links is the log density by its covariance."""
    rng = np.random.default_rng(0)
    n = 5000
    past = rng.normal(size=(n, 2))
    frame = past @ [[0.5, 0.2], [0, 0.6]] + rng.normal(size=(n, 2))
    column = frame @ [1.0, -0.5] + rng.normal(size=n)
    accounts = accounts_of(column, frame, past, np.zeros((n, 0)))

    def entropy(*columns):
        return 0.5 * np.linalg.slogdet(np.atleast_2d(np.cov(np.column_stack(columns).T)))[1]

    def of_column(*columns):
        """of the column given others, in its own standard deviation"""
        return entropy(column, *columns) - entropy(*columns) - 0.5 * np.log(column.var())

    price = 0.5 * np.log(n)
    np.testing.assert_allclose(accounts.follows, -n * of_column(frame) - 3 * price, rtol=0.02)
    information = n * (
        entropy(column, past) + entropy(frame, past) - entropy(past) - entropy(column, frame, past)
    )
    np.testing.assert_allclose(accounts.information, information, rtol=0.02)
    np.testing.assert_allclose(accounts.policy, information - n * of_column(past) - 5 * price, rtol=0.02)
    relayed = n * (entropy(frame, past) - entropy(past) - entropy(frame, column) + entropy(column))
    relayed += -n * of_column(past) - 3 * price + 2 * price
    np.testing.assert_allclose(accounts.relayed, relayed, rtol=0.02)
    share = 1 - np.exp(2 * (of_column(frame) - of_column(past)))
    np.testing.assert_allclose(accounts.share, share, atol=0.02)
    assert accounts.follows > max(accounts.random, accounts.relayed) and accounts.follows > accounts.policy


def test_columns_of_which_too_little_is_known_are_not_weighed():
    assert is_usable(np.arange(60.0), 20) and not is_usable(np.arange(60.0), 21)
    assert not is_usable(np.ones(60), 2) and not is_usable(np.r_[np.ones(9), np.zeros(51)], 2)
    assert is_usable(np.r_[np.ones(10), np.zeros(50)], 2)
    assert found(walk(1000, n=20).assign(act=lambda x: x["c"])) == []
