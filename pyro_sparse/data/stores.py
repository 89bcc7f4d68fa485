"""Tables larger than memory, read a few rows at a time: `open_rows`, and the `RowStore` it returns.

One abstraction, five kinds of source: scipy sparse matrices, arrays (also memory-mapped, HDF5, Zarr), the
sparse matrix of a backed AnnData, and Parquet. A store says its shape and gives dense rows; nothing here
ever makes the whole table dense. Where random rows are slow to read, the store has *blocks* of neighbouring
rows: an epoch takes the blocks in random order, some at a time, and the rows of those in random order.
"""

from __future__ import annotations

import os
import zipfile
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy.sparse as sp

from .._utils.sources import check_archive, check_file, check_sparse, reading
from .._utils.types import TableLike
from .columns import as_frame, as_numbers

if TYPE_CHECKING:
    from types import ModuleType

    import anndata
    import pyarrow

__all__ = ["ArrayRows", "BlockRows", "ParquetRows", "RowStore", "SparseRows", "open_rows", "store_of"]

LARGE = 25_000_000  # cells; a smaller table is read into memory whatever its container (200 MB of float64)
CACHE_BYTES = 256e6  # blocks held at a time
BLOCK_CELLS = 1_000_000  # of a block of a dense array, unless the file's own pieces are larger
BLOCK_ROWS = 256  # of a block at most, unless the file's own pieces are larger
MOST_BLOCKS = 64  # held at a time, also where they are small
PIECE_CELLS = 4_000_000  # of a dense piece in a pass over everything (32 MB of float64)


class RowStore:
    """Base class: a numeric table of which rows can be had, and no more.

    Attributes
    ----------
    shape : (int, int)
        Rows and features.
    sparse : bool
        Whether cells that are not stored are zero; such a table has no missing cells. Otherwise NaN is one.
    feature_names, sample_names : list of str or None
        Where the source has names.
    starts : ndarray of int or None
        First row of each block, and the number of rows; None where any row is at hand.

    Notes
    -----
    A kind of your own defines `shape` and `read`, and either `starts` or `rows`.
    """

    shape: tuple[int, int]
    sparse: bool = False
    feature_names: list[str] | None = None
    sample_names: list[str] | None = None
    starts: np.ndarray | None = None
    held = MOST_BLOCKS

    def __len__(self) -> int:
        return self.shape[0]

    def read(self, start: int, stop: int) -> Any:
        """Neighbouring rows as they are stored: an array, or a scipy CSR matrix if `sparse`."""
        raise NotImplementedError

    def rows(self, index: np.ndarray, dtype: npt.DTypeLike = np.float32) -> np.ndarray:
        """These rows, dense: (row, feature).

        Parameters
        ----------
        index : ndarray of int
            Numbers of rows, in any order.
        dtype : dtype
        """
        raise NotImplementedError

    def pieces(self) -> Iterator[tuple[int, Any]]:
        """The whole table once, in order: number of the first row, and what `read` says."""
        step = max(1, PIECE_CELLS // self.shape[1])
        for start in range(0, len(self), step):
            yield start, self.read(start, min(start + step, len(self)))

    def shuffled(self, index: np.ndarray, seed: int) -> np.ndarray:
        """Order of an epoch: positions in `index`, every one once, such that each block is read once.

        Parameters
        ----------
        index : ndarray of int
            The rows that take part.
        seed : int
        """
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(index))
        if self.starts is None:
            return order
        turn = rng.permutation(len(self.starts) - 1) // self.held  # which blocks are open together
        return order[np.argsort(turn[self._block_of(index[order])], kind="stable")]

    def _block_of(self, index: np.ndarray) -> np.ndarray:
        assert self.starts is not None
        return np.searchsorted(self.starts, index, side="right") - 1


class SparseRows(RowStore):
    """Rows of a scipy sparse matrix in memory; anything but CSR is converted to it, which makes a copy.

    Parameters
    ----------
    matrix : scipy.sparse matrix or array
    """

    sparse = True

    def __init__(self, matrix: sp.spmatrix | sp.sparray):
        check_sparse(matrix)
        matrix = matrix.tocsr()
        if not matrix.has_canonical_format:  # entries given twice are to be summed before they are judged
            matrix = matrix.copy()
            matrix.sum_duplicates()
        self.matrix, self.shape = matrix, matrix.shape

    def read(self, start: int, stop: int) -> Any:
        return self.matrix[start:stop]

    def rows(self, index: np.ndarray, dtype: npt.DTypeLike = np.float32) -> np.ndarray:
        return self.matrix[index].astype(dtype).toarray()


class ArrayRows(RowStore):
    """Rows of an array in memory or of a memory-mapped one, without a copy of it.

    Parameters
    ----------
    array : ndarray (row, feature)
    """

    def __init__(self, array: np.ndarray):
        self.array, self.shape = array, (array.shape[0], array.shape[1])

    def read(self, start: int, stop: int) -> Any:
        return np.asarray(self.array[start:stop], dtype=float)

    def rows(self, index: np.ndarray, dtype: npt.DTypeLike = np.float32) -> np.ndarray:
        order = np.argsort(index, kind="stable")  # neighbours on a disk one after the other
        values = np.empty((len(index), self.shape[1]), dtype)
        values[order] = self.array[index[order]]
        return values


class Sliced(Protocol):
    """What neighbouring rows can be read of: a dataset on disk, or an array."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: slice, /) -> npt.ArrayLike | sp.spmatrix | sp.sparray: ...


class BlockRows(RowStore):
    """Rows of what is read by slices: HDF5 and Zarr arrays, the sparse matrix of a backed AnnData.

    Blocks are kept until there is no room for more, so that an epoch in the order of `shuffled` reads each
    once.

    Parameters
    ----------
    source : object
        With a `shape`, and neighbouring rows by ``source[start:stop]``: arrays, or scipy sparse matrices.
    sparse : bool
        Which of the two.
    """

    def __init__(self, source: Sliced, sparse: bool = False):
        self.source, self.sparse = source, sparse
        self.shape = (int(source.shape[0]), int(source.shape[1]))
        chunk = 1 if sparse else (getattr(source, "chunks", None) or [1])[0]
        wanted = BLOCK_ROWS if sparse else max(1, min(BLOCK_ROWS, BLOCK_CELLS // self.shape[1]))
        step = int(chunk) * max(1, wanted // int(chunk))  # whole chunks: a part of one costs as much as all
        self._blocks(np.append(np.arange(0, len(self), step), len(self)))

    def _blocks(self, starts: np.ndarray) -> None:
        self.starts, self._open = starts, OrderedDict[int, Any]()
        # bytes in single precision; how full a sparse block is shows when it is read: a tenth is assumed
        largest = 4 * int(np.diff(starts).max(initial=0)) * self.shape[1] * (0.1 if self.sparse else 1)
        if largest > 4 * CACHE_BYTES:
            kind = "chunks" if hasattr(self, "source") else "row groups"
            raise ValueError(
                f"X: its {kind} have {np.diff(starts).max()} rows of {self.shape[1]} features, "
                f"{largest / 1e9:.1f} GB each; wanted at most {4 * CACHE_BYTES / 1e9:.0f} GB, write the file "
                "again with fewer rows in each"
            )
        self.held = int(np.clip(CACHE_BYTES // max(largest, 1), 2, MOST_BLOCKS))

    def read(self, start: int, stop: int) -> Any:
        try:
            block = self.source[start:stop]
        except OSError as error:
            raise ValueError(
                f"X: rows {start} to {stop - 1} cannot be read ({error}); the file is damaged, "
                "take another copy"
            ) from error
        if not self.sparse:
            return np.asarray(block)
        block = sp.csr_array(block)
        check_sparse(block, f"X: rows {start} to {stop - 1}")
        return block

    def rows(self, index: np.ndarray, dtype: npt.DTypeLike = np.float32) -> np.ndarray:
        values = np.empty((len(index), self.shape[1]), dtype)
        block = self._block_of(index)
        for b in sorted(np.unique(block).tolist(), key=lambda b: b not in self._open):  # the open ones first
            here = np.flatnonzero(block == b)
            picked = self._block(b)[index[here] - self._starts[b]]
            values[here] = picked.toarray() if self.sparse else picked
        return values

    @property
    def _starts(self) -> np.ndarray:
        assert self.starts is not None
        return self.starts

    def _block(self, b: int) -> Any:
        if b not in self._open:
            while len(self._open) >= self.held + 1:
                self._open.popitem(last=False)
            self._open[b] = self.read(int(self._starts[b]), int(self._starts[b + 1]))
        self._open.move_to_end(b)
        return self._open[b]


class ParquetRows(BlockRows):
    """Rows of a Parquet file; its row groups are the blocks. Empty cells are NaN, pandas' index no feature.

    Parameters
    ----------
    path : path
    """

    def __init__(self, path: str | os.PathLike[str]):
        try:
            import pyarrow.parquet as pq
            import pyarrow.types as kinds
        except ImportError as error:
            raise ImportError("path: .parquet needs pyarrow; fix: pip install 'pyro-sparse[data]'") from error
        self.file = pq.ParquetFile(path)
        schema = self.file.schema_arrow
        index = (schema.pandas_metadata or {}).get("index_columns", [])
        index = [name for name in index if name in schema.names]  # a range is no column
        if index:
            self.sample_names = [str(i) for i in self.file.read(columns=index).to_pandas().index]
        self.feature_names = [name for name in schema.names if name not in index]
        text = [f for f in schema if f.name not in index and not _is_number(f.type, kinds)]
        if text:
            raise TypeError(
                f"X: column {text[0].name!r} holds {text[0].type}, wanted numbers ({len(text)} such "
                "column(s)); drop or encode them first"
            )
        about = self.file.metadata
        self.shape = (about.num_rows, len(self.feature_names))
        sizes = [about.row_group(i).num_rows for i in range(about.num_row_groups)]
        self._blocks(np.cumsum([0, *sizes]))

    def read(self, start: int, stop: int) -> Any:
        blocks = []
        for b in range(int(self._block_of(np.array(start))), len(self._starts) - 1):
            first = int(self._starts[b])
            if first >= stop:
                break
            try:
                group = self.file.read_row_group(b, columns=self.feature_names).select(self.feature_names)
            except (OSError, ValueError) as error:  # of Arrow
                raise ValueError(
                    f"X: the row group of rows {start} to {stop - 1} cannot be read ({error}); the file "
                    "is damaged, take another copy"
                ) from error
            rows = group.slice(max(start - first, 0), stop - max(start, first))
            blocks.append(np.column_stack([_numbers(column) for column in rows.columns]))
        return np.concatenate(blocks)

    def pieces(self) -> Iterator[tuple[int, Any]]:
        for start, stop in zip(self._starts[:-1].tolist(), self._starts[1:].tolist(), strict=True):
            yield start, self.read(start, stop)


def open_rows(
    source: TableLike | RowStore,
    feature_names: Sequence[str] | None = None,
    sample_names: Sequence[str] | None = None,
    *,
    layer: str | None = None,
) -> RowStore:
    """Open a table so that `fit` reads it by rows, however large or small it is.

    Parameters
    ----------
    source : scipy.sparse matrix, array, AnnData, backed sparse matrix, DataFrame, Arrow table or path
        Arrays may be memory-mapped, HDF5 datasets or Zarr arrays. Files: ``.npy``, ``.npz`` (a sparse matrix
        that scipy saved, read into memory as such), ``.h5ad``, ``.zarr`` (an array, or an AnnData) and
        ``.parquet``.
    feature_names, sample_names : sequence of str, optional
        Instead of the source's own.
    layer : str, optional
        Of an AnnData, in place of its X.

    Returns
    -------
    RowStore

    Raises
    ------
    FileNotFoundError, ImportError
        There is no such file; the library that reads it is not installed.
    TypeError, ValueError
        Not a table of numbers that can be read by rows, or not an AnnData with this layer.

    Examples
    --------
    >>> import scipy.sparse
    >>> open_rows(scipy.sparse.eye(4, format="csr")).rows(np.array([2, 0]))
    array([[0., 0., 1., 0.],
           [1., 0., 0., 0.]], dtype=float32)
    """
    store = source if isinstance(source, RowStore) else None
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        with reading(path, path.suffix.lower(), "source"):
            source = _opened(path, layer)
        store = source if isinstance(source, RowStore) else None
    elif layer is not None and not _named(source):
        raise ValueError(f"layer: is for an AnnData, source is {type(source).__name__}; leave it out")
    source = as_frame(source)
    if isinstance(source, pd.DataFrame):
        store = _framed(source)
    if store is None:
        axis_names = _named(source)
        store = _store(
            source
            if axis_names is None
            else cast("anndata.AnnData", source).X
            if layer is None
            else _of(cast("anndata.AnnData", source).layers, layer)
        )
        if axis_names:
            store.feature_names, store.sample_names = axis_names
    if store.shape[0] < 1 or store.shape[1] < 1:
        raise ValueError(f"X: has shape {store.shape}, wanted rows and features")
    for name, names, wanted in zip(
        ("feature_names", "sample_names"), (feature_names, sample_names), store.shape[::-1], strict=True
    ):
        if names is not None:
            if len(names) != wanted:
                raise ValueError(
                    f"{name}: has {len(names)} names, X has shape {store.shape}; wanted {wanted}"
                )
            setattr(store, name, [str(label) for label in names])
    return store


def store_of(data: object) -> RowStore | None:
    """The store of data that are to be read by rows; None for a table that goes into memory.

    Read by rows: a `RowStore`; and of more than 25 million cells, whatever is sparse or on disk.

    Parameters
    ----------
    data : object
        What `fit` was given as X.
    """
    if isinstance(data, RowStore):
        return data
    inner: Any = cast("anndata.AnnData", data).X if _named(data) else data
    if not (sp.issparse(inner) or isinstance(inner, np.memmap) or _on_disk(inner)):
        return None
    if len(inner.shape) != 2 or inner.shape[0] * inner.shape[1] <= LARGE:
        return None
    return open_rows(data)


def _named(data: object) -> tuple[list[str], list[str]] | None:
    """Feature and row names of an AnnData; None if it is something else."""
    if not all(hasattr(data, name) for name in ("var_names", "obs_names", "X")):
        return None
    annotated = cast("anndata.AnnData", data)
    return [str(v) for v in annotated.var_names], [str(v) for v in annotated.obs_names]


def _framed(table: pd.DataFrame) -> RowStore:
    store = ArrayRows(as_numbers(table).to_numpy(dtype=float, na_value=np.nan))
    store.feature_names, store.sample_names = [str(c) for c in table.columns], [str(i) for i in table.index]
    return store


def _on_disk(data: object) -> TypeGuard[Sliced]:
    """Whether rows are read by slices: an HDF5 dataset, a Zarr array, a sparse dataset of AnnData."""
    library = type(data).__module__.split(".")[0]
    return library in ("h5py", "zarr", "anndata") and hasattr(data, "shape") and hasattr(data, "dtype")


def _store(data: TableLike) -> RowStore:
    shape = getattr(data, "shape", None)
    if shape is None or len(shape) != 2:
        raise TypeError(
            f"X: got a {type(data).__name__} of shape {shape}, wanted a table (row, feature): a scipy.sparse "
            "matrix, an array, an AnnData, an HDF5 or Zarr array, or the path of a file"
        )
    if not (sp.issparse(data) or _on_disk(data) or isinstance(data, np.ndarray)):
        data = np.asarray(data)
    dtype = cast(np.ndarray, data).dtype
    if dtype.kind not in "biuf":
        raise TypeError(f"X: holds {dtype}, wanted numbers; encode the columns first")
    if sp.issparse(data):
        return SparseRows(data)
    if _on_disk(data):
        layout = getattr(data, "format", None)
        if layout == "csc":
            raise ValueError(
                "X: is stored by columns (CSC) on disk, so that a row cannot be read without reading all; "
                "wanted CSR, write it again with adata.X = adata.X.tocsr()"
            )
        return BlockRows(data, sparse=layout == "csr")
    return ArrayRows(cast(np.ndarray, data))


def _of(layers: Mapping[str, Any], name: str) -> Any:
    if name not in layers:
        raise ValueError(f"layer: got {name!r}, the AnnData has {_names(layers)}; give one of them")
    return layers[name]


def _names(layers: Iterable[str | None]) -> list[str]:
    """Of an AnnData's layers; since anndata 0.13, X is one of them and called None."""
    return sorted(name for name in layers if name is not None)


def _opened(path: Path, layer: str | None) -> Any:
    """What a file holds, opened and not read (but for .npz)."""
    kind = path.suffix.lower()
    check_file(path, "source", ".npy, .npz, .h5ad, .zarr or .parquet", folders=kind == ".zarr")
    if layer is not None and kind not in (".h5ad", ".zarr"):
        raise ValueError(f"layer: is for an AnnData (.h5ad, .zarr), source is {path.name!r}; leave it out")
    if kind in (".parquet", ".pq"):
        return ParquetRows(path)
    if kind == ".npy":
        return np.load(path, mmap_mode="r")
    if kind == ".npz":
        with zipfile.ZipFile(path) as archive:
            check_archive(path, archive)
        return sp.load_npz(path)
    if kind not in (".h5ad", ".zarr"):
        raise ValueError(
            f"source: {path.name!r} ends in {kind!r}, wanted .npy, .npz, .h5ad, .zarr or .parquet"
        )
    try:
        import anndata
    except ImportError as error:
        raise ImportError(
            f"source: {kind} needs anndata; fix: pip install 'pyro-sparse[single-cell]'"
        ) from error
    if kind == ".h5ad":
        import h5py

        opened: Any = h5py.File(path, "r")
        if layer is None and hasattr(opened.get("obs"), "dtype"):  # written by anndata before 0.7
            return anndata.read_h5ad(path, backed="r")
    else:
        import zarr

        opened = zarr.open(str(path), mode="r")
    if hasattr(opened, "dtype"):  # an array, no AnnData
        if layer is not None:
            raise ValueError(f"layer: is for an AnnData, {path.name!r} holds an array; leave it out")
        return opened
    # anndata's own backed mode leaves X on disk only, and reads all layers, obs and obsm
    layers = opened.get("layers", {})
    # anndata 0.12.0 writes an empty X, without a shape, where there is none
    has_x = "X" in opened and getattr(opened["X"], "shape", ()) is not None
    if layer is None and not has_x:
        raise ValueError(f"source: {path.name!r} has no X; give layer=, of {_names(layers)}")
    matrix = opened["X"] if layer is None else _of(layers, layer)
    store = _store(matrix if hasattr(matrix, "dtype") else anndata.io.sparse_dataset(matrix))
    for axis, name in (("var", "feature_names"), ("obs", "sample_names")):
        labels = opened[axis][opened[axis].attrs["_index"]]
        setattr(store, name, [str(label) for label in anndata.io.read_elem(labels)])
    return store


def _is_number(kind: pyarrow.DataType, kinds: ModuleType) -> bool:
    return kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind)


def _numbers(column: pyarrow.ChunkedArray) -> np.ndarray:
    """An Arrow column as floats, empty cells NaN."""
    return np.asarray(column.to_pandas(), dtype=float)
