"""Options of reading, of known edges, of going on and of overwriting, from the outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.cli import commands as cli
from pyro_sparse.cli.edges_asked import model_text, read_edges
from pyro_sparse.cli.options import reading_of
from pyro_sparse.cli.recipe import Recipe, by_halves, likelihood_of
from pyro_sparse.cli.results_folder import CHECKPOINT, refuse_results
from pyro_sparse.inference.training.loop import Run

QUICK = ["-k", "2", "--restarts", "2", "--steps", "20", "--decoder", "linear", "--edges", "score"]


@pytest.fixture
def run(monkeypatch, capfd, no_pictures):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["pyro-sparse", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        captured = capfd.readouterr()
        return SimpleNamespace(code=exit_.value.code, out=captured.out, err=captured.err)

    return call


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    x = np.repeat(rng.normal(size=(60, 2)), 3, axis=1) + 0.3 * rng.normal(size=(60, 6))
    return pd.DataFrame(x.round(3), columns=["a1", "a2", "a3", "b1", "b2", "b3"])


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("is_transposed", [False, True])
def test_a_table_with_more_columns_than_rows_says_which_are_samples(run, tmp_path, is_transposed):
    """Samples in columns, as gene tables have them, were fitted as features without a word."""
    x = np.random.default_rng(0).normal(size=(12, 15)).round(3)
    table = pd.DataFrame(x, [f"gene{i}" for i in range(12)], [f"cell{j}" for j in range(15)])
    (table.T if is_transposed else table).to_csv(tmp_path / "t.csv")
    done = run("fit", tmp_path / "t.csv", *QUICK, "--out", tmp_path / "out")
    assert done.code in (0, 3), done.err
    said = "rows are samples (gene0, gene1, …) and columns features (cell0, cell1, …)"
    assert (said in " ".join(done.err.split())) is not is_transposed


@pytest.mark.usefixtures("hurried")
def test_a_german_table_with_codes_for_missing_cells_and_anchors(run, frame, tmp_path):
    table = frame.copy()
    table.iloc[3, 2], table.iloc[5, 1] = 999, -9
    table.to_csv(tmp_path / "t.csv", sep=";", decimal=",", index=False)
    known = ["--anchors", "factor 2=a1", "--forbidden", "factor 1=a2,a3"]
    options = [*QUICK, "--missing", 999, "--missing", "-9", *known, "--out", tmp_path / "out", "--json"]
    done = run("fit", tmp_path / "t.csv", *options)
    assert done.code in (0, cli.NOTHING_FOUND), done.err
    assert "read with ; between fields and , for decimals; --sep and --decimal say otherwise" in done.err
    fit = ps.load(tmp_path / "out" / "model.pt")
    assert fit.model.anchors == {"a1": 1} and len(fit.model.forbidden) == 2
    assert np.abs(fit.weights[:, 0, 0]).max() == 0


@pytest.mark.usefixtures("hurried")
def test_a_measurement_model(run, frame, tmp_path):
    frame.assign(extra="text").to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "model.txt").write_text("fb =~ b1 + b2\nfa =~ a1 + a2 + a3\n")
    options = [*QUICK[2:], "--model", tmp_path / "model.txt", "--out", tmp_path / "out", "--json"]
    done = run("fit", tmp_path / "t.csv", *options)
    assert done.code in (0, cli.NOTHING_FOUND), done.err
    fit = ps.load(tmp_path / "out" / "model.pt")
    assert fit.feature_names == ["b1", "b2", "a1", "a2", "a3"] and set(fit.factor_names) == {"fa", "fb"}
    done = run("fit", tmp_path / "t.csv", *options, "--factors", 3)
    assert done.code == 2 and "--factors: --model says that" in done.err
    done = run("fit", tmp_path / "t.csv", *QUICK, "--explore", "--out", tmp_path / "new")
    assert done.code == 2 and "--explore: is of what --model expects" in done.err


@pytest.mark.slow(hurried=True)
@pytest.mark.usefixtures("hurried")
def test_an_interrupted_fit_goes_on_where_it_stopped(run, frame, tmp_path, monkeypatch):
    frame.to_csv(tmp_path / "t.csv", index=False)
    command = ["fit", tmp_path / "t.csv", *QUICK, "--out", tmp_path / "out"]
    advance, steps = Run.advance, []

    def pressed(run):
        advance(run)
        steps.append(run.step)
        if run.step == 8:
            os.kill(os.getpid(), signal.SIGINT)  # as Ctrl-C: the step under way is finished first

    with monkeypatch.context() as patched:
        patched.setattr(Run, "advance", pressed)
        done = run(*command)
    assert done.code == 130 and "the same command with --resume goes on with the fit" in done.err
    assert (tmp_path / "out" / CHECKPOINT).is_file() and (tmp_path / "out" / "report.html").is_file()
    done = run(*command)
    assert done.code == 2 and "holds a fit that was interrupted; go on with it (--resume)" in done.err
    done = run(*command, "--seed", 1, "--resume")
    assert done.code == 2 and "--resume: " in done.err and "(seed: 0 there, 1 here)" in done.err
    begun = len(steps)
    with monkeypatch.context() as patched:
        patched.setattr(Run, "advance", lambda run: (steps.append(run.step), advance(run))[1])
        done = run(*command, "--resume", "--json")
    assert done.code in (0, cli.NOTHING_FOUND) and json.loads(done.out)["interrupted"] is False
    assert steps[begun] >= 7 and not (tmp_path / "out" / CHECKPOINT).exists()
    model = ps.models.SparseDecoder(6, 2, decoder="linear")
    whole = ps.fit(model, pd.read_csv(tmp_path / "t.csv"), restarts=2, steps=20, progress=False)
    np.testing.assert_array_equal(ps.load(tmp_path / "out" / "model.pt").weights, whole.weights)
    done = run(*command, "--resume")
    assert done.code == 2 and "holds results and nothing to go on from" in done.err


@pytest.mark.usefixtures("hurried")
def test_an_interruption_before_there_is_anything_says_so(run, frame, tmp_path, monkeypatch):
    frame.to_csv(tmp_path / "t.csv", index=False)

    def pressed(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(ps, "fit", pressed)
    done = run("fit", tmp_path / "t.csv", *QUICK, "--out", tmp_path / "out")
    assert done.code == 130 and "interrupted before there was anything to keep" in done.err


def test_results_are_not_overwritten(run, frame, tmp_path, monkeypatch):
    frame.to_csv(tmp_path / "t.csv", index=False)
    out = tmp_path / "out"
    out.mkdir()
    refuse_results(out, force=False, resume=False)  # an empty folder
    refuse_results(out, force=False, resume=True)
    (out / "restart-0.pt").touch()
    refuse_results(out, force=False, resume=False)  # of parts
    (out / "edges.csv").write_text("mine")
    monkeypatch.setattr(ps, "fit", lambda *_, **__: pytest.fail("it was trained"))
    done = run("fit", tmp_path / "t.csv", *QUICK, "--out", out)
    assert done.code == 2 and "results of an earlier fit (edges.csv); overwrite them (--force)" in done.err
    assert (out / "edges.csv").read_text() == "mine"
    refuse_results(out, force=True, resume=False)
    with pytest.raises(ValueError, match="--resume: goes on with a fit, and --force begins it anew"):
        refuse_results(out, force=True, resume=True)
    for other in (["--restart-index", 0], ["--n-jobs", 2]):
        done = run("fit", tmp_path / "t.csv", *QUICK, "--out", out, "--resume", *other)
        assert done.code == 2 and f"nothing is written before the end with {other[0]}" in done.err


@pytest.mark.usefixtures("hurried")
def test_what_the_chains_are_asked(run, frame, tmp_path, monkeypatch):
    frame.to_csv(tmp_path / "t.csv", index=False)
    asked = {}
    real = ps.inference.Fit.edge_posterior

    def chains(self, method="auto", **options):
        asked.update(options)
        return real(self, "score", X=options["X"])

    monkeypatch.setattr(ps.inference.Fit, "edge_posterior", chains)
    done = run(
        "fit", tmp_path / "t.csv", *QUICK[:-2], "--learn-scales", "--max-rows", 50, "--out", tmp_path / "o"
    )
    assert done.code in (0, cli.NOTHING_FOUND), done.err
    assert asked["learn_scales"] is True and asked["max_rows"] == 50 and "edge" not in asked
    both = ["--learn-scales", "--edge", "practical", "--out", tmp_path / "p"]
    done = run("fit", tmp_path / "t.csv", *QUICK, *both)
    assert done.code == 2 and "--learn-scales: learns what an edge is" in done.err


@pytest.mark.usefixtures("hurried")
def test_halves_of_scores_are_not_compared(run, frame, tmp_path):
    frame.to_csv(tmp_path / "t.csv", index=False)
    done = run("fit", tmp_path / "t.csv", *QUICK, "--halves", "--out", tmp_path / "o")
    assert done.code in (0, cli.NOTHING_FOUND), done.err
    assert "--halves: edges have scores, and there are no probabilities to compare" in done.err


def test_halves_are_fitted_as_the_table_was(frame, monkeypatch, capsys):
    """With the columns that are no features, and the options of the chains; what fails costs nothing."""
    asked, answer = {}, SimpleNamespace(attrs={"is_score": 0})
    of_all = SimpleNamespace(attrs={"is_score": 0})

    def halves(model, table, idata, **options):
        asked.update(options, model=model, table=table, idata=idata)
        return SimpleNamespace(idata=answer, __str__=None)

    monkeypatch.setattr(ps.calibrate, "halves", halves)
    frame = frame.assign(hours=1.0, site=["a", "b"] * (len(frame) // 2))
    recipe = Recipe(
        "t.csv", 3, "poisson", "linear", restarts=2, seed=4, per_row={"exposure": "hours"}, groups=["site"]
    )
    assert by_halves(recipe, frame)(of_all, {"edge": "practical", "time_budget": 9.0}) is answer
    assert asked["idata"] is of_all and asked["model"].n_factors == 3
    assert "hours" not in asked["table"] and "site" in asked["table"]
    assert asked["edges"] == {"edge": "practical", "time_budget": 9.0, "progress": False}
    assert (asked["seed"], asked["restarts"], asked["groups"]) == (4, 2, ["site"])
    assert asked["exposure"].equals(frame["hours"])
    for error, words in (
        (RuntimeError("X: half of its rows, 50, cannot be fitted"), "--halves: half of its rows, 50"),
        (KeyboardInterrupt(), "--halves: interrupted, and nothing is said of halves"),
    ):

        def fail(*_, error=error, **__):
            raise error

        monkeypatch.setattr(ps.calibrate, "halves", fail)
        assert by_halves(recipe, frame)(of_all, {}) is of_all
        assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "meant"), [("multinomal", "multinomial"), ("negative-binomial", "negative_binomial")]
)
def test_likelihoods_that_are_misspelt(option, meant):
    with pytest.raises(ValueError, match=f"--likelihood: '{option}' is none; did you mean {meant}"):
        likelihood_of([f"q*={option}"])


def test_codes_may_be_separated_by_commas():
    assert reading_of(None, ",", None, None, ["999, -9", "refused"], None) == {
        "decimal": ",",
        "missing": ["999", "-9", "refused"],
    }


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("x1,x2", 'wanted a factor and columns, as "factor 1=x1,x2"'),
        ("factor 3=x1", "there is no factor 3; they count from 1"),
        ("factor 0=x1", "there is no factor 0"),
        ("factor 1=", "names no column"),
        ("factor 1=x4", r"'x4' is no column of the table; did you mean one of \['x1'"),
    ],
)
def test_edges_that_cannot_be_meant(line, words):
    with pytest.raises(ValueError, match=words):
        read_edges("--anchors", [line], ["x1", "x2"], 2)


def test_a_model_is_a_text_or_a_file(tmp_path):
    assert model_text("f =~ a + b") == "f =~ a + b"
    with pytest.raises(ValueError, match="--model: 'f.txt' is no file"):
        model_text("f.txt")
    (tmp_path / "m.txt").write_bytes("f =~ größe".encode("latin-1"))
    with pytest.raises(ValueError, match="is not UTF-8 text"):
        model_text(str(tmp_path / "m.txt"))


@pytest.mark.parametrize("command", ["fit", "--help"])
def test_help_says_what_exit_codes_mean(run, command):
    done = run(command, *(["--help"] if command == "fit" else []))
    assert "130 interrupted" in " ".join(done.out.split())


def test_help_does_not_wait_for_torch():
    script = "import sys, pyro_sparse.cli.commands; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
