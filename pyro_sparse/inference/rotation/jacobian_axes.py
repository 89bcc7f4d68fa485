r"""Sparse axes of a transition: the linear map of the latent in which its Jacobian has the fewest nonzeros.

A dense fit finds the latent space and leaves its axes free. Which latent drives which is read off the root
mean square of the transition's Jacobian, and that is sparse in the true axes only:

.. math:: \min_B \sum_{ij} \frac{r_{ij}^2}{r_{ij}^2 + \epsilon^2}, \qquad
          r_{ij}^2 = E[(B J B^{-1})_{ij}^2] = \sum_{acbd} B_{ia} B_{ic} B_{jb} B_{jd}\, E[J_{ab} J_{cd}],

over orthogonal B (whitened latents). Actions need :math:`E[(B J)_{ij}^2]` and allow a general B; there the
latents are whitened by their noise, which is independent between the true ones, and
:math:`-\log|\det B|` of unit rows, the profile likelihood of that, is added. Only second moments enter, so
a restart is cheap: all run in one batch, each with its own learning rate, then the best are disturbed in
pairs of axes until nothing improves. The widest gap in the sorted r says which are edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from .axis_search import descend
from .strength_gap import strength_gap

__all__ = ["AxisSearch", "JacobianAxes", "jacobian_axes"]

# Measured on random instances: slow restarts end in poor optima, fast ones jump out of the good ones; which
# rate is right depends on how exact the moments are, so the restarts share the range.
_RATES = (0.08, 0.2)
_SAME = 0.05  # objectives (a number of edges) closer than this are the same optimum
_SLACK = 0.3  # gaps closer than this are equally clear: fewer edges win
_PARENTS = 4  # best maps, whose axes are disturbed in pairs
# With exact Jacobians of a triangular graph L1, and counts with a large constant, are least in wrong axes;
# with .1 and less in the true ones. For noise, here and below: chosen on simulated Jacobians and six fits.
_EPSILON, _EPSILON_NOISE = (0.2, 0.1, 0.05), (0.1, 0.05, 0.02)
# Edges that a determinant smaller by a factor e must save. A fit's noise holds the errors of its encoder,
# so that true axes are not orthogonal in it: the search keeps closer to it than the axes that come back.
_NOISE, _NOISE_LAST = 10.0, 3.0


class AxisSearch(TypedDict, total=False):
    """Settings of the search that a caller may choose, of `jacobian_axes`.

    Attributes
    ----------
    n_starts, steps, max_hops : int
    floor : float
    """

    n_starts: int
    steps: int
    max_hops: int
    floor: float


@dataclass(frozen=True, eq=False)
class JacobianAxes:
    """Sparse axes of a latent transition, and the graphs they show.

    Parameters
    ----------
    map : ndarray of shape (d, d)
        ``latent_new = map @ latent_old``, for column vectors; its rows are the new axes. Order and signs are
        arbitrary. Orthogonal if there is a time graph; with actions alone (and their noise) the rows are
        scaled so that each row of `strength_a` has length 1.
    strength_z : ndarray of shape (target, source), or None
        Root mean square of the Jacobian ``map @ J @ inv(map)``.
    strength_a : ndarray of shape (target, action), or None
        Root mean square of the Jacobian ``map @ J``.
    graph_z, graph_a : ndarray of int, or None
        1 where the strength lies above its gap.
    objective : float
        Smooth number of edges at `epsilon`.
    epsilon : float
        Smoothing constant of the chosen solution, relative to a strength of 1.
    gap : float
        Confidence in the graph: the log ratio of its weakest edge to its strongest zero, the smaller one if
        there are two graphs.
    agreement, n_starts : int
        How many of the random restarts ended within 0.05 edges of the best one. A solution found once
        out of many may not be the best there is; one found never came from disturbing another.
    gap_a : float
        The gap of the action graph alone; infinite where there is none.
    """

    map: NDArray[np.float64]
    strength_z: NDArray[np.float64] | None
    strength_a: NDArray[np.float64] | None
    graph_z: NDArray[np.int64] | None
    graph_a: NDArray[np.int64] | None
    objective: float
    epsilon: float
    gap: float
    agreement: int
    n_starts: int
    gap_a: float = np.inf


def jacobian_axes(
    time: ArrayLike | None = None,
    actions: ArrayLike | None = None,
    *,
    noise: ArrayLike | None = None,
    orthogonal: bool = False,
    n_starts: int = 96,
    steps: int = 200,
    epsilon: tuple[float, ...] | None = None,
    max_hops: int = 10,
    floor: float = 0.05,
    seed: int = 0,
) -> JacobianAxes:
    r"""Axes in which the transition depends on the fewest latents and actions.

    The objective is :math:`\sum r^2/(r^2+\epsilon^2)` over the time graph, the action graph, or both, after a
    start on :math:`\frac12\sum\log(r^2+\epsilon^2)`. With actions alone the map is general: the latents are
    whitened by `noise`, rows have unit length, and :math:`-10\log|\det B|` is added (:math:`-3` in the last
    steps). It is what tells a latent from its sum with another that has the same parents or fewer, and what
    remains where the effects of an action on its latents are nearly dependent.

    Each :math:`\epsilon` gives a candidate. Of those with a gap within 0.3 of the widest, that with the
    fewest edges is returned; with actions alone that of the smallest total at the mean :math:`\epsilon`.

    Parameters
    ----------
    time : array_like of shape (d * d, d * d), optional
        :math:`E[\mathrm{vec} J\, (\mathrm{vec} J)^\top]` of the Jacobian of the next latent mean by
        the present latent, vec being ``J.reshape(-1)``, latents whitened (present latent of unit covariance).
    actions : array_like of shape (n_actions, d, d), optional
        :math:`S_j = E[J_{:j} J_{:j}^\top]` of the Jacobian of the latent mean by the actions, in the same
        latents as `time`; actions in comparable units, for instance of unit variance.
    noise : array_like of shape (d, d), optional
        With actions alone: covariance of the latents given the actions; the identity where not given.
    orthogonal : bool
        With actions alone: rotations only, latents being white (features of a decoder, each S_j of trace 1,
        take the place of actions). Their strengths are graded, no gap parts them: the answer is that of the
        smallest epsilon.
    n_starts : int
        Random restarts, optimised in one batch.
    steps : int
        Adam steps on the logarithm; then half as many for each epsilon.
    epsilon : tuple of float, optional
        Smoothing constants, falling; strengths are relative to 1. The start uses their geometric mean. By
        default 0.2, 0.1 and 0.05; with actions alone 0.1, 0.05 and 0.02.
    max_hops : int
        Most rounds of disturbing pairs of axes, for each epsilon.
    floor : float
        Strengths below it are zero, see `strength_gap`.
    seed : int
        Seed of the restarts. The same seed gives the same answer.

    Returns
    -------
    JacobianAxes
        Map, strengths, graphs and how far to trust them.

    Raises
    ------
    ValueError
        If a moment has the wrong shape, is not finite, symmetric and positive semidefinite, if actions alone
        leave a direction of the latent unmoved, if the noise is not positive definite or given with a time
        graph, or if there is no edge.

    References
    ----------
    Lachapelle et al. (2024), arXiv 2401.04890: the sparsest mechanisms identify the axes.

    Examples
    --------
    Two latents, each driven by itself, seen after a rotation by half a radian:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> J = np.eye(2) * (1 + 0.5 * np.cos(rng.normal(size=(500, 2))))[:, :, None]
    >>> turn = np.array([[np.cos(0.5), -np.sin(0.5)], [np.sin(0.5), np.cos(0.5)]])
    >>> vec = (turn @ J @ turn.T).reshape(500, -1)
    >>> axes = jacobian_axes(vec.T @ vec / 500, n_starts=8)
    >>> int(axes.graph_z.sum()), bool(np.allclose(np.abs(axes.map @ turn).max(0), 1, atol=1e-3))
    (2, True)
    """
    if epsilon is None:
        epsilon = _EPSILON if time is not None or orthogonal else _EPSILON_NOISE
    if n_starts < 1 or steps < 2 or not epsilon or min(epsilon) <= 0:
        raise ValueError(
            f"n_starts={n_starts}, steps={steps}, epsilon={epsilon}: want at least 1, 2, and positive"
        )
    moment, stack, d = _check(time, actions)
    general = moment is None and not orthogonal
    if noise is not None and not general:
        conflict = "orthogonal=True" if orthogonal else "a time graph"
        raise ValueError(f"noise: got one with {conflict}, where only rotations are searched; leave it out")
    scale = np.eye(d)  # of the latents
    unit = 1.0  # of the actions
    if stack is not None and not orthogonal:
        if general:
            scale = _noise_whitening(noise, d)
            stack = scale @ stack @ scale.T
            _check_moved(stack.sum(0))
        unit = float(np.sqrt(np.trace(stack.sum(0)) / d)) or 1.0
        stack = stack / unit**2
    problem = _Contraction(d, moment, stack)
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(n_starts, d, d, generator=generator, dtype=torch.float64)
    rate = torch.as_tensor(np.geomspace(*_RATES, n_starts))[:, None, None]
    middle = float(np.exp(np.log(epsilon).mean()))
    apart = _NOISE if general else None
    maps = descend(problem, torch.linalg.qr(start)[0], "log", middle, steps, rate, apart)

    candidates, totals = [], []
    for small in sorted(epsilon, reverse=True):
        ends = maps = descend(problem, maps, "count", small, steps // 2, rate, apart)
        if general:
            ends = descend(problem, maps, "count", small, steps // 2, 0.02, apart)
            cost = _total(problem, ends, small)
            best = ends[cost.argmin()]
            best = descend(problem, best[None], "count", small, steps, 0.01, _NOISE_LAST)[0]
            least = float(cost.min())
            totals.append(float(_total(problem, best[None], middle)))
        else:
            best = _hop(problem, maps, small, steps // 2, rate, max_hops, generator)
            cost = problem.cost(ends, small).sum(-1)
            least = float(problem.cost(best, small).sum())
        strength = problem.squared(best).sqrt().numpy()
        turn = best.numpy() @ scale
        if general:
            length = np.linalg.norm(strength, axis=1, keepdims=True)
            strength, turn = strength / length, turn / (unit * length)
        split = 0 if moment is None else d
        strength_z, graph_z, gap_z = _graph(strength[:, :split], d, floor)
        strength_a, graph_a, gap_a = _graph(strength[:, split:], d if general else 1, floor)
        candidates.append(
            JacobianAxes(
                map=turn,
                strength_z=strength_z,
                strength_a=strength_a if strength_a is None or general else unit * strength_a,
                graph_z=graph_z,
                graph_a=graph_a,
                objective=float(problem.cost(best, small).sum()),
                epsilon=small,
                gap=min(gap_z, gap_a),
                agreement=int((cost < least + _SAME).sum()),
                n_starts=n_starts,
                gap_a=gap_a,
            )
        )
    if general:
        return candidates[int(np.argmin(totals))]
    return candidates[-1] if orthogonal else _clearest(candidates)


def _total(problem: _Contraction, maps: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Edges of general maps with unit rows, and what their noise has against them."""
    return problem.cost(maps, epsilon).sum(-1) - _NOISE * torch.linalg.slogdet(maps)[1]


def _graph(
    strength: np.ndarray, at_least: int, floor: float
) -> tuple[np.ndarray | None, np.ndarray | None, float]:
    """Strengths, graph and gap; of a graph that is not asked for (no columns) there is none."""
    if not strength.size:
        return None, None, np.inf
    _, threshold, gap = strength_gap(strength, at_least, floor)
    return strength, (strength > threshold).astype(int), gap


def _clearest(candidates: list[JacobianAxes]) -> JacobianAxes:
    """The candidate with the fewest edges among those whose gap is nearly the widest."""
    widest = max(c.gap for c in candidates)
    clear = [c for c in candidates if c.gap >= widest - _SLACK]
    return min(clear, key=lambda c: (sum(g.sum() for g in (c.graph_z, c.graph_a) if g is not None), -c.gap))


class _Contraction:
    """Squared strengths of a batch of maps: quadratic (time), linear (actions) in the products of their rows.

    With p_i = (B_ia B_ic : a <= c), r_ij^2 = p_i M p_j for time and p_i N_j for actions: one matrix product
    for all restarts, of d (d + 1) / 2 instead of d^2 columns.
    """

    def __init__(self, d: int, time: np.ndarray | None, actions: np.ndarray | None) -> None:
        self.d = d
        a, c = self.first, self.second = torch.triu_indices(d, d)
        # from products to squares, which are symmetric; the gradient meets a diagonal entry twice
        self.square = torch.zeros(len(a), d, d, dtype=torch.float64)
        pair = torch.arange(len(a))
        self.square[pair, a, c] += 1
        self.square[pair, c, a] += 1
        self.square = self.square.flatten(1)
        twice = torch.where(a == c, 1.0, 2.0).double()[:, None]
        self.time = self.actions = None
        if time is not None:
            full = torch.as_tensor(time).reshape(d, d, d, d).permute(0, 2, 1, 3)
            full = (full + full.mT) / 2
            self.time = (full[a, c][:, a, c] * twice * twice.T).contiguous()
        if actions is not None:
            self.actions = torch.as_tensor(actions)[:, a, c].T * twice

    def _products(self, maps: torch.Tensor) -> torch.Tensor:
        return maps.index_select(-1, self.first) * maps.index_select(-1, self.second)

    def squared(self, maps: torch.Tensor) -> torch.Tensor:
        """r^2 of shape (restart, target, source and then action)."""
        products = self._products(maps)
        squares = [] if self.time is None else [products @ (products @ self.time.T).mT]
        squares += [] if self.actions is None else [products @ self.actions]
        return torch.cat(squares, dim=-1).clamp_min(0)

    def cost(self, maps: torch.Tensor, epsilon: float) -> torch.Tensor:
        """Smooth number of edges into each axis of each map."""
        squared = self.squared(maps)
        return (squared / (squared + epsilon**2)).sum(-1)

    def gradient(self, maps: torch.Tensor, kind: str, epsilon: float) -> torch.Tensor:
        """Gradient of the cost by the map ("count"), or of sum log(r^2 + epsilon^2) / 2 ("log")."""
        products = self._products(maps)
        by_product = torch.zeros_like(products)
        if self.time is not None:
            half = products @ self.time.T
            slope = _slope(products @ half.mT, kind, epsilon)
            by_product = slope @ half + slope.mT @ (products @ self.time)
        if self.actions is not None:
            by_product = by_product + _slope(products @ self.actions, kind, epsilon) @ self.actions.T
        hessian = (by_product @ self.square).unflatten(-1, (self.d, self.d))
        return (hessian @ maps[..., None]).squeeze(-1)


def _slope(squared: torch.Tensor, kind: str, epsilon: float) -> torch.Tensor:
    """Derivative of the penalty by r^2."""
    inverse = squared.clamp_min(0).add_(epsilon**2).reciprocal_()
    return inverse.mul_(0.5) if kind == "log" else inverse.square_().mul_(epsilon**2)


def _hop(
    problem: _Contraction,
    maps: torch.Tensor,
    epsilon: float,
    steps: int,
    rate: torch.Tensor,
    max_hops: int,
    generator: torch.Generator,
) -> torch.Tensor:
    """Turn random pairs of axes of the best few maps, descend again, until the best stays."""
    n, d = len(rate), problem.d
    rows = torch.arange(n)
    cost = problem.cost(maps, epsilon).sum(-1)
    for _ in range(max_hops if d > 1 else 0):
        maps, cost = _distinct(maps, cost)
        parent = maps[torch.randint(len(maps), (n,), generator=generator)]
        i = torch.randint(d, (n,), generator=generator)
        j = (i + torch.randint(1, d, (n,), generator=generator)) % d
        # 22 to 68 degrees: neither 0, where nothing is new, nor 90, which only changes names and signs.
        angle = torch.pi * (0.125 + 0.25 * torch.rand(n, generator=generator, dtype=maps.dtype))
        turn = torch.eye(d, dtype=maps.dtype).repeat(n, 1, 1)
        turn[rows, i, i] = turn[rows, j, j] = angle.cos()
        turn[rows, i, j], turn[rows, j, i] = -angle.sin(), angle.sin()
        trial = descend(problem, turn @ parent, "count", epsilon, steps, rate)
        before = cost.min()
        maps = torch.cat([maps, trial])
        cost = torch.cat([cost, problem.cost(trial, epsilon).sum(-1)])
        if cost.min() > before - _SAME:
            break
    return maps[cost.argmin()]


def _distinct(maps: torch.Tensor, cost: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The best few maps with different costs."""
    order = cost.argsort()
    new = torch.ones(len(order), dtype=torch.bool)
    new[1:] = cost[order].diff() > _SAME
    order = order[new][:_PARENTS]
    return maps[order], cost[order]


def _check(
    time: ArrayLike | None, actions: ArrayLike | None
) -> tuple[np.ndarray | None, np.ndarray | None, int]:
    """The moments as arrays of float, and the number of latents."""
    if time is None and actions is None:
        raise ValueError("time and actions are both missing: give the second moment of at least one Jacobian")
    moment = stack = None
    if time is not None:
        moment = np.array(time, dtype=float)
        d = round(np.sqrt(len(moment))) if moment.ndim else 0
        if d < 1 or moment.shape != (d * d, d * d):
            raise ValueError(
                f"time: want shape (d * d, d * d), got {moment.shape}; average products of J.reshape(-1)"
            )
        _check_moment(moment, "time")
    if actions is not None:
        stack = np.array(actions, dtype=float)
        if stack.ndim != 3 or 0 in stack.shape or stack.shape[1] != stack.shape[2]:
            raise ValueError(
                f"actions: want shape (n_actions, d, d), got {stack.shape}; entry j is E[J[:, j] J[:, j].T]"
            )
        if moment is not None and stack.shape[1] != d:
            raise ValueError(
                f"actions: want d={d} latents as time has, got {stack.shape[1]}; use one map for both"
            )
        d = stack.shape[1]
        for j, action_moment in enumerate(stack):
            _check_moment(action_moment, f"actions[{j}]")
    return moment, stack, d


def _check_moment(moment: np.ndarray, name: str) -> None:
    if not np.isfinite(moment).all():
        raise ValueError(f"{name}: want finite numbers, got NaN or infinity; did the fit diverge?")
    slack = 1e-5 * np.abs(moment).max()
    if np.abs(moment - moment.T).max() > slack:
        raise ValueError(
            f"{name}: want a symmetric second moment, got an asymmetric matrix; average outer products"
        )
    lowest = np.linalg.eigvalsh(moment)[0]
    if lowest < -slack:
        raise ValueError(
            f"{name}: want a positive semidefinite second moment, got the eigenvalue {lowest:.3g}; "
            "average outer products"
        )


def _noise_whitening(noise: ArrayLike | None, d: int) -> np.ndarray:
    """W with W noise W.T = 1."""
    cov = np.eye(d) if noise is None else np.array(noise, dtype=float)
    if cov.shape != (d, d):
        raise ValueError(f"noise: want shape ({d}, {d}), as the latents of actions, got {cov.shape}")
    _check_moment(cov, "noise")
    if (rank := np.linalg.matrix_rank(cov)) < d:
        raise ValueError(
            f"noise: want a positive definite covariance, got one of rank {rank} for {d} latents; drop "
            "latents that follow from others"
        )
    return np.linalg.inv(np.linalg.cholesky(cov))


def _check_moved(total: np.ndarray) -> None:
    """Every direction of the latent must be moved by an action."""
    moved = int(np.linalg.matrix_rank(total, tol=1e-8 * np.linalg.norm(total, 2), hermitian=True))
    if moved < len(total):
        raise ValueError(
            f"actions: they move {moved} of {len(total)} directions of the latent, so the rest has no axes; "
            "add time, more actions, or drop latents"
        )
