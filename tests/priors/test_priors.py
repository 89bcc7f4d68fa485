"""Every shipped prior passes the battery that users inherit."""

from __future__ import annotations

import inspect

import pytest
import torch
from pyro.distributions import StudentT
from scipy import stats

from pyro_sparse import priors
from pyro_sparse.testing import PriorTestCase


class _Lasso(PriorTestCase):
    def by_scipy(self, prior):
        slab, spike = float(prior.lambda1), float(prior.lambda0)
        return prior.eta.numpy(), stats.laplace(scale=1 / slab), stats.laplace(scale=1 / spike)


class TestSpikeSlabLasso(_Lasso):
    def make(self):
        return priors.SpikeSlabLasso()


class TestSpikeSlabLassoStart(_Lasso):
    def make(self):
        return priors.SpikeSlabLasso(lambda1=0.5, lambda0=40.0, a=2.0, expected_size=3, ladder_start=5.0)


class TestSpikeSlabLassoGlobal(_Lasso):
    def make(self):
        return priors.SpikeSlabLasso(lambda0=1e4, eta="global", a=1.5, b=3.0, ladder="linear")


class TestSpikeSlabLassoIBP(_Lasso):
    def make(self):
        return priors.SpikeSlabLasso(column="ibp")


class TestSpikeSlabLassoIBPConcentrated(_Lasso):
    def make(self):
        return priors.SpikeSlabLasso(column="ibp", alpha=1.5, ladder=None)


class TestSpikeSlabNormal(PriorTestCase):
    def make(self):
        return priors.SpikeSlabNormal()

    def by_scipy(self, prior):
        return prior.eta.numpy(), stats.norm(scale=1.0), stats.norm(scale=float(prior.spike_scale))


class TestSpikeSlabNormalGlobal(TestSpikeSlabNormal):
    def make(self):
        return priors.SpikeSlabNormal(spike_scale=0.01, eta="global", ladder=None)


class HeavyTails(priors.SpikeSlabPrior):
    """One of a user's own: the two densities and nothing else."""

    def components(self):
        return StudentT(3.0, 0.0, 0.5), StudentT(3.0, 0.0, 0.01)


class TestHeavyTails(PriorTestCase):
    def make(self):
        return HeavyTails(expected_size=3)

    def by_scipy(self, prior):
        return prior.eta.numpy(), stats.t(3, scale=0.5), stats.t(3, scale=0.01)


class TestHeavyTailsGlobal(TestHeavyTails):
    def make(self):
        return HeavyTails(eta="global", a=2.0, b=4.0)


class TestLaplace(PriorTestCase):
    def make(self):
        return priors.Laplace(rate=3.0)


class TestLaplaceLearned(PriorTestCase):
    def make(self):
        return priors.Laplace(learn=True, a=2.0, b=0.5)


class TestARDNormal(PriorTestCase):
    def make(self):
        return priors.ARDNormal()


class TestHorseshoe(PriorTestCase):
    def make(self):
        return priors.Horseshoe()


class TestHorseshoeFixed(PriorTestCase):
    def make(self):
        return priors.Horseshoe(tau=0.05)


class TestRegularisedHorseshoe(PriorTestCase):
    def make(self):
        return priors.RegularisedHorseshoe()


def test_each_prior_is_tested():
    made = {type(case().make()) for name, case in globals().items() if name.startswith("Test")}
    assert made - {HeavyTails} == set(priors._PRIORS.values())


@pytest.mark.parametrize("name", priors._PRIORS)
def test_by_name(name):
    prior = priors.get_prior(name.replace("_", "-").title())
    assert type(prior) is priors._PRIORS[name]
    assert priors.get_prior(prior) is prior


def test_by_name_refuses():
    with pytest.raises(ValueError, match=r"prior is 'ridge'; it must be one of \['ard_normal'"):
        priors.get_prior("ridge")
    with pytest.raises(TypeError, match="prior is 3"):
        priors.get_prior(3)
    with pytest.raises(TypeError, match=r"prior is the class Horseshoe; make an instance of it"):
        priors.get_prior(priors.Horseshoe)
    with pytest.raises(ValueError, match="'rate'.* with a prior instance"):
        priors.get_prior(priors.Laplace(), rate=2.0)
    assert priors.get_prior("laplace", rate=2.0).start == 2.0


def test_a_prior_shows_what_it_was_made_with():
    assert repr(HeavyTails(expected_size=3, eta="global")) == "HeavyTails(expected_size=3, eta='global')"
    assert repr(HeavyTails()) == "HeavyTails()" and repr(priors.Laplace(rate=2.0)) == "Laplace(rate=2.0)"


@pytest.mark.parametrize(
    "kind",
    [
        priors.ARDNormal,
        priors.Horseshoe,
        priors.Laplace,
        priors.RegularisedHorseshoe,
        priors.SpikeSlabLasso,
        priors.SpikeSlabNormal,
    ],
)
def test_arguments_can_be_read_and_set(kind):
    prior = kind()
    given = prior.get_params()
    assert list(given) == list(inspect.signature(kind).parameters)
    name, value = next((n, v) for n, v in given.items() if isinstance(v, float))
    prior.setup(5, 2, n_restarts=3)
    assert prior.set_params(**{name: value * 2}) is prior
    again = kind(**{name: value * 2})
    assert prior.get_params() == again.get_params() and repr(prior) == repr(again)
    for module in (prior, again):
        module.setup(5, 2, n_restarts=3)
    assert prior.state_dict().keys() == again.state_dict().keys()
    for key, tensor in prior.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[key])


def test_what_cannot_be_set_leaves_the_prior_as_it_was():
    prior = priors.SpikeSlabLasso(lambda1=2.0)
    with pytest.raises(ValueError, match="SpikeSlabLasso has no argument 'lamda'; it has .*'lambda0'"):
        prior.set_params(lamda=1.0)
    with pytest.raises(ValueError, match="lambda1"):
        prior.set_params(lambda1=-1.0)
    assert prior.get_params()["lambda1"] == 2.0 and float(prior.lambda1) == 2.0
