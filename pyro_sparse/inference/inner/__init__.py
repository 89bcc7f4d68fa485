"""The convex problems inside a bilevel fit: many small tasks, solved exactly, with the gradient of the answer.

`moments` reduces each task to its Gram matrix; `sparse_weights` and `ridge_weights` solve all tasks at once;
`sparse_glm` does counts and yes-or-no targets; `choose_penalty` reads the penalty from the data. No Pyro here:
tensors in, tensors out.
"""

from __future__ import annotations

from .glm import GLMWeights, half_deviance, sparse_glm
from .implicit import attach, solve_active
from .lasso import SparseWeights, duality_gap, largest_penalty, sparse_weights
from .moments import Moments, moments, sample_weights
from .path import PenaltyChoice, choose_penalty, penalty_grid
from .ridge import ridge_weights

__all__ = [
    "GLMWeights",
    "Moments",
    "PenaltyChoice",
    "SparseWeights",
    "attach",
    "choose_penalty",
    "duality_gap",
    "half_deviance",
    "largest_penalty",
    "moments",
    "penalty_grid",
    "ridge_weights",
    "sample_weights",
    "solve_active",
    "sparse_glm",
    "sparse_weights",
]
