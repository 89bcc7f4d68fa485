"""What a fit says of the edges at its mode: how probable they are, and when it warns of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import integrate

import pyro_sparse as ps
from pyro_sparse.data.tasks import as_tasks
from pyro_sparse.inference.multitask.mode_edges import mode_doubts, mode_edge_probability
from pyro_sparse.inference.multitask.task_notes import unlikely_findings
from pyro_sparse.inference.multitask.task_run import settle
from pyro_sparse.models import MultiTaskRegression
from tests._tasks import quick_fit, tasks_on_latents

pytestmark = pytest.mark.usefixtures("hurried_module")


def settled(n=8, noise=1.0, t=6, mask=None):
    x, y, *_ = tasks_on_latents(2, t=t, n=n, noise=noise)
    if mask is not None:
        y = np.where(mask, y, np.nan)
    batch = as_tasks(x, y).batch(dtype=torch.float64)
    model = MultiTaskRegression(x.shape[-1], 3)
    torch.manual_seed(0)
    model.setup(t)
    model.double()
    settle(model, batch, "ssl", 1e-3)
    return model, batch


def test_an_edge_alone_has_the_probability_that_quadrature_gives():
    """One latent, so that no stand-in for other weights is needed."""
    x, y, *_ = tasks_on_latents(2, t=6, n=8, k=1, noise=2.0)
    batch = as_tasks(x, y).batch(dtype=torch.float64)
    model = MultiTaskRegression(x.shape[-1], 1)
    torch.manual_seed(0)
    model.setup(6)
    model.double()
    settle(model, batch, "ssl", 1e-3)
    model.weights.fill_(0.3)
    slab = 1.5
    found = mode_edge_probability(model, batch, slab).numpy()[:, 0]
    f, target = model.latents(batch).detach().numpy()[..., 0], batch.y.numpy()
    f, target = f - f.mean(1, keepdims=True), target - target.mean(1, keepdims=True)
    for t, variance in enumerate(model.variance.numpy()):

        def density(w, t=t, variance=variance):
            gain = (f[t] * target[t]).sum() * w - (f[t] ** 2).sum() * w**2 / 2
            return slab / 2 * np.exp(-slab * abs(w) + gain / variance)

        odds = 7 / 1 * integrate.quad(density, -10, 10, points=[0.0])[0]  # (1 + 6) / (2 + 6) of the tasks
        assert found[t] == pytest.approx(odds / (1 + odds), abs=1e-6)


def test_tasks_of_a_batch_are_those_of_the_whole():
    model, batch = settled()
    whole = mode_edge_probability(model, batch, 1.0)
    torch.testing.assert_close(whole.isnan(), model.weights[0] == 0)
    some = mode_edge_probability(model, batch.rows(torch.tensor([3, 1])), 1.0)
    torch.testing.assert_close(some, whole[[3, 1]], equal_nan=True)


def test_rows_without_an_outcome_are_not_there():
    mask = np.ones((6, 8), dtype=bool)
    mask[:, 5:] = False
    model, batch = settled(mask=mask)
    rest = replace(batch, x=batch.x[:, :5], y=batch.y[:, :5], mask=None)
    here, there = (mode_edge_probability(model, some, 1.0) for some in (batch, rest))
    torch.testing.assert_close(here, there, equal_nan=True)


def test_edges_that_noise_alone_could_have_made_are_less_probable():
    model, batch = settled()
    before = mode_edge_probability(model, batch, 1.0).nanmean()
    model.variance *= 100
    assert mode_edge_probability(model, batch, 1.0).nanmean() < before - 0.1


def test_a_finding_names_the_tasks_whose_edges_are_in_doubt():
    names, nan = [f"{letter}{n}" for n in range(7) for letter in "abc"], np.nan
    probability = np.tile([[0.99, nan], [0.5, 0.7], [nan, nan]], (7, 1))
    (note,) = unlikely_findings(probability, names)
    assert note.kind == "mode" and note.columns == tuple(f"b{n}" for n in range(7)) and not note.is_doubt
    assert note.size == pytest.approx(0.73) and "some 0.73" in note.message
    assert "7 of 21 tasks: b0, b1, b2, b3, b4, …)" in note.message
    assert unlikely_findings(np.where(probability < 0.9, 0.96, probability), names) == []
    assert unlikely_findings(np.full((3, 2), nan), names[:3]) == []
    assert unlikely_findings(probability[:18], names[:18]) == []  # 18 edges


@pytest.fixture(scope="module")
def few():
    x, y, *_ = tasks_on_latents(1000, t=60, n=205, noise=1.0)
    return quick_fit(x[:, :5], y[:, :5], restarts=1), x[:, 5:], y[:, 5:]


def test_few_rows_of_much_noise_are_said_and_predicted_by_means(few):
    fit, x, y = few
    (note,) = [finding for finding in fit.findings if finding.kind == "mode"]
    assert "edges at the mode have a mean probability" in note.message and note.size < 0.9
    rows, labels = x.reshape(-1, x.shape[-1]), np.repeat(fit.task_names, x.shape[1])

    def error(weights):
        return np.mean((fit.predict(rows, labels, weights=weights).reshape(y.shape) - y) ** 2 / y.var())

    assert error("auto") == error("mean") < 0.8 * error("mode")


def test_a_loaded_fit_of_few_rows_predicts_as_before(few, tmp_path):
    fit, x, _ = few
    fit.save(tmp_path / "fit.pt")
    rows, labels = x[:, :2].reshape(-1, x.shape[-1]), np.repeat(fit.task_names, 2)
    np.testing.assert_array_equal(
        ps.load(tmp_path / "fit.pt").predict(rows, labels), fit.predict(rows, labels)
    )


def test_a_fit_of_enough_rows_is_not_warned_of():
    x, y, *_ = tasks_on_latents(1000, t=60)
    fit = quick_fit(x, y, restarts=1)
    assert "mode" not in {finding.kind for finding in fit.findings}
    np.testing.assert_array_equal(fit.predict(), fit.predict(weights="mode"))


def test_a_prior_without_spike_and_slab_is_not_asked():
    x, y, *_ = tasks_on_latents(2, t=6, n=5, noise=1.0)
    model = MultiTaskRegression(x.shape[-1], 3, prior=ps.priors.SpikeSlabNormal())
    model.setup(6)
    assert model.prior.rates() is None
    assert mode_doubts(model, as_tasks(x, y).batch(), 1e-3, list("abcdef")) == []
