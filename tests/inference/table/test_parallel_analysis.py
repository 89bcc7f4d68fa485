"""Parallel analysis, against another one: permuted columns in place of normal tables."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_sparse.inference.table.parallel_analysis import parallel_analysis


def by_permutation(x, seed=0):
    rng = np.random.default_rng(seed)
    values = np.linalg.eigvalsh(np.corrcoef(x.T))[::-1]
    permuted = [np.linalg.eigvalsh(np.corrcoef(rng.permuted(x, axis=0).T))[::-1] for _ in range(50)]
    return int((values <= np.mean(permuted, 0)).argmax())


@pytest.mark.parametrize("k, n", [(1, 200), (3, 150), (5, 600)])
def test_it_counts_as_permutations_do(k, n):
    rng = np.random.default_rng(k)
    loadings = np.kron(np.eye(k), np.full((5, 1), 0.7))
    x = rng.normal(size=(n, k)) @ loadings.T + np.sqrt(0.51) * rng.normal(size=(n, 5 * k))
    answer = parallel_analysis(np.corrcoef(x.T), n)
    assert answer == by_permutation(x) == k
    assert parallel_analysis(np.corrcoef(x.T), n) == answer


def test_noise_has_one_and_two_features_have_at_most_two():
    rng = np.random.default_rng(0)
    assert parallel_analysis(np.eye(6), 100) == 1
    assert parallel_analysis(np.corrcoef(rng.normal(size=(40, 2)).T), 40) in (1, 2)
