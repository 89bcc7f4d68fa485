"""Restarts: their seeds, how many share a pass, how their parameters are joined, and which one is best.

Seeds are children of one seed, keyed by the restart's number. Small models train all restarts in one pass (a
leading dimension of every parameter); large ones in groups that fit in memory. All rows together say how
many factors there are, by BIC; of the restarts with so many the held-out ELBO chooses, and within its error
simplicity: the one with the fewest edges.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from ..._utils.torch_state import first_rows, undisturbed
from ...findings.finding import Finding, found_by_one_restart, replaced_in_rivals
from ...graphs.alignment import SAME_FACTOR, SAME_LATENTS, Alignment, align, orient
from ...graphs.selection import kept_restarts

if TYPE_CHECKING:
    from ...data.table import Batch
    from ...models.base import FactorModel, Model
    from ...models.dependency import DependencyVAE
    from ...models.latent_transition import LatentTransition
    from ...models.sparse_decoder import SparseDecoder
    from ..table.result import Fit
    from .fit_result import FitResult

__all__ = [
    "align_factors",
    "align_latents",
    "best_restart",
    "bic",
    "bent_starts",
    "charged",
    "child_seeds",
    "chosen_restart",
    "compared_restarts",
    "criterion_of",
    "doubted_factors",
    "found_factors",
    "group_sizes",
    "in_frame",
    "join",
    "level_of",
    "likeliest_restart",
    "only_restart",
    "out_of_frame",
    "pick",
    "put",
    "restart_findings",
    "rival_restarts",
    "score_similarity",
    "prescribed_edges",
    "prescribed_in_fit",
    "unconfirmed",
]

ModelT = TypeVar("ModelT", bound="FactorModel | LatentTransition")

GROUP_BYTES = 400e6
_REPLACED = "a restart that explains the data as well has another factor in its place"
_UNFOUND = "no other restart found it"
_MOST_ROWS = 2000  # whose factors are compared between restarts
_AS_GOOD = 0.05  # nats per row below the best up to which a restart explains the data as well
# Nats below the best criterion of a graph at its maximum, an approximate log evidence, up to which its graph
# has a share of one in twenty: what an edge must not have against it to be present.
_AS_LIKELY = 3.0
# The same where BIC stands for the evidence, whose charge for a parameter may be half a nat off.
_ABOUT_AS_LIKELY = 5.0


def child_seeds(seed: int, n_restarts: int) -> list[int]:
    """One seed per restart, keyed by its number: restart 3 has the same seed however many there are.

    >>> child_seeds(0, 2) == child_seeds(0, 5)[:2]
    True
    """
    children = np.random.SeedSequence(seed).spawn(n_restarts)
    return [int(child.generate_state(1, np.uint64)[0]) >> 1 for child in children]


def bent_starts(n_factors_init: np.ndarray) -> np.ndarray:
    """Which restarts begin as random curves: every second one.

    They alternate among restarts with the same number of factors, and along the grid of numbers too, so that
    one pass over it has both kinds.

    Parameters
    ----------
    n_factors_init : ndarray of int (restart,)
        Number of factors each restart begins with.

    Returns
    -------
    ndarray of bool (restart,)

    Examples
    --------
    >>> bent_starts(np.array([3, 2, 1, 3, 2, 1])).tolist()
    [False, True, False, True, False, True]
    """
    n_factors_init = np.asarray(n_factors_init)
    turn = [int((n_factors_init[:r] == c).sum()) for r, c in enumerate(n_factors_init)]
    place = {c: i for i, c in enumerate(dict.fromkeys(n_factors_init.tolist()))}
    return np.array([(place[c] + t) % 2 == 1 for c, t in zip(n_factors_init.tolist(), turn, strict=True)])


def group_sizes(model: FactorModel, n_restarts: int, batch_size: int) -> list[int]:
    """How many restarts share each pass: all, unless the activations of a step would exceed 400 MB."""
    hidden = max(getattr(model, "hidden", 1), model.n_factors)
    bytes_each = 4.0 * 4 * batch_size * model.n_features * hidden
    together = int(max(1, min(n_restarts, GROUP_BYTES // bytes_each)))
    return [min(together, n_restarts - at) for at in range(0, n_restarts, together)]


def join(states: list[dict[str, torch.Tensor]], whole: ModelT) -> ModelT:
    """Write the parameters of several groups into one model set up for all restarts.

    Parameters
    ----------
    states : list of dict of str to Tensor
        What the groups' ``state_dict`` say, in order of their restarts.
    whole : FactorModel
        Set up with as many restarts as all parts have together; returned.
    """
    batched = _batched(whole)
    joined = {
        name: torch.cat([s[name] for s in states], 0) if name in batched else states[0][name]
        for name in states[0]
    }
    whole.load_state_dict(joined)
    return whole


def pick(model: ModelT, restarts: list[int]) -> ModelT:
    """A copy of the model with these restarts only: what is asked of one need not be computed for all.

    Parameters
    ----------
    model : FactorModel
        Trained.
    restarts : list of int
        Which of its restarts, in the order wanted.
    """
    few = _resized(model, len(restarts))
    batched = _batched(model, few if few.n_restarts != model.n_restarts else None)
    states = model.state_dict().items()
    few.load_state_dict({name: value[restarts] if name in batched else value for name, value in states})
    return cast("ModelT", few.eval())


def put(single: ModelT, model: ModelT, restart: int) -> None:
    """Write a model of a single restart over one restart of another, in place.

    Parameters
    ----------
    single : FactorModel
        As from `pick`.
    model : FactorModel
    restart : int
    """
    state, batched = single.state_dict(), _batched(model)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if name in batched:
                value[restart].copy_(state[name][0])


def _batched(
    model: FactorModel | LatentTransition, other: FactorModel | LatentTransition | None = None
) -> set[str]:
    """Names of the tensors with a restart dimension: those that change shape with the number of restarts.

    `other` is the same model with another number of them, if there is one already.
    """
    other = _resized(model, model.n_restarts + 1) if other is None else other
    shapes = {name: value.shape for name, value in other.state_dict().items()}
    return {name for name, value in model.state_dict().items() if value.shape != shapes[name]}


def _resized(model: ModelT, n_restarts: int) -> ModelT:
    resized = copy.deepcopy(model).cpu()  # where `setup` makes new tensors, beside buffers that it keeps
    with undisturbed():
        resized.setup(
            n_restarts=n_restarts,
            n_samples=model.n_samples,
            missing=model.missing,
            feature_names=model.feature_names,
        )
    return cast("ModelT", resized.to(next(model.parameters())))


def best_restart(rows: np.ndarray, active: np.ndarray, edges: np.ndarray) -> int:
    """The simplest restart that the rows cannot tell from the best one.

    Parameters
    ----------
    rows : ndarray (restart, row)
        ELBO of each row, held out if there are such rows.
    active, edges : ndarray (restart,)
        Factors and edges in use.

    Returns
    -------
    int
        Among restarts whose paired difference to the best is within one standard error, the one with the
        fewest factors, then edges, then the highest ELBO.
    """
    mean = np.where(np.isfinite(rows).all(1), rows.mean(1), -np.inf)
    top = int(mean.argmax())
    with np.errstate(invalid="ignore"):
        behind = rows[top] - rows
        error = behind.std(1, ddof=1) / np.sqrt(rows.shape[1]) if rows.shape[1] > 1 else np.zeros(len(rows))
    alike = [
        r for r in range(len(rows)) if r == top or (np.isfinite(mean[r]) and mean[top] - mean[r] <= error[r])
    ]
    return min(alike, key=lambda r: (active[r], edges[r], -mean[r]))


def likeliest_restart(rows: np.ndarray, edges: np.ndarray, n_rows: int) -> int:
    r"""The restart with the best Bayesian information criterion.

    .. math:: N \overline{\mathrm{ELBO}}_r - \tfrac12 e_r \log N

    Parameters
    ----------
    rows : ndarray (restart, row)
        ELBO of rows trained on, and of held-out ones; of a large table a sample.
    edges : ndarray (restart,)
        :math:`e_r`, edges in use.
    n_rows : int
        N, rows of the table.

    References
    ----------
    Schwarz (1978), Estimating the dimension of a model, Annals of Statistics 6(2)

    Examples
    --------
    >>> likeliest_restart(np.array([[-3.0, -3.2], [-2.7, -3.0], [-2.69, -3.0]]), np.array([4, 6, 9]), 200)
    1
    """
    return int(bic(rows, edges, n_rows).argmax())


def bic(rows: np.ndarray, edges: np.ndarray, n_rows: int) -> np.ndarray:
    """Bayesian information criterion of each restart as `likeliest_restart` has it: the higher the better.

    Parameters
    ----------
    rows : ndarray (restart, row)
    edges : ndarray (restart,)
    n_rows : int
    """
    level = np.where(np.isfinite(rows).all(1), n_rows * rows.mean(1), -np.inf)
    return np.asarray(level - 0.5 * edges * np.log(n_rows))


def charged(edges: np.ndarray, active: np.ndarray, correlated: bool) -> np.ndarray:
    """What a criterion charges each restart for, (restart,): edges, and correlations that were learned.

    Parameters
    ----------
    edges, active : ndarray of int (restart,)
        Edges and factors in use.
    correlated : bool
        Whether correlations of factors are learned.

    Examples
    --------
    >>> charged(np.array([9, 12]), np.array([1, 3]), True).tolist()
    [9, 15]
    """
    return np.asarray(edges + active * (active - 1) // 2 if correlated else edges)


def chosen_restart(
    judged: np.ndarray, all_rows: np.ndarray, active: np.ndarray, edges: np.ndarray, n_rows: int
) -> int:
    """The restart that a fit goes by: as many factors as all rows pay for, then `best_restart`.

    Of a small table the tenth kept aside says little: restarts that it calls alike can be a factor apart, and
    fifty nats over all rows. Restarts with as many factors differ by less than what rows trained on flatter.

    Parameters
    ----------
    judged : ndarray (restart, row)
        ELBO of each row, held out if there are such rows.
    all_rows : ndarray (restart, row)
        Of rows trained on, and held out: see `likeliest_restart`.
    active, edges : ndarray (restart,)
        Factors and edges in use.
    n_rows : int
    """
    alike = np.flatnonzero(active == active[likeliest_restart(all_rows, edges, n_rows)])
    return int(alike[best_restart(judged[alike], active[alike], edges[alike])])


def prescribed_edges(model: Model) -> np.ndarray:
    """Edges that anchors or the user's list require, of bool (feature, factor), or a single False."""
    must = getattr(model, "must", None)
    return np.array(False) if must is None else must.cpu().numpy()


def found_factors(edge: np.ndarray, prescribed: np.ndarray) -> np.ndarray:
    """How many factors each restart found: those with an edge beyond the prescribed ones.

    Parameters
    ----------
    edge : ndarray of bool (restart, feature, factor)
    prescribed : ndarray of bool
        As `prescribed_edges`, or for each restart in its own order of factors.
    """
    return (edge & ~prescribed).any(1).sum(1)


def prescribed_in_fit(fit: Fit) -> np.ndarray:
    """`prescribed_edges` of a fit's model, of bool (restart, feature, factor), in the fit's order of factors.

    Parameters
    ----------
    fit : Fit
    """
    prescribed = prescribed_edges(fit.model)
    if not prescribed.any():
        return np.zeros(np.shape(fit.weights), dtype=bool)
    return np.moveaxis(prescribed[:, np.asarray(fit.alignment["permutation"])], 0, 1)


def rival_restarts(fit: Fit, n_factors: int | None = None) -> np.ndarray:
    """Restarts whose disagreement with the best one says something: with room for it, or as good.

    Restarts begin with different numbers of factors, and one with fewer could not have found them all.

    Parameters
    ----------
    fit : Fit
    n_factors : int, optional
        That a restart needs in use. Default: as many as the best one has.

    Returns
    -------
    ndarray of bool, shape (2, restart)
        Whether it has as many factors, and whether it explains the data as well; False for the best one.
    """
    best = int(fit.best)
    used = found_factors(np.asarray(fit.weights) != 0, prescribed_in_fit(fit))
    level, margin = criterion_of(fit)
    wanted = used[best] if n_factors is None else n_factors
    rivals = np.stack([used >= wanted, level >= level[best] - margin])
    rivals[:, best] = False
    return rivals


def in_frame(fit: FitResult, values: np.ndarray) -> np.ndarray:
    """Values of the best restart's own factors in the order and with the signs in which the fit shows them.

    Parameters
    ----------
    fit : Fit, TransitionFit or MultiTaskFit
    values : ndarray (..., factor)
    """
    return values[..., fit.alignment["permutation"][fit.best]] * fit.alignment["sign"][fit.best]


def out_of_frame(fit: FitResult, values: np.ndarray) -> np.ndarray:
    """Values of factors as the fit shows them in the best restart's own order and signs.

    Parameters
    ----------
    fit : Fit, TransitionFit or MultiTaskFit
    values : ndarray (..., factor)
    """
    in_model_order = np.zeros_like(values)
    in_model_order[..., fit.alignment["permutation"][fit.best]] = values * fit.alignment["sign"][fit.best]
    return in_model_order


def level_of(fit: Fit) -> np.ndarray:
    """How well each restart explains the data, (restart,): the ELBO of held-out rows, or of all.

    Parameters
    ----------
    fit : Fit
    """
    return np.where(np.isfinite(fit.heldout_elbo), fit.heldout_elbo, fit.elbo)


def criterion_of(fit: Fit) -> tuple[np.ndarray, float]:
    """What says which restart is better, (restart,), and how far below the best one another is as good.

    Parameters
    ----------
    fit : Fit

    Returns
    -------
    level : ndarray (restart,)
        The criterion of graphs at their maxima (`graph_search.graph_level`, nats) where restarts are there;
        BIC by the rows' log densities where factors are summed out; else `level_of`, in nats per row.
    margin : float
    """
    if "graph_level" in fit.settings:
        return np.asarray(fit.settings["graph_level"], dtype=float), _AS_LIKELY
    if "log_likelihood" in fit.settings:
        edge = np.asarray(fit.weights) != 0
        active = found_factors(edge, prescribed_in_fit(fit))
        parameters = charged(edge.sum((1, 2)), active, fit.model.learn_factor_cov)
        per_row = np.asarray(fit.settings["log_likelihood"], dtype=float)[:, None]
        return bic(per_row, parameters, fit.table.n_counted), _ABOUT_AS_LIKELY
    return level_of(fit), _AS_GOOD


def compared_restarts(fit: Fit, chain_restart: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Which restarts are good enough for their disagreement to mean something, and which could have agreed.

    Parameters
    ----------
    fit : Fit
    chain_restart : ndarray of int (chain,), optional
        For chains that began at these restarts, among them the best. Default: one a restart, in order.

    Returns
    -------
    kept, rivals : ndarray of bool (chain,)
        As `graphs.selection.kept_restarts` and either row of `rival_restarts` say.
    """
    origin = np.arange(len(fit.weights)) if chain_restart is None else chain_restart
    rivals = np.logical_or(*rival_restarts(fit))[origin]
    best = list(origin).index(int(fit.best))
    level = np.asarray(fit.settings.get("log_likelihood", fit.elbo))[origin]
    return kept_restarts(level, fit.table.n_counted, best=best, rivals=rivals), rivals


def doubted_factors(fit: Fit, used: np.ndarray | None = None) -> list[str]:
    """Of each factor of the best restart why other restarts make it doubtful, or an empty text.

    A factor is doubtful if a restart that explains the data as well lacks it, or if no restart with room for
    it has it.

    Parameters
    ----------
    fit : Fit
    used : ndarray of bool (factor,), optional
        Factors to ask about. Default: those with an edge in the best restart.
    """
    n_factors = None if used is None else int(used.sum())
    if used is None:
        used = (np.asarray(fit.weights)[int(fit.best)] != 0).any(0)
    confirmed = np.nan_to_num(np.asarray(fit.alignment["congruence"], dtype=float)) >= SAME_FACTOR
    room, equal = rival_restarts(fit, n_factors)
    rivals, doubt = room | equal, [""] * len(used)
    for k in np.flatnonzero(used):
        if (equal & room & ~confirmed[:, k]).any():
            doubt[k] = _REPLACED
        elif rivals.any() and not confirmed[rivals, k].any():
            doubt[k] = _UNFOUND
    return doubt


def restart_findings(fit: Fit) -> list[Finding]:
    """Doubts about factors of the best restart that others lack.

    One of those that a rival has others for, and one of those that none has; chains may dispel them
    (`findings.finding.confirmed_by_chains`).

    Parameters
    ----------
    fit : Fit
    """
    # what `unconfirmed` has said of a dense fit is not said again
    known = {name for f in fit.findings if f.kind == "restarts" and f.is_doubt for name in f.factors}
    findings, reasons = [], doubted_factors(fit)
    remedy = "more restarts, or an anchor, would settle it"
    for reason, doubt in ((_REPLACED, replaced_in_rivals), (_UNFOUND, found_by_one_restart)):
        names = [name for name, why in zip(fit.factor_names, reasons, strict=True) if why == reason]
        names = [name for name in names if reason != _UNFOUND or name not in known]
        findings += [doubt(names, remedy)] if names else []
    return findings


def only_restart(n_restarts: int) -> list[Finding]:
    """What to say of a fit with a single restart: nothing speaks against it, and nothing for it.

    Parameters
    ----------
    n_restarts : int
    """
    message = "one restart only: nothing here says whether another start would agree"
    return [Finding("restarts", message)] if n_restarts == 1 else []


def unconfirmed(congruence: np.ndarray, best: int, names: list[str]) -> list[Finding]:
    """What to say of factors of the best restart that no other restart found.

    Parameters
    ----------
    congruence : ndarray (restart, factor)
        Of each restart's loadings with the best one's.
    best : int
    names : list of str
        Of the factors.

    Returns
    -------
    list of Finding
        One doubt, or none. Of a single restart nothing is said here.

    Examples
    --------
    >>> print(*unconfirmed(np.array([[1.0, 1.0], [0.99, 0.6], [0.7, 0.9]]), 0, ["a", "b"]))
    no other restart found b: its axis is a guess
    """
    others = np.delete(np.asarray(congruence, dtype=float), best, axis=0)
    if not len(others):
        return []
    lost = [name for name, top in zip(names, np.nan_to_num(others).max(0), strict=True) if top < SAME_LATENTS]
    if not lost:
        return []
    subject = "its axis is" if len(lost) == 1 else "their axes are"
    message = f"no other restart found {', '.join(lost)}: {subject} a guess"
    return [Finding("restarts", message, severity="doubt", factors=tuple(lost))]


def align_factors(model: FactorModel, loadings: np.ndarray, effects: np.ndarray, best: int) -> Alignment:
    """All restarts in the best one's frame, largest factor first.

    A factor that constraints tell from the others keeps its number.

    Parameters
    ----------
    model : FactorModel
        Says which factors can change places: all, if it has no weights.
    loadings : ndarray (restart, feature, factor)
    effects : ndarray (feature, factor)
        Of the best restart.
    best : int
    """
    r, _, k = loadings.shape
    weights = getattr(model, "weights", None)
    permutation, sign, congruence = np.zeros((r, k), dtype=np.intp), np.ones((r, k)), np.zeros((r, k))
    for members in (
        [np.arange(k)] if weights is None else cast("SparseDecoder | DependencyVAE", model).alike_factors()
    ):
        order = members[np.argsort(-effects[:, members].sum(0), kind="stable")]
        pivot = loadings[best][:, order] * orient(loadings[best][:, order])
        alignment = align(loadings[:, :, members], pivot=pivot)
        permutation[:, members] = members[alignment.permutation]
        sign[:, members], congruence[:, members] = alignment.sign, alignment.congruence
    return Alignment(permutation, sign, congruence)


@torch.no_grad()
def score_similarity(model: FactorModel, batch: Batch, present: np.ndarray, best: int) -> np.ndarray:
    """Largest correlation of each of the best restart's factors with a used factor of every restart.

    Where features are even in a factor the signs of their mean slopes are noise, and loadings of one and the
    same factor do not agree between restarts; its scores do.

    Parameters
    ----------
    model : FactorModel
    batch : Batch
        At most 2,000 of its rows are looked at.
    present : ndarray of bool (restart, feature, factor)
    best : int

    Returns
    -------
    ndarray (restart, factor)
        In the best restart's own order; 0 where a restart has no factor.
    """
    location, _ = model.encode(first_rows(batch, _MOST_ROWS))
    z = location.cpu().double()
    z = z - z.mean(1, keepdim=True)
    z = z / z.square().sum(1, keepdim=True).sqrt().clamp_min(1e-12)
    between = (z[best].mT @ z).abs().numpy()  # (restart, factor of the best, factor)
    used = np.asarray(present.any(1), dtype=bool)
    return np.asarray(np.where(used[:, None], between, 0.0).max(2))


def align_latents(frames: np.ndarray, best: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Order and sign of each restart's latents that suit the best one's, and how similar they are.

    Parameters
    ----------
    frames : ndarray (restart, row, latent)
        Latents of the same rows.
    best : int
        The restart whose order and signs the others take.

    Returns
    -------
    permutation : ndarray of int (restart, latent)
    sign : ndarray (restart, latent)
    similarity : ndarray (restart, latent)
        Absolute correlation with the best restart's latent; 0 where one of them is constant.
    """
    r, _, d = frames.shape
    permutation, sign, similarity = np.zeros((r, d), int), np.ones((r, d)), np.zeros((r, d))
    for i in range(r):
        with np.errstate(invalid="ignore", divide="ignore"):  # a latent may be constant
            between = np.corrcoef(frames[best], frames[i], rowvar=False)[:d, d:].reshape(d, d)
        between = np.nan_to_num(between)
        permutation[i] = linear_sum_assignment(-np.abs(between))[1]
        taken = between[np.arange(d), permutation[i]]
        sign[i] = np.where(taken < 0, -1.0, 1.0)
        similarity[i] = np.abs(taken)
    return permutation, sign, similarity
