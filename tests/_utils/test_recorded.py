"""Objects that remember their arguments, and come back from JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from pyro_sparse._utils.recorded import Recorded, describe, rebuild
from pyro_sparse.likelihoods import NegativeBinomial, Normal
from pyro_sparse.models import SparseDecoder
from pyro_sparse.priors import SpikeSlabLasso
from pyro_sparse.rivals import VAE, VSC


class Base(Recorded):
    def __init__(self, a, b=2, **options):
        self.a, self.b, self.options = a, b, options


class Child(Base):
    def __init__(self, c):
        super().__init__(a=c + 1)
        self.c = c


class Heir(Base):
    pass


class Own(Base):
    def __init__(this, c):
        super().__init__(a=c)


def test_the_object_is_no_argument_whatever_it_is_called():
    thing = Own(7)
    assert thing._arguments == {"c": 7}
    assert describe(thing)["with"] == {"c": 7}


def test_only_the_outermost_constructor_is_recorded():
    assert Base(1, b=3, d=4)._arguments == {"a": 1, "b": 3, "d": 4}
    assert Child(7)._arguments == {"c": 7}
    assert Heir(5)._arguments == {"a": 5}


@pytest.mark.parametrize(
    "thing",
    [
        SparseDecoder(
            6, 2, prior=SpikeSlabLasso(lambda0=50.0, eta="global"), likelihood=Normal(init=0.2),
            decoder="linear", anchors={"a": 1, 2: 0}, required=[("b", 1)], forbidden=[(5, 0)],
        ),
        SparseDecoder(6, 2, likelihood="poisson", factor_cov=False),
        VAE(6, 2, beta=2.0),
        VSC(6, 2, alpha=0.3, likelihood=NegativeBinomial(size_factors=False)),
    ],
    ids=["everything", "by name", "VAE", "VSC"],
)  # fmt: skip
def test_models_round_trip_through_json(thing):
    said = json.loads(json.dumps(describe(thing)))
    again = rebuild(said)
    assert type(again) is type(thing)
    assert describe(again) == describe(thing)
    torch.manual_seed(0)
    thing.setup(2, feature_names=list("abcdef"))
    torch.manual_seed(0)
    again.setup(2, feature_names=list("abcdef"))
    for (name, a), (_, b) in zip(thing.state_dict().items(), again.state_dict().items(), strict=True):
        assert torch.equal(a, b), name


def test_numpy_arguments_become_plain():
    model = SparseDecoder(
        np.int64(6), 2, forbidden=np.argwhere(np.eye(2) > 0), anchors={np.int64(3): np.int64(1)}
    )
    again = rebuild(json.loads(json.dumps(describe(model))))
    assert again.forbidden == [[0, 0], [1, 1]] and again.anchors == {3: 1} and again.n_features == 6


def test_refusals():
    with pytest.raises(TypeError, match="object in JSON; pass the model to load"):
        describe(Base(object()))
    with pytest.raises(ValueError, match="Base of .*not part of pyro_sparse; pass model="):
        rebuild(describe(Base(1)))
    with pytest.raises(ValueError, match="is not a model, prior or likelihood"):
        rebuild({"made": "pyro_sparse.data.read:Batch", "with": {}})


def test_an_argument_that_is_none_is_said_of_the_class():
    with pytest.raises(TypeError, match="^SparseDecoder: got an unexpected .* 'lik'; its .*'likelihood'"):
        SparseDecoder(9, 3, lik="poisson")
    with pytest.raises(TypeError, match="^SparseDecoder: wants n_factors"):
        SparseDecoder(9)
