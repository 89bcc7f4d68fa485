"""Are these probabilities what they say? Two checks with known truths, of simulated data, and one without.

`reliability`: do edges called .8 exist eight times in ten? It wants probabilities and truths only.
`sbc`: are joint *draws* of graphs draws from the posterior? It simulates data sets and ranks each truth among
its draws; `experiment` makes both sides of it from a model. Both average over the prior that the data sets
were drawn from: a wrong prior is not seen by them. `halves` needs no truth: do probabilities of half of the
rows of a table hold when the other half comes?
"""

from __future__ import annotations

from .decoders import experiment
from .discoveries import realised_fdr
from .halves import halves
from .programs import program_experiment
from .reliability import reliability
from .sbc import sbc
from .statistics import graph_statistics, value_statistics

__all__ = [
    "experiment",
    "graph_statistics",
    "halves",
    "program_experiment",
    "realised_fdr",
    "reliability",
    "sbc",
    "value_statistics",
]
