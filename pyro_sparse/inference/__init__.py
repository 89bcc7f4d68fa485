"""Inference: training loop, data-driven starts, restarts, checkpoints, and what turns a fit into edges."""

from __future__ import annotations

from ._strength_mixture import StrengthMixture, strength_mixture
from .constraint import BernoulliKL, Budget, Penalty, SparsityControl, get_control
from .dependency_elbo import DependencySparsity
from .dependency_schedule import DependencySchedule
from .edge_path import decreasing_path
from .fit import fit, fit_restart, merge
from .jacobian_penalty import jacobian_l1, mean_abs_jacobian
from .latent_penalty import DependencyPenalty, LatentPenalty
from .load import load
from .result import Fit
from .schedule import Schedule
from .task_axes import TaskAxes, task_axes
from .task_result import MultiTaskFit
from .task_schedule import TaskSchedule
from .transition_result import TransitionFit
from .transition_schedule import TransitionSchedule

__all__ = [
    "BernoulliKL",
    "Budget",
    "DependencyPenalty",
    "DependencySchedule",
    "DependencySparsity",
    "Fit",
    "LatentPenalty",
    "MultiTaskFit",
    "Penalty",
    "Schedule",
    "SparsityControl",
    "StrengthMixture",
    "TaskAxes",
    "TaskSchedule",
    "TransitionFit",
    "TransitionSchedule",
    "decreasing_path",
    "fit",
    "fit_restart",
    "get_control",
    "jacobian_l1",
    "load",
    "mean_abs_jacobian",
    "merge",
    "strength_mixture",
    "task_axes",
]
