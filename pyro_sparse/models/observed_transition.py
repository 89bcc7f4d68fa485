r"""Sequences whose variables are measured themselves: which variable, or action, drives which, and when.

.. math:: x_{t,i} = \alpha_i + d_t^\top \delta_i
          + \sum_{k: \gamma_{ik} = 1} \beta_{ik} f_k(x_{t-1}, \ldots, x_{t-L}, a_t)
          + \sigma_i \varepsilon_{t,i}

Trend, season and covariates d are always there, so that what they share is no edge. The terms f are lines and
curves of single candidates and products of two (`inference/observed/terms.py`). There is no mixing, no latent
space and nothing to train: coefficients and noise are integrated out, and the sets of terms are sampled.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .._utils.checks import check_whole
from .._utils.recorded import Recorded
from ..data.frame_design import CALENDAR, TRENDS

__all__ = ["ObservedTransition"]


class ObservedTransition(Recorded):
    r"""Variables driven by their own past, by each other's, and by actions, without a mixing.

    Parameters
    ----------
    lags : int or "auto"
        Steps back that may drive a variable; "auto" takes the furthest one, up to `max_lags`, at which some
        edge is probable.
    max_lags : int
        Of "auto".
    curves : bool
        Whether a parent may act otherwise than by a line.
    products : bool
        Whether two parents may act by their product.
    trend : {"linear", "spline"}, optional
        In time: a line, or a smooth curve.
    season : int, {"hour", "weekday", "month", "quarter", "dayofyear"}, or several of them, optional
        A number of steps (``season=12`` of monthly frames), or a part of the calendar, read off time stamps
        that are dates. Each place of a season has an effect on each variable; seasons of more than 24 places
        are four harmonics.
    forbidden : iterable of (target, source), optional
        Names of variables, or of a variable and an action: edges that cannot be there, at any lag.
    power : float
        Of the likelihood, in (0, 1]. Below 1 every edge needs more evidence, as where noise is far from
        independent between steps.

    Raises
    ------
    ValueError, TypeError
        A number out of range, or pairs that are none.

    See Also
    --------
    LatentTransition : where the variables that drive each other are behind those that were measured.

    Notes
    -----
    Edges are of Granger's kind: the past of a source helps to predict its target, given the past of all other
    variables. A common cause that was not measured, or an effect within a step, can look like one.

    Effects of trend, season and the covariates of `fit` are not selected: they have flat priors, the limit of
    wide normal ones, and are integrated out with the rest.

    Examples
    --------
    >>> ObservedTransition(lags=2, products=False)
    ObservedTransition(lags=2, curves=True, products=False)
    >>> ObservedTransition(trend="linear", season=12)
    ObservedTransition(lags='auto', curves=True, products=True, trend='linear', season=12)
    """

    def __init__(
        self,
        lags: int | str = "auto",
        max_lags: int = 3,
        curves: bool = True,
        products: bool = True,
        trend: str | None = None,
        season: int | str | Iterable[int | str] | None = None,
        forbidden: Iterable[tuple[str, str]] | None = None,
        power: float = 1.0,
    ):
        if lags != "auto":
            if isinstance(lags, str):
                raise ValueError(f'lags: got {lags!r}, wanted a whole number of at least 1, or "auto"')
            check_whole(1, lags=lags)
        check_whole(1, max_lags=max_lags)
        for name, value in (("curves", curves), ("products", products)):
            if not isinstance(value, bool):
                raise TypeError(f"{name}: got {value!r}, wanted True or False")
        if isinstance(power, bool) or not isinstance(power, int | float) or not 0 < power <= 1:
            raise ValueError(f"power: got {power!r}, wanted a number above 0 and at most 1")
        if trend is not None and trend not in TRENDS:
            raise ValueError(f"trend: got {trend!r}, wanted one of {list(TRENDS)}, or None")
        self.trend, self.season, self.seasons = trend, season, _seasons(season)
        pairs = [] if forbidden is None else [forbidden] if isinstance(forbidden, str) else list(forbidden)
        for pair in pairs:
            if isinstance(pair, str) or len(pair) != 2:
                raise ValueError(f"forbidden: got {pair!r}, wanted pairs of names (target, source)")
        self.lags = lags if isinstance(lags, str) else int(lags)
        self.max_lags, self.curves, self.products = int(max_lags), curves, products
        self.forbidden = [(str(target), str(source)) for target, source in pairs]
        self.power = float(power)

    def __repr__(self) -> str:
        beside = [f", {n}={getattr(self, n)!r}" for n in ("trend", "season") if getattr(self, n) is not None]
        return (
            f"ObservedTransition(lags={self.lags!r}, curves={self.curves}, products={self.products}"
            f"{''.join(beside)})"
        )


def _seasons(season: int | str | Iterable[int | str] | None) -> tuple[int | str, ...]:
    """Each season once, checked."""
    if season is None:
        return ()
    given = [season] if isinstance(season, int | str | float | np.integer) else list(season)
    seasons: list[int | str] = []
    for period in given:
        if isinstance(period, str):
            if period not in CALENDAR:
                raise ValueError(
                    f"season: got {period!r}, wanted a number of steps, or one of {list(CALENDAR)} "
                    "(several in a list)"
                )
        else:
            check_whole(2, season=period)
        seasons.append(period if isinstance(period, str) else int(period))
    if len(set(seasons)) < len(seasons):
        raise ValueError(f"season: {season!r} has one twice; give each once")
    return tuple(seasons)
