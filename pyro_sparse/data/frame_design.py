"""Trend, season and covariates of frames: columns that are known for every frame, also of those to come.

The trend is a line or a cubic spline in time. A season is a number of steps, or a word for a part of the
calendar: an effect for each of its places, of long ones the first harmonics. Covariates are coded as those of
a table (`data/design.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from .design import Design

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .sequences import Sequences

__all__ = ["CALENDAR", "TRENDS", "Clock", "FrameDesign", "clock_of", "frame_design"]

TRENDS = ("linear", "spline")
CALENDAR = ("hour", "weekday", "month", "quarter", "dayofyear")  # as pandas 2 calls them
_SPELT_OUT = {"weekday": "day_of_week", "dayofyear": "day_of_year"}
_KNOTS = 5  # of the spline, at equal distances from the first frame to the last
_MOST_PLACES = 24  # of a season with an effect for each; longer ones are harmonics
_HARMONICS = 4
_YEAR = 365.25


class Clock(NamedTuple):
    """When frames are.

    Attributes
    ----------
    steps : ndarray (frame,)
        Whole steps of time since the first frame of the fit; without time stamps the frame's number.
    calendar : dict of str to ndarray of int (frame,)
        Parts of the calendar, where time stamps are dates.
    """

    steps: NDArray[np.float64]
    calendar: dict[str, NDArray[np.intp]]


@dataclass(frozen=True)
class FrameDesign:
    """How trend, season and covariates become columns.

    Attributes
    ----------
    trend : {"linear", "spline"} or None
    season : tuple of int or str
    last : float
        Steps from the first frame of the fit to its last.
    origin : float or None
        Time of the fit's first frame in steps; None without time stamps.
    levels : dict of str to list of int
        Places of each season that the fit has seen.
    covariates : Design or None
    """

    trend: str | None
    season: tuple[int | str, ...]
    last: float
    origin: float | None
    levels: dict[str, list[int]] = field(default_factory=dict)
    covariates: Design | None = None

    @property
    def names(self) -> list[str]:
        """What is in it, in words."""
        seasons = [f"season of {s}" if isinstance(s, int) else s for s in self.season]
        terms = () if self.covariates is None else self.covariates.terms
        return [*(["trend"] if self.trend else []), *seasons, *(term.name for term in terms)]

    def columns(self, clock: Clock, covariates: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Columns of some frames, (frame, column).

        Parameters
        ----------
        clock : Clock
        covariates : ndarray (frame, effect) or None
            The rows of `covariates`.

        Raises
        ------
        ValueError
            A place of a season that the fit has not seen.
        """
        parts = [self._trend(clock.steps)] if self.trend else []
        parts += [self._season(season, clock) for season in self.season]
        if covariates is not None:
            parts.append(covariates)
        return np.concatenate(parts, 1)

    def _trend(self, steps: NDArray[np.float64]) -> NDArray[np.float64]:
        at = (steps / max(self.last, 1.0))[:, None]
        if self.trend == "linear":
            return at - 0.5
        from sklearn.preprocessing import SplineTransformer  # late: models are imported without it

        knots = np.linspace(0, 1, _KNOTS)[:, None]
        spline = SplineTransformer(degree=3, knots=knots, include_bias=False, extrapolation="linear")
        return np.asarray(spline.fit(knots).transform(at))

    def _season(self, season: int | str, clock: Clock) -> NDArray[np.float64]:
        place, period = _places(season, clock)
        if period > _MOST_PLACES:
            angle = 2 * np.pi * place[:, None] / period * np.arange(1, _HARMONICS + 1)
            return np.concatenate([np.sin(angle), np.cos(angle)], 1)
        seen = self.levels[str(season)]
        strange = ~np.isin(place, seen)
        if strange.any():
            raise ValueError(
                f"season: {_named(season)} comes to place {place[strange][0]}, which the fit has not seen; "
                f"it knows {seen}: fit to a whole round, or leave the season out"
            )
        return np.asarray(place[:, None] == np.array(seen[1:]), dtype=float)

    def as_dict(self) -> dict[str, Any]:
        """What a file keeps of it, of what JSON knows."""
        design = self.covariates
        return {
            "trend": self.trend,
            "season": list(self.season),
            "last": self.last,
            "origin": self.origin,
            "levels": self.levels,
            "covariates": None
            if design is None
            else {**design.as_dict(), "centre": design.centre.tolist(), "basis": design.basis.tolist()},
        }

    @classmethod
    def of_dict(cls, about: Mapping[str, Any]) -> FrameDesign:
        """From `as_dict`.

        Parameters
        ----------
        about : mapping
        """
        given = about["covariates"]
        design = None
        if given is not None:
            centre, basis = (np.asarray(given[name], dtype=float) for name in ("centre", "basis"))
            design = Design.of_dict(given, centre, basis)
        return cls(
            about["trend"], tuple(about["season"]), about["last"], about["origin"], about["levels"], design
        )


def frame_design(
    trend: str | None,
    season: tuple[int | str, ...],
    sequences: Sequences,
    covariates: Design | None,
) -> FrameDesign:
    """How the frames of a fit are coded.

    Parameters
    ----------
    trend, season
        Of the model.
    sequences : Sequences
    covariates : Design or None

    Raises
    ------
    ValueError
        A season longer than half of the longest sequence, or one of the calendar that does not vary, or whose
        time stamps are no dates.
    """
    clock = clock_of(sequences, None)
    for name in season:
        if isinstance(name, str) and name not in clock.calendar:
            raise ValueError(
                f"season: {name!r} is read off dates, and {_stamps(sequences)}; give time= with dates "
                "(pandas.to_datetime reads text), or the season as a number of steps"
            )
        if isinstance(name, int) and 2 * name > clock.steps.max() + 1:
            raise ValueError(
                f"season: is {name} steps, and the frames span {int(clock.steps.max()) + 1}, wanted at least "
                f"two rounds ({2 * name}); leave it out"
            )
    levels = {}
    for name in season:
        places, period = _places(name, clock)
        if period <= _MOST_PLACES:
            levels[str(name)] = [int(place) for place in np.unique(places)]
        if len(np.unique(places)) < 2:
            raise ValueError(f"season: {_named(name)} is the same in every frame; leave it out")
    origin = None if sequences.time is None else _origin(sequences)
    return FrameDesign(trend, season, float(clock.steps.max()), origin, levels, covariates)


def clock_of(sequences: Sequences, origin: float | None, ahead: int = 0) -> Clock:
    """When the frames of sequences are, one sequence after the other.

    Parameters
    ----------
    sequences : Sequences
    origin : float or None
        Time of the fit's first frame, in steps; None: these are the fit's.
    ahead : int
        0: their own frames. Otherwise the so many frames after the last of each sequence.
    """
    lengths = sequences.lengths
    if sequences.time is None:
        parts = [np.arange(n, n + ahead) if ahead else np.arange(n) for n in lengths]
        return Clock(np.concatenate(parts).astype(float), {})
    start = _origin(sequences) if origin is None else origin
    steps, calendars = [], []
    for stamps, length in zip(sequences.time, lengths, strict=True):
        of_one = stamps[: int(length)]
        at = _in_steps(of_one, sequences.step)
        # stamps off whole steps: by their differences, so that a slow clock does not run away
        whole = np.rint(at[0] - start) + np.concatenate([[0.0], np.cumsum(np.rint(np.diff(at)))])
        if ahead:
            steps.append(whole[-1] + np.arange(1, ahead + 1))
            calendars.append(_dates_ahead(of_one, sequences.step, ahead))
        else:
            steps.append(whole)
            calendars.append(_dates(of_one))
    calendar = {}
    if all(dates is not None for dates in calendars):
        for name in CALENDAR:
            attribute = _SPELT_OUT.get(name, name)
            if all(hasattr(dates, attribute) for dates in calendars):
                values = [np.asarray(getattr(dates, attribute), dtype=int) for dates in calendars]
                calendar[name] = np.concatenate(values)
    return Clock(np.concatenate(steps), calendar)


def _origin(sequences: Sequences) -> float:
    """The earliest time stamp, in steps."""
    firsts = [_in_steps(stamps[:1], sequences.step)[0] for stamps in sequences.time]  # type: ignore[union-attr]
    return float(min(firsts))


def _in_steps(stamps: NDArray[Any], step: Any) -> NDArray[np.float64]:
    """Time stamps in steps: numbers, datetimes (counted in months where the step is a number) or periods."""
    step = 1 if step is None else step
    dates = _dates(stamps)
    if isinstance(dates, pd.PeriodIndex):
        return np.asarray(dates.asi8 / step, dtype=float)
    if dates is not None:
        if isinstance(step, pd.Timedelta):
            return np.asarray(dates.as_unit("ns").asi8 / step.as_unit("ns").value, dtype=float)
        return np.asarray((dates.year * 12 + dates.month) / step, dtype=float)
    if stamps.dtype.kind == "m":
        whole = pd.TimedeltaIndex(stamps).as_unit("ns").asi8
        return np.asarray(whole / pd.Timedelta(step).as_unit("ns").value, dtype=float)
    return np.asarray(stamps, dtype=float) / float(step)


def _dates(stamps: NDArray[Any]) -> pd.DatetimeIndex | pd.PeriodIndex | None:
    """Time stamps as dates, of wall clocks; None where they are numbers."""
    if stamps.dtype.kind == "M":
        return pd.DatetimeIndex(stamps)
    if stamps.dtype == object and len(stamps) and isinstance(stamps[0], pd.Period):
        return pd.PeriodIndex(stamps)
    if stamps.dtype == object and len(stamps) and isinstance(stamps[0], pd.Timestamp):
        return pd.DatetimeIndex([stamp.tz_localize(None) for stamp in stamps])
    return None


def _dates_ahead(stamps: NDArray[Any], step: Any, ahead: int) -> pd.DatetimeIndex | pd.PeriodIndex | None:
    """The dates that follow."""
    dates = _dates(stamps[-1:])
    if dates is None:
        return None
    counts = range(1, ahead + 1)
    step = 1 if step is None else step
    if isinstance(dates, pd.PeriodIndex):
        return pd.PeriodIndex([dates[0] + int(h * step) for h in counts])
    if isinstance(step, pd.Timedelta):
        return pd.DatetimeIndex([dates[0] + h * step for h in counts])
    return pd.DatetimeIndex([dates[0] + pd.DateOffset(months=int(h * step)) for h in counts])


def _places(season: int | str, clock: Clock) -> tuple[NDArray[np.intp], float]:
    """Place of every frame in its round, and how many places there are."""
    if isinstance(season, int):
        return np.asarray(clock.steps % season, dtype=int), float(season)
    periods = {"hour": 24.0, "weekday": 7.0, "month": 12.0, "quarter": 4.0, "dayofyear": _YEAR}
    return clock.calendar[season], periods[season]


def _named(season: int | str) -> str:
    return repr(season) if isinstance(season, str) else f"of {season} steps"


def _stamps(sequences: Sequences) -> str:
    if sequences.time is None:
        return "the frames have no time stamps"
    return f"the time stamps are {np.asarray(sequences.time).dtype}"
