"""Every command from the outside: what it prints, what it writes, how it exits."""

from __future__ import annotations

import errno
import importlib.util
import io
import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse import plots
from pyro_sparse.cli import commands as cli
from pyro_sparse.cli.advice import in_options
from pyro_sparse.cli.results_folder import results_folder
from pyro_sparse.findings.finding import Finding
from pyro_sparse.inference.edges.mcmc import sampler as polish
from pyro_sparse.inference.training.loop import Run
from pyro_sparse.posterior import arviz as arviz_files

CURVED = ["--factors", "2", "--restarts", "2", "--steps", "40"]
SHORT = [*CURVED, "--decoder", "linear"]  # whose chains take no time
QUICK = [*SHORT, "--edges", "score"]


@pytest.fixture
def run(monkeypatch, capfd, no_pictures, hurried):
    """Run the command line, in a hurry; its exit code and both outputs. Reports have words only."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["pyro-sparse", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        captured = capfd.readouterr()
        return SimpleNamespace(code=exit_.value.code, out=captured.out, err=captured.err)

    return call


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(0)
    x = np.repeat(rng.normal(size=(120, 2)), 3, axis=1) + 0.3 * rng.normal(size=(120, 6))
    x[rng.random(x.shape) < 0.05] = np.nan
    frame = pd.DataFrame(
        x, columns=["a1", "a2", "a3", "b1", "b2", "b3"], index=[f"row {i}" for i in range(120)]
    )
    path = tmp_path_factory.mktemp("table") / "table.csv"
    frame.to_csv(path)
    return path


@pytest.fixture(scope="module")
def fitted(table, tmp_path_factory):
    """A folder that `fit` wrote, and the JSON object it printed."""
    folder = tmp_path_factory.mktemp("fit")
    command = ["fit", table, *SHORT, "--edge-seconds", "1", "--out", folder, "--json"]
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr(sys, "argv", ["pyro-sparse", *map(str, command)])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
    assert exit_.value.code in (0, cli.NOTHING_FOUND)
    assert printed.getvalue().count("\n") == 1
    return folder, json.loads(printed.getvalue()), exit_.value.code


def test_the_package_runs_as_a_module(tmp_path):
    """A process of its own, whose help and errors need no torch and take no time."""
    command = [sys.executable, "-m", "pyro_sparse"]
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and "merge" in done.stdout and not done.stderr
    done = subprocess.run([*command, "fit"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr and not done.stdout


def test_fit_writes_what_it_says(fitted):
    folder, said, _ = fitted
    assert set(said["files"]) == {"model", "edges", "idata", "factors", "report"}
    assert {p.name for p in folder.iterdir()} == {str(p).rsplit("/", 1)[-1] for p in said["files"].values()}
    assert (said["rows"], said["features"], said["factors"]) == (120, 6, 2)
    edges = pd.read_csv(folder / "edges.csv")
    assert len(edges) == 12
    assert said["edges"] == edges["selected"].sum()
    assert said["is_score"] is False and "probability" in edges.columns
    assert said["edge_method"] == "mcmc"
    factors = pd.read_csv(folder / "factors.csv", index_col=0)
    assert factors.shape == (120, 2) and factors.index[3] == "row 3"
    assert "<html" in (folder / "report.html").read_text()


@pytest.mark.parametrize("size", [None, pytest.param(0.45, marks=pytest.mark.slow(hurried=True))])
def test_no_two_outputs_disagree_on_large_loadings(run, fitted, tmp_path, size):
    """Table, file, JSON, print, page, picture and the object of salient edges say one number."""
    folder = fitted[0]
    idata = arviz_files.from_netcdf(folder / "idata.nc")
    option = [] if size is None else ["--salient", size]
    of_size = {} if size is None else {"salient": size}
    table = ps.summary(idata, **of_size)
    least = table.attrs["salient"]
    column = f"p_salient_{least:g}"
    assert least == (size or 0.3)
    names = list(zip(table["feature"], table["factor"], strict=True))
    p = dict(zip(names, table[column], strict=True))

    of_salient = ps.edge_prob(ps.salient_edges(idata, least))
    assert [of_salient.loc[name] for name in names] == list(p.values())
    if size is None:
        written = pd.read_csv(folder / "edges.csv").set_index(["feature", "factor"])
        assert written.loc[names, column].to_numpy() == pytest.approx(list(p.values()))

    said = json.loads(run("summary", folder, "--all", "--json", *option).out)
    assert said["salient"] == least
    assert {(e["feature"], e["factor"]): e[column] for e in said["edges"]} == p

    lines = run("summary", folder, "--all", *option).out
    rows = [[cell.strip() for cell in line.split("│")] for line in lines.splitlines() if line.count("│") > 5]
    head = re.findall(r"┃ (factor.*) ┃", lines)[0].split("┃")
    place = [name.strip() for name in head].index(f"≥ {least:g}") + 1
    factor, printed = "", {}
    for row in rows:
        factor = row[1] or factor
        printed[row[2].removesuffix(" ?"), factor] = row[place : place + 3]
    for name, (large, value, ends) in printed.items():
        edge = table.iloc[names.index(name)]
        assert large == f"{p[name]:.2f}"
        assert ends == "…".join(f"{round(edge[end], 2) + 0.0:.2f}" for end in ("hdi90_lb", "hdi90_ub"))
        assert value.startswith("±") or float(value) == pytest.approx(edge["weight"], abs=0.0051)
    assert printed.keys() == p.keys()

    assert run("report", folder, "--out", tmp_path / "page.html", *option).code == 0
    page = (tmp_path / "page.html").read_text()
    chosen = table[table["selected"]]
    assert len(chosen) > 3
    for _, edge in chosen.iterrows():
        row = page.split(f'data-names="{edge["feature"]} {edge["factor"]}"')[1].split("</tr>")[0]
        cells = re.findall(r"<td[^>]*>([^<]*)<?", row)
        assert f"{edge[column]:.3f}" in cells and f"{edge['weight']:.2f} " in cells
        assert f"{edge['hdi90_lb']:.2f} … {edge['hdi90_ub']:.2f}" in row

    ax = plots.plot_forest(idata, **of_size)
    beside = {(text.xy[1], text.xyann[0] > 30): text.get_text() for text in ax.texts}
    assert beside[-1, True] == f"size ≥ {least:g}"
    for row, label in enumerate(ax.get_yticklabels()):
        assert beside[row, True] == f"{p[tuple(label.get_text().split('  ·  '))]:.2f}"


def test_only_large_loadings_on_request(run, fitted, tmp_path):
    folder = fitted[0]
    idata = ps.salient_edges(arviz_files.from_netcdf(folder / "idata.nc"), 0.5)
    said = json.loads(run("summary", folder, "--salient", 0.5, "--salient-only", "--json").out)
    assert len(said["edges"]) == ps.summary(idata)["selected"].sum()
    assert said["verdict"][0] == "Posterior probability that a standardised loading is at least 0.5 in size."
    run("report", folder, "--salient", 0.5, "--salient-only", "--out", tmp_path / "page.html")
    assert "An edge is here a loading of at least 0.5" in (tmp_path / "page.html").read_text()
    bad = run("summary", folder, "--salient", 30)
    assert bad.code == cli.BAD_INPUT and "salient: got 30.0, wanted a standardised loading" in bad.err


def _no_training(*args, **kwargs):
    raise AssertionError("trained, though the results cannot be written")


@pytest.mark.parametrize("missing", ["h5netcdf", "h5py"])
def test_what_netcdf_needs_is_missed_before_the_training(run, table, tmp_path, monkeypatch, missing):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == missing else find(name)
    )
    monkeypatch.setattr(ps, "fit", _no_training)
    done = run("fit", table, *QUICK, "--out", tmp_path / "out")
    assert done.code == 2 and f"NetCDF files need {missing}; run: pip install h5netcdf h5py" in done.err
    assert not (tmp_path / "out").exists()


def test_a_broken_netcdf_library_is_noticed_before_the_training(run, table, tmp_path, monkeypatch):
    import xarray as xr

    def broken(*args, **kwargs):
        raise ValueError("numpy.dtype size changed")

    monkeypatch.setattr(xr.Dataset, "to_netcdf", broken)
    monkeypatch.setattr(ps, "fit", _no_training)
    done = run("fit", table, *QUICK, "--out", tmp_path / "out")
    assert done.code == 2 and "NetCDF files such as idata.nc cannot be written" in done.err
    assert "numpy.dtype size changed" in done.err and not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["model.pt", "edges.csv", "factors.csv", "report.html", "idata.nc"])
def test_a_folder_in_the_place_of_a_result_is_noticed_before_the_training(
    run, table, tmp_path, monkeypatch, name
):
    (tmp_path / name).mkdir()
    monkeypatch.setattr(ps, "fit", _no_training)
    done = run("fit", table, *QUICK, "--out", tmp_path)
    assert done.code == 2 and f"{name}', where a result is to be written, is a folder" in done.err


def test_tables_and_report_are_written_whatever_netcdf_does(run, table, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr(arviz_files, "to_netcdf", full)
    done = run("fit", table, *QUICK, "--out", tmp_path, "--json")
    said = json.loads(done.out)
    assert done.code == 2 and "idata.nc could not be written (No space left on device)" in done.err
    assert said["unwritten"] in done.err and "idata" not in said["files"]
    assert {p.name for p in tmp_path.iterdir()} == {"model.pt", "edges.csv", "factors.csv", "report.html"}


def test_fit_is_the_library_fit(fitted, table):
    folder, said, _ = fitted
    frame = pd.read_csv(table, index_col=0)
    model = ps.models.SparseDecoder(n_features=6, n_factors=2, decoder="linear")
    again = ps.fit(model, frame, restarts=2, steps=40, seed=0, progress=False)
    np.testing.assert_allclose(said["elbo"], again.elbo, rtol=1e-6)
    loaded = ps.load(folder / "model.pt")
    np.testing.assert_array_equal(loaded.weights, again.weights)


@pytest.mark.slow
def test_restarts_one_by_one_are_the_fit(run, fitted, table, tmp_path):
    folder, said, _ = fitted
    options = [*SHORT, "--out", tmp_path]
    for i in range(2):
        done = run("fit", table, *options, "--restart-index", i, "--json")
        assert done.code == 0 and json.loads(done.out)["part"] == str(tmp_path / f"restart-{i}.pt")
    parts = [tmp_path / "restart-1.pt", tmp_path / "restart-0.pt"]
    done = run("merge", *parts, "--edges", "score", "--out", tmp_path, "--json")
    assert done.code in (0, cli.NOTHING_FOUND)
    np.testing.assert_allclose(json.loads(done.out)["heldout_elbo"], said["heldout_elbo"], atol=1e-3)
    whole, merged = ps.load(folder / "model.pt"), ps.load(tmp_path / "model.pt")
    np.testing.assert_allclose(merged.weights, whole.weights, atol=1e-3)
    assert merged.sample_names == whole.sample_names


def test_merge_refuses(run, table, tmp_path):
    few = ["--restarts", 2, "--steps", 2, "--factors", 2, "--out"]
    run("fit", table, *few, tmp_path, "--restart-index", 0)
    run("fit", table, *few, tmp_path / "other", "--restart-index", 1, "--seed", 1)
    one, other = tmp_path / "restart-0.pt", tmp_path / "other" / "restart-1.pt"
    out = ["--out", tmp_path / "merged"]
    assert "is of another fit than" in (done := run("merge", one, other, *out)).err and done.code == 2
    assert "(seed: 1 there, 0 here)" in done.err
    assert "restart 0 is in" in (done := run("merge", one, one, *out)).err and done.code == 2
    moved = tmp_path / "moved.csv"
    (pd.read_csv(table, index_col=0) + 1e-3 * np.arange(120)[:, None]).to_csv(moved)
    done = run("merge", one, "--table", moved, *out)
    assert done.code == 2 and "is of another fit (data: " in done.err
    assert not (tmp_path / "merged").exists()
    done = run("fit", table, *few, tmp_path, "--restart-index", 2)
    assert done.code == 2 and "index: got 2, wanted a whole number from 0 to" in done.err
    frame = pd.read_csv(table, index_col=0)
    ps.fit_restart(0, tmp_path / "own.pt", ps.models.SparseDecoder(6, 2), frame, restarts=2, steps=2)
    done = run("merge", tmp_path / "own.pt", *out)
    assert done.code == 2 and "put it together there, from Python" in done.err


def test_no_edge_has_its_own_exit_code(run, fitted, table, tmp_path):
    _, said, code = fitted
    assert code == 0 and said["edges"] > 0
    noise = tmp_path / "noise.csv"
    pd.DataFrame(np.random.default_rng(1).normal(size=(60, 4))).add_prefix("x").to_csv(noise, index=False)
    done = run("fit", noise, *QUICK, "--fdr", "0", "--out", tmp_path / "out", "--json")
    assert json.loads(done.out)["edges"] == 0 and json.loads(done.out)["is_score"]
    assert done.code == cli.NOTHING_FOUND


def test_summary_of_a_fit(run, fitted):
    folder, said, _ = fitted
    everything = run("summary", folder, "--all", "--json")
    assert everything.code == 0
    edges = json.loads(everything.out)["edges"]
    assert len(edges) == 12
    assert sum(e["selected"] for e in edges) == said["edges"]
    kept = json.loads(run("summary", folder, "--json").out)["edges"]
    assert len(kept) == said["edges"]
    none = json.loads(run("summary", folder, "--fdr", "0", "--json").out)["edges"]
    assert len(none) <= len(kept)
    printed = run("summary", folder, "--all")
    assert "b2" in printed.out and "probability" in printed.out


@pytest.mark.slow
def test_what_the_chains_conclude_is_said(run, fitted, table, tmp_path):
    folder, said, _ = fitted
    kept = arviz_files.from_netcdf(folder / "idata.nc").attrs["verdict"].splitlines()
    verdict = [in_options(line) for line in kept]
    edges = pd.read_csv(folder / "edges.csv")
    assert verdict and said["verdict"] == verdict
    assert said["unresolved"] == (edges["unresolved"] & edges["selected"]).sum()
    summary = json.loads(run("summary", folder, "--all", "--json").out)
    assert summary["verdict"] == verdict and summary["unresolved"] == edges["unresolved"].sum()
    printed = " ".join(run("summary", folder).out.split())
    assert all(line in printed for line in verdict)
    done = run("fit", table, *QUICK, "--out", tmp_path)
    assert (
        "Scores, no probabilities" in done.out and "Scores, no probabilities" in run("summary", tmp_path).out
    )


def test_report_of_a_fit(run, fitted, tmp_path):
    folder, _, _ = fitted
    done = run("report", folder, "--out", tmp_path / "again.html", "--json")
    assert done.code == 0
    assert json.loads(done.out) == {"report": str(tmp_path / "again.html")}
    assert "<html" in (tmp_path / "again.html").read_text()


@pytest.mark.slow
def test_rate_of_the_fit_is_remembered(run, table, tmp_path, monkeypatch):
    monkeypatch.setitem(polish._SWEEPS, "small", (400, 60, 20))
    done = run("fit", table, *CURVED, "--edge-seconds", 1, "--fdr", 0.37, "--out", tmp_path)
    assert ps.load(tmp_path / "model.pt").model.decoder_kind == "mlp"
    assert "the time limit stopped the chains after" in done.err
    assert "warning: --edge-seconds 1 is less than the warm-up takes, some" in done.err
    assert json.loads(run("summary", tmp_path, "--json").out)["fdr"] == 0.37
    assert json.loads(run("summary", tmp_path, "--fdr", 0.2, "--json").out)["fdr"] == 0.2
    before = (tmp_path / "report.html").read_text()
    run("report", tmp_path)
    after = (tmp_path / "report.html").read_text()
    assert "37 %" in before and "37 %" in after


@pytest.mark.parametrize("command", ["report", "simulate"])
def test_a_folder_where_a_file_is_to_be_written(run, fitted, tmp_path, command):
    folder = [fitted[0]] if command == "report" else []
    done = run(command, *folder, "--out", tmp_path)
    assert done.code == 2 and "is a folder; give a file to write" in done.err
    assert not list(tmp_path.iterdir())


def test_topics_have_no_correlation_to_set(run, tmp_path):
    done = run("simulate", "--generator", "topics", "--rho", 0.5, "--out", tmp_path / "t.csv")
    assert done.code == 2 and "--rho: topics have no such setting" in done.err


def test_commands_on_a_folder_that_is_no_fit(run, tmp_path):
    for command in ("summary", "report"):
        done = run(command, tmp_path)
        assert done.code == 2
        assert "give a folder that `pyro-sparse fit` wrote" in done.err
        assert done.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.csv"], "there is no file 'absent.csv'"),
        (["TABLE", "--drop", "z9"], "drop: 'z9' is no column"),
        (["TABLE", "--factors", "6"], "--factors: got 6 for 6 columns"),
        (["TABLE", "--likelihood", "gauss"], "likelihood"),
        (["TABLE", "--likelihood", "poisson"], "a1"),
        (["TABLE", "--no-depth"], "--no-depth: goes with --likelihood poisson or negative_binomial"),
        (["TABLE", "--depth"], "--depth: goes with --likelihood poisson or negative_binomial"),
        (["TABLE", "--columns", "a1"], "TABLE: has 1 column"),
        (["TABLE", "--device", "abacus"], "device"),
        (["TABLE", "--restarts", "0"], "--restarts"),
        ([], "issing argument '"),
    ],
)
def test_bad_input_is_exit_code_2_without_a_traceback(run, table, tmp_path, arguments, message):
    done = run("fit", *(table if a == "TABLE" else a for a in arguments), "--out", tmp_path / "out", "--json")
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
    assert done.out == ""
    assert not (tmp_path / "out").exists()


def test_names_with_commas_are_quoted():
    assert cli._split(['a,"b,c"', "d e"]) == ["a", "b,c", "d e"]
    assert cli._split(['a, "b,c" ,,*d']) == ["a", "b,c", "*d"]
    assert cli._split(None) is None


def test_rows_of_counts_need_not_differ_in_depth(run, tmp_path):
    x = np.random.default_rng(0).poisson(3.0, size=(60, 4))
    pd.DataFrame(x, columns=list("abcd")).to_csv(tmp_path / "counts.csv", index=False)
    wanted = {"--depth": True, "--no-depth": False, None: "auto"}
    for option, depth in wanted.items():
        out = tmp_path / str(option)
        run("fit", tmp_path / "counts.csv", "-l", "poisson", "-k", 1, *[option] * bool(option),
            "--restarts", 1, "--steps", 5, "--edges", "score", "--out", out, "--json")  # fmt: skip
        assert ps.load(out / "model.pt").model.likelihood.size_factors is depth


@pytest.mark.slow
def test_what_an_edge_is_can_be_asked_and_is_refused_before_the_fit_where_it_cannot(run, tmp_path):
    rng = np.random.default_rng(0)
    x = np.repeat(rng.normal(size=(120, 2)), 3, axis=1) + 0.5 * rng.normal(size=(120, 6))
    pd.DataFrame(x, columns=list("abcdef")).to_csv(tmp_path / "x.csv", index=False)
    options = [tmp_path / "x.csv", *SHORT, "--edge", "practical"]
    bad = run("fit", *options, "--decoder", "mlp", "--out", tmp_path / "bad")
    assert bad.code == cli.BAD_INPUT and "--edge: practical is of standardised loadings" in bad.err
    assert not (tmp_path / "bad" / "model.pt").exists()
    pd.DataFrame(1 * (x > 0), columns=list("abcdef")).to_csv(tmp_path / "x01.csv", index=False)
    for table, likelihood in (("x.csv", "normal"), ("x01.csv", "bernoulli")):
        out = tmp_path / likelihood
        asked = [tmp_path / table, *options[1:], "-l", likelihood, "--decoder", "linear", "--edge-seconds", 1]
        done = run("fit", *asked, "--out", out, "--json")
        assert done.code in (0, cli.NOTHING_FOUND), done.err
        assert arviz_files.from_netcdf(out / "idata.nc").attrs["edge_means"] == "practical"


@pytest.mark.slow
def test_a_column_of_exposures(run, tmp_path):
    """It is no feature, reaches the fit and its parts, and has to be there."""
    rng = np.random.default_rng(0)
    hours = rng.uniform(0.2, 5, 120)
    x = rng.poisson(3 * hours[:, None] * np.exp(0.5 * np.repeat(rng.normal(size=(120, 2)), 3, axis=1)))
    frame = pd.DataFrame(x, columns=list("abcdef"))
    frame.assign(hours=hours).to_csv(tmp_path / "counts.csv", index=False)
    options = [tmp_path / "counts.csv", *SHORT, "-l", "poisson", "--exposure", "hours"]
    for edges in ("score", "mcmc"):
        out = tmp_path / edges
        done = run("fit", *options, "--edges", edges, "--edge-seconds", 1, "--out", out, "--json")
        assert done.code in (0, cli.NOTHING_FOUND), done.err
        assert json.loads(done.out)["features"] == 6
    found = ps.load(tmp_path / "score" / "model.pt")
    assert found.feature_names == list("abcdef") and "exposure" in found.table.row_units
    model = ps.models.SparseDecoder(6, 2, likelihood="poisson", decoder="linear")
    plain = ps.fit(model, frame, exposure=hours, restarts=2, steps=40, progress=False)
    np.testing.assert_allclose(found.weights, plain.weights, atol=1e-5)
    for i in range(2):
        run("fit", *options, "--out", tmp_path / "parts", "--restart-index", i)
    parts = sorted((tmp_path / "parts").glob("restart-*.pt"))
    done = run("merge", *parts, "--edges", "score", "--out", tmp_path / "parts", "--json")
    assert done.code in (0, cli.NOTHING_FOUND), done.err
    merged = ps.load(tmp_path / "parts" / "model.pt")
    np.testing.assert_allclose(merged.weights, plain.weights, atol=1e-3)
    absent = run("fit", *options[:-1], "hour", "--out", tmp_path / "no")
    assert absent.code == cli.BAD_INPUT and "--exposure: the table has no column 'hour'" in absent.err
    named = run(
        "fit", *options, "--columns", "a,b,c", "--edges", "score", "--out", tmp_path / "few", "--json"
    )
    assert json.loads(named.out)["features"] == 3


def test_traceback_on_request(run, monkeypatch):
    monkeypatch.setenv("PYRO_SPARSE_TRACEBACK", "1")
    monkeypatch.setattr(sys, "argv", ["pyro-sparse", "fit", "absent.csv"])
    with pytest.raises(FileNotFoundError, match=r"absent.csv"):
        cli.main()


def test_simulate_then_fit(run, tmp_path):
    done = run(
        "simulate", "--generator", "sim1", "--rows", 60, "--seed", 3, "--out", tmp_path / "s.csv", "--json"
    )
    said = json.loads(done.out)
    assert (said["rows"], said["features"], said["factors"], said["edges"]) == (60, 7, 2, 8)
    expected = ps.datasets.sim1(60, seed=3)
    np.testing.assert_allclose(pd.read_csv(tmp_path / "s.csv"), expected.x)
    np.testing.assert_array_equal(pd.read_csv(said["truth"], index_col=0), expected.support)


@pytest.mark.parametrize("generator", ["anchored60", "topics"])
def test_simulate_the_others(run, tmp_path, generator):
    done = run("simulate", "--generator", generator, "--rows", 40, "--out", tmp_path / "new" / "s.csv")
    assert done.code == 0 and "wrote" in done.err
    assert pd.read_csv(tmp_path / "new" / "s.csv").shape[0] == 40


def test_doctor(run):
    done = run("doctor", "--json")
    said = json.loads(done.out)
    if said["pyro_sparse"] is None:  # a checkout on the path: there is no metadata to read
        assert done.code == 1 and not said["ok"]
        pytest.skip("pyro_sparse is not installed")
    assert said["ok"] and said["versions"]["torch"]
    assert said["extras"]["cli"] is True
    assert "dev" not in said["extras"] or said["extras"]["dev"] in (True, False)
    printed = run("doctor")
    assert printed.code == 0 and "OMP_NUM_THREADS" in printed.out


@pytest.mark.parametrize("command", ["fit", "merge", "demo", "summary", "report", "simulate", "doctor"])
def test_every_help_has_an_example(run, command):
    done = run(command, "--help")
    assert done.code == 0
    assert f"pyro-sparse {command}" in done.out and "Example" in done.out


def test_an_interrupted_fit_is_saved(run, table, tmp_path, monkeypatch):
    real = ps.fit

    def interrupted(*arguments, **options):
        fit = real(*arguments, **options)
        fit.findings.append(Finding("training", "interrupted at step 3 of 40; this is the fit so far"))
        return fit

    monkeypatch.setattr(ps, "fit", interrupted)
    done = run("fit", table, *QUICK, "--out", tmp_path, "--json")
    assert done.code == 130
    assert json.loads(done.out)["interrupted"] is True
    assert (tmp_path / "model.pt").is_file()


def test_an_interruption_is_said_once(run, table, tmp_path, monkeypatch):
    advance = Run.advance

    def pressed(run):
        advance(run)
        if run.step == 8:
            raise KeyboardInterrupt

    monkeypatch.setattr(Run, "advance", pressed)
    done = run("fit", table, *QUICK, "--out", tmp_path)
    assert done.code == 130 and done.err.count("interrupted at step 8") == 1


def test_a_second_interruption_gives_scores(run, table, tmp_path, monkeypatch):
    real_fit, real_edges = ps.fit, ps.inference.Fit.edge_posterior

    def interrupted(*arguments, **options):
        fit = real_fit(*arguments, **options)
        fit.findings.append(Finding("training", "interrupted at step 3 of 40; this is the fit so far"))
        return fit

    def chains(self, method="auto", **options):
        if method != "score":
            raise KeyboardInterrupt
        return real_edges(self, method, **options)

    monkeypatch.setattr(ps, "fit", interrupted)
    monkeypatch.setattr(ps.inference.Fit, "edge_posterior", chains)
    done = run("fit", table, *SHORT, "--out", tmp_path, "--json")
    assert done.code == 130
    said = json.loads(done.out)
    assert said["interrupted"] is True and said["is_score"] is True and said["edge_method"] == "score"
    assert all((tmp_path / name).is_file() for name in ("model.pt", "idata.nc", "edges.csv", "report.html"))
    assert "come now (Ctrl-C again: its scores instead)" in done.err
    assert "edges have the fit's scores instead" in done.err
    assert run("summary", tmp_path).code == 0


def test_chains_that_are_stopped_early_count_as_interrupted(run, table, tmp_path, monkeypatch):
    real = ps.inference.Fit.edge_posterior

    def chains(self, method="auto", **options):
        found = real(self, "score", X=options["X"])
        found.attrs["interrupted"] = 1
        return found

    monkeypatch.setattr(ps.inference.Fit, "edge_posterior", chains)
    done = run("fit", table, *SHORT, "--out", tmp_path, "--json")
    assert done.code == 130 and json.loads(done.out)["interrupted"] is True
    assert "come now" not in done.err


@pytest.mark.parametrize("command", ["fit", "restart", "merge", "demo"])
def test_a_folder_that_cannot_be_written_is_refused_before_the_training(
    run, table, tmp_path, monkeypatch, command
):
    run("fit", table, *QUICK, "--restart-index", 0, "--out", tmp_path)
    given = {
        "fit": ["fit", table],
        "restart": ["fit", table, "--restart-index", 0],
        "merge": ["merge", tmp_path / "restart-0.pt"],
        "demo": ["demo"],
    }[command]
    for work in ("fit", "fit_restart", "merge"):
        monkeypatch.setattr(ps, work, lambda *_, **__: pytest.fail("it was trained"))
    (tmp_path / "file").write_text("")
    done = run(*given, "--out", tmp_path / "file")
    assert done.code == 2 and "file' cannot be a folder for the results (it is a file)" in done.err
    done = run(*given, "--out", tmp_path / "file" / "in" / "it")
    assert done.code == 2 and "--out: " in done.err and "Not a directory" in done.err


def test_the_command_that_is_printed_for_the_parts_can_be_pasted(run, table, tmp_path):
    done = run("fit", table, *QUICK, "--restart-index", 0, "--out", tmp_path / "my fit")
    command = done.err.split("pyro-sparse merge ")[1]
    assert shlex.split(command) == [f"{tmp_path}/my fit/restart-*.pt", "-o", f"{tmp_path}/my fit"]


def test_demo_prints_a_table_and_writes_a_report(run, tmp_path):
    done = run("demo", "--restarts", 1, "--steps", 20, "--edges", "score", "--out", tmp_path)
    assert done.code in (0, cli.NOTHING_FOUND)
    assert "false-discovery rate" in done.out
    assert (tmp_path / "report.html").is_file()
    assert len(pd.read_csv(tmp_path / "edges.csv")) == 27
    assert "done in" in done.err and "no edge is present" in done.err  # scores are not probabilities


def test_what_a_table_looks_like_is_said_once(run, table, tmp_path):
    frame = pd.read_csv(table, index_col=0)
    frame["b1"] = np.where(np.arange(len(frame)) % 9 == 0, -999.0, frame["b1"])
    frame.to_csv(tmp_path / "codes.csv")
    done = run("fit", tmp_path / "codes.csv", *QUICK, "--out", tmp_path / "out")
    assert (done.out + done.err).count("is -999 in") == 1


def test_a_full_disk_is_a_message(run, table, tmp_path, monkeypatch):
    """The model first: what is whole stays, and of what could not be written nothing is there."""

    def full(descriptor):
        if (tmp_path / "out" / "model.pt").exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    done = run("fit", table, *QUICK, "--out", tmp_path / "out")
    assert (
        done.code == cli.BAD_INPUT and "could not be written (No space left on device); make room" in done.err
    )
    # and the checkpoint: with --resume only the edges are left to do
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"model.pt", "checkpoint.pt"}
    ps.load(tmp_path / "out" / "model.pt")


@pytest.mark.slow
def test_a_full_disk_under_standard_output_is_a_message(fitted):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    command = [sys.executable, "-m", "pyro_sparse", "summary", fitted[0], "--json"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == cli.BAD_INPUT and "No space left on device" in done.stderr


def test_two_fits_do_not_write_to_one_folder(run, table, tmp_path):
    with results_folder(tmp_path / "out"):
        done = run("fit", table, *QUICK, "--out", tmp_path / "out")
        assert done.code == cli.BAD_INPUT and "another pyro-sparse writes to" in done.err
        with results_folder(tmp_path / "out", alone=False):  # a restart of the fit
            pass
    with results_folder(tmp_path / "out"):
        pass
    assert list((tmp_path / "out").iterdir()) == []


def test_names_that_are_formulas_or_commands(run, tmp_path):
    rng = np.random.default_rng(0)
    x = np.repeat(rng.normal(size=(60, 1)), 4, axis=1) + 0.1 * rng.normal(size=(60, 4))
    names = ["=1+1", "@b\x1b[31m", "-c", "<b>d</b>"]
    pd.DataFrame(x, columns=names, index=[f"+{i}r" for i in range(60)]).to_csv(tmp_path / "t.csv")
    done = run("fit", tmp_path / "t.csv", *QUICK, "--out", tmp_path / "out")
    assert done.code in (0, cli.NOTHING_FOUND) and "\x1b[31m" not in done.out + done.err
    edges = pd.read_csv(tmp_path / "out" / "edges.csv")
    assert set(edges["feature"]) == {"'=1+1", r"'@b\x1b[31m", "'-c", "<b>d</b>"}
    factors = pd.read_csv(tmp_path / "out" / "factors.csv", index_col=0)
    assert factors.index[3] == "'+3r"
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<b>d</b>" not in page and "\x1b" not in page
    assert ps.load(tmp_path / "out" / "model.pt").feature_names == names  # as they are, for the library


@pytest.mark.parametrize("name", ["model.pt", "idata.nc"])
def test_results_with_a_flipped_bit_are_refused(run, fitted, tmp_path, name):
    for path in fitted[0].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    damaged = bytearray((tmp_path / name).read_bytes())
    damaged[len(damaged) // 3] ^= 4
    (tmp_path / name).write_bytes(damaged)
    done = run("report", tmp_path)
    assert done.code == cli.BAD_INPUT and f"{name}' is not what was written (its SHA-256 differs)" in done.err


def test_covariates_are_columns_that_may_hold_anything(run, table, tmp_path):
    frame = pd.read_csv(table, index_col=0)
    site = np.where(np.arange(len(frame)) % 3 == 0, "north", "south")
    path, out = tmp_path / "sites.csv", tmp_path / "fit"
    frame.assign(site=site, age=np.arange(len(frame)) % 50).to_csv(path)
    done = run("fit", path, *QUICK, "--covariates", "age", "--groups", "site", "--out", out)
    assert done.code in (0, cli.NOTHING_FOUND), done.err
    assert "120 rows, 6 features" in done.err
    fit = ps.load(out / "model.pt")
    assert fit.feature_names == list(frame.columns)
    assert list(fit.covariate_effects.index) == ["age", "site = north", "site = south"]
    done = run("fit", path, *QUICK, "--groups", "batch", "--out", tmp_path / "other")
    assert done.code == cli.BAD_INPUT and "'batch'" in done.err and "groups" in done.err


def test_weights_of_rows_are_a_column(run, table, tmp_path):
    frame = pd.read_csv(table, index_col=0)
    frame = frame.fillna(frame.mean())
    path, out = tmp_path / "weighted.csv", tmp_path / "fit"
    frame.assign(w=np.arange(len(frame)) % 3 + 1).to_csv(path)
    linear = [*QUICK, "--decoder", "linear", "--sample-weight", "w"]
    done = run("fit", path, *linear, "--sample-weight-type", "survey", "--out", out)
    assert done.code in (0, cli.NOTHING_FOUND), done.err
    assert "120 rows, 6 features" in done.err and "survey weights: 120 rows" in done.err
    fit = ps.load(out / "model.pt")
    assert fit.feature_names == list(frame.columns) and len(pd.read_csv(out / "factors.csv")) == 120
    assert fit.table.weights.kind == "survey" and fit.table.weights.column == "w"
    assert "that count as 102 (survey weights)" in (out / "report.html").read_text()
    done = run("fit", path, *linear, "--out", tmp_path / "other")
    assert done.code == cli.BAD_INPUT and "wanted --sample-weight-type frequency (a row" in done.err
    done = run("fit", path, *QUICK, "--sample-weight", "v", "--out", tmp_path / "other")
    assert done.code == cli.BAD_INPUT and "--sample-weight: 'v' is no column" in done.err
