r"""The evidence lower bound of a `SparseDecoder` and its gradients, in closed form: no trace, no autograd.

.. math:: \mathrm{ELBO} = E_q[\log p(x|z, W)] - KL(q(z|x)\|N(0, C)) + \log p(\sigma^2) + \log p(W)

Of a small model's step nine tenths were calls: two programs traced, a graph built and walked. The programs in
`models/base.py` stay the definition: a test holds both to the same figures, at the same draws, and what a
subclass or a caller changed is traced (`has_closed_form`, the one rule).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from ..._utils.arrays import arrays, tensor
from ..._utils.declared import hooks, keeps
from ...data.read import Batch
from ...distributions.decoded_cells import DecodedCells
from ...distributions.plain_pass import PlainPass
from ...models.sparse_decoder import SparseDecoder
from ._compiled_elbo import CompiledPass

if TYPE_CHECKING:
    import numpy as np

    from ...models.base import FactorModel
    from ...nets.layers import Encoder

__all__ = ["SparseElbo", "can_be_captured", "has_closed_form", "total"]

_through_range = torch.ops.aten.hardtanh_backward.default
_through_relu = torch.ops.aten.threshold_backward.default


def has_closed_form(model: FactorModel) -> bool:
    """Whether `SparseElbo` is the bound of this model's two programs, which else are traced.

    It is where model, prior and networks keep to what their classes declare: not where a subclass or an
    instance has a program, a network or a prior with sites or parameters of its own.

    Parameters
    ----------
    model : FactorModel
    """
    if not keeps(model, "closed-form ELBO"):
        return False
    networks = keeps(model.encoder, "encoder network") and keeps(
        model.decoder, "masked decoder network", "linear decoder network"
    )
    prior = cast("SparseDecoder", model).prior
    return (
        networks
        and not hooks(model)
        and keeps(prior, "prior sites")
        and not any(True for _ in prior.parameters())
        and not vars(model.likelihood).keys() & {"forward", "observation", "priors", "values"}
    )


def can_be_captured(model: SparseDecoder) -> bool:
    """Whether steps may be captured in a graph: each class that takes part says so of itself.

    What is written anew in a subclass may do other things in each step, so `capturable` is not inherited.

    Parameters
    ----------
    model : SparseDecoder
        `has_closed_form`.
    """
    said = all(vars(type(thing)).get("capturable", False) for thing in (model.prior, model.likelihood))
    return said and keeps(model, "captured steps")


class SparseElbo:
    """Values and gradients of one model's bound.

    Parameters
    ----------
    model : SparseDecoder
        Set up, and `has_closed_form`.
    """

    def __init__(self, model: SparseDecoder):
        decoder = model.decoder
        self.model, self.linear = model, model.decoder_kind == "linear"
        self.slopes = model.likelihood.closed_slopes()
        self.encoder, self.plain = _EncoderPass(model.encoder), PlainPass(model.activation)
        self.net = None if self.linear else model.net(model.weights)
        of_decoder = [model.weights, decoder.intercept] if self.net is None else self.net
        self.parameters = [*self.encoder.parameters, *of_decoder, *model.likelihood.parameters()]
        self.of_weights = len(self.encoder.parameters)  # place of W among them
        self.compiled = None
        if model.compiled and self.net is not None and CompiledPass.suits(model):
            self.compiled = CompiledPass(self.encoder.parameters, self.net, model.encoder.log_sd_range)
        self.covariance: Any = None  # for which `of_covariance` was worked out
        self.of_covariance: tuple[Any, Any] = None, None

    def covers(self, batch: Batch, skip: tuple[str, ...]) -> bool:
        """Whether this is the bound of a minibatch without these sites.

        Not where rows that go a few features at a time are coupled by their likelihood (a softmax), or where
        other sites than the prior's are left out.

        Parameters
        ----------
        batch : Batch
        skip : tuple of str
        """
        model = self.model
        of_prior = {*skip} <= {model.prior.site, model.prior.hyper_site}
        if model.likelihood.separable or not of_prior:
            return of_prior
        return not model.in_chunks(batch.x.new_empty(()).expand(model.n_restarts, len(batch), 1))

    def __call__(
        self, batch: Batch, skip: tuple[str, ...] = (), factor: float = 1.0
    ) -> tuple[Tensor, list[Tensor]]:
        """ELBO of each restart on one minibatch, scaled to the full data, and gradients.

        Parameters
        ----------
        batch, skip, factor
            As for `terms`.

        Returns
        -------
        Tensor (restart,), list of Tensor
            The value, in nats over all rows as `elbo_by_restart` of the two programs, and the gradients.

        Raises
        ------
        FloatingPointError
            A log-density is not finite; names the site and the restarts.
        """
        terms, slopes = self.terms(batch, skip, factor)
        return total(terms), slopes

    @torch.no_grad()
    def terms(
        self, batch: Batch, skip: tuple[str, ...] = (), factor: float = 1.0
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        """What the ELBO is the sum of, by site, and gradients; accelerators are not waited for.

        Parameters
        ----------
        batch : Batch
        skip : tuple of str
            Sites to leave out.
        factor : float
            The gradients are those of `factor` times the sum of the ELBOs.

        Returns
        -------
        dict of Tensor (restart,), list of Tensor
            Values, which may not be finite, and gradients by `parameters`, also by those that want none; the
            next call may overwrite them.
        """
        model = self.model
        scale = batch.total / len(batch)
        weight = model.kl_weight * model.beta * scale
        x = batch.inputs
        if model.missing:
            observed = torch.ones_like(x) if batch.mask is None else batch.mask.to(x.dtype)
            x = torch.cat([x * observed, observed - 1.0], -1)
        # what the guide's Normal would draw
        noise = torch.empty(
            model.n_restarts, len(x), model.n_factors, dtype=x.dtype, device=x.device
        ).normal_()
        precision, log_determinant = self._factor_prior()
        machine_code = self.compiled is not None and not (model.rounded or model.in_chunks(noise))
        one_pass = self._compiled if machine_code else self._plain
        divergence, terms, slopes = one_pass(x, noise, precision, batch, scale, -weight * factor, factor)
        divergence = divergence + len(x) * (log_determinant - model.n_factors)
        terms = {"z": tensor(-0.5 * weight * divergence), **terms}
        if model.prior.site not in skip:
            terms[model.prior.site], added = self._prior()
            slopes[self.of_weights] = slopes[self.of_weights] + factor * added
        return terms, slopes

    def _factor_prior(self) -> tuple[Any, Any]:
        """Inverse and log determinant of the factors' covariance, worked out anew where it has changed.

        On an accelerator always: asking whether it has would take longer.
        """
        xp, now = arrays(self.model.factor_cov)
        if xp is torch:
            root, _ = torch.linalg.cholesky_ex(now)
            identity = torch.eye(now.shape[-1], dtype=now.dtype, device=now.device).expand_as(now)
            half = torch.linalg.solve_triangular(root, identity, upper=False)
            return half.mT @ half, 2 * root.diagonal(0, 1, 2).log().sum(-1)
        if self.covariance is None or not (now == self.covariance).all():
            root = xp.linalg.cholesky(now)
            log_determinant = 2 * xp.log(xp.diagonal(root, 0, 1, 2)).sum(-1)
            self.covariance, self.of_covariance = now + 0, (xp.linalg.inv(now), log_determinant)
        return self.of_covariance

    def _compiled(
        self,
        x: Tensor,
        noise: Tensor,
        precision: np.ndarray | Tensor,
        batch: Batch,
        scale: float,
        of_z: float,
        factor: float,
    ) -> tuple[Any, dict[str, Tensor], list[Tensor]]:
        """`_plain` where machine code does all but the likelihood."""
        assert self.compiled is not None
        f = self.compiled.forward(x, noise).mT
        terms, score, of_likelihood = self.slopes(
            f, batch.x, batch.mask, batch.per_row, scale * factor, factor
        )
        divergence, slopes = self.compiled.backward(score.mT, precision, of_z)
        return divergence, {**terms, "x": terms["x"] * scale}, [*slopes, *of_likelihood]

    def _plain(
        self,
        x: Tensor,
        noise: Tensor,
        precision: np.ndarray | Tensor,
        batch: Batch,
        scale: float,
        of_z: float,
        factor: float,
    ) -> tuple[Any, dict[str, Tensor], list[Tensor]]:
        """Divergence of each restart without its constants, the other terms, and gradients."""
        location, log_sd = self.encoder.forward(x)
        xp, m, t, e = arrays(location, log_sd, noise)
        s = xp.exp(t)
        es = e * s
        terms, dz, slopes = self._cells(tensor(m + es), batch, scale, factor)
        pulled, back = arrays(torch.bmm(location, tensor(precision)), dz)[1:]
        spread = s * s * xp.diagonal(precision, 0, 1, 2)[:, None]
        divergence = (pulled * m + spread - 2 * t).sum((1, 2))
        of_encoder = self.encoder.backward(
            tensor(back + of_z * pulled), tensor(back * es + of_z * (spread - 1))
        )
        return divergence, terms, [*of_encoder, *slopes]

    def _cells(
        self, z: Tensor, batch: Batch, scale: float, factor: float
    ) -> tuple[dict[str, Tensor], Tensor, list[Tensor]]:
        """Scaled log-likelihood and the likelihood's priors; gradients by the factors and by parameters."""
        model = self.model
        if model.in_chunks(z):
            return self._swept(z, batch, scale, factor)
        if self.net is None:
            f = torch.baddbmm(model.decoder.intercept, z, model.weights.mT)
        else:
            f = self.plain.forward(self.net, z, model.rounded).mT
        terms, score, of_likelihood = self.slopes(
            f, batch.x, batch.mask, batch.per_row, scale * factor, factor
        )
        score = score.mT.contiguous()
        if self.net is None:
            of_decoder = [torch.bmm(score, z), score.sum(2).unsqueeze(1)]
            dz = torch.bmm(score.mT, model.weights)
        else:
            gradients, dz = self.plain.backward(score)
            of_decoder = [*gradients]
        return {**terms, "x": terms["x"] * scale}, dz, [*of_decoder, *of_likelihood]

    def _swept(
        self, z: Tensor, batch: Batch, scale: float, factor: float
    ) -> tuple[dict[str, Tensor], Tensor, list[Tensor]]:
        """`_cells` through many hidden units, a few features at a time."""
        model = self.model
        cells = model.observation(z, model.weights, batch)
        assert isinstance(cells, DecodedCells)
        rows, (dz, *slopes) = cells.slopes(batch.x)
        torch._foreach_mul_([dz, *slopes], scale * factor)
        terms = {"x": rows.sum(1) * scale}
        trainable = [p for p in model.likelihood.parameters() if p.requires_grad]
        priors = model.likelihood.priors()
        if priors and trainable:
            with torch.enable_grad():
                log_priors = {q: priors[q].log_prob(value) for q, value in model.likelihood.values().items()}
                total = factor * torch.cat([*log_priors.values()]).sum()
                added = torch.autograd.grad(total, trainable, materialize_grads=True)
            for p, slope in zip(model.likelihood.parameters(), slopes[len(cells.net) :], strict=True):
                slope += next((more for q, more in zip(trainable, added, strict=True) if q is p), 0.0)
            terms |= {q: term.detach() for q, term in log_priors.items()}
        return terms, dz, slopes

    def _prior(self) -> tuple[Tensor, Tensor]:
        """Log density of the weights, and its gradient."""
        with torch.enable_grad():
            weights = self.model.weights.detach().requires_grad_()
            density = self.model.prior.log_density(weights)
            (slope,) = torch.autograd.grad(density.sum(), weights)
        return density.detach(), slope


def total(terms: dict[str, Tensor]) -> Tensor:
    """The ELBO (restart,), sum of these terms.

    Parameters
    ----------
    terms : dict of Tensor (restart,)
        By site.

    Raises
    ------
    FloatingPointError
        A term is not finite; names its site and the restarts.
    """
    first, *others = terms.values()
    elbo = sum(others, first)
    if not math.isfinite(float(elbo.sum())):
        for name, term in terms.items():
            if not torch.isfinite(term).all():
                bad = (~torch.isfinite(term)).nonzero().flatten().tolist()
                raise FloatingPointError(f"site {name!r} has a non-finite log-density in restart(s) {bad}")
    return elbo


class _EncoderPass:
    """An `Encoder` forth and back."""

    def __init__(self, encoder: Encoder):
        self.n_restarts, self.range = encoder.n_restarts, encoder.log_sd_range
        layers = [*encoder.layers, encoder.location, encoder.log_sd]
        self.affine: list[Any] = [(layer.weight, layer.bias) for layer in layers]
        self.skip = encoder.skip
        self.parameters: list[Any] = [self.skip, *(p for affine in self.affine for p in affine)]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Location and log standard deviation, (restart, row, factor)."""
        h = x.expand(self.n_restarts, *x.shape[-2:])
        self.read = [h]
        *layers, (of_location, of_mean), (of_log_sd, of_spread) = self.affine
        for weight, bias in layers:
            h = torch.baddbmm(bias, h, weight).relu_()
            self.read.append(h)
        location = torch.baddbmm(of_mean, self.read[0], self.skip).baddbmm_(h, of_location)
        self.raw = torch.baddbmm(of_spread, h, of_log_sd)
        return location, F.hardtanh(self.raw, *self.range)

    def backward(self, location: Tensor, log_sd: Tensor) -> list[Tensor]:
        """Gradients by `parameters`, given those by what `forward` said."""
        log_sd = _through_range(log_sd, self.raw, *self.range)
        *layers, (of_location, _), (of_log_sd, _) = self.affine
        down = torch.bmm(location, of_location.mT).baddbmm_(log_sd, of_log_sd.mT)
        last = self.read[-1].mT
        gradients = [
            torch.bmm(last, location),
            location.sum(1, True),
            torch.bmm(last, log_sd),
            log_sd.sum(1, True),
        ]
        for i in reversed(range(len(layers))):
            down = _through_relu(down, self.read[i + 1], 0)
            gradients = [torch.bmm(self.read[i].mT, down), down.sum(1, True), *gradients]
            if i:
                down = torch.bmm(down, layers[i][0].mT)
        return [torch.bmm(self.read[0].mT, location), *gradients]
