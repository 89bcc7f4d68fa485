"""`check` says of each site where it is, how it is drawn and what depends on it."""

from __future__ import annotations

import pytest

import pyro_sparse as ps
from tests._programs import FACTORS, gated, grouped, linear, table


@pytest.mark.slow
def test_each_site_has_its_plate_kernel_and_blanket():
    sites = ps.check(ps.Program(linear, FACTORS), table(), chains=2).sites
    assert sites["plate"].to_dict() == {
        "eta": "none", "W": "features", "b": "features", "sd": "features", "z": "rows", "x": "rows, features",
    }  # fmt: skip
    assert sites["moves"].to_dict() == {"eta": "W", "W": "x", "b": "x", "sd": "x", "z": "x", "x": ""}
    assert sites.loc[["b", "z"], "drawn"].str.startswith("exact").all()
    assert sites.loc["W", "drawn"].startswith("spike-and-slab sweep, exact")
    assert sites.loc["sd", "drawn"].startswith("proposals from a Laplace")


@pytest.mark.slow
def test_it_says_which_axes_rotate_and_whether_the_data_are_asked():
    text = str(ps.check(ps.Program(linear, FACTORS), table(), chains=2))
    assert "z, W rotate together, by priors alone" in text and "CPU seconds" in text
    assert "integrated out exactly" in text
    assert "B, z, W rotate" in str(ps.check(ps.Program(grouped, FACTORS), table(binary=True), chains=2))


@pytest.mark.slow
def test_gates_are_drawn_from_their_conditionals():
    checked = ps.check(ps.Program(gated, FACTORS), table(), chains=2)
    assert checked.sites.loc["g", "drawn"] == "each gate from its conditional"


def test_a_program_that_cannot_be_sampled_is_refused():
    with pytest.raises(ValueError, match="chains"):
        ps.check(ps.Program(linear, FACTORS), table(), chains=0)
    with pytest.raises(ValueError, match="declares no edges"):
        ps.check(ps.Program(lambda d: None, FACTORS), table())
