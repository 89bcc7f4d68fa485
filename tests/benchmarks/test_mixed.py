"""Figures of `mixed` against numbers known beforehand."""

from __future__ import annotations

import numpy as np

from benchmarks import mixed


def test_polychoric_correlations_are_those_before_the_cut():
    rng = np.random.default_rng(0)
    truth = np.array([[1.0, 0.6, 0.3], [0.6, 1.0, -0.4], [0.3, -0.4, 1.0]])
    y = rng.multivariate_normal(np.zeros(3), truth, size=200_000)
    x = np.stack([np.digitize(y[:, j], cuts) for j, cuts in enumerate([[-1, 0], [1.2], [-0.5, 0.5, 1.5]])], 1)
    np.testing.assert_allclose(mixed.polychoric(x.astype(float)), truth, atol=0.02)


def test_normal_masses_of_levels_sum_to_one_and_follow_the_mean():
    mass = mixed.discretised(np.array([[1.0, 3.2], [9.0, -9.0]]), np.array([0.5, 1.0]), 6)
    np.testing.assert_allclose(mass.sum(-1), 1.0)
    assert mass.argmax(-1).tolist() == [[0, 2], [5, 0]]


def test_perfect_probabilities_have_perfect_figures():
    free = mixed.free_edges()
    assert free.sum() == (mixed.N_COLUMNS - mixed.FACTORS) * mixed.FACTORS
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, (4, len(free)))
    cpu = {"p_cpu_s": 1.0, "p_normal_cpu_s": 2.0}
    rows = [{"truth": t.tolist(), "p": t.tolist(), "p_normal": [0.5] * len(free), **cpu} for t in truth]
    result = mixed.of_tables(rows)
    assert (result["brier"], result["fdr10"], result["power"]) == (0.0, 0.0, 1.0)
    assert result["brier_normal"] == 0.25 and result["ratio"] == 0.0
    assert set(result["by_kind"]) == set(mixed.KINDS)


def test_each_kind_of_column_is_in_the_program_three_times():
    likelihood = mixed.mixed_likelihood()
    sizes = {part.name: len(members) for part, members in likelihood.families()}
    assert sizes == {"normal": 3, "bernoulli": 3, "ordinal": 9, "poisson": 3}


def test_answers_pile_up_at_either_end():
    x = mixed.likert(1000, 5)
    assert set(np.unique(x)) == {1.0, 2.0, 3.0, 4.0, 5.0}
    assert (x[:, 0::2].mean() - 3) * (x[:, 1::2].mean() - 3) < 0
