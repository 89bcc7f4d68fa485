"""What is read off a program, and what is refused before anything is sampled."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine

from pyro_sparse._utils.torch_state import default_dtype
from pyro_sparse.inference.program.layout import read_layout
from pyro_sparse.programs import edges, factors, gates, sample
from pyro_sparse.programs.data import FactorAxis
from tests._programs import FACTORS, FEATURES, PROGRAMS, ROWS, case, table

VIEW = table().view(FACTORS)
NORMALS = {"slab": dist.Normal(0.0, 1.0), "spike": dist.Normal(0.0, 0.1)}


def weights(d, **options):
    return edges("W", log_odds=0.0, to=d.factors, **NORMALS, **options)


def scores(d, shape=(FACTORS,)):
    return factors("z", dist.Normal(torch.zeros(shape), 1.0))


def cells(d, mean):
    with d.rows, d.features:
        pyro.sample("x", dist.Normal(mean, 1.0), obs=d.x)


def with_extra(extra):
    """A sound program, to whose mean something is added."""

    def program(d):
        with d.features:
            W = weights(d)
        with d.rows:
            z = scores(d)
        cells(d, z @ W.mT + extra(d))

    return program


def test_sites_have_their_plates_groups_and_declarations():
    layout, _ = read_layout(PROGRAMS["grouped"], case("grouped")[1].view(FACTORS))
    found = {s.name: (s.group, s.kind, s.observed, s.batch_dim, s.plates) for s in layout.sites.values()}
    both = {"rows": -2, "features": -1}
    assert found == {
        "rate": ("global", "", False, 0, {}),
        "B": ("global", "axis", False, 0, {}),
        "W": ("features", "edges", False, 1, {"features": -1}),
        "z": ("rows", "factors", False, 2, {"rows": -2}),
        "x": ("rows", "", True, 2, both),
    }
    assert [s.name for s in layout.latent()] == ["rate", "B", "z"]
    assert [s.name for s in layout.latent("global")] == ["rate", "B"]
    assert [s.name for s in layout.edges] == ["W"] and layout.edge_names == {"W"}
    assert [s.name for s in layout.axes] == ["B", "W", "z"] and layout.has_axes
    assert layout.n_factors == FACTORS


def test_gates_have_no_map_and_numbers_for_each_factor_no_axis():
    layout, values = read_layout(PROGRAMS["gated"], VIEW)
    assert layout.sites["g"].kind == "gates" and layout.sites["g"].link is None
    assert set(values["g"].unique().tolist()) <= {0.0, 1.0}
    assert [s.name for s in layout.axes] == ["z"]
    layout, _ = read_layout(PROGRAMS["linear"], VIEW)
    assert layout.sites["eta"].kind == "each"
    assert [s.name for s in layout.axes] == ["W", "z"] and not layout.sites["x"].link


def test_the_start_is_a_draw_from_the_prior_as_real_numbers():
    torch.manual_seed(4)
    wanted = poutine.trace(PROGRAMS["linear"]).get_trace(VIEW)
    torch.manual_seed(4)
    _, values = read_layout(PROGRAMS["linear"], VIEW)
    drawn = {name: wanted.nodes[name]["value"] for name in values}
    assert set(drawn) == {"eta", "W", "b", "sd", "z"}
    for name in ("W", "b", "z"):
        torch.testing.assert_close(values[name], drawn[name], rtol=0, atol=0)
    torch.testing.assert_close(values["sd"], drawn["sd"].log())
    torch.testing.assert_close(values["eta"], torch.logit(drawn["eta"]), rtol=1e-4, atol=1e-5)
    assert values["W"].shape == (FEATURES, FACTORS) and values["z"].shape == (ROWS, 1, FACTORS)


def test_a_program_without_factors_has_no_axes():
    def program(d):
        with d.features:
            W = weights(d)
        cells(d, d.dose @ W[..., :1].mT)

    assert not read_layout(program, VIEW)[0].has_axes


def test_a_factor_statement_counts_as_an_observation():
    def program(d):
        with d.features:
            W = weights(d)
        with d.rows, d.features:
            pyro.factor("x", -((d.x - W[..., 0]) ** 2))

    assert read_layout(program, VIEW)[0].sites["x"].observed


def of_every_cell(d):
    with d.rows, d.features:
        return pyro.sample("e", dist.Normal(0.0, 1.0))


def without_edges(d):
    with d.rows:
        z = scores(d)
    cells(d, z[..., :1])


def edges_outside(d):
    W = weights(d)
    with d.rows:
        z = scores(d)
    cells(d, (z * W).sum(-1, keepdim=True))


def edges_in_rows(d):
    with d.rows:
        W = weights(d)
    cells(d, W.sum())


def gates_outside(d):
    g = gates("g", log_odds=0.0, to=d.factors)
    cells(d, g.sum())


def factors_outside(d):
    with d.features:
        W = weights(d)
    cells(d, W @ scores(d))


def factors_of_rows_outside(d):
    with d.features:
        W = weights(d)
    cells(d, scores(d, (ROWS, FACTORS)) @ W.mT)


def no_event(d):
    return pyro.sample("tau", dist.Normal(torch.zeros(3), 1.0)).sum()


def no_event_in_rows(d):
    with d.rows:
        return pyro.sample("r", dist.Normal(torch.zeros(FEATURES), 1.0))


def no_event_in_features(d):
    with d.features:
        return pyro.sample("r", dist.Normal(torch.zeros(3, FEATURES), 1.0)).sum(0)


def discrete(d):
    return pyro.sample("c", dist.Bernoulli(0.5))


def classes_of_rows(d):
    with d.rows:
        return pyro.sample("c", dist.Categorical(torch.ones(3)))


def twice(d):
    return pyro.sample("b", dist.Normal(0.0, 1.0)) + pyro.sample("b", dist.Normal(0.0, 1.0))


def foreign_plate(d):
    with pyro.plate("groups", 3, dim=-3):
        return pyro.sample("b", dist.Normal(0.0, 1.0)).sum()


def rows_elsewhere(d):
    with pyro.plate("rows", FEATURES, dim=-1):
        return pyro.sample("b", dist.Normal(0.0, 1.0))


def infinite(d):
    return 1 / pyro.sample("b", dist.LogNormal(torch.tensor(1e4), 1.0))


def nothing_observed(d):
    with d.features:
        weights(d)
    with d.rows:
        scores(d)


def nothing_in_rows(d):
    with d.features:
        W = weights(d)
        pyro.sample("x", dist.Normal(W.sum(-1), 1.0), obs=d.x[0])


def point(d):
    return pyro.sample("p", dist.Delta(pyro.sample("a", dist.Normal(0.0, 1.0)).exp()))


def shifted_gamma(d):
    shift = dist.transforms.AffineTransform(1.0, 2.0)
    return pyro.sample("c", dist.TransformedDistribution(dist.Gamma(torch.tensor(2.0), 1.0), [shift]))


def shifted_in_features(d):
    shift = dist.transforms.AffineTransform(1.0, 2.0)
    with d.features:
        gamma = dist.Exponential(torch.ones(2))
        return sample("c", dist.TransformedDistribution(gamma, [shift]).to_event(1)).sum(-1)


def edges_given(d):
    poutine.condition(with_extra(lambda d: 0.0), data={"W": torch.ones(FEATURES, FACTORS)})(d)


def edges_scaled(d):
    with poutine.scale(scale=0.5):
        with_extra(lambda d: 0.0)(d)


def cells_with_a_mask_of_obs(d):
    with d.features:
        W = weights(d)
    with d.rows:
        z = scores(d)
    with d.rows, d.features:
        pyro.sample("x", dist.Normal(z @ W.mT, 1.0), obs=d.x, obs_mask=d.seen)


REFUSED = {
    "a point": (with_extra(point), "site 'p' is a point mass, .* by pyro.deterministic"),
    "hidden bounds": (
        with_extra(shifted_gamma),
        "site 'c' is a transformed Gamma, which has bounds that its transform hides",
    ),
    "hidden bounds in features": (with_extra(shifted_in_features), "site 'c' is a transformed Exponential"),
    "edges given": (edges_given, "weights of edges 'W' are given, by poutine.condition or obs="),
    "edges scaled": (edges_scaled, "edges 'W' are inside of poutine.mask or poutine.scale"),
    "obs_mask": (cells_with_a_mask_of_obs, r"leave missing cells out by .mask\(d.seen\), not obs_mask="),
    "a latent of every cell": (
        with_extra(of_every_cell),
        "'e' is a latent of every cell, which cannot be sampled",
    ),
    "no edges": (
        without_edges,
        "declares no edges; want at least one ps.edges or ps.gates site in d.features",
    ),
    "edges outside": (
        edges_outside,
        "edges 'W' are not inside of d.features; write 'with d.features:' around them",
    ),
    "edges in rows": (edges_in_rows, "edges 'W' are not inside of d.features"),
    "gates outside": (gates_outside, "edges 'g' are not inside of d.features"),
    "factors outside": (
        factors_outside,
        "factors 'z' are not inside of d.rows; write 'with d.rows:' around them",
    ),
    "factors of rows outside": (
        factors_of_rows_outside,
        r"site 'z' has batch shape \(6, 1\) outside of any plate",
    ),
    "no event": (
        with_extra(no_event),
        r"'tau' has batch shape \(3,\) outside of any plate; .* add .to_event\(1\)",
    ),
    "no event in rows": (
        with_extra(no_event_in_rows),
        r"'r' has batch shape \(6, 4\) inside of d.rows; what is not",
    ),
    "no event in features": (
        with_extra(no_event_in_features),
        r"'r' has batch shape \(3, 4\) inside of d.features",
    ),
    "discrete": (
        with_extra(discrete),
        "site 'c' is discrete, and chains draw real numbers and gates only: sum it",
    ),
    "classes of rows": (with_extra(classes_of_rows), "site 'c' is discrete"),
    "one name twice": (with_extra(twice), "two sites are called 'b'; give each its own name"),
    "another plate": (
        with_extra(foreign_plate),
        "site 'b' is in a plate 'groups'; a program has d.rows and d.featu",
    ),
    "rows elsewhere": (with_extra(rows_elsewhere), "plate 'rows' has dimension -1; use d.rows, as it is"),
    "not finite": (with_extra(infinite), "site 'b' drew a value that is not finite from its prior"),
    "nothing observed": (
        nothing_observed,
        "observes nothing; give the data to a site, obs=d.x, or to pyro.factor",
    ),
    "nothing in rows": (
        nothing_in_rows,
        "has no site in d.rows; write 'with d.rows, d.features:' around the cells",
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_cannot_be_sampled_is_refused(reason):
    program, words = REFUSED[reason]
    with pytest.raises(ValueError, match=f"program: .*{words}"):
        read_layout(program, VIEW)


@pytest.mark.parametrize("kind", ["edges", "factors", "axis", "each"])
def test_an_axis_of_the_factors_of_another_size_is_refused(kind):
    to = FactorAxis("covariate", FACTORS + 1)
    normal = dist.Normal(torch.zeros(FACTORS + 1), 1.0)

    def site(d):
        if kind == "edges":
            with d.features:
                edges("b", log_odds=0.0, slab=dist.Normal(0.0, 1.0), spike=dist.Normal(0.0, 0.1), to=to)
        elif kind == "factors":
            with d.rows:
                factors("b", normal)
        else:
            sample("b", normal.to_event(1), **{"axes" if kind == "axis" else "each": "factor"})
        return 0.0

    with pytest.raises(
        ValueError, match=f"program: site 'b' .* leads? to {FACTORS + 1} factor.* make columns"
    ):
        read_layout(with_extra(site), VIEW)


def test_a_program_that_fails_says_why_and_on_what():
    with pytest.raises(AttributeError, match="program: fails on these data: data: holds no 'depth'"):
        read_layout(with_extra(lambda d: d.depth), VIEW)
    with pytest.raises(ValueError, match="program: fails on these data: RuntimeError: .* size"):
        read_layout(with_extra(lambda d: torch.zeros(7, 7)), VIEW)
    with pytest.raises(ValueError, match="program: fails on these data: size: no labels of that name"):
        read_layout(with_extra(lambda d: d.levels("size")), VIEW)
    with pytest.raises(ValueError, match=r"dose has numbers: give labels as text, values.astype\(str\)"):
        read_layout(with_extra(lambda d: d.levels("dose")), VIEW)
    with pytest.raises(ValueError, match="as indices .* give labels as text"):
        read_layout(with_extra(lambda d: torch.zeros(3)[d.dose].sum()), VIEW)


def of_cells(density, **data):
    """A program that observes the table by another density."""

    def program(d):
        with d.features:
            W = weights(d)
        with d.rows, d.features:
            pyro.sample("x", density(W[..., 0].expand(d.n_rows, -1), d), obs=d.x)

    return program


@pytest.mark.parametrize(
    ("density", "kind", "feature"),
    [
        (lambda w, d: dist.Bernoulli(logits=w), "Bernoulli", 0),
        (lambda w, d: dist.Poisson(w.exp()).mask(d.seen), "Poisson", 0),
        (lambda w, d: dist.LogNormal(w, 1.0), "LogNormal", 1),
    ],
)
def test_data_that_a_distribution_has_not_are_refused_with_their_place(density, kind, feature):
    """Of torch's discrete distributions, real numbers have a density, too."""
    with pytest.raises(ValueError, match=f"'x' observes .* row 0, feature {feature}, .* of its {kind}"):
        read_layout(of_cells(density), VIEW)


def test_cells_that_are_left_out_may_have_any_value():
    mixed = of_cells(lambda w, d: dist.Bernoulli(logits=w).mask((d.x == 0) | (d.x == 1)))
    assert read_layout(mixed, VIEW)[0].sites["x"].observed


def test_numbers_of_single_precision_are_told_how_to_be_double():
    matrix = torch.eye(FACTORS, dtype=torch.float32)
    with default_dtype(torch.float64):
        view = table().view(FACTORS)
        for single in (
            lambda d: (d.dose @ matrix[:1]).sum(),
            lambda d: torch.nn.Linear(1, 1).float()(d.dose),
        ):
            with pytest.raises(ValueError, match=r"double precision: .* write A.to\(d.x.dtype\)"):
                read_layout(with_extra(single), view)


def test_distributions_and_values_made_outside_may_be_of_another_precision():
    prior = dist.Normal(torch.zeros(FACTORS), 1.0)

    def program(d):
        with d.features:
            W = weights(d)
        with d.rows:
            z = factors("z", prior)
        cells(d, z @ W.mT)

    with default_dtype(torch.float64):
        view = table().view(FACTORS)
        for of_single in (
            program,
            poutine.condition(program, data={"z": torch.ones(ROWS, 1, FACTORS).float()}),
        ):
            assert "W" in read_layout(of_single, view)[1]


@pytest.mark.parametrize(
    "density",
    [
        dist.LogNormal(0.0, 1.0),
        dist.TransformedDistribution(dist.Normal(0.0, 1.0), [dist.transforms.ExpTransform()]),
        dist.TransformedDistribution(
            dist.Uniform(torch.zeros(2), 1.0), [dist.transforms.SigmoidTransform().inv]
        ).to_event(1),
        dist.TransformedDistribution(
            dist.Normal(torch.zeros(2), 1.0), [dist.transforms.AffineTransform(1.0, 2.0)]
        ).to_event(1),
    ],
)
def test_transformed_numbers_without_hidden_bounds_are_sites(density):
    layout, _ = read_layout(with_extra(lambda d: sample("c", density).sum()), VIEW)
    assert "c" in layout.sites


def of_several_bits(d):
    return pyro.sample("c", dist.Bernoulli(torch.full((3,), 0.5)).to_event(1)).sum()


def of_counts(d):
    return pyro.sample("c", dist.Poisson(2.0))


def factors_of_bits(d):
    with d.rows:
        return factors("c", dist.Bernoulli(torch.full((ROWS, FACTORS), 0.5))).sum()


@pytest.mark.parametrize("extra", [of_several_bits, of_counts, factors_of_bits])
def test_discrete_events_and_counts_are_refused_in_words(extra):
    with pytest.raises(ValueError, match="site 'c' is discrete"):
        read_layout(with_extra(extra), VIEW)


def test_a_simplex_is_mapped_to_one_number_less():
    def shares(d):
        return sample("p", dist.Dirichlet(torch.ones(3)))[..., 0]

    layout, values = read_layout(with_extra(shares), VIEW)
    assert values["p"].shape == (2,)
    assert layout.sites["p"].link(values["p"]).sum().item() == pytest.approx(1.0)


def test_factors_may_have_a_mixture_as_their_prior():
    def program(d):
        mixed = dist.MixtureSameFamily(
            dist.Categorical(torch.ones(2)), dist.Normal(torch.tensor([-1.0, 1.0]), torch.tensor(0.4))
        )
        with d.features:
            slab, spike = dist.Normal(0.0, 1.0), dist.Normal(0.0, 0.1)
            W = edges("W", log_odds=0.0, slab=slab, spike=spike, to=d.factors)
        with d.rows:
            z = factors("z", mixed.expand([d.n_factors]).to_event(1))
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(z @ W.mT, 1.0).mask(d.seen), obs=d.x)

    site = read_layout(program, table().view(2))[0].sites["z"]
    u = torch.tensor([-3.0, 2.0])
    assert torch.equal(site.link(u), u)
