"""pyro_sparse: sparse, identifiable latent-variable models on Pyro, and how sure one may be of each edge."""

from __future__ import annotations

from . import calibrate, datasets, distributions, graphs, inference, metrics, models, nets, priors, testing
from ._version import __version__
from .certificates import Certificate, identify
from .data_checks import check_table
from .draws import graph_draws
from .estimators import SparseFactorModel
from .inference import (
    DependencySchedule,
    Fit,
    MultiTaskFit,
    Schedule,
    TaskSchedule,
    TransitionFit,
    TransitionSchedule,
    fit,
    fit_restart,
    load,
    merge,
)
from .plots import (
    plot_agreement,
    plot_edges,
    plot_elbo,
    plot_forest,
    plot_graph,
    plot_predictive,
    plot_reliability,
    plot_sbc,
    plot_sets,
    plot_transition,
)
from .posterior import edge_prob, summary
from .report import report
from .salience import salient_edges
from .stores import open_rows
from .task_estimators import MultiTaskSparseRegressor, SparseTaskSVM

__all__ = [
    "Certificate",
    "DependencySchedule",
    "Fit",
    "MultiTaskFit",
    "MultiTaskSparseRegressor",
    "Schedule",
    "SparseFactorModel",
    "SparseTaskSVM",
    "TaskSchedule",
    "TransitionFit",
    "TransitionSchedule",
    "__version__",
    "calibrate",
    "check_table",
    "datasets",
    "distributions",
    "edge_prob",
    "fit",
    "fit_restart",
    "graph_draws",
    "graphs",
    "identify",
    "inference",
    "load",
    "merge",
    "metrics",
    "models",
    "nets",
    "open_rows",
    "plot_agreement",
    "plot_edges",
    "plot_elbo",
    "plot_forest",
    "plot_graph",
    "plot_predictive",
    "plot_reliability",
    "plot_sbc",
    "plot_sets",
    "plot_transition",
    "priors",
    "report",
    "salient_edges",
    "summary",
    "testing",
]
