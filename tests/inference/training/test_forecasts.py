"""What forecasts of all families share."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pyro_sparse.data.sequences import as_sequences
from pyro_sparse.inference.training.forecasts import check_long_enough, labelled


@pytest.fixture
def sequences():
    x = np.random.default_rng(0).normal(4, 3, (14, 2))
    rows = pd.DataFrame({"who": ["a"] * 12 + ["b"] * 2, "x": x[:, 0], "y": x[:, 1]})
    return as_sequences(rows, lag=1, id="who")


def test_a_sequence_shorter_than_the_lags_is_named(sequences):
    check_long_enough(sequences, 2)
    with pytest.raises(ValueError, match=r"X: sequence 'b' has 2 frame\(s\), wanted at least the 3"):
        check_long_enough(sequences, 3)


def test_draws_are_in_the_units_of_the_table(sequences):
    of_frame = (np.array([8.0, 2.0]) - sequences.centre) / sequences.scale
    draws = labelled(np.tile(of_frame, (5, 2, 3, 1)), sequences, sequences)
    assert draws.dims == ("draw", "sequence", "step", "feature")
    assert draws.coords["step"].to_numpy().tolist() == [1, 2, 3]
    assert draws.sel(sequence="b", step=2, feature="x").to_numpy() == pytest.approx(8.0)
    assert draws.sel(sequence="a", step=3, feature="y").to_numpy() == pytest.approx(2.0)
