"""What speaks against the axes of fitted sequences, latent by latent.

Three things can, and each names the latents it touches: other restarts that have another latent in its place;
noise of the transition that two latents share, where the model has it independent; and rotations that would
leave the graph as it is, as far as the error of the Jacobian can tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from ..._utils.wording import listed
from ...data.sequences import SequenceBatch
from ...findings.finding import Finding
from ...graphs.alignment import SAME_LATENTS
from ...models.latent_transition import LatentTransition
from ...posterior.rival_restarts import only_restart
from .transition_axes import BENT, believed, dense_steps, rotated

__all__ = [
    "AxisChecks",
    "axis_checks",
    "axis_findings",
    "evidence_findings",
    "failed_restarts",
    "graph_findings",
    "mixing_error",
    "restart_findings",
    "unclear_edges",
]

GUESS = 0.7  # a gap below a factor of two
SPANNED = 0.5  # on tuning sets fits spanned .69 and more of what edges need, with linear dynamics .04
SHARED = 0.25  # correlation of noise: of tuning fits with right axes .01 at most, with wrong ones .28 to .37
_NOISE_SHARE = 0.03  # of a latent's variance: less noise is as small as the errors of a fit
MIXED = 0.3  # of another latent in a latent: R of .95, as much as two restarts may differ by (`SAME_LATENTS`)
_BEHIND = 3.0  # standard errors of the held-out ELBO; of tuning fits failures were 1 to 40 nats behind
_STEPS = 2000  # of which the mixing's error is measured


class AxisChecks(NamedTuple):
    """Measurements of the axes of one restart.

    Parameters
    ----------
    noise_correlation : ndarray (latent, latent)
        Of the latents given what drives them.
    noise_share : ndarray (latent,)
        Its share of each latent's variance.
    mixing : ndarray (latent, latent)
        Standard error of how much of the latent of the column is in that of the row: `mixing_error`.
    """

    noise_correlation: np.ndarray
    noise_share: np.ndarray
    mixing: np.ndarray

    @property
    def independent_noise(self) -> bool:
        """Whether the noise is enough to tell, and uncorrelated between latents."""
        away = np.abs(self.noise_correlation - np.eye(len(self.noise_share)))
        return bool(self.noise_share.min() >= _NOISE_SHARE and away.max(initial=0.0) < SHARED)


def axis_checks(
    model: LatentTransition,
    batch: SequenceBatch,
    restart: int,
    permutation: np.ndarray,
    graph: np.ndarray,
    beyond: float,
) -> AxisChecks:
    """Measure the axes of a folded restart.

    Parameters
    ----------
    model : LatentTransition
        Folded.
    batch : SequenceBatch
        Up to 20,000 steps of it are used.
    restart : int
    permutation : ndarray of int (latent,)
        Place of each latent in the restart's own order.
    graph : ndarray of int (latent, parent)
        In the order that `permutation` makes; parents are each lag's latents, then actions.
    beyond : float
        From `beyond_linear`: the Jacobian is that of the mean where nothing shows that it varies.
    """
    d, lags = model.n_latents, model.lags
    jacobian, past, noise = dense_steps(model, batch)[restart]
    axes = model.axes[restart].double().cpu().numpy()[permutation]
    jacobian = believed(rotated(model, jacobian, axes), beyond)
    noise = axes @ noise @ axes.T
    variance = np.diag(axes @ np.atleast_2d(np.cov(past, rowvar=False)) @ axes.T)
    sd = np.sqrt(np.diag(noise))
    correlation = noise / np.outer(sd, sd)
    share = sd**2 / variance
    mixing = np.zeros((d, d))
    checks = AxisChecks(correlation, share, mixing)
    if not lags:  # the search of what actions drive has no rotations to doubt
        return checks
    scale = sd if checks.independent_noise else np.sqrt(variance)
    few = np.linspace(0, len(jacobian) - 1, min(len(jacobian), _STEPS)).astype(int)
    edges = graph[:, model.parent_of_input.cpu().numpy()] == 1
    return checks._replace(mixing=mixing_error(jacobian[few], edges, scale, lags))


def mixing_error(
    jacobian: np.ndarray, graph: np.ndarray, scale: np.ndarray, lags: int | None = None
) -> np.ndarray:
    r"""How much of one latent may be in another, as far as the zeros of the Jacobian tell.

    Latents :math:`(1 + M) z` have the Jacobians :math:`J + M J - J M`. Of M only rotations of latents of
    independent noise count, :math:`M_{ij} = s_i K_{ij} / s_j` with K antisymmetric. Entries that should be
    zero are known up to an error e, their root mean square, so that K is known, to first order, up to the
    covariance :math:`e^2 Q^{-1}`, Q being the second moment of what each :math:`K_{ij}` adds to them.
    Where the Jacobian does not vary enough, or two latents have the same parents and children, Q is nearly
    singular: sufficient influence and z-consistency (Lachapelle et al. 2024) at once, in one number a pair.

    Parameters
    ----------
    jacobian : ndarray (step, latent, input)
        Along the axes; inputs are each lag's latents, then actions.
    graph : ndarray of bool (latent, input)
    scale : ndarray (latent,)
        s: the noise's standard deviations.
    lags : int, optional
        Lags that come before the actions; default as many as there is room for.

    Returns
    -------
    ndarray (latent, latent)
        Standard error of :math:`M_{ij}`, in standard deviations of `scale`'s latents; at most 1, which says
        that nothing is known. 0 on the diagonal.

    Examples
    --------
    Two latents driven by themselves, one rate varying: nothing is mixed. With one rate for both, anything.

    >>> rate = np.linspace(0.2, 0.8, 50)
    >>> apart = np.stack([np.diag([r, 0.9]) + 1e-3 * np.eye(2)[::-1] for r in rate])
    >>> bool(mixing_error(apart, np.eye(2) == 1, np.ones(2)).max() < 0.01)
    True
    >>> alike = np.stack([np.diag([r, r]) + 1e-3 * np.eye(2)[::-1] for r in rate])
    >>> float(mixing_error(alike, np.eye(2) == 1, np.ones(2)).max())
    1.0
    """
    d = jacobian.shape[1]
    pairs = [(i, j) for i in range(d) for j in range(i)]
    error = np.zeros((d, d))
    zeros = ~graph
    if not pairs:
        return error
    if not zeros.any():
        return 1.0 - np.eye(d)
    size = np.sqrt((jacobian[:, zeros] ** 2).mean())
    lags = jacobian.shape[2] // d if lags is None else lags
    edges = jacobian * graph  # rotated errors are errors still, and would pass for something to go by
    changes = []
    for i, j in pairs:
        mix = np.zeros((d, d))
        mix[i, j], mix[j, i] = scale[i] / scale[j], -scale[j] / scale[i]
        change = mix @ edges
        for lag in range(lags):
            block = slice(lag * d, (lag + 1) * d)
            change[:, :, block] -= edges[:, :, block] @ mix
        changes.append(change[:, zeros].ravel())
    table = np.stack(changes)
    moment = table @ table.T / len(jacobian)
    values, vectors = np.linalg.eigh(moment)
    # The floor is for rotations that change no zero: their error is cut at 1 below.
    spread = ((vectors**2) / np.maximum(values, size**2 * 1e-6 + 1e-300)).sum(1)
    for (i, j), sd in zip(pairs, size * np.sqrt(spread), strict=True):
        error[i, j], error[j, i] = sd * scale[i] / scale[j], sd * scale[j] / scale[i]
    return np.minimum(error, 1.0)


def axis_findings(checks: AxisChecks, names: Sequence[str], lags: int) -> list[Finding]:
    """Doubts of latents that share noise, or that a rotation may mix.

    Parameters
    ----------
    checks : AxisChecks
    names : sequence of str
        Of the latents.
    lags : int
        Without a past the axes are those of the noise.
    """
    findings = []
    enough = checks.noise_share >= _NOISE_SHARE
    away = np.abs(checks.noise_correlation) * (1 - np.eye(len(names))) * np.outer(enough, enough)
    shared = [(i, j) for i in range(len(names)) for j in range(i) if away[i, j] >= SHARED] if lags else []
    if shared:
        sharers = sorted({k for pair in shared for k in pair})
        i, j = max(shared, key=lambda pair: away[pair])
        findings.append(
            Finding(
                "noise",
                f"{listed([names[k] for k in sharers])} move together within a step, beyond what drives them "
                f"(correlation {checks.noise_correlation[i, j]:.2f} of {names[j]} and {names[i]}): they act "
                "on each other faster than the steps, share a cause that is not in the table, or are mixed",
                "give shorter steps, or what they share as an action",
                "doubt",
                factors=tuple(names[k] for k in sharers),
                size=float(away.max()),
            )
        )
    mixed = [(i, j) for i in range(len(names)) for j in range(len(names)) if checks.mixing[i, j] >= MIXED]
    for k in dict.fromkeys(i for i, _ in mixed):
        others = [names[j] for i, j in mixed if i == k]
        findings.append(
            Finding(
                "influence",
                f"{names[k]} may hold some of {listed(others)}: with that its Jacobian would have the same "
                "zeros, so that other axes are as sparse",
                f"more sequences, or an action that drives {names[k]} and not {listed(others, 'or')}",
                "doubt",
                factors=(names[k],),
                size=float(checks.mixing[k].max()),
            )
        )
    return findings


def graph_findings(
    agreement: pd.DataFrame, best: int, checks: AxisChecks, unclear: Sequence[tuple[str, str]] = ()
) -> list[Finding]:
    """Doubts of a graph without a clear break, and of a Jacobian that hardly varies.

    Where noise that is independent between latents fixes the axes up to rotations, a Jacobian that varies
    little is no doubt by itself: `axis_findings` asks which rotations are left.

    Parameters
    ----------
    agreement : DataFrame
        Of the fit.
    best : int
        Restart.
    checks : AxisChecks
        Of that restart.
    unclear : sequence of (str, str)
        Edges (target, source) near the break, from `unclear_edges`; without any the doubt is of all edges.
    """
    findings = []
    gap, share = float(agreement["gap"][best]), float(agreement["influence"][best])
    if gap < GUESS:
        # Of 16 tuning fits, short ones with such a gap, edges of P > .95 at least twice as strong as the
        # strongest zero were 66 true and 1 false; of those nearer to it 3 of 25 were false.
        which = f"which of {len(unclear)} edge(s) near that break are there" if unclear else "the graph"
        findings.append(
            Finding(
                "gap",
                f"the weakest edge is only {np.exp(gap):.1f} times the strongest zero: {which} is a guess",
                "more sequences",
                severity="doubt",
                edges=tuple(unclear),
                size=float(np.exp(gap)),
            )
        )
    if share < SPANNED and not checks.independent_noise:
        unseen = agreement.get("beyond_linear", {best: np.nan})[best] < BENT  # old files do not say
        why = (
            "the held-out sequences do not show that the dynamics bend"
            if unseen
            else "the dynamics are nearly linear"
        )
        findings.append(
            Finding(
                "influence",
                f"its influences span {share:.0%} of the directions that its edges need: {why}, and "
                "other axes may be as sparse",
                severity="doubt",
                size=share,
            )
        )
    return findings


def unclear_edges(strength: np.ndarray, graph: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Edges less than twice as strong as the strongest zero, and zeros more than half the weakest edge.

    Parameters
    ----------
    strength : ndarray
        Of each edge of one graph.
    graph : ndarray of int
    free : ndarray of bool
        Edges that are neither required nor forbidden; others are not unclear, and no measure of these.

    Returns
    -------
    ndarray of bool

    Examples
    --------
    >>> unclear_edges(np.array([3.0, 1.1, 1.0, 0.1]), np.array([1, 1, 0, 0]), np.ones(4, bool)).tolist()
    [False, True, True, False]
    """
    present, absent = (graph == 1) & free, (graph == 0) & free
    if not (present.any() and absent.any()):
        return np.zeros(strength.shape, bool)
    factor = np.exp(GUESS)
    near_zeros = present & (strength < factor * strength[absent].max())
    return near_zeros | absent & (strength * factor > strength[present].min())


def evidence_findings(
    edges: Sequence[tuple[str, str]], strength: Sequence[float], probability: Sequence[float]
) -> list[Finding]:
    """Doubt of edges about which the fit's graph and their probabilities disagree.

    Both are read from the same latents, the one from derivatives of a network that has seen all steps, the
    other from how well curves of a few inputs predict some of them. On eight tuning fits 57 of 58 edges that
    both have were true, and of two that only the graph has both; on 16 short ones 102 of 106, and of 25 that
    only the probabilities have six were false.

    Parameters
    ----------
    edges : sequence of (str, str)
        (target, source).
    strength, probability : sequence of float
        Of each.
    """
    if not len(edges):
        return []
    named = [
        f"{source} -> {target} (derivative {size:.2f}, probability {p:.2f})"
        for (target, source), size, p in zip(edges, strength, probability, strict=True)
    ]
    more = f" and {len(named) - 3} more" if len(named) > 3 else ""
    return [
        Finding(
            "graph",
            f"the graph and the probabilities disagree about {len(named)} edge(s): "
            f"{', '.join(named[:3])}{more}",
            "more sequences; believe what both of them say",
            "doubt",
            "chains",
            edges=tuple(dict.fromkeys(edges)),
            size=float(len(named)),
        )
    ]


def restart_findings(
    frames: np.ndarray,
    best: int,
    allowed: np.ndarray,
    differing: Sequence[Sequence[tuple[str, str]]],
    names: Sequence[str],
) -> list[Finding]:
    """Doubts of latents that no other restart has, and of edges that every other has otherwise.

    Parameters
    ----------
    frames : ndarray (restart, frame, latent)
        Of all restarts in the frame of the best.
    best : int
    allowed : ndarray of bool (latent, latent)
        Which latents the best restart's graph lets each be mixed with.
    differing : sequence of sequence of (str, str)
        Of each restart: edges (target, source) that it has and the best has not, or the reverse.
    names : sequence of str
        Of the latents.
    """
    others = [r for r in range(len(frames)) if r != best]
    if not others:
        return only_restart(1)
    best_latents = frames[best]
    findings = []
    recovered = np.array([_recovered(best_latents, frames[r], allowed) for r in others])
    nearest = recovered.max(0)
    lost = np.flatnonzero(nearest < SAME_LATENTS).tolist()
    if lost:
        figures = ", ".join(f"{nearest[k]:.2f}" for k in lost)
        findings.append(
            Finding(
                "restarts",
                f"no other restart found {listed([names[int(k)] for k in lost])}: the nearest recovers it to "
                f"R = {figures}",
                "more restarts, or more sequences",
                "doubt",
                factors=tuple(names[int(k)] for k in lost),
                size=float(nearest.min()),
            )
        )
    disputed = set(differing[others[0]]).intersection(*(differing[r] for r in others[1:]))
    if disputed:
        edges = tuple(sorted(disputed))
        findings.append(
            Finding(
                "restarts",
                f"every other restart decides otherwise about {len(edges)} edge(s): "
                + ", ".join(f"{source} -> {target}" for target, source in edges[:5])
                + (f" and {len(edges) - 5} more" if len(edges) > 5 else ""),
                "more restarts, or more sequences",
                "doubt",
                edges=edges,
                size=float(len(edges)),
            )
        )
    return findings


def failed_restarts(agreement: pd.DataFrame) -> np.ndarray:
    """Restarts that explain the sequences clearly worse than the best one, by other latents; bool (restart,).

    How their edges differ says nothing of the best restart's. That nothing confirms it then,
    `restart_findings` says.

    Parameters
    ----------
    agreement : DataFrame
        Of the fit; without `behind`, as files of earlier versions have it, none has failed.

    Examples
    --------
    >>> both = pd.DataFrame({"behind": [0.0, 40.0, 40.0], "recovered": [1.0, 0.69, 0.99]})
    >>> failed_restarts(both).tolist()
    [False, True, False]
    """
    behind = agreement.get("behind", pd.Series(0.0, agreement.index))
    return np.asarray((behind > _BEHIND) & (agreement["recovered"] < SAME_LATENTS))


def _recovered(latents: np.ndarray, other_latents: np.ndarray, allowed: np.ndarray) -> list[float]:
    """R of each latent of the best restart on those of another that it may be mixed with."""
    recovered = []
    for k in range(latents.shape[1]):
        mates = np.flatnonzero(allowed[k])
        design = np.column_stack([np.ones(len(latents)), other_latents[:, mates]])
        residual = latents[:, k] - design @ np.linalg.lstsq(design, latents[:, k], rcond=None)[0]
        recovered.append(float(np.sqrt(max(0.0, 1 - residual.var() / max(latents[:, k].var(), 1e-300)))))
    return recovered
