"""Models made without n_features take it from the data; what they are is shown on one line."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import pyro_sparse as ps
from pyro_sparse.models import DependencyVAE, LatentTransition, MultiTaskRegression, SparseDecoder
from tests._tasks import tasks_on_latents

X = np.random.default_rng(0).normal(size=(60, 5))
FRAMES = np.random.default_rng(0).normal(size=(20, 6, 4))
TASKS, TARGETS, *_ = tasks_on_latents()
SHORT = {"restarts": 1, "steps": 4, "progress": False}
NETS = {"hidden": 4, "units": 4, "gated_units": 4}


@pytest.mark.slow
@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("make", "data", "options"),
    [
        (lambda n: SparseDecoder(n, 2, hidden=4, encoder_hidden=4), (X,), {}),
        (lambda n: DependencyVAE(n, 2, hidden=4, encoder_hidden=4), (X,), {}),
        (lambda n: LatentTransition(n, 2, **NETS), (FRAMES,), {"edge_steps": 2, "polish_steps": 2}),
        (lambda n: MultiTaskRegression(n, 2), (TASKS, TARGETS), {}),
    ],
    ids=["decoder", "dependency", "transition", "tasks"],
)
def test_the_number_of_features_is_taken_from_the_data(make, data, options, tmp_path):
    n = data[0].shape[-1]
    model = make(None)
    said = copy.copy(repr(model))
    assert "n_features=<taken from the data>, n_" in said and repr(make(n)).startswith(
        f"{type(model).__name__}(n_features={n}, n_"
    )
    fit = ps.fit(model, *data, **SHORT, **options)
    assert fit.model.n_features == n and model.n_features is None and repr(model) == said
    known = ps.fit(make(n), *data, **SHORT, **options)
    for name, value in known.model.state_dict().items():
        np.testing.assert_array_equal(fit.model.state_dict()[name], value)
    fit.save(tmp_path / "fit.pt")
    assert ps.load(tmp_path / "fit.pt").model.n_features == n
    with pytest.raises(ValueError, match="n_features: .* was made without, .*or use pyro_sparse.fit"):
        model.setup(1)


@pytest.mark.filterwarnings("ignore:X. :RuntimeWarning")
def test_too_few_features_are_a_complaint_of_the_fit():
    for model, data, name in (
        (SparseDecoder(n_factors=5), (X,), "n_factors: got 5 for n_features=5"),
        (LatentTransition(n_latents=5), (FRAMES,), "n_latents: got 5 for n_features=4"),
        (MultiTaskRegression(n_latents=50), (TASKS, TARGETS), "n_latents: got 50, and a linear encoder"),
    ):
        with pytest.raises(ValueError, match=name):
            ps.fit(model, *data, **SHORT)


@pytest.mark.parametrize("kind", [SparseDecoder, DependencyVAE, LatentTransition, MultiTaskRegression])
def test_how_many_latents_has_to_be_said(kind):
    with pytest.raises(TypeError, match=f"{kind.__name__}: wants n_(factors|latents)"):
        kind(9)


def test_the_decoder_is_shown():
    wanted = (
        "SparseDecoder(n_features=9, n_factors=3, decoder='mlp', likelihood='normal', prior=SpikeSlabLasso())"
    )
    assert repr(SparseDecoder(9, 3)) == wanted
    assert "n_actions=2, lags=1, likelihood='normal'" in repr(LatentTransition(8, 3, n_actions=2))
    assert "encoder='linear', prior=SpikeSlabLasso()" in repr(MultiTaskRegression(8, 3))
