"""How edges compare with a known answer: what `pyro-sparse demo` says in the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["compared"]


def compared(edges: pd.DataFrame, scales: Mapping[str, str]) -> list[str]:
    """Sentences on the edges that are present, beside the scale that each feature was made for.

    A factor stands for the scale with which it shares most edges (an assignment, one to one).

    Parameters
    ----------
    edges : DataFrame
        From `summary`, all edges.
    scales : mapping of str to str
        Each feature's scale.
    """
    from scipy.optimize import linear_sum_assignment

    present = edges[edges["verdict"] == "present"]
    if not len(present):
        return ["no edge is present, so that there is nothing to compare with the known answer"]
    factors, names = sorted(edges["factor"].unique()), sorted(set(scales.values()))
    shared = np.zeros((len(factors), len(names)), dtype=int)
    for feature, factor in zip(present["feature"], present["factor"], strict=True):
        shared[factors.index(factor), names.index(scales[feature])] += 1
    scale_of = {factors[k]: names[s] for k, s in zip(*linear_sum_assignment(-shared), strict=True)}
    stands = [scale_of.get(factor) for factor in present["factor"]]
    is_own = [scale == scales[feature] for feature, scale in zip(present["feature"], stands, strict=True)]
    sentences = [
        f"{sum(is_own)} of {len(scales)} tests depend on the factor of the ability that they were made for "
        f"({', '.join(f'{factor} is {scale}' for factor, scale in scale_of.items())})"
    ]
    for feature, scale, expected in zip(present["feature"], stands, is_own, strict=True):
        if not expected:
            other = "a factor without an ability" if scale is None else f"the {scale} ability"
            sentences.append(f"{feature} depends on {other}, too")
    return sentences
