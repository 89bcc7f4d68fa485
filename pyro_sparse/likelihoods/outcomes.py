"""The likelihood of tasks' outcomes: each task is a column, whose cells are the outcomes of its own samples.

Rows of that table mean nothing, for the samples of a task have nothing to do with those of another: what
counts is that a cell goes by its own linear predictor, and the parameters by their column.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from .._utils.declared import keeps
from .base import Column, Likelihood
from .columns import Columns, LikelihoodLike
from .counts import Poisson
from .families import FAMILIES, family

__all__ = ["of_tasks", "outcome_likelihood", "set_up_for"]


def outcome_likelihood(likelihood: LikelihoodLike) -> Likelihood:
    """The likelihood of outcomes, by its name, of tasks of several kinds, or the instance itself.

    Parameters
    ----------
    likelihood : str, mapping or Likelihood
        As for `get_likelihood`; the keys of a mapping are tasks, or patterns of their names.

    Raises
    ------
    ValueError
        An unknown name, or a likelihood of whole rows: multinomial, categorical, or counts whose depth is
        their row's total.
    TypeError
        A class in place of an instance.

    Examples
    --------
    >>> outcome_likelihood("poisson").size_factors
    False
    """
    if isinstance(likelihood, str) and likelihood == "auto":
        return Columns({"*": "auto"})
    if not isinstance(likelihood, (str, Likelihood, type)):
        return Columns(likelihood)  # which refuses what is no mapping, and likelihoods of whole rows
    if isinstance(likelihood, str) and issubclass(FAMILIES.get(likelihood, Likelihood), Poisson):
        likelihood = FAMILIES[likelihood](size_factors=False)  # type: ignore[call-arg]
    outcome = family(likelihood)
    if not keeps(outcome, "cells", "normal noise") and keeps(outcome, "row totals"):
        raise ValueError(
            f'likelihood: "{outcome.name}" is of rows of shares, and a task has one outcome a sample; one of '
            'several answers is a task of 0 and 1 for each answer, likelihood="bernoulli"; answers in an '
            'order are "ordinal"'
        )
    if getattr(outcome, "size_factors", False) is True:
        raise ValueError(
            f"likelihood: {type(outcome).__name__}(size_factors=True) takes totals of rows for depth, and "
            f"samples of tasks have none; want {type(outcome).__name__}(size_factors=False)"
        )
    return outcome


def of_tasks(likelihood: Likelihood, names: Sequence[str], outcomes: np.ndarray) -> Likelihood:
    """A copy of the likelihood that knows these tasks, which it has checked; `set_up_for` makes it ready.

    Parameters
    ----------
    likelihood : Likelihood
        From `outcome_likelihood`.
    names : sequence of str
    outcomes : ndarray (sample, task)
        In the caller's units, NaN where missing.

    Raises
    ------
    ValueError
        Outcomes that it cannot have; it names the first.
    """
    likelihood = copy.deepcopy(likelihood)
    if likelihood.reads_columns:
        columns = [Column(name, _type(y), y) for name, y in zip(names, outcomes.T, strict=True)]
        likelihood = likelihood.for_columns(columns)
    try:
        likelihood.check(outcomes, names)
    except ValueError as error:
        raise ValueError(str(error).replace("X: column", "y: task", 1)) from None
    return likelihood


def set_up_for(likelihood: Likelihood, outcomes: np.ndarray) -> None:
    """Let a likelihood learn what it needs of the outcomes, and allocate its parameters, one for each task.

    Parameters
    ----------
    likelihood : Likelihood
        From `of_tasks`; it is changed.
    outcomes : ndarray (sample, task)
        As the caller has them; NaN where missing.
    """
    likelihood.calibrate(outcomes)
    likelihood.setup(n_features=outcomes.shape[1], n_restarts=1)


def _type(outcomes: np.ndarray) -> type:
    seen = outcomes[~np.isnan(outcomes)]
    return int if bool((seen == np.rint(seen)).all()) else float
