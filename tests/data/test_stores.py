"""Every kind of store gives the rows it was written with; the order of an epoch; complaints."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from pyro_sparse.data import stores
from pyro_sparse.data.stores import BlockRows, ParquetRows, RowStore, SparseRows, open_rows, store_of
from tests._framed import Convertible

RNG = np.random.default_rng(0)
X = RNG.poisson(0.4, size=(700, 6)).astype(np.float32)
NAMES = [f"gene {j}" for j in range(6)]
CELLS = [f"cell {i}" for i in range(700)]


def annotated(x):
    anndata = pytest.importorskip("anndata")
    return anndata.AnnData(x, var=pd.DataFrame(index=NAMES), obs=pd.DataFrame(index=CELLS))


def h5ad(folder, x=None):
    annotated(sp.csr_matrix(X) if x is None else x).write_h5ad(folder / "x.h5ad")
    return folder / "x.h5ad"


def zarr_array(folder):
    zarr = pytest.importorskip("zarr")
    made = zarr.create_array(str(folder / "x.zarr"), shape=X.shape, chunks=(100, 6), dtype="f4")
    made[:] = X
    return folder / "x.zarr"


def zarr_annotated(folder):
    pytest.importorskip("zarr")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of formats to come
        annotated(sp.csr_matrix(X)).write_zarr(folder / "a.zarr")
    return folder / "a.zarr"


def hdf5(folder):
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("x", data=X, chunks=(64, 6))
    return h5py.File(folder / "x.h5")["x"]


def parquet(folder, frame=None, **options):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(X, columns=NAMES) if frame is None else frame
    frame.to_parquet(folder / "x.parquet", **{"row_group_size": 150, "index": False, **options})
    return folder / "x.parquet"


def npy(folder):
    np.save(folder / "x.npy", X)
    return folder / "x.npy"


def npz(folder):
    sp.save_npz(folder / "x.npz", sp.csr_matrix(X))
    return folder / "x.npz"


KINDS = {
    "csr": lambda folder: sp.csr_matrix(X),
    "csc": lambda folder: sp.csc_array(X),
    "coo": lambda folder: sp.coo_matrix(X),
    "array": lambda folder: X.astype(int),
    "npy": npy,
    "npz": npz,
    "h5ad": h5ad,
    "dense h5ad": lambda folder: h5ad(folder, X),
    "anndata": lambda folder: annotated(sp.csr_matrix(X)),
    "hdf5": hdf5,
    "zarr": zarr_array,
    "anndata zarr": zarr_annotated,
    "parquet": parquet,
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_that_were_written(kind, tmp_path):
    store = open_rows(KINDS[kind](tmp_path))
    assert (len(store), store.shape) == (700, (700, 6))
    index = np.random.default_rng(1).integers(0, 700, 90)
    found = store.rows(index)
    assert found.dtype == np.float32 and store.rows(index, np.float64).dtype == np.float64
    np.testing.assert_array_equal(found, X[index])
    at = 0
    for start, piece in store.pieces():
        assert start == at and sp.issparse(piece) == store.sparse
        at += piece.shape[0]
        np.testing.assert_array_equal(piece.toarray() if store.sparse else piece, X[start:at])
    assert at == 700
    few = store.read(140, 320)
    np.testing.assert_array_equal(few.toarray() if store.sparse else few, X[140:320])
    if "h5ad" in kind or "anndata" in kind:
        assert (store.feature_names, store.sample_names) == (NAMES, CELLS)
    if kind == "parquet":
        assert store.feature_names == NAMES


@pytest.mark.parametrize("made", [sp.csr_matrix, np.asarray])
@pytest.mark.parametrize("kind", ["memory", "h5ad", "zarr"])
def test_a_layer_in_place_of_x(kind, made, tmp_path):
    table = annotated(np.log1p(X))
    table.layers["counts"] = made(X)
    source = table if kind == "memory" else tmp_path / f"x.{kind}"
    if kind == "h5ad":
        table.write_h5ad(source)
    if kind == "zarr":
        pytest.importorskip("zarr")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of formats to come
            table.write_zarr(source)
    store = open_rows(source, layer="counts")
    index = np.array([600, 2, 70])
    np.testing.assert_array_equal(store.rows(index), X[index])
    assert (store.feature_names, store.sample_names) == (NAMES, CELLS)
    assert store.sparse == (made is sp.csr_matrix)
    np.testing.assert_array_equal(open_rows(source).rows(index), np.log1p(X)[index])
    with pytest.raises(ValueError, match=r"layer: got 'raw', the AnnData has \['counts'\]; give one of them"):
        open_rows(source, layer="raw")


@pytest.mark.parametrize("layer", [None, "counts"])
def test_of_an_anndata_file_nothing_else_is_read(tmp_path, layer):
    """Layers, columns of obs and obsm may each be as large as X: no dataset of theirs is touched."""
    h5py = pytest.importorskip("h5py")
    table = annotated(np.log1p(X))
    table.layers["counts"], table.layers["other"], table.obsm["pca"] = X, X, X
    table.obs["batch"] = 1.0
    table.write_h5ad(tmp_path / "x.h5ad")
    read = h5py.Dataset.__getitem__
    with pytest.MonkeyPatch.context() as patch:
        seen = set()
        patch.setattr(
            h5py.Dataset, "__getitem__", lambda data, *at: (seen.add(data.name), read(data, *at))[1]
        )
        open_rows(tmp_path / "x.h5ad", layer=layer).rows(np.array([3]))
    own = "/X" if layer is None else "/layers/counts"
    arrays = {
        name.removesuffix("/values").removesuffix("/mask") for name in seen
    }  # of text that may be missing
    assert own in arrays and arrays <= {own, "/obs/_index", "/var/_index"}


def test_an_anndata_file_without_x(tmp_path):
    table = annotated(None)
    table.layers["counts"] = X
    table.write_h5ad(tmp_path / "x.h5ad")
    with pytest.raises(ValueError, match=r"source: 'x.h5ad' has no X; give layer=, of \['counts'\]"):
        open_rows(tmp_path / "x.h5ad")
    np.testing.assert_array_equal(open_rows(tmp_path / "x.h5ad", layer="counts").rows(np.array([3])), X[[3]])


@pytest.mark.filterwarnings("ignore:.*very old version of AnnData")
def test_an_anndata_file_of_old(tmp_path):
    h5py = pytest.importorskip("h5py")
    pytest.importorskip("anndata")
    with h5py.File(tmp_path / "x.h5ad", "w") as file:
        file["X"] = X[:3]
        for axis, names in (("obs", CELLS[:3]), ("var", NAMES)):
            file[axis] = np.array([(name.encode(),) for name in names], dtype=[("index", "S9")])
    store = open_rows(tmp_path / "x.h5ad")
    np.testing.assert_array_equal(store.rows(np.array([1])), X[[1]])
    assert (store.feature_names, store.sample_names) == (NAMES, CELLS[:3])


@pytest.mark.parametrize("kind", ["array", "npy", "zarr"])
def test_a_layer_is_of_an_anndata(kind, tmp_path):
    with pytest.raises(ValueError, match="layer: is for an AnnData.*; leave it out"):
        open_rows(KINDS[kind](tmp_path), layer="counts")


@pytest.mark.parametrize("kind", ["csr", "h5ad", "parquet"])
def test_an_epoch_has_every_row_once_in_an_order_of_its_own(kind, tmp_path):
    store = open_rows(KINDS[kind](tmp_path))
    index = np.arange(5, 700, 2)
    one, again, other = (store.shuffled(index, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(np.sort(one), np.arange(len(index)))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    assert abs(np.corrcoef(one, np.arange(len(one)))[0, 1]) < 0.2


def test_an_epoch_reads_each_block_once(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "CACHE_BYTES", 2 * 4 * 64 * 6)  # room for two blocks
    store = BlockRows(hdf5(tmp_path))
    store._blocks(np.append(np.arange(0, 700, 64), 700))
    read = []
    monkeypatch.setattr(store, "read", lambda a, b: read.append(a) or X[a:b])
    index = np.arange(700)
    order = store.shuffled(index, 3)
    for batch in np.array_split(order, 20):
        np.testing.assert_array_equal(store.rows(index[batch]), X[batch])
    assert store.held == 2 and sorted(read) == list(range(0, 700, 64))
    assert len(store._open) <= 3


def test_entries_given_twice_are_summed_and_the_callers_matrix_stays_as_it_is():
    twice = sp.csr_matrix((np.ones(3), [1, 1, 0], [0, 2, 3]), shape=(2, 3))
    assert list(SparseRows(twice).read(0, 2).data) == [2, 1] and twice.nnz == 3


def test_empty_cells_of_parquet_are_missing(tmp_path):
    frame = pd.DataFrame({"a": [1.0, None, 3.0], "b": pd.array([1, None, 2], dtype="Int64"), "c": [True] * 3})
    found = open_rows(parquet(tmp_path, frame)).rows(np.arange(3))
    np.testing.assert_array_equal(found, [[1, 1, 1], [np.nan, np.nan, 1], [3, 2, 1]])


@pytest.mark.parametrize("name", [None, "who"])
def test_pandas_index_in_parquet_names_the_rows(tmp_path, name):
    """A shuffled frame's index is a column of the file, of text or of numbers, and no feature."""
    frame = pd.DataFrame(X, columns=NAMES, index=CELLS if name else None).rename_axis(name)
    mixed = frame.sample(frac=1, random_state=0)
    store = open_rows(parquet(tmp_path, mixed, index=None))
    assert (store.shape, store.feature_names) == ((700, 6), NAMES)
    assert store.sample_names == [str(i) for i in mixed.index]
    np.testing.assert_array_equal(store.rows(np.arange(5, 300)), mixed.to_numpy()[5:300])
    store = open_rows(parquet(tmp_path, frame.reset_index(drop=True), index=None))  # a range is not written
    assert store.shape == (700, 6) and store.sample_names is None
    with pytest.raises(ValueError, match=r"X: has shape \(700, 0\), wanted rows and features"):
        open_rows(parquet(tmp_path, mixed[[]], index=None))


def test_what_is_read_by_rows_unasked(monkeypatch, tmp_path):
    small, frame = sp.csr_matrix(X), pd.DataFrame(X)
    assert store_of(small) is None and store_of(X) is None
    assert isinstance(store_of(open_rows(X)), RowStore)
    monkeypatch.setattr(stores, "LARGE", 1000)
    assert isinstance(store_of(small), SparseRows) and isinstance(store_of(annotated(small)), SparseRows)
    assert isinstance(store_of(hdf5(tmp_path)), BlockRows)
    assert store_of(np.load(npy(tmp_path), mmap_mode="r")).shape == X.shape
    assert store_of(X) is None and store_of(frame) is None and store_of([[1.0]]) is None


@pytest.mark.parametrize("made", [lambda frame: frame, Convertible])
def test_tables_with_names_keep_them(made):
    frame = pd.DataFrame(X, columns=NAMES).assign(last=pd.array([True, None] * 350, dtype="boolean"))
    store = open_rows(made(frame))
    assert store.feature_names == [*NAMES, "last"] and store.sample_names[3] == "3"
    np.testing.assert_array_equal(store.rows(np.array([3, 0]))[:, [1, 6]], [[X[3, 1], np.nan], [X[0, 1], 1]])
    with pytest.raises(TypeError, match="X: column 'last' holds text .'text'.*, wanted numbers"):
        open_rows(made(frame.assign(last="text").astype({"last": object})))


def test_names_of_ones_own():
    assert open_rows(X, feature_names=range(6)).feature_names == ["0", "1", "2", "3", "4", "5"]
    with pytest.raises(ValueError, match=r"feature_names: has 2 names, X has shape \(700, 6\); wanted 6"):
        open_rows(X, feature_names=["a", "b"])


def test_complaints(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        open_rows(tmp_path / "absent.npy")
    (tmp_path / "x.csv").write_text("a,b")
    with pytest.raises(ValueError, match=r"ends in '.csv', wanted .npy"):
        open_rows(tmp_path / "x.csv")
    with pytest.raises(TypeError, match="X: got a list of shape None, wanted a table"):
        open_rows([1, 2])
    with pytest.raises(TypeError, match="X: holds <U1, wanted numbers"):
        open_rows(np.array([["a", "b"]]))
    with pytest.raises(TypeError, match="X: holds complex64, wanted numbers"):
        open_rows(sp.csr_matrix(X * 1j))
    with pytest.raises(ValueError, match=r"stored by columns \(CSC\) on disk.*tocsr"):
        open_rows(h5ad(tmp_path, sp.csc_matrix(X)))
    with pytest.raises(TypeError, match=r"column 'b' holds (large_)?string, wanted numbers \(1 such"):
        ParquetRows(parquet(tmp_path, pd.DataFrame({"a": [1.0], "b": ["x"]})))
    monkeypatch.setattr(stores, "CACHE_BYTES", 100)
    with pytest.raises(ValueError, match="its row groups have 150 rows of 6 features.*fewer rows in each"):
        open_rows(parquet(tmp_path))
