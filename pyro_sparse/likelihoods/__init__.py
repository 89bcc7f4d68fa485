"""Likelihoods: how a row of the table is distributed once the decoder has spoken.

A likelihood turns the linear predictor ``f`` (restart, row, feature) into a Pyro distribution of the data
``x`` (row, feature) and owns its few parameters (noise, dispersion), each shaped (restart, 1, feature).
Missing cells are left out of the sum, never imputed: a masked log-likelihood is that of the smaller table.
The contract is in `base`; one family per file.
"""

from __future__ import annotations

from .base import Likelihood
from .bernoulli import Bernoulli
from .counts import Categorical, Multinomial, NegativeBinomial, Poisson
from .normal import Normal

__all__ = [
    "Bernoulli",
    "Categorical",
    "Likelihood",
    "Multinomial",
    "NegativeBinomial",
    "Normal",
    "Poisson",
    "get_likelihood",
]

_KNOWN: dict[str, type[Likelihood]] = {
    cls.name: cls for cls in (Normal, Bernoulli, Poisson, NegativeBinomial, Multinomial, Categorical)
}


def known_likelihoods() -> list[str]:
    """The names that `get_likelihood` knows.

    Examples
    --------
    >>> "poisson" in known_likelihoods()
    True
    """
    return list(_KNOWN)


def get_likelihood(likelihood: str | Likelihood) -> Likelihood:
    """Return a likelihood by name, or the instance itself.

    Parameters
    ----------
    likelihood : str or Likelihood
        "normal", "bernoulli", "poisson", "negative_binomial", "multinomial" or "categorical", or an instance.

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
    """
    if isinstance(likelihood, Likelihood):
        return likelihood
    if isinstance(likelihood, str) and likelihood in _KNOWN:
        return _KNOWN[likelihood]()
    if isinstance(likelihood, type) and issubclass(likelihood, Likelihood):
        name = likelihood.__name__
        raise TypeError(f"likelihood is the class {name}; make an instance of it: {name}().")
    raise ValueError(
        f"likelihood={likelihood!r} is not known. Use one of {', '.join(map(repr, _KNOWN))}, "
        "or an instance of a subclass of pyro_sparse.likelihoods.Likelihood."
    )
