"""`ps.fit` cut short: by a key, a kill or a checkpoint of another fit, and gone on with to the bit."""

from __future__ import annotations

import functools
import re
import signal

import numpy as np
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse._utils.progress import Progress
from pyro_sparse.inference.table import by_rows
from pyro_sparse.inference.training import restarts as restarts_module
from tests.inference._quick import DATA, fit_module, in_a_hurry, quick, same, small

__all__ = ["in_a_hurry"]  # a fixture for every test here

SAYS_SO = functools.partial(
    pytest.warns, RuntimeWarning, match="^interrupted at step .*; this is the fit so far$"
)


class Cut:
    """A count of steps that is interrupted after so many of them."""

    def __init__(self, monkeypatch, after):
        self.left = after
        real = Progress.advance

        def counted(progress, units=1, status=""):
            self.left -= units
            if self.left < 0:
                raise KeyboardInterrupt
            real(progress, units, status)

        monkeypatch.setattr(Progress, "advance", counted)


@pytest.mark.parametrize(
    ("groups", "after"),
    [
        (1, 3),
        pytest.param(1, 13, marks=pytest.mark.slow),
        pytest.param(3, 13, marks=pytest.mark.slow),
        pytest.param(3, 33, marks=pytest.mark.slow),
    ],
)
def test_a_cut_fit_resumes_to_the_bit(tmp_path, monkeypatch, groups, after):
    if groups == 3:
        monkeypatch.setattr(restarts_module, "GROUP_BYTES", 1)
    whole = quick()
    path = tmp_path / "run.pt"
    with monkeypatch.context() as patch, SAYS_SO():
        Cut(patch, after)
        part = quick(checkpoint=path, checkpoint_every=6)
    assert len(part.elbo) == (3 if groups == 1 else after // 20 + 1) and "interrupted at step" in " ".join(
        part.warnings
    )
    resumed = quick(checkpoint=path, checkpoint_every=6)
    same(resumed, whole)
    assert not any("interrupted" in note for note in resumed.warnings)
    same(quick(checkpoint=path), whole)  # a finished one is not trained again


def test_a_killed_fit_resumes_from_its_last_checkpoint(tmp_path, monkeypatch):
    """No goodbye: the process dies in the middle of a step."""
    path = tmp_path / "run.pt"
    monkeypatch.setattr(restarts_module, "GROUP_BYTES", 1)
    whole = quick()
    advance, steps = fit_module.Run.advance, []

    def dying(run):
        steps.append(1)
        if len(steps) == 36:
            raise MemoryError
        advance(run)

    with monkeypatch.context() as patch:
        patch.setattr(fit_module.Run, "advance", dying)
        with pytest.raises(MemoryError):
            quick(checkpoint=path, checkpoint_every=6)
    same(quick(checkpoint=path), whole)


def test_ctrl_c_waits_for_the_step_and_returns_a_usable_fit(monkeypatch, tmp_path):
    advance = fit_module.Run.advance

    def pressed(run):
        if run.step == 8:
            signal.raise_signal(signal.SIGINT)
        advance(run)

    with monkeypatch.context() as patch, SAYS_SO():
        patch.setattr(fit_module.Run, "advance", pressed)
        found = quick(checkpoint=tmp_path / "run.pt")
    assert "interrupted at step 9 of 20 (restarts 0 to 2)" in found.warnings
    assert found.predict(DATA[:4]).shape == (4, 7) and np.isfinite(found.elbo).all()
    found.save(tmp_path / "fit.pt")
    assert ps.load(tmp_path / "fit.pt").warnings == found.warnings
    same(quick(checkpoint=tmp_path / "run.pt"), quick())


@pytest.mark.slow
@pytest.mark.parametrize("read", [np.asarray, ps.open_rows])
def test_ctrl_c_while_the_restarts_are_judged_keeps_them(monkeypatch, read):
    whole, pressed = quick(x=read(DATA)), []

    def refined(*arguments, **options):
        pressed.append(True)
        raise KeyboardInterrupt  # as the signal does, but where it is ignored, as in jobs in the background

    monkeypatch.setattr(by_rows, "refined_elbo", refined)
    with pytest.warns(RuntimeWarning, match="^interrupted when .* judged: .* 200 rows at most, not refined;"):
        found = quick(x=read(DATA))
    assert len(pressed) == 1 and found.n_restarts == 3
    for name, value in whole.model.state_dict().items():
        assert torch.equal(found.model.state_dict()[name], value), name
    np.testing.assert_allclose(found.elbo, whole.elbo, atol=0.2)
    assert np.isfinite(found.heldout_elbo).all() and (found.heldout_elbo <= whole.heldout_elbo + 0.2).all()
    monkeypatch.setattr(by_rows, "rowwise_elbo", refined)
    with pytest.raises(KeyboardInterrupt):
        quick(x=read(DATA))


def test_interrupted_before_the_first_entry_of_the_history(monkeypatch):
    Cut(monkeypatch, 1)
    with SAYS_SO():
        found = quick()
    assert len(found.history) == 0 and found.weights.shape == (3, 7, 2)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": 1}, "seed: 0 there, 1 here"),
        ({"model": lambda: small(3), "n_factors_init": [2, 2, 1]}, "n_factors: 2 there, 3 here"),
        ({"model": lambda: small(decoder="linear")}, "decoder: 'mlp' there, 'linear' here"),
        ({"model": lambda: small(prior=ps.priors.SpikeSlabLasso(lambda0=9.0))}, "made: "),
        ({"steps": 30}, "steps: 20 there, 30 here"),
        ({"x": DATA + 1e-3 * np.arange(120)[:, None]}, "data: '"),
        ({"holdout": 0.2}, "holdout: 0.1 there, 0.2 here"),
        ({"dtype": "float64"}, "dtype: 'torch.float32' there"),
        ({"version": "99"}, "version: "),
    ],
)
def test_a_foreign_checkpoint_says_what_differs(tmp_path_factory, monkeypatch, change, says):
    path = tmp_path_factory.getbasetemp() / "of-the-module.pt"
    if not path.exists():
        quick(checkpoint=path, steps=20)
    change = dict(change)
    if "version" in change:
        other = change.pop("version")
        monkeypatch.setattr(fit_module, "__version__", other)
    made = change.pop("model", small)()
    with pytest.raises(
        ValueError, match="belongs to another fit .*" + re.escape(says) + ".*remove the file or"
    ):
        quick(made, checkpoint=path, **change)
