"""How each feature answers while a factor goes up: its curve, the shape of it, and the shape in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ..inference.table.result import Fit

__all__ = ["NOT_IN_FIT", "answers_of", "in_words", "shape_of", "span_of", "sparkline"]

# Where each factor is moved to when drawing how a feature answers to it, in its standard deviations: between
# the ends lie 95 % of a Gaussian factor's values.
_SWEEP = np.linspace(-2, 2, 17)
_TURN = 0.25  # of a curve's range: a way back that is shorter is a ripple, no turn
NOT_IN_FIT = "not in the fit"  # said of an edge that the chains find, where there is no curve to draw


def _sweeps(fit: Fit) -> NDArray:
    """Expected features while one factor moves and the others rest at 0: (step, feature, factor)."""
    n_factors = len(fit.factor_names)
    spread = np.sqrt(np.clip(np.diag(np.asarray(fit.factor_cov)), 0, None))
    z = np.einsum("s,k,kl->skl", _SWEEP, spread, np.eye(n_factors)).reshape(-1, n_factors)
    answer = np.asarray(fit.inverse_transform(z), dtype=float)
    return answer.reshape(len(_SWEEP), n_factors, -1).transpose(0, 2, 1)


def answers_of(fit: Fit, loading: NDArray) -> NDArray:
    """Curves of the fit (step, feature, factor), and what stands in for them where only chains have the edge.

    For a straight decoder that is a line, as steep as its loading beside the feature's others. Of a curve one
    number does not tell the shape: NaN.

    Parameters
    ----------
    fit : Fit
    loading : ndarray (feature, factor)
        Of the edge posterior.
    """
    sweeps, absent = _sweeps(fit), np.asarray(fit.weights)[int(fit.best)] == 0
    if getattr(fit.model, "decoder_kind", "") != "linear":
        return np.where(absent, np.nan, sweeps)
    largest = np.where(absent, 0.0, np.abs(loading)).max(axis=1)
    range_of_one = np.where(largest > 0, span_of(sweeps) / np.where(largest > 0, largest, 1.0), 1.0)
    slope = range_of_one[:, None] * loading / np.ptp(_SWEEP)
    return np.where(absent, sweeps.mean(axis=0) + slope * _SWEEP[:, None, None], sweeps)


def span_of(answers: NDArray) -> NDArray:
    """How far a feature's largest answer goes, of (step, ..., factor); 0 where none is known."""
    return np.nan_to_num(np.ptp(answers, axis=0), posinf=np.inf).max(axis=-1)


def shape_of(curve: NDArray) -> str:
    """What a feature does while the factor goes up: "rises", "falls", "dips", "peaks", "waves", or "flat".

    It turns where it goes back by more than a quarter of its range: never when it rises or falls, once when
    it dips or peaks, more often when it waves.

    Parameters
    ----------
    curve : ndarray (step,)
    """
    span = float(np.ptp(curve))
    if not np.isfinite(curve).all() or span <= 1e-12 * (1 + np.abs(curve).max()):
        return "flat"
    legs = _legs(curve, _TURN * span)
    if len(legs) == 1:
        return "rises" if legs[0] > 0 else "falls"
    if len(legs) == 2:
        return "dips" if legs[0] < 0 else "peaks"
    return "waves"


def _legs(curve: NDArray, least: float) -> list[int]:
    """Ways up (1) and down (-1) by more than `least`, in turn; smaller ones belong to the way they are on."""
    legs: list[int] = []
    low = high = curve[0]  # since the last turn
    for value in curve[1:]:
        low, high = min(low, value), max(high, value)
        if legs[-1:] != [1] and value - low > least:
            legs.append(1)
            low = high = value
        elif legs[-1:] != [-1] and high - value > least:
            legs.append(-1)
            low = high = value
    return legs


def sparkline(curve: NDArray, span: float) -> dict[str, str]:
    """The shape of a curve, and its points in a box of 64 by 18.

    Parameters
    ----------
    curve : ndarray (step,)
    span : float
        The feature's largest answer to any factor, so that weak edges look weak.
    """
    if np.isnan(curve).all():
        return {"shape": NOT_IN_FIT, "points": ""}
    height = (
        0.5 + (curve - (np.min(curve) + np.max(curve)) / 2) / span if span > 0 else np.full(len(curve), 0.5)
    )
    points = zip(np.linspace(2, 62, len(curve)), 16 - 14 * height, strict=True)  # a margin of 2, y downwards
    return {"shape": shape_of(curve), "points": " ".join(f"{x:.1f},{y:.1f}" for x, y in points)}


def in_words(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the features of a factor do where it is high: the strongest of each shape, and how many more.

    Parameters
    ----------
    rows : sequence of mapping
        With "feature" and "shape", the strongest first.
    """
    phrases = {
        "rises": ("is", "are", "higher"),
        "falls": ("is", "are", "lower"),
        "dips": ("is", "are", "high at both ends of the factor, low in the middle"),
        "peaks": ("is", "are", "high in the middle of the factor, low at both ends"),
        "waves": ("goes", "go", "up and down along the factor"),
        NOT_IN_FIT: ("is", "are", "different, but the fit has no curve of it"),
    }
    groups = []
    for shape, (singular, several, how) in phrases.items():
        names = [row["feature"] for row in rows if row["shape"] == shape]
        if names:
            verb = singular if len(names) == 1 else several
            groups.append({"does": f"{verb} {how}", "names": names[:6], "more": max(len(names) - 6, 0)})
    return groups
