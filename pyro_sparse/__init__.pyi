"""What `import pyro_sparse` offers; each name is imported when it is first used (`__init__.py`)."""

from . import (
    calibrate,
    datasets,
    distributions,
    findings,
    graphs,
    inference,
    likelihoods,
    metrics,
    models,
    nets,
    plots,
    priors,
    rivals,
    testing,
)
from ._utils.version import __version__
from .certificates import identify
from .data.checks import check_table
from .data.stores import open_rows
from .data.views import join_views
from .estimators.factors import SparseFactorModel
from .estimators.tasks import MultiTaskSparseRegressor, SparseTaskSVM
from .inference import fit, fit_restart, load, merge
from .inference.edges.dictionaries import edge_posterior, latent_graph, latent_jacobian_penalty
from .inference.program.check import check
from .inference.table.factor_effects import factor_effects
from .inference.table.predictive import posterior_predictive
from .pages.any_fit import report
from .posterior.covariates import covariate_effects
from .posterior.draws import graph_draws
from .posterior.enrichment import enrichment
from .posterior.export import to_networkx, write_graph
from .posterior.factor_scores import factor_scores
from .posterior.salience import salient_edges
from .posterior.tables import edge_prob, summary
from .posterior.variance import variance_explained
from .programs import Data, DataView, Program, correlation, deterministic, edges, factors, gates, sample

__all__ = [
    "Data",
    "DataView",
    "MultiTaskSparseRegressor",
    "Program",
    "SparseFactorModel",
    "SparseTaskSVM",
    "__version__",
    "calibrate",
    "check",
    "check_table",
    "correlation",
    "covariate_effects",
    "datasets",
    "deterministic",
    "distributions",
    "edge_posterior",
    "edge_prob",
    "edges",
    "enrichment",
    "factor_effects",
    "factor_scores",
    "factors",
    "findings",
    "fit",
    "fit_restart",
    "gates",
    "graph_draws",
    "graphs",
    "identify",
    "inference",
    "join_views",
    "likelihoods",
    "latent_graph",
    "latent_jacobian_penalty",
    "load",
    "merge",
    "metrics",
    "models",
    "nets",
    "open_rows",
    "plots",
    "posterior_predictive",
    "priors",
    "report",
    "rivals",
    "salient_edges",
    "sample",
    "summary",
    "testing",
    "to_networkx",
    "variance_explained",
    "write_graph",
]
