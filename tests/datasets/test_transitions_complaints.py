"""What the sets of transitions refuse, by name, with what was seen and what is wanted."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_sparse.datasets import transition_data
from pyro_sparse.datasets.transitions import transition_jacobian, transition_mean, transition_mixing
from tests.datasets.test_transitions import SMALL, inputs


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "Time"}, "want one of"),
        ({"n": 1}, "n=1: want a whole number, at least 2"),
        ({"n": 1e4}, "n=10000.0: want a whole number"),
        ({"n_validation": 0}, "n_validation=0"),
        ({"n_test": 1}, "n_test=1"),
        ({"d_x": 5}, r"d_x=5: want a whole number, at least 6 \(= d_z\), or the mixing loses latents"),
        ({"T": 1}, "T=1: want a whole number, at least 2: one frame shows no past"),
        ({"name": "ActionDiag", "T": 0}, "T=0: want a whole number, at least 1"),
        ({"k": 3}, r"k=3: want 1 \(fixed variance\) or 2"),
        ({"mechanism": "spline"}, "mechanism='spline': want one of sine, leaky_relu, gp"),
        ({"sufficient": False, "k": 2}, "want k=1 and mechanism='sine', got k=2"),
        ({"sufficient": False, "mechanism": "gp"}, "got k=1 and mechanism='gp'"),
        ({"k": 2, "noise": 0.1}, "noise=0.1: with k=2 the graph sets the variance"),
        ({"noise": -1}, "noise=-1 is a standard deviation"),
        ({"observation_noise": np.nan}, "observation_noise=nan is a standard deviation"),
        ({"shrink": 0}, "shrink=0: want a number above 0"),
        ({"name": "ActionDiag", "shrink": 0.5}, "a set with Time in its name, got ActionDiag"),
        ({"T": 200, "shrink": 3.0}, "z passes 1e6 at frame .*lower shrink=3.0"),
        ({"name": "ActionRandom(0)", "noise": 0}, r"noise=0: no latent of ActionRandom\(0\) moves"),
        ({"seed": -3}, "seed: want a whole number of at least 0, got -3"),
        ({"decoder_seed": 1.5}, "seed: want a whole number of at least 0, got 1.5"),
    ],
)
def test_argument_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        transition_data(**({"name": "TimeDiag"} | SMALL | arguments))


def test_truth_errors():
    data = transition_data("ActionTimeBlockDiag", **SMALL)
    z, a = inputs(data)
    for truth in (transition_mean, transition_jacobian):
        with pytest.raises(ValueError, match=r"z: this set depends on it; want shape \(..., 6\), got None"):
            truth(data, a=a)
        with pytest.raises(ValueError, match=r"a: this set depends on it; want shape \(50, 3\), got None"):
            truth(data, z)
        with pytest.raises(ValueError, match=r"a: .* want shape \(50, 3\), got shape \(49, 3\)"):
            truth(data, z, a[1:])
        with pytest.raises(ValueError, match=r"z: .* got shape \(50, 5\)"):
            truth(data, z[:, :5], a)
        with pytest.raises(ValueError, match="data: want what transition_data.* got dict"):
            truth({"name": "TimeDiag"}, z, a)
    with pytest.raises(ValueError, match=r"z: want shape \(..., 6\), got \(50, 3\)"):
        transition_mixing(data, a)
