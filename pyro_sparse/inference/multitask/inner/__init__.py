"""The convex problems inside a bilevel fit: many small tasks, solved exactly, with the gradient of it.

Regression: `moments` reduces each task to its Gram matrix; `sparse_weights` and `ridge_weights` solve all
tasks at once; `sparse_glm` does counts and yes-or-no targets; `choose_penalty` reads the penalty from the
data. Classification: `group_svm`, the group-lasso multiclass SVM of each episode, and the heads beside it.
No Pyro here: tensors in, tensors out.
"""

from __future__ import annotations

from .glm import sparse_glm
from .group_svm import group_svm
from .heads import GroupSVMHead, Head, LinearHead, PrototypeHead, RidgeHead
from .lasso import sparse_weights
from .moments import moments
from .path import choose_penalty
from .ridge import ridge_weights

__all__ = [
    "GroupSVMHead",
    "Head",
    "LinearHead",
    "PrototypeHead",
    "RidgeHead",
    "choose_penalty",
    "group_svm",
    "moments",
    "ridge_weights",
    "sparse_glm",
    "sparse_weights",
]
