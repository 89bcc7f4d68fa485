"""The likelihoods that have a name: what `likelihood="poisson"` means."""

from __future__ import annotations

from .base import Likelihood
from .bernoulli import Bernoulli
from .beta import Beta
from .censored import CensoredNormal
from .counts import Categorical, Multinomial, NegativeBinomial, Poisson
from .hurdle import HurdleNegativeBinomial, HurdlePoisson
from .normal import Normal
from .ordinal import Ordinal
from .student import StudentT
from .zero_inflated import ZeroInflatedNegativeBinomial

__all__ = ["FAMILIES", "family", "known_likelihoods"]

FAMILIES: dict[str, type[Likelihood]] = {
    cls.name: cls
    for cls in (
        Normal, StudentT, CensoredNormal, Bernoulli, Ordinal, Beta, Poisson, NegativeBinomial,
        ZeroInflatedNegativeBinomial, HurdlePoisson, HurdleNegativeBinomial, Multinomial, Categorical,
    )
}  # fmt: skip
_PROBIT = "probit"  # of yes/no answers, too, which are two levels


def known_likelihoods() -> list[str]:
    """The names of likelihoods.

    Examples
    --------
    >>> "poisson" in known_likelihoods()
    True
    """
    return [*FAMILIES, _PROBIT, "auto"]


def family(likelihood: object) -> Likelihood:
    """A likelihood by its name, or the instance itself.

    Parameters
    ----------
    likelihood : str or Likelihood

    Raises
    ------
    ValueError
        For an unknown name; the message lists the known ones.
    TypeError
        For a class in place of an instance of it.
    """
    if isinstance(likelihood, Likelihood):
        return likelihood
    if isinstance(likelihood, str) and likelihood in FAMILIES:
        return FAMILIES[likelihood]()
    if likelihood == _PROBIT:
        return Ordinal(link="probit")
    if isinstance(likelihood, type) and issubclass(likelihood, Likelihood):
        name = likelihood.__name__
        raise TypeError(f"likelihood is the class {name}; make an instance of it: {name}().")
    raise ValueError(
        f"likelihood={likelihood!r} is not known. Use one of {', '.join(map(repr, known_likelihoods()))}, "
        "a mapping from columns to these, or an instance of a subclass of "
        "pyro_sparse.likelihoods.Likelihood."
    )
