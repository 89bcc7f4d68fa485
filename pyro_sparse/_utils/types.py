"""What callers pass and get, by name: containers of numbers, and the two kinds of ArviZ object."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # most of these packages are heavy, and some are optional
    import os

    import anndata
    import arviz
    import numpy.typing as npt
    import pandas as pd
    import polars
    import pyarrow
    import scipy.sparse
    import xarray
    from torch import Tensor

__all__ = ["ArvizData", "TableLike", "VectorLike"]

ArvizData: TypeAlias = "xarray.DataTree | arviz.InferenceData"  # ArviZ 1.x makes the first, 0.x the second
TableLike: TypeAlias = (  # rows x columns, in memory or on disk
    "npt.ArrayLike | Tensor | pd.DataFrame | pyarrow.Table | polars.DataFrame | scipy.sparse.spmatrix"
    " | scipy.sparse.sparray | anndata.AnnData | os.PathLike[str]"
)
VectorLike: TypeAlias = "npt.ArrayLike | Tensor | pd.Series"  # a number or a label for each row
