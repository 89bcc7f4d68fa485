"""pyro_sparse: sparse, identifiable latent-variable models on Pyro, and how sure one may be of each edge."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from . import (
    calibrate,
    datasets,
    distributions,
    graphs,
    inference,
    likelihoods,
    metrics,
    models,
    nets,
    priors,
    testing,
)
from ._utils.version import __version__
from .certificates import Certificate, identify
from .data.checks import check_table
from .data.stores import open_rows
from .estimators.factors import SparseFactorModel
from .estimators.tasks import MultiTaskSparseRegressor, SparseTaskSVM
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
from .posterior.draws import graph_draws
from .posterior.salience import salient_edges
from .posterior.tables import edge_prob, summary
from .report.page_of_table import report

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
    "likelihoods",
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
    "rivals",
    "salient_edges",
    "summary",
    "testing",
]


def __getattr__(name: str) -> Any:
    if name == "rivals":  # what the models are compared with: few ask, and it takes a second
        return import_module(".rivals", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
