"""Actions as the caller has them: one edge of each, however coded; what is known of edges beforehand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit

import pyro_sparse as ps
from pyro_sparse.data.action_columns import contrasts
from pyro_sparse.data.sequences import as_sequences
from pyro_sparse.inference.training.elbo import elbo_by_restart
from pyro_sparse.inference.transition.constraint import BernoulliKL
from pyro_sparse.inference.transition.influence import fitted_influence
from pyro_sparse.inference.transition.transition_axes import _seats, dense_steps, find_axes
from pyro_sparse.inference.transition.transition_checks import mixing_error
from pyro_sparse.inference.transition.transition_elbo import transition_elbo
from pyro_sparse.models import LatentTransition
from tests.inference._transitions import SMALL

HURRIED = SMALL | {"steps": 60, "edge_steps": 10, "polish_steps": 10, "restarts": 2, "seed": 0}
SIZES = {"hidden": 8, "units": 8, "gated_units": 4}


def frames(n_levels, n=240, seed=0):
    """Three observed features of two latents; an action of some levels drives the first."""
    rng = np.random.default_rng(seed)
    codes = np.r_[np.arange(n_levels), rng.integers(0, n_levels, n - n_levels)]
    z, effect = np.zeros((n, 2)), rng.normal(size=n_levels)
    for t in range(1, n):
        z[t] = [np.sin(2 * z[t - 1, 0]) + effect[codes[t]], 0.5 * z[t - 1, 1] + np.sin(z[t - 1, 0])]
        z[t] += 0.2 * rng.normal(size=2)
    x = z @ rng.normal(size=(2, 3)) + 0.05 * rng.normal(size=(n, 3))
    return pd.DataFrame(x, columns=list("uvw")), codes


def fit_of(table, action, steps=60, **options):
    model = LatentTransition(n_latents=2, n_actions=1, **SIZES, **options)
    return ps.fit(model, table.assign(do=action), actions=["do"], **(HURRIED | {"steps": steps}))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.usefixtures("hurried", "no_pictures")
@pytest.mark.parametrize("n_levels", [2, 3])
def test_a_fit_is_the_same_however_its_action_is_coded(n_levels, tmp_path):
    table, codes = frames(n_levels)
    text = np.array(["none", "some", "x"])[codes]
    ways = [text, pd.Categorical(codes, ordered=True), np.array(["b", "a", "c"])[codes]]
    ways += [codes, codes == 0] if n_levels == 2 else []
    fits = [fit_of(table, way, steps=15) for way in ways]
    edges = [fit.edge_posterior(num_draws=20) for fit in (fits[0], fits[-1])]
    for fit in fits:
        assert fit.action_names == ["do"] and fit.model.n_actions == 1
        assert fit.strength_action.shape == fit.relaxed_action.shape == fit.graph_action.shape == (2, 2, 1)
        for name in ("strength_action", "relaxed_action", "relaxed_time", "gap", "heldout_elbo"):
            np.testing.assert_array_equal(getattr(fit, name), getattr(fits[0], name))
    for idata in edges:
        assert idata["posterior"]["edge_action"].shape == (2, 20, 2, 1)
        for name in ("probability_action", "probability_time"):
            wanted = edges[0]["edge_posterior"][name].to_numpy()
            np.testing.assert_array_equal(idata["edge_posterior"][name].to_numpy(), wanted)
    table = ps.summary(edges[0])
    assert (table["source"] == "do").sum() == 2 and len(table) == 2 + 4
    assert edges[0]["edge_posterior"]["action"].to_numpy().tolist() == ["do"]
    assert len(ps.identify(fits[0], idata=edges[0]).table) == 2
    drawn = ps.plots.plot_transition(edges[0])
    assert [text.get_text() for text in drawn.texts].count("do") == 1
    page = ps.report(fits[0], tmp_path / "page.html", idata=edges[0]).read_text(encoding="utf-8")
    assert ", 1 action;" in page and "do=" not in page
    scores = ps.summary(fits[0].edge_posterior("gate_probability", num_draws=5))
    assert (scores["source"] == "do").sum() == 2


def test_the_columns_of_an_action_share_a_gate():
    model = LatentTransition(4, 2, n_actions=2, **SIZES)
    model.take_actions(["dose", "do"], [1, 3])
    model.setup(1)
    assert (model.n_parents, model.n_inputs) == (4, 6) and model.logits.shape == (1, 2, 4)
    edges = torch.rand(5, 2, 4)
    gates = model.by_input(edges)
    assert gates.shape == (5, 2, 6)
    torch.testing.assert_close(gates, edges[..., [0, 1, 2, 3, 3, 3]])
    table = pd.DataFrame({"x": np.arange(12.0) % 5, "y": np.arange(12.0) % 7, "do": list("abcd") * 3})
    batch = as_sequences(table, actions=["do"]).batch()
    model = LatentTransition(2, 2, n_actions=1, **SIZES)
    model.take_actions(["do"], [3])
    model.setup(1)
    z = torch.randn(1, 1, 12, 2)
    shut = torch.ones(1, 2, 3)
    shut[:, 0, 2] = 0
    moved = batch.actions.flip(1)
    loc = model.chain(batch, shut).moments(z)[0]
    other = model.chain(batch.whole().__class__(**{**vars(batch), "actions": moved}), shut).moments(z)[0]
    assert torch.equal(loc[..., 0], other[..., 0]) and not torch.allclose(loc[..., 1], other[..., 1])


ODDS = {"edge_odds_time": {(0, 1): 20.0, (2, 2): 0.1}, "edge_odds_action": {(1, "do"): 5.0}}


def model_and_batch(**options):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, 4, 6, generator=generator).numpy()
    do = np.random.default_rng(0).choice(list("abc"), (12, 4))
    data = as_sequences(x, actions=do, action_names=["do"])
    torch.manual_seed(0)
    model = LatentTransition(6, 3, n_actions=1, **SIZES, **options)
    model.take_actions(data.action_names, data.action_widths)
    model.setup(2, 12)
    model.fold(torch.eye(3).repeat(2, 1, 1), torch.randn(2, 3, model.n_parents))
    model.eta.copy_(torch.tensor([0.3, 0.6]))
    return model, data.batch()


@pytest.mark.parametrize("options", [{}, ODDS, {"required_action": [(0, "do")], **ODDS}])
def test_the_bound_in_closed_form_is_that_of_the_programs(options):
    model, batch = model_and_batch(**options)
    found = []
    for bound in (
        lambda: elbo_by_restart(model.model, model.guide, batch, 2),
        lambda: transition_elbo(model, batch),
    ):
        torch.manual_seed(1)
        value = bound()
        slope = torch.autograd.grad(value.sum(), model.logits)[0]
        found.append((value.detach(), slope))
    torch.testing.assert_close(*[f[0] for f in found], rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(*[f[1] for f in found], rtol=1e-4, atol=1e-4)


def test_training_knows_of_the_odds():
    """The divergence by hand, and the rate that maximises the expected log prior."""
    model, batch = model_and_batch(concentration=(1.5, 3.0), forbidden_action=[(2, "do")], **ODDS)
    plain, _ = model_and_batch(concentration=(1.5, 3.0), forbidden_action=[(2, "do")])
    odds = np.ones((3, 4))
    odds[0, 1], odds[2, 2], odds[1, 3] = 20, 0.1, 5
    free = np.ones((3, 4), bool)
    free[2, 3] = False
    p = expit(model.logits.detach().double().numpy())
    kl = []
    for q in (expit(logit([0.3, 0.6])[:, None, None] + np.log(odds)), np.array([0.3, 0.6])[:, None, None]):
        each = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
        kl.append((each * free).sum((1, 2)))
    torch.manual_seed(1)
    with torch.no_grad():
        values = []
        for m in (model, plain):
            torch.manual_seed(1)
            values.append(transition_elbo(m, batch).double().numpy())
    np.testing.assert_allclose(values[1] - values[0], kl[0] - kl[1], rtol=1e-3, atol=1e-2)
    model.after_step(batch, 0.5)
    for r in range(2):

        def loss(u, r=r):
            eta = expit(u + np.log(odds))
            fit = (p[r] * np.log(eta) + (1 - p[r]) * np.log(1 - eta))[free].sum()
            return -(fit + 0.5 * np.log(expit(u)) + 2.0 * np.log(1 - expit(u)))

        best = minimize_scalar(loss, bounds=(-8, 8), method="bounded", options={"xatol": 1e-8}).x
        assert model.eta[r].item() == pytest.approx(expit(best), abs=1e-4)


def test_names_are_looked_up_when_there_are_sequences():
    model = LatentTransition(
        6, 3, n_actions=2, lags=2, required_action=[(0, "do")], forbidden_action=[(1, 0)],
        edge_odds_action=pd.DataFrame([[1.0, 2.0]] * 3, columns=["do", "dose"]),
        edge_odds_time=np.full((3, 3), 3.0),
    )  # fmt: skip
    assert not model.must.any() and not model.allowed[1, 6]
    model.take_actions(["dose", "do"], [1, 2])
    assert model.must.nonzero().tolist() == [[0, 7]] and (~model.allowed).nonzero().tolist() == [[1, 6]]
    wanted = np.tile([3.0] * 6 + [2.0, 1.0], (3, 1))
    np.testing.assert_allclose(model.log_odds.exp(), wanted, rtol=1e-6)
    by_position = LatentTransition(6, 3, 2, required_action=[(0, 1)], edge_odds_action={(2, 1): 7})
    assert by_position.must[0, 4] and by_position.log_odds[2, 4].exp() == pytest.approx(7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"required_action": [(0, "what")]}, r"required_action: there is no action 'what'; the actions are"),
        ({"forbidden_action": [(0, 5)]}, "forbidden_action: action 5 of 2; wanted a name, or a position"),
        ({"required_action": [(7, "do")]}, r"required_action: edge \(7, 'do'\) leads to none of 3 latents"),
        ({"required_action": [(0, "do")], "forbidden_action": [(0, 1)]},
         r"required_action: edge \(0, 'do'\) is also forbidden"),
        ({"edge_odds_time": {(0, 5): 2.0}}, r"edge_odds_time: edge \(0, 5\) lies outside a time graph"),
        ({"edge_odds_time": {(0, 1): 2.0}, "lags": 0}, "edge_odds_time: lags=0"),
        ({"edge_odds_action": {(0, "do"): -1}}, "edge_odds_action: the edge .* has odds of -1"),
        ({"edge_odds_action": np.ones((3, 3))},
         r"edge_odds_action: got shape \(3, 3\), wanted \(target, action\)"),
        ({"edge_odds_action": pd.DataFrame(np.ones((3, 2)), columns=["do", "x"])},
         "edge_odds_action: has the columns .* and the actions are called"),
        ({"edge_odds_action": {(0, "what"): 2.0}}, "edge_odds_action: there is no action 'what'"),
        ({"edge_odds_action": {(0, 0): 2.0}, "n_actions": 0}, "edge_odds_action: n_actions=0"),
        ({"n_actions": 3},
         "X: the sequences have actions: 2, the model was made for n_actions=3; .*counts once"),
        ({"action_widths": [1]}, r"action_widths: got \[1\] for n_actions=2"),
        ({"action_widths": [1, 3]}, r"action_widths: the model was made for \[1, 3\]"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        LatentTransition(6, **{"n_latents": 3, "n_actions": 2, **options}).take_actions(
            ["dose", "do"], [1, 2]
        )


def test_the_rate_of_a_control_has_no_odds():
    table, codes = frames(2)
    model = LatentTransition(n_latents=2, n_actions=1, edge_odds_action={(0, "do"): 3.0}, **SIZES)
    with pytest.raises(ValueError, match="sparsity: got BernoulliKL, which has one rate"):
        ps.fit(model, table.assign(do=codes), actions=["do"], sparsity=BernoulliKL(), **HURRIED)


@pytest.mark.slow(hurried=True)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.usefixtures("hurried")
def test_a_fit_keeps_to_what_is_known_of_actions(tmp_path):
    table, codes = frames(3)
    text = np.array(["none", "some", "x"])[codes]
    fit = fit_of(table, text, required_action=[(0, "do")], forbidden_action=[(1, "do")])
    assert fit.relaxed_action[fit.best].tolist() == [[1], [0]]
    idata = fit.edge_posterior(num_draws=5)
    numbers = idata["edge_posterior"]
    assert numbers["probability_action"].to_numpy().tolist() == [[1], [0]]
    assert numbers["given_action"].to_numpy().tolist() == [[True], [False]]
    fit.save(tmp_path / "fit.pt")
    again = ps.load(tmp_path / "fit.pt")
    assert torch.equal(again.model.must, fit.model.must) and torch.equal(
        again.model.allowed, fit.model.allowed
    )
    # odds move what the evidence leaves open, in the numbering of the fit
    odds = {"edge_odds_action": {(1, "do"): 1e-6}, "edge_odds_time": {(1, 0): 1e6}}
    informed = fit_of(table, text, **odds)
    numbers = informed.edge_posterior(num_draws=5)["edge_posterior"]
    assert numbers["probability_action"].to_numpy()[1, 0] < 0.05
    informed.save(tmp_path / "odds.pt")
    loaded = ps.load(tmp_path / "odds.pt")
    torch.testing.assert_close(loaded.model.log_odds, informed.model.log_odds)
    same = loaded.with_data(table.assign(do=text)).edge_posterior(num_draws=5)["edge_posterior"]
    np.testing.assert_array_equal(same["probability_time"].to_numpy(), numbers["probability_time"].to_numpy())


def test_a_file_of_an_action_for_each_level_is_refused(tmp_path):
    from pyro_sparse.inference.transition.transition_result import take_actions

    old = {"action_names": ["do=a", "do=b"], "action_levels": {"do": ["a", "b"]}}
    with pytest.raises(ValueError, match="action for each level of .'do'.*earlier version.*fit again"):
        take_actions(LatentTransition(6, 3, n_actions=2), old)


@pytest.mark.parametrize("lags", [0, 1])
def test_latents_are_numbered_by_what_actions_drive(lags):
    strength = np.array([[0.1, 0.9, 0.0], [0.8, 0.0, 0.1], [0.0, 0.1, 0.9]])
    strength = np.c_[np.full((3, 3), 0.2), strength] if lags else strength
    options = {"required_action": [(0, 2)], "forbidden_action": [(1, 1)], "edge_odds_action": {(2, 1): 50.0}}
    model = LatentTransition(6, 3, n_actions=3, lags=lags, **options)
    assert _seats(model, strength).tolist() == [2, 1, 0]
    del options["required_action"], options["forbidden_action"]
    assert _seats(LatentTransition(6, 3, n_actions=3, lags=lags, **options), strength)[2] == 0
    assert _seats(LatentTransition(6, 3, n_actions=3, lags=lags), strength).tolist() == [0, 1, 2]


def test_the_strength_of_an_action_is_the_spread_of_its_effect():
    """Of a linear effect, by whatever contrasts: its standard deviation over the steps, as of a number."""
    rng = np.random.default_rng(0)
    codes = rng.choice(4, 400, p=[0.6, 0.2, 0.1, 0.1])
    codes[:4] = range(4)
    table = pd.DataFrame(
        {"x": rng.normal(size=400), "y": rng.normal(size=400), "do": np.array(list("abcd"))[codes]}
    )
    data = as_sequences(table, actions=["do"])
    model = LatentTransition(2, 2, n_actions=1, **SIZES)
    model.take_actions(data.action_names, data.action_widths)
    model.setup(1)
    with torch.no_grad():
        model.transition.outer.weight.zero_()
    batch = data.batch()
    jacobian = dense_steps(model, batch)[0][0]
    weight = model.transition.line.weight[0].detach().double().numpy()  # (input, latent)
    effect = (data.actions[0, 1:] @ weight[2:]).std(0)
    np.testing.assert_allclose(np.sqrt((jacobian[:, :, 2:] ** 2).sum(2).mean(0)), effect, rtol=5e-3)
    found = find_axes(model, batch, n_starts=4, steps=10, max_hops=1)[0]
    assert found.strength.shape == found.graph.shape == (2, 3)


def test_influence_of_an_action_is_what_its_columns_span():
    rng = np.random.default_rng(0)
    graph = np.array([[1, 0, 1, 1], [0, 1, 1, 0]])  # two past latents, a number, and three levels
    # constant derivatives, which one column of a number cannot span two directions with, and two columns can
    jacobian = np.tile(rng.normal(size=(2, 5)), (50, 1, 1))
    both = np.tile(np.array([[1.0, 0.3], [0.2, 1.0]]), (50, 1, 1))
    jacobian[:, :, 3:] = both
    jacobian[:, 1, 2] = 0.5
    graph[:, 3] = 1
    found = fitted_influence(jacobian, graph, 2, 1, [1, 2])["actions"]
    assert found.influence.dimension.tolist() == [2, 2] and found.influence.rank.tolist() == [1, 2]
    graph[1, 3] = 0
    jacobian[:, 1, 3:] = [0.03, 0.04]
    error = fitted_influence(jacobian, graph, 2, 1, [1, 2])["actions"].error
    assert error == pytest.approx(0.05)


def test_as_many_actions_as_latents_are_no_second_lag():
    rng = np.random.default_rng(0)
    rate = np.linspace(0.2, 0.8, 50)
    time = np.stack([np.diag([r, 0.9]) for r in rate])
    action = np.zeros((50, 2, 2))
    noise = 1e-3 * rng.normal(size=(50, 2, 4))
    graph = np.concatenate([np.eye(2), np.zeros((2, 2))], 1) == 1
    jacobian = np.concatenate([time, action], 2) + noise
    wide, narrow = (
        mixing_error(j, g, np.ones(2), 1) for j, g in ((jacobian, graph), (jacobian[:, :, :2], graph[:, :2]))
    )
    np.testing.assert_allclose(wide, narrow, rtol=0.3)


def test_contrasts_are_equally_far_apart():
    for n_levels in (2, 3, 6):
        columns = contrasts(n_levels)
        distance = np.linalg.norm(columns[:, None] - columns, axis=-1)
        assert columns.shape == (n_levels, n_levels - 1)
        np.testing.assert_allclose(distance[~np.eye(n_levels, dtype=bool)], distance[0, 1])
