"""What do draws of edges say? ArviZ objects, and tables of edges with their probabilities and verdicts."""

from __future__ import annotations

from .draws import graph_draws
from .salience import salient_edges
from .tables import edge_prob, summary, to_arviz

__all__ = ["edge_prob", "graph_draws", "salient_edges", "summary", "to_arviz"]
