r"""Moves of the axes: every site that declares an axis of factors is transformed together.

Factors and loadings know of one another, so that drawn in turns they creep where a transformation that leaves
:math:`z W^\top` alone could stride. With T an invertible matrix, rows of factors become :math:`z\,T` and rows
of loadings :math:`w\,T^{-\top}`:

* a **rotation** of two factors, by one of equally spaced angles drawn from the joint density: Gibbs on the
  orbit of a group, whatever the program;
* a rotation of **three factors** to axes through features (`feature_axes.py`), among candidates by the joint
  density: two sets of axes may be as likely and lie behind a valley for rotations of two;
* a **small linear map** :math:`T = e^{sR}`, R random, by Metropolis: its Jacobian is
  :math:`e^{s\,\mathrm{tr} R\,(n_z - n_w)}` with n the number of rows of factors and of loadings;
* of factors with a declared correlation :math:`C = L L^\top`, rotations of :math:`z L^{-\top}`, which leave
  C alone, and an **oblique step** of one factor towards another, :math:`z_k' = (z_k + a z_l) / s` with
  :math:`s^2 = 1 + 2 a C_{kl} + a^2`, under which C follows. With its way back, :math:`a' = -a/s`, the
  Jacobian of (C, a) is :math:`s^{-(K + 2)}`, and that of factors and loadings :math:`s^{n_w - n_z}`.

None asks the program to be invariant; where it is, only priors have to be evaluated, which is found out
once.

References
----------
Liu and Sabatti (2000), Generalised Gibbs sampler and multigrid Monte Carlo, Biometrika 87(2)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.distributions import Transform

from ..._utils.torch_state import undisturbed
from .blocks import accepted
from .edge_densities import edge_log_density
from .feature_axes import SIZE, frames_of, log_density, proposed
from .recorded import Block, EdgeTerms, Position, RecordedDensity
from .soundness import elsewhere

__all__ = ["AxisSampler"]

_ANGLES = (24, 36)  # of a rotation, drawn anew each time so that no angle is left out for good
_CHANGED = 1e-9  # relative change of a term that is not rounding
_WANTED = 0.3  # acceptance of small linear maps
_FIRST_STEP = 0.05
_GAIN = 0.05  # of the step size, each sweep of the warm-up
_CANDIDATES, _FEW_CANDIDATES = 64, 16  # of three factors: by weights alone, and by the program
_OBLIQUE = 0.1  # standard deviation of a where chains begin


class AxisSampler:
    """Rotations, small linear maps and oblique steps of the factors' axis.

    Parameters
    ----------
    density : RecordedDensity
    u : dict of Tensor

    Attributes
    ----------
    useful : bool
        Whether there is an axis of two factors or more, and no spike that is a point.
    acceptance, obliquely : float
        Of small linear maps, and of oblique steps.
    correlation : str
        The site of the factors' correlation, or nothing.
    """

    def __init__(self, density: RecordedDensity, u: Position):
        self.density = density
        plain = {name for name, value in density.values(u).items() if value.shape == u[name].shape}
        plain = {name for name in plain if torch.equal(density.values(u)[name], u[name])}  # of real numbers
        self.loadings = [s.name for s in density.layout.axes if s.kind == "edges"]
        self.scores = [
            s.name for s in density.layout.axes if s.kind in ("factors", "axis") and s.name in plain
        ]
        self.n_factors = density.layout.n_factors
        points = any(spike == "point" for _, spike in density.families.values())
        has_factors = any(s.kind == "factors" and s.name in plain for s in density.layout.axes)
        self.useful = bool(has_factors and self.loadings and not points)
        if has_factors and self.loadings:
            self._check_loadings(u)
        self.acceptance, self.step, self.rotated = 1.0, _FIRST_STEP, 0.0
        self.obliquely, self.oblique_step = 1.0, _OBLIQUE
        self.correlation = next((s.name for s in density.layout.latent() if s.kind == "correlation"), "")
        if not self.useful:
            return
        rows = [_rows(u[name]) for name in self.scores], [_rows(u[name]) for name in self.loadings]
        self.excess = sum(rows[0]) - sum(rows[1])
        # Gates that are shut, or numbers at 0, may hide what a move changes: it is looked at in two places.
        places = [u, elsewhere(density, u)]
        transform = _map_of(_generator(self.n_factors, 0.3, u[self.loadings[0]]))
        self.of_maps = self._changed_by([(at, self._mapped(at, transform)) for at in places])
        self.of_rotations: tuple[str, ...] = ()
        self.of_oblique: tuple[str, ...] = ()
        if self.n_factors > 1:
            angle = torch.full((density.n_chains,), 0.7, dtype=torch.float64, device=density.device)
            # A program may treat one factor unlike the others; every rotation is one of these in turn.
            planes = [_rotation(self.n_factors, 0, k, angle) for k in range(1, self.n_factors)]
            turned = [(at, self._mapped(at, self._conjugate(at, plane))) for at in places for plane in planes]
            self.of_rotations = self._changed_by(turned)
            self.asks_weights_alone = self._asks_weights_alone(turned)
        if self.correlation:
            size, others = 0.3 * torch.ones_like(angle), range(1, self.n_factors)
            pairs = [pair for k in others for pair in ((0, k), (k, 0))]
            self.of_oblique = self._changed_by(
                [(at, self._oblique(at, k, m, size)[0]) for at in places for k, m in pairs]
            )

    @property
    def asks_data(self) -> bool:
        """Whether a rotation changes what the program observes."""
        return any(self.density.layout.sites[name].observed for name in self.of_rotations)

    def rotate(self, u: Position) -> tuple[Position, tuple[Tensor, Tensor]]:
        """Two factors by an angle drawn from the joint density; and the maps of scores and of loadings."""
        i, j = torch.randperm(self.n_factors)[:2].tolist()
        n = int(torch.randint(*_ANGLES, ()))
        # All of a circle, or it is no group.
        angles = 2 * math.pi * torch.arange(n, dtype=torch.float64, device=self.density.device) / n
        rotations = _rotation(2, 0, 1, angles)[:, None].expand(-1, self.density.n_chains, -1, -1)
        level = self._levels_of(u, [i, j], rotations)
        gumbel = -(-torch.rand_like(level).log()).log()
        chosen = angles[(level.nan_to_num(nan=-torch.inf) + gumbel).argmax(0)]
        transform = self._conjugate(u, _rotation(self.n_factors, i, j, chosen))
        turned = chosen.sin().abs() > 1e-6  # else signs alone, of two factors, which nobody needs
        self.rotated += 0.1 * (turned.double().mean().item() - self.rotated)
        return self._mapped(u, transform), transform

    def _levels_of(self, u: Position, factors: list[int], rotations: Tensor) -> Tensor:
        """Log density of what rotations of some factors change, (rotation, chain), up to a constant."""
        levels = self._levels_of_weights if self.asks_weights_alone else self._levels
        return levels(u, factors, rotations)

    def _levels(self, u: Position, factors: list[int], rotations: Tensor) -> Tensor:
        """By the program, one rotation (chain, factor, factor) after the other."""
        return torch.stack([
            self.density.some(
                self.of_rotations,
                self._mapped(u, self._conjugate(u, _within(self.n_factors, factors, rotation))),
            )
            for rotation in rotations
        ])  # fmt: skip

    def _levels_of_weights(self, u: Position, factors: list[int], rotations: Tensor) -> Tensor:
        """The same where weights alone change: all rotations at once."""
        of_loadings = self._conjugate(u, _within(self.n_factors, factors, rotations))[1]
        columns = list(range(self.n_factors)) if self.correlation else factors
        terms = self.density.edges(u)
        level = torch.zeros(rotations.shape[:2], dtype=rotations.dtype, device=rotations.device)
        for name in self.of_rotations:
            weight = _flat(u[name]) @ of_loadings[..., columns]
            here = EdgeTerms(**{key: _flat(v)[..., columns] for key, v in vars(terms[name]).items()})
            families = self.density.families[name]
            level = level + edge_log_density(weight, here, families).sum((-1, -2))
        return level

    def _asks_weights_alone(self, turned: list[tuple[Position, Position]]) -> bool:
        """Whether rotations change nothing but weights under densities that stay as they are."""
        if not set(self.of_rotations) <= set(self.loadings):
            return False
        return all(
            torch.allclose(vars(after[name])[key], value, rtol=_CHANGED, atol=_CHANGED)
            for before, after in ((self.density.edges(u), self.density.edges(moved)) for u, moved in turned)
            for name in self.of_rotations
            for key, value in vars(before[name]).items()
        )

    @property
    def reorients(self) -> bool:
        """Whether three factors are rotated at once: where that is by the densities of priors alone."""
        n_features = sum(_rows(self.density.start[name]) for name in self.loadings)
        return self.useful and self.n_factors >= SIZE and n_features > 1 and not self.asks_data

    def reorient(self, u: Position) -> tuple[Position, tuple[Tensor, Tensor]]:
        """Three factors to axes through features, or left where they are; and the maps, as `rotate`.

        Two sets of axes may be as likely and have none between them that a rotation of two factors can reach.
        """
        three = torch.randperm(self.n_factors)[:SIZE].tolist()
        loadings = torch.cat([_flat(u[name]) for name in self.loadings], 1)
        loadings = loadings @ self._root(u) if self.correlation else loadings
        frames, log_prob = frames_of(loadings[..., three])
        n = _CANDIDATES if self.asks_weights_alone else _FEW_CANDIDATES
        here = torch.eye(SIZE).to(frames).expand(len(frames), 1, -1, -1)
        rotations = torch.cat([here, proposed(frames, log_prob, n)], 1)
        level = self._levels_of(u, three, rotations.movedim(1, 0))
        level = level - log_density(rotations, frames, log_prob).mT
        gumbel = -(-torch.rand_like(level).log()).log()
        chosen = (level.nan_to_num(nan=-torch.inf) + gumbel).argmax(0)
        rotation = _within(self.n_factors, three, rotations[torch.arange(len(chosen)), chosen])
        transform = self._conjugate(u, rotation)
        return self._mapped(u, transform), transform

    def stretch(self, u: Position, adapts: bool) -> Position:
        """As many small linear maps as there are factors, each accepted or not."""
        level = self.density.some(self.of_maps, u)
        for _ in range(self.n_factors):
            generator = _generator(self.n_factors, self.step, u[self.loadings[0]])
            transform, trace = _map_of(generator), generator.diagonal(dim1=-2, dim2=-1).sum(-1)
            moved = self._mapped(u, transform)
            there = self.density.some(self.of_maps, moved)
            ok, rate = accepted(there - level + trace * self.excess)
            self.acceptance += 0.05 * (rate.mean().item() - self.acceptance)
            if adapts:
                self.step *= math.exp(_GAIN * (rate.mean().item() - _WANTED))
            u, level = _chosen(ok, moved, u), torch.where(ok, there, level)
        return u

    def lean(self, u: Position, adapts: bool) -> Position:
        """An oblique step of one factor towards another, accepted or not."""
        k, m = torch.randperm(self.n_factors)[:2].tolist()
        a = self.oblique_step * torch.randn(
            self.density.n_chains, dtype=torch.float64, device=self.density.device
        )
        moved, s = self._oblique(u, k, m, a)
        log_ratio = self.density.some(self.of_oblique, moved) - self.density.some(self.of_oblique, u)
        log_ratio = log_ratio + self._log_jacobian(moved) - self._log_jacobian(u)
        log_ratio = log_ratio - (self.excess + self.n_factors + 2) * s.log()
        ok, rate = accepted(log_ratio + 0.5 * (a / self.oblique_step) ** 2 * (1 - s**-2))
        self.obliquely += 0.05 * (rate.mean().item() - self.obliquely)
        if adapts:
            self.oblique_step *= math.exp(_GAIN * (rate.mean().item() - _WANTED))
        return _chosen(ok, moved, u)

    def _oblique(self, u: Position, k: int, m: int, a: Tensor) -> tuple[Position, Tensor]:
        """Factor k leant towards m, correlations with it; and s."""
        root = self._root(u)
        c = root @ root.mT
        s = (1 + 2 * a * c[:, k, m] + a**2).sqrt()
        matrix = torch.eye(self.n_factors, dtype=c.dtype, device=c.device).repeat(len(c), 1, 1)
        matrix[:, k, k], matrix[:, m, k] = 1 / s, a / s
        inverse = torch.eye(self.n_factors, dtype=c.dtype, device=c.device).repeat(len(c), 1, 1)
        inverse[:, k, k], inverse[:, m, k] = s, -a
        moved = self._mapped(u, (matrix, inverse.mT))
        new, failed = torch.linalg.cholesky_ex(matrix.mT @ c @ matrix)
        new = torch.where((failed > 0)[:, None, None], torch.nan, new)
        moved[self.correlation] = self._link().inv(new)
        return moved, s

    def _link(self) -> Transform:
        link = self.density.layout.sites[self.correlation].link
        assert link is not None  # of a Cholesky factor
        return link

    def _root(self, u: Position) -> Tensor:
        """Cholesky factors of the correlation, (chain, factor, factor)."""
        root: Tensor = self._link()(u[self.correlation])
        return root

    def _log_jacobian(self, u: Position) -> Tensor:
        r"""Log of :math:`|\partial u / \partial C|`, (chain,): a density is that of real numbers u."""
        root, numbers = self._root(u), u[self.correlation]
        power = torch.arange(self.n_factors - 1, -1, -1, dtype=root.dtype, device=root.device)
        by_root = (root.diagonal(dim1=-2, dim2=-1).log() * power).sum(-1)
        return -by_root - self._link().log_abs_det_jacobian(numbers, root)

    def _conjugate(self, u: Position, rotation: Tensor) -> tuple[Tensor, Tensor]:
        """A rotation of uncorrelated factors as a map of scores and of loadings."""
        if not self.correlation:
            return rotation, rotation
        root = self._root(u)
        of_scores = torch.linalg.solve_triangular(root.mT, rotation @ root.mT, upper=True)
        of_loadings = torch.linalg.solve_triangular(root, root @ rotation, upper=False, left=False)
        return of_scores, of_loadings

    def turned(self, block: Block, centre: Tensor, u: Position, transform: tuple[Tensor, Tensor]) -> Tensor:
        """A block's point of approximation (chain, element, number) after a rotation (chain, factor, factor).

        It turns with the state, uniformly distributed over its orbit, and so stays independent of it.
        """
        if not set(block.sites) & {*self.scores, *self.loadings}:
            return centre
        at = self.density.unpack(block, centre, u)
        return self.density.pack(block, self._mapped(at, transform))

    def _mapped(self, u: Position, transform: tuple[Tensor, Tensor]) -> Position:
        """All sites with the axis, transformed; others as they are."""
        of_scores, of_loadings = transform
        moved = dict(u)
        for names, matrix in ((self.scores, of_scores), (self.loadings, of_loadings)):
            for name in names:
                moved[name] = (_flat(u[name]) @ matrix).reshape(u[name].shape)
        return moved

    def _check_loadings(self, u: Position) -> None:
        """Complain of edges that the data say are no edges to the factors: effects of covariates, say.

        They would be reordered and change signs with factors that have nothing to do with them.
        """
        places = [u, elsewhere(self.density, u)]
        with undisturbed(0):  # chains draw what they would draw without this check
            transform = _map_of(_generator(self.n_factors, 0.3, u[self.loadings[0]]))
        moves = [(at, self._mapped(at, transform)) for at in places]
        observed = {site.name for site in self.density.layout.sites.values() if site.observed}
        for name in self.loadings:
            without = [(at, {**moved, name: at[name]}) for at, moved in moves]
            alone = [(at, {**at, name: moved[name]}) for at, moved in moves]
            if observed & set(self._changed_by(without)) or not observed & set(self._changed_by(alone)):
                continue
            raise ValueError(
                f"program: edges {name!r} lead to d.factors, and the data are as likely if the factors "
                "move and these edges do not: they are edges to something else, such as covariates. Make "
                "them columns of one site: n_factors counts factors and covariates, z is drawn by "
                "pyro.sample and not by ps.factors, and torch.cat([z, d.dose], -1) @ W.mT takes both"
            )

    def _changed_by(self, moves: list[tuple[Position, Position]]) -> tuple[str, ...]:
        """Sites whose log density differs between two positions, of any of some pairs."""
        changed = set()
        for u, moved in moves:
            before, after = self.density.logs(u), self.density.logs(moved)
            for name, log_prob in before.items():
                change = (after[name] - log_prob).abs() / (1 + log_prob.abs())
                if change.max() > _CHANGED or not torch.isfinite(change).all():
                    changed.add(name)
        return tuple(name for name in self.density.layout.sites if name in changed)


def _flat(value: Tensor) -> Tensor:
    """Rows of factors of each chain, (chain, row, factor)."""
    return value.reshape(len(value), -1, value.shape[-1])


def _rows(value: Tensor) -> int:
    """Rows of factors, of one chain."""
    return value[0].numel() // value.shape[-1]


def _chosen(ok: Tensor, moved: Position, u: Position) -> Position:
    """Where accepted, (chain,), the new position."""
    return {
        name: torch.where(ok.reshape(-1, *[1] * (value.dim() - 1)), value, u[name])
        for name, value in moved.items()
    }


def _rotation(n: int, i: int, j: int, angle: Tensor) -> Tensor:
    """Of factors i and j by an angle (chain,), (chain, factor, factor)."""
    matrix = torch.eye(n, dtype=torch.float64, device=angle.device).repeat(len(angle), 1, 1)
    matrix[:, i, i] = matrix[:, j, j] = angle.cos()
    matrix[:, j, i], matrix[:, i, j] = angle.sin(), -angle.sin()
    return matrix


def _within(n: int, factors: list[int], rotation: Tensor) -> Tensor:
    """A rotation of some factors as one of all, (..., factor, factor)."""
    matrix = torch.eye(n, dtype=rotation.dtype, device=rotation.device).repeat(*rotation.shape[:-2], 1, 1)
    for a, i in enumerate(factors):
        for b, j in enumerate(factors):
            matrix[..., i, j] = rotation[..., a, b]
    return matrix


def _generator(n: int, step: float, like: Tensor) -> Tensor:
    """s R, R of standard normal numbers, (chain, factor, factor)."""
    return step * torch.randn(len(like), n, n, dtype=like.dtype, device=like.device)


def _map_of(generator: Tensor) -> tuple[Tensor, Tensor]:
    """exp(s R) for scores, and its inverse transposed for loadings."""
    return torch.linalg.matrix_exp(generator), torch.linalg.matrix_exp(-generator.mT)
