"""Folded factors: the moment against scipy's, what is said, and a table on which every restart folds one."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

import pyro_sparse as ps
from pyro_sparse.datasets import dependency_data
from pyro_sparse.inference.table.folded import folded, skewness
from tests._fake_fit import fake_fit


def test_skewness_is_that_of_scipy():
    z = np.random.default_rng(0).gamma(2.0, size=(2, 400, 3)) * [1.0, -1.0, 5.0]
    assert skewness(torch.as_tensor(z)).numpy() == pytest.approx(stats.skew(z, axis=1))
    assert skewness(torch.ones(1, 5, 1)).item() == 0  # a factor that does not move


def test_only_a_lopsided_factor_is_named_in_the_frame_of_the_fit():
    z = np.random.default_rng(0).normal(size=(4000, 3))
    z[:, 1] = np.minimum(z[:, 1], 0.2 - z[:, 1])  # turns round at .1
    own = np.stack([np.zeros(3), stats.skew(z)])
    fit = fake_fit(n_factors=3, n_restarts=2)
    assert folded(fit) == []  # its model notes nothing
    fit.model = SimpleNamespace(skewness=torch.as_tensor(own))
    assert folded(fit) == []  # the other restart's
    fit.best, fit.alignment["permutation"] = 1, np.array([[0, 1, 2], [1, 0, 2]])
    fit.alignment["sign"] = np.array([[1, 1, 1], [-1, 1, 1]])
    (doubt,) = folded(fit)
    assert doubt.is_doubt and doubt.factors == ("factor 1",)
    assert f"skewness {-own[1, 1]:.2f}" in str(doubt)
    fit.model.skewness[:] = np.nan  # a fit cut off before it looked
    assert folded(fit) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:X. column:RuntimeWarning")  # two features with little noise
def test_a_fold_that_all_restarts_share_is_flagged():
    """Factor 2 has one feature of its own, which turns round, and a weak share in another."""
    data = dependency_data("random", 3, 9, 6000, seed=1031)
    settings = {"restarts": 2, "steps": 2200, "unfold_at": None, "progress": False}
    fit = ps.fit(ps.models.DependencyVAE(9, 3), data.x, seed=1031, **settings)
    match = ps.metrics.mcc(data.z, fit.transform(data.x, refine=False), "spearman")
    lost = fit.factor_names[int(match.permutation[1])]
    assert match.correlation[1] < 0.8 < min(match.correlation[[0, 2]])
    assert (fit.alignment["congruence"] > 0.95).all()
    assert [note for note in fit.warnings if "folded" in note] == [
        note for note in fit.warnings if note.startswith(f"{lost}: its values end in a cliff")
    ]
    assert ps.identify(fit).table.at[lost, "verdict"] != "identified"
