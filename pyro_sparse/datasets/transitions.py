r"""Sequences whose latents drive each other, or are driven by actions, through a known sparse graph.

z_t ~ N(mu(z_{t-1}, a_t), sd^2) with mu_i a function of the parents of latent i only, and x_t a one-to-one
nonlinear mixing of z_t. `transition_data` draws every synthetic set of the mechanism-sparsity paper by name,
and others (both graphs at once, longer sequences, other mechanisms); `transition_graph` gives the graphs,
`transition_mean` and `transition_jacobian` the exact conditional mean and its derivatives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pyro_sparse.datasets._gaussian_transitions import (
    MECHANISMS,
    GaussianTransition,
    growth,
    mix,
    mixing_of,
    transition_of,
)
from pyro_sparse.datasets.transition_graphs import ActionTime, streams, transition_graph

__all__ = [
    "Pairs",
    "Transitions",
    "transition_data",
    "transition_jacobian",
    "transition_mean",
    "transition_mixing",
]

_SPLITS = ("train", "validation", "test")


class Pairs(NamedTuple):
    """Consecutive frames, one row per step.

    Parameters
    ----------
    x_before, x_after : ndarray of shape (row, d_x)
    z_before, z_after : ndarray of shape (row, d_z)
    actions : ndarray of shape (row, d_a) or None
        The action that leads from the one to the other.
    """

    x_before: np.ndarray
    x_after: np.ndarray
    z_before: np.ndarray
    z_after: np.ndarray
    actions: np.ndarray | None


@dataclass(frozen=True, eq=False)
class Transitions:
    """Simulated sequences and the truth behind them.

    Parameters
    ----------
    name : str
        Graph that drives them.
    x : ndarray of shape (sequence, time, d_x)
        Observations, standardised.
    z : ndarray of shape (sequence, time, d_z)
        True latents.
    actions : ndarray of shape (sequence, time, d_a) or None
        ``actions[:, t]`` leads to frame t (the paper's a_{t-1}). With a past to depend on, frame 0 is N(0, I)
        and ``actions[:, 0]`` has no effect.
    graph_z : ndarray of shape (target, source), dtype int, or None
        1 where a latent depends on the last value of another.
    graph_a : ndarray of shape (target, action), dtype int, or None
        1 where a latent depends on an action.
    splits : mapping of str to ndarray of int
        Sequences of ``"train"``, ``"validation"`` and ``"test"``; disjoint, together all of them.
    settings : mapping
        The arguments that made it, defaults filled in.
    """

    name: str
    x: np.ndarray
    z: np.ndarray
    actions: np.ndarray | None
    graph_z: np.ndarray | None
    graph_a: np.ndarray | None
    splits: Mapping[str, np.ndarray]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def part(self, split: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Sequences of one split.

        Parameters
        ----------
        split : str
            A key of `splits`.

        Returns
        -------
        x, z, actions : ndarray of shape (n, time, ...)
            Actions are None where there are none.

        Raises
        ------
        KeyError
            If there is no such split.
        """
        if split not in self.splits:
            raise KeyError(f"split={split!r} is not one of {sorted(self.splits)}")
        rows = self.splits[split]
        return self.x[rows], self.z[rows], None if self.actions is None else self.actions[rows]

    def pairs(self, split: str = "train") -> Pairs:
        """All steps from one frame to the next, within the sequences of one split.

        Parameters
        ----------
        split : str
            A key of `splits`.

        Returns
        -------
        Pairs
            ``n * (T - 1)`` rows, sequence after sequence.

        Raises
        ------
        KeyError
            If there is no such split.
        ValueError
            If the sequences have one frame only.
        """
        x, z, actions = self.part(split)
        if x.shape[1] < 2:
            raise ValueError("T=1: a single frame has no pairs; draw sequences with T=2 or more")

        def rows(of: np.ndarray) -> np.ndarray:
            return of.reshape(-1, of.shape[-1])

        a = None if actions is None else rows(actions[:, 1:])
        return Pairs(rows(x[:, :-1]), rows(x[:, 1:]), rows(z[:, :-1]), rows(z[:, 1:]), a)


def transition_data(
    name: str,
    n: int = 10_000,
    *,
    n_validation: int | None = None,
    n_test: int | None = None,
    d_z: int = 10,
    d_x: int = 20,
    T: int | None = None,
    k: int = 1,
    mechanism: str = "sine",
    sufficient: bool = True,
    seed: int = 0,
    decoder_seed: int | None = None,
    published_splits: bool = False,
    shrink: float | None = None,
    noise: float | None = None,
    observation_noise: float = 0.01,
) -> Transitions:
    r"""Draw a synthetic set of the mechanism-sparsity paper, or one made like them.

    Actions are :math:`a \sim U(-2, 2)`; frame 0 is :math:`N(0, I)` where the past acts; then

    .. math::

        z_{t,i} \sim N(\mu_i, \sigma_i^2), \qquad
        \mu_i = s\Bigl(z_{t-1,i} + \tfrac12 \sum_j G^z_{ij} \sin(w_i z_{t-1,j} + i)\Bigr)
              + \sum_l G^a_{il} \sin(w_i a_{t,l} + i), \qquad w_i = (i+3)/\pi,

    each part only where the set has that graph, and :math:`\sin(u)` in the Diag shape. Observations are
    :math:`x_t = \mathrm{standardise}(W_4\phi(W_3\phi(W_2\phi(W_1 z_t)))) + 0.01\,N(0, I)`, W with orthonormal
    columns and phi a LeakyReLU of slope 0.2: one-to-one.

    Parameters
    ----------
    name : str
        A set, as in `transition_graph`.
    n, n_validation, n_test : int
        Sequences of the three splits; the last two default to ``n // 5``, at least 2.
    d_z, d_x : int
        Latents and features, d_x >= d_z.
    T : int, optional
        Frames of a sequence. By default 2, or 1 where the past does not act (further frames are then
        independent).
    k : {1, 2}
        2: the variance depends on the graph too,
        :math:`\sigma_i^2 = (0.1/p)\exp\sum_j G_{ij}\cos(w_i u_j + i)` over the p inputs u there
        are (d_a, d_z, or both).
    mechanism : {"sine", "leaky_relu", "gp"}
        Replaces the sums of sines by a random LeakyReLU network (16 units) or by a random-Fourier-feature
        draw of a Gaussian process, one per target, over its parents.
    sufficient : bool
        False: the sums are linear, :math:`\sum_j G_{ij} A_{ij} u_j` with A standard normal, so that
        sufficient influence is violated (the paper's ``no_suff``).
    seed : int
        Seed of everything. Train sequences do not change with `n_validation` or `n_test`.
    decoder_seed : int, optional
        Seed of W: a fixed decoder under every `seed`. By default it is redrawn with `seed`.
    published_splits : bool
        As published: the actions of the validation and test splits are the first rows of the train split's,
        and each split is standardised by its own mean and deviation. By default the splits are independent
        and the train split standardises all.
    shrink : float, optional
        s. By default 1 for T <= 2, as published. For longer sequences, where s = 1 lets z drift away, 0.6
        divided by the factor by which one step multiplies a very large z: 1 for sines and GP draws, more
        or less for the unbounded mechanisms. Deviations of z then stay between about 0.3 and 3.
    noise : float, optional
        :math:`\sigma`, with k = 1. By default 0.01, as published; 0.3 where sequences longer than 2 depend on
        their past, which would otherwise settle at fixed points.
    observation_noise : float
        Standard deviation of the noise of the standardised x.

    Returns
    -------
    Transitions

    Raises
    ------
    ValueError
        If an argument is out of range, two contradict each other, or the sequences diverge.

    References
    ----------
    Lachapelle et al. (2024), arXiv 2401.04890, section 8.

    Examples
    --------
    >>> data = transition_data("ActionTimeNonDiag", n=100, d_z=4, d_x=8, T=5)
    >>> data.x.shape, data.actions.shape, int(data.graph_a.sum()), int(data.graph_z.sum())
    ((140, 5, 8), (140, 5, 4), 8, 10)
    """
    graphs = transition_graph(name, d_z, seed)
    past = graphs.time is not None
    settings: dict[str, Any] = {
        "name": name,
        "n": n,
        "n_validation": max(2, n // 5) if n_validation is None else n_validation,
        "n_test": max(2, n // 5) if n_test is None else n_test,
        "d_z": d_z,
        "d_x": d_x,
        "T": (2 if past else 1) if T is None else T,
        "k": k,
        "mechanism": mechanism,
        "sufficient": sufficient,
        "seed": seed,
        "decoder_seed": decoder_seed,
        "published_splits": published_splits,
        "shrink": shrink,
        "noise": noise,
        "observation_noise": observation_noise,
    }
    _check(settings, past)
    long = past and settings["T"] > 2
    if noise is None and k == 1:
        settings["noise"] = 0.3 if long else 0.01
    if shrink is None and past:
        settings["shrink"] = 0.6 / growth(transition_of(settings).time) if long else 1.0
    return _draw(settings, graphs)


def _check(settings: Mapping[str, Any], past: bool) -> None:
    s = settings
    least = {"n": 2, "n_validation": 2, "n_test": 2, "d_x": s["d_z"], "T": 2 if past else 1}
    why = {"d_x": " (= d_z), or the mixing loses latents", "T": ": one frame shows no past" if past else ""}
    for argument, bound in least.items():
        if not isinstance(s[argument], int | np.integer) or s[argument] < bound:
            raise ValueError(
                f"{argument}={s[argument]!r}: want a whole number, at least {bound}{why.get(argument, '')}"
            )
    if s["k"] not in (1, 2):
        raise ValueError(f"k={s['k']!r}: want 1 (fixed variance) or 2 (the variance depends on the graph)")
    if s["mechanism"] not in MECHANISMS:
        raise ValueError(f"mechanism={s['mechanism']!r}: want one of {', '.join(MECHANISMS)}")
    if not s["sufficient"] and (s["k"], s["mechanism"]) != (1, "sine"):
        raise ValueError(
            f"sufficient=False is the linear mean with fixed variance: want k=1 and mechanism='sine', "
            f"got k={s['k']} and mechanism={s['mechanism']!r}"
        )
    if s["k"] == 2 and s["noise"] is not None:
        raise ValueError(f"noise={s['noise']}: with k=2 the graph sets the variance; drop one of the two")
    for argument in ("noise", "observation_noise"):
        if s[argument] is not None and not 0 <= s[argument] < np.inf:
            raise ValueError(
                f"{argument}={s[argument]} is a standard deviation: want a finite number, at least 0"
            )
    if s["shrink"] is not None and not (past and 0 < s["shrink"] < np.inf):
        raise ValueError(
            f"shrink={s['shrink']}: want a number above 0, and a set with Time in its name, got {s['name']}"
        )


def _draw(settings: Mapping[str, Any], graphs: ActionTime) -> Transitions:
    transition, weights = transition_of(settings), mixing_of(settings)
    sizes = [settings["n"], settings["n_validation"], settings["n_test"]]
    zs: list[np.ndarray] = []
    xs: list[np.ndarray] = []
    actions: list[np.ndarray] = []
    for split, size in zip(_SPLITS, sizes, strict=True):
        # Published: the stream of the actions starts again with every split.
        rng = streams(settings["seed"])
        source = rng["actions" if settings["published_splits"] else split]
        a = None
        if graphs.action is not None:
            a = source.uniform(-2, 2, (size, settings["T"], graphs.action.shape[1]))
        z = _roll(transition, a, (size, settings["T"], settings["d_z"]), rng[split])
        x = mix(weights, z)
        if not xs or settings["published_splits"]:
            mean, deviation = x.mean((0, 1)), x.std((0, 1))
        if not deviation.all():
            raise ValueError(f"noise={settings['noise']}: no latent of {settings['name']} moves; raise it")
        x = (x - mean) / deviation
        xs.append(x + settings["observation_noise"] * rng[split].standard_normal(x.shape))
        zs.append(z)
        actions += [] if a is None else [a]
    ends = np.cumsum([0, *sizes])
    return Transitions(
        name=settings["name"],
        x=np.concatenate(xs),
        z=np.concatenate(zs),
        actions=np.concatenate(actions) if actions else None,
        graph_z=graphs.time,
        graph_a=graphs.action,
        splits={split: np.arange(*ends[i : i + 2]) for i, split in enumerate(_SPLITS)},
        settings=settings,
    )


def _roll(
    transition: GaussianTransition, a: np.ndarray | None, shape: tuple[int, ...], rng: np.random.Generator
) -> np.ndarray:
    z = rng.standard_normal(shape)
    for t in range(0 if transition.time is None else 1, shape[1]):
        past = z[:, t - 1] if transition.time is not None else None
        now = None if a is None else a[:, t]
        z[:, t] = transition.mean(past, now) + transition.sd(past, now) * z[:, t]
        if not np.abs(z[:, t]).max() < 1e6:
            raise ValueError(
                f"z passes 1e6 at frame {t}: the sequences diverge; lower shrink={transition.shrink}"
            )
    return z


def _settings(data: Transitions | Mapping[str, Any]) -> Mapping[str, Any]:
    settings = data.settings if isinstance(data, Transitions) else data
    if not isinstance(settings, Mapping) or "observation_noise" not in settings:
        raise ValueError(
            f"data: want what transition_data() returned, or its settings, got {type(data).__name__}"
        )
    return settings


def _inputs(
    transition: GaussianTransition, z: ArrayLike | None, a: ArrayLike | None
) -> tuple[tuple[int, ...], list]:
    """Leading shape, and the inputs as matrices; None where the set has no such graph."""
    inputs: list[np.ndarray | None] = []
    lead: tuple[int, ...] | None = None
    for argument, mechanism, values in (("z", transition.time, z), ("a", transition.action, a)):
        if mechanism is None:
            inputs.append(None)
            continue
        width = mechanism.weight.shape[-1]
        u = np.asarray(np.nan if values is None else values, dtype=float)
        if u.shape[-1:] != (width,) or (lead is not None and u.shape[:-1] != lead):
            wanted = f"(..., {width})" if lead is None else f"{(*lead, width)}"
            got = "None" if values is None else f"shape {u.shape}"
            raise ValueError(f"{argument}: this set depends on it; want shape {wanted}, got {got}")
        lead = u.shape[:-1]
        inputs.append(u.reshape(-1, width))
    return lead or (), inputs


def transition_mean(
    data: Transitions | Mapping[str, Any], z: ArrayLike | None = None, a: ArrayLike | None = None
) -> np.ndarray:
    r"""True conditional mean :math:`\mu` of the next latents.

    Parameters
    ----------
    data : Transitions or mapping
        A set, or its `settings`.
    z : array_like of shape (..., d_z), optional
        Latents of the frame before; needed where the past acts, ignored elsewhere.
    a : array_like of shape (..., d_a), optional
        Action that leads to the frame; needed where actions act, ignored elsewhere.

    Returns
    -------
    ndarray of shape (..., d_z)

    Raises
    ------
    ValueError
        If an input is missing or of the wrong shape.

    Examples
    --------
    >>> data = transition_data("TimeDiag", n=10, d_z=2, d_x=2)
    >>> transition_mean(data, z=[0.0, np.pi / 2])
    array([0.  , 2.07])
    """
    transition = transition_of(_settings(data))
    lead, (past, now) = _inputs(transition, z, a)
    return transition.mean(past, now).reshape(*lead, -1)


def transition_jacobian(
    data: Transitions | Mapping[str, Any], z: ArrayLike | None = None, a: ArrayLike | None = None
) -> ActionTime:
    r"""Exact derivatives of `transition_mean` by the actions and by the past latents.

    Parameters
    ----------
    data : Transitions or mapping
        A set, or its `settings`.
    z : array_like of shape (..., d_z), optional
        Latents of the frame before.
    a : array_like of shape (..., d_a), optional
        Action that leads to the frame.

    Returns
    -------
    ActionTime
        :math:`\partial\mu_i/\partial a_l` of shape (..., d_z, d_a) and :math:`\partial\mu_i/\partial z_j` of
        shape (..., d_z, d_z); None where the set has no such graph. Zero at every entry that is not an edge.

    Raises
    ------
    ValueError
        If an input is missing or of the wrong shape.
    """
    transition = transition_of(_settings(data))
    lead, (past, now) = _inputs(transition, z, a)
    of_action = None if transition.action is None else transition.action.jacobian(now)
    of_time = None
    if transition.time is not None:
        of_time = transition.shrink * (np.eye(past.shape[1]) + 0.5 * transition.time.jacobian(past))
    shaped = [None if j is None else j.reshape(*lead, *j.shape[1:]) for j in (of_action, of_time)]
    return ActionTime(*shaped)


def transition_mixing(data: Transitions | Mapping[str, Any], z: ArrayLike) -> np.ndarray:
    """The decoder of a set, before standardisation and noise.

    Parameters
    ----------
    data : Transitions or mapping
        A set, or its `settings`.
    z : array_like of shape (..., d_z)

    Returns
    -------
    ndarray of shape (..., d_x)

    Raises
    ------
    ValueError
        If `z` has another width.
    """
    settings = _settings(data)
    latent = np.asarray(z, dtype=float)
    if latent.shape[-1:] != (settings["d_z"],):
        raise ValueError(f"z: want shape (..., {settings['d_z']}), got {latent.shape}")
    return mix(mixing_of(settings), latent)
