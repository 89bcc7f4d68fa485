r"""`DependencySparsity`: an ELBO for any Pyro program and guide, trained with a penalty on the decoder.

.. math:: \mathrm{loss} = -\mathrm{ELBO} + N\, \alpha(t)\, P(f, z), \qquad \text{reported: } -\mathrm{ELBO}

The latents are those the guide drew for the ELBO itself: the guide does not run a second time, and where the
model called the decoder as a module, neither does the decoder. A `pyro.factor` in the model would train the
same, but the joint density and every reported ELBO would then contain the penalty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isclose, prod
from typing import TYPE_CHECKING

import torch
from pyro.distributions import Unit
from pyro.infer import ELBO, Trace_ELBO
from pyro.poutine.messenger import Messenger
from torch import Tensor, nn

from .latent_penalty import DependencyPenalty, LatentPenalty, check_penalty, taken

if TYPE_CHECKING:
    from pyro.poutine import Trace
    from pyro.poutine.indep_messenger import CondIndepStackFrame
    from pyro.poutine.runtime import Message

__all__ = ["DependencySparsity"]


class DependencySparsity(ELBO):
    r"""Wrap an ELBO of Pyro so that `pyro.infer.SVI` trains on it plus a penalty on the decoder.

    .. math:: -\mathrm{ELBO} + N\, \alpha\, P(f, z)

    N is the number of rows that the ELBO counts, so that `weight` stands beside the ELBO of a row, as in the
    paper and in ``ps.fit(..., dependency=)``: with a subsampled plate all rows, and under ``poutine.scale``
    as many as the data's log-density is scaled to (1 where model and guide are scaled by 1/N). The scale is
    that of the observed sites in the latents' plates; that of the latents may be an annealed KL.

    Parameters
    ----------
    decode : callable
        Decoder, latents (..., row, K) to features (..., row, G), with the parameters that the model uses.
    elbo : ELBO, optional
        Default ``Trace_ELBO()``; any that has a ``differentiable_loss``.
    site : str
        Name of the latents' site, with shape (row, K), or (restart, row, K) whose penalties are summed.
    dependency : LatentPenalty, optional
        Default ``DependencyPenalty()``: what is penalised, with which weight and warm-up.
    steps : int, optional
        Length of the training, for a penalty that has a warm-up.
    scale : float, optional
        What the ELBO of a row is multiplied by, plates left out. Default: read from the observed sites.

    Attributes
    ----------
    step : int
        Training steps so far; the warm-up counts in them.
    last_penalty : Tensor or None
        P of the last training step, without its weight.

    Raises
    ------
    TypeError
        `elbo` or `dependency` is of the wrong kind.
    ValueError
        A warm-up without `steps`; in a step: the guide has no such site, observed sites have different
        scales and `scale` does not say which counts, or the penalty has another shape than it should.
    FloatingPointError
        In a step: the penalty is not finite.

    Notes
    -----
    What ``loss``, ``loss_and_grads``, ``differentiable_loss`` and `SVI` return is the loss of `elbo`; the
    penalty is in the gradients only.

    Examples
    --------
    >>> import pyro, torch
    >>> import pyro.distributions as dist
    >>> decoder = torch.nn.Linear(2, 4)
    >>> def model(x):
    ...     pyro.module("decoder", decoder)
    ...     with pyro.plate("data", len(x)):
    ...         z = pyro.sample("z", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    ...         pyro.sample("x", dist.Normal(decoder(z), 1.0).to_event(1), obs=x)
    >>> def guide(x):
    ...     location = pyro.param("location", 0.1 * torch.randn(len(x), 2))
    ...     with pyro.plate("data", len(x)):
    ...         pyro.sample("z", dist.Normal(location, 0.5).to_event(1))
    >>> loss = DependencySparsity(decoder, dependency=DependencyPenalty(weight=0.1))
    >>> svi = pyro.infer.SVI(model, guide, pyro.optim.Adam({"lr": 0.01}), loss)
    >>> reported = svi.step(torch.randn(20, 4))
    >>> loss.step, loss.last_penalty.shape
    (1, torch.Size([]))
    >>> pyro.clear_param_store()
    """

    def __init__(
        self,
        decode: Callable[[Tensor], Tensor],
        elbo: ELBO | None = None,
        site: str = "z",
        dependency: LatentPenalty | None = None,
        steps: int | None = None,
        scale: float | None = None,
    ):
        elbo = Trace_ELBO() if elbo is None else elbo
        jit = type(elbo).__name__.startswith("Jit")  # runs the guide in the first step only
        if not isinstance(elbo, ELBO) or jit or not hasattr(elbo, "differentiable_loss"):
            raise TypeError(
                f"elbo: got a {type(elbo).__name__}, wanted an ELBO of pyro.infer with a differentiable loss "
                "and no JIT, such as Trace_ELBO() or TraceMeanField_ELBO()"
            )
        dependency = check_penalty(DependencyPenalty() if dependency is None else dependency)
        if dependency.warm_up[1] > 0 and steps is None:
            raise ValueError(
                f"steps: got None, and the penalty warms up over shares {dependency.warm_up} of the "
                "training; wanted its number of steps"
            )
        if steps is not None and (int(steps) != steps or steps < 1):
            raise ValueError(f"steps: got {steps!r}, wanted a whole number of at least 1")
        if scale is not None and not 0 < scale < float("inf"):
            raise ValueError(f"scale: got {scale!r}, wanted a positive number, or None")
        super().__init__(
            num_particles=elbo.num_particles,
            max_plate_nesting=elbo.max_plate_nesting,
            vectorize_particles=elbo.vectorize_particles,
            retain_graph=elbo.retain_graph,
        )
        self.decode, self.elbo, self.site, self.dependency = decode, elbo, site, dependency
        self.steps, self.step, self.scale = steps, 0, scale
        self.last_penalty: Tensor | None = None

    def loss(self, model: Callable, guide: Callable, *args: object, **kwargs: object) -> float | Tensor:
        """The ELBO's own loss, without gradient or penalty."""
        return self.elbo.loss(model, guide, *args, **kwargs)

    def differentiable_loss(
        self, model: Callable, guide: Callable, *args: object, **kwargs: object
    ) -> Tensor:
        """The ELBO's own loss, with a gradient that contains the penalty's; counts as a training step."""
        drawn, observed = _Drawn(self.site), _Observed()
        with _calls(self.decode) as outputs:
            loss = self.elbo.differentiable_loss(
                _watched(model, observed), _watched(guide, drawn), *args, **kwargs
            )
        weight = self.dependency.weight_at(0.0 if self.steps is None else self.step / self.steps)
        self.step += 1
        if weight == 0:
            return loss
        if not drawn.sites:
            raise ValueError(
                f"site: the guide has no site {self.site!r}, wanted the one whose value is decoded; "
                f"it has {sorted(drawn.others)}"
            )
        n = 1 if self.vectorize_particles else self.num_particles
        sites = drawn.sites[-n:]  # before them Pyro may have run the guide to count its plates
        penalties = []
        for site in sites:
            z = site["value"]
            x_hat = next((x for latents, x in outputs if latents is z), None)
            penalties.append(_rows(site) * taken(self.dependency, self.decode, z, x_hat).sum())
        # with vectorised particles they are the first dimension of z, and have been summed
        extra = torch.stack(penalties).sum() / self.num_particles
        self.last_penalty = extra.detach() / _rows(sites[-1])
        weight *= observed.scale(sites[-1]) if self.scale is None else self.scale
        return loss + weight * (extra - extra.detach())

    def loss_and_grads(self, model: Callable, guide: Callable, *args: object, **kwargs: object) -> float:
        """Take gradients, the penalty's included; returns the ELBO's own loss."""
        loss = self.differentiable_loss(model, guide, *args, **kwargs)
        if getattr(loss, "requires_grad", False):
            loss.backward(retain_graph=self.retain_graph)
        return loss.item()

    def _get_trace(
        self, model: Callable, guide: Callable, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[Trace, Trace]:
        return self.elbo._get_trace(model, guide, args, kwargs)


class _Drawn(Messenger):
    """Notes the messages of one site of a program."""

    def __init__(self, name: str):
        super().__init__()
        self.name = name
        self.sites: list[Message] = []
        self.others: set[str] = set()

    def _pyro_post_sample(self, msg: Message) -> None:
        if msg["name"] == self.name:
            self.sites.append(msg)
        else:
            self.others.add(msg["name"])


class _Observed(Messenger):
    """Notes how the observed sites of a program are scaled."""

    def __init__(self) -> None:
        super().__init__()
        self.sites: dict[str, tuple[set[str], float, bool]] = {}

    def _pyro_post_sample(self, msg: Message) -> None:
        if msg["is_observed"] and not msg["infer"].get("_deterministic"):
            frames = msg["cond_indep_stack"]
            beside = float(torch.as_tensor(msg["scale"]).detach().double().mean()) / prod(map(_share, frames))
            factor = isinstance(msg["fn"], Unit)
            self.sites[msg["name"]] = {frame.name for frame in frames}, beside, factor

    def scale(self, z: Message) -> float:
        """What log-densities in the plates of a site are multiplied by, beside what the plates do.

        A `pyro.factor` is asked only where nothing else is observed there; 1 where nothing is.
        """
        plates = {frame.name for frame in z["cond_indep_stack"] if frame.vectorized}
        beside = {name: site for name, site in self.sites.items() if plates <= site[0]}
        data = {name: site[1] for name, site in beside.items() if not site[2]}
        scales = data or {name: site[1] for name, site in beside.items()}
        first = next(iter(scales.values()), 1.0)
        if not all(isclose(first, scale, rel_tol=1e-6) for scale in scales.values()):
            raise ValueError(
                f"scale: observed sites have different ones, {scales}; say by DependencySparsity(scale=) "
                "what the ELBO of a row is multiplied by, for instance 1"
            )
        return first


def _watched(program: Callable, watch: Messenger) -> Callable:
    def watched(*args: object, **kwargs: object) -> object:
        with watch:
            return program(*args, **kwargs)

    return watched  # a plain function: Pyro takes a partial of a handler apart


@contextmanager
def _calls(decode: Callable[[Tensor], Tensor]) -> Iterator[list[tuple[object, Tensor]]]:
    """Inputs and outputs of a decoder that is a module, as long as this lasts."""
    outputs: list[tuple[object, Tensor]] = []
    if not isinstance(decode, nn.Module):
        yield outputs
        return

    def note(module: nn.Module, inputs: tuple[object, ...], x: Tensor) -> None:
        outputs.append((inputs[0] if inputs else None, x))

    hook = decode.register_forward_hook(note)
    try:
        yield outputs
    finally:
        hook.remove()


def _rows(site: Message) -> float:
    """Rows that the ELBO counts: those of z, scaled up by the plates they were subsampled from."""
    plates = [frame for frame in site["cond_indep_stack"] if frame.vectorized]
    return site["value"].shape[-2] * prod(map(_share, plates))


def _share(plate: CondIndepStackFrame) -> float:
    """By how much a plate scales what is in it: its size over that of the subsample."""
    return (plate.full_size or plate.size) / plate.size
