r"""From a dense fit of a latent transition to its axes: moments of the Jacobian, the search, the fold.

With h the dense latents, C a covariance and J the Jacobian of the mean, the search
(`rotation/jacobian_axes.py`) sees :math:`C^{-1/2} J C^{1/2}` (past) and :math:`C^{-1/2} J_a` (actions), and
answers with a rotation B. New latents are :math:`B\,C^{-1/2} h`, scaled to unit variance. C is that of the
noise of the transition, which the model has independent between latents: a map that keeps it so is a
rotation of latents whitened by it, up to scales (`graphs.identifiability.blocks`). Where every past frame is
the first of its sequence, C is that of the past latents, which the model draws from N(0, I). Between the
two, noise as small as the errors of a fit says nothing, so that the search is made with both, and past
latents decide where their graph parts edges from zeros much more clearly. Where only actions drive, C is
that of the noise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple, Unpack

import numpy as np
import torch
from scipy.optimize import quadratic_assignment

from ..._utils.declared import hooks
from ..._utils.torch_state import undisturbed
from ...data.sequences import SequenceBatch
from ...models.latent_transition import LatentTransition
from ..rotation.jacobian_axes import AxisSearch, JacobianAxes, jacobian_axes
from ..rotation.strength_gap import strength_gap
from .influence import fitted_influence, share_spanned

Whitening = Literal["past", "noise"]

__all__ = [
    "FoundAxes",
    "believed",
    "beyond_linear",
    "dense_moments",
    "dense_steps",
    "find_axes",
    "fold",
    "latents",
    "rotated",
    "seen_steps",
    "transition_jacobian",
    "turned_jacobian",
]

MOST_STEPS = 20_000
_DRIVEN = 1e-4  # of the variance that actions explain along the best direction: less is not driven
_EDGE_LOGIT = 3.0  # a probability of .95: near the graph found, and the gate still has a slope
BENT = 2.0  # standard errors; fits to linear dynamics had -.8 to 1.6
# Of a gap: on four tuning sets with correlated latents the axes of independent noise were right with gaps
# from .4 wider to .3 narrower than the others'.
_CLEARER = 0.5
_SEATINGS = 50  # random starts of the search for an order
_SURE_ODDS = np.log(1000.0)  # count as a constraint where latents are numbered


class FoundAxes(NamedTuple):
    """Axes of one restart and the strengths of all edges along them.

    Parameters
    ----------
    map : ndarray (latent, latent)
        ``latent_new = map @ latent_old``, new latents of unit variance.
    strength : ndarray (latent, parent)
        Root mean square Jacobian of the new latents' means by the parents (each lag's latents, then actions
        in standard deviations; of a categorical action the length of the derivatives by its contrasts).
    graph : ndarray of int (latent, parent)
        1 above the gap.
    gap : float
        Log ratio of the weakest edge to the strongest zero, the smaller one of two graphs; 0 where there is
        hardly an edge.
    found : float
        Share of the search's starts that ended at its optimum.
    influence : float
        Share of the directions that sufficient influence asks for which the Jacobian spans.
    beyond_linear : float
        From :func:`beyond_linear`; NaN where no sequences were kept aside.
    """

    map: np.ndarray
    strength: np.ndarray
    graph: np.ndarray
    gap: float
    found: float
    influence: float
    beyond_linear: float = np.nan


@torch.no_grad()
def latents(model: LatentTransition, batch: SequenceBatch, chunk: int = 5000) -> torch.Tensor:
    """Posterior means (restart, sequence, time, latent) of the program at hand.

    Parameters
    ----------
    model : LatentTransition
    batch : SequenceBatch
    chunk : int
        Sequences at a time.
    """
    chunks = torch.arange(len(batch), device=batch.x.device).split(chunk)
    return torch.cat([model.posterior(batch.rows(index)).loc for index in chunks], 1)


def seen_steps(
    model: LatentTransition, batch: SequenceBatch, z: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs of the steps to learn from.

    Parameters
    ----------
    model : LatentTransition
    batch : SequenceBatch
    z : Tensor (restart, sequence, time, latent)
        Its latents.

    Returns
    -------
    inputs : Tensor (restart, step, input)
        Past latents (lag 1, 2, …) and then actions.
    use : Tensor of bool (sequence, time - lags)
        Which of all steps these are: `SequenceBatch.steps`.

    Raises
    ------
    ValueError
        Hardly a step is left.
    """
    use = batch.steps(model.lags)
    if use.sum() < 2:
        raise ValueError(
            f"X: has {int(use.sum())} step(s) from frames that were seen to one that was, wanted at least 2; "
            "give longer sequences with fewer missing frames, or lower lags"
        )
    return model.chain(batch, None)._inputs(z, model.lags, z.shape[2])[:, use], use


class _Moments(NamedTuple):
    time: np.ndarray | None
    actions: np.ndarray | None
    jacobian: np.ndarray  # (step, latent, input) in dense latents
    root: np.ndarray  # square root of the covariance that is whitened
    noise: np.ndarray  # covariance of the latents given what drives them
    past: np.ndarray  # covariance of the past latents, or of all where no past counts


@torch.no_grad()
def dense_moments(model: LatentTransition, batch: SequenceBatch, white: Whitening = "past") -> list[_Moments]:
    """Second moments of the dense transition's Jacobian, one for each restart.

    Parameters
    ----------
    model : LatentTransition
        After the dense fit.
    batch : SequenceBatch
        Up to 20,000 steps of it are used.
    white : {"past", "noise"}
        Covariance that becomes the identity: of the past latents, or of the noise of the transition.
    """
    return [_moments(model, *steps, white) for steps in dense_steps(model, batch)]


def turned_jacobian(model: LatentTransition, batch: SequenceBatch) -> list[np.ndarray]:
    """Jacobians of the dense transition along the model's axes, (step, latent, input), one for each restart.

    Parameters
    ----------
    model : LatentTransition
        Folded.
    batch : SequenceBatch
        Up to 20,000 steps of it are used.
    """
    axes = model.axes.double().cpu().numpy()
    steps = dense_steps(model, batch)
    return [rotated(model, jacobian, turn) for (jacobian, *_), turn in zip(steps, axes, strict=True)]


@torch.no_grad()
def beyond_linear(model: LatentTransition, train: SequenceBatch, heldout: SequenceBatch) -> list[float]:
    """By how many standard errors the transition predicts held-out sequences better than a linear one does.

    A network that overfitted noise has derivatives that vary, whatever the dynamics; here that does not
    count. Squared errors are in units of the linear regression's, summed over each sequence.

    Parameters
    ----------
    model : LatentTransition
        After the dense fit.
    train, heldout : SequenceBatch
        Up to 20,000 steps of each are used.

    Returns
    -------
    list of float
        One for each restart; NaN where fewer than two sequences tell.
    """
    designs = []
    for batch in (train, heldout):
        few = _few(model, batch)
        z = latents(model, few)
        inputs, use = seen_steps(model, few, z)
        designs.append((inputs, z[:, :, model.lags :][:, use], use.nonzero()[:, 0].cpu().numpy()))
    (learned, targets, _), (inputs, wanted, sequence) = designs
    z_scores = []
    for r, predicted in enumerate(model.transition(inputs)):
        x, y, new_inputs, out, bent = (
            t.double().cpu().numpy() for t in (learned[r], targets[r], inputs[r], wanted[r], predicted)
        )
        x, new_inputs = (np.insert(u, 0, 1.0, axis=1) for u in (x, new_inputs))
        line = np.linalg.lstsq(x, y, rcond=None)[0]
        values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(y - x @ line, rowvar=False)))
        # A direction that the line predicts exactly has no error to be a unit.
        white = vectors / np.sqrt(np.maximum(values, 1e-8 * values[-1] + 1e-30))
        errors = [(((out - mean) @ white) ** 2).sum(1) for mean in (new_inputs @ line, bent)]
        gain = np.bincount(sequence, errors[0] - errors[1])[np.unique(sequence)]
        error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else 0.0
        z_scores.append(float(gain.mean() / error) if error > 0 else np.nan)
    return z_scores


def believed(jacobian: np.ndarray, beyond: float) -> np.ndarray:
    """The Jacobian where held-out sequences show that it varies, and its mean at every step where not.

    Parameters
    ----------
    jacobian : ndarray (step, latent, input)
    beyond : float
        From :func:`beyond_linear`; of NaN nothing is known, and the Jacobian is believed.
    """
    return np.broadcast_to(jacobian.mean(0), jacobian.shape) if beyond < BENT else jacobian


def transition_jacobian(model: LatentTransition, inputs: torch.Tensor) -> torch.Tensor:
    """Derivative of the dense transition's means by its inputs, (restart, row, latent, input).

    In closed form where the class that wrote `forward` wrote that too, else by autograd.

    Parameters
    ----------
    model : LatentTransition
    inputs : Tensor (restart, row, input)
        The means of a row depend on its own inputs.
    """
    network = model.transition
    first = next(cls for cls in type(network).__mro__ if {"forward", "jacobian"} & vars(cls).keys())
    if "jacobian" in vars(first) and not hooks(network):
        return network.jacobian(inputs)
    with torch.enable_grad():
        leaf = inputs.detach().requires_grad_()
        means = network(leaf)
        rows = [
            torch.autograd.grad(means[..., k].sum(), leaf, retain_graph=True, materialize_grads=True)[0]
            for k in range(means.shape[-1])
        ]
    return torch.stack(rows, -2).detach()


def _few(model: LatentTransition, batch: SequenceBatch) -> SequenceBatch:
    """Its first sequences, of about as many steps as are looked at."""
    per = max(1, batch.x.shape[1] - model.lags)
    return batch.rows(torch.arange(min(len(batch), -(-MOST_STEPS // per)), device=batch.x.device))


@torch.no_grad()
def dense_steps(
    model: LatentTransition, batch: SequenceBatch
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Of each restart: Jacobians (step, latent, input) of the dense transition, past latents, and noise.

    Parameters
    ----------
    model : LatentTransition
        After the dense fit, or folded: the latents are those of the dense fit in either case.
    batch : SequenceBatch
        Up to 20,000 steps of it are used.

    Returns
    -------
    list of (ndarray, ndarray, ndarray)
        The second is (frame, latent); the third the covariance of the latents given what drives them, the
        posterior's included.
    """
    dense, model.dense = model.dense, True
    try:
        return _steps(model, _few(model, batch))
    finally:
        model.dense = dense


def _steps(model: LatentTransition, batch: SequenceBatch) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    posterior = model.posterior(batch)
    z = posterior.loc
    inputs, use = seen_steps(model, batch, z)
    by_restart = []
    for r, rows in enumerate(inputs):
        repeated = rows.unsqueeze(0).expand(model.n_restarts, *rows.shape)
        jacobian = transition_jacobian(model, repeated)[r].double().cpu().numpy()
        jacobian = _by_spread(model, jacobian, rows.double().cpu().numpy())
        past = rows[:, : model.n_latents] if model.lags else z[r][batch.seen]
        away = z[r, :, model.lags :][use] - model.transition(repeated)[r]
        factor = posterior.factor[r, :, model.lags :][use]
        noise = away.mT @ away / len(away) + (factor @ factor.mT).mean(0)
        by_restart.append((jacobian, past.double().cpu().numpy(), noise.double().cpu().numpy()))
    return by_restart


def _by_spread(model: LatentTransition, jacobian: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Derivatives by the contrasts of a categorical action, in uncorrelated standard deviations of them.

    A numeric action is standardised; levels of several contrasts are not as frequent as each other.
    """
    if model.n_inputs == model.n_parents:
        return jacobian
    jacobian = jacobian.copy()
    start = model.lags * model.n_latents
    for width in model.action_widths:
        columns = slice(start, start + width)
        if width > 1:
            jacobian[:, :, columns] = jacobian[:, :, columns] @ _root(
                np.cov(inputs[:, columns], rowvar=False)
            )
        start += width
    return jacobian


def _strength(model: LatentTransition, jacobian: np.ndarray) -> np.ndarray:
    """Root mean square derivatives (latent, parent) of (step, latent, input): an action's columns are one."""
    return np.sqrt(_by_parent(model, (jacobian**2).mean(0)))


def _by_parent(model: LatentTransition, squares: np.ndarray) -> np.ndarray:
    """Sums over the inputs of each parent, along the last axis."""
    if not model.n_actions or max(model.action_widths) == 1:
        return squares
    widths = np.array([1] * (model.lags * model.n_latents) + model.action_widths)
    return np.add.reduceat(squares, np.cumsum(widths) - widths, axis=-1)


def rotated(model: LatentTransition, jacobian: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """The Jacobian of ``turn @ latent`` by those past latents and the actions.

    Parameters
    ----------
    model : LatentTransition
    jacobian : ndarray (step, latent, input)
    turn : ndarray (latent, latent)
    """
    d, back = model.n_latents, np.linalg.inv(turn)
    blocks = [turn @ jacobian[:, :, i * d : (i + 1) * d] @ back for i in range(model.lags)]
    if model.n_actions:
        blocks.append(turn @ jacobian[:, :, model.lags * d :])
    return np.concatenate(blocks, -1)


def _moments(
    model: LatentTransition, jacobian: np.ndarray, past: np.ndarray, noise: np.ndarray, white: Whitening
) -> _Moments:
    d, lags, n = model.n_latents, model.lags, len(jacobian)
    spread = np.atleast_2d(np.cov(past, rowvar=False))
    root = _root(spread if white == "past" else noise)
    inverse = np.linalg.inv(root)
    time = actions = None
    if lags:
        time = np.zeros((d * d, d * d))
        for lag in range(lags):
            vec = (inverse @ jacobian[:, :, lag * d : (lag + 1) * d] @ root).reshape(n, -1)
            time += vec.T @ vec / n
    if model.n_actions:
        by_actions = jacobian[:, :, lags * d :]
        by_actions = inverse @ by_actions if lags else by_actions
        actions = np.einsum("nij,nkj->jik", by_actions, by_actions) / n
        if len(actions) > model.n_actions:
            starts = (np.cumsum(model.action_widths) - model.action_widths).tolist()
            actions = np.add.reduceat(actions, starts, axis=0)
    return _Moments(time, actions, jacobian, root, noise, spread)


def _root(covariance: np.ndarray) -> np.ndarray:
    """Its symmetric square root, directions without variance given next to none."""
    values, vectors = np.linalg.eigh(covariance)
    return (vectors * np.sqrt(np.maximum(values, 1e-8 * values[-1]))) @ vectors.T


def find_axes(
    model: LatentTransition,
    batch: SequenceBatch,
    seed: int = 0,
    heldout: SequenceBatch | None = None,
    **options: Unpack[AxisSearch],
) -> list[FoundAxes]:
    """Sparse axes of each restart of a dense fit.

    Parameters
    ----------
    model : LatentTransition
        After the dense fit.
    batch : SequenceBatch
        The sequences it was fitted to.
    seed : int
        Of the search.
    heldout : SequenceBatch, optional
        Held-out sequences, which say whether the dynamics bend.
    **options
        Passed to `jacobian_axes`.

    Returns
    -------
    list of FoundAxes
    """
    answers = []
    bent = [np.nan] * model.n_restarts if heldout is None else beyond_linear(model, batch, heldout)
    for steps, beyond in zip(dense_steps(model, batch), bent, strict=True):
        if model.lags:
            whitenings = _whitenings(batch.x.shape[1], model.lags)
            moments = [_moments(model, *steps, white) for white in whitenings]
            clear = _clearer([_time_axes(model, moment, seed, options) for moment in moments])
        else:
            clear = _action_axes(model, _moments(model, *steps, "past"), seed, options)
        turn, graph, gap, share = clear
        jacobian = rotated(model, steps[0], turn)
        strength = _strength(model, jacobian)
        varying = believed(jacobian, beyond)
        influences = fitted_influence(varying, graph, model.n_latents, model.lags, model.action_widths)
        spanned = share_spanned(influences)
        seat = _seats(model, strength)
        inputs = np.arange(strength.shape[1])
        for lag in range(model.lags):
            inputs[lag * len(seat) : (lag + 1) * len(seat)] = lag * len(seat) + seat
        strength, graph = strength[np.ix_(seat, inputs)], graph[np.ix_(seat, inputs)]
        must, permitted = model.must.cpu().numpy(), model.allowed.cpu().numpy()
        graph = np.where(must, 1, np.where(permitted, graph, 0))
        answers.append(FoundAxes(turn[seat], strength, graph, gap, share, spanned, beyond))
    return answers


class _Axes(NamedTuple):
    turn: np.ndarray  # new latents of unit variance
    graph: np.ndarray
    gap: float
    share: float  # of the search's starts that ended there


def _time_axes(model: LatentTransition, moments: _Moments, seed: int, options: AxisSearch) -> _Axes:
    """Axes where the past acts: rotations of the latents whitened as `part` says."""
    axes = _search(moments.time, moments.actions, seed, options)
    turn = _unit_rows(axes.map @ np.linalg.inv(moments.root), moments.past)
    strength = _strength(model, rotated(model, moments.jacobian, turn))
    graph, gap = _graph(model, axes, strength)
    return _Axes(turn, graph, gap, axes.agreement / axes.n_starts)


def _action_axes(model: LatentTransition, moments: _Moments, seed: int, options: AxisSearch) -> _Axes:
    """Axes of what the actions move; the rest, independent of that by its noise, stays as it is."""
    assert moments.actions is not None
    white = np.linalg.inv(np.linalg.cholesky(moments.noise))
    values, vectors = np.linalg.eigh(white @ moments.actions.sum(0) @ white.T)
    moved = values > _DRIVEN * values[-1]
    driven, unmoved = vectors[:, moved].T @ white, vectors[:, ~moved].T @ white
    axes = _search(None, driven @ moments.actions @ driven.T, seed, options)
    graph = np.zeros((model.n_latents, model.n_parents), int)
    graph[: len(driven)] = axes.graph_a
    turn = _unit_rows(np.concatenate([axes.map @ driven, unmoved]), moments.past)
    return _Axes(turn, graph, axes.gap, axes.agreement / axes.n_starts)


def _unit_rows(turn: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """The map with rows scaled to latents of unit variance."""
    return turn / np.sqrt(np.diag(turn @ covariance @ turn.T))[:, None]


def _whitenings(n_frames: int, lags: int) -> list[Whitening]:
    """Which covariances latents are whitened by: that of first frames is the identity by the model."""
    return ["past"] if n_frames <= lags + 1 else ["past", "noise"]


def _clearer(axes: list[_Axes]) -> _Axes:
    """Axes of which the noise is independent, unless those of independent latents part edges more clearly.

    The noise of the transition is independent between latents by the model; that the latents themselves are
    holds at a start from N(0, I) only, since latents that drive each other are correlated. But where noise is
    as small as the errors of the fit, its covariance is that of those errors.
    """
    if len(axes) == 1:
        return axes[0]
    past, noise = axes
    return past if past.gap > noise.gap + _CLEARER else noise


def _seats(model: LatentTransition, strength: np.ndarray) -> np.ndarray:
    """The order of the latents that suits required and forbidden edges, and odds, best: these name latents by
    number. Actions keep their places."""
    d, past = model.n_latents, model.lags * model.n_latents
    forced = (model.must.float() - (~model.allowed).float()).cpu().numpy()
    wish = np.where(forced, forced, (model.log_odds.cpu().numpy() / _SURE_ODDS).clip(-1, 1))
    time, action = wish[:, : min(d, past)], wish[:, past:]
    if not ((time - np.diag(np.diag(time))).any() if past else False) and not action.any():
        return np.arange(d)
    n = d + (model.n_actions if action.any() else 0)
    wishes, shares = np.zeros((n, n)), np.zeros((n, n))
    for columns, wanted, strengths in (
        (slice(0, min(d, past)), time, strength[:, : min(d, past)]),
        (slice(d, n), action, strength[:, past:]),
    ):
        if strengths.size and columns.start < n:
            wishes[:d, columns], shares[:d, columns] = wanted, strengths**2 / (strengths**2).max()
    rng = np.random.default_rng(0)
    fixed = np.arange(d, n)
    options = {"maximize": True, "rng": rng, "partial_match": np.stack([fixed, fixed], 1)}  # may be empty
    tries = [quadratic_assignment(wishes, shares, method="2opt", options=options) for _ in range(_SEATINGS)]
    return max(tries, key=lambda seating: seating.fun).col_ind[:d]


def _search(
    time: np.ndarray | None, actions: np.ndarray | None, seed: int, options: AxisSearch
) -> JacobianAxes:
    """The search, with no floor under the strengths where hardly any is an edge: that graph is a guess."""
    with undisturbed(threads=1):
        try:
            return jacobian_axes(time, actions, seed=seed, **options)
        except ValueError as reason:
            if "no edge" not in str(reason):
                raise
            guess = jacobian_axes(time, actions, seed=seed, **(options | {"floor": 1e-9}))
            return replace(guess, gap=0.0, gap_a=0.0)


def _graph(model: LatentTransition, axes: JacobianAxes, strength: np.ndarray) -> tuple[np.ndarray, float]:
    """Time and action graphs side by side and their gap; the time graph by the strengths of latents of unit
    variance at each lag, where the search saw all lags as one and the latents in units of their noise."""
    past = strength[:, : model.lags * model.n_latents]
    try:
        cut = strength_gap(past, model.n_latents)
    except ValueError:  # hardly an edge: a guess, as in the search
        cut = strength_gap(past, model.n_latents, floor=1e-9)._replace(gap=0.0)
    graph = (past > cut.threshold).astype(int)
    graphs = [g for g in (graph, axes.graph_a) if g is not None]
    return np.concatenate(graphs, -1), min(cut.gap, axes.gap_a)


@torch.no_grad()
def fold(model: LatentTransition, answers: list[FoundAxes]) -> None:
    """Turn a dense fit to its axes, edges beginning at the graph found.

    Parameters
    ----------
    model : LatentTransition
    answers : list of FoundAxes
        One for each restart.
    """
    like = model.axes

    def tensor(arrays: list[np.ndarray]) -> torch.Tensor:
        return torch.as_tensor(np.stack(arrays), dtype=like.dtype, device=like.device)

    graph = tensor([a.graph for a in answers])
    model.fold(tensor([a.map for a in answers]), (2 * graph - 1) * _EDGE_LOGIT)
