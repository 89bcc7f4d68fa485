r"""Slab and spike of weights: log densities, probabilities of edges, evidence of a normal likelihood.

Laplace and Student densities are normal with a variance of their own,
:math:`\psi(w) = \int N(w; 0, v)\, p(v)\, dv`, which is drawn given the weight, or summed over.

References
----------
Andrews and Mallows (1974), Scale mixtures of normal distributions, JRSS B 36
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Chi2

from .recorded import EdgeTerms

__all__ = ["drawn_variance", "edge_log_density", "edge_prob", "log_evidence", "summed_evidence"]

_SCALES = 64  # draws of the variance of a Laplace or Student density, where its evidence is asked for
_TINY = 1e-12  # of a weight in units of the scale of its Laplace density


def edge_prob(weight: Tensor, terms: EdgeTerms, families: tuple[str, str]) -> Tensor:
    """Probability of each edge given its weight.

    Parameters
    ----------
    weight : Tensor (chain, feature, factor)
    terms : EdgeTerms
    families : (str, str)
        Of slab and spike.
    """
    slab = _log_density(families[0], weight, terms.slab, terms.slab_df)
    if families[1] != "point":
        return torch.sigmoid(
            terms.log_odds + slab - _log_density(families[1], weight, terms.spike, terms.spike_df)
        )
    is_wide = terms.spike > 0
    narrow = _log_density(
        "normal", weight, torch.where(is_wide, terms.spike, torch.ones_like(weight)), terms.spike_df
    )
    return torch.where(is_wide, torch.sigmoid(terms.log_odds + slab - narrow), (weight != 0).to(weight.dtype))


def edge_log_density(weight: Tensor, terms: EdgeTerms, families: tuple[str, str]) -> Tensor:
    """Log density of weights with their edges summed out, of spikes that are no points; up to a constant.

    Parameters
    ----------
    weight : Tensor (..., chain, feature, factor)
    terms : EdgeTerms
    families : (str, str)
        Of slab and spike.
    """
    there = F.logsigmoid(terms.log_odds) + _log_density(families[0], weight, terms.slab, terms.slab_df)
    absent = F.logsigmoid(-terms.log_odds) + _log_density(families[1], weight, terms.spike, terms.spike_df)
    return torch.logaddexp(there, absent)


def _log_density(family: str, w: Tensor, scale: Tensor, df: Tensor) -> Tensor:
    """Up to a constant that all families share."""
    half = 0.9189385332046727  # log sqrt(2 pi)
    if family == "laplace":
        return -w.abs() / scale - (2 * scale).log()
    if family == "student":
        norm = torch.lgamma((df + 1) / 2) - torch.lgamma(df / 2) - 0.5 * (df * torch.pi).log() - scale.log()
        return norm - (df + 1) / 2 * torch.log1p((w / scale) ** 2 / df)
    return -0.5 * (w / scale) ** 2 - scale.log() - half


def log_evidence(pull: Tensor, diagonal: Tensor, variance: Tensor) -> Tensor:
    r"""Log evidence of a normal prior of weights, against a point mass at zero.

    Under :math:`L(w) = e^{b w - a w^2 / 2}`: :math:`\tfrac12 (b^2 v / (1 + a v) - \log(1 + a v))`.

    Parameters
    ----------
    pull, diagonal : Tensor
        b and a.
    variance : Tensor
        v.
    """
    return 0.5 * (pull**2 * variance / (1 + diagonal * variance) - torch.log1p(diagonal * variance))


def summed_evidence(family: str, scale: Tensor, df: Tensor, pull: Tensor, diagonal: Tensor) -> Tensor:
    """`log_evidence` of a density of weights, scale mixtures summed over draws of their variance.

    Parameters
    ----------
    family : {"normal", "laplace", "student", "point"}
    scale, df : Tensor
        Of the density.
    pull, diagonal : Tensor
    """
    if family in ("normal", "point"):
        return log_evidence(pull, diagonal, scale**2)
    unused = torch.zeros_like(scale, dtype=torch.bool)
    variances = torch.stack([drawn_variance(family, scale, df, scale, unused) for _ in range(_SCALES)])
    return torch.logsumexp(log_evidence(pull, diagonal, variances), 0) - math.log(_SCALES)


def drawn_variance(family: str, scale: Tensor, df: Tensor, weight: Tensor, in_use: Tensor) -> Tensor:
    """Variances of a scale mixture: given the weight where it is this density's, else from their prior.

    Parameters
    ----------
    family : {"normal", "laplace", "student", "point"}
    scale, df : Tensor
        Of the density.
    weight : Tensor
    in_use : Tensor of bool
        Whether the weight is drawn from this density.
    """
    if family == "laplace":  # variance ~ Exponential(mean 2 scale^2); 1 / variance given w inverse Gaussian
        mean = 1 / (weight / scale).abs().clamp(min=_TINY)
        inverse = _inverse_gaussian(mean, torch.ones_like(mean))
        prior = -2 * torch.rand_like(mean).clamp(min=_TINY).log()
        return scale**2 * torch.where(in_use, 1 / inverse.clamp(min=_TINY), prior)
    if family == "student":
        posterior = (df * scale**2 + weight**2) / Chi2(df + 1).sample()
        return torch.where(in_use, posterior, df * scale**2 / Chi2(df).sample())
    return scale**2


def _inverse_gaussian(mean: Tensor, shape: Tensor) -> Tensor:
    """Draws (Michael, Schucany and Haas 1976, The American Statistician 30(2))."""
    chi = torch.randn_like(mean) ** 2
    root = (
        mean
        + mean**2 * chi / (2 * shape)
        - mean / (2 * shape) * (4 * mean * shape * chi + (mean * chi) ** 2).sqrt()
    )
    root = root.clamp(min=_TINY)
    return torch.where(torch.rand_like(mean) <= mean / (mean + root), root, mean**2 / root)
