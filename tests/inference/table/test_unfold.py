"""Factors that folded: curves with a known answer, a fit that folds without them, restarts that stay."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

import pyro_sparse as ps
from pyro_sparse.data.read import as_table
from pyro_sparse.inference.table import unfold as module
from pyro_sparse.inference.table.unfold import curve_factor, unfold


def own(seed=0):
    return torch.Generator().manual_seed(seed)


def correlation(a, b):
    return abs(spearmanr(np.asarray(a), np.asarray(b))[0])


@pytest.fixture(scope="module")
def folded():
    """A feature that goes up and comes back, and one that tells the branches, beside a second factor."""
    z = np.random.default_rng(0).normal(size=(1500, 2))
    up_and_down = 1 - np.abs(z[:, 0] + 0.3)
    both = z[:, 0] + np.tanh(z[:, 1])
    x = np.stack([up_and_down, both], 1)
    x += 0.03 * np.random.default_rng(1).normal(size=x.shape)
    return z, torch.as_tensor(x).float(), np.array([[False], [True]])


@pytest.mark.slow
def test_curves_find_a_factor_of_which_a_feature_is_not_monotone(folded):
    z, x, edge = folded
    found = curve_factor(x, torch.as_tensor(z[:, 1:]).float(), edge, own())
    assert correlation(z[:, 0], x[:, 0]) < 0.6
    assert correlation(z[:, 0], found) > 0.98


@pytest.mark.slow
def test_curves_read_observed_cells_only(folded):
    z, x, edge = folded
    mask = torch.ones_like(x, dtype=torch.bool)
    mask[::5, 0] = mask[1::5, 1] = False
    given = torch.as_tensor(z[:, 1:]).float()
    answers = []
    for hidden in (0.0, 50.0):
        answers.append(curve_factor(torch.where(mask, x, torch.tensor(hidden)), given, edge, own(), mask))
    torch.testing.assert_close(*answers)
    whole = mask.all(1)
    assert correlation(z[whole, 0], answers[0][whole]) > 0.98


@pytest.mark.slow
def test_the_only_factor_can_be_asked_for(folded):
    z, x, _ = folded
    x = torch.stack([x[:, 0], torch.as_tensor(np.tanh(z[:, 0])).float()], 1)
    found = curve_factor(x, x[:, :0], np.ones((2, 0), bool), own())
    assert correlation(z[:, 0], found) > 0.98


def fitted(n=2000, **settings):
    data = ps.datasets.dependency_data("random", 3, 9, n, mechanism="leaky_relu", seed=1110)
    model = ps.models.DependencyVAE(9, 3)
    fit = ps.fit(model, data.x, restarts=1, steps=1000, seed=0, progress=False, **settings)
    found = ps.metrics.mcc(data.z, fit.transform(data.x), "spearman")
    return fit, found.correlation.min()


@pytest.mark.slow
def test_a_fit_that_folds_is_unfolded():
    without, lost = fitted(unfold_at=None)
    assert lost < 0.9 and any("cliff" in note for note in without.warnings)
    fit, least = fitted()
    assert least > 0.98 and not any("cliff" in note for note in fit.warnings)
    assert fit.elbo[0] > without.elbo[0] + 1


@pytest.fixture
def two_restarts(folded):
    _, x, _ = folded
    torch.manual_seed(0)
    model = ps.models.DependencyVAE(3, 2)
    model.setup(n_restarts=2, n_samples=len(x))
    batch = as_table(x[:, [0, 1, 1]].numpy(), likelihood=model.likelihood).batch()
    return model, batch


def test_a_restart_without_a_folded_factor_stays_to_the_bit(two_restarts, monkeypatch):
    model, batch = two_restarts
    before = {name: value.clone() for name, value in model.state_dict().items()}
    drawn = torch.random.get_rng_state()
    skews = iter([torch.tensor([[0.1, 0.0]]), torch.tensor([[-0.9, 0.0]])])
    monkeypatch.setattr(module, "skewness", lambda z: next(skews))
    monkeypatch.setattr(module, "edge_probability", lambda strength: np.ones_like(strength))
    monkeypatch.setattr(
        module, "curve_factor", lambda x, z, edge, own, mask: torch.randn(len(x), generator=own)
    )
    monkeypatch.setattr(module, "_LESSONS", 2)
    assert unfold(model, batch) == [[], [0]]
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value[0], before[name][0], rtol=0, atol=0)
    assert not torch.equal(model.decoder.first[1], before["decoder.first"][1])
    assert torch.equal(torch.random.get_rng_state(), drawn)


def test_nothing_changes_where_the_curves_agree_or_one_feature_is_all(two_restarts, monkeypatch):
    model, batch = two_restarts
    before = {name: value.clone() for name, value in model.state_dict().items()}
    monkeypatch.setattr(module, "skewness", lambda z: torch.tensor([[0.9, 0.0]]))
    monkeypatch.setattr(module, "edge_probability", lambda strength: np.ones_like(strength))
    monkeypatch.setattr(module, "spearmanr", lambda a, b: (-0.96, 0.0))
    monkeypatch.setattr(module, "curve_factor", lambda x, z, edge, generator, mask: torch.zeros(len(x)))
    assert unfold(model, batch) == [[], []]
    monkeypatch.setattr(module, "edge_probability", lambda strength: np.eye(*strength.shape))
    monkeypatch.setattr(module, "curve_factor", None)
    assert unfold(model, batch) == [[], []]
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_of_a_wide_table_the_strongest_features_are_read(monkeypatch):
    torch.manual_seed(0)
    model = ps.models.DependencyVAE(20, 2)
    model.setup(n_restarts=1, n_samples=100)
    batch = as_table(np.random.default_rng(0).normal(size=(100, 20)), likelihood=model.likelihood).batch()
    strength = torch.rand(1, 20, 2)
    strength[0, 3, 0] = 2.0
    monkeypatch.setattr(module, "strengths", lambda model, batch: strength)
    monkeypatch.setattr(module, "edge_probability", lambda strength: 1.0 * (np.indices((20, 2))[0] != 3))
    monkeypatch.setattr(module, "skewness", lambda z: torch.tensor([[0.9, 0.0]]))
    read = []

    def curves(x, z, edge, generator, mask):
        read.extend(int((batch.x == column.unsqueeze(1)).all(0).nonzero()) for column in x.T)
        return z[:, 0]

    monkeypatch.setattr(module, "curve_factor", curves)
    monkeypatch.setattr(module, "_LESSONS", 0)
    unfold(model, batch)
    order = np.argsort(-strength[0, :, 0].numpy())[1:13]  # the first has no edge
    assert read == order.tolist()


def test_when_it_happens_can_be_said():
    schedule = ps.inference.DependencySchedule(steps=1000, axes_at=0.8, unfold_at=0.25)
    assert schedule.unfold_step == 200
    assert ps.inference.DependencySchedule(unfold_at=None).unfold_step == 0
    assert ps.inference.DependencySchedule(axes_at=None).unfold_step == 0
    with pytest.raises(ValueError, match="unfold_at: want a share of the dense steps"):
        ps.inference.DependencySchedule(unfold_at=1.0)
