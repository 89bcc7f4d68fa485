"""Inference: training loop, data-driven starts, restarts, checkpoints, and what turns a fit into edges."""

from __future__ import annotations

from .fit import fit
from .result import Fit, load
from .schedule import Schedule
from .transition_result import TransitionFit
from .transition_schedule import TransitionSchedule

__all__ = ["Fit", "Schedule", "TransitionFit", "TransitionSchedule", "fit", "load"]
