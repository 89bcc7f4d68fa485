"""A model of the caller's own, tried before it is trained: what would end in an error hours later ends now.

Methods are looked at (`_utils/signatures.py`), functions that were set on the object must not hold on to it,
since a fit trains a copy, and the program is set up twice and run once on a few rows. The package's own
models are not tried.
"""

from __future__ import annotations

import copy
import types
from typing import TYPE_CHECKING, cast

import torch
from pyro import poutine

from .._utils.signatures import refuse_signatures
from .._utils.torch_state import undisturbed
from ..likelihoods import Likelihood
from ..models.base import FactorModel
from ..models.latent_transition import LatentTransition
from ..models.multitask import MultiTaskRegression
from ..models.sparse_decoder import SparseDecoder
from ..priors import Prior, SpikeSlabPrior
from .transition.transition_axes import transition_jacobian

if TYPE_CHECKING:
    from ..data.sequences import Sequences
    from ..data.table import Table
    from .training._families import Data, Trainable

__all__ = ["refuse_broken_models"]

_KEPT = ("n_samples", "missing", "feature_names")  # by `setup`, and asked for after the training
_DECODERS = {"mlp": "MaskedDecoder", "linear": "LinearDecoder"}
_FEW = 2  # rows, or sequences, of the trial


def refuse_broken_models(model: Trainable, data: Data, restarts: int) -> None:
    """Complain of a model that could not be trained, or not be read after the training.

    Parameters
    ----------
    model : Module
        The fit's copy, which knows its number of features.
    data : Table, Sequences or Tasks
    restarts : int

    Raises
    ------
    TypeError
        A method cannot be called as the package does.
    ValueError
        `setup` leaves out what a fit asks for later, or makes a parameter without a restart dimension; the
        program fails.
    """
    if _is_the_packages(model):
        return
    families = (SparseDecoder, FactorModel, LatentTransition, MultiTaskRegression)
    family = next((base for base in families if isinstance(model, base)), None)
    if family is not None:
        refuse_signatures("model", model, family, by_name=("setup",))
    if (prior := getattr(model, "prior", None)) is not None:
        refuse_signatures("prior", prior, Prior, by_name=("setup",))
        if isinstance(prior, SpikeSlabPrior):
            refuse_signatures("prior", prior, SpikeSlabPrior)
    if (likelihood := getattr(model, "likelihood", None)) is not None:
        refuse_signatures("likelihood", likelihood, Likelihood)
    if family is None or family is MultiTaskRegression:
        return
    model, data = cast("FactorModel | LatentTransition", model), cast("Table | Sequences", data)
    with undisturbed(0):
        if family is SparseDecoder:
            _refuse_decoder(cast("SparseDecoder", _set_up(model, data, 1)))
        if family is LatentTransition:
            _try_transition(cast("LatentTransition", _set_up(model, data, 1)), cast("Sequences", data))
        least = 1 if family is LatentTransition else restarts  # restarts of sequences are trained one by one
        shapes = [_shapes(_set_up(model, data, n)) for n in range(least, least + 1 + (restarts > 1))]
        _refuse_unbatched(*shapes, restarts=restarts)


def refuse_bound_functions(model: object) -> None:
    """Complain of functions set on a model, its prior or its likelihood that refer to that very object.

    A fit trains a copy, in which such a function would go on asking the original, untrained one.

    Parameters
    ----------
    model : Module
        The caller's own, before it is copied.

    Raises
    ------
    ValueError
        Naming the function.
    """
    things = {"model": model} | {
        name: thing for name in ("prior", "likelihood") if (thing := getattr(model, name, None)) is not None
    }
    originals = [*things.values(), *(model.modules() if isinstance(model, torch.nn.Module) else ())]
    for argument, thing in things.items():
        for name, function in vars(thing).items():
            if isinstance(function, types.FunctionType) and _refers_to(function, originals):
                raise ValueError(
                    f"{argument}.{name}: the function set on it refers to the object itself, and a fit "
                    f"trains a copy, which that function would not see; write a subclass with a method {name}"
                )


def _is_the_packages(model: object) -> bool:
    """Whether model, prior and likelihood are the package's, with nothing set on them."""
    owners = [model, getattr(model, "prior", None), getattr(model, "likelihood", None)]
    ours = all(type(owner).__module__.startswith("pyro_sparse.") for owner in owners if owner is not None)
    set_on = [
        name for owner in owners if owner is not None for name in vars(owner) if _is_method(owner, name)
    ]
    return ours and not set_on


def _is_method(owner: object, name: str) -> bool:
    return callable(getattr(type(owner), name, None))


def _set_up(
    model: FactorModel | LatentTransition, data: Table | Sequences, n_restarts: int
) -> FactorModel | LatentTransition:
    trial = copy.deepcopy(model)
    of_sequences = isinstance(model, LatentTransition)
    trial.setup(
        n_restarts=n_restarts,
        n_samples=len(cast("Sequences", data) if of_sequences else data.x),
        missing=data.missing,
        feature_names=None if of_sequences else data.feature_names,
    )
    if lost := [name for name in ("n_restarts", *_KEPT) if not hasattr(trial, name)]:
        raise ValueError(
            f"model: {type(model).__name__}.setup leaves {lost[0]!r} unset, which a fit asks for after the "
            "training; call super().setup(n_restarts, n_samples, missing, feature_names) in it"
        )
    return trial


def _shapes(model: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(p.shape) for name, p in model.named_parameters()}


def _refuse_unbatched(
    shapes: dict[str, tuple[int, ...]], more: dict[str, tuple[int, ...]] | None = None, *, restarts: int
) -> None:
    """Of several restarts each has its parameters: without that dimension they would be one restart's."""
    alone = [] if more is None else [name for name, shape in shapes.items() if more.get(name, shape) == shape]
    if alone:
        raise ValueError(
            f"model: parameter {alone[0]!r} has shape {shapes[alone[0]]} whatever the number of restarts, so "
            f"that {restarts} restarts would end with one value; make the restart its leading dimension in "
            "setup or build (self.n_restarts), or fit with restarts=1"
        )


def _refuse_decoder(model: SparseDecoder) -> None:
    """Complain of a decoder that lacks what a fit asks of it between steps."""
    if not isinstance(model.weights, torch.nn.Parameter):  # torch.nn.utils.parametrize makes them a property
        raise ValueError(
            "model: its weights are computed, as by torch.nn.utils.parametrize, and a fit sets single ones "
            "to zero between steps; wanted an nn.Parameter: keep it, and write decode(z, weights), which may "
            "change weights as it likes"
        )
    wanted = ("intercept", "project", *(("start", "rescale") if model.decoder_kind == "mlp" else ()))
    if missing := [name for name in wanted if not hasattr(model.decoder, name)]:
        raise ValueError(
            f"model: its decoder, a {type(model.decoder).__name__}, has no {missing[0]!r}; want one with "
            f"{', '.join(wanted)} and forward(z, weights), as pyro_sparse.nets.layers."
            f"{_DECODERS[model.decoder_kind]} has"
        )


def _try_transition(model: LatentTransition, data: Sequences) -> None:
    """Both programs on a few sequences, and the Jacobian: all but the first are asked for late."""
    batch = data.batch("cpu", next(model.parameters()).dtype)
    batch = batch.rows(torch.arange(min(_FEW, len(batch)))).whole()
    for dense, variant in ((True, "dense"), (False, "gated")):
        model.dense = dense
        try:
            with torch.no_grad():
                guide = poutine.trace(model.guide).get_trace(batch)
                poutine.trace(poutine.replay(model.model, trace=guide)).get_trace(batch)
        except Exception as error:
            raise ValueError(
                f"model: the {variant} program of {type(model).__name__} fails on {len(batch)} sequences: "
                f"{type(error).__name__}: {error}"
            ) from error
    model.dense = True
    inputs = torch.zeros(1, 3, model.n_inputs)
    try:
        jacobian = transition_jacobian(model, inputs)
        wanted = (1, 3, model.n_latents, model.n_inputs)
        if tuple(jacobian.shape) != wanted:
            raise ValueError(f"its Jacobian has shape {tuple(jacobian.shape)}, wanted {wanted}")
    except Exception as error:
        raise ValueError(
            f"model: {type(model).__name__}.transition has no derivative by its inputs, which the search for "
            f"axes needs: {type(error).__name__}: {error}; want a differentiable map, row by row, of inputs "
            "(restart, row, input) to means (restart, row, latent)"
        ) from error


def _refers_to(function: types.FunctionType, originals: list[object]) -> bool:
    """Whether a function's closure, defaults or globals hold one of these objects, or a method of one."""
    referents = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    referents += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    referents += [function.__globals__.get(name) for name in function.__code__.co_names]
    referents += [getattr(referent, "__self__", None) for referent in referents]
    return any(referent is original for referent in referents for original in originals)


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
