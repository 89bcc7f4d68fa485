"""Files that load with weights_only, and refusals by name."""

from __future__ import annotations

import io
import json
import os

import numpy as np
import pytest
import torch

from pyro_sparse._utils.atomic import with_digest
from pyro_sparse.inference.training import checkpoint as files
from pyro_sparse.models import SparseDecoder


def save_with_digest(content, path):
    held = io.BytesIO()
    torch.save(content, held)
    path.write_bytes(with_digest(held.getvalue()))


def test_round_trip_and_no_leftovers(tmp_path):
    path = tmp_path / "deep" / "file.pt"
    tensors = {"a": torch.arange(3), "nested": [{"b": torch.ones(2), "n": 3, "t": None}]}
    files.write(path, "checkpoint", {"note": "ä"}, tensors)
    meta, found = files.read(path, "checkpoint")
    assert meta["note"] == "ä" and torch.equal(found["a"], tensors["a"])
    assert torch.equal(found["nested"][0]["b"], torch.ones(2)) and found["nested"][0]["n"] == 3
    assert [p.name for p in path.parent.iterdir()] == ["file.pt"]


def test_a_write_that_is_cut_off_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file.pt"
    files.write(path, "checkpoint", {"step": 1}, {})

    def cut(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", cut)
    with pytest.raises(KeyboardInterrupt):
        files.write(path, "checkpoint", {"step": 2}, {})
    assert files.read(path, "checkpoint")[0]["step"] == 1
    assert [p.name for p in path.parent.iterdir()] == ["file.pt"]


def test_refusals(tmp_path, monkeypatch):
    path = tmp_path / "file.pt"
    with pytest.raises(FileNotFoundError, match="no file at .*file.pt"):
        files.read(path, "fit")
    path.write_text("not ours")
    with pytest.raises(ValueError, match="is not a pyro_sparse file"):
        files.read(path, "fit")
    torch.save({"meta": "{}", "tensors": {}}, path)
    with pytest.raises(ValueError, match="of an earlier version: it does not end in a digest"):
        files.read(path, "fit")
    save_with_digest({"weights": torch.ones(2)}, path)
    with pytest.raises(ValueError, match=r"is not a pyro_sparse file \(KeyError\)"):
        files.read(path, "fit")
    files.write(path, "checkpoint", {}, {})
    with pytest.raises(ValueError, match="holds a 'checkpoint', wanted a 'fit'"):
        files.read(path, "fit")
    monkeypatch.setattr(files, "FORMAT", files.FORMAT + 1)
    with pytest.raises(ValueError, match=r"has format \d, this version reads \d; fit again"):
        files.read(path, "checkpoint")


def test_code_in_a_file_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return exec, ("raise SystemExit",)

    save_with_digest({"meta": "{}", "tensors": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(ValueError, match=r"is not a pyro_sparse file \(UnpicklingError\)"):
        files.read(tmp_path / "evil.pt", "fit")


def test_a_digest_knows_shapes_and_what_is_not_there():
    x = np.arange(12.0)
    many = [(x,), (x.reshape(3, 4),), (x.reshape(4, 3),), (x, None), (None, x), (x[:6], x[6:]), (None,)]
    assert len({files.digest(*arrays) for arrays in many}) == len(many)
    assert files.digest(x[::2]) == files.digest(x[::2].copy())


def test_fingerprints_differ_by_name():
    one = files.fingerprint(SparseDecoder(6, 2), {"seed": 0})
    two = files.fingerprint(SparseDecoder(6, 3, decoder="linear"), {"seed": 1})
    assert files.differences(one, one) == ""
    assert files.differences(one, two) == (
        "decoder: 'mlp' there, 'linear' here, n_factors: 2 there, 3 here, seed: 0 there, 1 here"
    )
    assert json.loads(one)["likelihood"] == "normal"
    assert files.differences(one, files.fingerprint(SparseDecoder(6, 2), {})) == "seed: 0 there, None here"


def test_fingerprints_know_what_was_told_about_edges():
    def text(**told):
        return files.fingerprint(SparseDecoder(4, 2, **told), {})

    assert text() == text(anchors={}, required=[], edge_odds=None)
    said = files.differences(text(anchors={0: 1}), text())
    assert said == "anchors: '{\"items\": [[0, 1]]}' there, None here"
    odds = np.ones((4, 2))
    assert text(edge_odds=odds) == text(edge_odds=odds.tolist()) != text(edge_odds=2 * odds)
    large = np.ones((400, 2))
    longer = files.fingerprint(SparseDecoder(400, 2, edge_odds=large), {})
    assert len(longer) < 2000 and longer != files.fingerprint(SparseDecoder(400, 2, edge_odds=large + 1), {})
