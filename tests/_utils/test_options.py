"""An option that a named edge method does not have is refused with those it has, whatever was fitted."""

from __future__ import annotations

import inspect

import pytest

from pyro_sparse._utils.options import options_of
from pyro_sparse.inference.edges import METHODS, edge_posterior
from pyro_sparse.inference.edges.parents.parents import parent_posterior
from pyro_sparse.inference.edges.parents.transitions import TRANSITION_METHODS
from pyro_sparse.inference.edges.regression.tasks import TASK_METHODS
from tests._fake_fit import fake_fit


@pytest.mark.parametrize("method", METHODS)
def test_of_a_table(method):
    own = ", ".join(sorted({*inspect.signature(METHODS[method]).parameters} - {"fit", "num_draws", "seed"}))
    with pytest.raises(
        TypeError, match=rf"^edge_posterior\(method='{method}'\): no option 'burn'; it takes {own}$"
    ):
        edge_posterior(fake_fit(), method, burn=3)


@pytest.mark.parametrize(
    ("method", "some"),
    [
        ("ep", ", damping, eta,"),
        ("gibbs", "burn_in, chains,"),
        ("bootstrap", ", replicates,"),
        ("enumerate", "eta, eta_over,"),
        ("score", "none$"),
    ],
)
def test_of_tasks(method, some):
    for other in ("burn", "prior", "mask"):
        with pytest.raises(TypeError, match=rf"method='{method}'\): no option '{other}'; it takes .*{some}"):
            TASK_METHODS[method](None, method=method, num_draws=3, seed=0, **{other: 3})


@pytest.mark.parametrize(
    ("method", "some"), [("parent_sets", "kernel, max_enumerate, "), ("gate_probability", "none$")]
)
def test_of_a_transition(method, some):
    for other in ("burn", "required"):
        with pytest.raises(TypeError, match=rf"method='{method}'\): no option '{other}'; it takes {some}"):
            TRANSITION_METHODS[method](None, **{other: 3})


def test_options_are_what_the_fit_does_not_give():
    assert options_of(parent_posterior) == {
        "kernel",
        "power",
        "prior",
        "max_rows",
        "max_enumerate",
        "num_features",
    }
