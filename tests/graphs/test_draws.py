"""A whole edge posterior where an array belongs: the message says which array to give."""

from __future__ import annotations

import numpy as np
import pytest

import pyro_sparse as ps
from pyro_sparse.calibrate import reliability
from pyro_sparse.graphs import bayesian_fdr, edge_gap
from pyro_sparse.graphs.selection import q_values
from tests._fake_fit import fake_fit

FIT = fake_fit()
IDATA = FIT.edge_posterior(num_draws=3)


@pytest.mark.parametrize(
    "function", [q_values, bayesian_fdr, edge_gap, lambda p: reliability(p, np.zeros((12, 4)))]
)
@pytest.mark.parametrize("values", [IDATA, IDATA["edge_posterior"], FIT])
def test_an_edge_posterior_is_no_array(function, values):
    kind = type(values).__name__
    with pytest.raises(TypeError, match=rf"^probability: want an array of numbers, got {kind}; .* edge_prob"):
        function(values)


def test_the_array_that_is_named_will_do():
    p = ps.edge_prob(FIT.edge_posterior(num_draws=3))
    assert q_values(p).shape == p.shape
    assert 0 <= reliability(p, p > 0.5).brier <= 1
    with pytest.raises(TypeError, match="^truth: want an array of numbers, got (InferenceData|DataTree);"):
        reliability(p, IDATA)
