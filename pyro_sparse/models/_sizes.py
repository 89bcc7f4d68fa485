"""How many features a model has, said when it is made or by the data that are fitted; how it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from .base import FactorModel
    from .latent_transition import LatentTransition
    from .multitask import MultiTaskRegression

__all__ = ["check_sized", "sizes_repr"]

SizedModel: TypeAlias = "FactorModel | LatentTransition | MultiTaskRegression"


def check_sized(model: SizedModel) -> None:
    """Complain of a model that was made without `n_features` and has not met data yet.

    Parameters
    ----------
    model : FactorModel, LatentTransition or MultiTaskRegression

    Raises
    ------
    ValueError
        It has none.
    """
    if model.n_features is None:
        raise ValueError(
            f"n_features: {type(model).__name__} was made without, and there are no data to take it from; "
            "give it when you make the model, or use pyro_sparse.fit"
        )


def sizes_repr(model: SizedModel, inner: str, about: Mapping[str, object]) -> str:
    """The call that makes a model, with its sizes and what matters most of the rest.

    Parameters
    ----------
    model : FactorModel, LatentTransition or MultiTaskRegression
    inner : str
        What the number of its latents is called.
    about : mapping of str to text
    """
    n = "<taken from the data>" if model.n_features is None else model.n_features
    arguments = {"n_features": n, inner: getattr(model, inner), **about}
    return f"{type(model).__name__}({', '.join(f'{name}={value}' for name, value in arguments.items())})"
