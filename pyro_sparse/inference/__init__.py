"""Inference: training loop, data-driven starts, restarts, checkpoints, and what turns a fit into edges."""

from __future__ import annotations

from .autoencoders.pair_result import AutoencoderFit
from .autoencoders.schedule import AutoencoderSchedule
from .fit import fit, fit_restart, merge
from .load import load
from .multitask.task_result import MultiTaskFit
from .multitask.task_schedule import TaskSchedule
from .observed.observed_result import ObservedFit
from .observed.schedule import ObservedSchedule
from .rotation._binned_mixture import BinnedStrengthMixture, binned_strength_mixture
from .rotation._strength_mixture import StrengthMixture, strength_mixture
from .table.dependency_elbo import DependencySparsity
from .table.dependency_schedule import DependencySchedule
from .table.function_axes import SparseAxes, sparse_jacobian_axes
from .table.jacobian_penalty import jacobian_l1, mean_abs_jacobian
from .table.latent_penalty import DependencyPenalty, LatentPenalty
from .table.result import Fit
from .table.schedule import Schedule
from .transition.constraint import BernoulliKL, Budget, Penalty, SparsityControl
from .transition.transition_result import TransitionFit
from .transition.transition_schedule import TransitionSchedule

__all__ = [
    "AutoencoderFit",
    "AutoencoderSchedule",
    "BernoulliKL",
    "BinnedStrengthMixture",
    "Budget",
    "DependencyPenalty",
    "DependencySchedule",
    "DependencySparsity",
    "Fit",
    "LatentPenalty",
    "MultiTaskFit",
    "ObservedFit",
    "ObservedSchedule",
    "Penalty",
    "Schedule",
    "SparseAxes",
    "SparsityControl",
    "StrengthMixture",
    "TaskSchedule",
    "TransitionFit",
    "TransitionSchedule",
    "binned_strength_mixture",
    "fit",
    "fit_restart",
    "jacobian_l1",
    "load",
    "mean_abs_jacobian",
    "merge",
    "sparse_jacobian_axes",
    "strength_mixture",
]
