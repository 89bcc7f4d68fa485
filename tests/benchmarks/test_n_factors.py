"""The tables of `n_factors`, its peers where the answer is plain, and its counts."""

from __future__ import annotations

import argparse

import numpy as np
import pytest

from benchmarks import n_factors
from benchmarks._factor_tables import blocks, weak


@pytest.mark.parametrize("make", [blocks, lambda seed: weak(seed, 1000)])
def test_columns_have_variance_one_and_one_factor_each(make):
    for seed in (1000, 1001, 1002):
        table = make(seed)
        assert ((table.loadings != 0).sum(1) == 1).all()
        k = table.loadings.shape[1]
        assert 1.4 * k < table.offered <= 2 * k + 1
        spread = 6 / np.sqrt(len(table.x))
        np.testing.assert_allclose(table.x.var(0), 1, atol=spread)


def test_peers_find_three_clear_factors():
    rng = np.random.default_rng(0)
    loadings = np.kron(np.eye(3), np.full((4, 1), 0.8))
    x = rng.normal(size=(500, 3)) @ loadings.T + 0.6 * rng.normal(size=(500, 12))
    found = n_factors.peers(x, 6, 0)
    assert [found[name] for name in n_factors.PEERS] == [3, 3, 3]


def test_the_oracle_misses_a_weak_factor_in_few_rows_only():
    kept = {
        n: [
            n_factors.true_bic(table, True) > n_factors.true_bic(table, False)
            for table in (weak(seed, n) for seed in range(1000, 1006))
        ]
        for n in (150, 5000)
    }
    assert sum(kept[150]) <= 2 and sum(kept[5000]) >= 5


def test_counts():
    about = {"factors": 3, "indicators": 3, "rows": 150, "correlation": 0.0, "offered": 6, "cpu_s": 1.0}
    rows = [
        {"kind": kind, "seed": seed, **about, "fitted": found}
        for kind, seed, found in [("default", 0, 3), ("default", 1, 4), ("float64", 0, 3), ("float64", 1, 3)]
    ]
    peer = {"parallel": 3, "parallel_pc": 2, "fa_bic": 3, "peer_cpu_s": 0.1}
    rows += [{"kind": "peers", "seed": seed, **about, **peer} for seed in (0, 1)]
    rows += [{"kind": "weak_300", "seed": 0, "rows": 300, "kept": True, "oracle": False, "cpu_s": 1.0}]
    result = n_factors.collect(rows, argparse.Namespace())
    assert (result["right"], result["same"], result["n"]) == (1, 1, 2)
    assert result["by_setting"] == {"default": 1, "float64": 2}
    assert (result["parallel"], result["parallel_pc"], result["fa_bic"]) == (2, 0, 2)
    assert (result["weak_kept"], result["weak_n"]) == (1, 1)
    assert result["by_rows"] == {"300": {"kept": 1, "oracle": 0, "n": 1}}
    assert n_factors.table(rows)
