"""Columns of several kinds: the battery, the density part by part, keys, "auto", and bad input."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from pyro_sparse.likelihoods import (
    Bernoulli,
    Column,
    Columns,
    Likelihood,
    NegativeBinomial,
    Normal,
    Ordinal,
    Poisson,
    get_likelihood,
)
from pyro_sparse.testing.likelihood import LikelihoodTestCase

MIXED = {
    (0, 4): "normal",
    2: "bernoulli",
    (5, 1): Ordinal(levels=(1, 4)),
    3: "negative_binomial",
    6: "poisson",
}


class _Cycled(Columns):
    """Kinds of column in turn, of as many as the battery asks for."""

    declares = Columns.declares

    def __init__(self):
        Likelihood.__init__(self)
        self.given, self.parts, self.columns = {}, torch.nn.ModuleList(), []

    def setup(self, n_features, n_restarts=1):
        kinds = [Normal(), Bernoulli(), Ordinal(levels=(0, 3)), Poisson(size_factors=False)]
        members = [list(range(i, n_features, 4)) for i in range(4)]
        self.parts = torch.nn.ModuleList(k for k, m in zip(kinds, members, strict=True) if m)
        self.columns = [m for m in members if m]
        self.__dict__.pop("_indices", None)
        super().setup(n_features, n_restarts)


class TestColumns(LikelihoodTestCase):
    """Numbers, yes or no, levels, counts; the second column is yes or no."""

    bad_values = (0.5, 2.0)

    def make(self):
        return _Cycled()

    # that of each kind does in its own battery, and a row is the sum of its parts (below)
    test_density_sums_to_one = None

    def _columns(self, likelihood, kept):
        return likelihood.of_features(kept)


@pytest.fixture
def mixed():
    likelihood = Columns({key: kind for key, kind in MIXED.items()})
    likelihood.setup(7, 3)
    likelihood.double()
    with torch.no_grad():
        for p in likelihood.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=torch.Generator().manual_seed(3), dtype=p.dtype))
    return likelihood


def _drawn(likelihood, n_rows=8):
    f = torch.randn(3, n_rows, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(5)
        return f, likelihood(f).sample()[0].double()


def test_a_row_is_the_sum_of_its_parts(mixed):
    f, x = _drawn(mixed)
    log_p = sum(
        part.log_prob(f[..., columns], x[:, columns])
        for part, columns in zip(mixed.parts, mixed.columns, strict=True)
    )
    torch.testing.assert_close(mixed.log_prob(f, x), log_p)
    torch.testing.assert_close(mixed(f).expand((3, 8, 7)).log_prob(x).sum(-1), log_p)


def test_terms_of_cells_are_those_of_autograd_in_any_order_of_columns(mixed):
    f, x = _drawn(mixed)
    lines, cells = f.mT.clone().requires_grad_(), x.mT[None]
    dispersion = mixed.dispersion().detach()
    log_p, slope, bend = mixed.cell_terms(lines, cells, dispersion, {}, 2)
    wanted = mixed(lines.mT).log_prob(x).mT
    (by_f,) = torch.autograd.grad(wanted.sum(), lines, create_graph=True)
    (by_f2,) = torch.autograd.grad(by_f.sum(), lines)
    torch.testing.assert_close(slope.detach(), by_f.detach())
    torch.testing.assert_close(bend.detach(), -by_f2)
    # up to what f does not move, which differs by feature and cell only
    shift = torch.randn(3, 7, 1, dtype=torch.float64)
    moved = mixed.cell_terms(lines + shift, cells, dispersion, {}, 0)[0]
    wanted_moved = mixed((lines + shift).mT).log_prob(x).mT
    torch.testing.assert_close((moved - log_p).detach(), (wanted_moved - wanted).detach())


def test_what_a_dispersion_moves_is_in_the_terms_the_base_and_the_prior(mixed):
    f, x = _drawn(mixed)
    before = mixed.dispersion().detach()
    assert (before[:, mixed.columns[1]] == 1).all()  # yes or no has none
    with torch.no_grad():
        for name in mixed.dispersion_parameters():
            dict(mixed.named_parameters())[name].add_(0.4)
    after = mixed.dispersion().detach()

    def level(d):
        return mixed.cell_terms(f.mT, x.mT[None], d, {}, 0)[0].sum(-1) + mixed.log_base(x.mT[None], d).sum(-1)

    with torch.no_grad():
        there = mixed(f).log_prob(x).sum(1)
        for name in mixed.dispersion_parameters():
            dict(mixed.named_parameters())[name].sub_(0.4)
        here = mixed(f).log_prob(x).sum(1)
    torch.testing.assert_close((level(after) - level(before)).detach(), there - here, atol=1e-6, rtol=1e-6)
    assert set(mixed.dispersion_parameters()) == {"parts.0.log_sigma", "parts.3.log_theta"}


def test_restricted_to_some_columns_it_says_the_same_of_them(mixed):
    f, x = _drawn(mixed)
    dispersion = mixed.dispersion().detach()
    whole = mixed.cell_terms(f.mT, x.mT[None], dispersion, {}, 2)
    for some in (torch.tensor([6, 0, 5]), slice(2, 5), torch.tensor([1])):
        terms = mixed.of_features(some).cell_terms(
            f.mT[:, some], x.mT[None][:, some], dispersion[:, some], {}, 2
        )
        for value, expected in zip(terms, whole, strict=True):
            torch.testing.assert_close(value, expected[:, some])


def test_a_part_whose_terms_are_not_in_closed_form_leaves_all_to_autograd():
    class Wide(Normal):
        def forward(self, f, per_row=None):
            return torch.distributions.StudentT(4.0, f, 1.0)

    likelihood = Columns({0: Wide(), 1: "negative_binomial"})
    likelihood.setup(2)
    assert likelihood.cell_terms(torch.zeros(1, 2, 3), torch.zeros(1, 2, 3), torch.ones(1, 2), {}, 0) is None
    assert not likelihood.has_dispersion  # or parameters that nobody reads would be drawn
    assert likelihood.dispersion_parameters() == ()


def _columns(**values):
    return [
        Column(name, bool if v.dtype == bool else int if (v == np.rint(v)).all() else float, v.astype(float))
        for name, v in values.items()
    ]


NUMBERS, YES = np.array([0.5, 1.5, 2.0]), np.array([True, False, True])


def test_keys_are_names_patterns_positions_types_and_the_rest():
    columns = _columns(age=NUMBERS, q1=np.array([1, 2, 3]), q2=np.array([2, 2, 1]), ill=YES, height=NUMBERS)
    bound = Columns({"q*": "ordinal", bool: "bernoulli", 0: "normal", "*": "normal"}).for_columns(columns)
    assert [(part.name, members) for part, members in bound.families()] == [
        ("normal", [0, 4]),
        ("ordinal", [1, 2]),
        ("bernoulli", [3]),
    ]
    # its own name is plainer than a pattern
    bound = Columns({"q*": "ordinal", "q2": "normal", "*": "bernoulli"}).for_columns(columns)
    assert {part.name: members for part, members in bound.families()}["normal"] == [2]
    assert Columns({("age", "height"): "normal", "*": "normal"}).for_columns(columns).name == "normal"


def test_levels_of_each_column_go_by_the_order_of_the_key():
    columns = _columns(q0=np.array([1, 2]), x=NUMBERS[:2], q2=np.array([1, 2]))
    levels = Ordinal(levels=[(1, 5), (1, 8)])
    bound = Columns({("q2", "q0"): levels, "x": "normal"}).for_columns(columns)
    ordinal, members = next(family for family in bound.families() if family[0].name == "ordinal")
    assert members == [2, 0] and ordinal.n_levels.tolist() == [5, 8]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"q*": "ordinal"}, "no key means column 'age'"),
        ({"q*": "ordinal", "*2": "normal", "*": "normal"}, "column 'q2' is meant by 'q\\*' and '\\*2'"),
        ({"w*": "ordinal", "*": "normal"}, "no column is meant by 'w\\*'; the columns are 'age', 'q1', 'q2'"),
        ({9: "ordinal", "*": "normal"}, "no column is meant by 9"),
    ],
)
def test_keys_that_mean_nothing_or_twice_are_refused(keys, words):
    columns = _columns(age=NUMBERS, q1=NUMBERS, q2=NUMBERS)
    with pytest.raises(ValueError, match=words):
        Columns(keys).for_columns(columns)


@pytest.mark.parametrize(
    ("likelihoods", "words"),
    [
        ({}, "wanted a mapping"),
        (["normal"], "wanted a mapping"),
        ({None: "normal"}, "names no columns"),
        ({(): "normal"}, "names no columns"),
        ({"a": "gamma"}, "'gamma' is not known"),
        ({"a": {"b": "normal"}}, "is not known"),
        ({"a": Columns({0: "normal"})}, "a mapping of its own"),
        ({"a": "multinomial"}, "rows of shares"),
        ({"a": Poisson()}, "size_factors=False"),
        ({"a": NegativeBinomial()}, "size_factors=False"),
        ({"a": "normal", ("a",): "poisson"}, "mean the same"),
        ({("a", "*"): "normal"}, "a key of its own"),
    ],
)
def test_likelihoods_that_are_none_of_a_column_are_refused(likelihoods, words):
    with pytest.raises((TypeError, ValueError), match=words):
        Columns(likelihoods)


def test_before_there_is_a_table_names_are_nothing():
    likelihood = get_likelihood({"a*": "normal", "*": "bernoulli"})
    with pytest.raises(ValueError, match="known once there is a table"):
        likelihood.setup(3)
    with pytest.raises(ValueError, match="speaks of 3 columns, and there are 4"):
        Columns({(0, 1): "normal", 2: "bernoulli"}).setup(4)


def test_auto_goes_by_type_and_cells():
    columns = [
        *_columns(height=NUMBERS, ill=YES, coded=np.array([0, 1, 1]), year=np.array([1950, 1990, 2001])),
        Column("grade", int, np.array([0.0, 1, 2]), ("bad", "good", "best")),
    ]
    bound = get_likelihood("auto").for_columns(columns)
    assert {part.name: members for part, members in bound.families()} == {
        "normal": [0, 3],
        "bernoulli": [1, 2],
        "ordinal": [4],
    }
    assert bound.labels == (None, None, None, None, ("bad", "good", "best"))
    assert get_likelihood("auto").for_columns(_columns(a=NUMBERS, b=NUMBERS)).name == "normal"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.array([1, 2, 5]), "'q' has 1 to 5, which may be levels"),
        (np.array([0, 0, 1, 2, 40]), "'q' has 0 to 40, which may be counts"),
    ],
)
def test_auto_asks_where_whole_numbers_may_be_several_things(values, words):
    with pytest.raises(ValueError, match=words):
        get_likelihood("auto").for_columns(_columns(height=NUMBERS, q=values))
    told = get_likelihood({"q": "poisson", "*": "auto"}).for_columns(_columns(height=NUMBERS, q=values))
    assert [part.name for part, _ in told.families()] == ["normal", "poisson"]


def test_units_of_a_table_are_those_of_each_kind():
    likelihood = Columns({0: "normal", 1: Ordinal(), 2: "poisson"})
    cells = np.array([[1.0, 2, 5], [3.0, 4, 0], [np.nan, 3, 1]])
    likelihood.calibrate(cells)
    centre, scale = likelihood.units(cells, True)
    np.testing.assert_allclose(centre, [2, 2, 0])
    np.testing.assert_allclose(scale, [1, 1, 1])
    assert likelihood.is_standardised(3).tolist() == [True, False, False]
    with pytest.raises(ValueError, match="column 'b' holds 2.5"):
        likelihood.check(np.array([[1.0, 2.5, 0]]), ["a", "b", "c"])


def test_ordered_categories_are_the_numbers_of_their_words():
    from pyro_sparse.data.column_types import columns_of

    words = ["never", "sometimes", "often"]
    table = pd.DataFrame(
        {
            "often": pd.Categorical(["often", "never", None], words, ordered=True),
            "grade": pd.Categorical([2, 1, 2], [1, 2, 3, 4], ordered=True),
            "size": [1.5, 2.0, 3.0],
            "ill": [True, False, True],
        }
    )
    columns = columns_of(table)
    assert [column.type for column in columns] == [int, int, float, bool]
    assert columns[0].labels == tuple(words)
    np.testing.assert_allclose(columns[0].values, [2, 0, np.nan])
    bound = get_likelihood("auto").for_columns(columns)
    ordinal = next(part for part, _ in bound.families() if part.name == "ordinal")
    assert (ordinal.lowest.tolist(), ordinal.n_levels.tolist()) == (
        [0.0, 1.0],
        [3, 4],
    )  # of all, not of those seen
