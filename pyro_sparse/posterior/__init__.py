"""What do draws of edges say? ArviZ objects, and tables of edges with their probabilities and verdicts."""

from __future__ import annotations

# First of all: importing it completes `inference`, whose results of dictionaries need names of `tables`, and
# `tables` needs it. Begun from `tables` the circle would find those names missing.
from ..inference.training import restarts as _restarts  # noqa: F401
from .draws import graph_draws
from .salience import salient_edges
from .tables import edge_prob, summary, to_arviz

__all__ = ["edge_prob", "graph_draws", "salient_edges", "summary", "to_arviz"]
