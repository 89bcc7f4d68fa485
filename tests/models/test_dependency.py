"""DependencyVAE: a small table whose graph is known, through `fit`, edges, files; what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import pyro_sparse as ps
from pyro_sparse.posterior.arviz import get_group
from pyro_sparse.rivals import VAE


@pytest.fixture(scope="module")
def data():
    return ps.datasets.dependency_data("triangular", 3, n=2000, seed=1000)


@pytest.fixture(scope="module")
def fit(data):
    model = ps.models.DependencyVAE(9, 3)
    return ps.fit(model, data.x, restarts=2, steps=700, seed=1000, progress=False)


@pytest.mark.slow(hurried=True)
def test_latents_and_graph_of_a_small_table_are_found(data, fit):
    found = ps.metrics.mcc(data.z, fit.transform(data.x), "spearman")
    assert found.value > 0.97
    assert (fit.weights[fit.best] != 0).sum() == fit.model.decoder.mask[fit.best].sum()
    idata = fit.edge_posterior(num_draws=50)
    assert idata.attrs["edge_method"] == "jacobian" and not idata.attrs["is_score"]
    p = get_group(idata, "edge_posterior")["probability"].to_numpy()[:, found.permutation]
    assert ps.metrics.support_scores(data.support, p > 0.5, [0, 1, 2]).f1 > 0.95
    draws = get_group(idata, "posterior")["edge"].to_numpy()
    assert draws.shape == (2, 50, 9, 3)
    table = ps.summary(idata, fdr=0.1)
    assert set(table.columns) >= {"probability", "q_value"}


@pytest.mark.slow(hurried=True)
def test_the_model_notes_how_lopsided_its_factors_are(data, fit):
    order = fit.alignment["permutation"][fit.best]
    noted = fit.model.skewness[fit.best].numpy()[order] * fit.alignment["sign"][fit.best]
    seen = stats.skew(fit.transform(data.x, refine=False))  # all rows; a tenth was kept aside
    assert noted == pytest.approx(seen, abs=0.1)
    assert (fit.model.skewness != 0).all()


@pytest.mark.slow(hurried=True)
def test_a_factor_without_an_edge_changes_no_feature(fit):
    cut = fit.weights[fit.best] == 0
    z = np.zeros((2, 3))
    z[1] = 1.0
    for k in range(3):
        one = np.zeros((2, 3))
        one[1, k] = 2.0
        moved = np.abs(np.diff(fit.inverse_transform(one), axis=0))[0]
        np.testing.assert_allclose(moved[cut[:, k]], 0, atol=1e-5)
        assert (moved[~cut[:, k]] > 1e-3).all()


@pytest.mark.slow(hurried=True)
def test_files_and_resume_give_the_same_bits(tmp_path, data, fit):
    fit.save(tmp_path / "fit.pt")
    again = ps.load(tmp_path / "fit.pt")
    np.testing.assert_array_equal(again.transform(data.x[:20]), fit.transform(data.x[:20]))
    np.testing.assert_array_equal(
        get_group(again.edge_posterior(num_draws=5), "posterior")["edge"],
        get_group(fit.edge_posterior(num_draws=5), "posterior")["edge"],
    )


@pytest.mark.usefixtures("hurried")
@pytest.mark.slow
def test_a_run_cut_off_before_or_after_the_fold_resumes(tmp_path, data, monkeypatch):
    from pyro_sparse.inference.table.dependency_run import DependencyRun

    settings = {"restarts": 1, "steps": 40, "axes_at": 0.5, "progress": False, "checkpoint_every": 5}
    x = data.x[:300]
    whole = ps.fit(ps.models.DependencyVAE(9, 3), x, **settings)
    advance = DependencyRun.advance
    for stop in (12, 33):
        file = tmp_path / f"run{stop}"

        def until(self, stop=stop):
            if self.step == stop:
                raise KeyboardInterrupt
            advance(self)

        monkeypatch.setattr(DependencyRun, "advance", until)
        with pytest.warns(RuntimeWarning, match="interrupted"):
            part = ps.fit(ps.models.DependencyVAE(9, 3), x, checkpoint=file, **settings)
        assert any("interrupted" in note for note in part.warnings)
        monkeypatch.setattr(DependencyRun, "advance", advance)
        resumed = ps.fit(ps.models.DependencyVAE(9, 3), x, checkpoint=file, **settings)
        np.testing.assert_array_equal(resumed.weights, whole.weights)


@pytest.mark.slow(hurried=True)
@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("decoder", ["per_feature", "shared"])
def test_the_axes_may_be_left_to_a_penalty(data, decoder):
    model = ps.models.DependencyVAE(9, 3, decoder=decoder)
    fit = ps.fit(
        model,
        data.x[:300],
        restarts=1,
        steps=20,
        axes_at=None,
        dependency=ps.inference.DependencyPenalty(weight=0.05),
        progress=False,
    )
    assert (fit.model.decoder.mask == 1).all() and not (fit.model.strength == 1).all()
    assert fit.settings["dependency"]["weight"] == 0.05 and fit.settings["axes_at"] is None


@pytest.mark.slow
def test_an_edge_that_is_needed_is_not_cut_when_nothing_can_take_its_place(data, monkeypatch):
    from pyro_sparse.inference.table import dependency_run

    read = dependency_run.edge_probability

    def doubted(strength):
        probability = read(strength)
        if calls.append(1) or len(calls) == 3:  # two restarts at the fold, then the first at the end
            feature = np.sort(strength, axis=1)[:, -2].argmax()
            factor = strength[feature].argsort()[-2]  # the strongest of each feature is never cut
            probability[feature, factor] = 0.0
            needed.append((feature, factor))
        return probability

    calls: list[int] = []
    needed: list[tuple[int, int]] = []
    monkeypatch.setattr(dependency_run, "edge_probability", doubted)
    fit = ps.fit(
        ps.models.DependencyVAE(9, 3),
        data.x,
        restarts=2,
        steps=150,
        unfold_at=None,
        seed=1000,
        progress=False,
    )
    assert len(calls) == 4 and len(needed) == 1
    assert fit.model.decoder.mask[0][needed[0]] == 1


@pytest.mark.slow
def test_axes_found_last_leave_a_decoder_that_works():
    """To cut it then to what is more probable than not would cost .17 nats a row."""
    x = ps.datasets.dependency_data("cycle", 3, n=2000, seed=1001).x
    kw = {"restarts": 1, "steps": 200, "unfold_at": None, "seed": 1001, "progress": False}
    dense = ps.fit(ps.models.DependencyVAE(9, 3), x, axes_at=None, **kw)
    turned = ps.fit(ps.models.DependencyVAE(9, 3), x, axes_at=1, **kw)
    assert turned.heldout_elbo[0] > dense.heldout_elbo[0] - 0.08
    assert not (turned.model.strength == 1).all()


@pytest.mark.slow(hurried=True)
@pytest.mark.usefixtures("hurried")
def test_without_rows_aside_the_last_cut_is_judged_by_rows_learned_from(data):
    kw = {"restarts": 1, "steps": 40, "unfold_at": None, "holdout": 0, "progress": False}
    fit = ps.fit(ps.models.DependencyVAE(9, 3), data.x[:200], **kw)
    assert np.isfinite(fit.elbo).all() and np.isnan(fit.heldout_elbo).all()


@pytest.mark.slow(hurried=True)
@pytest.mark.usefixtures("hurried")
def test_a_fit_that_stops_early_is_brought_to_its_end(data, monkeypatch):
    from pyro_sparse.inference.table import dependency_run
    from pyro_sparse.inference.training import loop

    ends = []
    end = dependency_run.DependencyRun._finish
    monkeypatch.setattr(
        dependency_run.DependencyRun, "_finish", lambda run: (ends.append(run.step), end(run))
    )
    monkeypatch.setattr(loop, "_BETTER", 1e6)  # nothing is, after the first entry
    kw = {"restarts": 1, "steps": 60, "axes_at": 0.5, "evaluate_every": 10, "patience": 2, "unfold_at": None}
    fit = ps.fit(ps.models.DependencyVAE(9, 3), data.x[:400], **kw, progress=False)
    assert fit.history["step"].max() == 50 and ends == [50]
    assert (fit.model.skewness != 0).all()
    latents = fit.transform(data.x[:400], refine=False)
    order, sign = (fit.alignment[name][0] for name in ("permutation", "sign"))
    assert fit.model.skewness[0].numpy()[order] * sign == pytest.approx(stats.skew(latents), abs=0.2)


@pytest.mark.slow(hurried=True)
@pytest.mark.usefixtures("hurried")
def test_one_row_aside_is_no_judge_of_the_last_cut(data, monkeypatch):
    from pyro_sparse.inference.table import dependency_run

    read = dependency_run.DependencyRun._by_row
    judges = []

    def watched(run):
        judges.append(read(run).shape[1])
        return read(run)

    monkeypatch.setattr(dependency_run.DependencyRun, "_by_row", watched)
    monkeypatch.setattr(dependency_run, "edge_probability", np.zeros_like)
    fit = ps.fit(ps.models.DependencyVAE(9, 3), data.x[:10], restarts=1, steps=20, axes_at=1, progress=False)
    assert judges == [9, 9] and np.isfinite(fit.heldout_elbo).all()


def test_as_many_factors_as_features_are_allowed_here_only():
    ps.models.DependencyVAE(4, 4)
    with pytest.raises(ValueError, match="got 5 for n_features=4; wanted 1 <= n_factors <= n_features"):
        ps.models.DependencyVAE(4, 5)
    with pytest.raises(ValueError, match="wanted 1 <= n_factors < n_features"):
        ps.models.SparseDecoder(4, 4)


@pytest.mark.slow(hurried=True)
def test_what_is_refused(data):
    with pytest.raises(ValueError, match="decoder: got 'dense', wanted 'per_feature' or 'shared'"):
        ps.models.DependencyVAE(9, 3, decoder="dense")
    with pytest.raises(TypeError, match="n_factors_init: is for tables with a prior on weights"):
        ps.fit(ps.models.DependencyVAE(9, 3), data.x, restarts=1, n_factors_init=[3])
    with pytest.raises(ValueError, match="axes_at: want .*, got 1.5"):
        ps.fit(ps.models.DependencyVAE(9, 3), data.x, axes_at=1.5)
    with pytest.raises(ValueError, match="learning_rate: want .*, got 0"):
        ps.inference.DependencySchedule(learning_rate=0)
    with pytest.raises(ValueError, match="steps: want .*, got 0"):
        ps.inference.DependencySchedule(steps=0)


@pytest.mark.slow(hurried=True)
@pytest.mark.usefixtures("hurried")
def test_strengths_want_a_dependency_vae(data):
    other = ps.fit(ps.models.SparseDecoder(9, 3), data.x[:200], restarts=1, steps=5, progress=False)
    with pytest.raises(ValueError, match="has no strengths; wanted a fit of a DependencyVAE"):
        other.edge_posterior(method="jacobian")


@pytest.mark.slow
@pytest.mark.usefixtures("hurried")
def test_missing_cells_and_counts(data):
    x = data.x[:400].copy()
    x[::7, 2] = np.nan
    fit = ps.fit(ps.models.DependencyVAE(9, 3), x, restarts=1, steps=30, progress=False)
    assert np.isfinite(fit.impute(x)).all()
    counts = np.random.default_rng(0).poisson(np.exp(data.x[:300] / 2))
    model = ps.models.DependencyVAE(9, 3, likelihood="poisson", decoder="shared")
    fit = ps.fit(model, counts, restarts=1, steps=30, progress=False)
    assert np.isfinite(fit.elbo).all()


def test_strength_and_mask_start_at_one_and_the_turn_moves_both_nets():
    model = ps.models.DependencyVAE(6, 2)
    model.setup(n_restarts=2)
    assert (model.weights == 1).all()
    assert [list(set_) for set_ in model.alike_factors()] == [[0, 1]]
    z = torch.randn(2, 4, 2)
    before = model.decode(z, None)
    maps = torch.eye(2).flip(0).expand(2, 2, 2)
    model.turn(maps)
    torch.testing.assert_close(model.decode(z.flip(-1), None), before)


@pytest.mark.parametrize("make", [ps.models.DependencyVAE, VAE])
def test_hidden_units_are_a_whole_number(make):
    assert make(4, 2, hidden=np.int64(3)).hidden == 3
    for bad in (0, 2.5):
        with pytest.raises(ValueError, match=f"^hidden: want a whole number of at least 1, got {bad}"):
            make(4, 2, hidden=bad)
