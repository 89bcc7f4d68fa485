"""From graphs between dictionaries to probabilities: what one pair says, and what several say of the next.

Of one graph the probability is that of `strength_mixture`, conditional on these two dictionaries, and a
finding says so: on real activations what one fit called .98 was there in .64 of cases in the next. Of several
it is the probability that another refit shows an edge between these latents: by itself gives it more than one
half (`replication.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ...._utils.checks import check_whole
from ...._utils.types import ArvizData
from ....findings.finding import Finding, doubted_edges, write_findings
from ....posterior import arviz as _arviz
from ....posterior.edge_table import edge_numbers
from ....posterior.verdicts import concluded, decided
from ...rotation._binned_mixture import BinnedStrengthMixture, binned_strength_mixture
from .latent_graph import LatentGraph
from .matching import SAME, match_latents
from .replication import Replication, replication

__all__ = ["edge_posterior"]

Array = NDArray[np.float64]

# A strength that is a mean over fewer activations has a relative standard error above .2.
LEAST_FIRES = 20
FEW = 10  # latents on a side: fewer make too few pairs to learn from how often refits agree
HALF = 0.5  # of the latents: where fewer are matched, the reader is told
# Uncertain edges, as a share of all that there are: so many would be wrong given these dictionaries alone.
BLURRED = 0.25
APART = 0.05  # mean difference of two chains on likely edges: two decimals are no longer those of the model
_MOST_DRAWN = 20_000_000  # edges drawn in all, so that the object stays a small file
_MISSED = "A latent that keeps another off is missed: effects are measured where both are active."
_SINGLE_GRAPH = (
    "Probabilities of edges between the latents of these two dictionaries, from the sizes of effects; "
    f"another pair of dictionaries has other latents. {_MISSED}"
)
_REFITS = (
    "Probabilities that another refit shows the edge between these latents, from what {n} refits show; of "
    f"effects on average over rows, not on a single one. {_MISSED}"
)


class _Side(NamedTuple):
    """Latents of one side: their names, and their numbers in each refit, -1 where it lacks them."""

    names: list[str]
    number: NDArray[np.intp]  # (latent, refit)
    n_living: list[int]


def edge_posterior(
    graphs: LatentGraph | Sequence[LatentGraph],
    *,
    num_draws: int = 500,
    seed: int = 0,
    cosine: float = SAME,
    least_fires: int = LEAST_FIRES,
) -> ArvizData:
    """Probability of each edge between the latents of two dictionaries, over refits.

    Parameters
    ----------
    graphs : LatentGraph or sequence of LatentGraph
        From `latent_graph`, one for each refit of the pair of dictionaries, by other seeds, on the same
        layer. Three or more; with two the rate of replication is hardly known, with one it is not.
    num_draws : int
        Draws of the graph in each of four chains; fewer where they would be more than 20 million edges.
    seed : int
        Same seed, same draws.
    cosine : float
        Decoder directions of a latent in two refits must be each other's best match, and above.
    least_fires : int
        Latents that are active on fewer rows of a graph are left out of it, dead ones among them.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        As of a table, with output latents for features and input latents for factors, by the names of the
        first refit that has them: `pyro_sparse.summary`, `plots.plot_graph`, `identify` read it. Draws are of
        the graph that *another refit* would show (edges to which it gives more than one half). `gap` is
        between what single refits say, `effect` the share of an output latent's strength. A group `refits`
        has `probability` and `strength` (refit, feature, factor), what each refit says by itself (NaN where
        it lacks a latent), and `number_out` and `number_in`, the number of each latent in each refit (-1
        where it lacks it); `posterior` has also the rates at which classes of edges replicate. Latents that
        only one refit has are left out; the findings count them.

    Raises
    ------
    TypeError
        Something is no graph.
    ValueError
        There is no graph, graphs are of different layers or effects, no latent is left, or a number is out of
        range.

    Examples
    --------
    >>> import torch
    >>> from types import SimpleNamespace
    >>> import pyro_sparse as ps
    >>> eye = SimpleNamespace(encode=torch.relu, decode=lambda f: f)
    >>> weight = torch.where(torch.arange(144).view(12, 12) % 5 == 0, 1.0, 0.01)
    >>> refits = [
    ...     ps.latent_graph(eye, eye, lambda x: x @ (weight + 0.002 * i).T, torch.rand(50, 12) + 0.1)
    ...     for i in range(3)
    ... ]
    >>> bool((ps.edge_prob(ps.edge_posterior(refits)).to_numpy() > 0.5).sum() == (weight == 1).sum())
    True
    """
    check_whole(1, num_draws=num_draws)
    check_whole(0, seed=seed, least_fires=least_fires)
    parts = _checked(graphs)
    living = [
        [
            np.round(rate * graph.n_rows) >= max(least_fires, 1)
            for graph, rate in zip(parts, rates, strict=True)
        ]
        for rates in ([g.rate_out for g in parts], [g.rate_in for g in parts])
    ]
    outs, ins = (
        _side([getattr(g, f"names_{side}") for g in parts], [getattr(g, f"directions_{side}") for g in parts],
              alive, cosine)
        for side, alive in zip(("out", "in"), living, strict=True)
    )  # fmt: skip
    if not len(outs.names) or not len(ins.names):
        why = "are active on enough rows" if len(parts) == 1 else f"have a match (cosine > {cosine:g})"
        raise ValueError(
            f"graphs: {len(ins.names)} input and {len(outs.names)} output latents {why}; wanted some on both "
            "sides: take more rows, train the dictionaries for longer, or lower the bound"
        )
    seeds = np.random.SeedSequence(seed).spawn(len(parts) + 2)
    probability = np.full((len(parts), len(outs.names), len(ins.names)), np.nan)
    strength = probability.copy()
    blur = []
    mixtures = []
    for refit, graph in enumerate(parts):
        mixture, of_refit, relative = _of_graph(graph, living[0][refit], living[1][refit], seeds[refit])
        blur.append(_blur(mixture.probability))
        mixtures.append(mixture)
        i, j = outs.number[:, refit], ins.number[:, refit]
        here = np.ix_(i >= 0, j >= 0)
        probability[refit][here] = of_refit[np.ix_(i[i >= 0], j[j >= 0])]
        strength[refit][here] = relative[np.ix_(i[i >= 0], j[j >= 0])]
    n_pairs = probability[0].size
    n_draws = max(1, min(num_draws, _MOST_DRAWN // (4 * n_pairs)))
    rng = np.random.default_rng(seeds[-1])
    if len(parts) == 1:
        drawn = _draws_of_one(mixtures[0], n_draws, rng)
        by_chain = probability
        fitted = None
    else:
        fitted = replication(probability.reshape(len(parts), -1), num_draws=num_draws, seed=seeds[-2])
        by_chain = fitted.by_chain.reshape(-1, *probability.shape[1:])
        drawn = _draws_of_next(fitted, n_draws, probability.shape[1:], rng)
    findings = [
        *([_only_one()] if fitted is None else _unmatched(ins, outs, len(parts))),
        *_no_gap(blur),
        *([] if fitted is None else _apart(fitted)),
    ]
    return _packed(
        parts, outs, ins, probability, strength, by_chain, drawn, fitted, findings, cosine, seed, rng
    )


def _checked(graphs: LatentGraph | Sequence[LatentGraph]) -> list[LatentGraph]:
    alone = hasattr(graphs, "strength") or not isinstance(graphs, Iterable)
    parts = cast("list[LatentGraph]", [graphs] if alone else list(cast("Iterable[object]", graphs)))
    wanted = "strength", "directions_in", "directions_out", "rate_in", "rate_out", "names_in", "names_out"
    for part in parts:
        if lacking := [name for name in wanted if not hasattr(part, name)]:
            fix = "; call its own edge_posterior()" if hasattr(part, "edge_posterior") else ""
            raise TypeError(
                f"graphs: a {type(part).__name__} has no {lacking[0]}; wanted graphs from latent_graph{fix}"
            )
    if not parts:
        raise ValueError("graphs: got none; wanted one for each refit, from latent_graph")
    if len(kinds := {part.effect for part in parts}) > 1:
        raise ValueError(f"graphs: got effects {sorted(kinds)}; wanted the same effect for all refits")
    return parts


def _side(
    names: list[list[str]],
    directions: list[NDArray[np.float32]],
    living: list[NDArray[np.bool_]],
    cosine: float,
) -> _Side:
    """Latents that are kept on one side: all living ones of a single graph, else those with a match."""
    n_living = [int(alive.sum()) for alive in living]
    if len(names) == 1:
        number = np.flatnonzero(living[0])[:, None]
        return _Side([names[0][i] for i in number[:, 0]], number, n_living)
    number = match_latents(directions, living, cosine).number
    first = (number >= 0).argmax(1)
    labels = [
        names[refit][row[refit]] if refit == 0 else f"{names[refit][row[refit]]} of refit {refit}"
        for refit, row in zip(first, number, strict=True)
    ]
    return _Side(labels, number, n_living)


def _of_graph(
    graph: LatentGraph,
    alive_out: NDArray[np.bool_],
    alive_in: NDArray[np.bool_],
    seed: np.random.SeedSequence,
) -> tuple[BinnedStrengthMixture, Array, Array]:
    """The mixture among living latents; probabilities and relative strengths of all, (output, input)."""
    relative = graph.relative()[alive_out][:, alive_in]
    mixture = binned_strength_mixture(relative, seed=seed)
    at = np.ix_(alive_out, alive_in)
    whole, sizes = np.zeros(graph.strength.shape), np.zeros(graph.strength.shape)
    whole[at], sizes[at] = mixture.probability, relative.toarray()
    return mixture, whole, sizes


# ---- draws -------------------------------------------------------------------------------------------------
def _draws_of_one(mixture: BinnedStrengthMixture, n_draws: int, rng: np.random.Generator) -> NDArray[np.int8]:
    """Graphs of one pair of dictionaries, (1, draw, output, input), by draws of its scales and rate."""
    n = min(n_draws, len(mixture.rate))
    chosen = np.linspace(0, len(mixture.rate) - 1, n).round().astype(int)
    seeds = rng.integers(2**32, size=n)
    return np.stack([mixture.edge(int(d), int(s)) for d, s in zip(chosen, seeds, strict=True)])[None]


def _draws_of_next(
    fitted: Replication, n_draws: int, shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[np.int8]:
    """Graphs that another refit would show, (chain, draw, output, input)."""
    table = fitted.pattern_probability
    chosen = np.linspace(0, table.shape[1] - 1, n_draws).round().astype(int)
    drawn = np.zeros((len(table), n_draws, len(fitted.pattern)), np.int8)
    for chain, draws in enumerate(table):
        for d, at in enumerate(chosen):
            drawn[chain, d] = rng.random(len(fitted.pattern)) < draws[at][fitted.pattern]
    return drawn.reshape(len(table), n_draws, *shape)


# ---- findings ----------------------------------------------------------------------------------------------
def _only_one() -> Finding:
    return Finding(
        "refits",
        "there is one graph, and its probabilities are conditional on these two dictionaries: nothing "
        "shows which latents and edges another pair would have, and of edges that are sure here a third may "
        "be gone there",
        "train the dictionaries again from two other seeds, and pass the three graphs",
        severity="doubt",
        source="chains",
    )


def _unmatched(ins: _Side, outs: _Side, n_refits: int) -> list[Finding]:
    """How many latents of each side more than one refit has; a doubt where they are hardly any."""
    findings = []
    for side, noun in ((ins, "input"), (outs, "output")):
        n, living = len(side.names), float(np.mean(side.n_living))
        # of those that a refit has, how many another has too
        share = (side.number >= 0).sum(0).mean() / max(living, 1.0)
        if share >= 1 and n >= FEW:
            continue
        few = n < FEW
        findings.append(
            Finding(
                "latents",
                f"{n} {noun} latents are in at least 2 of {n_refits} refits, {share:.0%} of a refit's "
                f"{living:.0f} living ones; the others have no edges here",
                "train the dictionaries on more rows, so that refits agree" if few or share < HALF else "",
                severity="doubt" if few else "note",
                source="chains",
                size=float(share),
            )
        )
    return findings


def _blur(probability: Array) -> float:
    """Expected share of uncertain edges: 0 where every probability is 0 or 1."""
    return float((probability * (1 - probability)).sum() / max(probability.sum(), 1e-12))


def _no_gap(blur: list[float]) -> list[Finding]:
    worst = max(blur)
    if worst <= BLURRED:
        return []
    return [
        Finding(
            "strengths",
            f"the strengths of refit {int(np.argmax(blur))} have no gap between edges and the rest: "
            f"{worst:.0%} of what is called an edge there would be wrong",
            "take more rows, or dictionaries with a smaller k, and read the strengths themselves",
            severity="doubt",
            source="chains",
            size=worst,
        )
    ]


def _apart(fitted: Replication) -> list[Finding]:
    """Whether chains of the model of replication disagree on the edges that are likely."""
    likely = fitted.probability > 0.5
    if not likely.any():
        return []
    apart = float(np.ptp(fitted.by_chain[:, likely], axis=0).mean())
    if apart <= APART:
        return []
    return [
        Finding(
            "chains",
            f"chains of the model of replication differ by {apart:.2f} on likely edges: these refits hardly "
            "tell how often another shows them",
            "add a refit, or draw more (num_draws=)",
            severity="doubt" if apart > 2 * APART else "note",
            source="chains",
            size=apart,
        )
    ]


# ---- to ArviZ ----------------------------------------------------------------------------------------------
def _packed(
    parts: list[LatentGraph],
    outs: _Side,
    ins: _Side,
    probability: Array,
    strength: Array,
    by_chain: Array,
    drawn: NDArray[np.int8],
    fitted: Replication | None,
    findings: list[Finding],
    cosine: float,
    seed: int,
    rng: np.random.Generator,
) -> ArvizData:
    dims = ("feature", "factor")
    single = fitted is None
    p = by_chain.mean(0)
    observed = ~np.isnan(strength)
    size = np.where(observed, strength, 0.0).sum(0) / np.maximum(observed.sum(0), 1)
    effect = size / np.maximum(size.sum(1, keepdims=True), 1e-300)
    low, high = np.where(observed, probability, 1.0).min(0), np.where(observed, probability, 0.0).max(0)
    gap = np.full(p.shape, np.nan) if single else np.maximum(high - low, 0.0)
    numbers = edge_numbers(dims, p, by_chain, {"weight": size, "effect": effect}, gap=gap)
    of_draw = rng.integers(len(parts), size=drawn.shape[:2])
    shown = np.where(observed, strength, size).astype(np.float32)
    weight = np.where(drawn == 1, shown[of_draw], np.float32(0))
    posterior: dict[str, Any] = {
        "edge": (("chain", "draw", *dims), drawn),
        "weight": (("chain", "draw", *dims), weight),
    }
    if fitted is not None:
        chosen = np.linspace(0, fitted.rate.shape[1] - 1, drawn.shape[1]).round().astype(int)
        for name, values in (("replication_rate", fitted.rate), ("class_share", fitted.share)):
            posterior[name] = (("chain", "draw", "class"), values[:, chosen])
    chains = np.arange(len(drawn))
    stats = {"kept": np.ones(len(drawn), bool), "best": chains == 0, "restart": chains}
    groups: dict[str, Any] = {
        "posterior": posterior,
        "edge_posterior": numbers,
        "sample_stats": {name: (("chain",), values) for name, values in stats.items()},
        "refits": {
            "probability": (("refit", *dims), probability),
            "strength": (("refit", *dims), strength),
            "number_out": (("feature", "refit"), outs.number),
            "number_in": (("factor", "refit"), ins.number),
        },
    }
    coords: dict[str, Any] = {"feature": outs.names, "factor": ins.names, "refit": np.arange(len(parts))}
    doubted = doubted_edges(findings, outs.names, ins.names)
    conclusion = [
        decided(p, gap, np.ones(p.shape, bool), doubted), *concluded([], findings, gap, "refit"),
    ]  # fmt: skip
    about = {
        "kind": "dictionaries",
        "edge_method": "strengths of one pair" if single else "replication",
        "weight_unit": "strength",
        "is_score": 0,
        "note": _SINGLE_GRAPH if single else _REFITS.format(n=len(parts)),
        "findings": write_findings(findings),
        "verdict": "\n".join(conclusion),
        "best_restart": 0,
        "effect": parts[0].effect,
        "n_refits": len(parts),
        "n_living_in": ins.n_living,
        "n_living_out": outs.n_living,
        "cosine": float(cosine),
        "seed": int(seed),
        "inference_library": "pyro_sparse",
    }
    return _arviz.from_dict(groups, coords, about)
