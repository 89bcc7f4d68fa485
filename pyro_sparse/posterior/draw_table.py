"""Draws of numbers that have two labels each (covariate and feature, row and factor) as one long table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr

from . import arviz as _arviz

__all__ = ["draw_table"]


def draw_table(
    draws: xr.DataArray, prob: float, kind: _arviz.IntervalKind, **beside: xr.DataArray
) -> pd.DataFrame:
    """Mean, standard deviation and interval of each number, a row each.

    Parameters
    ----------
    draws : DataArray (chain, draw, first, second)
        The last two dimensions have coordinates and name the first columns; the second varies fastest.
    prob : float
        Probability inside the interval.
    kind : {"hdi", "eti"}
        Shortest interval, or equal tails.
    **beside : DataArray (first, second)
        More columns, behind the interval.

    Returns
    -------
    DataFrame
        Columns: the two labels, `mean`, `sd`, the ends of the interval named by kind and prob, and `beside`.
    """
    first, second = (str(dim) for dim in draws.dims[-2:])
    lower, upper = _arviz.interval(draws, prob, kind)
    interval = f"{kind}{100 * prob:g}"
    columns = {
        "mean": draws.mean(("chain", "draw")),
        "sd": draws.std(("chain", "draw")),
        f"{interval}_lb": lower,
        f"{interval}_ub": upper,
        **beside,
    }
    labels = [draws[dim].to_numpy() for dim in (first, second)]
    return pd.DataFrame(
        {
            first: np.repeat(labels[0], len(labels[1])),
            second: np.tile(labels[1], len(labels[0])),
            **{name: values.transpose(first, second).to_numpy().ravel() for name, values in columns.items()},
        }
    )
