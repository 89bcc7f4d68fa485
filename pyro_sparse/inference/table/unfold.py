r"""Factors that folded, once more: one factor integrated on a grid of its values, the others held.

A dense fit may take a feature for the factor though the feature is not monotone in it (`folded.py`), and no
gradient leads out: every row would have to change branch at once. With the other factors known, the features
S of one factor are curves with a single unknown number,

.. math:: p(x_S \mid z_{-k}) = \int N(t; 0, 1) \prod_{j \in S} N(x_j; f_j(t, z_{-k}), \sigma_j^2)\, dt,

and a sum over t needs no guide that could keep to a branch. Curves from several random starts, their noise
cooled, are compared by that likelihood; where the best has another factor than the fit, encoder and decoder
are taught its values, and the fit goes on from there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.stats import norm, rankdata, spearmanr
from torch import Tensor
from torch.special import ndtri

from ..._utils.optimisers import eager
from ...data.read import Batch
from ...nets.dependency import smooth_leaky
from ..rotation._strength_mixture import edge_probability
from ..training.restarts import pick, put
from ..training.soap import SOAP
from .decoder_axes import decoder_axes, strengths
from .dependency_schedule import MAY_BE, MOST_MOVE
from .folded import MOST_SKEWED, skewness

if TYPE_CHECKING:
    from ...models.dependency import DependencyVAE

__all__ = ["curve_factor", "unfold"]

_MOST_ROWS, _MOST_FEATURES = 10_000, 12
_SAME = 0.95  # rank correlation from which the curves say what the fit said
_TRIES, _HIDDEN, _STEPS, _RATE = 3, 16, 300, 0.04  # of the curves
_ROWS, _GRID = 128, 24  # of a step: rows, values of the factor
_WARM, _COLD, _COOLED = (0.3, 0.7), 0.03, 0.6  # least noise: of the first and last try, when cooled, by when
_LEAST = 0.01  # noise in the end: a feature that is constant must not count for infinitely much
_LESSONS, _LESSON_RATE = 300, 6e-3  # steps and step size of teaching


def unfold(model: DependencyVAE, batch: Batch, seed: int = 0) -> list[list[int]]:
    """Replace the folded factors of a dense `DependencyVAE`, in place.

    A restart with a folded factor is turned onto its sparse axes first; the others are not touched.

    Parameters
    ----------
    model : DependencyVAE
        With an open mask, normal noise.
    batch : Batch
        The rows it was fitted to.
    seed : int

    Returns
    -------
    list of list of int
        Of each restart the factors that got new values, numbered as they are now.
    """
    some = torch.arange(0, len(batch), -(-len(batch) // _MOST_ROWS), device=batch.x.device)
    rows = batch.rows(some).whole()
    done: list[list[int]] = []
    for r in range(model.n_restarts):
        restart = pick(model, [r])
        generator = torch.Generator(device=batch.x.device).manual_seed(seed + r)  # whoever shares the pass
        done.append(_unfold_restart(restart, rows, generator))
        if done[-1]:
            put(restart, model, r)
    return done


def _unfold_restart(restart: DependencyVAE, rows: Batch, generator: torch.Generator) -> list[int]:
    axes = decoder_axes(restart, rows)[0]
    restart.turn(torch.as_tensor(axes.map).to(restart.strength).unsqueeze(0))
    with torch.no_grad():
        z = restart.encode(rows)[0][0]
    skew = skewness(z.unsqueeze(0))[0].abs()
    suspects = [int(k) for k in skew.argsort(descending=True) if skew[k] > MOST_SKEWED]
    if not suspects:
        return []
    strength = strengths(restart, rows)[0].cpu().numpy()
    edge = edge_probability(strength) >= MAY_BE
    z = _normal(z)
    changed = []
    for k in suspects:
        features = np.argsort(-strength[:, k] * edge[:, k])[: min(_MOST_FEATURES, edge[:, k].sum())]
        if len(features) < 2:
            continue  # nothing else could tell the branches
        others = [j for j in range(z.shape[1]) if j != k]
        cells, mask = rows.x[:, features], None if rows.mask is None else rows.mask[:, features]
        t = curve_factor(cells, z[:, others], edge[features][:, others], generator, mask)
        if abs(spearmanr(t.cpu(), z[:, k].cpu())[0]) < _SAME:
            z[:, k] = _normal(t.unsqueeze(-1))[:, 0]
            changed.append(k)
    if changed:
        _teach(restart, rows, z, generator)
    return changed


def _normal(z: Tensor) -> Tensor:
    """Each column with its ranks in a standard normal."""
    ranks = rankdata(z.cpu().numpy(), axis=0)
    return torch.as_tensor(norm.ppf((ranks - 0.5) / len(ranks))).to(z)


def curve_factor(
    x: Tensor, z: Tensor, edge: np.ndarray, generator: torch.Generator, mask: Tensor | None = None
) -> Tensor:
    """Posterior mean of one factor in each row, from curves through its features; the other factors given.

    Parameters
    ----------
    x : Tensor (row, feature)
        Its features.
    z : Tensor (row, factor)
        The other factors.
    edge : ndarray of bool (feature, factor)
        Which of the others each feature may depend on.
    generator : Generator
        Of the starts and minibatches.
    mask : Tensor of bool (row, feature), optional
        Which cells were observed.

    Returns
    -------
    Tensor (row,)
    """
    observed = torch.ones_like(x) if mask is None else mask.to(x)
    sees = torch.as_tensor(edge).to(z)
    tries = [_Curves(x, z, sees, observed, warm, generator) for warm in np.geomspace(*_WARM, _TRIES).tolist()]
    answers = [curves.learn().answer() for curves in tries]
    return max(answers, key=lambda answer: answer[0])[1]


class _Curves:
    """Curves of one factor through its features, at several values of it: (feature, row, value, unit).

    A try at a time: what a step touches stays in the cache.
    """

    def __init__(
        self, x: Tensor, z: Tensor, sees: Tensor, mask: Tensor, warm: float, generator: torch.Generator
    ):
        self.z, self.mask, self.sees, self.warm = z, mask, sees.unsqueeze(-1), warm
        self.generator = generator
        count = mask.sum(0).clamp_min(1)
        x = (x - (x * mask).sum(0) / count) * mask
        self.x = x / (x.square().sum(0) / count).sqrt().clamp_min(1e-6)
        g, k, h = x.shape[1], z.shape[1], _HIDDEN

        def made(*shape: int, scale: float) -> Tensor:
            drawn = torch.randn(shape, dtype=z.dtype, device=z.device, generator=generator)
            return (scale * drawn).requires_grad_(True)

        self.of_t, self.of_z = made(g, 1, h, scale=1.0), made(g, k, h, scale=1.0)
        self.bias, self.head = made(g, 1, h, scale=0.7), made(g, h, 1, scale=0.3)
        self.slope_t, self.slope_z = made(g, 1, 1, scale=0.5), made(g, k, 1, scale=0.5)
        self.intercept = made(g, 1, 1, scale=0.01)
        self.log_sd = torch.full_like(self.intercept, math.log(warm)).requires_grad_(True)

    def log_density(self, rows: Tensor, t: Tensor, floor: float) -> Tensor:
        """(row, value) of the features, given values t."""
        z, x, observed = self.z[rows], self.x[rows].T.unsqueeze(-1), self.mask[rows].T.unsqueeze(-1)
        of_rows = z @ (self.of_z * self.sees) + self.bias
        h = smooth_leaky(of_rows.unsqueeze(2) + (t.unsqueeze(-1) * self.of_t).unsqueeze(1))
        straight = z @ (self.slope_z * self.sees) + self.intercept + self.slope_t * t
        f = torch.bmm(h.flatten(1, 2), self.head).view(straight.shape) + straight
        sd = (self.log_sd.exp() ** 2 + floor**2).sqrt()
        return ((-0.5 * ((x - f) / sd) ** 2 - sd.log()) * observed).sum(0)

    def learn(self) -> _Curves:
        """Climb the likelihood of the rows, the noise cooling from `warm`."""
        parameters = [p for p in vars(self).values() if isinstance(p, Tensor) and p.requires_grad]
        optimiser = eager(torch.optim.Adam)(parameters, lr=_RATE, betas=(0.9, 0.95))
        n, like = len(self.x), self.z
        for step in range(_STEPS):
            done = step / _STEPS
            floor = self.warm * (_COLD / self.warm) ** (done / _COOLED) if done < _COOLED else _LEAST
            optimiser.param_groups[0]["lr"] = _RATE * min(1.0, 2.5 * (1 - done))
            rows = torch.randint(n, (min(_ROWS, n),), device=like.device, generator=self.generator)
            jitter = torch.rand(_GRID, dtype=like.dtype, device=like.device, generator=self.generator)
            # one draw of each stratum of the prior, all as probable: their mean density is the integral
            t = ndtri(((torch.arange(_GRID).to(like) + jitter) / _GRID).clamp(1e-6, 1 - 1e-6))
            loss = -self.log_density(rows, t, floor).logsumexp(-1).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        return self

    @torch.no_grad()
    def answer(self, n_values: int = 200) -> tuple[float, Tensor]:
        """Log-likelihood of a row, and posterior means of the factor."""
        t = ndtri((torch.arange(n_values).to(self.z) + 0.5) / n_values)
        chunks = torch.arange(len(self.x), device=t.device).split(500)
        density = torch.cat([self.log_density(rows, t, _LEAST) for rows in chunks])
        return float(density.logsumexp(-1).mean()), density.softmax(-1) @ t


def _teach(restart: DependencyVAE, rows: Batch, z: Tensor, generator: torch.Generator) -> None:
    """Fit guide and decoder to given latents of the rows."""
    optimiser = SOAP(restart.parameters(), lr=_LESSON_RATE, most=MOST_MOVE)
    for step in range(_LESSONS):
        optimiser.param_groups[0]["lr"] = _LESSON_RATE * min(1.0, 2 * (1 - step / _LESSONS) + 0.02)
        index = torch.randint(len(rows), (min(256, len(rows)),), device=z.device, generator=generator)
        batch, latents = rows.rows(index).whole(), z[index].unsqueeze(0)
        f = restart.decode(latents, None)
        cells = restart.likelihood.log_prob(f, batch.x, batch.mask, batch.per_row)
        loss = -(cells + restart.factor_posterior(batch).log_prob(latents)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
