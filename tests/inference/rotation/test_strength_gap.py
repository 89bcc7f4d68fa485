"""Edges and zeros of sorted strengths, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_sparse.inference.rotation.strength_gap import strength_gap


@pytest.mark.parametrize(
    ("strength", "at_least", "n_edges", "threshold", "gap"),
    [
        ([1.0, 0.8, 0.1, 0.06], 1, 2, np.sqrt(0.08), np.log(8)),
        ([3.0, 0.4, 0.3, 0.1], 1, 1, np.sqrt(1.2), np.log(7.5)),
        ([3.0, 0.4, 0.3, 0.1], 2, 3, np.sqrt(0.03), np.log(3)),  # the widest gap has too few edges
        ([1.0, 0.9, 1e-3, 1e-9], 1, 2, np.sqrt(0.045), np.log(18)),  # ratios of zeros do not count
        ([[1.0, 0.9], [0.8, 0.7]], 1, 4, np.sqrt(0.14), np.log(3.5)),  # no zero at all
        ([0.9, 0.5, 0.2, 0.18], 1, 2, np.sqrt(0.1), np.log(2.5)),  # noise is no full graph
        ([0.1], 1, 1, np.sqrt(0.02), 0.0),
    ],
)
def test_edges_end_at_the_widest_gap(strength, at_least, n_edges, threshold, gap):
    found = strength_gap(strength, at_least)
    assert found.n_edges == n_edges
    assert found.threshold == pytest.approx(threshold)
    assert found.gap == pytest.approx(gap)
