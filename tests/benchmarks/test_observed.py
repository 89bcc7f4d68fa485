"""Systems of the benchmark `observed`: by their seed, with the truth that they say, at rest."""

from __future__ import annotations

import argparse

import numpy as np
import pytest

from benchmarks import observed
from benchmarks._observed_data import draw_system


@pytest.mark.parametrize("seed", [1000, 1001])
def test_systems_follow_from_their_seed(seed):
    one, two = draw_system(seed), draw_system(seed)
    np.testing.assert_array_equal(one.x, two.x)
    assert one.kind == ("nonlinear" if seed % 2 else "linear")
    assert one.graph[-1].any() and np.isfinite(one.x).all()


def test_weights_of_a_linear_system_stand_where_its_graph_says():
    system = draw_system(1000, d=4, n=20_000)
    lags = len(system.graph)
    x = (system.x - system.x.mean(0)) / system.x.std(0)
    inputs = np.concatenate([x[lags - k : len(x) - k] for k in range(1, lags + 1)], 1)
    weights = np.linalg.lstsq(inputs, x[lags:], rcond=None)[0].reshape(lags, 4, 4).transpose(0, 2, 1)
    assert np.abs(weights[~system.graph]).max() < 0.05 < np.abs(weights[system.graph]).min()


@pytest.mark.slow
def test_a_row_and_what_is_collected_of_it(monkeypatch):
    pytest.importorskip("statsmodels")
    monkeypatch.setattr(
        observed, "methods", lambda ours_only, bootstrap: {"var": observed._var, "lasso": observed._lasso}
    )
    rows = [observed.run(1000 + seed, quick=True) for seed in range(2)]
    result = observed.collect(rows, argparse.Namespace())
    assert set(result["ap"]) == {"var", "lasso"} and result["n"] == 2
    assert all(0 < value <= 1 for value in result["ap"].values())
    assert "truth" in rows[0] and len(rows[0]["truth"]) == observed.MAX_LAG * rows[0]["d"] ** 2
