r"""Which sets of features a factor reaches: the posterior of an odds ratio, for each factor and set.

Counts of a draw may be 0, and their logarithm is infinite. The usual remedy is a half added to each cell
(Haldane, Anscombe). It is harmless where half of the features are in the set and half have an edge, and
favours small sets of sparse factors: of 1,000 features, 20 of them with an edge, a set of 10 without any edge
would have an odds ratio of 2.3 in every draw. So the same two imaginary features are spread as the margins
are, which by itself says that the odds ratio is 1, and never changes its side of 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..findings.finding import doubted_edges, findings_of
from ..graphs.selection import edge_gap, q_values
from .draws import chain_weights, graph_draws
from .edge_table import about_edges, check_is_of_table, holds_scores

if TYPE_CHECKING:
    from .._utils.types import ArvizData

__all__ = ["enrichment"]

_ADDED = 2.0  # features, to each table of counts: as many as a half in each of four cells
_RATIO = 2.0  # odds ratio whose probability of being exceeded stands beside that of 1
_EQUAL = 1e-9  # log odds ratios up to which are 0 but for rounding
_AT_A_TIME = 256  # sets: of thousands of draws their odds ratios are a few megabytes
_NUMBERS = (
    "expected_edges", "by_chance", "log_odds_ratio", "lower", "upper", "probability", "p_odds_ratio_2", "gap",
)  # fmt: skip

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def enrichment(
    idata: ArvizData,
    sets: Mapping[str, Sequence[str]] | pd.DataFrame,
    background: Sequence[str] | None = None,
    *,
    prob: float = 0.9,
) -> pd.DataFrame:
    r"""How probable it is that a factor reaches more of a set of features than of the others.

    In each draw of the graph count, of the n features compared, those with an edge from the factor that are
    in the set (a) and that are not (c), and those without an edge that are in the set (b) and that are not
    (d). The log odds ratio of edge and membership is

    .. math:: \theta = \log \frac{\tilde a\, \tilde d}{\tilde b\, \tilde c}, \qquad
              \tilde a = a + 2\, \frac{a + b}{n}\, \frac{a + c}{n}, \quad \dots

    where two features more, spread over the four counts as the margins are, keep it finite; it is 0 where no
    feature has an edge, or all have. Over the draws this gives its posterior. The answer is a probability,
    not a p-value: given model, prior and table, :math:`P(\theta > 0 \mid x)`.

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `fit.edge_posterior()` of a table, by a method with probabilities; or from `salient_edges`, if
        only large loadings are to count.
    sets : mapping of str to sequence of str, or DataFrame (feature, set)
        Members by the name of their set, as `priors.read_gmt` gives; or a table of memberships, other than 0
        where a feature is in. Members that are no feature are left out, and counted.
    background : sequence of str, optional
        The features that are compared: members of sets among them with the others among them. Names that are
        no feature of the table are left out. Default: all features of the table.
    prob : float
        Probability inside the interval of the log odds ratio, in (0, 1).

    Returns
    -------
    DataFrame
        One row per factor and set, the most probable first: `factor`, `set`, `n_members` (in the background),
        `n_left_out` (members that are not), `expected_edges` (posterior mean number of members with an edge),
        `log_odds_ratio` (posterior mean), `eti90_lb` and `eti90_ub` (its interval of equal tails, named by
        prob), `probability` (:math:`P(\theta > 0)`), `p_odds_ratio_2` (:math:`P(\theta > \log 2)`),
        `q_value` (expected share of rows with :math:`\theta \le 0` among all that are at least as probable),
        `by_chance` (share of random sets of as many features with as many edges or more; posterior mean),
        `gap` (largest difference of `probability` between chains or restarts; NaN for one), `doubted` (share
        of the set's edges that a finding of the fit leaves open) and `note`. A set with fewer than two
        members in the background, or with all of it, has no odds ratio: its numbers are NaN, it is last, and
        `note` says why. `DataFrame.attrs` holds `n_background`, `interval_prob`, `edge_method` and `note`.

    Raises
    ------
    TypeError
        The edges are those of a transition or of tasks; or `sets` is neither a mapping nor a table.
    ValueError
        The numbers of the edges are only scores; `prob` is out of range; the background has no feature of the
        table; or no set has an odds ratio.

    Notes
    -----
    `probability` is about the graph of these features, however it came about: where edges are sure, two of
    them in a small set are enough for a probability of 1, by chance or not. How often chance does as much is
    `by_chance`, the tail of the hypergeometric distribution, averaged over the draws. Neither is corrected
    for having picked the best of many sets; `q_value` says how many of those picked to expect false
    (`graphs.q_values`), in the sense of `probability`.

    All of it is conditional on the model, and on its prior: sets that the fit was given
    (`priors.odds_of_sets`), and edges that it was given, come back from there. Sets that overlap share their
    edges, and are enriched together. Kept chains count with the weights that they have in the probabilities
    of the edges.

    With even margins the two features more are the half in each cell of Haldane and Anscombe. A half in each
    cell whatever the margins would call small sets of sparse factors enriched without a single edge.

    References
    ----------
    Haldane (1956), Annals of Human Genetics 20(4), and Anscombe (1956), Biometrika 43(3-4): a half in each
    cell. Fienberg and Holland (1973), JASA 68(343), and Sweeting, Sutton and Lambert (2004), Statistics in
    Medicine 23(9): in proportion to the margins. Newton et al. (2004), Biostatistics 5(2): `q_value`.
    """
    _check(idata, prob)
    draws = graph_draws(idata)
    features, factors = ([str(name) for name in draws[dim].to_numpy()] for dim in ("feature", "factor"))
    inside, by_set = _in_background(features, background), _members(sets)
    names = [name for name, is_in in zip(features, inside, strict=True) if is_in]
    members = np.array([np.isin(names, list(some)) for some in by_set.values()])
    size = members.sum(1)
    usable = (size >= 2) & (size < len(names))
    if not usable.any():
        raise ValueError(
            f"sets: none has two members or more among the {len(names)} features compared, and others beside "
            f"them (features begin {names[:3]}, members {sorted(next(iter(by_set.values())))[:3]}); are they "
            "called by other names?"
        )
    weights = _draw_weights(idata, draws.shape[1])
    doubted = doubted_edges(findings_of(idata=idata), features, factors)[inside]
    edges = draws.to_numpy()[:, :, inside]
    note = np.where(size < 2, "fewer than 2 members", np.where(usable, "", "every feature is a member"))
    tables = []
    for k, factor in enumerate(factors):
        numbers = _numbers(edges[..., k].astype(np.float32), members[usable], weights, prob)
        about = {
            "factor": factor,
            "set": list(by_set),
            "n_members": size,
            "n_left_out": [len(some) for some in by_set.values()] - size,
            "doubted": members @ doubted[:, k].astype(float) / np.maximum(size, 1),
            "note": note,
        }
        tables.append(pd.DataFrame(about).join(numbers.set_index(np.flatnonzero(usable))))
    return _ranked(
        pd.concat(tables, ignore_index=True), prob, {**about_edges(idata), "n_background": len(names)}
    )


def _check(idata: ArvizData, prob: float) -> None:
    check_is_of_table(idata, "sets are of its features")
    if holds_scores(idata):
        raise ValueError(
            "idata: it holds scores, which rank edges and say nothing of how probable a set is; wanted "
            'draws with probabilities, such as fit.edge_posterior("mcmc") of a SparseDecoder gives'
        )
    if not 0 < prob < 1:
        raise ValueError(
            f"prob: got {prob!r}, wanted a probability strictly between 0 and 1; ninety per cent is 0.9"
        )


def _in_background(features: list[str], background: Sequence[str] | None) -> Bools:
    """Which features are compared."""
    if background is None:
        return np.ones(len(features), dtype=bool)
    if isinstance(background, str):
        raise TypeError(f"background: got the text {background!r}, wanted a list of names")
    wanted = {str(name) for name in background}
    inside = np.array([name in wanted for name in features])
    if not inside.any():
        raise ValueError(
            f"background: none of its {len(wanted)} names is a feature of the table (which begin "
            f"{features[:3]}); are they called by other names?"
        )
    return inside


def _members(sets: Mapping[str, Sequence[str]] | pd.DataFrame) -> dict[str, set[str]]:
    if isinstance(sets, pd.DataFrame):
        sets = {str(name): list(sets.index[sets[name].fillna(0).to_numpy() != 0]) for name in sets.columns}
    if not isinstance(sets, Mapping) or not sets:
        raise TypeError("sets: wanted members by the name of their set, or a table of memberships; got none")
    for name, some in sets.items():
        if isinstance(some, str):
            raise TypeError(f"sets: {name!r} is the text {some!r}, wanted a list of names")
    return {str(name): {str(member) for member in some} for name, some in sets.items()}


def _draw_weights(idata: ArvizData, num_draws: int) -> Floats:
    """What each draw counts, (chain, draw), of the chains kept: as in the probabilities of the edges."""
    shares: Floats = np.repeat(chain_weights(idata)[:, None] / num_draws, num_draws, axis=1)
    return shares


def _numbers(edge: NDArray[np.float32], members: Bools, weights: Floats, prob: float) -> pd.DataFrame:
    """`_NUMBERS` of one factor, a row for each set.

    Parameters
    ----------
    edge : ndarray of 0 and 1, shape (chain, draw, feature)
    members : ndarray of bool (set, feature)
    weights : ndarray (chain, draw)
        Of draws; they sum to one.
    prob : float
    """
    flat, of_draw = edge.reshape(-1, edge.shape[-1]), weights.ravel()
    parts = []
    for first in range(0, len(members), _AT_A_TIME):
        some = members[first : first + _AT_A_TIME]
        in_set = (flat @ some.T.astype(np.float32)).astype(float)  # (draw, set)
        theta = _log_odds_ratio(in_set, flat.sum(1)[:, None], some.sum(1), some.shape[1])
        higher = theta > _EQUAL
        by_chain = higher.reshape(*weights.shape, -1).mean(1)
        lower, upper = _quantiles(theta, of_draw, ((1 - prob) / 2, (1 + prob) / 2))
        chance = _random_sets(in_set, flat.sum(1), some.sum(1), some.shape[1])
        # Weights may sum to 1 and a last digit.
        p, more, by_chance = (
            (of_draw @ share).clip(0, 1) for share in (higher, theta > np.log(_RATIO) + _EQUAL, chance)
        )
        expected, mean = of_draw @ in_set, of_draw @ theta
        parts.append([expected, by_chance, mean, lower, upper, p, more, edge_gap(by_chain)])
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return pd.DataFrame(dict(zip(_NUMBERS, columns, strict=True)))


def _log_odds_ratio(in_set: Floats, with_edge: NDArray[np.float32], size: NDArray[np.intp], n: int) -> Floats:
    """Log odds ratios of counts with two more, spread as the margins are.

    Parameters
    ----------
    in_set : ndarray (draw, set)
        Members with an edge.
    with_edge : ndarray (draw, 1)
        Features with one.
    size : ndarray of int (set,)
    n : int
        Features.
    """
    edges, rest = with_edge.astype(float), n - with_edge.astype(float)
    share = _ADDED / n**2
    a = in_set + share * edges * size
    b = (size - in_set) + share * rest * size
    c = (edges - in_set) + share * edges * (n - size)
    d = (rest - size + in_set) + share * rest * (n - size)
    theta: Floats = np.zeros(in_set.shape)
    some = np.broadcast_to((edges > 0) & (rest > 0), in_set.shape)
    theta[some] = np.log(a[some]) + np.log(d[some]) - np.log(b[some]) - np.log(c[some])
    return theta


def _random_sets(in_set: Floats, with_edge: NDArray[np.float32], size: NDArray[np.intp], n: int) -> Floats:
    """Share of random sets of these sizes with as many edges or more, (draw, set)."""
    from scipy.stats import hypergeom

    # Draws repeat few counts, and each takes a sum: a number for every three of them, to be looked up once.
    code = (in_set.astype(np.int64) * (n + 1) + with_edge[:, None].astype(np.int64)) * (n + 1) + size
    distinct, number = np.unique(code, return_inverse=True)
    count, edges, sizes = distinct // (n + 1) ** 2, distinct // (n + 1) % (n + 1), distinct % (n + 1)
    share: Floats = hypergeom.sf(count - 1, n, edges, sizes)[number.reshape(in_set.shape)]
    return share


def _quantiles(values: Floats, weights: Floats, at: tuple[float, float]) -> list[Floats]:
    """Smallest values up to which the weights of draws sum to these shares, a column at a time."""
    order = np.argsort(values, axis=0, kind="stable")
    reached = np.cumsum(weights[order], axis=0)
    ends = []
    for share in at:
        row = (reached >= share - _EQUAL).argmax(0)
        ends.append(np.take_along_axis(values, np.take_along_axis(order, row[None], 0), 0)[0])
    return ends


def _ranked(table: pd.DataFrame, prob: float, attrs: Mapping[str, object]) -> pd.DataFrame:
    interval = f"eti{100 * prob:g}"
    p = table["probability"].to_numpy()
    known = ~np.isnan(p)
    q = np.full(len(p), np.nan)
    q[known] = q_values(p[known])
    table = table.assign(q_value=q).rename(columns={"lower": f"{interval}_lb", "upper": f"{interval}_ub"})
    sizes = [
        "n_members",
        "n_left_out",
        "expected_edges",
        "log_odds_ratio",
        f"{interval}_lb",
        f"{interval}_ub",
    ]
    chances = ["probability", "p_odds_ratio_2", "q_value", "by_chance", "gap", "doubted"]
    order = np.lexsort([-table["log_odds_ratio"], table["by_chance"], -p])
    table = table[["factor", "set", *sizes, *chances, "note"]].iloc[order].reset_index(drop=True)
    table.attrs = {**attrs, "interval_prob": float(prob)}
    return table
