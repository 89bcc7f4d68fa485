"""Pairs of autoencoders: what is kept, what learns, the penalty, figures, files, and what is refused."""

from __future__ import annotations

import copy
import signal

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

import pyro_sparse as ps
from pyro_sparse.data.activations import read_activations
from pyro_sparse.inference import DependencyPenalty, jacobian_l1
from pyro_sparse.inference.autoencoders.job import AutoencoderJob
from pyro_sparse.inference.autoencoders.measures import agreement
from pyro_sparse.inference.autoencoders.pair_run import PairRun
from pyro_sparse.inference.autoencoders.schedule import AutoencoderSchedule
from pyro_sparse.models import AutoencoderPair
from pyro_sparse.nets import SparseAutoencoder
from pyro_sparse.posterior.same_fit import fit_mark

D, N_IN, N_OUT, K = 8, 16, 12, 3


@pytest.fixture(scope="module")
def recorded():
    """Activations around a small layer, and the layer; a job casts its own copy of it."""
    torch.manual_seed(0)
    layer = torch.nn.Sequential(torch.nn.Linear(D, 20), torch.nn.GELU(), torch.nn.Linear(20, D))
    features = (torch.rand(600, N_IN) < 0.2) * torch.rand(600, N_IN)
    x = features @ F.normalize(torch.randn(N_IN, D), dim=1) + 3.0
    return x, layer(x).detach(), layer.requires_grad_(False)


def pair_of(layer, **options):
    return AutoencoderPair(N_IN, N_OUT, k=K, between=copy.deepcopy(layer), **options)


def fit_of(recorded, steps=60, restarts=2, **options):
    x, y, layer = recorded
    own = {name: options.pop(name) for name in ("select", "aux") if name in options}
    return ps.fit(
        pair_of(layer, **own),
        (x, y),
        restarts=restarts,
        steps=steps,
        batch_size=32,
        progress=False,
        **options,
    )


def test_topk_keeps_the_k_greatest_of_each_row():
    torch.manual_seed(1)
    sae = SparseAutoencoder(D, N_IN, K)
    sae.b_enc.data += 5.0  # all scores are positive
    x = torch.randn(40, D)
    codes = sae.encode(x)
    scores = (x @ sae.enc.T + 5.0).detach().numpy()
    assert ((codes > 0).sum(1) == K).all()
    wanted = np.where(scores >= np.sort(scores, 1)[:, -K, None], scores, 0.0)
    np.testing.assert_allclose(codes.detach().numpy(), wanted, rtol=1e-5)
    kept = sae.kept(sae.scores(x))
    np.testing.assert_allclose(kept.dense(40, N_IN).numpy(), wanted, rtol=1e-5)
    np.testing.assert_allclose(
        sae.decoded(kept).detach().numpy(), wanted @ sae.dec.detach().numpy(), rtol=1e-4, atol=1e-5
    )


def test_batchtopk_has_k_on_average_and_a_threshold_at_inference():
    torch.manual_seed(1)
    sae = SparseAutoencoder(D, N_IN, K, "batchtopk")
    for _ in range(400):
        x = torch.randn(64, D) * torch.rand(64, 1) * 2
        kept = sae.kept(sae.scores(x))
        assert len(kept.value) == K * 64
    counts = torch.bincount(kept.row, minlength=64)
    assert counts.min() < K < counts.max() and (kept.start == counts.cumsum(0) - counts).all()
    x = torch.randn(4000, D) * torch.rand(4000, 1) * 2
    codes = sae.encode(x)
    assert (codes > 0).sum(1).float().mean() == pytest.approx(K, rel=0.1)
    assert codes[codes > 0].min() >= sae.threshold
    torch.testing.assert_close(sae.encode(x[:1]), codes[:1])  # rows do not meet


def test_the_auxiliary_loss_reaches_dead_latents_only_and_none_where_all_live():
    torch.manual_seed(2)
    sae = SparseAutoencoder(D, N_IN, K)
    x = torch.randn(50, D)
    error = (x - sae.decoded(sae.kept(sae.scores(x)))).detach().requires_grad_()
    assert sae.auxiliary(x, error, dead_after=10) == 0
    sae.rows_since[[2, 5]] = 11.0
    loss = sae.auxiliary(x, error, dead_after=10)
    dead = sae.dec[[2, 5]]
    codes = F.relu(x @ sae.enc[[2, 5]].T)
    assert loss.item() == pytest.approx((codes @ dead - error).square().mean().item(), rel=1e-5)
    loss.backward()
    for parameter in (sae.dec, sae.enc, sae.b_enc):
        moved = parameter.grad.reshape(N_IN, -1).abs().sum(1) > 0
        assert moved.nonzero().squeeze(1).tolist() == [2, 5]
    assert error.grad is None and sae.b_dec.grad is None


def test_directions_keep_their_length_and_counts_are_of_this_run(recorded):
    x, y, layer = recorded
    job = AutoencoderJob(
        pair_of(layer), read_activations((x, y)), restarts=1, schedule=AutoencoderSchedule(steps=20)
    )
    run = job.run(0)
    assert torch.equal(run.before.dec, run.before.enc)  # a tied start
    size = run.schedule.batch_size
    for step in range(1, 6):
        run.advance()
        for sae in (run.before, run.after):
            torch.testing.assert_close(sae.dec.norm(dim=1), torch.ones(sae.n_latents))
            assert sae.rows_since.max() <= step * size and (sae.rows_since % size == 0).all()
    torch.testing.assert_close(run.before.standardised(x[:540]).mean(0), torch.zeros(D), atol=1e-4, rtol=0)
    assert run.before.standardised(x[:540]).square().mean() == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("surrogate", ["l1", "ratio"])
def test_the_penalty_is_that_of_the_jacobian_in_standardised_units(recorded, surrogate):
    """A row at a time, by torch.func, over all active input latents; the estimate draws one of them."""
    x, y, layer = (v.double() if isinstance(v, torch.Tensor) else v for v in recorded)
    schedule = AutoencoderSchedule(steps=20, penalty_share=1.0, batch_size=540)
    penalty = DependencyPenalty(weight=1.0, surrogate=surrogate)
    job = AutoencoderJob(
        pair_of(layer), read_activations((x, y)), restarts=1, schedule=schedule, dependency=penalty,
        dtype=torch.float64,
    )  # fmt: skip
    run = job.run(0)
    rows = slice(0, 20)
    f_in, f_out = run.before.encode(x[rows]), run.after.encode(y[rows])
    wanted = []
    for i in range(20):
        slopes = torch.func.jacfwd(run.layer)(run.before.standardised(x[i : i + 1]))[0, :, 0]
        block = (run.after.enc @ slopes @ run.before.dec.T)[f_out[i] > 0][:, f_in[i] > 0]
        norms = block.abs().sum(0) / (block.norm(dim=0) if surrogate == "ratio" else len(block))
        wanted.append(norms.mean().item())
    torch.manual_seed(3)
    drawn = [run.losses(x[rows], y[rows]).penalty.item() for _ in range(100)]
    standard_error = np.std(drawn) / np.sqrt(len(drawn))
    assert np.mean(drawn) == pytest.approx(np.mean(wanted), abs=5 * standard_error + 1e-6)


def test_ratio_of_norms_of_a_known_jacobian():
    loadings = torch.tensor([[3.0, 0.0, 1.0], [4.0, 2.0, 1.0]])
    z = torch.randn(30, 3)
    wanted = 7 / 5 + 1 + 2 / 2**0.5
    exact = jacobian_l1(lambda z: z @ loadings.T, z, surrogate="ratio", estimator="exact")
    assert exact.item() == pytest.approx(wanted, rel=1e-5)
    assert jacobian_l1(lambda z: z @ loadings.T * 9, z, surrogate="ratio").item() == pytest.approx(wanted)
    only = torch.zeros(30, 3, dtype=torch.bool)
    only[:, 0] = True
    for estimator in ("exact", "column", "difference"):
        one = jacobian_l1(lambda z: z @ loadings.T, z, surrogate="ratio", estimator=estimator, active=only)
        assert one.item() == pytest.approx(7 / 5, rel=1e-3)


def test_figures_are_those_of_numpy(recorded):
    fit = fit_of(recorded)
    x, y, layer = recorded
    before, after = fit.pairs[1]
    for sae, rows, side in ((before, x[-60:], "in"), (after, y[-60:], "out")):
        codes = sae.encode(rows).numpy()
        v = rows.double().numpy()
        left = ((v - sae.decode(sae.encode(rows)).double().numpy()) ** 2).sum()
        figures = fit.metrics.loc[1]
        assert figures[f"fvu_{side}"] == pytest.approx(left / ((v - v.mean(0)) ** 2).sum(), rel=1e-4)
        assert figures[f"l0_{side}"] == pytest.approx((codes > 0).sum(1).mean())
        assert figures[f"dead_{side}"] == pytest.approx((codes == 0).all(0).mean())
    ratios = []
    for row, f_in, f_out in zip(x[-60:], before.encode(x[-60:]), after.encode(y[-60:]), strict=True):
        slopes = torch.func.jacrev(layer)(row)
        block = (after.enc / after.scale @ slopes @ before.dec.T * before.scale)[f_out > 0][:, f_in > 0]
        ratios.append(block.abs().mean() / block.square().mean().sqrt())
    assert fit.metrics["l1_over_l2"][1] == pytest.approx(float(torch.stack(ratios).mean()), rel=1e-4)
    assert 0 < fit.metrics["entries_90"][1] <= 1
    assert fit.best == int((fit.metrics["fvu_in"] + fit.metrics["fvu_out"]).argmin())
    assert fit.metrics["fvu_in"].max() < 1 and "AutoencoderFit(AutoencoderPair" in repr(fit)


def test_agreement_by_hand():
    eye = np.eye(4, dtype=np.float32)
    alive = np.array([True, True, True, False])
    cosine, shared = agreement([eye, eye[[1, 0, 3, 2]]], [alive, np.ones(4, bool)])
    assert cosine.tolist() == [1.0, 0.75] and shared.tolist() == [1.0, 0.75]
    assert np.isnan(agreement([eye], [alive])[0]).all()


@pytest.mark.slow
def test_edges_are_taken_over_the_restarts(recorded):
    fit = fit_of(recorded, steps=150, restarts=3, holdout=0.5, learning_rate=1e-2)
    graphs = fit.latent_graphs()
    assert len(graphs) == 3 and graphs[0].n_rows == 300
    idata = fit.edge_posterior(cosine=0.5, least_fires=1, num_draws=20)
    assert ps.edge_prob(idata).to_numpy().max() <= 1
    again = ps.edge_posterior(graphs, cosine=0.5, least_fires=1, num_draws=20)
    np.testing.assert_array_equal(ps.edge_prob(again).to_numpy(), ps.edge_prob(idata).to_numpy())
    assert ps.identify(fit, idata=idata).table.equals(ps.identify(idata).table)
    with pytest.raises(ValueError, match="of another fit"):
        ps.identify(fit_of(recorded, steps=5), idata=idata)
    table = torch.randn(60, D).numpy()
    with pytest.raises(TypeError, match="edges of dictionaries, and the fit is a Fit"):
        of_table = ps.fit(ps.models.SparseDecoder(D, 2), table, steps=5, restarts=1, progress=False)
        ps.identify(of_table, idata=idata)
    with pytest.raises(TypeError, match="AutoencoderFit has no strength; .* call its own edge_posterior"):
        ps.edge_posterior(fit)
    for bad, error in (({"method": "mcmc"}, ValueError), ({"chains": 2}, TypeError)):
        with pytest.raises(error):
            fit.edge_posterior(**bad)
    for report in (fit.report, lambda path: ps.report(fit, path)):
        with pytest.raises(NotImplementedError, match="fit.metrics"):
            report("page.html")


@pytest.mark.parametrize(
    "options", [pytest.param({}, marks=pytest.mark.slow), {"select": "batchtopk", "dtype": "bfloat16"}]
)
def test_same_seed_same_bits_from_a_file_a_checkpoint_and_in_parts(recorded, options, tmp_path):
    x, y, layer = recorded
    fit = fit_of(recorded, dependency=DependencyPenalty(0.5, surrogate="ratio"), **dict(options))
    fit.save(tmp_path / "fit.pt")
    own = {"select": options["select"]} if options else {}
    back = ps.load(tmp_path / "fit.pt", pair_of(layer, **own))
    for ours, theirs in zip(fit.pairs, back.pairs, strict=True):
        assert torch.equal(ours[0].encode(x), theirs[0].encode(x))
        assert torch.equal(ours[1].decode(ours[1].encode(y)), theirs[1].decode(theirs[1].encode(y)))
    assert back.metrics.equals(fit.metrics) and back.best == fit.best
    assert fit_mark(back) == fit_mark(fit) != ""
    with pytest.raises(ValueError, match="holds no activations"):
        back.latent_graphs()
    assert back.latent_graphs(x, y)[0].n_rows == 600
    with pytest.raises(ValueError, match="another pair"):
        ps.load(tmp_path / "fit.pt", AutoencoderPair(N_IN, N_OUT, k=K + 1, between=layer, **own))
    with pytest.raises(ValueError, match="pass model="):
        ps.load(tmp_path / "fit.pt")
    again = fit_of(
        recorded, dependency=DependencyPenalty(0.5, surrogate="ratio"), checkpoint=tmp_path / "run.pt",
        checkpoint_every=7, **dict(options),
    )  # fmt: skip
    assert all(
        torch.equal(a.dec, b.dec)
        for p, q in zip(fit.pairs, again.pairs, strict=True)
        for a, b in zip(p, q, strict=True)
    )


def same_fit(one, other):
    for ours, theirs in zip(one.pairs, other.pairs, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            for name, value in a.state_dict().items():
                assert torch.equal(value, b.state_dict()[name]), name
    pd.testing.assert_frame_equal(one.metrics, other.metrics)
    pd.testing.assert_frame_equal(one.history, other.history)
    assert one.best == other.best and one.warnings == other.warnings


PENALISED = {"dependency": DependencyPenalty(0.5, surrogate="ratio"), "evaluate_every": 10}


@pytest.mark.parametrize(
    ("own", "cut"),
    [
        ({}, 23),
        pytest.param({}, 85, marks=pytest.mark.slow),
        pytest.param({"select": "batchtopk", "dtype": "bfloat16"}, 23, marks=pytest.mark.slow),
        pytest.param({"select": "batchtopk", "dtype": "bfloat16"}, 85, marks=pytest.mark.slow),
    ],
)
def test_a_resumed_fit_gives_the_same_bits(recorded, tmp_path, monkeypatch, cut, own):
    """Cut in the first restart and in the second."""
    file, advance, steps = tmp_path / "run.pt", PairRun.advance, []
    options = {**PENALISED, **own}
    whole = fit_of(recorded, **options)

    def dying(run):
        steps.append(run.step)
        if len(steps) == cut:
            raise RuntimeError("the power went")
        advance(run)

    settings = {"checkpoint": file, "checkpoint_every": 7}
    with monkeypatch.context() as patch:
        patch.setattr(PairRun, "advance", dying)
        with pytest.raises(RuntimeError, match="the power went"):
            fit_of(recorded, **options, **settings)
    counted = []
    monkeypatch.setattr(PairRun, "advance", lambda run: (counted.append(run.step), advance(run)))
    same_fit(fit_of(recorded, **options, **settings), whole)
    assert len(counted) <= 120 - cut + 1 + 7, "what was done is not done again"
    counted.clear()
    same_fit(fit_of(recorded, **options, **settings), whole)
    assert not counted


def test_a_checkpoint_of_another_fit_is_refused(recorded, tmp_path):
    x, y, layer = recorded
    settings = {"checkpoint": tmp_path / "run.pt", "steps": 5, "restarts": 1}
    fit_of(recorded, **settings)
    changed = torch.nn.Sequential(*copy.deepcopy(layer))
    changed[0].bias.data += 1e-3
    for data, options, differs in (
        (recorded, {"seed": 1}, "seed: 0 there, 1 here"),
        (recorded, {"select": "batchtopk"}, "model"),
        (recorded, {"aux": 0.0}, "aux"),
        (recorded, {"dependency": DependencyPenalty(0.5)}, "dependency"),
        ((x, y + 1e-3, layer), {}, "data"),
        ((x, y, changed), {}, "layer"),
    ):
        with pytest.raises(ValueError, match=f"belongs to another fit .*{differs}"):
            fit_of(data, **settings, **options)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["sequential", "loky"])
def test_restarts_in_processes_and_one_by_one_are_those_of_one_process(recorded, tmp_path, backend):
    x, y, layer = recorded
    for name, side in (("x", x), ("y", y)):
        np.save(tmp_path / f"{name}.npy", side.numpy())
    sides = tuple(np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "xy")
    settings = {"restarts": 3, "steps": 30, "batch_size": 32, **PENALISED}
    whole = ps.fit(pair_of(layer), (x, y), progress=False, **settings)
    with joblib.parallel_config(backend):
        same_fit(ps.fit(pair_of(layer), sides, n_jobs=2, progress=False, **settings), whole)
    paths = [tmp_path / f"{i}.pt" for i in range(3)]
    for i, path in enumerate(paths):
        ps.fit_restart(i, path, pair_of(layer), (x, y), **settings)
    same_fit(ps.merge(paths, pair_of(layer), (x, y), **settings), whole)
    few = ps.merge(paths[1:], pair_of(layer), (x, y), **settings)
    assert few.n_restarts == 2 and any("missing" in note for note in few.warnings)
    assert few.metrics["fvu_in"].tolist() == whole.metrics["fvu_in"].tolist()[1:]


def test_ctrl_c_returns_the_fit_so_far(recorded, monkeypatch):
    advance, steps, stop = PairRun.advance, [], 0

    def pressed(run):
        advance(run)
        steps.append(run.step)
        if len(steps) == stop:
            raise KeyboardInterrupt

    monkeypatch.setattr(PairRun, "advance", pressed)
    stop = 145
    with pytest.warns(RuntimeWarning, match="interrupted at step 145 .*; this is the fit so far"):
        fit = fit_of(recorded, steps=150)
    assert fit.n_restarts == 1 and fit.metrics["fvu_in"][0] < 1
    assert "interrupted at step 145 of 150 of restart 0" in fit.warnings
    steps.clear()
    stop = 180  # the second restart is not worth looking at
    with pytest.warns(RuntimeWarning, match="interrupted"):
        fit = fit_of(recorded, steps=150)
    assert "interrupted at step 30 of 150 of restart 1" in fit.warnings
    (before, _), (alone, _) = fit.pairs[0], fit_of(recorded, steps=150, restarts=1).pairs[0]
    assert torch.equal(before.dec, alone.dec)
    steps.clear()
    stop = 5
    with pytest.raises(KeyboardInterrupt):
        fit_of(recorded, steps=150)


def test_ctrl_c_leaves_a_checkpoint_to_go_on_from(recorded, monkeypatch, tmp_path):
    advance, steps = PairRun.advance, []

    def pressed(run):
        advance(run)
        steps.append(run.step)
        if len(steps) == 110:
            signal.raise_signal(signal.SIGINT)

    settings = {"steps": 120, "checkpoint": tmp_path / "run.pt", "checkpoint_every": 1000}
    with monkeypatch.context() as patch, pytest.warns(RuntimeWarning, match="interrupted"):
        patch.setattr(PairRun, "advance", pressed)
        fit = fit_of(recorded, **settings)
    assert "interrupted at step 110 of 120" in " ".join(fit.warnings)
    same_fit(fit_of(recorded, **settings), fit_of(recorded, steps=120))


def test_what_is_refused_before_training(recorded, monkeypatch):
    monkeypatch.setattr(PairRun, "advance", lambda run: pytest.fail("it took a step"))
    x, y, layer = recorded
    pair = pair_of(layer)
    broken = x.clone()
    broken[7, 1] = float("nan")
    wide = torch.nn.Linear(D, D + 1)
    attention = torch.nn.Softmax(0)
    cases = [
        (pair, x, {}, TypeError, "two arrays"),
        (pair, (x, y[:-1]), {}, ValueError, "Y: has 599 rows, and X has 600"),
        (pair, (broken, y), {}, ValueError, "X: row 7"),
        (pair, (x, torch.ones(600, D)), {}, ValueError, "Y: all rows are alike"),
        (pair, (x[:, 0], y), {}, ValueError, "X: got"),
        (pair, (x, y * torch.tensor([float("inf")])), {}, ValueError, "Y: row 0"),
        (pair, ((100 * x).int(), y), {}, ValueError, "X: got torch.int32 .* floating-point"),
        (pair, (x, np.ones((600, D), dtype=int)), {}, ValueError, "Y: got int64 .* token ids"),
        (pair, ([[1.0, 2.0], [3.0]], y), {}, ValueError, "X: got rows of different lengths"),
        (pair, (x, y, y), {}, TypeError, "X: .* got 3 of them"),
        (pair, x, {"y": y}, TypeError, r"y: .* fit\(model, \(X, Y\)\)"),
        (pair, (x, y), {"dtype": "int32"}, ValueError, "dtype: got 'int32'"),
        (pair_of(wide), (x, y), {}, ValueError, "between: makes 9 dimensions"),
        (pair_of(torch.nn.Linear(D + 1, D)), (x, y), {}, ValueError, "between: fails on rows of X"),
        (pair_of(attention), (x, y), {}, ValueError, "rows meet"),
        (pair, (x[:10], y[:10]), {}, ValueError, "rows are left"),
        (pair, (x, y), {"dependency": DependencyPenalty(surrogate="log")}, ValueError, "surrogate 'log'"),
        (pair, (x, y), {"dependency": DependencyPenalty(estimator="exact")}, ValueError, "estimator"),
        (pair, (x, y), {"dependency": 0.5}, TypeError, "dependency: got a float"),
        (pair, (x, y), {"mask": x > 0}, TypeError, "mask: is for tables"),
        (pair, (x, y), {"sample_weight": np.ones(600)}, TypeError, "sample_weight: is for tables"),
        (pair, (x, y), {"sparsity": "auto"}, TypeError, "sparsity: is for sequences"),
        (pair, (x, y), {"schedule": ps.inference.Schedule()}, TypeError, "wants a AutoencoderSchedule"),
        (pair, (x, y), {"lasso_weight": 1.0}, TypeError, "unknown setting 'lasso_weight'"),
        (pair, (x, y), {"n_jobs": 2, "checkpoint": "run.pt"}, ValueError, "checkpoint: .* n_jobs=2"),
        (pair, (x, y), {"penalty_share": 0.0}, ValueError, "penalty_share"),
    ]
    for model, data, options, error, message in cases:
        with pytest.raises(error, match=message):
            ps.fit(model, data, progress=False, **options)
    with pytest.raises(ValueError, match="k: got 13"):
        AutoencoderPair(N_IN, N_OUT, k=13, between=layer)
    with pytest.raises(ValueError, match="select"):
        pair_of(layer, select="jumprelu")
    with pytest.raises(TypeError, match="between"):
        pair_of(torch.nn.Linear)
    with pytest.raises(ValueError, match="aux"):
        pair_of(layer, aux=-1.0)


def test_another_layers_output_is_doubted(recorded):
    x, y, layer = recorded
    fit = ps.fit(pair_of(layer), (x, y.flip(0)), restarts=1, steps=5, holdout=0.0, progress=False)
    assert fit.unsure and any("does not come out of this layer" in text for text in fit.warnings)
    assert any("no rows were held out" in text for text in fit.warnings)
