"""Saved fits and checkpoints that lack something, hold it in another shape, or have a bit flipped."""

from __future__ import annotations

import copy

import pytest
import torch

import pyro_sparse as ps
from benchmarks import _faults_files as faults_files
from pyro_sparse.inference.training import checkpoint as files

pytestmark = pytest.mark.usefixtures("hurried_module")


KINDS = ("fit", "transition fit", "multi-task fit")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A fit and a finished checkpoint of each kind, as metadata and tensors."""
    folder = tmp_path_factory.mktemp("files")
    found = {}
    for kind in faults_files.FITS:
        faults_files._fit(kind, folder / "run.pt").save(folder / "fit.pt")
        found[kind] = files.read(folder / "fit.pt", *KINDS), files.read(folder / "run.pt", "checkpoint")
        (folder / "run.pt").unlink()
    return found


def outcome(path, meta, tensors):
    """What reading a fit says: "" or a message of ours; anything else is an error of the test."""
    meta = {name: value for name, value in meta.items() if name not in ("format", "kind")} | {}
    files.write(path, outcome.kind, meta, tensors)
    try:
        ps.load(path)
    except ValueError as error:
        assert str(error).startswith(("load:", "checkpoint:")), error
        return str(error)
    return ""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind != "table")) for kind in faults_files.FITS]
)
def test_metadata_that_are_missing_or_of_another_kind(written, tmp_path, kind):
    (meta, tensors), _ = written[kind]
    outcome.kind = meta["kind"]
    path, needed = tmp_path / "fit.pt", set()
    assert outcome(path, meta, tensors) == ""
    for name in meta.keys() - {"format", "kind"}:
        if said := outcome(path, {n: v for n, v in meta.items() if n != name}, tensors):
            assert f"no '{name}'" in said and said.endswith("fit again")
            needed.add(name)
        for other in (None, 7, "text", [1], {"a": 1}):
            if type(other) is not type(meta[name]):
                outcome(path, meta | {name: other}, tensors)
    assert needed >= {"made", "fingerprint", "best", "dtype", "feature_names", "history", "settings"}
    for wrong in ({"best": 5}, {"best": -1}, {"history": {"step": [1], "elbo": [1, 2]}}):
        assert outcome(path, meta | wrong, tensors)
    if kind != "tasks":
        assert "feature_names has" in outcome(path, meta | {"feature_names": ["a"]}, tensors)


@pytest.mark.parametrize("kind", faults_files.FITS)
def test_arrays_that_are_missing_or_of_another_shape(written, tmp_path, kind):
    (meta, tensors), _ = written[kind]
    outcome.kind = meta["kind"]
    path, refused = tmp_path / "fit.pt", set()
    for name, array in tensors["arrays"].items():
        rest = {n: v for n, v in tensors["arrays"].items() if n != name}
        outcome(path, meta, {**tensors, "arrays": rest})
        if outcome(path, meta, {**tensors, "arrays": {**rest, name: array[..., :-1]}}):
            refused.add(name)
    strange = tensors["arrays"].keys() - refused
    assert not {n for n in strange if not n.startswith(("tasks.", "sequences.action", "alignment."))}, strange
    for name in tensors:
        assert outcome(path, meta, {n: v for n, v in tensors.items() if n != name})


@pytest.mark.parametrize("kind", faults_files.FITS)
def test_checkpoints_that_lack_something(written, tmp_path, kind):
    _, (meta, tensors) = written[kind]
    path, fingerprint = tmp_path / "run.pt", {"fingerprint": meta["fingerprint"]}

    def refused(about, held):
        files.write(path, "checkpoint", about, held)
        with pytest.raises(ValueError, match="^checkpoint: .*does not hold what this version"):
            faults_files._fit(kind, path)

    refused({}, tensors)
    for name in tensors:
        refused(fingerprint, {n: v for n, v in tensors.items() if n != name})
    refused(fingerprint, {"finished": [3], "under_way": None})
    for name in ("model", "random"):
        state = copy.deepcopy(tensors["finished"][0])
        inner = (
            state if name in state else next(v for v in state.values() if isinstance(v, dict) and name in v)
        )
        del inner[name]
        refused(fingerprint, {"finished": [state], "under_way": None})
    state = copy.deepcopy(tensors["finished"][0])
    inner = (
        state if "model" in state else next(v for v in state.values() if isinstance(v, dict) and "model" in v)
    )
    first = next(iter(inner["model"]))
    inner["model"][first] = torch.zeros(3, 7, 1)
    refused(fingerprint, {"finished": [state], "under_way": None})


def test_no_flipped_bit_is_accepted():
    assert faults_files.bitflips(24, 1000) == {"n": 24, "accepted": 0, "refused": 24, "other": 0}


@pytest.mark.slow
def test_killed_runs_go_on_to_the_same_numbers():
    found = faults_files.kills(4, 1000)
    assert found["n"] == 4 and found["same"] + found["refused"] == 4
