"""The models behind scikit-learn's front: fit, transform, predict, in pipelines and grid searches."""

from __future__ import annotations

from .factors import SparseFactorModel
from .tasks import MultiTaskSparseRegressor, SparseTaskSVM

__all__ = ["MultiTaskSparseRegressor", "SparseFactorModel", "SparseTaskSVM"]
