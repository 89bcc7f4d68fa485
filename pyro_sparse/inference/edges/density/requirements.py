"""What each sampler requires of a model, and what a model lacks of that: the one check of all samplers.

A sampler has a program of its own. Its numbers are probabilities of the caller's model only where the two
have one density: the classes declare which density they have (`_utils/declared.py`), and here stands which
of them a sampler samples. What a model lacks is said in words, so that a verdict, an error and a certificate
say the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from ...._utils.declared import Declared, changes, hooks, keeps, overridden
from ....nets.dependency import FeatureDecoder, SharedDecoder
from ....nets.layers import BatchLinear, LinearDecoder, MaskedDecoder
from ....nets.transition import GatedTransition, SineTransition
from ....priors.spike_slab import SpikeSlabPrior

if TYPE_CHECKING:
    from ...._utils.declared import Change
    from ....likelihoods import Likelihood
    from ....models import DependencyVAE, LatentTransition, MultiTaskRegression
    from ....models.base import FactorModel
    from ....priors import Prior

__all__ = [
    "lacks_for_engine",
    "lacks_for_parent_sets",
    "lacks_for_regressions",
    "lacks_for_strengths",
    "lacks_of_decoder",
    "lacks_of_likelihood",
    "lacks_of_prior",
]

_NETWORK = Declared("network", free=frozenset({"start"}))
# What the engine asks the caller's own objects for, so that they may be written anew: of a model, of its
# prior and of its likelihood. With another `update` or `log_hyper` rates stay at the fit's values.
_ASKED_OF_MODEL = frozenset({"decode", "factor_prior", "observation"})
_ASKED_OF_PRIOR = frozenset({"inclusion", "components", "distribution", "log_hyper", "update"})
_ASKED_OF_LIKELIHOOD = frozenset({"observation"})


def lacks_of_decoder(model: FactorModel) -> list[str]:
    """Why Markov chains over a masked decoder would sample another program, its prior and likelihood apart.

    Parameters
    ----------
    model : FactorModel
        Set up.

    Returns
    -------
    list of str
        Each the end of a sentence, the plainest first; empty if they sample the model, or if it has no prior.
    """
    if getattr(model, "prior", None) is None:
        return []
    reasons = _changed(model, "masked decoder", "chains")
    if reasons:
        return reasons
    wanted = MaskedDecoder if model.decoder_kind == "mlp" else LinearDecoder
    reasons = _network("decoder", model.decoder, wanted, ("", "trunk") if wanted is MaskedDecoder else ("",))
    if not reasons and wanted is MaskedDecoder:
        reasons = _network("decoder.trunk", model.decoder.trunk, BatchLinear)
    reasons += _hooked(model, "chains", "sample", leave_out=("encoder", "likelihood", "prior"))
    plain = {"weights", "decoder.first", "decoder.trunk.weight", "decoder.trunk.bias", "decoder.slope"}
    plain |= {"decoder.head", "decoder.intercept"}
    reasons += _more_parameters(model, plain, ("encoder", "likelihood", "prior"))
    if model.beta != 1:
        reasons.append(
            f"beta = {model.beta:g} weighs the factors' divergence, and the chains sample with beta = 1"
        )
    if model.total_correlation:
        reasons.append("total_correlation adds to the objective what no density has")
    return reasons


def lacks_of_prior(prior: Prior | None) -> str:
    """Why the chains do not have a prior's density, as the end of a sentence; empty if they do.

    Parameters
    ----------
    prior : Prior or None
    """
    name = type(prior).__name__
    if prior is None:
        return "the model has none"
    if not isinstance(prior, SpikeSlabPrior):
        return (
            f"this is {name}; for probabilities derive it from SpikeSlabPrior and write components(), which "
            "returns slab and spike"
        )
    if not keeps(prior, "spike and slab"):
        first = changes(prior, "spike and slab")[0]
        return (
            f"{first} is not the {first.name} that the chains sample; derive {name} from SpikeSlabPrior and "
            "let components() say all of it"
        )
    if hooked := hooks(prior):
        return f"a forward hook on {hooked[0]} may change what the prior says"
    if any(True for _ in prior.parameters()):
        return f"{name} learns parameters (nn.Parameter), which the chains do not draw"
    return ""


def lacks_of_likelihood(likelihood: Likelihood) -> list[str]:
    """Why the chains do not have a likelihood's density: they take rows as sums of cells, or as shares.

    Parameters
    ----------
    likelihood : Likelihood
    """
    name = type(likelihood).__name__
    reasons = []
    changed = [] if keeps(likelihood, "cells", "row totals") else _of_rows(likelihood)
    if changed and changed[0].on_object:
        reasons.append(f"{changed[0]} is not the {changed[0].name} that the chains ask")
    elif changed:
        reasons.append(
            f"Markov chains ask `forward` for the density of each cell, and {name} says something else with "
            f"`observation` or `log_prob` ({', '.join(map(str, changed))})"
        )
    reasons += [f"a forward hook on the {name} may change what its cells are" for _ in hooks(likelihood)[:1]]
    return reasons


def lacks_for_engine(model: FactorModel) -> list[str]:
    """Why the engine, which asks a model for its own densities, would still sample another program.

    Parameters
    ----------
    model : FactorModel
        Set up.

    Returns
    -------
    list of str
        Each the end of a sentence; empty if the engine may try.
    """
    prior = getattr(model, "prior", None)
    if not isinstance(prior, SpikeSlabPrior):
        name = "no prior" if prior is None else type(prior).__name__
        return [f"a model with {name} has no probabilities of edges, for its weights have no spike and slab"]
    asked: list[tuple[nn.Module, str, frozenset[str]]] = [
        (model, "masked decoder", _ASKED_OF_MODEL),
        (prior, "spike and slab", _ASKED_OF_PRIOR),
        (model.likelihood, "cells", _ASKED_OF_LIKELIHOOD),
    ]
    reasons = []
    for thing, kind, names in asked:
        owner = type(thing).__name__
        for change in changes(thing, kind):
            if not change.name:
                reasons.append(f"{owner} says nothing of what it is")
            elif change.on_object:
                reasons.append(f"{change} may go on asking another object than the one that chains draw")
            elif change.name not in names:
                reasons.append(f"{change} is not what the program of a model is made of")
    if hooked := hooks(model, leave_out=("encoder",)):
        reasons.append(
            f"a forward hook on its {hooked[0]} may know of other tensors than those that are drawn"
        )
    if model.beta != 1:
        reasons.append(f"beta = {model.beta:g} weighs the factors' divergence, which no density does")
    if model.total_correlation:
        reasons.append("total_correlation adds to the objective what no density has")
    return reasons


def lacks_for_parent_sets(model: LatentTransition) -> list[str]:
    """Why evidence of parent sets would be that of another transition than the model's.

    Parameters
    ----------
    model : LatentTransition
        Set up.
    """
    reasons = _changed(model, "latent transition", "evidence of parent sets", "has in mind")
    reasons += _network("transition", model.transition, SineTransition, ("", "line", "inner", "outer"))
    reasons += _network("gated", model.gated, GatedTransition)
    left_out = ("encoder", "decoder", "likelihood")
    reasons += _hooked(model, "evidence of parent sets", "is computed", leave_out=left_out)
    plain = {"log_sd", "logits"}
    reasons += _more_parameters(model, plain, (*left_out, "transition", "gated"))
    return reasons


def lacks_for_regressions(model: MultiTaskRegression) -> list[str]:
    """Why sparse linear rows would be other regressions than the model's, given its latents.

    Parameters
    ----------
    model : MultiTaskRegression
        Set up.
    """
    reasons = _changed(model, "sparse regressions", "rows", "are solved with")
    reasons += _hooked(model, "rows", "are solved", leave_out=("encoder", "likelihood"))
    reasons += _more_parameters(model, {"turn"}, ("encoder", "prior", "likelihood"))
    if not reasons and model.likelihood is not None:
        reasons = lacks_of_likelihood(model.likelihood)
    return reasons


def lacks_for_strengths(model: DependencyVAE) -> list[str]:
    """Why the strengths of a dense decoder's slopes are those of another program than the model's.

    Parameters
    ----------
    model : DependencyVAE
        Set up.
    """
    reasons = _changed(model, "dense decoder", "strengths", "are read from")
    wanted = FeatureDecoder if model.decoder_kind == "per_feature" else SharedDecoder
    if changed := overridden(model.decoder, wanted, _NETWORK):
        reasons.append(f"its decoder's {changed[0].name} is not that of a {wanted.__name__}")
    return reasons + _hooked(model, "strengths", "are read", leave_out=("encoder", "likelihood"))


def _of_rows(likelihood: Likelihood) -> list[Change]:
    """What a likelihood has of its own, by the nearest of the two densities that chains can take."""
    changed_by_kind = [changes(likelihood, kind) for kind in ("row totals", "cells")]
    return min((changed for changed in changed_by_kind if changed and changed[0].name), key=len)


def _changed(model: nn.Module, kind: str, solver: str, does: str = "sample") -> list[str]:
    return [
        f"{change} is not the {change.name} that the {solver} {does}"
        if change.name
        else f"this is {change.owner}, no {kind}"
        for change in changes(model, kind)
    ]


def _network(
    name: str, network: nn.Module, wanted: type[nn.Module], inside: tuple[str, ...] = ("",)
) -> list[str]:
    """What tells a network from one of the package's, by its class and by the modules that it is made of."""
    if not isinstance(network, wanted):
        return [f"its {name} is a {type(network).__name__}, not a {wanted.__name__}"]
    if changed := overridden(network, wanted, _NETWORK):
        return [f"{changed[0]} is not the {changed[0].name} of a {wanted.__name__} ({name})"]
    if strange := [module_name for module_name, _ in network.named_modules() if module_name not in inside]:
        return [f"its {name} has a {strange[0]}, which a {wanted.__name__} does not have"]
    return []


def _hooked(model: nn.Module, solver: str, does: str, leave_out: tuple[str, ...]) -> list[str]:
    return [
        f"a forward hook on its {name} may change what the model says, and the {solver} {does} without it"
        for name in hooks(model, leave_out)[:1]
    ]


def _more_parameters(model: nn.Module, plain: set[str], leave_out: tuple[str, ...]) -> list[str]:
    more = [n for n, _ in model.named_parameters() if n not in plain and n.split(".")[0] not in leave_out]
    return [f"it has a parameter of its own, {more[0]}, of which no sampler knows"] if more else []
