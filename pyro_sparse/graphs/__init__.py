"""Pure numpy functions on graphs: restarts and draws in one frame, which edges to name, what graphs tell.

Nothing here knows a model or a fit; every function takes arrays and returns arrays.
"""

from __future__ import annotations

from .alignment import align, apply_alignment
from .chain_groups import pool_chains, same_graph
from .chain_verdict import verdict
from .chains import align_draws, between_chain_gap, co_membership_rhat, keep_chains
from .credible import credible_parents, credible_sets
from .dependence import dependency_identifiability, may_depend
from .diversity import anchors, structural_sparsity, sufficient_diversity
from .hamming import expected_shd, shd_optimal_graph
from .identifiability import blocks, completely_disentangled, consistency, identifiability_probability
from .index_sets import index_set, index_sets
from .predicates import probability_of
from .selection import (
    bayesian_fdr,
    consensus,
    edge_gap,
    edge_verdicts,
    expected_fdr,
    median_probability_graph,
    unresolved,
)
from .supports import sufficient_supports, support_failure, support_identifiability
from .venn import atom_probability, atoms

__all__ = [
    "align",
    "align_draws",
    "anchors",
    "apply_alignment",
    "atom_probability",
    "atoms",
    "bayesian_fdr",
    "between_chain_gap",
    "blocks",
    "co_membership_rhat",
    "completely_disentangled",
    "consensus",
    "consistency",
    "credible_parents",
    "credible_sets",
    "dependency_identifiability",
    "edge_gap",
    "edge_verdicts",
    "expected_fdr",
    "expected_shd",
    "identifiability_probability",
    "index_set",
    "index_sets",
    "keep_chains",
    "may_depend",
    "median_probability_graph",
    "pool_chains",
    "probability_of",
    "same_graph",
    "shd_optimal_graph",
    "structural_sparsity",
    "sufficient_diversity",
    "sufficient_supports",
    "support_failure",
    "support_identifiability",
    "unresolved",
    "verdict",
]
