"""Draws that stand behind a table of edges: of the chains that count, in the frame of the table."""

from __future__ import annotations

import numpy as np
import pytest

import pyro_sparse as ps
from pyro_sparse.posterior.draws import pooled
from tests.certificates.test_identify import fake_fit, idata_of
from tests.certificates.test_table import table_idata


def table(kept):
    draws = np.random.default_rng(0).random((3, 40, 5, 2)) < np.array([0.1, 0.5, 0.9])[:, None, None, None]
    idata = table_idata(draws)
    idata.sample_stats["kept"][:] = kept
    return draws, idata


def test_only_kept_chains_of_a_table():
    draws, idata = table([True, False, True])
    found = ps.graph_draws(idata)
    assert found.dims == ("chain", "draw", "feature", "factor")
    np.testing.assert_array_equal(found, draws[[0, 2]])
    share = ps.graphs.probability_of(found, lambda graph: bool(graph[0, 0]))
    assert share.probability == draws[[0, 2], :, 0, 0].mean() and np.isfinite(share.standard_error)
    with pytest.raises(ValueError, match="graph: got 'time', want none: it has one graph"):
        ps.graph_draws(idata, "time")
    with pytest.raises(ValueError, match="graph: got 'time', want none: it has one graph"):
        ps.edge_prob(idata, "time")


def test_the_best_restart_of_a_transition():
    fit = fake_fit(2, 3)
    draws = np.random.default_rng(0).random((2, 30, 3, 3)) < np.array([0.2, 0.8])[:, None, None, None]
    idata = idata_of(draws, fit=fit, name="time")
    np.testing.assert_array_equal(ps.graph_draws(idata, "time")[0], draws[fit.best])


def test_pooled_draws_are_spread_over_each_chain():
    draws, idata = table([True, True, False])
    found = ps.graph_draws(idata)
    np.testing.assert_array_equal(pooled(found), draws[:2].reshape(-1, 5, 2))
    few = pooled(found, 10)
    np.testing.assert_array_equal(few, draws[:2, np.linspace(0, 39, 5).round().astype(int)].reshape(-1, 5, 2))
