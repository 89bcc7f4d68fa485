"""Answers do not depend on how the caller has set torch and NumPy, and leave those settings as they were."""

from __future__ import annotations

import contextlib
import warnings

import numpy as np
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse._utils.torch_state import isolated, undisturbed
from tests.inference.edges.test_dtypes import K, fitted, table
from tests.inference.test_threads import edges

pytestmark = pytest.mark.usefixtures("hurried_module")


@contextlib.contextmanager
def dtype(kind):
    torch.set_default_dtype(kind)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


SETTINGS = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "errstate": lambda: np.errstate(all="raise"),
    "float64": lambda: dtype(torch.float64),
    "bfloat16": lambda: dtype(torch.bfloat16),
    "deterministic": deterministic,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}


def answers(likelihood, decoder):
    """From a new model, so that it is made under the caller's settings too."""
    fit = fitted(likelihood, decoder, "float32")
    x = table(likelihood)
    return {
        "weights": fit.weights,
        "elbo": fit.elbo,
        "edges": edges(fit, 0),
        "transform": fit.transform(x[:5]),
        "predict": fit.predict(x[:5]),
        "impute": fit.impute(np.where(np.arange(x.shape[1]) == 1, np.nan, x)),
        "log_likelihood": fit.log_likelihood(),
        "sample": fit.sample(5),
        "inverse_transform": fit.inverse_transform(np.eye(K)),
    }


EXPECTED: dict = {}
# what torch records, what it rounds to, and what NumPy refuses: every setting itself is looked at below
FEW = ("inference_mode", "float64", "errstate")
MOST = [setting if setting in FEW else pytest.param(setting, marks=pytest.mark.slow) for setting in SETTINGS]


@pytest.mark.parametrize("setting", MOST)
@pytest.mark.parametrize(
    ("likelihood", "decoder"),
    [
        ("poisson", "linear"),
        pytest.param("normal", "linear", marks=pytest.mark.slow),
        pytest.param("normal", "mlp", marks=pytest.mark.slow),
    ],
)
def test_tables_have_one_answer(likelihood, decoder, setting):
    if (likelihood, decoder) not in EXPECTED:
        EXPECTED[likelihood, decoder] = answers(likelihood, decoder)
    with SETTINGS[setting]():
        found = answers(likelihood, decoder)
    for name, expected in EXPECTED[likelihood, decoder].items():
        np.testing.assert_array_equal(found[name], expected, err_msg=name)


def transition_answers():
    x = np.random.default_rng(0).normal(size=(6, 8, 4)).cumsum(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = ps.fit(
            ps.models.LatentTransition(n_latents=2, hidden=8, units=8, gated_units=4),
            x,
            restarts=1,
            steps=6,
            polish_steps=5,
            edge_steps=10,
            progress=False,
        )
        return [
            fit.elbo,
            fit.transform(),
            fit.forecast(2, num_draws=3).to_numpy(),
            fit.edge_posterior(num_draws=5)["posterior"]["edge_time"].to_numpy(),
        ]


def task_answers():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 20, 4))
    y = np.einsum("tnd,td->tn", x, rng.normal(size=(12, 4))) + 0.1 * rng.normal(size=(12, 20))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ps.models.MultiTaskRegression(n_latents=2)
        fit = ps.fit(model, x, y, restarts=1, steps=6, sparse_steps=4, progress=False)
        return [
            fit.error,
            fit.transform(),
            fit.predict(),
            fit.adapt(x[:2], y[:2]).weights,
            fit.edge_posterior(num_draws=5)["posterior"]["edge"].to_numpy(),
        ]


@pytest.mark.parametrize("setting", MOST)
@pytest.mark.parametrize("kind", [transition_answers, task_answers])
def test_sequences_and_tasks_have_one_answer(kind, setting):
    if kind not in EXPECTED:
        EXPECTED[kind] = kind()
    with SETTINGS[setting]():
        found = kind()
    for one, two in zip(found, EXPECTED[kind], strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_are_the_default_ones_inside_and_the_callers_after(setting):
    def now():
        return (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.is_autocast_enabled("cpu"),
            torch.get_default_dtype(),
            np.geterr(),
        )

    numpys = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
    default = True, False, False, torch.float32, numpys
    with SETTINGS[setting]():
        before = now()
        assert before != default or setting == "deterministic"
        with pytest.raises(ZeroDivisionError), undisturbed(seed=0):
            assert now() == default
            with torch.no_grad(), isolated():  # a call within a call leaves it be
                assert not torch.is_grad_enabled()
            raise ZeroDivisionError
        assert now() == before


def test_the_default_device_may_be_another_one():
    fit = fitted("bernoulli", "linear", "float32")
    expected = fit.transform(), edges(fit, 0)
    with torch.device("meta"):
        found = fit.transform(), edges(fit, 0)
        assert torch.empty(1).device.type == "meta"
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.slow(hurried=True)
def test_filters_of_warnings_are_the_callers(tmp_path):
    """After a fit, its edges, their table and the page."""
    fit = fitted("normal", "linear", "float32")
    before = list(warnings.filters)
    idata = fit.edge_posterior("score", num_draws=5)
    ps.summary(idata)
    ps.report(fit, tmp_path / "page.html", idata=idata)
    fit.transform()
    assert warnings.filters == before
