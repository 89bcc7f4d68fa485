"""The words of a page, once each: the same word for the same quantity in text, tables and pictures."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Entry", "glossary"]


class Entry(NamedTuple):
    """A word, the anchor that it is linked by, and what it means."""

    anchor: str
    word: str
    meaning: str


_SCORE = (
    "How strongly the best restart speaks for the edge, from 0 to 1. It ranks edges; it is not the chance "
    "that the edge is real."
)


def glossary(kind: str, facts: dict[str, Any]) -> list[Entry]:
    """What the words on a page mean.

    Parameters
    ----------
    kind : {"table", "program", "transition", "tasks", "variables"}
    facts : dict
        Those of the page: `word` ("probability" or "score") and `runs` (what is compared, such as "the
        chains"); of a table also `salient`, `loadings`, `sizes`, `of_predictor`, `not_in_fit` and `n_given`.
    """
    own = {"table": _of_table, "program": _of_program, "variables": _of_variables}.get(kind, _of_latents)
    entries = [*own(kind, facts), *_common(kind, facts)]
    if kind == "variables":  # no latents, and nothing is trained
        entries = [entry for entry in entries if entry.anchor not in ("identified", "restart")]
    return entries


def _common(kind: str, facts: dict[str, Any]) -> list[Entry]:
    word, runs = facts["word"], facts["runs"]
    hidden = "factors" if kind in ("table", "program") else "latents"
    given = (
        " Edges that were given to the model are selected and do not count." if facts.get("n_given") else ""
    )
    entries = [
        Entry(
            "selected",
            "Selected edge",
            "An edge on the list that keeps to the false-discovery rate. An edge that a doubt touches, or "
            f"with a {word} below one half, is never selected.",
        ),
        Entry(
            "false-discovery-rate",
            "False-discovery rate",
            "The share of wrong edges to be expected among those selected"
            f"{', if the scores could be taken for probabilities' if word == 'score' else ''}.{given}",
        ),
        Entry("q-value", "q-value", "The smallest false-discovery rate at which the edge would be selected."),
        Entry(
            "gap",
            "Gap",
            f"The largest difference of an edge's {word} between {runs}. Above .25 the edge is called "
            f"unresolved: {runs} disagree about it.",
        ),
    ]
    if word == "probability":
        entries.append(
            Entry(
                "verdict",
                "Verdict",
                "Present: the probability is .95 or more. Absent: .05 or less. Open: anything between, an "
                "unresolved edge, or one that a doubt touches. More rows settle most open edges.",
            )
        )
    return [
        *entries,
        Entry(
            "caution",
            "Caution, doubt",
            "A caution is anything found that speaks against the result. A doubt is a caution that leaves "
            "the edges that it touches open.",
        ),
        Entry(
            "identified",
            "Identified",
            f"The graph leaves no other set of {hidden} that would explain the data as well, but for sign, "
            "scale and curve. It is a statement about the model; whether what was found is a thing in the "
            "world is for the reader to show.",
        ),
        Entry("restart", "Restart", "The same model fitted again from another start."),
    ]


def _probability(given: str) -> str:
    return f"The chance that the edge is real, given {given}."


def _of_table(kind: str, facts: dict[str, Any]) -> list[Entry]:
    word, salient = facts["word"], facts["salient"]
    of_predictor = (
        " The variance is that of the linear predictor plus π²/3 (yes/no, levels) or 1 (counts)."
        if facts["of_predictor"]
        else ""
    )
    entries = [
        Entry("feature", "Feature", "A column of the table."),
        Entry(
            "factor",
            "Factor",
            "A hidden quantity that moves several features at once. Its name, order and sign are arbitrary; "
            "what it means is for the reader to judge from its features.",
        ),
        Entry("edge", "Edge", "A link from a factor to a feature: the feature depends on the factor."),
        Entry(word, word.capitalize(), _SCORE if word == "score" else _probability("the data and the model")),
    ]
    if facts["loadings"]:
        sizes = (
            f" “Loading ≥ {salient:g}” is the probability that its size, the sign aside, is at least "
            f"{salient:g} ({100 * salient**2:.2g} % of the variance); with .95 or more the edge is called "
            "salient. With many rows small loadings are edges with probability 1, and this says which of "
            "them are large."
            if facts["sizes"]
            else ""
        )
        entries.append(
            Entry(
                "loading",
                "Loading",
                "Standardised: the feature's change, in its standard deviations, for one standard deviation "
                "of the factor; of a curve the root of the share of variance, with the sign of its mean "
                f"slope, or ± where it goes both ways. Mean and interval are of the posterior draws.{sizes}",
            )
        )
    entries.append(
        Entry(
            "share-of-variance",
            "Share of variance",
            f"How much of the feature's variance is due to the factor.{of_predictor}",
        )
    )
    entries.append(
        Entry(
            "shape",
            "As the factor goes up",
            "What the feature does while the factor rises and the others rest.",
        )
    )
    if facts["not_in_fit"]:
        entries.append(
            Entry(
                "not-in-the-fit",
                "Not in the fit",
                "The chains find the edge; the fit, whose curves are drawn here, does not have it.",
            )
        )
    if facts["runs"] == "the chains":
        entries.append(
            Entry(
                "chain",
                "Chain",
                "A Markov chain over graphs, begun at a restart; the share of its steps that have an edge "
                "tells how probable it is.",
            )
        )
    return [
        *entries,
        Entry(
            "elbo",
            "ELBO",
            "The evidence lower bound: how well a fit explains a row, in nats (natural units of "
            "information); higher is better.",
        ),
        Entry(
            "agreement",
            "Agreement",
            "How alike the loadings of two restarts or chains are, whatever the order and sign of their "
            "factors; 1 is the same.",
        ),
    ]


def _of_program(kind: str, facts: dict[str, Any]) -> list[Entry]:
    word = facts["word"]
    what = (
        "A factor that a feature depends on."
        if facts["declares_factors"]
        else "A column that another depends on."
    )
    slab = " Its weight comes from the slab that the program declares, and not from the spike; a gate is 1."
    return [
        Entry("edge", "Edge", what + slab),
        Entry("weight", "Weight", "Mean over all draws, in units of the program."),
        Entry(
            word, word.capitalize(), _SCORE if word == "score" else _probability("the data and the program")
        ),
        Entry(
            "r-hat",
            "R-hat",
            "How far the chains lie apart beside how far each spreads; up to 1.05 they agree.",
        ),
    ]


def _of_variables(kind: str, facts: dict[str, Any]) -> list[Entry]:
    return [
        Entry(
            "edge",
            "Edge",
            "The past of a variable, or an action, that helps to predict the target, given all others: "
            "Granger's sense, and not yet a cause.",
        ),
        Entry("lag", "Lag", "How many steps before."),
        Entry("probability", "Probability", _probability("the data and the model")),
        Entry(
            "strength",
            "Strength",
            "Standard deviation of what the source does to the target's mean, in standard deviations of the "
            "target, less what trend, season and covariates explain of it.",
        ),
        Entry("chain", "Chain", "A sampler of the sets of terms; each begins elsewhere."),
    ]


def _of_latents(kind: str, facts: dict[str, Any]) -> list[Entry]:
    word, is_transition = facts["word"], kind == "transition"
    behind = "the frames of the sequences" if is_transition else "the targets of all tasks"
    entries = [
        Entry(
            "latent",
            "Latent",
            f"A hidden quantity behind {behind}. Its name, order and sign are arbitrary; what it means is "
            "for the reader to judge.",
        ),
        Entry(
            "edge",
            "Edge",
            "A past latent, or an action, that drives a latent."
            if is_transition
            else "A latent that a task uses to predict its target.",
        ),
        Entry(
            word,
            word.capitalize(),
            _SCORE
            if word == "score"
            else _probability("the data, the model and the latents that were found"),
        ),
    ]
    if is_transition:
        how = "Root mean square derivative of the target's mean with respect to the source."
        return [*entries, Entry("strength", "Strength", how)]
    how = "In units of the target, for one standard deviation of the latent."
    return [*entries, Entry("weight", "Weight", how)]
