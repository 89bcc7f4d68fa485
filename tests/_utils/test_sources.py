"""Damaged, empty, huge and strange files are refused with a message before a library trips over them."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zipfile

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import pyro_sparse as ps
from pyro_sparse._utils import sources as _sources
from pyro_sparse._utils.sources import check_sparse, reading
from pyro_sparse.data.files import read_table
from pyro_sparse.data.read import read_array
from pyro_sparse.data.stores import open_rows

X = np.random.default_rng(0).poisson(0.5, (30, 4)).astype(float)


def broken(kind, where="indices", value=99):
    """A sparse matrix of which one index leads out of memory, as no constructor of scipy would make it."""
    matrix = getattr(sp, f"{kind}_matrix")(X)
    getattr(matrix, where)[-1] = value
    return matrix


def save(matrix, path):
    """scipy refuses to write some of them."""
    axes = {"indices": matrix.indices, "indptr": matrix.indptr}
    np.savez(path, format=matrix.format.encode(), shape=matrix.shape, data=matrix.data, **axes)
    return path


@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize(("where", "value"), [("indices", 99), ("indices", -1), ("indptr", 10**6)])
def test_a_sparse_matrix_with_an_index_out_of_range(tmp_path, kind, where, value):
    matrix, file = broken(kind, where, value), tmp_path / "x.npz"
    save(matrix, file)
    for read in (check_sparse, read_array, open_rows):
        with pytest.raises(
            ValueError, match="X: is a damaged sparse matrix .*; its indices do not fit its shape"
        ):
            read(matrix)
    for read, argument in ((read_table, "path"), (open_rows, "source|X")):
        with pytest.raises(ValueError, match=f"({argument}).*(damaged sparse matrix|cannot be read as .npz)"):
            read(file)


def test_a_sound_sparse_matrix_is_left_in_peace():
    for kind in ("csr", "csc", "bsr", "coo", "lil", "dok", "dia"):
        check_sparse(getattr(sp, f"{kind}_matrix")(X))
        check_sparse(getattr(sp, f"{kind}_array")(X))


def test_backed_and_stored_anndata_with_an_index_out_of_range(tmp_path):
    anndata, h5py = pytest.importorskip("anndata"), pytest.importorskip("h5py")
    path = tmp_path / "x.h5ad"
    anndata.AnnData(sp.csr_matrix(X)).write_h5ad(path)
    assert read_table(path).shape == X.shape
    with h5py.File(path, "a") as file:
        file["X/indices"][-1] = 10**6
    with pytest.raises(ValueError, match="path: .*(damaged sparse matrix|cannot be read)"):
        read_table(path)
    with pytest.raises(ValueError, match="X: rows 0 to 29: is a damaged sparse matrix"):
        open_rows(path).rows(np.arange(30))


@pytest.mark.parametrize("text", [b"a,b\n1,2\n3,4\x005\n", b"a\0,b\n1,2\n"])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_nul_bytes_change_no_number(tmp_path, text, ending):
    path = tmp_path / f"x.csv{ending}"
    path.write_bytes(gzip.compress(text) if ending else text)
    line = text[: text.index(b"\0")].count(b"\n") + 1
    with pytest.raises(ValueError, match=f"path: '{path.name}' has a NUL byte in line {line}"):
        read_table(path)


def test_utf_16_is_read_where_it_is_marked_and_named_where_it_is_not(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("größe,b\n1,2\n", encoding="utf-16")
    assert list(read_table(path).columns) == ["größe", "b"]
    path.write_text("a,b\n1,2\n", encoding="utf-16-le")
    with pytest.raises(ValueError, match="NUL byte in line 1.*encoding='utf-16-le'"):
        read_table(path)
    assert read_table(path, encoding="utf-16-le").iloc[0].tolist() == [1.0, 2.0]
    path.write_text("a,b\n1\0,2\n", encoding="utf-16")
    with pytest.raises(ValueError, match="NUL character"):
        read_table(path)


def test_long_fields(tmp_path):
    long = "z" * 131_073
    for text in (f"{long},b\n1,2\n", f"a,b\n1,{long}\n3,4\n", f'a,b\n1,2,"{long}\n', f'a,"{long}'):
        (tmp_path / "x.csv").write_text(text)
        with pytest.raises(ValueError, match="^(path|columns): ") as said:
            read_table(tmp_path / "x.csv")
        assert len(str(said.value)) < 1000
    (tmp_path / "x.csv").write_text(f"a,b\n1,{'0' * 131_073}1\n3,4\n")
    assert read_table(tmp_path / "x.csv")["b"].tolist() == [1, 4]


def files(folder):
    """One sound file of each kind: its name to the reader."""
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame.to_csv(folder / "x.csv.gz", index=False)
    frame.to_csv(folder / "x.csv.bz2", index=False)
    frame.to_csv(folder / "x.csv.xz", index=False)
    np.savez_compressed(folder / "x.npz", X=X)
    sp.save_npz(folder / "sparse.npz", sp.csr_matrix(X))
    np.save(folder / "x.npy", X)
    readers = dict.fromkeys(["x.csv.gz", "x.csv.bz2", "x.csv.xz", "x.npz", "sparse.npz"], read_table)
    readers |= {"x.npy": open_rows}
    if _has("pyarrow"):
        frame.to_parquet(folder / "x.parquet")
        readers["x.parquet"] = read_table
    if _has("anndata"):
        import anndata

        anndata.AnnData(X).write_h5ad(folder / "x.h5ad")
        readers["x.h5ad"] = read_table
    return readers


def _has(name):
    try:
        __import__(name)
    except ImportError:
        return False
    return True


def test_empty_and_truncated_files(tmp_path):
    for name, read in files(tmp_path).items():
        path = tmp_path / name
        read(path)
        whole = path.read_bytes()
        for share in (0, 0.3, 0.6, 0.95):
            path.write_bytes(whole[: int(share * len(whole))])
            with pytest.raises(ValueError, match="^(path|source): .*; ") as said:
                read(path)
            assert ("is empty (0 bytes)" in str(said.value)) == (share == 0)
            if read is read_table and not name.startswith("x.csv"):
                with pytest.raises(ValueError, match="^source: |^X: "):
                    open_rows(path)
    (tmp_path / "x.csv.zip").write_bytes(b"PK")
    with pytest.raises(ValueError, match="ends in '.zip', wanted .csv"):
        read_table(tmp_path / "x.csv.zip")


def test_pipes_devices_and_folders(tmp_path):
    os.mkfifo(tmp_path / "x.csv")
    os.mkfifo(tmp_path / "x.npy")
    os.mkfifo(tmp_path / "x.pt")
    (tmp_path / "y.npz").mkdir()
    with pytest.raises(
        ValueError, match="path: .* is a pipe, and a table is read more than once; write it to a file"
    ):
        read_table(tmp_path / "x.csv")
    with pytest.raises(ValueError, match="source: .* is a pipe"):
        open_rows(tmp_path / "x.npy")
    with pytest.raises(ValueError, match="checkpoint: .* is a folder, pipe or device"):
        ps.load(tmp_path / "x.pt")
    with pytest.raises(FileNotFoundError, match="path: .* is a folder"):
        read_table(tmp_path / "y.npz")
    with pytest.raises(FileNotFoundError, match="source: .* is a folder"):
        open_rows(tmp_path / "y.npz")
    (tmp_path / "z.csv").symlink_to("/dev/zero")
    with pytest.raises(ValueError, match="is a device"):
        read_table(tmp_path / "z.csv")


def test_a_million_by_a_million_is_not_made_dense(tmp_path, monkeypatch):
    huge = sp.csr_matrix(([1.0], ([0], [0])), shape=(10**6, 10**6))
    sp.save_npz(tmp_path / "x.npz", huge)
    with pytest.raises(
        ValueError, match=r"path: .*1000000 x 1000000 cells it would take 8,000.0 GB.*open_rows"
    ):
        read_table(tmp_path / "x.npz")
    with pytest.raises(ValueError, match=r"mask: as a dense table of 1000000 x 1000000 cells"):
        read_array(huge, "mask")
    if _has("anndata"):
        import anndata

        anndata.AnnData(sp.csr_matrix((2000, 2000))).write_h5ad(tmp_path / "x.h5ad")
        monkeypatch.setattr(_sources, "memory_limit", lambda: 1e7)
        with pytest.raises(ValueError, match="path: X in .*2000 x 2000 cells"):
            read_table(tmp_path / "x.h5ad")


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_text_that_unpacks_to_far_too_much(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(_sources, "_BOMB_BYTES", 2**20)
    ending = {gzip.compress: "gz", bz2.compress: "bz2", lzma.compress: "xz"}[pack]
    path = tmp_path / f"x.csv.{ending}"
    path.write_bytes(pack(b"a,b\n" + b"0,0\n" * 2**19))
    with pytest.raises(ValueError, match="path: .* over 250 times its size.*unpack it yourself"):
        read_table(path)
    monkeypatch.setattr(_sources, "_BOMB_RATIO", 10**9)
    monkeypatch.setattr(_sources, "memory_limit", lambda: 2.0**19)
    with pytest.raises(ValueError, match="path: .*a table may take half of the memory.*; give fewer"):
        read_table(path)


def test_archives_that_unpack_to_far_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr(_sources, "_BOMB_BYTES", 2**21)
    np.savez_compressed(tmp_path / "x.npz", X=np.zeros((1000, 1000)))
    for read in (read_table, open_rows):
        with pytest.raises(ValueError, match="(path|source): .* over 250 times its size"):
            read(tmp_path / "x.npz")
    header = np.lib.format.header_data_from_array_1_0(np.zeros((2, 2)))
    with zipfile.ZipFile(tmp_path / "lies.npz", "w") as archive, archive.open("X.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {**header, "shape": (10**7, 10**7)})
    with pytest.raises(ValueError, match="path: .*lies.npz"):
        read_table(tmp_path / "lies.npz")


def test_hdf5_that_unpacks_to_far_too_much(tmp_path):
    h5py = pytest.importorskip("h5py")
    pytest.importorskip("anndata")
    with h5py.File(tmp_path / "x.h5ad", "w") as file:
        file.create_dataset("X", (10**6, 10**6), "f4", chunks=(100, 100), compression="gzip")
    with pytest.raises(ValueError, match="path: .*unpacks to 4,000.0 GB"):
        read_table(tmp_path / "x.h5ad")


def test_ours_pass_and_theirs_are_explained(tmp_path):
    with pytest.raises(ValueError, match="^path: ours$"), reading(tmp_path, ".csv"):
        raise ValueError("path: ours")
    with pytest.raises(ModuleNotFoundError), reading(tmp_path, ".csv"):
        raise ModuleNotFoundError("path: needs")
    with pytest.raises(ValueError, match=r"cannot be read as .csv \(KeyError: 'x'\); is the file complete"):
        with reading(tmp_path, ".csv"):
            raise KeyError("x")
    with pytest.raises(ValueError, match="more than fits into memory"), reading(tmp_path, ".csv"):
        raise MemoryError
