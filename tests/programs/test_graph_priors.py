"""The programs of the page "Priors over graphs": against sums over graphs, and against their own priors."""

from __future__ import annotations

import itertools
import os
import re
import signal
from pathlib import Path

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import SVI, Predictive, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from scipy import optimize, special, stats

import pyro_sparse as ps
from pyro_sparse.inference.program import job
from pyro_sparse.inference.program.recorded import RecordedDensity
from pyro_sparse.inference.program.sweeps import ProgramChains
from tests.inference.program._long_runs import check

# rough axes and posteriors of rows: none of these tests is about how good they are
pytestmark = pytest.mark.usefixtures("hurried_module")

PAGE = Path(__file__).parents[2] / "docs" / "graph_priors.md"
NAMES = ["groups", "regression", "field", "pathways", "shrinkage", "parameters", "network"]
FEATURES, FACTORS, ROWS = 6, 2, 40
SLAB, SPIKE, NOISE = 0.8, 0.03, 2.0
DRAWS = 100_000  # of the prior, with which a posterior is weighted
rng = np.random.default_rng(0)
KNOWN = {
    "group": np.array(["a", "a", "b", "b", "c", "c"]),
    "about": rng.normal(size=(FEATURES, 2)),
    "place": np.array([0.0, 1.0, 2.0, 4.0, 5.0, 9.0]),
    "member": np.array([[1, 0], [1, 0], [1, 1], [1, 1], [0, 1], [0, 0]], float),
    "score": np.linspace(-1.5, 1.5, FEATURES),
}
FACTOR = rng.normal(size=(ROWS, FACTORS))
X = FACTOR @ (SLAB * (rng.random((FEATURES, FACTORS)) < 0.5)).T + NOISE * rng.normal(size=(ROWS, FEATURES))


@pytest.fixture(scope="module")
def page():
    """What the page defines, without the fit at its end."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    there: dict[str, object] = {}
    for block in blocks[:-1]:
        exec(compile(block, str(PAGE), "exec"), there)
    return there


@pytest.fixture(autouse=True)
def clean():
    pyro.clear_param_store()
    yield
    pyro.clear_param_store()


def data(rows=ROWS):
    return ps.Data(X[:rows], rows={"known": FACTOR[:rows]}, features=KNOWN)


def with_known_factors(log_odds):
    """Cells whose factors are known, so that the evidence of each feature's edges has a closed form."""

    def program(d):
        odds = log_odds(d)
        with d.features:
            slab, spike = dist.Normal(0.0, SLAB), dist.Normal(0.0, SPIKE)
            W = ps.edges("W", log_odds=odds, slab=slab, spike=spike, to=d.factors)
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(d.known @ W.mT, NOISE), obs=d.x)

    return program


# ---- the same by sums over graphs ----------------------------------------------------------------------
GRAPHS = np.array(list(itertools.product((0, 1), repeat=FACTORS)))  # of a feature


def log_evidence(x):
    """Log density of each column under each set of its edges, (feature, graph)."""
    variances = np.where(GRAPHS, SLAB**2, SPIKE**2)
    covs = [NOISE**2 * np.eye(ROWS) + (FACTOR * v) @ FACTOR.T for v in variances]
    return np.array([[stats.multivariate_normal.logpdf(column, cov=cov) for cov in covs] for column in x.T])


def log_joint(log_odds, x=X):
    """Log of prior times evidence of each graph, (..., feature, graph), for (..., feature, factor)."""
    odds = log_odds[..., None, :]
    prior = np.where(GRAPHS, -np.logaddexp(0, -odds), -np.logaddexp(0, odds)).sum(-1)
    return prior + log_evidence(x)


def edge_probabilities(log_odds):
    """P(edge) given the data, of draws of the log odds from their prior (draw, feature, factor)."""
    joint = log_joint(log_odds)
    level = special.logsumexp(joint, -1)
    weight = special.softmax(level.sum(-1))
    given = np.exp(joint - level[..., None]) @ GRAPHS
    return np.einsum("n,njk->jk", weight, given)


def prior_draws(name, n=DRAWS):
    """Log odds drawn from each prior, written anew."""
    g = np.random.default_rng(5)
    centre = g.normal(-0.5, 1, (n, 1, 1))
    if name == "groups":
        away = g.normal(size=(n, 3, FACTORS))[:, [0, 0, 1, 1, 2, 2]]
        return centre + np.abs(g.normal(size=(n, 1, 1))) * away
    if name == "regression":
        return centre + KNOWN["about"] @ g.normal(size=(n, 2, FACTORS))
    if name == "field":
        far = np.abs(KNOWN["place"][:, None] - KNOWN["place"])
        cov = np.exp(-far / g.lognormal(1.0, 0.5, (n, 1, 1)))
        root = np.linalg.cholesky(cov + 1e-6 * np.eye(FEATURES))
        size = np.abs(g.normal(0, 1.5, (n, 1, 1)))
        return centre + size * (root @ g.normal(size=(n, FEATURES, FACTORS)))
    if name == "pathways":
        return g.normal(-1.5, 0.7, (n, 1, 1)) + KNOWN["member"] @ g.laplace(size=(n, 2, FACTORS))
    if name == "shrinkage":
        rate = g.beta(3, 1, (n, 1, FACTORS)).cumprod(-1)
        return np.broadcast_to(special.logit(rate), (n, FEATURES, FACTORS))
    return np.broadcast_to(-0.5 + 0.5 * KNOWN["score"][:, None], (1, FEATURES, FACTORS))


def chains_of(page, name, n_chains, warm_up):
    program = ps.Program(with_known_factors(page[name]), FACTORS)
    density = RecordedDensity(program, data(), n_chains)
    torch.manual_seed(1)
    return ProgramChains(density, density.start, warm_up, climbing=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES[:-1])
def test_edges_have_the_probabilities_of_a_sum_over_all_graphs(page, name):
    warm_up = 0 if name == "parameters" else 100  # they are held at their values from the begin
    chains, total, sweeps = chains_of(page, name, 16, warm_up), 0.0, 800
    for sweep in range(warm_up + sweeps):
        chains.sweep()
        if sweep >= warm_up:
            total = total + chains.drawn()["W"][1].numpy()
    wanted = edge_probabilities(prior_draws(name))
    assert np.ptp(wanted) > 0.3  # not the answer of a prior
    check(total / sweeps, wanted, least=0.006)


# ---- draws of the prior stay draws of the prior ----------------------------------------------------------
PRIORS = {
    "groups": {"centre": stats.norm(-0.5, 1), "spread": stats.halfnorm(), "away": stats.norm()},
    "regression": {"centre": stats.norm(-0.5, 1), "slope": stats.norm()},
    "field": {
        "size": stats.halfnorm(scale=1.5),
        "reach": stats.lognorm(0.5, scale=np.e),
        "free": stats.norm(),
    },
    "pathways": {"centre": stats.norm(-1.5, 0.7), "gain": stats.laplace()},
    "shrinkage": {"stick": stats.beta(3, 1)},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIORS)
def test_without_a_cell_that_was_seen_chains_draw_from_the_prior(page, name):
    unseen, n_chains, factors = data(rows=5), 600, 3
    object.__setattr__(unseen, "seen", np.zeros_like(unseen.seen))
    density = RecordedDensity(ps.Program(page["program_with"](page[name]), factors), unseen, n_chains)
    torch.manual_seed(2)
    chains = ProgramChains(density, density.start, warm_up=0, climbing=0)
    for _ in range(25):
        chains.sweep()
    values = density.values(chains.position)
    for site, prior in PRIORS[name].items():
        drawn = values[site].reshape(n_chains, -1)
        for column in drawn.T[:: max(1, drawn.shape[1] // 4)]:
            assert stats.kstest(column.numpy(), prior.cdf).pvalue > 1e-4, site
        assert not torch.equal(chains.position[site], density.start[site]), f"{site} did not move"
    edge = (
        chains.edges()["W"][1].numpy().mean(1)
    )  # (chain, factor): factors where they are, not where they fit
    log_odds = density.edges(density.start)["W"].log_odds
    before = torch.sigmoid(log_odds).mean(1).numpy()
    error = np.sqrt(edge.var(0) + before.var(0)) / np.sqrt(n_chains)
    assert (np.abs(edge.mean(0) - before.mean(0)) < 4.5 * error).all()
    if name == "shrinkage":
        assert (np.abs(edge.mean(0) - 0.75 ** np.arange(1, factors + 1)) < 0.05).all()


# ---- parameters ------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_learned_parameters_have_the_highest_likelihood(page):
    many, g = 80, np.random.default_rng(3)
    score = np.linspace(-1.5, 1.5, many)
    edge = g.random((many, FACTORS)) < special.expit(-0.5 + 1.5 * score)[:, None]
    x = FACTOR @ (g.normal(0, SLAB, edge.shape) * edge).T + NOISE * g.normal(size=(ROWS, many))

    def loss(theta):
        odds = np.repeat((theta[0] + theta[1] * score)[:, None], FACTORS, 1)
        return -special.logsumexp(log_joint(odds, x), -1).sum()

    best = optimize.minimize(loss, [0.0, 0.0]).x
    seen = ps.Data(x, rows={"known": FACTOR}, features={"score": score})
    density = RecordedDensity(ps.Program(with_known_factors(page["parameters"]), FACTORS), seen, 16)
    torch.manual_seed(1)
    chains = ProgramChains(density, density.start, 300, climbing=0, table_of=[0] * 16)
    for _ in range(300):
        chains.sweep()
    found = np.array([chains.position[n].numpy() for n in ("centre", "slope")])
    assert np.ptp(found, axis=1).max() < 1e-12  # of one table, one value
    assert loss(found[:, 0]) - loss(best) < 0.1 < 1 < loss([-0.5, 0.5]) - loss(best)  # where they began
    before = dict(chains.position)
    chains.sweep()
    assert torch.equal(chains.position["slope"], before["slope"])  # held after the warm-up
    assert not torch.equal(chains.position["W"], before["W"])


@pytest.mark.slow
def test_a_fit_learns_parameters_and_its_chains_say_what_they_hold(page, tmp_path):
    pyro.param("slope", torch.tensor(30.0))  # of something else, in Pyro's store
    model = ps.Program(page["program_with"](page["parameters"]), FACTORS)
    fit = ps.fit(model, data(), restarts=2, sweeps=30, seed=0, progress=False)
    learned = fit.values()["slope"].item()
    assert learned != 0.5 and abs(learned) < 20
    assert pyro.param("slope").item() == 30 and list(pyro.get_param_store()) == ["slope"]
    assert ps.check(model, data()).sites.loc["slope", "drawn"].startswith("point estimate")
    idata = fit.edge_posterior(chains=2, sweeps=60, progress=False)
    slope = idata["posterior"]["slope"].to_numpy()
    assert np.ptp(slope) < 1e-12 and slope[0, 0] != learned
    assert "centre, slope" in idata.attrs["verdict"] and "pyro.sample in place" in idata.attrs["verdict"]
    fit.save(tmp_path / "fit")
    again = ps.load(tmp_path / "fit", model, data())
    assert again.values()["slope"].item() == learned
    ps.report(fit, tmp_path / "page.html", idata=idata)
    assert "slope" in (tmp_path / "page.html").read_text()


@pytest.mark.slow
def test_a_fit_that_was_cut_off_goes_on_with_its_parameters(page, tmp_path, monkeypatch):
    advance, made = job.ProgramGroup._advance, []
    model, settings = (
        ps.Program(page["program_with"](page["parameters"]), FACTORS),
        {"sweeps": 40, "restarts": 2},
    )
    whole = ps.fit(model, data(), progress=False, **settings)

    def interrupted(group):
        advance(group)
        made.append(group.step)
        if len(made) == 28:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(job.ProgramGroup, "_advance", interrupted)
    settings |= {"checkpoint": tmp_path / "run.pt", "checkpoint_every": 5, "progress": False}
    with pytest.raises(KeyboardInterrupt):
        ps.fit(model, data(), **settings)
    monkeypatch.setattr(job.ProgramGroup, "_advance", advance)
    resumed = ps.fit(model, data(), **settings)
    assert torch.equal(resumed.position["slope"], whole.position["slope"])
    np.testing.assert_array_equal(resumed.weights, whole.weights)


def test_a_network_with_names_is_learned_and_one_without_is_refused(page):
    net = page["net"]

    def sites(log_odds):
        return RecordedDensity(ps.Program(page["program_with"](log_odds), FACTORS), data(), 2).layout

    learned = [site.name for site in sites(page["network"]).parameters]
    assert learned == [f"net.{layer}.{kind}" for layer in (0, 2) for kind in ("weight", "bias")]

    def unnamed(d):
        return torch.func.functional_call(net, {n: p.double() for n, p in net.named_parameters()}, d.about)

    def detached(d):
        named = {n: p.detach().double() for n, p in net.named_parameters()}
        return torch.func.functional_call(net, named, d.about)

    with pytest.raises(ValueError, match=r"a parameter of shape .* does not name.*pyro\.param\('name'"):
        sites(unnamed)
    assert not sites(detached).parameters


def test_parameters_of_a_pyro_module_are_learned(page):
    class Rates(pyro.nn.PyroModule):
        def __init__(self):
            super().__init__()
            self.centre = pyro.nn.PyroParam(torch.tensor(0.5), dist.constraints.positive)

        def forward(self, d):
            page["program_with"](lambda d: -self.centre)(d)

    density = RecordedDensity(ps.Program(Rates(), FACTORS), data(), 2)
    assert density.layout.sites["centre"].kind == "parameter"
    torch.testing.assert_close(density.values(density.start)["centre"], torch.full((2,), 0.5).double())
    torch.testing.assert_close(
        density.edges(density.start)["W"].log_odds.unique(), torch.tensor([-0.5]).double()
    )


@pytest.mark.parametrize("value", [None, torch.tensor(float("nan"))])
def test_parameters_without_a_value_are_refused(page, value):
    def log_odds(d):
        return pyro.param("c", value)

    with pytest.raises(ValueError, match="parameter 'c' (has no initial value|is not finite)"):
        ps.check(ps.Program(page["program_with"](log_odds), FACTORS), data())


# ---- what is refused, in words that help -----------------------------------------------------------------
def of_neighbours(d):
    """An edge makes the neighbour's more likely."""
    with d.features:
        g = ps.gates("g", log_odds=-1.0, to=d.factors)
    return -1.0 + 2 * torch.roll(g, 1, -2)


def ising(d):
    with d.features:
        g = ps.gates("g", log_odds=-1.0, to=d.factors)
    pyro.factor("ising", (g[..., 1:, :] * g[..., :-1, :]).sum((-1, -2)))
    return -1.0 + g


@pytest.mark.parametrize("log_odds", [of_neighbours, ising])
def test_edges_that_depend_on_one_another_are_refused_with_a_way_to_write_it(page, log_odds):
    with pytest.raises(ValueError, match=r"one element of 'g' moves .* give log_odds a field"):
        ps.check(ps.Program(page["program_with"](log_odds), FACTORS), data())


def test_weights_that_are_scaled_by_all_features_are_not_told_of_fields():
    def program(d):
        with d.features:
            W = ps.edges(
                "W", log_odds=0.0, slab=dist.Normal(0.0, 1.0), spike=dist.Normal(0.0, 0.1), to=d.factors
            )
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(d.known @ (W / W.norm(dim=-2)).mT, 1.0), obs=d.x)

    with pytest.raises(ValueError, match="'W' moves the terms of other features") as error:
        ps.check(ps.Program(program, FACTORS), data())
    assert "a field" not in str(error.value)


@pytest.mark.parametrize("n_factors", [1, 2])
def test_numbers_of_features_where_those_of_factors_are_wanted_are_refused(page, n_factors):
    with pytest.raises(
        ValueError, match=r"log_odds: has shape \(6,\), wanted .* write value\[\.\.\., None\]"
    ):
        ps.check(ps.Program(page["program_with"](lambda d: d.score), n_factors), data())


def test_a_number_as_a_point_mass_is_refused_with_the_tensor_to_write():
    def program(d):
        with d.features:
            ps.edges("W", log_odds=0.0, slab=dist.Normal(0.0, 1.0), spike=dist.Delta(0.0), to=d.factors)

    with pytest.raises(AttributeError, match=r"takes a tensor, dist\.Delta\(torch\.tensor\(0\.\)\)"):
        ps.check(ps.Program(program, FACTORS), data())


# ---- sticks, and what is computed of them ----------------------------------------------------------------
@pytest.mark.slow
def test_rates_of_sticks_follow_the_factors_and_sticks_stay(page):
    model = ps.Program(page["program_with"](page["shrinkage"]), 3)
    fit = ps.fit(model, data(), restarts=2, sweeps=30, seed=0, progress=False)
    posterior = fit.edge_posterior(chains=2, sweeps=60, progress=False)["posterior"]
    rate, stick = posterior["rate"], posterior["stick"].to_numpy()
    assert rate.dims == ("chain", "draw", "factor") and posterior["stick"].dims[-1] == "stick_dim_0"
    np.testing.assert_allclose(np.sort(rate)[..., ::-1], stick.cumprod(-1))  # the same, in the factors' order


# ---- plain Pyro ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", NAMES)
def test_programs_are_pyro_programs(page, name):
    model = ps.Program(page["program_with"](page[name]), FACTORS)
    drawn = Predictive(model, num_samples=5, parallel=True)(data())
    assert drawn["W"].shape == (5, 1, FEATURES, FACTORS)
    loss = Trace_ELBO(num_particles=3, vectorize_particles=True, max_plate_nesting=2)
    svi = SVI(model, AutoNormal(model), pyro.optim.Adam({"lr": 0.01}), loss)
    assert np.isfinite([svi.step(data()) for _ in range(2)]).all()


def test_functions_of_the_page_are_short():
    blocks = re.findall(r"^def (\w+)\(d\):\n((?:    .*\n)+)", PAGE.read_text(), re.M)
    assert [name for name, _ in blocks] == NAMES
    assert max(body.count("\n") for _, body in blocks) <= 8
