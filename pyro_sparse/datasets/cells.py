"""Counts of genes in single cells, with labels of the cells.

`load_zeisel` has the preprocessing of the Sparse VAE paper; where its published code departs from it or needs
software we do not, the docstring says. `load_cortex_counts` and `load_pbmc` leave counts as they are, for
likelihoods of counts.
"""

from __future__ import annotations

import itertools
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import optimize, sparse, stats

from pyro_sparse.datasets._fetch import locate
from pyro_sparse.datasets._names import unique_names
from pyro_sparse.datasets.tables import Loaded

__all__ = [
    "counts_from_logs",
    "load_cortex_counts",
    "load_pbmc",
    "load_zeisel",
    "most_variable",
    "quantile_normalise",
]

PathLike = str | os.PathLike[str]

ZEISEL_URL = (
    "https://storage.googleapis.com/linnarsson-lab-www-blobs/blobs/cortex/expression_mRNA_17-Aug-2014.txt"
)


def load_zeisel(
    path: PathLike | None = None,
    *,
    n_genes: int = 558,
    n_variable: int = 5000,
    min_molecules: int = 25,
    min_neighbours: int = 5,
    neighbour_correlation: float = 0.2091,
    normalise: bool = True,
    url: str = ZEISEL_URL,
    known_hash: str | None = None,
    cache: PathLike | None = None,
) -> Loaded:
    r"""Molecule counts of 3,005 mouse-cortex cells (Zeisel et al. 2015), filtered and quantile-normalised.

    In order: genes with at least `min_molecules` molecules; genes correlated above `neighbour_correlation`
    with at least `min_neighbours` others; the `n_variable` genes furthest above the noise curve
    :math:`\log_2 \mathrm{CV} = \log_2(\mu^{\alpha} + k)`; quantile normalisation of the cells; the
    `n_genes` genes of largest standard deviation.

    Parameters
    ----------
    path : path-like, optional
        A local copy of ``expression_mRNA_17-Aug-2014.txt``. No checksum of the public file is known here, so
        a download needs `known_hash`.
    n_genes, n_variable, min_molecules, min_neighbours, neighbour_correlation
        The filters above.
    normalise : bool
        False returns the molecule counts of the chosen genes (for a negative binomial likelihood).
    url, known_hash, cache : str, str, path-like
        Source, its checksum, the download folder.

    Returns
    -------
    Loaded
        ``x`` is a DataFrame of cells by genes; ``rows`` the cells' annotations (``level1class`` ...).

    Raises
    ------
    ValueError
        If no gene survives a filter, or the file has another layout.

    References
    ----------
    Zeisel et al. (2015), supplementary p. 5; Moran et al. (2022), section 5.
    """
    file = locate("Zeisel", path, url=url, known_hash=known_hash, cache=cache)
    assert isinstance(file, Path)
    counts, cells = _read_zeisel(file)
    counts = counts.loc[:, counts.sum() >= min_molecules]
    if counts.empty:
        raise ValueError(f"no gene has min_molecules={min_molecules} molecules")
    values = counts.to_numpy()
    keep = _neighbours(values, neighbour_correlation) >= min_neighbours
    if not keep.any():
        raise ValueError(
            f"no gene has min_neighbours={min_neighbours} correlated above {neighbour_correlation}"
        )
    counts, values = counts.loc[:, keep], values[:, keep]
    variable = np.sort(np.argsort(-_noise(values), kind="stable")[:n_variable])
    chosen = quantile_normalise(values[:, variable])
    top = np.sort(np.argsort(-chosen.std(0), kind="stable")[:n_genes])
    columns = counts.columns[variable[top]]
    x = pd.DataFrame(
        chosen[:, top] if normalise else values[:, variable[top]], index=counts.index, columns=columns
    )
    features = pd.DataFrame({"molecules": counts[columns].sum()}, index=pd.Index(columns, name="gene"))
    return Loaded("zeisel", x, features, cells, source=str(file))


def load_cortex_counts(path: PathLike, *, n_genes: int | None = None) -> Loaded:
    """Molecule counts of 1,464 mouse-cortex cells of three classes (Zeisel et al. 2015), 1,000 genes.

    Interneurons, pyramidal and endothelial-mural cells as the R package DESCEND has them, unfiltered, for
    likelihoods of counts; `load_zeisel` reads the whole published table.

    Parameters
    ----------
    path : path-like
        DESCEND's ``zeisel.rda`` (needs ``pip install rdata``); or a CSV with a row for each cell, its name
        first, a column ``label`` and a column for each gene.
    n_genes : int or None
        Genes kept, those that vary most (`most_variable`); None keeps all that were ever counted.

    Returns
    -------
    Loaded
        ``x`` is a DataFrame of cells by genes; ``rows`` has the ``label``.

    Raises
    ------
    ValueError
        If the file has another layout, or a count is negative or no whole number.
    ImportError
        For an ``.rda`` without rdata.

    References
    ----------
    Zeisel et al. (2015); Wang et al. (2018), PNAS 115(28), for the choice of cells and genes.
    """
    file = locate("cortex counts", path, url=None, known_hash=None)
    assert isinstance(file, Path)
    counts, label = _read_rda(file) if file.suffix.lower() in (".rda", ".rdata") else _read_labelled(file)
    return _cells("cortex_counts", counts, pd.DataFrame({"label": label}), n_genes, file)


def load_pbmc(path: PathLike, *, n_genes: int | None = None) -> Loaded:
    """Molecule counts of 700 blood cells with ten labels (Zheng et al. 2017), 765 genes.

    The small table that comes with scanpy, ``scanpy/datasets/10x_pbmc68k_reduced.h5ad``, whose ``raw`` holds
    log(1 + c m), with counts c and the cell's multiplier m. In every cell some gene was counted once: its
    value is the least, and dividing by it gives whole numbers up to the rounding of the file.

    Parameters
    ----------
    path : path-like
        A local copy of the file (needs the extra "single-cell").
    n_genes : int or None
        Genes kept, those that vary most (`most_variable`); None keeps all that were ever counted.

    Returns
    -------
    Loaded
        ``x`` is a DataFrame of cells by genes; ``rows`` has ``label`` and the file's other facts of cells.

    Raises
    ------
    ValueError
        If the file has no ``raw`` or no ``bulk_labels``, or if what is recovered are no whole numbers.

    References
    ----------
    Zheng et al. (2017), Nature Communications 8:14049; Wolf et al. (2018), Genome Biology 19:15.
    """
    try:
        import anndata
    except ImportError as error:
        raise ImportError('load_pbmc needs anndata: pip install "pyro-sparse[single-cell]"') from error
    file = locate("PBMC", path, url=None, known_hash=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the file's layout is of 2019
        cells = anndata.read_h5ad(file)
    if cells.raw is None or "bulk_labels" not in cells.obs:
        raise ValueError(f"{file}: want .raw with log(1 + x) and .obs['bulk_labels'], got {cells}")
    counts = pd.DataFrame(
        counts_from_logs(cells.raw.X), index=cells.obs_names, columns=list(cells.raw.var_names)
    )
    rows = cells.obs.rename(columns={"bulk_labels": "label"}).astype({"label": str})
    return _cells("pbmc", counts, rows, n_genes, file)


def counts_from_logs(logs: Any, tolerance: float = 0.2) -> np.ndarray:
    """Counts c of a table of log(1 + c m), each row with its own m, in which each row has a count of 1.

    Parameters
    ----------
    logs : array_like or scipy.sparse matrix of shape (N, G)
        Not negative; a row may not be all zeros.
    tolerance : float
        How far what is recovered may be from a whole number, because the file rounds its logarithms.

    Returns
    -------
    ndarray of shape (N, G)
        Whole numbers.

    Raises
    ------
    ValueError
        If a row is empty, a value is negative or not finite, or something recovered is no whole number.
    """
    values = np.expm1((logs.toarray() if sparse.issparse(logs) else np.asarray(logs)).astype(float))
    if not (np.isfinite(values) & (values >= 0)).all():
        row, column = np.argwhere(~(np.isfinite(values) & (values >= 0)))[0]
        raise ValueError(
            f"logs: want finite values of log(1 + x), none below 0; row {row}, column {column} is "
            f"{np.log1p(values[row, column]):g}"
        )
    if not (values > 0).any(1).all():
        raise ValueError(f"logs: row {int(np.argmin((values > 0).any(1)))} is empty; leave it out")
    once = np.where(values > 0, values, np.inf).min(1, keepdims=True)
    counts = np.round(values / once)
    # The least value is rounded as coarsely as any; all values of a row together tell its multiplier better.
    unit = (values * counts).sum(1, keepdims=True) / (counts**2).sum(1, keepdims=True)
    off = np.abs(values / unit - counts)
    if off.max() > tolerance:
        row, column = np.unravel_index(int(off.argmax()), off.shape)
        raise ValueError(
            f"logs: want log(1 + c m) of whole numbers c, a 1 in each row; row {row}, column {column} gives "
            f"c = {values[row, column] / unit[row, 0]:.3g}"
        )
    return counts


def most_variable(counts: np.ndarray, n_genes: int) -> np.ndarray:
    r"""The genes whose :math:`\log(1 + x_{ij}\, m / n_i)` has the largest standard deviation.

    Parameters
    ----------
    counts : array_like of shape (N, G)
        With totals :math:`n_i` of the cells, of which m is the median.
    n_genes : int
        How many, at least 1; all if there are fewer.

    Returns
    -------
    ndarray of int
        Columns, in their order in the table.
    """
    if n_genes < 1:
        raise ValueError(f"n_genes={n_genes}: want at least 1")
    total = np.asarray(counts, dtype=float).sum(1, keepdims=True)
    shared = np.log1p(counts * (np.median(total) / np.maximum(total, 1)))
    return np.sort(np.argsort(-shared.std(0), kind="stable")[:n_genes])


def quantile_normalise(x: np.ndarray) -> np.ndarray:
    """Give every row the same distribution: the mean of the rows' sorted values, ties at their mean rank.

    Parameters
    ----------
    x : array_like of shape (N, G)
        Rows are samples.

    Returns
    -------
    ndarray of shape (N, G)
        Each value replaced by the average order statistic of its rank in its row.

    References
    ----------
    Bolstad et al. (2003).
    """
    x = np.asarray(x, dtype=float)
    reference = np.sort(x, axis=1).mean(0)
    rank = stats.rankdata(x, method="average", axis=1) - 1
    return np.interp(rank, np.arange(x.shape[1]), reference)


def _cells(name: str, counts: pd.DataFrame, rows: pd.DataFrame, n_genes: int | None, file: Any) -> Loaded:
    """The most variable genes of a table of counts, once it is one."""
    values = counts.to_numpy(dtype=float)
    counts_only = np.isfinite(values) & (values >= 0) & (values % 1 == 0)
    if not counts_only.all():
        row, column = np.argwhere(~counts_only)[0]
        raise ValueError(
            f"{file}: want counts, whole numbers from 0 on; cell {counts.index[row]!r} has "
            f"{values[row, column]:g} of {counts.columns[column]!r}"
        )
    counted = counts.loc[:, values.any(0)].astype(float)
    if n_genes is not None:
        counted = counted.iloc[:, most_variable(counted.to_numpy(), n_genes)]
    x = counted.set_axis(pd.Index(unique_names(counted.columns.astype(str)), name="gene"), axis=1)
    x = x.rename_axis(index="cell")
    return Loaded(name, x, pd.DataFrame({"molecules": x.sum()}), rows.set_index(x.index), source=str(file))


def _read_rda(file: Path) -> tuple[pd.DataFrame, np.ndarray]:
    try:
        import rdata
    except ImportError as error:
        raise ImportError(
            f"{file.name} is a file of R: pip install rdata, or export the counts and a column 'label' as CSV"
        ) from error
    objects = rdata.read_rda(file)
    table = {str(key): value for key, value in dict(objects.get("zeisel", {})).items()}
    absent = [key for key in ("count.matrix.large", "labels") if key not in table]
    if absent:
        raise ValueError(f"{file}: want a list 'zeisel' with counts and labels; it lacks {absent}")
    matrix = table["count.matrix.large"]  # genes by cells
    genes, cells = (matrix.coords[side].to_numpy().astype(str) for side in matrix.dims)
    return pd.DataFrame(matrix.to_numpy().T, index=cells, columns=genes), np.asarray(
        table["labels"], dtype=str
    )


def _read_labelled(file: Path) -> tuple[pd.DataFrame, np.ndarray]:
    frame = pd.read_csv(file, index_col=0)
    if "label" not in frame:
        raise ValueError(f"{file}: want a column 'label', got {list(frame.columns[:5])} ...")
    body = frame.drop(columns="label")
    text = [str(name) for name, kind in body.dtypes.items() if not pd.api.types.is_numeric_dtype(kind)]
    if text:
        raise ValueError(f"{file}: want counts in all columns but 'label', got text in {text[:5]}")
    return body, frame["label"].to_numpy(dtype=str)


def _read_zeisel(file: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Ten lines of annotations (name in the second column), a blank line, then gene, cluster, counts."""
    with file.open(encoding="utf-8") as lines:
        head = [line.rstrip("\n").split("\t") for line in itertools.islice(lines, 11)]
    if len(head) < 11 or any(head[10]) or not all(len(row) > 2 for row in head[:10]):
        raise ValueError(f"{file}: want ten lines of annotations of cells, then a blank one, got others")
    cells = pd.DataFrame({row[1]: row[2:] for row in head[:10]})
    body = pd.read_csv(file, sep="\t", skiprows=11, header=None, index_col=0, quoting=3)
    counts = body.iloc[:, 1:].T.astype(float)
    if len(counts) != len(cells):
        raise ValueError(f"{file} has {len(cells)} annotated cells and {len(counts)} columns of counts")
    names = cells["cell_id"] if "cell_id" in cells else pd.RangeIndex(len(cells))
    counts.index = pd.Index(names, name="cell")
    counts.columns = pd.Index(unique_names(body.index.astype(str)), name="gene")
    return counts, cells.set_index(counts.index)


def _neighbours(x: np.ndarray, threshold: float, chunk: int = 1000) -> np.ndarray:
    """How many *other* columns each column is correlated with above the threshold, a block at a time."""
    scaled = x - x.mean(0)
    scale = np.sqrt((scaled**2).sum(0))
    scaled = (scaled / np.where(scale > 0, scale, 1.0)).astype(np.float32)
    blocks = range(0, x.shape[1], chunk)
    varies = scale > 0
    total = np.concatenate([((scaled[:, i : i + chunk].T @ scaled) > threshold).sum(1) for i in blocks])
    return total - varies


def _noise(x: np.ndarray) -> np.ndarray:
    """Distance above the curve log2 CV = log2(mean^a + k), fitted by least absolute residuals."""
    mean = x.mean(0)
    log_cv = np.log2(x.std(0, ddof=1) / mean)

    def residual(p: np.ndarray) -> np.ndarray:
        return log_cv - np.log2(mean ** p[0] + np.exp(p[1]))

    def loss(p: np.ndarray) -> float:
        return float(np.abs(residual(p)).sum())

    return residual(optimize.minimize(loss, np.array([-0.5, np.log(0.5)]), method="Nelder-Mead").x)
