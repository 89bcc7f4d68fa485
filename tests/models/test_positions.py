"""Numbers as names of columns: an edge told by a number is refused where it could mean two columns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.models._positions import check_positions

LABELS = [5, 4, 3, 2, 1, 0]
SLAB = ps.priors.SpikeSlabLasso()


@pytest.mark.parametrize(
    "told",
    [{"anchors": {5: 0}}, {"required": [(5, 1)]}, {"forbidden": [(5, 1)]}, {"edge_odds": {(5, 1): 2.0}}],
)
def test_a_number_that_is_another_columns_name_is_refused(told):
    model = ps.models.SparseDecoder(6, 2, prior=SLAB, **told)
    said = rf"{next(iter(told))}: 5 is the name of the column at position 0, .* '5' \(text\) .* or '0' for"
    with pytest.raises(ValueError, match=said):
        check_positions(model, LABELS)


@pytest.mark.parametrize("feature", [5, np.int64(5), "5"])
def test_what_can_only_mean_one_column_is_taken(feature):
    told = {"anchors": {feature: 0}, "required": [(feature, 0)], "edge_odds": {(feature, 1): 2.0}}
    model = ps.models.SparseDecoder(6, 2, prior=SLAB, **told)
    check_positions(model, range(6))
    check_positions(model, list("abcdef"))
    check_positions(model, [f"{label}" for label in LABELS])  # text is no number
    check_positions(ps.models.SparseDecoder(6, 2, prior=SLAB, edge_odds=np.ones((6, 2))), LABELS)
    if feature == "5":
        check_positions(model, LABELS)


def test_fit_looks_at_the_names_before_they_are_text():
    x = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 6)), columns=LABELS)
    with pytest.raises(ValueError, match="anchors: 5 is the name of the column at position 0"):
        ps.fit(ps.models.SparseDecoder(6, 2, anchors={5: 0}), x, restarts=1, steps=3, progress=False)
