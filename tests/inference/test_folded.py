"""Folded factors: the moment against scipy's, what is said, and a table on which every restart folds one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import pyro_sparse as ps
from pyro_sparse.datasets import dependency_data
from pyro_sparse.inference.folded import folded, skewness


def test_skewness_is_that_of_scipy():
    z = np.random.default_rng(0).gamma(2.0, size=(2, 400, 3)) * [1.0, -1.0, 5.0]
    assert skewness(torch.as_tensor(z)).numpy() == pytest.approx(stats.skew(z, axis=1))
    assert skewness(torch.ones(1, 5, 1)).item() == 0  # a factor that does not move


def test_only_a_lopsided_factor_is_named():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(4000, 3))
    z[:, 1] = np.minimum(z[:, 1], 0.2 - z[:, 1])  # folded at .1
    said = folded(stats.skew(z), ["a", "b", "c"])
    assert list(said) == ["b"] and "skewness -" in said["b"] and "folded" in said["b"]
    assert folded([np.nan, 0.0], ["a", "b"]) == {}  # a fit cut off before it looked


@pytest.mark.slow
def test_a_fold_that_all_restarts_share_is_flagged():
    """Factor 2 has one feature of its own, which turns round, and a weak share in another."""
    data = dependency_data("random", 3, 9, 6000, seed=1031)
    fit = ps.fit(ps.models.DependencyVAE(9, 3), data.x, seed=1031, restarts=2, steps=2200, progress=False)
    match = ps.metrics.mcc(data.z, fit.transform(data.x, refine=False), "spearman")
    lost = fit.factor_names[int(match.permutation[1])]
    assert match.correlation[1] < 0.8 < min(match.correlation[[0, 2]])
    assert (fit.alignment["congruence"] > 0.95).all()
    assert [note for note in fit.warnings if "folded" in note] == [
        note for note in fit.warnings if note.startswith(f"{lost}: its values end in a cliff")
    ]
    assert ps.identify(fit).table.at[lost, "verdict"] != "identified"
