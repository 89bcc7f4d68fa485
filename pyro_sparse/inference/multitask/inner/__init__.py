"""The convex problems inside a bilevel fit: many small tasks, solved exactly, with the gradient of it.

Regression: `moments` reduces each task to its Gram matrix; `sparse_weights` and `ridge_weights` solve all
tasks at once; `sparse_glm` does counts and yes-or-no targets; `choose_penalty` reads the penalty from the
data. Classification: `group_svm`, the group-lasso multiclass SVM of each episode, and the heads beside it.
No Pyro here: tensors in, tensors out.
"""

from __future__ import annotations

from .glm import GLMWeights, half_deviance, sparse_glm
from .group_svm import GroupSVM, group_svm, zero_weight_l1
from .heads import GroupSVMHead, Head, LinearHead, PrototypeHead, RidgeHead, get_head
from .implicit import attach, solve_active
from .lasso import SparseWeights, duality_gap, largest_penalty, sparse_weights
from .moments import Moments, moments, sample_weights
from .path import PenaltyChoice, choose_penalty, penalty_grid
from .ridge import ridge_weights

__all__ = [
    "GLMWeights",
    "GroupSVM",
    "GroupSVMHead",
    "Head",
    "LinearHead",
    "Moments",
    "PenaltyChoice",
    "PrototypeHead",
    "RidgeHead",
    "SparseWeights",
    "attach",
    "choose_penalty",
    "duality_gap",
    "get_head",
    "group_svm",
    "half_deviance",
    "largest_penalty",
    "moments",
    "penalty_grid",
    "ridge_weights",
    "sample_weights",
    "solve_active",
    "sparse_glm",
    "sparse_weights",
    "zero_weight_l1",
]
