"""Densities of chains in one pass against plain Pyro, and derivatives against autograd of one by hand."""

from __future__ import annotations

import contextlib
import functools

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from scipy import special, stats

from pyro_sparse._utils.torch_state import default_dtype
from pyro_sparse.inference.program import replay
from pyro_sparse.inference.program.blocks import BlockSampler
from pyro_sparse.inference.program.derivatives import sum_of
from pyro_sparse.inference.program.recorded import RecordedDensity
from pyro_sparse.programs import Data, Program, edges, factors
from tests._programs import FACTORS, FEATURES, PROGRAMS, ROWS, case, table

CHAINS = 3
GLOBALS = {"linear": {"eta"}, "grouped": {"rate", "B"}, "gated": set()}


@functools.cache
def recorded(name):
    """Recorded once for the tests that only read it."""
    return RecordedDensity(*case(name), CHAINS)


def mapped(name, u):
    """Values of real numbers, and log derivatives of the two maps that are not the identity."""
    if name == "eta":
        return torch.sigmoid(u), (torch.nn.functional.logsigmoid(u) + torch.nn.functional.logsigmoid(-u)).sum(
            -1
        )
    return (u.exp(), u) if name == "sd" else (u, 0.0)


def plain_logs(model, data, u):
    """Log densities of one chain by an ordinary trace, with Jacobians."""
    pairs = {name: mapped(name, value) for name, value in u.items()}
    with default_dtype(torch.float64):
        conditioned = poutine.condition(model, data={name: value for name, (value, _) in pairs.items()})
        trace = poutine.trace(conditioned).get_trace(data)
        trace.compute_log_prob()
    return {name: trace.nodes[name]["log_prob"] + pairs.get(name, (0, 0.0))[1] for name in [*u, "x"]}


def chain(u, c):
    return {name: value[c] for name, value in u.items()}


@pytest.mark.parametrize("name", PROGRAMS)
def test_densities_of_all_chains_are_those_of_plain_pyro(name):
    density, (model, data) = recorded(name), case(name)
    found, joint = density.logs(density.start), density.joint(density.start)
    for c in range(CHAINS):
        wanted = plain_logs(model, data, chain(density.start, c))
        for site, log_prob in wanted.items():
            torch.testing.assert_close(found[site][c], log_prob, rtol=1e-8, atol=1e-8)
        assert joint[c].item() == pytest.approx(sum(value.sum().item() for value in wanted.values()))
    assert len({round(value, 3) for value in joint.tolist()}) == CHAINS


def test_the_joint_of_a_linear_program_by_scipy():
    """No part of Pyro or of the package."""
    density, data = recorded("linear"), case("linear")[1]
    u = {name: value[1].numpy() for name, value in density.start.items()}
    eta, sd, w = special.expit(u["eta"]), np.exp(u["sd"]), u["W"]
    wanted = stats.beta.logpdf(eta, 1, 2).sum() + np.log(eta * (1 - eta)).sum()
    wanted += np.log(eta * stats.norm.pdf(w, 0, 0.8) + (1 - eta) * stats.norm.pdf(w, 0, 0.05)).sum()
    wanted += stats.norm.logpdf(u["b"], 0, 2).sum() + stats.norm.logpdf(u["sd"], -0.5, 0.7).sum()
    wanted += stats.norm.logpdf(u["z"]).sum()
    mean = u["z"][:, 0] @ w.T + u["b"]
    wanted += stats.norm.logpdf(data.x, mean, sd)[data.seen].sum()
    assert density.joint(density.start)[1].item() == pytest.approx(wanted, rel=1e-10)


@pytest.mark.parametrize("name", PROGRAMS)
def test_blocks_cover_every_latent_once_and_their_blankets_are_the_programs(name):
    density = recorded(name)
    sites = [site for block in density.blocks.values() for site in block.sites]
    assert sorted(sites) == sorted(density.start)
    edge = "g" if name == "gated" else "W"
    assert density.blanket(density.blocks[edge]) == {"x"}
    assert density.blanket(density.blocks["rows"]) == {"z", "x"}
    wanted = {
        "linear": {"eta": {"eta", "W"}, "b": {"b", "x"}, "sd": {"sd", "x"}},
        "grouped": {"rate": {"rate", "W"}, "B": {"B", "z"}},
        "gated": {"v": {"v", "x"}},
    }[name]
    for block, blanket in wanted.items():
        assert density.blanket(density.blocks[block]) == blanket
        assert density.blocks[block].group == ("global" if block in GLOBALS[name] else "features")


def test_blankets_have_what_does_not_change_where_the_chains_begin():
    """An effect that begins at a threshold; the prior is well below it, the data are above."""

    def program(d):
        with d.features:
            slab, spike = dist.Normal(0.0, 1.0), dist.Normal(0.0, 0.1)
            edges("W", log_odds=0.0, slab=slab, spike=spike, to=d.factors)
            b = pyro.sample("b", dist.Normal(0.0, 1.0))
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(torch.relu(b - 4), 1.0), obs=d.x)

    density = RecordedDensity(Program(program, FACTORS), Data(5 + np.arange(12.0).reshape(4, 3)), 2)
    assert density.blanket(density.blocks["b"]) == {"b", "x"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_of_a_block_go_out_and_back(name):
    density = recorded(name)
    for block in density.blocks.values():
        q = density.pack(block, density.start)
        assert q.shape[::2] == (CHAINS, block.size)
        assert q.shape[1] == {"rows": ROWS, "features": FEATURES, "global": 1}[block.group]
        back = density.unpack(block, q + 1, density.start)
        for site, value in back.items():
            torch.testing.assert_close(value, density.start[site] + (site in block.sites), rtol=0, atol=0)


# ---- derivatives ----------------------------------------------------------------------------------------
def normal(x, mean, sd):
    return (
        -0.5 * ((x - mean) / sd) ** 2
        - torch.as_tensor(sd, dtype=torch.float64).log()
        - 0.5 * np.log(2 * np.pi)
    )


def spike_and_slab(w, eta):
    return torch.logaddexp(eta.log() + normal(w, 0.0, 0.8), (1 - eta).log() + normal(w, 0.0, 0.05))


def linear_cells(u):
    """By hand, (row, feature)."""
    data = case("linear")[1]
    cells = normal(torch.as_tensor(data.x), u["z"][:, 0] @ u["W"].mT + u["b"], u["sd"].exp())
    return cells * torch.as_tensor(data.seen)


def eta_terms(u):
    eta = torch.sigmoid(u["eta"])
    prior = (np.log(2) + (1 - eta).log() + eta.log() + (1 - eta).log()).sum()
    return (prior + spike_and_slab(u["W"], eta).sum())[None]


BY_HAND = {
    "W": lambda u: linear_cells(u).sum(0),
    "b": lambda u: linear_cells(u).sum(0) + normal(u["b"], 0.0, 2.0),
    "sd": lambda u: linear_cells(u).sum(0) + normal(u["sd"], -0.5, 0.7),
    "rows": lambda u: linear_cells(u).sum(1) + normal(u["z"], 0.0, 1.0).sum((1, 2)),
    "eta": eta_terms,
}


@pytest.mark.parametrize("name", BY_HAND)
def test_terms_slopes_and_curvatures_are_those_of_a_density_by_hand(name):
    density = recorded("linear")
    block, u = density.blocks[name], density.start
    (site,) = block.sites
    q = density.pack(block, u)
    total, (value, slope) = density.total(block, q, u), density.slope(block, q, u)
    gradient, precision = density.curvature(block, q, u)
    for c in range(CHAINS):
        at = chain(u, c)
        wanted = BY_HAND[name](at)
        torch.testing.assert_close(total[c], wanted, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(value[c], wanted, rtol=1e-9, atol=1e-9)

        def by_block(v, at=at):
            return BY_HAND[name]({**at, site: v})

        jacobian = torch.autograd.functional.jacobian(lambda v: by_block(v).sum(), at[site])
        for found in (gradient[c], slope[c]):
            torch.testing.assert_close(found.reshape(jacobian.shape), jacobian, rtol=1e-8, atol=1e-8)
        hessian = torch.autograd.functional.hessian(lambda v: by_block(v).sum(), at[site])
        size = at[site].numel()
        whole = -hessian.reshape(size, size)
        elements, d = q.shape[1:]
        wanted = torch.block_diag(*precision[c])
        assert elements * d == size
        torch.testing.assert_close(wanted, whole, rtol=1e-7, atol=1e-8)


def test_slopes_of_the_joint_are_those_of_all_terms_by_hand():
    density = recorded("linear")
    value, slopes = density.slopes(density.start)
    torch.testing.assert_close(value, density.joint(density.start))
    for c in range(CHAINS):
        u = {name: v[c].clone().requires_grad_() for name, v in density.start.items()}
        joint = linear_cells(u).sum() + eta_terms(u).sum() + normal(u["z"], 0.0, 1.0).sum()
        joint = joint + normal(u["b"], 0.0, 2.0).sum() + normal(u["sd"], -0.5, 0.7).sum()
        for name, gradient in zip(u, torch.autograd.grad(joint, list(u.values())), strict=True):
            torch.testing.assert_close(slopes[name][c], gradient, rtol=1e-8, atol=1e-8)


def test_some_sites_together_are_the_sum_of_theirs():
    density = recorded("grouped")
    logs = density.logs(density.start)
    wanted = logs["z"].sum((1, 2)) + logs["rate"]
    torch.testing.assert_close(density.some(("z", "rate"), density.start), wanted)
    torch.testing.assert_close(sum_of(logs, ("z", "rate")), wanted)


def test_values_are_on_their_own_support():
    density = recorded("linear")
    values = density.values(density.start)
    torch.testing.assert_close(values["eta"], torch.sigmoid(density.start["eta"]))
    torch.testing.assert_close(values["sd"], density.start["sd"].exp())
    assert torch.equal(values["W"], density.start["W"])


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_quick_replay_is_the_recorded_graph(name):
    """Elsewhere than where both were recorded."""
    density = recorded(name)
    assert density._quick_forward is not density._forward_graph
    torch.manual_seed(5)
    u = {n: v if n == "g" else v + 0.3 * torch.randn_like(v) for n, v in density.start.items()}
    heat = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
    with torch.no_grad(), default_dtype(torch.float64):
        quick, graph = (f(u, heat) for f in (density._quick_forward, density._forward_graph))
    for part in (0, 1):
        assert quick[part].keys() == graph[part].keys()
    for site, log_prob in graph[0].items():
        torch.testing.assert_close(quick[0][site], log_prob, rtol=1e-12, atol=1e-12)
    for site, terms in graph[1].items():
        for key, value in terms.items():
            torch.testing.assert_close(quick[1][site][key], value, rtol=1e-12, atol=1e-12)


# ---- edges ----------------------------------------------------------------------------------------------
def test_edge_terms_are_those_of_the_program():
    density = recorded("grouped")
    assert density.families == {"W": ("laplace", "laplace")}
    terms = density.edges(density.start)["W"]
    rate = density.start["rate"][:, [0, 1, 0, 1]][..., None].expand(-1, -1, FACTORS)
    torch.testing.assert_close(terms.log_odds, rate)
    assert (terms.slab == 1).all() and (terms.spike == 0.1).all()
    gates = recorded("gated").edges(recorded("gated").start)["g"]
    assert (gates.log_odds == -0.4).all() and recorded("gated").families == {}


def test_each_chain_has_its_own_heat_until_it_is_taken_back():
    density = RecordedDensity(*case("linear"), CHAINS)
    before = density.logs(density.start)["W"]
    density.heat(torch.tensor([1.0, 2.0, 100.0]))
    terms, after = density.edges(density.start)["W"], density.logs(density.start)["W"]
    for c, spike in enumerate((0.05, 0.1, 0.4)):  # at most half of the slab
        torch.testing.assert_close(terms.spike[c], torch.full_like(terms.spike[c], spike))
        eta, w = torch.sigmoid(density.start["eta"][c]).numpy(), density.start["W"][c].numpy()
        wanted = np.log(eta * stats.norm.pdf(w, 0, 0.8) + (1 - eta) * stats.norm.pdf(w, 0, spike)).sum(1)
        np.testing.assert_allclose(after[c], wanted, rtol=1e-9)
    density.heat(1.0)
    torch.testing.assert_close(density.logs(density.start)["W"], before, rtol=0, atol=0)


def test_heat_reaches_the_terms_of_a_block():
    density = RecordedDensity(*case("linear"), CHAINS)
    block, u = density.blocks["eta"], density.start
    q = density.pack(block, u)
    cold = density.total(block, q, u)
    density.heat(torch.tensor([1.0, 4.0, 1.0]))
    hot = density.total(block, q, u)
    assert torch.equal(hot[[0, 2]], cold[[0, 2]]) and hot[1] != cold[1]


def test_a_point_spike_stays_a_point():
    def program(d):
        with d.features:
            slab, spike = dist.Normal(0.0, 1.0), dist.Delta(torch.tensor(0.0))
            W = edges("W", log_odds=0.0, slab=slab, spike=spike, to=d.factors)
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(d.dose @ W[..., :1].mT, 1.0).mask(d.seen), obs=d.x)

    density = RecordedDensity(Program(program, FACTORS), table(), 1)
    assert density.families == {"W": ("normal", "point")}
    w = density.start["W"].numpy()
    wanted = np.log(np.where(w == 0, 0.5, 0.5 * stats.norm.pdf(w))).sum(-1)
    np.testing.assert_allclose(density.logs(density.start)["W"], wanted, rtol=1e-9)
    assert (density.edges(density.start)["W"].spike == 0).all()


# ---- tables ---------------------------------------------------------------------------------------------
def test_chains_with_tables_of_their_own_have_their_own_densities():
    model, data = case("linear")
    tables = np.random.default_rng(3).standard_normal((CHAINS, ROWS, FEATURES))
    density = RecordedDensity(model, data, CHAINS, tables=tables)
    found = density.logs(density.start)
    for c in range(CHAINS):
        wanted = plain_logs(model, data.with_table(tables[c]), chain(density.start, c))
        torch.testing.assert_close(found["x"][c], wanted["x"], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(found["W"][c], wanted["W"], rtol=1e-10, atol=1e-10)
    block, q = density.blocks["b"], density.pack(density.blocks["b"], density.start)
    torch.testing.assert_close(
        density.total(block, q, density.start), found["x"].sum(1) + found["b"].squeeze(1)
    )


def test_starts_are_those_of_the_seed_and_differ_between_chains():
    again, other = (RecordedDensity(*case("linear"), 2, seed=s).start for s in (0, 1))
    first = recorded("linear").start
    assert torch.equal(first["W"][:2], again["W"]) and not torch.equal(again["W"], other["W"])
    assert not torch.equal(first["W"][0], first["W"][1])
    assert all(value.dtype == torch.float64 for value in first.values())


# ---- precision ------------------------------------------------------------------------------------------
SINGLE = "graphs are replayed under the default precision: what torch.ones makes in a program is single"


def test_a_program_may_multiply_with_matrices_of_its_own():
    def turned(d, W, z):
        return W, z @ torch.eye(FACTORS)

    plain, own = (
        RecordedDensity(Program(sound(c), FACTORS), table(), 2) for c in (lambda d, W, z: (W, z), turned)
    )
    torch.testing.assert_close(own.joint(plain.start), plain.joint(plain.start))


def test_numbers_of_the_program_have_double_precision():
    def shifted(d, W, z):
        return W, z + 0.1 * torch.ones(FACTORS)

    density = RecordedDensity(Program(sound(shifted), FACTORS), table(), 1)
    z, w = density.start["z"][0, :, 0].numpy(), density.start["W"][0].numpy()
    wanted = table().seen * stats.norm.logpdf(table().x, (z + 0.1) @ w.T, 1)
    np.testing.assert_allclose(density.logs(density.start)["x"][0], wanted, rtol=1e-12, atol=1e-12)


# ---- what is refused ------------------------------------------------------------------------------------
def sound(change=lambda d, W, z: (W, z), noise=lambda d: 1.0):
    """A sound program but for a change to weights or factors."""

    def program(d):
        with d.features:
            slab, spike = dist.Normal(0.0, 1.0), dist.Normal(0.0, 0.1)
            W = edges("W", log_odds=0.0, slab=slab, spike=spike, to=d.factors)
        with d.rows:
            z = factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
        W, z = change(d, W, z)
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(z @ W.mT, noise(d)).mask(d.seen), obs=d.x)

    return program


def scaled(d, W, z):
    return W / W.norm(dim=0), z


def centred(d, W, z):
    return W, z - z.mean(0)


def shrunk(d, W, z):
    pyro.factor("penalty", -W.abs().sum())
    return W, z


def of_all_rows(d, W, z):
    pyro.factor("penalty", -z.square().sum())
    return W, z


def branching(d, W, z):
    return (W if W.sum() > 0 else -W), z


def looped(d, W, z):
    while z.abs().max() > 1e3:
        z = z / 2
    return W, z


def as_a_number(d, W, z):
    return W * float(W.sum()), z


def noisy(d, W, z):
    return W, z + torch.randn(z.shape)


def in_place(d, W, z):
    x = torch.zeros(W.shape)
    x[0] = W[0]
    return W + x, z


COUPLED = r"given the rest, {} must be independent of one another \(a sum or a norm over d.{} is what usually"
REFUSED = {
    "weights of one norm": (scaled, "one element of 'W' moves the terms of other features, at site 'x'; "),
    "it says what to change": (scaled, COUPLED.format("features", "features")),
    "factors around their mean": (
        centred,
        "one element of 'z' moves the terms of other rows, at site 'x'; given",
    ),
    "a penalty on all weights": (
        shrunk,
        "one element of 'W' moves a term outside of d.features, at site 'penalty'",
    ),
    "a penalty on all factors": (
        of_all_rows,
        "one element of 'z' moves a term outside of d.rows, at site 'penalty'",
    ),
    "if": (
        branching,
        r"branches on a sampled value \(if, while, .item\(\), float\(...\)\); write it with torch.where",
    ),
    "while": (looped, "branches on a sampled value"),
    "float": (as_a_number, "branches on a sampled value"),
    "random numbers": (
        noisy,
        "draws random numbers outside of a site; make them a site, or draw them before",
    ),
    "in place": (in_place, "writes into a tensor in place; make a new one"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_chains_could_not_sample_is_refused_by_name(reason):
    change, words = REFUSED[reason]
    with pytest.raises(ValueError, match=f"program: .*{words}"):
        RecordedDensity(Program(sound(change), FACTORS), table(), 2)


def test_a_density_that_is_not_finite_is_refused_with_its_place():
    x = np.full((ROWS, FEATURES), 0.4)
    x[3, 1] = -0.2

    def program(d):
        with d.features:
            slab, spike = dist.Normal(0.0, 1.0), dist.Normal(0.0, 0.1)
            W = edges("W", log_odds=0.0, slab=slab, spike=spike, to=d.factors)
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(W[..., 0], d.x, validate_args=False), obs=d.x)

    with pytest.raises(
        ValueError, match="density of site 'x' at .* is nan at a draw from the prior; .* clamp"
    ) as error:
        RecordedDensity(Program(program, FACTORS), Data(x), 2)
    assert "row 3" in str(error.value) and "feature 1" in str(error.value)


def test_a_global_density_that_is_not_finite_has_no_place():
    def penalised(d, W, z):
        tau = pyro.sample("tau", dist.Normal(0.0, 1.0))
        pyro.sample("penalty", dist.Normal(0.0, -tau.exp(), validate_args=False), obs=tau)
        return W, z

    with pytest.raises(ValueError, match="program: the log density of site 'penalty' is nan at a draw"):
        RecordedDensity(Program(sound(penalised), FACTORS), table(), 2)


def test_weights_that_nothing_reads_have_no_terms_but_their_own():
    def with_spare(d, W, z):
        with d.features:
            slab, spike = dist.Normal(0.0, 1.0), dist.Normal(0.0, 0.1)
            edges("V", log_odds=0.0, slab=slab, spike=spike, to=d.factors)
        return W, z

    density = RecordedDensity(Program(sound(with_spare), FACTORS), table(), 2)
    block, u = density.blocks["V"], density.start
    assert density.blanket(block) == frozenset()
    assert torch.equal(density.total(block, density.pack(block, u), u), torch.zeros(2, FEATURES).double())
    gradient, precision = density.curvature(block, density.pack(block, u), u)
    assert not gradient.any() and not precision.any()


def test_a_formula_that_overflows_to_infinity_says_no_density():
    """Below 1e-162 torch's `InverseGamma` says +inf, where the log density is -1e160 and less."""

    def noisy(d):
        with d.features:
            slab, spike = dist.Normal(0.0, 1.0), dist.Normal(0.0, 0.1)
            W = edges("W", log_odds=0.0, slab=slab, spike=spike, to=d.factors)
            variance = pyro.sample("variance", dist.InverseGamma(1.5, 0.015))
        with d.rows:
            z = factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
        with d.rows, d.features:
            cells = dist.Normal((z @ W.mT).tanh(), variance.sqrt())
            pyro.sample("x", cells.mask(d.seen), obs=d.x)

    density = RecordedDensity(Program(noisy, FACTORS), table(), 2)
    block, rows = density.blocks["variance"], density.blocks["rows"]

    def levels(log_variance):
        """Of the second chain, whose first feature has this variance."""
        u = {**density.start, "variance": density.start["variance"].clone()}
        u["variance"][1, 0] = log_variance
        q = density.pack(block, u)
        shift = {"variance": u["variance"] - density.start["variance"]}
        centre = density.pack(rows, u)
        found = [
            density.joint(u), density.some(("variance", "z"), u), density.slopes(u)[0],
            density.transported(rows, density.start, shift, centre, 0 * centre)[0],
            density.total(block, q, u)[:, 0], density.slope(block, q, u)[0][:, 0],
        ]  # fmt: skip
        return torch.stack(found, 1)

    sane, far, overflown = (levels(log_variance) for log_variance in (-2.0, -370.0, -500.0))
    assert torch.equal(far[0], sane[0]) and torch.equal(overflown[0], sane[0])
    assert sane.isfinite().all() and (far[1] < -1e150).all()
    assert (overflown[1] < far[1]).all()
    # It is drawn from where the density is none, and never goes there.
    sampler = BlockSampler(density, block, density.start)
    sampler.centre = torch.full_like(density.pack(block, density.start), -500.0)
    moved = sampler.draw(density.start, adapts=False)
    assert torch.equal(moved["variance"], density.start["variance"])


# ---- control flow ---------------------------------------------------------------------------------------
def counting(asks_sampled):
    """A program whose slope is a number that Python has of the data, or of the weights."""

    def program(d):
        with d.features:
            W = edges(
                "W", log_odds=0.0, slab=dist.Normal(0.0, 1.0), spike=dist.Normal(0.0, 0.1), to=d.factors
            )
        with d.rows:
            z = factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
        slope = int((d.dose > 0).sum()) / d.n_rows
        if (d.x < -100).any() or (asks_sampled and W.sum() > 0):
            slope = 0.0
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(slope * z @ W.mT, 1.0).mask(d.seen), obs=d.x)

    return program


def test_a_program_may_ask_its_data_for_numbers_and_not_its_sites():
    data = table()
    density = RecordedDensity(Program(counting(False), FACTORS), data, 2)
    u = density.start
    slope = float((data.rows["dose"] > 0).mean())
    cells = dist.Normal(slope * u["z"].squeeze(-2) @ u["W"].squeeze(1).mT, 1.0)
    wanted = torch.where(torch.as_tensor(data.seen), cells.log_prob(torch.as_tensor(data.x)), 0.0)
    torch.testing.assert_close(density.logs(u)["x"], wanted)
    with pytest.raises(ValueError, match="branches on a sampled value"):
        RecordedDensity(Program(counting(True), FACTORS), data, 2)


# ---- bounds of what is observed -------------------------------------------------------------------------
def shifted(low, masked):
    """Cells that are exponential above a shift, which torch's density forgets."""

    def program(d):
        with d.features:
            W = edges(
                "W", log_odds=0.0, slab=dist.Normal(0.0, 0.1), spike=dist.Normal(0.0, 0.01), to=d.factors
            )
            shift = pyro.sample("shift", dist.Normal(low, 0.1))
        with d.rows:
            z = factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
        move = dist.transforms.AffineTransform(z @ W.mT + shift, 1.0)
        cells = dist.TransformedDistribution(dist.Exponential(torch.ones(d.n_rows, d.n_features)), move)
        with d.rows, d.features:
            pyro.sample("x", cells.mask(d.seen & ~masked), obs=d.x)

    return program


def test_below_a_shift_that_moves_there_is_no_density():
    nothing = torch.zeros(ROWS, FEATURES, dtype=torch.bool)
    density = RecordedDensity(Program(shifted(-6.0, nothing), FACTORS), table(), 2)
    u = {**density.start, "shift": torch.zeros_like(density.start["shift"])}
    logs = density.logs(u)["x"]
    move = u["z"].squeeze(-2) @ u["W"].squeeze(1).mT
    x, seen = torch.as_tensor(table().x), torch.as_tensor(table().seen)
    wanted = torch.where(x >= move, move - x, -torch.inf)
    torch.testing.assert_close(logs, torch.where(seen, wanted, 0.0))
    with pytest.raises(ValueError, match="log density of site 'x' at row .*feature .* is -inf"):
        RecordedDensity(Program(shifted(0.0, nothing), FACTORS), table(), 2)
    low = torch.as_tensor(table().x < 1.0)  # masked cells may be anywhere
    RecordedDensity(Program(shifted(0.0, low), FACTORS), table(), 2)


def test_distributions_that_were_expanded_outside_of_the_program_are_recorded():
    """They keep the order to check their values, which are no numbers while they are recorded."""
    prior = dist.Normal(0.0, 2.0).expand([3]).to_event(1)
    assert prior.base_dist._validate_args  # or the test is of nothing

    def program(d):
        a = pyro.sample("a", prior)
        with d.features:
            W = edges(
                "W", log_odds=0.0, slab=dist.Normal(0.0, 1.0), spike=dist.Normal(0.0, 0.1), to=d.factors
            )
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(W.sum(-1) + a.sum(), 1.0).mask(d.seen), obs=d.x)

    density = RecordedDensity(Program(program, FACTORS), table(), 2)
    u = density.start["a"]
    torch.testing.assert_close(
        density.logs(density.start)["a"], dist.Normal(torch.zeros_like(u), 2.0).log_prob(u).sum(-1)
    )
    assert prior.base_dist._validate_args  # of the caller's own, as before


def test_shapes_of_a_graph_share_one_mode_without_which_it_is_the_same(monkeypatch):
    """A mode for each node, which torch makes otherwise, takes two fifths of the time of recording."""
    modes = pytest.importorskip("torch._subclasses.fake_tensor").FakeTensorMode
    made, make = [], modes.__init__
    monkeypatch.setattr(modes, "__init__", lambda self, **options: made.append(make(self, **options)))

    def function(u, heat):
        return {"a": (u["a"] * heat).exp().sum() - u["a"].mean()}

    def operations():
        made.clear()
        graph = replay.recorded(function, {"a": torch.ones(3)}, torch.ones(()))
        nodes = [(node.op, str(node.target), str(node.args)) for node in graph.graph.nodes]
        return nodes, len(made)

    shared, n_shared = operations()
    monkeypatch.setattr(replay, "_one_mode_of_shapes", contextlib.nullcontext)
    apart, n_apart = operations()
    assert shared == apart
    assert 1 < n_apart
    assert n_shared <= 1 or torch.__version__.startswith("2.6.")
