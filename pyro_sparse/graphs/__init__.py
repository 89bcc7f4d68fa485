"""Pure numpy functions on graphs: restarts and draws in one frame, which edges to name, what graphs tell.

Nothing here knows a model or a fit; every function takes arrays and returns arrays.
"""

from __future__ import annotations

from .alignment import Alignment, agreement_matrix, align, apply_alignment, match_columns, orient, similarity
from .chain_verdict import contradictions, verdict
from .chains import (
    CoMembershipRhat,
    KeptChains,
    align_draws,
    between_chain_gap,
    co_membership_rhat,
    effective_sample_size,
    keep_chains,
)
from .credible import CredibleParents, CredibleSets, credible_parents, credible_sets
from .decoder_slopes import SlopeDirections, anchor_likeness, anchor_scale, slope_directions
from .dependence import dependency_identifiability, kept_apart, may_depend
from .diversity import Diversity, anchors, structural_sparsity, sufficient_diversity
from .hamming import expected_shd, shd_optimal_graph
from .identifiability import (
    Blocks,
    IdentifiabilityProbability,
    SufficientInfluence,
    blocks,
    completely_disentangled,
    consistency,
    identifiability_probability,
    sufficient_influence,
)
from .index_sets import IndexSets, index_set, index_sets
from .predicates import PredicateProbability, probability_of
from .selection import (
    Consensus,
    bayesian_fdr,
    consensus,
    edge_gap,
    edge_verdicts,
    expected_fdr,
    kept_restarts,
    median_probability_graph,
    q_values,
    stability_bound,
    unresolved,
)
from .supports import (
    SufficientSupports,
    SupportFailure,
    bernoulli_failure_bound,
    sufficient_supports,
    support_failure,
    support_identifiability,
)
from .task_variability import (
    SufficientVariability,
    SufficientWithinSupports,
    sufficient_representation,
    sufficient_tasks,
    sufficient_within_supports,
)
from .venn import AtomProbability, Atoms, atom_probability, atoms
from .zeros import free_given_zeros

__all__ = [
    "Alignment",
    "AtomProbability",
    "Atoms",
    "Blocks",
    "CoMembershipRhat",
    "Consensus",
    "CredibleParents",
    "CredibleSets",
    "Diversity",
    "IdentifiabilityProbability",
    "IndexSets",
    "KeptChains",
    "PredicateProbability",
    "SlopeDirections",
    "SufficientInfluence",
    "SufficientSupports",
    "SufficientVariability",
    "SufficientWithinSupports",
    "SupportFailure",
    "agreement_matrix",
    "align",
    "align_draws",
    "anchor_likeness",
    "anchor_scale",
    "anchors",
    "apply_alignment",
    "atom_probability",
    "atoms",
    "bayesian_fdr",
    "bernoulli_failure_bound",
    "between_chain_gap",
    "blocks",
    "co_membership_rhat",
    "completely_disentangled",
    "consensus",
    "consistency",
    "contradictions",
    "credible_parents",
    "credible_sets",
    "dependency_identifiability",
    "edge_gap",
    "edge_verdicts",
    "effective_sample_size",
    "expected_fdr",
    "expected_shd",
    "free_given_zeros",
    "identifiability_probability",
    "index_set",
    "index_sets",
    "keep_chains",
    "kept_apart",
    "kept_restarts",
    "match_columns",
    "may_depend",
    "median_probability_graph",
    "orient",
    "probability_of",
    "q_values",
    "shd_optimal_graph",
    "similarity",
    "slope_directions",
    "stability_bound",
    "structural_sparsity",
    "sufficient_diversity",
    "sufficient_influence",
    "sufficient_representation",
    "sufficient_supports",
    "sufficient_tasks",
    "sufficient_within_supports",
    "support_failure",
    "support_identifiability",
    "unresolved",
    "verdict",
]
