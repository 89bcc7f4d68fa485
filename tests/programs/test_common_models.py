"""The programs of the page "Models people ask for", on tables whose truth is known."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import pyro_sparse as ps

PAGE = Path(__file__).parents[2] / "docs" / "common_models.md"
NAMES = ["second_order", "bifactor", "random_intercepts", "nonnegative", "invariance"]
SOME = {"chains": 2, "sweeps": 300, "progress": False}


@pytest.fixture(scope="module")
def programs():
    """What the page defines, without the fit at its end."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    there: dict[str, object] = {}
    for block in blocks:
        exec(compile(block.split("\n\n\n#")[0], str(PAGE), "exec"), there)
    return there


def answered(program, n_factors, x, rows=None, **settings):
    model = ps.Program(program, n_factors=n_factors)
    fit = ps.fit(model, ps.Data(x, rows=rows or {}), restarts=2, sweeps=80, seed=0, progress=False)
    return fit.edge_posterior(**{**SOME, **settings})


def probability(idata):
    return idata["edge_posterior"]["probability"].to_numpy()


def noisy(rng, z, weight):
    return z @ weight.T + 0.5 * rng.normal(size=(len(z), len(weight)))


def matched(prob, edge):
    """Whether the probable edges are the true ones, up to the order of factors."""
    return sorted(map(tuple, (prob > 0.5).T)) == sorted(map(tuple, edge.T))


def test_programs_are_short(programs):
    blocks = re.findall(r"^def (\w+)\(d\):\n((?:    .*\n)+)", PAGE.read_text(), re.M)
    assert [name for name, _ in blocks] == NAMES
    assert max(body.count("\n") for _, body in blocks) <= 25


@pytest.mark.slow
def test_a_second_order_factor(programs):
    rng, c = np.random.default_rng(1000), np.array([0.85, 0.7, 0.6])
    z = c * rng.normal(size=(250, 1)) + np.sqrt(1 - c**2) * rng.normal(size=(250, 3))
    weight = np.kron(np.eye(3), np.full((3, 1), 0.8))
    idata = answered(programs["second_order"], 3, noisy(rng, z, weight))
    assert matched(probability(idata), weight != 0)
    found = idata["posterior"]["second"].to_numpy().mean((0, 1))
    first = probability(idata)[[0, 3, 6]].argmax(1)  # the factor of each block
    assert np.abs(found[first] - c).max() < 0.25


@pytest.mark.slow
def test_bifactor(programs):
    """Loadings of each group are not proportional, so that the graph is the only one of its size."""
    rng, weight = np.random.default_rng(1001), np.full((10, 3), [0.7, 0.0, 0.0])
    weight[:4, 0], weight[:4, 1] = [0.9, 0.5, 0.8, 0.4], [0.4, 0.8, 0.5, 0.8]
    weight[5:9, 0], weight[5:9, 2] = [0.4, 0.9, 0.5, 0.8], [0.8, 0.4, 0.8, 0.4]
    idata = answered(programs["bifactor"], 3, noisy(rng, rng.normal(size=(250, 3)), weight))
    np.testing.assert_allclose(probability(idata)[:, 0], 1, atol=1e-9)
    assert matched(probability(idata), weight != 0)


@pytest.mark.slow
def test_bifactor_of_proportional_loadings_stays_open(programs):
    """Other axes have as many edges: the general one through a group. Chains cross, and none is certain.

    Until they did, they confirmed the axes they began in, which by chance were those of the simulation.
    """
    rng, weight = np.random.default_rng(1001), np.zeros((10, 3))
    weight[:, 0], weight[:4, 1], weight[5:9, 2] = 0.7, 0.6, 0.6
    idata = answered(programs["bifactor"], 3, noisy(rng, rng.normal(size=(250, 3)), weight))
    prob = probability(idata)
    np.testing.assert_allclose(prob[:, 0], 1, atol=1e-9)
    assert ((prob[:, 1:] > 0.1) & (prob[:, 1:] < 0.95)).any(0).all()
    table = ps.summary(idata)
    group = table[table["factor"] != table["factor"].iloc[0]]
    assert not (group["verdict"] == "present").any()


@pytest.mark.slow
def test_random_intercepts(programs):
    rng, weight = np.random.default_rng(1002), np.zeros((8, 2))
    weight[:4, 0], weight[4:, 1] = 0.8, 0.8
    group, shift = rng.integers(0, 20, 200), rng.normal(size=(20, 8)) * np.repeat([1.0, 0.0], 4)
    x = noisy(rng, rng.normal(size=(200, 2)), weight) + shift[group]
    idata = answered(programs["random_intercepts"], 2, x, {"group": np.array([f"school {g}" for g in group])})
    between = idata["posterior"]["between"].to_numpy().mean((0, 1))
    assert matched(probability(idata), weight != 0)
    assert np.abs(between[:4] - 1).max() < 0.6 and between[4:].max() < 0.4


@pytest.mark.slow
def test_loadings_that_are_not_negative(programs):
    rng, weight = np.random.default_rng(1003), np.zeros((8, 2))
    weight[:5, 0], weight[3:, 1] = 0.8, 0.7
    idata = answered(programs["nonnegative"], 2, noisy(rng, rng.normal(size=(200, 2)), weight))
    true = weight != 0 if probability(idata)[0, 0] > 0.5 else weight[:, ::-1] != 0
    assert (probability(idata)[true] > 0.5).all()
    # chains do not rotate, and may disagree: what is false is at most open
    table = ps.summary(idata)
    present = table.loc[table["verdict"] == "present", ["feature", "factor"]]
    features, factors = (list(idata["posterior"][name].values) for name in ("feature", "factor"))
    assert all(true[features.index(f), factors.index(k)] for f, k in present.to_numpy())
    assert (idata["posterior"]["size"].to_numpy() >= 0).all()


@pytest.mark.slow
def test_loadings_that_differ_between_groups(programs):
    rng, second = np.random.default_rng(1004), np.repeat([0.0, 1.0], 100)
    loading = np.where(second[:, None] == 1, [0.8] * 5 + [0.2], [0.8] * 6)
    x = loading * rng.normal(size=(200, 1)) + 0.5 * rng.normal(size=(200, 6))
    different = probability(answered(programs["invariance"], 1, x, {"second": second}, site="D"))[:, 0]
    assert different[5] > 0.9 and different[:5].max() < 0.9 and different[:5].mean() < 0.4
