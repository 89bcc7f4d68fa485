"""Complaints about labelled episodes: features (..., example, feature) and labels (..., example)."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["check_episodes"]


def check_episodes(x: Tensor, labels: Tensor, n_classes: int | None) -> int:
    """Complain about what cannot be solved; return the number of classes."""
    if not x.is_floating_point():
        raise TypeError(f"x: got {x.dtype}, wanted floating point; convert it with .float() or .double()")
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise TypeError(f"labels: got {labels.dtype}, wanted whole numbers; convert them with .long()")
    if x.ndim < 2 or 0 in x.shape:
        raise ValueError(f"x: got shape {tuple(x.shape)}, wanted (..., example, feature), none of them empty")
    if labels.shape != x.shape[:-1]:
        raise ValueError(
            f"labels: got shape {tuple(labels.shape)}, wanted one label per example, {tuple(x.shape[:-1])}"
        )
    if not torch.isfinite(x).all():
        raise ValueError(f"x: {int((~torch.isfinite(x)).sum())} values are not finite; wanted numbers only")
    largest = int(labels.max())
    n_classes = largest + 1 if n_classes is None else n_classes
    if n_classes < 2:
        raise ValueError(f"n_classes: got {n_classes}, wanted at least 2; give examples of another class")
    if int(labels.min()) < 0 or largest >= n_classes:
        raise ValueError(
            f"labels: got {int(labels.min())} to {largest}, wanted 0 to {n_classes - 1} "
            f"(n_classes={n_classes}); number the classes of each episode from 0"
        )
    return n_classes
