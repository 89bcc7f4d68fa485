"""Figures of trained restarts by hand: one takes the place of another, and what the settings say of it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from pyro_sparse.inference.table.fit_settings import restart_settings
from pyro_sparse.inference.table.trained_restarts import TrainedRestarts

ARRAYS = ("train", "heldout", "edges", "parameters", "n_factors_init", "bent", "log_likelihood")


def restarts(n, seed, **changed):
    rng = np.random.default_rng(seed)
    figures = TrainedRestarts(
        train=rng.normal(size=(n, 6)),
        heldout=rng.normal(size=(n, 4)),
        edges=rng.integers(1, 9, n),
        parameters=rng.integers(9, 20, n),
        history=[{"step": step, "restart": r, "seed": seed} for step in (10, 20) for r in range(n)],
        n_factors_init=rng.integers(1, 5, n),
        bent=rng.random(n) < 0.5,
        log_likelihood=rng.normal(size=(n, 10)),
    )
    return figures._replace(**changed)


@pytest.mark.parametrize("absent", [(), ("heldout",), ("log_likelihood",), ("heldout", "log_likelihood")])
def test_a_restart_in_the_place_of_another_brings_all_its_figures(absent):
    nothing = dict.fromkeys(absent)
    old, new = restarts(3, 1000, best=2, **nothing), restarts(2, 1001, **nothing)
    kept = {name: None if name in absent else getattr(old, name).copy() for name in ARRAYS}
    both = old.with_restart(1, new, 0)
    for name in ARRAYS:
        if name in absent:
            assert getattr(both, name) is None
            continue
        np.testing.assert_array_equal(getattr(both, name)[1], getattr(new, name)[0])
        np.testing.assert_array_equal(getattr(both, name)[[0, 2]], kept[name][[0, 2]])
        np.testing.assert_array_equal(getattr(old, name), kept[name])  # these stay as they were
    assert both.best == 2
    assert [(row["step"], row["restart"], row["seed"]) for row in both.history] == [
        (10, 0, 1000), (10, 2, 1000), (10, 1, 1001), (20, 0, 1000), (20, 2, 1000), (20, 1, 1001),
    ]  # fmt: skip


def test_the_level_is_of_log_densities_where_there_are_some():
    trained = restarts(3, 1000)
    charge = 0.5 * np.log(50) * trained.parameters
    np.testing.assert_allclose(trained.level(50), 50 * trained.log_likelihood.mean(1) - charge)
    bounds = np.concatenate([trained.train, trained.heldout], 1)
    np.testing.assert_allclose(trained._replace(log_likelihood=None).level(50), 50 * bounds.mean(1) - charge)


def test_settings_have_a_key_only_where_it_applies():
    model = SimpleNamespace(likelihood=SimpleNamespace(full_name="normal"), n_factors=4, n_restarts=3)
    trained = restarts(3, 1000)
    plain = restart_settings(model, trained._replace(log_likelihood=None), None)
    assert plain["restarts"] == 3 and plain["n_factors_init"] == trained.n_factors_init.tolist()
    compared = restart_settings(model, trained._replace(from_graphs=(2, 0)), None)
    assert set(compared) - set(plain) == {"graph_restarts", "log_likelihood", "correlations"}
    assert compared["graph_restarts"] == [2, 0]  # a list, as files have it
    assert compared["correlations"] == (trained.parameters - trained.edges).tolist()
    maxima = SimpleNamespace(level=np.zeros(3), searched={2: 1, 0: 2}, supported=None, likeliest=2)
    at_maxima = restart_settings(model, trained._replace(log_likelihood=None, from_axes=(1,)), maxima)
    assert set(at_maxima) - set(plain) == {"axis_restarts", "graph_level", "searched"}
    assert at_maxima["searched"] == [0, 2]
    maxima.supported = 1
    assert restart_settings(model, trained, maxima)["likeliest_factors"] == 2
