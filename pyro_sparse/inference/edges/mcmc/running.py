"""The sweeps of chains: warm-up, draws in one frame, and what ends them early (time, precision, Ctrl-C)."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...._utils.progress import Progress, in_words
from .accumulator import ChainSummary, OfRows, Tally
from .alignment import Frame
from .kernels import CurvedRun, follow
from .stopping import spread

if TYPE_CHECKING:
    from ..density.decoder_program import DecoderState
    from .decoder import DecoderChains
    from .linear import LinearChains, LinearState

__all__ = ["LEAST_KEPT", "run_chains", "say_how_long"]

Array = NDArray[np.float64]
LEAST_KEPT = 10  # sweeps after the warm-up; below 30 the verdict calls them too few (diagnostics.py)
_LONG = 300.0  # seconds in all, from which chains say beforehand how long they may take
_TIMED = 3  # sweeps after the first, by which the warm-up is judged
_LEAP_EVERY = 10  # sweeps of the warm-up, where scales are learned: step by step they may stay stuck
_LOOKED_AT = 20  # sweeps between two counts of the edges that are decided, for people who wait
_SHORTER = "time_budget=… ends them sooner"
_FRAMED = 50  # sweeps of the warm-up that say where factors are


def run_chains(
    kernel: LinearChains | DecoderChains,
    state: LinearState | DecoderState,
    *,
    sweeps: int,
    warm_up: int,
    held: int,
    dense: list[bool],
    seed: int,
    pivot: Array,
    groups: list[NDArray[np.intp]],
    num_draws: int,
    time_budget: float | None = None,
    tolerance: float = 0.0,
    progress: bool = False,
    learn_scales: bool = False,
    longer: int = 0,
    of_rows: OfRows = OfRows(),  # noqa: B008  # that cannot change
) -> ChainSummary:
    """Sweep, turn every state into the pivot's frame, keep what is wanted.

    Parameters
    ----------
    kernel, state
        From `chains_of`.
    sweeps, warm_up, held : int
        Of the first `warm_up` of all `sweeps`, dense chains hold every edge in for the first `held`.
    dense : list of bool
    seed : int
    pivot : ndarray (feature, factor) or (chain, feature, factor)
        Loadings that set order and signs of the factors.
    groups : list of ndarray of int
        Sets of factors that can change places (`Frame`).
    num_draws : int
    time_budget : float, optional
        Seconds.
    tolerance : float
        Of `Halves`.
    progress : bool
    learn_scales : bool
    longer : int
        Sweeps that may be added, half as many as were wanted at a time, while chains that hold one graph have
        too few to agree on its edges and loadings (`Tally.is_unsettled`).
    of_rows : OfRows
        What is kept of rows.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])
    run = follow(kernel, state, dense)
    frame = Frame(pivot, groups, len(state.weight), run.signed)
    if of_rows.levels and isinstance(run, CurvedRun):
        _ = run.constants  # of the fit's own parameters, before they move
    pinned = all(len(members) == 1 for members in groups)  # then factors have one order, whatever they load
    tally = Tally(run, frame, num_draws, tolerance, pinned, of_rows)
    kept_sweeps, stopped_by = sweeps - warm_up, ""
    half = (held + warm_up) // 2
    settled = {half + i for i in spread(warm_up - half, _FRAMED)}
    before: list[Array] = []  # loadings, which say where factors are
    clock, block = _Budget(time_budget, warm_up), max(1, kept_sweeps // 2)

    shorter = "" if time_budget is not None else _SHORTER
    with Progress("chains", sweeps, "sweep", shown=progress, shorter=shorter) as counted:
        try:
            for sweep in range(sweeps + longer):
                if sweep >= sweeps and (sweep - sweeps) % block == 0:
                    if not tally.is_unsettled():
                        break
                    counted.extend(min(block, sweeps + longer - sweep))
                if sweep == min(held, warm_up):
                    run.release()
                if sweep == warm_up and before:
                    frame.settle(np.stack(before))
                run.sweep(rng, hold=sweep < held, warm=sweep < warm_up)
                if learn_scales and sweep >= held:
                    run.rescale(rng, leap=sweep < warm_up and (sweep - held) % _LEAP_EVERY == 0)
                decided = tally.decided() if sweep % _LOOKED_AT == 0 else ""
                counted.advance(status=decided)
                if sweep < warm_up:
                    warm_up = clock.warm_up_after(sweep)
                    kept_sweeps = sweeps - warm_up
                    if frame.learns and sweep in settled:
                        before.append(run.loadings(rng))
                    continue
                tally.add(rng)
                if tally.enough() and not (longer and tally.is_unsettled()):
                    break
                if clock.is_over() and tally.done >= LEAST_KEPT:
                    stopped_by = "time" if tally.done < kept_sweeps else ""
                    break
        except KeyboardInterrupt:
            if tally.done < LEAST_KEPT:
                raise
            if tally.done < kept_sweeps:  # else more than was wanted
                stopped_by = "interrupt"
                warnings.warn(
                    f"edge_posterior: stopped after {tally.done} of {kept_sweeps} sweeps",
                    RuntimeWarning,
                    stacklevel=6,
                )
    return tally.result(stopped_by)


class _Budget:
    """Seconds that chains have, counted from now.

    Parameters
    ----------
    seconds : float, optional
        Default: no end.
    warm_up : int
        Sweeps that do not count.
    """

    def __init__(self, seconds: float | None, warm_up: int):
        self.seconds, self.warm_up, self.began = seconds, warm_up, time.monotonic()
        self.ends: list[float] = []  # of the first sweeps

    def warm_up_after(self, sweep: int) -> int:
        """Sweeps of the warm-up; as many as half of the time allows, once they are timed."""
        if sweep <= _TIMED:
            self.ends.append(time.monotonic())
        if sweep != _TIMED or self.seconds is None:
            return self.warm_up
        per_sweep = float(np.median(np.diff(self.ends)))  # the first one compiles, and another one may
        needed = self.ends[-1] - self.began + per_sweep * (self.warm_up - 1 - _TIMED)
        left = 0.5 * self.seconds - (time.monotonic() - self.began)
        most = _TIMED + 1 + max(0, int(left / per_sweep))
        if needed > self.seconds and most < self.warm_up:
            warnings.warn(
                f"edge_posterior: time_budget={self.seconds:g} is less than the warm-up takes, some "
                f"{_rounded(needed)} s for {self.warm_up} sweeps of {per_sweep:.2g} s, so {most} sweeps warm "
                f"up. Give {_rounded(2 * needed)} s or more, or take fewer rows or chains",
                RuntimeWarning,
                stacklevel=7,
            )
            self.warm_up = most
        return self.warm_up

    def is_over(self) -> bool:
        """Whether there is no time left."""
        return self.seconds is not None and time.monotonic() - self.began > self.seconds


def _rounded(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.2g}"


def say_how_long(
    seconds: float, rows: int, sweeps: int, remedy: str = "time_budget or max_rows shortens them"
) -> None:
    """Before they begin, or after the first sweeps, of chains that may take minutes.

    Parameters
    ----------
    seconds : float
        That all of them may take.
    rows, sweeps : int
    remedy : str
    """
    if seconds > _LONG:
        warnings.warn(
            f"edge_posterior: {sweeps} sweeps over {rows:,} rows may take some {in_words(seconds)} of "
            f"one processor; {remedy}",
            RuntimeWarning,
            stacklevel=6,
        )
