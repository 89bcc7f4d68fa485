"""What forecasts of all families share: sequences that are long enough, and draws in the caller's units."""

from __future__ import annotations

import numpy as np
import xarray as xr

from ...data.sequences import Sequences

__all__ = ["check_long_enough", "labelled"]


def check_long_enough(past: Sequences, lags: int) -> None:
    """Complain of a sequence that has too few frames to lead to the next.

    Parameters
    ----------
    past : Sequences
    lags : int

    Raises
    ------
    ValueError
        A sequence is shorter than the lags.
    """
    short = past.lengths < lags
    if short.any():
        first = int(short.argmax())
        raise ValueError(
            f"X: sequence {past.sequence_names[first]!r} has {int(past.lengths[first])} frame(s), wanted at "
            f"least the {lags} that lead to the next; give more of its frames, or leave it out"
        )


def labelled(draws: np.ndarray, of_fit: Sequences, past: Sequences) -> xr.DataArray:
    """Draws of frames to come with their names, in the caller's units.

    Parameters
    ----------
    draws : ndarray (draw, sequence, step, feature)
        In the fit's units.
    of_fit : Sequences
        Of the fit.
    past : Sequences
        That the frames follow.
    """
    return xr.DataArray(
        draws * of_fit.scale + of_fit.centre,
        dims=("draw", "sequence", "step", "feature"),
        coords={
            "sequence": past.sequence_names,
            "step": np.arange(1, draws.shape[2] + 1),
            "feature": of_fit.feature_names,
        },
    )
