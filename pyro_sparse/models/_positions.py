"""Features by position, where a table's columns are called by numbers: which of the two is meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .base import FactorModel

__all__ = ["check_positions"]


def check_positions(model: FactorModel, labels: Iterable[object]) -> None:
    """Complain of an edge given by a number that is one column's position and another's name.

    Parameters
    ----------
    model : FactorModel
    labels : iterable
        What the caller's columns are called, before that becomes text.

    Raises
    ------
    ValueError
        Names the argument, the number, and what to write in place of it.
    """
    labels = list(labels)
    called = {label: j for j, label in enumerate(labels) if _is_whole(label)}
    for argument in ("anchors", "required", "forbidden", "edge_odds", "likelihood"):
        prescribed = getattr(model, argument, None)
        if argument == "likelihood":
            features = [member for key in getattr(prescribed, "given", ()) for member in key]
        elif argument == "anchors":
            features = list(prescribed or ())
        elif argument == "edge_odds" and not isinstance(prescribed, Mapping):
            continue  # a table is in the order of its names, an array in that of the columns
        else:
            features = [edge[0] for edge in prescribed or () if np.shape(edge) == (2,)]
        for feature in features:
            if _is_whole(feature) and called.get(feature, feature) != feature:
                at = f", or {str(labels[feature])!r} for position {feature}" if feature < len(labels) else ""
                raise ValueError(
                    f"{argument}: {feature} is the name of the column at position {called[feature]}, and a "
                    f"position too; give {str(feature)!r} (text) for the name{at}"
                )


def _is_whole(label: object) -> bool:
    return isinstance(label, int | np.integer) and not isinstance(label, bool)
