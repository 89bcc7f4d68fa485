"""Restarts in processes and one by one: the plate's fit again, up to rounding; what is refused."""

from __future__ import annotations

import importlib

import joblib
import numpy as np
import pandas as pd
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.datasets import transition_data
from pyro_sparse.inference.training import restarts as restarts_module
from pyro_sparse.inference.training.group_draws import GroupDraws
from pyro_sparse.inference.training.loop import possible_stops, stopped_at
from pyro_sparse.inference.training.parts import split
from pyro_sparse.rivals import VAE

parts_module = importlib.import_module("pyro_sparse.inference.training.parts")

X = ps.datasets.sim1(n=120, seed=1).x
Y = np.stack([X[:, 0] - X[:, 3], X[:, 1], X[:, 4] + X[:, 0]])
# rounding differs with the number of restarts in a pass, and grows with the steps: float64, and few of them
SHORT = {"steps": 40, "seed": 3, "progress": False, "dtype": "float64"}
TABLE = {**SHORT, "restarts": 4, "batch_size": 20, "evaluate_every": 4}
DENSE = {**TABLE, "restarts": 2, "batch_size": 40, "steps": 12}
IMPATIENT = {"steps": 40, "axes_at": 0.3, "learning_rate": 0.4, "patience": 1}


pytestmark = pytest.mark.usefixtures("hurried")


def decoder(**options):
    return ps.models.SparseDecoder(7, 2, hidden=5, encoder_hidden=4, **options)


def dependency():
    return ps.models.DependencyVAE(7, 2, hidden=4, encoder_hidden=8)


def sequences():
    x, _, a = transition_data("ActionTimeDiag", n=60, d_z=2, d_x=4, T=4, seed=1000).part("train")
    model = ps.models.LatentTransition(x.shape[-1], 2, n_actions=2, hidden=8, units=8, gated_units=4)
    few = {"polish_steps": 5, "edge_steps": 10, "batch_size": 32, "evaluate_every": 30}
    return model, x, {"actions": a, "restarts": 2, **SHORT, **few}


def tasks():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 20, 4))
    y = (x[..., :2] * rng.normal(size=(12, 1, 2))).sum(-1) + 0.1 * rng.normal(size=(12, 20))
    few = {"y": y, "restarts": 2, "sparse_steps": 10, "learning_rate": 0.03, "evaluate_every": 20}
    return ps.models.MultiTaskRegression(4, 2), x, {**SHORT, **few}


CASES = {
    "decoder": lambda: (decoder(), X, TABLE),
    "several groups": lambda: (decoder(), X, {**TABLE, "batch_size": 21}),
    "horseshoe": lambda: (decoder(prior=ps.priors.Horseshoe()), X, TABLE),
    "counts with gaps": lambda: (
        decoder(likelihood="poisson"),
        np.where(np.arange(7) == 2, np.nan, 1.0)[None] ** (np.arange(120)[:, None] % 5 == 0)
        * np.random.default_rng(0).poisson(3.0, size=(120, 7)),
        TABLE,
    ),
    "linear counts": lambda: (
        decoder(decoder="linear", likelihood="poisson"),
        np.random.default_rng(0).poisson(3.0, size=(120, 7)),
        TABLE,
    ),
    "stopped early": lambda: (
        decoder(),
        X,
        {
            **TABLE,
            "restarts": 2,
            "patience": 1,
            "learning_rate": 0.1,
            "prune_at": (0.2,),
            "lasso_until": 0.2,
        },
    ),
    "penalty": lambda: (
        decoder(),
        X,
        {**TABLE, "restarts": 2, "dependency": ps.inference.DependencyPenalty(weight=0.1)},
    ),
    "total correlation": lambda: (VAE(7, 2, total_correlation=0.5), X, {**TABLE, "restarts": 2}),
    "dependency": lambda: (dependency(), X, DENSE),
    "dependency that stops early": lambda: (dependency(), X, {**DENSE, **IMPATIENT}),
    "sequences": sequences,
    "tasks": tasks,
}


def arrays_of(fit):
    names = ("weights", "effects", "eta", "elbo", "heldout_elbo", "factor_cov", "strength_time", "gap",
             "strength_action", "relaxed_time", "error", "found", "noise", "intercept")  # fmt: skip
    return {name: getattr(fit, name) for name in names if getattr(fit, name, None) is not None}


def alike(one, two, atol=1e-6):
    assert one.best == two.best and one.n_restarts == two.n_restarts
    for name, values in arrays_of(one).items():
        np.testing.assert_allclose(getattr(two, name), values, atol=atol, rtol=atol, err_msg=name)
    pd.testing.assert_frame_equal(one.history, two.history, atol=atol, rtol=atol)
    assert one.settings == two.settings and one.warnings == two.warnings


RARE = (
    "several groups", "horseshoe", "counts with gaps", "penalty", "total correlation", "dependency",
    "dependency that stops early", "stopped early", "sequences", "linear counts",
)  # fmt: skip


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] * (case in RARE)) for case in CASES]
)
def test_processes_and_single_restarts_give_the_fit_of_one_pass(case, tmp_path, monkeypatch):
    if case == "several groups":
        monkeypatch.setattr(restarts_module, "GROUP_BYTES", 3 * 4.0 * 4 * 21 * 7 * 5)
    model, x, arguments = CASES[case]()
    whole = ps.fit(model, x, **arguments)
    model, x, arguments = CASES[case]()
    with joblib.parallel_config("sequential"):
        alike(whole, ps.fit(model, x, **arguments, n_jobs=2))
    paths = []
    for i in reversed(range(arguments["restarts"])):
        model, x, arguments = CASES[case]()
        paths.append(tmp_path / f"{i}.pt")
        ps.fit_restart(i, paths[-1], model, x, **arguments)
    model, x, arguments = CASES[case]()
    alike(whole, ps.merge(paths, model, x, **arguments))


@pytest.mark.parametrize("case", ["stopped early", "dependency that stops early"])
def test_the_case_that_stops_early_does(case):
    model, x, arguments = CASES[case]()
    assert ps.fit(model, x, **arguments).history["step"].max() < arguments["steps"]


def test_a_restart_alone_is_bit_for_bit_the_same_twice(tmp_path):
    files = [tmp_path / "a.pt", tmp_path / "b.pt"]
    for path in files:
        ps.fit_restart(1, path, decoder(), X, **TABLE)
    one, two = (torch.load(path, weights_only=True)["tensors"]["states"][40] for path in files)
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.slow(hurried=True)
def test_parts_of_a_dependency_vae_agree_to_the_bit(tmp_path):
    with joblib.parallel_config("sequential"):
        fit = ps.fit(dependency(), X, **DENSE, n_jobs=2)
    paths = [tmp_path / "0.pt", tmp_path / "1.pt"]
    for i, path in enumerate(paths):
        ps.fit_restart(i, path, dependency(), X, **DENSE)
    alike(fit, ps.merge(paths, dependency(), X, **DENSE), atol=0)
    whole = ps.fit(dependency(), X, **DENSE)
    np.testing.assert_allclose(fit.elbo, whole.elbo, atol=0.5)


def test_a_merged_fit_can_be_saved(tmp_path):
    for i in range(2):
        ps.fit_restart(i, tmp_path / f"{i}.pt", decoder(), X, **{**TABLE, "restarts": 2})
    fit = ps.merge([tmp_path / "0.pt", tmp_path / "1.pt"], decoder(), X, **{**TABLE, "restarts": 2})
    fit.save(tmp_path / "fit.pt")
    np.testing.assert_array_equal(ps.load(tmp_path / "fit.pt").weights, fit.weights)


@pytest.mark.slow(hurried=True)
def test_missing_restarts_are_said_and_the_others_counted_anew(tmp_path):
    for i in (1, 3):
        ps.fit_restart(i, tmp_path / f"{i}.pt", decoder(), X, **TABLE)
    fit = ps.merge([tmp_path / "3.pt", tmp_path / "1.pt"], decoder(), X, **TABLE)
    whole = ps.fit(decoder(), X, **TABLE)
    assert fit.warnings[0] == (
        "2 of 4 restarts are missing, number 0, 2 counted from 0: their parts were not given"
    )
    assert fit.n_restarts == 2 and sorted(fit.history["restart"].unique()) == [0, 1]
    np.testing.assert_allclose(fit.elbo, whole.elbo[[1, 3]], rtol=0.05)  # other draws at the end
    assert fit.settings["n_factors_init"] == [whole.settings["n_factors_init"][r] for r in (1, 3)]


# ---- pieces


def test_split_is_even_and_keeps_to_the_groups():
    assert split([range(16)], 4) == [range(0, 4), range(4, 8), range(8, 12), range(12, 16)]
    assert split([range(5)], 8) == [range(i, i + 1) for i in range(5)]
    assert split([range(3), range(3, 6)], 2) == [range(3), range(3, 6)]
    assert split([range(6)], 1) == [range(6)]


@pytest.mark.parametrize(
    "draw",
    [
        lambda r: torch.randn(r, 30, 2),
        lambda r: torch.randn((r, 30), dtype=torch.float64),
        lambda r: torch.rand(size=(r, 30)),
        lambda r: torch.randint(7, (r, 30)),
        lambda r: torch.randint(3, 7, size=(r, 30)),
        lambda r: torch.rand_like(torch.zeros(r, 30)),
        lambda r: torch.randn_like(torch.zeros(r, 30, 2, dtype=torch.float64)),
        lambda r: torch.empty(r, 30).normal_(2.0, 3.0),
        lambda r: torch.empty(r, 30).uniform_(-1, 1),
        lambda r: torch.distributions.Normal(torch.zeros(r, 30), torch.ones(r, 30)).rsample(),
        lambda r: torch.distributions.Uniform(torch.zeros(r, 30), torch.ones(r, 30)).sample(),
    ],
)
@pytest.mark.parametrize("own", [[2], [0, 1, 2], [3, 4]])
def test_draws_of_some_are_those_of_the_group(draw, own):
    torch.manual_seed(0)
    group, after = draw(5), torch.rand(3)
    torch.manual_seed(0)
    with GroupDraws(own, 5):
        mine = draw(len(own))
    assert torch.equal(mine, group[own])
    assert torch.equal(torch.rand(3), after)


def test_group_draws_leave_orders_and_other_generators_alone():
    torch.manual_seed(0)
    order = torch.randperm(9), torch.randn(2, 4, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    with GroupDraws([1, 2], 5):
        again = torch.randperm(9), torch.randn(2, 4, generator=torch.Generator().manual_seed(1))
    assert torch.equal(order[0], again[0]) and torch.equal(order[1], again[1])


def test_where_a_group_stops():
    schedule = ps.inference.Schedule(steps=100, evaluate_every=10, patience=2, prune_at=(), lasso_until=0.3)
    assert schedule.settled == 31 and possible_stops(schedule) == [50, 60, 70, 80, 90]
    falling = [{"step": s, "heldout_elbo": -float(s)} for s in range(10, 101, 10)]
    assert stopped_at(falling, schedule) == 50
    other = [{"step": s, "heldout_elbo": float(min(s, 70))} for s in range(10, 101, 10)]
    assert stopped_at([*falling, *other], schedule) == 90
    assert stopped_at([{"step": s, "heldout_elbo": np.nan} for s in range(10, 101, 10)], schedule) == 50
    assert possible_stops(ps.inference.Schedule(patience=None)) == []


# ---- refusals


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    for i in range(2):
        ps.fit_restart(i, folder / f"{i}.pt", decoder(), X, **{**TABLE, "steps": 20})
    return [folder / "0.pt", folder / "1.pt"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"seed": 4},
            r"parts: '.*0.pt' is of another fit \(seed: 3 there, 4 here\); give parts of one model",
        ),
        ({"X": X + 1e-3 * np.arange(120)[:, None]}, "another fit .data: "),
        ({"model": decoder(prior=ps.priors.Laplace())}, "prior: 'SpikeSlabLasso' there, 'Laplace' here"),
        ({"restarts": 5}, "restarts: 4 there, 5 here"),
        ({"steps": 30}, "steps: 20 there, 30 here"),
    ],
)
def test_parts_of_another_fit_are_refused(two, change, says):
    arguments = {"model": decoder(), "X": X, **TABLE, "steps": 20, **change}
    with pytest.raises(ValueError, match=says):
        ps.merge(two, **arguments)


def test_one_path_is_one_part(two):
    arguments = {"model": decoder(), "X": X, **TABLE, "steps": 20}
    for path in (two[1], str(two[1])):
        assert ps.merge(path, **arguments).n_restarts == 1


def test_parts_that_are_none_or_twice_or_something_else_are_refused(two, tmp_path):
    same = {**TABLE, "steps": 20}
    with pytest.raises(ValueError, match=r"restart 1 is in '.*1.pt' and in '.*1.pt'; give each once"):
        ps.merge([*two, two[1]], decoder(), X, **same)
    with pytest.raises(ValueError, match="parts: got none; give the files"):
        ps.merge([], decoder(), X, **same)
    with pytest.raises(FileNotFoundError, match="no file at"):
        ps.merge([tmp_path / "absent.pt"], decoder(), X, **same)
    ps.fit(decoder(), X, **{**same, "restarts": 1}).save(tmp_path / "fit.pt")
    with pytest.raises(ValueError, match="holds a 'fit', wanted a 'part'"):
        ps.merge([tmp_path / "fit.pt"], decoder(), X, **same)


def test_arguments_that_do_not_go_together_are_refused(tmp_path):
    with pytest.raises(ValueError, match="index: got 4, wanted a whole number from 0 to restarts - 1 = 3"):
        ps.fit_restart(4, tmp_path / "x.pt", decoder(), X, **TABLE)
    for wrong in (0, 1.5, "two"):
        with pytest.raises(ValueError, match=f"n_jobs: got {wrong!r}, wanted a number of processes, or -1"):
            ps.fit(decoder(), X, **TABLE, n_jobs=wrong)
    with pytest.raises(ValueError, match="index: got 'one', wanted a whole number"):
        ps.fit_restart("one", tmp_path / "part.pt", decoder(), X, **TABLE)
    with pytest.raises(ValueError, match="checkpoint: got '.*', but with n_jobs=2 nothing is written before"):
        ps.fit(decoder(), X, **TABLE, n_jobs=2, checkpoint=tmp_path / "c.pt")
    with pytest.raises(
        ValueError, match="checkpoint: .*but a restart by itself is written when it has ended"
    ):
        ps.fit_restart(0, tmp_path / "x.pt", decoder(), X, **TABLE, checkpoint=tmp_path / "c.pt")
    assert not list(tmp_path.iterdir())


def failing(*arguments, **options):
    raise FloatingPointError("step 3: site 'x' has a non-finite log-density")


def test_an_error_says_which_restarts_it_is_of(monkeypatch):
    module = importlib.import_module("pyro_sparse.inference.table.job")
    monkeypatch.setattr(module.TableJob, "run", failing)
    with joblib.parallel_config("sequential"), pytest.raises(FloatingPointError, match="step 3") as error:
        ps.fit(decoder(), X, **TABLE, n_jobs=2)
    assert error.value.__notes__ == ["in the part of the fit that trains restarts 0 to 1"]


def test_ctrl_c_returns_the_restarts_that_had_ended(monkeypatch):
    train = parts_module._train

    def pressed(*arguments):
        if arguments[4].start:
            raise KeyboardInterrupt
        return train(*arguments)

    monkeypatch.setattr(parts_module, "_train", pressed)
    with (
        joblib.parallel_config("sequential"),
        pytest.warns(RuntimeWarning, match="2 of 4 restarts had ended"),
    ):
        fit = ps.fit(decoder(), X, **TABLE, n_jobs=2)
    assert fit.n_restarts == 2
    assert fit.warnings[0] == "interrupted when 2 of 4 restarts had ended; these are in the fit"
    monkeypatch.setattr(parts_module, "_train", lambda *a: pressed(*a[:4], range(1, 2), *a[5:]))
    with joblib.parallel_config("sequential"), pytest.raises(KeyboardInterrupt):
        ps.fit(decoder(), X, **TABLE, n_jobs=2)


# ---- real processes and clusters


def serial(restarts, n_jobs):
    """What the parts give one after the other, in this process."""
    with joblib.parallel_config("sequential"):
        return ps.fit(decoder(), X, **{**TABLE, "restarts": restarts}, n_jobs=n_jobs)


@pytest.mark.slow
def test_two_processes(capfd, monkeypatch):
    monkeypatch.setattr("pyro_sparse._utils.progress.is_watched", lambda: True)
    fit = ps.fit(decoder(), X, **{**TABLE, "progress": True}, n_jobs=2)
    alike(serial(4, 2), fit, atol=0)
    assert "4/4" in capfd.readouterr().err
    with pytest.raises(FloatingPointError) as error:
        ps.fit(decoder(), X, **{**TABLE, "learning_rate": 1e30}, n_jobs=2)
    assert "in the part of the fit that trains restarts" in error.value.__notes__[0]


@pytest.mark.slow
def test_sixteen_restarts_on_a_dask_cluster():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config("dask"),
    ):
        fit = ps.fit(decoder(), X, **{**TABLE, "restarts": 16}, n_jobs=2)
    alike(serial(16, 2), fit, atol=0)
    alike(ps.fit(decoder(), X, **{**TABLE, "restarts": 16}), fit)


@pytest.mark.slow
def test_sixteen_restarts_on_a_ray_cluster():
    ray = pytest.importorskip("ray")
    importlib.import_module("ray.util.joblib").register_ray()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        with joblib.parallel_config("ray"):
            fit = ps.fit(decoder(), X, **{**TABLE, "restarts": 16}, n_jobs=2)
    finally:
        ray.shutdown()
    alike(serial(16, 2), fit, atol=0)
    alike(ps.fit(decoder(), X, **{**TABLE, "restarts": 16}), fit)
