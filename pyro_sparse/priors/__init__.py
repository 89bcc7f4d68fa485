"""Priors over the weights of a factor graph; ``base.py`` states the contract, one prior per file keeps it."""

from __future__ import annotations

from pyro_sparse.priors.base import Prior
from pyro_sparse.priors.spike_slab_lasso import SpikeSlabLasso

__all__ = ["Prior", "SpikeSlabLasso", "get_prior"]

_PRIORS: dict[str, type[Prior]] = {"spike_slab_lasso": SpikeSlabLasso}


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
        If ``prior`` is neither a name nor a :class:`Prior`.
    """
    if isinstance(prior, Prior):
        if settings:
            raise ValueError(
                f"settings {sorted(settings)} were given with a prior instance; set them when creating it."
            )
        return prior
    if not isinstance(prior, str):
        raise TypeError(
            f"prior is {prior!r}; it must be a pyro_sparse.priors.Prior instance or one of {sorted(_PRIORS)}."
        )
    name = prior.lower().replace("-", "_").replace(" ", "_")
    if name not in _PRIORS:
        raise ValueError(f"prior is {prior!r}; it must be one of {sorted(_PRIORS)}, or a Prior instance.")
    return _PRIORS[name](**settings)
