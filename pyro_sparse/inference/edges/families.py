"""Which methods compute the edges of each family of results, and which of them "auto" takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..._utils.types import ArvizData
from . import METHODS, edge_posterior
from .parents import observed, transitions
from .program.sampler import program_edges, program_scores
from .regression import tasks

__all__ = ["METHODS_OF", "EdgeMethods"]


class EdgeMethods(NamedTuple):
    """Methods of one family.

    Attributes
    ----------
    by_name : mapping of str to callable
    automatic : callable, optional
        (result, options) -> name of the method that "auto" takes.
    compute : callable, optional
        (result, method, ...) -> edges, where a family chooses and checks by itself.
    """

    by_name: Mapping[str, Callable[..., ArvizData]]
    automatic: Callable[..., str] | None = None
    compute: Callable[..., ArvizData] | None = None


METHODS_OF = {
    "table": EdgeMethods(METHODS, compute=edge_posterior),
    "transition": EdgeMethods(
        transitions.TRANSITION_METHODS, lambda fit, options: transitions.method_for(fit)
    ),
    "observed": EdgeMethods(observed.OBSERVED_METHODS, lambda fit, options: "terms"),
    "multitask": EdgeMethods(tasks.TASK_METHODS, tasks.method_for),
    "program": EdgeMethods({"mcmc": program_edges, "score": program_scores}, lambda fit, options: "mcmc"),
}
