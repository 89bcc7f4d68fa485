"""The one place that knows which ArviZ is installed.

Python 3.11 gets ArviZ 0.23, whose results are `InferenceData`; later Pythons get ArviZ 1.x, whose results are
xarray's `DataTree`. Both are trees of named `xarray.Dataset` groups, so both are built and read here group by
group. Interval kind and probability have different defaults in the two, so they are always passed.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal

import numpy as np
import xarray as xr

from .._utils.atomic import read_verified, with_digest, write_atomically
from .._utils.paths import file_to_write
from .._utils.quiet import ignored

if TYPE_CHECKING:
    import numpy.typing as npt

    from .._utils.types import ArvizData

__all__ = [
    "IntervalKind",
    "arviz",
    "from_datasets",
    "from_dict",
    "from_netcdf",
    "get_group",
    "group_names",
    "interval",
    "is_modern",
    "to_netcdf",
    "try_netcdf",
]

IntervalKind = Literal["hdi", "eti"]


@functools.cache
def arviz() -> ModuleType:
    """The ArviZ package, imported on first use: it takes seconds and brings matplotlib with it."""
    # ArviZ 0.23 announces 1.0 on import; users of this package need not act on it.
    with ignored(category=FutureWarning):
        import arviz as az
    module: ModuleType = az
    return module


def is_modern() -> bool:
    """Whether ArviZ is 1.0 or later."""
    return int(arviz().__version__.split(".")[0]) >= 1


def from_dict(
    groups: Mapping[str, Mapping[str, tuple[tuple[str, ...], npt.ArrayLike]]],
    coords: Mapping[str, npt.ArrayLike],
    attrs: Mapping[str, object] | None = None,
) -> ArvizData:
    """Build what the installed ArviZ consumes natively.

    Parameters
    ----------
    groups : dict of dict
        `{group: {variable: (dims, values)}}`; empty groups are left out.
    coords : dict
        `{dim: labels}`; dims without labels get none, except `chain` and `draw`, which are numbered.
    attrs : dict, optional
        Attributes of the whole object and of every group: text and numbers only, so that files can hold them.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
    """
    attrs = dict(attrs or {})
    datasets = {}
    for group, variables in groups.items():
        if not variables:
            continue
        sizes = {
            dim: size
            for dims, values in variables.values()
            for dim, size in zip(dims, np.shape(values), strict=True)
        }
        labels = {dim: coords[dim] for dim in sizes if dim in coords}
        for dim in ("chain", "draw"):
            if dim in sizes:
                labels.setdefault(dim, np.arange(sizes[dim]))
        datasets[group] = xr.Dataset(dict(variables), coords=labels)
    return from_datasets(datasets, attrs)


def from_datasets(datasets: Mapping[str, xr.Dataset], attrs: Mapping[str, object]) -> ArvizData:
    """Build what the installed ArviZ consumes natively from whole groups.

    Parameters
    ----------
    datasets : dict of Dataset
        By name of the group.
    attrs : dict
        Attributes of the whole object and of every group.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
    """
    datasets = {name: group.assign_attrs(attrs) for name, group in datasets.items()}
    if is_modern():
        tree = xr.DataTree.from_dict(datasets)
        tree.attrs.update(attrs)
        return tree
    # Groups outside ArviZ's own scheme (edge_posterior, alignment) are the point of the object.
    with ignored(".*not defined in the InferenceData scheme"):
        return arviz().InferenceData(**datasets, attrs=attrs)


def group_names(idata: ArvizData) -> list[str]:
    """Names of the groups that an ArviZ object (0.23 or 1.x) holds."""
    if isinstance(idata, xr.DataTree):
        return list(idata.children)
    if hasattr(idata, "groups") and callable(idata.groups):
        return list(idata.groups())
    raise TypeError(
        f"idata: want an ArviZ object (InferenceData or DataTree), got {type(idata).__name__}; "
        "fit.edge_posterior() makes one, and fit.summary() its table"
    )


def get_group(idata: ArvizData, name: str) -> xr.Dataset:
    """One group of an ArviZ object, as a Dataset.

    Raises
    ------
    KeyError
        If there is no such group; the message lists those there are.
    TypeError
        If `idata` is no ArviZ object.
    """
    names = group_names(idata)
    if name not in names:
        raise KeyError(
            f"idata: no group {name!r} among {names}; objects made by fit.edge_posterior() have it"
        )
    group = idata[name]
    return group.to_dataset() if isinstance(group, xr.DataTree) else group


def interval(
    draws: xr.DataArray, prob: float = 0.9, kind: IntervalKind = "hdi"
) -> tuple[xr.DataArray, xr.DataArray]:
    """Lower and upper end of the interval over chains and draws.

    Parameters
    ----------
    draws : DataArray with dims `chain`, `draw` and any others
    prob : float
        Probability inside, in (0, 1).
    kind : {"hdi", "eti"}
        Shortest interval (highest density), or equal tails.

    Returns
    -------
    (lower, upper) : DataArrays without `chain` and `draw`
    """
    if not 0 < prob < 1:
        raise ValueError(
            f"prob: want a probability strictly between 0 and 1, got {prob!r}; ninety per cent is 0.9"
        )
    if kind not in ("hdi", "eti"):
        raise ValueError(f'kind: want "hdi" (shortest interval) or "eti" (equal tails), got {kind!r}')
    if kind == "eti":
        ends = draws.quantile([(1 - prob) / 2, (1 + prob) / 2], dim=("chain", "draw"))
        return ends.isel(quantile=0, drop=True), ends.isel(quantile=1, drop=True)
    if is_modern():
        ends = arviz().hdi(draws, prob=prob, dim=["chain", "draw"])
        return ends.isel(ci_bound=0, drop=True), ends.isel(ci_bound=1, drop=True)
    ends = arviz().hdi(draws.rename("x").to_dataset(), hdi_prob=prob)["x"]
    return ends.isel(hdi=0, drop=True), ends.isel(hdi=1, drop=True)


def to_netcdf(idata: ArvizData, path: str | Path) -> Path:
    """Write an ArviZ object to one NetCDF file, whole or not at all, and return its path.

    It is made in memory first: HDF5 on a full disk may end the process. A digest stands behind its end, where
    readers of HDF5 do not look.
    """
    _need_netcdf()
    path = file_to_write(path, "idata.nc")
    return write_atomically(path, with_digest(_netcdf(idata)))


def _netcdf(idata: ArvizData) -> bytes:
    """The content of a NetCDF file with a group for each of the object's, numbers compressed."""
    import h5netcdf  # type: ignore[import-untyped]

    content = io.BytesIO()
    groups = {name: get_group(idata, name) for name in group_names(idata)}
    with h5netcdf.File(content, "w") as file:
        for name, group in [(None, xr.Dataset(attrs=idata.attrs)), *groups.items()]:
            numbers = [n for n, v in group.variables.items() if v.ndim and v.dtype.kind in "biufc"]
            packed = {n: {"zlib": True} for n in numbers}
            group.dump_to_store(xr.backends.H5NetCDFStore(file, group=name, mode="w"), encoding=packed)
    return content.getvalue()


def from_netcdf(path: str | Path) -> ArvizData:
    """Read an ArviZ object that `to_netcdf` wrote, whole, so that the file can be replaced afterwards.

    Raises
    ------
    FileNotFoundError, ValueError
        There is no such file, or it is not what `to_netcdf` wrote.
    """
    _need_netcdf()
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"path: no file {str(path)!r}; want a NetCDF file that to_netcdf wrote")
    read_verified(path)
    if is_modern():
        with xr.open_datatree(path, engine="h5netcdf") as tree:
            return tree.load()
    idata = arviz().from_netcdf(str(path), engine="h5netcdf")
    idata.load()
    idata.close()
    return idata


def try_netcdf(folder: Path) -> None:
    """Write a NetCDF file of one number to a folder, read it and remove it, before there is anything to lose.

    Raises
    ------
    ImportError
        A library is missing.
    OSError
        The file cannot be written, or what is read is not what was written.
    """
    _need_netcdf()
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        path = Path(scratch) / "try.nc"
        xr.Dataset({"x": ("row", [1.0])}).to_netcdf(path, engine="h5netcdf")
        with xr.open_dataset(path, engine="h5netcdf") as dataset:
            if dataset["x"].to_numpy().tolist() != [1.0]:
                raise OSError(f"{str(path)!r} does not hold the number that was written to it")


def _need_netcdf() -> None:
    missing = [name for name in ("h5netcdf", "h5py") if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"NetCDF files need {' and '.join(missing)}; run: pip install h5netcdf h5py")
