"""Former names of edge methods: accepted with a warning, and read in files."""

from __future__ import annotations

import pytest

import pyro_sparse as ps
from pyro_sparse.inference.edges.families import METHODS_OF
from pyro_sparse.posterior.method_names import FORMER_NAMES, current_name, warned_name
from tests._fake_fit import fake_fit


def test_former_names_lead_to_methods_that_there_are():
    known = {name for family in METHODS_OF.values() for name in family.by_name}
    assert set(FORMER_NAMES.values()) <= known and not set(FORMER_NAMES) & known
    assert current_name("polish") == "mcmc" and current_name("ep") == "ep"


def test_a_former_name_is_warned_of_and_answered():
    with pytest.warns(FutureWarning, match=r"'polish' is called 'mcmc' now"):
        assert warned_name("polish") == "mcmc"
    with pytest.warns(FutureWarning, match="'jacobian'"), pytest.raises(TypeError):
        fake_fit().edge_posterior("strengths", sweeps=3)


def test_files_of_before_are_read_as_what_they_are():
    draws = fake_fit().edge_posterior("score", num_draws=5)
    draws.attrs["edge_method"] = "polish"
    chains = ps.summary(draws)
    draws.attrs["edge_method"] = "mcmc"
    assert ps.summary(draws).equals(chains)
