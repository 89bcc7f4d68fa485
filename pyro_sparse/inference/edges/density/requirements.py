"""What each sampler requires of a model, and what a model lacks of that: the one check of all samplers.

A sampler has a program of its own. Its numbers are probabilities of the caller's model only where the two
have one density: the classes declare which density they have (`_utils/declared.py`), and here stands which
of them a sampler samples. What a model lacks is said in words, so that a verdict, an error and a certificate
say the same.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from ...._utils.declared import Declared, changes, hooks, keeps, overridden
from ....nets.dependency import FeatureDecoder, SharedDecoder
from ....nets.layers import BatchLinear, LinearDecoder, MaskedDecoder
from ....nets.transition import GatedTransition, SineTransition
from ....priors.spike_slab import SpikeSlabPrior

__all__ = [
    "lacks_for_parent_sets",
    "lacks_for_regressions",
    "lacks_for_strengths",
    "lacks_of_decoder",
    "lacks_of_likelihood",
    "lacks_of_prior",
]

_NETWORK = Declared("network", free=frozenset({"start"}))


def lacks_of_decoder(model: Any) -> list[str]:
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
    found = _changed(model, "masked decoder", "chains")
    if found:
        return found
    wanted = MaskedDecoder if model.decoder_kind == "mlp" else LinearDecoder
    found = _network("decoder", model.decoder, wanted, ("", "trunk") if wanted is MaskedDecoder else ("",))
    if not found and wanted is MaskedDecoder:
        found = _network("decoder.trunk", model.decoder.trunk, BatchLinear)
    found += _hooked(model, "chains", "sample", leave_out=("encoder", "likelihood", "prior"))
    plain = {"weights", "decoder.first", "decoder.trunk.weight", "decoder.trunk.bias", "decoder.slope"}
    plain |= {"decoder.head", "decoder.intercept"}
    found += _more_parameters(model, plain, ("encoder", "likelihood", "prior"))
    if model.beta != 1:
        found.append(
            f"beta = {model.beta:g} weighs the factors' divergence, and the chains sample with beta = 1"
        )
    if model.total_correlation:
        found.append("total_correlation adds to the objective what no density has")
    return found


def lacks_of_prior(prior: Any) -> str:
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


def lacks_of_likelihood(likelihood: Any) -> list[str]:
    """Why the chains do not have a likelihood's density: they take rows as sums of cells, or as shares.

    Parameters
    ----------
    likelihood : Likelihood
    """
    name = type(likelihood).__name__
    found = []
    own = [] if keeps(likelihood, "cells", "row totals") else _of_rows(likelihood)
    if own and own[0].on_object:
        found.append(f"{own[0]} is not the {own[0].name} that the chains ask")
    elif own:
        found.append(
            f"Markov chains ask `forward` for the density of each cell, and {name} says something else with "
            f"`observation` or `log_prob` ({', '.join(map(str, own))})"
        )
    found += [f"a forward hook on the {name} may change what its cells are" for _ in hooks(likelihood)[:1]]
    return found


def lacks_for_parent_sets(model: Any) -> list[str]:
    """Why evidence of parent sets would be that of another transition than the model's.

    Parameters
    ----------
    model : LatentTransition
        Set up.
    """
    found = _changed(model, "latent transition", "evidence of parent sets", "has in mind")
    found += _network("transition", model.transition, SineTransition, ("", "line", "inner", "outer"))
    found += _network("gated", model.gated, GatedTransition)
    left_out = ("encoder", "decoder", "likelihood")
    found += _hooked(model, "evidence of parent sets", "is computed", leave_out=left_out)
    plain = {"log_sd", "logits"}
    found += _more_parameters(model, plain, (*left_out, "transition", "gated"))
    return found


def lacks_for_regressions(model: Any) -> list[str]:
    """Why sparse linear rows would be other regressions than the model's, given its latents.

    Parameters
    ----------
    model : MultiTaskRegression
        Set up.
    """
    found = _changed(model, "sparse regressions", "rows", "are solved with")
    found += _hooked(model, "rows", "are solved", leave_out=("encoder",))
    found += _more_parameters(model, {"turn"}, ("encoder", "prior"))
    return found


def lacks_for_strengths(model: Any) -> list[str]:
    """Why the strengths of a dense decoder's slopes are those of another program than the model's.

    Parameters
    ----------
    model : DependencyVAE
        Set up.
    """
    found = _changed(model, "dense decoder", "strengths", "are read from")
    wanted = FeatureDecoder if model.decoder_kind == "per_feature" else SharedDecoder
    if changed := overridden(model.decoder, wanted, _NETWORK):
        found.append(f"its decoder's {changed[0].name} is not that of a {wanted.__name__}")
    return found + _hooked(model, "strengths", "are read", leave_out=("encoder", "likelihood"))


def _of_rows(likelihood: Any) -> list[Any]:
    """What a likelihood has of its own, by the nearest of the two densities that chains can take."""
    found = [changes(likelihood, kind) for kind in ("row totals", "cells")]
    return min((one for one in found if one and one[0].name), key=len)


def _changed(model: Any, kind: str, solver: str, does: str = "sample") -> list[str]:
    return [
        f"{one} is not the {one.name} that the {solver} {does}"
        if one.name
        else f"this is {one.owner}, no {kind}"
        for one in changes(model, kind)
    ]


def _network(name: str, found: Any, wanted: type[nn.Module], inside: tuple[str, ...] = ("",)) -> list[str]:
    """What tells a network from one of the package's, by its class and by the modules that it is made of."""
    if not isinstance(found, wanted):
        return [f"its {name} is a {type(found).__name__}, not a {wanted.__name__}"]
    if changed := overridden(found, wanted, _NETWORK):
        return [f"{changed[0]} is not the {changed[0].name} of a {wanted.__name__} ({name})"]
    if strange := [one for one, _ in found.named_modules() if one not in inside]:
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
