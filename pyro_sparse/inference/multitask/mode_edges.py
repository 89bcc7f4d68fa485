"""What the rows of the tasks say of the mode of the weights: of those it lacks, and of those it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.special import log_ndtr

from ...data.tasks import TaskBatch
from ...findings.finding import Finding
from .bilevel import samples
from .inner import moments
from .outcomes import dense_gain
from .task_notes import mode_findings, unlikely_findings
from .task_run import in_chunks

if TYPE_CHECKING:
    from ...models.multitask import MultiTaskRegression

__all__ = ["mode_doubts", "mode_edge_probability"]

_LEAST_PRECISION = 1e-6  # that rows leave a weight which the others can stand in for


def mode_doubts(
    model: MultiTaskRegression, batch: TaskBatch, ridge: float, names: list[str]
) -> list[Finding]:
    """What to say of the mode of a spike-and-slab lasso, from some of the tasks; one finding at most.

    Parameters
    ----------
    model : MultiTaskRegression
        Trained, its weights at their mode.
    batch : TaskBatch
        Some of its tasks.
    ridge : float
        As for `dense_gain`.
    names : list of str
        Of all tasks.
    """
    if (rates := model.prior.rates()) is None:
        return []
    slab, spike = (float(rate.max()) for rate in rates)
    gains = np.full(len(names), np.nan)
    index = batch.index.cpu().numpy()
    gains[index] = in_chunks(lambda some: dense_gain(model, some, ridge), batch).cpu().numpy()
    lacking = mode_findings(model.weights[0].cpu().numpy(), gains, (slab, spike), names)
    if lacking or model.likelihood is not None:  # others than normal outcomes are predicted by means anyway
        return lacking
    probability = in_chunks(lambda some: mode_edge_probability(model, some, slab), batch).cpu().numpy()
    return unlikely_findings(probability, [names[t] for t in index])


@torch.no_grad()
def mode_edge_probability(model: MultiTaskRegression, batch: TaskBatch, slab: float) -> Tensor:
    r"""About how probable each edge of the mode is, given the noise at its mode under the learned prior.

    All other weights have a normal prior with the slab's variance, so that the rows leave weight j a normal
    with precision A and mean B / A, and

    .. math:: \mathrm{logit}\, p_j = \mathrm{logit}\, \eta_k +
              \log \int \tfrac{\lambda}{2} e^{-\lambda |w| - A w^2/2 + B w} dw

    A closed form that takes no time, where expectation propagation takes longer than some fits. On 80 fits
    (5 to 50 rows of 60 tasks) its mean over the edges of the mode had a rank correlation of .95 with that of
    the edge posterior.

    Parameters
    ----------
    model : MultiTaskRegression
        Trained, of normal outcomes.
    batch : TaskBatch
        Some of its tasks.
    slab : float
        Rate of the slab.

    Returns
    -------
    Tensor (task, latent)
        NaN where the mode has no edge.
    """
    edge = model.weights[0] != 0
    eta = (1 + edge.double().sum(0)) / (2 + len(edge))
    data = moments(model.latents(batch).double(), batch.y.double().unsqueeze(-1), batch.mask)
    rows_by_noise = (samples(batch).sum(1) / model.variance[batch.index]).double()[:, None]
    normal = slab**2 / 2
    unit = torch.eye(len(eta), dtype=torch.float64, device=eta.device)
    covariance = torch.linalg.inv(rows_by_noise[..., None] * data.gram + normal * unit)
    mean = (covariance @ (rows_by_noise * data.moment[..., 0]).unsqueeze(-1))[..., 0]
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    precision = (1 / variance - normal).clamp(min=_LEAST_PRECISION)
    linear = mean / variance

    def half_line(slope: Tensor) -> Tensor:
        return slope**2 / (2 * precision) + log_ndtr(slope / precision.sqrt())

    gain = torch.logaddexp(half_line(linear - slab), half_line(-linear - slab))
    gain = gain + 0.5 * (2 * torch.pi / precision).log() + np.log(slab / 2)
    probability = torch.sigmoid(torch.logit(eta) + gain)
    return torch.where(edge[batch.index], probability, torch.full_like(probability, torch.nan))
