"""What is asked of a fit whose model somebody changed: is it told, or are the probabilities its own?

"told": it is refused, or its numbers are scores and say why. "right": the program is the user's own, and its
density, looked at anew (`samples_it`), is what was sampled. "silent": probabilities of another model, or an
error that does not come from a check of the package.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import numpy as np
import torch
from pyro import poutine

import pyro_sparse as ps
from pyro_sparse import likelihoods
from pyro_sparse.inference.edges.program.model_program import model_program
from pyro_sparse.inference.program.recorded import RecordedDensity
from pyro_sparse.inference.training.restarts import pick
from pyro_sparse.models import SparseDecoder
from pyro_sparse.priors import SpikeSlabPrior

G, K, ROWS = 6, 2, 40
CHAINS = {"sweeps": 14, "warm_up": 3, "num_draws": 5}
_ADVICE = ("model", "prior", "likelihood", "method", "fit", "neither", "simulate")


def table(seed: int, kind: str = "normal") -> np.ndarray:
    """A table of two factors."""
    rng = np.random.default_rng(seed)
    f = rng.standard_normal((ROWS, K)) @ (rng.standard_normal((K, G)) * (rng.random((K, G)) < 0.7))
    x = f + 0.5 * rng.standard_normal(f.shape)
    if kind == "bernoulli":
        x = (x > 0).astype(float)
        x[:2] = [[0.0], [1.0]]
    return x


def some(seed: int) -> dict[str, str]:
    """Decoder by seed, so that every kind meets both."""
    return {"decoder": ("linear", "mlp")[seed % 5 == 4], "activation": ("relu", "tanh")[seed % 2]}


def fitted(model, seed: int, kind: str = "normal"):
    """A fit of a few steps; what it finds does not matter."""
    return ps.fit(model, table(seed, kind), restarts=1, steps=8, seed=seed, progress=False, holdout=0.0)


def asked(fit, **options) -> str:
    """What a fit whose model is not the chains' is told."""
    found = fit.edge_posterior(**options, **(CHAINS if type(fit).__name__ == "Fit" else {}))
    if found.attrs["edge_method"] == "program":
        return "right" if samples_it(fit) else "silent"
    if not found.attrs["is_score"]:
        return "silent"
    why = str(found.attrs.get("chosen_because", "")) or str(found.attrs["verdict"])
    said = bool(why) and ("Why scores" in found.attrs["verdict"])
    try:
        fit.edge_posterior(PROBABLE[type(fit).__name__], num_draws=2)
    except (ValueError, TypeError) as error:
        return "told" if said and str(error).split(":")[0] in _ADVICE else "silent"
    return "silent"


def samples_it(fit) -> bool:
    """Whether the engine's density changes from one point to another as that of the fit's own Pyro program.

    Values are written into a copy of the fit's model, of one restart and in double precision; constants
    cancel.
    """
    made = model_program(pick(fit.model, [fit.best]), fit.table)
    density = RecordedDensity(made.program, ps.Data(np.asarray(fit.table.x, dtype=float)), 2, seed=7)
    values, logs = density.values(density.start), density.logs(density.start)
    ours, theirs = [], []
    for c in range(2):
        model = copy.deepcopy(pick(fit.model, [fit.best])).double()
        model.prior.anneal(1.0)
        state = model.state_dict()
        for site, name in made.stands_for.items():
            state[name].copy_(
                values[site][c].reshape(-1).expand(state[name].numel()).reshape(state[name].shape)
            )
        if "correlation" in values:
            state["factor_cov"].copy_(values["correlation"][c] @ values["correlation"][c].mT)
        weights = values["W"][c].reshape(1, G, K) * model.permitted
        fixed = {"W": weights, "z": values["z"][c].reshape(1, ROWS, K)}
        program = poutine.condition(model.model, fixed)
        trace = poutine.trace(program).get_trace(fit.table.batch("cpu", torch.float64))
        trace.compute_log_prob()
        sites = "W", "z", "x"
        theirs.append(sum(float(trace.nodes[site]["log_prob"].sum()) for site in sites))
        ours.append(sum(float(logs[site][c].sum()) for site in sites))
    return bool(abs((ours[1] - ours[0]) - (theirs[1] - theirs[0])) < 1e-6 * (1 + abs(ours[0])))


PROBABLE = {"Fit": "mcmc", "TransitionFit": "parent_sets", "MultiTaskFit": "ep"}


def outcome(case: Callable[[], str]) -> str:
    """Of one case: an error counts as told if it is a check's, which names the argument first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return case()
        except (ValueError, TypeError) as error:
            first = str(error).split(":")[0]
            return "told" if len(first) < 60 and " " not in first.split("(")[0] else "silent"
        except Exception:
            return "silent"


def of_class(kind: type, **more) -> Callable[[int], str]:
    """A subclass of the decoder, asked."""
    return lambda seed: outcome(lambda: asked(fitted(kind(G, K, **some(seed), **more), seed)))


def of_prior(make: Callable[[int], SpikeSlabPrior]) -> Callable[[int], str]:
    """A prior, asked."""
    return lambda seed: outcome(
        lambda: asked(fitted(SparseDecoder(G, K, prior=make(seed), **some(seed)), seed))
    )


def of_likelihood(
    make: Callable[[int], likelihoods.Likelihood], kind: str = "normal"
) -> Callable[[int], str]:
    """A likelihood, asked."""
    return lambda seed: outcome(
        lambda: asked(fitted(SparseDecoder(G, K, likelihood=make(seed), **some(seed)), seed, kind))
    )


def after_fit(change: Callable[[SparseDecoder], None]) -> Callable[[int], str]:
    """The package's model, changed once it is fitted."""

    def case(seed: int) -> str:
        fit = fitted(SparseDecoder(G, K, **some(seed)), seed)
        change(fit.model)
        return asked(fit)

    return lambda seed: outcome(lambda: case(seed))


def before_fit(change: Callable[[SparseDecoder], None]) -> Callable[[int], str]:
    """The package's model, changed before it is fitted."""

    def case(seed: int) -> str:
        model = SparseDecoder(G, K, **some(seed))
        change(model)
        return asked(fitted(model, seed))

    return lambda seed: outcome(lambda: case(seed))
