import numpy as np
import pytest

from pyro_sparse._utils.arrays import COMPILED, compiled
from pyro_sparse._utils.elementary import exponential, logarithm


@compiled
def all_of_them(x, exponentials, logarithms):
    for i in range(len(x)):
        exponentials[i], logarithms[i] = exponential(x[i]), logarithm(abs(x[i]))


@pytest.mark.skipif(not COMPILED, reason="the extra 'fast' is not installed")
def test_values_are_those_of_numpy():
    x = np.concatenate([np.linspace(-700, 700, 4001), np.geomspace(1e-300, 1e300, 4001), [1.0, 0.5, 2.0]])
    exponentials, logarithms = np.empty(x.shape), np.empty(x.shape)
    all_of_them(x, exponentials, logarithms)
    small = np.abs(x) <= 700
    np.testing.assert_allclose(exponentials[small], np.exp(x[small]), rtol=3e-14)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(logarithms, np.log(np.abs(x)), rtol=3e-15, atol=3e-14)


@pytest.mark.skipif(not COMPILED, reason="the extra 'fast' is not installed")
def test_the_logarithm_of_nothing_is_minus_infinity():
    values = np.empty((2, 1))
    all_of_them(np.zeros(1), *values)
    assert values[0] == 1 and values[1] == -np.inf
