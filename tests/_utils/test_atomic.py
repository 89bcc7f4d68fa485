"""Files are whole or absent, also on a full disk; a digest notices every changed bit."""

from __future__ import annotations

import errno
import os
import resource
import signal
import threading

import numpy as np
import pytest
import xarray as xr

from pyro_sparse._utils.atomic import read_verified, with_digest, write_atomically
from pyro_sparse.posterior.arviz import from_datasets, from_netcdf, get_group, to_netcdf


def edges(n=50):
    x = xr.Dataset(
        {"p": (("feature",), np.linspace(0, 1, n))}, coords={"feature": [f"é{i}" for i in range(n)]}
    )
    return from_datasets({"edge_posterior": x}, {"note": "ä", "fit": 3})


def full_disk(monkeypatch, at="fsync"):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, at, full)


def test_what_is_written_is_there_and_nothing_else(tmp_path):
    path = tmp_path / "a.csv"
    assert write_atomically(path, b"one") == path
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two" and os.listdir(tmp_path) == ["a.csv"]
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask  # not the mode of a temporary file


@pytest.mark.parametrize("at", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, at):
    path = tmp_path / "a.csv"
    write_atomically(path, b"old")
    full_disk(monkeypatch, at)
    with pytest.raises(
        OSError, match=r"--out: '.*a.csv' could not be written \(No space left.*; make room"
    ) as said:
        write_atomically(path, b"new", "--out")
    assert said.value.errno == errno.ENOSPC
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a.csv"]


def test_a_limit_on_sizes_is_a_message(tmp_path):
    """The system's own refusal, half way through a file; in a process of its own, for limits stay."""
    (tmp_path / "said").touch()
    (tmp_path / "folder").mkdir()
    child = os.fork()
    if child == 0:
        try:
            (tmp_path / "said").write_bytes(bytes(900))
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
            write_atomically(tmp_path / "folder" / "a", bytes(5000))
        except OSError as error:
            (tmp_path / "said").write_text(str(error))
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert "ulimit -f" in (tmp_path / "said").read_text()
    assert os.listdir(tmp_path / "folder") == []


def test_symbolic_links_stay_and_pipes_are_written_to(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"new"
    os.mkfifo(tmp_path / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write_atomically(tmp_path / "pipe", b"through")
    reader.join(5)
    assert got == [b"through"]


def test_readers_never_see_half_a_file(tmp_path):
    """One process writes two contents in turn, and is killed: all that is ever read is one of them."""
    path, contents = tmp_path / "a", [bytes([i]) * 300_000 for i in (1, 2)]
    write_atomically(path, contents[0])
    child = os.fork()
    if child == 0:
        while True:
            for content in contents:
                write_atomically(path, content)
    try:
        seen = {path.read_bytes() for _ in range(200)}
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert seen <= set(contents) and path.read_bytes() in contents


def test_every_single_bit_counts(tmp_path):
    path, whole = tmp_path / "a", with_digest(b"payload")
    path.write_bytes(whole)
    assert read_verified(path) == b"payload"
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="path: .*(SHA-256 differs|does not end in a digest)"):
            read_verified(path)
    for other in (b"", whole[:-1], whole + b"\n", whole[1:]):
        path.write_bytes(other)
        with pytest.raises(ValueError, match="path: .*; (take|give) "):
            read_verified(path)


def test_netcdf_is_what_arviz_reads(tmp_path):
    idata = edges()
    path = to_netcdf(idata, tmp_path / "deep" / "idata.nc")
    with xr.open_dataset(path, group="edge_posterior", engine="h5netcdf") as plain:
        xr.testing.assert_equal(plain.load(), get_group(idata, "edge_posterior"))
    back = from_netcdf(path)
    xr.testing.assert_equal(get_group(back, "edge_posterior"), get_group(idata, "edge_posterior"))
    assert back.attrs["note"] == "ä" and int(back.attrs["fit"]) == 3
    assert os.listdir(path.parent) == ["idata.nc"]


def test_netcdf_with_a_flipped_bit_or_from_elsewhere_is_refused(tmp_path):
    path = to_netcdf(edges(), tmp_path / "idata.nc")
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(20):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="SHA-256|digest"):
            from_netcdf(path)
    edges()["edge_posterior"].to_netcdf(path, engine="h5netcdf")
    with pytest.raises(ValueError, match="does not end in a digest"):
        from_netcdf(path)


def test_netcdf_on_a_full_disk_is_a_message(tmp_path, monkeypatch):
    to_netcdf(edges(), tmp_path / "idata.nc")
    full_disk(monkeypatch)
    with pytest.raises(OSError, match="idata.nc' could not be written .*make room"):
        to_netcdf(edges(60), tmp_path / "idata.nc")
    assert get_group(from_netcdf(tmp_path / "idata.nc"), "edge_posterior").sizes["feature"] == 50
