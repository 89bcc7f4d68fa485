"""What is passed, by name: containers of numbers, the two kinds of ArviZ object, autograd's context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:  # most of these packages are heavy, and some are optional
    import os
    from collections.abc import Mapping, Sequence

    import anndata
    import arviz
    import numpy.typing as npt
    import pandas as pd
    import polars
    import pyarrow
    import scipy.sparse
    import xarray
    from torch import Tensor

__all__ = ["ArvizData", "AutogradContext", "Covariates", "RowInput", "TableLike", "TaskWeights", "VectorLike"]

ArvizData: TypeAlias = "xarray.DataTree | arviz.InferenceData"  # ArviZ 1.x makes the first, 0.x the second
TableLike: TypeAlias = (  # rows x columns, in memory or on disk
    "npt.ArrayLike | Tensor | pd.DataFrame | pyarrow.Table | polars.DataFrame | scipy.sparse.spmatrix"
    " | scipy.sparse.sparray | anndata.AnnData | os.PathLike[str] | Mapping[str, Any]"
)
Covariates: TypeAlias = (  # values of one or more for each row, or names of columns
    "npt.ArrayLike | pd.DataFrame | pd.Series | Mapping[str, npt.ArrayLike] | str | Sequence[str]"
)
VectorLike: TypeAlias = "npt.ArrayLike | Tensor | pd.Series"  # a number or a label for each row
TaskWeights: TypeAlias = "Mapping[Any, float] | VectorLike"  # by names of tasks, or in their order
RowInput: TypeAlias = "VectorLike | Covariates"  # what goes with the rows of a table


class AutogradContext(Protocol):
    """What autograd hands to the static methods of a `torch.autograd.Function`."""

    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]

    def save_for_backward(self, *tensors: Tensor) -> None: ...

    def save_for_forward(self, *tensors: Tensor) -> None: ...

    def mark_non_differentiable(self, *tensors: Tensor) -> None: ...
