"""How close a fit came to the truth: factors, graph, predictions, rankings.

Pure NumPy functions, no model in sight. `factors`: MCC, R, DCI. `consistency`: R_con, SHD of action and time
graphs. `levels`: FactorVAE score, MIG, SAP, modularity of factors with levels. `sets`: R squared between sets
of factors. `supports`: F1, Hamming, SHD, false discoveries. `predictions`: held-out error and log-likelihood,
CRPS, recall and NDCG.
"""

from __future__ import annotations

from pyro_sparse.metrics.consistency import mechanism_shd, r_con
from pyro_sparse.metrics.factors import dci, mcc, r_score
from pyro_sparse.metrics.levels import factor_vae_score, mig, modularity, sap
from pyro_sparse.metrics.predictions import (
    crps,
    gaussian_log_likelihood,
    heldout_mse,
    multinomial_log_loss,
    ndcg_at_k,
    recall_at_k,
    reconstruction_ndcg_at_k,
    reconstruction_recall_at_k,
)
from pyro_sparse.metrics.sets import set_r2
from pyro_sparse.metrics.supports import fdp, shd, support_scores

__all__ = [
    "crps",
    "dci",
    "factor_vae_score",
    "fdp",
    "gaussian_log_likelihood",
    "heldout_mse",
    "mcc",
    "mechanism_shd",
    "mig",
    "modularity",
    "multinomial_log_loss",
    "ndcg_at_k",
    "r_con",
    "r_score",
    "recall_at_k",
    "reconstruction_ndcg_at_k",
    "reconstruction_recall_at_k",
    "sap",
    "set_r2",
    "shd",
    "support_scores",
]
