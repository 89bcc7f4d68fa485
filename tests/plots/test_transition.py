"""The picture of a transition: its lines are the table's edges, its widths their probabilities."""

from __future__ import annotations

import io
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.findings.finding import Finding, write_findings
from pyro_sparse.posterior.transitions import GraphDraws, transition_to_arviz
from tests._fake_fit import fake_fit

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def close_figures():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


def transition(d=3, lags=1, actions=("push", "pull"), time=None, action=None, is_score=False, seed=0):
    """Made-up edges: `time` and `action` are (restart, ...) probabilities, random where left out."""
    rng = np.random.default_rng(seed)
    shape = (2, d, d) if lags == 1 else (2, lags, d, d)
    if time is None and lags:
        time = np.repeat(rng.random((1, *shape[1:])) ** 2, 2, 0)
        time[..., np.arange(d), np.arange(d)] = 0.99
    if action is None and actions:
        action = np.repeat(rng.random((1, d, len(actions))) ** 2, 2, 0)
    fit = SimpleNamespace(
        n_restarts=2,
        best=0,
        elbo=np.zeros(2),
        heldout_elbo=np.zeros(2),
        agreement=pd.DataFrame({"recovered": [1.0, 0.99]}),
        alignment={"permutation": np.tile(np.arange(d), (2, 1)), "sign": np.ones((2, d))},
        latent_names=[f"latent {k + 1}" for k in range(d)],
        action_names=list(actions),
        settings={},
        findings=[],
        unsure=False,
        model=SimpleNamespace(lags=lags),
    )
    graphs = {}
    for name, p in (("time", time), ("action", action)):
        if p is not None:
            p = np.asarray(p, dtype=float)
            draws = (rng.random((2, 5, *p.shape[1:])) < p[:, None]).astype(np.int8)
            strength = p[0] * rng.uniform(0.1, 1, p.shape[1:])
            graphs[name] = GraphDraws(draws, p[0], p, np.stack([strength, strength]))
    return transition_to_arviz(fit, graphs, method="parent_sets", is_score=is_score, note="made up")


def render(ax):
    buffer = io.BytesIO()
    ax.figure.savefig(buffer, format="png", dpi=50)
    return buffer.getvalue()


def ends(ax):
    """(source height, target height) of every line."""
    return [tuple(patch.get_path().vertices[[0, -1], 1]) for patch in ax.patches]


def place(ax, name, right):
    (text,) = [t for t in ax.texts if t.get_text() == name and (t.get_position()[0] > 0.5) == right]
    return text.get_position()[1]


def names(ax, right):
    return [
        t.get_text() for t in ax.texts if (t.get_position()[0] > 1) == right and t.get_position()[0] != 0.5
    ]


def test_lines_are_the_selected_edges_with_the_width_of_their_probability():
    time = np.zeros((2, 3, 3))
    time[:, [0, 1, 2, 2], [0, 1, 2, 0]] = [1.0, 0.97, 0.9, 0.95]  # (target, source)
    action = np.zeros((2, 3, 2))
    action[:, 1, 0] = 0.92
    ax = ps.plots.plot_transition(transition(time=time, action=action), fdr=0.1)
    want = {
        ("latent 1, t − 1", "latent 1"): 1.0,
        ("latent 2, t − 1", "latent 2"): 0.97,
        ("latent 3, t − 1", "latent 3"): 0.9,
        ("latent 1, t − 1", "latent 3"): 0.95,
        ("push", "latent 2"): 0.92,
    }
    want = {(place(ax, a, False), place(ax, b, True)): 0.4 + 3.2 * p for (a, b), p in want.items()}
    got = {end: patch.get_linewidth() for end, patch in zip(ends(ax), ax.patches, strict=True)}
    assert got.keys() == want.keys()
    for end, width in want.items():
        assert got[end] == pytest.approx(width)
    assert all(patch.get_linestyle() == "-" for patch in ax.patches)
    colour = {end: patch.get_edgecolor()[:3] for end, patch in zip(ends(ax), ax.patches, strict=True)}
    assert len(set(colour.values())) == 3  # own past, another latent's, an action
    (idle,) = [t for t in ax.texts if t.get_text() == "pull"]  # an action that drives nothing is grey
    (busy,) = [t for t in ax.texts if t.get_text() == "push"]
    assert idle.get_color() != busy.get_color()


def test_disputed_edges_are_dashed_and_hairlines_where_not_selected():
    time = np.zeros((2, 3, 3))
    time[0, 0, 0], time[0, 1, 1] = 0.99, 0.98  # the other restart has neither
    time[1, 2, 2] = 0.9  # only the other restart has it
    time[:, 0, 1] = 0.97
    ax = ps.plots.plot_transition(transition(time=time, actions=()))
    dashed = [patch for patch in ax.patches if patch.get_linestyle() != "-"]
    assert len(ax.patches) == 4 and len(dashed) == 3
    thin = [patch for patch in dashed if patch.get_linewidth() < 1]
    assert [tuple(p.get_path().vertices[[0, -1], 1]) for p in thin] == [
        (place(ax, "latent 3, t − 1", False), place(ax, "latent 3", True))
    ]
    assert "unresolved" in [text.get_text() for text in ax.get_legend().get_texts()]


def test_lags_and_actions_have_their_own_nodes():
    ax = ps.plots.plot_transition(transition(d=3, lags=2, actions=("push",)))
    assert names(ax, False) == [f"latent {k}, t − {lag}" for lag in (1, 2) for k in (1, 2, 3)] + ["push"]
    assert names(ax, True) == ["latent 1", "latent 2", "latent 3"]
    ax = ps.plots.plot_transition(transition(d=4, lags=0, actions=("push", "pull")))
    assert names(ax, False) == ["push", "pull"]
    heights = [place(ax, name, False) for name in ("push", "pull")]
    assert np.mean(heights) == pytest.approx(np.mean([place(ax, f"latent {k}", True) for k in (1, 2, 3, 4)]))


def test_own_past_is_level_with_its_latent():
    ax = ps.plots.plot_transition(transition(d=6))
    for k in range(1, 7):
        assert place(ax, f"latent {k}, t − 1", False) == place(ax, f"latent {k}", True)


@pytest.mark.parametrize(
    "options",
    [
        {"d": 1, "actions": ()},
        {"d": 1, "actions": ("push",), "lags": 0},
        {"d": 15, "actions": [f"action with quite a long name {k}" for k in range(10)]},
        {"d": 3, "actions": [f"dose={k}" for k in range(12)]},
        {"d": 3, "lags": 3, "actions": ("$\\broken{", "<i>\n")},
    ],
)
def test_small_large_and_oddly_named_graphs_render_on_dark(options):
    with matplotlib.style.context("dark_background"):
        ax = ps.plots.plot_transition(transition(**options))
        assert len(render(ax)) > 2000
    assert max(len(name) for name in (*names(ax, False), *names(ax, True))) <= 20


def test_scores_are_called_scores_and_given_axes_are_used():
    import matplotlib.pyplot as plt

    _, ax = plt.subplots()
    assert ps.plots.plot_transition(transition(is_score=True), ax=ax) is ax
    assert ax.get_legend().get_title().get_text() == "width = score"


def test_a_graph_without_edges_says_so():
    ax = ps.plots.plot_transition(transition(time=np.full((2, 3, 3), 0.1), action=np.full((2, 3, 2), 0.1)))
    assert not ax.patches and "no edge is selected" in ax.texts[0].get_text()
    assert ax.get_legend() is None
    render(ax)


def test_edges_in_doubt_are_drawn_on_request_only():
    time = np.tile(np.eye(3), (2, 1, 1))
    idata = transition(time=time, actions=())
    doubt = Finding("axes", "latent 1 may hold some of latent 2", severity="doubt", factors=("latent 1",))
    idata.attrs["findings"] = write_findings([doubt])
    plain, all_edges = (
        ps.plots.plot_transition(idata, include_doubted=included) for included in (False, True)
    )
    assert len(plain.patches) == 2 and len(all_edges.patches) == 3
    assert "doubt" in all_edges.get_title(loc="left") and "doubt" not in plain.get_title(loc="left")


def test_edges_of_a_table_are_refused():
    with pytest.raises(TypeError, match="idata: got a .* holds no transition, wanted .* plot_graph"):
        ps.plots.plot_transition(fake_fit().edge_posterior(num_draws=2))
