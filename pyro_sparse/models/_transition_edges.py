"""Edges of a latent transition that are required, forbidden or have odds of their own, as masks.

Latents are numbered, at every lag alike; actions go by name or by position, and those that are named can be
told once the sequences are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ._edge_odds import EdgeOdds, odds_of_edges

if TYPE_CHECKING:
    from .latent_transition import LatentTransition

__all__ = ["ActionEdge", "Edge", "EdgeMasks", "edge_masks", "with_actions"]

Edge = tuple[int, int]
ActionEdge = tuple[int, int | str]


class EdgeMasks(NamedTuple):
    """What is known of each edge, (latent, parent).

    Attributes
    ----------
    must, allowed : Tensor of bool
    log_odds : Tensor
        By how much the log odds of an edge differ from those of others.
    """

    must: Tensor
    allowed: Tensor
    log_odds: Tensor


def with_actions(pairs: Iterable[ActionEdge] | None) -> list[ActionEdge]:
    """Pairs of a latent and an action, which is a name or a position.

    Parameters
    ----------
    pairs : iterable of (int, int or str), optional
    """
    return [(int(i), a if isinstance(a, str) else int(a)) for i, a in pairs or ()]


def edge_masks(model: LatentTransition) -> EdgeMasks:
    """Masks and odds of all edges of a model; those that name an action only where the actions are known.

    Parameters
    ----------
    model : LatentTransition

    Raises
    ------
    ValueError
        An edge of latents or actions that there are not, or one that is both required and forbidden.
    """
    d, past = model.n_latents, model.lags * model.n_latents
    must = torch.zeros(d, model.n_parents, dtype=torch.bool)
    allowed = torch.ones(d, model.n_parents, dtype=torch.bool)
    for name, edges, target, value, lags in (
        ("required_time", model.required_time, must, True, 1),
        ("forbidden_time", model.forbidden_time, allowed, False, model.lags),
    ):
        for i, j in edges:
            _latent_edge(model, name, i, j)
            target[i, j : lags * d : d] = value
    for name, pairs, target, value in (
        ("required_action", model.required_action, must, True),
        ("forbidden_action", model.forbidden_action, allowed, False),
    ):
        for i, action in pairs:
            if not isinstance(action, str) or model.action_names is not None:
                i, position = _action_edge(model, name, i, action)
                target[i, past + position] = value
    loop = torch.arange(d)
    if model.lags and model.self_loops == "required":
        must[loop, loop] = True
    elif model.self_loops == "forbidden":
        for lag in range(model.lags):
            allowed[loop, lag * d + loop] = False
    clash = (must & ~allowed).nonzero()
    if len(clash):
        i, j = clash[0].tolist()
        graph, source = ("time", j) if j < past else ("action", (model.action_names or range(j))[j - past])
        raise ValueError(
            f"required_{graph}: edge ({i}, {source!r}) is also forbidden; remove one of the two constraints"
        )
    return EdgeMasks(must, allowed, _log_odds(model))


def _latent_edge(model: LatentTransition, name: str, target: int | str, source: int | str) -> tuple[int, int]:
    d = model.n_latents if model.lags else 0
    if not all(isinstance(k, int | np.integer) and 0 <= k < d for k in (target, source)):
        raise ValueError(
            f"{name}: edge ({target!r}, {source!r}) lies outside a time graph of {d} latents (both count "
            "from 0)"
        )
    return int(target), int(source)


def _action_edge(model: LatentTransition, name: str, target: int | str, action: int | str) -> tuple[int, int]:
    if not (isinstance(target, int | np.integer) and 0 <= target < model.n_latents):
        raise ValueError(
            f"{name}: edge ({target!r}, {action!r}) leads to none of {model.n_latents} latents (they "
            "count from 0)"
        )
    names = model.action_names or []
    if isinstance(action, str):
        if action not in names:
            raise ValueError(f"{name}: there is no action {action!r}; the actions are {names}")
        return int(target), names.index(action)
    if not 0 <= action < model.n_actions:
        raise ValueError(f"{name}: action {action} of {model.n_actions}; wanted a name, or a position from 0")
    return int(target), int(action)


def _log_odds(model: LatentTransition) -> Tensor:
    """Log of the odds of each edge, (latent, parent)."""
    d, past = model.n_latents, model.lags * model.n_latents
    odds = np.ones((d, model.n_parents))
    if model.edge_odds_time is not None:
        name = "edge_odds_time"
        if not model.lags:
            raise ValueError(f"{name}: lags=0, so that no past latent drives any; leave it out")
        time = odds_of_edges(
            model.edge_odds_time,
            (d, d),
            None,
            lambda i, j: _latent_edge(model, name, i, j),
            argument=name,
            dims=("target", "source"),
        )
        odds[:, :past] = np.tile(time, model.lags)
    if model.edge_odds_action is not None:
        name = "edge_odds_action"
        if not model.n_actions:
            raise ValueError(f"{name}: n_actions=0, there is no action; leave it out")
        if model.action_names is not None or not _names_actions(model.edge_odds_action):
            odds[:, past:] = odds_of_edges(
                model.edge_odds_action,
                (d, model.n_actions),
                None,
                lambda i, a: _action_edge(model, name, i, a),
                model.action_names,
                argument=name,
                dims=("target", "action"),
            )
    return torch.as_tensor(odds).log().to(torch.get_default_dtype())


def _names_actions(odds: EdgeOdds) -> bool:
    """Whether odds can only be read with the actions' names."""
    if isinstance(odds, Mapping):
        return any(np.shape(edge) == (2,) and isinstance(edge[1], str) for edge in odds)
    return isinstance(odds, pd.DataFrame)
