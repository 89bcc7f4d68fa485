"""Likelihoods: how a row of the table is distributed once the decoder has spoken.

A likelihood turns the linear predictor ``f`` (restart, row, feature) into a Pyro distribution of the data
``x`` (row, feature) and owns its few parameters (noise, dispersion, cuts), each shaped (restart, 1, feature).
Missing cells are left out of the sum, never imputed: a masked log-likelihood is that of the smaller table.
The contract is in `base`; one family per file, and `columns` for tables of several kinds of column.
"""

from __future__ import annotations

from collections.abc import Mapping

from .base import Column, Likelihood
from .bernoulli import Bernoulli
from .beta import Beta
from .censored import CensoredNormal
from .columns import Columns, LikelihoodLike
from .counts import Categorical, Multinomial, NegativeBinomial, Poisson
from .families import family, known_likelihoods
from .hurdle import HurdleNegativeBinomial, HurdlePoisson
from .normal import Normal
from .ordinal import Ordinal
from .student import StudentT
from .zero_inflated import ZeroInflatedNegativeBinomial

__all__ = [
    "Bernoulli",
    "Beta",
    "Categorical",
    "CensoredNormal",
    "Column",
    "Columns",
    "HurdleNegativeBinomial",
    "HurdlePoisson",
    "Likelihood",
    "LikelihoodLike",
    "Multinomial",
    "NegativeBinomial",
    "Normal",
    "Ordinal",
    "Poisson",
    "StudentT",
    "ZeroInflatedNegativeBinomial",
    "get_likelihood",
    "known_likelihoods",
]


def get_likelihood(likelihood: LikelihoodLike) -> Likelihood:
    """Return a likelihood by name, that of columns of several kinds, or the instance itself.

    Parameters
    ----------
    likelihood : str, mapping or Likelihood
        "normal", "student_t", "censored_normal", "bernoulli", "ordinal", "beta", "poisson",
        "negative_binomial", "zero_inflated_negative_binomial", "hurdle_poisson", "hurdle_negative_binomial",
        "multinomial" or "categorical"; "probit", `Ordinal` with that link, of yes/no answers, too; "auto", by
        the type and the cells of each column; a mapping from columns to likelihoods (`Columns`); or an
        instance.

    Raises
    ------
    ValueError
        For an unknown name; the message lists the known ones.
    TypeError
        For a class in place of an instance of it.

    Examples
    --------
    >>> get_likelihood("poisson").name
    'poisson'
    >>> get_likelihood({"height": "normal", "q*": "ordinal"})
    Columns('height': normal, 'q*': ordinal)
    """
    if isinstance(likelihood, Mapping):
        return Columns(likelihood)
    if likelihood == "auto":
        return Columns({"*": "auto"})
    return family(likelihood)
