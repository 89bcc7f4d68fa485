"""Methods that cannot be called as the package calls them are named with the argument that is missing."""

from __future__ import annotations

import pytest

from pyro_sparse._utils.signatures import refuse_signatures, signature_misfits
from pyro_sparse.likelihoods import Likelihood, Normal
from pyro_sparse.models import LatentTransition
from pyro_sparse.priors import Prior, SpikeSlabLasso, SpikeSlabPrior


class Renamed(SpikeSlabLasso):
    """By position these are the same."""

    def prox(self, w, t):
        return super().prox(w, t)

    def setup(self, *args, **sizes):
        super().setup(*args, **sizes)


class Short(SpikeSlabLasso):
    def update(self, weights):
        super().update(weights)


class Positional(SpikeSlabLasso):
    def setup(self, *sizes, allowed=None):
        super().setup(*sizes, allowed=allowed)


class Method(SpikeSlabLasso):
    def inclusion(self):
        return self.eta


class Property(Normal):
    @property
    def values(self):
        return {}


class OneArgument(Normal):
    def forward(self, f):
        return super().forward(f)


class Old(LatentTransition):
    def setup(self, n_restarts=1, n_samples=1000, missing=False):
        super().setup(n_restarts, n_samples, missing)


@pytest.mark.parametrize(
    ("thing", "base", "words"),
    [
        (Short(), Prior, "Short.update(weights): too many positional arguments"),
        (
            Positional(),
            Prior,
            "unexpected keyword argument 'n_features'; the package calls it as setup(n_features=",
        ),
        (
            Method(),
            SpikeSlabPrior,
            "Method.inclusion: is a method, and the package reads it; write @property",
        ),
        (Property(), Likelihood, "Property.values: is a property, and the package calls it"),
        (OneArgument(), Likelihood, "OneArgument.forward(f): too many positional arguments"),
        (Old(n_latents=2), LatentTransition, "unexpected keyword argument 'feature_names'"),
    ],
)
def test_misfits_are_named(thing, base, words):
    (found,) = signature_misfits(thing, base, by_name=("setup",))
    assert words in found
    with pytest.raises(TypeError, match="^thing: "):
        refuse_signatures("thing", thing, base, by_name=("setup",))


@pytest.mark.parametrize("thing", [Renamed(), SpikeSlabLasso()])
def test_what_fits_is_let_be(thing):
    assert signature_misfits(thing, Prior, by_name=("setup",)) == []
    assert signature_misfits(thing, SpikeSlabPrior) == []


def test_functions_set_on_the_object():
    likelihood = Normal()
    likelihood.forward = lambda f: f
    (found,) = signature_misfits(likelihood, Likelihood)
    assert found.startswith("Normal.forward(f): too many positional arguments")
