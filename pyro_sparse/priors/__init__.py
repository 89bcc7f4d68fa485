"""Priors over the weights of a factor graph; ``base.py`` states the contract, one prior per file keeps it."""

from __future__ import annotations

from . import em
from .ard_normal import ARDNormal
from .base import Prior
from .feature_sets import odds_of_sets, read_gmt
from .horseshoe import Horseshoe, RegularisedHorseshoe
from .laplace import Laplace
from .lkj import LKJ
from .regression import ssl_regression
from .spike_slab import SpikeSlabPrior
from .spike_slab_lasso import SpikeSlabLasso
from .spike_slab_normal import SpikeSlabNormal

__all__ = [
    "LKJ",
    "ARDNormal",
    "Horseshoe",
    "Laplace",
    "Prior",
    "RegularisedHorseshoe",
    "SpikeSlabLasso",
    "SpikeSlabNormal",
    "SpikeSlabPrior",
    "em",
    "get_prior",
    "odds_of_sets",
    "read_gmt",
    "ssl_regression",
]

_PRIORS: dict[str, type[Prior]] = {
    "ard_normal": ARDNormal,
    "horseshoe": Horseshoe,
    "laplace": Laplace,
    "regularised_horseshoe": RegularisedHorseshoe,
    "spike_slab_lasso": SpikeSlabLasso,
    "spike_slab_normal": SpikeSlabNormal,
}


def get_prior(prior: str | Prior, **settings: object) -> Prior:
    """A prior by name, or the instance itself.

    Parameters
    ----------
    prior : str or Prior
        Name such as "spike_slab_lasso" (case and dashes do not matter), or an instance, returned as it is.
    **settings
        Passed to the prior's constructor; only with a name.

    Raises
    ------
    ValueError
        If the name is unknown, or settings come with an instance.
    TypeError
        If ``prior`` is neither a name nor a :class:`Prior`, or is one that was not made to the end.
    """
    if isinstance(prior, Prior):
        if settings:
            raise ValueError(
                f"settings {sorted(settings)} were given with a prior instance; set them when creating it."
            )
        if getattr(prior, "allowed", None) is None:
            raise TypeError(
                f"prior: {type(prior).__name__}.__init__ does not call super().__init__(); call it first."
            )
        return prior
    if isinstance(prior, type):
        raise TypeError(f"prior is the class {prior.__name__}; make an instance of it: {prior.__name__}().")
    if not isinstance(prior, str):
        raise TypeError(
            f"prior is {prior!r}; it must be a pyro_sparse.priors.Prior instance or one of {sorted(_PRIORS)}."
        )
    name = prior.lower().replace("-", "_").replace(" ", "_")
    if name not in _PRIORS:
        raise ValueError(f"prior is {prior!r}; it must be one of {sorted(_PRIORS)}, or a Prior instance.")
    return _PRIORS[name](**settings)
