"""Pictures of a fit: its edges, its restarts, how well it reproduces the data, and how far to trust it.

Every function takes an ArviZ object (or a fit, a graph, a check of calibration), draws on the axes given, or
on new ones, and returns them; none of them shows or saves anything. Colours of text and background follow
matplotlib's own settings, so a dark style works.
"""

from __future__ import annotations

from .calibration import plot_reliability, plot_sbc
from .edges import plot_edges, plot_forest
from .graph import plot_graph
from .number_of_factors import plot_number_of_factors
from .predictive import plot_predictive
from .restarts import plot_agreement, plot_elbo
from .scores import plot_scores
from .sets import plot_sets
from .transition import plot_transition
from .variance import plot_variance_explained
from .weights import plot_top_weights

__all__ = [
    "plot_agreement",
    "plot_edges",
    "plot_elbo",
    "plot_forest",
    "plot_graph",
    "plot_number_of_factors",
    "plot_predictive",
    "plot_reliability",
    "plot_sbc",
    "plot_scores",
    "plot_sets",
    "plot_top_weights",
    "plot_transition",
    "plot_variance_explained",
]
