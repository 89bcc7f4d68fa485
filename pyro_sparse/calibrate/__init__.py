"""Are these probabilities what they say? Two checks that need the truth, hence simulated data.

`reliability`: do edges called .8 exist eight times in ten? It wants probabilities and truths only.
`sbc`: are joint *draws* of graphs draws from the posterior? It simulates data sets and ranks each truth among
its draws; `experiment` makes both sides of it from a model. Both average over the prior that the data sets
were drawn from: a wrong prior is not seen by them.
"""

from __future__ import annotations

from .bands import ecdf_band
from .decoders import Experiment, experiment
from .discoveries import RealisedFDR, realised_fdr
from .reliability import Reliability, reliability
from .sbc import SBC, sbc
from .scores import (
    BrierDecomposition,
    brier_decomposition,
    cluster_ece,
    cluster_z,
    ece,
    ece_when_calibrated,
    log_score,
    mean_z,
    spiegelhalter_z,
)
from .statistics import graph_statistics, value_statistics

__all__ = [
    "BrierDecomposition",
    "Experiment",
    "RealisedFDR",
    "Reliability",
    "SBC",
    "brier_decomposition",
    "cluster_ece",
    "cluster_z",
    "ece",
    "ece_when_calibrated",
    "ecdf_band",
    "experiment",
    "graph_statistics",
    "log_score",
    "mean_z",
    "realised_fdr",
    "reliability",
    "sbc",
    "spiegelhalter_z",
    "value_statistics",
]
