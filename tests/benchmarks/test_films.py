"""The films: halves, new rows of mofapy2's factors, agreement of edges counted by hand."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pytest
from scipy.special import expit

from benchmarks import films
from benchmarks._real_tables import agreement, halved, logistic_scores


def test_half_of_what_a_user_likes_is_given():
    x = np.array([[1.0, 1, 0, 1, 1], [0, 0, 0, 1, 0], [1, 1, 1, 0, 0]])
    given = halved(x, np.random.default_rng(0))
    assert given.sum(1).tolist() == [2, 0, 1] and (given <= x).all()


def test_scores_of_new_rows_are_the_mode():
    rng = np.random.default_rng(1)
    w = rng.normal(size=(40, 2))
    x = (rng.random((5, 40)) < expit(rng.normal(size=(5, 2)) @ w.T)).astype(float)
    mean, cov = np.array([0.5, -1.0]), np.array([[1.0, 0.3], [0.3, 0.6]])
    z = logistic_scores(x, w, mean, cov)
    pull = np.linalg.solve(cov, (z - mean).T).T
    np.testing.assert_allclose((x - expit(z @ w.T)) @ w - pull, 0, atol=1e-4)


def test_agreement_by_hand():
    loading = np.array([[1.0, 0], [1, 0], [0, 1], [0, 1]])
    a = {"loading": loading.tolist(), "probability": [[0.99, 0], [0.96, 0], [0, 0.5], [0, 0.97]]}
    b = {"loading": loading[:, ::-1].tolist(), "probability": [[0, 0.9], [0, 0.5], [0.1, 0], [0.99, 0]]}
    figures = agreement([a, b])
    # a is sure of three edges, of which b has two at .85; b of one, which a has.
    assert figures["edge_agreement"] == figures["edge_agreement_raw"] == pytest.approx(3 / 4)
    assert figures["factors_matched"] == 1


def test_without_a_table_it_says_what_is_wanted():
    options = Namespace(path=None, quick=False, methods=None, seeds=1, first_seed=0, users=10)
    with pytest.raises(SystemExit, match="--path"):
        films.tasks(options)
