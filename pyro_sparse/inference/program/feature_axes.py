r"""Axes of three factors through the directions of features, where rotations of two factors do not lead.

Sparse loadings are sparse since features lie on axes, or on planes between them. So candidates are frames:
the first axis along one feature's loadings :math:`v_a`, the second along what of another's :math:`v_b` is
orthogonal to it, all signs and orders, and a little noise. Relative to Haar measure (uniform on rotations)
their density is

.. math:: q(R) = \epsilon + (1 - \epsilon) \sum_{a, b} p_{ab} \tfrac1{24} \sum_S \kappa(S^\top F_{ab}^\top R),

where S are the 24 rotations that permute axes, and :math:`\kappa` that of :math:`e^{[v]_\times}`, v normal.
Frames turn with the loadings, and which features are taken goes by lengths, which rotations leave alone: q is
a function of the orbit. So choosing among candidates and where one is, in proportion to the joint density
over q, leaves the joint density invariant.

References
----------
Neal (2011), MCMC using ensembles of states for problems with fast and slow variables, arXiv:1101.0387
"""

from __future__ import annotations

import itertools
import math
from functools import cache

import torch
from torch import Tensor

__all__ = ["frames_of", "log_density", "proposed"]

SIZE = 3  # factors of a frame
_FEATURES = 8  # whose pairs make frames: a density over all pairs of many features would be slow
_NOISE = 0.1  # standard deviation of each component of the rotation vector
_UNIFORM = 0.1  # share of candidates that know of no feature
_LEAST = 1e-12  # of a squared length
_FARTHEST = math.pi / 4  # angle from a frame, beyond which a candidate is not of it
_SMALL = 1e-4  # angle whose cosine is rounding


def frames_of(loadings: Tensor) -> tuple[Tensor, Tensor]:
    """Frames through pairs of features, (chain, pair, 3, 3), axes in columns, and log probabilities of pairs.

    Features are drawn without replacement, by their lengths. Determinants are 1.

    Parameters
    ----------
    loadings : Tensor (chain, feature, 3)
    """
    length = loadings.square().sum(-1)
    gumbel = -(-torch.rand_like(length).log()).log()
    keys = length.clamp(min=_LEAST).log() + gumbel
    chosen = keys.topk(min(_FEATURES, length.shape[1]), 1).indices
    some = loadings.gather(1, chosen[..., None].expand(-1, -1, SIZE))
    pairs = torch.tensor(list(itertools.permutations(range(some.shape[1]), 2)), device=some.device)
    first = some[:, pairs[:, 0]]
    axis = first / first.square().sum(-1, keepdim=True).clamp(min=_LEAST).sqrt()
    second = some[:, pairs[:, 1]]
    beside = second - (second * axis).sum(-1, keepdim=True) * axis
    rest = beside.square().sum(-1)
    beside = beside / rest.clamp(min=_LEAST).sqrt()[..., None]
    frames = torch.stack([axis, beside, torch.linalg.cross(axis, beside)], -1)
    log_weight = (first.square().sum(-1) * rest).clamp(min=_LEAST).log()
    is_frame = (first.square().sum(-1) > _LEAST) & (rest > _LEAST)
    log_weight = torch.where(is_frame, log_weight, -torch.inf)
    frames = torch.where(is_frame[..., None, None], frames, torch.eye(SIZE).to(frames))
    none = ~is_frame.any(1, keepdim=True)  # then all are the axes there are
    log_weight = torch.where(none, torch.zeros_like(log_weight), log_weight)
    return frames, log_weight.log_softmax(1)


def proposed(frames: Tensor, log_prob: Tensor, n: int) -> Tensor:
    """Rotations drawn from the density above, (chain, n, 3, 3).

    Parameters
    ----------
    frames, log_prob : Tensor
        From `frames_of`.
    n : int
    """
    pair = torch.multinomial(log_prob.exp(), n, replacement=True)
    frame = frames.gather(1, pair[..., None, None].expand(-1, -1, SIZE, SIZE))
    symmetries = _symmetries().to(frames)
    symmetry = symmetries[torch.randint(len(symmetries), pair.shape, device=frames.device)]
    vector = _NOISE * torch.randn(*pair.shape, SIZE, dtype=frames.dtype, device=frames.device)
    length = vector.square().sum(-1, keepdim=True).sqrt()
    vector = vector * (_FARTHEST / length).clamp(max=1.0)  # at seven standard deviations
    half = 0.5 * length.clamp(max=_FARTHEST)
    near = torch.cat([half.cos(), vector * 0.5 * torch.sinc(half / math.pi)], -1)
    anywhere = torch.nn.functional.normalize(torch.randn_like(near), dim=-1)
    is_uniform = torch.rand_like(pair, dtype=frames.dtype) < _UNIFORM
    rotation = _of_quaternion(torch.where(is_uniform[..., None], anywhere, near))
    return torch.where(is_uniform[..., None, None], rotation, frame @ symmetry @ rotation)


def log_density(rotations: Tensor, frames: Tensor, log_prob: Tensor) -> Tensor:
    """Log density of rotations (chain, n, 3, 3) relative to Haar measure, (chain, n).

    Parameters
    ----------
    rotations : Tensor
    frames, log_prob : Tensor
        From `frames_of`.
    """
    # Two symmetries are a quarter of a circle apart or more: one at most is within an eighth.
    symmetric = frames[:, :, None] @ _symmetries().to(frames)
    trace = rotations.flatten(-2) @ symmetric.flatten(1, 2).flatten(-2).mT  # of the rotation between both
    trace = trace.unflatten(-1, symmetric.shape[1:3]).amax(-1)
    cosine = ((trace - 1) / 2).clamp(-1.0, 1.0)
    angle = cosine.acos()
    log_normal = -0.5 * (angle / _NOISE) ** 2 - SIZE * math.log(_NOISE * math.sqrt(2 * math.pi))
    volume = torch.where(angle > _SMALL, angle**2 / (2 * (1 - cosine)).clamp(min=_LEAST), 1.0)
    log_kernel = log_normal + (8 * math.pi**2 * volume).log() - math.log(symmetric.shape[2])
    log_kernel = torch.where(angle < _FARTHEST, log_kernel, -torch.inf)
    of_features = (log_kernel + log_prob[:, None]).logsumexp(-1)
    known = math.log1p(-_UNIFORM)
    return torch.logaddexp(of_features + known, torch.full_like(of_features, math.log(_UNIFORM)))


@cache
def _symmetries() -> Tensor:
    """Rotations that permute axes and signs, (24, 3, 3)."""
    unit, made = torch.eye(SIZE, dtype=torch.float64), []
    for order in itertools.permutations(range(SIZE)):
        for signs in itertools.product((1.0, -1.0), repeat=SIZE):
            matrix = unit[list(order)] * torch.tensor(signs, dtype=unit.dtype)
            if torch.linalg.det(matrix) > 0:
                made.append(matrix)
    return torch.stack(made)


def _of_quaternion(q: Tensor) -> Tensor:
    """Rotations (..., 3, 3) of unit quaternions (..., 4)."""
    w, x, y, z = q.unbind(-1)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return torch.stack([torch.stack(row, -1) for row in rows], -2)
