r"""A `SparseDecoder`, or any subclass of it, as the program that the engine samples.

The program asks the model itself: `factor_prior`, `observation` (and with it `decode`, the decoder's network
and the likelihood), the prior's `inclusion` and `components`. What a subclass writes anew is so what the
chains sample. The package's own layers get the prior that the special chains give them (`DecoderPrior`):

.. math:: \eta_k \sim \mathrm{Beta}(a, b), \quad w_{jk} \sim \text{spike and slab}(\pi_{jk}(\eta)), \quad
          z_n \sim p_\text{model}(z), \quad x_n \sim p_\text{model}(x \mid z_n, W, \theta)

Other parameters, of which nothing says what is believed, stay at the fit's values (`held`). Whether the
program has the density of the model's own Pyro program is looked at where chains begin
(`refuse_other_density`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from torch import Tensor, nn
from torch.distributions import Independent
from torch.func import functional_call

from ...._utils.declared import changes, keeps
from ....distributions.of_restart import OfRestart
from ....distributions.pulled_back import PulledBack
from ....nets.layers import LinearDecoder, MaskedDecoder
from ....programs.program import Program
from ....programs.sites import correlation, edges, factors, sample
from ..density.likelihood_parameters import LikelihoodParameters
from ..density.rates import rate_prior
from ..density.requirements import lacks_for_engine
from ..mcmc.density_check import OtherProgram
from ..mcmc.initialise import DecoderPrior, decoder_layers, has_normal_noise, origin_of

if TYPE_CHECKING:
    from ....data.read import Batch, Table
    from ....likelihoods import Likelihood
    from ....models import SparseDecoder
    from ....priors import SpikeSlabPrior
    from ....programs.data import DataView
    from ...program.recorded import Position, RecordedDensity

__all__ = ["ModelProgram", "model_program", "refuse_other_density"]

# What a prior may write anew so that its rates are no draws from Beta distributions any more.
_OF_RATES = frozenset({"log_hyper", "update"})
_ROWS = 4  # of the table, at which densities are compared: a program says the same of every row
_TOLERANCE = 1e-6  # relative, in double precision


class _Asked(nn.Module):
    """A model that answers a question while other tensors stand in for some of its own."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, question: Callable[[Any], Any]) -> Any:
        return question(self.model)


@dataclass(frozen=True, eq=False)
class ModelProgram:
    """A model as a program.

    Attributes
    ----------
    model : SparseDecoder
        One restart of it, in double precision, on the processor.
    program : Program
    stands_for : dict of str to str
        Of each site that a parameter or buffer of the model is drawn at, the name of that tensor.
    held : list of str
        Parameters that stay at the fit's values.
    """

    model: SparseDecoder
    program: Program
    stands_for: dict[str, str]
    held: list[str]

    def tensors(self, values: Position) -> dict[str, Tensor]:
        """Tensors of `_Asked` by their names, of the values of one chain's sites."""
        shapes = {name: tensor.shape for name, tensor in self.model.state_dict().items()}
        tensors = {
            f"model.{name}": values[site].expand(shapes[name][-1:]).reshape(shapes[name])
            if site == "eta"
            else values[site].reshape(shapes[name])
            for site, name in self.stands_for.items()
        }
        if "correlation" in values:
            root = values["correlation"]
            tensors["model.factor_cov"] = (root @ root.mT).reshape(shapes["factor_cov"])
        return tensors

    def starts(self, model: SparseDecoder, table: Table, prior: DecoderPrior | None) -> dict[str, Tensor]:
        """The fit's values of layers and of the likelihood's parameters, restart first.

        Parameters
        ----------
        model : SparseDecoder
            Of any restarts.
        table : Table
        prior : DecoderPrior, optional
        """
        layers = _layers_of(model, table, DecoderPrior() if prior is None else prior)
        starts = {layer.name: layer.start for layer in layers}
        of_likelihood = dict(model.likelihood.named_parameters())
        sites = {
            site: name.removeprefix("likelihood.")
            for site, name in self.stands_for.items()
            if name.startswith("likelihood.")
        }
        return starts | {site: of_likelihood[name].detach() for site, name in sites.items()}


def model_program(model: SparseDecoder, table: Table, prior: DecoderPrior | None = None) -> ModelProgram:
    """The program of a model, of the rows of a table.

    Parameters
    ----------
    model : SparseDecoder
        Set up, of one restart.
    table : Table
        In model units.
    prior : DecoderPrior, optional
        Of the decoder's layers.

    Raises
    ------
    ValueError
        Its prior has no spike and slab, or a slab or a spike that is neither normal, Laplace nor Student;
        or something in it is no density.
    """
    if why := lacks_for_engine(model):
        raise ValueError(f"model: {why[0]}")
    concentrations = model.correlation_prior.concentration
    if _learns_cov(model) and len(concentrations) > 1:
        raise ValueError("model: its correlations have a mixture of LKJ priors; take one of them")
    parameters = LikelihoodParameters(model.likelihood)
    model = copy.deepcopy(model).cpu().double().eval().requires_grad_(False)
    model.chunked = model.compiled = False
    weight_prior = cast("SpikeSlabPrior", model.prior)
    weight_prior.anneal(1.0)
    asked = _Asked(model)
    layers = _layers_of(model, table, DecoderPrior() if prior is None else prior)
    rates_known = _rates_known(weight_prior)
    batch = table.batch("cpu", torch.float64)
    permitted, must = model.permitted, model.must
    constraints = (
        {} if bool(permitted.all()) and not bool(must.any()) else {"permitted": permitted, "required": must}
    )
    slab, spike = (_of_restart(component) for component in _components(weight_prior))
    a, b = (torch.as_tensor(value, dtype=torch.float64) for value in rate_prior(weight_prior))
    learns_cov = _learns_cov(model)
    stands_for = {layer.name: f"decoder.{layer.name}" for layer in layers}
    site_of = {name: _site_of(model.likelihood, name) for name in parameters.drawn}
    stands_for |= {site: f"likelihood.{name}" for name, site in site_of.items()}
    if rates_known:
        stands_for["eta"] = "prior.eta"

    def program(d: DataView) -> None:
        drawn: dict[str, Tensor] = {}
        if rates_known:
            k = torch.ones(1 if weight_prior.shared else d.n_factors, dtype=torch.float64)
            rate = dist.Beta(a[: len(k)] * k, b[: len(k)] * k).to_event(1)
            each = {} if weight_prior.shared else {"each": "factor"}
            eta = sample("eta", rate, **each)
            drawn["model.prior.eta"] = eta.expand(d.n_factors).reshape(1, 1, -1)
        inclusion = functional_call(asked, drawn, (lambda m: m.prior.inclusion,))[0]
        with d.features:
            weight = edges(
                "W", log_odds=torch.logit(inclusion), slab=slab, spike=spike, to=d.factors, **constraints
            )
        for layer in layers:
            drawn[f"model.decoder.{layer.name}"] = layer.sample(d)
        for name, quantity in parameters.drawn.items():
            drawn[f"model.likelihood.{name}"] = _drawn_parameter(d, asked, site_of[name], name, quantity)
        if learns_cov:
            root = correlation("correlation", d.factors, concentrations[0])
            drawn["model.factor_cov"] = (root @ root.mT).unsqueeze(0)
            factor_prior = dist.MultivariateNormal(torch.zeros(d.n_factors), scale_tril=root)
        else:
            factor_prior = OfRestart(functional_call(asked, drawn, (lambda m: m.factor_prior(),)))
        with d.rows:
            z = factors("z", factor_prior)
        rows = functional_call(
            asked, drawn, (lambda m: m.observation(z.unsqueeze(0), weight.unsqueeze(0), batch),)
        )
        with d.rows, d.features:
            pyro.sample("x", OfRestart(_cells(rows)), obs=batch.x)

    return ModelProgram(model, Program(program, model.n_factors), stands_for, _held(model, stands_for))


# ---- what the program is made of ---------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class _Layer:
    """A layer of the package's decoder and its prior.

    Attributes
    ----------
    name : str
        Of the parameter in the decoder.
    shape : tuple of int
        Of a restart's.
    centre, scale : Tensor
        Of its normal prior; of a feature's numbers feature first.
    of_features : bool
    start : Tensor (restart, ...)
        The fit's, in the units of the prior.
    """

    name: str
    shape: tuple[int, ...]
    centre: Tensor
    scale: Tensor
    of_features: bool
    start: Tensor

    def sample(self, d: DataView) -> Tensor:
        """Drawn, in the shape of the parameter of a model of one restart."""
        normal = dist.Normal(self.centre, self.scale)
        if not self.of_features:
            return sample(self.name, normal.to_event(self.centre.dim())).reshape(1, *self.shape)
        with d.features:
            value = sample(self.name, normal.to_event(self.centre.dim() - 1))
        return value.reshape(1, *self.shape)


def _layers_of(model: SparseDecoder, table: Table, prior: DecoderPrior) -> list[_Layer]:
    """The decoder's layers where they are the package's; else none, and they are held."""
    decoder = model.decoder
    is_mlp = keeps(decoder, "masked decoder network") and type(decoder) is MaskedDecoder
    if not is_mlp and type(decoder) is not LinearDecoder:
        return []
    curve = prior.curve(model)
    origin = origin_of(table, model.likelihood)
    unit = 1.0
    spread = torch.as_tensor(origin.spread, dtype=torch.float64)
    if has_normal_noise(model.likelihood):
        unit = float(spread.square().mean().sqrt()) if getattr(model.likelihood, "shared", False) else 1.0
    far = 1.0
    if not has_normal_noise(model.likelihood):
        far = math.hypot(1.0, float(decoder.intercept.detach().abs().max()))
    centre = torch.as_tensor(origin.centre, dtype=torch.float64)
    intercept = decoder.intercept.detach()[:, 0].double()
    layers = [
        _Layer("intercept", (1, model.n_features), centre, curve.intercept_sd * far * spread, True, intercept)
    ]
    if not is_mlp:
        return layers
    trunk, _ = decoder_layers(model, curve)
    scales = curve.scales
    k, h, g = model.n_factors, model.hidden, model.n_features
    for name, value, scale, shape in zip(
        ("first", "trunk.weight", "trunk.bias"), trunk, scales, ((k, h), (h, h), (1, h)), strict=True
    ):
        start = value.double().reshape(len(value), *shape) * scale
        zero = torch.zeros(shape, dtype=torch.float64)
        layers.append(_Layer(name, shape, zero, torch.full_like(zero, scale), False, start))
    for name, scale, size in (("slope", curve.slope_sd, 1), ("head", curve.head_sd * h**-0.5, h)):
        zero = torch.zeros(g, size, dtype=torch.float64)
        start = getattr(decoder, name).detach().double()
        layers.append(_Layer(name, (g, size), zero, torch.full_like(zero, scale * unit), True, start))
    return layers


def _site_of(likelihood: Likelihood, name: str) -> str:
    """What a parameter's site is called: of columns of several kinds by the kind, not by its number."""
    owner, _, leaf = name.rpartition(".")
    if not owner:
        return name
    kind = likelihood.get_submodule(owner)
    alike = [part for part, _ in likelihood.families() if type(part) is type(kind)]
    number = f"{alike.index(kind) + 1}" if len(alike) > 1 else ""  # type: ignore[arg-type]
    return f"{getattr(kind, 'name', '') or type(kind).__name__}{number}_{leaf}"


def _drawn_parameter(d: DataView, asked: _Asked, site: str, name: str, quantity: str) -> Tensor:
    """A parameter of the likelihood (1, 1, feature), of some columns, or (1, 1, 1)."""
    likelihood = cast("Likelihood", asked.model.likelihood)
    parameter = likelihood.get_parameter(name)
    shape = parameter.shape

    def value(theta: Tensor) -> Tensor:
        tensors = {f"model.likelihood.{name}": theta.reshape(shape)}
        answer: Tensor = functional_call(asked, tensors, (lambda m: m.likelihood.values()[quantity],))
        return answer.reshape(theta.shape)

    def log_prob(v: Tensor) -> Tensor:
        density: Any = likelihood.priors()[quantity]
        density = density.base_dist if isinstance(density, Independent) else density
        answer: Tensor = density.log_prob(v.reshape(1, -1))
        return answer.reshape(v.shape)

    pulled = PulledBack(log_prob, value, parameter.detach().reshape(-1))
    if parameter.numel() != d.n_features:  # one for all, or those of some columns
        return sample(site, pulled.to_event(1)).reshape(shape)
    with d.features:
        return sample(site, pulled).reshape(shape)


def _components(prior: SpikeSlabPrior) -> tuple[Any, Any]:
    components = prior.components()
    if components is None:
        raise ValueError(
            f"model: {type(prior).__name__}.components() says no slab and spike, of which edges are made"
        )
    return components


def _of_restart(component: Any) -> Any:
    """A slab or a spike whose numbers may have the restart first, as one restart's."""
    if len(component.batch_shape) < 3:
        return component
    numbers = {name: getattr(component, name)[0] for name in component.arg_constraints if name != "probs"}
    return type(component)(**numbers)


def _cells(rows: Any) -> Any:
    """The cells of an observation of rows."""
    if isinstance(rows, Independent) and rows.reinterpreted_batch_ndims == 1:
        return rows.base_dist
    raise ValueError(
        f"model: its observation is a {type(rows).__name__} of rows, and chains draw the weights of each "
        "feature from the terms of its cells"
    )


def _rates_known(prior: SpikeSlabPrior) -> bool:
    """Whether rates are drawn: their density is not one of the caller's making."""
    return not any(change.name in _OF_RATES for change in changes(prior, "spike and slab"))


def _learns_cov(model: SparseDecoder) -> bool:
    """Whether factors are N(0, C) with a C that is learned, as the package has it."""
    is_own = any(change.name == "factor_prior" for change in changes(model, "masked decoder"))
    return model.learn_factor_cov and not is_own and model.n_factors > 1


def _held(model: SparseDecoder, stands_for: dict[str, str]) -> list[str]:
    drawn = {"weights", *stands_for.values()}
    held = [
        name for name, _ in model.named_parameters() if name not in drawn and name.split(".")[0] != "encoder"
    ]
    if "prior.eta" not in drawn:
        held.append("prior.eta")
    if model.learn_factor_cov and not _learns_cov(model) and model.n_factors > 1:
        held.append("factor_cov")
    return held


# ---- is it the model's own density? ------------------------------------------------------------------------
@torch.no_grad()
def refuse_other_density(
    made: ModelProgram, model: SparseDecoder, restart: int, table: Table, density: RecordedDensity
) -> None:
    """Complain of a program whose density differs from that of the model's own Pyro program.

    Both are asked at the first two chains' positions, so that constants cancel. The model is the fit's own
    object, with whatever was done to it, and not the one of one restart that the program asks.

    Parameters
    ----------
    made : ModelProgram
    model : SparseDecoder
        Fitted.
    restart : int
        The one that the program was made of.
    table : Table
        That the program was made of.
    density : RecordedDensity
        Of at least two chains.

    Raises
    ------
    OtherProgram
        Naming what differs.
    """
    values, logs = density.values(density.start), density.logs(density.start)
    few = table.rows(np.arange(min(_ROWS, len(table.x))))
    fitted = copy.deepcopy(model).cpu().double().eval()
    fitted.prior.anneal(1.0)
    batch = few.batch("cpu", torch.float64).whole()
    n_restarts = fitted.n_restarts
    wanted: list[dict[str, Tensor]] = []
    of_model: list[dict[str, Tensor]] = []
    for c in range(2):
        of_chain = {name: value[c] for name, value in values.items()}
        weight = (of_chain["W"].reshape(fitted.permitted.shape) * fitted.permitted).expand(n_restarts, -1, -1)
        z = of_chain["z"][: len(batch)].reshape(1, len(batch), -1).expand(n_restarts, -1, -1)
        single = made.tensors(of_chain)
        tensors = {name: value.expand(n_restarts, *value.shape[1:]) for name, value in single.items()}
        trace = functional_call(_Asked(fitted), tensors, (lambda m, z=z, w=weight: _trace(m, batch, z, w),))
        if strange := _strange_site(fitted, trace):
            raise _other(strange)
        of_prior = functional_call(
            _Asked(made.model), single, (lambda m, w=weight[:1]: _log_weights(m.prior, w),)
        )
        of_model.append({name: trace[name][restart] for name in ("W", "z", "x")})
        wanted.append({"W": of_prior, "z": logs["z"][c][: len(batch)], "x": logs["x"][c][: len(batch)]})
    sayings = {
        "W": "the density of its weights is not the mixture of slab and spike that its prior says in "
        "`inclusion` and `components`",
        "z": "its factors do not have the density that `factor_prior` says",
        "x": "its cells do not have the density that `observation` says",
    }
    for site, saying in sayings.items():
        ours, theirs = ([float(point[site].sum()) for point in points] for points in (wanted, of_model))
        apart = abs((ours[1] - ours[0]) - (theirs[1] - theirs[0]))
        if not apart <= _TOLERANCE * (1 + abs(ours[0]) + abs(ours[1])):
            raise _other(saying)


def _other(why: str) -> OtherProgram:
    return OtherProgram(
        f'model: {why}, so that the numbers would be probabilities of another model; ask for method="score"'
    )


def _trace(model: SparseDecoder, batch: Batch, z: Tensor, weight: Tensor) -> dict[str, Tensor]:
    """Log densities of the sites of a model's own program."""
    fixed = poutine.condition(model.model, {"z": z, model.prior.site: weight})
    nodes = poutine.trace(fixed).get_trace(batch).nodes
    names = {model.prior.site: "W"}
    return {
        names.get(name, name): node["fn"].log_prob(node["value"])
        for name, node in nodes.items()
        if node["type"] == "sample" and type(node["fn"]).__name__ != "_Subsample"
    }


def _strange_site(model: SparseDecoder, trace: dict[str, Tensor]) -> str:
    wanted = {"W", "z", "x", *model.likelihood.priors()}
    wanted |= {model.prior.hyper_site} if any(True for _ in model.prior.parameters()) else set()
    if strange := sorted(set(trace) - wanted):
        return f"its program has a site {strange[0]!r} of its own, which nothing draws"
    if missing := sorted({"W", "z", "x"} - set(trace)):
        return f"its program has no site {missing[0]!r}"
    return ""


def _log_weights(prior: SpikeSlabPrior, weight: Tensor) -> Tensor:
    """Log density of the weights as the mixture of what the prior says, (restart,)."""
    slab, spike = _components(prior)
    rate = prior.inclusion.expand(weight.shape)
    log_prob = torch.logaddexp(rate.log() + slab.log_prob(weight), (-rate).log1p() + spike.log_prob(weight))
    return torch.where(prior.allowed, log_prob, 0.0).sum((-2, -1))
