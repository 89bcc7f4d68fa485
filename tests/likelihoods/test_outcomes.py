"""Likelihoods of tasks' outcomes: names, mappings by task, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_sparse.likelihoods import Bernoulli, Columns, NegativeBinomial, Poisson
from pyro_sparse.likelihoods.outcomes import of_tasks, outcome_likelihood, set_up_for

NAMES = ["pass 1", "pass 2", "visits", "height"]


def outcomes(seed=0, n=20):
    rng = np.random.default_rng(seed)
    two = rng.integers(0, 2, (n, 2))
    table = np.column_stack([two, rng.poisson(3, n), 170 + 10 * rng.normal(size=n)]).astype(float)
    table[15:, 1] = np.nan
    return table


@pytest.mark.parametrize("name", ["poisson", "negative_binomial", "zero_inflated_negative_binomial"])
def test_counts_of_tasks_have_no_depth(name):
    assert outcome_likelihood(name).size_factors is False


def test_an_instance_stays_itself_and_auto_looks_at_each_task():
    own = NegativeBinomial(prior_scale=0.5)
    assert outcome_likelihood(own) is own
    assert isinstance(of_tasks(outcome_likelihood("auto"), NAMES[:2], outcomes()[:, :2]), Bernoulli)


def test_a_mapping_gives_each_task_its_own():
    declared = outcome_likelihood({"pass*": "bernoulli", "visits": "poisson", "*": "normal"})
    found = of_tasks(declared, NAMES, outcomes())
    assert isinstance(found, Columns) and not declared.columns  # the declared one stays as it was
    assert {part.name: columns for part, columns in found.families()} == {
        "bernoulli": [0, 1],
        "poisson": [2],
        "normal": [3],
    }
    centre, scale = found.units(outcomes(), True)
    np.testing.assert_allclose(centre[:3], 0)
    np.testing.assert_allclose(scale[:3], 1)
    assert centre[3] == pytest.approx(outcomes()[:, 3].mean())


def test_levels_are_those_of_each_task():
    table = np.array([[1, 5], [2, 6], [3, 5], [1, np.nan]], dtype=float)
    found = of_tasks(outcome_likelihood("ordinal"), ["a", "b"], table)
    set_up_for(found, table)
    assert found.n_levels.tolist() == [3, 2]
    assert found.cuts().shape == (1, 1, 2, 2)


@pytest.mark.parametrize(
    ("likelihood", "error", "message"),
    [
        ("multinomial", ValueError, "one outcome a sample"),
        ("categorical", ValueError, 'likelihood="bernoulli"'),
        ({"a": "categorical"}, ValueError, "rows of shares"),
        (Poisson(size_factors=True), ValueError, r"want Poisson\(size_factors=False\)"),
        (Bernoulli, TypeError, "make an instance"),
        ("gaussian", ValueError, "is not known"),
        (3, TypeError, "wanted a mapping"),
    ],
)
def test_what_is_no_likelihood_of_outcomes_is_refused(likelihood, error, message):
    with pytest.raises(error, match=message):
        outcome_likelihood(likelihood)


def test_the_task_is_named_that_has_other_outcomes():
    with pytest.raises(ValueError, match="y: task 'height' holds 1"):
        of_tasks(outcome_likelihood("poisson"), NAMES, outcomes())
